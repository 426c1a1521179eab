//! `c3`: adaptive replica selection of C3.
//!
//! ```text
//! q̂_j     = 1 + outstanding_j · n + Q_j                    n = nodes that send = peers + 1
//! score_j = R̄_j − 1/μ̄_j + q̂_j³ / μ̄_j
//! here    = W_here + C − 1/μ̄_here + (1 + Q_here)³ / μ̄_here
//! redirect to argmin score_j  iff  score_j < here
//! ```
//! After Suresh, Canini, Schmid and Feldmann, *C3: Cutting Tail Latency in Cloud Data Stores via Adaptive Replica
//! Selection* (NSDI 2015). `R̄` is the mean response time of packets sent to j, `1/μ̄` its mean service time, `Q` its
//! reported queue, `outstanding` the frames sent there that no result has come back for; each of the n senders is
//! taken to have as many. The cube makes long queues expensive. Here all is known without a measurement: a packet
//! would answer after `W + C`, and the queue holds what everybody has outstanding. A node that has not answered yet
//! has `R̄` = 0 and this node's service time, so it is tried soon and the cube bounds how often. Left out: the rate
//! control of the paper, which paces senders that have no other choice; a packet can stay. Ignores: the packet's own
//! size, forwarding cost but for what `R̄` holds of it. Cost: one pass over the nodes, or over a sample of them, and
//! three multiplications each.

use super::{Decision, Homes, Job, Needs, Policy, look};
use crate::load::{LoadView, Row, Visit, Word};
use crate::maps::Params;
use crate::plan::NoPlan;

/// Longest queue that counts, thousandths of packets, and longest service time, ns: the score then fits 64 bits.
const MOST_MILLI: u64 = 1 << 23;
const MOST_SERVICE_NS: u32 = 1 << 24;

/// See the module.
pub struct C3;

impl Policy for C3 {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS.and(Needs::RESULTS);
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let (here, service_ns) = (loads.here(), loads.signals().service_ns);
        let response_ns = u64::from(here.backlog_ns) + u64::from(job.ept_ns);
        let score_here = score(response_ns, service_ns, u64::from(here.queued_milli));
        let senders = u64::from(loads.peers()) + 1;
        let mut least = Least { now_ns: job.now_ns, node: 0, score: u64::MAX, senders, service_ns };
        look(loads, job.random, params.tuning.sample, &mut least);
        Decision::compare(score_here, least.node, least.score, 0)
    }
}

struct Least {
    now_ns: u64,
    node: u16,
    score: u64,
    senders: u64,
    /// Service time of a node that is not known.
    service_ns: u32,
}

impl Visit for Least {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let (response_ns, service_ns) = row.halves(Word::Response);
        let service_ns = if service_ns == 0 { self.service_ns } else { service_ns };
        let queue_milli = u64::from(row.outstanding()) * 1000 * self.senders + u64::from(row.queued_milli());
        let score = score(u64::from(response_ns), service_ns, queue_milli);
        if score < self.score && row.is_candidate(self.now_ns) {
            self.score = score;
            self.node = node;
        }
    }
}

/// The score of the module, ns, for a queue without the packet. Not negative: q̂ is at least 1.
#[inline(always)]
const fn score(response_ns: u64, service_ns: u32, queue_milli: u64) -> u64 {
    let longest = if queue_milli > MOST_MILLI { MOST_MILLI } else { queue_milli };
    let service_ns = if service_ns > MOST_SERVICE_NS { MOST_SERVICE_NS } else { service_ns } as u64;
    // 46 bits squared, 49 bits cubed, in thousandths each; with 24 bits of service time 63.
    let queue = 1000 + longest;
    let cube = queue * queue / 1000 * queue / 1000;
    response_ns + (cube / 1000 - 1) * service_ns + cube % 1000 * service_ns / 1000
}

#[cfg(test)]
mod tests {
    use super::super::least_connections::tests::check;
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict};
    use super::*;
    use crate::load::Here;
    use crate::maps::LoadRow;
    use proptest::prelude::*;

    const KIND: PolicyKind = PolicyKind::C3;

    /// The paper's score.
    fn exact(response: f64, service: f64, queue: f64) -> f64 {
        response - service + queue.powi(3) * service
    }

    proptest! {
        #[test]
        fn agrees_with_the_formula(table in table(), ept in 0u32..2_000_000, random: u32) {
            let decision = decide(KIND, &job(ept, random), &params(KIND), &table);
            let own_service = f64::from(table.signals.service_ns);
            let own_response = f64::from(table.here.backlog_ns) + f64::from(ept);
            let here = exact(own_response, own_service, 1.0 + f64::from(table.here.queued_milli) / 1000.0);
            let senders = table.rows.len() as f64;
            let score = |row: &LoadRow| {
                let outstanding = f64::from((row.sent_frames as u32).wrapping_sub(row.completed_frames as u32));
                let queue = 1.0 + outstanding * senders + f64::from(row.queued_milli) / 1000.0;
                let service = if row.service_ns == 0 { own_service } else { f64::from(row.service_ns) };
                exact(f64::from(row.response_ns), service, queue)
            };
            check(decision, here, table.candidates(), score, 0.002)?;
        }

        #[test]
        fn scores_are_the_papers(
            response in prop_oneof![0u32..100_000, any::<u32>()],
            service in 0u32..1 << 24,
            queue in prop_oneof![0u64..5_000, 0u64..1 << 23],
        ) {
            let found = score(response.into(), service, queue) as f64;
            let expected = exact(response.into(), service.into(), 1.0 + queue as f64 / 1000.0);
            prop_assert!((found - expected).abs() <= 0.002 * expected + 1.0 + f64::from(service) * 0.003);
        }

        #[test]
        fn extremes_neither_overflow_nor_turn_round(service: u32, queue: u64, more: u64) {
            let longer = queue.saturating_add(more);
            prop_assert!(score(u32::MAX.into(), service, queue) <= score(u32::MAX.into(), service, longer));
            prop_assert!(score(u64::from(u32::MAX) * 2, service, longer) < u64::MAX);
        }
    }

    #[test]
    fn a_long_queue_outweighs_a_short_response() {
        let here = Here { backlog_ns: 60_000, queued_milli: 6000, ..Here::default() };
        let busy = LoadRow { response_ns: 20_000, service_ns: 10_000, queued_milli: 5000, ..idle() };
        let calm = LoadRow { response_ns: 70_000, service_ns: 10_000, queued_milli: 1000, ..idle() };
        let table = Table::new(here, [busy, calm]);
        let decision = decide(KIND, &job(10_000, 0), &params(KIND), &table);
        assert_eq!((decision.verdict, decision.there), (Verdict::Redirect(2), 70_000 - 10_000 + 8 * 10_000));
    }

    #[test]
    fn a_node_that_never_answered_is_as_fast_as_this_one() {
        let here = Here { backlog_ns: 60_000, queued_milli: 6000, ..Here::default() };
        let table = Table::new(here, [LoadRow { queued_milli: 1000, ..idle() }]);
        let decision = decide(KIND, &job(10_000, 0), &params(KIND), &table);
        assert_eq!((decision.verdict, decision.there), (Verdict::Redirect(1), 8 * 10_000 - 10_000));
    }

    #[test]
    fn own_packets_on_the_way_stand_for_those_of_all_senders() {
        let here = Here { backlog_ns: 20_000, queued_milli: 2000, ..Here::default() };
        let peer = |outstanding| LoadRow { service_ns: 10_000, sent_frames: outstanding, ..idle() };
        // Three nodes send: one frame of ours makes a queue of 1 + 3.
        let table = Table::new(here, [peer(1), peer(1)]);
        let decision = decide(KIND, &job(10_000, 0), &params(KIND), &table);
        assert_eq!((decision.verdict, decision.there), (Verdict::Local, 630_000));
        let table = Table::new(here, [peer(1), peer(0)]);
        assert_eq!(decide(KIND, &job(10_000, 0), &params(KIND), &table).verdict, Verdict::Redirect(2));
    }
}

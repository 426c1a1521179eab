//! `lsq`: local shortest queue.
//!
//! ```text
//! here    = Q_here
//! there_j = Q_j as reported + frames sent to j since that report came / workers of j
//! redirect to argmin there_j  iff  there_j < here
//! ```
//! After Vargaftik, Keslassy and Orda, *LSQ: Load Balancing in Large-Scale Heterogeneous Systems With Multiple
//! Dispatchers* (IEEE/ACM ToN 2020): every dispatcher keeps its own idea of each queue, adds what it sends, never
//! subtracts, and takes a queue's word for it when it hears one. The ideas of different nodes differ, which keeps them
//! from running to the same queue. It differs from `least-connections` in what a report does: there it leaves the
//! frames it does not include in the count, here it wipes them. Ties stay. Ignores: sizes of packets, forwarding cost,
//! speeds, frames on the wire when a report was made, and what was computed since. Cost: one pass over the nodes, or
//! over a sample of them.

use super::{Decision, Homes, Job, Needs, Policy, look};
use crate::load::{LoadView, Row, Visit, Word, newer};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct Lsq;

impl Policy for Lsq {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let mut least = Least { now_ns: job.now_ns, node: 0, queue_milli: u64::MAX };
        look(loads, job.random, params.tuning.sample, &mut least);
        Decision::compare(u64::from(loads.here().queued_milli), least.node, least.queue_milli, 0)
    }
}

struct Least {
    now_ns: u64,
    node: u16,
    queue_milli: u64,
}

impl Visit for Least {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let (sent, marked) = (row.word(Word::SentFrames) as u32, row.halves(Word::Marked).1);
        let since = if newer(sent, marked) { sent.wrapping_sub(marked) } else { 0 };
        let queue_milli = u64::from(row.queued_milli()) + u64::from(since) * 1000 / u64::from(row.workers());
        if queue_milli < self.queue_milli && row.is_candidate(self.now_ns) {
            self.queue_milli = queue_milli;
            self.node = node;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::least_connections::tests::check;
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict};
    use crate::load::Here;
    use crate::maps::LoadRow;
    use proptest::prelude::*;

    const KIND: PolicyKind = PolicyKind::Lsq;

    proptest! {
        #[test]
        fn agrees_with_the_formula(table in table(), ept in 0u32..2_000_000, random: u32) {
            let decision = decide(KIND, &job(ept, random), &params(KIND), &table);
            let queue = |row: &LoadRow| {
                let since = (row.sent_frames as u32).wrapping_sub(row.marked_frames);
                f64::from(row.queued_milli) + 1000.0 * f64::from(since) / f64::from(row.workers)
            };
            check(decision, table.here.queued_milli.into(), table.candidates(), queue, 0.0)?;
        }
    }

    #[test]
    fn a_report_wipes_what_was_added() {
        // Three frames went there, two before the report came; the report includes none of them.
        let row = LoadRow { sent_frames: 3, marked_frames: 2, acked_frames: 0, ..idle() };
        let table = Table::new(Here { queued_milli: 2000, ..Here::default() }, [row]);
        let decision = decide(KIND, &job(5_000, 0), &params(KIND), &table);
        assert_eq!((decision.verdict, decision.there), (Verdict::Redirect(1), 1000));
        let kind = PolicyKind::LeastConnections;
        let decision = decide(kind, &job(5_000, 0), &params(kind), &table);
        assert_eq!((decision.verdict, decision.there), (Verdict::Local, 3000));
    }

    #[test]
    fn equal_queues_stay_and_a_mark_seen_before_its_send_is_nothing() {
        let row = LoadRow { queued_milli: 2000, sent_frames: 7, marked_frames: 8, ..idle() };
        let table = Table::new(Here { queued_milli: 2000, ..Here::default() }, [row]);
        let decision = decide(KIND, &job(5_000, 0), &params(KIND), &table);
        assert_eq!((decision.verdict, decision.there), (Verdict::Local, 2000));
    }
}

//! `least-work`: join the queue with the least work left (LWL).
//!
//! ```text
//! here    = W_here
//! there_j = ERL_j                  by the mode of tuning.erl, as ept-erl
//! redirect to argmin there_j  iff  there_j < here
//! ```
//! With perfect knowledge and equal servers this is the same as one queue in front of all of them, M/G/k
//! (Harchol-Balter, *Performance Modeling and Design of Computer Systems*, 2013, ch. 24). It is `ept-erl` without the
//! cost of a redirect, and shows what that term is worth. Ties stay. Ignores: forwarding cost, speeds, and what others
//! have sent since the report. Cost: one pass over the nodes, or over a sample of them.

use super::{Decision, Homes, Job, Needs, Policy, look};
use crate::load::{Erl, LoadView, Row, Visit};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct LeastWork;

impl Policy for LeastWork {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let erl = Erl::from_id(params.tuning.erl);
        let mut least = Least { now_ns: job.now_ns, node: 0, work_ns: u64::MAX, erl };
        look(loads, job.random, params.tuning.sample, &mut least);
        Decision::compare(u64::from(loads.here().backlog_ns), least.node, least.work_ns, 0)
    }
}

struct Least {
    now_ns: u64,
    node: u16,
    work_ns: u64,
    erl: Erl,
}

impl Visit for Least {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let work_ns = row.erl_ns(self.erl, self.now_ns);
        if work_ns < self.work_ns && row.is_candidate(self.now_ns) {
            self.work_ns = work_ns;
            self.node = node;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::least_connections::tests::check;
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict};
    use super::*;
    use crate::load::Here;
    use crate::maps::LoadRow;
    use crate::tuning::Tuning;
    use proptest::prelude::*;

    const KIND: PolicyKind = PolicyKind::LeastWork;

    proptest! {
        #[test]
        fn agrees_with_the_formula_in_every_mode(table in table(), ept in 0u32..2_000_000, random: u32) {
            for (name, erl) in Erl::NAMES {
                let tuning = Tuning { erl: erl as u32, ..Tuning::DEFAULT };
                let decision = decide(KIND, &job(ept, random), &Params { tuning, ..params(KIND) }, &table);
                let work = |row: &LoadRow| {
                    let backlog = f64::from(row.backlog_ns);
                    let workers = f64::from(row.workers);
                    let sent_after = |at: u32| f64::from((row.sent_ns as u32).wrapping_sub(at)) / workers;
                    match name {
                        "off" => backlog,
                        "add" => backlog + sent_after(row.marked_ns),
                        "drain" => (backlog + sent_after(row.marked_ns) - (NOW - row.reported_at_ns) as f64).max(0.0),
                        _ => backlog + sent_after(row.acked_ns),
                    }
                };
                check(decision, table.here.backlog_ns.into(), table.candidates(), work, 0.0)?;
            }
        }
    }

    #[test]
    fn work_counts_and_packets_do_not() {
        // Here one long packet, there many short ones.
        let here = Here { backlog_ns: 400_000, queued_milli: 1000, ..Here::default() };
        let peer = LoadRow { backlog_ns: 40_000, queued_milli: 20_000, ..idle() };
        let table = Table::new(here, [peer]);
        let decision = decide(KIND, &job(5_000, 0), &params(KIND), &table);
        assert_eq!((decision.verdict, decision.here, decision.there), (Verdict::Redirect(1), 400_000, 40_000));
    }

    #[test]
    fn forwarding_cost_is_ignored_and_ties_stay() {
        for (backlog_ns, verdict) in [(40_001, Verdict::Redirect(1)), (40_000, Verdict::Local)] {
            let here = Here { backlog_ns, ..Here::default() };
            let table = Table::new(here, [LoadRow { backlog_ns: 40_000, ..idle() }]);
            assert_eq!(decide(KIND, &job(5_000, 0), &params(KIND), &table).verdict, verdict);
        }
    }
}

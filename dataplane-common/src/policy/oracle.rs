//! `oracle`: the exact finish time here and on every other node, in a simulator that knows them.
//!
//! ```text
//! here    = W_here + C
//! there_j = max(W_j, send + wire) + receive + C · speed here / speed of j
//! redirect to argmin there_j  iff  there_j < here
//! ```
//! The reference that evaluations of push policies measure against: same costs, perfect and instantaneous knowledge.
//! The backlog there is worked off while the packet is on its way, hence the maximum. Rows are taken at face value, so
//! whoever runs it fills them with the loads of this very moment, work on the wire included; nothing else may. It is
//! greedy, not optimal: it does not count what a redirect's CPU time costs the packets behind, so close to saturation
//! policies that do are better. Cost: one pass over all nodes, whatever the sample.

use super::{Decision, Homes, Job, Needs, Policy, look};
use crate::load::{Forwarding, LoadView, Row, Visit};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct Oracle;

impl Policy for Oracle {
    const HOMES: Homes = Homes::SIMULATOR;
    const NEEDS: Needs = Needs::NOTHING;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, _params: &Params, loads: &L) -> Decision {
        let here = u64::from(loads.here().backlog_ns) + u64::from(job.ept_ns);
        let mut first = First { job: *job, cost: loads.forwarding(), node: 0, finish_ns: u64::MAX };
        look(loads, job.random, 0, &mut first);
        Decision::compare(here, first.node, first.finish_ns, 0)
    }
}

/// The node that would finish the packet first.
struct First {
    job: Job,
    cost: Forwarding,
    node: u16,
    finish_ns: u64,
}

impl Visit for First {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let arrives_ns = u64::from(self.cost.send_ns) + u64::from(self.cost.transit_ns(self.job.bytes));
        let starts_ns = arrives_ns.max(u64::from(row.backlog_ns())) + u64::from(self.cost.receive_ns);
        let finish_ns = starts_ns + u64::from(self.job.ept_ns) * 1000 / u64::from(row.speed_milli());
        if finish_ns < self.finish_ns && row.is_candidate(self.job.now_ns) {
            self.finish_ns = finish_ns;
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

    const KIND: PolicyKind = PolicyKind::Oracle;

    proptest! {
        #[test]
        fn agrees_with_the_formula(table in table(), ept in 0u32..2_000_000, random: u32) {
            let decision = decide(KIND, &job(ept, random), &params(KIND), &table);
            let cost = &table.forwarding;
            // 200 bytes at 1 ns each.
            let arrives = f64::from(cost.send_ns) + f64::from(cost.wire_ns) + 200.0;
            let finish = |row: &LoadRow| {
                let speed = if row.speed_milli == 0 { 1.0 } else { f64::from(row.speed_milli) / 1000.0 };
                f64::from(row.backlog_ns).max(arrives) + f64::from(cost.receive_ns) + f64::from(ept) / speed
            };
            check(decision, f64::from(table.here.backlog_ns) + f64::from(ept), table.candidates(), finish, 0.0)?;
        }
    }

    #[test]
    fn the_wire_overlaps_what_waits_there() {
        // send + wire = 12.2 µs, receive = 3 µs.
        let finish = |backlog_ns| {
            let here = Here { backlog_ns: 100_000, ..Here::default() };
            let table = Table::new(here, [LoadRow { backlog_ns, ..idle() }]);
            decide(KIND, &job(10_000, 0), &params(KIND), &table).there
        };
        assert_eq!([0, 12_200, 20_000].map(finish), [25_200, 25_200, 33_000]);
    }

    #[test]
    fn a_faster_node_is_worth_a_longer_queue() {
        let here = Here { backlog_ns: 80_000, ..Here::default() };
        let fast = LoadRow { backlog_ns: 90_000, speed_milli: 2000, ..idle() };
        for (ept, verdict) in [(10_000, Verdict::Local), (100_000, Verdict::Redirect(1))] {
            let table = Table::new(here, [fast]);
            assert_eq!(decide(KIND, &job(ept, 0), &params(KIND), &table).verdict, verdict, "{ept} ns");
        }
    }

    #[test]
    fn it_runs_in_the_simulator_alone_and_looks_at_everyone() {
        assert!(!KIND.homes().has_xdp() && !KIND.homes().has_worker());
        let busy = LoadRow { backlog_ns: 1_000_000, ..idle() };
        let peers = (0..40).map(|peer| if peer == 33 { idle() } else { busy });
        let table = Table::new(Here { backlog_ns: 500_000, ..Here::default() }, peers);
        for random in [0, 1 << 30, 3 << 30] {
            assert_eq!(decide(KIND, &job(10_000, random), &params(KIND), &table).verdict, Verdict::Redirect(34));
        }
    }
}

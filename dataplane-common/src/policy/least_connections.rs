//! `least-connections`: join the shortest queue (JSQ), as far as this node knows the queues.
//!
//! ```text
//! here    = Q_here
//! there_j = Q_j + frames in flight to j / workers of j
//! redirect to argmin there_j  iff  there_j < here
//! ```
//! `Q` is the number of packets waiting or in service at a worker: current here, as last reported of others; a frame
//! in flight is one that this node has sent and the report does not include. Ties stay. JSQ is optimal for equal
//! servers, exponential service times and perfect knowledge (Winston, J. Appl. Prob. 1977); with old reports, many
//! nodes run to the same short queue (Mitzenmacher, IEEE TPDS 2000). Ignores: sizes of packets, forwarding cost,
//! speeds, and what others have sent since the report. Cost: one pass over the nodes, or over a sample of them.

use super::{Decision, Homes, Job, Needs, Policy, look};
use crate::load::{LoadView, Row, Visit};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct LeastConnections;

impl Policy for LeastConnections {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let mut shortest = Shortest::new(job.now_ns);
        look(loads, job.random, params.tuning.sample, &mut shortest);
        shortest.against(loads)
    }
}

/// Packets in progress at a worker of the node, thousandths: reported, and in flight from this node.
#[inline(always)]
pub(super) fn in_progress_milli<R: Row>(row: &R) -> u64 {
    u64::from(row.queued_milli()) + u64::from(row.in_flight_frames()) * 1000 / u64::from(row.workers())
}

/// The candidate with the fewest packets in progress, among those visited.
pub(super) struct Shortest {
    now_ns: u64,
    node: u16,
    queue_milli: u64,
}

impl Shortest {
    #[inline(always)]
    pub(super) const fn new(now_ns: u64) -> Self {
        Self { now_ns, node: 0, queue_milli: u64::MAX }
    }

    /// It, if its queue is shorter than this node's.
    #[inline(always)]
    pub(super) fn against<L: LoadView>(&self, loads: &L) -> Decision {
        Decision::compare(u64::from(loads.here().queued_milli), self.node, self.queue_milli, 0)
    }
}

impl Visit for Shortest {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let queue_milli = in_progress_milli(row);
        if queue_milli < self.queue_milli && row.is_candidate(self.now_ns) {
            self.queue_milli = queue_milli;
            self.node = node;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict, Why};
    use super::*;
    use crate::load::Here;
    use crate::maps::LoadRow;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// `decision` is that of a plain argmin of `measure` over `seen` against `here`, but for differences below `slack`
    /// · value + 1, and it carries these numbers.
    pub fn check<'t>(
        decision: Decision,
        here: f64,
        seen: impl IntoIterator<Item = (u16, &'t LoadRow)>,
        measure: impl Fn(&LoadRow) -> f64,
        slack: f64,
    ) -> Result<(), TestCaseError> {
        let values: Vec<(u16, f64)> = seen.into_iter().map(|(node, row)| (node, measure(row))).collect();
        let best = values.iter().map(|(_, value)| *value).fold(f64::INFINITY, f64::min);
        let near = |a: f64, b: f64| (a - b).abs() <= slack * a.abs().max(b.abs()) + 1.0;
        prop_assert!(near(decision.here as f64, here), "here is {} and should be {here}", decision.here);
        if best.is_infinite() {
            prop_assert_eq!((decision.verdict, decision.there, decision.why), (Verdict::Local, u64::MAX, Why::Alone));
            return Ok(());
        }
        prop_assert!(near(decision.there as f64, best), "there is {} and should be {best}", decision.there);
        match decision.verdict {
            Verdict::Local => {
                prop_assert!(best >= here || near(best, here), "stayed with {here} against {best}");
                prop_assert_eq!(decision.why, Why::Better);
            }
            Verdict::Redirect(chosen) => {
                let value = values.iter().find(|(node, _)| *node == chosen).map(|(_, value)| *value);
                prop_assert!(value.is_some_and(|value| near(value, best)), "chose {value:?} where {best} was best");
                prop_assert!(best < here || near(best, here), "left {here} for {best}");
                prop_assert_eq!(decision.why, Why::Worse);
            }
        }
        Ok(())
    }

    /// Packets in progress, thousandths, in f64.
    pub fn in_progress(row: &LoadRow) -> f64 {
        let in_flight = (row.sent_frames as u32).wrapping_sub(row.acked_frames);
        f64::from(row.queued_milli) + 1000.0 * f64::from(in_flight) / f64::from(row.workers)
    }

    const KIND: PolicyKind = PolicyKind::LeastConnections;

    proptest! {
        #[test]
        fn agrees_with_the_formula(table in table(), ept in 0u32..2_000_000, random: u32) {
            let decision = decide(KIND, &job(ept, random), &params(KIND), &table);
            check(decision, table.here.queued_milli.into(), table.candidates(), in_progress, 0.0)?;
        }
    }

    #[test]
    fn equal_queues_stay_and_shorter_ones_draw() {
        for (frames, there) in [(1, Verdict::Redirect(1)), (2, Verdict::Local)] {
            let table =
                Table::new(Here { queued_milli: 2000, ..Here::default() }, [LoadRow { sent_frames: frames, ..idle() }]);
            assert_eq!(decide(KIND, &job(5_000, 0), &params(KIND), &table).verdict, there, "{frames} in flight");
        }
    }

    #[test]
    fn work_sent_since_the_report_counts_per_worker() {
        let busy = Here { queued_milli: 4000, ..Here::default() };
        let mut table = Table::new(busy, [idle(), LoadRow { workers: 3, ..idle() }]);
        let mut got = [0; 3];
        for at in 0..16u64 {
            match decide(KIND, &job(5_000, crate::hash::mix(at) as u32), &params(KIND), &table).verdict {
                Verdict::Redirect(node) => {
                    got[usize::from(node)] += 1;
                    table.rows[usize::from(node)].sent_frames += 1;
                }
                Verdict::Local => got[0] += 1,
            }
        }
        assert_eq!(got, [0, 4, 12], "no report came, and yet both are filled as far as this node is");
    }
}

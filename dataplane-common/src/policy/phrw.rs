//! `phrw`: rendezvous hashing with priority (Kim and Kim, J. KIISE 30(12), 2003; a reconstruction from its abstract).
//!
//! ```text
//! bulk     (class 0 to 3): the first of the slot's nodes in the order of `hrw`
//! reactive (class 4 to 7): of the first `depth`, the fastest; of equals, the one with least backlog; then the first
//! ```
//! What is about one key stays within `depth` nodes, and packets with a limit on their latency meet the faster of them.
//! Speeds are equal within a sixteenth, for they are measured. A slot's node stays while it is one of the fastest and
//! its backlog is at most one plan interval above the least: what it works off before the next plan is no reason to
//! move the slot, and all slots that moved at once to the least loaded node would only overload that one.
//!
//! Bulk packets do not see speed: slow nodes get as many as fast ones, and fast ones the reactive packets on top. Cost:
//! one slot and one row per packet; per plan, `depth` nodes per slot, and see [`super::ranking`].

use super::hrw::unweighted;
use super::placed::planned;
use super::ranking::Ranking;
use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::LoadView;
use crate::maps::{MAX_NODES, Params};
use crate::plan::{Board, HERE, Plan, SLOTS, slot_of};
use crate::tuning::Tuning;

/// See the module.
pub struct PriorityHrw;

/// Lowest class that is reactive.
const REACTIVE: u8 = 4;

/// The table that places packets of `class`: 0 for bulk, 1 for reactive ones.
#[inline(always)]
pub(super) const fn table_of(class: u8) -> u32 {
    if class >= REACTIVE { 1 } else { 0 }
}

impl Policy for PriorityHrw {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS);
    type Plan = PriorityHrwPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        planned(job, params, loads, slot_of(table_of(job.class), job.key))
    }
}

/// Largest [`Tuning::depth`].
const MOST: usize = 16;

/// The slow half: table 0 for bulk, table 1 for reactive packets.
pub struct PriorityHrwPlan {
    ranking: Ranking<MOST>,
    /// By node id, thousandths.
    speeds: [u16; MAX_NODES],
    /// By node id, ns.
    backlogs: [u32; MAX_NODES],
}

impl Default for PriorityHrwPlan {
    fn default() -> Self {
        Self { ranking: Ranking::default(), speeds: [0; MAX_NODES], backlogs: [0; MAX_NODES] }
    }
}

impl Plan for PriorityHrwPlan {
    fn turn<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
        self.ranking.turn(board, tuning.depth, |_| 1, unweighted);
        for index in 0..board.members() {
            let member = board.member(index);
            let node = usize::from(member.node);
            if node < MAX_NODES {
                (self.speeds[node], self.backlogs[node]) = (member.speed_milli, member.backlog_ns);
            }
        }
        for slot in 0..SLOTS {
            let reactive = slot_of(1, slot);
            board.place(slot, self.ranking.first(slot));
            board.place(reactive, self.reactive(slot, board.slot(reactive), tuning.plan_ns));
        }
    }
}

impl PriorityHrwPlan {
    /// The node of reactive packets of `slot`, which `now` has.
    fn reactive(&self, slot: u32, now: u16, plan_ns: u32) -> u16 {
        let speed = |node: u16| u32::from(self.speeds[usize::from(node)]);
        let backlog = |node: u16| self.backlogs[usize::from(node)];
        let most = self.ranking.of(slot).map(speed).max().unwrap_or(0);
        let fastest = || self.ranking.of(slot).filter(|node| speed(*node) >= most - most / 16);
        // The first of equals.
        let Some(least) = fastest().min_by_key(|node| backlog(*node)) else { return HERE };
        let stays = fastest().any(|node| node == now) && backlog(now) <= backlog(least).saturating_add(plan_ns);
        if stays { now } else { least }
    }
}

#[cfg(test)]
#[path = "phrw_tests.rs"]
mod tests;

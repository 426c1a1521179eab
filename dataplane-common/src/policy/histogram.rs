//! `histogram`: histogram equalisation of the work by key (Hong, Kwon and Choi, KISS 2002 and JICS 6(2), 2005).
//!
//! ```text
//! H[b] ← (1 − g) · H[b] + g · work that named slot b since the last plan           g = renewal_milli
//! home(b) = the member m with  S_(m−1) ≤ (H[0] + … + H[b−1] + H[b]/2) / ΣH < S_m   S = cumulative shares of capacity
//! ```
//! Consecutive slots so make up for each member just its share of the work. A slot cannot be split, so a member may
//! have more or less than its share by the largest slot: with N equal members, at most 1/N + max H/ΣH.
//!
//! The papers cut anew at every update. Here the homes stay while each member's work is within that bound and a
//! sixteenth, since every cut moves slots and with them what the members remember of their keys; slots of members that
//! went go, one by one, to whoever has least, and a member that comes brings a new cut. Work is what packets were
//! estimated at, of those that arrived at this node: nodes that see different traffic cut differently.
//!
//! Cost: one slot and one row per packet; per plan, a few passes over the slots and one over the members.

use super::placed::planned;
use super::shares::{Shares, SlotWork};
use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::LoadView;
use crate::maps::Params;
use crate::plan::{Board, HERE, Plan, SLOTS, slot_of};
use crate::tuning::Tuning;

/// See the module.
pub struct Histogram;

impl Policy for Histogram {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS);
    type Plan = HistogramPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        planned(job, params, loads, slot_of(0, job.key))
    }
}

/// The slow half: table 0 holds the home of every slot.
#[derive(Default)]
pub struct HistogramPlan {
    work: SlotWork,
    shares: Shares,
}

/// Homes stay while nobody's work is off by more than this part of its share, besides the largest slot.
const SLACK: u64 = 16;

impl Plan for HistogramPlan {
    fn turn<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
        self.work.measure(board, tuning.renewal_milli);
        let has_joined = self.shares.read(board);
        if has_joined || !self.keep(board) {
            self.cut(board);
        }
    }
}

impl HistogramPlan {
    /// Work of a slot; equal for all while there is none.
    fn work_of(&self, slot: u32, total: u64) -> u64 {
        if total == 0 { 1 } else { self.work.of(slot) }
    }

    /// Finds homes for the slots that have none; false when the work is out of balance even so.
    fn keep<B: Board>(&mut self, board: &mut B) -> bool {
        let total = self.work.total();
        let mut largest = 0;
        for slot in 0..SLOTS {
            let work = self.work_of(slot, total);
            largest = work.max(largest);
            if let Some(position) = self.shares.position(board.slot(slot)) {
                self.shares.give(position, work);
            }
        }
        for slot in 0..SLOTS {
            if self.shares.position(board.slot(slot)).is_some() {
                continue;
            }
            let work = self.work_of(slot, total);
            let Some(position) = self.shares.soonest(work) else { return false };
            self.shares.give(position, work);
            board.place(slot, self.shares.node(position));
        }
        let total = if total == 0 { u64::from(SLOTS) } else { total };
        (0..self.shares.count()).all(|position| {
            let fair = self.shares.fair(position, total);
            self.shares.given(position).abs_diff(fair) <= fair / SLACK + largest + 1
        })
    }

    /// Cuts the cumulative histogram at the cumulative shares.
    fn cut<B: Board>(&mut self, board: &mut B) {
        let total = self.work.total();
        let whole = if total == 0 { u64::from(SLOTS) } else { total };
        let last = self.shares.count().saturating_sub(1);
        let (mut position, mut before) = (0, 0);
        let mut reached = u64::from(self.shares.capacity(position));
        for slot in 0..SLOTS {
            let work = self.work_of(slot, total);
            // The middle of the slot against the end of the share: both fractions, multiplied out.
            let middle = u128::from(2 * before + work) * u128::from(self.shares.total());
            while position < last && middle >= 2 * u128::from(whole) * u128::from(reached) {
                position += 1;
                reached += u64::from(self.shares.capacity(position));
            }
            before += work;
            board.place(slot, if self.shares.count() == 0 { HERE } else { self.shares.node(position) });
        }
    }
}

#[cfg(test)]
#[path = "histogram_tests.rs"]
mod tests;

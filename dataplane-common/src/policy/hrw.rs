//! `hrw`: highest random weight, or rendezvous, hashing (Thaler and Ravishankar, IEEE/ACM ToN 1998).
//!
//! ```text
//! home(slot) = argmax hash(slot, j) over the live members j          slot = key mod 4096
//! ```
//! All nodes agree on homes without a word between them. A member that comes takes slots from each other in equal
//! parts, one that goes leaves its own to them, and no other slot moves. Speed, load and the popularity of keys are not
//! looked at. Cost: one slot and one row per packet; per plan, see [`super::ranking`].

use super::placed::planned;
use super::ranking::Ranking;
use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::LoadView;
use crate::maps::Params;
use crate::plan::{Board, Plan, SLOTS, rendezvous, slot_of};
use crate::tuning::Tuning;

/// See the module.
pub struct Hrw;

impl Policy for Hrw {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS);
    type Plan = HrwPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        planned(job, params, loads, slot_of(0, job.key))
    }
}

/// The slow half: table 0 holds the home of every slot.
#[derive(Default)]
pub struct HrwPlan {
    ranking: Ranking<1>,
}

/// The rank of `node` in `slot`, whatever its weight: the highest hash comes first.
pub(super) fn unweighted(slot: u32, node: u16, _weight: u32) -> u64 {
    !rendezvous(slot, node)
}

impl Plan for HrwPlan {
    fn turn<B: Board>(&mut self, board: &mut B, _tuning: &Tuning) {
        self.ranking.turn(board, 1, |_| 1, unweighted);
        for slot in 0..SLOTS {
            board.place(slot, self.ranking.first(slot));
        }
    }
}

#[cfg(test)]
#[path = "hrw_tests.rs"]
mod tests;

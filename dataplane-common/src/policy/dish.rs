//! `dish`: dynamic information-based scalable hashing (Sohn, Kwak and Chung, HPCC 2007; Kwak and Chung, KIPS 14A(5),
//! 2007; a reconstruction from their abstracts).
//!
//! ```text
//! a slot nobody has used has no owner: its packets are computed where they arrive, and the next plan gives it to
//!     argmin load_j + w / (T · s_j · n_j)
//!     load_j = mean of busy share, run queue and memory, weighed by cpu_milli, queue_milli and memory_milli
//! every plan: if  max_j W_j / (s_j · n_j)  >  imbalance_milli · ΣW / Σ s·n,
//!     slots with half of what that member has above the mean move to  argmin W_j / (s_j · n_j)
//! ```
//! `w` is a slot's work per plan, `W` a member's, `s · n` its speed times its workers, `T` the time between two plans.
//! What is given in a plan counts as load at once, so that slots first used together do not all fall on one member.
//! Larger slots move first, to move few; when all are larger than half the excess, the smallest moves; none moves that
//! would make the coolest the busier one. A slot has one owner at any time: what one member holds, no other does.
//!
//! Slots of members that went are given away as if new, those without recent work lose their owner. Work is what
//! packets were estimated at, of those that arrived at this node: each node of arrival has owners of its own.
//!
//! Cost: one slot and one row per packet; per plan, one pass over slots and members, one over the members for each slot
//! given (4096 at most: 0.03 s when that many are given to 4096 members), and a sort of the slots of one member when
//! some move.

use core::cmp::Reverse;

use super::placed::planned;
use super::shares::{Shares, SlotWork};
use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::LoadView;
use crate::maps::{MAX_NODES, Params};
use crate::plan::{Board, NOWHERE, Plan, SLOTS, load_milli, slot_of};
use crate::tuning::Tuning;

/// See the module.
pub struct Dish;

impl Policy for Dish {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS);
    type Plan = DishPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        planned(job, params, loads, slot_of(0, job.key))
    }
}

/// The slow half: table 0 holds the owner of every slot that has one.
pub struct DishPlan {
    work: SlotWork,
    shares: Shares,
    /// Load of each live member by position, what it was given in this plan included, 10^-9.
    loads: [u64; MAX_NODES],
    /// Slots of one member.
    order: [u16; SLOTS as usize],
    /// Time of the last plan, ns; 0 before the first.
    planned_ns: u64,
}

impl Default for DishPlan {
    fn default() -> Self {
        Self {
            work: SlotWork::default(),
            shares: Shares::default(),
            loads: [0; MAX_NODES],
            order: [0; SLOTS as usize],
            planned_ns: 0,
        }
    }
}

impl Plan for DishPlan {
    fn turn<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
        let now = board.now_ns();
        let since = now.saturating_sub(self.planned_ns);
        let is_usable = self.planned_ns != 0 && since != 0;
        let interval = if is_usable { since.min(1 << 36) } else { u64::from(tuning.plan_ns) };
        self.planned_ns = now;
        self.work.measure(board, tuning.renewal_milli);
        self.shares.read(board);
        self.read_loads(board, tuning);
        for slot in 0..SLOTS {
            self.settle(board, slot, interval);
        }
        self.level(board, tuning.imbalance_milli);
    }
}

impl DishPlan {
    fn read_loads<B: Board>(&mut self, board: &B, tuning: &Tuning) {
        for index in 0..board.members() {
            let member = board.member(index);
            if let Some(position) = self.shares.position(member.node) {
                self.loads[position] = u64::from(load_milli(&member, tuning)) * 1_000_000;
            }
        }
    }

    /// Finds an owner for `slot` if it has work and none.
    fn settle<B: Board>(&mut self, board: &mut B, slot: u32, interval_ns: u64) {
        let work = self.work.of(slot);
        if let Some(owner) = self.shares.position(board.slot(slot)) {
            self.shares.give(owner, work);
            return;
        }
        let least = (0..self.shares.count()).min_by_key(|position| self.loads[*position]);
        let Some(owner) = least.filter(|_| work > 0) else {
            board.place(slot, NOWHERE);
            return;
        };
        // Busy share that the slot brings; at least something, so that small slots are spread too.
        let room = interval_ns * u64::from(self.shares.capacity(owner)) / 1000;
        self.loads[owner] += work.saturating_mul(1_000_000_000) / room.max(1) + 1;
        self.shares.give(owner, work);
        board.place(slot, self.shares.node(owner));
    }

    /// Moves half of the busiest member's excess to the coolest.
    fn level<B: Board>(&mut self, board: &mut B, imbalance_milli: u32) {
        let shares = &mut self.shares;
        let positions = 0..shares.count();
        let busiest = positions.clone().reduce(|a, b| if shares.is_sooner((a, 0), (b, 0)) { b } else { a });
        let coolest = positions.reduce(|a, b| if shares.is_sooner((b, 0), (a, 0)) { b } else { a });
        let (Some(busiest), Some(coolest)) = (busiest, coolest) else { return };
        let fair = shares.fair(busiest, self.work.total());
        if shares.given(busiest).saturating_mul(1000) <= fair.saturating_mul(u64::from(imbalance_milli.max(1000))) {
            return;
        }
        let half = (shares.given(busiest) - fair) / 2;
        let owner = shares.node(busiest);
        let mut count = 0;
        for slot in 0..SLOTS as u16 {
            if board.slot(u32::from(slot)) == owner && self.work.of(u32::from(slot)) > 0 {
                self.order[count] = slot;
                count += 1;
            }
        }
        let work = &self.work;
        let owned = &mut self.order[..count];
        owned.sort_unstable_by_key(|slot| (Reverse(work.of(u32::from(*slot))), *slot));
        let mut moved = 0;
        for slot in owned.iter().map(|slot| u32::from(*slot)) {
            let size = work.of(slot);
            if moved + size <= half && shares.hand_over(busiest, coolest, size) {
                moved += size;
                board.place(slot, shares.node(coolest));
            }
        }
        let Some(smallest) = owned.last().map(|slot| u32::from(*slot)) else { return };
        if moved == 0 && shares.hand_over(busiest, coolest, work.of(smallest)) {
            board.place(smallest, shares.node(coolest));
        }
    }
}

#[cfg(test)]
#[path = "dish_tests.rs"]
mod tests;

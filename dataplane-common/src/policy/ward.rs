//! `ward`: a core of the most frequent keys is computed wherever it arrives, every other key has a home (Cherkasova and
//! Karlsson, *WARD*, HPL-2001-2R1 and WECWIS 2001; the formula is this project's reading of it).
//!
//! ```text
//! overhead(k) = forwarding · (N − 1)/N · (1 − F_k) + miss · (1 − cached(k))       k = slots in the core, 0 to R
//! cached(k)   = F_(k + (R − k) · N)       F_k = part of the work in the k slots with most of it, F ends at 4096
//! R           = memory_share_milli of 4096 slots: what one node's memory holds;  N = live members
//! ```
//! A slot in the core is in every memory and never forwarded; one that is not takes memory at one node only. The plan
//! takes the k of least overhead. Homes are dealt by longest processing time: in order of work, each slot to the member
//! that would be through soonest. Every slot counts a sixteenth of the mean work on top, so that unused ones are spread
//! too.
//!
//! The papers count requests and bytes. Here a slot's part of the work stands for its part of the packets, which is
//! right when packets cost alike, and all slots are taken to hold equally much data. `forwarding` is a constant,
//! [`FORWARDING_NS`], since plans do not see what a link costs. The core stays while its overhead is within a sixteenth
//! of the least, and homes stay while nobody's work exceeds what a new deal would promise by a sixteenth: every move
//! costs misses. Slots of members that went are dealt to the others; when a member comes, all homes are dealt anew.
//!
//! Work is what packets were estimated at, of those that arrived at this node: nodes that see different traffic choose
//! different cores and homes. Cost: one slot and one row per packet; per plan, a sort of the slots (about 0.1 ms) and,
//! for each slot that is dealt, one pass over the members: at 4096 members a full deal takes 0.06 s.

use core::cmp::Reverse;

use super::placed::planned;
use super::shares::{Shares, SlotWork};
use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::LoadView;
use crate::maps::Params;
use crate::plan::{Board, HERE, Plan, SLOTS, slot_of};
use crate::tuning::Tuning;

/// What a redirect is taken to cost, ns: `send`, `receive` and `wire` of a configuration that does not set them.
const FORWARDING_NS: u64 = 14_000;

/// Core and homes stay while they are worse than the best by no more than this part.
const SLACK: u64 = 16;

/// See the module.
pub struct Ward;

impl Policy for Ward {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS);
    type Plan = WardPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        planned(job, params, loads, slot_of(0, job.key))
    }
}

/// The slow half: table 0 holds [`HERE`] for slots of the core and the home of every other.
pub struct WardPlan {
    work: SlotWork,
    shares: Shares,
    /// Slots by work, most first.
    order: [u16; SLOTS as usize],
    /// Work of the first slots of `order`: of none, of one, and so on, ns.
    sums: [u64; SLOTS as usize + 1],
    in_core: [bool; SLOTS as usize],
}

impl Default for WardPlan {
    fn default() -> Self {
        Self {
            work: SlotWork::default(),
            shares: Shares::default(),
            order: core::array::from_fn(|slot| slot as u16),
            sums: [0; SLOTS as usize + 1],
            in_core: [false; SLOTS as usize],
        }
    }
}

impl Plan for WardPlan {
    fn turn<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
        self.work.measure(board, tuning.renewal_milli);
        let has_joined = self.shares.read(board);
        self.sort();
        self.choose_core(board, tuning);
        if has_joined || !self.keep_homes(board) {
            self.shares.clear();
            self.deal(board, |_, _| true);
        }
    }
}

impl WardPlan {
    fn sort(&mut self) {
        let work = &self.work;
        self.order.sort_unstable_by_key(|slot| (Reverse(work.of(u32::from(*slot))), *slot));
        let mut sum = 0;
        for (at, slot) in self.order.iter().enumerate() {
            sum += work.of(u32::from(*slot));
            self.sums[at + 1] = sum;
        }
    }

    /// Takes the core of least overhead, unless the one in force is nearly as good.
    fn choose_core<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
        let costs = Costs::new(self.shares.count(), self.sums[SLOTS as usize], tuning);
        let candidates = (0..=costs.room).map(|count| {
            let held = costs.held(count);
            (costs.overhead(self.sums[count], self.sums[held]), count)
        });
        let Some((least, count)) = candidates.min() else { return };
        if self.overhead_in_force(&costs).is_some_and(|now| now <= least + least / SLACK) {
            return;
        }
        self.in_core.fill(false);
        for slot in &self.order[..count] {
            self.in_core[usize::from(*slot)] = true;
        }
        for (slot, in_core) in (0..).zip(self.in_core) {
            // What left the core has no home now and is dealt one.
            if in_core {
                board.place(slot, HERE);
            }
        }
    }

    /// Overhead of the core in force at the work of now; `None` when it does not fit the memory.
    fn overhead_in_force(&self, costs: &Costs) -> Option<u64> {
        let count = self.in_core.iter().filter(|in_core| **in_core).count();
        let mut others_held = costs.held(count).checked_sub(count)?;
        let (mut core, mut cached) = (0, 0);
        for slot in &self.order {
            let work = self.work.of(u32::from(*slot));
            if self.in_core[usize::from(*slot)] {
                core += work;
                cached += work;
            } else if others_held > 0 {
                others_held -= 1;
                cached += work;
            }
        }
        (count <= costs.room).then(|| costs.overhead(core, cached))
    }

    /// What a slot counts when homes are dealt.
    fn weight(&self, slot: u16) -> u64 {
        self.work.of(u32::from(slot)) + self.sums[SLOTS as usize] / (16 * u64::from(SLOTS)) + 1
    }

    /// Deals those slots without a home, in order of work, that `is_due` says; what members were given counts.
    fn deal<B: Board>(&mut self, board: &mut B, is_due: impl Fn(&Shares, u16) -> bool) {
        for slot in self.order {
            let now = board.slot(u32::from(slot));
            if self.in_core[usize::from(slot)] || !is_due(&self.shares, now) {
                continue;
            }
            let weight = self.weight(slot);
            let Some(position) = self.shares.soonest(weight) else { return };
            self.shares.give(position, weight);
            board.place(u32::from(slot), self.shares.node(position));
        }
    }

    /// Deals the slots that have no home; false when the work is out of balance even so.
    fn keep_homes<B: Board>(&mut self, board: &mut B) -> bool {
        let (mut total, mut largest) = (0, 0);
        for slot in self.order {
            if self.in_core[usize::from(slot)] {
                continue;
            }
            let weight = self.weight(slot);
            total += weight;
            largest = weight.max(largest);
            if let Some(position) = self.shares.position(board.slot(u32::from(slot))) {
                self.shares.give(position, weight);
            }
        }
        self.deal(board, |shares, now| shares.position(now).is_none());
        // What a deal promises: when the last slot came, nobody could have been through sooner.
        let promised = total + (self.shares.count() as u64).saturating_sub(1) * largest;
        (0..self.shares.count())
            .all(|position| self.shares.given(position) <= self.shares.fair(position, promised + total / SLACK) + 1)
    }
}

/// What overhead is made of.
struct Costs {
    /// Live members.
    nodes: usize,
    /// Work of all slots, ns.
    total: u64,
    /// Slots that fit one node's memory.
    room: usize,
    /// Mean cost of forwarding a packet that arrives anywhere, ns.
    forwarding_ns: u64,
    /// Cost of a miss, ns.
    miss_ns: u64,
}

impl Costs {
    fn new(nodes: usize, total: u64, tuning: &Tuning) -> Self {
        let others = nodes.saturating_sub(1) as u64;
        Self {
            nodes,
            total,
            room: SLOTS as usize * tuning.memory_share_milli.min(1000) as usize / 1000,
            forwarding_ns: (FORWARDING_NS * others).checked_div(nodes as u64).unwrap_or(0),
            miss_ns: u64::from(tuning.miss_ns),
        }
    }

    /// Slots that are in some memory, with `count` in the core.
    fn held(&self, count: usize) -> usize {
        (count + self.room.saturating_sub(count) * self.nodes).min(SLOTS as usize)
    }

    /// Overhead with this much of the work in the core and in some memory, in ns per ns of work, times the total.
    fn overhead(&self, core: u64, cached: u64) -> u64 {
        // To 32 bits, so that the products fit.
        let shift = (64 - self.total.leading_zeros()).saturating_sub(32);
        ((self.total - core) >> shift) * self.forwarding_ns + ((self.total - cached) >> shift) * self.miss_ns
    }
}

#[cfg(test)]
#[path = "ward_tests.rs"]
mod tests;

//! What a plan that follows measured work keeps account of: the work of every slot, and who may have how much of it.

use crate::maps::{MAX_NODES, MAX_WORKERS};
use crate::plan::{Board, Member, SLOTS};

/// What a member can compute: workers of speed 1/1000.
pub(super) fn capacity(member: &Member) -> u32 {
    u32::from(member.speed_milli.max(1)) * u32::from(member.workers.clamp(1, MAX_WORKERS as u16))
}

/// Work that named each slot of table 0, mean over the last plans.
pub(super) struct SlotWork {
    seen_ns: [u64; SLOTS as usize],
    mean_ns: [u64; SLOTS as usize],
}

/// Most work believed of one slot in one plan, ns: 18 minutes.
const MOST_NS: u64 = 1 << 40;

impl Default for SlotWork {
    fn default() -> Self {
        Self { seen_ns: [0; SLOTS as usize], mean_ns: [0; SLOTS as usize] }
    }
}

impl SlotWork {
    /// Takes the work since the last call into the means, with weight `renewal_milli`; at least 1, at most 1000.
    pub(super) fn measure<B: Board>(&mut self, board: &B, renewal_milli: u32) {
        let renewal = u64::from(renewal_milli.clamp(1, 1000));
        for (slot, (seen, mean)) in (0..).zip(self.seen_ns.iter_mut().zip(&mut self.mean_ns)) {
            let charged = board.charged_ns(slot);
            let newest = charged.wrapping_sub(*seen).min(MOST_NS);
            *seen = charged;
            // Rounded up, so that any work shows and any mean ends at 0.
            *mean = *mean - (*mean * renewal).div_ceil(1000) + (newest * renewal).div_ceil(1000);
        }
    }

    /// Work of `slot` per plan, ns.
    pub(super) fn of(&self, slot: u32) -> u64 {
        self.mean_ns[(slot % SLOTS) as usize]
    }

    /// Work of all slots per plan, ns.
    pub(super) fn total(&self) -> u64 {
        self.mean_ns.iter().sum()
    }
}

/// No position.
const NONE: u16 = u16::MAX;

/// The live members, by position: what each can compute, and the work a plan has given it so far.
pub(super) struct Shares {
    nodes: [u16; MAX_NODES],
    capacity: [u32; MAX_NODES],
    given_ns: [u64; MAX_NODES],
    /// By node id; [`NONE`] for nodes that are not live.
    positions: [u16; MAX_NODES],
    count: usize,
    total: u64,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            nodes: [0; MAX_NODES],
            capacity: [0; MAX_NODES],
            given_ns: [0; MAX_NODES],
            positions: [NONE; MAX_NODES],
            count: 0,
            total: 0,
        }
    }
}

impl Shares {
    /// Reads the members; none has been given anything. True when one is live that was not at the last call.
    pub(super) fn read<B: Board>(&mut self, board: &B) -> bool {
        let before = self.positions;
        let mut has_joined = false;
        self.positions.fill(NONE);
        self.given_ns.fill(0);
        (self.count, self.total) = (0, 0);
        for index in 0..board.members().min(MAX_NODES) {
            let member = board.member(index);
            let Some(position) = self.positions.get_mut(usize::from(member.node)) else { continue };
            if !member.is_live || *position != NONE {
                continue;
            }
            *position = self.count as u16;
            self.nodes[self.count] = member.node;
            self.capacity[self.count] = capacity(&member);
            self.total += u64::from(self.capacity[self.count]);
            self.count += 1;
            has_joined |= before[usize::from(member.node)] == NONE;
        }
        has_joined
    }

    /// Live members.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// The member at `position`, below [`Shares::count`].
    pub(super) fn node(&self, position: usize) -> u16 {
        self.nodes[position]
    }

    /// What it can compute.
    pub(super) fn capacity(&self, position: usize) -> u32 {
        self.capacity[position]
    }

    /// What all can compute.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// What it was given, ns.
    pub(super) fn given(&self, position: usize) -> u64 {
        self.given_ns[position]
    }

    /// Where `node` is, if it is live.
    pub(super) fn position(&self, node: u16) -> Option<usize> {
        self.positions
            .get(usize::from(node))
            .filter(|position| **position != NONE)
            .map(|position| usize::from(*position))
    }

    /// Gives work to a member, ns.
    pub(super) fn give(&mut self, position: usize, work_ns: u64) {
        self.given_ns[position] = self.given_ns[position].saturating_add(work_ns);
    }

    /// Takes everything from everybody.
    pub(super) fn clear(&mut self) {
        self.given_ns.fill(0);
    }

    /// The part of `work_ns` that is in proportion to what the member can compute, ns, rounded down.
    pub(super) fn fair(&self, position: usize, work_ns: u64) -> u64 {
        let own = u64::from(self.capacity[position]);
        let whole = (work_ns / self.total.max(1)).saturating_mul(own);
        // Below 2^34 · 2^22.
        whole.saturating_add(work_ns % self.total.max(1) * own / self.total.max(1))
    }

    /// True when `a`, given `more_a` on top, needs less time for all it has than `b` with `more_b`.
    pub(super) fn is_sooner(&self, (a, more_a): (usize, u64), (b, more_b): (usize, u64)) -> bool {
        let time = |at: usize, more: u64, other: usize| {
            u128::from(self.given_ns[at].saturating_add(more)) * u128::from(self.capacity[other])
        };
        time(a, more_a, b) < time(b, more_b, a)
    }

    /// Moves work from a member to another that still needs less time then; false when it would not.
    pub(super) fn hand_over(&mut self, from: usize, to: usize, work_ns: u64) -> bool {
        let left = self.given_ns[from].saturating_sub(work_ns);
        let had = core::mem::replace(&mut self.given_ns[from], left);
        let is_sooner = self.is_sooner((to, work_ns), (from, 0));
        if is_sooner {
            self.give(to, work_ns);
        } else {
            self.given_ns[from] = had;
        }
        is_sooner
    }

    /// The member that would be through soonest if it were given `work_ns` more: the step of longest-processing-time
    /// scheduling on machines of different speed (Graham 1969; Gonzalez, Ibarra and Sahni 1977).
    pub(super) fn soonest(&self, work_ns: u64) -> Option<usize> {
        let positions = 0..self.count;
        positions.reduce(|best, next| if self.is_sooner((next, work_ns), (best, work_ns)) { next } else { best })
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
pub(super) mod tests;

//! The slow half of placing policies: from time to time, the control thread (or the simulator) draws up a plan, and the
//! fast half only looks up a slot of it.
//!
//! A plan has [`TABLES`] tables of [`SLOTS`] slots. Policies that place by content hash a packet's key to a slot; policies
//! that weigh nodes give each node slots in proportion and take one at random. Either way a decision costs one read,
//! whatever the number of nodes.

use crate::hash::{combine, mix};
use crate::load::saturate;

/// Slots of a table.
pub const SLOTS: u32 = 4096;
/// Tables of a plan. Policies that do not tell classes apart use table 0.
pub const TABLES: u32 = 2;
/// A slot whose packets are computed where they arrive.
pub const HERE: u16 = u16::MAX;
/// A slot that no node has yet; its packets are computed where they arrive.
pub const NOWHERE: u16 = u16::MAX - 1;

/// The slot of `table` that `hash` falls on.
#[inline(always)]
pub const fn slot_of(table: u32, hash: u32) -> u32 {
    table * SLOTS + (hash & (SLOTS - 1))
}

/// A node as a plan sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub node: u16,
    /// True for the node that plans.
    pub is_self: bool,
    /// True when its report is good; always true for the node that plans.
    pub is_live: bool,
    /// Its workers; at least 1.
    pub workers: u16,
    /// Its speed against this node's, thousandths.
    pub speed_milli: u16,
    /// Share of time its workers were busy, thousandths.
    pub busy_milli: u16,
    /// Share of its packet memory in use, thousandths.
    pub memory_milli: u16,
    /// Backlog it reported (of this node: has), mean over its workers, ns.
    pub backlog_ns: u32,
    /// Packets waiting or in service at one of its workers, thousandths.
    pub queued_milli: u32,
    /// Response time of packets computed there, mean, ns; 0 = not known.
    pub response_ns: u32,
    /// Packets sent there of which no result has come back.
    pub outstanding: u32,
    /// Results that came back from there (wrapping).
    pub completed: u32,
    /// Reports taken from it (wrapping); of this node: made.
    pub reports: u32,
}

/// A function as a plan sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Packets of the function that arrived at this node (wrapping).
    pub arrivals: u64,
}

/// What a plan is drawn up on.
pub trait Board {
    /// Now, ns of the monotonic clock.
    fn now_ns(&self) -> u64;
    /// Nodes of the cluster, this one included. They are numbered from 0, in any order that does not change.
    fn members(&self) -> usize;
    /// Node number `index`.
    fn member(&self, index: usize) -> Member;
    /// Functions of this node.
    fn functions(&self) -> usize;
    /// Function number `index`.
    fn demand(&self, index: usize) -> Demand;
    /// Has all packets of function `index` computed on `node`, or placed by the slots again.
    fn set_home(&mut self, index: usize, node: Option<u16>);
    /// Work that has named `slot` since the start, ns (wrapping).
    fn charged_ns(&self, slot: u32) -> u64;
    /// Who has `slot`.
    fn slot(&self, slot: u32) -> u16;
    /// Gives `slot` to a node, to [`HERE`] or to [`NOWHERE`].
    fn place(&mut self, slot: u32, node: u16);
}

/// A way to plan. The value lives as long as the node.
pub trait Plan {
    /// Draws up a plan: called every [`crate::tuning::Tuning::plan_ns`].
    fn turn<B: Board>(&mut self, board: &mut B, tuning: &crate::tuning::Tuning);
}

/// No plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPlan;

impl Plan for NoPlan {
    fn turn<B: Board>(&mut self, _board: &mut B, _tuning: &crate::tuning::Tuning) {}
}

/// Gives each member the share of table `table` that `weight` says, in runs that move as little as possible when weights
/// change a little. Members that are not live, and weights that sum to zero, get nothing; then all is [`HERE`].
pub fn place_by_weight<B: Board>(board: &mut B, table: u32, weight: impl Fn(&Member) -> u32) {
    let weight_of = |member: &Member| if member.is_live { u64::from(weight(member)) } else { 0 };
    let total: u64 = (0..board.members()).map(|index| weight_of(&board.member(index))).sum();
    let mut next = 0;
    let mut reached: u64 = 0;
    for index in 0..board.members() {
        let member = board.member(index);
        reached += weight_of(&member);
        // Rounding to the nearest slot keeps every share within half a slot of its weight.
        let end = (reached * u64::from(SLOTS) + total / 2).checked_div(total).unwrap_or(0) as u32;
        while next < end {
            board.place(table * SLOTS + next, member.node);
            next += 1;
        }
    }
    while next < SLOTS {
        board.place(table * SLOTS + next, HERE);
        next += 1;
    }
}

/// The hash of a slot on a node, for rendezvous hashing (Thaler and Ravishankar, IEEE/ACM ToN 1998).
#[inline(always)]
pub const fn rendezvous(slot: u32, node: u16) -> u64 {
    combine(mix(slot as u64), node as u64)
}

/// The load of a member as thresholds and states judge it, thousandths: weighted busy share, memory and run queue.
pub fn load_milli(member: &Member, tuning: &crate::tuning::Tuning) -> u32 {
    let queue = u64::from(member.queued_milli) / u64::from(tuning.queue_full.max(1));
    let sum = u64::from(member.busy_milli) * u64::from(tuning.cpu_milli)
        + u64::from(member.memory_milli) * u64::from(tuning.memory_milli)
        + queue.min(1000) * u64::from(tuning.queue_milli);
    let weights = u64::from(tuning.cpu_milli) + u64::from(tuning.memory_milli) + u64::from(tuning.queue_milli);
    saturate(sum.checked_div(weights).unwrap_or(0))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
pub(crate) mod tests;

//! The tables of a node at one moment, as a decision sees them.

use dataplane_common::load::{Forwarding, Here, LoadView, Signals, Visit};
use dataplane_common::maps::{LoadRow, SignalsRow};
use dataplane_common::plan::HERE;

/// A copy of what decisions read.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The load at the worker that would take the packet.
    pub here: Here,
    /// `LOAD_TABLE`: rows by node id.
    pub loads: Vec<LoadRow>,
    /// `ROSTER`: the ids of the peers.
    pub roster: Vec<u16>,
    /// `SIGNALS`.
    pub signals: SignalsRow,
    /// `SLOTS`: whose each slot is.
    pub slots: Vec<u16>,
    /// `TURNS`: decisions that took a turn.
    pub turns: u32,
}

/// A [`Snapshot`] for [`decide`](dataplane_common::policy::decide): all of it, or one peer alone. Nothing is charged.
#[derive(Clone, Copy, Debug)]
pub struct View<'s> {
    snapshot: &'s Snapshot,
    here: Here,
    roster: &'s [u16],
}

impl Snapshot {
    /// As the XDP program sees the tables.
    pub fn whole(&self) -> View<'_> {
        View { snapshot: self, here: self.here, roster: &self.roster }
    }

    /// As if `peer` were the only one and this node had all the work that it can count: no policy stops short of looking.
    pub fn alone<'s>(&'s self, peer: &'s u16) -> View<'s> {
        let here = Here { backlog_ns: u32::MAX, queued_milli: u32::MAX, ..Here::default() };
        View { snapshot: self, here, roster: std::slice::from_ref(peer) }
    }
}

impl LoadView for View<'_> {
    type Row = LoadRow;

    fn here(&self) -> Here {
        self.here
    }

    fn peers(&self) -> u32 {
        self.roster.len() as u32
    }

    fn row(&self, node: u16) -> Option<LoadRow> {
        self.snapshot.loads.get(usize::from(node)).copied()
    }

    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        for step in 0..u64::from(count) {
            let position = u64::from(start) + u64::from(stride) * step;
            let node = position.checked_rem(self.roster.len() as u64).and_then(|at| self.roster.get(at as usize));
            if let Some((node, row)) = node.and_then(|node| Some((*node, self.row(*node)?))) {
                visitor.node(node, &row);
            }
        }
    }

    fn signals(&self) -> Signals {
        Signals::of(&self.snapshot.signals)
    }

    fn forwarding(&self) -> Forwarding {
        Forwarding::of(&self.snapshot.signals)
    }

    fn slot(&self, slot: u32) -> u16 {
        self.snapshot.slots.get(slot as usize).copied().unwrap_or(HERE)
    }

    fn charge_slot(&self, _slot: u32, _ns: u32) {}

    fn turn(&self) -> u32 {
        self.snapshot.turns.wrapping_add(1)
    }
}

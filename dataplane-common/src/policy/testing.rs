//! A load table in memory and random ones, for the tests of the policies.

use core::cell::{Cell, RefCell};
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

use super::{Job, PolicyKind};
use crate::bands::Behind;
use crate::load::{Forwarding, Here, LoadView, Row, Signals, Visit};
use crate::maps::{LoadRow, Params};
use crate::plan::{HERE, SLOTS, TABLES};
use crate::tuning::Tuning;

/// Now, in every test.
pub const NOW: u64 = 1_000_000_000;

/// A load table. Row 0 is this node; all others are peers.
#[derive(Clone, Debug)]
pub struct Table {
    pub here: Here,
    pub rows: Vec<LoadRow>,
    pub signals: Signals,
    pub forwarding: Forwarding,
    pub slots: Vec<u16>,
    pub charged: RefCell<Vec<u64>>,
    pub turn: Cell<u32>,
}

impl Table {
    /// A table with these peers.
    pub fn new(here: Here, peers: impl IntoIterator<Item = LoadRow>) -> Self {
        let mut rows = vec![LoadRow::default()];
        rows.extend(peers);
        Self {
            here,
            rows,
            signals: Signals::derive(500, 10_000, 1_000, &Tuning::DEFAULT),
            forwarding: Forwarding {
                send_ns: 2_000,
                receive_ns: 3_000,
                wire_ns: 10_000,
                wire_ns_per_byte_q16: 1 << 16,
            },
            slots: vec![HERE; (SLOTS * TABLES) as usize],
            charged: RefCell::new(vec![0; (SLOTS * TABLES) as usize]),
            turn: Cell::new(0),
        }
    }

    /// Peers that may take a packet, with their ids.
    pub fn candidates(&self) -> impl Iterator<Item = (u16, &LoadRow)> {
        (0u16..).zip(&self.rows).skip(1).filter(|(_, row)| row.is_candidate(NOW))
    }
}

impl Row for &LoadRow {
    fn word(&self, word: crate::load::Word) -> u64 {
        (**self).word(word)
    }
}

impl<'t> LoadView for &'t Table {
    type Row = &'t LoadRow;

    fn here(&self) -> Here {
        self.here
    }

    fn peers(&self) -> u32 {
        self.rows.len() as u32 - 1
    }

    fn row(&self, node: u16) -> Option<&'t LoadRow> {
        self.rows.get(usize::from(node))
    }

    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        for step in 0..count {
            let node = 1 + (u64::from(start) + u64::from(stride) * u64::from(step)) % u64::from(self.peers());
            visitor.node(node as u16, &self.rows[node as usize]);
        }
    }

    fn signals(&self) -> Signals {
        self.signals
    }

    fn forwarding(&self) -> Forwarding {
        self.forwarding
    }

    fn slot(&self, slot: u32) -> u16 {
        self.slots[slot as usize]
    }

    fn charge_slot(&self, slot: u32, ns: u32) {
        self.charged.borrow_mut()[slot as usize] += u64::from(ns);
    }

    fn turn(&self) -> u32 {
        self.turn.replace(self.turn.get().wrapping_add(1))
    }
}

/// A candidate of one worker with nothing to do.
pub fn idle() -> LoadRow {
    LoadRow { workers: 1, valid_until_ns: NOW + 1, reported_at_ns: NOW, ..LoadRow::default() }
}

prop_compose! {
    /// A peer in any state.
    pub fn row()(
        backlog_ns in prop_oneof![Just(0), 0u32..1_000_000],
        in_flight in prop_oneof![Just(0), 0u32..200_000],
        acked_ns: u32,
        packets in 0u32..9,
        workers in 1u16..4,
        fresh in prop::bool::weighted(0.8),
        age in 0u64..200_000,
        (mean_backlog_ns, speed_milli, behind) in (0u32..500_000, prop_oneof![Just(0), 250u16..4000], prop_oneof![Just(0), any::<u64>()]),
        (pressure_ns, pressure_age) in (0u32..200_000, 0u64..200_000),
        (response_ns, service_ns, peak_ns, peak_age) in (0u32..1_000_000, 0u32..100_000, 0u32..1_000_000, 0u64..2_000_000),
        (sent_frames, unacked, outstanding) in (any::<u32>(), 0u32..20, 0u32..20),
        busy_milli in 0u16..=1000,
    ) -> LoadRow {
        LoadRow {
            backlog_ns,
            acked_ns,
            valid_until_ns: if fresh { NOW + 1 } else { NOW },
            queued_milli: packets * 1000,
            workers,
            busy_milli,
            sent_ns: acked_ns.wrapping_add(in_flight).into(),
            sent_frames: sent_frames.into(),
            reported_at_ns: NOW - age,
            mean_backlog_ns,
            speed_milli,
            behind,
            pressure_ns,
            pressure_us: ((NOW - pressure_age) >> 10) as u32,
            marked_ns: acked_ns.wrapping_add(in_flight / 2),
            marked_frames: sent_frames.wrapping_sub(unacked / 2),
            peak_ns,
            peak_us: ((NOW - peak_age) >> 10) as u32,
            response_ns,
            service_ns,
            completed_frames: sent_frames.wrapping_sub(outstanding).into(),
            acked_frames: sent_frames.wrapping_sub(unacked),
            ..LoadRow::default()
        }
    }
}

prop_compose! {
    /// A table with fewer peers than a full scan looks at.
    pub fn table()(
        backlog_ns in prop_oneof![Just(0), 0u32..2_000_000],
        packets in 0u32..9,
        behind in prop_oneof![Just(0), any::<u64>()],
        peers in proptest::collection::vec(row(), 0..9),
        (utilisation_milli, service_ns, deviation_ns) in (0u32..=1000, 1u32..100_000, 0u32..50_000),
    ) -> Table {
        let here = Here { backlog_ns, queued_milli: packets * 1000, behind: Behind(behind) };
        let mut table = Table::new(here, peers);
        table.signals = Signals::derive(utilisation_milli, service_ns, deviation_ns, &Tuning::DEFAULT);
        table
    }
}

/// Parameters with the one policy in use, margin 500 ns.
pub fn params(kind: PolicyKind) -> Params {
    Params { policy: kind as u32, policies: kind.bit(), margin_ns: 500, ..Params::DEFAULT }
}

/// A packet of 200 bytes.
pub fn job(ept_ns: u32, random: u32) -> Job {
    Job { now_ns: NOW, ept_ns, bytes: 200, random, flow: random ^ 0x5555, key: random ^ 0x3333, ..Job::default() }
}

/// Decides by `kind`.
pub fn decide(kind: PolicyKind, job: &Job, params: &Params, table: &Table) -> super::Decision {
    super::decide(kind as u32, job, params, &table)
}

//! A load table in user space, as workers map it, and packets to decide about: half of the nodes are busy, and the packets
//! wait long enough here that every policy must look at others.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use dataplane_common::hash::mix;
use dataplane_common::load::{Forwarding, Here, LoadView, Row, Signals, Visit, Word};
use dataplane_common::maps::LoadRow;
use dataplane_common::plan::{SLOTS, TABLES};
use dataplane_common::policy::Job;
use dataplane_common::tuning::Tuning;

/// Sizes of clusters, this node included.
pub const NODES: [u16; 4] = [3, 16, 256, 4096];

const WORDS: usize = size_of::<LoadRow>() / 8;
/// Time of every decision, ns.
pub const NOW: u64 = 1 << 40;

#[repr(align(64))]
pub struct Shared([AtomicU64; WORDS]);

pub struct Peer<'t>(&'t Shared);

impl Row for Peer<'_> {
    #[inline(always)]
    fn word(&self, word: Word) -> u64 {
        self.0.0[word as usize / 8].load(Relaxed)
    }
}

/// Rows beyond those of the peers, so that loads can change ([`Table::shift`]); all of them fit into a first-level cache.
const SPARE: u16 = 127;

/// A load table of peers 1 to n.
pub struct Table {
    rows: Vec<Shared>,
    peers: u16,
    /// Row of the first peer.
    first: Cell<usize>,
    slots: Vec<u16>,
    turn: Cell<u32>,
}

impl Table {
    /// The table of so many peers.
    pub fn new(peers: u16) -> Self {
        let row = |node: u16| {
            let random = mix(node.into());
            let row = LoadRow {
                backlog_ns: (random % 2 * (random >> 40)) as u32 % 200_000,
                valid_until_ns: u64::MAX,
                queued_milli: (random >> 8) as u32 % 8 * 1000,
                workers: 1,
                busy_milli: 600,
                reported_at_ns: NOW - (random >> 20) % 100_000,
                mean_backlog_ns: 40_000,
                speed_milli: 1000,
                response_ns: 100_000,
                service_ns: 10_000,
                peak_ns: 150_000,
                peak_us: (NOW >> 10) as u32,
                ..LoadRow::default()
            };
            let words = [
                Word::Report,
                Word::ValidUntil,
                Word::Queue,
                Word::SentNs,
                Word::SentFrames,
                Word::ReportedAt,
                Word::Mean,
                Word::Behind,
                Word::Pressure,
                Word::Marked,
                Word::Peak,
                Word::Response,
                Word::Completed,
                Word::Acked,
            ];
            let shared = Shared(std::array::from_fn(|_| AtomicU64::new(0)));
            words.iter().for_each(|word| shared.0[*word as usize / 8].store(row.word(*word), Relaxed));
            shared
        };
        let slots = (0..SLOTS * TABLES).map(|slot| 1 + (mix(slot.into()) % u64::from(peers)) as u16).collect();
        let rows = (1..=peers + SPARE).map(row).collect();
        Self { rows, peers, first: Cell::new(0), slots, turn: Cell::new(0) }
    }

    /// Gives every peer another load: where loads never change, a branch predictor knows the decisions about few nodes by heart.
    pub fn shift(&self, random: u32) {
        self.first.set((random % u32::from(SPARE)) as usize);
    }
}

impl<'t> LoadView for &'t Table {
    type Row = Peer<'t>;

    fn here(&self) -> Here {
        Here { backlog_ns: 300_000, queued_milli: 9_000, ..Here::default() }
    }

    fn peers(&self) -> u32 {
        self.peers.into()
    }

    fn row(&self, node: u16) -> Option<Peer<'t>> {
        self.rows.get((self.first.get() + usize::from(node)).wrapping_sub(1)).map(Peer)
    }

    #[inline(always)]
    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        let peers = self.peers();
        let rows = &self.rows[self.first.get()..];
        let mut at = start;
        for _ in 0..count {
            visitor.node(at as u16 + 1, &Peer(&rows[at as usize]));
            at += stride;
            if at >= peers {
                at -= peers;
            }
        }
    }

    fn signals(&self) -> Signals {
        Signals::derive(600, 10_000, 5_000, &Tuning::DEFAULT)
    }

    fn forwarding(&self) -> Forwarding {
        Forwarding { send_ns: 500, receive_ns: 500, wire_ns: 2_000, wire_ns_per_byte_q16: 52_429 }
    }

    fn slot(&self, slot: u32) -> u16 {
        self.slots[slot as usize]
    }

    fn charge_slot(&self, _slot: u32, _ns: u32) {}

    fn turn(&self) -> u32 {
        self.turn.replace(self.turn.get().wrapping_add(1))
    }
}

/// Packets, each with another random number, flow and key, so that samples fall on rows that are not in the first-level cache
/// when there are many.
#[derive(Default)]
pub struct Jobs {
    state: u64,
}

impl Jobs {
    /// The next one.
    pub fn next(&mut self) -> Job {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let random = mix(self.state) as u32;
        Job {
            now_ns: NOW,
            ept_ns: 20_000 + (random & 0xffff),
            bytes: 300,
            random,
            flow: random,
            key: random,
            ..Job::default()
        }
    }
}

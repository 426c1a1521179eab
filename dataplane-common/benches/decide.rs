//! What a decision costs in user space, by policy and number of nodes: `cargo bench -p dataplane-common`.
//!
//! The table is one of atomics, as workers map it; half of the nodes are busy, and the packet that is decided about waits long
//! enough here that every policy must look at others. Each decision draws another random number, so that samples fall on
//! rows that are not in the first-level cache when there are many.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use dataplane_common::hash::mix;
use dataplane_common::load::{Forwarding, Here, LoadView, Row, Signals, Visit, Word};
use dataplane_common::maps::{LoadRow, Params};
use dataplane_common::plan::{SLOTS, TABLES};
use dataplane_common::policy::{Job, PolicyKind, decide};

const WORDS: usize = size_of::<LoadRow>() / 8;
const NOW: u64 = 1 << 40;

#[repr(align(64))]
struct Shared([AtomicU64; WORDS]);

struct Peer<'t>(&'t Shared);

impl Row for Peer<'_> {
    #[inline(always)]
    fn word(&self, word: Word) -> u64 {
        self.0.0[word as usize / 8].load(Relaxed)
    }
}

/// A load table of peers 1 to n.
struct Table {
    rows: Vec<Shared>,
    slots: Vec<u16>,
    turn: Cell<u32>,
}

impl Table {
    fn new(peers: u16) -> Self {
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
        Self { rows: (1..=peers).map(row).collect(), slots, turn: Cell::new(0) }
    }
}

impl<'t> LoadView for &'t Table {
    type Row = Peer<'t>;

    fn here(&self) -> Here {
        Here { backlog_ns: 300_000, queued_milli: 9_000, ..Here::default() }
    }

    fn peers(&self) -> u32 {
        self.rows.len() as u32
    }

    fn row(&self, node: u16) -> Option<Peer<'t>> {
        self.rows.get(usize::from(node).wrapping_sub(1)).map(Peer)
    }

    #[inline(always)]
    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        let peers = self.peers();
        let mut at = start;
        for _ in 0..count {
            visitor.node(at as u16 + 1, &Peer(&self.rows[at as usize]));
            at += stride;
            if at >= peers {
                at -= peers;
            }
        }
    }

    fn signals(&self) -> Signals {
        Signals::derive(600, 10_000, 5_000)
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

fn decisions(criterion: &mut Criterion) {
    for kind in PolicyKind::ALL {
        let params = Params { policy: *kind as u32, policies: kind.bit(), ..Params::DEFAULT };
        let mut group = criterion.benchmark_group(kind.name());
        // The number of nodes counts this one.
        for nodes in [3u16, 16, 256, 4096] {
            let table = Table::new(nodes - 1);
            let mut state = 0u64;
            group.bench_function(BenchmarkId::from_parameter(nodes), |bencher| {
                bencher.iter(|| {
                    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                    let random = mix(state) as u32;
                    let job = Job {
                        now_ns: NOW,
                        ept_ns: 20_000 + (random & 0xffff),
                        bytes: 300,
                        random,
                        flow: random,
                        key: random,
                        ..Job::default()
                    };
                    decide(*kind as u32, black_box(&job), &params, &&table)
                });
            });
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(30)
        .warm_up_time(std::time::Duration::from_millis(100))
        .measurement_time(std::time::Duration::from_millis(300));
    targets = decisions
}
criterion_main!(benches);

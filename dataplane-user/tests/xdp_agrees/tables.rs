//! A node with random tables, and the same tables as `decide` reads them in user space.

use std::cell::{Cell, RefCell};
use std::mem::offset_of;

use dataplane_common::bands::Behind;
use dataplane_common::load::{Forwarding, Here, LoadView, Row, Signals, Visit, Word, WorkerLoad};
use dataplane_common::maps::{
    FLOW_SLOTS, FlowRow, FunctionRow, LoadRow, PEER_PRESENT, PeerRow, QueueRow, SignalsRow, SlotRow, WorkerRow,
    function_slot, socket_slot,
};
use dataplane_common::plan::{HERE, NOWHERE, SLOTS, TABLES};
use dataplane_common::policy::FULL_SCAN;

use dataplane_user::worker::monotonic_ns;

use super::generate::TYPES;
use crate::support::node::{Node, OTHER_PORT, PORT, WORKERS};
use crate::support::random::Random;
use crate::support::words::{Place, two};

/// What the tables of a node hold.
pub struct Tables {
    pub peers: Vec<PeerRow>,
    pub rows: Vec<LoadRow>,
    pub roster: Vec<u16>,
    pub workers: [WorkerLoad; WORKERS as usize],
    /// By function and worker.
    pub functions: Vec<[FunctionRow; WORKERS as usize]>,
    pub signals: SignalsRow,
    pub slots: Vec<u16>,
}

/// The numbers of peers that decisions look at: none, few, as many as they look at all of, and many.
const PEERS: [u16; 10] = [0, 1, 2, 3, 7, 15, 16, 17, 64, 300];

impl Tables {
    /// Tables for a new node, with random peers and a random plan.
    pub fn new(node: &mut Node<'_>, random: &mut Random) -> Self {
        let params = node.params;
        for (index, type_id) in (0..).zip(TYPES) {
            node.set_function(index, FunctionRow { type_id: type_id.into(), ..FunctionRow::default() });
        }
        let mut peers = vec![PeerRow::default(); params.nodes.into()];
        for id in (0..params.nodes).filter(|id| *id != params.node) {
            if random.once_in(8) {
                continue;
            }
            let row = PeerRow {
                mac: [2, 0, 0, (id >> 8) as u8, id as u8, 1],
                flags: if random.once_in(8) { 0 } else { PEER_PRESENT },
                source_mac: [2, 0, 0, (id >> 8) as u8, id as u8, 2],
                max_frame: random.pick(&[0, 200, 1514, 1514, 1514, 9014]),
                ..PeerRow::default()
            };
            node.set_peer(id, row);
            peers[usize::from(id)] = row;
        }
        let mut tables = Self {
            peers,
            rows: vec![LoadRow::default(); params.nodes.into()],
            roster: Vec::new(),
            workers: [WorkerLoad::default(); WORKERS as usize],
            functions: vec![[FunctionRow::default(); WORKERS as usize]; TYPES.len()],
            signals: SignalsRow::default(),
            slots: vec![HERE; (SLOTS * TABLES) as usize],
        };
        for slot in 0..SLOTS * TABLES {
            tables.set_slot(node, slot, random);
            node.set(Place::slot(slot, offset_of!(SlotRow, charged_ns)), random.word() >> random.below(64));
        }
        for slot in 0..FLOW_SLOTS as u16 {
            let word = random.word();
            node.set(Place::flow(slot, offset_of!(FlowRow, issued)), word >> random.below(64));
            // Some are done before the first packet is decided about, and most are not.
            let expected_ns = monotonic_ns() + (word >> (30 + word % 20));
            node.set(Place::flow(slot, offset_of!(FlowRow, expected_ns)), expected_ns);
        }
        tables
    }

    /// Fills everything that one decision reads with random numbers. Rows of nodes that are not looked at stay.
    pub fn fill(&mut self, node: &Node<'_>, policies: &[u32], random: &mut Random) {
        self.set_signals(node, random);
        self.set_roster(node, random);
        let (own, plain) = (node.params.node, random.below(4) > 0);
        for id in self.roster.iter().copied().chain([own]).collect::<Vec<_>>() {
            let row = if plain { plausible_row(random) } else { any_row(random) };
            self.rows[usize::from(id)] = row;
            node.set_load(id, &row);
        }
        for worker in 0..WORKERS {
            self.set_worker(node, worker, random);
        }
        for function in 0..TYPES.len() {
            for worker in 0..WORKERS {
                self.set_function(node, function, worker, policies, random);
            }
        }
        for _ in 0..16 {
            self.set_slot(node, random.below((SLOTS * TABLES).into()) as u32, random);
        }
        for interface in [PORT, OTHER_PORT] {
            for queue in 0..WORKERS {
                let socket = |offset| Place::queue(socket_slot(interface, queue), offset);
                node.set(socket(offset_of!(QueueRow, charged_ns)), random.word() >> random.below(64));
                node.set(socket(offset_of!(QueueRow, charged_packets)), random.word() >> random.below(64));
            }
        }
    }

    /// Leaves so few peers on the roster that decisions look at all of them.
    pub fn shorten_roster(&mut self, node: &Node<'_>) {
        self.roster.truncate(FULL_SCAN as usize);
        node.set_roster(&self.roster);
        self.signals.peers = self.roster.len() as u32;
    }

    fn set_slot(&mut self, node: &Node<'_>, slot: u32, random: &mut Random) {
        let to = match random.below(16) {
            0 => HERE,
            1 => NOWHERE,
            2 => random.word() as u16,
            // Mostly nodes that are on the roster even when it is short.
            3..=12 if !self.roster.is_empty() => random.pick(&self.roster),
            _ => random.below(node.params.nodes.into()) as u16,
        };
        self.slots[slot as usize] = to;
        node.set(Place::slot(slot, offset_of!(SlotRow, node)), to.into());
    }

    fn set_roster(&mut self, node: &Node<'_>, random: &mut Random) {
        let params = node.params;
        let most = usize::from(params.nodes - 1);
        let (count, first) = (usize::from(random.pick(&PEERS)).min(most), random.below(params.nodes.into()) as usize);
        let ids = (0..params.nodes).cycle().skip(first).filter(|id| *id != params.node);
        self.roster = ids.take(count).collect();
        node.set_roster(&self.roster);
        self.signals.peers = count as u32;
    }

    fn set_signals(&mut self, node: &Node<'_>, random: &mut Random) {
        let cost = |random: &mut Random, usual: u32| match random.below(8) {
            0 => 0,
            1 => random.word() as u32,
            _ => random.below(usual.into()) as u32,
        };
        let signals = SignalsRow {
            send_ns: cost(random, 4_000),
            receive_ns: cost(random, 4_000),
            wire_ns: cost(random, 20_000),
            wire_ns_per_byte_q16: cost(random, 1 << 17),
            utilisation_milli: cost(random, 1_000),
            service_ns: cost(random, 50_000),
            arrivals_q32: cost(random, 1_000_000),
            deviation_ns: cost(random, 50_000),
            ..SignalsRow::default()
        };
        // As wide apart as what they are derived from.
        let (price_q16, relax) = (signals.utilisation_milli.wrapping_mul(251), signals.service_ns.wrapping_mul(83));
        self.signals = SignalsRow { price_q16, relax, ..signals };
        node.set_signals(&self.signals);
    }

    fn set_worker(&mut self, node: &Node<'_>, worker: u32, random: &mut Random) {
        let discharged_ns = random.word() >> random.below(64);
        let discharged_packets = random.word() >> random.below(64);
        let ahead = random.pick(&[0, 30_000, 70_000, 500_000, 10_000_000, 1 << 31, 1 << 40, u64::MAX]);
        let load = WorkerLoad {
            charged_ns: discharged_ns.wrapping_add(ahead),
            discharged_ns,
            charged_packets: discharged_packets.wrapping_add(random.pick(&[0, 1, 2, 7, 1 << 40, u64::MAX])),
            discharged_packets,
            serving_since_ns: random.pick(&[0, 1, u64::MAX]),
            serving_charge_ns: random.pick(&[0, 1, 25_000, 400_000]),
            behind: Behind(if random.once_in(2) { 0 } else { random.word() }),
        };
        let place = |offset, word| node.set(Place::worker(worker, offset), word);
        place(offset_of!(WorkerRow, charged_ns), load.charged_ns);
        place(offset_of!(WorkerRow, discharged_ns), load.discharged_ns);
        place(offset_of!(WorkerRow, charged_packets), load.charged_packets);
        place(offset_of!(WorkerRow, discharged_packets), load.discharged_packets);
        place(offset_of!(WorkerRow, serving_since_ns), load.serving_since_ns);
        place(offset_of!(WorkerRow, serving_charge_ns), load.serving_charge_ns.into());
        place(offset_of!(WorkerRow, behind), load.behind.0);
        self.workers[worker as usize] = load;
    }

    fn set_function(&mut self, node: &Node<'_>, index: usize, worker: u32, policies: &[u32], random: &mut Random) {
        let row = FunctionRow {
            a_ns: random.pick(&[0, 1_000, 6_000, 100_000]),
            b_q16: random.pick(&[0, 1, 1 << 16, 1 << 22]),
            limit_ns: if random.once_in(8) {
                random.pick(&[0, 1, 200_000])
            } else {
                random.pick(&[50_000_000, u32::MAX])
            },
            units: random.pick(&[0, 0, 1, 2, 3]),
            declared_a_ns: random.pick(&[0, 1_000, 6_000, 100_000]),
            declared_b_q16: random.pick(&[0, 1, 1 << 16, 1 << 22]),
            policy: if random.once_in(16) { random.pick(&[0, 1, 30, 63, 64, u32::MAX]) } else { random.pick(policies) },
            home: self.home(random),
            order: random.pick(&[0, 0, 0, 0, 1, 1, 1, 2, 3]),
            flags: if random.once_in(16) { random.below(8) as u32 } else { 0 },
            arrivals: random.word() >> random.below(64),
            ..FunctionRow::default()
        };
        let place = |offset, word| node.set(Place::function(function_slot(index as u32, worker), offset), word);
        place(offset_of!(FunctionRow, a_ns), two(row.a_ns, row.b_q16));
        place(offset_of!(FunctionRow, limit_ns), two(row.limit_ns, row.units));
        place(offset_of!(FunctionRow, declared_a_ns), two(row.declared_a_ns, row.declared_b_q16));
        place(offset_of!(FunctionRow, policy), two(row.policy, row.home));
        place(offset_of!(FunctionRow, order), two(row.order, row.flags));
        place(offset_of!(FunctionRow, arrivals), row.arrivals);
        self.functions[index][worker as usize] = row;
    }

    /// A node on the roster, or any number, plus one; mostly none.
    fn home(&self, random: &mut Random) -> u32 {
        match random.below(8) {
            0 => random.word() as u32,
            1 | 2 if !self.roster.is_empty() => u32::from(random.pick(&self.roster)) + 1,
            _ => 0,
        }
    }
}

/// Until when a report is good: not, not any more, for ever, and near the time of the run.
fn validity(now_ns: u64, random: &mut Random) -> u64 {
    random.pick(&[0, 1, u64::MAX, u64::MAX, u64::MAX, u64::MAX, u64::MAX, now_ns + 1_000_000_000])
}

/// A time ago, ns: most of them ages in which a load is forgotten in part.
fn age(random: &mut Random) -> u64 {
    let longest = random.pick(&[1, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 24, 1 << 30]);
    random.below(longest)
}

/// A row as reports and results make it. Few different loads, so that equals are frequent.
fn plausible_row(random: &mut Random) -> LoadRow {
    let now_ns = dataplane_user::worker::monotonic_ns();
    let (acked_ns, acked_frames) = (random.word() as u32, random.word() as u32);
    let in_flight = random.pick(&[0, 0, 10_000, 20_000, 60_000, u32::MAX, 1 << 31]);
    let sent_frames = random.word() << 32 | u64::from(acked_frames.wrapping_add(random.below(5) as u32));
    LoadRow {
        backlog_ns: random.pick(&[0, 10_000, 20_000, 50_000, 400_000, u32::MAX]),
        acked_ns,
        valid_until_ns: validity(now_ns, random),
        queued_milli: random.below(5) as u32 * 500,
        workers: random.below(4) as u16,
        busy_milli: random.below(1_001) as u16,
        sent_ns: random.word() << 32 | u64::from(acked_ns.wrapping_add(in_flight)),
        sent_frames,
        reported_at_ns: now_ns.saturating_sub(age(random)),
        mean_backlog_ns: random.pick(&[0, 10_000, 50_000, 400_000]),
        speed_milli: random.pick(&[0, 500, 1_000, 1_000, 2_000]),
        memory_milli: random.below(1_001) as u16,
        behind: if random.once_in(2) { 0 } else { random.word() },
        pressure_ns: random.pick(&[0, 0, 20_000, 300_000]),
        pressure_us: (now_ns.saturating_sub(age(random)) >> 10) as u32,
        marked_ns: acked_ns.wrapping_add(in_flight / 2),
        marked_frames: acked_frames,
        peak_ns: random.pick(&[0, 30_000, 200_000, 5_000_000]),
        peak_us: (now_ns.saturating_sub(age(random)) >> 10) as u32,
        response_ns: random.pick(&[0, 30_000, 200_000, 5_000_000]),
        service_ns: random.pick(&[0, 10_000, 40_000]),
        completed_frames: sent_frames.wrapping_sub(random.below(5)),
        acked_frames,
        transit_ns: random.pick(&[0, 12_000, 90_000]),
        transit_bytes: random.pick(&[0, 100, 900]),
        limit_ns: acked_ns.wrapping_add(random.pick(&[0, 20_000, 1 << 20, 1 << 30, u32::MAX])),
        limited: u32::from(random.once_in(8)),
        ..LoadRow::default()
    }
}

/// A row with any number in every field that decisions read.
fn any_row(random: &mut Random) -> LoadRow {
    LoadRow {
        backlog_ns: random.word() as u32,
        acked_ns: random.word() as u32,
        valid_until_ns: validity(0, random),
        queued_milli: random.word() as u32,
        workers: random.word() as u16,
        busy_milli: random.word() as u16,
        sent_ns: random.word(),
        sent_frames: random.word(),
        reported_at_ns: random.word(),
        mean_backlog_ns: random.word() as u32,
        speed_milli: random.word() as u16,
        memory_milli: random.word() as u16,
        behind: random.word(),
        pressure_ns: random.word() as u32,
        pressure_us: random.word() as u32,
        marked_ns: random.word() as u32,
        marked_frames: random.word() as u32,
        peak_ns: random.word() as u32,
        peak_us: random.word() as u32,
        response_ns: random.word() as u32,
        service_ns: random.word() as u32,
        completed_frames: random.word(),
        acked_frames: random.word() as u32,
        flags: random.word() as u32,
        received_ns: random.word() as u32,
        received_epoch: random.word() as u32,
        transit_ns: random.word() as u32,
        transit_bytes: random.word() as u32,
        limit_ns: random.word() as u32,
        limited: random.below(2) as u32,
        ..LoadRow::default()
    }
}

/// The tables as `decide` reads them, and what it does to them.
pub struct View<'a> {
    pub tables: &'a Tables,
    pub worker: u32,
    pub now_ns: u64,
    /// The round-robin counter of the case, and turns taken.
    pub turn: u64,
    pub turns: Cell<u64>,
    /// Work charged to slots.
    pub charged: RefCell<Vec<(u32, u32)>>,
}

/// A row of the load table.
pub struct TableRow<'a>(&'a LoadRow);

impl Row for TableRow<'_> {
    fn word(&self, word: Word) -> u64 {
        self.0.word(word)
    }
}

impl<'a> LoadView for View<'a> {
    type Row = TableRow<'a>;

    fn here(&self) -> Here {
        self.tables.workers[self.worker as usize].here(self.now_ns)
    }

    fn peers(&self) -> u32 {
        self.tables.roster.len() as u32
    }

    fn row(&self, node: u16) -> Option<TableRow<'a>> {
        self.tables.rows.get(usize::from(node)).map(TableRow)
    }

    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        for step in 0..count {
            let position = (u64::from(start) + u64::from(stride) * u64::from(step)) % u64::from(self.peers());
            let node = self.tables.roster[position as usize];
            visitor.node(node, &TableRow(&self.tables.rows[usize::from(node)]));
        }
    }

    fn signals(&self) -> Signals {
        Signals::of(&self.tables.signals)
    }

    fn forwarding(&self) -> Forwarding {
        Forwarding::of(&self.tables.signals)
    }

    fn slot(&self, slot: u32) -> u16 {
        self.tables.slots[slot as usize]
    }

    fn charge_slot(&self, slot: u32, ns: u32) {
        self.charged.borrow_mut().push((slot, ns));
    }

    fn turn(&self) -> u32 {
        self.turns.set(self.turns.get() + 1);
        self.turn.wrapping_add(self.turns.get()) as u32
    }
}

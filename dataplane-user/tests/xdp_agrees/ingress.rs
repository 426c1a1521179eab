//! `dp_ingress` against `classify` and `decide`.

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

use dataplane_common::classify::{Active, Class, classify};
use dataplane_common::estimate::{Cost, ept_ns};
use dataplane_common::function::Units;
use dataplane_common::load::{Here, Load, LoadView, Visit, WorkerLoad};
use dataplane_common::maps::{
    FunctionRow, LoadRow, PEER_PRESENT, Params, PeerRow, QueueRow, WorkerRow, function_slot, socket_slot,
};
use dataplane_common::meta::Origin;
use dataplane_common::policy::{Job, PolicyKind, Verdict, decide};
use dataplane_common::reason::Reason;
use dataplane_common::wire::link::{Header, Kind, OVERHEAD_BYTES};

use super::compare::{Comparison, End, Expected, XDP_DROP, XDP_PASS};
use super::generate::{TYPES, frame};
use crate::support::node::{Arrival, Node, OTHER_PORT, PORT, Place, STRANGER, Site, WORKERS, inside};
use crate::support::random::Random;

/// Cases of each policy.
const CASES: u64 = 150_000;

/// A node with random peers; what the test knows of it.
struct Subject<'a> {
    node: Node<'a>,
    peers: Vec<PeerRow>,
    sockets: bool,
}

/// What is random about a node for one case.
struct Tables {
    loads: Vec<Load>,
    workers: [WorkerLoad; WORKERS as usize],
    functions: Vec<FunctionRow>,
}

/// The load table as `decide` reads it.
struct View<'a> {
    here: Here,
    loads: &'a [Load],
}

impl LoadView for View<'_> {
    fn here(&self) -> Here {
        self.here
    }

    fn visit<V: Visit>(&self, start: u32, visitor: &mut V) {
        let nodes = self.loads.len();
        for step in 0..nodes {
            let at = (start as usize + step) % nodes;
            visitor.node(at as u16, &self.loads[at]);
        }
    }
}

impl<'a> Subject<'a> {
    fn new(site: &'a Site, params: Params, sockets: bool, random: &mut Random) -> Self {
        let mut node = if sockets { site.node(params) } else { site.node_without_sockets(params) };
        for (index, type_id) in (0..).zip(TYPES) {
            node.set_function(index, FunctionRow { type_id: type_id.into(), ..FunctionRow::default() });
        }
        let mut peers = vec![PeerRow::default(); params.nodes.into()];
        for id in 0..params.nodes {
            if id == params.node || random.once_in(5) {
                continue;
            }
            let row = PeerRow {
                mac: [2, 0, 0, 1, id as u8, 1],
                flags: if random.once_in(5) { 0 } else { PEER_PRESENT },
                source_mac: [2, 0, 0, 1, id as u8, 2],
                max_frame: random.pick(&[0, 200, 1514, 1514, 1514, 9014]),
            };
            node.set_peer(id, row);
            peers[usize::from(id)] = row;
        }
        Self { node, peers, sockets }
    }

    /// What may become of a frame: one possibility, or several where a random number decides among equals.
    fn possible(&self, tables: &Tables, at: Arrival, frame: &[u8]) -> Vec<Expected> {
        let left = |verdict, reason| vec![Expected::left(Reason::SeenPort, verdict, reason)];
        let active = match classify(frame, self.node.params.udp_port) {
            Class::NotActive => return left(XDP_PASS, Reason::PassNotActive),
            Class::Fragment => return left(XDP_PASS, Reason::PassFragment),
            Class::Result => return left(XDP_PASS, Reason::PassResult),
            Class::Malformed(reason) => return left(XDP_DROP, reason),
            Class::Active(active) => active,
        };
        let Some(index) = TYPES.iter().position(|known| *known == active.anep.type_id) else {
            let discard = active.anep.discard_unknown;
            return if discard {
                left(XDP_DROP, Reason::DropUnknownType)
            } else {
                left(XDP_PASS, Reason::PassUnknownType)
            };
        };
        let row = &tables.functions[function_slot(0, at.queue) as usize + index * WORKERS as usize];
        if row.limit_ns == 0 || at.interface == STRANGER {
            return left(XDP_PASS, Reason::PassNoSocket);
        }
        let Some(units) = Units::from_map(row.units).of(&active.anep) else {
            return left(XDP_DROP, Reason::DropOperandMissing);
        };
        let declared = Cost { a_ns: row.declared_a_ns, b_q16: row.declared_b_q16 };
        if declared.ns(units) > row.limit_ns {
            return left(XDP_DROP, Reason::DropServiceLimit);
        }
        let ept_ns = ept_ns(Cost { a_ns: row.a_ns, b_q16: row.b_q16 }, declared, units);
        self.verdicts(tables, at, frame, ept_ns)
            .into_iter()
            .map(|verdict| self.expected(verdict, index as u16, ept_ns, at, frame, &active))
            .collect()
    }

    /// Every verdict that some random number leads to.
    fn verdicts(&self, tables: &Tables, at: Arrival, frame: &[u8], ept_ns: u32) -> Vec<Verdict> {
        // Reports are good for ever or not at all, so any time does.
        let now_ns = 1 << 50;
        let view = View { here: tables.workers[at.queue as usize].here(now_ns), loads: &tables.loads };
        let mut verdicts = Vec::new();
        for random in 0..self.node.params.nodes {
            let job = Job { now_ns, ept_ns, bytes: frame.len() + OVERHEAD_BYTES, random: random.into() };
            let verdict = decide(&job, &self.node.params, &view).verdict;
            if !verdicts.contains(&verdict) {
                verdicts.push(verdict);
            }
        }
        verdicts
    }

    fn expected(
        &self,
        verdict: Verdict,
        function: u16,
        ept_ns: u32,
        at: Arrival,
        frame: &[u8],
        active: &Active,
    ) -> Expected {
        let mut counted = vec![Reason::SeenPort];
        if active.trailing > 0 {
            counted.push(Reason::NoteTrailing);
        }
        let (words, times) = (Vec::new(), Vec::new());
        if let Verdict::Redirect(node) = verdict {
            let peer = &self.peers[usize::from(node)];
            let present = peer.flags & PEER_PRESENT != 0;
            if present && frame.len() + OVERHEAD_BYTES <= usize::from(peer.max_frame) {
                counted.push(Reason::Redirected);
                let header = self.header(node, ept_ns, at, frame, active);
                let end = End::Forwarded { header, mac: peer.mac, source_mac: peer.source_mac };
                return Expected { end, counted, words, times };
            }
            counted.push(if present { Reason::NoteTooLong } else { Reason::NoteUnreachable });
        }
        let (end, reason) = if self.sockets {
            (End::Queued { function, charged_ns: ept_ns, origin: Origin::Port }, Reason::LocalQueued)
        } else {
            (End::Left(XDP_PASS), Reason::PassNoSocket)
        };
        counted.push(reason);
        Expected { end, counted, words, times }
    }

    fn header(&self, node: u16, ept_ns: u32, at: Arrival, frame: &[u8], active: &Active) -> Header {
        Header {
            kind: Kind::Forward,
            hops: 1,
            source: self.node.params.node,
            destination: node,
            epoch: self.node.params.epoch,
            sequence: 0,
            charged_ns: ept_ns,
            position_ns: 0,
            length: frame.len() as u16,
            type_id: active.anep.type_id,
            port: at.interface as u16,
            arrival_ns: 0,
        }
    }

    /// Makes random tables and writes them into the maps.
    fn fill(&self, random: &mut Random) -> Tables {
        let loads: Vec<_> = (0..self.node.params.nodes).map(|id| self.fill_load(id, random)).collect();
        let workers = std::array::from_fn(|index| self.fill_worker(index as u32, random));
        let mut functions = Vec::new();
        for index in 0..TYPES.len() as u32 {
            for worker in 0..WORKERS {
                functions.push(self.fill_function(function_slot(index, worker), random));
            }
        }
        for interface in [PORT, OTHER_PORT] {
            for queue in 0..WORKERS {
                let socket = |offset| Place::Queue(socket_slot(interface, queue), offset);
                self.node.set(socket(offset_of!(QueueRow, charged_ns)), random.word() >> random.below(64));
                self.node.set(socket(offset_of!(QueueRow, charged_packets)), random.word() >> random.below(64));
            }
        }
        Tables { loads, workers, functions }
    }

    fn fill_load(&self, id: u16, random: &mut Random) -> Load {
        // Few different values, so that equals are frequent.
        let acked_ns = random.word() as u32;
        let in_flight = random.pick(&[0, 0, 10_000, 20_000, 60_000, u32::MAX, 1 << 31]);
        let row = LoadRow {
            backlog_ns: random.pick(&[0, 10_000, 20_000, 50_000, 400_000, u32::MAX]),
            acked_ns,
            valid_until_ns: random.pick(&[0, 1, u64::MAX, u64::MAX, u64::MAX, u64::MAX]),
            queued_milli: random.below(5) as u32 * 500,
            workers: random.below(4) as u16,
            sent_ns: random.word() << 32 | u64::from(acked_ns.wrapping_add(in_flight)),
            sent_frames: random.word(),
            ..LoadRow::default()
        };
        // Nobody reports for this node itself.
        let valid_until_ns = if id == self.node.params.node { 0 } else { row.valid_until_ns };
        self.node.set_load(id, &LoadRow { valid_until_ns, ..row });
        Load {
            backlog_ns: row.backlog_ns,
            acked_ns,
            sent_ns: row.sent_ns as u32,
            queued_milli: row.queued_milli,
            workers: row.workers,
            valid_until_ns,
        }
    }

    fn fill_worker(&self, worker: u32, random: &mut Random) -> WorkerLoad {
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
        };
        let place = |offset, word| self.node.set(Place::Worker(worker, offset), word);
        place(offset_of!(WorkerRow, charged_ns), load.charged_ns);
        place(offset_of!(WorkerRow, discharged_ns), load.discharged_ns);
        place(offset_of!(WorkerRow, charged_packets), load.charged_packets);
        place(offset_of!(WorkerRow, discharged_packets), load.discharged_packets);
        place(offset_of!(WorkerRow, serving_since_ns), load.serving_since_ns);
        place(offset_of!(WorkerRow, serving_charge_ns), load.serving_charge_ns.into());
        load
    }

    fn fill_function(&self, slot: u32, random: &mut Random) -> FunctionRow {
        let row = FunctionRow {
            a_ns: random.pick(&[0, 1_000, 6_000, 100_000]),
            b_q16: random.pick(&[0, 1, 1 << 16, 1 << 22]),
            limit_ns: random.pick(&[0, 1, 200_000, 10_000_000, 10_000_000, 50_000_000, u32::MAX, u32::MAX]),
            units: random.pick(&[0, 0, 1, 2, 3]),
            declared_a_ns: random.pick(&[0, 1_000, 100_000]),
            declared_b_q16: random.pick(&[0, 1, 1 << 16, 1 << 22]),
            ..FunctionRow::default()
        };
        let map = self.node.tables.functions.row(slot);
        let two = |first: u32, second: u32| u64::from(first) | u64::from(second) << 32;
        map.word(offset_of!(FunctionRow, a_ns)).store(two(row.a_ns, row.b_q16), Relaxed);
        map.word(offset_of!(FunctionRow, limit_ns)).store(two(row.limit_ns, row.units), Relaxed);
        map.word(offset_of!(FunctionRow, declared_a_ns)).store(two(row.declared_a_ns, row.declared_b_q16), Relaxed);
        row
    }
}

/// Nodes of a policy: sizes of the cluster, with and without guard, sockets, a margin.
fn params(policy: PolicyKind) -> Vec<(Params, bool)> {
    let base = Params {
        policy: policy as u32,
        node: 0,
        nodes: 8,
        epoch: 0x8000_0005,
        send_ns: 2_000,
        receive_ns: 3_000,
        wire_ns: 10_000,
        wire_ns_per_byte_q16: 1 << 15,
        margin_ns: 500,
        ..Params::DEFAULT
    };
    vec![
        (base, true),
        (Params { node: 3, nodes: 4, guard: 0, margin_ns: 0, ..base }, true),
        (Params { node: 63, nodes: 64, send_ns: 0, receive_ns: 0, wire_ns: 0, ..base }, true),
        (Params { node: 1, nodes: 2, wire_ns_per_byte_q16: u32::MAX, margin_ns: u32::MAX, ..base }, true),
        (Params { node: 2, nodes: 3, udp_port: 9_000, ..base }, false),
        (Params { nodes: 1, ..base }, true),
    ]
}

fn agrees(test: &str, policy: PolicyKind, redirects: bool) {
    inside(test, |site| {
        let seed = Random::seed();
        let nodes = params(policy);
        let (mut local, mut remote, mut ties) = (0, 0, 0);
        for (index, (params, sockets)) in nodes.iter().enumerate() {
            let mut random = Random::new(seed ^ (policy as u64) << 8 ^ index as u64);
            let mut subject = Subject::new(site, *params, *sockets, &mut random);
            let mut comparison = Comparison::new(&subject.node);
            for case in 0..CASES / nodes.len() as u64 {
                let tables = subject.fill(&mut random);
                let frame = frame(&mut random);
                let interface = if random.once_in(20) { STRANGER } else { random.pick(&[PORT, OTHER_PORT]) };
                let queue = if interface == STRANGER { 0 } else { random.below(2) as u32 };
                let at = Arrival { interface, queue, metadata: 0 };
                let possible = subject.possible(&tables, at, &frame);
                let found = comparison.run(&mut subject.node, "dp_ingress", at, &frame, &possible);
                let chosen = found.unwrap_or_else(|wrong| {
                    let Tables { loads, workers, .. } = &tables;
                    let what = format!("DATAPLANE_SEED={seed}, node {index}, case {case}, {at:?}, frame {frame:02x?}");
                    panic!("{what}:\n{wrong}\npossible: {possible:?}\nloads: {loads:?}\nworkers: {workers:?}")
                });
                ties += u32::from(possible.len() > 1);
                match possible[chosen].end {
                    End::Queued { .. } => local += 1,
                    End::Forwarded { .. } => remote += 1,
                    _ => {}
                }
            }
            comparison
                .check_all(&subject.node)
                .unwrap_or_else(|wrong| panic!("DATAPLANE_SEED={seed}, node {index}: {wrong}"));
        }
        println!("{policy:?}: {CASES} cases, {local} stayed, {remote} went, {ties} by a random number");
        // The comparison says nothing about decisions that were not made.
        assert!(local > CASES / 20, "only {local} stayed");
        assert_eq!(remote > CASES / 50, redirects, "{remote} went");
        assert_eq!(ties > 100, redirects, "{ties} ties");
    });
}

#[test]
fn local() {
    agrees("local", PolicyKind::Local, false);
}

#[test]
fn cpu_load() {
    agrees("cpu_load", PolicyKind::CpuLoad, true);
}

#[test]
fn ept() {
    agrees("ept", PolicyKind::Ept, true);
}

#[test]
fn ept_erl() {
    agrees("ept_erl", PolicyKind::EptErl, true);
}

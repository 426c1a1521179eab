//! `dp_ingress` against `classify`, `identify` and `decide`.

use std::cell::{Cell, RefCell};
use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread;

use dataplane_common::classify::{Active, Class, Identity, classify, identify};
use dataplane_common::credit::has_credit;
use dataplane_common::decay::Rate;
use dataplane_common::estimate::ept_ns;
use dataplane_common::function::Units;
use dataplane_common::hash::mix;
use dataplane_common::load::{Row, Word, pressed};
use dataplane_common::maps::{
    FLOW_SLOTS, FUNCTION_DIRECT, FUNCTION_WORKER, FlowRow, FunctionRow, LoadRow, ORDER_AFFINE, ORDER_NONE,
    PEER_PRESENT, Params, SlotRow, function_slot,
};
use dataplane_common::meta::{Metadata, Origin};
use dataplane_common::order;
use dataplane_common::policy::{Decision, Job, Needs, PolicyKind, Verdict, decide, needing};
use dataplane_common::reason::Reason;
use dataplane_common::tuning::{Setting, Tuning};
use dataplane_common::wire::link::{Carried, FLAG_DIRECT, Header, Kind, NO_FLOW, OVERHEAD_BYTES};

use super::compare::{Comparison, End, Expected, Number, Run, XDP_DROP, XDP_PASS};
use super::generate::{TYPES, frame, good_packet};
use super::tables::{Tables, View};
use crate::support::node::{Arrival, OTHER_PORT, PORT, STRANGER, Site, inside};
use crate::support::random::Random;
use crate::support::words::{Place, two, words_of};

/// Decisions in sum over all policies, and at least of each.
const DECISIONS: u64 = 120_000;
const LEAST_DECISIONS: u64 = 5_000;
/// Decisions of one policy whose random numbers are the kernel's own.
const DRAWN_DECISIONS: u64 = 5_000;
/// Namespaces in which policies are compared at the same time.
const SITES: usize = 2;
/// Nodes of the cluster: with more than 300 peers.
const NODES: u16 = 302;

/// A node, and what it decides about.
struct Subject {
    params: Params,
    tables: Tables,
    turn: u64,
}

/// An active packet of a function of the node.
struct Packet {
    active: Active,
    identity: Identity,
    index: usize,
    ept_ns: u32,
    bytes: usize,
}

/// Slot of a packet's flow, if results of its function keep an order.
fn flow_of(packet: &Packet, row: &FunctionRow) -> u16 {
    if row.order == ORDER_NONE { NO_FLOW } else { (packet.identity.flow % FLOW_SLOTS as u32) as u16 }
}

impl Subject {
    /// What is expected of a frame, for every time at which the decision may have been made and every random number
    /// that may have been drawn.
    fn expected(&self, run: &Run<'_>) -> Vec<Expected> {
        let packet = match self.packet(run) {
            Ok(packet) => packet,
            Err((verdict, reason)) => return vec![Expected::left(Reason::SeenPort, verdict, reason)],
        };
        let mut possible = Vec::new();
        // When a flow is done is written to the ns.
        let matters = self.params.policies & needing(Needs::EXPECTED) != 0;
        for now_ns in run.clocks(matters) {
            for random in self.random(&packet.identity) {
                let expected = self.expect(run, &packet, now_ns, random);
                if !possible.contains(&expected) {
                    possible.push(expected);
                }
            }
        }
        possible
    }

    /// Random numbers of a decision: the one that follows from the flow, or one for every peer to begin at.
    fn random(&self, identity: &Identity) -> Vec<u32> {
        if self.params.seed != 0 {
            return vec![mix(u64::from(self.params.seed ^ identity.flow)) as u32];
        }
        let peers = self.tables.roster.len().max(1) as u64;
        (0..peers).map(|start| (start << 32).div_ceil(peers) as u32).collect()
    }

    /// The packet to decide about, or what becomes of a frame that holds none.
    fn packet(&self, run: &Run<'_>) -> Result<Packet, (u32, Reason)> {
        let active = match classify(run.frame, &self.params.rules()) {
            Class::NotActive => return Err((XDP_PASS, Reason::PassNotActive)),
            Class::Fragment => return Err((XDP_PASS, Reason::PassFragment)),
            Class::Result => return Err((XDP_PASS, Reason::PassResult)),
            Class::Malformed(reason) => return Err((XDP_DROP, reason)),
            Class::Active(active) => active,
        };
        let Some(index) = TYPES.iter().position(|known| *known == active.anep.type_id) else {
            let discard = active.anep.discard_unknown;
            return Err(if discard {
                (XDP_DROP, Reason::DropUnknownType)
            } else {
                (XDP_PASS, Reason::PassUnknownType)
            });
        };
        let row = self.function(run, index);
        if row.limit_ns == 0 || run.at.interface == STRANGER {
            return Err((XDP_PASS, Reason::PassNoSocket));
        }
        let Some(units) = Units::from_map(row.units).of(&active.anep) else {
            return Err((XDP_DROP, Reason::DropOperandMissing));
        };
        if row.declared().ns(units) > row.limit_ns {
            return Err((XDP_DROP, Reason::DropServiceLimit));
        }
        let ept_ns = ept_ns(row.measured(), row.declared(), units);
        let identity = identify(run.frame, &active);
        Ok(Packet { active, identity, index, ept_ns, bytes: run.frame.len() + OVERHEAD_BYTES })
    }

    fn function(&self, run: &Run<'_>, index: usize) -> &FunctionRow {
        &self.tables.functions[index][run.at.queue as usize]
    }

    /// What `decide` says, and what it does to the tables.
    fn decide(&self, run: &Run<'_>, packet: &Packet, now_ns: u64, random: u32) -> (Decision, Vec<(Place, u64)>, u64) {
        let row = self.function(run, packet.index);
        let end = self.end_of_flow(packet, row);
        let job = Job {
            now_ns,
            ept_ns: packet.ept_ns,
            bytes: packet.bytes,
            function: packet.index as u16,
            home: row.home,
            earlier_ns: end.map_or(0, |place| order::earlier_ns(run.before.get(place), now_ns)),
            class: packet.identity.class,
            flow: packet.identity.flow,
            key: packet.identity.key,
            random,
        };
        let view = View {
            tables: &self.tables,
            worker: run.at.queue,
            now_ns,
            turn: self.turn,
            turns: Cell::new(0),
            charged: RefCell::new(Vec::new()),
        };
        let decision = if row.order == ORDER_AFFINE || row.flags & FUNCTION_WORKER != 0 {
            Decision::LOCAL
        } else {
            decide(row.policy, &job, &self.params, &view)
        };
        let mut words: Vec<(Place, u64)> = Vec::new();
        for (slot, ns) in view.charged.take() {
            let place = Place::slot(slot, offset_of!(SlotRow, charged_ns));
            let before =
                words.iter().rev().find(|(at, _)| *at == place).map_or_else(|| run.before.get(place), |at| at.1);
            words.push((place, before.wrapping_add(ns.into())));
        }
        if let (Some(place), 1..) = (end, decision.done_ns) {
            words.push((place, order::expected_ns(run.before.get(place), now_ns, decision.done_ns)));
        }
        if self.params.policies & needing(Needs::DEMAND) != 0 {
            let place = Place::function(function_slot(packet.index as u32, 0), offset_of!(FunctionRow, arrivals));
            words.push((place, run.before.get(place).wrapping_add(1)));
        }
        (decision, words, view.turns.get())
    }

    fn expect(&self, run: &Run<'_>, packet: &Packet, now_ns: u64, random: u32) -> Expected {
        let (decision, mut words, turns) = self.decide(run, packet, now_ns, random);
        let row = self.function(run, packet.index);
        let flow = flow_of(packet, row);
        let mut counted = vec![Reason::SeenPort];
        if packet.active.trailing > 0 {
            counted.push(Reason::NoteTrailing);
        }
        if let Verdict::Redirect(node) = decision.verdict {
            let peer = self.tables.peers.get(usize::from(node)).copied().unwrap_or_default();
            let present = peer.flags & PEER_PRESENT != 0;
            let row = &self.tables.rows[usize::from(node)];
            let limit = two(row.limit_ns, row.limited);
            let has_credit = has_credit(limit, row.sent_ns, packet.ept_ns);
            if present && has_credit && packet.bytes <= usize::from(peer.max_frame) {
                counted.push(Reason::Redirected);
                let header = self.header(run, packet, now_ns, node, flow);
                words.extend(self.pressure(now_ns, node, packet.ept_ns));
                let end = End::Forwarded { header, mac: peer.mac, source_mac: peer.source_mac };
                return Expected { end, counted, words, turns };
            }
            counted.push(match (present, has_credit) {
                (false, _) => Reason::NoteUnreachable,
                (true, false) => Reason::NoteNoCredit,
                (true, true) => Reason::NoteTooLong,
            });
        }
        let record = Metadata {
            function: packet.index as u16,
            charged_ns: packet.ept_ns,
            arrival_16ns: Metadata::arrival_of(now_ns),
            position_ns: 0,
            sequence: 0,
            origin: Origin::Port,
            policy: row.policy as u8,
            flow,
            flow_sequence: 0,
        };
        counted.push(Reason::LocalQueued);
        Expected { end: End::Queued(record, Number::Next), counted, words, turns }
    }

    /// Where it stands when the packets of the flow are expected to be done, if a policy wants to know.
    fn end_of_flow(&self, packet: &Packet, row: &FunctionRow) -> Option<Place> {
        let flow = flow_of(packet, row);
        let is_known = self.params.policies & needing(Needs::EXPECTED) != 0 && flow != NO_FLOW;
        is_known.then(|| Place::flow(flow, offset_of!(FlowRow, expected_ns)))
    }

    fn header(&self, run: &Run<'_>, packet: &Packet, now_ns: u64, node: u16, flow: u16) -> Header {
        let here = self.tables.workers[run.at.queue as usize].here(now_ns);
        let row = &self.tables.rows[usize::from(node)];
        Header {
            kind: Kind::Forward,
            hops: 1,
            flags: if self.function(run, packet.index).flags & FUNCTION_DIRECT != 0 { FLAG_DIRECT } else { 0 },
            source: self.params.node,
            destination: node,
            epoch: self.params.epoch,
            sequence: 0,
            charged_ns: packet.ept_ns,
            position_ns: 0,
            length: run.frame.len() as u16,
            type_id: packet.active.anep.type_id,
            port: run.at.interface as u16,
            flow,
            arrival_ns: now_ns,
            flow_sequence: 0,
            load: Carried {
                stamp_us: (now_ns >> 10) as u32,
                backlog_ns: here.backlog_ns,
                received_ns: row.received_ns,
                received_epoch: row.received_epoch as u16,
                queued: Carried::queued_of(here.queued_milli),
            },
            spent_ns: 0,
            held: 0,
            generation: 0,
        }
    }

    /// What a forward does to the pressure on its node.
    fn pressure(&self, now_ns: u64, node: u16, charged_ns: u32) -> Option<(Place, u64)> {
        if self.params.policies & needing(Needs::PREDICTION) == 0 {
            return None;
        }
        let word = self.tables.rows[usize::from(node)].word(Word::Pressure);
        let rate = Rate::from_word(self.tables.signals.relax);
        Some((Place::load(node, offset_of!(LoadRow, pressure_ns)), pressed(word, now_ns, rate, charged_ns)))
    }
}

/// Settings at random: most of them as they are by default, others anywhere within their bounds.
fn tuning(random: &mut Random) -> Tuning {
    let mut tuning = Tuning::DEFAULT;
    for Setting { name, least, most, .. } in Tuning::ALL {
        let between = least + random.below(u64::from(most - least) + 1) as u32;
        if let Some(setting) = tuning.get_mut(name) {
            *setting = random.pick(&[*setting, *setting, *least, *most, between, between]);
        }
    }
    tuning
}

/// Parameters to compare a policy with: as they are by default, and at random.
fn params(policy: PolicyKind, random: &mut Random) -> [Params; 2] {
    let base = Params {
        policy: policy as u32,
        policies: policy.bit(),
        node: 0,
        nodes: NODES,
        epoch: 0x8000_0005,
        margin_ns: 500,
        seed: 0x5eed,
        ..Params::DEFAULT
    };
    let other = Params {
        node: 150,
        guard: 0,
        margin_ns: random.pick(&[0, 100, 20_000]),
        seed: random.word() as u32 | 1,
        tuning: tuning(random),
        ..base
    };
    [base, other]
}

/// How often packets stayed and went, and how often there were several possibilities: two times, or many random
/// numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    cases: u64,
    stayed: u64,
    went: u64,
    open: u64,
}

/// Compares cases on one node until so many decisions were made.
fn compare(site: &Site, params: Params, decisions: u64, seed: u64, counts: &mut Counts) {
    let random = &mut Random::new(seed);
    let mut node = site.node(params);
    let mut subject = Subject { params, tables: Tables::new(&mut node, random), turn: 0 };
    let mut comparison = Comparison::new(&node);
    let policies: Vec<_> = PolicyKind::ALL.iter().filter(|kind| params.policies & kind.bit() != 0).collect();
    let policies: Vec<_> = policies.into_iter().map(|kind| *kind as u32).collect();
    let until = counts.stayed + counts.went + decisions;
    while counts.stayed + counts.went < until {
        subject.tables.fill(&node, &policies, random);
        if params.seed == 0 {
            subject.tables.shorten_roster(&node);
        }
        subject.turn = random.word() >> random.below(64);
        let frame = if random.once_in(4) { frame(random) } else { good_packet(random) };
        let interface = if random.once_in(40) { STRANGER } else { random.pick(&[PORT, OTHER_PORT]) };
        let queue = if interface == STRANGER { 0 } else { random.below(2) as u32 };
        let at = Arrival { interface, queue, metadata: 0 };
        let mut possible = 0;
        let found = comparison.run(&mut node, "dp_ingress", (at, &frame, subject.turn), |run| {
            let expected = subject.expected(run);
            possible = expected.len();
            expected
        });
        let expected = found.unwrap_or_else(|wrong| panic!("{}", describe(&subject, counts.cases, at, &frame, &wrong)));
        counts.cases += 1;
        counts.open += u64::from(possible > 1);
        match expected.end {
            End::Queued(..) => counts.stayed += 1,
            End::Forwarded { header, .. } => {
                counts.went += 1;
                // Its account has moved; whoever decides next shall find what the tables here say.
                let row = &subject.tables.rows[usize::from(header.destination)];
                node.set_load(header.destination, row);
            }
            _ => {}
        }
    }
    comparison.check_all(&node).unwrap_or_else(|wrong| panic!("{params:?}: {wrong}"));
}

fn describe(subject: &Subject, case: u64, at: Arrival, frame: &[u8], wrong: &str) -> String {
    let Tables { roster, rows, workers, functions, signals, .. } = &subject.tables;
    let rows: Vec<_> = roster.iter().take(20).map(|id| (*id, words_of(&rows[usize::from(*id)]))).collect();
    format!(
        "DATAPLANE_SEED={}, case {case} with {:?}, {at:?}, frame {frame:02x?}:\n{wrong}\nrows: {rows:x?}\n\
         workers: {workers:?}\nfunctions: {functions:?}\nsignals: {signals:?}",
        Random::seed(),
        subject.params
    )
}

#[test]
fn every_policy_for_xdp() {
    let policies: Vec<_> = PolicyKind::ALL.iter().copied().filter(|kind| kind.homes().has_xdp()).collect();
    let decisions = (DECISIONS / policies.len() as u64).max(LEAST_DECISIONS);
    let (next, made) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || {
        inside("every_policy_for_xdp", |site| {
            while let Some(policy) = policies.get(next.fetch_add(1, Relaxed)) {
                made.fetch_add(compare_policy(site, *policy, decisions), Relaxed);
            }
        });
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..SITES).map(|_| scope.spawn(work)).collect();
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
    println!("{} decisions of {} policies", made.into_inner(), policies.len());
}

/// Compares a policy and returns the number of decisions.
fn compare_policy(site: &Site, policy: PolicyKind, decisions: u64) -> u64 {
    let seed = Random::seed() ^ (policy as u64) << 8;
    let mut counts = Counts::default();
    for (index, params) in (0..).zip(params(policy, &mut Random::new(seed))) {
        compare(site, params, decisions.div_ceil(2), seed + index, &mut counts);
    }
    println!("{}: {counts:?}", policy.name());
    // The comparison says nothing about decisions that were not made.
    let keeps = policy == PolicyKind::Local || policy.needs().has(Needs::PULL);
    assert!(counts.stayed > decisions / 20, "{}: {counts:?}", policy.name());
    assert_eq!(counts.went > decisions / 20, !keeps, "{}: {counts:?}", policy.name());
    counts.stayed + counts.went
}

#[test]
fn several_policies_in_one_object() {
    inside("several_policies_in_one_object", |site| {
        let mut counts = Counts::default();
        let [params, _] = params(PolicyKind::CpuLoad, &mut Random::new(Random::seed()));
        let policies = PolicyKind::CpuLoad.bit() | PolicyKind::EptErl.bit() | PolicyKind::TriState.bit();
        compare(site, Params { policies, ..params }, LEAST_DECISIONS, Random::seed(), &mut counts);
        println!("{counts:?}");
        assert!(counts.stayed.min(counts.went) > LEAST_DECISIONS / 20, "{counts:?}");
    });
}

#[test]
fn random_numbers_of_the_kernel() {
    inside("random_numbers_of_the_kernel", |site| {
        let mut counts = Counts::default();
        let [params, _] = params(PolicyKind::EptErl, &mut Random::new(Random::seed()));
        compare(site, Params { seed: 0, ..params }, DRAWN_DECISIONS, Random::seed(), &mut counts);
        println!("{counts:?}");
        assert!(counts.stayed.min(counts.went) > DRAWN_DECISIONS / 20, "{counts:?}");
        assert!(counts.open > DRAWN_DECISIONS / 50, "equals were rare: {counts:?}");
    });
}

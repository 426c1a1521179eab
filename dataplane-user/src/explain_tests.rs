use std::cell::RefCell;

use dataplane_common::load::{Here, LoadView, Row, Visit};
use dataplane_common::maps::ORDER_NONE;
use dataplane_common::plan::{HERE, NOWHERE, SLOTS, TABLES};
use dataplane_common::policy::Why;
use dataplane_common::wire::link::OVERHEAD_BYTES;
use proptest::prelude::*;

use super::*;
use crate::node::known_functions;

const NOW: u64 = 1_000_000_000;

/// Node 1 with the peers 2, 3 and 5.
fn config(policy: &str, rest: &str) -> Config {
    let peer =
        |id: u16| format!("[[peer]]\nname = \"n{id}\"\nid = {id}\nlink = \"l\"\nmac = \"02:00:00:00:00:{id:02x}\"\n");
    let peers: String = [2, 3, 5].map(peer).concat();
    let text = format!(
        "[node]\nname = \"n1\"\nid = 1\n[[port]]\ninterface = \"p\"\n[[link]]\ninterface = \"l\"\n{peers}\
         [policy]\nname = {policy:?}\n{rest}\n"
    );
    Config::parse(&text, &known_functions()).unwrap()
}

fn idle() -> LoadRow {
    LoadRow { workers: 1, valid_until_ns: NOW + 1, reported_at_ns: NOW - 50_000, reports: 1, ..LoadRow::default() }
}

/// A busy node that knows an idle peer (2), a busy one (3) and one that has gone silent (5).
fn snapshot() -> Snapshot {
    let mut loads = vec![LoadRow::default(); 6];
    loads[2] = idle();
    loads[3] = LoadRow { backlog_ns: 200_000, acked_ns: 10, sent_ns: 40_010, queued_milli: 3_000, ..idle() };
    loads[5] = LoadRow { valid_until_ns: NOW, ..idle() };
    Snapshot {
        here: Here { backlog_ns: 500_000, queued_milli: 8_000, ..Here::default() },
        loads,
        roster: vec![2, 3, 5],
        signals: SignalsRow {
            send_ns: 2_000,
            receive_ns: 3_000,
            wire_ns: 10_000,
            wire_ns_per_byte_q16: 1 << 16,
            utilisation_milli: 500,
            service_ns: 20_000,
            price_q16: 2 << 16,
            relax: 1 << 20,
            peers: 3,
            ..SignalsRow::default()
        },
        slots: vec![HERE; (SLOTS * TABLES) as usize],
        turns: 7,
    }
}

/// The row of `spin`: its work is its operand, in ns.
fn spin(config: &Config) -> FunctionRow {
    FunctionRow {
        b_q16: 1 << 16,
        declared_b_q16: 1 << 16,
        limit_ns: 1_000_000,
        units: Units::Operand as u32,
        policy: config.policy.kind as u32,
        order: ORDER_NONE,
        ..FunctionRow::default()
    }
}

const QUESTION: Question<'static> = Question {
    function: "spin",
    worker: 0,
    length: 100,
    operand: Some(50_000),
    class: 0,
    flow: 0,
    key: None,
    random: Some(0),
};

/// What node 1 would do with the packet of `question`.
fn ask(config: &Config, function: FunctionRow, snapshot: &Snapshot, question: &Question<'_>) -> Explanation {
    let way = PeerRow { flags: PEER_PRESENT, max_frame: 1_568, ..PeerRow::default() };
    let ways = [PeerRow::default(), PeerRow::default(), way, way, PeerRow::default(), way];
    let scene = Scene { params: config.params(1), function, index: 3, snapshot, ways: &ways, now_ns: NOW };
    let (_, configured) = named(config, question.function).unwrap();
    scene.explain(config, configured, question)
}

/// The nodes a visit shows, with their backlog.
#[derive(Default)]
struct Seen(Vec<(u16, u32)>);

impl Visit for Seen {
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        self.0.push((node, row.backlog_ns()));
    }
}

#[test]
fn the_view_reads_as_the_tables_say() {
    let mut snapshot = snapshot();
    snapshot.slots[9] = 3;
    let view = snapshot.whole();
    assert_eq!((view.here(), view.peers(), view.turn()), (snapshot.here, 3, 8));
    assert_eq!((view.slot(8), view.slot(9), view.slot(u32::MAX)), (HERE, 3, HERE));
    assert_eq!(view.row(3), Some(snapshot.loads[3]));
    assert_eq!(view.row(6), None);
    assert_eq!(view.signals(), Signals::of(&snapshot.signals));
    assert_eq!(view.forwarding(), Forwarding::of(&snapshot.signals));
    let visited = |start, stride, count| {
        let mut seen = Seen::default();
        view.visit(start, stride, count, &mut seen);
        seen.0.iter().map(|(node, _)| *node).collect::<Vec<_>>()
    };
    assert_eq!(visited(0, 1, 3), [2, 3, 5]);
    assert_eq!(visited(2, 1, 3), [5, 2, 3]);
    assert_eq!(visited(1, 2, 4), [3, 2, 5, 3]);
    assert_eq!(visited(u32::MAX, u32::MAX, 2).len(), 2, "no position overflows");
    view.charge_slot(9, 5);
    let mut seen = Seen::default();
    let alone = snapshot.alone(&3);
    alone.visit(7, 3, alone.peers(), &mut seen);
    assert_eq!(seen.0, [(3, 200_000)]);
    let nobody = Snapshot::default();
    nobody.whole().visit(3, 1, 2, &mut seen);
    assert_eq!((nobody.whole().peers(), seen.0.len()), (0, 1));
}

/// The same tables, read in another way: by plain rows, as they are.
struct Plain<'s>(&'s Snapshot, RefCell<u64>);

impl LoadView for Plain<'_> {
    type Row = LoadRow;

    fn here(&self) -> Here {
        self.0.here
    }

    fn peers(&self) -> u32 {
        self.0.signals.peers
    }

    fn row(&self, node: u16) -> Option<LoadRow> {
        self.0.loads.get(usize::from(node)).copied()
    }

    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        let count_of = self.0.roster.len() as u64;
        for step in 0..u64::from(count) {
            let node = self.0.roster[((u64::from(start) + step * u64::from(stride)) % count_of) as usize];
            visitor.node(node, &self.0.loads[usize::from(node)]);
        }
    }

    fn signals(&self) -> Signals {
        Signals::of(&self.0.signals)
    }

    fn forwarding(&self) -> Forwarding {
        Forwarding::of(&self.0.signals)
    }

    fn slot(&self, slot: u32) -> u16 {
        self.0.slots[slot as usize]
    }

    fn charge_slot(&self, _slot: u32, ns: u32) {
        *self.1.borrow_mut() += u64::from(ns);
    }

    fn turn(&self) -> u32 {
        self.0.turns + 1
    }
}

prop_compose! {
    /// A peer in some state.
    fn row()(
        backlog_ns in 0u32..1_000_000,
        in_flight in 0u32..200_000,
        packets in 0u32..9,
        workers in 1u16..4,
        fresh in prop::bool::weighted(0.8),
        age in 0u64..200_000,
        (mean_backlog_ns, speed_milli, behind) in (0u32..500_000, 0u16..4_000, any::<u64>()),
        (response_ns, peak_ns) in (0u32..1_000_000, 0u32..1_000_000),
    ) -> LoadRow {
        LoadRow {
            backlog_ns,
            queued_milli: packets * 1000,
            workers,
            sent_ns: in_flight.into(),
            valid_until_ns: if fresh { NOW + 1 } else { NOW },
            reported_at_ns: NOW - age,
            mean_backlog_ns,
            speed_milli,
            behind,
            response_ns,
            peak_ns,
            ..LoadRow::default()
        }
    }
}

proptest! {
    #[test]
    fn the_decision_is_that_of_the_core_on_plain_rows(
        backlog_ns in 0u32..2_000_000,
        rows in prop::array::uniform3(row()),
        slots in prop::collection::vec(prop::sample::select(vec![HERE, NOWHERE, 1, 2, 3, 5]), 8),
        (operand, random, flow, class) in (1u32..900_000, any::<u32>(), any::<u32>(), 0u8..8),
    ) {
        let mut snapshot = snapshot();
        snapshot.here = Here { backlog_ns, queued_milli: backlog_ns / 50, ..Here::default() };
        for (node, row) in [2, 3, 5].into_iter().zip(rows) {
            snapshot.loads[node] = row;
        }
        for (slot, node) in snapshot.slots.iter_mut().zip(slots.iter().cycle()) {
            *slot = *node;
        }
        let question = Question { operand: Some(operand), random: Some(random), flow, class, ..QUESTION };
        for kind in PolicyKind::ALL.iter().filter(|kind| kind.homes().has_xdp()) {
            let needs = kind.needs();
            if needs.has(Needs::PROBES) {
                continue;
            }
            let config = config(kind.name(), &format!("[workers]\npull = {}", needs.has(Needs::PULL)));
            let explanation = ask(&config, spin(&config), &snapshot, &question);
            let job = Job {
                now_ns: NOW,
                ept_ns: operand,
                // Ethernet, IPv4, UDP, ANEP with one option of two words, payload; and what the interconnect adds.
                bytes: 14 + 20 + 8 + 16 + 100 + OVERHEAD_BYTES,
                function: 3,
                home: 0,
                earlier_ns: 0,
                class,
                flow,
                key: flow,
                random,
            };
            let decision = decide(*kind as u32, &job, &config.params(1), &Plain(&snapshot, RefCell::default()));
            let compared = Compared {
                here: decision.here,
                there: (decision.there < u64::MAX).then_some(decision.there),
                margin_ns: 0,
                why: decision.why.words(),
            };
            let expected = match decision.verdict {
                Verdict::Local => Outcome::Local(compared),
                Verdict::Redirect(to) => Outcome::Redirect { to, compared },
            };
            prop_assert_eq!(explanation.outcome, expected, "{}", kind.name());
        }
    }
}

#[test]
fn the_numbers_of_an_explanation_are_those_of_the_tables() {
    let config = config("ept-erl", "margin = \"1us\"");
    let explained = ask(&config, spin(&config), &snapshot(), &QUESTION);
    // 158 bytes of frame and those of the interconnect travel at 1 ns each.
    assert_eq!((explained.packet.frame_bytes, explained.packet.link_bytes), (158, 158 + OVERHEAD_BYTES));
    let forwarding = 15_000 + explained.packet.link_bytes as u32;
    let value = |wait: u64| wait + u64::from(forwarding) + 50_000;
    let compared = Compared { here: 550_000, there: Some(value(0)), margin_ns: 1_000, why: Why::Worse.words() };
    assert_eq!(explained.outcome, Outcome::Redirect { to: 2, compared });
    let states: Vec<_> = explained.peers.iter().map(|peer| (peer.id, peer.state, peer.there)).collect();
    // One worker: all of the 40 us in flight wait before the packet.
    let busy = Some(value(240_000));
    assert_eq!(
        states,
        [(2, PeerState::Alive, Some(value(0))), (3, PeerState::Alive, busy), (5, PeerState::Stale, None)]
    );
    let busy = &explained.peers[1];
    assert_eq!((busy.name.as_str(), busy.backlog_ns, busy.in_flight_ns), ("n3", 200_000, 40_000));
    assert_eq!((busy.erl_ns, busy.forwarding_ns, busy.age_ns), (240_000, forwarding, Some(50_000)));
    assert_eq!((explained.policy, explained.order, explained.node.as_str()), ("ept-erl", "none", "n1"));
}

#[test]
fn peers_are_valued_also_when_nobody_was_looked_at() {
    let config = config("ept-erl", "");
    let mut calm = snapshot();
    calm.here = Here::default();
    let explained = ask(&config, spin(&config), &calm, &QUESTION);
    let Outcome::Local(compared) = explained.outcome else { panic!("{:?}", explained.outcome) };
    assert_eq!((compared.here, compared.there, compared.why), (50_000, None, Why::Short.words()));
    assert!(explained.peers[0].there.is_some(), "what it would have been compared with");
    let cheap = Question { operand: Some(4_000), ..QUESTION };
    let explained = ask(&config, spin(&config), &snapshot(), &cheap);
    let Outcome::Local(compared) = explained.outcome else { panic!("{:?}", explained.outcome) };
    assert_eq!(compared.why, Why::Guard.words());
    assert!(explained.peers[0].there.is_some());
}

#[test]
fn what_ends_before_a_decision_or_cannot_be_carried_out_is_said() {
    let config = config("ept-erl", "");
    let outcome = |function, question: &Question<'_>| ask(&config, function, &snapshot(), question).outcome;
    let counter = |outcome| match outcome {
        Outcome::Drop { counter, .. } | Outcome::Stays { counter, .. } => counter,
        other => panic!("{other:?}"),
    };
    let missing = Question { operand: None, ..QUESTION };
    assert_eq!(counter(outcome(spin(&config), &missing)), "drop_operand_missing");
    let long = Question { operand: Some(1_000_001), ..QUESTION };
    assert_eq!(counter(outcome(spin(&config), &long)), "drop_service_limit");
    // The links carry 1,568 bytes; Ethernet, IPv4, UDP and ANEP with its option take 58.
    let longest = (1_568 - 58 - OVERHEAD_BYTES) as u16;
    let fits = Question { length: longest, ..QUESTION };
    assert!(matches!(outcome(spin(&config), &fits), Outcome::Redirect { to: 2, .. }));
    let fat = Question { length: longest + 1, ..QUESTION };
    assert_eq!(counter(outcome(spin(&config), &fat)), "note_too_long_to_forward");
    let stateful = FunctionRow { order: ORDER_AFFINE, ..spin(&config) };
    let Outcome::Local(compared) = outcome(stateful, &QUESTION) else { panic!() };
    assert!(compared.why.contains("state of its flows"));
}

#[test]
fn an_explanation_reads_in_words_and_in_json() {
    let config = config("ept-erl", "");
    let explained = ask(&config, spin(&config), &snapshot(), &QUESTION);
    let text = explained.to_string();
    let there = 15_000 + 50_000 + 158 + OVERHEAD_BYTES;
    let numbers = format!("all costs counted\n  here 550000  there {there}  ");
    for part in [
        "NODE n1  function spin  policy ept-erl  order none  worker 0\n",
        "EPT 50.0 µs",
        "HERE  backlog 500.0 µs  queued 8.0\n",
        "GOES to node 2 n2 because the other node is better, all costs counted\n",
        &numbers,
        "\n3     n3        yes ",
        "\n5     n5        no: stale ",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let json = serde_json::to_value(&explained).unwrap();
    assert_eq!(json["schema"], "dataplane.explain/1");
    assert_eq!((&json["outcome"]["verdict"], &json["outcome"]["to"]), (&"redirect".into(), &2.into()));
    assert_eq!((&json["outcome"]["here"], &json["outcome"]["there"]), (&550_000.into(), &there.into()));
    assert_eq!((&json["peers"][2]["state"], &json["peers"][2]["there"]), (&"stale".into(), &serde_json::Value::Null));
    let local = ask(&config, spin(&config), &Snapshot::default(), &QUESTION);
    assert_eq!(serde_json::to_value(&local).unwrap()["outcome"]["verdict"], "local");
    assert!(local.to_string().contains("STAYS because it waits so little here"), "{local}");
    let dropped = ask(&config, spin(&config), &snapshot(), &Question { operand: None, ..QUESTION });
    assert!(dropped.to_string().contains("DROPPED (drop_operand_missing)"), "{dropped}");
}

#[test]
fn another_configuration_than_the_nodes_is_refused() {
    let config = config("ept-erl", "");
    let dir = PinDir::of(std::path::Path::new("/nowhere"), "n1");
    let right = MetaRow {
        node: 1,
        policy: PolicyKind::EptErl as u32,
        workers: 1,
        functions: config.functions.len() as u32,
        ..MetaRow::default()
    };
    assert!(is_of(&dir, &config, &right).is_ok());
    let refused = |meta: MetaRow| is_of(&dir, &config, &meta).unwrap_err().to_string();
    assert!(refused(MetaRow { node: 2, ..right }).contains("its id is 2, the file's 1"));
    let policy = PolicyKind::Local as u32;
    assert!(refused(MetaRow { policy, ..right }).contains("its policy is local, the file's ept-erl"));
    assert!(refused(MetaRow { workers: 2, ..right }).contains("it has 2 workers"));
    let other = PinDir::of(std::path::Path::new("/nowhere"), "n2");
    assert!(is_of(&other, &config, &right).unwrap_err().to_string().contains("its name is n2, the file's n1"));
    let unknown = named(&config, "sha512").unwrap_err().to_string();
    assert!(unknown.contains("this node computes forward, crc32"), "{unknown}");
}

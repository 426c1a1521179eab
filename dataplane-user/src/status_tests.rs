use dataplane_common::maps::{MAX_WORKERS, ORDER_AFFINE, ORDER_FLOW, PEER_PRESENT};

use super::*;

const NOW: u64 = 1_000_000_000;

fn meta() -> MetaRow {
    MetaRow { workers: 1, functions: 2, policy: PolicyKind::EptErl as u32, ..MetaRow::default() }
}

fn functions() -> Vec<FunctionRow> {
    let mut rows = vec![FunctionRow::default(); 2 * MAX_WORKERS];
    let row = FunctionRow { type_id: 0xff02, builtin: 1, a_ns: 100, limit_ns: 1, ..FunctionRow::default() };
    rows[0] = FunctionRow { policy: PolicyKind::Local as u32, order: ORDER_AFFINE, ..row };
    rows[MAX_WORKERS] = FunctionRow { policy: u32::MAX, order: ORDER_FLOW, home: 3, ..row };
    rows
}

/// A status as it would be read of a node with these peers.
fn status(peers: Vec<PeerStatus>) -> Status {
    let dir = PinDir::of(Path::new("/nowhere"), "n1");
    let signals = SignalsRow {
        utilisation_milli: 412,
        service_ns: 12_300,
        arrivals_q32: 429_497,
        deviation_ns: 900,
        send_ns: 2_000,
        receive_ns: 3_000,
        wire_ns: 10_000,
        wire_ns_per_byte_q16: 1 << 15,
        worker_send_ns: 1_500,
        ..SignalsRow::default()
    };
    let counters = Counters::from([0; REASONS]);
    Status {
        schema: "dataplane.status/1",
        node: node_status(&dir, &meta(), false, NOW),
        sockets: Vec::new(),
        workers: vec![worker_status(0, &WorkerRow::default(), NOW)],
        peers,
        signals: signals_status(&signals),
        functions: function_statuses(&functions(), &meta()),
        counters: serde_json::Map::new(),
        ledger: Ledger::new(&counters, 0).into(),
    }
}

fn fresh() -> LoadRow {
    LoadRow { valid_until_ns: NOW + 1, reported_at_ns: NOW - 30_000, reports: 9, workers: 2, ..LoadRow::default() }
}

fn called(name: &[u8]) -> NameRow {
    let mut row = NameRow::default();
    row.name[..name.len()].copy_from_slice(name);
    row
}

/// A peer that only the configuration names.
fn peer(id: u32, row: &LoadRow) -> PeerStatus {
    let way = PeerRow { mac: [2, 0, 0, 0, 0, 9], flags: PEER_PRESENT, ..PeerRow::default() };
    peer_status(id, &called(b"n2"), (row, &way), NOW)
}

#[test]
fn a_peer_shows_where_it_is_in_its_life() {
    let of = |flags, mac| peer_status(2, &called(b""), (&fresh(), &PeerRow { mac, flags, ..PeerRow::default() }), NOW);
    assert_eq!((of(0, [0; 6]).name, peer(2, &fresh()).name.as_deref()), (None, Some("n2")));
    let present = of(PEER_PRESENT | PEER_MEMBER, [2, 0, 0, 0, 0, 0xaf]);
    assert_eq!((present.state, present.member), (PeerState::Alive, Some("present")));
    assert_eq!(present.mac.as_deref(), Some("02:00:00:00:00:af"));
    let draining = of(PEER_PRESENT | PEER_MEMBER | PEER_DRAINING, [2; 6]);
    assert_eq!((draining.state, draining.member), (PeerState::Alive, Some("draining")));
    let unresolved = of(PEER_UNRESOLVED, [0; 6]);
    assert_eq!((unresolved.state, unresolved.member, unresolved.mac), (PeerState::Unresolved, None, None));
    assert_eq!(of(PEER_MEMBER | PEER_UNREACHABLE, [0; 6]).state.name(), "unreachable");
}

#[test]
fn what_is_not_known_of_a_peer_is_null() {
    let unseen = peer(2, &LoadRow::default());
    assert_eq!((unseen.state, unseen.age_ns), (PeerState::Unseen, None));
    assert_eq!((unseen.speed_milli, unseen.response_ns, unseen.service_ns), (None, None, None));
    assert_eq!((unseen.transit_ns, unseen.transit_bytes), (None, None));
    let known = LoadRow {
        speed_milli: 1_500,
        response_ns: 80_000,
        service_ns: 20_000,
        transit_ns: 11_000,
        transit_bytes: 200,
        piggybacked: 4,
        completed_frames: 6,
        ..fresh()
    };
    let known = peer(2, &known);
    assert_eq!((known.state, known.age_ns), (PeerState::Alive, Some(30_000)));
    assert_eq!((known.speed_milli, known.response_ns, known.service_ns), (Some(1_500), Some(80_000), Some(20_000)));
    assert_eq!((known.transit_ns, known.transit_bytes), (Some(11_000), Some(200)));
    assert_eq!((known.piggybacked, known.completed_frames), (4, 6));
    assert_eq!(peer(2, &LoadRow { valid_until_ns: NOW, ..fresh() }).state, PeerState::Stale);
}

#[test]
fn functions_say_how_they_are_placed() {
    let functions = function_statuses(&functions(), &meta());
    let found: Vec<_> = functions.iter().map(|it| (it.name, it.policy, it.order, it.home)).collect();
    assert_eq!(found, [("crc32", "local", "affine", None), ("crc32", "unknown", "flow", Some(2))]);
}

#[test]
fn the_json_keeps_the_names_that_others_read() {
    let json = serde_json::to_value(status(vec![peer(2, &fresh())])).unwrap();
    let has = |value: &serde_json::Value, names: &[&str]| {
        for name in names {
            assert!(value.get(name).is_some(), "{name} is missing in {value}");
        }
    };
    has(&json, &["schema", "node", "sockets", "workers", "peers", "signals", "functions", "counters", "ledger"]);
    has(&json["node"], &["name", "id", "state", "pid", "epoch", "policy", "uptime_ns", "report_interval_us", "netns"]);
    let worker =
        ["worker", "cpu", "tid", "backlog_ns", "queued", "busy_ns", "stepped_ns", "stepped_packets", "lost_ns"];
    has(&json["workers"][0], &worker);
    let peer = &json["peers"][0];
    has(
        peer,
        &["id", "state", "age_ns", "reports", "backlog_ns", "in_flight_ns", "erl_ns", "queued_milli", "busy_milli"],
    );
    has(peer, &["workers", "sent_ns", "sent_frames", "acked_frames", "received_frames"]);
    has(peer, &["piggybacked", "completed_frames", "speed_milli", "service_ns", "response_ns", "transit_ns"]);
    assert_eq!(peer["state"], "alive");
    let function = &json["functions"][0];
    has(function, &["name", "type_id", "worker", "a_ns", "b_ns_per_unit", "samples", "predicted_ns", "measured_ns"]);
    has(function, &["service_p50_ns", "service_p99_ns", "error_p50_milli", "error_p99_milli"]);
    has(function, &["policy", "order", "home"]);
    assert_eq!(json["signals"]["arrivals_per_s"].as_f64().map(f64::round), Some(100_000.0));
}

#[test]
fn the_table_shows_one_line_for_each_thing() {
    let row = LoadRow { speed_milli: 500, response_ns: 80_000, service_ns: 20_000, busy_milli: 250, ..fresh() };
    let text = status(vec![peer(2, &row), peer(3, &LoadRow::default())]).to_string();
    for part in [
        "\nPEER  NAME         STATE       MEMBER   MAC ",
        "\n2     n2           alive       -        02:00:00:00:00:09 30.0 µs ",
        "\n3     n2           unseen      -        02:00:00:00:00:09 - ",
        "\nPEER  SPEED  SERVICE ",
        "\n2     0.50   20.0 µs      80.0 µs      0 ns         25.0 %  0 ",
        "\n3     -      -            -            -            0.0 % ",
        "\nCLUSTER  busy 41.2 %  service 12.3 µs  predictions err by 900 ns\n",
        "FORWARDING  send 2000 ns (by a worker 1500 ns more)  receive 3000 ns  wire 10.0 µs + 0.500 ns/byte\n",
        "0.0 %      local (affine)\n",
        "0.0 %      unknown (flow), all to node 2\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 140), "{text}");
}

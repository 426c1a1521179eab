use std::fs;
use std::sync::Arc;

use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;
use dataplane_common::wire::anep::UDP_PORT;

use super::super::{Estimates, Scenario, bounds, run};
use super::*;
use crate::packet::{Addresses, Carrier, Probe, Recipe};
use crate::topology::{Plan, Purpose, Shape};

const PROBE: Probe = Probe { sequence: 1, scheduled_ns: 2 };

fn recipe(flow: u16, function: Builtin) -> Recipe {
    let plan = Plan::new(Shape::new(Purpose::Test, 2)).unwrap();
    Recipe::to_port(&plan.port(1), flow, function.type_id())
}

fn frame(recipe: &Recipe) -> Vec<u8> {
    recipe.template().unwrap().frame(&PROBE)
}

/// Reads frames, each with its time, as if they had been captured whole.
fn read(frames: &[(u64, Vec<u8>)], costs: &Costs, arrive_by: ArriveBy) -> Result<Recording> {
    let mut reading = Reading::new(costs, arrive_by);
    for (at_ns, bytes) in frames {
        reading.take(&Captured { at_ns: *at_ns, interface: 0, bytes, length: bytes.len() });
    }
    reading.finish()
}

fn costs(texts: &[&str]) -> Costs {
    let mut costs = Costs::default();
    texts.iter().for_each(|text| costs.set(text).unwrap());
    costs
}

/// Packets of three functions, one a microsecond.
fn mixed() -> Vec<(u64, Vec<u8>)> {
    let spin = |flow, ns| frame(&Recipe { operand: Some(ns), ..recipe(flow, Builtin::Spin) });
    let crc = frame(&Recipe { result_bytes: 4, payload_bytes: 500, ..recipe(7, Builtin::Crc32) });
    vec![(5_000, spin(1, 3_000)), (6_000, crc), (7_000, spin(2, 9_000)), (8_000, spin(1, 1_000))]
}

#[test]
fn packets_become_work() {
    let costs = costs(&["spin=100,1", "crc32=50,2"]);
    let recording = read(&mixed(), &costs, ArriveBy::Flow).unwrap();
    let of = |pick: fn(&Recorded) -> u64| recording.packets.iter().map(pick).collect::<Vec<_>>();
    assert_eq!(of(|packet| packet.at_ns), [0, 1_000, 2_000, 3_000]);
    assert_eq!(of(|packet| packet.work.service_ns.into()), [3_100, 1_050, 9_100, 1_100]);
    assert_eq!(of(|packet| packet.flow.into()), [0, 1, 2, 0]);
    assert_eq!(of(|packet| packet.work.kind.into()), [0, 1, 0, 0]);
    assert_eq!(usize::from(recording.packets[1].work.bytes), mixed()[1].1.len());
    assert_eq!(recording.kinds, [("spin".to_owned(), 4_433), ("crc32".to_owned(), 1_050)]);
    assert_eq!((recording.flows, recording.span_ns(), recording.gap_ns()), (3, 3_000, 1_000.0));
    assert!(recording.summary().starts_with("4 active packets of 3 flows in 0.003 ms, mean service time 3.59 µs"));
}

#[test]
fn rounds_and_protocol_107_count() {
    let recipe = Recipe { operand: Some(3), result_bytes: 32, payload_bytes: 136, ..recipe(1, Builtin::Sha256) };
    let bare = Recipe { carrier: Carrier::Protocol107, ..recipe.clone() };
    let frames = [(0, frame(&recipe)), (1, frame(&bare))];
    let recording = read(&frames, &costs(&["sha256=0,1"]), ArriveBy::Flow).unwrap();
    assert!(recording.packets.iter().all(|packet| packet.work.service_ns == 3 * (136 + 64)), "rounds × (payload + 64)");
}

#[test]
fn the_node_of_arrival_follows_flow_or_destination() {
    let nodes = |arrive_by| {
        let frames: Vec<_> = (0..64).map(|flow| (u64::from(flow), frame(&recipe(flow, Builtin::Forward)))).collect();
        let recording = read(&frames, &Costs::default(), arrive_by).unwrap();
        recording.packets.iter().map(|packet| packet.spread % 4).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((nodes(ArriveBy::Flow), nodes(ArriveBy::Destination)), (4, 1));
    let to = |last: &str| Addresses::V6 { source: "fd00::9".parse().unwrap(), destination: last.parse().unwrap() };
    let frames = ["fd00::1", "fd00::2"].map(|last| Recipe { addresses: to(last), ..recipe(1, Builtin::Forward) });
    let frames = [(0, frame(&frames[0])), (1, frame(&frames[1]))];
    let recording = read(&frames, &Costs::default(), ArriveBy::Destination).unwrap();
    assert_ne!(recording.packets[0].spread, recording.packets[1].spread, "all of an IPv6 address counts");
}

#[test]
fn what_is_no_active_packet_is_counted() {
    let mut frames = mixed();
    let other = Carrier::Udp { source: 1, destination: UDP_PORT + 1, checksum: false };
    frames.push((9_000, frame(&Recipe { carrier: other, ..recipe(1, Builtin::Spin) })));
    frames.push((9_000, frame(&recipe(1, Builtin::Spin))));
    frames.push((9_000, frame(&recipe(1, Builtin::Crc32))));
    let recording = read(&frames, &Costs::default(), ArriveBy::Flow).unwrap();
    assert_eq!(recording.skipped, Skipped { inactive: 1, malformed: 2, cut: 0 }, "no operand, no room");
    assert_eq!(recording.packets.len(), 4);
}

#[test]
fn the_beginning_of_a_frame_is_enough() {
    let bytes = frame(&Recipe { payload_bytes: 1_000, ..recipe(1, Builtin::Forward) });
    let costs = Costs::default();
    let mut reading = Reading::new(&costs, ArriveBy::Flow);
    for (at_ns, kept) in [(0, bytes.len()), (1, 64), (2, 45)] {
        reading.take(&Captured { at_ns, interface: 0, bytes: &bytes[..kept], length: bytes.len() });
    }
    let recording = reading.finish().unwrap();
    assert_eq!(recording.packets[0].work, recording.packets[1].work);
    assert_eq!(recording.skipped.cut, 1, "and less is not");
}

#[test]
fn a_file_without_use_is_refused_with_the_reason() {
    let error =
        |frames: &[(u64, Vec<u8>)]| format!("{:#}", read(frames, &Costs::default(), ArriveBy::Flow).unwrap_err());
    let none = error(&[(0, vec![0; 60])]);
    assert_eq!(none, "0 active packets (UDP port 3322 or IP protocol 107) among 1 frames, 0 malformed and 0 cut short");
    let unknown = Recipe { type_id: 0xff77, ..recipe(1, Builtin::Forward) };
    let unknown = [(0, frame(&unknown)), (1, frame(&unknown))];
    assert!(error(&unknown).contains("2 of 0xff77; give it, --cost TYPE_ID=A_NS,B_NS_PER_BYTE"));
    let given = read(&unknown, &costs(&["0xff77=10,1"]), ArriveBy::Flow).unwrap();
    assert_eq!(given.packets[0].work.service_ns, 10 + 24, "bytes of payload");
    let same = frame(&recipe(1, Builtin::Forward));
    assert_eq!(error(&[(3, same.clone()), (3, same)]), "all active packets came at the same moment");
}

#[test]
fn costs_are_checked() {
    for (text, part) in [
        ("spin", "not of the form"),
        ("spin=a", "not of the form"),
        ("spin=1,-1", "not of the form"),
        ("rot13=1", "no function rot13"),
    ] {
        let error = Costs::default().set(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_recording_plays_as_recorded_or_at_a_load() {
    let frames: Vec<_> = (0..2_000u64)
        .map(|at| (at * 1_000, frame(&Recipe { operand: Some(2_000), ..recipe((at % 40) as u16, Builtin::Spin) })))
        .collect();
    let recording = Arc::new(read(&frames, &costs(&["spin=0,1"]), ArriveBy::Flow).unwrap());
    let base =
        Scenario { nodes: 4, packets: 2_000, warm_up: 200, estimates: Estimates::KindMean, ..Scenario::default() };
    let recorded = base.clone().playing(Arc::clone(&recording), None);
    assert!((recorded.load - 0.5).abs() < 1e-9, "2 µs each µs on four nodes: {}", recorded.load);
    let faster = base.playing(recording, Some(0.8));
    assert!((faster.gap_ns() - 625.0).abs() < 1e-6);
    for scenario in [recorded, faster] {
        let outcome = run(&scenario, PolicyKind::EptErl, &Tuning::DEFAULT, 1).unwrap();
        assert_eq!((outcome.completed, outcome.lost), (2_000, 0));
        assert!((outcome.span_ns as f64 / (2_000.0 * scenario.gap_ns()) - 1.0).abs() < 0.02, "{}", outcome.span_ns);
        assert!(bounds::central_fcfs(&scenario, 1).unwrap().mean_ns <= outcome.latency.mean_ns);
        assert!(Scenario { packets: 2_001, ..scenario }.check().is_err());
    }
}

#[test]
fn a_capture_file_is_read_from_its_path() {
    let path = std::env::temp_dir().join(format!("dataplane-recording-{}.pcap", std::process::id()));
    let mut file = [&0xa1b2_c3d4u32.to_le_bytes()[..], &[2, 0, 4, 0], &[0; 8], &[0, 4, 0, 0], &[1, 0, 0, 0]].concat();
    for (at_ns, bytes) in mixed() {
        let length = bytes.len() as u32;
        file.extend([0, (at_ns / 1_000) as u32, length, length].map(u32::to_le_bytes).concat());
        file.extend(bytes);
    }
    fs::write(&path, &file).unwrap();
    let costs = Costs::default();
    let whole = Recording::read(&path, &costs, ArriveBy::Destination);
    let lone = Recording::read(&path, &costs, ArriveBy::Interface);
    fs::write(&path, &file[..24]).unwrap();
    let empty = Recording::read(&path, &costs, ArriveBy::Flow);
    fs::remove_file(&path).unwrap();
    assert_eq!(whole.unwrap().packets.len(), 4);
    assert!(lone.unwrap_err().to_string().contains("has one interface"));
    let error = format!("{:#}", empty.unwrap_err());
    assert!(error.contains("nothing to simulate") && error.contains("0 active packets"), "{error}");
}

use super::cell::Flood;
use super::outcome::Outcome;
use super::*;
use crate::cpu::Noise;
use crate::status::tests::status;

fn options() -> Options {
    Options { rounds: 2, packets: 100, frame_bytes: vec![74], window: 0.1, size: 64, out: PathBuf::new() }
}

fn trips(round: u32, transport: Transport, p50_ns: u64) -> Line {
    Line::RoundTrips(RoundTrips {
        round,
        transport,
        waiting: Waiting::Spinning,
        place: Place::There,
        frame_bytes: 74,
        sent: 300,
        lost: 1,
        forwarded: 300,
        p50_ns,
        p99_ns: 2 * p50_ns,
        p999_ns: 3 * p50_ns,
        noise: Noise::default(),
    })
}

fn flood(round: u32, transport: Transport, node_ns: u64) -> Line {
    Line::Flood(Flood {
        round,
        transport,
        size: 64,
        offered: 1000,
        arrived: 500,
        seconds: 0.5,
        node_ns,
        generator_ns: 200_000,
        dropped_frame_ns: 100.0,
        noise: Noise::default(),
    })
}

fn outcome() -> Outcome {
    let lines = [
        trips(0, Transport::Xsk, 10_000),
        trips(0, Transport::Udp, 20_000),
        trips(1, Transport::Udp, 30_000),
        trips(1, Transport::Xsk, 10_000),
        flood(0, Transport::Xdp, 0),
        flood(0, Transport::Udp, 900_000),
    ];
    Outcome::new(Environment::take(), &options(), Cpus::of(2), &lines)
}

#[test]
fn ratios_are_formed_round_by_round() {
    let outcome = outcome();
    let row = outcome.round_trips.iter().find(|row| row.transport == Transport::Xsk).unwrap();
    let ratio = row.udp_through_this.unwrap();
    assert_eq!((ratio.min, ratio.median, ratio.max, ratio.count), (2.0, 2.5, 3.0, 2));
    assert_eq!((row.p99_us.median, row.p999_us.median, row.lost), (20.0, 30.0, 2));
}

#[test]
fn cpu_time_is_that_of_threads_and_of_xdp_beyond_dropping() {
    let outcome = outcome();
    let of = |transport| outcome.floods.iter().find(|row| row.transport == transport).unwrap();
    // (200,000 − 1000 · 100) / 500, and 900,000 / 500 on top.
    assert_eq!((of(Transport::Xdp).cpu_ns.median, of(Transport::Udp).cpu_ns.median), (200.0, 2000.0));
    assert_eq!((of(Transport::Xdp).threads_ns.median, of(Transport::Udp).threads_ns.median), (0.0, 1800.0));
    assert_eq!(of(Transport::Xdp).rate.median, 1000.0);
}

#[test]
fn goals_are_judged_by_medians() {
    let outcome = outcome();
    let found: Vec<_> = outcome.goals.iter().map(|goal| (goal.found, goal.met)).collect();
    assert_eq!(found, [(2.5, true), (0.1, true)]);
    let text = outcome.text();
    assert!(text.contains("this proves nothing") && text.contains("found 0.10, met"), "{text}");
    assert!(text.contains("too few cores"), "{text}");
}

#[test]
fn packets_computed_elsewhere_spoil_a_measurement() {
    let Line::RoundTrips(good) = trips(0, Transport::Xdp, 1) else { panic!("no round trips") };
    let (before, after) = (status(1, &[], &[]), status(1, &[(Reason::NoteNoCredit, 150), (Reason::MarkTaken, 3)], &[]));
    let check = |trips: RoundTrips| check_place(&trips, &before, &after);
    assert!(check(good).is_ok());
    assert!(check(RoundTrips { place: Place::Here, forwarded: 3, ..good }).is_ok());
    let error = check(RoundTrips { forwarded: 150, ..good }).unwrap_err().to_string();
    assert_eq!(error, "only 50.0 % of 300 packets were computed at node 2: note_no_credit 150");
    assert!(check(RoundTrips { place: Place::Here, ..good }).is_err());
}

#[test]
fn every_thread_has_a_cpu_where_there_are_enough() {
    assert_eq!(Cpus::of(8), Cpus { generator: 0, nodes: [1, 2] });
    assert_eq!(Cpus::of(2), Cpus { generator: 0, nodes: [0, 1] });
    assert_eq!(Cpus::of(1), Cpus { generator: 0, nodes: [0, 0] });
}

#[test]
fn transports_differ_in_the_configuration_alone_by_their_name() {
    for transport in Transport::ALL {
        let node = settings(transport, Waiting::Sleeping, 1);
        assert_eq!((node.transport.as_str(), node.spin), (transport.name(), Duration::ZERO));
    }
    assert_eq!(settings(Transport::Xdp, Waiting::Spinning, 0).spin, Duration::from_secs(1));
    assert_eq!(settings(Transport::Xdp, Waiting::Deployed, 0).spin, Duration::from_micros(20));
}

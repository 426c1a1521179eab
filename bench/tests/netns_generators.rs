//! Generators and the path of the comparison: what is sent is counted at the receiver, frame by frame.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::net::UdpSocket;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use dataplane_bench::generate::replay::Capture;
use dataplane_bench::generate::{FrameSpec, Kind, Offer, Offering};
use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::peers;
use dataplane_bench::peers::contender::{Contender, Running, Settings};
use dataplane_bench::peers::lab::{Lab, TESTED, inside};
use dataplane_bench::peers::measure::received;
use dataplane_bench::topology::Host;
use support::{PATIENCE, available_cpus, lacks_root};

const POLICY: &str = "ept-erl";

fn settings() -> Settings {
    peers::settings(64, &Kind::Live, available_cpus())
}

fn offer(lab: &Lab, kind: Kind, contender: &Contender, count: u32, rate: Option<f64>) -> Offer {
    Offer {
        kind,
        interface: lab.cluster.plan().port(TESTED).generator_interface,
        frame: contender.frame(lab, &settings()).unwrap(),
        count,
        rate,
        cpu: 0,
    }
}

fn lab() -> Lab {
    Lab::build(env!("CARGO_BIN_EXE_dataplane-bench").into()).unwrap()
}

/// Sends an offer to the running contender; returns what was sent and what arrived.
fn send(lab: &Lab, contender: &Contender, running: &dyn Running, offer: &Offer) -> (u64, u64) {
    let count = || received(lab, contender.counted_at(), running).unwrap();
    let before = count();
    let offering = Offering::start(&lab.cluster, &lab.program, offer, &Interrupt::never()).unwrap();
    let sent = offering.wait(PATIENCE, &Interrupt::never()).unwrap().sent;
    let deadline = Instant::now() + PATIENCE;
    while count() - before < sent && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    (sent, count() - before)
}

/// Runs `body` with a running contender in a lab of its own.
fn with(contender: &Contender, body: impl FnOnce(&Lab, &dyn Running)) {
    let mut lab = lab();
    let running = contender.start(&mut lab, &settings(), &Interrupt::never()).unwrap();
    body(&lab, running.as_ref());
    running.stop(&mut lab).unwrap();
}

#[test]
fn paced_generators_send_what_they_say_and_the_receiver_counts_it() {
    if lacks_root() {
        return;
    }
    let contender = Contender::Drop;
    with(&contender, |lab, running| {
        for kind in Kind::PLAIN.into_iter().filter(|kind| kind.absence().is_none()) {
            let (sent, arrived) =
                send(lab, &contender, running, &offer(lab, kind.clone(), &contender, 2000, Some(20_000.0)));
            // A generator that falls behind gives frames up, but none may be lost unseen.
            assert!(sent > 0 && sent <= 2000, "{kind}: {sent}");
            assert_eq!(arrived, sent, "{kind}");
        }
    });
}

#[test]
fn an_unpaced_generator_is_stopped() {
    if lacks_root() {
        return;
    }
    let contender = Contender::Drop;
    with(&contender, |lab, running| {
        let endless = offer(lab, Kind::Live, &contender, i32::MAX as u32, None);
        let offering = Offering::start(&lab.cluster, &lab.program, &endless, &Interrupt::never()).unwrap();
        let count = || received(lab, contender.counted_at(), running).unwrap();
        let deadline = Instant::now() + PATIENCE;
        while count() == 0 {
            assert!(Instant::now() < deadline, "nothing arrives");
        }
        offering.stop().unwrap();
        let after = count();
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(count(), after, "it still sends");
    });
}

/// A capture of these frames, a millisecond apart, in the format that `tcpdump` writes.
fn pcap(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1].map(u32::to_le_bytes).concat();
    for (number, frame) in (0u32..).zip(frames) {
        let bytes = frame.len() as u32;
        file.extend([7, 1000 * number, bytes, bytes].map(u32::to_le_bytes).concat());
        file.extend(frame);
    }
    file
}

/// The same in the format that Wireshark writes.
fn pcapng(frames: &[Vec<u8>]) -> Vec<u8> {
    let block = |kind: u32, body: Vec<u8>| {
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, &body, &length].concat()
    };
    let section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let interface = [1u32, 0].map(u32::to_le_bytes).concat();
    let mut file = [block(0x0a0d_0d0a, section), block(1, interface)].concat();
    for (number, frame) in (0u32..).zip(frames) {
        let bytes = frame.len() as u32;
        let mut body = [0, 0, 1000 * number, bytes, bytes].map(u32::to_le_bytes).concat();
        body.extend(frame);
        body.resize(body.len().next_multiple_of(4), 0);
        file.extend(block(6, body));
    }
    file
}

#[test]
fn a_capture_arrives_whole_in_its_order_round_after_round() {
    if lacks_root() {
        return;
    }
    const PORT: u16 = 9999;
    let lab = lab();
    let port = lab.cluster.plan().port(TESTED);
    let spec = |size: usize| FrameSpec {
        size,
        // Another cable's: the replay gives every frame those of this one.
        macs: ([2; 6], [4; 6]),
        addresses: (port.generator_ipv4, port.node_ipv4),
        ports: (40_000, PORT),
        type_id: 0xff01,
        operand: Some(size as u32),
        is_sound: true,
    };
    let frames: Vec<_> = [72, 1500, 200, 99].iter().map(|size| spec(*size).build().unwrap()).collect();
    let receiver =
        inside(&lab.cluster, Host::Node(TESTED), || Ok(UdpSocket::bind((port.node_ipv4, PORT)).unwrap())).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    for (name, file) in [("a.pcap", pcap(&frames)), ("b.pcapng", pcapng(&frames))] {
        let path: PathBuf = lab.cluster.directory().join(name);
        std::fs::write(&path, file).unwrap();
        for (own_times, rate) in [(true, None), (false, Some(10_000.0)), (false, None)] {
            let kind = Kind::Pcap(Capture { file: path.clone(), own_times });
            let offer = Offer { count: 10, ..offer(&lab, kind, &Contender::Drop, 10, rate) };
            let offering = Offering::start(&lab.cluster, &lab.program, &offer, &Interrupt::never()).unwrap();
            let sent = offering.wait(PATIENCE, &Interrupt::never()).unwrap().sent;
            // A generator that falls behind gives frames up, at the end.
            assert!(sent > 0 && sent <= 10, "{name}: {sent}");
            for frame in frames.iter().cycle().take(sent as usize) {
                let mut datagram = [0; 2048];
                let bytes = receiver.recv(&mut datagram).unwrap();
                assert_eq!(datagram[..bytes], frame[42..], "{name}");
            }
        }
    }
}

#[test]
fn a_capture_that_cannot_be_counted_is_named_with_the_reason() {
    if lacks_root() {
        return;
    }
    let path = std::env::temp_dir().join(format!("dpt-{}-arp.pcap", std::process::id()));
    std::fs::write(&path, pcap(&[vec![0xff; 60]])).unwrap();
    let kind: Kind = format!("pcap:{}", path.display()).parse().unwrap();
    let reason = kind.absence().unwrap();
    std::fs::remove_file(path).unwrap();
    assert!(reason.contains("frame 1 is no UDP over IPv4"), "{reason}");
}

#[test]
fn pktgen_is_named_with_the_reason_where_it_is_not() {
    if lacks_root() {
        return;
    }
    let Some(reason) = Kind::Pktgen.absence() else { return };
    let lab = lab();
    let offer = offer(&lab, Kind::Pktgen, &Contender::Drop, 10, None);
    let error = Offering::start(&lab.cluster, &lab.program, &offer, &Interrupt::never()).err().unwrap();
    assert!(format!("{error:#}").contains(&reason), "{error:#}");
}

#[test]
fn every_contender_of_ours_takes_the_way_that_is_measured() {
    if lacks_root() {
        return;
    }
    let contenders = [
        Contender::Tx,
        Contender::Redirect,
        Contender::SocketDrop,
        Contender::SocketAnswer,
        Contender::KernelForward,
        Contender::ProductPass(POLICY.to_owned()),
        Contender::KernelEcho,
        Contender::ProductRedirect(POLICY.to_owned()),
        Contender::ProductReceive(POLICY.to_owned()),
        Contender::ProductAnswer(POLICY.to_owned()),
    ];
    let mut lab = lab();
    for contender in contenders {
        let running = contender.start(&mut lab, &settings(), &Interrupt::never()).unwrap();
        // Slow enough for a UDP socket on a busy machine.
        let offer = offer(&lab, Kind::Live, &contender, 500, Some(5000.0));
        let (sent, arrived) = send(&lab, &contender, running.as_ref(), &offer);
        // On a busy machine a thread may not run for longer than its socket can wait.
        assert!(sent > 0 && arrived >= sent / 2, "{}: {arrived} of {sent} arrived", contender.name());
        // Ends with an error when the packets of the dataplane went another way.
        running.stop(&mut lab).unwrap();
    }
}

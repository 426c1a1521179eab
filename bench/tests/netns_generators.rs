//! Generators and the path of the comparison: what is sent is counted at the receiver, frame by frame.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::time::{Duration, Instant};

use dataplane_bench::generate::{Kind, Offer, Offering};
use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::peers;
use dataplane_bench::peers::contender::{Contender, Running, Settings};
use dataplane_bench::peers::lab::{Lab, TESTED};
use dataplane_bench::peers::measure::received;
use support::{PATIENCE, available_cpus, lacks_root};

const POLICY: &str = "ept-erl";

fn settings() -> Settings {
    peers::settings(64, available_cpus())
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
        for kind in Kind::ALL.into_iter().filter(|kind| kind.absence().is_none()) {
            let (sent, arrived) = send(lab, &contender, running, &offer(lab, kind, &contender, 2000, Some(20_000.0)));
            // A generator that falls behind gives frames up, but none may be lost unseen.
            assert!(sent > 0 && sent <= 2000, "{}: {sent}", kind.name());
            assert_eq!(arrived, sent, "{}", kind.name());
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

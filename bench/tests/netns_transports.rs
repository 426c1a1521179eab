//! The ways in which frames may travel between nodes, and functions whose packets are kept or answered elsewhere. See README.md
//! beside this file for a drawing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::thread;
use std::time::Duration;

use dataplane_bench::chaos::{Chaos, Share};
use dataplane_bench::status::Status;
use dataplane_bench::topology::{NodeSettings, Purpose, Shape};
use dataplane_common::reason::Reason;
use dataplane_user::functions::Builtin;
use support::{Bench, Replies, recipe, settings, with_cluster, with_shape};

/// Packets of a test.
const PACKETS: u64 = 1_000;

/// Sends more work to node 1 than it can do alone: each packet is answered once.
fn overload(bench: &mut Bench) {
    overload_and(bench, |_, _| {});
}

/// As [`overload`]; `meanwhile` is called before each packet, with its number.
fn overload_and(bench: &mut Bench, mut meanwhile: impl FnMut(&mut Bench, u64)) {
    let hold = recipe(&bench.port(1), Builtin::Hold, 1_000_000);
    let mut replies = Replies::default();
    for sequence in 0..PACKETS {
        meanwhile(bench, sequence);
        bench.send(1, &hold, sequence);
        bench.wire.receive(|frame| replies.take(frame.bytes));
        thread::sleep(Duration::from_micros(500));
    }
    bench.collect(&mut replies, PACKETS as usize);
    replies.assert_exactly(PACKETS);
}

fn sum(statuses: &[Status], reasons: &[Reason]) -> u64 {
    statuses.iter().flat_map(|status| reasons.iter().map(|reason| status.count(*reason))).sum()
}

/// What nodes sent to each other.
const SENT: [Reason; 2] = [Reason::Redirected, Reason::SentForward];

fn every_packet_is_answered(transport: &'static str, routed: bool) {
    // An emulated machine takes more than the default for some packets.
    let patience = Duration::from_secs(1);
    let chosen =
        move |node| NodeSettings { transport: transport.to_owned(), routed, patience, ..settings("ept-erl", node) };
    with_cluster(3, chosen, |bench| {
        overload(bench);
        let statuses = bench.wait_for_rest(1..=3);
        let sent = sum(&statuses, &SENT);
        assert!(sent > PACKETS / 10, "node 1 was overloaded and sent away {sent} of {PACKETS} packets");
        assert_eq!(sum(&statuses, &[Reason::ForwardQueued]), sent);
        assert_eq!(statuses[0].count(Reason::Redirected) > 0, transport == "xdp", "who decides");
        assert_eq!(sum(&statuses, &[Reason::NoteOutOfOrder, Reason::NoteLate]), 0);
    });
}

#[test]
fn the_xdp_program_decides_and_frames_travel_in_udp() {
    every_packet_is_answered("xdp", true);
}

#[test]
fn workers_decide_and_send_over_af_xdp() {
    every_packet_is_answered("xsk", false);
}

#[test]
fn workers_decide_and_send_over_af_xdp_in_udp() {
    every_packet_is_answered("xsk", true);
}

#[test]
fn workers_decide_and_kernel_sockets_carry() {
    every_packet_is_answered("udp", true);
}

/// One function, with these keys.
fn function(keys: &str) -> String {
    format!("[[function]]\nname = \"hold\"\n{keys}\n")
}

#[test]
fn direct_results_leave_where_they_were_computed() {
    let direct =
        |node| NodeSettings { extra: function("order = \"none\"\nreturns = \"direct\""), ..settings("ept-erl", node) };
    with_cluster(3, direct, |bench| {
        overload(bench);
        let statuses = bench.wait_for_rest(1..=3);
        let sent = sum(&statuses, &SENT);
        let elsewhere = sum(&statuses[1..], &[Reason::SentResult]);
        assert!(sent > PACKETS / 10 && elsewhere == sent, "{sent} sent away, {elsewhere} answered by nodes 2 and 3");
        assert_eq!((sum(&statuses, &[Reason::SentHome]), sum(&statuses, &[Reason::MarkTaken])), (0, sent));
    });
}

/// Lossless functions lose nothing and answer nothing twice, whatever the link does.
fn nothing_is_lost(transport: &'static str, chaos: Chaos, order: &'static str) {
    let lossless = move |node| NodeSettings {
        transport: transport.to_owned(),
        extra: function(&format!("lossless = true\norder = \"{order}\"")),
        ..settings("ept-erl", node)
    };
    with_shape(Shape::new(Purpose::Test, 2).with_cables(), lossless, |bench| {
        bench.cluster.impair_all(&chaos).unwrap();
        overload(bench);
        bench.cluster.impair_all(&Chaos::NONE).unwrap();
        let statuses = bench.wait_for_rest(1..=2);
        let kept = sum(&statuses, &[Reason::NoteKept]);
        let again = sum(&statuses, &[Reason::SeenAgain]);
        assert!(kept > PACKETS / 10, "{kept} of {PACKETS} were sent away and kept");
        assert!(again > 0, "the link lost or delayed some, and they were placed anew");
    });
}

#[test]
fn lossless_functions_survive_a_lossy_link() {
    let chaos =
        Chaos { drop: Share::percent(5), duplicate: Share::percent(2), reorder: Share::percent(2), ..Chaos::NONE };
    nothing_is_lost("xdp", chaos, "none");
}

#[test]
fn lossless_functions_keep_their_order_over_a_lossy_link() {
    let chaos = Chaos { drop: Share::percent(5), ..Chaos::NONE };
    nothing_is_lost("xsk", chaos, "flow");
}

#[test]
fn lossless_functions_survive_a_peer_that_dies() {
    a_peer_dies("xdp");
}

#[test]
fn lossless_functions_survive_a_peer_that_dies_behind_kernel_sockets() {
    a_peer_dies("udp");
}

/// Nothing is lost with a node that is killed.
fn a_peer_dies(transport: &'static str) {
    let lossless = move |node| NodeSettings {
        transport: transport.to_owned(),
        extra: function("lossless = true\norder = \"none\""),
        ..settings("ept-erl", node)
    };
    with_cluster(3, lossless, |bench| {
        overload_and(bench, |bench, sequence| {
            if sequence == PACKETS / 2 {
                bench.cluster.kill(2).unwrap();
            }
        });
        let status = bench.wait_for_rest([1, 3]).remove(0);
        let (kept, again) = (status.count(Reason::NoteKept), status.count(Reason::SeenAgain));
        assert!(kept > PACKETS / 10, "{kept} of {PACKETS} were sent away and kept");
        println!("{kept} kept, {again} placed anew");
    });
}

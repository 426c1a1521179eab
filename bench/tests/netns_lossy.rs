//! Clusters whose links lose, repeat, disorder and change frames: every packet is accounted for, whatever happens to it between
//! the nodes. See README.md beside this file for a drawing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::thread;
use std::time::{Duration, Instant};

use dataplane_bench::chaos::{Chaos, FrameKind, Kinds, Share, Tally};
use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::status::Status;
use dataplane_bench::topology::{NodeSettings, Purpose, Shape};
use dataplane_common::reason::{Effect, Reason, Stage};
use dataplane_common::wire::link::OVERHEAD_BYTES;
use dataplane_user::functions::Builtin;
use support::{Bench, PATIENCE, Replies, recipe, settings, with_shape};

/// Packets of a test.
const PACKETS: u64 = 600;

/// Two nodes with a box between them. Reports come each few milliseconds, so that what a test counts is mostly packets.
fn with_box(body: impl FnOnce(&mut Bench) + Send) {
    let interval = Duration::from_millis(5);
    let settings =
        move |node| NodeSettings { report_interval: interval, idle_interval: interval, ..settings("ept-erl", node) };
    with_shape(Shape::new(Purpose::Test, 2).with_cables(), settings, body);
}

/// Sends more work to node 1 than it can do alone, and takes what comes back.
fn overload(bench: &mut Bench, replies: &mut Replies, sequences: std::ops::Range<u64>) {
    let hold = recipe(&bench.port(1), Builtin::Hold, 1_000_000);
    for sequence in sequences {
        bench.send(1, &hold, sequence);
        bench.wire.receive(|frame| replies.take(frame.bytes));
        thread::sleep(Duration::from_micros(500));
    }
}

/// Takes what still comes back until the nodes are at rest and nothing more comes.
fn collect(bench: &mut Bench, replies: &mut Replies) -> [Status; 2] {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = replies.seen.len();
        let statuses = bench.wait_for_rest(1..=2);
        thread::sleep(Duration::from_millis(20));
        bench.wire.receive(|frame| replies.take(frame.bytes));
        if replies.seen.len() == before {
            return statuses.try_into().unwrap();
        }
        assert!(Instant::now() < deadline, "packets still come back");
    }
}

/// What the box did in both directions, when it holds nothing.
fn both(bench: &Bench) -> Tally {
    let mut sum = Tally::default();
    for (node, peer) in [(1, 2), (2, 1)] {
        sum.add(&bench.cluster.tally(node, peer, &Interrupt::never()).unwrap());
    }
    assert_eq!((sum.lost, sum.unsent), (0, 0));
    sum
}

/// Packets that nodes dropped or left to their kernels, by name.
fn dropped_by_nodes(statuses: &[Status]) -> Vec<(&'static str, u64)> {
    let ends = |reason: &Reason| match (reason.stage(), reason.effect()) {
        (Stage::Port | Stage::Link | Stage::Worker, Effect::Drop) => true,
        (Stage::Port, Effect::Pass) => *reason != Reason::PassNotActive,
        _ => false,
    };
    let count = |reason: Reason| statuses.iter().map(|status| status.count(reason)).sum::<u64>();
    let mut named: Vec<_> = Reason::ALL
        .iter()
        .filter(|reason| ends(reason) && **reason != Reason::DropReportOld)
        .map(|reason| (reason.name(), count(*reason)))
        .filter(|(_, count)| *count > 0)
        .collect();
    let rings = statuses.iter().map(|status| status.ledger.ring_dropped).sum::<u64>();
    if rings > 0 {
        named.push(("ring", rings));
    }
    named
}

fn sum(named: &[(&'static str, u64)]) -> u64 {
    named.iter().map(|(_, count)| count).sum()
}

#[test]
fn with_five_percent_loss_every_packet_is_answered_or_named() {
    with_box(|bench| {
        bench.cluster.impair_all(&Chaos { drop: Share::percent(5), ..Chaos::NONE }).unwrap();
        let mut replies = Replies::default();
        overload(bench, &mut replies, 0..PACKETS);
        let statuses = collect(bench, &mut replies);
        bench.cluster.impair_all(&Chaos::NONE).unwrap();
        let tally = both(bench);
        let (forwards, results) = (tally.kind(FrameKind::Forward), tally.kind(FrameKind::Result));
        let named = dropped_by_nodes(&statuses);
        assert!(forwards.dropped > 0 && results.dropped > 0, "{tally:?}");
        let answered = replies.seen.len() as u64;
        assert_eq!(
            answered + forwards.dropped + results.dropped + sum(&named),
            PACKETS,
            "{answered} answered, lost {forwards:?} {results:?}, dropped {named:?}"
        );
        assert!(replies.seen.values().all(|times| *times == 1));
        // The nodes' own accounts of the link say the same as the box's.
        let sent = statuses[0].count(Reason::Redirected) + statuses[0].count(Reason::SentForward);
        assert_eq!((sent, statuses[1].count(Reason::SentHome)), (forwards.seen, results.seen));
        assert_eq!(statuses[1].count(Reason::ForwardQueued), forwards.leaving());
    });
}

#[test]
fn with_half_of_the_reports_lost_no_packet_is() {
    with_box(|bench| {
        let kinds = Kinds::of(&[FrameKind::Report]);
        bench.cluster.impair_all(&Chaos { drop: Share::percent(50), kinds, ..Chaos::NONE }).unwrap();
        let mut replies = Replies::default();
        overload(bench, &mut replies, 0..PACKETS);
        let statuses = collect(bench, &mut replies);
        let tally = both(bench);
        let reports = tally.kind(FrameKind::Report);
        assert!(reports.dropped > 0 && reports.passed > 0, "{reports:?}");
        let named = dropped_by_nodes(&statuses);
        assert_eq!(replies.seen.len() as u64 + sum(&named), PACKETS, "{named:?}");
        assert!(tally.kind(FrameKind::Forward).seen > 0, "node 1 still forwards");
    });
}

#[test]
fn a_peer_behind_a_cut_link_leaves_the_candidates_and_comes_back_when_it_is_healed() {
    with_box(|bench| {
        let state = |bench: &Bench, node: u16| bench.status(node).peers[0].state.clone();
        let wait_for = |bench: &Bench, wanted: fn(&str) -> bool| {
            let deadline = Instant::now() + PATIENCE;
            while !(1..=2).all(|node| wanted(&state(bench, node))) {
                assert!(Instant::now() < deadline, "node 1 sees {}", state(bench, 1));
                thread::sleep(Duration::from_millis(5));
            }
        };
        let mut replies = Replies::default();
        overload(bench, &mut replies, 0..PACKETS / 3);
        collect(bench, &mut replies);
        let forwards = |bench: &Bench| both(bench).kind(FrameKind::Forward).seen;
        let before = forwards(bench);
        assert!(before > 0, "node 1 forwards over a whole link");

        bench.cluster.impair_all(&Chaos::CUT).unwrap();
        wait_for(bench, |state| state != "alive");
        overload(bench, &mut replies, PACKETS / 3..2 * PACKETS / 3);
        collect(bench, &mut replies);
        assert_eq!(forwards(bench), before, "packets were sent into a cut link");

        bench.cluster.impair_all(&Chaos::NONE).unwrap();
        wait_for(bench, |state| state == "alive");
        overload(bench, &mut replies, 2 * PACKETS / 3..PACKETS);
        let statuses = collect(bench, &mut replies);
        assert!(forwards(bench) > before, "node 1 forwards again");
        let tally = both(bench);
        let lost = tally.kind(FrameKind::Forward).dropped + tally.kind(FrameKind::Result).dropped;
        let named = dropped_by_nodes(&statuses);
        assert_eq!(replies.seen.len() as u64 + lost + sum(&named), PACKETS, "{lost} lost, {named:?}");
    });
}

#[test]
fn a_changed_payload_ends_under_a_name_and_changes_nothing_else() {
    with_box(|bench| {
        // Behind all headers of the packet inside: what only its checksums look at.
        let payload = recipe(&bench.port(1), Builtin::Hold, 1).template().unwrap().payload_range();
        let corrupt_from = (OVERHEAD_BYTES + payload.start) as u16;
        let kinds = Kinds::of(&[FrameKind::Forward]);
        let chaos = Chaos { corrupt: Share::percent(20), corrupt_from, kinds, ..Chaos::NONE };
        bench.cluster.impair_all(&chaos).unwrap();
        let mut replies = Replies::default();
        overload(bench, &mut replies, 0..PACKETS);
        let statuses = collect(bench, &mut replies);
        let corrupted = both(bench).kind(FrameKind::Forward).corrupted;
        let named = dropped_by_nodes(&statuses);
        assert!(corrupted > 0);
        let checksums = statuses[1].count(Reason::DropUdpChecksum) + statuses[1].count(Reason::DropAnepChecksum);
        assert_eq!(checksums, corrupted, "{named:?}");
        assert_eq!(replies.seen.len() as u64 + sum(&named), PACKETS, "{named:?}");
        replies.assert_intact();
    });
}

#[test]
fn bytes_changed_anywhere_leave_nodes_that_work_and_ledgers_that_balance() {
    with_box(|bench| {
        bench.cluster.impair_all(&Chaos { corrupt: Share::percent(20), ..Chaos::NONE }).unwrap();
        let mut replies = Replies::default();
        overload(bench, &mut replies, 0..PACKETS);
        bench.cluster.impair_all(&Chaos::NONE).unwrap();
        assert!(both(bench).total().corrupted > 0);
        // A changed header may have charged work that never came: the nodes must be rid of it, and then work as before.
        let statuses = collect(bench, &mut replies);
        assert!(statuses.iter().all(|status| status.ledger.balances));
        let mut replies = Replies::default();
        overload(bench, &mut replies, PACKETS..PACKETS + 500);
        collect(bench, &mut replies);
        let after = replies.seen.keys().filter(|sequence| **sequence >= PACKETS).count();
        assert_eq!(after, 500, "packets were lost on a whole link");
        replies.assert_intact();
    });
}

#[test]
fn copies_late_and_disordered_frames_are_all_accounted_for() {
    with_box(|bench| {
        let chaos = Chaos {
            duplicate: Share::percent(5),
            reorder: Share::percent(5),
            delay: Share::percent(5),
            delay_by: Duration::from_millis(3),
            kinds: Kinds::PACKETS,
            ..Chaos::NONE
        };
        bench.cluster.impair_all(&chaos).unwrap();
        let mut replies = Replies::default();
        overload(bench, &mut replies, 0..PACKETS);
        let statuses = collect(bench, &mut replies);
        let tally = both(bench);
        let packets = tally.kind(FrameKind::Forward);
        assert!(packets.duplicated > 0 && packets.reordered > 0 && packets.delayed > 0, "{packets:?}");
        assert_eq!(replies.seen.len() as u64, PACKETS, "nothing was dropped");
        let copies = replies.seen.values().map(|times| u64::from(*times) - 1).sum::<u64>();
        let named = dropped_by_nodes(&statuses);
        assert_eq!(copies + sum(&named), tally.copies, "{named:?}");
        replies.assert_intact();
    });
}

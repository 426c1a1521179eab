//! `dp_link`: what is an interconnect frame, forwarded packets, and the account of the peers' work.

use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::Reason::*;

use super::case::{ABSENT, Case, FAR, LIMIT_NS, NEAR, NODE, ROUNDS, TIMED, check, furnish, node, params};
use super::peer::{
    BODY, FORWARD, HEADER, PEER_EPOCH, PULL, REPORT, RESULT, inner, received, received_frames, received_sequence,
};
use crate::support::frames::{Interconnect, with};
use crate::support::node::{STRANGER, inside};
use crate::support::words::two;

/// The first frame of a peer is entered into its account.
fn accounted(case: Case) -> Case {
    case.changes(received(NEAR), two(HEADER.position_ns, PEER_EPOCH))
        .changes(received_frames(NEAR), 1)
        .changes(received_sequence(NEAR), HEADER.sequence.into())
}

#[test]
fn what_is_no_interconnect_frame_is_left_to_the_kernel() {
    inside("what_is_no_interconnect_frame_is_left_to_the_kernel", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x08, 0x06], &[0; 28]].concat();
        let frame = HEADER.frame(&inner());
        check(
            &mut node,
            &[
                Case::link("ARP", arp).passes(PassLink),
                Case::link("an active packet", inner()).passes(PassLink),
                Case::link("the next EtherType", with(frame.clone(), 12, &[0x88, 0xb6])).passes(PassLink),
                Case::link("a bare header of another type", frame[..12].iter().copied().chain([0x86, 0xdd]).collect())
                    .passes(PassLink),
            ],
        );
    });
}

#[test]
fn every_defect_of_the_header_is_named() {
    inside("every_defect_of_the_header_is_named", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let mut cases = Vec::new();
        for kind in [FORWARD, RESULT, REPORT, PULL] {
            let header = Interconnect { kind, ..HEADER };
            let mut bad = |name: &str, header: Interconnect, reason| {
                cases.push(Case::link(&format!("{name}, kind {kind}"), header.frame(&inner())).drops(reason));
            };
            for version in [0, 1, 2, 4, 255] {
                bad("version", Interconnect { version, ..header }, DropLinkVersion);
            }
            for hops in [0, 2, 255] {
                bad("hops", Interconnect { hops, ..header }, DropLinkHops);
            }
            for destination in [NEAR, FAR, 0, u16::MAX] {
                bad("another node's", Interconnect { destination, ..header }, DropLinkDestination);
            }
            // Node 4 is in the table but no peer, 8 and 65535 are beyond it, and nobody is its own peer.
            for source in [4, ABSENT, NODE, 8, u16::MAX] {
                bad("from a stranger", Interconnect { source, ..header }, DropLinkSource);
            }
            bad("destination before source", Interconnect { destination: 0, source: 4, ..header }, DropLinkDestination);
            bad("version before all", Interconnect { version: 9, hops: 0, destination: 0, ..header }, DropLinkVersion);
        }
        for kind in [0, 5, 255] {
            cases.push(Case::link("kind", Interconnect { kind, ..HEADER }.frame(&inner())).drops(DropLinkKind));
        }
        check(&mut node, &cases);
    });
}

#[test]
fn requests_for_work_go_to_the_worker_of_their_queue() {
    inside("requests_for_work_go_to_the_worker_of_their_queue", |site| {
        let mut with_sockets = node(site, PolicyKind::EptErl);
        let header = Interconnect { kind: PULL, charged_ns: 0, ..HEADER };
        let request =
            |name: &str, frame| Case::link(name, frame).changes(received(NEAR), two(HEADER.position_ns, PEER_EPOCH));
        let padded = [header.frame(&[]), vec![0; 40]].concat();
        check(
            &mut with_sockets,
            &[
                request("a request", header.frame(&[])).asks(),
                request("padded", padded).asks(),
                request("on queue 1", header.frame(&[])).queue(1).asks(),
                request("on a queue without a worker", header.frame(&[])).queue(2).drops(DropLinkNoSocket),
                request("no room for metadata", header.frame(&[])).metadata(200).drops(DropLinkHeadroom),
                request("on an interface that is none of the node's", header.frame(&[]))
                    .on(STRANGER)
                    .drops(DropLinkNoSocket),
            ],
        );
        let mut without = site.node_without_sockets(params(PolicyKind::Local));
        furnish(&mut without);
        check(&mut without, &[request("no socket", header.frame(&[])).drops(DropLinkNoSocket)]);
    });
}

#[test]
fn cut_at_every_length_it_is_truncated() {
    inside("cut_at_every_length_it_is_truncated", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let mut cases = Vec::new();
        let report = Interconnect { kind: REPORT, ..HEADER }.report(&BODY);
        let frames = [HEADER.frame(&inner()), Interconnect { kind: RESULT, ..HEADER }.frame(&inner()), report];
        for (frame, what) in frames.iter().zip(["forward", "result", "report"]) {
            // The kernel runs programs on whole Ethernet headers only.
            for length in 14..frame.len() {
                let name = format!("{what}, {length} of {} bytes", frame.len());
                cases.push(Case::link(&name, frame[..length].to_vec()).drops(DropLinkTruncated));
            }
        }
        check(&mut node, &cases);
    });
}

#[test]
fn forwarded_packets_reach_the_worker_as_they_came() {
    inside("forwarded_packets_reach_the_worker_as_they_came", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let case = |name: &str, header: Interconnect| accounted(Case::link(name, header.frame(&inner())));
        let charged = |charged_ns| Interconnect { charged_ns, ..HEADER };
        let of_type = |type_id| Interconnect { type_id, ..HEADER };
        let padded = [HEADER.frame(&[]), vec![0; 6]].concat();
        check(
            &mut node,
            &[
                case("the sender's estimate is charged", HEADER).stays(0, 5_000),
                case("another function", of_type(TIMED)).stays(2, 5_000),
                case("on queue 1", HEADER).queue(1).stays(0, 5_000),
                case("no charge", charged(0)).stays(0, 0),
                case("all that is allowed", charged(LIMIT_NS)).stays(0, LIMIT_NS),
                case("no more than this node allows", charged(LIMIT_NS + 1)).stays(0, LIMIT_NS),
                case("nor the largest", charged(u32::MAX)).stays(0, LIMIT_NS),
                accounted(Case::link("padding behind the frame", padded)).stays(0, 5_000),
                accounted(Case::link("what is inside is the worker's business", HEADER.frame(&[0xff; 70])))
                    .stays(0, 5_000),
                case("a busy worker takes it all the same: one hop", HEADER)
                    .backlog(0, 50_000_000, 99)
                    .load(FAR, 0, 0)
                    .stays(0, 5_000),
            ],
        );
    });
}

#[test]
fn forwarded_packets_that_cannot_be_taken_are_dropped_and_accounted() {
    inside("forwarded_packets_that_cannot_be_taken_are_dropped_and_accounted", |site| {
        let case = |name: &str, header: Interconnect| accounted(Case::link(name, header.frame(&inner())));
        let unknown = Interconnect { type_id: 51, ..HEADER };
        let mut with_sockets = node(site, PolicyKind::EptErl);
        check(
            &mut with_sockets,
            &[
                case("a function that this node does not have", unknown).drops(DropLinkType),
                case("type 0", Interconnect { type_id: 0, ..HEADER }).drops(DropLinkType),
                case("an interface that is none of the node's", HEADER).on(STRANGER).drops(DropLinkNoSocket),
                case("a queue without a worker", HEADER).queue(2).drops(DropLinkNoSocket),
                case("a queue beyond the last worker", HEADER).queue(64).drops(DropLinkNoSocket),
                case("no room for metadata", HEADER).metadata(200).drops(DropLinkHeadroom),
            ],
        );
        let mut without = site.node_without_sockets(params(PolicyKind::Local));
        furnish(&mut without);
        check(
            &mut without,
            &[
                case("no socket", HEADER).drops(DropLinkNoSocket),
                case("no function, no socket", unknown).drops(DropLinkType),
            ],
        );
    });
}

/// The account before a frame, and after it.
fn account(name: &str, before: (u32, u32, u64), epoch: u32, position_ns: u32, after: (u32, u32, u64)) -> Case {
    let frame = Interconnect { epoch, position_ns, type_id: ROUNDS, ..HEADER }.frame(&inner());
    Case::link(name, frame)
        .given(received(NEAR), two(before.0, before.1))
        .given(received_frames(NEAR), before.2)
        .changes(received(NEAR), two(after.0, after.1))
        .changes(received_frames(NEAR), after.2)
        .changes(received_sequence(NEAR), if after.2 == before.2 { 0 } else { HEADER.sequence.into() })
        .stays(1, 5_000)
}

#[test]
fn the_account_keeps_the_newest_position_of_the_newest_boot() {
    inside("the_account_keeps_the_newest_position_of_the_newest_boot", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        check(
            &mut node,
            &[
                account("the first frame", (0, 0, 0), 5, 700, (700, 5, 1)),
                account("the next", (700, 5, 1), 5, 900, (900, 5, 2)),
                account("one that was overtaken", (900, 5, 2), 5, 800, (900, 5, 3)),
                account("the same position: no work", (900, 5, 3), 5, 900, (900, 5, 4)),
                account("across the wrap", (u32::MAX - 9, 5, 4), 5, 10, (10, 5, 5)),
                account("overtaken across the wrap", (10, 5, 5), 5, u32::MAX - 9, (10, 5, 6)),
                account("half of the circle ahead is behind", (0, 5, 6), 5, 1 << 31, (0, 5, 7)),
                account("a new boot begins anew", (900, 5, 9), 6, 100, (100, 6, 1)),
                account("boots wrap, too", (900, u32::MAX, 9), 3, 100, (100, 3, 1)),
            ],
        );
    });
}

#[test]
fn frames_lost_on_the_way_are_known_by_the_next() {
    inside("frames_lost_on_the_way_are_known_by_the_next", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let case = |name: &str, known: u32, sequence: u32, newest: u32| {
            let frame = Interconnect { sequence, type_id: ROUNDS, ..HEADER }.frame(&inner());
            Case::link(name, frame)
                .given(received(NEAR), two(9_000, PEER_EPOCH))
                .given(received_frames(NEAR), 3)
                .given(received_sequence(NEAR), known.into())
                .changes(received(NEAR), two(HEADER.position_ns, PEER_EPOCH))
                .changes(received_frames(NEAR), 4)
                .changes(received_sequence(NEAR), newest.into())
                .stays(1, 5_000)
        };
        check(
            &mut node,
            &[
                case("the next", 3, 4, 4),
                case("two were lost", 3, 6, 6),
                case("one that was overtaken", 6, 5, 6),
                case("across the wrap", u32::MAX, 2, 2),
            ],
        );
    });
}

#[test]
fn a_frame_of_an_old_boot_is_not_entered() {
    inside("a_frame_of_an_old_boot_is_not_entered", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        // "Frames with work that arrived from the node in that epoch": `LoadRow::received_frames`.
        check(&mut node, &[account("a frame from before the restart", (900, 5, 2), 4, 1_000, (900, 5, 2))]);
    });
}

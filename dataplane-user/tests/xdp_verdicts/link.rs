//! `dp_link`: frames of peers, and the account of their work.

use std::mem::offset_of;

use dataplane_common::maps::LoadRow;
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::Reason::*;

use super::case::{ABSENT, BYTES, Case, EPOCH, FAR, LIMIT_NS, NEAR, NODE, ROUNDS, TIMED, check, furnish, node, params};
use crate::support::frames::{Interconnect, Load, OVERHEAD, Packet, with};
use crate::support::node::{LINK, OTHER_PORT, PORT, Place, STRANGER, inside};

const FORWARD: u8 = 1;
const RESULT: u8 = 2;
const REPORT: u8 = 3;
/// The peer's boot.
const PEER_EPOCH: u32 = 900;

/// A frame of `NEAR` for this node.
const HEADER: Interconnect = Interconnect {
    mac: [[2, 0, 0, 0, 9, 9], [2, 0, 0, 0, 1, 1]],
    version: 1,
    kind: FORWARD,
    hops: 1,
    source: NEAR,
    destination: NODE,
    epoch: PEER_EPOCH,
    sequence: 12,
    charged_ns: 5_000,
    position_ns: 70_000,
    type_id: BYTES,
    port: 0,
    arrival_ns: 0x1122_3344_5566_7788,
};

const BODY: Load = Load {
    backlog_ns: 123_456,
    queued_milli: 2_500,
    received_ns: 40_000,
    received_epoch: EPOCH,
    received_frames: 4,
    busy_milli: 900,
    workers: 3,
    interval_us: 100,
};

fn inner() -> Vec<u8> {
    Packet::new(BYTES).frame()
}

fn two(first: u32, second: u32) -> u64 {
    u64::from(first) | u64::from(second) << 32
}

/// Position and boot of the peer's work that has arrived.
fn received(node: u16) -> Place {
    Place::load(node, offset_of!(LoadRow, received_ns))
}

fn received_frames(node: u16) -> Place {
    Place::load(node, offset_of!(LoadRow, received_frames))
}

/// The first frame of a peer is entered into its account.
fn accounted(case: Case) -> Case {
    case.changes(received(NEAR), two(HEADER.position_ns, PEER_EPOCH)).changes(received_frames(NEAR), 1)
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
        for kind in [FORWARD, RESULT, REPORT] {
            let header = Interconnect { kind, ..HEADER };
            let mut bad = |name: &str, header: Interconnect, reason| {
                cases.push(Case::link(&format!("{name}, kind {kind}"), header.frame(&inner())).drops(reason));
            };
            for version in [0, 2, 255] {
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
        for kind in [0, 4, 255] {
            cases.push(Case::link("kind", Interconnect { kind, ..HEADER }.frame(&inner())).drops(DropLinkKind));
        }
        check(&mut node, &cases);
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

#[test]
fn results_leave_by_the_port_they_name() {
    inside("results_leave_by_the_port_they_name", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let result = |name: &str, port: u32| {
            let header = Interconnect { kind: RESULT, port: port as u16, charged_ns: u32::MAX, ..HEADER };
            Case::link(name, header.frame(&inner()))
        };
        let padded = [Interconnect { kind: RESULT, ..HEADER }.frame(&inner()[..20]), vec![0; 40]].concat();
        check(
            &mut node,
            &[
                result("a port", PORT).returns(),
                result("another port", OTHER_PORT).returns(),
                result("a type that this node does not have is no matter", PORT).returns(),
                result("the link is no port", LINK).drops(DropLinkPort),
                result("no such port", 3).drops(DropLinkPort),
                result("beyond the table", 16).drops(DropLinkPort),
                result("the largest number", 0xffff).drops(DropLinkPort),
                Case::link("padding travels", padded).returns(),
                Case::link("from another peer", Interconnect { kind: RESULT, source: FAR, ..HEADER }.frame(&inner()))
                    .returns(),
            ],
        );
        let mut without = site.node_without_sockets(params(PolicyKind::Local));
        furnish(&mut without);
        check(&mut without, &[result("results need no socket", PORT).returns()]);
    });
}

#[test]
fn a_result_without_an_ethernet_header_is_truncated() {
    inside("a_result_without_an_ethernet_header_is_truncated", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let result = |length: usize| {
            let frame = Interconnect { kind: RESULT, ..HEADER }.frame(&inner()[..length]);
            Case::link(&format!("{length} bytes"), frame)
        };
        // The kernel cannot make a frame shorter than that, and would not send it.
        let mut cases: Vec<_> = (0..14).map(|length| result(length).drops(DropLinkTruncated)).collect();
        cases.push(result(14).returns());
        check(&mut node, &cases);
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
fn a_frame_of_an_old_boot_is_not_entered() {
    inside("a_frame_of_an_old_boot_is_not_entered", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        // "Frames with work that arrived from the node in that epoch": `LoadRow::received_frames`.
        check(&mut node, &[account("a frame from before the restart", (900, 5, 2), 4, 1_000, (900, 5, 2))]);
    });
}

fn report(header: Interconnect, body: &Load) -> Vec<u8> {
    Interconnect { kind: REPORT, ..header }.report(body)
}

/// What a report that is taken writes. `sent` is what this node has sent to the peer: ns, frames.
fn taken(case: Case, header: &Interconnect, body: &Load, acked: (u32, u32)) -> Case {
    let place = |offset| Place::load(header.source, offset);
    case.changes(place(offset_of!(LoadRow, backlog_ns)), two(body.backlog_ns, acked.0))
        .changes(
            place(offset_of!(LoadRow, queued_milli)),
            two(body.queued_milli, u32::from(body.workers) | u32::from(body.busy_milli) << 16),
        )
        .changes(place(offset_of!(LoadRow, acked_frames)), two(acked.1, 0))
        .changes(place(offset_of!(LoadRow, report_seq)), two(header.sequence, header.epoch))
        .changes(place(offset_of!(LoadRow, reports)), 1)
        .times(place(offset_of!(LoadRow, reported_at_ns)), 0)
        .times(place(offset_of!(LoadRow, valid_until_ns)), 5_000 * u64::from(body.interval_us.min(1_000_000)))
        .drops(ReportTaken)
}

fn position(case: Case, header: &Interconnect) -> Case {
    case.changes(received(header.source), two(header.position_ns, header.epoch))
}

#[test]
fn a_report_fills_the_row_of_its_sender() {
    inside("a_report_fills_the_row_of_its_sender", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let sent = |case: Case, ns: u64, frames: u64| {
            case.given(Place::load(NEAR, offset_of!(LoadRow, sent_ns)), ns)
                .given(Place::load(NEAR, offset_of!(LoadRow, sent_frames)), frames)
        };
        let case = |name: &str, header: Interconnect, body: &Load, acked| {
            let case = Case::link(name, report(header, body));
            sent(position(taken(case, &header, body, acked), &header), (3 << 32) + 50_000, (1 << 32) + 5)
        };
        let largest = Load {
            backlog_ns: u32::MAX,
            queued_milli: u32::MAX,
            received_ns: u32::MAX,
            received_frames: u32::MAX,
            busy_milli: u16::MAX,
            workers: u16::MAX,
            interval_us: u32::MAX,
            ..BODY
        };
        let least = Load { backlog_ns: 0, queued_milli: 0, busy_milli: 0, workers: 1, interval_us: 1, ..BODY };
        let from_far = Interconnect { source: FAR, ..HEADER };
        check(
            &mut node,
            &[
                case("it acknowledges what it has received", HEADER, &BODY, (40_000, 4)),
                case(
                    "of another boot of this node: nothing is in flight",
                    HEADER,
                    &Load { received_epoch: EPOCH - 1, ..BODY },
                    (50_000, 5),
                ),
                case(
                    "it has received nothing yet",
                    HEADER,
                    &Load { received_epoch: 0, received_ns: 0, received_frames: 0, ..BODY },
                    (50_000, 5),
                ),
                case("the largest numbers", HEADER, &largest, (u32::MAX, u32::MAX)),
                case("the least numbers", HEADER, &least, (40_000, 4)),
                position(
                    taken(Case::link("from another peer", report(from_far, &BODY)), &from_far, &BODY, (40_000, 4)),
                    &from_far,
                ),
                // Nothing was sent to it, so 40 µs acknowledged are what it says, not what we know.
                position(
                    taken(
                        Case::link("padded", [report(HEADER, &BODY), vec![0; 9]].concat()),
                        &HEADER,
                        &BODY,
                        (40_000, 4),
                    ),
                    &HEADER,
                ),
            ],
        );
    });
}

#[test]
fn reports_are_taken_in_order_of_boot_and_sequence() {
    inside("reports_are_taken_in_order_of_boot_and_sequence", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let before = |case: Case, sequence: u32, epoch: u32| {
            // The position of this boot is settled, so that only the report itself can change anything.
            case.given(Place::load(NEAR, offset_of!(LoadRow, report_seq)), two(sequence, epoch))
                .given(received(NEAR), two(HEADER.position_ns, epoch))
        };
        let fresh = |name: &str, stamp: (u32, u32), last: (u32, u32)| {
            let header = Interconnect { sequence: stamp.0, epoch: stamp.1, ..HEADER };
            let case = taken(Case::link(name, report(header, &BODY)), &header, &BODY, (40_000, 4));
            position(before(case, last.0, last.1), &header)
        };
        let old = |name: &str, stamp: (u32, u32), last: (u32, u32)| {
            let header = Interconnect { sequence: stamp.0, epoch: stamp.1, ..HEADER };
            before(Case::link(name, report(header, &BODY)), last.0, last.1).drops(DropReportOld)
        };
        check(
            &mut node,
            &[
                fresh("the next", (13, 5), (12, 5)),
                fresh("after some were lost", (500, 5), (12, 5)),
                fresh("across the wrap", (3, 5), (u32::MAX, 5)),
                fresh("a new boot counts from the start", (1, 6), (4_000_000, 5)),
                fresh("boots wrap, too", (1, 2), (9, u32::MAX)),
                old("the same again", (12, 5), (12, 5)),
                old("the one before", (11, 5), (12, 5)),
                old("before the wrap", (u32::MAX, 5), (3, 5)),
                old("of an old boot", (9_999, 4), (12, 5)),
            ],
        );
    });
}

#[test]
fn a_report_that_contradicts_itself_changes_nothing() {
    inside("a_report_that_contradicts_itself_changes_nothing", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let case = |name: &str, body: Load| Case::link(name, report(HEADER, &body)).drops(DropLinkTruncated);
        check(
            &mut node,
            &[
                case("no worker", Load { workers: 0, ..BODY }),
                case("no interval", Load { interval_us: 0, ..BODY }),
                Case::link("no body", Interconnect { kind: REPORT, ..HEADER }.frame(&[])).drops(DropLinkTruncated),
                Case::link("a body of zeros", Interconnect { kind: REPORT, ..HEADER }.frame(&[0; 28]))
                    .drops(DropLinkTruncated),
            ],
        );
        assert_eq!(report(HEADER, &BODY).len(), OVERHEAD + 28);
    });
}

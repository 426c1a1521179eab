//! `dp_link`: results that come back, their turn in their flow, and what they teach.

use std::mem::offset_of;

use dataplane_common::maps::{FlowRow, LoadRow, Params, SignalsRow};
use dataplane_common::order::{Released, SETTLE_NS};
use dataplane_common::policy::{Needs, PolicyKind, needing};
use dataplane_common::reason::Reason::*;
use dataplane_user::worker::monotonic_ns;

use super::case::{Case, FAR, NEAR, NO_FLOW, XDP_REDIRECT, check, furnish, node, node_with, params};
use super::peer::{HEADER, RESULT, inner};
use crate::support::frames::Interconnect;
use crate::support::node::{Arrival, LINK, Node, OTHER_PORT, PORT, STRANGER, inside};
use crate::support::words::{Place, two};

/// A slot of flows.
const FLOW: u16 = 4_711;

/// A result that teaches the least: its packet arrived in the future, so that the response took no time, and so did the
/// function.
const PLAIN: Interconnect = Interconnect { kind: RESULT, position_ns: 0, arrival_ns: u64::MAX, ..HEADER };

/// The first result of its node teaches this.
fn first(name: &str, header: &Interconnect, inner: &[u8]) -> Case {
    learned(Case::link(name, header.frame(inner)), header, (1, 1), 0, (1, inner.len() as u32))
}

/// A result is counted, and leaves behind means of response and service, speed, and means of the way and of lengths.
fn learned(case: Case, header: &Interconnect, means: (u32, u32), speed: u32, way: (u32, u32)) -> Case {
    let place = |offset| Place::load(header.source, offset);
    case.adds(place(offset_of!(LoadRow, completed_frames)), 1)
        .changes(place(offset_of!(LoadRow, response_ns)), two(means.0, means.1))
        .changes(place(offset_of!(LoadRow, mean_backlog_ns)), two(0, speed))
        .changes(place(offset_of!(LoadRow, transit_ns)), two(way.0, way.1))
}

#[test]
fn results_leave_by_the_port_they_name() {
    inside("results_leave_by_the_port_they_name", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let result = |name: &str, port: u32| {
            first(name, &Interconnect { port: port as u16, charged_ns: u32::MAX, ..PLAIN }, &inner())
        };
        let padded = [PLAIN.frame(&inner()[..20]), vec![0; 40]].concat();
        check(
            &mut node,
            &[
                result("a port", PORT).returns(),
                result("another port", OTHER_PORT).returns(),
                first("a type that this node does not have", &Interconnect { type_id: 51, ..PLAIN }, &inner())
                    .returns(),
                result("the link is no port", LINK).drops(DropLinkPort),
                result("no such port", 3).drops(DropLinkPort),
                result("beyond the table", 16).drops(DropLinkPort),
                result("the largest number", 0xffff).drops(DropLinkPort),
                learned(Case::link("padding travels", padded), &PLAIN, (1, 1), 0, (1, 20)).returns(),
                first("from another peer", &Interconnect { source: FAR, ..PLAIN }, &inner()).returns(),
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
        let name = |length: usize| format!("{length} bytes");
        // The kernel cannot make a frame shorter than that, and would not send it.
        let short = |length: usize| Case::link(&name(length), PLAIN.frame(&inner()[..length])).drops(DropLinkTruncated);
        let mut cases: Vec<_> = (1..14).map(short).collect();
        cases.push(first(&name(14), &PLAIN, &inner()[..14]).returns());
        check(&mut node, &cases);
    });
}

/// The next result of a flow to leave, and the number of the one that comes.
fn in_flow(name: &str, released: u64, header: &Interconnect) -> Case {
    first(name, header, &inner()).given(Place::flow(FLOW, offset_of!(FlowRow, released)), released)
}

fn numbered(flow_sequence: u32) -> Interconnect {
    Interconnect { flow: FLOW, flow_sequence, ..PLAIN }
}

/// It leaves, and the next one may.
fn in_turn(name: &str, released: u64) -> Case {
    in_flow(name, released, &numbered(released as u32)).releases(FLOW, (released as u32).wrapping_add(1))
}

fn late(name: &str, released: u64, number: u32) -> Case {
    in_flow(name, released, &numbered(number)).noting(NoteLate).returns()
}

fn early(name: &str, released: u64, header: Interconnect) -> Case {
    in_flow(name, released, &header).waits(&header)
}

#[test]
fn results_of_a_flow_leave_in_their_order() {
    inside("results_of_a_flow_leave_in_their_order", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let other = Interconnect { flow: FLOW + 1, flow_sequence: 0, ..PLAIN };
        let nowhere = |name: &str, flow: u16| {
            first(name, &Interconnect { flow, flow_sequence: 0, ..PLAIN }, &inner()).noting(NoteLate).returns()
        };
        let arrived = Interconnect { arrival_ns: 1 << 63 | 0x1234_5678_9abc, ..numbered(6) };
        let gone = Interconnect { port: 16, ..numbered(5) };
        check(
            &mut node,
            &[
                in_turn("the first", 0).returns(),
                in_turn("the next", 5).returns(),
                in_turn("numbers wrap", u64::from(u32::MAX)).returns(),
                in_turn("and go on", 0).returns(),
                early("one too early", 5, numbered(6)),
                early("as early as can be", 5, numbered(5 + (1 << 31) - 1)),
                early("across the wrap", u64::from(u32::MAX), numbered(0)),
                early("on queue 1", 5, numbered(6)).queue(1),
                early("when it arrived is in the metadata", 5, arrived),
                early("the port is looked at when it leaves", 5, Interconnect { port: 16, ..numbered(6) }),
                late("one too late", 5, 4),
                late("across the wrap", 0, u32::MAX),
                late("half of the circle away", 5, 5 + (1 << 31)),
                in_flow("of another flow", 5, &other).releases(FLOW + 1, 1).returns(),
                in_flow("of no flow", 5, &Interconnect { flow: NO_FLOW, ..numbered(9) }).returns(),
                nowhere("of a flow beyond the table", 8_192),
                nowhere("of the last flow before none", NO_FLOW - 1),
                in_flow("its port is gone: the next one may leave", 5, &gone).releases(FLOW, 6).drops(DropLinkPort),
            ],
        );
    });
}

/// A CPU that the program cannot take for its own.
const ELSEWHERE: u32 = u32::MAX;

#[test]
fn a_result_waits_until_the_one_that_another_cpu_released_has_left() {
    inside("a_result_waits_until_the_one_that_another_cpu_released_has_left", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let place = Place::flow(FLOW, offset_of!(FlowRow, released));
        let at = Arrival { interface: LINK, queue: 0, metadata: 0 };
        let frame = numbered(6).frame(&inner());
        // What this CPU has released is in front of it in the same queue; which one it is, the word then says.
        node.set(place, Released::by_worker(6).to_word());
        let run = |node: &mut Node<'_>, released: Released| {
            node.set(place, released.to_word());
            let queued = node.counter(ResultQueued);
            let outcome = node.run("dp_link", at, &frame);
            assert_eq!(outcome.verdict, XDP_REDIRECT);
            (node.counter(ResultQueued) > queued, outcome.time.1)
        };
        assert!(!run(&mut node, Released::by_worker(6)).0, "a worker has sent what it releases");
        let long_ago = monotonic_ns() - 2 * SETTLE_NS;
        assert!(!run(&mut node, Released::by_xdp(6, ELSEWHERE, long_ago)).0, "it has surely left");
        // A run may be interrupted for longer than that, but not every one.
        let waited = (0..200).any(|_| {
            let now_ns = monotonic_ns();
            let (waited, end_ns) = run(&mut node, Released::by_xdp(6, ELSEWHERE, now_ns));
            assert!(waited || end_ns - now_ns > SETTLE_NS - 2_048, "it left {} ns after", end_ns - now_ns);
            waited
        });
        assert!(waited);
        let same = (0..200).any(|_| {
            run(&mut node, Released::by_worker(6));
            let cpu = Released::from_word(node.get(place)).cpu().unwrap();
            !run(&mut node, Released::by_xdp(6, cpu, monotonic_ns())).0
        });
        assert!(same, "the same CPU follows at once");
    });
}

#[test]
fn a_mark_passes_its_turn_on_and_ends() {
    inside("a_mark_passes_its_turn_on_and_ends", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let mark_in = |name: &str, number: u32, frame: Vec<u8>| {
            Case::link(name, frame)
                .given(Place::flow(FLOW, offset_of!(FlowRow, released)), 5)
                .adds(Place::load(numbered(number).source, offset_of!(LoadRow, completed_frames)), 1)
        };
        let mark = |name: &str, number| mark_in(name, number, numbered(number).frame(&[]));
        let padded = [numbered(5).frame(&[]), vec![0; 40]].concat();
        let unordered = Interconnect { flow: NO_FLOW, ..numbered(5) }.frame(&[]);
        check(
            &mut node,
            &[
                mark("in turn", 5).releases(FLOW, 6).drops(MarkTaken),
                mark_in("padded", 5, padded).releases(FLOW, 6).drops(MarkTaken),
                mark("before its turn", 6).waits(&numbered(6)),
                mark("too late", 4).drops(MarkTaken),
                mark_in("of no flow", 5, unordered).drops(MarkTaken),
                mark("a queue without a worker", 6).queue(2).drops(MarkTaken),
            ],
        );
    });
}

#[test]
fn an_early_result_that_nobody_can_hold_leaves_at_once() {
    inside("an_early_result_that_nobody_can_hold_leaves_at_once", |site| {
        let mut with_sockets = node(site, PolicyKind::EptErl);
        let early = |name: &str| in_flow(name, 5, &numbered(6));
        check(
            &mut with_sockets,
            &[
                early("a queue without a worker").queue(2).noting(NoteLate).returns(),
                early("no room for metadata").metadata(200).drops(DropLinkHeadroom),
                early("an interface that is none of the node's").on(STRANGER).drops(DropLinkNoSocket),
            ],
        );
        let mut without = site.node_without_sockets(params(PolicyKind::Local));
        furnish(&mut without);
        check(
            &mut without,
            &[
                early("no socket").noting(NoteLate).returns(),
                in_turn("in turn, no socket", 5).returns(),
                in_flow("no socket and no port", 5, &Interconnect { port: 16, ..numbered(6) })
                    .noting(NoteLate)
                    .drops(DropLinkPort),
            ],
        );
    });
}

#[test]
fn a_result_teaches_how_fast_its_node_is() {
    inside("a_result_teaches_how_fast_its_node_is", |site| {
        let place = |offset| Place::load(NEAR, offset);
        let (response, speed, way) = (
            place(offset_of!(LoadRow, response_ns)),
            place(offset_of!(LoadRow, mean_backlog_ns)),
            place(offset_of!(LoadRow, transit_ns)),
        );
        let length = inner().len() as u32;
        let result = |name: &str, header: &Interconnect, means, speed_milli, way| {
            learned(Case::link(name, header.frame(&inner())), header, means, speed_milli, way).returns()
        };
        let served = |charged_ns, position_ns| Interconnect { charged_ns, position_ns, ..PLAIN };
        // A packet that arrived at the beginning of time.
        let old = Interconnect { arrival_ns: 0, ..served(5_000, 2_500) };
        let known = |name: &str, header: &Interconnect, means, speed_milli: u32, way_after| {
            result(name, header, means, speed_milli, way_after)
                .given(response, two(8_000, 800))
                .given(speed, two(77, 1_000))
                .given(way, two(6_400, 640))
                .changes(speed, two(77, speed_milli))
        };
        check(
            &mut node(site, PolicyKind::EptErl),
            &[
                // Twice as fast is a way of 1000 to go: a thirty-second of it, rounded up.
                result("twice as fast", &served(5_000, 2_500), (1, 2_500), 1_032, (1, length)),
                result("half as fast", &served(5_000, 10_000), (1, 10_000), 984, (1, length)),
                result("a hundred times as fast counts as twice", &served(5_000, 50), (1, 50), 1_032, (1, length)),
                result("preempted: counts as half as fast", &served(5_000, u32::MAX), (1, u32::MAX), 984, (1, length)),
                result("no charge tells nothing about speed", &served(0, 9), (1, 9), 0, (1, length)),
                result("the longest response", &old, (u32::MAX, 2_500), 1_032, (u32::MAX, length)),
                result(
                    "most of it was spent there",
                    &Interconnect { spent_ns: u32::MAX - 70, ..old },
                    (u32::MAX, 2_500),
                    1_032,
                    (70, length),
                ),
                // An eighth of the way to 0 and to 1600; a sixty-fourth of the way to 0 and to 98.
                known("means move", &served(5_000, 1_600), (7_000, 900), 1_032, (6_300, 631)),
                // Speed shares its word with what a report writes.
                known("memory stays", &served(5_000, 5_000), (7_000, 1_325), 1_000, (6_300, 631))
                    .given(speed, two(77, 1_000 | 55 << 16))
                    .changes(speed, two(77, 1_000 | 55 << 16)),
            ],
        );
    });
}

#[test]
fn policies_that_learn_from_results_remember_the_worst_response() {
    inside("policies_that_learn_from_results_remember_the_worst_response", |site| {
        let policies = needing(Needs::RESULTS) | PolicyKind::EptErl.bit();
        let mut node = node_with(site, Params { policies, ..params(PolicyKind::EptErl) });
        let peak = Place::load(NEAR, offset_of!(LoadRow, peak_ns));
        let service = Place::signals(offset_of!(SignalsRow, utilisation_milli));
        let old = Interconnect { arrival_ns: 0, ..PLAIN };
        let worst = |name: &str, header: &Interconnect, way| {
            learned(Case::link(name, header.frame(&inner())), header, (way, 1), 0, (way, inner().len() as u32))
                .returns()
        };
        check(
            &mut node,
            &[
                worst("the first", &PLAIN, 1).stamps(peak, 0),
                worst("a worse one is taken at once", &old, u32::MAX).given(peak, 8_000).stamps(peak, u32::MAX),
                // A mean service time of 10 ns makes 1 µs to forget in; the last response was an age ago.
                worst("a better one when the worst is forgotten", &PLAIN, 1)
                    .given(service, two(0, 10))
                    .given(peak, 8_000)
                    .stamps(peak, 0),
            ],
        );
    });
}

#[test]
fn a_series_of_results_converges() {
    inside("a_series_of_results_converges", |site| {
        const WAIT_NS: u64 = 50_000_000;
        const SPENT_NS: u32 = 20_000_000;
        let mut node = node(site, PolicyKind::EptErl);
        let at = Arrival { interface: LINK, queue: 0, metadata: 0 };
        let place = |offset| Place::load(NEAR, offset);
        let (mut speed, mut longest) = (1_000u64, 0);
        for round in 1..=300u64 {
            // Computed in 2 µs what this node estimates at 5: two and a half times as fast.
            let arrival_ns = monotonic_ns() - WAIT_NS;
            let header =
                Interconnect { charged_ns: 5_000, position_ns: 2_000, arrival_ns, spent_ns: SPENT_NS, ..PLAIN };
            let outcome = node.run("dp_link", at, &header.frame(&inner()));
            assert_eq!(outcome.verdict, XDP_REDIRECT);
            longest = longest.max(outcome.time.1 - arrival_ns);
            // No result counts for more than twice what is known.
            speed += (2_500.min(2 * speed) - speed).div_ceil(32);
            let words = node.words();
            let halves = |offset| (words.get(place(offset)) as u32, (words.get(place(offset)) >> 32) as u32);
            let (response_ns, service_ns) = halves(offset_of!(LoadRow, response_ns));
            assert!((WAIT_NS..=longest).contains(&response_ns.into()), "{response_ns} ns after {round} results");
            assert_eq!(service_ns, 2_000);
            let (way_ns, bytes) = halves(offset_of!(LoadRow, transit_ns));
            let ways = WAIT_NS - u64::from(SPENT_NS)..=longest - u64::from(SPENT_NS);
            assert!(ways.contains(&way_ns.into()), "{way_ns} ns on the way after {round} results");
            assert_eq!((bytes as usize, halves(offset_of!(LoadRow, mean_backlog_ns)).1 as u64), (inner().len(), speed));
            assert_eq!(words.get(place(offset_of!(LoadRow, completed_frames))), round);
        }
        assert_eq!(speed, 2_500);
    });
}

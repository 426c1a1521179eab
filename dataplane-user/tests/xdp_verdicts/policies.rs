//! `dp_ingress` and the first four policies: where a packet goes, and the frame that goes there.
//!
//! The packets are of 98 bytes; with the interconnect's 86 one travels as 184 bytes, so that forwarding costs 2 µs to
//! send, 3 µs to receive, 10 µs and 184 ns on the wire. A redirect must gain more than the margin of 500 ns besides.

use std::mem::offset_of;

use dataplane_common::maps::{LoadRow, Params, WorkerRow};
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::Reason::{DropAnepVersion, DropHeadroom, NoteTooLong, NoteTrailing, NoteUnreachable};
use dataplane_user::sys::NetDevice;

use super::case::{
    ABSENT, BYTES, Case, FAR, LIMIT_NS, MARGIN_NS, MAX_FRAME, NEAR, NODE, RECEIVE_NS, SEND_NS, TIMED, WIRE_NS,
    XDP_REDIRECT, check, furnish, node, node_with, params, peer,
};
use crate::support::frames::{Carrier, OVERHEAD, Packet, with};
use crate::support::node::{Arrival, OTHER_PORT, PORT, inside, ip};
use crate::support::words::Place;

const FORWARD_NS: u32 = SEND_NS + RECEIVE_NS + WIRE_NS + 98 + OVERHEAD as u32;
/// The least that the work here must exceed the work there by.
const GAIN_NS: u32 = FORWARD_NS + MARGIN_NS + 1;
/// Cost of the packets here, unless a case says otherwise.
const COST_NS: u32 = 100_000;

fn timed(ns: u32) -> Vec<u8> {
    let frame = Packet::new(TIMED).operand(ns).frame();
    assert_eq!(frame.len(), 98);
    frame
}

/// A packet of the usual cost.
fn case(name: &str) -> Case {
    Case::port(name, timed(COST_NS))
}

/// Shorthand for packets of the usual cost on queue 0.
trait Usual {
    /// With that much work here.
    fn busy(self, ns: u32) -> Self;
    /// With that many packets here, of 1 ns each.
    fn queued(self, packets: u64) -> Self;
    /// With a word of worker 0 set.
    fn worker(self, offset: usize, word: u64) -> Self;
    /// With a report of that node that is no longer good.
    fn stale(self, node: u16) -> Self;
    /// It stays here.
    fn here(self) -> Self;
    /// It goes to that node.
    fn to(self, node: u16) -> Self;
}

impl Usual for Case {
    fn busy(self, ns: u32) -> Self {
        self.backlog(0, ns.into(), 1)
    }

    fn queued(self, packets: u64) -> Self {
        self.backlog(0, packets, packets)
    }

    fn worker(self, offset: usize, word: u64) -> Self {
        self.given(Place::worker(0, offset), word)
    }

    fn stale(self, node: u16) -> Self {
        self.given(Place::load(node, offset_of!(LoadRow, valid_until_ns)), 1)
    }

    fn here(self) -> Self {
        self.stays(2, COST_NS)
    }

    fn to(self, node: u16) -> Self {
        self.goes_to(node, TIMED, COST_NS)
    }
}

#[test]
fn local_keeps_everything() {
    inside("local_keeps_everything", |site| {
        let cases = [
            case("much work here, others idle").busy(50_000_000).load(NEAR, 0, 0).load(FAR, 0, 0).here(),
            case("nothing to do").here(),
        ];
        check(&mut node(site, PolicyKind::Local), &cases);
        check(&mut node_with(site, Params { policy: 99, ..params(PolicyKind::Ept) }), &cases);
    });
}

/// What `ept` and `ept-erl` have in common: nothing is in flight.
fn common_to_both() -> Vec<Case> {
    let discharged = offset_of!(WorkerRow, discharged_ns);
    let in_service = |case: Case| {
        case.worker(offset_of!(WorkerRow, serving_since_ns), 1).worker(offset_of!(WorkerRow, serving_charge_ns), 1)
    };
    vec![
        case("nothing to do here").load(NEAR, 0, 0).here(),
        case("nobody has reported").busy(50_000_000).here(),
        case("just not worth it").busy(GAIN_NS - 1).load(NEAR, 0, 0).here(),
        case("just worth it").busy(GAIN_NS).load(NEAR, 0, 0).to(NEAR),
        case("just not worth it, with work there").busy(GAIN_NS + 39_999).load(NEAR, 40_000, 0).here(),
        case("just worth it, with work there").busy(GAIN_NS + 40_000).load(NEAR, 40_000, 0).to(NEAR),
        case("the one with less work").busy(200_000).load(NEAR, 10_000, 0).load(FAR, 9_999, 9).to(FAR),
        case("the other one").busy(200_000).load(NEAR, 9_999, 9).load(FAR, 10_000, 0).to(NEAR),
        case("a stale one is not chosen").busy(200_000).load(NEAR, 90_000, 1).load(FAR, 0, 0).stale(FAR).to(NEAR),
        case("the only one is stale").busy(200_000).load(FAR, 0, 0).stale(FAR).here(),
        case("this node's own row")
            .busy(200_000)
            .given(Place::load(NODE, offset_of!(LoadRow, queued_milli)), 1 << 32)
            .here(),
        case("the best is no peer").busy(200_000).load(ABSENT, 0, 0).load(NEAR, 1, 0).noting(NoteUnreachable).here(),
        case("all of the work is done").busy(900_000).load(NEAR, 0, 0).worker(discharged, 900_000).here(),
        case("most of the work is done")
            .busy(900_000)
            .load(NEAR, 0, 0)
            .worker(discharged, 900_000 - u64::from(GAIN_NS))
            .to(NEAR),
        in_service(case("the packet in service is almost done").busy(GAIN_NS).load(NEAR, 0, 0)).here(),
        in_service(case("an overrun is not negative work").busy(GAIN_NS + 1).load(NEAR, 0, 0)).to(NEAR),
        case("another worker is busy").backlog(1, 50_000_000, 9).load(NEAR, 0, 0).here(),
        case("this worker is busy").backlog(1, 50_000_000, 9).queue(1).load(NEAR, 0, 0).to(NEAR),
    ]
}

/// Packets for which a redirect costs as much CPU as it moves stay.
fn guarded() -> Vec<Case> {
    let cost = |name: &str, ns: u32| Case::port(name, timed(ns)).busy(10_000_000).load(NEAR, 0, 0);
    vec![
        cost("costs what a redirect costs", SEND_NS + RECEIVE_NS).stays(2, SEND_NS + RECEIVE_NS),
        cost("costs a little more", SEND_NS + RECEIVE_NS + 1).goes_to(NEAR, TIMED, SEND_NS + RECEIVE_NS + 1),
        cost("costs all that is allowed", LIMIT_NS).goes_to(NEAR, TIMED, LIMIT_NS),
    ]
}

#[test]
fn ept_weighs_the_work_here_and_there_and_the_way() {
    inside("ept_weighs_the_work_here_and_there_and_the_way", |site| {
        let sent = Place::load(NEAR, offset_of!(LoadRow, sent_ns));
        let mut cases = common_to_both();
        cases.extend(guarded());
        // Reports are taken at face value: what was sent since does not count.
        cases
            .push(case("much in flight").busy(200_000).load(NEAR, 0, 0).load(FAR, 10, 0).given(sent, 1 << 30).to(NEAR));
        check(&mut node(site, PolicyKind::Ept), &cases);
    });
}

#[test]
fn ept_erl_adds_what_is_in_flight() {
    inside("ept_erl_adds_what_is_in_flight", |site| {
        let place = |offset| Place::load(NEAR, offset);
        let in_flight = |name: &str, sent_ns: u64, acked_ns: u32, workers: u64| {
            // Backlog and acknowledged position share a word, and so do run queue and workers.
            case(name)
                .load(NEAR, 0, 0)
                .given(place(offset_of!(LoadRow, sent_ns)), sent_ns)
                .given(place(offset_of!(LoadRow, backlog_ns)), u64::from(acked_ns) << 32)
                .given(place(offset_of!(LoadRow, queued_milli)), workers << 32)
        };
        let wrapped = |name: &str| in_flight(name, (7 << 32) + 10, u32::MAX - 9, 1);
        let mut cases = common_to_both();
        cases.extend(guarded());
        cases.extend([
            in_flight("70 ns in flight", 1070, 1000, 1).busy(GAIN_NS + 70).to(NEAR),
            in_flight("70 ns in flight are too much", 1070, 1000, 1).busy(GAIN_NS + 69).here(),
            in_flight("shared by two workers", 1071, 1000, 2).busy(GAIN_NS + 35).to(NEAR),
            in_flight("shared by two workers, too much", 1071, 1000, 2).busy(GAIN_NS + 34).here(),
            wrapped("positions have wrapped").busy(GAIN_NS + 20).to(NEAR),
            wrapped("positions have wrapped, too much").busy(GAIN_NS + 19).here(),
            in_flight("acknowledged before it was seen sent", 1000, 1070, 1).busy(GAIN_NS).to(NEAR),
            in_flight("in flight to the one, backlog at the other", 60_000, 0, 1)
                .busy(200_000)
                .load(FAR, 59_999, 0)
                .to(FAR),
        ]);
        check(&mut node(site, PolicyKind::EptErl), &cases);
    });
}

#[test]
fn ept_erl_does_not_send_everything_to_one_node() {
    inside("ept_erl_does_not_send_everything_to_one_node", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        for id in [NEAR, FAR] {
            node.set_load(id, &LoadRow { workers: 1, valid_until_ns: u64::MAX, ..LoadRow::default() });
        }
        node.set(Place::worker(0, offset_of!(WorkerRow, charged_ns)), 50_000_000);
        let at = Arrival { interface: PORT, queue: 0, metadata: 0 };
        for round in 1..=20 {
            // Two packets: whichever node gets the first, the other one gets the second.
            for _ in 0..2 {
                assert_eq!(node.run("dp_ingress", at, &timed(COST_NS)).verdict, XDP_REDIRECT);
            }
            for id in [NEAR, FAR] {
                let words = node.words();
                let sent = words.get(Place::load(id, offset_of!(LoadRow, sent_ns)));
                let frames = words.get(Place::load(id, offset_of!(LoadRow, sent_frames)));
                assert_eq!((sent, frames), (round * u64::from(COST_NS), round), "node {id}, round {round}");
            }
        }
    });
}

#[test]
fn cpu_load_counts_packets_and_nothing_else() {
    inside("cpu_load_counts_packets_and_nothing_else", |site| {
        let discharged = offset_of!(WorkerRow, discharged_packets);
        check(
            &mut node(site, PolicyKind::CpuLoad),
            &[
                case("nothing to do here").load(NEAR, 0, 0).here(),
                case("nobody has reported").queued(9).here(),
                case("one packet fewer there").queued(3).load(NEAR, 0, 2).to(NEAR),
                case("as many there").queued(3).load(NEAR, 0, 3).here(),
                case("the shortest run queue").queued(9).load(NEAR, 0, 2).load(FAR, u32::MAX, 1).to(FAR),
                case("a stale one is not chosen").queued(9).load(NEAR, 0, 8).load(FAR, 0, 0).stale(FAR).to(NEAR),
                case("the shortest run queue is no peer's")
                    .queued(9)
                    .load(ABSENT, 0, 0)
                    .load(NEAR, 0, 1)
                    .noting(NoteUnreachable)
                    .here(),
                Case::port("a packet that costs 1 ns", timed(1)).queued(1).load(NEAR, 0, 0).goes_to(NEAR, TIMED, 1),
                case("work without packets").backlog(0, 50_000_000, 0).load(NEAR, 0, 0).here(),
                case("all packets are done").queued(4).load(NEAR, 0, 0).worker(discharged, 4).here(),
                case("one packet is left").queued(4).load(NEAR, 0, 0).worker(discharged, 3).to(NEAR),
                case("this worker is busy").backlog(1, 1, 1).queue(1).load(NEAR, 0, 0).to(NEAR),
                case("another worker is busy").backlog(1, 1, 9).load(NEAR, 0, 0).here(),
            ],
        );
    });
}

#[test]
fn what_is_forwarded_arrives_as_it_came_with_the_header_in_front() {
    inside("what_is_forwarded_arrives_as_it_came_with_the_header_in_front", |site| {
        let mut node = node(site, PolicyKind::CpuLoad);
        let (sent_ns, frames) = (offset_of!(LoadRow, sent_ns), offset_of!(LoadRow, sent_frames));
        let case = |name: &str, packet: Packet| {
            Case::port(name, packet.frame()).load(FAR, 0, 0).backlog(0, 1, 1).backlog(1, 1, 1)
        };
        let base = || Packet::new(BYTES);
        let (fits, too_long) = (MAX_FRAME - OVERHEAD - 50, MAX_FRAME - OVERHEAD - 49);
        let bad = Packet { vlans: 1, ..base() };
        check(
            &mut node,
            &[
                case("IPv6, two tags", Packet { v6: true, vlans: 2, ..base() }).goes_to(FAR, BYTES, 1040),
                case("protocol 107", Packet { carrier: Carrier::Protocol107, ..base() }).goes_to(FAR, BYTES, 1040),
                case("trailing bytes travel, and are noted", Packet { trailing: 5, ..base() })
                    .noting(NoteTrailing)
                    .goes_to(FAR, BYTES, 1040),
                case("from queue 1", base()).queue(1).goes_to(FAR, BYTES, 1040),
                case("from another port", base()).on(OTHER_PORT).goes_to(FAR, BYTES, 1040),
                case("metadata of a driver stays behind it", base()).metadata(8).goes_to(FAR, BYTES, 1040),
                case("an account that has begun", base())
                    .given(Place::load(FAR, sent_ns), 123_456)
                    .given(Place::load(FAR, frames), 70_000)
                    .goes_to(FAR, BYTES, 1040),
                case("an account that wraps its low halves", base())
                    .given(Place::load(FAR, sent_ns), u64::from(u32::MAX) - 39)
                    .given(Place::load(FAR, frames), u64::from(u32::MAX))
                    .goes_to(FAR, BYTES, 1040),
                case("as long as the link carries", base().payload_of(fits)).goes_to(FAR, BYTES, 1000 + fits as u32),
                case("one byte longer", base().payload_of(too_long))
                    .noting(NoteTooLong)
                    .stays(0, 1000 + too_long as u32),
                case("no room for the header", base()).metadata(212).noting(NoteUnreachable).drops(DropHeadroom),
                Case::port("what is malformed is not forwarded", with(bad.frame(), bad.anep(), &[0]))
                    .load(FAR, 0, 0)
                    .backlog(0, 1, 1)
                    .drops(DropAnepVersion),
            ],
        );
    });
}

#[test]
fn forwarding_needs_a_way_but_no_socket() {
    inside("forwarding_needs_a_way_but_no_socket", |site| {
        const CUT_OFF: u16 = 6;
        ip("link add gone type veth peer name gone2");
        let gone = NetDevice::find("gone").expect("just made").index;
        let mut without = site.node_without_sockets(params(PolicyKind::Ept));
        furnish(&mut without);
        check(&mut without, &[case("no socket").busy(200_000).load(NEAR, 0, 0).to(NEAR)]);
        let mut node = node(site, PolicyKind::Ept);
        node.object.set_peer(CUT_OFF, gone, peer(CUT_OFF)).expect("the interface is there");
        node.set_roster(&[NEAR, CUT_OFF]);
        let best = |name: &str| case(name).busy(200_000).load(CUT_OFF, 0, 0).load(NEAR, 1, 0);
        check(&mut node, &[best("another link").to(CUT_OFF)]);
        ip("link del gone");
        check(&mut node, &[best("its interface is gone").noting(NoteUnreachable).here()]);
    });
}

#[test]
fn without_the_guard_only_time_counts() {
    inside("without_the_guard_only_time_counts", |site| {
        let mut node = node_with(site, Params { guard: 0, ..params(PolicyKind::EptErl) });
        let case = |name: &str, ns| Case::port(name, timed(1)).load(NEAR, 0, 0).backlog(0, ns, 1);
        check(
            &mut node,
            &[
                case("a packet of 1 ns, worth it", u64::from(GAIN_NS)).goes_to(NEAR, TIMED, 1),
                case("not worth it", u64::from(GAIN_NS) - 1).stays(2, 1),
            ],
        );
    });
}

//! Packets that workers place, and results that leave elsewhere than they came from.

use dataplane_common::maps::{
    FUNCTION_DIRECT, FUNCTION_WORKER, FlowRow, FunctionRow, LoadRow, ORDER_AFFINE, ORDER_FLOW, ORDER_NONE, SignalsRow,
};
use dataplane_common::policy::PolicyKind;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{FLAG_DIRECT, Header, Kind, OVERHEAD_BYTES};

use super::*;
use crate::ways::LiveWays;

/// The peer that may take packets.
pub(super) const NEAR: u16 = 1;
/// Work of a packet, ns: far more than a redirect costs.
pub(super) const LONG_NS: u32 = 200_000;

/// A worker that places the packets of all functions by least work, with a peer that is idle.
pub(super) fn rig(order: u32, flags: u32, change: impl FnOnce(&mut Settings)) -> Rig {
    rig_of(PolicyKind::LeastWork, order, flags, change)
}

/// The same by another policy.
fn rig_of(policy: PolicyKind, order: u32, flags: u32, change: impl FnOnce(&mut Settings)) -> Rig {
    let mut rig = Rig::set_up(
        256,
        |settings| {
            settings.params.policies = policy.bit();
            change(settings);
        },
        |tables| {
            for (index, builtin) in (0..).zip(Builtin::ALL) {
                let row = tables.functions.row(function_slot(index, WORKER));
                set(row, offset_of!(FunctionRow, type_id), builtin.type_id().into());
                set(row, offset_of!(FunctionRow, policy), pair(policy as u32, 0));
                set(row, offset_of!(FunctionRow, order), pair(order, flags));
            }
            tables.roster.row(0).word(0).store(NEAR.into(), Relaxed);
            set(tables.signals.row(0), offset_of!(SignalsRow, arrivals_q32), pair(0, 1));
        },
    );
    report(&mut rig, u64::MAX);
    rig
}

/// The peer has reported that it is idle, until then.
pub(super) fn report(rig: &mut Rig, valid_until_ns: u64) {
    let row = rig.tables.load.row(NEAR.into());
    set(row, offset_of!(LoadRow, queued_milli), pair(0, 1));
    set(row, offset_of!(LoadRow, valid_until_ns), valid_until_ns);
}

/// Packet `number` arrives at the port.
pub(super) fn arrives(rig: &mut Rig, number: u8) {
    let charged = rig.charge(PORT, LONG_NS);
    let metadata = Metadata { flow_sequence: number.into(), ..rig.metadata(PORT, charged, Builtin::Forward) };
    assert!(rig.kernels[PORT].deliver_with_metadata(&metadata.emit(), &question(number).frame()));
}

pub(super) fn question(number: u8) -> Packet {
    Packet { payload: vec![number; 8], ..Packet::new(Builtin::Forward.type_id()) }
}

pub(super) fn header(frame: &[u8]) -> Header {
    Header::parse(frame, ETHERNET_BYTES).unwrap()
}

#[test]
fn a_flow_stays_where_it_does_not_overtake_itself() {
    let mut rig = rig_of(PolicyKind::Sooner, ORDER_FLOW, FUNCTION_WORKER, |_| {});
    let flow = 5;
    let end = |rig: &Rig| rig.tables.flows.row(flow).word(offset_of!(FlowRow, expected_ns)).load(Relaxed);
    let before_ns = monotonic_ns();
    let arrives = |rig: &mut Rig, number: u8| {
        let charged = rig.charge(PORT, LONG_NS);
        let given = rig.metadata(PORT, charged, Builtin::Forward);
        let metadata = Metadata { flow: flow as u16, flow_sequence: number.into(), ..given };
        assert!(rig.kernels[PORT].deliver_with_metadata(&metadata.emit(), &question(number).frame()));
    };
    (0..2).for_each(|number| arrives(&mut rig, number));
    rig.worker.step();
    assert_eq!((rig.take(PORT).len(), rig.take(LINK).len()), (1, 1), "the second one is done sooner there");
    let done_ns = end(&rig);
    assert!(done_ns >= before_ns + u64::from(LONG_NS) && done_ns <= monotonic_ns() + 2 * u64::from(LONG_NS));
    // The result of that one has come. Nothing more is done before another time, wherever it is computed.
    set(rig.tables.flows.row(flow), offset_of!(FlowRow, released), 2);
    set(rig.tables.flows.row(flow), offset_of!(FlowRow, expected_ns), monotonic_ns() + 1_000_000_000_000);
    (2..4).for_each(|number| arrives(&mut rig, number));
    rig.worker.step();
    assert_eq!(rig.take(LINK).len(), 0, "a redirect would gain nothing");
    rig.finish();
}

#[test]
fn a_packet_behind_others_goes_to_an_idle_node() {
    let mut rig = rig(ORDER_NONE, FUNCTION_WORKER, |_| {});
    for number in 0..2 {
        arrives(&mut rig, number);
    }
    rig.worker.step();
    assert_eq!(rig.take(PORT), [question(0).answer(&[]).frame()], "the first finds nothing in front of it");
    let sent = rig.take(LINK);
    assert_eq!(sent.len(), 1);
    let found = header(&sent[0]);
    assert_eq!((found.kind, found.source, found.destination), (Kind::Forward, NODE, NEAR));
    assert_eq!((found.charged_ns, found.position_ns, found.sequence), (LONG_NS, LONG_NS, 1));
    assert_eq!((found.flow_sequence, found.port, found.flags), (1, PORT as u16, 0));
    assert_eq!(sent[0][OVERHEAD_BYTES..], question(1).frame());
    rig.counted(&[(Reason::SeenLocal, 2), (Reason::SentResult, 1), (Reason::SentForward, 1)]);
    rig.finish();
}

#[test]
fn a_packet_stays_when_the_function_the_peer_or_the_frame_says_so() {
    type Change = fn(&mut Rig);
    let nothing: Change = |_| {};
    let no_credit: Change = |rig| {
        let limit = pair(LONG_NS - 1, 1);
        set(rig.tables.load.row(NEAR.into()), offset_of!(LoadRow, limit_ns), limit);
    };
    let narrow: Change = |rig| {
        rig.worker.settings.ways = Arc::new(Ways::new([Way { max_frame: 100, ..way(NEAR) }]));
    };
    let nowhere: Change = |rig| rig.worker.settings.ways = Arc::default();
    let silent: Change = |rig| report(rig, 0);
    for (what, order, flags, change, note) in [
        ("XDP decides", ORDER_NONE, 0, nothing, None),
        ("affine", ORDER_AFFINE, FUNCTION_WORKER, nothing, None),
        ("no credit", ORDER_NONE, FUNCTION_WORKER, no_credit, Some(Reason::NoteNoCredit)),
        ("narrow link", ORDER_NONE, FUNCTION_WORKER, narrow, Some(Reason::NoteTooLong)),
        ("no way", ORDER_NONE, FUNCTION_WORKER, nowhere, Some(Reason::NoteUnreachable)),
        ("silent", ORDER_NONE, FUNCTION_WORKER, silent, None),
    ] {
        let mut rig = rig(order, flags, |_| {});
        change(&mut rig);
        for number in 0..2 {
            arrives(&mut rig, number);
        }
        while rig.worker.step() > 0 {}
        assert_eq!(rig.take(PORT).len(), 2, "{what}");
        assert!(rig.take(LINK).is_empty(), "{what}");
        let mut expected = vec![(Reason::SeenLocal, 2), (Reason::SentResult, 2)];
        expected.extend(note.map(|note| (note, 1)));
        rig.counted(&expected);
        rig.finish();
    }
}

#[test]
fn ways_are_taken_while_the_worker_runs() {
    let mut rig = rig(ORDER_NONE, FUNCTION_WORKER, |_| {});
    let live = Arc::new(LiveWays::default());
    rig.worker.follow_ways(Arc::clone(&live));
    for (number, ways, away) in [(0, vec![], 0), (2, vec![way(NEAR)], 1), (4, vec![], 0)] {
        live.store(Arc::new(Ways::new(ways)));
        for number in number..number + 2 {
            arrives(&mut rig, number);
        }
        while rig.worker.step() > 0 {}
        assert_eq!(rig.take(LINK).len(), away, "from packet {number}");
        assert_eq!(rig.take(PORT).len(), 2 - away, "from packet {number}");
    }
    rig.finish();
}

#[test]
fn credit_is_used_up_to_its_last_nanosecond() {
    let mut rig = rig(ORDER_NONE, FUNCTION_WORKER, |_| {});
    set(rig.tables.load.row(NEAR.into()), offset_of!(LoadRow, limit_ns), pair(LONG_NS, 1));
    // The third finds as much work here as there, the fourth more.
    for number in 0..4 {
        arrives(&mut rig, number);
    }
    while rig.worker.step() > 0 {}
    assert_eq!(rig.take(LINK).len(), 1);
    rig.counted(&[
        (Reason::SeenLocal, 4),
        (Reason::SentResult, 3),
        (Reason::SentForward, 1),
        (Reason::NoteNoCredit, 1),
    ]);
    rig.finish();
}

#[test]
fn a_direct_result_leaves_by_the_egress_and_a_mark_goes_home() {
    for next_hop in [None, Some([2, 0, 0, 0, 0, 0xfe])] {
        let mac = [2, 0, 0, 0, 0xe, 0xe];
        let egress = Egress { interface: PORT as u32, mac, next_hop };
        let mut rig = rig(ORDER_NONE, FUNCTION_DIRECT, |settings| settings.egress = Some(egress));
        let packet = question(3);
        rig.deliver(
            LINK,
            4_321,
            Builtin::Forward,
            &Interconnect { flags: FLAG_DIRECT, ..FORWARD }.frame(&packet.frame()),
        );
        rig.worker.step();
        let mut expected = packet.answer(&[]).frame();
        if let Some(next_hop) = next_hop {
            expected[..6].copy_from_slice(&next_hop);
        }
        expected[6..12].copy_from_slice(&mac);
        assert_eq!(rig.take(PORT), [expected]);
        let marks = rig.take(LINK);
        assert_eq!(marks.len(), 1);
        let mark = header(&marks[0]);
        assert_eq!(
            (mark.kind, mark.length, mark.flags, mark.destination),
            (Kind::Result, 0, FLAG_DIRECT, FORWARD.source)
        );
        rig.counted(&[(Reason::SeenForwarded, 1), (Reason::SentResult, 1), (Reason::NoteMarkSent, 1)]);
        rig.finish();
    }
}

#[test]
fn a_direct_result_goes_home_where_there_is_no_egress() {
    let mut rig = rig(ORDER_NONE, 0, |_| {});
    let forward = Interconnect { flags: FLAG_DIRECT, ..FORWARD };
    rig.deliver(LINK, 4_321, Builtin::Forward, &forward.frame(&question(3).frame()));
    rig.worker.step();
    let sent = rig.take(LINK);
    assert_eq!((sent.len(), header(&sent[0]).flags), (1, 0));
    assert_eq!(sent[0][OVERHEAD_BYTES..], question(3).answer(&[]).frame());
    rig.finish();
}

#[test]
fn a_result_for_nobody_is_dropped_under_its_name() {
    let mut rig = rig(ORDER_NONE, 0, |settings| settings.ways = Arc::default());
    rig.deliver(LINK, 4_321, Builtin::Forward, &FORWARD.frame(&question(3).frame()));
    rig.worker.step();
    rig.counted(&[(Reason::SeenForwarded, 1), (Reason::DropNoWay, 1)]);
    rig.finish();
}

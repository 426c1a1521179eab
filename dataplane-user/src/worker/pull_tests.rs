//! How idle workers ask for work, and what busy ones give.

use dataplane_common::maps::{FunctionRow, LoadRow, SignalsRow};
use dataplane_common::tuning::SHORTEST;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{Header, Kind, OVERHEAD_BYTES};

use super::*;
use crate::ways::{Way, Ways};
use crate::worker::pull::Pulling;

/// The peers that may ask and be asked.
const NEAR: u16 = 1;
const FAR: u16 = 3;
const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const LINK_MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];
const NOBODY: [u16; 0] = [];
/// Long enough to be worth a move at the costs below.
const LONG_NS: u32 = 50_000;

fn way(node: u16) -> Way {
    let mac = [2, 0, 0, 0, 0, node as u8];
    Way { node, interface: LINK as u32, mac, source_mac: LINK_MAC, max_frame: 1_514, route: None }
}

fn rig(discipline: u32) -> Rig {
    let mut rig = Rig::with(256, CHECKS, discipline);
    rig.worker.settings.ways = Arc::new(Ways::new([way(NEAR), way(FAR)]));
    rig.worker.queue = crate::worker::order::queue(discipline, FRAMES, true);
    rig.worker.pulling = Some(Pulling::new());
    set(rig.tables.signals.row(0), offset_of!(SignalsRow, send_ns), pair(500, 500));
    set(rig.tables.signals.row(0), offset_of!(SignalsRow, wire_ns), pair(2_000, 0));
    for (index, builtin) in (0..).zip(Builtin::ALL) {
        let row = rig.tables.functions.row(function_slot(index, WORKER));
        set(row, offset_of!(FunctionRow, type_id), builtin.type_id().into());
    }
    rig
}

/// A fresh report of `node`: packets at a worker, and their work.
fn report(rig: &Rig, node: u16, packets: u32, backlog_ns: u32) {
    let row = rig.tables.load.row(node.into());
    set(row, offset_of!(LoadRow, queued_milli), pair(packets * 1000, 1));
    set(row, offset_of!(LoadRow, backlog_ns), pair(backlog_ns, 0));
    set(row, offset_of!(LoadRow, valid_until_ns), u64::MAX);
}

/// Has the worker look for work as it does when it is idle; where it asked.
fn asks(rig: &mut Rig) -> Vec<u16> {
    rig.worker.pulling.as_mut().unwrap().rest_over();
    rig.worker.ask_for_work();
    rig.take(LINK).iter().map(|frame| header(frame).destination).collect()
}

fn header(frame: &[u8]) -> Header {
    Header::parse(frame, ETHERNET_BYTES).unwrap()
}

/// A request for work arrives.
fn requested_by(rig: &mut Rig, node: u16) {
    let charged = rig.charge(LINK, 0);
    let metadata = Metadata { origin: Origin::Pull, ..rig.metadata(LINK, charged, Builtin::Forward) };
    let frame = Interconnect { kind: 4, source: node, destination: NODE, ..FORWARD }.frame(&[]);
    assert!(rig.kernels[LINK].deliver_with_metadata(&metadata.emit(), &frame));
}

/// A packet of `flow` arrives at the port or from a peer, number `number` in its flow.
fn arrives(rig: &mut Rig, socket: usize, ns: u32, (flow, number): (u16, u32)) {
    let charged = rig.charge(socket, ns);
    let arrival_16ns = Metadata::arrival_of(rig.start_ns + 1_000 * u64::from(number));
    let metadata =
        Metadata { flow, flow_sequence: number, arrival_16ns, ..rig.metadata(socket, charged, Builtin::Forward) };
    let inner = Packet { payload: vec![number as u8; 8], ..Packet::new(0xff01) }.frame();
    let frame = if socket == PORT { inner } else { FORWARD.frame(&inner) };
    assert!(rig.kernels[socket].deliver_with_metadata(&metadata.emit(), &frame));
}

#[test]
fn an_idle_worker_asks_the_busiest_peer_where_packets_wait() {
    let mut rig = rig(FIFO);
    assert_eq!(asks(&mut rig), NOBODY, "nobody has reported");
    report(&rig, NEAR, 1, 900_000);
    assert_eq!(asks(&mut rig), NOBODY, "the one in service stays");
    report(&rig, FAR, 2, 200_000);
    assert_eq!(asks(&mut rig), [FAR]);
    report(&rig, NEAR, 5, 300_000);
    assert_eq!(asks(&mut rig), [NEAR]);
    set(rig.tables.load.row(NEAR.into()), offset_of!(LoadRow, valid_until_ns), 1);
    assert_eq!(asks(&mut rig), [FAR], "a silent node is not asked");
    report(&rig, FAR, u32::MAX / 1000, u32::MAX);
    set(rig.tables.load.row(FAR.into()), offset_of!(LoadRow, queued_milli), pair(u32::MAX, 1));
    assert_eq!(asks(&mut rig), NOBODY, "a stopping node says that it is full");
    rig.counted(&[(Reason::NotePullSent, 3)]);
    rig.finish();
}

#[test]
fn a_request_says_who_asks_and_how_loaded_it_is() {
    let mut rig = rig(FIFO);
    report(&rig, NEAR, 3, 100_000);
    set(rig.tables.load.row(NEAR.into()), offset_of!(LoadRow, sent_ns), 77);
    set(rig.tables.load.row(NEAR.into()), offset_of!(LoadRow, received_ns), pair(55, 0x1_0009));
    rig.worker.ask_for_work();
    let sent = rig.take(LINK);
    assert_eq!(sent[0].len(), OVERHEAD_BYTES);
    assert_eq!((&sent[0][..6], &sent[0][6..12]), (&NEAR_MAC[..], &LINK_MAC[..]));
    let found = header(&sent[0]);
    assert_eq!((found.kind, found.source, found.destination, found.epoch), (Kind::Pull, NODE, NEAR, EPOCH));
    assert_eq!((found.length, found.charged_ns, found.position_ns, found.flow), (0, 0, 77, NO_FLOW));
    assert_eq!((found.load.received_ns, found.load.received_epoch, found.load.queued), (55, 9, 0));
    // And it rests before the next one.
    rig.worker.ask_for_work();
    assert!(rig.take(LINK).is_empty());
    rig.finish();
}

#[test]
fn nobody_asks_who_has_not_been_told_to() {
    let mut rig = Rig::new();
    report(&rig, NEAR, 9, 900_000);
    rig.worker.ask_for_work();
    requested_by(&mut rig, NEAR);
    rig.worker.step();
    assert!(rig.take(LINK).is_empty());
    rig.counted(&[(Reason::SeenPull, 1), (Reason::PullRefused, 1)]);
    rig.finish();
}

#[test]
fn who_is_asked_gives_the_packet_whose_move_gains_most() {
    let mut rig = rig(FIFO);
    for (number, ns) in (0..).zip([LONG_NS, 4 * LONG_NS, LONG_NS, LONG_NS]) {
        arrives(&mut rig, PORT, ns, (number as u16, number));
    }
    requested_by(&mut rig, NEAR);
    rig.worker.step();
    let sent = rig.take(LINK);
    assert_eq!(sent.len(), 1);
    // Two wait behind the long one.
    let (found, inner) = (header(&sent[0]), &sent[0][OVERHEAD_BYTES..]);
    assert_eq!((found.kind, found.source, found.destination, found.hops), (Kind::Forward, NODE, NEAR, 1));
    assert_eq!((found.charged_ns, found.position_ns, found.sequence), (4 * LONG_NS, 4 * LONG_NS, 1));
    assert_eq!((found.type_id, found.port, found.flow, found.flow_sequence), (0xff01, PORT as u16, 1, 1));
    assert_eq!(found.arrival_ns, (rig.start_ns + 1_000) >> 4 << 4);
    assert_eq!((usize::from(found.length), inner[inner.len() - 1]), (inner.len(), 1));
    assert_eq!(rig.tables.load.row(NEAR.into()).word(offset_of!(LoadRow, sent_frames)).load(Relaxed), 1);
    while rig.worker.step() > 0 {}
    assert_eq!(rig.left(), (0, 0), "what is given away is no work here any more");
    rig.worker.release_held(u64::MAX);
    rig.worker.flush_all();
    rig.counted(&[
        (Reason::SeenLocal, 4),
        (Reason::SeenPull, 1),
        (Reason::SentForward, 1),
        (Reason::PullAnswered, 1),
        (Reason::SentResult, 3),
        (Reason::NoteOutOfOrder, 2),
    ]);
    rig.take(PORT);
    rig.finish();
}

#[test]
fn every_discipline_gives() {
    for discipline in [FIFO, SHORTEST, CLASS] {
        let mut rig = rig(discipline);
        (0..3).for_each(|number| arrives(&mut rig, PORT, LONG_NS, (NO_FLOW, number)));
        requested_by(&mut rig, FAR);
        while rig.worker.step() > 0 {}
        assert_eq!(header(&rig.take(LINK)[0]).destination, FAR);
        assert_eq!((rig.left(), rig.take(PORT).len()), ((0, 0), 2));
        rig.finish();
    }
}

#[test]
fn who_asked_in_vain_gets_the_first_packet_worth_a_move() {
    let mut rig = rig(FIFO);
    requested_by(&mut rig, NEAR);
    requested_by(&mut rig, FAR);
    requested_by(&mut rig, NEAR);
    rig.worker.step();
    rig.counted(&[(Reason::SeenPull, 3), (Reason::PullRefused, 3)]);
    // The slow machine a test runs on is no reason to forget.
    let pulling = rig.worker.pulling.as_mut().unwrap();
    pulling.remember_for_long();
    (0..4).for_each(|number| arrives(&mut rig, PORT, LONG_NS, (NO_FLOW, number)));
    while rig.worker.step() > 0 {}
    let destinations: Vec<_> = rig.take(LINK).iter().map(|frame| header(frame).destination).collect();
    assert_eq!(destinations, [FAR, NEAR], "each once, the first who asked last is last");
    assert_eq!((rig.left(), rig.take(PORT).len()), ((0, 0), 2));
    rig.finish();
}

#[test]
fn nobody_is_remembered_for_long() {
    let mut rig = rig(FIFO);
    requested_by(&mut rig, NEAR);
    rig.worker.step();
    std::thread::sleep(Duration::from_millis(1));
    (0..4).for_each(|number| arrives(&mut rig, PORT, LONG_NS, (NO_FLOW, number)));
    while rig.worker.step() > 0 {}
    assert_eq!((rig.take(LINK).len(), rig.take(PORT).len()), (0, 4));
    rig.finish();
}

#[test]
fn what_stays() {
    /// Name, sockets and charges of what waits, 0 = all of one flow, who asks.
    type Case = (&'static str, &'static [(usize, u32)], u16, u16);
    let cases: [Case; 5] = [
        ("the only one that waits", &[(PORT, LONG_NS)], 1, NEAR),
        ("what a peer has sent moves no second time", &[(LINK, LONG_NS), (LINK, LONG_NS), (LINK, LONG_NS)], 1, NEAR),
        ("what is shorter than a move costs", &[(PORT, 900), (PORT, 900), (PORT, 900)], 1, NEAR),
        ("all but the first of a flow", &[(PORT, LONG_NS), (PORT, LONG_NS)], 0, NEAR),
        ("whatever a stranger asks for", &[(PORT, LONG_NS), (PORT, LONG_NS)], 1, 2),
    ];
    for (what, packets, flows, asking) in cases {
        let mut rig = rig(FIFO);
        for (number, (socket, ns)) in (0..).zip(packets) {
            arrives(&mut rig, *socket, *ns, (flows * number as u16, number));
        }
        requested_by(&mut rig, asking);
        rig.worker.step();
        let given = rig.take(LINK).iter().filter(|frame| header(frame).kind == Kind::Forward).count();
        // The first of a flow may go before those behind it: they follow when it is back.
        assert_eq!(given, usize::from(flows == 0), "{what}");
        while rig.worker.step() > 0 {}
        rig.take(LINK);
        rig.worker.release_held(u64::MAX);
        rig.worker.flush_all();
        rig.take(PORT);
        rig.finish();
    }
}

#[test]
fn a_worker_asks_before_a_short_last_packet() {
    for (ns, asked) in [(3_000, 1), (LONG_NS, 0)] {
        let mut rig = rig(FIFO);
        report(&rig, NEAR, 3, 100_000);
        arrives(&mut rig, PORT, ns, (NO_FLOW, 0));
        rig.worker.step();
        assert_eq!(rig.take(LINK).len(), asked, "{ns} ns");
        rig.take(PORT);
        rig.finish();
    }
}

//! `dp_ingress`: flows and their numbers, and what each function decides by.

use std::mem::offset_of;

use dataplane_common::classify::{Class, classify, identify};
use dataplane_common::hash::mix;
use dataplane_common::maps::{
    FlowRow, FunctionRow, LoadRow, ORDER_AFFINE, ORDER_FLOW, ORDER_NONE, Params, SignalsRow, SlotRow, WorkerRow,
    function_slot,
};
use dataplane_common::plan::{HERE, NOWHERE};
use dataplane_common::policy::{Needs, PolicyKind, needing};
use dataplane_common::reason::Reason::{DropAnepVersion, NoteUnreachable};
use dataplane_common::tuning::{self, Tuning};
use dataplane_user::worker::monotonic_ns;

use super::case::{
    ABSENT, BYTES, Case, FAR, NEAR, NODE, PROFILE, RECEIVE_NS, SEND_NS, TIMED, WIRE_NS, check, flow_of, functions,
    node, node_with, params,
};
use crate::support::frames::{Carrier, OVERHEAD, Packet, UDP_PORT, with};
use crate::support::node::{Node, inside};
use crate::support::words::{Place, two};

/// Work at a worker and cost of a packet that make every policy here send it away.
const MUCH_NS: u64 = 50_000_000;
const COST_NS: u32 = 100_000;

fn plain() -> Packet {
    Packet::new(BYTES)
}

fn timed() -> Packet {
    Packet::new(TIMED).operand(COST_NS)
}

/// Time until a timed packet is done at an idle node: the way there, what receiving costs, and its own.
fn away_ns(packet: &Packet) -> u64 {
    u64::from(SEND_NS + WIRE_NS + RECEIVE_NS + COST_NS) + (packet.frame().len() + OVERHEAD) as u64
}

/// Where it stands when the packets of its flow are expected to be done.
fn end_of(packet: &Packet) -> Place {
    Place::flow(flow_of(&packet.frame()), offset_of!(FlowRow, expected_ns))
}

/// Changes the functions of a node.
fn refit(node: &mut Node<'_>, change: impl Fn(usize, &mut FunctionRow)) {
    for (index, mut row) in functions(node.params.policy).into_iter().enumerate() {
        change(index, &mut row);
        node.set_function(index as u32, row);
    }
}

#[test]
fn packets_of_a_flow_take_numbers_in_the_order_they_come() {
    inside("packets_of_a_flow_take_numbers_in_the_order_they_come", |site| {
        let mut node = node(site, PolicyKind::Ept);
        let issued = |packet: &Packet| Place::flow(flow_of(&packet.frame()), offset_of!(FlowRow, issued));
        let case = |name: &str, packet: &Packet, before: u64| {
            Case::port(name, packet.frame()).given(issued(packet), before).stays(0, 1040)
        };
        let variants = [
            ("another source address", Packet { host: [7, 2], ..plain() }),
            ("another destination address", Packet { host: [1, 7], ..plain() }),
            ("another source port", Packet { port: [40_001, UDP_PORT], ..plain() }),
            ("no ports", Packet { carrier: Carrier::Protocol107, ..plain() }),
            ("over IPv6", Packet { v6: true, ..plain() }),
        ];
        let mut cases: Vec<_> = variants.iter().map(|(name, packet)| case(name, packet, 3)).collect();
        for (name, packet) in &variants {
            assert_ne!(flow_of(&packet.frame()), flow_of(&plain().frame()), "{name}: another flow");
        }
        // The flow is who talks to whom, not what about.
        for packet in [plain().key(9), plain().payload_of(0), Packet { vlans: 2, class: 7, ..plain() }] {
            assert_eq!(flow_of(&packet.frame()), flow_of(&plain().frame()));
        }
        cases.extend([
            case("the first", &plain(), 0),
            case("the next", &plain(), 1),
            case("numbers wrap", &plain(), u32::MAX.into()),
            case("and go on", &plain(), 1 << 32),
            Case::port("one that leaves takes one, too", timed().frame())
                .given(issued(&timed()), 41)
                .backlog(0, MUCH_NS, 1)
                .load(NEAR, 0, 0)
                .goes_to(NEAR, TIMED, COST_NS),
            Case::port("one that is dropped takes none", with(plain().frame(), plain().anep(), &[9]))
                .drops(DropAnepVersion),
        ]);
        check(&mut node, &cases);
    });
}

#[test]
fn a_function_says_what_order_its_packets_need() {
    inside("a_function_says_what_order_its_packets_need", |site| {
        let mut node = node(site, PolicyKind::Ept);
        let case =
            |name: &str, packet: Packet| Case::port(name, packet.frame()).backlog(0, MUCH_NS, 1).load(NEAR, 0, 0);
        let long = || Packet::new(BYTES).payload_of(1_200);
        refit(&mut node, |_, row| row.order = ORDER_NONE);
        check(
            &mut node,
            &[
                case("none: it stays without a number", plain()).unordered().stays(0, 1040),
                case("none: it goes without a number", timed()).unordered().goes_to(NEAR, TIMED, COST_NS),
            ],
        );
        refit(&mut node, |index, row| row.order = if index == 0 { ORDER_FLOW } else { ORDER_AFFINE });
        check(
            &mut node,
            &[
                case("affine: it never goes, and has a number", timed()).stays(2, COST_NS),
                case("the order of another function is no matter", long()).stays(0, 2_200),
            ],
        );
        // What this version does not know is the strictest order that costs nothing.
        refit(&mut node, |_, row| row.order = 7);
        check(&mut node, &[case("an order of the future", timed()).goes_to(NEAR, TIMED, COST_NS)]);
    });
}

#[test]
fn each_function_has_its_own_policy() {
    inside("each_function_has_its_own_policy", |site| {
        let policies = PolicyKind::CpuLoad.bit() | PolicyKind::Ept.bit();
        let mut node = node_with(site, Params { policies, ..params(PolicyKind::Ept) });
        let of = [PolicyKind::CpuLoad, PolicyKind::EptErl, PolicyKind::Ept].map(|kind| kind as u32);
        refit(&mut node, |index, row| row.policy = of[index]);
        let rounds = || Packet::new(super::case::ROUNDS).operand(300).payload_of(100);
        let case = |name: &str, packet: Packet, by| Case::port(name, packet.frame()).load(NEAR, 0, 0).by(by);
        check(
            &mut node,
            &[
                // A packet of 1 µs: CPU load sends it whatever that costs.
                case("by packets", plain(), of[0]).backlog(0, 1, 9).goes_to(NEAR, BYTES, 1040),
                case("by packets, of which there are none", plain(), of[0]).backlog(0, MUCH_NS, 0).stays(0, 1040),
                case("by time", timed(), of[2]).backlog(0, MUCH_NS, 0).goes_to(NEAR, TIMED, COST_NS),
                case("by time, which is short", timed(), of[2]).backlog(0, 1, 9).stays(2, COST_NS),
                case("by a policy that the object was not loaded for", rounds(), of[1])
                    .backlog(0, MUCH_NS, 9)
                    .stays(1, 98_400),
            ],
        );
        for policy in [63, 64, 255, u32::MAX] {
            refit(&mut node, |_, row| row.policy = policy);
            let name = format!("policy {policy}");
            check(&mut node, &[case(&name, timed(), policy).backlog(0, MUCH_NS, 9).stays(2, COST_NS)]);
        }
    });
}

/// The slot that a draw for this packet falls on.
fn drawn(seed: u32, packet: &Packet) -> u32 {
    let frame = packet.frame();
    let Class::Active(active) = classify(&frame[..], &PROFILE) else { panic!("not active") };
    mix(u64::from(seed ^ identify(&frame[..], &active).flow)) as u32 % 4_096
}

#[test]
fn a_plan_places_what_falls_on_its_slots() {
    inside("a_plan_places_what_falls_on_its_slots", |site| {
        const SEED: u32 = 77;
        let mut node = node_with(site, Params { seed: SEED, ..params(PolicyKind::TriState) });
        let slot = drawn(SEED, &timed());
        let place = |offset| Place::slot(slot, offset);
        let case = |name: &str, to: u16| {
            Case::port(name, timed().frame())
                .load(NEAR, 0, 0)
                .load(FAR, 0, 0)
                .load(ABSENT, 0, 0)
                .load(NODE, 0, 0)
                .given(place(offset_of!(SlotRow, node)), to.into())
                .given(place(offset_of!(SlotRow, charged_ns)), 5)
                .adds(place(offset_of!(SlotRow, charged_ns)), COST_NS.into())
        };
        let valid = Place::load(FAR, offset_of!(LoadRow, valid_until_ns));
        check(
            &mut node,
            &[
                case("near", NEAR).goes_to(NEAR, TIMED, COST_NS),
                case("far", FAR).goes_to(FAR, TIMED, COST_NS),
                case("far, which has gone silent", FAR).given(valid, 1).stays(2, COST_NS),
                case("here", HERE).stays(2, COST_NS),
                case("nowhere yet", NOWHERE).stays(2, COST_NS),
                case("this node, by its id", NODE).stays(2, COST_NS),
                case("a node without a row", 8).stays(2, COST_NS),
                case("a node that is no peer", ABSENT).noting(NoteUnreachable).stays(2, COST_NS),
                // Two tables of 4096 slots: the other one is another class's.
                case("the same slot of the other table is no matter", HERE)
                    .given(Place::slot(slot + 4_096, offset_of!(SlotRow, node)), FAR.into())
                    .stays(2, COST_NS),
            ],
        );
        let affine = case("what may not go is not counted", FAR).adds(place(offset_of!(SlotRow, charged_ns)), 0);
        refit(&mut node, |_, row| row.order = ORDER_AFFINE);
        check(&mut node, &[affine.changes(place(offset_of!(SlotRow, charged_ns)), 5).stays(2, COST_NS)]);
    });
}

#[test]
fn arrivals_are_counted_for_policies_that_ask() {
    inside("arrivals_are_counted_for_policies_that_ask", |site| {
        let arrivals = |function| Place::function(function_slot(function, 0), offset_of!(FunctionRow, arrivals));
        let policies = needing(Needs::DEMAND) | PolicyKind::Ept.bit();
        let mut node = node_with(site, Params { policies, ..params(PolicyKind::Ept) });
        check(
            &mut node,
            &[
                Case::port("a packet", plain().frame()).adds(arrivals(0), 1).stays(0, 1040),
                Case::port("of all workers together", timed().frame())
                    .queue(1)
                    .given(arrivals(2), 7)
                    .adds(arrivals(2), 1)
                    .stays(2, COST_NS),
                Case::port("one that goes", timed().frame())
                    .backlog(0, MUCH_NS, 1)
                    .load(NEAR, 0, 0)
                    .adds(arrivals(2), 1)
                    .goes_to(NEAR, TIMED, COST_NS),
                Case::port("none of those dropped", with(plain().frame(), plain().anep(), &[9])).drops(DropAnepVersion),
            ],
        );
    });
}

#[test]
fn what_is_sent_presses_on_the_load_that_is_predicted() {
    inside("what_is_sent_presses_on_the_load_that_is_predicted", |site| {
        let mut node = node(site, PolicyKind::Sooner);
        let pressure = Place::load(NEAR, offset_of!(LoadRow, pressure_ns));
        let case = |name: &str| Case::port(name, timed().frame()).backlog(0, MUCH_NS, 1).load(NEAR, 0, 0);
        check(
            &mut node,
            &[
                case("the first")
                    .stamps(pressure, COST_NS)
                    .times(end_of(&timed()), away_ns(&timed()))
                    .goes_to(NEAR, TIMED, COST_NS),
                // 1 µs to forget in, and an age has passed.
                case("an age after the last")
                    .given(Place::signals(offset_of!(SignalsRow, utilisation_milli)), two(0, 500))
                    .given(pressure, 900_000)
                    .stamps(pressure, COST_NS)
                    .times(end_of(&timed()), away_ns(&timed()))
                    .goes_to(NEAR, TIMED, COST_NS),
                Case::port("what stays does not press", timed().frame())
                    .times(end_of(&timed()), COST_NS.into())
                    .stays(2, COST_NS),
            ],
        );
    });
}

#[test]
fn a_flow_stays_where_it_does_not_overtake_itself() {
    inside("a_flow_stays_where_it_does_not_overtake_itself", |site| {
        let mut node = node(site, PolicyKind::Sooner);
        let pressure = Place::load(NEAR, offset_of!(LoadRow, pressure_ns));
        let waits = |name: &str| Case::port(name, timed().frame()).backlog(0, 50_000, 1).load(NEAR, 0, 0);
        // Further away than the longest test.
        let much_later = monotonic_ns() + 1_000_000_000_000;
        check(
            &mut node,
            &[
                waits("done sooner there")
                    .stamps(pressure, COST_NS)
                    .times(end_of(&timed()), away_ns(&timed()))
                    .goes_to(NEAR, TIMED, COST_NS),
                waits("but not its earlier packets").given(end_of(&timed()), much_later).stays(2, COST_NS),
            ],
        );
        refit(&mut node, |_, row| row.order = ORDER_NONE);
        check(
            &mut node,
            &[waits("nor need it wait for them")
                .given(end_of(&timed()), much_later)
                .unordered()
                .stamps(pressure, COST_NS)
                .goes_to(NEAR, TIMED, COST_NS)],
        );
    });
}

#[test]
fn the_class_says_what_waits_ahead() {
    inside("the_class_says_what_waits_ahead", |site| {
        let tuning = Tuning { discipline: tuning::CLASS, ..Tuning::DEFAULT };
        let mut node = node_with(site, Params { tuning, ..params(PolicyKind::Sooner) });
        // Of what waits here, everything lies behind a packet of the highest class, and nothing behind one of the
        // lowest.
        let behind = Place::worker(0, offset_of!(WorkerRow, behind));
        let case = |name: &str, packet: Packet| {
            Case::port(name, packet.frame()).backlog(0, 200_000, 2).given(behind, 255).load(NEAR, 0, 0)
        };
        let pressure = Place::load(NEAR, offset_of!(LoadRow, pressure_ns));
        let goes = |name: &str, packet: Packet| {
            let (end, away_ns) = (end_of(&packet), away_ns(&packet));
            case(name, packet).stamps(pressure, COST_NS).times(end, away_ns).goes_to(NEAR, TIMED, COST_NS)
        };
        let stays = |name: &str, packet: Packet| {
            let end = end_of(&packet);
            case(name, packet).times(end, COST_NS.into()).stays(2, COST_NS)
        };
        let v6 = |class| Packet { v6: true, class, ..timed() };
        check(
            &mut node,
            &[
                goes("the lowest", timed()),
                goes("the last but one", Packet { class: 6, ..timed() }),
                stays("the highest", Packet { class: 7, ..timed() }),
                goes("the lowest over IPv6", v6(0)),
                stays("the highest over IPv6", v6(7)),
            ],
        );
    });
}

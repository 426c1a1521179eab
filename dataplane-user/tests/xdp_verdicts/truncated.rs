//! Every active packet cut at every length.

use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::Reason::*;

use super::case::{BYTES, Case, TIMED, check, node};
use crate::support::frames::{Carrier, Packet};
use crate::support::node::inside;

/// The kernel runs programs on whole Ethernet headers only.
const SHORTEST: usize = 14;

/// One case for each length. What is expected follows from which headers are whole: without the transport header nobody
/// can know that the packet is active, without the ANEP header it is truncated, and then it is longer than the frame.
fn cuts(name: &str, packet: &Packet) -> Vec<Case> {
    let frame = packet.frame();
    let case = |length: usize| {
        let case = Case::port(&format!("{name}, {length} of {} bytes", frame.len()), frame[..length].to_vec());
        match length {
            _ if length < packet.anep() => case.passes(PassNotActive),
            _ if length < packet.anep() + 8 => case.drops(DropAnepTruncated),
            _ if length < packet.end() => case.drops(DropAnepPacketPastFrame),
            _ if length < frame.len() => case.noting(NoteTrailing).stays(0, 1000 + packet.payload.len() as u32),
            _ => panic!("{length} is whole"),
        }
    };
    (SHORTEST..frame.len()).map(case).collect()
}

fn check_cuts(test: &str, shapes: &[(&str, Packet)]) {
    inside(test, |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let cases: Vec<_> = shapes.iter().flat_map(|(name, packet)| cuts(name, packet)).collect();
        check(&mut node, &cases);
    });
}

fn base() -> Packet {
    Packet::new(BYTES).option(1, &[0; 8]).option(9, &[0; 4])
}

#[test]
fn over_ipv4() {
    check_cuts(
        "over_ipv4",
        &[
            ("UDP", base()),
            ("UDP, two tags, IP options", Packet { vlans: 2, ip_options: 2, ..base() }),
            ("protocol 107", Packet { carrier: Carrier::Protocol107, ..base() }),
            ("protocol 107, one tag", Packet { vlans: 1, carrier: Carrier::Protocol107, ..base() }),
        ],
    );
}

#[test]
fn over_ipv6() {
    check_cuts(
        "over_ipv6",
        &[
            ("UDP", Packet { v6: true, ..base() }),
            ("UDP, two tags, extensions", Packet { vlans: 2, v6: true, extensions: 2, ..base() }),
        ],
    );
}

#[test]
fn over_ipv6_without_udp() {
    let raw = Packet { v6: true, carrier: Carrier::Protocol107, ..base() };
    check_cuts(
        "over_ipv6_without_udp",
        &[("protocol 107", raw.clone()), ("protocol 107, extensions", Packet { extensions: 2, ..raw })],
    );
}

#[test]
fn behind_the_packet() {
    let trailing = Packet { trailing: 20, ..base() };
    check_cuts("behind_the_packet", &[("trailing bytes", trailing)]);
}

#[test]
fn a_cut_inside_an_option_is_a_packet_past_the_frame() {
    inside("a_cut_inside_an_option_is_a_packet_past_the_frame", |site| {
        let packet = Packet::new(TIMED).operand(500).payload_of(0);
        let frame = packet.frame();
        let cut = |length: usize| Case::port(&format!("{length} bytes"), frame[..length].to_vec());
        let mut node = node(site, PolicyKind::EptErl);
        check(
            &mut node,
            &[
                cut(packet.options_at() + 2).drops(DropAnepPacketPastFrame),
                cut(packet.options_at() + 6).drops(DropAnepPacketPastFrame),
                cut(frame.len()).stays(2, 500),
            ],
        );
    });
}

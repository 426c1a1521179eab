//! `dp_ingress` on frames that no policy needs to look at: what is not ours, what is malformed, what stays here.

use std::mem::offset_of;

use dataplane_common::maps::{Params, QueueRow, WorkerRow, socket_slot};
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::Reason::{self, *};

use super::case::{BYTES, Case, LIMIT_NS, NEAR, PROFILE, ROUNDS, TIMED, check, furnish, node, node_with, params};
use crate::support::frames::{Carrier, DISCARD, Packet, with, with_ip_checksum};
use crate::support::node::{OTHER_PORT, PORT, STRANGER, inside};
use crate::support::words::Place;

/// A frame of this EtherType with this content.
fn ethernet(ethertype: u16, content: &[u8]) -> Vec<u8> {
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &ethertype.to_be_bytes(), content].concat()
}

fn plain() -> Packet {
    Packet::new(BYTES)
}

fn over_protocol_107() -> Packet {
    Packet { carrier: Carrier::Protocol107, ..plain() }
}

fn v6() -> Packet {
    Packet { v6: true, ..plain() }
}

/// `packet` with one byte of its frame changed and the IPv4 header checksum right.
fn changed(packet: &Packet, at: usize, byte: u8) -> Vec<u8> {
    with_ip_checksum(with(packet.frame(), at, &[byte]), packet)
}

#[test]
fn ordinary_traffic_is_left_to_the_kernel() {
    inside("ordinary_traffic_is_left_to_the_kernel", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let (v4, v6) = (plain(), v6());
        // Next header ICMPv6 (58): neighbour solicitation; TCP (6) to port 22 in the bytes where UDP's ports would be.
        let icmpv6 = with(with(v6.frame(), v6.l3() + 6, &[58]), v6.l4(), &[135, 0]);
        let ssh = Packet { port: [40_000, 22], ..plain() };
        let arp_at = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[0; 20]].concat();
        let two_tags = Packet { vlans: 2, ..plain() };
        let three_tags = [&two_tags.frame()[..12], &[0x81, 0, 0, 9], &two_tags.frame()[12..]].concat();
        let cases = [
            Case::port("ARP request", ethernet(0x0806, &arp_at)),
            Case::port("LLDP", ethernet(0x88cc, &[0; 46])),
            Case::port("an 802.3 length instead of an EtherType", ethernet(46, &[0; 46])),
            Case::port("a bare Ethernet header", ethernet(0x0800, &[])),
            Case::port("an interconnect frame on a port", ethernet(0x88b5, &[1; 60])),
            Case::port("ND: neighbour solicitation", icmpv6),
            Case::port("TCP to port 22", changed(&ssh, ssh.l3() + 9, 6)),
            Case::port("TCP to port 3322", changed(&v4, v4.l3() + 9, 6)),
            Case::port("TCP to port 22 over IPv6", with(Packet { v6: true, ..ssh }.frame(), v6.l3() + 6, &[6])),
            Case::port("UDP to port 53", Packet { port: [40_000, 53], ..plain() }.frame()),
            Case::port("UDP from port 3322 to another", Packet { port: [3322, 40_000], ..plain() }.frame()),
            Case::port("UDP to port 53 over IPv6", Packet { port: [40_000, 53], ..v6.clone() }.frame()),
            Case::port("UDP to port 53 with a wrong IPv4 checksum", {
                let dns = Packet { port: [40_000, 53], ..plain() };
                with(dns.frame(), dns.l3() + 10, &[0, 0])
            }),
            Case::port("IP protocol 106", changed(&over_protocol_107(), over_protocol_107().l3() + 9, 106)),
            Case::port("ESP over IPv6", with(v6.frame(), v6.l3() + 6, &[50])),
            Case::port("three VLAN tags", three_tags),
            Case::port("five extension headers", Packet { extensions: 5, ..v6.clone() }.frame()),
            Case::port("version 6 under EtherType 0800", changed(&v4, v4.l3(), 0x65)),
            Case::port("version 4 under EtherType 86dd", with(v6.frame(), v6.l3(), &[0x40])),
            Case::port("an IPv4 header of 4 words", changed(&v4, v4.l3(), 0x44)),
            Case::port("IPv4 total length below the header", {
                with_ip_checksum(with(v4.frame(), v4.l3() + 2, &[0, 19]), &v4)
            }),
            Case::port("IPv6 payload length below its extension header", {
                let packet = Packet { extensions: 1, ..v6.clone() };
                with(packet.frame(), packet.l3() + 4, &[0, 7])
            }),
        ];
        check(&mut node, &cases.map(|case| case.passes(PassNotActive)));
    });
}

#[test]
fn fragments_are_left_to_the_kernel() {
    inside("fragments_are_left_to_the_kernel", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let (v4, v6) = (plain(), Packet { extensions: 1, ..v6() });
        let fragment =
            |packet: &Packet, field: [u8; 2]| with_ip_checksum(with(packet.frame(), packet.l3() + 6, &field), packet);
        let cases = [
            Case::port("first fragment", fragment(&v4, [0x20, 0])),
            Case::port("middle fragment", fragment(&v4, [0x20, 1])),
            Case::port("last fragment", fragment(&v4, [0, 1])),
            Case::port("last fragment, largest offset", fragment(&v4, [0x1f, 0xff])),
            Case::port("first fragment of protocol 107", fragment(&over_protocol_107(), [0x20, 0])),
            Case::port("fragment with a wrong header checksum", with(v4.frame(), v4.l3() + 6, &[0x20, 0])),
            Case::port("IPv6 fragment header", with(v6.frame(), v6.l3() + 6, &[44])),
            Case::port("IPv6 fragment header of protocol 107", {
                let packet = Packet { carrier: Carrier::Protocol107, ..v6.clone() };
                with(packet.frame(), packet.l3() + 6, &[44])
            }),
        ];
        let mut cases: Vec<_> = cases.into_iter().map(|case| case.passes(PassFragment)).collect();
        // A fragment of something else is not ours, and "don't fragment" is no fragment.
        cases.push(
            Case::port("fragment of TCP", with_ip_checksum(with(fragment(&v4, [0x20, 0]), v4.l3() + 9, &[6]), &v4))
                .passes(PassNotActive),
        );
        cases.push(Case::port("don't fragment", fragment(&v4, [0x40, 0])).stays(0, 1040));
        check(&mut node, &cases);
    });
}

#[test]
fn active_packets_behind_every_encapsulation_reach_the_worker() {
    inside("active_packets_behind_every_encapsulation_reach_the_worker", |site| {
        let mut node = node(site, PolicyKind::Local);
        let mut cases = Vec::new();
        for vlans in 0..=2 {
            for carrier in [Carrier::Udp, Carrier::UdpWithoutChecksum, Carrier::Protocol107] {
                for (v6, ip_options, extensions) in
                    [(false, 0, 0), (false, 1, 0), (false, 10, 0), (true, 0, 0), (true, 0, 1), (true, 0, 4)]
                {
                    let packet = Packet { vlans, carrier, v6, ip_options, extensions, ..plain() };
                    let name = format!(
                        "{carrier:?}, {vlans} tags, v6 {v6}, {ip_options} words of options, {extensions} extensions"
                    );
                    cases.push(Case::port(&name, packet.frame()).stays(0, 1040));
                }
            }
        }
        check(&mut node, &cases);
    });
}

#[test]
fn the_charge_is_the_functions_cost_of_this_packet() {
    inside("the_charge_is_the_functions_cost_of_this_packet", |site| {
        let mut node = node(site, PolicyKind::Local);
        let rounds = |rounds| Packet::new(ROUNDS).operand(rounds).payload_of(100);
        let timed = |ns| Packet::new(TIMED).operand(ns).frame();
        check(
            &mut node,
            &[
                Case::port("no payload", plain().payload_of(0).frame()).stays(0, 1000),
                Case::port("1400 bytes", plain().payload_of(1400).frame()).stays(0, 2400),
                Case::port("an operand that the function does not need", plain().operand(9).frame()).stays(0, 1040),
                Case::port("no round counts as one", rounds(0).frame()).stays(1, 328),
                Case::port("5 rounds over 100 bytes", rounds(5).frame()).stays(1, 1640),
                Case::port("the last operand counts", rounds(7).operand(5).frame()).stays(1, 1640),
                Case::port("rounds over nothing", Packet::new(ROUNDS).operand(9).payload_of(0).frame()).stays(1, 1152),
                Case::port(
                    "very many rounds over nothing",
                    Packet::new(ROUNDS).operand(u32::MAX).payload_of(0).frame(),
                )
                .drops(DropServiceLimit),
                Case::port("1 ns", timed(1)).stays(2, 1),
                Case::port("just the limit", timed(LIMIT_NS)).stays(2, LIMIT_NS),
                Case::port("1 ns above the limit", timed(LIMIT_NS + 1)).drops(DropServiceLimit),
                Case::port("the largest operand", timed(u32::MAX)).drops(DropServiceLimit),
                Case::port("a product above 32 bits", rounds(u32::MAX).frame()).drops(DropServiceLimit),
                Case::port("no operand", Packet::new(TIMED).frame()).drops(DropOperandMissing),
                Case::port("no operand, no payload", Packet::new(ROUNDS).payload_of(0).frame())
                    .drops(DropOperandMissing),
            ],
        );
    });
}

#[test]
fn every_defect_of_the_anep_header_is_named() {
    inside("every_defect_of_the_anep_header_is_named", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let mut cases = Vec::new();
        for packet in [plain(), over_protocol_107(), v6(), Packet { vlans: 2, ..over_protocol_107() }] {
            let kind = format!("{:?}, v6 {}", packet.carrier, packet.v6);
            let (at, len) = (packet.anep(), packet.frame().len());
            let mut bad = |name: &str, offset: usize, bytes: &[u8], reason: Reason| {
                let frame = with(packet.frame(), at + offset, bytes);
                cases.push(Case::port(&format!("{name} ({kind})"), frame).drops(reason));
            };
            bad("version 0", 0, &[0], DropAnepVersion);
            bad("version 2", 0, &[2], DropAnepVersion);
            bad("version 255", 0, &[255], DropAnepVersion);
            bad("header of no word", 4, &[0, 0], DropAnepHeaderShort);
            bad("header of one word", 4, &[0, 1], DropAnepHeaderShort);
            bad("header one word longer than the packet", 4, &[0, 13], DropAnepHeaderPastEnd);
            bad("the longest header", 4, &[0xff, 0xff], DropAnepHeaderPastEnd);
            bad("packet length 0", 6, &[0, 0], DropAnepHeaderPastEnd);
            bad("packet shorter than its header", 6, &[0, 7], DropAnepHeaderPastEnd);
            bad("packet one byte past what came", 6, &[0, 49], DropAnepPacketPastFrame);
            bad("the longest packet", 6, &[0xff, 0xff], DropAnepPacketPastFrame);
            bad("version and lengths wrong: the first defect counts", 0, &[9, 0, 0, 0, 0, 0, 0, 0], DropAnepVersion);
            assert_eq!(len - at, 48, "the numbers above");
        }
        check(&mut node, &cases);
    });
}

#[test]
fn every_defect_of_an_option_is_named() {
    inside("every_defect_of_an_option_is_named", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let drops = |name: &str, packet: Packet, reason| Case::port(name, packet.frame()).drops(reason);
        let length = |words: u16| {
            let packet = plain().option(1, &[0; 8]);
            with(packet.frame(), packet.options_at() + 2, &words.to_be_bytes())
        };
        let options = |count: usize| (0..count).fold(plain(), |packet, _| packet.option(1, &[]));
        let long = |words: usize| plain().option(1, &vec![0; 4 * words]).payload_of(1000);
        let cases = [
            Case::port("length 0", length(0)).drops(DropAnepOptionLength),
            Case::port("one word past the header", length(4)).drops(DropAnepOptionLength),
            Case::port("the longest option", length(0xffff)).drops(DropAnepOptionLength),
            Case::port("the second one past the header", {
                let packet = plain().option(1, &[0; 4]).option(2, &[0; 4]);
                with(packet.frame(), packet.options_at() + 10, &[0, 3])
            })
            .drops(DropAnepOptionLength),
            Case::port("the first one leaves half of the second", length(2)).drops(DropAnepOptionLength),
            drops("operand without value", plain().option(0x8010, &[]), DropAnepOptionLength),
            drops("key without value", plain().option(0x8012, &[]), DropAnepOptionLength),
            drops("key without value, discard", plain().option(0xc012, &[]), DropAnepOptionLength),
            Case::port("half a key", {
                let packet = plain().key(9);
                with(packet.frame(), packet.options_at() + 2, &[0, 1])
            })
            .drops(DropAnepOptionLength),
            drops("checksum without value", plain().option(3, &[]), DropAnepOptionLength),
            drops("unknown, public, discard", plain().option(0x4009, &[0; 4]), DropAnepOptionUnknown),
            drops("unknown, private, discard", plain().option(0xc013, &[]), DropAnepOptionUnknown),
            drops("type 0, discard", plain().option(0x4000, &[]), DropAnepOptionUnknown),
            drops("nine options", options(9), DropAnepOptionsLimit),
            drops("a header of 260 bytes", long(62), DropAnepOptionsLimit),
            Case::port("eight options", options(8).frame()).stays(0, 1040),
            Case::port("a header of 256 bytes", long(61).frame()).stays(0, 2000),
            Case::port("unknown, public, skip", plain().option(9, &[0; 4]).frame()).stays(0, 1040),
            Case::port("unknown, private, skip", plain().option(0x8013, &[]).frame()).stays(0, 1040),
            Case::port("a key", plain().key(9).frame()).stays(0, 1040),
            Case::port("a key of two words", plain().option(0x8012, &[9; 8]).frame()).stays(0, 1040),
            Case::port("a key that asks for discard", plain().option(0xc012, &[9; 4]).frame()).stays(0, 1040),
            Case::port("source and destination", {
                plain().option(1, &[0, 0, 0, 1, 192, 0, 2, 1]).option(2, &[0, 0, 0, 1, 198, 51, 100, 7]).frame()
            })
            .stays(0, 1040),
            Case::port("known options that ask for discard", {
                Packet::new(TIMED).option(0x4001, &[0; 8]).option(0xc010, &[0, 0, 0, 5]).frame()
            })
            .stays(2, 5),
            Case::port("authentication", plain().option(4, &[0, 0, 0, 1]).frame()).stays(0, 1040),
            Case::port("a checksum is the worker's business", with(plain().checksum().frame(), 60, &[1]))
                .stays(0, 1040),
            Case::port("a result option", plain().result(32).frame()).stays(0, 1040),
        ];
        check(&mut node, &cases);
    });
}

#[test]
fn checksums_and_lengths_below_anep_are_named() {
    inside("checksums_and_lengths_below_anep_are_named", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let (v4, v6, raw) = (plain(), v6(), over_protocol_107());
        let sum = |packet: &Packet, flip: u8| {
            let at = packet.l3() + 11;
            with(packet.frame(), at, &[packet.frame()[at] ^ flip])
        };
        let udp_length = |packet: &Packet, length: u16| with(packet.frame(), packet.l4() + 4, &length.to_be_bytes());
        let options = Packet { ip_options: 3, ..plain() };
        let whole = (v4.frame().len() - v4.l4()) as u16;
        let mut cases = vec![
            Case::port("header checksum off by one bit", sum(&v4, 1)).drops(DropIpChecksum),
            Case::port("the same over protocol 107", sum(&raw, 0x80)).drops(DropIpChecksum),
            Case::port("header checksum zero", with(v4.frame(), v4.l3() + 10, &[0, 0])).drops(DropIpChecksum),
            Case::port("an option changed", with(options.frame(), options.l4() - 1, &[7])).drops(DropIpChecksum),
            Case::port("TTL changed", with(v4.frame(), v4.l3() + 8, &[63])).drops(DropIpChecksum),
            Case::port("checksum and version wrong: IP comes first", with(sum(&v4, 1), v4.anep(), &[9]))
                .drops(DropIpChecksum),
        ];
        for packet in [&v4, &v6] {
            let name = |what: &str| format!("UDP length {what}, v6 {}", packet.v6);
            cases.push(Case::port(&name("0"), udp_length(packet, 0)).drops(DropUdpLength));
            cases.push(Case::port(&name("7"), udp_length(packet, 7)).drops(DropUdpLength));
            cases.push(Case::port(&name("one past IP"), udp_length(packet, whole + 1)).drops(DropUdpLength));
            cases.push(Case::port(&name("65535"), udp_length(packet, 0xffff)).drops(DropUdpLength));
            cases.push(Case::port(&name("8"), udp_length(packet, 8)).drops(DropAnepTruncated));
            cases.push(Case::port(&name("15"), udp_length(packet, 15)).drops(DropAnepTruncated));
            cases.push(Case::port(&name("one short"), udp_length(packet, whole - 1)).drops(DropAnepPacketPastFrame));
        }
        check(&mut node, &cases);
    });
}

#[test]
fn trailing_bytes_are_noted_and_ethernet_padding_is_not() {
    inside("trailing_bytes_are_noted_and_ethernet_padding_is_not", |site| {
        let mut node = node(site, PolicyKind::Local);
        let trailing = |packet: Packet, trailing| Packet { trailing, ..packet }.frame();
        let padded = [plain().payload_of(0).frame(), vec![0; 10]].concat();
        check(
            &mut node,
            &[
                Case::port("one byte behind the packet", trailing(plain(), 1)).noting(NoteTrailing).stays(0, 1040),
                Case::port("700 bytes, no UDP", trailing(over_protocol_107(), 700)).noting(NoteTrailing).stays(0, 1040),
                Case::port("3 bytes over IPv6", trailing(v6(), 3)).noting(NoteTrailing).stays(0, 1040),
                Case::port("padding that IP does not count", padded).stays(0, 1000),
                Case::port("a packet that is dropped is not noted", {
                    Packet { trailing: 4, ..Packet::new(TIMED) }.frame()
                })
                .drops(DropOperandMissing),
            ],
        );
    });
}

#[test]
fn unknown_types_go_as_the_sender_asks() {
    inside("unknown_types_go_as_the_sender_asks", |site| {
        let mut node = node(site, PolicyKind::EptErl);
        let unknown = |type_id, flags| Packet { flags, ..Packet::new(type_id) }.frame();
        check(
            &mut node,
            &[
                Case::port("unknown, discard", unknown(51, DISCARD)).drops(DropUnknownType),
                Case::port("unknown, discard and other flags", unknown(0xff02, 0xbf)).drops(DropUnknownType),
                Case::port("unknown, forward", unknown(51, 0)).passes(PassUnknownType),
                Case::port("unknown, forward, other flags", unknown(0, 0x3f)).passes(PassUnknownType),
                Case::port("known, discard", unknown(BYTES, DISCARD)).stays(0, 1040),
                Case::port("known, other flags", unknown(BYTES, 0x3f)).stays(0, 1040),
                Case::port("a result", unknown(BYTES, 0x40)).passes(PassResult),
                Case::port("a result of an unknown type that asks for discard", unknown(51, 0xc0)).passes(PassResult),
            ],
        );
    });
}

#[test]
fn each_queue_of_each_port_has_its_own_account() {
    inside("each_queue_of_each_port_has_its_own_account", |site| {
        let mut node = node(site, PolicyKind::Local);
        let frame = plain().frame();
        // The position in the metadata is the low half of the socket's account.
        let socket = |interface, queue, offset| Place::queue(socket_slot(interface, queue), offset);
        let position = |interface, queue| socket(interface, queue, offset_of!(QueueRow, charged_ns));
        let sequence = |interface, queue| socket(interface, queue, offset_of!(QueueRow, charged_packets));
        check(
            &mut node,
            &[
                Case::port("queue 1", frame.clone()).queue(1).stays(0, 1040),
                Case::port("another port", frame.clone()).on(OTHER_PORT).stays(0, 1040),
                Case::port("queue 1 of another port", frame.clone()).on(OTHER_PORT).queue(1).stays(0, 1040),
                Case::port("accounts that have begun", frame.clone())
                    .given(position(PORT, 1), 5_000_000)
                    .given(sequence(PORT, 1), 70_000)
                    .given(position(PORT, 0), 9)
                    .given(Place::worker(1, offset_of!(WorkerRow, charged_ns)), 6_000_000)
                    .given(Place::worker(1, offset_of!(WorkerRow, charged_packets)), 80)
                    .queue(1)
                    .stays(0, 1040),
                Case::port("accounts that wrap their low halves", frame)
                    .given(position(PORT, 0), u64::from(u32::MAX) - 39)
                    .given(sequence(PORT, 0), u32::MAX.into())
                    .stays(0, 1040),
            ],
        );
    });
}

#[test]
fn without_a_socket_active_packets_are_left_to_the_kernel() {
    inside("without_a_socket_active_packets_are_left_to_the_kernel", |site| {
        let mut without = site.node_without_sockets(params(PolicyKind::Local));
        furnish(&mut without);
        check(
            &mut without,
            &[
                Case::port("no socket on the queue", plain().frame()).passes(PassNoSocket),
                Case::port("trailing bytes are noted all the same", Packet { trailing: 1, ..plain() }.frame())
                    .noting(NoteTrailing)
                    .passes(PassNoSocket),
                Case::port("malformed packets are dropped all the same", with(plain().frame(), plain().anep(), &[9]))
                    .drops(DropAnepVersion),
                Case::port("unknown types too", Packet { flags: DISCARD, ..Packet::new(51) }.frame())
                    .drops(DropUnknownType),
            ],
        );
        let mut with_sockets = node(site, PolicyKind::Local);
        let case = Case::port("an interface that is none of the node's", plain().frame()).on(STRANGER);
        let queue = |queue| Case::port("a queue without a worker", plain().frame()).queue(queue).passes(PassNoSocket);
        // Counted on, queue 64 of the first interface would be queue 0 of the second.
        let cases = [case.passes(PassNoSocket), queue(2), queue(63), queue(64), queue(65)];
        check(&mut with_sockets, &cases);
    });
}

#[test]
fn metadata_of_a_driver_does_not_hide_ours() {
    inside("metadata_of_a_driver_does_not_hide_ours", |site| {
        let mut node = node(site, PolicyKind::Local);
        check(
            &mut node,
            &[
                Case::port("other frames keep theirs", ethernet(0x0806, &[0; 46])).metadata(16).passes(PassNotActive),
                Case::port("no room for ours", plain().frame()).metadata(200).drops(DropHeadroom),
                Case::port("room for both", plain().frame()).metadata(8).stays(0, 1040),
            ],
        );
    });
}

#[test]
fn the_other_programs_count_nothing() {
    inside("the_other_programs_count_nothing", |site| {
        let frame = plain().frame();
        let mut with_sockets = node(site, PolicyKind::EptErl);
        check(
            &mut with_sockets,
            &[
                Case::uncounted("dp_pass passes active packets", "dp_pass", frame.clone()).passes_uncounted(),
                Case::uncounted("dp_pass passes anything", "dp_pass", ethernet(0x0806, &[])).passes_uncounted(),
                Case::uncounted("dp_sink gives frames to the socket", "dp_sink", frame.clone()).sinks(),
                Case::uncounted("dp_sink on queue 1", "dp_sink", ethernet(0x0806, &[])).queue(1).sinks(),
                Case::uncounted("dp_sink without room for metadata", "dp_sink", frame.clone())
                    .metadata(200)
                    .passes_uncounted(),
            ],
        );
        let mut without = site.node_without_sockets(params(PolicyKind::Local));
        let case = |name: &str| Case::uncounted(name, "dp_sink", frame.clone()).passes_uncounted();
        check(&mut without, &[case("dp_sink without a socket"), case("dp_sink elsewhere").on(STRANGER)]);
    });
}

/// A packet of the kernel's generator with `payload` bytes of UDP payload.
fn pktgen(port: [u16; 2], payload: usize) -> (Packet, Vec<u8>) {
    // What lies there otherwise is an ANEP header of 8 bytes.
    let packet = Packet { port, carrier: Carrier::UdpWithoutChecksum, ..plain() }.payload_of(payload - 8);
    let header = [&[0xbe, 0x9b, 0xe9, 0x55][..], &[0; 12]].concat();
    let bytes = with(packet.frame(), packet.anep(), &header[..header.len().min(payload)]);
    (packet, bytes)
}

#[test]
fn packets_of_the_kernels_generator_are_active_where_the_profile_is_on() {
    inside("packets_of_the_kernels_generator_are_active_where_the_profile_is_on", |site| {
        let to = |port, payload| pktgen([9, port], payload).1;
        let (packet, good) = pktgen([9, 9_100], 18);
        let udp_length = |length: u8| with(good.clone(), packet.l4() + 4, &[0, length]);
        check(
            &mut node(site, PolicyKind::Local),
            &[Case::port("without the profile", good.clone()).passes(PassNotActive)],
        );
        let profile = Params {
            pktgen_port: PROFILE.pktgen_port,
            pktgen_functions: PROFILE.pktgen_functions,
            pktgen_operand: PROFILE.pktgen_operand,
            ..params(PolicyKind::EptErl)
        };
        let away = to(9_101, 1_000);
        check(
            &mut node_with(site, profile),
            &[
                Case::port("64 bytes: 16 of header, 2 of payload", good.clone()).stays(0, 1_002),
                Case::port("room for a result in front of the payload", to(9_100, 1_000)).stays(0, 1_952),
                Case::port("the second function: 5 rounds", to(9_101, 48)).stays(1, 640),
                Case::port("the third: its operand", to(9_102, 48)).stays(2, 5),
                Case::port("to another node", away).backlog(0, 900_000, 9).load(NEAR, 0, 0).goes_to(
                    NEAR,
                    ROUNDS,
                    2 * 5 * (952 + 64),
                ),
                Case::port("no fourth function", to(9_103, 18)).passes(PassNotActive),
                Case::port("below the first", to(9_099, 18)).passes(PassNotActive),
                Case::port("what might be a result of a node", pktgen([9_101, 9_100], 18).1).passes(PassNotActive),
                Case::port("another magic", with(good.clone(), packet.anep(), &[1])).passes(PassNotActive),
                Case::port("shorter than its header", pktgen([9, 9_100], 15).1).drops(DropUdpLength),
                Case::port("a datagram longer than IP says", udp_length(27)).drops(DropUdpLength),
                Case::port("a datagram shorter than UDP", udp_length(7)).drops(DropUdpLength),
                Case::port("a wrong checksum of IP", with(good.clone(), packet.l3() + 10, &[0, 0]))
                    .drops(DropIpChecksum),
                Case::port("ANEP as ever", plain().frame()).stays(0, 1_040),
            ],
        );
    });
}

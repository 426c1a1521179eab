use super::*;
use crate::wire::anep::{UDP_PORT, emit_header};
use crate::wire::{fold_checksum, sum_words};
use proptest::prelude::*;
use std::vec::Vec;

/// What lies between Ethernet and ANEP.
#[derive(Clone, Copy, Debug)]
struct Shape {
    vlans: usize,
    v6: bool,
    extensions: usize,
    ip_options: usize,
    udp: bool,
}

const PLAIN: Shape = Shape { vlans: 0, v6: false, extensions: 0, ip_options: 0, udp: true };

fn ethernet(shape: Shape) -> Vec<u8> {
    let mut frame = Vec::from([2u8, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    for tag in 0..shape.vlans {
        let ethertype = if tag == 0 && shape.vlans == 2 { ip::ETHERTYPE_QINQ } else { ip::ETHERTYPE_VLAN };
        frame.extend_from_slice(&ethertype.to_be_bytes());
        frame.extend_from_slice(&[0, 7]);
    }
    let ethertype = if shape.v6 { ip::ETHERTYPE_IPV6 } else { ip::ETHERTYPE_IPV4 };
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame
}

fn ipv4(shape: Shape, payload_len: usize) -> Vec<u8> {
    let header_len = 20 + 4 * shape.ip_options;
    let mut header = std::vec![0u8; header_len];
    header[0] = 0x40 | (header_len / 4) as u8;
    header[2..4].copy_from_slice(&((header_len + payload_len) as u16).to_be_bytes());
    header[8] = 64;
    header[9] = if shape.udp { PROTOCOL_UDP } else { PROTOCOL_ACTIVE };
    header[12..20].copy_from_slice(&[198, 18, 0, 1, 198, 18, 0, 2]);
    header[20..].fill(1);
    let sum = fold_checksum(sum_words(&header));
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn ipv6(shape: Shape, payload_len: usize) -> Vec<u8> {
    let protocol = if shape.udp { PROTOCOL_UDP } else { PROTOCOL_ACTIVE };
    let mut header = std::vec![0u8; ip::IPV6_BYTES];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&((payload_len + 8 * shape.extensions) as u16).to_be_bytes());
    header[6] = if shape.extensions > 0 { 60 } else { protocol };
    header[7] = 64;
    for left in (0..shape.extensions).rev() {
        header.extend_from_slice(&[if left > 0 { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
    }
    header
}

fn frame(shape: Shape, payload: usize, trailing: usize) -> Vec<u8> {
    let anep_len = 8 + payload;
    let l4_len = anep_len + trailing + if shape.udp { UDP_BYTES } else { 0 };
    let mut frame = ethernet(shape);
    frame.extend_from_slice(&if shape.v6 { ipv6(shape, l4_len) } else { ipv4(shape, l4_len) });
    if shape.udp {
        frame.extend_from_slice(&1111u16.to_be_bytes());
        frame.extend_from_slice(&UDP_PORT.to_be_bytes());
        frame.extend_from_slice(&(l4_len as u16).to_be_bytes());
        frame.extend_from_slice(&[0, 0]);
    }
    frame.extend_from_slice(&emit_header(0, 0xff01, 2, anep_len as u16));
    frame.resize(frame.len() + payload + trailing, 0xab);
    frame
}

fn classify_all(frame: &[u8]) -> Class {
    classify(frame, &Rules::anep(UDP_PORT))
}

#[test]
fn finds_active_packets_behind_every_encapsulation() {
    for vlans in 0..=2 {
        for udp in [true, false] {
            for (v6, extensions, ip_options) in [(false, 0, 0), (false, 0, 10), (true, 0, 0), (true, 4, 0)] {
                let shape = Shape { vlans, v6, extensions, ip_options, udp };
                let frame = frame(shape, 40, 0);
                let Class::Active(active) = classify_all(&frame) else {
                    panic!("{shape:?} is {:?}", classify_all(&frame))
                };
                assert_eq!((active.udp, active.v6, active.trailing), (udp, v6, 0), "{shape:?}");
                assert_eq!(active.l3, 14 + 4 * vlans, "{shape:?}");
                assert_eq!(active.anep.end(), frame.len(), "{shape:?}");
                assert_eq!(active.anep.type_id, 0xff01);
            }
        }
    }
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let good = frame(PLAIN, 40, 0);
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        classify_all(&frame)
    };
    assert_eq!(with(13, 6), Class::NotActive, "ARP");
    assert_eq!(with(14, 0x65), Class::NotActive, "IP version 6 under EtherType 0800");
    assert_eq!(with(14, 0x44), Class::NotActive, "IPv4 header of 4 words");
    assert_eq!(with(23, 6), Class::NotActive, "TCP");
    assert_eq!(with(37, 53), Class::NotActive, "another UDP port");
    assert_eq!(with(20, 0x20), Class::Fragment, "more fragments");
    assert_eq!(with(21, 1), Class::Fragment, "fragment offset");
    assert_eq!(classify_all(&frame(Shape { vlans: 3, ..PLAIN }, 40, 0)), Class::NotActive);
    assert_eq!(classify_all(&frame(Shape { v6: true, extensions: 5, ..PLAIN }, 40, 0)), Class::NotActive);
}

#[test]
fn ipv6_fragments_are_told_by_their_header() {
    let mut packet = frame(Shape { v6: true, extensions: 1, ..PLAIN }, 40, 0);
    packet[14 + 6] = 44;
    assert_eq!(classify_all(&packet), Class::Fragment);
}

#[test]
fn lengths_and_checksums_that_contradict_each_other_are_named() {
    let good = frame(PLAIN, 40, 0);
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[at] = value;
        classify_all(&frame)
    };
    assert_eq!(with(38, 1), Class::Malformed(Reason::DropUdpLength), "UDP length beyond IP's");
    assert_eq!(with(39, 7), Class::Malformed(Reason::DropUdpLength), "UDP length below its header");
    assert_eq!(with(22, 63), Class::Malformed(Reason::DropIpChecksum));
    assert_eq!(with(42, 0), Class::Malformed(Reason::DropAnepVersion));
}

#[test]
fn trailing_bytes_are_measured_not_refused() {
    let Class::Active(active) = classify_all(&frame(PLAIN, 40, 9)) else { panic!("not active") };
    assert_eq!(active.trailing, 9);
}

#[test]
fn truncation_at_every_length_ends_in_a_verdict() {
    for shape in [PLAIN, Shape { udp: false, ..PLAIN }, Shape { v6: true, vlans: 2, extensions: 2, ..PLAIN }] {
        let whole = frame(shape, 40, 0);
        let Class::Active(active) = classify_all(&whole) else { panic!("{shape:?}") };
        for cut in 0..whole.len() {
            let expected = match cut {
                _ if cut < active.anep.start => Class::NotActive,
                _ if cut < active.anep.start + 8 => Class::Malformed(Reason::DropAnepTruncated),
                _ => Class::Malformed(Reason::DropAnepPacketPastFrame),
            };
            assert_eq!(classify_all(&whole[..cut]), expected, "{shape:?} cut at {cut}");
        }
    }
}

proptest! {
    #[test]
    fn no_input_panics_and_offsets_stay_inside(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Class::Active(active) = classify_all(&bytes) {
            prop_assert!(active.anep.end() <= bytes.len());
        }
    }

    #[test]
    fn no_mutation_of_a_good_frame_panics(at in 0usize..120, value: u8, cut in 0usize..200, vlans in 0usize..3, v6: bool, udp: bool) {
        let mut bytes = frame(Shape { vlans, v6, udp, extensions: 1, ip_options: 1 }, 40, 3);
        let len = bytes.len();
        bytes[at % len] = value;
        bytes.truncate(cut);
        if let Class::Active(active) = classify_all(&bytes) {
            prop_assert!(active.anep.end() <= bytes.len());
        }
    }
}

fn identity_of(frame: &[u8]) -> Identity {
    match classify(frame, &Rules::anep(UDP_PORT)) {
        Class::Active(active) => identify(frame, &active),
        other => panic!("{other:?}"),
    }
}

#[test]
fn flows_are_told_apart_by_addresses_and_ports_whatever_lies_before_them() {
    for v6 in [false, true] {
        let shape = Shape { v6, ..PLAIN };
        let identity = identity_of(&frame(shape, 40, 0));
        assert_eq!(
            identity.flow,
            identity_of(&frame(Shape { vlans: 2, ..shape }, 90, 0)).flow,
            "tags are not the flow's"
        );
        assert_eq!(identity.key, identity.flow, "without a key, the packet is about its flow");
        let l4 = 14 + if v6 { 40 } else { 20 };
        let mut other_port = frame(shape, 40, 0);
        other_port[l4 + 1] ^= 1;
        assert_ne!(identity_of(&other_port).flow, identity.flow);
    }
}

#[test]
fn the_class_is_the_precedence_of_the_ip_header() {
    let mut v6 = frame(Shape { v6: true, ..PLAIN }, 40, 0);
    v6[14] |= 0x0a;
    assert_eq!(identity_of(&v6).class, 5);
    let mut v4 = frame(PLAIN, 40, 0);
    v4[15] = 0xc0;
    let sum = fold_checksum(sum_words(&[&v4[14..24], &[0, 0], &v4[26..34]].concat()));
    v4[24..26].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(identity_of(&v4).class, 6);
}

#[test]
fn packets_about_the_same_key_have_the_same_hash_in_every_flow() {
    let keyed = |port: u16, key: u32| {
        let mut frame = frame(PLAIN, 8, 0);
        let anep = frame.len() - 16;
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[anep + 4..anep + 6].copy_from_slice(&4u16.to_be_bytes());
        frame[anep + 8..anep + 12].copy_from_slice(&crate::wire::anep::emit_option(crate::wire::anep::OPTION_KEY, 1));
        frame[anep + 12..].copy_from_slice(&key.to_be_bytes());
        identity_of(&frame)
    };
    assert_eq!(keyed(1, 9).key, keyed(2, 9).key);
    assert_ne!(keyed(1, 9).key, keyed(1, 10).key);
    assert_ne!(keyed(1, 9).flow, keyed(2, 9).flow);
}

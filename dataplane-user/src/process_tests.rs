//! One packet, bytes in, bytes out. What is expected is built from the packet's fields and summed byte by byte
//! (`tests/support/frames.rs`), never by the functions under test.

use proptest::prelude::*;

use super::*;
use frames::{Carrier, Packet, UDP_PORT, internet_checksum, with, with_ip_checksum};

#[path = "../tests/support/frames.rs"]
#[allow(dead_code, reason = "shared with tests that use other parts of it")]
pub(crate) mod frames;

const CHECKS: Checks = Checks { rules: Rules::anep(UDP_PORT), udp_checksum: true };
const UNCHECKED: Checks = Checks { udp_checksum: false, ..CHECKS };
const CARRIERS: [Carrier; 3] = [Carrier::Udp, Carrier::UdpWithoutChecksum, Carrier::Protocol107];

/// Every shape that a valid packet may have around its ANEP header.
fn shapes(base: &Packet) -> Vec<Packet> {
    let mut shapes = Vec::new();
    for carrier in CARRIERS {
        for vlans in 0..=2 {
            for (v6, ip_options, extensions) in [(false, 0, 0), (false, 10, 0), (true, 0, 0), (true, 0, 3)] {
                if !(v6 && carrier == Carrier::UdpWithoutChecksum) {
                    shapes.push(Packet { carrier, vlans, v6, ip_options, extensions, ..base.clone() });
                }
            }
        }
    }
    shapes
}

/// All that a worker does to a packet.
fn serve(frame: &mut [u8], function: Builtin, checks: Checks) -> Result<(), Reason> {
    let active = validate(frame, function, checks)?;
    compute(frame, &active, function);
    turn_round(frame, &active);
    Ok(())
}

fn refused(frame: &[u8], function: Builtin) -> Option<Reason> {
    validate(frame, function, CHECKS).err()
}

fn crc_of(payload: &[u8]) -> [u8; 4] {
    crc32fast::hash(payload).to_be_bytes()
}

fn with_result() -> Packet {
    Packet::new(0xff02).option(1, &[0; 8]).result(4)
}

#[test]
fn a_result_goes_into_its_option_and_every_sum_over_it_is_made_new() {
    for base in [with_result(), with_result().checksum(), with_result().payload_of(41).checksum()] {
        for packet in shapes(&base) {
            let mut frame = packet.frame();
            assert_eq!(serve(&mut frame, Builtin::Crc32, CHECKS), Ok(()), "{packet:?}");
            assert_eq!(frame, packet.answer(&crc_of(&packet.payload)).frame(), "{packet:?}");
        }
    }
}

#[test]
fn without_a_result_only_the_addresses_change_places() {
    for packet in shapes(&Packet::new(0xff01).checksum().payload_of(7)) {
        let mut frame = packet.frame();
        assert_eq!(serve(&mut frame, Builtin::Forward, CHECKS), Ok(()), "{packet:?}");
        assert_eq!(frame, packet.answer(&[]).frame(), "{packet:?}");
    }
}

#[test]
fn a_result_shorter_than_its_option_leaves_the_rest_of_it() {
    let packet = Packet::new(0xff02).result(16).checksum();
    let mut frame = packet.frame();
    assert_eq!(serve(&mut frame, Builtin::Crc32, CHECKS), Ok(()));
    assert_eq!(frame, packet.answer(&crc_of(&packet.payload)).frame());
    let option = packet.options_at() + 4;
    assert_eq!(frame[option + 4..option + 16], [0xee; 12]);
}

#[test]
fn trailing_bytes_count_for_udp_and_not_for_anep() {
    for trailing in [1, 2, 33] {
        for packet in shapes(&Packet { trailing, ..with_result().checksum() }) {
            let mut frame = packet.frame();
            assert_eq!(serve(&mut frame, Builtin::Crc32, CHECKS), Ok(()), "{packet:?}");
            assert_eq!(frame, packet.answer(&crc_of(&packet.payload)).frame(), "{packet:?}");
        }
    }
}

#[test]
fn ethernet_padding_counts_for_nothing() {
    for packet in shapes(&with_result().payload_of(0)) {
        let mut frame = [packet.frame(), vec![0x77; 9]].concat();
        assert_eq!(serve(&mut frame, Builtin::Crc32, CHECKS), Ok(()), "{packet:?}");
        assert_eq!(frame, [packet.answer(&crc_of(&[])).frame(), vec![0x77; 9]].concat(), "{packet:?}");
    }
}

#[test]
fn a_sum_of_zero_is_sent_as_all_ones() {
    for v6 in [false, true] {
        // The last word is such that the sum over the rest and it is zero.
        let mut packet = Packet { v6, ..Packet::new(0xff01) };
        packet.payload[38..].fill(0);
        let sum = packet.l4() + 6;
        let missing: [u8; 2] = packet.frame()[sum..sum + 2].try_into().unwrap();
        packet.payload[38..].copy_from_slice(&missing);
        let frame = packet.frame();
        assert_eq!(frame[sum..sum + 2], [0xff, 0xff], "the case is what it says");
        let mut changed = frame.clone();
        let active = validate(&frame, Builtin::Forward, CHECKS).unwrap();
        turn_round(&mut changed, &active);
        assert_eq!(changed, packet.answer(&[]).frame());
        assert_eq!(
            validate(&changed, Builtin::Forward, CHECKS).err(),
            Some(Reason::DropMetadata),
            "its port has moved"
        );
    }
}

#[test]
fn no_checksum_is_right_over_ipv4_only() {
    let packet = Packet { carrier: Carrier::UdpWithoutChecksum, ..with_result() };
    let mut frame = packet.frame();
    assert_eq!(serve(&mut frame, Builtin::Crc32, CHECKS), Ok(()));
    let sum = packet.l4() + 6;
    assert_eq!(frame[sum..sum + 2], [0, 0], "and stays none");
    let packet = Packet { v6: true, ..packet };
    assert_eq!(refused(&packet.frame(), Builtin::Crc32), Some(Reason::DropUdpChecksum));
    assert_eq!(validate(&packet.frame(), Builtin::Crc32, UNCHECKED).err(), None);
}

#[test]
fn every_wrong_bit_under_the_udp_checksum_is_found() {
    for v6 in [false, true] {
        let packet = Packet { v6, ..Packet::new(0xff01).payload_of(5) };
        let good = packet.frame();
        // All of the datagram but destination port and length, which decide what the packet is.
        let ranges = [packet.l4()..packet.l4() + 2, packet.l4() + 6..packet.anep(), packet.payload_at()..packet.end()];
        for at in ranges.into_iter().flatten() {
            for bit in 0..8 {
                let bad = with(good.clone(), at, &[good[at] ^ 1 << bit]);
                assert_eq!(refused(&bad, Builtin::Forward), Some(Reason::DropUdpChecksum), "byte {at}, bit {bit}");
                assert_eq!(validate(&bad, Builtin::Forward, UNCHECKED).err(), None, "byte {at}, bit {bit}");
            }
        }
        let addresses = if v6 { packet.l3() + 8..packet.l3() + 40 } else { packet.l3() + 12..packet.l3() + 20 };
        for at in addresses {
            let bad = with(good.clone(), at, &[good[at] ^ 4]);
            let bad = if v6 { bad } else { with_ip_checksum(bad, &packet) };
            assert_eq!(refused(&bad, Builtin::Forward), Some(Reason::DropUdpChecksum), "address byte {at}");
        }
    }
}

#[test]
fn every_wrong_bit_under_the_anep_checksum_is_found() {
    let packet = Packet { carrier: Carrier::Protocol107, ..Packet::new(0xff01).checksum().payload_of(9) };
    let good = packet.frame();
    // All but version, lengths and the option's own header, which the parser judges first.
    let anep = packet.anep();
    for at in (anep + 1..anep + 4).chain(anep + 12..packet.end()) {
        for bit in 0..8 {
            let bad = with(good.clone(), at, &[good[at] ^ 1 << bit]);
            // One bit makes it a result, which is not for a worker at all.
            let is_result = (at, bit) == (anep + 1, 6);
            let expected = Some(if is_result { Reason::DropMetadata } else { Reason::DropAnepChecksum });
            assert_eq!(refused(&bad, Builtin::Forward), expected, "byte {at}, bit {bit}");
            assert_eq!(validate(&bad, Builtin::Forward, UNCHECKED).err(), expected);
        }
    }
}

#[test]
fn a_published_packet_is_right() {
    // shared/active.md 1.1: identifiers, checksum 0x7f67, 19 bytes of payload.
    let anep: Vec<u8> = [
        0x0180_ff01u32,
        0x000a_003b,
        0x0001_0003,
        0x0000_0001,
        0xc000_0201,
        0x0002_0003,
        0x0000_0001,
        0xc633_6407,
        0x0003_0002,
        0x7f67_0000,
        0x6f64_642d,
        0x6c65_6e67,
        0x7468_2070,
        0x6179_6c6f,
        0x6164_2100,
    ]
    .iter()
    .flat_map(|word| word.to_be_bytes())
    .take(59)
    .collect();
    let shape = Packet { carrier: Carrier::Protocol107, ..Packet::new(0xff01).payload_of(51) };
    let frame = with(shape.frame(), shape.anep(), &anep);
    assert_eq!(frame.len(), shape.anep() + 59);
    let active = validate(&frame, Builtin::Forward, CHECKS).unwrap();
    assert_eq!((active.anep.type_id, active.anep.payload_len()), (0xff01, 19));
    assert_eq!(internet_checksum(&anep), 0);
    let bad = with(frame.clone(), frame.len() - 1, b"?");
    assert_eq!(refused(&bad, Builtin::Forward), Some(Reason::DropAnepChecksum));
}

#[test]
fn a_datagram_that_the_frame_does_not_hold_cannot_be_answered() {
    // ANEP is whole, but UDP promises 20 bytes more than IP's 20 and the frame's 5.
    for v6 in [false, true] {
        let packet = Packet { v6, trailing: 20, ..with_result() };
        let frame = &packet.frame()[..packet.end() + 5];
        assert_eq!(validate(frame, Builtin::Crc32, CHECKS).err(), Some(Reason::DropUdpChecksum));
        assert_eq!(validate(frame, Builtin::Crc32, UNCHECKED).err(), Some(Reason::DropUdpChecksum));
        let raw = Packet { carrier: Carrier::Protocol107, ..packet };
        let mut frame = raw.frame()[..raw.end() + 5].to_vec();
        assert_eq!(serve(&mut frame, Builtin::Crc32, CHECKS), Ok(()), "without UDP nobody needs the tail");
        assert_eq!(frame, raw.answer(&crc_of(&raw.payload)).frame()[..raw.end() + 5]);
    }
}

#[test]
fn a_result_option_must_hold_the_result() {
    let fits = |packet: Packet, function| validate(&packet.frame(), function, CHECKS).err();
    let none = Packet::new(0xff02);
    assert_eq!(fits(none.clone(), Builtin::Crc32), Some(Reason::DropResultRoom));
    assert_eq!(fits(none.clone().result(0), Builtin::Crc32), Some(Reason::DropResultRoom));
    assert_eq!(fits(none.clone().result(4), Builtin::Crc32), None);
    assert_eq!(fits(none.clone().result(28), Builtin::Sha256), Some(Reason::DropResultRoom));
    assert_eq!(fits(none.clone().result(32), Builtin::Sha256), None);
    for function in [Builtin::Forward, Builtin::Spin, Builtin::Hold, Builtin::SlowHold] {
        assert_eq!(fits(none.clone(), function), None, "{function:?} has no result");
    }
}

#[test]
fn the_last_result_option_is_the_one() {
    let packet = Packet::new(0xff02).option(0x8011, &[0xaa; 4]).result(4);
    let mut frame = packet.frame();
    assert_eq!(serve(&mut frame, Builtin::Crc32, CHECKS), Ok(()));
    assert_eq!(frame, packet.answer(&crc_of(&packet.payload)).frame());
}

#[test]
fn what_xdp_would_not_have_let_through_is_refused() {
    let packet = Packet::new(0xff01);
    for bad in [
        Packet { port: [UDP_PORT, 53], ..packet.clone() }.frame(),
        with(packet.frame(), packet.anep(), &[2]),
        with(packet.frame(), 12, &[8, 6]),
        with(packet.frame(), packet.l3() + 10, &[0, 0]),
        packet.frame()[..packet.end() - 1].to_vec(),
        Vec::new(),
    ] {
        assert_eq!(refused(&bad, Builtin::Forward), Some(Reason::DropMetadata), "{bad:02x?}");
    }
    let other = Checks { rules: Rules::anep(9_000), ..CHECKS };
    let there = Packet { port: [UDP_PORT, 9_000], ..packet.clone() };
    assert_eq!(validate(&there.frame(), Builtin::Forward, other).err(), None);
    assert_eq!(validate(&packet.frame(), Builtin::Forward, other).err(), Some(Reason::DropMetadata));
}

#[test]
fn functions_see_payload_operand_and_result_and_change_only_the_result() {
    for packet in shapes(&Packet::new(0xff03).operand(3).result(32).option(4, &[9; 8]).payload_of(100)) {
        let frame = packet.frame();
        let active = validate(&frame, Builtin::Sha256, CHECKS).unwrap();
        let mut computed = frame.clone();
        compute(&mut computed, &active, Builtin::Sha256);
        let mut result = [0; 32];
        Builtin::Sha256.compute(Call { payload: &mut packet.payload.clone(), operand: 3, result: &mut result });
        let at = packet.options_at() + 12;
        assert_eq!(computed, with(frame, at, &result), "{packet:?}");
    }
}

#[test]
fn packets_of_the_kernels_generator_keep_their_header_and_get_their_result_behind_it() {
    let checks = Checks {
        rules: Rules { pktgen_port: 9_100, pktgen_functions: 1, pktgen_operand: 2, ..Rules::anep(UDP_PORT) },
        ..CHECKS
    };
    let header = [0xbe, 0x9b, 0xe9, 0x55, 0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8];
    let packet = |port, payload: usize| {
        let packet = Packet { port, carrier: Carrier::UdpWithoutChecksum, ..Packet::new(1) };
        // What lies there otherwise is an ANEP header of 8 bytes.
        packet.payload_of(payload - 8)
    };
    let (sent, answer) = (packet([9, 9_100], 100), packet([9_100, 9], 100));
    let bytes = |packet: &Packet, result: &[u8]| {
        let behind = [&header[..], result, &[0; 84]].concat();
        with(packet.frame(), packet.anep(), &behind[..100])
    };
    let mut frame = bytes(&sent, &[]);
    assert_eq!(serve(&mut frame, Builtin::Crc32, checks), Ok(()));
    let swapped = {
        let mut frame = bytes(&answer, &crc_of(&[0; 52]));
        let addresses = sent.frame();
        frame[..6].copy_from_slice(&addresses[6..12]);
        frame[6..12].copy_from_slice(&addresses[..6]);
        frame[26..30].copy_from_slice(&addresses[30..34]);
        frame[30..34].copy_from_slice(&addresses[26..30]);
        frame
    };
    assert_eq!(frame, swapped);
    let short = bytes(&sent, &[])[..].to_vec();
    let short = {
        let packet = packet([9, 9_100], 18);
        with(packet.frame(), packet.anep(), &short[sent.anep()..][..18])
    };
    assert_eq!(validate(&short, Builtin::Crc32, checks).err(), Some(Reason::DropResultRoom));
    assert_eq!(validate(&short, Builtin::Forward, checks).err(), None);
    assert_eq!(validate(&short, Builtin::Forward, CHECKS).err(), Some(Reason::DropMetadata), "without the profile");
}

fn any_packet() -> impl Strategy<Value = Packet> {
    let shape = (0..3usize, any::<bool>(), 0..11usize, 0..5usize, 0..3usize);
    let content = (0..200usize, any::<[u8; 2]>(), any::<[u16; 2]>(), any::<bool>(), 0..9usize);
    (shape, content).prop_map(
        |((vlans, v6, ip_options, extensions, carrier), (length, host, port, checksum, trailing))| {
            let packet = with_result().payload_of(length);
            let packet = if checksum { packet.checksum() } else { packet };
            let carrier =
                if v6 && CARRIERS[carrier] == Carrier::UdpWithoutChecksum { Carrier::Udp } else { CARRIERS[carrier] };
            Packet { vlans, v6, ip_options, extensions, carrier, host, port: [port[0], UDP_PORT], trailing, ..packet }
        },
    )
}

proptest! {
    #[test]
    fn any_packet_is_answered_as_its_fields_say(packet in any_packet()) {
        let mut frame = packet.frame();
        prop_assert_eq!(serve(&mut frame, Builtin::Crc32, CHECKS), Ok(()));
        prop_assert_eq!(frame, packet.answer(&crc_of(&packet.payload)).frame());
    }

    #[test]
    fn turned_round_twice_a_packet_is_what_it_was_but_for_its_mark(packet in any_packet()) {
        let frame = packet.frame();
        let active = validate(&frame, Builtin::Forward, CHECKS).unwrap();
        let mut turned = frame.clone();
        turn_round(&mut turned, &active);
        prop_assert_ne!(&turned, &frame);
        turn_round(&mut turned, &active);
        prop_assert_eq!(turned, Packet { flags: packet.flags | 0x40, ..packet }.frame());
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), checked: bool) {
        let checks = if checked { CHECKS } else { UNCHECKED };
        let _ = serve(&mut bytes, Builtin::Crc32, checks);
    }

    #[test]
    fn mutated_packets_never_panic_and_keep_their_length(
        packet in any_packet(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut: prop::sample::Index,
        truncated: bool,
    ) {
        let mut frame = packet.frame();
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        if truncated {
            frame.truncate(cut.index(frame.len() + 1));
        }
        if !packet.v6 && frame.len() >= packet.l4() {
            frame = with_ip_checksum(frame, &packet);
        }
        let length = frame.len();
        // Checksums off, so that more than the parser is reached.
        for function in [Builtin::Crc32, Builtin::Forward] {
            let _ = serve(&mut frame, function, UNCHECKED);
            prop_assert_eq!(frame.len(), length);
        }
    }
}

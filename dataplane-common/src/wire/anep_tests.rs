use super::*;
use proptest::prelude::*;
use std::vec::Vec;

/// Smallest packet: type 51, discard flag, 8 bytes of payload.
const MINIMAL: &str = "0180003300020010616374697665706b";
/// Source 192.0.2.1, destination 198.51.100.7, checksum 0x7f67, 19 bytes of payload (odd length), 59 bytes in all.
const WITH_OPTIONS: &str = "0180ff01000a003b0001000300000001c00002010002000300000001c6336407000300027f6700006f64642d6c656e677468207061796c6f616421";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn parse_all(packet: &[u8]) -> Result<Anep, Reason> {
    parse(packet, 0, packet.len())
}

#[test]
fn parses_the_minimal_packet() {
    let anep = parse_all(&bytes(MINIMAL)).unwrap();
    assert_eq!(anep.type_id, 51);
    assert!(anep.discard_unknown);
    assert_eq!((anep.header_len, anep.packet_len, anep.payload_len()), (8, 16, 8));
    assert_eq!(anep.operand, None);
}

#[test]
fn parses_and_sums_the_packet_with_options() {
    let packet = bytes(WITH_OPTIONS);
    let anep = parse_all(&packet).unwrap();
    assert_eq!(anep.type_id, 0xff01);
    assert_eq!((anep.header_len, anep.packet_len), (40, 59));
    assert_eq!(anep.checksum_at, Some(36));
    assert!(checksum_ok(&packet));
    let mut zeroed = packet.clone();
    zeroed[36..38].fill(0);
    assert_eq!(checksum(&zeroed), 0x7f67);
    zeroed[50] ^= 1;
    assert!(!checksum_ok(&zeroed));
}

#[test]
fn names_every_way_to_be_wrong() {
    let good = bytes(MINIMAL);
    let with = |at: usize, value: u8| {
        let mut packet = good.clone();
        packet[at] = value;
        parse_all(&packet)
    };
    assert_eq!(with(0, 2), Err(Reason::DropAnepVersion));
    assert_eq!(with(5, 1), Err(Reason::DropAnepHeaderShort));
    assert_eq!(with(5, 5), Err(Reason::DropAnepHeaderPastEnd));
    assert_eq!(with(7, 17), Err(Reason::DropAnepPacketPastFrame));
    assert_eq!(parse(good.as_slice(), 0, 15), Err(Reason::DropAnepPacketPastFrame));
    for cut in 0..HEADER_BYTES {
        assert_eq!(parse_all(&good[..cut]), Err(Reason::DropAnepTruncated));
    }
}

/// A packet whose options are `options` (tag, value bytes).
fn with_options(options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (tag, value) in options {
        body.extend_from_slice(&emit_option(*tag, (value.len() / 4) as u16));
        body.extend_from_slice(value);
    }
    let len = HEADER_BYTES + body.len();
    let mut packet = emit_header(0, 0xff02, (len / 4) as u16, len as u16).to_vec();
    packet.extend_from_slice(&body);
    packet
}

#[test]
fn reads_operand_and_result_options() {
    let anep = parse_all(&with_options(&[(OPTION_OPERAND, &[0, 0, 1, 2]), (OPTION_RESULT, &[0; 32])])).unwrap();
    assert_eq!(anep.operand, Some(0x102));
    assert_eq!((anep.result_at, anep.result_len), (Some(20), 32));
}

#[test]
fn unknown_options_follow_their_flag() {
    assert!(parse_all(&with_options(&[(99, &[0; 4])])).is_ok());
    assert_eq!(parse_all(&with_options(&[(99 | OPTION_DISCARD, &[0; 4])])), Err(Reason::DropAnepOptionUnknown));
    assert!(parse_all(&with_options(&[(OPTION_OPERAND | OPTION_DISCARD, &[0; 4])])).is_ok());
}

#[test]
fn option_lengths_are_checked() {
    let mut packet = with_options(&[(99, &[0; 4])]);
    packet[11] = 0;
    assert_eq!(parse_all(&packet), Err(Reason::DropAnepOptionLength), "length zero");
    packet[11] = 3;
    assert_eq!(parse_all(&packet), Err(Reason::DropAnepOptionLength), "past the header");
    assert_eq!(parse_all(&with_options(&[(OPTION_OPERAND, &[])])), Err(Reason::DropAnepOptionLength));
}

#[test]
fn too_many_options_have_a_reason_of_their_own() {
    let eight = [(99u16, [0u8; 4].as_slice()); MAX_OPTIONS];
    assert!(parse_all(&with_options(&eight)).is_ok());
    let nine = [(99u16, [0u8; 4].as_slice()); MAX_OPTIONS + 1];
    assert_eq!(parse_all(&with_options(&nine)), Err(Reason::DropAnepOptionsLimit));
    let long = [(99u16, [0u8; 252].as_slice()); 1];
    assert_eq!(parse_all(&with_options(&long)), Err(Reason::DropAnepOptionsLimit));
}

proptest! {
    #[test]
    fn never_panics_and_never_points_outside(packet in proptest::collection::vec(any::<u8>(), 0..400), start in 0usize..64, limit in 0usize..500) {
        if let Ok(anep) = parse(packet.as_slice(), start, limit) {
            prop_assert!(anep.end() <= packet.len());
            prop_assert!(anep.packet_len <= limit);
            prop_assert!(anep.header_len <= anep.packet_len);
            if let Some(at) = anep.result_at {
                prop_assert!(at + anep.result_len <= anep.start + anep.header_len);
            }
        }
    }

    #[test]
    fn every_change_of_one_bit_breaks_the_checksum(bit in 0usize..59 * 8) {
        let mut packet = bytes(WITH_OPTIONS);
        packet[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!checksum_ok(&packet));
    }
}

//! Random frames.

use crate::support::frames::{Carrier, Packet, UDP_PORT, with_ip_checksum};
use crate::support::random::Random;

/// Type ids of the nodes' functions, by index, and one that no node has.
pub const TYPES: [u16; 5] = [0xff01, 0xff02, 0xff03, 0xff04, 0xff05];
pub const UNKNOWN_TYPE: u16 = 51;
/// The kernel runs programs on whole Ethernet headers only.
pub const SHORTEST: usize = 14;

/// A frame of any kind: mostly an active packet with something wrong, often one that is right, sometimes noise.
pub fn frame(random: &mut Random) -> Vec<u8> {
    match random.below(10) {
        0 => noise(random),
        1..=6 => packet(random).frame(),
        _ => mutated(random),
    }
}

/// An active packet that most functions take.
pub fn good_packet(random: &mut Random) -> Vec<u8> {
    let operand = random.pick(&[0, 1, 100, 5_000, 50_000]);
    let length = random.below(100) as usize;
    let packet = Packet {
        v6: random.once_in(4),
        carrier: random.pick(&[Carrier::Udp, Carrier::Udp, Carrier::Protocol107]),
        host: [random.word() as u8, random.word() as u8],
        port: [random.word() as u16, UDP_PORT],
        class: random.below(8) as u8,
        ..Packet::new(random.pick(&TYPES)).operand(operand).payload_of(length)
    };
    if random.once_in(2) { packet.key(random.below(50) as u32).frame() } else { packet.frame() }
}

/// An active packet of any kind. Lengths are chosen such that both the link's limit and the estimates' limit are met.
pub fn packet(random: &mut Random) -> Packet {
    let type_id = if random.once_in(20) { UNKNOWN_TYPE } else { random.pick(&TYPES) };
    let length = match random.below(6) {
        0 => 0,
        1 => random.below(1800) as usize,
        _ => random.below(120) as usize,
    };
    let base = Packet::new(type_id).payload_of(length);
    let mut packet = Packet {
        vlans: random.pick(&[0, 0, 0, 1, 2]),
        v6: random.once_in(3),
        ip_options: random.pick(&[0, 0, 0, 1, 10]),
        extensions: random.pick(&[0, 0, 0, 0, 0, 1, 2, 4, 5]),
        carrier: random.pick(&[Carrier::Udp, Carrier::UdpWithoutChecksum, Carrier::Protocol107]),
        flags: random.pick(&[0, 0x80, 0x7f]),
        trailing: random.pick(&[0, 0, 0, 1, 30]),
        // Flow and class, and with the flow what decisions draw.
        host: [random.word() as u8, random.word() as u8],
        port: [random.word() as u16, UDP_PORT],
        class: random.below(8) as u8,
        ..base
    };
    for _ in 0..random.below(4) {
        packet = option(random, packet);
    }
    if random.once_in(40) {
        packet = (0..9).fold(packet, |packet, _| packet.option(1, &[]));
    }
    packet
}

fn option(random: &mut Random, packet: Packet) -> Packet {
    let operand = random.pick(&[0, 1, 100, 5_000, 50_000, 1_000_000, u32::MAX]);
    match random.below(20) {
        0..=8 => packet.operand(operand),
        9..=11 => packet.key(random.word() as u32),
        12 | 13 => packet.result(random.below(40) as usize),
        14 => packet.checksum(),
        15 | 16 => packet.option(random.pick(&[1, 2, 4, 0x4001]), &[7; 8]),
        17 | 18 => packet.option(random.pick(&[9, 0x8013]), &[]),
        _ => packet.option(random.pick(&[3, 0x8010, 0x8011, 0x8012, 0x4009, 0xc013]), &[]),
    }
}

fn mutated(random: &mut Random) -> Vec<u8> {
    let packet = packet(random);
    let mut frame = packet.frame();
    let headers = packet.payload_at().min(frame.len());
    for _ in 0..random.below(4) {
        // Mostly in a header, where it matters; of the addresses only now and then.
        let at =
            if random.once_in(8) { random.below(frame.len() as u64) } else { 12 + random.below(headers as u64 - 12) };
        let old = frame[at as usize];
        frame[at as usize] = match random.below(4) {
            0 => random.word() as u8,
            1 => old ^ 1 << random.below(8),
            2 => old.wrapping_add(1),
            _ => random.pick(&[0, 1, 2, 3, 0x7f, 0x80, 0xff]),
        };
    }
    // A length field with another length: every parser's favourite mistake.
    if random.once_in(3) {
        let anep = packet.anep();
        let fields = [packet.l3() + 2, packet.l3() + 4, packet.l4() + 4, anep + 4, anep + 6, anep + 10];
        let at = random.pick(&fields);
        let value = random.pick(&[0, 1, 7, 8, 9, headers as u16, frame.len() as u16, 0xffff]).to_be_bytes();
        if at + 2 <= frame.len() {
            frame[at..at + 2].copy_from_slice(&value);
        }
    }
    if !packet.v6 && !random.once_in(4) {
        frame = with_ip_checksum(frame, &packet);
    }
    match random.below(6) {
        0 => frame.truncate(SHORTEST + random.below((frame.len() - SHORTEST) as u64 + 1) as usize),
        1 => {
            let length = frame.len() + random.below(40) as usize;
            frame.resize(length, 0xa5);
        }
        _ => {}
    }
    frame
}

fn noise(random: &mut Random) -> Vec<u8> {
    let length = SHORTEST + random.below(200) as usize;
    let mut frame = random.bytes(length);
    let ethertype: [u8; 2] = random.pick(&[[8, 0], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8], [8, 6]]);
    frame[12..14].copy_from_slice(&ethertype);
    if random.once_in(2) && length > 24 {
        // A first byte and a protocol that let the parser go on.
        frame[14] = if ethertype[0] == 8 { 0x45 } else { 0x60 };
        frame[if ethertype[0] == 8 { 23 } else { 20 }] = random.pick(&[17, 107]);
    }
    frame
}

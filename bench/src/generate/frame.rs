//! The one frame that a benchmark sends over and over: active, of exactly the wanted length, without a probe in it.

use std::net::Ipv4Addr;

use anyhow::{Result, ensure};
use dataplane_common::wire::anep::{self, FLAG_DISCARD, OPTION_OPERAND};
use dataplane_common::wire::ip::{ETHERNET_BYTES, ETHERTYPE_IPV4, IPV4_BYTES, PROTOCOL_UDP, UDP_BYTES};
use dataplane_common::wire::{fold_checksum, sum_words};

use crate::topology::Mac;

/// Bytes of the frame check sequence, which belongs to a frame's nominal size but is no part of it in memory.
pub const FCS_BYTES: usize = 4;
/// Shortest nominal size, bytes (IEEE 802.3).
pub const MIN_SIZE: usize = 64;
/// Hop limit.
const TTL: u8 = 64;

/// What the frame shall be.
#[derive(Clone, Debug)]
pub struct FrameSpec {
    /// Nominal size, bytes: with the frame check sequence, as RFC 2544 counts.
    pub size: usize,
    /// Ethernet addresses: sender, receiver.
    pub macs: (Mac, Mac),
    /// IPv4 addresses: sender, receiver.
    pub addresses: (Ipv4Addr, Ipv4Addr),
    /// UDP ports: sender, receiver.
    pub ports: (u16, u16),
    /// Type id of the function.
    pub type_id: u16,
    /// Operand of the function, if it takes one.
    pub operand: Option<u32>,
    /// Whether the UDP checksum is right; a wrong one makes a worker drop the packet after it has been decided about.
    pub is_sound: bool,
}

impl FrameSpec {
    /// Lays the frame out, without the frame check sequence.
    ///
    /// # Errors
    /// It would be shorter than Ethernet allows or than its headers, or longer than IP can say.
    pub fn build(&self) -> Result<Vec<u8>> {
        let option = if self.operand.is_some() { 8 } else { 0 };
        let header = anep::HEADER_BYTES + option;
        let least = (ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + header + FCS_BYTES).max(MIN_SIZE);
        ensure!(self.size >= least, "a frame of {} bytes: at least {least}", self.size);
        let ip_bytes = u16::try_from(self.size - FCS_BYTES - ETHERNET_BYTES)?;
        let udp_bytes = ip_bytes - IPV4_BYTES as u16;
        let mut bytes = Vec::with_capacity(self.size);
        bytes.extend(self.macs.1);
        bytes.extend(self.macs.0);
        bytes.extend(ETHERTYPE_IPV4.to_be_bytes());
        // Version 4, 5 words of header; "don't fragment" (RFC 791).
        let [t0, t1] = ip_bytes.to_be_bytes();
        let mut ip = [0x45, 0, t0, t1, 0, 0, 0x40, 0, TTL, PROTOCOL_UDP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        ip[12..16].copy_from_slice(&self.addresses.0.octets());
        ip[16..20].copy_from_slice(&self.addresses.1.octets());
        let sum = fold_checksum(sum_words(&ip));
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(ip);
        for number in [self.ports.0, self.ports.1, udp_bytes, 0] {
            bytes.extend(number.to_be_bytes());
        }
        let packet = udp_bytes - UDP_BYTES as u16;
        bytes.extend(anep::emit_header(FLAG_DISCARD, self.type_id, (header / 4) as u16, packet));
        if let Some(operand) = self.operand {
            bytes.extend(anep::emit_option(OPTION_OPERAND, 1));
            bytes.extend(operand.to_be_bytes());
        }
        bytes.resize(self.size - FCS_BYTES, 0);
        self.fill_checksum(&mut bytes, udp_bytes);
        Ok(bytes)
    }

    fn fill_checksum(&self, bytes: &mut [u8], udp_bytes: u16) {
        let udp = ETHERNET_BYTES + IPV4_BYTES;
        let addresses = sum_words(&self.addresses.0.octets()) + sum_words(&self.addresses.1.octets());
        let pseudo_header = addresses + u32::from(PROTOCOL_UDP) + u32::from(udp_bytes);
        let sum = match fold_checksum(pseudo_header + sum_words(&bytes[udp..])) {
            // RFC 768: zero means "no checksum", so a sum of zero is sent as all ones.
            0 => 0xffff,
            sum => sum,
        };
        // Off by one, and never zero.
        let sum = if self.is_sound { sum } else { (sum ^ 1).max(2) };
        bytes[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(size: usize) -> FrameSpec {
        FrameSpec {
            size,
            macs: ([2, 0, 0, 0, 1, 2], [2, 0, 0, 0, 1, 1]),
            addresses: (Ipv4Addr::new(198, 18, 1, 2), Ipv4Addr::new(198, 18, 1, 1)),
            ports: (40_000, anep::UDP_PORT),
            type_id: 0xff01,
            operand: None,
            is_sound: true,
        }
    }

    /// Sum of the UDP datagram with its pseudo header: 0 when the checksum is right.
    fn udp_sum(frame: &[u8]) -> u16 {
        let pseudo_header = sum_words(&frame[26..34]) + u32::from(PROTOCOL_UDP) + frame[34..].len() as u32;
        fold_checksum(pseudo_header + sum_words(&frame[34..]))
    }

    #[test]
    fn the_frame_has_its_size_and_right_checksums() {
        for size in [64, 128, 1518] {
            let frame = spec(size).build().unwrap();
            assert_eq!(frame.len(), size - FCS_BYTES);
            assert_eq!(fold_checksum(sum_words(&frame[14..34])), 0);
            assert_eq!(udp_sum(&frame), 0);
            let packet = anep::parse(frame.as_slice(), 42, frame.len() - 42).unwrap();
            assert_eq!((packet.type_id, packet.packet_len), (0xff01, frame.len() - 42));
        }
    }

    #[test]
    fn an_unsound_frame_has_a_wrong_checksum_and_an_operand_is_found() {
        let frame = FrameSpec { is_sound: false, operand: Some(7), ..spec(64) }.build().unwrap();
        assert_ne!(udp_sum(&frame), 0);
        assert_eq!(anep::parse(frame.as_slice(), 42, frame.len() - 42).unwrap().operand, Some(7));
    }

    #[test]
    fn sizes_that_ethernet_does_not_have_are_refused() {
        assert!(spec(63).build().is_err());
        assert!(spec(70_000).build().is_err());
    }
}

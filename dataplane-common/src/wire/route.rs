//! Interconnect frames in UDP over IPv4, so that nodes need not share an Ethernet segment.
//!
//! ```text
//! | Ethernet (14) | IPv4 (20) | UDP (8) | interconnect header (72) | original frame |
//! ```
//! The datagram's payload is the interconnect frame without its Ethernet header. Sources: RFC 791, RFC 768; the source port tells
//! flows apart as RFC 7510 section 3 does for MPLS in UDP, so that routers and receive queues spread them.

use super::fold_checksum;
use super::ip::{ETHERNET_BYTES, ETHERTYPE_IPV4, IPV4_BYTES, PROTOCOL_UDP, UDP_BYTES};
use crate::packet::Packet;

/// What lies between Ethernet and interconnect header, bytes.
pub const ROUTE_BYTES: usize = IPV4_BYTES + UDP_BYTES;
/// Offset of the peer's IPv4 address in the frame, bytes.
pub const ADDRESS_AT: usize = ETHERNET_BYTES + 16;
/// Offset of the peer's UDP port in the frame, bytes.
pub const PORT_AT: usize = ETHERNET_BYTES + IPV4_BYTES + 2;
/// Hops a datagram may make.
const TTL: u8 = 64;
/// Source ports come from here up (RFC 6335: dynamic ports).
const FIRST_PORT: u16 = 0xc000;

/// Both ends of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// IPv4 address of the peer.
    pub address: [u8; 4],
    /// Our IPv4 address.
    pub source: [u8; 4],
    /// UDP port of the peer.
    pub port: u16,
}

impl Route {
    /// The headers in front of `payload` bytes; `flow` is any number that packets of one flow share.
    #[inline(always)]
    pub fn emit(&self, payload: usize, flow: u16) -> [u8; ROUTE_BYTES] {
        let (words, last) = self.words(payload, flow);
        let mut bytes = [0; ROUTE_BYTES];
        let (front, back) = bytes.as_chunks_mut::<8>();
        for (at, word) in front.iter_mut().zip(words) {
            *at = word.to_be_bytes();
        }
        back.copy_from_slice(&last.to_be_bytes());
        bytes
    }

    /// The same as words, as they are before they become big endian: XDP programs have no room for so many bytes.
    #[inline(always)]
    pub fn words(&self, payload: usize, flow: u16) -> ([u64; 3], u32) {
        // Version 4 and header length 5, no priority; no identification, and the flag "do not fragment".
        const FIRST: u64 = 0x4500;
        const FLAGS: u64 = 0x4000;
        let (total, length) = ((ROUTE_BYTES + payload) as u16, (UDP_BYTES + payload) as u16);
        let (source, address) = (u32::from_be_bytes(self.source), u32::from_be_bytes(self.address));
        let hop = (TTL as u32) << 8 | PROTOCOL_UDP as u32;
        let halves = |word: u32| (word >> 16) + (word & 0xffff);
        let sum = FIRST as u32 + total as u32 + FLAGS as u32 + hop + halves(source) + halves(address);
        let from = FIRST_PORT | flow & !FIRST_PORT;
        let words = [
            FIRST << 48 | (total as u64) << 32 | FLAGS,
            (hop as u64) << 48 | (fold_checksum(sum) as u64) << 32 | source as u64,
            (address as u64) << 32 | (from as u64) << 16 | self.port as u64,
        ];
        // The datagram has no checksum: what matters is sealed, or checked where it is used.
        (words, (length as u32) << 16)
    }
}

/// Whether a frame carries the interconnect to `port` or the one after it, where reports go.
#[inline(always)]
pub fn is_routed<P: Packet + ?Sized>(frame: &P, port: u16) -> bool {
    if frame.u16(12) != Some(ETHERTYPE_IPV4) {
        return false;
    }
    // A header without options (IHL 5) that is no fragment.
    let (Some(first), Some(fragment), Some(ttl)) =
        (frame.u16(ETHERNET_BYTES), frame.u16(ETHERNET_BYTES + 6), frame.u16(ETHERNET_BYTES + 8))
    else {
        return false;
    };
    let Some(to) = frame.u16(PORT_AT) else { return false };
    first >> 8 == 0x45
        && fragment & 0x3fff == 0
        && ttl as u8 == PROTOCOL_UDP
        && (to == port || to == port.wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::sum_words;
    use std::vec::Vec;

    const ROUTE: Route = Route { address: [198, 18, 0, 2], source: [198, 18, 255, 1], port: 49_322 };

    fn frame(route: &Route) -> Vec<u8> {
        let mut frame = [[2u8; 12].as_slice(), &[8, 0]].concat();
        frame.extend_from_slice(&route.emit(86, 0x1234));
        frame.resize(frame.len() + 86, 0);
        frame
    }

    #[test]
    fn headers_are_those_of_the_rfcs() {
        let bytes = frame(&ROUTE);
        let (ip, udp) = (&bytes[14..34], &bytes[34..42]);
        assert_eq!(fold_checksum(sum_words(ip)), 0, "the checksum is right");
        assert_eq!((ip[0], ip[9], &ip[12..16], &ip[16..20]), (0x45, 17, &ROUTE.source[..], &ROUTE.address[..]));
        assert_eq!(u16::from_be_bytes([ip[2], ip[3]]), 20 + 8 + 86);
        assert_eq!(u16::from_be_bytes([udp[4], udp[5]]), 8 + 86);
        assert_eq!(u16::from_be_bytes([udp[0], udp[1]]), 0xc000 | 0x1234);
        assert_eq!(bytes[ADDRESS_AT..ADDRESS_AT + 4], ROUTE.address);
        assert_eq!(u16::from_be_bytes([bytes[PORT_AT], bytes[PORT_AT + 1]]), 49_322);
    }

    #[test]
    fn only_datagrams_to_the_ports_are_the_interconnect() {
        let good = frame(&ROUTE);
        assert!(is_routed(good.as_slice(), 49_322) && is_routed(good.as_slice(), 49_321));
        assert!(!is_routed(good.as_slice(), 49_323));
        for (at, byte) in [(12, 0x86), (14, 0x46), (14, 0x65), (20, 0x20), (21, 1), (23, 6), (36, 0)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(!is_routed(bad.as_slice(), 49_322), "{at}");
        }
        for cut in 0..PORT_AT + 2 {
            assert!(!is_routed(&good[..cut], 49_322), "{cut}");
        }
    }
}

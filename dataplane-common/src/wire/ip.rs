//! Ethernet, VLAN tags, IPv4, IPv6 and UDP, as far as the dataplane looks into them.
//!
//! Sources: IEEE 802.3 / 802.1Q, RFC 791 (IPv4), RFC 8200 (IPv6), RFC 768 (UDP).

use super::fold_checksum;
use crate::packet::Packet;

/// Length of an Ethernet header without VLAN tags, in bytes.
pub const ETHERNET_BYTES: usize = 14;
/// Length of one 802.1Q or 802.1ad tag, in bytes.
pub const VLAN_BYTES: usize = 4;
/// VLAN tags looked through; a frame with more is not active.
pub const MAX_VLAN_TAGS: usize = 2;
/// Length of an IPv4 header without options, in bytes.
pub const IPV4_BYTES: usize = 20;
/// Length of the fixed IPv6 header, in bytes.
pub const IPV6_BYTES: usize = 40;
/// Length of a UDP header, in bytes.
pub const UDP_BYTES: usize = 8;
/// Length of an IPv6 fragment header, in bytes.
const FRAGMENT_BYTES: usize = 8;
/// IPv6 extension headers looked through; a packet with more is not active.
pub const MAX_EXTENSION_HEADERS: usize = 4;

/// EtherType of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// EtherType of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// EtherType of a customer VLAN tag (802.1Q).
pub const ETHERTYPE_VLAN: u16 = 0x8100;
/// EtherType of a service VLAN tag (802.1ad).
pub const ETHERTYPE_QINQ: u16 = 0x88a8;

/// IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// IP protocol number "Active Networks" (IANA).
pub const PROTOCOL_ACTIVE: u8 = 107;

const NEXT_HOP_BY_HOP: u8 = 0;
const NEXT_ROUTING: u8 = 43;
const NEXT_FRAGMENT: u8 = 44;
const NEXT_DESTINATION: u8 = 60;

/// Where the transport header of a frame lies and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// True for IPv6, false for IPv4.
    pub v6: bool,
    /// Offset of the IP header, bytes from the start of the frame.
    pub l3: usize,
    /// Offset of the transport header, bytes from the start of the frame.
    pub l4: usize,
    /// Bytes of transport header and payload, as the IP header says.
    pub l4_len: usize,
    /// IP protocol number of the transport header.
    pub protocol: u8,
    /// True for a fragment: its transport header must not be read.
    pub fragment: bool,
}

/// Finds the transport header behind Ethernet, up to [`MAX_VLAN_TAGS`] VLAN tags and IP.
///
/// `None` when the frame is something else, is cut short, or contradicts itself before the transport header: such
/// frames are for the kernel stack to judge.
#[inline(always)]
pub fn find_transport<P: Packet + ?Sized>(frame: &P) -> Option<Transport> {
    let mut ethertype = frame.u16(12)?;
    let mut l3 = ETHERNET_BYTES;
    for _ in 0..MAX_VLAN_TAGS {
        if ethertype != ETHERTYPE_VLAN && ethertype != ETHERTYPE_QINQ {
            break;
        }
        ethertype = frame.u16(l3 + 2)?;
        l3 += VLAN_BYTES;
    }
    match ethertype {
        ETHERTYPE_IPV4 => find_in_ipv4(frame, l3),
        ETHERTYPE_IPV6 => find_in_ipv6(frame, l3),
        _ => None,
    }
}

#[inline(always)]
fn find_in_ipv4<P: Packet + ?Sized>(frame: &P, l3: usize) -> Option<Transport> {
    let header: [u8; 12] = frame.read(l3)?;
    let words = usize::from(header[0] & 0x0f);
    if header[0] >> 4 != 4 || words < 5 || l3 + 4 * words > frame.len() {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let l4_len = total.checked_sub(4 * words)?;
    // RFC 791: the low 13 bits are the fragment offset, bit 13 is "more fragments".
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    Some(Transport { v6: false, l3, l4: l3 + 4 * words, l4_len, protocol: header[9], fragment })
}

#[inline(always)]
fn find_in_ipv6<P: Packet + ?Sized>(frame: &P, l3: usize) -> Option<Transport> {
    let header: [u8; 8] = frame.read(l3)?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let mut left = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let mut next = header[6];
    let mut l4 = l3 + IPV6_BYTES;
    for _ in 0..MAX_EXTENSION_HEADERS {
        match next {
            NEXT_HOP_BY_HOP | NEXT_ROUTING | NEXT_DESTINATION => {
                let [following, units] = frame.read::<2>(l4)?;
                // RFC 8200 section 4: the length is in 8-byte units and does not count the first one.
                let bytes = 8 + 8 * usize::from(units);
                left = left.checked_sub(bytes)?;
                l4 += bytes;
                next = following;
            }
            _ => break,
        }
    }
    let fragment = next == NEXT_FRAGMENT;
    if fragment {
        [next, ..] = frame.read::<FRAGMENT_BYTES>(l4)?;
    }
    // Only the first bytes of each header were read.
    if l4 > frame.len() {
        return None;
    }
    Some(Transport { v6: true, l3, l4, l4_len: left, protocol: next, fragment })
}

/// True when the frame claims to come from a group: a MAC address with the group bit, an IPv4 source of class D or E
/// (224.0.0.0 and up, the broadcast address among them), or an IPv6 multicast source. `l3` is the IP header.
#[inline(always)]
pub fn has_group_source<P: Packet + ?Sized>(frame: &P, l3: usize, v6: bool) -> bool {
    let source_at = if v6 { l3 + 8 } else { l3 + 12 };
    match (frame.read::<2>(6), frame.read::<2>(source_at)) {
        (Some([mac, _]), Some([first, _])) => mac & 1 != 0 || if v6 { first == 0xff } else { first >= 224 },
        _ => false,
    }
}

/// True when the IPv4 header at `l3` sums to zero (RFC 791), options included. `l4` is the end of the header.
#[inline(always)]
pub fn ipv4_checksum_ok<P: Packet + ?Sized>(frame: &P, l3: usize, l4: usize) -> bool {
    // The sum is zero or not whatever the order of the bytes, and words of any length do (RFC 1071 section 2).
    let mut sum: u64 = 0;
    for at in [l3, l3 + 8] {
        let Some(words) = frame.read::<8>(at) else {
            return false;
        };
        let words = u64::from_ne_bytes(words);
        sum += (words & 0xffff_ffff) + (words >> 32);
    }
    let Some(word) = frame.read::<4>(l3 + 16) else {
        return false;
    };
    sum += u64::from(u32::from_ne_bytes(word));
    let mut at = l3 + IPV4_BYTES;
    // At most 10 words of options: IHL has four bits.
    for _ in 0..10 {
        if at >= l4 {
            break;
        }
        let Some(word) = frame.read::<4>(at) else {
            return false;
        };
        sum += u64::from(u32::from_ne_bytes(word));
        at += 4;
    }
    let halves = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
    fold_checksum(halves as u32) == 0
}

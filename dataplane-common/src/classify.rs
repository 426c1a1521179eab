//! Frame → not active, malformed for a named reason, or an active packet with everything needed to decide about it.

use crate::hash::{combine, mix};
use crate::packet::Packet;
use crate::reason::Reason;
use crate::wire::anep::{self, Anep};
use crate::wire::ip::{self, PROTOCOL_ACTIVE, PROTOCOL_UDP, Transport, UDP_BYTES};
use crate::wire::pktgen;

/// What makes a packet active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// UDP destination port that carries ANEP.
    pub udp_port: u16,
    /// The pktgen profile: UDP destination port of the first function. The others follow.
    pub pktgen_port: u16,
    /// Functions that are reached so; 0 = the profile is off.
    pub pktgen_functions: u16,
    /// Operand of their packets, which can carry none.
    pub pktgen_operand: u32,
}

impl Rules {
    /// ANEP alone.
    pub const fn anep(udp_port: u16) -> Self {
        Self { udp_port, pktgen_port: 0, pktgen_functions: 0, pktgen_operand: 0 }
    }

    /// The function that a port of the pktgen profile names.
    #[inline(always)]
    fn pktgen_function(&self, port: u16) -> Option<u16> {
        let index = port.wrapping_sub(self.pktgen_port);
        if index < self.pktgen_functions { Some(index) } else { None }
    }
}

/// An active packet. Offsets are bytes from the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// The ANEP header; of a pktgen packet, what stands for one.
    pub anep: Anep,
    /// True for a packet of the pktgen profile. Its type id is the index of the function.
    pub pktgen: bool,
    /// Offset of the IP header.
    pub l3: usize,
    /// Offset of the UDP header, or of the ANEP header for IP protocol 107.
    pub l4: usize,
    /// True for IPv6.
    pub v6: bool,
    /// True when ANEP lies in UDP, false for IP protocol 107.
    pub udp: bool,
    /// Bytes that UDP or IP delivered behind the ANEP packet; they are ignored.
    pub trailing: usize,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// For the kernel stack.
    NotActive,
    /// A fragment of what might be an active packet: for the kernel stack.
    Fragment,
    /// A result on its way to whoever asked: for the kernel stack.
    Result,
    /// An active packet that must be dropped.
    Malformed(Reason),
    /// An active packet.
    Active(Active),
}

/// Classifies a frame.
///
/// A frame that is cut short before its transport header, or whose IP header contradicts itself there, is
/// [`Class::NotActive`]: whether it is active cannot be known, and the kernel judges it as it always did.
#[inline(always)]
pub fn classify<P: Packet + ?Sized>(frame: &P, rules: &Rules) -> Class {
    let Some(transport) = ip::find_transport(frame) else {
        return Class::NotActive;
    };
    let transport = forget_way(frame, &transport);
    let (udp, anep_at, limit) = match transport.protocol {
        PROTOCOL_UDP | PROTOCOL_ACTIVE if transport.fragment => return Class::Fragment,
        PROTOCOL_UDP => {
            let Some([s0, s1, d0, d1, l0, l1, _, _]) = frame.read::<UDP_BYTES>(transport.l4) else {
                return Class::NotActive;
            };
            let (source, destination) = (u16::from_be_bytes([s0, s1]), u16::from_be_bytes([d0, d1]));
            let udp_len = usize::from(u16::from_be_bytes([l0, l1]));
            if destination != rules.udp_port {
                return classify_pktgen(frame, rules, &transport, (source, destination, udp_len));
            }
            if udp_len < UDP_BYTES || udp_len > transport.l4_len {
                return Class::Malformed(Reason::DropUdpLength);
            }
            (true, transport.l4 + UDP_BYTES, udp_len - UDP_BYTES)
        }
        PROTOCOL_ACTIVE => (false, transport.l4, transport.l4_len),
        _ => return Class::NotActive,
    };
    if !transport.v6 && !ip::ipv4_checksum_ok(frame, transport.l3, transport.l4) {
        return Class::Malformed(Reason::DropIpChecksum);
    }
    match anep::parse(frame, anep_at, limit) {
        Err(reason) => Class::Malformed(reason),
        Ok(anep) if anep.is_result => Class::Result,
        Ok(_) if ip::has_group_source(frame, transport.l3, transport.v6) => Class::Malformed(Reason::DropGroupSource),
        Ok(anep) => Class::Active(Active {
            anep,
            pktgen: false,
            l3: transport.l3,
            l4: transport.l4,
            v6: transport.v6,
            udp,
            trailing: limit - anep.packet_len,
        }),
    }
}

/// The same, whichever headers it was found behind: see [`Packet::forget`].
#[inline(always)]
fn forget_way<P: Packet + ?Sized>(frame: &P, transport: &Transport) -> Transport {
    const V6: u32 = 1 << 16;
    const FRAGMENT: u32 = 1 << 17;
    let when = |is: bool, bit: u32| if is { bit } else { 0 };
    // No offset here has more than 16 bits, nor has the length.
    let kind = transport.l3 as u32
        | u32::from(transport.protocol) << 8
        | when(transport.v6, V6)
        | when(transport.fragment, FRAGMENT);
    let (kind, place) = (frame.forget(kind), frame.forget(transport.l4 as u32 | (transport.l4_len as u32) << 16));
    Transport {
        v6: kind & V6 != 0,
        l3: (kind & 0xff) as usize,
        l4: (place & 0xffff) as usize,
        l4_len: (place >> 16) as usize,
        protocol: (kind >> 8) as u8,
        fragment: kind & FRAGMENT != 0,
    }
}

/// Classifies a UDP datagram that is not on the port of ANEP, from its ports and its length.
#[inline(always)]
fn classify_pktgen<P: Packet + ?Sized>(
    frame: &P,
    rules: &Rules,
    transport: &Transport,
    (source, destination, udp_len): (u16, u16, usize),
) -> Class {
    let Some(function) = rules.pktgen_function(destination) else { return Class::NotActive };
    // Its result would be taken for a packet of the profile in turn, for ever between two nodes.
    if rules.pktgen_function(source).is_some() {
        return Class::NotActive;
    }
    let start = transport.l4 + UDP_BYTES;
    if frame.u32(start) != Some(pktgen::MAGIC) {
        return Class::NotActive;
    }
    if udp_len < UDP_BYTES + pktgen::HEADER_BYTES || udp_len > transport.l4_len || transport.l4 + udp_len > frame.len()
    {
        return Class::Malformed(Reason::DropUdpLength);
    }
    if !transport.v6 && !ip::ipv4_checksum_ok(frame, transport.l3, transport.l4) {
        return Class::Malformed(Reason::DropIpChecksum);
    }
    if ip::has_group_source(frame, transport.l3, transport.v6) {
        return Class::Malformed(Reason::DropGroupSource);
    }
    let packet_len = udp_len - UDP_BYTES;
    let result_len = pktgen::result_room(packet_len);
    let anep = Anep {
        start,
        header_len: pktgen::HEADER_BYTES + result_len,
        packet_len,
        type_id: function,
        operand: Some(rules.pktgen_operand),
        result_at: if result_len > 0 { Some(start + pktgen::HEADER_BYTES) } else { None },
        result_len,
        ..Anep::default()
    };
    Class::Active(Active {
        anep,
        pktgen: true,
        l3: transport.l3,
        l4: transport.l4,
        v6: transport.v6,
        udp: true,
        trailing: 0,
    })
}

/// What placement and order go by besides the packet's cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Hash of the flow: addresses, and ports where there are any.
    pub flow: u32,
    /// Hash of what the packet is about: its key option, or else its flow.
    pub key: u32,
    /// Service class, 0 (lowest) to 7: the precedence bits of the IP header (RFC 2474 section 4.2.2).
    pub class: u8,
}

/// The identity of `active`, which [`classify`] found in `frame`.
#[inline(always)]
pub fn identify<P: Packet + ?Sized>(frame: &P, active: &Active) -> Identity {
    let first = frame.u32(active.l3).unwrap_or_default();
    let (addresses, class) = if active.v6 {
        // The traffic class lies in bits 20 to 27 of the first word (RFC 8200), its precedence in the upper three.
        (address_hash(frame, active.l3 + 8, 4), (first >> 25) & 7)
    } else {
        (address_hash(frame, active.l3 + 12, 1), (first >> 21) & 7)
    };
    let ports = if active.udp { frame.u32(active.l4).unwrap_or_default() } else { 0 };
    let flow = combine(addresses, ports.into());
    let key = match active.anep.key {
        Some(key) => mix((active.anep.type_id as u64) << 32 | key as u64),
        None => flow,
    };
    Identity { flow: (flow >> 32) as u32, key: (key >> 32) as u32, class: class as u8 }
}

/// The hash of `words` words of 8 bytes from `at`.
#[inline(always)]
fn address_hash<P: Packet + ?Sized>(frame: &P, at: usize, words: usize) -> u64 {
    let mut hash = 0;
    for word in 0..words {
        let bytes = frame.read::<8>(at + 8 * word).unwrap_or_default();
        hash = combine(hash, u64::from_be_bytes(bytes));
    }
    hash
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;

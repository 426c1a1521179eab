//! Builds active packets byte by byte, and reads the ones that come back.
//!
//! A [`Recipe`] says what the frame shall be; [`Recipe::template`] lays it out once; [`Template::write`] makes a frame of
//! it for one [`Probe`], with every checksum right. The probe is the first part of the payload and comes back with the
//! packet: it says which packet this is and when it was to be sent.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use anyhow::{Result, ensure};
use dataplane_common::wire::anep::{
    self, FLAG_DISCARD, MAX_HEADER_BYTES, OPTION_CHECKSUM, OPTION_OPERAND, OPTION_RESULT, UDP_PORT,
};
use dataplane_common::wire::ip::{
    self, ETHERNET_BYTES, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_QINQ, ETHERTYPE_VLAN, IPV4_BYTES, IPV6_BYTES,
    MAX_VLAN_TAGS, PROTOCOL_ACTIVE, PROTOCOL_UDP, UDP_BYTES,
};
use dataplane_common::wire::{fold_checksum, sum_words};

use crate::topology::{Mac, PortPlan};

/// First bytes of a probe.
const MAGIC: u64 = u64::from_be_bytes(*b"DP-PROBE");
/// Length of a probe, bytes.
pub const PROBE_BYTES: usize = 24;
/// UDP source port of the first flow of [`Recipe::to_port`].
pub const FIRST_SOURCE_PORT: u16 = 40_000;
/// Hop limit of the packets.
const TTL: u8 = 64;

/// Which packet this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Number of the packet in its run.
    pub sequence: u64,
    /// When it was to be sent, ns of the monotonic clock.
    pub scheduled_ns: u64,
}

impl Probe {
    fn emit(&self) -> [u8; PROBE_BYTES] {
        let mut bytes = [0; PROBE_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.scheduled_ns.to_be_bytes());
        bytes
    }

    fn parse(payload: &[u8]) -> Option<Self> {
        let (words, _) = payload.get(..PROBE_BYTES)?.as_chunks::<8>();
        let [magic, sequence, scheduled_ns] = words else { return None };
        (u64::from_be_bytes(*magic) == MAGIC).then_some(Self {
            sequence: u64::from_be_bytes(*sequence),
            scheduled_ns: u64::from_be_bytes(*scheduled_ns),
        })
    }
}

/// Source and destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Sender.
        source: Ipv4Addr,
        /// Receiver.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Sender.
        source: Ipv6Addr,
        /// Receiver.
        destination: Ipv6Addr,
    },
}

/// What carries ANEP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// UDP.
    Udp {
        /// Source port: tells flows apart.
        source: u16,
        /// Destination port.
        destination: u16,
        /// Make a checksum; without one the field is zero, which IPv6 does not allow.
        checksum: bool,
    },
    /// IP protocol 107.
    Protocol107,
}

/// What a packet shall be.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Ethernet sender.
    pub source_mac: Mac,
    /// Ethernet receiver.
    pub destination_mac: Mac,
    /// VLAN ids, the outer one first; at most two.
    pub vlans: Vec<u16>,
    /// IP addresses.
    pub addresses: Addresses,
    /// What carries ANEP.
    pub carrier: Carrier,
    /// The function.
    pub type_id: u16,
    /// Ask nodes that do not know the function to discard the packet.
    pub discard_unknown: bool,
    /// Operand of the function, if it is to have one.
    pub operand: Option<u32>,
    /// Bytes of room for the function's result; 0 leaves the option out.
    pub result_bytes: usize,
    /// Have an integrity checksum.
    pub checksum: bool,
    /// Bytes of payload, the probe included.
    pub payload_bytes: usize,
}

impl Recipe {
    /// A packet for function `type_id` from the generator to a node's port over UDP and IPv4, payload the probe alone.
    pub fn to_port(port: &PortPlan, flow: u16, type_id: u16) -> Self {
        Self {
            source_mac: port.generator_mac,
            destination_mac: port.node_mac,
            vlans: Vec::new(),
            addresses: Addresses::V4 { source: port.generator_ipv4, destination: port.node_ipv4 },
            carrier: Carrier::Udp { source: FIRST_SOURCE_PORT + flow, destination: UDP_PORT, checksum: true },
            type_id,
            discard_unknown: true,
            operand: None,
            result_bytes: 0,
            checksum: false,
            payload_bytes: PROBE_BYTES,
        }
    }

    /// Bytes in front of the ANEP header.
    fn anep_at(&self) -> usize {
        let ip = match self.addresses {
            Addresses::V4 { .. } => IPV4_BYTES,
            Addresses::V6 { .. } => IPV6_BYTES,
        };
        let udp = if matches!(self.carrier, Carrier::Udp { .. }) { UDP_BYTES } else { 0 };
        ETHERNET_BYTES + 4 * self.vlans.len() + ip + udp
    }

    /// Bytes of ANEP header and options.
    fn anep_header(&self) -> usize {
        let option = |wanted: bool, value: usize| if wanted { 4 + value.next_multiple_of(4) } else { 0 };
        anep::HEADER_BYTES
            + option(self.operand.is_some(), 4)
            + option(self.result_bytes > 0, self.result_bytes)
            + option(self.checksum, 4)
    }

    /// Length of the whole frame, bytes.
    pub fn frame_bytes(&self) -> usize {
        self.anep_at() + self.anep_header() + self.payload_bytes
    }

    /// The same with the payload that makes the frame `bytes` long.
    ///
    /// # Errors
    /// The frame would have no room for the probe.
    pub fn with_frame_bytes(mut self, bytes: usize) -> Result<Self> {
        let overhead = self.frame_bytes() - self.payload_bytes;
        ensure!(bytes >= overhead + PROBE_BYTES, "{bytes} bytes: the shortest frame has {}", overhead + PROBE_BYTES);
        self.payload_bytes = bytes - overhead;
        Ok(self)
    }

    /// Lays the frame out.
    ///
    /// # Errors
    /// It has too many VLAN tags, too long a header, no room for the probe, or is longer than IP can say.
    pub fn template(&self) -> Result<Template> {
        ensure!(self.vlans.len() <= MAX_VLAN_TAGS, "{} VLAN tags: at most {MAX_VLAN_TAGS}", self.vlans.len());
        ensure!(self.payload_bytes >= PROBE_BYTES, "{} bytes of payload: no room for a probe", self.payload_bytes);
        let header = self.anep_header();
        ensure!(header <= MAX_HEADER_BYTES, "{header} bytes of ANEP header: at most {MAX_HEADER_BYTES}");
        let udp = if matches!(self.carrier, Carrier::Udp { .. }) { UDP_BYTES } else { 0 };
        let l4_bytes = u16::try_from(udp + header + self.payload_bytes)?;

        let mut bytes = Vec::with_capacity(self.frame_bytes());
        self.emit_ethernet(&mut bytes);
        self.emit_ip(&mut bytes, l4_bytes)?;
        let l4 = bytes.len();
        let mut udp_checksum_at = None;
        if let Carrier::Udp { source, destination, checksum } = self.carrier {
            for number in [source, destination, l4_bytes, 0] {
                bytes.extend(number.to_be_bytes());
            }
            udp_checksum_at = checksum.then_some(l4 + 6);
        }
        let anep = bytes.len();
        let anep_checksum_at = self.emit_anep(&mut bytes)?;
        let payload = bytes.len();
        bytes.extend([0; PROBE_BYTES]);
        // A pattern without long runs, so that no function has an easy payload.
        bytes.extend((PROBE_BYTES..self.payload_bytes).map(|at| (at as u8).wrapping_mul(151).wrapping_add(7)));
        let pseudo_header = match self.addresses {
            Addresses::V4 { source, destination } => sum_words(&source.octets()) + sum_words(&destination.octets()),
            Addresses::V6 { source, destination } => sum_words(&source.octets()) + sum_words(&destination.octets()),
        } + u32::from(PROTOCOL_UDP)
            + u32::from(l4_bytes);
        Ok(Template { bytes, l4, anep, payload, udp_checksum_at, anep_checksum_at, pseudo_header })
    }

    fn emit_ethernet(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.destination_mac);
        bytes.extend(self.source_mac);
        for (at, id) in self.vlans.iter().enumerate() {
            let is_outer_of_two = at + 1 < self.vlans.len();
            bytes.extend(if is_outer_of_two { ETHERTYPE_QINQ } else { ETHERTYPE_VLAN }.to_be_bytes());
            bytes.extend((id & 0x0fff).to_be_bytes());
        }
        let ethertype = match self.addresses {
            Addresses::V4 { .. } => ETHERTYPE_IPV4,
            Addresses::V6 { .. } => ETHERTYPE_IPV6,
        };
        bytes.extend(ethertype.to_be_bytes());
    }

    fn emit_ip(&self, bytes: &mut Vec<u8>, l4_bytes: u16) -> Result<()> {
        let protocol = if matches!(self.carrier, Carrier::Udp { .. }) { PROTOCOL_UDP } else { PROTOCOL_ACTIVE };
        match self.addresses {
            Addresses::V4 { source, destination } => {
                let total = u16::try_from(usize::from(l4_bytes) + IPV4_BYTES)?;
                let [t0, t1] = total.to_be_bytes();
                // Version 4, 5 words of header; "don't fragment"; checksum still zero (RFC 791).
                let mut header = [0x45, 0, t0, t1, 0, 0, 0x40, 0, TTL, protocol, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                let sum = fold_checksum(sum_words(&header));
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                bytes.extend(header);
            }
            Addresses::V6 { source, destination } => {
                let [l0, l1] = l4_bytes.to_be_bytes();
                bytes.extend([0x60, 0, 0, 0, l0, l1, protocol, TTL]);
                bytes.extend(source.octets());
                bytes.extend(destination.octets());
            }
        }
        Ok(())
    }

    /// Appends ANEP header and options; returns where the integrity checksum goes.
    fn emit_anep(&self, bytes: &mut Vec<u8>) -> Result<Option<usize>> {
        let header = self.anep_header();
        let packet = u16::try_from(header + self.payload_bytes)?;
        let flags = if self.discard_unknown { FLAG_DISCARD } else { 0 };
        // `template` has limited the header to 256 bytes.
        bytes.extend(anep::emit_header(flags, self.type_id, (header / 4) as u16, packet));
        if let Some(operand) = self.operand {
            bytes.extend(anep::emit_option(OPTION_OPERAND, 1));
            bytes.extend(operand.to_be_bytes());
        }
        if self.result_bytes > 0 {
            let words = self.result_bytes.div_ceil(4);
            bytes.extend(anep::emit_option(OPTION_RESULT, words as u16));
            bytes.extend(std::iter::repeat_n(0, 4 * words));
        }
        let mut checksum_at = None;
        if self.checksum {
            bytes.extend(anep::emit_option(OPTION_CHECKSUM, 1));
            checksum_at = Some(bytes.len());
            bytes.extend([0; 4]);
        }
        Ok(checksum_at)
    }
}

/// A frame laid out, ready to be written for any probe.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Vec<u8>,
    l4: usize,
    anep: usize,
    payload: usize,
    udp_checksum_at: Option<usize>,
    anep_checksum_at: Option<usize>,
    /// Sum of the words that UDP's checksum takes from the IP header.
    pseudo_header: u32,
}

impl Template {
    /// Length of the frame, bytes.
    pub fn frame_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Where the ANEP header begins in the frame.
    pub fn anep_at(&self) -> usize {
        self.anep
    }

    /// The payload's bytes in the frame.
    pub fn payload_range(&self) -> Range<usize> {
        self.payload..self.bytes.len()
    }

    /// Writes the frame of `probe` into `frame`.
    ///
    /// # Panics
    /// `BUG` when `frame` is not exactly [`Self::frame_bytes`] long.
    pub fn write(&self, probe: &Probe, frame: &mut [u8]) {
        assert_eq!(frame.len(), self.bytes.len(), "BUG: frame of another length");
        frame.copy_from_slice(&self.bytes);
        frame[self.payload..self.payload + PROBE_BYTES].copy_from_slice(&probe.emit());
        if let Some(at) = self.anep_checksum_at {
            let sum = anep::checksum(&frame[self.anep..]);
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        if let Some(at) = self.udp_checksum_at {
            let sum = match fold_checksum(self.pseudo_header + sum_words(&frame[self.l4..])) {
                // RFC 768: zero means "no checksum", so a sum of zero is sent as all ones.
                0 => 0xffff,
                sum => sum,
            };
            frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// The frame of `probe`, in memory of its own.
    pub fn frame(&self, probe: &Probe) -> Vec<u8> {
        let mut frame = vec![0; self.bytes.len()];
        self.write(probe, &mut frame);
        frame
    }
}

/// An active packet that came back with its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Which packet it is.
    pub probe: Probe,
    /// The function.
    pub type_id: u16,
    /// The result option's value, empty without one.
    pub result: &'a [u8],
    /// The payload, probe included.
    pub payload: &'a [u8],
    /// Whether IP, UDP and integrity checksums are right, those that are there.
    pub is_intact: bool,
}

impl<'a> Reply<'a> {
    /// Reads a frame, whichever way it goes; `None` when it is no active packet with a probe.
    pub fn parse(frame: &'a [u8]) -> Option<Self> {
        let transport = ip::find_transport(frame)?;
        let l4 = frame.get(transport.l4..transport.l4 + transport.l4_len)?;
        let is_udp = transport.protocol == PROTOCOL_UDP;
        if transport.fragment || !(is_udp || transport.protocol == PROTOCOL_ACTIVE) {
            return None;
        }
        let skip = if is_udp { UDP_BYTES } else { 0 };
        let anep = anep::parse(frame, transport.l4 + skip, l4.len().checked_sub(skip)?).ok()?;
        let packet = frame.get(anep.start..anep.end())?;
        let payload = &packet[anep.header_len..];
        let result = match anep.result_at {
            Some(at) => frame.get(at..at + anep.result_len)?,
            None => &[],
        };
        let ip_is_right = transport.v6 || ip::ipv4_checksum_ok(frame, transport.l3, transport.l4);
        let udp_is_right = !is_udp || udp_checksum_ok(&frame[transport.l3..transport.l4], l4, transport.v6);
        let anep_is_right = anep.checksum_at.is_none() || anep::checksum_ok(packet);
        Some(Self {
            probe: Probe::parse(payload)?,
            type_id: anep.type_id,
            result,
            payload,
            is_intact: ip_is_right && udp_is_right && anep_is_right,
        })
    }
}

/// Whether a UDP datagram's checksum is right, or absent where that is allowed.
fn udp_checksum_ok(ip: &[u8], datagram: &[u8], v6: bool) -> bool {
    let addresses = if v6 { ip.get(8..IPV6_BYTES) } else { ip.get(12..IPV4_BYTES) };
    match (addresses, datagram.get(6..8)) {
        (Some(_), Some([0, 0])) => !v6,
        (Some(addresses), Some(_)) => {
            let pseudo_header = sum_words(addresses) + u32::from(PROTOCOL_UDP) + datagram.len() as u32;
            fold_checksum(pseudo_header + sum_words(datagram)) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;

//! ANEP, the Active Network Encapsulation Protocol (Active Networks Group draft, 1997).
//!
//! ```text
//!  0               1               2               3
//! +---------------+---------------+-------------------------------+
//! |    version    |     flags     |            type id            |
//! +---------------+---------------+-------------------------------+
//! |    header length (words)      |     packet length (bytes)     |
//! +-------------------------------+-------------------------------+
//! ~            options, each a whole number of words              ~
//! ~                            payload                            ~
//!
//! option: | FLG (2 bits) | type (14 bits) | length in words (16 bits, this word included) | value … |
//! ```
//!
//! The fixed header is confirmed by two public sources; option and scheme numbers are taken from memory of the draft
//! and are gathered here, so that a correction is one constant. `docs/wire.md` says which is which.

use super::{fold_checksum, sum_words};
use crate::packet::Packet;
use crate::reason::Reason;

/// UDP port of ANEP (Anetd's default).
pub const UDP_PORT: u16 = 3322;
/// The only version.
pub const VERSION: u8 = 1;
/// Length of the fixed header, bytes.
pub const HEADER_BYTES: usize = 8;
/// Flag: a node that does not know the type id discards the packet; otherwise it forwards it as ordinary traffic.
pub const FLAG_DISCARD: u8 = 0x80;
/// Flag of this dataplane (undefined in ANEP, where other nodes ignore it): the packet is a result. A node leaves it to the
/// kernel, or two nodes would answer each other for ever.
pub const FLAG_RESULT: u8 = 0x40;
/// Options looked at; a packet with more is dropped with a reason of its own.
pub const MAX_OPTIONS: usize = 8;
/// Longest header (fixed header and options) accepted, bytes.
pub const MAX_HEADER_BYTES: usize = 256;

/// Option flag: the type is private to the packet's type id.
pub const OPTION_PRIVATE: u16 = 0x8000;
/// Option flag: a node that does not know the option discards the packet.
pub const OPTION_DISCARD: u16 = 0x4000;
/// Source identifier: 32-bit scheme, then the address.
pub const OPTION_SOURCE: u16 = 1;
/// Destination identifier: as the source identifier.
pub const OPTION_DESTINATION: u16 = 2;
/// Integrity checksum over the whole ANEP packet: 16 bits, then 16 zero bits.
pub const OPTION_CHECKSUM: u16 = 3;
/// Non-negotiated authentication: 32-bit scheme, then data.
pub const OPTION_AUTHENTICATION: u16 = 4;
/// Private option of this dataplane: a 32-bit operand of the function (rounds, nanoseconds).
pub const OPTION_OPERAND: u16 = OPTION_PRIVATE | 0x10;
/// Private option of this dataplane: a 32-bit key of what the packet is about, for policies that place by content.
pub const OPTION_KEY: u16 = OPTION_PRIVATE | 0x12;
/// Private option of this dataplane: room for the function's result, filled in by the node that computed it.
pub const OPTION_RESULT: u16 = OPTION_PRIVATE | 0x11;

/// Address scheme of the identifier options: IPv4, 4 bytes.
pub const SCHEME_IPV4: u32 = 1;
/// Address scheme of the identifier options: IPv6, 16 bytes.
pub const SCHEME_IPV6: u32 = 2;
/// Address scheme of the identifier options: IEEE 802.3, 6 bytes padded to 8.
pub const SCHEME_IEEE_802_3: u32 = 3;
/// Authentication scheme: self-signed SPKI certificate.
pub const AUTHENTICATION_SPKI: u32 = 1;
/// Authentication scheme: self-signed X.509 certificate.
pub const AUTHENTICATION_X509: u32 = 2;

/// A validated ANEP header. Offsets are bytes from the start of the frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anep {
    /// Offset of the ANEP header.
    pub start: usize,
    /// Bytes of fixed header and options.
    pub header_len: usize,
    /// Bytes of the whole ANEP packet, header included.
    pub packet_len: usize,
    /// The function (execution environment) the packet names.
    pub type_id: u16,
    /// True when a node that does not know `type_id` must discard the packet.
    pub discard_unknown: bool,
    /// True for a result on its way to whoever asked.
    pub is_result: bool,
    /// The operand option's value, when there is one.
    pub operand: Option<u32>,
    /// The key option's value, when there is one.
    pub key: Option<u32>,
    /// Offset of the integrity checksum option's value, when there is one.
    pub checksum_at: Option<usize>,
    /// Offset of the result option's value, when there is one.
    pub result_at: Option<usize>,
    /// Bytes of the result option's value.
    pub result_len: usize,
}

impl Anep {
    /// Bytes of payload behind the header.
    #[inline(always)]
    pub fn payload_len(&self) -> usize {
        self.packet_len.saturating_sub(self.header_len)
    }

    /// Offset of the first byte behind the packet.
    #[inline(always)]
    pub fn end(&self) -> usize {
        self.start + self.packet_len
    }
}

/// Validates the ANEP header at `start`. `limit` is the number of bytes that UDP or IP delivered from there.
///
/// # Errors
/// The reason under which the packet is dropped.
#[inline(always)]
pub fn parse<P: Packet + ?Sized>(frame: &P, start: usize, limit: usize) -> Result<Anep, Reason> {
    let present = frame.len().saturating_sub(start).min(limit);
    if present < HEADER_BYTES {
        return Err(Reason::DropAnepTruncated);
    }
    let Some(header) = frame.read::<HEADER_BYTES>(start) else {
        return Err(Reason::DropAnepTruncated);
    };
    if header[0] != VERSION {
        return Err(Reason::DropAnepVersion);
    }
    let header_len = 4 * usize::from(u16::from_be_bytes([header[4], header[5]]));
    let packet_len = usize::from(u16::from_be_bytes([header[6], header[7]]));
    if header_len < HEADER_BYTES {
        return Err(Reason::DropAnepHeaderShort);
    }
    if header_len > packet_len {
        return Err(Reason::DropAnepHeaderPastEnd);
    }
    if packet_len > present {
        return Err(Reason::DropAnepPacketPastFrame);
    }
    if header_len > MAX_HEADER_BYTES {
        return Err(Reason::DropAnepOptionsLimit);
    }
    let mut anep = Anep {
        start,
        header_len,
        packet_len,
        type_id: u16::from_be_bytes([header[2], header[3]]),
        discard_unknown: header[1] & FLAG_DISCARD != 0,
        is_result: header[1] & FLAG_RESULT != 0,
        ..Anep::default()
    };
    walk_options(frame, &mut anep)?;
    Ok(anep)
}

/// Which options a packet has: bits.
const HAS_OPERAND: u32 = 1;
const HAS_KEY: u32 = 2;
const HAS_CHECKSUM: u32 = 4;
const HAS_RESULT: u32 = 8;

#[inline(always)]
fn walk_options<P: Packet + ?Sized>(frame: &P, anep: &mut Anep) -> Result<(), Reason> {
    let end = anep.start + anep.header_len;
    let mut at = anep.start + HEADER_BYTES;
    let (mut has, mut operand, mut key, mut checksum_at, mut result_at) = (0, 0, 0, 0, 0);
    for _ in 0..MAX_OPTIONS {
        if at >= end {
            break;
        }
        let Some([t0, t1, l0, l1]) = frame.read::<4>(at) else {
            return Err(Reason::DropAnepOptionLength);
        };
        let tag = u16::from_be_bytes([t0, t1]);
        let bytes = 4 * usize::from(u16::from_be_bytes([l0, l1]));
        if bytes < 4 || bytes > end - at {
            return Err(Reason::DropAnepOptionLength);
        }
        match tag & !OPTION_DISCARD {
            OPTION_OPERAND if bytes >= 8 => (has, operand) = (has | HAS_OPERAND, frame.u32(at + 4).unwrap_or(0)),
            OPTION_KEY if bytes >= 8 => (has, key) = (has | HAS_KEY, frame.u32(at + 4).unwrap_or(0)),
            OPTION_CHECKSUM if bytes >= 8 => (has, checksum_at) = (has | HAS_CHECKSUM, at + 4),
            OPTION_RESULT => {
                (has, result_at) = (has | HAS_RESULT, at + 4);
                anep.result_len = bytes - 4;
            }
            OPTION_OPERAND | OPTION_KEY | OPTION_CHECKSUM => return Err(Reason::DropAnepOptionLength),
            OPTION_SOURCE | OPTION_DESTINATION | OPTION_AUTHENTICATION => {}
            _ if tag & OPTION_DISCARD != 0 => return Err(Reason::DropAnepOptionUnknown),
            _ => {}
        }
        // Whatever this option was, the next one is looked at in the same state.
        at = frame.forget((at + bytes) as u32) as usize;
        has = frame.forget(has);
    }
    if at < end {
        return Err(Reason::DropAnepOptionsLimit);
    }
    let when = |bit: u32| has & bit != 0;
    anep.operand = if when(HAS_OPERAND) { Some(operand) } else { None };
    anep.key = if when(HAS_KEY) { Some(key) } else { None };
    anep.checksum_at = if when(HAS_CHECKSUM) { Some(checksum_at) } else { None };
    anep.result_at = if when(HAS_RESULT) { Some(result_at) } else { None };
    Ok(())
}

/// True when the integrity checksum of a packet that carries the option is right. `packet` is the whole ANEP packet.
pub fn checksum_ok(packet: &[u8]) -> bool {
    fold_checksum(sum_words(packet)) == 0
}

/// The integrity checksum of `packet` (the whole ANEP packet, checksum field zero).
pub fn checksum(packet: &[u8]) -> u16 {
    fold_checksum(sum_words(packet))
}

/// Writes a fixed header.
pub fn emit_header(flags: u8, type_id: u16, header_words: u16, packet_len: u16) -> [u8; HEADER_BYTES] {
    let [t0, t1] = type_id.to_be_bytes();
    let [h0, h1] = header_words.to_be_bytes();
    let [p0, p1] = packet_len.to_be_bytes();
    [VERSION, flags, t0, t1, h0, h1, p0, p1]
}

/// Writes the first word of an option whose value has `value_words` words.
pub fn emit_option(tag: u16, value_words: u16) -> [u8; 4] {
    let [t0, t1] = tag.to_be_bytes();
    let [l0, l1] = (value_words + 1).to_be_bytes();
    [t0, t1, l0, l1]
}

#[cfg(test)]
#[path = "anep_tests.rs"]
mod tests;

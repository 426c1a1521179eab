//! What the XDP program puts in front of a frame it gives to a worker (XDP metadata, 32 bytes, host byte order).

/// Length of the record, bytes. The kernel allows multiples of 4 up to 32.
pub const METADATA_BYTES: usize = 32;

/// First field of a valid record: changes with [`crate::maps::ABI_VERSION`].
pub const METADATA_MAGIC: u16 = 0xda00 | crate::maps::ABI_VERSION as u16;

/// Where the packet came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Origin {
    /// It arrived at a port of this node; the frame begins with its Ethernet header.
    Port = 0,
    /// A peer forwarded it; the frame begins with the interconnect frame's Ethernet header.
    Peer = 1,
    /// A result that came back from a peer before its turn; the frame begins with the interconnect frame's Ethernet header.
    Result = 2,
    /// A request for work of an idle peer; the frame begins with the interconnect frame's Ethernet header.
    Pull = 3,
}

/// The record, by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Index of the function the packet names.
    pub function: u16,
    /// Estimated processing time charged to the worker, ns. Exactly this is discharged.
    pub charged_ns: u32,
    /// When the XDP program saw the frame, 16 ns of the monotonic clock (wrapping after 68 s); see
    /// [`Metadata::arrival_ns`].
    pub arrival_16ns: u32,
    /// Work charged through this socket so far, this packet included, ns. All 64 bits: a full receive ring in front of a
    /// slow function loses seconds of it.
    pub position_ns: u64,
    /// Packets charged through this socket so far, this one included (low 32 bits).
    pub sequence: u32,
    /// Where the packet came from.
    pub origin: Origin,
    /// Policy that decided.
    pub policy: u8,
    /// Slot of the packet's flow, or [`crate::wire::link::NO_FLOW`].
    pub flow: u16,
    /// The packet's number in its flow slot (low 32 bits).
    pub flow_sequence: u32,
}

impl Metadata {
    /// [`Metadata::arrival_16ns`] of a time.
    #[inline(always)]
    pub const fn arrival_of(now_ns: u64) -> u32 {
        (now_ns >> 4) as u32
    }

    /// When the XDP program saw the frame, ns of the monotonic clock to 16 ns, for a reader at `now_ns` less than 68 s
    /// later.
    #[inline(always)]
    pub const fn arrival_ns(&self, now_ns: u64) -> u64 {
        let age = ((now_ns >> 4) as u32).wrapping_sub(self.arrival_16ns);
        (now_ns >> 4).saturating_sub(age as u64) << 4
    }

    /// The record's bytes.
    #[inline(always)]
    pub fn emit(&self) -> [u8; METADATA_BYTES] {
        let mut bytes = [0u8; METADATA_BYTES];
        bytes[0..2].copy_from_slice(&METADATA_MAGIC.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.function.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.charged_ns.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.arrival_16ns.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.position_ns.to_ne_bytes());
        bytes[24..28].copy_from_slice(&self.flow_sequence.to_ne_bytes());
        bytes[28] = self.origin as u8;
        bytes[29] = self.policy;
        bytes[30..32].copy_from_slice(&self.flow.to_ne_bytes());
        bytes
    }

    /// Reads a record; `None` when it was not written by a program of this ABI.
    #[inline]
    pub fn parse(b: &[u8; METADATA_BYTES]) -> Option<Self> {
        if u16::from_ne_bytes([b[0], b[1]]) != METADATA_MAGIC {
            return None;
        }
        Some(Self {
            function: u16::from_ne_bytes([b[2], b[3]]),
            charged_ns: u32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
            arrival_16ns: u32::from_ne_bytes([b[8], b[9], b[10], b[11]]),
            sequence: u32::from_ne_bytes([b[12], b[13], b[14], b[15]]),
            position_ns: u64::from_ne_bytes([b[16], b[17], b[18], b[19], b[20], b[21], b[22], b[23]]),
            flow_sequence: u32::from_ne_bytes([b[24], b[25], b[26], b[27]]),
            origin: match b[28] {
                0 => Origin::Port,
                1 => Origin::Peer,
                2 => Origin::Result,
                3 => Origin::Pull,
                _ => return None,
            },
            policy: b[29],
            flow: u16::from_ne_bytes([b[30], b[31]]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips_and_refuses_strangers() {
        let record = Metadata {
            function: 3,
            charged_ns: 400_000,
            arrival_16ns: Metadata::arrival_of(1 << 40),
            position_ns: 7,
            sequence: 9,
            origin: Origin::Peer,
            policy: 2,
            flow: 5,
            flow_sequence: 6,
        };
        assert_eq!(record.arrival_ns((1 << 40) + 60_000_000_000), 1 << 40);
        let mut bytes = record.emit();
        assert_eq!(Metadata::parse(&bytes), Some(record));
        bytes[28] = 4;
        assert_eq!(Metadata::parse(&bytes), None);
        assert_eq!(Metadata::parse(&[0; METADATA_BYTES]), None);
    }
}

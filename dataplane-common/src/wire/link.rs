//! The interconnect header: what one node of the cluster puts in front of a frame it sends to another.
//!
//! ```text
//! | Ethernet (14 bytes, EtherType 0x88b5) | header (72 bytes) | original frame, from its Ethernet header on |
//!
//!  0 version  u8     16 charged_ns   u32     32 arrival_ns     u64    48 backlog_ns     u32
//!  1 kind     u8     20 position_ns  u32     40 flow_sequence  u32    52 received_ns    u32
//!  2 hops     u8     24 length       u16     44 stamp_us       u32    56 received_epoch u16
//!  3 flags    u8     26 type_id      u16                              58 queued         u16
//!  4 source   u16    28 port         u16                              60 spent_ns       u32
//!  6 destination u16 30 flow         u16
//!  8 epoch    u32
//! 12 sequence u32                                                   64 held       u32
//!                                                                   68 generation u32
//! ```
//!
//! A *forward* carries a packet to the node that shall compute it, a *result* carries it back to the node of arrival, a
//! *report* ([`Report`]) and a *pull*, by which an idle node asks for work, carry no frame. All carry the sender's load
//! ([`Carried`]).

use super::ip::ETHERNET_BYTES;
use crate::packet::Packet;
use crate::reason::Reason;

/// EtherType of interconnect frames: IEEE 802 "Local Experimental EtherType 1".
pub const ETHERTYPE_LINK: u16 = 0x88b5;
/// UDP port of the routed interconnect unless the configuration says otherwise (of the range without assignment, RFC 6335).
pub const UDP_PORT: u16 = 49_322;
/// Version of this format. A frame of another version is dropped and counted.
pub const VERSION: u8 = 3;
/// Length of the interconnect header, bytes.
pub const HEADER_BYTES: usize = 8 * HEADER_WORDS;
const HEADER_WORDS: usize = 9;
/// What is put in front of the original frame: Ethernet and interconnect header, bytes.
pub const OVERHEAD_BYTES: usize = ETHERNET_BYTES + HEADER_BYTES;
/// Length of a report's body, bytes.
pub const REPORT_BYTES: usize = 32;
/// Length of a whole report frame, bytes.
pub const REPORT_FRAME_BYTES: usize = OVERHEAD_BYTES + REPORT_BYTES;
/// Most hops a packet may make inside the cluster: from the node of arrival to the node that computes it.
pub const MAX_HOPS: u8 = 1;

/// What an interconnect frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A packet to be computed by the destination.
    Forward = 1,
    /// A computed packet on its way back to the node of arrival.
    Result = 2,
    /// The sender's load.
    Report = 3,
    /// A request of an idle node for work.
    Pull = 4,
}

impl Kind {
    #[inline(always)]
    fn from_wire(value: u8) -> Option<Self> {
        match value {
            1 => Some(Self::Forward),
            2 => Some(Self::Result),
            3 => Some(Self::Report),
            4 => Some(Self::Pull),
            _ => None,
        }
    }
}

/// [`Header::flow`] of a packet whose result need not keep an order.
pub const NO_FLOW: u16 = u16::MAX;

/// [`Header::flags`] of a forward: the node that computes it sends the result out of a port of its own, and a result without
/// a frame home.
pub const FLAG_DIRECT: u8 = 1;
/// [`Header::flags`] of a forward and its result: the node of arrival keeps the packet, under [`Header::held`], until the
/// result is there.
pub const FLAG_HELD: u8 = 2;
/// [`Header::flags`] of a result without a frame: the packet was not computed for want of room or time at the sender, and
/// another node may well compute it.
pub const FLAG_UNDONE: u8 = 4;
/// All flags of this version.
const FLAGS: u8 = FLAG_DIRECT | FLAG_HELD | FLAG_UNDONE;
/// The high half of the flags byte is the number of the key that a seal behind the header is made with ([`crate::seal`]).
const KEY: u8 = 0xf0;

/// The sender's load, as every interconnect frame carries it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// When it was read, µs (1024 ns) of the sender's monotonic clock (wrapping). A receiver takes only newer ones.
    pub stamp_us: u32,
    /// Work waiting at a worker of the sender, ns (saturating): the mean over its workers in a report, that of the worker
    /// at hand in other frames.
    pub backlog_ns: u32,
    /// Newest position of the *receiver's* work that the sender has seen, ns (wrapping).
    pub received_ns: u32,
    /// Low half of the receiver's boot epoch that `received_ns` belongs to.
    pub received_epoch: u16,
    /// Packets waiting or in service at a worker of the sender, sixteenths; 2^16 − 1 = as many as can be said, or more.
    pub queued: u16,
}

impl Carried {
    /// [`Carried::queued`] of this many thousandths of packets.
    #[inline(always)]
    pub const fn queued_of(milli: u32) -> u16 {
        let sixteenths = milli as u64 * 16 / 1000;
        if sixteenths >= u16::MAX as u64 { u16::MAX } else { sixteenths as u16 }
    }

    /// [`Carried::queued`] in thousandths of packets.
    #[inline(always)]
    pub const fn queued_milli(&self) -> u32 {
        if self.queued == u16::MAX { u32::MAX } else { self.queued as u32 * 1000 / 16 }
    }
}

/// The interconnect header, by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is for.
    pub kind: Kind,
    /// Hops made inside the cluster, this one included.
    pub hops: u8,
    /// [`FLAG_DIRECT`] and others, and the number of the key ([`Header::key`]).
    pub flags: u8,
    /// Node that sent this frame.
    pub source: u16,
    /// Node it is meant for.
    pub destination: u16,
    /// Boot epoch of the source: larger after every restart (wrapping).
    pub epoch: u32,
    /// Counts the source's frames of this kind in this boot (wrapping): forwards per destination, results per worker,
    /// reports over all.
    pub sequence: u32,
    /// Estimated processing time charged for this packet, ns. Zero in a report.
    pub charged_ns: u32,
    /// Work sent to the destination in this boot, this frame included, ns (wrapping). A receiver that keeps the newest
    /// position knows how much work has left the link, whether or not every frame arrived. In a result: the time the
    /// function took, ns.
    pub position_ns: u32,
    /// Bytes of the frame behind the header; 0 in a report, whose body is no frame.
    pub length: u16,
    /// The function the packet names.
    pub type_id: u16,
    /// Port of the node of arrival through which the result leaves (an index of that node, opaque to others).
    pub port: u16,
    /// Slot of the packet's flow at the node of arrival (opaque to others), or [`NO_FLOW`].
    pub flow: u16,
    /// When the packet arrived at the node of arrival, ns of that node's monotonic clock (opaque to others).
    pub arrival_ns: u64,
    /// The packet's number in its flow slot (wrapping; opaque to others).
    pub flow_sequence: u32,
    /// The sender's load.
    pub load: Carried,
    /// In a result: time from the forward's arrival at the sender to this frame, ns (saturating). Else 0.
    pub spent_ns: u32,
    /// With [`FLAG_HELD`]: the place where the node of arrival keeps the packet ([`crate::held`]; opaque to others). Else 0.
    pub held: u32,
    /// With [`FLAG_HELD`]: how often that place had been taken (wrapping; opaque to others). Else 0.
    pub generation: u32,
}

impl Header {
    /// The header of a frame with nothing behind it that is a packet: of a report or a request. Sequence, position and load are
    /// the sender's to set.
    pub fn without_frame(kind: Kind, source: u16, destination: u16, epoch: u32) -> Self {
        Self {
            kind,
            hops: 1,
            flags: 0,
            source,
            destination,
            epoch,
            sequence: 0,
            charged_ns: 0,
            position_ns: 0,
            length: 0,
            type_id: 0,
            port: 0,
            flow: NO_FLOW,
            arrival_ns: 0,
            flow_sequence: 0,
            load: Carried::default(),
            spent_ns: 0,
            held: 0,
            generation: 0,
        }
    }

    /// Number of the key that the seal behind the header is made with; 0 = there is no seal.
    #[inline(always)]
    pub const fn key(&self) -> u8 {
        (self.flags & KEY) >> 4
    }

    /// The header of a frame that is sealed under key `number`.
    #[inline(always)]
    pub const fn with_key(self, number: u8) -> Self {
        Self { flags: self.flags & !KEY | number << 4, ..self }
    }

    /// The header's bytes.
    #[inline(always)]
    pub fn emit(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0u8; HEADER_BYTES];
        for (at, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.words()) {
            *at = word.to_be_bytes();
        }
        bytes
    }

    /// The header as words, as they are before they become big endian.
    #[inline(always)]
    fn words(&self) -> [u64; HEADER_WORDS] {
        let pair = |first: u32, second: u32| (first as u64) << 32 | second as u64;
        let quad = |a: u16, b: u16, c: u16, d: u16| pair((a as u32) << 16 | b as u32, (c as u32) << 16 | d as u32);
        [
            quad(
                u16::from_be_bytes([VERSION, self.kind as u8]),
                u16::from_be_bytes([self.hops, self.flags]),
                self.source,
                self.destination,
            ),
            pair(self.epoch, self.sequence),
            pair(self.charged_ns, self.position_ns),
            quad(self.length, self.type_id, self.port, self.flow),
            self.arrival_ns,
            pair(self.flow_sequence, self.load.stamp_us),
            pair(self.load.backlog_ns, self.load.received_ns),
            pair((self.load.received_epoch as u32) << 16 | self.load.queued as u32, self.spent_ns),
            pair(self.held, self.generation),
        ]
    }

    /// Reads the header at `start` (usually [`ETHERNET_BYTES`]) and checks it against the frame's length.
    ///
    /// # Errors
    /// The reason under which the frame is dropped.
    #[inline(always)]
    pub fn parse<P: Packet + ?Sized>(frame: &P, start: usize) -> Result<Self, Reason> {
        // By words: XDP programs have no room for an array of all of it.
        let word = |index: usize| match frame.read::<8>(start + 8 * index) {
            Some(bytes) => Ok(u64::from_be_bytes(bytes)),
            None => Err(Reason::DropLinkTruncated),
        };
        let last = word(HEADER_WORDS - 1)?;
        let first = word(0)?;
        if (first >> 56) as u8 != VERSION {
            return Err(Reason::DropLinkVersion);
        }
        let Some(kind) = Kind::from_wire((first >> 48) as u8) else {
            return Err(Reason::DropLinkKind);
        };
        let (boot, work, packet, arrival_ns) = (word(1)?, word(2)?, word(3)?, word(4)?);
        let (order, load, rest) = (word(5)?, word(6)?, word(7)?);
        let header = Self {
            kind,
            hops: (first >> 40) as u8,
            flags: (first >> 32) as u8 & (FLAGS | KEY),
            source: (first >> 16) as u16,
            destination: first as u16,
            epoch: (boot >> 32) as u32,
            sequence: boot as u32,
            charged_ns: (work >> 32) as u32,
            position_ns: work as u32,
            length: (packet >> 48) as u16,
            type_id: (packet >> 32) as u16,
            port: (packet >> 16) as u16,
            flow: packet as u16,
            arrival_ns,
            flow_sequence: (order >> 32) as u32,
            load: Carried {
                stamp_us: order as u32,
                backlog_ns: (load >> 32) as u32,
                received_ns: load as u32,
                received_epoch: (rest >> 48) as u16,
                queued: (rest >> 32) as u16,
            },
            spent_ns: rest as u32,
            held: (last >> 32) as u32,
            generation: last as u32,
        };
        // A short frame may have been padded to the Ethernet minimum, so "longer than it says" is no error.
        if start + HEADER_BYTES + usize::from(header.length) > frame.len() {
            return Err(Reason::DropLinkTruncated);
        }
        if header.hops == 0 || header.hops > MAX_HOPS {
            return Err(Reason::DropLinkHops);
        }
        Ok(header)
    }
}

/// A load report: the body behind a [`Header`] of kind [`Kind::Report`], whose `position_ns` says how much work the
/// reporting node has sent to the receiver so far, and whose [`Carried`] load is the mean over the node's workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Which part of the backlog lies behind a packet of each band ([`crate::bands::Behind`]).
    pub behind: u64,
    /// Backlog, mean over about a second, ns.
    pub mean_backlog_ns: u32,
    /// Newest sequence of the receiver's forwards that the sender has seen in that epoch (wrapping): frames with work that have
    /// left the link, whether or not every one arrived.
    pub received_frames: u32,
    /// The next report comes within this time, µs.
    pub interval_us: u32,
    /// Workers of the sender.
    pub workers: u16,
    /// Share of the last interval the sender's workers were busy, thousandths.
    pub busy_milli: u16,
    /// Share of the sender's packet memory that is in use, thousandths.
    pub memory_milli: u16,
    /// Position up to which the sender takes work of the receiver, ns (wrapping); `None` = any amount.
    pub limit_ns: Option<u32>,
}

impl Report {
    /// The body's bytes.
    #[inline(always)]
    pub fn emit(&self) -> [u8; REPORT_BYTES] {
        let mut bytes = [0u8; REPORT_BYTES];
        bytes[0..8].copy_from_slice(&self.behind.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.mean_backlog_ns.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.received_frames.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.interval_us.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.workers.to_be_bytes());
        bytes[22..24].copy_from_slice(&self.busy_milli.to_be_bytes());
        bytes[24..26].copy_from_slice(&self.memory_milli.to_be_bytes());
        if let Some(limit_ns) = self.limit_ns {
            bytes[27] = 1;
            bytes[28..32].copy_from_slice(&limit_ns.to_be_bytes());
        }
        bytes
    }

    /// Reads the body at `start`.
    ///
    /// # Errors
    /// [`Reason::DropLinkTruncated`] when the frame ends before it, or when it names no worker or no interval.
    #[inline(always)]
    pub fn parse<P: Packet + ?Sized>(frame: &P, start: usize) -> Result<Self, Reason> {
        let Some(b) = frame.read::<REPORT_BYTES>(start) else {
            return Err(Reason::DropLinkTruncated);
        };
        let report = Self {
            behind: u64::from_be_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
            mean_backlog_ns: u32::from_be_bytes([b[8], b[9], b[10], b[11]]),
            received_frames: u32::from_be_bytes([b[12], b[13], b[14], b[15]]),
            interval_us: u32::from_be_bytes([b[16], b[17], b[18], b[19]]),
            workers: u16::from_be_bytes([b[20], b[21]]),
            busy_milli: u16::from_be_bytes([b[22], b[23]]),
            memory_milli: u16::from_be_bytes([b[24], b[25]]),
            limit_ns: if b[27] & 1 != 0 { Some(u32::from_be_bytes([b[28], b[29], b[30], b[31]])) } else { None },
        };
        if report.workers == 0 || report.interval_us == 0 {
            return Err(Reason::DropLinkTruncated);
        }
        Ok(report)
    }
}

/// The Ethernet header of an interconnect frame.
#[inline(always)]
pub fn emit_ethernet(destination: [u8; 6], source: [u8; 6]) -> [u8; ETHERNET_BYTES] {
    let [d0, d1, d2, d3, d4, d5] = destination;
    let [s0, s1, s2, s3, s4, s5] = source;
    let [t0, t1] = ETHERTYPE_LINK.to_be_bytes();
    [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn header() -> Header {
        Header {
            kind: Kind::Forward,
            hops: 1,
            flags: FLAG_DIRECT | FLAG_HELD,
            source: 1,
            destination: 2,
            epoch: 77,
            sequence: 0xffff_fffe,
            charged_ns: 123_456,
            position_ns: 0x8000_0001,
            length: 4,
            type_id: 0xff03,
            port: 3,
            flow: 0x0a0b,
            arrival_ns: 0x0102_0304_0506_0708,
            flow_sequence: 0x1112_1314,
            load: Carried {
                stamp_us: 0x2122_2324,
                backlog_ns: 0x3132_3334,
                received_ns: 0x4142_4344,
                received_epoch: 0x5152,
                queued: 0x6162,
            },
            spent_ns: 0x7172_7374,
            held: 0x8182_8384,
            generation: 0x9192_9394,
        }
    }

    fn frame(header: &Header, body: &[u8]) -> Vec<u8> {
        let mut frame = emit_ethernet([2; 6], [4; 6]).to_vec();
        frame.extend_from_slice(&header.emit());
        frame.extend_from_slice(body);
        frame
    }

    #[test]
    fn header_survives_the_wire() {
        let bytes = frame(&header(), b"data");
        assert_eq!(Header::parse(bytes.as_slice(), ETHERNET_BYTES), Ok(header()));
        assert_eq!(bytes[12..14], ETHERTYPE_LINK.to_be_bytes());
    }

    #[test]
    fn names_every_way_to_be_wrong() {
        let good = frame(&header(), b"data");
        let with = |at: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[ETHERNET_BYTES + at] = value;
            Header::parse(bytes.as_slice(), ETHERNET_BYTES)
        };
        assert_eq!(with(0, 1), Err(Reason::DropLinkVersion));
        assert_eq!(with(1, 9), Err(Reason::DropLinkKind));
        assert_eq!(with(2, 0), Err(Reason::DropLinkHops));
        assert_eq!(with(2, 2), Err(Reason::DropLinkHops));
        assert_eq!(with(25, 5), Err(Reason::DropLinkTruncated));
        for cut in 0..good.len() {
            assert_eq!(Header::parse(&good[..cut], ETHERNET_BYTES), Err(Reason::DropLinkTruncated));
        }
    }

    #[test]
    fn queues_are_carried_in_sixteenths() {
        for milli in [0, 62, 1000, 2500, 4_000_000] {
            let carried = Carried { queued: Carried::queued_of(milli), ..Carried::default() };
            assert!(carried.queued_milli().abs_diff(milli) <= 62, "{milli}");
        }
        let full = Carried { queued: Carried::queued_of(u32::MAX), ..Carried::default() };
        assert_eq!(full.queued_milli(), u32::MAX, "a node that wants nothing more");
    }

    #[test]
    fn report_survives_the_wire() {
        let report = Report {
            behind: 1,
            mean_backlog_ns: 2,
            received_frames: 3,
            interval_us: 4,
            workers: 5,
            busy_milli: 6,
            memory_milli: 7,
            limit_ns: Some(0x0809_0a0b),
        };
        let bytes = report.emit();
        assert_eq!(Report::parse(bytes.as_slice(), 0), Ok(report));
        assert_eq!(Report::parse(&bytes[..31], 0), Err(Reason::DropLinkTruncated));
        assert_eq!(Report::parse([0u8; REPORT_BYTES].as_slice(), 0), Err(Reason::DropLinkTruncated));
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_round_trips(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let Ok(header) = Header::parse(bytes.as_slice(), 0) {
                let again = header.emit();
                prop_assert_eq!(&again[..3], &bytes[..3]);
                prop_assert_eq!(again[3], bytes[3] & (FLAGS | KEY));
                prop_assert_eq!(header.with_key(9).key(), 9);
                prop_assert_eq!(&again[4..], &bytes[4..HEADER_BYTES]);
            }
        }
    }
}

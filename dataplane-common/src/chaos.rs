//! What the cable box's XDP programs (`dataplane-ebpf/src/chaos.rs`) and the program that loads them agree on: which frames
//! meet which fate, and where that is counted. The dataplane itself uses none of it.
//!
//! A frame's fate follows from a seed and from its number among the frames of its direction, queue and kind, so a run that
//! sends the same frames can be repeated whatever else is on the wire. Each frame meets one fate: the counts of all fates add up
//! to the frames seen.

use crate::hash::mix;
use crate::wire::ip::ETHERNET_BYTES;
use crate::wire::link::Kind;

/// Name of the map with a [`Rule`] per direction and kind.
pub const CHAOS_RULE: &str = "CHAOS_RULE";
/// Name of the map with the counts per direction, kind and queue.
pub const CHAOS_COUNT: &str = "CHAOS_COUNT";
/// Name of the device map: where each direction leaves.
pub const CHAOS_OUT: &str = "CHAOS_OUT";
/// Name of the map of sockets that frames are given to.
pub const CHAOS_XSKS: &str = "CHAOS_XSKS";

/// Program of each [`Direction`], in order: it runs where the direction's frames come in.
pub const PROGRAMS: [&str; DIRECTIONS] = ["bn_chaos_forth", "bn_chaos_back"];

/// Directions of a cable.
pub const DIRECTIONS: usize = 2;
/// Most queues of an interface of a cable.
pub const QUEUES: usize = 8;
/// Kinds of frames.
pub const KINDS: usize = FrameKind::ALL.len();
/// Words of a count: by [`Fate`], then [`SEEN`].
pub const COUNT_WORDS: usize = 8;
/// Word of a count with the frames seen.
pub const SEEN: usize = 6;
/// Bytes in front of a frame that is given to a socket: its fate and its kind, a word of four bytes each.
pub const METADATA_BYTES: usize = 8;

/// Where a frame goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Direction {
    /// From the first end to the second.
    Forth = 0,
    /// From the second end to the first.
    Back = 1,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; DIRECTIONS] = [Self::Forth, Self::Back];
}

/// Kind of a frame, as far as the box tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum FrameKind {
    /// None of the interconnect's that the box knows.
    Other = 0,
    /// Interconnect frame with a packet to be computed.
    Forward = Kind::Forward as u32,
    /// Interconnect frame with a computed packet.
    Result = Kind::Result as u32,
    /// Load report.
    Report = Kind::Report as u32,
    /// Request of an idle node.
    Pull = Kind::Pull as u32,
}

impl FrameKind {
    /// All of them; each one's place is its number.
    pub const ALL: [Self; 5] = [Self::Other, Self::Forward, Self::Result, Self::Report, Self::Pull];

    /// The kind that an interconnect header names in its second byte.
    #[inline(always)]
    pub const fn from_wire(byte: u8) -> Self {
        match byte {
            1 => Self::Forward,
            2 => Self::Result,
            3 => Self::Report,
            4 => Self::Pull,
            _ => Self::Other,
        }
    }

    /// Name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Forward => "forward",
            Self::Result => "result",
            Self::Report => "report",
            Self::Pull => "pull",
        }
    }
}

/// What the box does with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Fate {
    /// It goes on as it came.
    Pass = 0,
    /// It ends here.
    Drop = 1,
    /// It goes on with one byte changed.
    Corrupt = 2,
    /// It goes on twice.
    Duplicate = 3,
    /// It goes on after a later frame of its direction.
    Reorder = 4,
    /// It goes on later.
    Delay = 5,
}

impl Fate {
    /// All but [`Fate::Pass`], in the order of the words of a [`Rule`].
    pub const IMPAIRMENTS: [Self; 5] = [Self::Drop, Self::Corrupt, Self::Duplicate, Self::Reorder, Self::Delay];
    /// All of them; each one's place is its number.
    pub const ALL: [Self; 6] = [Self::Pass, Self::Drop, Self::Corrupt, Self::Duplicate, Self::Reorder, Self::Delay];
}

/// Words of a rule.
pub const RULE_WORDS: usize = 7;
/// Word of the seed.
const RULE_SEED: usize = 5;
/// Word of the first byte that may be changed.
const RULE_FROM: usize = 6;

/// One million: shares are counted in its parts.
pub const MILLION: u32 = 1_000_000;

/// What happens to frames of one kind in one direction, as the map holds it: for each of [`Fate::IMPAIRMENTS`] the bound below
/// which a random number of 32 bits means it or one before it, then the seed and the first byte to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule(pub [u64; RULE_WORDS]);

impl Rule {
    /// The rule of these shares, in millionths in the order of [`Fate::IMPAIRMENTS`]; together at most [`MILLION`]. A byte is
    /// changed at `corrupt_from` (bytes from the start of the frame) or behind it, never in the Ethernet header.
    pub const fn new(shares: [u32; 5], seed: u64, corrupt_from: u16) -> Self {
        let mut words = [0; RULE_WORDS];
        let mut sum = 0;
        let mut at = 0;
        while at < shares.len() {
            sum += shares[at] as u64;
            words[at] = (sum << 32) / MILLION as u64;
            at += 1;
        }
        words[RULE_SEED] = seed;
        words[RULE_FROM] =
            if (corrupt_from as usize) < ETHERNET_BYTES { ETHERNET_BYTES as u64 } else { corrupt_from as u64 };
        Self(words)
    }

    /// The random number of the frame with this number.
    #[inline(always)]
    pub const fn draw(&self, number: u64) -> u64 {
        mix(self.0[RULE_SEED].wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// What happens to the frame that drew this number.
    #[inline(always)]
    pub const fn fate(&self, drawn: u64) -> Fate {
        let lot = drawn & 0xffff_ffff;
        if lot >= self.0[4] {
            Fate::Pass
        } else if lot < self.0[0] {
            Fate::Drop
        } else if lot < self.0[1] {
            Fate::Corrupt
        } else if lot < self.0[2] {
            Fate::Duplicate
        } else if lot < self.0[3] {
            Fate::Reorder
        } else {
            Fate::Delay
        }
    }

    /// Which byte of a frame of `len` bytes is changed, and what is added to it modulo 2 (never 0); `None` when the frame ends
    /// before the first byte that may be changed.
    #[inline(always)]
    pub const fn corruption(&self, drawn: u64, len: u32) -> Option<(u32, u8)> {
        let from = self.0[RULE_FROM] as u32;
        if len <= from {
            return None;
        }
        // The lot has chosen the fate: another number chooses the byte.
        let drawn = mix(drawn);
        let at = from as u64 + (((drawn & 0xffff_ffff) * (len - from) as u64) >> 32);
        Some((at as u32, (drawn >> 56) as u8 | 1))
    }
}

/// Place of a rule in its map.
#[inline(always)]
pub const fn rule_index(direction: Direction, kind: FrameKind) -> u32 {
    direction as u32 * KINDS as u32 + kind as u32
}

/// Place of a count in its map; `queue` is below [`QUEUES`].
#[inline(always)]
pub const fn count_index(direction: Direction, kind: FrameKind, queue: u32) -> u32 {
    rule_index(direction, kind) * QUEUES as u32 + queue
}

/// Place in the map of sockets of the one that takes frames of a direction and queue.
#[inline(always)]
pub const fn socket_index(direction: Direction, queue: u32) -> u32 {
    direction as u32 * QUEUES as u32 + queue
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(rule: &Rule, frames: u64) -> [u64; 6] {
        let mut counts = [0; 6];
        for number in 0..frames {
            counts[rule.fate(rule.draw(number)) as usize] += 1;
        }
        counts
    }

    #[test]
    fn kinds_and_fates_are_their_places() {
        for (at, kind) in FrameKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at);
            assert_eq!(FrameKind::from_wire(at as u8), kind);
        }
        for (at, fate) in Fate::ALL.into_iter().enumerate() {
            assert_eq!(fate as usize, at);
        }
        assert!(Fate::ALL.len() <= SEEN && SEEN < COUNT_WORDS);
    }

    #[test]
    fn shares_are_met_and_repeat_with_the_seed() {
        let rule = Rule::new([50_000, 1_000, 10_000, 20_000, 100_000], 7, 0);
        let seen = counts(&rule, 1_000_000);
        // Five standard deviations of the largest share are 1500 of a million.
        for (fate, expected) in [(1, 50_000), (2, 1_000), (3, 10_000), (4, 20_000), (5, 100_000), (0, 819_000)] {
            assert!(seen[fate].abs_diff(expected) < 2_000, "{seen:?}");
        }
        assert_eq!(seen, counts(&rule, 1_000_000));
        assert_ne!(seen, counts(&Rule::new([50_000, 1_000, 10_000, 20_000, 100_000], 8, 0), 1_000_000));
    }

    #[test]
    fn nothing_and_all_are_exact() {
        assert_eq!(counts(&Rule::new([0; 5], 1, 0), 100_000), [100_000, 0, 0, 0, 0, 0]);
        assert_eq!(counts(&Rule::new([MILLION, 0, 0, 0, 0], 1, 0), 100_000), [0, 100_000, 0, 0, 0, 0]);
        assert_eq!(counts(&Rule::new([0, 0, 0, 0, MILLION], 1, 0), 100_000), [0, 0, 0, 0, 0, 100_000]);
    }

    #[test]
    fn a_byte_is_changed_where_it_may_be() {
        let rule = Rule::new([0, MILLION, 0, 0, 0], 3, 0);
        let mut hit = [false; 60];
        for number in 0..10_000 {
            let (at, change) = rule.corruption(rule.draw(number), 60).unwrap();
            assert!((ETHERNET_BYTES as u32..60).contains(&at) && change != 0);
            hit[at as usize] = true;
        }
        assert!(hit[ETHERNET_BYTES..].iter().all(|hit| *hit));
        assert_eq!(rule.corruption(5, ETHERNET_BYTES as u32), None);
        let behind = Rule::new([0, MILLION, 0, 0, 0], 3, 59);
        assert_eq!(behind.corruption(5, 60).map(|(at, _)| at), Some(59));
    }

    #[test]
    fn no_two_places_are_the_same() {
        let mut places = std::vec::Vec::new();
        for direction in Direction::ALL {
            for kind in FrameKind::ALL {
                places.extend((0..QUEUES as u32).map(|queue| count_index(direction, kind, queue)));
            }
        }
        places.sort_unstable();
        assert_eq!(places, (0..(DIRECTIONS * KINDS * QUEUES) as u32).collect::<std::vec::Vec<_>>());
    }
}

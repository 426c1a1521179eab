//! Seals: how an interconnect frame proves that a node of the cluster sent it, in its present boot, to this node's present
//! boot, and that it has not been taken before.
//!
//! ```text
//! | Ethernet | header (72 bytes) | serial u64 | body tag u64 | tag u64 | body |
//!             └──────────────── tag is over these ─────────┘           └ body tag is over this
//! ```
//!
//! Both tags are SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012) under two keys of one
//! key number, which is the high half of the header's flags; number 0 says that the frame has no seal. The body tag is 0 when
//! the body is not covered.
//!
//! Every frame to a node has a *serial* of its own. The receiver keeps which of the newest ones it has taken in words that are
//! only changed by compare-and-swap, so that any number of CPUs may look at once: entry `serial / 16 % 32` holds the newest
//! block of 16 serials that fell on it and which of the 16 were taken. RFC 6479 describes such a window with one writer; here
//! each word also carries the *generation* of the sender's boot it belongs to, so that nobody needs to clear the words when the
//! sender has started anew.

use crate::load::newer;
use crate::maps::{AUTH_FULL, AUTH_HEADER, AUTH_OFF, AUTH_REPORTS};
use crate::packet::Packet;
use crate::wire::link::{HEADER_BYTES, Header, Kind, OVERHEAD_BYTES, REPORT_BYTES};

/// Length of a seal, bytes.
pub const SEAL_BYTES: usize = 24;
/// What the tag is over, from the start of the interconnect header: all of it, the serial and the body tag, bytes.
pub const TAGGED_BYTES: usize = HEADER_BYTES + 16;
/// Rows of `KEYS`: keys have the numbers 1 to 15.
pub const KEY_ROWS: usize = 16;

/// One key in `KEYS`, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct KeyRow {
    /// Key of the tag, as SipHash takes it.
    pub header: [u64; 2],
    /// Key of the body tag.
    pub body: [u64; 2],
    /// 1 = there is such a key.
    pub valid: u64,
    /// In row 0, which holds no key: number of the key this node seals with.
    pub signing: u64,
    /// Reserved, zero.
    pub reserved: [u64; 2],
}

/// What is known of the serials of frames to and from one node, in `SEALS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct SealRow {
    /// Serials given out for frames to the node. Atomic add of whoever sends one.
    pub issued: u64,
    /// Reserved, zero.
    pub reserved1: [u64; 7],
    /// Newest boot epoch of the node of which a frame was taken. One word with `generation`, a [`Boot`].
    pub epoch: u32,
    /// How often that was another one before; 0 = no frame was taken.
    pub generation: u32,
    /// Reserved, zero.
    pub reserved2: [u64; 7],
    /// Which serials of that boot were taken ([`admit`]).
    pub taken: [u64; ENTRIES],
}

const _: () = assert!(size_of::<KeyRow>() == 64);
const _: () = assert!(size_of::<SealRow>() == 384);

/// Whether frames of `kind` are sealed on a node with this [`crate::maps::Params::auth`].
#[inline(always)]
pub const fn is_sealed(auth: u32, kind: Kind) -> bool {
    auth >= AUTH_HEADER || (auth == AUTH_REPORTS && matches!(kind, Kind::Report | Kind::Pull))
}

/// Whether the seal of a frame of `kind` covers its body too. A report's always does: it is all that a report is about.
#[inline(always)]
pub const fn covers_body(auth: u32, kind: Kind) -> bool {
    auth == AUTH_FULL || (auth != AUTH_OFF && matches!(kind, Kind::Report))
}

/// Bytes that a seal adds to a frame of `kind`.
#[inline(always)]
pub const fn seal_bytes(auth: u32, kind: Kind) -> usize {
    if is_sealed(auth, kind) { SEAL_BYTES } else { 0 }
}

/// Bytes in front of a packet that is forwarded, on a node with this [`crate::maps::Params::auth`].
#[inline(always)]
pub const fn forward_overhead(auth: u32) -> usize {
    OVERHEAD_BYTES + seal_bytes(auth, Kind::Forward)
}

/// Length of the body that a header promises, bytes.
#[inline(always)]
pub const fn body_bytes(header: &Header) -> usize {
    if matches!(header.kind, Kind::Report) { REPORT_BYTES } else { header.length as usize }
}

/// SipHash-2-4 at work.
#[derive(Clone, Copy, Debug)]
pub struct Sip {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl Sip {
    /// The beginning of a hash under `key`: its two words, little endian.
    #[inline(always)]
    pub const fn new([k0, k1]: [u64; 2]) -> Self {
        // The ASCII text that the paper starts from (section 2.1).
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    #[inline(always)]
    const fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }

    /// Takes the next eight bytes, little endian.
    #[inline(always)]
    pub const fn word(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.round();
        self.v0 ^= word;
    }

    /// The hash of a message of `length` bytes whose whole words were taken; `rest` are the bytes behind them, little endian.
    #[inline(always)]
    pub const fn finish(mut self, length: usize, rest: u64) -> u64 {
        self.word((length as u64) << 56 | rest);
        self.v2 ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }
}

/// SipHash-2-4 of `bytes` under `key`.
pub fn hash(key: [u64; 2], bytes: &[u8]) -> u64 {
    let mut sip = Sip::new(key);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        sip.word(u64::from_le_bytes(*word));
    }
    let mut last = [0u8; 8];
    last[..rest.len()].copy_from_slice(rest);
    sip.finish(bytes.len(), u64::from_le_bytes(last))
}

/// The tag of the frame whose interconnect header begins at `start`; `None` when it ends before the tag.
#[inline(always)]
pub fn tag<P: Packet + ?Sized>(frame: &P, start: usize, key: [u64; 2]) -> Option<u64> {
    let mut sip = Sip::new(key);
    let mut at = start;
    while at < start + TAGGED_BYTES {
        sip.word(u64::from_le_bytes(frame.read::<8>(at)?));
        at += 8;
    }
    Some(sip.finish(TAGGED_BYTES, 0))
}

/// Seals a frame for its receiver. `frame` begins with the interconnect header, written as for a frame without a seal; room for
/// the seal follows, then the body up to the end. False, with the frame unchanged, when it is shorter than that.
pub fn seal(frame: &mut [u8], number: u8, key: &KeyRow, serial: u64, with_body: bool) -> bool {
    let Some((front, body)) = frame.split_first_chunk_mut::<{ HEADER_BYTES + SEAL_BYTES }>() else { return false };
    let body_tag = if with_body && !body.is_empty() { hash(key.body, body) } else { 0 };
    front[3] = front[3] & 0x0f | number << 4;
    front[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&serial.to_be_bytes());
    front[HEADER_BYTES + 8..TAGGED_BYTES].copy_from_slice(&body_tag.to_be_bytes());
    let tag = hash(key.header, &front[..TAGGED_BYTES]);
    front[TAGGED_BYTES..].copy_from_slice(&tag.to_be_bytes());
    true
}

/// Serials that fall on one entry before the next one's turn.
const BLOCK: u64 = 16;
/// Entries of the window.
pub const ENTRIES: usize = 32;
/// A serial is taken if it was not taken before and is at most this far behind the newest one.
pub const WINDOW: u64 = BLOCK * (ENTRIES as u64 - 1);
/// Bits of a serial: what an entry can tell apart.
const SERIAL_BITS: u32 = 45;
/// Bits of a generation in an entry.
const GENERATION_BITS: u32 = 12;
/// Bits of an entry that say which of the 16 serials were taken.
const TAKEN_BITS: u32 = 16;
/// How often a CPU tries again when another one has changed a word it was about to change.
const TRIES: u32 = 16;

/// The boot of a peer that its serials belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Boot {
    /// The peer's boot epoch.
    pub epoch: u32,
    /// Counts its boots as this node saw them, 1 to 2^12 − 1 and round again; 0 = none seen.
    pub generation: u32,
}

impl Boot {
    /// Both fields in one word.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.epoch as u64 | (self.generation as u64) << 32
    }

    /// The inverse of [`Boot::to_word`].
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self { epoch: word as u32, generation: (word >> 32) as u32 }
    }

    /// The next one.
    #[inline(always)]
    const fn next(self, epoch: u32) -> Self {
        let last = (1 << GENERATION_BITS) - 1;
        Self { epoch, generation: if self.generation >= last { 1 } else { self.generation + 1 } }
    }
}

/// Entry of a serial.
#[inline(always)]
const fn entry_of(serial: u64) -> u32 {
    (serial / BLOCK % ENTRIES as u64) as u32
}

/// Generation that an entry belongs to.
#[inline(always)]
const fn generation_of(entry: u64) -> u32 {
    (entry >> (64 - GENERATION_BITS)) as u32
}

/// An entry after it has taken `serial`; `None` when it must not be taken. An entry of another generation is one of an earlier
/// boot.
#[inline(always)]
const fn entry_after(entry: u64, generation: u32, serial: u64) -> Option<u64> {
    let bit = 1 << (serial % BLOCK);
    // Entry and bit are given by the low bits: the others tell blocks of one entry apart.
    let block = (generation as u64) << (64 - GENERATION_BITS) | (serial / BLOCK / ENTRIES as u64) << TAKEN_BITS;
    let known = entry & !((1 << TAKEN_BITS) - 1);
    if generation_of(entry) != generation || known < block {
        return Some(block | bit);
    }
    if known > block || entry & bit != 0 { None } else { Some(entry | bit) }
}

/// The receiver's words of one peer, as XDP programs reach them. Reads are plain; swaps are ordered with everything.
pub trait Taken {
    /// The word of the [`Boot`].
    fn boot(&self) -> u64;
    /// Sets that word to `new` if it is `old`; tells whether it was.
    fn swap_boot(&self, old: u64, new: u64) -> bool;
    /// An entry of [`SealRow::taken`].
    fn entry(&self, index: u32) -> u64;
    /// Sets an entry to `new` if it is `old`; tells whether it was.
    fn swap_entry(&self, index: u32, old: u64, new: u64) -> bool;
}

/// What became of a serial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// It is taken, for the first and only time.
    pub is_new: bool,
    /// Its frame is the first one of a boot of its sender.
    pub is_first: bool,
}

/// Takes the serial of a genuine frame of boot `epoch`, unless it was taken before or may have been.
///
/// # Why no serial is taken twice
/// A serial is taken by a swap of its entry that sets its bit, and a bit is only unset when the entry goes to a higher block
/// or a later generation, where the serial is refused. An entry of another generation than the boot's is of an *earlier* one:
/// it was read before the swap of the boot by itself, which finds the boot as it was, and nobody writes an entry of a
/// generation before the boot has it.
#[inline(always)]
pub fn admit<T: Taken>(row: &T, epoch: u32, serial: u64) -> Admitted {
    let mut admitted = Admitted::default();
    if serial >> SERIAL_BITS != 0 {
        return admitted;
    }
    let index = entry_of(serial);
    let mut tries = 0;
    while tries < TRIES {
        tries += 1;
        let entry = row.entry(index);
        let word = row.boot();
        let boot = Boot::from_word(word);
        if boot.generation == 0 || newer(epoch, boot.epoch) {
            admitted.is_first |= row.swap_boot(word, boot.next(epoch).to_word());
            continue;
        }
        if boot.epoch != epoch {
            return admitted;
        }
        if generation_of(entry) != boot.generation && !row.swap_boot(word, word) {
            continue;
        }
        let Some(after) = entry_after(entry, boot.generation, serial) else {
            return admitted;
        };
        if row.swap_entry(index, entry, after) {
            admitted.is_new = true;
            return admitted;
        }
    }
    admitted
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;

//! The envelope of a datagram: who sent it, when, and a tag over all of it. What does not hold is refused and counted.
//!
//! ```text
//!  0      3       4         5     6       8       12       20         28        payload     16
//! ┌──────┬───────┬─────────┬─────┬───────┬───────┬────────┬──────────┬──────────┬─────────┬─────┐
//! │ "DPM"│version│ secret? │ kind│ node  │ epoch │ serial │ sent, µs │   ...    │         │ tag │
//! └──────┴───────┴─────────┴─────┴───────┴───────┴────────┴──────────┴──────────┴─────────┴─────┘
//! ```
//! The tag is BLAKE3's keyed hash ("BLAKE3: one function, fast everywhere", section 2.4) cut to 128 bits. Serials of a sender rise by
//! one from the time it started, and a window of the last [`WINDOW`] tells a repeated one. A receiver that has just started
//! knows no serials: there the time protects, which may differ from its own by [`MAX_SKEW_US`]. So clocks of a cluster must agree
//! to that much.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::{Buf, BufMut};
use constant_time_eq::constant_time_eq_16;
use serde::Serialize;

use super::key::Key;

const MAGIC: &[u8; 3] = b"DPM";
/// Version of envelope and payloads.
const VERSION: u8 = 1;
const TAG_BYTES: usize = 16;
/// Bytes in front of the payload.
const HEADER_BYTES: usize = 28;
/// Bytes of an envelope around its payload.
pub(super) const OVERHEAD_BYTES: usize = HEADER_BYTES + TAG_BYTES;
/// Longest datagram, bytes: with IPv6 and UDP headers it fits an Ethernet frame.
pub(super) const MAX_DATAGRAM_BYTES: usize = 1_400;
/// Most that a sender's clock may differ from ours, µs.
pub(super) const MAX_SKEW_US: u64 = 10_000_000;
/// Serials behind the newest that are still told from repeated ones.
const WINDOW: u64 = 64;

/// What the payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A message of SWIM.
    Swim = 0,
    /// The sender's profile with its revision.
    Profile = 1,
    /// The receiver's profile of this revision was taken.
    Taken = 2,
    /// The receiver has another member's node id, whose identity this is.
    Conflict = 3,
    /// The sender leaves.
    Leave = 4,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Swim, Self::Profile, Self::Taken, Self::Conflict, Self::Leave];
}

/// Why a datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Refusal {
    /// It is no datagram of this protocol, or its payload is not what it should be.
    Malformed,
    /// Another version's.
    Version,
    /// Its sender has no key file although we have one, or the other way round.
    NoKey,
    /// Its tag is wrong: another key, another cluster, or altered on the way.
    Tag,
    /// It was sent more than [`MAX_SKEW_US`] ago by our clock, or after now.
    Clock,
    /// It came twice, or is older than the window.
    Replayed,
    /// Its sender has the node id of another member, or an id that has no row here.
    Conflict,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 7] =
        [Self::Malformed, Self::Version, Self::NoKey, Self::Tag, Self::Clock, Self::Replayed, Self::Conflict];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Version => "version",
            Self::NoKey => "no_key",
            Self::Tag => "tag",
            Self::Clock => "clock",
            Self::Replayed => "replayed",
            Self::Conflict => "conflict",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Datagrams refused so far, by reason.
#[derive(Debug, Default)]
pub struct Refusals([AtomicU64; Refusal::ALL.len()]);

impl Refusals {
    /// Those refused for `reason`.
    pub fn count(&self, reason: Refusal) -> u64 {
        self.0[reason as usize].load(Relaxed)
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        Refusal::ALL.iter().map(|reason| self.count(*reason)).sum()
    }

    /// Counts one.
    pub fn add(&self, reason: Refusal) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }
}

impl Serialize for Refusals {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Refusal::ALL.iter().map(|reason| (reason.name(), self.count(*reason))))
    }
}

/// An envelope that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened<'d> {
    pub(super) kind: Kind,
    pub(super) node: u16,
    pub(super) epoch: u32,
    pub(super) payload: &'d [u8],
}

/// Makes and opens envelopes for one member.
#[derive(Debug)]
pub(super) struct Seal {
    key: Key,
    node: u16,
    epoch: u32,
    serial: u64,
    seen: BTreeMap<(u16, u32), Seen>,
}

/// The serials seen of one boot of a sender.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    newest: u64,
    /// Bit k: the serial k before the newest has come.
    bits: u64,
    /// When the newest came, µs: what is older than any datagram that is still accepted may be forgotten.
    at_us: u64,
}

impl Seal {
    /// For `node` in boot `epoch`. Serials begin with the time of the start, so that those of a restarted node are new.
    pub(super) fn new(key: Key, node: u16, epoch: u32, wall_us: u64) -> Self {
        Self { key, node, epoch, serial: wall_us, seen: BTreeMap::new() }
    }

    /// A datagram with `payload` in it.
    pub(super) fn seal(&mut self, kind: Kind, payload: &[u8], wall_us: u64) -> Vec<u8> {
        self.serial += 1;
        let mut datagram = Vec::with_capacity(payload.len() + OVERHEAD_BYTES);
        datagram.put_slice(MAGIC);
        datagram.put_u8(VERSION);
        datagram.put_u8(self.key.is_secret().into());
        datagram.put_u8(kind as u8);
        datagram.put_u16(self.node);
        datagram.put_u32(self.epoch);
        datagram.put_u64(self.serial);
        datagram.put_u64(wall_us);
        datagram.put_slice(payload);
        if let Some(key) = self.key.accepted().first() {
            let tag = tag(key, &datagram);
            datagram.put_slice(&tag);
        }
        datagram
    }

    /// Opens a datagram. Only one whose tag holds changes anything, and that is the window of its sender.
    ///
    /// # Errors
    /// Why it is refused.
    pub(super) fn open<'d>(&mut self, datagram: &'d [u8], wall_us: u64) -> Result<Opened<'d>, Refusal> {
        if datagram.len() < OVERHEAD_BYTES || datagram.len() > MAX_DATAGRAM_BYTES || !datagram.starts_with(MAGIC) {
            return Err(Refusal::Malformed);
        }
        if datagram[3] != VERSION {
            return Err(Refusal::Version);
        }
        if datagram[4] != u8::from(self.key.is_secret()) {
            return Err(Refusal::NoKey);
        }
        let (signed, found) = datagram.split_at(datagram.len() - TAG_BYTES);
        let found: &[u8; TAG_BYTES] = found.try_into().map_err(|_| Refusal::Malformed)?;
        // Every key is tried, so that the time does not tell which one it was.
        let holds = self.key.accepted().iter().map(|key| constant_time_eq_16(&tag(key, signed), found));
        if !holds.fold(false, |any, holds| any | holds) {
            return Err(Refusal::Tag);
        }
        let mut fields = &signed[5..HEADER_BYTES];
        let (kind, node, epoch) = (fields.get_u8(), fields.get_u16(), fields.get_u32());
        let (serial, sent_us) = (fields.get_u64(), fields.get_u64());
        if sent_us.abs_diff(wall_us) > MAX_SKEW_US {
            return Err(Refusal::Clock);
        }
        self.see((node, epoch), serial, wall_us)?;
        let kind = Kind::ALL.into_iter().find(|known| *known as u8 == kind).ok_or(Refusal::Malformed)?;
        Ok(Opened { kind, node, epoch, payload: &signed[HEADER_BYTES..] })
    }

    fn see(&mut self, sender: (u16, u32), serial: u64, wall_us: u64) -> Result<(), Refusal> {
        let known = self.seen.get(&sender).copied();
        if known.is_none() {
            // A replayed datagram of a forgotten boot is refused for its time.
            self.seen.retain(|_, seen| wall_us.saturating_sub(seen.at_us) <= 3 * MAX_SKEW_US);
        }
        let mut seen = known.unwrap_or_default();
        if serial > seen.newest {
            let ahead = serial - seen.newest;
            seen.bits = if ahead < WINDOW { seen.bits << ahead | 1 } else { 1 };
            (seen.newest, seen.at_us) = (serial, wall_us);
        } else {
            let behind = seen.newest - serial;
            if behind >= WINDOW || seen.bits & 1 << behind != 0 {
                return Err(Refusal::Replayed);
            }
            seen.bits |= 1 << behind;
        }
        self.seen.insert(sender, seen);
        Ok(())
    }
}

fn tag(key: &[u8; 32], bytes: &[u8]) -> [u8; TAG_BYTES] {
    let mut tag = [0; TAG_BYTES];
    tag.copy_from_slice(&blake3::keyed_hash(key, bytes).as_bytes()[..TAG_BYTES]);
    tag
}

#[cfg(test)]
#[path = "seal_tests.rs"]
mod tests;

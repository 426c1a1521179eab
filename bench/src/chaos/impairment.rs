//! What shall happen to frames: [`Chaos`], and its text form for the command line.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use dataplane_common::chaos::{FrameKind, MILLION, Rule};
use dataplane_common::hash::mix;
use serde::{Serialize, Serializer};

use crate::topology::format_duration;

/// A share of the frames, in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Share(u32);

impl Share {
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them.
    pub const ALL: Self = Self(MILLION);

    /// A share in percent, at most 100.
    pub const fn percent(percent: u32) -> Self {
        Self(if percent >= 100 { MILLION } else { percent * (MILLION / 100) })
    }

    /// A share in millionths, at most a million.
    pub const fn ppm(ppm: u32) -> Self {
        Self(if ppm >= MILLION { MILLION } else { ppm })
    }

    /// In millionths.
    pub const fn as_ppm(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 1e4)
    }
}

/// A set of kinds of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// Every frame.
    pub const ALL: Self = Self::of(&FrameKind::ALL);
    /// Frames with a packet in them.
    pub const PACKETS: Self = Self::of(&[FrameKind::Forward, FrameKind::Result]);

    /// The set of these.
    pub const fn of(kinds: &[FrameKind]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < kinds.len() {
            bits |= 1 << kinds[at] as u32;
            at += 1;
        }
        Self(bits)
    }

    /// Whether a kind is in it.
    pub const fn has(self, kind: FrameKind) -> bool {
        self.0 >> kind as u32 & 1 != 0
    }

    /// The kinds in it.
    pub fn iter(self) -> impl Iterator<Item = FrameKind> {
        FrameKind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().map(FrameKind::name).collect::<Vec<_>>().join("+"))
    }
}

impl Serialize for Kinds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What shall happen to frames of some kinds. Each frame meets one fate at most, so the shares add up to at most all frames.
///
/// As text: `drop=5%,duplicate=1%,reorder=1%,corrupt=0.1%,delay=1%:2ms,kinds=forward+result,seed=7`, each part at most once and
/// none needed; shares in `%` or `ppm`, times in `ns`, `us`, `ms` or `s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Chaos {
    /// Frames that end.
    pub drop: Share,
    /// Frames with one byte changed.
    pub corrupt: Share,
    /// Frames that are sent on twice.
    pub duplicate: Share,
    /// Frames that are sent on behind a later one; when none comes, after ten milliseconds.
    pub reorder: Share,
    /// Frames that are sent on later.
    pub delay: Share,
    /// How much later.
    #[serde(serialize_with = "as_ns")]
    pub delay_by: Duration,
    /// First byte of a frame that may be changed; never one of the Ethernet header.
    pub corrupt_from: u16,
    /// Which frames; what was said for others stays as it was.
    pub kinds: Kinds,
    /// Chooses the frames.
    pub seed: u64,
}

fn as_ns<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(nanoseconds(*duration))
}

/// A duration in ns (saturating).
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Chaos {
    /// Every frame goes on as it came.
    pub const NONE: Self = Self {
        drop: Share::NONE,
        corrupt: Share::NONE,
        duplicate: Share::NONE,
        reorder: Share::NONE,
        delay: Share::NONE,
        delay_by: Duration::ZERO,
        corrupt_from: 0,
        kinds: Kinds::ALL,
        seed: 1,
    };
    /// No frame goes on: a cable that was cut.
    pub const CUT: Self = Self { drop: Share::ALL, ..Self::NONE };

    /// Frames that something happens to.
    pub fn share(&self) -> Share {
        let shares = [self.drop, self.corrupt, self.duplicate, self.reorder, self.delay];
        Share(shares.iter().fold(0, |sum, share| sum.saturating_add(share.0)))
    }

    /// Whether the shares fit.
    ///
    /// # Errors
    /// [`ImpairmentError::TooMuch`]: together they are more than all frames.
    pub fn check(&self) -> Result<(), ImpairmentError> {
        if self.share() > Share::ALL { Err(ImpairmentError::TooMuch(self.share())) } else { Ok(()) }
    }

    /// The rule for frames of a kind on one direction of one cable, whose number keeps cables and directions apart.
    pub(super) fn rule(&self, number: u64, kind: FrameKind) -> Rule {
        let shares = [self.drop, self.corrupt, self.duplicate, self.reorder, self.delay].map(Share::as_ppm);
        let seed = mix(mix(self.seed) ^ number << 8 ^ u64::from(kind as u32));
        Rule::new(shares, seed, self.corrupt_from)
    }
}

impl Default for Chaos {
    fn default() -> Self {
        Self::NONE
    }
}

impl fmt::Display for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named =
            [("drop", self.drop), ("corrupt", self.corrupt), ("duplicate", self.duplicate), ("reorder", self.reorder)];
        for (name, share) in named.into_iter().filter(|(_, share)| *share > Share::NONE) {
            write!(f, "{name}={share},")?;
        }
        if self.delay > Share::NONE {
            write!(f, "delay={}:{},", self.delay, format_duration(self.delay_by))?;
        }
        write!(f, "kinds={},seed={}", self.kinds, self.seed)
    }
}

/// Why a text is no [`Chaos`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImpairmentError {
    /// A part without a `=`, or of another name.
    Unknown(String),
    /// A part that stands there twice.
    Twice(String),
    /// A share that is none: the part, the text.
    Share(String, String),
    /// A time that is none.
    Time(String),
    /// A kind of frame that there is not.
    Kind(String),
    /// A seed that is no number.
    Seed(String),
    /// Shares of more than all frames.
    TooMuch(Share),
}

impl fmt::Display for ImpairmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(part) => write!(
                f,
                "`{part}` is none of drop=SHARE, corrupt=SHARE, duplicate=SHARE, reorder=SHARE, delay=SHARE:TIME, \
                 kinds=KIND+KIND, seed=NUMBER"
            ),
            Self::Twice(name) => write!(f, "`{name}` stands there twice"),
            Self::Share(name, text) => {
                write!(f, "`{name}={text}`: a share is a number from 0 to 100 with `%`, or millionths with `ppm`")
            }
            Self::Time(text) => {
                write!(f, "`delay={text}`: write the share and the time, as in delay=1%:2ms (units ns, us, ms, s)")
            }
            Self::Kind(text) => {
                let names = FrameKind::ALL.map(FrameKind::name).join(", ");
                write!(f, "`{text}` is no kind of frame; there are {names}")
            }
            Self::Seed(text) => write!(f, "`seed={text}`: a seed is a whole number"),
            Self::TooMuch(share) => {
                write!(f, "the shares are {share} together: each frame meets one fate, so they may be 100% at most")
            }
        }
    }
}

impl std::error::Error for ImpairmentError {}

impl FromStr for Chaos {
    type Err = ImpairmentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut chaos = Self::NONE;
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| ImpairmentError::Unknown(part.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            if seen.contains(&name) {
                return Err(ImpairmentError::Twice(name.to_owned()));
            }
            seen.push(name);
            let share =
                |text: &str| parse_share(text).ok_or_else(|| ImpairmentError::Share(name.to_owned(), value.to_owned()));
            match name {
                "drop" => chaos.drop = share(value)?,
                "corrupt" => chaos.corrupt = share(value)?,
                "duplicate" => chaos.duplicate = share(value)?,
                "reorder" => chaos.reorder = share(value)?,
                "delay" => {
                    let wrong = || ImpairmentError::Time(value.to_owned());
                    let (part, time) = value.split_once(':').ok_or_else(wrong)?;
                    chaos.delay = share(part)?;
                    chaos.delay_by = parse_time(time).ok_or_else(wrong)?;
                }
                "kinds" => chaos.kinds = parse_kinds(value)?,
                "seed" => chaos.seed = value.parse().map_err(|_| ImpairmentError::Seed(value.to_owned()))?,
                _ => return Err(ImpairmentError::Unknown(part.to_owned())),
            }
        }
        chaos.check()?;
        Ok(chaos)
    }
}

/// A number and its unit.
fn quantity(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim()))
}

fn parse_share(text: &str) -> Option<Share> {
    let ppm = match quantity(text)? {
        (number, "%") => number * 1e4,
        (number, "ppm") => number,
        _ => return None,
    };
    (ppm <= f64::from(MILLION)).then(|| Share(ppm.round() as u32))
}

fn parse_time(text: &str) -> Option<Duration> {
    let (number, unit) = quantity(text)?;
    let seconds = match unit {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok()
}

fn parse_kinds(text: &str) -> Result<Kinds, ImpairmentError> {
    let mut kinds = Vec::new();
    for name in text.split('+').map(str::trim) {
        let kind = FrameKind::ALL.into_iter().find(|kind| kind.name() == name);
        kinds.push(kind.ok_or_else(|| ImpairmentError::Kind(name.to_owned()))?);
    }
    Ok(Kinds::of(&kinds))
}

#[cfg(test)]
#[path = "impairment_tests.rs"]
mod tests;

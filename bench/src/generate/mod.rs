//! Generators behind one trait: what sends the frames of a benchmark.
//!
//! | generator | sends by | rate |
//! |---|---|---|
//! | [`pktgen`] | the kernel's packet generator, `/proc/net/pktgen` | its own gap, rounded to whole ns |
//! | [`live`] | `BPF_PROG_TEST_RUN` with live frames | paced in the kernel by the program that is run |
//! | [`xsk`] | an AF_XDP socket of ours | scheduled departures |
//! | [`replay`] | the same, frames of a capture | the capture's own times, or scheduled departures |
//!
//! A generator runs as a process of its own in the namespace it sends from (`dataplane-bench offer`); [`Offering`] starts
//! and ends it. One that this machine lacks is named with the reason by [`Kind::absence`]; nothing else takes its place.
//! What a generator says it has sent is printed beside what arrived: the receiver's count is the result.

pub mod frame;
pub mod live;
mod offering;
pub mod pktgen;
pub mod recorded;
pub mod replay;
pub mod xsk;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use self::frame::FrameSpec;
pub use self::offering::{Event, Offering};
use crate::interrupt::Interrupt;

/// What to send.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Which generator.
    pub kind: Kind,
    /// Interface to send out of, in the namespace of the generator's process.
    pub interface: String,
    /// The frame, without frame check sequence. pktgen takes the addresses and UDP ports from it and makes its own payload; a
    /// replay gives its Ethernet addresses to the frames of the capture, or leaves those alone when it is empty.
    pub frame: Vec<u8>,
    /// Frames.
    pub count: u32,
    /// Frames per second; `None`: as fast as possible.
    pub rate: Option<f64>,
    /// CPU that it is pinned to.
    pub cpu: usize,
}

/// What a generator says of itself. Not a result: results are counted at the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// Frames given to the kernel to send.
    pub sent: u64,
    /// Frames the kernel refused.
    pub refused: u64,
    /// From the first frame to the last, ns.
    pub duration_ns: u64,
}

impl Offered {
    /// Frames per second; 0 for no time.
    pub fn rate(&self) -> f64 {
        if self.duration_ns == 0 { 0.0 } else { self.sent as f64 * 1e9 / self.duration_ns as f64 }
    }
}

/// A way to send frames. An implementation is made for one [`Offer`] and sends it once.
pub trait Generator: Sized {
    /// Prepares everything, so that [`Self::run`] only sends.
    ///
    /// # Errors
    /// The interface is not there, or the kernel refuses.
    fn open(offer: &Offer) -> Result<Self>;

    /// Sends until the count is reached, the time for it at the offer's rate is over, or this process is told to end.
    ///
    /// # Errors
    /// The kernel refuses.
    fn run(&mut self, interrupt: &Interrupt) -> Result<Offered>;
}

/// The generators, in the order of preference of somebody who measures a kernel. As text: a name, or `pcap:FILE`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The kernel's packet generator.
    Pktgen,
    /// XDP live frames.
    Live,
    /// An AF_XDP socket.
    Xsk,
    /// The frames of a capture, by an AF_XDP socket.
    Pcap(replay::Capture),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pktgen => f.write_str("pktgen"),
            Self::Live => f.write_str("live"),
            Self::Xsk => f.write_str("xsk"),
            Self::Pcap(capture) => write!(f, "pcap:{}", capture.file.display()),
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("pcap", file)) if !file.is_empty() => {
                Ok(Self::Pcap(replay::Capture { file: PathBuf::from(file), own_times: false }))
            }
            _ => Self::PLAIN
                .into_iter()
                .find(|kind| kind.to_string() == text)
                .ok_or_else(|| format!("there are pktgen, live, xsk and pcap:FILE, no {text}")),
        }
    }
}

impl Kind {
    /// Those that need no file.
    pub const PLAIN: [Self; 3] = [Self::Pktgen, Self::Live, Self::Xsk];

    /// Why a benchmark on this machine cannot use it, as far as that can be seen without trying; `None` when nothing speaks
    /// against it.
    pub fn absence(&self) -> Option<String> {
        match self {
            Self::Pktgen => pktgen::absence(),
            Self::Live | Self::Xsk => None,
            Self::Pcap(capture) => recorded::read_countable(&capture.file).err().map(|error| format!("{error:#}")),
        }
    }

    /// Sends an offer and hands over what happens; the body of the generator's process.
    ///
    /// # Errors
    /// As the generator says.
    pub fn send(offer: &Offer, interrupt: &Interrupt, on_event: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
        match &offer.kind {
            Self::Pktgen => send::<pktgen::Pktgen>(offer, interrupt, on_event),
            Self::Live => send::<live::LiveFrames>(offer, interrupt, on_event),
            Self::Xsk => send::<xsk::Sender>(offer, interrupt, on_event),
            Self::Pcap(_) => send::<replay::Replay>(offer, interrupt, on_event),
        }
    }
}

fn send<G: Generator>(
    offer: &Offer,
    interrupt: &Interrupt,
    on_event: &mut dyn FnMut(Event) -> Result<()>,
) -> Result<()> {
    let mut generator = G::open(offer)?;
    on_event(Event::Ready)?;
    let offered = generator.run(interrupt)?;
    on_event(Event::Offered(offered))
}

/// Time between two frames, thousandths of a nanosecond; 0 without a rate.
///
/// # Errors
/// The rate is not a positive number.
fn gap_milli(rate: Option<f64>) -> Result<u64> {
    let Some(rate) = rate else { return Ok(0) };
    anyhow::ensure!(rate.is_finite() && rate > 0.0, "{rate} frames per second: not a rate");
    Ok((1e12 / rate).round().max(1.0) as u64)
}

/// How long a generator may be behind its rate before it gives up the frames it has not sent: they count as lost.
const GRACE_NS: u64 = 2_000_000;

/// From the first frame to the time at which a generator gives up, ns.
fn limit_ns(count: u32, gap_milli: u64) -> u64 {
    (u128::from(count) * u128::from(gap_milli) / 1000) as u64 + GRACE_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_exact_to_a_thousandth_of_a_nanosecond() {
        assert_eq!(gap_milli(None).unwrap(), 0);
        assert_eq!(gap_milli(Some(3e6)).unwrap(), 333_333);
        assert_eq!(gap_milli(Some(1.0)).unwrap(), 1_000_000_000_000);
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(gap_milli(Some(rate)).is_err());
        }
    }

    #[test]
    fn a_generator_that_is_not_there_says_why() {
        let missing = "pcap:/nonexistent".parse().unwrap();
        for kind in Kind::PLAIN.into_iter().chain([missing]) {
            if let Some(reason) = kind.absence() {
                assert!(reason.len() > 20, "{kind}: {reason}");
            }
        }
    }

    #[test]
    fn generators_are_named_as_options_name_them() {
        for text in ["pktgen", "live", "xsk", "pcap:/a/b:c.pcap"] {
            assert_eq!(text.parse::<Kind>().unwrap().to_string(), text);
        }
        for wrong in ["", "Live", "pcap", "pcap:", "live:x"] {
            assert!(wrong.parse::<Kind>().unwrap_err().contains("pcap:FILE"), "{wrong}");
        }
    }
}

//! Replay of a capture: its frames in their order, at their own times, at a rate, or as fast as possible, out of an AF_XDP
//! socket.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;
use dataplane_user::sys::NetDevice;
use dataplane_user::xsk::{Frame, Umem};
use serde::{Deserialize, Serialize};

use super::recorded::Recorded;
use super::xsk::{Program, Transmitter};
use super::{GRACE_NS, Generator, Kind, Offer, Offered, gap_milli, limit_ns};
use crate::interrupt::Interrupt;
use crate::topology::{Mac, parse_mac};

/// Which capture, and whose times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The file.
    pub file: PathBuf,
    /// By the times of the capture; else by the offer's rate.
    pub own_times: bool,
}

/// The generator.
pub struct Replay {
    transmitter: Transmitter,
    order: Order,
}

/// The frames of a capture, from its beginning again when it is over.
struct Order {
    recorded: Recorded,
    count: u64,
    /// Thousandths of a nanosecond; `None`: the capture's own times.
    gap_milli: Option<u64>,
    limit_ns: u64,
}

impl Order {
    fn new(recorded: Recorded, offer: &Offer, own_times: bool) -> Result<Self> {
        let count = u64::from(offer.count);
        ensure!(count > 0, "a replay of no frames");
        let gap_milli = if own_times { None } else { Some(gap_milli(offer.rate)?) };
        let limit_ns = match gap_milli {
            None => recorded.due_ns(count - 1) + GRACE_NS,
            Some(0) => u64::MAX,
            Some(gap) => limit_ns(offer.count, gap),
        };
        Ok(Self { recorded, count, gap_milli, limit_ns })
    }
}

impl Program for Order {
    fn count(&self) -> u64 {
        self.count
    }

    fn due_ns(&self, number: u64) -> u64 {
        match self.gap_milli {
            None => self.recorded.due_ns(number),
            Some(gap) => (u128::from(number) * u128::from(gap) / 1000) as u64,
        }
    }

    fn write(&self, number: u64, umem: &mut Umem, frame: &mut Frame) -> Result<()> {
        let bytes = self.recorded.frame((number % self.recorded.len() as u64) as usize);
        frame.set_len(bytes.len())?;
        umem.bytes_mut(frame).copy_from_slice(bytes);
        Ok(())
    }

    fn limit_ns(&self) -> u64 {
        self.limit_ns
    }
}

impl Replay {
    /// Prepares the replay of a capture; the frames get the Ethernet addresses of the offer's frame, if that has any.
    ///
    /// # Errors
    /// The capture cannot be replayed, the interface is not there, or the kernel refuses.
    pub fn open(capture: &Capture, offer: &Offer) -> Result<Self> {
        let mut recorded = Recorded::read(&capture.file)?;
        recorded.address(&offer.frame);
        let mut transmitter = Transmitter::open(&offer.interface)?;
        transmitter.check(recorded.lengths())?;
        Ok(Self { transmitter, order: Order::new(recorded, offer, capture.own_times)? })
    }
}

impl Generator for Replay {
    fn open(offer: &Offer) -> Result<Self> {
        match &offer.kind {
            Kind::Pcap(capture) => Self::open(capture, offer),
            other => anyhow::bail!("BUG: a replay of {other}"),
        }
    }

    fn run(&mut self, interrupt: &Interrupt) -> Result<Offered> {
        self.transmitter.run(&self.order, interrupt)
    }
}

/// Options of `replay`.
#[derive(Args, Debug)]
pub struct Options {
    /// The capture, pcap or pcapng.
    file: PathBuf,
    /// Interface to send out of.
    #[arg(short, long)]
    interface: String,
    /// Frames per second [default: the times of the capture].
    #[arg(long, conflicts_with = "fast")]
    rate: Option<f64>,
    /// As fast as possible.
    #[arg(long)]
    fast: bool,
    /// How often the capture is sent.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Destination address that every frame gets; the source is then the interface's own [default: both as captured].
    #[arg(short, long, value_name = "ADDRESS", value_parser = parse_mac)]
    mac: Option<Mac>,
}

/// Replays a capture out of an interface of this namespace and says what was sent.
///
/// # Errors
/// The capture cannot be replayed, the interface is not there, or the kernel refuses.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let count = Recorded::read(&options.file)?.len() as u64 * u64::from(options.times);
    ensure!(count <= u64::from(u32::MAX), "{count} frames in all: at most {} (--times)", u32::MAX);
    let own_times = options.rate.is_none() && !options.fast;
    let capture = Capture { file: options.file.clone(), own_times };
    let frame = match options.mac {
        Some(mac) => [mac, NetDevice::find(&options.interface)?.mac].concat(),
        None => Vec::new(),
    };
    let offer = Offer {
        kind: Kind::Pcap(capture.clone()),
        interface: options.interface.clone(),
        frame,
        count: count as u32,
        rate: options.rate,
        cpu: 0,
    };
    let offered = Replay::open(&capture, &offer)?.run(interrupt)?;
    let (sent, seconds) = (offered.sent, offered.duration_ns as f64 / 1e9);
    println!("{sent} of {count} frames sent in {seconds:.6} s, {:.0} a second", offered.rate());
    if sent < count {
        println!("{} frames were given up: they could not be sent in time, or the run was ended", count - sent);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::capture::tests::pcap;

    fn order(own_times: bool, rate: Option<f64>) -> Order {
        let path = std::env::temp_dir().join(format!("dpt-{}-replay-{own_times}-{rate:?}", std::process::id()));
        let frames: [(u32, u32, &[u8]); 2] = [(1, 0, &[1; 60]), (1, 400, &[2; 60])];
        std::fs::write(&path, pcap(0xa1b2_c3d4, 1, &frames, 0)).unwrap();
        let recorded = Recorded::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let kind = Kind::Pcap(Capture { file: Path::new("x").to_owned(), own_times });
        let offer = Offer { kind, interface: "i".to_owned(), frame: Vec::new(), count: 4, rate, cpu: 0 };
        Order::new(recorded, &offer, own_times).unwrap()
    }

    #[test]
    fn a_rate_takes_the_place_of_the_times_of_the_capture() {
        let due = |order: &Order| (0..4).map(|number| order.due_ns(number)).collect::<Vec<_>>();
        let own = order(true, None);
        assert_eq!(due(&own), [0, 400_000, 800_000, 1_200_000]);
        assert_eq!(own.limit_ns, 1_200_000 + GRACE_NS);
        assert_eq!(due(&order(false, Some(1e6))), [0, 1000, 2000, 3000]);
        let fast = order(false, None);
        assert_eq!((due(&fast), fast.limit_ns), (vec![0; 4], u64::MAX));
    }
}

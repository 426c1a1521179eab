//! Driver of the kernel's packet generator (`Documentation/networking/pktgen.rst`).
//!
//! It is controlled by text written to files of `/proc/net/pktgen`, one set per network namespace. A refused setting is
//! reported in two places, of which either may say nothing: the errno of the write, and the line `Result:` of the device's
//! file. This driver looks at both.
//!
//! What it sends is fixed: UDP whose payload is `0xbe9be955`, a sequence number and a time (16 bytes, big endian), then
//! zeros. Which function a dataplane computes for it can only follow from the UDP port.

mod files;
mod result;

use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

pub use self::files::{Files, Proc, absence};
pub use self::result::Outcome;
use super::{Generator, Offer, Offered};
use crate::interrupt::Interrupt;
use crate::topology::{Mac, format_mac};

/// Pause between two looks at the interrupt.
const GLANCE: Duration = Duration::from_millis(20);
/// The control file.
const CONTROL: &str = "pgctrl";

/// What pktgen is told, in the letters of the kernel's sample scripts (`samples/pktgen/parameters.sh`).
#[derive(clap::Args, Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Interface to send out of.
    #[arg(short = 'i', value_name = "INTERFACE")]
    pub interface: String,
    /// Size of each packet without frame check sequence, bytes.
    #[arg(short = 's', value_name = "BYTES", default_value_t = 60)]
    pub size: u32,
    /// Destination address.
    #[arg(short = 'd', value_name = "ADDRESS", default_value = "198.18.0.42")]
    pub destination: Ipv4Addr,
    /// Destination MAC address.
    #[arg(short = 'm', value_name = "MAC")]
    pub mac: String,
    /// UDP destination ports: one, or the first and the last.
    #[arg(short = 'p', value_name = "PORT[-PORT]", default_value = "9")]
    pub ports: Ports,
    /// Kernel threads.
    #[arg(short = 't', value_name = "THREADS", default_value_t = 1)]
    pub threads: u32,
    /// First kernel thread: its number is its CPU.
    #[arg(short = 'f', value_name = "THREAD", default_value_t = 0)]
    pub first: u32,
    /// How often each packet is sent before a new one is made. A veth refuses it.
    #[arg(short = 'c', value_name = "COPIES", default_value_t = 0)]
    pub clone: u32,
    /// Packets of each thread. None is refused: nothing would end a generator whose maker is gone.
    #[arg(short = 'n', value_name = "COUNT", default_value_t = 100_000)]
    pub count: u64,
    /// Packets handed to the driver at once. A veth refuses it.
    #[arg(short = 'b', value_name = "BURST", default_value_t = 0)]
    pub burst: u32,
    /// Time between two packets of a thread, ns.
    #[arg(short = 'w', value_name = "NS", default_value_t = 0)]
    pub delay_ns: u64,
    /// Print what is written to the kernel.
    #[arg(short = 'v')]
    pub verbose: bool,
}

/// A range of UDP ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last, not below the first.
    pub last: u16,
}

impl std::str::FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.parse::<u16>().map_err(|error| format!("{text}: {error}"));
        let ports = Self { first: number(first)?, last: number(last)? };
        if ports.last < ports.first { Err(format!("{last} is below {first}")) } else { Ok(ports) }
    }
}

/// The generator over some set of control files.
pub struct Driver<F: Files> {
    files: F,
    settings: Settings,
}

impl<F: Files> Driver<F> {
    /// Takes the generator of this namespace and tells it what to send. Whatever it was told before is forgotten: there is
    /// one controlling process by design.
    ///
    /// # Errors
    /// A setting is refused; the error says which, and what the kernel said.
    pub fn configure(files: F, settings: Settings) -> Result<Self> {
        ensure!(settings.count > 0, "-n 0: nothing would end a generator whose maker is gone");
        ensure!(settings.threads > 0, "-t 0: no thread");
        files.write(CONTROL, "reset").context("pktgen: reset")?;
        // From here on a failure drops the driver, which resets the generator again.
        let driver = Self { files, settings };
        for thread in driver.threads() {
            driver.configure_thread(thread)?;
        }
        Ok(driver)
    }

    fn threads(&self) -> std::ops::Range<u32> {
        self.settings.first..self.settings.first.saturating_add(self.settings.threads)
    }

    fn device(&self, thread: u32) -> String {
        format!("{}@{thread}", self.settings.interface)
    }

    fn configure_thread(&self, thread: u32) -> Result<()> {
        let settings = &self.settings;
        let (daemon, device) = (format!("kpktgend_{thread}"), self.device(thread));
        self.set(&daemon, "rem_device_all")?;
        self.set(&daemon, &format!("add_device {device}"))?;
        let mut lines = vec![
            "flag QUEUE_MAP_CPU".to_owned(),
            format!("count {}", settings.count),
            format!("pkt_size {}", settings.size),
            format!("delay {}", settings.delay_ns),
            format!("dst_mac {}", settings.mac),
            format!("dst_min {}", settings.destination),
            format!("dst_max {}", settings.destination),
            format!("udp_dst_min {}", settings.ports.first),
            format!("udp_dst_max {}", settings.ports.last),
        ];
        if settings.ports.first < settings.ports.last {
            lines.push("flag UDPDST_RND".to_owned());
        }
        // Zero is what they are after a reset, and a veth refuses to be told anything.
        lines.extend((settings.clone > 0).then(|| format!("clone_skb {}", settings.clone)));
        lines.extend((settings.burst > 0).then(|| format!("burst {}", settings.burst)));
        lines.iter().try_for_each(|line| self.set(&device, line))
    }

    /// Writes one line and looks at both places where a refusal may stand.
    fn set(&self, file: &str, line: &str) -> Result<()> {
        if self.settings.verbose {
            eprintln!("{file}: {line}");
        }
        match self.files.write(file, line) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(files::ENOTSUPP) => {
                bail!("pktgen: {file} refuses `{line}`: the device cannot share packets (errno 524), as no veth can")
            }
            Err(error) => return Err(error).with_context(|| format!("pktgen: {file} refuses `{line}`")),
        }
        let text = self.files.read(file).with_context(|| format!("pktgen: cannot read {file}"))?;
        let said = result::last_result(&text);
        ensure!(said.starts_with("OK"), "pktgen: {file} took `{line}` but says: {said}");
        Ok(())
    }

    /// Sends everything; returns one outcome per thread.
    ///
    /// # Errors
    /// The kernel refuses to start, or a thread sent nothing: a link that is down is no error for pktgen.
    pub fn run(&self, interrupt: &Interrupt) -> Result<Vec<Outcome>>
    where
        F: Sync,
    {
        thread::scope(|scope| {
            let start = scope.spawn(|| self.files.write(CONTROL, "start"));
            while !start.is_finished() {
                if interrupt.check().is_err() {
                    self.files.write(CONTROL, "stop").context("pktgen: stop")?;
                    break;
                }
                thread::sleep(GLANCE);
            }
            let started = start.join().map_err(|_| anyhow::anyhow!("BUG: the writer of `start` panicked"))?;
            started.context("pktgen: start")
        })?;
        self.threads().map(|thread| self.outcome(thread)).collect()
    }

    fn outcome(&self, thread: u32) -> Result<Outcome> {
        let device = self.device(thread);
        let text = self.files.read(&device).with_context(|| format!("pktgen: cannot read {device}"))?;
        let outcome = Outcome::parse(&text).with_context(|| format!("pktgen: not understood: {device}\n{text}"))?;
        ensure!(outcome.packets > 0, "pktgen: {device} sent nothing: is the interface up?");
        Ok(outcome)
    }
}

impl<F: Files> Drop for Driver<F> {
    fn drop(&mut self) {
        // The generator must not outlive this; there is nobody to tell a failure to.
        let _ = self.files.write(CONTROL, "reset");
    }
}

/// pktgen as a [`Generator`]: one thread, on the offer's CPU.
pub struct Pktgen {
    driver: Driver<Proc>,
}

impl Generator for Pktgen {
    fn open(offer: &Offer) -> Result<Self> {
        if let Some(reason) = absence() {
            bail!("{reason}");
        }
        Ok(Self { driver: Driver::configure(Proc::here(), settings(offer)?)? })
    }

    fn run(&mut self, interrupt: &Interrupt) -> Result<Offered> {
        let outcomes = self.driver.run(interrupt)?;
        Ok(outcomes.iter().fold(Offered::default(), |sum, outcome| Offered {
            sent: sum.sent + outcome.packets,
            refused: sum.refused + outcome.errors,
            duration_ns: sum.duration_ns.max(outcome.elapsed_us * 1000),
        }))
    }
}

/// What an offer means for pktgen: it makes frames of its own, of the same length and to the same address.
fn settings(offer: &Offer) -> Result<Settings> {
    let frame = &offer.frame;
    let mac: Mac = *frame.first_chunk().context("frame without an Ethernet header")?;
    let field = |at: usize| frame.get(at..at + 4).context("frame without an IPv4 header");
    let address = <[u8; 4]>::try_from(field(30)?)?;
    let port = u16::from_be_bytes(<[u8; 2]>::try_from(&field(36)?[..2])?);
    Ok(Settings {
        interface: offer.interface.clone(),
        size: u32::try_from(frame.len())?,
        destination: address.into(),
        mac: format_mac(mac),
        ports: Ports { first: port, last: port },
        threads: 1,
        first: u32::try_from(offer.cpu)?,
        clone: 0,
        count: u64::from(offer.count),
        burst: 0,
        delay_ns: offer.rate.map_or(0, |rate| (1e9 / rate) as u64),
        verbose: false,
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

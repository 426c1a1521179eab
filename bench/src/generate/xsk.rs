//! An AF_XDP socket as generator: each frame leaves at its scheduled time, or as soon after it as the kernel takes it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use dataplane_user::sys::NetDevice;
use dataplane_user::worker::monotonic_ns;
use dataplane_user::xsk::{Batch, Frame, Kick, Umem, UmemConfig, Xsk, XskConfig};

use super::{Generator, Offer, Offered, gap_milli, limit_ns};
use crate::interrupt::Interrupt;

/// Entries of the rings.
const RING: u32 = 2048;
/// Frames given to the kernel at once: in copy mode one call sends about as many.
const BATCH: usize = 32;
/// Batches between two looks at the interrupt.
const GLANCE: u64 = 64;
/// How long the kernel may take for what is still in the ring when everything has been given to it.
const LINGER_NS: u64 = 100_000_000;
/// Pause between two looks at the ring meanwhile.
const PAUSE: Duration = Duration::from_micros(50);

/// The socket and its packet memory.
pub(super) struct Transmitter {
    umem: Umem,
    socket: Xsk,
    outgoing: Batch,
}

/// What a [`Transmitter`] sends, and when.
pub(super) trait Program {
    /// Frames.
    fn count(&self) -> u64;

    /// When the frame of this number is due, ns after the start; never earlier than the one before.
    fn due_ns(&self, number: u64) -> u64;

    /// Writes the frame of this number.
    ///
    /// # Errors
    /// It does not fit.
    fn write(&self, number: u64, umem: &mut Umem, frame: &mut Frame) -> Result<()>;

    /// From the start to the time at which what has not been sent is given up, ns.
    fn limit_ns(&self) -> u64;
}

impl Transmitter {
    /// Opens a socket on queue 0 of an interface of this namespace.
    ///
    /// # Errors
    /// There is no such interface, or the kernel refuses.
    pub(super) fn open(interface: &str) -> Result<Self> {
        let device = NetDevice::find(interface).with_context(|| format!("no interface {interface}"))?;
        let config = UmemConfig { frames: 4 * RING, ..UmemConfig::default() };
        let mut umem = Umem::new(&config).context("packet memory")?;
        let socket =
            Xsk::open(&mut umem, &XskConfig::new(device.index, 0)).with_context(|| format!("socket on {interface}"))?;
        Ok(Self { umem, socket, outgoing: Batch::new(BATCH) })
    }

    /// Whether every frame of `lengths` fits the packet memory.
    ///
    /// # Errors
    /// One does not: which, and what there is room for.
    pub(super) fn check(&mut self, lengths: impl Iterator<Item = usize>) -> Result<()> {
        let frame = self.umem.allocate().context("BUG: packet memory without frames")?;
        let room = frame.len() + frame.tailroom();
        self.umem.release(frame);
        for (number, length) in (1..).zip(lengths) {
            if length > room {
                bail!("frame {number} has {length} bytes: the packet memory takes {room}, and no MTU more");
            }
        }
        Ok(())
    }

    /// Changes every buffer of the packet memory.
    pub(super) fn prepare(&mut self, mut write: impl FnMut(&mut Umem, &mut Frame) -> Result<()>) -> Result<()> {
        let mut taken = Vec::new();
        let mut outcome = Ok(());
        while let Some(mut frame) = self.umem.allocate() {
            outcome = outcome.and(write(&mut self.umem, &mut frame));
            taken.push(frame);
        }
        taken.into_iter().for_each(|frame| self.umem.release(frame));
        outcome
    }

    /// Sends what is due until everything is sent, the limit is reached, or this process is told to end.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn run(&mut self, program: &impl Program, interrupt: &Interrupt) -> Result<Offered> {
        let (count, limit_ns, start_ns) = (program.count(), program.limit_ns(), monotonic_ns());
        let (mut offered, mut written) = (Offered::default(), 0);
        for turn in 0u64.. {
            if offered.sent >= count || (turn % GLANCE == 0 && interrupt.check().is_err()) {
                break;
            }
            let elapsed_ns = monotonic_ns() - start_ns;
            if elapsed_ns >= limit_ns {
                break;
            }
            self.socket.complete(&mut self.umem);
            while written < count && self.outgoing.room() > 0 && program.due_ns(written) <= elapsed_ns {
                let Some(mut frame) = self.umem.allocate() else { break };
                if let Err(error) = program.write(written, &mut self.umem, &mut frame) {
                    self.umem.release(frame);
                    return Err(error);
                }
                self.outgoing.push_or_release(&mut self.umem, frame);
                written += 1;
            }
            if !self.outgoing.is_empty() {
                offered.sent += self.flush()?;
                offered.duration_ns = monotonic_ns() - start_ns;
            }
        }
        self.linger()?;
        Ok(offered)
    }

    /// Gives the kernel what is waiting; returns how many frames the ring took.
    fn flush(&mut self) -> Result<u64> {
        let sent = self.socket.transmit(&mut self.umem, &mut self.outgoing);
        self.kick()?;
        Ok(sent as u64)
    }

    fn kick(&mut self) -> Result<()> {
        match self.socket.kick_tx()? {
            state @ (Kick::LinkDown | Kick::Unbound) => bail!("the interface does not send: {state:?}"),
            Kick::Idle | Kick::Woken | Kick::Again | Kick::Busy | Kick::NoBuffers => Ok(()),
        }
    }

    /// Waits until the kernel has taken everything out of the ring: what stays there goes with the socket.
    fn linger(&mut self) -> Result<()> {
        let end_ns = monotonic_ns() + LINGER_NS;
        while self.socket.levels().tx > 0 && monotonic_ns() < end_ns {
            self.socket.complete(&mut self.umem);
            self.kick()?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }
}

impl Drop for Transmitter {
    fn drop(&mut self) {
        self.outgoing.release_all(&mut self.umem);
    }
}

/// The generator.
pub struct Sender {
    transmitter: Transmitter,
    order: Order,
}

/// One frame over and over.
struct Order {
    frame_bytes: usize,
    count: u64,
    gap_milli: u64,
    limit_ns: u64,
}

impl Program for Order {
    fn count(&self) -> u64 {
        self.count
    }

    fn due_ns(&self, number: u64) -> u64 {
        (u128::from(number) * u128::from(self.gap_milli) / 1000) as u64
    }

    fn write(&self, _number: u64, _umem: &mut Umem, frame: &mut Frame) -> Result<()> {
        // Its bytes are there already: sending does not change a frame, and the kernel gives each back as it was.
        frame.set_len(self.frame_bytes).context("frame too long for the packet memory")
    }

    fn limit_ns(&self) -> u64 {
        self.limit_ns
    }
}

impl Generator for Sender {
    fn open(offer: &Offer) -> Result<Self> {
        let gap_milli = gap_milli(offer.rate)?;
        let count = u64::from(offer.count);
        let limit_ns = if gap_milli == 0 { u64::MAX } else { limit_ns(offer.count, gap_milli) };
        let order = Order { frame_bytes: offer.frame.len(), count, gap_milli, limit_ns };
        let mut transmitter = Transmitter::open(&offer.interface)?;
        transmitter.prepare(|umem, frame| {
            order.write(0, umem, frame)?;
            umem.bytes_mut(frame).copy_from_slice(&offer.frame);
            Ok(())
        })?;
        Ok(Self { transmitter, order })
    }

    fn run(&mut self, interrupt: &Interrupt) -> Result<Offered> {
        self.transmitter.run(&self.order, interrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_due_at_multiples_of_the_gap_that_do_not_drift() {
        let order = Order { frame_bytes: 60, count: 9, gap_milli: 333_333, limit_ns: 0 };
        assert_eq!([0, 1, 2, 1_000_000].map(|number| order.due_ns(number)), [0, 333, 666, 333_333_000]);
    }
}

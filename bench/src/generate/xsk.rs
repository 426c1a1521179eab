//! An AF_XDP socket as generator: each frame leaves at its scheduled time, or as soon after it as the kernel takes it.

use std::collections::VecDeque;

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

/// The generator.
pub struct Sender {
    umem: Umem,
    socket: Xsk,
    outgoing: Batch,
    frame: Vec<u8>,
    count: u64,
    gap_milli: u64,
    limit_ns: u64,
}

impl Generator for Sender {
    fn open(offer: &Offer) -> Result<Self> {
        let device = NetDevice::find(&offer.interface).with_context(|| format!("no interface {}", offer.interface))?;
        let gap = gap_milli(offer.rate)?;
        let config = UmemConfig { frames: 4 * RING, ..UmemConfig::default() };
        let mut umem = Umem::new(&config).context("packet memory")?;
        let socket = Xsk::open(&mut umem, &XskConfig::new(device.index, 0))
            .with_context(|| format!("socket on {}", offer.interface))?;
        let mut sender = Self {
            outgoing: Batch::new(BATCH),
            frame: offer.frame.clone(),
            count: u64::from(offer.count),
            gap_milli: gap,
            limit_ns: if gap == 0 { u64::MAX } else { limit_ns(offer.count, gap) },
            umem,
            socket,
        };
        // Written once: sending does not change a frame, and the kernel gives each back as it was.
        sender.write_all()?;
        Ok(sender)
    }

    fn run(&mut self, interrupt: &Interrupt) -> Result<Offered> {
        let start_ns = monotonic_ns();
        let mut offered = Offered::default();
        for turn in 0u64.. {
            if offered.sent >= self.count || (turn % GLANCE == 0 && interrupt.check().is_err()) {
                break;
            }
            let elapsed_ns = monotonic_ns() - start_ns;
            if elapsed_ns >= self.limit_ns {
                break;
            }
            let due = match self.gap_milli {
                0 => self.count,
                gap => (u128::from(elapsed_ns) * 1000 / u128::from(gap)) as u64 + 1,
            };
            let wanted = due.min(self.count).saturating_sub(offered.sent).min(BATCH as u64);
            if wanted > 0 {
                offered.sent += self.send(wanted as usize)?;
                offered.duration_ns = monotonic_ns() - start_ns;
            }
        }
        Ok(offered)
    }
}

impl Sender {
    /// Writes the frame into every buffer of the packet memory.
    fn write_all(&mut self) -> Result<()> {
        let mut written: VecDeque<Frame> = VecDeque::new();
        let mut fits = Ok(());
        while let Some(mut frame) = self.umem.allocate() {
            match frame.set_len(self.frame.len()) {
                Ok(()) => self.umem.bytes_mut(&mut frame).copy_from_slice(&self.frame),
                Err(error) => fits = Err(error),
            }
            written.push_back(frame);
        }
        for frame in written {
            self.umem.release(frame);
        }
        fits.context("frame too long for the packet memory")
    }

    /// Sends up to `wanted` frames; returns how many the ring took.
    fn send(&mut self, wanted: usize) -> Result<u64> {
        self.socket.complete(&mut self.umem);
        while self.outgoing.len() < wanted {
            let Some(mut frame) = self.umem.allocate() else { break };
            // The length was found to fit when the frame was written.
            if frame.set_len(self.frame.len()).is_err() {
                self.umem.release(frame);
                break;
            }
            if let Err(full) = self.outgoing.push(frame) {
                self.umem.release(full.0);
                break;
            }
        }
        let sent = self.socket.transmit(&mut self.umem, &mut self.outgoing);
        match self.socket.kick_tx()? {
            state @ (Kick::LinkDown | Kick::Unbound) => bail!("the interface does not send: {state:?}"),
            Kick::Idle | Kick::Woken | Kick::Again | Kick::Busy | Kick::NoBuffers => {}
        }
        Ok(sent as u64)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.outgoing.release_all(&mut self.umem);
    }
}

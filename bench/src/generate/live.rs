//! XDP live frames: the kernel runs a program of ours on one frame over and over and sends each out of an interface
//! (`BPF_PROG_TEST_RUN` with `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18, `Documentation/bpf/bpf_prog_run.rst`).
//!
//! The program itself waits until a frame is due, so any rate up to the fastest is sent without gaps of user space. The peer
//! interface must run XDP or GRO: a veth whose peer does neither takes no redirected frame, and nobody says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use dataplane_common::bench::Counter;
use dataplane_user::sys::NetDevice;
use dataplane_user::worker::monotonic_ns;

use super::{Generator, Offer, Offered, gap_milli, limit_ns};
use crate::interrupt::Interrupt;
use crate::object::{BenchObject, Pace};

/// Frames that the kernel hands on at once when there is no rate to keep; its default.
const BATCH: u32 = 64;
/// Longest time that a batch of a paced run may take, ns: meanwhile its CPU does nothing else.
const LONGEST_BATCH_NS: f64 = 20_000.0;
/// From the call to the first frame of a paced run, ns: the kernel allocates the pages first.
const LEAD_NS: u64 = 5_000_000;

/// The generator.
pub struct LiveFrames {
    object: BenchObject,
    ifindex: u32,
    frame: Vec<u8>,
    count: u32,
    batch: u32,
    gap_milli: u64,
}

/// Frames of one batch at a rate.
fn batch(rate: Option<f64>) -> u32 {
    rate.map_or(BATCH, |rate| ((rate * LONGEST_BATCH_NS / 1e9) as u32).clamp(1, BATCH))
}

impl Generator for LiveFrames {
    fn open(offer: &Offer) -> Result<Self> {
        let device = NetDevice::find(&offer.interface).with_context(|| format!("no interface {}", offer.interface))?;
        Ok(Self {
            object: BenchObject::load()?,
            ifindex: device.index,
            frame: offer.frame.clone(),
            count: offer.count,
            batch: batch(offer.rate),
            gap_milli: gap_milli(offer.rate)?,
        })
    }

    fn run(&mut self, interrupt: &Interrupt) -> Result<Offered> {
        let start_ns = monotonic_ns() + if self.gap_milli > 0 { LEAD_NS } else { 0 };
        let is_done = AtomicBool::new(false);
        let sent = thread::scope(|scope| {
            // A call into the kernel that lasts seconds ends with the process only.
            scope.spawn(|| end_when_told(interrupt, &is_done));
            let end_ns = start_ns + limit_ns(self.count, self.gap_milli);
            let pace = Pace { gap_milli: self.gap_milli, start_ns, end_ns };
            let sent = self.object.generate(self.ifindex, &self.frame, self.count, self.batch, pace);
            is_done.store(true, Ordering::Relaxed);
            sent
        });
        sent?;
        let duration_ns = monotonic_ns().saturating_sub(start_ns);
        Ok(Offered { sent: self.object.count(Counter::Generated)?, refused: 0, duration_ns })
    }
}

/// Ends this process when it is told to and the call has not returned.
fn end_when_told(interrupt: &Interrupt, is_done: &AtomicBool) {
    while !is_done.load(Ordering::Relaxed) {
        if interrupt.check().is_err() {
            std::process::exit(0);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_short_at_low_rates() {
        assert_eq!(batch(None), 64);
        assert_eq!(batch(Some(10e6)), 64);
        assert_eq!(batch(Some(1e6)), 20);
        assert_eq!(batch(Some(10.0)), 1);
    }
}

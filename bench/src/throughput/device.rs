//! A contender in its lab as a device of the search.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::cpu::{Noise, NoiseWatch};
use crate::generate::{Kind, Offer, Offering};
use crate::interrupt::Interrupt;
use crate::peers::contender::{Contender, Running, Settings};
use crate::peers::lab::{Lab, TESTED};
use crate::peers::measure::received;
use crate::search::{Device, Trial};

/// Frames that are still on their way arrive within this time of the one before.
const QUIET: Duration = Duration::from_millis(30);
/// All of them arrive within this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// How much longer than planned a trial may take.
const TRIAL_PATIENCE: Duration = Duration::from_secs(10);
/// Pause between two trials: queues empty and caches forget.
const PAUSE: Duration = Duration::from_millis(50);

/// What is tested, before it is started.
pub struct Tested<'a> {
    /// Where.
    pub lab: &'a mut Lab,
    /// Who.
    pub contender: &'a Contender,
    /// What it is told.
    pub settings: &'a Settings,
    /// What sends.
    pub generator: &'a Kind,
    /// Ends it all.
    pub interrupt: &'a Interrupt,
}

/// The started contender.
pub struct Path<'a> {
    lab: &'a Lab,
    contender: &'a Contender,
    running: &'a dyn Running,
    frame: Vec<u8>,
    cpu: usize,
    generator: &'a Kind,
    interrupt: &'a Interrupt,
    /// What disturbed the last trial.
    pub noise: Noise,
}

impl Tested<'_> {
    /// Starts the contender, runs `search` on it, and ends it.
    ///
    /// # Errors
    /// It does not start, the search fails, or it was not what it should be.
    pub fn run<T>(self, search: impl FnOnce(&mut Path<'_>) -> Result<T>) -> Result<T> {
        let running = self.contender.start(self.lab, self.settings, self.interrupt)?;
        let found = self.contender.frame(self.lab, self.settings).and_then(|frame| {
            search(&mut Path {
                lab: self.lab,
                contender: self.contender,
                running: running.as_ref(),
                frame,
                cpu: self.settings.generator_cpu,
                generator: self.generator,
                interrupt: self.interrupt,
                noise: Noise::default(),
            })
        });
        let stopped = running.stop(self.lab);
        let found = found?;
        stopped?;
        Ok(found)
    }
}

impl Path<'_> {
    fn received(&self) -> Result<u64> {
        received(self.lab, self.contender.counted_at(), self.running)
    }

    /// What has been received once nothing more comes.
    fn settled(&self) -> Result<u64> {
        let deadline = Instant::now() + PATIENCE;
        let mut count = self.received()?;
        loop {
            self.interrupt.sleep(QUIET)?;
            let next = self.received()?;
            if next == count {
                return Ok(count);
            }
            ensure!(Instant::now() < deadline, "frames still arrive {PATIENCE:?} after the last one was sent");
            count = next;
        }
    }
}

impl Path<'_> {
    /// Offers so many frames, at a rate (frames per second) or as fast as the generator can, and waits until no more arrive.
    /// Returns how many were sent and how many arrived; `patience` is how long sending may take.
    ///
    /// # Errors
    /// The generator fails, frames go on arriving, or this process was interrupted.
    pub fn offer(&mut self, count: u32, rate: Option<f64>, patience: Duration) -> Result<(u64, u64)> {
        let offer = Offer {
            kind: self.generator.clone(),
            interface: self.lab.cluster.plan().port(TESTED).generator_interface,
            frame: self.frame.clone(),
            count,
            rate,
            cpu: self.cpu,
        };
        let before = self.settled()?;
        let offering = Offering::start(&self.lab.cluster, &self.lab.program, &offer, self.interrupt)?;
        let mut ours = self.running.pids();
        ours.extend([std::process::id(), offering.pid()]);
        let watch = NoiseWatch::begin(&ours)?;
        let offered = offering.wait(patience, self.interrupt)?;
        self.noise = watch.end()?;
        let received = self.settled()? - before;
        self.interrupt.sleep(PAUSE)?;
        Ok((offered.sent, received))
    }
}

impl Device for Path<'_> {
    fn measure(&mut self, load: u64, duration_s: f64) -> Result<Trial> {
        let count = (load as f64 * duration_s).round().clamp(1.0, f64::from(i32::MAX)) as u32;
        let patience = Duration::from_secs_f64(duration_s) + TRIAL_PATIENCE;
        let (sent, received) = self.offer(count, Some(load as f64), patience)?;
        Ok(Trial { load, duration_s, sent, received })
    }
}

//! Search for throughput by the logic of MLRsearch (draft-ietf-bmwg-mlrsearch): several goals in one search, over any
//! [`Device`]. No clock, no socket: what a trial is, the device says.
//!
//! | module | concern |
//! |---|---|
//! | [`classify`] | is a load a lower or an upper bound for a goal, after the trials so far |
//! | [`Search`] | which trial comes next, until every goal has its two bounds |
//!
//! For a goal a load is a *lower bound* when the device carries it, an *upper bound* when it does not. The *relevant* upper
//! bound is the smallest upper bound; the relevant lower bound is the largest lower bound below it. A goal is reached when
//! the two are closer than its width. The *conditional throughput* is what the device forwarded at the relevant lower bound.

pub mod classify;
mod controller;

use anyhow::{Result, ensure};
use serde::Serialize;

pub use self::classify::{Bound, Stat};
pub use self::controller::Search;

/// What is searched for. A load is a lower bound when trials that lose more than the ratio make up no more than the exceed
/// ratio of the duration sum.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// Name in output.
    pub name: &'static str,
    /// Share of the frames that a trial may lose.
    pub loss_ratio: f64,
    /// Share of the duration sum that trials may take which lose more.
    pub exceed_ratio: f64,
    /// Distance of the two bounds, relative to the upper one, at which the search ends.
    pub width: f64,
    /// Shortest trials used on the way, s.
    pub initial_trial_s: f64,
    /// Trials that count in the end, s.
    pub final_trial_s: f64,
    /// Sum of the trials that classify a load, s.
    pub duration_sum_s: f64,
    /// Coarser searches in front of the last one, each with half the width of the one before.
    pub preceding: u32,
}

impl Goal {
    /// No loss, by FD.io CSIT's settings: trials of 1 s, 21 s of them, half of which may be bad.
    pub const NDR: Self = Self {
        name: "NDR",
        loss_ratio: 0.0,
        exceed_ratio: 0.5,
        width: 0.005,
        initial_trial_s: 1.0,
        final_trial_s: 1.0,
        duration_sum_s: 21.0,
        preceding: 2,
    };

    /// Half a percent of loss, else as [`Self::NDR`].
    pub const PDR: Self = Self { name: "PDR", loss_ratio: 0.005, ..Self::NDR };

    /// Throughput as RFC 2544 section 26.1 has it: one trial of 60 s (section 24) without any loss.
    pub const RFC2544: Self =
        Self { name: "RFC 2544", exceed_ratio: 0.0, final_trial_s: 60.0, duration_sum_s: 60.0, ..Self::NDR };

    /// Checks that a search for it can end.
    ///
    /// # Errors
    /// A value is outside of what the draft allows.
    pub fn check(&self) -> Result<()> {
        let name = self.name;
        ensure!((0.0..1.0).contains(&self.loss_ratio), "{name}: loss ratio {}: from 0 to below 1", self.loss_ratio);
        ensure!(
            (0.0..1.0).contains(&self.exceed_ratio),
            "{name}: exceed ratio {}: from 0 to below 1",
            self.exceed_ratio
        );
        ensure!(self.width > 0.0 && self.width < 1.0, "{name}: width {}: between 0 and 1", self.width);
        let durations = [self.initial_trial_s, self.final_trial_s, self.duration_sum_s];
        ensure!(
            durations[0] > 0.0 && durations.is_sorted(),
            "{name}: trials of {durations:?} s: not growing from above 0"
        );
        ensure!(self.preceding <= 16, "{name}: {} preceding searches: at most 16", self.preceding);
        Ok(())
    }

    /// The `level`-th search for it: coarse and short first; level [`Self::preceding`] is the goal itself.
    pub fn target(&self, level: u32) -> Target {
        let steps = self.preceding.saturating_sub(level);
        let share = if self.preceding == 0 { 1.0 } else { f64::from(level) / f64::from(self.preceding) };
        let between = |from: f64, to: f64| from * (to / from).powf(share);
        Target {
            loss_ratio: self.loss_ratio,
            exceed_ratio: self.exceed_ratio,
            // Widths double in logarithmic space.
            width: 1.0 - (1.0 - self.width).powi(1 << steps),
            trial_s: between(self.initial_trial_s, self.final_trial_s),
            duration_sum_s: between(self.initial_trial_s, self.duration_sum_s),
        }
    }
}

/// What one search is to reach: a goal, or a coarser one in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Target {
    /// As [`Goal::loss_ratio`].
    pub loss_ratio: f64,
    /// As [`Goal::exceed_ratio`].
    pub exceed_ratio: f64,
    /// As [`Goal::width`].
    pub width: f64,
    /// Trials at least this long count in full, s.
    pub trial_s: f64,
    /// As [`Goal::duration_sum_s`].
    pub duration_sum_s: f64,
}

/// What one trial gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Load that was intended, frames per second.
    pub load: u64,
    /// Duration that was intended, s.
    pub duration_s: f64,
    /// Frames sent.
    pub sent: u64,
    /// Frames that arrived, each counted once. More than sent is possible when the device makes copies.
    pub received: u64,
}

impl Trial {
    /// Share of the frames that was lost: frames that the load asked for and that were not sent count as lost, so that a
    /// generator that cannot keep up never makes a device look good.
    pub fn loss_ratio(&self) -> f64 {
        let intended = (self.load as f64 * self.duration_s).round().max(self.sent as f64);
        let lost = intended - self.received as f64;
        if intended > 0.0 { (lost / intended).max(0.0) } else { 1.0 }
    }
}

/// What is measured.
pub trait Device {
    /// Runs one trial at `load` frames per second for `duration_s` seconds.
    ///
    /// # Errors
    /// The measurement itself fails; loss is no error.
    fn measure(&mut self, load: u64, duration_s: f64) -> Result<Trial>;
}

/// What a search found for one goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The goal.
    pub goal: Goal,
    /// Largest load that was carried, below the upper bound, frames per second; `null`: not even the least load.
    pub lower: Option<u64>,
    /// Smallest load that was not carried; `null`: even the largest load is carried, so the generator is the limit.
    pub upper: Option<u64>,
    /// What was forwarded at the lower bound, frames per second, in the sense of the goal.
    pub conditional_throughput: Option<f64>,
    /// Whether the bounds are as close as the goal asks, or one of them is the limit of the search.
    pub is_reached: bool,
}

/// Limits of a search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Least load, frames per second.
    pub min_load: u64,
    /// Largest load.
    pub max_load: u64,
    /// Sum of all trials after which the search ends as it is, s.
    pub trials_s: f64,
}

/// Searches for all goals at once. Every trial is handed to `on_trial`, with the device that made it.
///
/// # Errors
/// A goal or the limits make no sense, the device fails, or `on_trial` does.
pub fn run<D: Device>(
    device: &mut D,
    goals: &[Goal],
    limits: Limits,
    mut on_trial: impl FnMut(&D, &Trial) -> Result<()>,
) -> Result<Vec<Found>> {
    let mut search = Search::new(goals, limits)?;
    while let Some((load, duration_s)) = search.next() {
        let trial = device.measure(load, duration_s)?;
        on_trial(device, &trial)?;
        search.add(trial);
    }
    Ok(search.found())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

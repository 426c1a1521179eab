//! Which trial comes next.
//!
//! Each goal is searched in levels, coarse and short ones first. At a level, a load that is not classified yet is measured
//! again until it is; then the interval between the bounds is halved (in logarithmic space), or, when one of them is missing,
//! left behind in growing steps. Of all goals the one with the shortest trial goes first, then the one with the smallest
//! load: what is learned there serves the others.

use anyhow::{Result, ensure};

use super::{Bound, Found, Goal, Limits, Stat, Target, Trial};

/// Growth of the steps away from a single bound, in logarithmic space.
const GROWTH: f64 = 2.0;

/// The state of a search.
#[derive(Clone, Debug)]
pub struct Search {
    limits: Limits,
    trials: Vec<Trial>,
    pursuits: Vec<Pursuit>,
}

/// One goal on its way.
#[derive(Clone, Debug)]
struct Pursuit {
    goal: Goal,
    level: u32,
}

/// Both relevant bounds, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bounds {
    lower: Option<u64>,
    upper: Option<u64>,
}

impl Search {
    /// A search that has measured nothing.
    ///
    /// # Errors
    /// A goal or the limits make no sense.
    pub fn new(goals: &[Goal], limits: Limits) -> Result<Self> {
        ensure!(!goals.is_empty(), "a search without a goal");
        let (min, max) = (limits.min_load, limits.max_load);
        ensure!(min > 0 && min < max, "loads from {min} to {max} frames per second: nothing to search");
        goals.iter().try_for_each(Goal::check)?;
        let pursuits = goals.iter().map(|goal| Pursuit { goal: goal.clone(), level: 0 }).collect();
        Ok(Self { limits, trials: Vec::new(), pursuits })
    }

    /// Takes a trial into account, whether or not it was asked for.
    pub fn add(&mut self, trial: Trial) {
        self.trials.push(trial);
    }

    /// Load and duration of the next trial; `None` when every goal is reached, or the time is up.
    #[expect(clippy::should_implement_trait, reason = "what comes next depends on what `add` was told meanwhile")]
    pub fn next(&mut self) -> Option<(u64, f64)> {
        let spent = self.trials.iter().map(|trial| trial.duration_s).sum::<f64>();
        if spent >= self.limits.trials_s {
            return None;
        }
        let mut candidates = Vec::new();
        for index in 0..self.pursuits.len() {
            candidates.extend(self.candidate(index));
        }
        candidates.into_iter().min_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)))
    }

    /// The trial that one goal needs, at the first level that it has not reached.
    fn candidate(&mut self, index: usize) -> Option<(u64, f64)> {
        loop {
            let Pursuit { goal, level } = &self.pursuits[index];
            let target = goal.target(*level);
            match self.load(&target) {
                Some(load) => return Some((load, target.trial_s)),
                None if *level >= goal.preceding => return None,
                None => self.pursuits[index].level += 1,
            }
        }
    }

    /// The load that a target needs a trial of; `None` when it is reached.
    fn load(&self, target: &Target) -> Option<u64> {
        let Limits { min_load, max_load, .. } = self.limits;
        let Bounds { lower, upper } = self.bounds(target);
        let load = match (lower, upper) {
            (None, None) => self.hint(),
            (Some(lower), None) if lower >= max_load => return None,
            (None, Some(upper)) if upper <= min_load => return None,
            (Some(lower), None) => step_up(lower, self.step(target, lower)).min(max_load),
            (None, Some(upper)) => {
                let down = step_down(upper, self.step(target, upper));
                // What was forwarded of the largest load is a better guess than a step, as long as it is new.
                let hint = self.hint();
                if hint < upper { hint.min(down) } else { down }
            }
            (Some(lower), Some(upper)) => {
                let middle = (lower as f64 * upper as f64).sqrt().round() as u64;
                if is_narrow(lower, upper, target.width) || middle <= lower || middle >= upper {
                    return None;
                }
                middle
            }
        };
        // One between the bounds that has been begun comes first: a second one beside it would be a waste.
        Some(self.begun(target, lower, upper).unwrap_or(load.clamp(min_load, max_load)))
    }

    /// A load strictly between the bounds with trials that do not yet classify it.
    fn begun(&self, target: &Target, lower: Option<u64>, upper: Option<u64>) -> Option<u64> {
        let is_between = |load: u64| lower.is_none_or(|lower| load > lower) && upper.is_none_or(|upper| load < upper);
        // Only what was begun for this target: short trials of a level before are no beginning.
        let is_begun = |trial: &&Trial| trial.duration_s >= target.trial_s && is_between(trial.load);
        self.trials.iter().filter(is_begun).map(|trial| trial.load).max()
    }

    /// The first load: the largest, then what was forwarded of it.
    fn hint(&self) -> u64 {
        let Limits { min_load, max_load, .. } = self.limits;
        let at_max = self.trials.iter().find(|trial| trial.load == max_load);
        at_max.map_or(max_load, |trial| {
            ((max_load as f64 * (1.0 - trial.loss_ratio())).round() as u64).clamp(min_load, max_load)
        })
    }

    /// How far to go from a single bound, as a factor above 1: the target's width, or more than the step before. The largest
    /// load, where every search begins, is no step.
    fn step(&self, target: &Target, bound: u64) -> f64 {
        let nearest = self.loads().into_iter().filter(|load| *load != bound && *load != self.limits.max_load);
        let distance = nearest.map(|load| (load as f64 / bound as f64).ln().abs()).fold(f64::INFINITY, f64::min);
        let width = -(1.0 - target.width).ln();
        let grown = if distance.is_finite() { (distance * GROWTH).max(width) } else { width };
        grown.exp()
    }

    fn loads(&self) -> Vec<u64> {
        let mut loads = self.trials.iter().map(|trial| trial.load).collect::<Vec<_>>();
        loads.sort_unstable();
        loads.dedup();
        loads
    }

    /// The relevant bounds of a target.
    fn bounds(&self, target: &Target) -> Bounds {
        let mut bounds = Bounds::default();
        for load in self.loads() {
            match Stat::of(&self.trials, load, target).classify(target) {
                Some(Bound::Lower) => bounds.lower = Some(load),
                Some(Bound::Upper) => {
                    bounds.upper = Some(load);
                    // Lower bounds above it are of no relevance.
                    break;
                }
                None => {}
            }
        }
        bounds
    }

    /// What is known of every goal.
    pub fn found(&self) -> Vec<Found> {
        self.pursuits.iter().map(|pursuit| self.found_of(&pursuit.goal)).collect()
    }

    fn found_of(&self, goal: &Goal) -> Found {
        let target = goal.target(goal.preceding);
        let Bounds { lower, upper } = self.bounds(&target);
        let conditional_throughput = lower.map(|load| {
            let stat = Stat::of(&self.trials, load, &target);
            load as f64 * (1.0 - stat.quantile_loss_ratio(&target))
        });
        Found { goal: goal.clone(), lower, upper, conditional_throughput, is_reached: self.load(&target).is_none() }
    }
}

/// Whether the bounds are as close as a width asks.
fn is_narrow(lower: u64, upper: u64, width: f64) -> bool {
    (upper - lower) as f64 <= width * upper as f64
}

/// At least one frame per second more.
fn step_up(load: u64, factor: f64) -> u64 {
    ((load as f64 * factor).round() as u64).max(load.saturating_add(1))
}

/// At least one frame per second less.
fn step_down(load: u64, factor: f64) -> u64 {
    ((load as f64 / factor).round() as u64).min(load.saturating_sub(1))
}

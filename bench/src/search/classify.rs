//! Load classification and conditional throughput (draft-ietf-bmwg-mlrsearch, appendices "Load Classification" and
//! "Conditional Throughput").

use super::{Target, Trial};

/// What a load is for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The device carries it.
    Lower,
    /// It does not.
    Upper,
}

/// The trials of one load, summed up for one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stat {
    /// Seconds of long enough trials that lose no more than the target allows.
    pub good_long: f64,
    /// Seconds of long enough trials that lose more.
    pub bad_long: f64,
    /// Seconds of shorter trials that lose no more.
    pub good_short: f64,
    /// Seconds of shorter trials that lose more.
    pub bad_short: f64,
    /// (loss ratio, seconds) of the long enough trials.
    long: Vec<(f64, f64)>,
}

impl Stat {
    /// Of the trials at `load`.
    pub fn of<'a>(trials: impl IntoIterator<Item = &'a Trial>, load: u64, target: &Target) -> Self {
        let mut stat = Self::default();
        for trial in trials.into_iter().filter(|trial| trial.load == load) {
            stat.add(trial, target);
        }
        stat.long.sort_by(|a, b| a.0.total_cmp(&b.0));
        stat
    }

    fn add(&mut self, trial: &Trial, target: &Target) {
        let (seconds, loss_ratio) = (trial.duration_s, trial.loss_ratio());
        let is_good = loss_ratio <= target.loss_ratio;
        let is_long = seconds >= target.trial_s;
        let sum = match (is_good, is_long) {
            (true, true) => &mut self.good_long,
            (false, true) => &mut self.bad_long,
            (true, false) => &mut self.good_short,
            (false, false) => &mut self.bad_short,
        };
        *sum += seconds;
        if is_long {
            self.long.push((loss_ratio, seconds));
        }
    }

    /// What the load is; `None` as long as further trials could make it either.
    ///
    /// Short bad trials count against the load as far as short good ones, in the proportion that the exceed ratio allows,
    /// do not make up for them. Short good ones never count for it.
    pub fn classify(&self, target: &Target) -> Option<Bound> {
        let made_up_for = self.good_short * target.exceed_ratio / (1.0 - target.exceed_ratio);
        let bad = self.bad_long + (self.bad_short - made_up_for).max(0.0);
        let whole = (self.good_long + bad).max(target.duration_sum_s);
        let allowed = whole * target.exceed_ratio;
        let if_rest_is_good = bad <= allowed;
        let if_rest_is_bad = whole - self.good_long <= allowed;
        match (if_rest_is_good, if_rest_is_bad) {
            (true, true) => Some(Bound::Lower),
            (false, false) => Some(Bound::Upper),
            _ => None,
        }
    }

    /// The loss ratio that the long trials exceed in no more than the exceed ratio of the duration sum; missing seconds count
    /// as lost.
    pub fn quantile_loss_ratio(&self, target: &Target) -> f64 {
        let whole = (self.good_long + self.bad_long).max(target.duration_sum_s);
        let mut left = whole * (1.0 - target.exceed_ratio);
        let mut quantile = None;
        for (loss_ratio, seconds) in &self.long {
            if quantile.is_some() && left <= 0.0 {
                break;
            }
            quantile = Some(*loss_ratio);
            left -= seconds;
        }
        if left > 0.0 { 1.0 } else { quantile.unwrap_or(1.0) }
    }
}

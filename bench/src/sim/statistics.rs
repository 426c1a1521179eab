//! What a run measures, and means with confidence intervals over several runs.

use crate::traffic::Distribution;

/// Times kept exactly; beyond, they go into a histogram of three digits.
const EXACT: usize = 1 << 22;

/// Collects times in ns.
#[derive(Clone, Debug, Default)]
pub struct Times {
    exact: Vec<u64>,
    rest: Option<Box<Distribution>>,
    sum_ns: u128,
}

/// A distribution of times.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Mean, ns.
    pub mean_ns: f64,
    /// Median, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// 99.9th percentile, ns.
    pub p999_ns: u64,
    /// Longest, ns.
    pub max_ns: u64,
}

impl Times {
    /// Adds a time.
    pub fn record(&mut self, ns: u64) {
        self.sum_ns += u128::from(ns);
        if let Some(rest) = &mut self.rest {
            rest.record(ns);
        } else {
            self.exact.push(ns);
            if self.exact.len() == EXACT {
                let mut rest = Box::new(Distribution::default());
                self.exact.drain(..).for_each(|ns| rest.record(ns));
                self.exact.shrink_to_fit();
                self.rest = Some(rest);
            }
        }
    }

    /// Mean and percentiles.
    pub fn finish(mut self) -> Latency {
        let count = self.rest.as_ref().map_or(self.exact.len() as u64, |rest| rest.count());
        let mean_ns = if count == 0 { 0.0 } else { self.sum_ns as f64 / count as f64 };
        if let Some(rest) = &self.rest {
            let [p50_ns, p99_ns, p999_ns] = [0.5, 0.99, 0.999].map(|quantile| rest.quantile_ns(quantile));
            return Latency { count, mean_ns, p50_ns, p99_ns, p999_ns, max_ns: rest.max_ns() };
        }
        self.exact.sort_unstable();
        let at = |quantile: f64| {
            let rank = (quantile * count as f64).ceil() as usize;
            self.exact.get(rank.saturating_sub(1)).copied().unwrap_or(0)
        };
        let [p50_ns, p99_ns, p999_ns, max_ns] = [0.5, 0.99, 0.999, 1.0].map(at);
        Latency { count, mean_ns, p50_ns, p99_ns, p999_ns, max_ns }
    }
}

/// Frames of one sort on the interconnect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames.
    pub frames: u64,
    /// Bytes of them, Ethernet and interconnect header included.
    pub bytes: u64,
}

impl Traffic {
    /// Counts `frames` frames of so many bytes each.
    pub fn add(&mut self, frames: u64, bytes: usize) {
        self.frames += frames;
        self.bytes += frames * bytes as u64;
    }
}

/// Why a packet was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It arrived at the cluster at a node that had failed.
    Arrival,
    /// It was at a node that failed, or on its way to one.
    Failure,
    /// It, or its result, was lost on the wire.
    Wire,
    /// The node had no room for it.
    Room,
}

impl Loss {
    /// Every cause, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Arrival, Self::Failure, Self::Wire, Self::Room];

    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arrival => "arrived_at_failed_node",
            Self::Failure => "held_by_failed_node",
            Self::Wire => "on_the_wire",
            Self::Room => "no_room",
        }
    }

    /// Words for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Arrival => "arrived at a failed node",
            Self::Failure => "held by a failed node or on the way to it",
            Self::Wire => "lost on the wire",
            Self::Room => "found no room",
        }
    }
}

/// How well decisions estimated the latencies of their packets. Only policies that compare times have estimates.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    count: u64,
    sum_ns: f64,
    latency_ns: f64,
    latency_squares: f64,
    error_ns: f64,
    error_squares: f64,
}

impl Prediction {
    /// Adds a packet.
    pub fn record(&mut self, predicted_ns: u32, latency_ns: u64) {
        let (predicted, latency) = (f64::from(predicted_ns), latency_ns as f64);
        self.count += 1;
        self.sum_ns += predicted;
        self.latency_ns += latency;
        self.latency_squares += latency * latency;
        self.error_ns += (predicted - latency).abs();
        self.error_squares += (predicted - latency).powi(2);
    }

    /// Mean estimate, ns; not a number when there was none.
    pub fn mean_ns(&self) -> f64 {
        self.sum_ns / self.count as f64
    }

    /// Mean absolute error, ns.
    pub fn error_ns(&self) -> f64 {
        self.error_ns / self.count as f64
    }

    /// Part of the variance of the latencies that the estimates explain as they are (R²); below 0 when the mean latency
    /// would have been the better estimate.
    pub fn explained(&self) -> f64 {
        let variance = self.latency_squares - self.latency_ns.powi(2) / self.count as f64;
        1.0 - self.error_squares / variance
    }
}

/// What a run of a policy on a scenario gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Latency of measured packets.
    pub latency: Latency,
    /// Mean latency of measured packets when results leave in the order of their flow, ns.
    pub ordered_mean_ns: f64,
    /// Share of measured packets that came out after a later one of their flow (RFC 4737).
    pub reordered: f64,
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets computed, their results out.
    pub completed: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets lost, by [`Loss`].
    pub lost_by: [u64; Loss::ALL.len()],
    /// Packets that a decision redirected.
    pub redirected: u64,
    /// Packets given to a node that asked for work.
    pub given: u64,
    /// Redirected and given packets.
    pub forwards: Traffic,
    /// Results on their way back.
    pub results: Traffic,
    /// Load reports, one per receiver.
    pub reports: Traffic,
    /// Probes and their answers, requests for work and refusals.
    pub messages: Traffic,
    /// CPU time that redirecting, reports and messages burnt, as a share of all workers' time.
    pub overhead: f64,
    /// How well the latencies of measured packets were estimated.
    pub prediction: Prediction,
    /// Busy share of each node, forwarding included.
    pub utilisation: Vec<f64>,
    /// Length of the run, ns.
    pub span_ns: u64,
    /// Time integral of the number of packets in the cluster, ns.
    pub present_ns: u128,
    /// Sum of the latencies of all packets, lost ones until their loss, ns.
    pub sojourn_ns: u128,
    /// Events simulated.
    pub events: u64,
}

impl Outcome {
    /// Counts a lost packet.
    pub fn lose(&mut self, cause: Loss) {
        self.lost += 1;
        self.lost_by[cause as usize] += 1;
    }

    /// Share of arrived packets that went to another node.
    pub fn forwarded(&self) -> f64 {
        (self.redirected + self.given) as f64 / self.arrived.max(1) as f64
    }

    /// Mean busy share of the nodes.
    pub fn mean_utilisation(&self) -> f64 {
        self.utilisation.iter().sum::<f64>() / self.utilisation.len().max(1) as f64
    }

    /// Busy share of the busiest node.
    pub fn max_utilisation(&self) -> f64 {
        self.utilisation.iter().copied().fold(0.0, f64::max)
    }
}

/// A mean over runs with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the interval; infinite for a single run.
    pub half_width: f64,
}

/// 97.5 % quantiles of Student's t distribution with 1, 2, … degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// The estimate from the values of independent runs, at least one.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        if values.len() < 2 {
            return Self { mean, half_width: f64::INFINITY };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
        // Beyond the table: the first terms of the quantile's expansion (Abramowitz and Stegun, 26.7.5).
        let freedom = n - 1.0;
        let quantile =
            STUDENT.get(values.len() - 2).copied().unwrap_or(1.95996 + 2.3722 / freedom + 2.82 / freedom.powi(2));
        Self { mean, half_width: quantile * (variance / n).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact() {
        let mut times = Times::default();
        (1..=1000).rev().for_each(|ns| times.record(ns));
        let latency = times.finish();
        assert_eq!((latency.p50_ns, latency.p99_ns, latency.p999_ns, latency.max_ns), (500, 990, 999, 1000));
        assert!((latency.mean_ns - 500.5).abs() < 1e-9 && latency.count == 1000);
        assert_eq!(Times::default().finish(), Latency::default());
    }

    #[test]
    fn many_times_go_into_a_histogram() {
        let mut times = Times::default();
        let n = EXACT as u64 + 1000;
        (1..=n).for_each(|ns| times.record(ns));
        let latency = times.finish();
        assert_eq!((latency.count, latency.max_ns), (n, n));
        assert!((latency.p50_ns as f64 / (n / 2) as f64 - 1.0).abs() < 0.001, "{latency:?}");
        assert!((latency.mean_ns / (n as f64 + 1.0) * 2.0 - 1.0).abs() < 1e-9, "{latency:?}");
    }

    #[test]
    fn a_prediction_that_is_always_right_explains_everything() {
        let mut prediction = Prediction::default();
        (1..=10).for_each(|ns| prediction.record(ns, u64::from(ns)));
        assert_eq!((prediction.explained(), prediction.error_ns(), prediction.mean_ns()), (1.0, 0.0, 5.5));
        prediction.record(30, 20);
        assert!(prediction.explained() < 0.9 && prediction.error_ns() < 1.0);
        assert!(Prediction::default().explained().is_nan());
    }

    #[test]
    fn intervals_are_students() {
        let estimate = Estimate::of([1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((estimate.mean - 3.0).abs() < 1e-9 && (estimate.half_width - 2.776 * 0.5f64.sqrt()).abs() < 1e-9);
        assert!(Estimate::of([1.0]).half_width.is_infinite());
        // 40 degrees of freedom: 2.0211.
        let many = Estimate::of((0..41).map(f64::from));
        let error = ((0..41).map(|v| (f64::from(v) - 20.0).powi(2)).sum::<f64>() / 40.0 / 41.0).sqrt();
        assert!((many.half_width / error - 2.0211).abs() < 0.001, "{}", many.half_width / error);
    }
}

//! A distribution of times in ns that can be recorded, merged, sent between processes and asked for percentiles.

use std::fmt;

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Largest time told apart, ns: a minute. Longer ones count as this.
const MAX_NS: u64 = 60_000_000_000;
/// Significant decimal digits of a percentile.
const DIGITS: u8 = 3;

/// The distribution. Percentiles are exact to three digits; count, sum and extremes are exact.
#[derive(Clone)]
pub struct Distribution {
    histogram: Histogram<u64>,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        let histogram = match Histogram::new_with_bounds(1, MAX_NS, DIGITS) {
            Ok(histogram) => histogram,
            Err(error) => unreachable!("BUG: bounds of the histogram: {error}"),
        };
        Self { histogram, sum_ns: 0, min_ns: u64::MAX, max_ns: 0 }
    }
}

impl fmt::Debug for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Distribution({} values, mean {:.0} ns)", self.count(), self.mean_ns())
    }
}

impl Distribution {
    /// Adds a time.
    pub fn record(&mut self, ns: u64) {
        // The histogram knows no zero.
        self.histogram.saturating_record(ns.clamp(1, MAX_NS));
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds all of another one's times.
    pub fn merge(&mut self, other: &Self) {
        for bucket in other.histogram.iter_recorded() {
            self.add_bucket(bucket.value_iterated_to(), bucket.count_at_value());
        }
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    fn add_bucket(&mut self, ns: u64, count: u64) {
        self.histogram.saturating_record_n(ns.clamp(1, MAX_NS), count);
    }

    /// How many times were recorded.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Mean, ns; 0 without values.
    pub fn mean_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.sum_ns as f64 / self.count() as f64 }
    }

    /// The time that the share `quantile` of all times does not exceed, ns; 0 without values.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        self.histogram.value_at_quantile(quantile).min(self.max_ns)
    }

    /// Shortest, ns; 0 without values.
    pub fn min_ns(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min_ns }
    }

    /// Longest, ns; 0 without values.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }
}

/// How a distribution travels: its filled buckets.
#[derive(Serialize, Deserialize)]
struct Wire {
    /// (largest time of the bucket in ns, times in it).
    buckets: Vec<(u64, u64)>,
    /// Decimal: JSON numbers end at 64 bits.
    sum_ns: String,
    min_ns: u64,
    max_ns: u64,
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let filled = self.histogram.iter_recorded();
        let buckets = filled.map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value())).collect();
        let sum_ns = self.sum_ns.to_string();
        Wire { buckets, sum_ns, min_ns: self.min_ns, max_ns: self.max_ns }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let sum_ns = wire.sum_ns.parse().map_err(de::Error::custom)?;
        let mut distribution = Self { sum_ns, min_ns: wire.min_ns, max_ns: wire.max_ns, ..Self::default() };
        for (ns, count) in wire.buckets {
            distribution.add_bucket(ns, count);
        }
        Ok(distribution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thousand() -> Distribution {
        let mut distribution = Distribution::default();
        (1..=1000).for_each(|n| distribution.record(n * 1000));
        distribution
    }

    #[test]
    fn percentiles_have_three_digits_and_the_mean_is_exact() {
        let distribution = thousand();
        for (quantile, expected) in [(0.5, 500_000.0), (0.99, 990_000.0), (0.999, 999_000.0), (1.0, 1_000_000.0)] {
            let ratio = distribution.quantile_ns(quantile) as f64 / expected;
            assert!((ratio - 1.0).abs() < 0.001, "{quantile}: {ratio}");
        }
        assert!((distribution.mean_ns() - 500_500.0).abs() < 1e-9);
        assert_eq!((distribution.min_ns(), distribution.max_ns()), (1_000, 1_000_000));
    }

    #[test]
    fn travelling_and_merging_change_nothing() {
        let original = thousand();
        let text = serde_json::to_string(&original).unwrap();
        let mut copy: Distribution = serde_json::from_str(&text).unwrap();
        for quantile in [0.0, 0.5, 0.99, 1.0] {
            assert_eq!(copy.quantile_ns(quantile), original.quantile_ns(quantile));
        }
        copy.merge(&original);
        assert_eq!(copy.count(), 2000);
        assert!((copy.mean_ns() - original.mean_ns()).abs() < 1e-9);
        assert_eq!(copy.quantile_ns(0.5), original.quantile_ns(0.5));
    }

    #[test]
    fn empty_and_extreme_distributions_have_values() {
        let mut distribution = Distribution::default();
        assert_eq!((distribution.count(), distribution.min_ns(), distribution.max_ns()), (0, 0, 0));
        assert_eq!(distribution.quantile_ns(0.5), 0);
        distribution.record(0);
        distribution.record(u64::MAX);
        assert_eq!((distribution.min_ns(), distribution.max_ns()), (0, u64::MAX));
    }
}

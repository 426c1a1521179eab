//! Estimated processing time: the linear cost of a function, and the robust online fit behind it.
//!
//! The form `a + b · units` follows Ramaswamy, Weng and Wolf, "Characterizing Network Processing Delay" (GLOBECOM 2004).
//! The fit keeps exponentially decayed means, variance and covariance, which is least squares with forgetting without
//! the matrix whose asymmetric rounding makes the textbook recursion diverge. Residuals are clipped (Huber, 1964) at a
//! multiple of their tracked median, so that preemption and page faults do not move the fit.

/// The cost of a function on one worker: `a_ns + b_q16 / 65536 · units`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Fixed part, ns.
    pub a_ns: u32,
    /// Part per unit of work, ns in Q16.
    pub b_q16: u32,
}

impl Cost {
    /// Estimated processing time of `units` of work, ns (saturating).
    #[inline(always)]
    pub fn ns(self, units: u32) -> u32 {
        let total = u64::from(self.a_ns) + ((u64::from(self.b_q16) * u64::from(units)) >> 16);
        if total > u64::from(u32::MAX) { u32::MAX } else { total as u32 }
    }

    /// Both parts in one word, so that they are read and written together.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.a_ns as u64 | (self.b_q16 as u64) << 32
    }

    /// The inverse of [`Cost::to_word`].
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self { a_ns: word as u32, b_q16: (word >> 32) as u32 }
    }
}

/// An estimate is never below this fraction of the declared cost: a fit to packets of one size says little about others, and
/// who sends the packets chooses the sizes.
const PRIOR_SHARE: u32 = 5;

/// Estimated processing time of `units` of work by the fit, but not far below the function's declared cost, ns.
#[inline(always)]
pub fn ept_ns(fit: Cost, declared: Cost, units: u32) -> u32 {
    let (fitted, least) = (fit.ns(units), declared.ns(units) / PRIOR_SHARE);
    if fitted < least { least } else { fitted }
}

/// Samples that the fit remembers (the gain is 1/`MEMORY` once that many were seen).
const MEMORY: u32 = 128;
/// Samples before residuals are clipped.
const WARM_UP: u32 = 32;
/// Residuals are clipped at this many sixteenths of the tracked median residual: 3 standard deviations of a normal
/// distribution, whose median absolute deviation is 1/1.4826 of one.
const CLIP_SIXTEENTHS: i64 = 71;
/// Smallest median residual assumed, ns: the resolution of the clock and a cache miss.
const MIN_DEVIATION_NS: i64 = 16;
/// Work and time are capped here so that no product overflows: 2^28 units, 2^30 ns.
const MAX_UNITS: u32 = 1 << 28;
const MAX_SERVICE_NS: u32 = 1 << 30;
/// Fraction bits of the means.
const Q: u32 = 8;

/// Fits a [`Cost`] to measured service times. One instance per function and worker; integer only, no allocation.
#[derive(Clone, Debug)]
pub struct Estimator {
    cost: Cost,
    samples: u32,
    mean_units_q: i64,
    mean_ns_q: i64,
    /// Decayed variance of the units, Q16.
    variance_q: i128,
    /// Decayed covariance of units and ns, Q16.
    covariance_q: i128,
    deviation_ns: i64,
}

impl Estimator {
    /// An estimator that answers `prior` until it has measured.
    pub const fn new(prior: Cost) -> Self {
        Self {
            cost: prior,
            samples: 0,
            mean_units_q: 0,
            mean_ns_q: 0,
            variance_q: 0,
            covariance_q: 0,
            deviation_ns: MIN_DEVIATION_NS,
        }
    }

    /// The current fit.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Measurements taken so far (saturating).
    pub fn samples(&self) -> u32 {
        self.samples
    }

    /// Takes a measurement: `units` of work took `measured_ns`.
    pub fn observe(&mut self, units: u32, measured_ns: u32) {
        let units = units.min(MAX_UNITS);
        let predicted = i64::from(self.cost.ns(units).min(MAX_SERVICE_NS));
        let residual = i64::from(measured_ns.min(MAX_SERVICE_NS)) - predicted;
        let limit = self.deviation_ns * CLIP_SIXTEENTHS / 16;
        let taken = if self.samples < WARM_UP { residual } else { residual.clamp(-limit, limit) };
        self.track_deviation(residual.abs());
        self.samples = self.samples.saturating_add(1);
        self.update_moments(i64::from(units), predicted + taken);
        self.solve();
    }

    /// Follows the median of the absolute residual by multiplicative steps, fast while warming up.
    fn track_deviation(&mut self, absolute: i64) {
        let step = self.deviation_ns / if self.samples < WARM_UP { 4 } else { 32 } + 1;
        let next = if absolute > self.deviation_ns { self.deviation_ns + step } else { self.deviation_ns - step };
        self.deviation_ns = next.max(MIN_DEVIATION_NS);
    }

    fn update_moments(&mut self, units: i64, ns: i64) {
        let k = i64::from(self.samples.min(MEMORY));
        let du = (units << Q) - self.mean_units_q;
        let dy = (ns << Q) - self.mean_ns_q;
        self.mean_units_q += du / k;
        self.mean_ns_q += dy / k;
        self.variance_q = fade(self.variance_q, du, du, k);
        self.covariance_q = fade(self.covariance_q, du, dy, k);
    }

    fn solve(&mut self) {
        // With all packets of about one size the slope is noise: keep it, and fit the intercept only.
        let spread = i128::from(self.mean_units_q / 32).pow(2).max(1 << (2 * Q));
        if self.variance_q > spread {
            let slope = (self.covariance_q << 16) / self.variance_q;
            self.cost.b_q16 = slope.clamp(0, i128::from(u32::MAX)) as u32;
        }
        let mean_units = i128::from(self.mean_units_q);
        let mean_ns = i128::from(self.mean_ns_q);
        let by_slope = (i128::from(self.cost.b_q16) * mean_units) >> 16;
        if by_slope > mean_ns && mean_units > 0 {
            // A negative intercept would make short packets free: take the line through the origin instead.
            self.cost.b_q16 = ((mean_ns << 16) / mean_units).clamp(0, i128::from(u32::MAX)) as u32;
            self.cost.a_ns = 0;
        } else {
            self.cost.a_ns = ((mean_ns - by_slope) >> Q).clamp(0, i128::from(u32::MAX)) as u32;
        }
    }
}

/// A decayed second moment after one more product: `(moment + a · b / k) · (k − 1) / k`, `k` from 1 to [`MEMORY`].
///
/// Packets of everyday sizes need no more than 64 bits, whose divisions take a fraction of the time.
#[inline(always)]
fn fade(moment: i128, a: i64, b: i64, k: i64) -> i128 {
    const FACTOR: u64 = 1 << 27;
    const MOMENT: u128 = 1 << 55;
    if a.unsigned_abs() < FACTOR && b.unsigned_abs() < FACTOR && moment.unsigned_abs() < MOMENT {
        return i128::from((moment as i64 + a * b / k) * (k - 1) / k);
    }
    let (a, b, k) = (i128::from(a), i128::from(b), i128::from(k));
    (moment + a * b / k) * (k - 1) / k
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;

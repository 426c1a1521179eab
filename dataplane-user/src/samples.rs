//! Service times and estimation errors of a worker, handed to the control thread without a lock: the worker always has a
//! set to record into, and exchanges it for an empty one that the control thread laid out.

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::CachePadded;
use hdrhistogram::Histogram;

/// Longest service time recorded, ns; longer ones count as this.
const MAX_SERVICE_NS: u64 = 10_000_000_000;
/// Largest relative error recorded, thousandths.
const MAX_ERROR_MILLI: u64 = 100_000;

/// Measurements of one function on one worker since the last exchange.
#[derive(Clone, Debug)]
pub struct FunctionSamples {
    /// Measured service times, ns.
    pub service_ns: Histogram<u64>,
    /// |estimate − measured| / measured, thousandths.
    pub error_milli: Histogram<u64>,
}

impl FunctionSamples {
    /// An empty set.
    ///
    /// # Errors
    /// Never for these constants; the histogram's constructor says so only at run time.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            service_ns: Histogram::new_with_bounds(1, MAX_SERVICE_NS, 2)?,
            error_milli: Histogram::new_with_bounds(1, MAX_ERROR_MILLI, 2)?,
        })
    }

    /// Records a packet that was estimated at `predicted_ns` and took `measured_ns`. Does not allocate.
    #[inline]
    pub fn record(&mut self, predicted_ns: u32, measured_ns: u32) {
        self.service_ns.saturating_record(u64::from(measured_ns));
        let error = u64::from(predicted_ns.abs_diff(measured_ns)) * 1000 / u64::from(measured_ns.max(1));
        self.error_milli.saturating_record(error);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.service_ns.reset();
        self.error_milli.reset();
    }

    /// Adds another set to this one.
    pub fn add(&mut self, other: &Self) {
        // Same bounds on both sides, so the addition cannot fail.
        let _ = self.service_ns.add(&other.service_ns);
        let _ = self.error_milli.add(&other.error_milli);
    }
}

/// One set per function, by function index.
pub type Samples = Vec<FunctionSamples>;

/// Where worker and control thread exchange sets. Bounded, lock-free, no allocation on the worker's side.
#[derive(Debug)]
pub struct Exchange {
    // The worker looks at both once per step; neither may share a line with what the other side writes.
    empty: CachePadded<ArrayQueue<Samples>>,
    full: CachePadded<ArrayQueue<Samples>>,
}

impl Default for Exchange {
    fn default() -> Self {
        Self { empty: CachePadded::new(ArrayQueue::new(1)), full: CachePadded::new(ArrayQueue::new(1)) }
    }
}

impl Exchange {
    /// Worker: gives `samples` away for an empty set, if the control thread has laid one out.
    #[inline]
    pub fn swap(&self, samples: &mut Samples) {
        if self.empty.is_empty() || self.full.is_full() {
            return;
        }
        if let Some(fresh) = self.empty.pop() {
            let used = std::mem::replace(samples, fresh);
            if let Err(back) = self.full.push(used) {
                // Only this thread pushes, and there was room: unreachable, but nothing may be lost.
                *samples = back;
            }
        }
    }

    /// Control thread: asks for the worker's set by laying out an empty one. Gives it back when one lies there already.
    pub fn lay_out(&self, empty: Samples) -> Option<Samples> {
        self.empty.push(empty).err()
    }

    /// Control thread: the set the worker gave away, if it has.
    pub fn collect(&self) -> Option<Samples> {
        self.full.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_goes_round_without_losing_a_sample() {
        let exchange = Exchange::default();
        let fresh = || vec![FunctionSamples::new().unwrap()];
        let mut worker = fresh();
        worker[0].record(1000, 500);
        exchange.swap(&mut worker);
        assert!(exchange.collect().is_none(), "nothing was laid out");
        assert!(exchange.lay_out(fresh()).is_none());
        assert!(exchange.lay_out(fresh()).is_some(), "one lies there already");
        exchange.swap(&mut worker);
        assert_eq!(worker[0].service_ns.len(), 0);
        let used = exchange.collect().unwrap();
        assert_eq!(used[0].service_ns.len(), 1);
        assert_eq!(used[0].error_milli.max() / 100, 10, "1000 against 500 is off by 1000 thousandths");
    }
}

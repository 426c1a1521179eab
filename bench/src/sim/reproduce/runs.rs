//! Runs of the packet simulator, one for each seed, and figures over them.

use anyhow::Result;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::super::run;
use super::super::scenario::{Reports, Scenario};
use super::super::statistics::{Estimate, Outcome};
use super::Effort;

/// Reports each `interval_ns` that alone carry loads, as the published systems have it.
pub fn plain_reports(interval_ns: u64) -> Reports {
    Reports { interval_ns, piggyback: false, ..Reports::default() }
}

/// `policy` on `scenario`, once for each seed.
pub fn outcomes(scenario: &Scenario, policy: PolicyKind, tuning: &Tuning, effort: &Effort) -> Result<Vec<Outcome>> {
    effort.seeds.iter().map(|seed| run(scenario, policy, tuning, *seed)).collect()
}

/// `scenario` with as many packets as `effort` allows, a tenth of them to warm up.
pub fn sized(scenario: Scenario, packets: u64, effort: &Effort) -> Scenario {
    let packets = effort.of(packets);
    Scenario { packets, warm_up: packets / 10, ..scenario }
}

/// Mean latency over the runs, µs.
pub fn mean_us(outcomes: &[Outcome]) -> Estimate {
    Estimate::of(outcomes.iter().map(|outcome| outcome.latency.mean_ns / 1000.0))
}

/// By how many percent `value` is below `base`, run by run.
pub fn cut_percent(base: &[f64], value: &[f64]) -> Vec<f64> {
    base.iter().zip(value).map(|(base, value)| if *base > 0.0 { (1.0 - value / base) * 100.0 } else { 0.0 }).collect()
}

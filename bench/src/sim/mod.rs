//! A deterministic simulation of the cluster whose decisions come from [`dataplane_common::policy`], not from a copy.
//!
//! | module | concern |
//! |---|---|
//! | [`scenario`] | what is simulated: cluster, traffic, interconnect, reports, failures |
//! | [`workload`], [`ingress`], [`trace`] | service times; times and places of arrival; the packets of a run, by seed |
//! | [`recording`] | the active packets of a capture as the traffic of a run |
//! | [`engine`] | one event after the other: the way of a packet, failures |
//! | [`pull`] | idle workers that ask for work, probes |
//! | [`events`], [`frames`] | future events; packets and frames that exist |
//! | [`node`], [`worker`], [`queue`] | a node, a core with its interrupts, the order of service |
//! | [`reports`], [`peers`], [`view`] | what nodes say, what each knows of the others, how a decision sees it |
//! | [`control`] | signals and plans |
//! | [`flows`], [`statistics`] | reordering and its repair; latencies, outcomes, confidence |
//! | [`bounds`], [`comparison`] | central queues and the oracle on the same packets; policies and bounds side by side |
//! | [`matrix`] | the comparison over many scenarios, with its report |
//! | [`definition`] | a scenario as JSON and as options |
//! | [`reproduce`] | the published experiments of the systems this project grew out of |
//! | [`random`], [`hashing`] | streams and distributions; hashes that are the same in every run |
//!
//! Time is integer ns and randomness comes from the seed alone: the same scenario, policy, tuning and seed give the same
//! outcome, bit by bit, and every policy sees the same packets. Memory is in proportion to the nodes and the packets in
//! flight: no table grows with the square of the number of nodes beyond 256 of them.
//!
//! What the model leaves out: batches, caches, contention for the link (a frame takes its latency and transmission time
//! whatever else is on the wire), and the CPU time of results, which the receiving XDP program passes on.

pub mod bounds;
pub mod comparison;
pub mod control;
pub mod definition;
pub mod engine;
pub mod events;
pub mod flows;
pub mod frames;
pub mod hashing;
pub mod ingress;
pub mod matrix;
pub mod node;
pub mod peers;
pub mod pull;
pub mod queue;
pub mod random;
pub mod recording;
pub mod reports;
pub mod reproduce;
pub mod scenario;
pub mod statistics;
pub mod trace;
pub mod view;
pub mod worker;
pub mod workload;

use anyhow::Result;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

pub use self::ingress::Ingress;
pub use self::recording::Recording;
pub use self::scenario::{Egress, Estimates, Failure, Playback, Pull, ReportMode, Reports, Scenario, Sleep};
pub use self::statistics::{Estimate, Latency, Loss, Outcome, Prediction, Traffic};
pub use self::workload::Workload;

/// Simulates `policy` with `tuning` on the packets that `scenario` and `seed` give.
///
/// A policy that can run nowhere but here is an oracle: it sees the true load of every node.
///
/// # Errors
/// The scenario is impossible.
pub fn run(scenario: &Scenario, policy: PolicyKind, tuning: &Tuning, seed: u64) -> Result<Outcome> {
    scenario.check()?;
    let homes = policy.homes();
    let deciding = engine::Deciding { policy, tuning: *tuning, sees_truth: !homes.has_worker() && !homes.has_xdp() };
    Ok(engine::Engine::new(scenario, deciding, seed).run(trace::Trace::new(scenario, seed)))
}

#[cfg(test)]
mod tests;

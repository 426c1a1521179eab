//! The experiments of the systems this project grew out of: each published figure beside ours, and why they differ.
//!
//! No full paper of these systems was at hand; what is known of each is its abstract or description. So every experiment
//! states its assumptions, and what it can show is the published *effect* under them, not the paper. Points that were
//! chosen because they land near a published figure are calibration and say so. An experiment that misses its mark is
//! reported like any other: verdicts are data.
//!
//! | module | concern |
//! |---|---|
//! | [`finding`] | a figure, the published one, the verdict |
//! | [`command`], [`output`] | `dataplane-sim reproduce`; text, JSON, Markdown |
//! | [`board`] | a load table and plan in memory, on which the product's policies decide |
//! | [`farm`] | servers with queues, request by request |
//! | [`content`] | nodes with memories for content: hits, misses, the busiest node |
//! | all others | one experiment each, or a few of one system |
//!
//! An experiment is one function and one line in [`EXPERIMENTS`]. Where the packet simulator ([`super::run`]) fits, it is
//! used; where the published experiment is about requests, servers or caches, a small model in the file of the
//! experiment is, and decides by the product's policies wherever there is one.

pub mod board;
pub mod command;
pub mod content;
pub mod farm;
pub mod finding;
pub mod output;

mod accuracy;
mod cooperative;
mod dss;
mod front_ends;
mod guard;
mod high_availability;
mod hot_spot;
mod interconnect;
mod k_finish;
mod phrw;
mod placing;
mod runs;
mod seed_003;
mod sla;
mod tcp;
mod thesis;
mod type_burst;

use anyhow::Result;

use self::finding::Evidence;

/// How much work experiments put into their figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Seeds, one run each; at least one.
    pub seeds: Vec<u64>,
    /// Whether runs are a fifth of their length.
    pub is_quick: bool,
}

impl Effort {
    /// `count` things, or a fifth of them.
    pub fn of(&self, count: u64) -> u64 {
        if self.is_quick { count.div_ceil(5) } else { count }
    }
}

/// One experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its number: E1 and so on.
    pub id: &'static str,
    /// Its name on the command line.
    pub name: &'static str,
    /// The systems it belongs to, and what they are.
    pub systems: &'static [&'static str],
    /// What it shows.
    pub title: &'static str,
    /// What is assumed where the source is silent, in full sentences.
    pub assumptions: &'static [&'static str],
    /// Runs it.
    pub run: fn(&Effort) -> Result<Evidence>,
}

impl Experiment {
    /// Whether `name`, in lower case, is its name, its number or one of its systems.
    pub fn is_called(&self, name: &str) -> bool {
        let is_system = |system: &&str| system.split(' ').next().is_some_and(|id| id.to_lowercase() == name);
        self.name == name || self.id.to_lowercase() == name || self.systems.iter().any(is_system)
    }
}

/// Every experiment, in the order of its number.
pub const EXPERIMENTS: &[Experiment] = &[
    thesis::EXPERIMENT,
    accuracy::EXPERIMENT,
    guard::EXPERIMENT,
    hot_spot::SCALING,
    hot_spot::HOT_SPOT,
    hot_spot::CROSSOVER,
    interconnect::EXPERIMENT,
    seed_003::EXPERIMENT,
    type_burst::EXPERIMENT,
    dss::SELECTION,
    dss::DETECTION,
    dss::MODEL,
    cooperative::EXPERIMENT,
    front_ends::EXPERIMENT,
    high_availability::EXPERIMENT,
    placing::HISTOGRAM,
    placing::WARD,
    phrw::EXPERIMENT,
    sla::EXPERIMENT,
    k_finish::EXPERIMENT,
    placing::HASH_CACHING,
];

/// The experiments that need real nodes, and where they are.
pub const ON_REAL_NODES: &[(&str, &str)] = &[
    ("E2", "the sweep of E1 on two real nodes"),
    ("E10", "the adaptive threshold of E9 on five real workers of different speed"),
];

#[cfg(test)]
mod tests;

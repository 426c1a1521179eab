//! The cells of the matrix.
//!
//! The quick matrix has the 33 cells of the project's survey of policies, in five tables: workload by ingress, load, nodes
//! and report interval, redirect cost under bursts, and unequal speeds or changing ingress. The full one adds
//!
//! - every pair of levels of two of the six factors below, all others at the base cell. The product of all levels would
//!   have 25 200 cells, most of them without a question of their own; interactions of two factors are in the pairs;
//! - other speeds, inexact estimates, several workers a node, lost reports and failures at the base cell;
//! - the survey's held-out cells, which none of `sooner`'s settings was chosen on.
//!
//! A cell that no policy can carry is left out, see [`is_bearable`].

use std::collections::BTreeSet;

use dataplane_common::load::Forwarding;

use super::super::scenario::{Estimates, Failure, Reports, Scenario};
use super::super::{Ingress, Workload};

/// Where a cell comes from: the part of the report it stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Workload by ingress.
    Workloads,
    /// Load.
    Load,
    /// Number of nodes, report interval.
    Nodes,
    /// Cost of a redirect.
    Cost,
    /// Unequal speeds, bursts, Zipf.
    Speeds,
    /// Pairs of levels.
    Pairs,
    /// One more factor at the base cell.
    Others,
    /// Cells that no setting was chosen on.
    HeldOut,
}

impl Group {
    /// Every group, in the order of the report.
    pub const ALL: [Self; 8] =
        [Self::Workloads, Self::Load, Self::Nodes, Self::Cost, Self::Speeds, Self::Pairs, Self::Others, Self::HeldOut];

    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Workloads => "workloads",
            Self::Load => "load",
            Self::Nodes => "nodes",
            Self::Cost => "cost",
            Self::Speeds => "speeds",
            Self::Pairs => "pairs",
            Self::Others => "others",
            Self::HeldOut => "held-out",
        }
    }

    /// Heading in the report.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Workloads => "Workload and ingress",
            Self::Load => "Load",
            Self::Nodes => "Nodes and report interval",
            Self::Cost => "Cost of a redirect, bursts",
            Self::Speeds => "Unequal speeds, bursts, Zipf",
            Self::Pairs => "Pairs of factors",
            Self::Others => "Other factors at the base cell",
            Self::HeldOut => "Held out: no setting was chosen on these",
        }
    }
}

/// A cell of the matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Where it comes from.
    pub group: Group,
    /// What is simulated.
    pub scenario: Scenario,
}

impl Cell {
    /// A cell whose reports travel as long as its packets.
    pub fn new(group: Group, scenario: Scenario) -> Self {
        let reports = Reports { delay_ns: scenario.forwarding.wire_ns.into(), ..scenario.reports };
        Self { group, scenario: Scenario { reports, ..scenario } }
    }

    /// Its name: the levels of its factors, those of the last line only where they are not usual.
    pub fn name(&self) -> String {
        let Scenario { nodes, workload, ingress, load, reports, forwarding, .. } = &self.scenario;
        let cost = redirect_us(forwarding);
        let interval_us = reports.interval_ns as f64 / 1000.0;
        let mut name = format!(
            "{}/{ingress}/n{nodes}/load{load}/report{interval_us}/redirect{}-{}",
            workload.name(),
            cost.0,
            cost.1
        );
        let speeds = self.scenario.speeds();
        if !speeds.is_empty() {
            let speeds = speeds.iter().map(f64::to_string).collect::<Vec<_>>();
            name.push_str(&format!("/speeds{}", speeds.join(",")));
        }
        if self.scenario.workers > 1 {
            name.push_str(&format!("/workers{}", self.scenario.workers));
        }
        if self.scenario.estimates != Estimates::Exact {
            name.push_str(&format!("/estimates-{}", self.scenario.estimates));
        }
        if reports.loss > 0.0 {
            name.push_str(&format!("/report-loss{}", reports.loss));
        }
        self.scenario.failures.iter().for_each(|failure| name.push_str(&format!("/fail{failure}")));
        name
    }
}

/// CPU time of sending and of receiving a packet, which the matrix has alike, and time on the wire, µs.
pub fn redirect_us(forwarding: &Forwarding) -> (f64, f64) {
    (f64::from(forwarding.send_ns) / 1000.0, f64::from(forwarding.wire_ns) / 1000.0)
}

/// The cost of redirects of so many µs CPU time at each end and µs on the wire.
fn redirect((cpu_us, wire_us): (f64, f64)) -> Forwarding {
    let cpu_ns = (cpu_us * 1000.0) as u32;
    Forwarding { send_ns: cpu_ns, receive_ns: cpu_ns, wire_ns: (wire_us * 1000.0) as u32, wire_ns_per_byte_q16: 0 }
}

/// Periodic reports each so many µs.
fn each_us(us: u64) -> Reports {
    Reports { interval_ns: us * 1000, ..Reports::default() }
}

const WORKLOADS: [Workload; 6] = [
    Workload::Exponential,
    Workload::Deterministic,
    Workload::Bi90,
    Workload::Bi995,
    Workload::Pareto,
    Workload::LowHigh,
];
const INGRESS: [Ingress; 5] =
    [Ingress::Uniform, Ingress::Skewed(0.5), Ingress::Skewed(0.9), Ingress::Zipf, Ingress::Bursts];
const NODES: [usize; 7] = [2, 4, 8, 16, 32, 64, 256];
const INTERVALS_US: [u64; 4] = [10, 100, 1_000, 10_000];
const REDIRECTS_US: [(f64, f64); 5] = [(0.1, 1.0), (0.5, 2.0), (1.0, 3.0), (2.0, 5.0), (5.0, 20.0)];
const LOADS: [f64; 6] = [0.3, 0.5, 0.7, 0.8, 0.9, 0.95];
/// A cluster whose fastest node does four times the work of its slowest.
const FOURFOLD: [u32; 8] = [2000, 2000, 1000, 1000, 1000, 1000, 500, 500];
/// The cluster of the threshold papers.
const THRESHOLD_PAPERS: [u32; 5] = [1000, 950, 900, 850, 800];

/// The cells of the quick matrix.
pub fn quick() -> Vec<Cell> {
    let base = Scenario::default;
    let mut cells = Vec::new();
    let mut add = |group, scenario| cells.push(Cell::new(group, scenario));
    for workload in WORKLOADS.into_iter().filter(|workload| *workload != Workload::Deterministic) {
        for ingress in [Ingress::Uniform, Ingress::Skewed(0.5)] {
            add(Group::Workloads, Scenario { workload, ingress, ..base() });
        }
    }
    for load in LOADS.into_iter().filter(|load| *load != 0.8) {
        add(Group::Load, Scenario { workload: Workload::Bi90, load, ..base() });
    }
    for nodes in [2, 4, 16, 64, 256] {
        add(Group::Nodes, Scenario { nodes, ..base() });
    }
    for us in [10, 1_000, 10_000] {
        add(Group::Nodes, Scenario { nodes: 16, reports: each_us(us), ..base() });
    }
    for cost in REDIRECTS_US.into_iter().filter(|cost| cost.0 != 0.5) {
        let forwarding = redirect(cost);
        add(Group::Cost, Scenario { ingress: Ingress::Bursts, load: 0.6, forwarding, ..base() });
    }
    for load in [0.5, 0.8] {
        let speeds_milli = THRESHOLD_PAPERS.to_vec();
        add(Group::Speeds, Scenario { workload: Workload::Exponential, nodes: 5, speeds_milli, load, ..base() });
    }
    add(Group::Speeds, Scenario { speeds_milli: FOURFOLD.to_vec(), load: 0.7, ..base() });
    for load in [0.5, 0.8] {
        add(Group::Speeds, Scenario { ingress: Ingress::Bursts, nodes: 16, load, ..base() });
    }
    add(Group::Speeds, Scenario { ingress: Ingress::Zipf, nodes: 16, ..base() });
    cells
}

/// The cells of the full matrix, each once, those that no policy can carry left out; and how many those are.
pub fn full() -> (Vec<Cell>, usize) {
    // A cell that comes twice stays in the more particular group.
    let all = quick().into_iter().chain(others()).chain(held_out()).chain(pairs());
    let mut names = BTreeSet::new();
    let (bearable, unbearable): (Vec<Cell>, Vec<Cell>) =
        all.filter(|cell| names.insert(cell.name())).partition(|cell| is_bearable(&cell.scenario));
    (bearable, unbearable.len())
}

/// Sets a factor of a scenario to one of its levels.
type Level = Box<dyn Fn(&mut Scenario)>;

/// A factor: its levels.
fn factor<T: Clone + 'static>(levels: &[T], set: fn(&mut Scenario, T)) -> Vec<Level> {
    let level = |level: &T| {
        let level = level.clone();
        Box::new(move |scenario: &mut Scenario| set(scenario, level.clone())) as Level
    };
    levels.iter().map(level).collect()
}

/// Every pair of levels of two factors, the other factors at the base cell.
fn pairs() -> Vec<Cell> {
    let factors = [
        factor(&WORKLOADS, |scenario, workload| scenario.workload = workload),
        factor(&INGRESS, |scenario, ingress| scenario.ingress = ingress),
        factor(&NODES, |scenario, nodes| scenario.nodes = nodes),
        factor(&INTERVALS_US, |scenario, us| scenario.reports = each_us(us)),
        factor(&REDIRECTS_US, |scenario, cost| scenario.forwarding = redirect(cost)),
        factor(&LOADS, |scenario, load| scenario.load = load),
    ];
    let mut cells = Vec::new();
    for (index, first) in factors.iter().enumerate() {
        for (one, other) in factors[index + 1..]
            .iter()
            .flat_map(|second| first.iter().flat_map(move |one| second.iter().map(move |other| (one, other))))
        {
            let mut scenario = Scenario::default();
            one(&mut scenario);
            other(&mut scenario);
            cells.push(Cell::new(Group::Pairs, scenario));
        }
    }
    cells
}

/// One more factor at the base cell.
fn others() -> Vec<Cell> {
    let base = Scenario::default;
    let estimates = [Estimates::LogSigma(0.2), Estimates::LogSigma(0.5), Estimates::LogSigma(1.0), Estimates::KindMean];
    let mut scenarios: Vec<Scenario> = estimates.map(|estimates| Scenario { estimates, ..base() }).to_vec();
    scenarios.extend([Workload::Exponential, Workload::Pareto].map(|workload| Scenario {
        workload,
        estimates: Estimates::LogSigma(0.5),
        ..base()
    }));
    scenarios.extend([2, 4].map(|workers| Scenario { workers, ..base() }));
    scenarios.extend([0.01, 0.1].map(|loss| Scenario { reports: Reports { loss, ..Reports::default() }, ..base() }));
    scenarios.extend([0.5, 0.9].map(|load| Scenario { speeds_milli: FOURFOLD.to_vec(), load, ..base() }));
    let failures = vec![Failure { node: 1, at_ns: 20_000_000, until_ns: Some(60_000_000) }];
    scenarios.push(Scenario { failures, load: 0.6, ..base() });
    scenarios.into_iter().map(|scenario| Cell::new(Group::Others, scenario)).collect()
}

/// The survey's held-out cells: shapes that none of the settings of `sooner` was chosen on.
fn held_out() -> Vec<Cell> {
    let base = Scenario::default;
    let bursts = |cost| Scenario {
        workload: Workload::Bi90,
        ingress: Ingress::Bursts,
        nodes: 24,
        load: 0.65,
        forwarding: redirect(cost),
        ..base()
    };
    let pareto = Scenario { workload: Workload::Pareto, ingress: Ingress::Zipf, nodes: 12, load: 0.85, ..base() };
    let slowing = vec![1500, 1300, 1100, 900, 700, 500];
    let scenarios = [
        Scenario { nodes: 16, ingress: Ingress::Skewed(0.5), forwarding: redirect((0.5, 3.0)), ..base() },
        pareto,
        bursts((1.0, 2.0)),
        bursts((0.5, 2.0)),
        Scenario { nodes: 6, speeds_milli: slowing, ..base() },
        Scenario { nodes: 256, reports: each_us(1_000), ..base() },
        Scenario { workload: Workload::Exponential, nodes: 64, reports: each_us(300), ..base() },
        Scenario { workload: Workload::Bi995, nodes: 16, ..base() },
    ];
    scenarios.map(|scenario| Cell::new(Group::HeldOut, scenario)).to_vec()
}

/// Whether the cluster can carry the work at all, redirects included: a node that gets more than it can do must send
/// the rest away, and pays for that as the receivers do.
pub fn is_bearable(scenario: &Scenario) -> bool {
    let mean_ns = scenario.mean_service_ns;
    let send_ns = f64::from(scenario.forwarding.send_ns);
    let both_ns = send_ns + f64::from(scenario.forwarding.receive_ns);
    let rate = 1.0 / scenario.gap_ns();
    let workers = scenario.workers as f64;
    let mut work = rate * mean_ns;
    for (node, weight) in scenario.ingress.weights(scenario.nodes).into_iter().enumerate() {
        let (arriving, capacity) = (rate * weight, f64::from(scenario.speed_milli(node)) / 1000.0 * workers);
        // Of what arrives, so much a ns must leave that the rest and the sending fit.
        let excess = arriving * mean_ns - capacity;
        if excess > 0.0 {
            let leaving = excess / (mean_ns - send_ns);
            if mean_ns <= send_ns || leaving > arriving {
                return false;
            }
            work += leaving * both_ns;
        }
    }
    work < scenario.capacity()
}

#[cfg(test)]
#[path = "cells_tests.rs"]
mod tests;

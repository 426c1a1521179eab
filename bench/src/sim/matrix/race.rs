//! Runs a matrix: every cell, every contender and bound, every seed, on the same packets.

use anyhow::Result;
use dataplane_common::tuning::Tuning;

use super::super::comparison::{Row, parallel};
use super::super::scenario::Scenario;
use super::super::statistics::{Estimate, Latency, Outcome};
use super::super::{bounds, run};
use super::cells::Cell;
use super::contender::Contender;

/// A bound, or what takes a bound's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// One queue for all workers, in order of arrival.
    CentralFcfs,
    /// One queue for all workers, shortest first.
    CentralShortest,
    /// Redirecting with every load known at every moment.
    Oracle,
}

impl Bound {
    /// Every bound, in the order of the records.
    pub const ALL: [Self; 3] = [Self::CentralFcfs, Self::CentralShortest, Self::Oracle];

    /// Name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CentralFcfs => "central-fcfs",
            Self::CentralShortest => "central-shortest",
            Self::Oracle => "oracle",
        }
    }
}

/// Who ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// A bound.
    Bound(Bound),
    /// A contender.
    Contender(Contender),
}

impl Runner {
    /// Name in files and tables.
    pub fn name(&self) -> String {
        match self {
            Self::Bound(bound) => bound.name().to_owned(),
            Self::Contender(contender) => contender.to_string(),
        }
    }

    /// The contender, unless it is a bound.
    pub const fn contender(&self) -> Option<&Contender> {
        match self {
            Self::Contender(contender) => Some(contender),
            Self::Bound(_) => None,
        }
    }
}

/// What a matrix is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The cells.
    pub cells: Vec<Cell>,
    /// Cells that were left out because no policy can carry them.
    pub left_out: usize,
    /// What competes.
    pub contenders: Vec<Contender>,
    /// Settings of the policies.
    pub tuning: Tuning,
    /// Seeds of the runs of a cell.
    pub seeds: Vec<u64>,
}

/// Reports that a run sees at least, and packets that each node gets at least, on average.
const LEAST: (f64, f64) = (10.0, 500.0);
/// Times the usual number of packets that a run has at most.
const MOST: u64 = 10;
/// Share of the packets that comes first and is not measured.
const WARM_UP: f64 = 0.1;

impl Plan {
    /// Gives every cell its packets: `packets`, and up to ten times as many where reports are rare or nodes are many.
    pub fn size(&mut self, packets: u64) {
        for Cell { scenario, .. } in &mut self.cells {
            let (reports, per_node) = LEAST;
            let least = (reports * scenario.reports.interval_ns as f64 / scenario.gap_ns())
                .max(per_node * scenario.nodes as f64);
            scenario.packets = (least.ceil() as u64).clamp(packets, packets.saturating_mul(MOST));
            scenario.warm_up = (scenario.packets as f64 * WARM_UP) as u64;
        }
    }

    /// Who runs in each cell, in the order of the records: bounds, then contenders.
    pub fn runners(&self) -> Vec<Runner> {
        let bounds = Bound::ALL.into_iter().map(Runner::Bound);
        bounds.chain(self.contenders.iter().copied().map(Runner::Contender)).collect()
    }

    /// Simulations in all.
    pub fn runs(&self) -> usize {
        self.cells.len() * self.runners().len() * self.seeds.len()
    }

    /// Runs everything, `jobs` simulations at a time, and calls `done` after each. The records do not depend on `jobs`.
    ///
    /// # Errors
    /// A cell is impossible.
    pub fn run(&self, jobs: usize, done: &(dyn Fn() + Sync)) -> Result<Vec<Record>> {
        let runners = self.runners();
        let (cells, seeds) = (0..self.cells.len(), &self.seeds);
        let runs: Vec<(usize, Runner, u64)> = cells
            .flat_map(|cell| {
                runners.iter().flat_map(move |runner| seeds.iter().map(move |seed| (cell, *runner, *seed)))
            })
            .collect();
        let finished = parallel(jobs, &runs, |(cell, runner, seed)| {
            let result = self.simulate(&self.cells[*cell].scenario, runner, *seed);
            done();
            result
        })?;
        let mut finished = finished.into_iter();
        let mut records = Vec::with_capacity(self.cells.len() * runners.len());
        for cell in 0..self.cells.len() {
            let mut central = Vec::new();
            for runner in &runners {
                let outcomes: Vec<Outcome> = finished.by_ref().take(seeds.len()).collect();
                let means_ns: Vec<f64> = outcomes.iter().map(|outcome| outcome.latency.mean_ns).collect();
                if central.is_empty() {
                    central.clone_from(&means_ns);
                }
                records.push(Record::new((cell, *runner), outcomes, means_ns, &central));
            }
        }
        Ok(records)
    }

    fn simulate(&self, scenario: &Scenario, runner: &Runner, seed: u64) -> Result<Outcome> {
        let only = |latency: Latency| Outcome { latency, ..Outcome::default() };
        match runner {
            Runner::Bound(Bound::CentralFcfs) => bounds::central_fcfs(scenario, seed).map(only),
            Runner::Bound(Bound::CentralShortest) => bounds::central_shortest(scenario, seed).map(only),
            Runner::Bound(Bound::Oracle) => bounds::oracle(scenario, &self.tuning, seed),
            Runner::Contender(contender) => {
                run(&contender.scenario(scenario), contender.policy, &contender.tuning(&self.tuning), seed)
            }
        }
    }
}

/// What a runner did in a cell.
#[derive(Clone, Debug)]
pub struct Record {
    /// The cell: its place in the plan.
    pub cell: usize,
    /// Who ran.
    pub runner: Runner,
    /// Mean latency by seed, ns.
    pub means_ns: Vec<f64>,
    /// 99th percentile of latency, ns.
    pub p99_ns: Estimate,
    /// Means over the seeds.
    pub row: Row,
}

impl Record {
    fn new((cell, runner): (usize, Runner), outcomes: Vec<Outcome>, means_ns: Vec<f64>, central: &[f64]) -> Self {
        let name = runner.name();
        let row = match runner {
            Runner::Bound(Bound::CentralFcfs | Bound::CentralShortest) => Row::bound(&name, &means_ns, central),
            _ => Row::policy(&name, &outcomes, central),
        };
        let p99_ns = Estimate::of(outcomes.iter().map(|outcome| outcome.latency.p99_ns as f64));
        Self { cell, runner, means_ns, p99_ns, row }
    }

    /// The contender, unless a bound ran.
    pub const fn contender(&self) -> Option<&Contender> {
        self.runner.contender()
    }
}

//! Simulator and cluster side by side, as text and as `validate.json`.

use std::fmt::Write as _;

use serde::Serialize;

use super::costs::Costs;
use super::way::Way;
use crate::cpu::CpuShares;
use crate::demo::round::Round;
use crate::demo::setup::Setup;
use crate::demo::table::{align, format_ns, format_share};
use crate::environment::Environment;
use crate::sim;

/// Format of `validate.json`.
pub const SCHEMA: &str = "dataplane.validate/1";

/// Figures of one side: latencies in ns, mean over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Mean latency.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// Share of packets computed by another node.
    pub forwarded_share: f64,
    /// Busy share of node 1.
    pub busy_first: f64,
}

impl Figures {
    fn mean<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let (mut sum, mut count) = (Self::default(), 0.0);
        for figures in all {
            count += 1.0;
            sum.mean_ns += figures.mean_ns;
            sum.p50_ns += figures.p50_ns;
            sum.p99_ns += figures.p99_ns;
            sum.forwarded_share += figures.forwarded_share;
            sum.busy_first += figures.busy_first;
        }
        let by = |value: f64| if count > 0.0 { value / count } else { 0.0 };
        Self {
            mean_ns: by(sum.mean_ns),
            p50_ns: by(sum.p50_ns),
            p99_ns: by(sum.p99_ns),
            forwarded_share: by(sum.forwarded_share),
            busy_first: by(sum.busy_first),
        }
    }
}

/// One round on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct RoundOutcome {
    /// Measured on the cluster.
    pub cluster: Figures,
    /// Simulated; the way to a worker and back and the generator's lateness are added.
    pub simulator: Figures,
    /// What packets cost in the round.
    pub costs: Costs,
    /// Who used the CPUs.
    pub cpu: CpuShares,
}

impl RoundOutcome {
    /// Puts a round and its simulation side by side.
    pub fn new(round: &Round, simulated: &sim::Outcome, costs: Costs, way: &Way) -> Self {
        let latency = &round.report.latency;
        let cluster = Figures {
            mean_ns: latency.mean_ns(),
            p50_ns: latency.quantile_ns(0.5) as f64,
            p99_ns: latency.quantile_ns(0.99) as f64,
            forwarded_share: round.interconnect.forwards as f64 / round.report.counts.sent.max(1) as f64,
            busy_first: round.busy.first().copied().unwrap_or(0.0),
        };
        let outside_ns = way.path_ns + costs.lag_ns;
        let simulator = Figures {
            mean_ns: simulated.latency.mean_ns + outside_ns,
            p50_ns: simulated.latency.p50_ns as f64 + outside_ns,
            p99_ns: simulated.latency.p99_ns as f64 + outside_ns,
            forwarded_share: simulated.forwarded(),
            busy_first: simulated.utilisation.first().copied().unwrap_or(0.0),
        };
        Self { cluster, simulator, costs, cpu: round.cpu }
    }

    /// For people, while it goes on.
    pub fn line(&self) -> String {
        format!(
            "mean {} on the cluster, {} in the simulator ({:+.1} %)",
            format_ns(self.cluster.mean_ns),
            format_ns(self.simulator.mean_ns),
            difference(self.simulator.mean_ns, self.cluster.mean_ns)
        )
    }
}

/// What the simulator says more than the cluster, percent.
fn difference(simulator: f64, cluster: f64) -> f64 {
    if cluster > 0.0 { (simulator / cluster - 1.0) * 100.0 } else { 0.0 }
}

/// One policy on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyOutcome {
    /// The policy.
    pub policy: String,
    /// The cluster, mean over the rounds.
    pub cluster: Figures,
    /// The simulator, mean over the rounds.
    pub simulator: Figures,
    /// What the simulator's mean is above the cluster's, percent.
    pub mean_difference: f64,
    /// The same of the median.
    pub p50_difference: f64,
    /// The same of the 99th percentile.
    pub p99_difference: f64,
    /// Each round.
    pub rounds: Vec<RoundOutcome>,
}

impl PolicyOutcome {
    /// A policy without rounds.
    pub fn new(policy: &str) -> Self {
        let (cluster, simulator) = (Figures::default(), Figures::default());
        let policy = policy.to_owned();
        Self {
            policy,
            cluster,
            simulator,
            mean_difference: 0.0,
            p50_difference: 0.0,
            p99_difference: 0.0,
            rounds: Vec::new(),
        }
    }

    fn sum_up(&mut self) {
        self.cluster = Figures::mean(self.rounds.iter().map(|round| &round.cluster));
        self.simulator = Figures::mean(self.rounds.iter().map(|round| &round.simulator));
        self.mean_difference = difference(self.simulator.mean_ns, self.cluster.mean_ns);
        self.p50_difference = difference(self.simulator.p50_ns, self.cluster.p50_ns);
        self.p99_difference = difference(self.simulator.p99_ns, self.cluster.p99_ns);
    }

    fn cells(&self) -> Vec<String> {
        let (cluster, simulator) = (&self.cluster, &self.simulator);
        let mut cells = vec![self.policy.clone()];
        for (cluster, simulator) in [
            (cluster.mean_ns, simulator.mean_ns),
            (cluster.p50_ns, simulator.p50_ns),
            (cluster.p99_ns, simulator.p99_ns),
        ] {
            let more = format!("{:+.1} %", difference(simulator, cluster));
            cells.extend([format_ns(cluster), format_ns(simulator), more]);
        }
        cells.extend([cluster.forwarded_share, simulator.forwarded_share].map(format_share));
        cells.extend([cluster.busy_first, simulator.busy_first].map(format_share));
        cells
    }
}

/// `validate.json`.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    schema: &'static str,
    /// The machine.
    pub host: Environment,
    /// The command that was run.
    pub command: String,
    /// What was run on the cluster.
    pub setup: Setup,
    /// The way of a packet without work.
    pub way: Way,
    /// Largest difference of the means that passes, percent.
    pub tolerance: f64,
    /// Policies whose means differ by more.
    pub beyond_tolerance: Vec<String>,
    /// Each policy.
    pub policies: Vec<PolicyOutcome>,
}

impl Outcome {
    /// Puts everything together.
    pub fn new(
        host: Environment,
        command: String,
        setup: Setup,
        way: Way,
        tolerance: f64,
        mut policies: Vec<PolicyOutcome>,
    ) -> Self {
        policies.iter_mut().for_each(PolicyOutcome::sum_up);
        let beyond = policies.iter().filter(|policy| policy.mean_difference.abs() > tolerance);
        let beyond_tolerance = beyond.map(|policy| policy.policy.clone()).collect();
        Self { schema: SCHEMA, host, command, setup, way, tolerance, beyond_tolerance, policies }
    }

    /// For people.
    pub fn text(&self) -> String {
        let head =
            ["policy", "mean: cluster", "sim", "diff", "p50: cluster", "sim", "diff", "p99: cluster", "sim", "diff"];
        let head = head.into_iter().chain(["fwd: cluster", "sim", "busy n1: cluster", "sim"]);
        let mut rows = vec![head.map(str::to_owned).collect()];
        rows.extend(self.policies.iter().map(PolicyOutcome::cells));
        let mut text = format!("{}\n", align(&rows));
        text += &self.costs();
        let tolerance = self.tolerance;
        let _ = match self.beyond_tolerance.as_slice() {
            [] => writeln!(text, "every mean is within {tolerance} % of the cluster's"),
            beyond => writeln!(text, "NOT within {tolerance} % of the cluster's mean: {}", beyond.join(", ")),
        };
        text
    }

    /// The costs as means over all rounds, and what disturbed them.
    fn costs(&self) -> String {
        let rounds = || self.policies.iter().flat_map(|policy| &policy.rounds);
        let count = rounds().count().max(1) as f64;
        let mean = |value: &dyn Fn(&Costs) -> f64| rounds().map(|round| value(&round.costs)).sum::<f64>() / count;
        let kinds = self.setup.mix.iter().enumerate().map(|(at, kind)| {
            let how = if kind.emulated { " (emulated)" } else { "" };
            format!("{}{how} {}", kind.name, format_ns(mean(&|costs| costs.service_ns[at])))
        });
        let cpu = CpuShares::mean(&rounds().map(|round| round.cpu).collect::<Vec<_>>());
        format!(
            "measured and given to the simulator, means: {}; outside functions {}; send {}, receive {}, wire {}; generator late by \
             {}\n{}\nother programs (noise) {} of all CPUs, stolen {}\n",
            kinds.collect::<Vec<_>>().join(", "),
            format_ns(mean(&|costs| costs.outside_ns)),
            format_ns(mean(&|costs| costs.send_ns)),
            format_ns(mean(&|costs| costs.receive_ns)),
            format_ns(mean(&|costs| costs.wire_ns)),
            format_ns(mean(&|costs| costs.lag_ns)),
            self.way.line(),
            format_share(cpu.others),
            format_share(cpu.stolen),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_of_means_over_the_rounds() {
        let figures = |mean_ns| Figures { mean_ns, ..Figures::default() };
        let costs = Costs {
            service_ns: vec![],
            speeds_milli: vec![],
            outside_ns: 0.0,
            send_ns: 0.0,
            receive_ns: 0.0,
            wire_ns: 0.0,
            lag_ns: 0.0,
        };
        let round = |cluster, simulator| RoundOutcome {
            cluster: figures(cluster),
            simulator: figures(simulator),
            costs: costs.clone(),
            cpu: CpuShares::default(),
        };
        let mut policy = PolicyOutcome::new("ept");
        policy.rounds = vec![round(100.0, 120.0), round(300.0, 320.0)];
        policy.sum_up();
        assert!((policy.mean_difference - 10.0).abs() < 1e-9, "{policy:?}");
        assert_eq!((policy.p99_difference, policy.cells().len()), (0.0, 14));
    }
}

//! The options that describe a cluster, its traffic and its runs.

use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use dataplane_bench::sim::comparison::{Row, compare};
use dataplane_bench::sim::{Egress, Estimates, Failure, Ingress, Pull, ReportMode, Reports, Scenario, Workload};
use dataplane_common::load::{Forwarding, saturate};
use dataplane_common::policy::PolicyKind;
use serde_json::Value;

use crate::settings::{Settings, run_seeds};
use crate::traffic::Recorded;

/// One cell of the comparison: the scenario, the settings of the policies, the seeds.
#[derive(Args)]
pub struct Cell {
    /// Nodes.
    #[arg(long, default_value_t = 8)]
    nodes: usize,
    /// Workers of each node.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// Speeds of the nodes, 1 = the reference node, separated by commas and repeated as often as needed.
    #[arg(long, value_delimiter = ',')]
    speeds: Vec<f64>,
    /// Work that arrives, as a share of what the cluster can do. [default: 0.8, or as it was recorded]
    #[arg(long)]
    load: Option<f64>,
    /// Service times: exp, det, bi90, bi995, pareto, low-high.
    #[arg(long, default_value = "low-high")]
    workload: String,
    /// Mean service time, µs.
    #[arg(long, default_value_t = 10.0)]
    service_us: f64,
    /// Where packets arrive: uniform, zipf, bursts, skew:SHARE (of node 0), or weights separated by commas.
    #[arg(long, default_value = "uniform")]
    ingress: String,
    #[command(flatten)]
    recorded: Recorded,
    /// Flows of each node.
    #[arg(long, default_value_t = 64)]
    flows: u32,
    /// Popularity of flows: 1 = all alike, 2 = the first of n gets the part 1/√n.
    #[arg(long, default_value_t = 1.0)]
    flow_skew: f64,
    /// Keys that packets are about, by Zipf's law; 0 = one for each flow.
    #[arg(long, default_value_t = 0)]
    keys: u32,
    /// Parts of the classes 0, 1, … in the traffic, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    classes: Vec<f64>,
    /// Quality of the estimates: exact, kind (the mean of the kind), or the standard deviation of their logarithm.
    #[arg(long, default_value = "exact")]
    estimates: String,
    /// CPU time of sending a packet to a peer, µs.
    #[arg(long, default_value_t = 0.5)]
    send_us: f64,
    /// CPU time of receiving it, µs.
    #[arg(long, default_value_t = 0.5)]
    receive_us: f64,
    /// Time on the wire, µs.
    #[arg(long, default_value_t = 2.0)]
    wire_us: f64,
    /// Rate of the links, Gbit/s; 0 = no time for transmission.
    #[arg(long, default_value_t = 0.0)]
    gbps: f64,
    /// Probability that a forwarded packet or its result is lost.
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Where results leave, and latency ends.
    #[arg(long, value_enum, default_value_t = Leave::Direct)]
    egress: Leave,
    /// Time between two reports, µs.
    #[arg(long, default_value_t = 100.0)]
    report_us: f64,
    /// When nodes report: periodic, on-finish, k-finish:PERCENT, threshold.
    #[arg(long, default_value = "periodic")]
    report_mode: String,
    /// Least time between two reports of a node in the event modes, µs.
    #[arg(long, default_value_t = 0.0)]
    report_gap_us: f64,
    /// Probability that a report does not reach a receiver.
    #[arg(long, default_value_t = 0.0)]
    report_loss: f64,
    /// CPU time that each receiver spends on a report, µs.
    #[arg(long, default_value_t = 0.0)]
    report_receive_us: f64,
    /// Only reports carry loads.
    #[arg(long)]
    no_piggyback: bool,
    /// Whether idle workers ask other nodes for work.
    #[arg(long, value_enum, default_value_t = Asks::ByPolicy)]
    pull: Asks,
    /// Packets that a node can hold, 0 = any number.
    #[arg(long, default_value_t = 0)]
    memory: u32,
    /// A node stops, and comes back: NODE@MS or NODE@MS-MS; may be repeated.
    #[arg(long = "fail", value_name = "NODE@MS[-MS]")]
    failures: Vec<String>,
    /// Redirects that cost more CPU than the packet are allowed.
    #[arg(long)]
    no_guard: bool,
    #[command(flatten)]
    settings: Settings,
    /// Packets of a run. [default: 100000, or as many as were recorded]
    #[arg(long)]
    packets: Option<u64>,
    /// Share of them that comes first and is not measured.
    #[arg(long, default_value_t = 0.1)]
    warm_up: f64,
    /// Runs, each with a seed of its own.
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Seed of the first run; the others follow.
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Runs at the same time.
    #[arg(long, default_value_t = thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Leave {
    /// At the node that computed them.
    Direct,
    /// At the node of arrival.
    Ingress,
    /// At the node of arrival, in the order of its flow.
    Ordered,
}

#[derive(Clone, Copy, ValueEnum)]
enum Asks {
    /// When the policy lives on it.
    ByPolicy,
    /// Never.
    Never,
    /// Whatever the policy.
    Always,
}

/// Nanoseconds of so many microseconds.
fn ns(us: f64, what: &str) -> Result<u32> {
    ensure!((0.0..=4e6).contains(&us), "{what}: {us} µs is not between 0 and 4 s");
    Ok(saturate((us * 1000.0).round() as u64))
}

/// A failure from NODE@MS or NODE@MS-MS.
fn failure(text: &str) -> Result<Failure> {
    let help = || format!("--fail {text} is not of the form NODE@MS or NODE@MS-MS");
    let ms = |text: &str| text.parse::<f64>().map(|ms| (ms * 1e6) as u64).with_context(help);
    let (node, times) = text.split_once('@').with_context(help)?;
    let (at, until) = times.split_once('-').map_or((times, None), |(at, until)| (at, Some(until)));
    let node = node.parse().with_context(help)?;
    Ok(Failure { node, at_ns: ms(at)?, until_ns: until.map(ms).transpose()? })
}

impl Cell {
    fn scenario(&self) -> Result<Scenario> {
        let bytes_ns = if self.gbps > 0.0 { 8.0 / self.gbps } else { 0.0 };
        let wire_ns = ns(self.wire_us, "--wire-us")?;
        let default = Scenario::default();
        let scenario = Scenario {
            nodes: self.nodes,
            workers: self.workers,
            speeds_milli: self.speeds.iter().map(|speed| (speed * 1000.0).round() as u32).collect(),
            load: self.load.unwrap_or(default.load),
            workload: self.workload()?,
            mean_service_ns: self.service_us * 1000.0,
            ingress: self.ingress()?,
            flows: self.flows,
            flow_skew: self.flow_skew,
            keys: self.keys,
            classes: self.classes.clone(),
            estimates: self.estimates()?,
            memory_packets: self.memory,
            guard: !self.no_guard,
            forwarding: Forwarding {
                send_ns: ns(self.send_us, "--send-us")?,
                receive_ns: ns(self.receive_us, "--receive-us")?,
                wire_ns,
                wire_ns_per_byte_q16: saturate((bytes_ns * 65536.0).round() as u64),
            },
            loss: self.loss,
            egress: match self.egress {
                Leave::Direct => Egress::Direct,
                Leave::Ingress => Egress::Ingress,
                Leave::Ordered => Egress::Ordered,
            },
            reports: Reports {
                mode: self.report_mode()?,
                interval_ns: ns(self.report_us, "--report-us")?.into(),
                gap_ns: ns(self.report_gap_us, "--report-gap-us")?.into(),
                delay_ns: wire_ns.into(),
                loss: self.report_loss,
                receive_ns: ns(self.report_receive_us, "--report-receive-us")?,
                piggyback: !self.no_piggyback,
            },
            pull: match self.pull {
                Asks::ByPolicy => Pull::ByPolicy,
                Asks::Never => Pull::Never,
                Asks::Always => Pull::Always,
            },
            failures: self.failures.iter().map(|text| failure(text)).collect::<Result<_>>()?,
            packets: self.packets.unwrap_or(default.packets),
            ..default
        };
        let scenario = self.recorded.play(scenario, self.load, self.packets)?;
        ensure!((0.0..1.0).contains(&self.warm_up), "--warm-up {}: from 0 to below 1", self.warm_up);
        let scenario = Scenario { warm_up: (scenario.packets as f64 * self.warm_up) as u64, ..scenario };
        scenario.check()?;
        Ok(scenario)
    }

    fn workload(&self) -> Result<Workload> {
        let names = Workload::ALL.map(Workload::name).join(", ");
        Workload::from_name(&self.workload).with_context(|| format!("no workload {}; there are {names}", self.workload))
    }

    fn ingress(&self) -> Result<Ingress> {
        let text = self.ingress.as_str();
        if let Some(share) = text.strip_prefix("skew:") {
            return Ok(Ingress::Skewed(share.parse().with_context(|| format!("share of node 0 in --ingress {text}"))?));
        }
        Ok(match text {
            "uniform" => Ingress::Uniform,
            "zipf" => Ingress::Zipf,
            "bursts" => Ingress::Bursts,
            weights => {
                let weights = weights.split(',').map(str::parse).collect::<Result<Vec<f64>, _>>();
                let help = "uniform, zipf, bursts, skew:SHARE, or weights separated by commas";
                Ingress::Weights(weights.with_context(|| format!("--ingress {text} is none of: {help}"))?)
            }
        })
    }

    fn estimates(&self) -> Result<Estimates> {
        Ok(match self.estimates.as_str() {
            "exact" => Estimates::Exact,
            "kind" => Estimates::KindMean,
            sigma => {
                let help = || format!("--estimates {sigma} is none of: exact, kind, a number");
                Estimates::LogSigma(sigma.parse().with_context(help)?)
            }
        })
    }

    fn report_mode(&self) -> Result<ReportMode> {
        if let Some(percent) = self.report_mode.strip_prefix("k-finish:") {
            let percent: f64 = percent.parse().context("percentage in --report-mode k-finish:PERCENT")?;
            ensure!(percent > 0.0 && percent <= 100.0, "--report-mode k-finish:{percent}: more than 0, at most 100");
            return Ok(ReportMode::KFinish((percent * 10.0).round() as u32));
        }
        Ok(match self.report_mode.as_str() {
            "periodic" => ReportMode::Periodic,
            "on-finish" => ReportMode::OnFinish,
            "threshold" => ReportMode::Threshold,
            other => bail!("no report mode {other}; there are periodic, on-finish, k-finish:PERCENT, threshold"),
        })
    }

    /// Simulates `policies` and prints the comparison.
    ///
    /// # Errors
    /// An option has an impossible value.
    pub fn run(&self, policies: &[PolicyKind]) -> Result<()> {
        let seeds = run_seeds(self.first_seed, self.seeds)?;
        let rows = compare(&self.scenario()?, policies, &self.settings.tuning()?, &seeds, self.jobs)?;
        if self.json {
            let rows: Vec<Value> = rows.iter().map(Row::json).collect();
            println!("{}", serde_json::to_string_pretty(&rows)?);
        } else {
            println!("{}", Row::head());
            rows.iter().for_each(|row| println!("{}", row.text()));
            let losses: Vec<String> = rows.iter().filter_map(Row::losses).collect();
            if !losses.is_empty() {
                println!("\n{}", losses.join("\n"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;

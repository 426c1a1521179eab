//! `dataplane-bench latency`: how long an answer takes at 10, 50 and 90 % of the highest rate with little loss.
//!
//! Open loop: every packet has its time of departure before the first one leaves, and latency counts from that time, so a
//! late departure or a slow answer is not hidden (no coordinated omission). Loss stands beside each distribution: a packet that
//! does not come back has no latency, and leaving it out makes the others look better.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use dataplane_common::policy::PolicyKind;
use serde::Serialize;

use crate::autogroup::Favoured;
use crate::cpu::{Noise, NoiseWatch};
use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::peers;
use crate::topology::{self, BPFFS, Cluster, NodeSettings, Purpose, Scheduling, Shape};
use crate::traffic::{Counts, Distribution, GeneratorPlan, Kind, Workload, session};

/// Format of `latency.json`.
pub const SCHEMA: &str = "dataplane.latency/1";
/// The node that answers.
const NODE: u16 = 1;
/// The generator stops waiting for packets when none has come for this long.
const QUIET: Duration = Duration::from_millis(500);
/// Percentiles in the table: name and share.
const QUANTILES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)];

/// Options of `latency`.
#[derive(Args, Debug)]
pub struct Options {
    /// Highest rate with little loss, frames per second; without it, the PDR that `throughput` found for the answering
    /// dataplane and left in --out.
    #[arg(long)]
    pdr: Option<f64>,
    /// Shares of it, percent, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "10,50,90")]
    levels: Vec<u32>,
    /// Policy of the node.
    #[arg(long, default_value = "ept-erl")]
    policy: String,
    /// Measured time of each level, s.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Time before it that is not measured, s.
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// Length of the frames without frame check sequence, bytes.
    #[arg(long, default_value_t = 74)]
    frame_bytes: usize,
    /// Seed of the departures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write latency.json.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

/// The result at one level.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    /// Share of the PDR, percent.
    pub percent: u32,
    /// Frames per second, on average: departures are a Poisson process.
    pub rate: f64,
    /// What was sent, what came back.
    pub counts: Counts,
    /// Packets that did not come back.
    pub lost: u64,
    /// From the scheduled departure to the arrival at the generator's XDP program.
    pub latency: Distribution,
    /// From the scheduled departure to the actual one: the generator's own part of the latency.
    pub lag: Distribution,
    /// What disturbed it.
    pub noise: Noise,
}

/// All levels.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The machine.
    pub environment: Environment,
    /// Policy of the node.
    pub policy: String,
    /// How XDP was attached and sockets were bound.
    pub mode: &'static str,
    /// The rate whose shares the levels are, frames per second.
    pub pdr: f64,
    /// Length of the frames without frame check sequence, bytes.
    pub frame_bytes: usize,
    /// Measured time of each level, s.
    pub seconds: f64,
    /// The levels.
    pub levels: Vec<Level>,
}

/// Measures every level: prints the table, writes `latency.json`.
///
/// # Errors
/// There is no PDR, the node or the generator fails, or this process was interrupted.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    ensure!(PolicyKind::from_name(&options.policy).is_some(), "no policy {}", options.policy);
    ensure!(options.seconds > 0.0 && options.seconds <= 3600.0, "--seconds {}: up to an hour", options.seconds);
    ensure!((0.0..=60.0).contains(&options.warm_up), "--warm-up {}: up to a minute", options.warm_up);
    let pdr = match options.pdr {
        Some(pdr) => pdr,
        None => found_pdr(&options.out, &options.policy)?,
    };
    ensure!(pdr.is_finite() && pdr > 0.0, "--pdr {pdr}: not a rate");
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        eprintln!("removed {cluster}, left by a run that was killed");
    }
    let environment = Environment::take();
    let _favoured = Favoured::take();
    let mut cluster = Cluster::build(Shape::new(Purpose::Bench, 2))?;
    let settings = NodeSettings {
        scheduling: Scheduling::Favoured,
        ..NodeSettings::new(&options.policy, environment.cores.saturating_sub(1))
    };
    cluster.start(NODE, &settings, interrupt)?;
    // What this thread starts stays off the tested CPU; on a machine with one CPU there is no other.
    core_affinity::set_for_current(core_affinity::CoreId { id: 0 });
    let mut levels = Vec::new();
    for percent in &options.levels {
        let level = measure(&cluster, options, *percent, pdr, interrupt)?;
        eprintln!("{percent} % of PDR: {} of {} packets back", level.counts.received, level.counts.sent);
        levels.push(level);
    }
    cluster.stop(NODE)?;
    drop(cluster);
    let outcome = Outcome {
        schema: SCHEMA,
        environment,
        policy: options.policy.clone(),
        mode: "native XDP, AF_XDP in copy mode on a veth",
        pdr,
        frame_bytes: options.frame_bytes,
        seconds: options.seconds,
        levels,
    };
    print!("\n{}", text(&outcome));
    peers::write(&options.out, "latency.json", &outcome)
}

fn measure(cluster: &Cluster, options: &Options, percent: u32, pdr: f64, interrupt: &Interrupt) -> Result<Level> {
    let rate = pdr * f64::from(percent) / 100.0;
    let workload = Workload {
        kinds: vec![Kind::without_work()],
        node_weights: vec![1.0],
        rate_per_s: rate,
        flows: 1,
        burst: None,
        frame_bytes: options.frame_bytes,
        warm_up: Duration::from_secs_f64(options.warm_up),
        measured: Duration::from_secs_f64(options.seconds),
        seed: options.seed,
    };
    let plan = GeneratorPlan { workload, ports: vec![cluster.plan().port(NODE)], quiet: QUIET, late: None };
    let watch = NoiseWatch::begin(&[cluster.pids(), vec![std::process::id()]].concat())?;
    let report = session::run(cluster, &peers::own_program()?, &plan, interrupt, |_| {})
        .with_context(|| format!("{percent} % of PDR, {rate:.0} frames per second"))?;
    Ok(Level {
        percent,
        rate,
        lost: report.counts.lost(),
        counts: report.counts,
        latency: report.latency,
        lag: report.lag,
        noise: watch.end()?,
    })
}

/// The PDR of the answering dataplane in the result of an earlier search, frames per second.
///
/// # Errors
/// There is no such result in the directory.
pub(crate) fn found_pdr(directory: &Path, policy: &str) -> Result<f64> {
    let path = directory.join("throughput.json");
    let describe = || format!("no PDR: run `throughput` first, or give --pdr ({})", path.display());
    let text = fs::read_to_string(&path).with_context(describe)?;
    let value: serde_json::Value = serde_json::from_str(&text).with_context(describe)?;
    pdr_of(&value, policy).with_context(describe)
}

fn pdr_of(value: &serde_json::Value, policy: &str) -> Option<f64> {
    let name = peers::contender::Contender::ProductAnswer(policy.to_owned()).name();
    let contender = value["contenders"].as_array()?.iter().find(|contender| contender["name"] == name)?;
    contender["found"].as_array()?.iter().find(|found| found["goal"]["name"] == "PDR")?["lower"].as_f64()
}

fn text(outcome: &Outcome) -> String {
    let mut text = format!("{}\n", outcome.environment.line());
    let _ = writeln!(
        text,
        "dataplane answer ({}), {}; frames of {} bytes, PDR {:.3} Mpps, {} s each, latency from the scheduled departure, us\n",
        outcome.policy,
        outcome.mode,
        outcome.frame_bytes,
        outcome.pdr / 1e6,
        outcome.seconds
    );
    let _ = write!(text, "{:>7}  {:>8}  {:>9}  {:>7}", "of PDR", "kpps", "sent", "lost");
    for (name, _) in QUANTILES {
        let _ = write!(text, "  {name:>8}");
    }
    let _ = writeln!(text, "  {:>8}  {:>8}  {:>6}  {:>6}", "max", "lag p99", "others", "stolen");
    for level in &outcome.levels {
        let rate = level.rate / 1e3;
        let _ = write!(text, "{:>5} %  {rate:>8.2}  {:>9}  {:>7}", level.percent, level.counts.sent, level.lost);
        for (_, quantile) in QUANTILES {
            let _ = write!(text, "  {:>8.1}", microseconds(level.latency.quantile_ns(quantile)));
        }
        let (max, lag) = (microseconds(level.latency.max_ns()), microseconds(level.lag.quantile_ns(0.99)));
        let (others, stolen) = (level.noise.others * 100.0, level.noise.stolen * 100.0);
        let _ = writeln!(text, "  {max:>8.1}  {lag:>8.1}  {others:>4.0} %  {stolen:>4.0} %");
    }
    text
}

fn microseconds(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pdr_is_that_of_the_answering_dataplane_under_the_policy() {
        let found = |name: &str, lower: u64| json!({"goal": {"name": name}, "lower": lower});
        let value = json!({"contenders": [
            {"name": "devmap redirect", "found": [found("PDR", 9)]},
            {"name": "dataplane answer (ept)", "found": [found("NDR", 1), found("PDR", 2)]},
            {"name": "dataplane answer (local)", "found": []},
        ]});
        assert_eq!(pdr_of(&value, "ept"), Some(2.0));
        assert_eq!(pdr_of(&value, "local"), None);
        assert_eq!(pdr_of(&value, "sooner"), None);
        assert!(found_pdr(Path::new("/nonexistent"), "ept").unwrap_err().to_string().contains("--pdr"));
    }
}

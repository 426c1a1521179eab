//! `dataplane-bench scale`: what more nodes carry. Every packet arrives at node 1 and occupies a server for a millisecond; the
//! load grows with the nodes, so an ideal cluster has the same latency at every size.
//!
//! The service is emulated ([`crate::demo`]): it shows what placement makes of n servers, on any number of cores, and nothing of how
//! fast the cores are. How long a decision takes by the size of the table is in the micro-benchmark `decide`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use super::Log;
use crate::autogroup::Favoured;
use crate::demo;
use crate::demo::pattern::Pattern;
use crate::demo::round::{self, Round};
use crate::demo::setup::{Compute, Order, Setup};
use crate::demo::table::{format_ns, format_share};
use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::topology::{self, BPFFS, Cluster, MAX_NODES, Purpose, Shape};

/// What one node does alone.
const ALONE: &str = "local";

/// Options of `scale`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Options {
    /// Most nodes.
    #[arg(long, default_value_t = MAX_NODES, value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_NODES)))]
    nodes: u16,
    /// Policy of two nodes and more.
    #[arg(long, default_value = "sooner")]
    policy: String,
    /// Load of each server if the work were spread evenly.
    #[arg(long, default_value_t = 0.7)]
    load: f64,
    /// Measured time at each size, s.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seed of the departures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write scale.jsonl.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    #[serde(skip)]
    out: PathBuf,
}

/// A line of `scale.jsonl`.
#[derive(Clone, Debug, Serialize)]
struct Line {
    nodes: u16,
    policy: String,
    /// Packets offered per second.
    rate: f64,
    sent: u64,
    received: u64,
    lost: u64,
    unaccounted: i64,
    /// Share of the packets that another node computed.
    forwarded_share: f64,
    /// Share of the time that each node's worker was busy; the sum says how many servers the cluster made use of.
    busy: Vec<f64>,
    mean_ns: f64,
    p50_ns: u64,
    p99_ns: u64,
}

/// Runs every size: prints the table, writes `scale.jsonl`.
///
/// # Errors
/// An option makes no sense, a node or the generator fails, or this process was interrupted.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    ensure!(options.load > 0.0 && options.load <= 2.0, "--load {}: above 0, up to 2", options.load);
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        eprintln!("removed {cluster}, left by a run that was killed");
    }
    let environment = Environment::take();
    let mut log = Log::create(&options.out, "scale", &environment, options)?;
    let _favoured = Favoured::take();
    let mut lines = Vec::new();
    for nodes in 1..=options.nodes {
        let line = measure(options, nodes, &environment, interrupt)?;
        eprintln!("{nodes} nodes: mean {}, {} lost", format_ns(line.mean_ns), line.lost);
        log.write(&line)?;
        lines.push(line);
    }
    print!("\n{}\n{}", environment.line(), text(&lines));
    log.announce();
    Ok(())
}

/// One size. A single node is the first of two, which keeps everything.
fn measure(options: &Options, nodes: u16, environment: &Environment, interrupt: &Interrupt) -> Result<Line> {
    let policy = if nodes == 1 { ALONE } else { &options.policy };
    let setup = Setup::new(
        &demo::Options {
            nodes: nodes.max(2),
            policies: vec![policy.to_owned()],
            workload: Pattern::High,
            order: Order::None,
            compute: Some(Compute::Emulated),
            seconds: Some(options.seconds),
            rounds: Some(1),
            seed: options.seed,
            share: Some(1.0),
            load: Some(options.load * f64::from(nodes)),
            report_interval: Some(500),
            ..demo::Options::default()
        },
        environment,
    )?;
    let mut cluster = Cluster::build(Shape::new(Purpose::Bench, setup.nodes))?;
    let round = round::run_again(&mut cluster, &setup, policy, 0, interrupt)?;
    Ok(Line::new(nodes, policy, setup.rate_per_s, &round))
}

impl Line {
    fn new(nodes: u16, policy: &str, rate: f64, round: &Round) -> Self {
        let (counts, latency) = (&round.report.counts, &round.report.latency);
        Self {
            nodes,
            policy: policy.to_owned(),
            rate,
            sent: counts.sent,
            received: counts.received,
            lost: counts.lost(),
            unaccounted: round.packets.unaccounted,
            forwarded_share: round.interconnect.forwards as f64 / counts.sent.max(1) as f64,
            busy: round.busy.iter().copied().take(usize::from(nodes)).collect(),
            mean_ns: latency.mean_ns(),
            p50_ns: latency.quantile_ns(0.5),
            p99_ns: latency.quantile_ns(0.99),
        }
    }
}

fn text(lines: &[Line]) -> String {
    let heads = ["nodes", "policy", "rate/s", "sent", "lost", "forwarded", "servers", "mean", "p50", "p99"];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for line in lines {
        rows.push(vec![
            line.nodes.to_string(),
            line.policy.clone(),
            format!("{:.0}", line.rate),
            line.sent.to_string(),
            line.lost.to_string(),
            format_share(line.forwarded_share),
            format!("{:.2}", line.busy.iter().sum::<f64>()),
            format_ns(line.mean_ns),
            format_ns(line.p50_ns as f64),
            format_ns(line.p99_ns as f64),
        ]);
    }
    let mut text = demo::table::align(&rows);
    let _ = writeln!(text, "\nemulated service; servers: those that were busy all the time, all nodes together");
    text
}

//! `dataplane-bench soak`: a long run at a share of the PDR, or under the demonstration's traffic. Ledgers, memory, open files and
//! decisions are looked at all the time; what drifts is said at the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::{Effect, Reason};
use serde::Serialize;

use super::Log;
use crate::autogroup::Favoured;
use crate::demo::setup::Setup;
use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::status::Status;
use crate::topology::{self, BPFFS, Cluster, MAX_NODES, Purpose, Shape};
use crate::traffic::{Event, GeneratorPlan, Kind, Report, Workload, session};
use crate::{demo, latency, peers};

/// The generator stops waiting for packets when none has come for this long.
const QUIET: Duration = Duration::from_millis(500);
/// Looks at the ledgers before an imbalance at the end is believed.
const LOOKS: u32 = 20;
/// Growth of memory below which nothing is said to drift, KiB: what an allocator keeps.
const SLACK_KIB: u64 = 512;

/// Options of `soak`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Options {
    /// Length of the run, s.
    #[arg(long, default_value_t = 600.0)]
    seconds: f64,
    /// Time between two samples, s.
    #[arg(long, default_value_t = 5.0)]
    every: f64,
    /// Nodes of the cluster; packets arrive at node 1, with --load at all.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_NODES)))]
    nodes: u16,
    /// Policy of the nodes.
    #[arg(long, default_value = "ept-erl")]
    policy: String,
    /// Highest rate with little loss, frames per second; without it, the PDR that `throughput` left in --out.
    #[arg(long, conflicts_with = "load")]
    pdr: Option<f64>,
    /// Share of it that is offered, percent.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    percent: u32,
    /// Instead of packets without work: the demonstration's mixed traffic, at this load of node 1 if nothing moved.
    #[arg(long)]
    load: Option<f64>,
    /// Seed of the departures.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to write soak.jsonl.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    #[serde(skip)]
    out: PathBuf,
}

/// What a node was at one moment.
#[derive(Clone, Debug, Default, Serialize)]
struct NodeSample {
    node: u16,
    /// Resident memory, KiB.
    resident_kib: u64,
    /// Open files.
    files: usize,
    /// Frames between two stages.
    in_flight: i64,
    /// Whether the ledger balanced then.
    balances: bool,
    /// Packets computed where they arrived, since the start.
    local: u64,
    /// Packets sent to another node, since the start.
    forwarded: u64,
    /// Frames dropped or left to the kernel by name, since the start; those that occurred.
    dropped: BTreeMap<&'static str, u64>,
}

/// A line of `soak.jsonl`.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    elapsed_s: f64,
    sent: u64,
    received: u64,
    nodes: Vec<NodeSample>,
}

/// The last line of `soak.jsonl`.
#[derive(Clone, Debug, Serialize)]
struct Verdict {
    sent: u64,
    received: u64,
    lost: u64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    /// What drifted; empty when nothing did.
    drift: Vec<String>,
}

/// Runs it: prints what drifted, writes `soak.jsonl`.
///
/// # Errors
/// There is no PDR, a node or the generator fails, this process was interrupted, or something drifted.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    ensure!(PolicyKind::from_name(&options.policy).is_some(), "no policy {}", options.policy);
    ensure!(options.seconds >= 1.0 && options.seconds <= 86_400.0, "--seconds {}: 1 to a day", options.seconds);
    ensure!(options.every >= 0.25 && options.every <= options.seconds, "--every {}: from 0.25", options.every);
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        eprintln!("removed {cluster}, left by a run that was killed");
    }
    let environment = Environment::take();
    let setup = setup(options, &environment)?;
    let workload = workload(options, &setup)?;
    let mut log = Log::create(&options.out, "soak", &environment, options)?;
    let _favoured = Favoured::take();
    let mut cluster = Cluster::build(Shape::new(Purpose::Bench, options.nodes))?;
    for node in cluster.plan().nodes() {
        cluster.start(node, &setup.node_settings(node, &options.policy), interrupt)?;
    }
    cluster.wait_for_peers(interrupt)?;
    let (report, samples) = watch(&cluster, options, workload, &mut log, interrupt)?;
    cluster.stop_all()?;
    let verdict = Verdict::new(&report, &samples);
    log.write(&verdict)?;
    print!("\n{}\n{}", environment.line(), text(&verdict, &samples));
    log.announce();
    if !verdict.drift.is_empty() {
        bail!("not steady:\n  {}", verdict.drift.join("\n  "));
    }
    Ok(())
}

/// The demonstration's idea of nodes and packets.
fn setup(options: &Options, environment: &Environment) -> Result<Setup> {
    let demo = demo::Options {
        nodes: options.nodes,
        policies: vec![options.policy.clone()],
        seconds: Some(options.seconds),
        rounds: Some(1),
        warm_up: 0.0,
        seed: options.seed,
        load: options.load,
        ..demo::Options::default()
    };
    Setup::new(&demo, environment)
}

fn workload(options: &Options, setup: &Setup) -> Result<Workload> {
    if options.load.is_some() {
        return setup.workload(0);
    }
    let pdr = match options.pdr {
        Some(pdr) => pdr,
        None => latency::found_pdr(&options.out, &options.policy)?,
    };
    ensure!(pdr.is_finite() && pdr > 0.0, "--pdr {pdr}: not a rate");
    let mut node_weights = vec![0.0; usize::from(options.nodes)];
    node_weights[0] = 1.0;
    Ok(Workload {
        kinds: vec![Kind::without_work()],
        node_weights,
        rate_per_s: pdr * f64::from(options.percent) / 100.0,
        flows: 1,
        burst: None,
        frame_bytes: 74,
        warm_up: Duration::ZERO,
        measured: Duration::from_secs_f64(options.seconds),
        seed: options.seed,
    })
}

/// Sends the traffic and takes the samples.
fn watch(
    cluster: &Cluster,
    options: &Options,
    workload: Workload,
    log: &mut Log,
    interrupt: &Interrupt,
) -> Result<(Report, Vec<Sample>)> {
    let ports = cluster.plan().nodes().map(|node| cluster.plan().port(node)).collect();
    let plan = GeneratorPlan { workload, ports, quiet: QUIET, late: None };
    let samples = RefCell::new(vec![take(cluster, 0.0, 0, 0)?]);
    let mut next_s = options.every;
    let mut failed = Ok(());
    let report = session::run(cluster, &peers::own_program()?, &plan, interrupt, |event| {
        let Event::Progress { sent, received, elapsed_ns } = event else { return };
        let elapsed_s = *elapsed_ns as f64 / 1e9;
        if elapsed_s < next_s || failed.is_err() {
            return;
        }
        next_s = elapsed_s + options.every;
        failed = take(cluster, elapsed_s, *sent, *received).and_then(|sample| {
            eprintln!("{elapsed_s:.0} s: {sent} sent, {received} back, {} KiB", sample.resident_kib());
            log.write(&sample)?;
            samples.borrow_mut().push(sample);
            Ok(())
        });
    })?;
    failed?;
    let mut samples = samples.into_inner();
    samples.push(at_rest(cluster, options, &report, interrupt)?);
    Ok((report, samples))
}

/// The sample after the run, when every ledger balances, or after enough looks as it is then.
fn at_rest(cluster: &Cluster, options: &Options, report: &Report, interrupt: &Interrupt) -> Result<Sample> {
    let look = || take(cluster, options.seconds, report.counts.sent, report.counts.received);
    let mut sample = look()?;
    for _ in 1..LOOKS {
        if sample.nodes.iter().all(|node| node.balances) {
            break;
        }
        interrupt.sleep(Duration::from_millis(10))?;
        sample = look()?;
    }
    Ok(sample)
}

fn take(cluster: &Cluster, elapsed_s: f64, sent: u64, received: u64) -> Result<Sample> {
    let nodes = cluster.plan().nodes().map(|node| node_sample(&cluster.status(node)?));
    Ok(Sample { elapsed_s, sent, received, nodes: nodes.collect::<Result<_>>()? })
}

fn node_sample(status: &Status) -> Result<NodeSample> {
    let ends = |reason: &&Reason| matches!(reason.effect(), Effect::Drop | Effect::Pass);
    let dropped = Reason::ALL.iter().filter(ends).map(|reason| (reason.name(), status.count(*reason)));
    Ok(NodeSample {
        node: status.node.id,
        resident_kib: resident_kib(status.node.pid)?,
        files: fs::read_dir(format!("/proc/{}/fd", status.node.pid)).context("cannot count open files")?.count(),
        in_flight: status.ledger.in_flight,
        balances: status.ledger.balances,
        local: status.count(Reason::LocalQueued),
        forwarded: status.count(Reason::Redirected) + status.count(Reason::SentForward),
        dropped: dropped.filter(|(_, count)| *count > 0).collect(),
    })
}

/// Resident memory of a process, KiB (`proc(5)`, VmRSS).
fn resident_kib(pid: u32) -> Result<u64> {
    let path = format!("/proc/{pid}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    resident_in(&text).with_context(|| format!("no VmRSS in {path}"))
}

fn resident_in(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.split_whitespace().next()?.parse().ok()
}

impl Sample {
    fn resident_kib(&self) -> u64 {
        self.nodes.iter().map(|node| node.resident_kib).sum()
    }
}

impl Verdict {
    fn new(report: &Report, samples: &[Sample]) -> Self {
        Self {
            sent: report.counts.sent,
            received: report.counts.received,
            lost: report.counts.lost(),
            p50_ns: report.latency.quantile_ns(0.5),
            p99_ns: report.latency.quantile_ns(0.99),
            p999_ns: report.latency.quantile_ns(0.999),
            drift: drift(samples),
        }
    }
}

/// What grew that should not: memory or files in the second half of the run, or frames that nobody has.
fn drift(samples: &[Sample]) -> Vec<String> {
    let mut drift = Vec::new();
    let (Some(middle), Some(last)) = (samples.get(samples.len() / 2), samples.last()) else { return drift };
    for (then, now) in middle.nodes.iter().zip(&last.nodes) {
        let grown = now.resident_kib.saturating_sub(then.resident_kib);
        let seconds = last.elapsed_s - middle.elapsed_s;
        if grown > SLACK_KIB {
            drift.push(format!("node {}: memory grew by {grown} KiB in the last {seconds:.0} s", now.node));
        }
        if now.files > then.files {
            drift.push(format!("node {}: {} more open files", now.node, now.files - then.files));
        }
        if !now.balances {
            drift.push(format!("node {}: the ledger does not balance: {} frames", now.node, now.in_flight));
        }
    }
    drift
}

fn text(verdict: &Verdict, samples: &[Sample]) -> String {
    let us = |ns: u64| ns as f64 / 1e3;
    let mut text = format!(
        "{} sent, {} back, {} lost; p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us\n",
        verdict.sent,
        verdict.received,
        verdict.lost,
        us(verdict.p50_ns),
        us(verdict.p99_ns),
        us(verdict.p999_ns)
    );
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return text };
    for (then, now) in first.nodes.iter().zip(&last.nodes) {
        let named = now.dropped.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            text,
            "node {}: {} KiB at first, {} KiB at last, {} files, {} local, {} forwarded; {}",
            now.node,
            then.resident_kib,
            now.resident_kib,
            now.files,
            now.local,
            now.forwarded,
            if named.is_empty() { "nothing dropped" } else { &named }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(elapsed_s: f64, resident_kib: u64, files: usize, balances: bool) -> Sample {
        let node = NodeSample { node: 1, resident_kib, files, balances, ..NodeSample::default() };
        Sample { elapsed_s, sent: 0, received: 0, nodes: vec![node] }
    }

    #[test]
    fn what_grows_in_the_second_half_drifts() {
        let steady = [sample(0.0, 1000, 9, true), sample(5.0, 9000, 10, true), sample(10.0, 9100, 10, true)];
        assert!(drift(&steady).is_empty(), "{:?}", drift(&steady));
        let growing = [sample(0.0, 1000, 9, true), sample(5.0, 2000, 10, true), sample(10.0, 3000, 11, false)];
        let said = drift(&growing);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("1000 KiB in the last 5 s"), "{said:?}");
        assert!(drift(&[]).is_empty());
    }

    #[test]
    fn resident_memory_is_read_as_the_kernel_writes_it() {
        assert_eq!(resident_in("VmPeak:\t  9 kB\nVmRSS:\t   1234 kB\n"), Some(1234));
        assert_eq!(resident_in("VmPeak: 9 kB"), None);
    }
}

//! `dataplane-bench faults`: what is lost, repeated and late when a node dies, a link is cut or loses frames, reports are lost,
//! or a node stands still; with a lossless function, and with an ordinary one.
//!
//! All packets arrive at one node, which spreads them over itself and its peers in turn, so that most of them cross a link. In the
//! first third of the run nothing happens, the second third begins with the fault, and the last third with its end.

mod account;
mod fault;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use dataplane_user::functions::Builtin;
use serde::Serialize;

pub use self::account::Account;
pub use self::fault::Fault;
use self::fault::{ARRIVAL, Span};
use super::Log;
use crate::autogroup::Favoured;
use crate::chaos::{FrameKind, Tally};
use crate::demo::setup::Setup;
use crate::demo::{self, Order, table};
use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::peers;
use crate::topology::{self, BPFFS, Cluster, NodeSettings, Purpose, Shape};
use crate::traffic::session::Running;
use crate::traffic::{Counts, GeneratorPlan, Kind, Report, Workload};

/// Nodes: one where packets arrive, one that something happens to, one that is left.
const NODES: u16 = 3;
/// Places packets in turn, whatever their cost: most of them cross a link.
const POLICY: &str = "round-robin";
/// Its result is checked.
const FUNCTION: Builtin = Builtin::Crc32;
/// Time between two reports, µs.
const REPORT_INTERVAL_US: u64 = 1_000;
/// Length of every frame, bytes.
const FRAME_BYTES: usize = 200;
/// The generator stops waiting for packets when none has come for this long.
const QUIET: Duration = Duration::from_secs(1);
/// Milliseconds in a row without a packet that is lost or late, after which a cluster has recovered.
const CALM: usize = 100;
/// Looks at the nodes before packets are believed to wait for ever.
const LOOKS: u32 = 200;

/// Options of `faults`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Options {
    /// Faults, separated by commas [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    pub faults: Vec<Fault>,
    /// Packets of each trial, at least.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    pub packets: u64,
    /// Packets per second; well below what the nodes answer.
    #[arg(long, default_value_t = 20_000.0)]
    pub rate: f64,
    /// Functions, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "lossless,ordinary")]
    pub functions: Vec<Function>,
    /// How frames travel between nodes.
    #[arg(long, default_value = "xdp", value_parser = ["xdp", "xsk", "udp"])]
    pub transport: String,
    /// Whether results of a flow leave in the order of its packets.
    #[arg(long, value_enum, default_value_t = Order::Flow)]
    pub order: Order,
    /// A packet that comes back later than this counts as late, ms.
    #[arg(long, default_value_t = 10.0)]
    pub late: f64,
    /// Seed of the departures.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where to write faults.jsonl.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    #[serde(skip)]
    pub out: PathBuf,
}

/// What the function of a trial promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Function {
    /// `lossless = true`.
    Lossless,
    /// Not so.
    Ordinary,
}

impl Function {
    const fn name(self) -> &'static str {
        match self {
            Self::Lossless => "lossless",
            Self::Ordinary => "ordinary",
        }
    }
}

/// A line of `faults.jsonl`: one trial.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What happened.
    pub fault: Fault,
    /// To which function.
    pub function: Function,
    /// What the generator counted.
    #[serde(flatten)]
    pub counts: Counts,
    /// Packets that did not come back.
    pub lost: u64,
    /// What the node of arrival says of them.
    pub account: Account,
    /// Lost packets that nobody can name.
    pub unaccounted: i64,
    /// Forwards and results that the boxes in the links dropped.
    pub box_dropped: u64,
    /// Packets lost or late.
    pub disturbed: u64,
    /// From the begin of the fault, or where no node can take over from its end, to the last packet that was lost or late before
    /// there was none for 100 ms, s; `None` when there was none from the start.
    pub recovered_s: Option<f64>,
    /// Latency, ns.
    pub p50_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The slowest packet.
    pub max_ns: u64,
    /// Promises that were not kept.
    pub broken: Vec<String>,
}

/// Runs every fault with every function: prints the table, writes `faults.jsonl`.
///
/// # Errors
/// An option makes no sense, a node or the generator fails, this process was interrupted, or a promise was broken.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        eprintln!("removed {cluster}, left by a run that was killed");
    }
    let environment = Environment::take();
    let program = peers::own_program()?;
    let mut log = Log::create(&options.out, "faults", &environment, options)?;
    let _favoured = Favoured::take();
    let mut lines = Vec::new();
    let faults = if options.faults.is_empty() { Fault::ALL.to_vec() } else { options.faults.clone() };
    for fault in faults {
        for function in &options.functions {
            let line = trial(options, Purpose::Bench, (fault, *function), &program, interrupt)?;
            let (name, lost) = (fault.name(), line.lost);
            eprintln!("{name}, {}: {lost} of {} lost", function.name(), line.counts.sent);
            log.write(&line)?;
            lines.push(line);
        }
    }
    print!("\n{}\n{}", environment.line(), text(&lines, options));
    log.announce();
    let complain = |line: &Line| {
        let (fault, function) = (line.fault.name(), line.function.name());
        line.broken.iter().map(move |text| format!("{fault}, {function}: {text}")).collect::<Vec<_>>()
    };
    let broken = lines.iter().flat_map(complain).collect::<Vec<_>>();
    if !broken.is_empty() {
        bail!("promises were broken:\n  {}", broken.join("\n  "));
    }
    Ok(())
}

/// One trial, in a cluster of its own.
///
/// # Errors
/// As [`run`], but for promises: those that were broken are in the line.
pub fn trial(
    options: &Options,
    purpose: Purpose,
    (fault, function): (Fault, Function),
    program: &Path,
    interrupt: &Interrupt,
) -> Result<Line> {
    ensure!((100.0..=1e6).contains(&options.rate), "--rate {}: 100 to a million", options.rate);
    let settings = settings(options, function)?;
    let mut cluster = Cluster::build(Shape::new(purpose, NODES).with_cables())?;
    for node in cluster.plan().nodes() {
        cluster.start(node, &settings[usize::from(node) - 1], interrupt)?;
    }
    cluster.wait_for_peers(interrupt)?;
    let before = cluster.tally_all()?;
    let (report, span) = disturb(&mut cluster, options, fault, &settings, (program, interrupt))?;
    let account = at_rest(&cluster, interrupt)?;
    let tally = cluster.tally_all()?.since(&before);
    cluster.stop_all()?;
    Ok(Line::new((fault, function), &report, account, &tally, span))
}

/// How each node is to run.
fn settings(options: &Options, function: Function) -> Result<Vec<NodeSettings>> {
    let demo = demo::Options {
        nodes: NODES,
        policies: vec![POLICY.to_owned()],
        report_interval: Some(REPORT_INTERVAL_US),
        ..demo::Options::default()
    };
    let setup = Setup::new(&demo, &Environment::take())?;
    let order = if options.order == Order::Flow { "flow" } else { "none" };
    let lossless = function == Function::Lossless;
    let section = format!("[[function]]\nname = \"{}\"\norder = \"{order}\"\nlossless = {lossless}\n", FUNCTION.name());
    let settings = |node| NodeSettings {
        transport: options.transport.clone(),
        extra: section.clone(),
        // Rings for 400 ms at the default rate: what other programs on the machine hold up is late, and not lost.
        frames: 65_536,
        // The generator and three nodes share few CPUs.
        spin: Duration::ZERO,
        ..setup.node_settings(node, POLICY)
    };
    Ok((1..=NODES).map(settings).collect())
}

/// Sends the packets, and begins and ends the fault meanwhile.
fn disturb(
    cluster: &mut Cluster,
    options: &Options,
    fault: Fault,
    settings: &[NodeSettings],
    (program, interrupt): (&Path, &Interrupt),
) -> Result<(Report, Span)> {
    let plan = plan(cluster, options)?;
    let third = plan.workload.measured / 3;
    let mut generator = Running::start(cluster, program, &plan)?;
    generator.wait_until(third, interrupt)?;
    let begin_ns = fault.begin(cluster)?;
    match fault.length() {
        Some(length) => interrupt.sleep(length)?,
        None => generator.wait_until(2 * third, interrupt)?,
    }
    let end_ns = fault.end(cluster, &settings[usize::from(fault::VICTIM) - 1], interrupt)?;
    Ok((generator.finish(interrupt)?, Span { begin_ns, end_ns }))
}

/// The generator's orders.
fn plan(cluster: &Cluster, options: &Options) -> Result<GeneratorPlan> {
    let mut node_weights = vec![0.0; usize::from(NODES)];
    node_weights[usize::from(ARRIVAL) - 1] = 1.0;
    // The number of arrivals is random; four standard deviations more and there are hardly ever too few.
    let packets = options.packets as f64;
    let seconds = (packets + 4.0 * packets.sqrt()) / options.rate;
    let kind = Kind { name: FUNCTION.name().to_owned(), function: FUNCTION.name().to_owned(), ..Kind::without_work() };
    let workload = Workload {
        kinds: vec![kind],
        node_weights,
        rate_per_s: options.rate,
        flows: 64,
        burst: None,
        frame_bytes: FRAME_BYTES,
        warm_up: Duration::ZERO,
        measured: Duration::try_from_secs_f64(seconds)?,
        seed: options.seed,
    };
    let ports = cluster.plan().nodes().map(|node| cluster.plan().port(node)).collect();
    let late = Duration::try_from_secs_f64(options.late / 1e3)?;
    Ok(GeneratorPlan { workload, ports, quiet: QUIET, late: Some(late) })
}

/// The account of the node of arrival once nothing waits anywhere, or after enough looks as it is then.
fn at_rest(cluster: &Cluster, interrupt: &Interrupt) -> Result<Account> {
    let nodes = || cluster.plan().nodes();
    for _ in 1..LOOKS {
        let statuses = nodes().map(|node| cluster.status(node)).collect::<Result<Vec<_>>>()?;
        if statuses.iter().all(|it| it.ledger.balances && it.workers.iter().all(|worker| worker.backlog_ns == 0)) {
            break;
        }
        interrupt.sleep(Duration::from_millis(10))?;
    }
    let peers = cluster.plan().peers(ARRIVAL).map(|node| cluster.status(node)).collect::<Result<Vec<_>>>()?;
    Account::new(&cluster.status(ARRIVAL)?, &peers)
}

impl Line {
    fn new(
        (fault, function): (Fault, Function),
        report: &Report,
        account: Account,
        tally: &Tally,
        Span { begin_ns, end_ns }: Span,
    ) -> Self {
        let counts = report.counts.clone();
        let lossless = function == Function::Lossless;
        let box_dropped = tally.kind(FrameKind::Forward).dropped + tally.kind(FrameKind::Result).dropped;
        let disturbance = report.disturbance.clone().unwrap_or_default();
        let from_ns = if fault.can_be_avoided() { begin_ns } else { end_ns };
        let last_ns = disturbance.calm_after(from_ns, CALM);
        Self {
            fault,
            function,
            lost: counts.lost(),
            unaccounted: account.unaccounted(&counts, lossless),
            box_dropped,
            disturbed: disturbance.total(),
            recovered_s: last_ns.map(|last_ns| last_ns.saturating_sub(from_ns) as f64 / 1e9),
            p50_ns: report.latency.quantile_ns(0.5),
            p999_ns: report.latency.quantile_ns(0.999),
            max_ns: report.latency.max_ns(),
            broken: account::broken(fault, lossless, (&counts, &account), box_dropped),
            counts,
            account,
        }
    }
}

fn text(lines: &[Line], options: &Options) -> String {
    let heads = [
        "fault",
        "function",
        "sent",
        "returned once",
        "lost",
        "duplicated",
        "again",
        "late copies",
        "in flight",
        "named",
        "unaccounted",
        "disturbed",
        "recovered",
        "p50",
        "p99.9",
        "max",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for line in lines {
        let Line { fault, function, counts, account, .. } = line;
        rows.push(vec![
            fault.name().to_owned(),
            function.name().to_owned(),
            counts.sent.to_string(),
            (counts.received - counts.duplicated.min(counts.received)).to_string(),
            line.lost.to_string(),
            counts.duplicated.to_string(),
            account.again.to_string(),
            account.late.to_string(),
            account.in_flight().to_string(),
            account.named().to_string(),
            line.unaccounted.to_string(),
            line.disturbed.to_string(),
            line.recovered_s.map_or_else(|| "-".to_owned(), |seconds| format!("{:.0} ms", seconds * 1e3)),
            table::format_ns(line.p50_ns as f64),
            table::format_ns(line.p999_ns as f64),
            table::format_ns(line.max_ns as f64),
        ]);
    }
    format!(
        "{}\n{:.0} packets/s, transport {}; disturbed: lost, or back after more than {} ms\n",
        table::align(&rows),
        options.rate,
        options.transport,
        options.late
    )
}

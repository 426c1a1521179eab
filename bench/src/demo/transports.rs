//! `demo --transports`: the policies on the same packets over each way in which frames travel between nodes, in turns, and what
//! forwarding costs there: the question of Jang's thesis (KAIST 2005), what user-level communication does for an active router.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::options::Options;
use super::outcome::Outcome;
use super::plot::{PALE, pen, plain};
use super::progress::Progress;
use super::round::{self, Round};
use super::setup::Setup;
use super::svg::{Anchor, Style, Svg};
use super::table::{align, format_ns, format_share};
use crate::autogroup::Favoured;
use crate::command;
use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::peers::Spread;
use crate::status::{Signals, Status};
use crate::topology::{self, BPFFS, Cluster};

/// Format of `transports.json`.
pub const SCHEMA: &str = "dataplane.transports/1";

/// Communication through the kernel, which the others are compared with.
const BASE: &str = "udp";
/// The transports.
const TRANSPORTS: [&str; 3] = [BASE, "xsk", DECIDES_IN_XDP];
/// The one whose packets no worker sends.
const DECIDES_IN_XDP: &str = "xdp";

/// A policy over a transport.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The transport.
    pub transport: String,
    /// The policy.
    pub policy: String,
    /// Mean latency, ns.
    pub mean_ns: f64,
    /// Median, ns.
    pub p50_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// Share of packets computed by another node.
    pub forwarded_share: f64,
    /// Bytes on the interconnect per packet, reports left out.
    pub bytes_per_packet: f64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that did not come back.
    pub lost: u64,
    /// Mean latency of each round, ns.
    pub round_mean_ns: Vec<f64>,
    /// Share forwarded in each round.
    pub round_forwarded_share: Vec<f64>,
}

/// What forwarding a packet costs, as the nodes measured it: spread over nodes that had measured all of it, and rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// The transport.
    pub transport: String,
    /// CPU time of sending, a worker's part included, ns.
    pub send_ns: Option<Spread>,
    /// CPU time of receiving, ns.
    pub receive_ns: Option<Spread>,
    /// One way between the nodes, ns.
    pub wire_ns: Option<Spread>,
    /// Service time below which the guard keeps a packet at home: sending and receiving cost as much, ns.
    pub guard_ns: Option<Spread>,
    /// What a packet must save to be worth forwarding: all of the above, there and back, ns.
    pub total_ns: Option<Spread>,
}

/// A policy over a transport against the same policy over [`BASE`], formed round by round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The transport.
    pub transport: String,
    /// The policy.
    pub policy: String,
    /// Change of the mean latency, percent; negative = faster.
    pub mean_percent: Spread,
    /// Change of the share forwarded, percentage points.
    pub forwarded_points: Spread,
}

/// `transports.json`.
#[derive(Debug, Serialize)]
pub struct Transports {
    schema: &'static str,
    /// The machine.
    pub host: Environment,
    /// The command that was run.
    pub command: String,
    /// What all runs have in common; its transport is the last one.
    pub setup: Setup,
    /// What the others are compared with.
    pub base: &'static str,
    /// By transport, then policy.
    pub points: Vec<Point>,
    /// By transport.
    pub costs: Vec<Cost>,
    /// By transport but the base, then policy.
    pub changes: Vec<Change>,
    /// What does not add up.
    pub problems: Vec<String>,
}

/// Runs of one transport: each policy with its rounds.
type Runs = Vec<(String, Vec<Round>)>;

/// Runs it: prints the table, writes `transports.json` and `transports.svg`.
///
/// # Errors
/// Something cannot be set up or fails, this process was interrupted, or a run does not add up. In the last case everything
/// has been printed and written.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let environment = Environment::take();
    let setup = Setup::new(options, &environment)?;
    let progress = Progress::new();
    for cluster in topology::remove_stale(BPFFS.as_ref())? {
        progress.say(&format!("removed {cluster}, left by a run that was killed"));
    }
    let _favoured = Favoured::take();
    let runs = run_all(&setup, &progress, interrupt)?;
    progress.clear();
    let found = Transports::new(environment, &setup, &runs);
    print!("\n{}", text(&found));
    let mut json = serde_json::to_string_pretty(&found)?;
    json.push('\n');
    fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    for (name, text) in [("transports.json", json), ("transports.svg", draw(&found))] {
        let path = options.out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    if !found.problems.is_empty() {
        bail!("the runs do not add up:\n  {}", found.problems.join("\n  "));
    }
    Ok(())
}

/// Every transport with every policy in every round, each round beginning with another one.
fn run_all(setup: &Setup, progress: &Progress, interrupt: &Interrupt) -> Result<Vec<Runs>> {
    let mut cluster = Cluster::build(setup.shape())?;
    let none = || setup.policies.iter().map(|name| (name.clone(), Vec::new())).collect::<Runs>();
    let mut runs: Vec<Runs> = TRANSPORTS.map(|_| none()).into();
    let (transports, policies) = (TRANSPORTS.len(), setup.policies.len());
    for round in 0..setup.rounds {
        for turn in 0..transports * policies {
            // A policy's transports follow each other, so that they meet the same noise.
            let transport = (turn + round as usize) % transports;
            let policy = (turn / transports + round as usize) % policies;
            let over = over(setup, TRANSPORTS[transport]);
            let (name, rounds) = &mut runs[transport][policy];
            let place = format!("round {} of {}, {name} over {}", round + 1, setup.rounds, over.transport);
            progress.show(&place);
            let done = round::run_again(&mut cluster, &over, name, round, interrupt).with_context(|| place.clone())?;
            progress.say(&format!("{place}: mean {}", format_ns(done.report.latency.mean_ns())));
            rounds.push(done);
        }
    }
    Ok(runs)
}

fn over(setup: &Setup, transport: &str) -> Setup {
    Setup { transport: transport.to_owned(), ..setup.clone() }
}

impl Transports {
    fn new(host: Environment, setup: &Setup, runs: &[Runs]) -> Self {
        let mut found = Self {
            schema: SCHEMA,
            host,
            command: command::own_line(),
            setup: setup.clone(),
            base: BASE,
            points: Vec::new(),
            costs: Vec::new(),
            changes: Vec::new(),
            problems: Vec::new(),
        };
        for (transport, runs) in TRANSPORTS.into_iter().zip(runs) {
            let outcome = Outcome::new(found.host.clone(), over(setup, transport), runs);
            found.problems.extend(outcome.problems.iter().map(|problem| format!("{transport}, {problem}")));
            found.points.extend(points(transport, &outcome));
            found.costs.push(Cost::new(transport, runs));
        }
        found.changes = changes(&found.points);
        found
    }
}

fn points(transport: &str, outcome: &Outcome) -> Vec<Point> {
    let point = |(name, policy): (&str, &super::outcome::PolicyOutcome)| Point {
        transport: transport.to_owned(),
        policy: name.to_owned(),
        mean_ns: policy.latency.mean_ns,
        p50_ns: policy.latency.p50_ns,
        p99_ns: policy.latency.p99_ns,
        forwarded_share: policy.forwarded_share,
        bytes_per_packet: policy.interconnect_bytes as f64 / policy.counts.sent.max(1) as f64,
        sent: policy.counts.sent,
        lost: policy.lost,
        round_mean_ns: policy.rounds.iter().map(|round| round.mean_ns).collect(),
        round_forwarded_share: policy.rounds.iter().map(|round| round.forwarded_share).collect(),
    };
    outcome.in_order().map(point).collect()
}

impl Cost {
    fn new(transport: &str, runs: &Runs) -> Self {
        let statuses = || runs.iter().flat_map(|(_, rounds)| rounds).flat_map(|round| &round.end.statuses);
        // Only nodes that have sent packets and got them back know all of it.
        let knows = |status: &&Status| {
            status.signals.worker_send_ns > 0 && status.peers.iter().any(|it| it.transit_ns.is_some())
        };
        let sent = move |it: &Signals| it.send_ns + if transport == DECIDES_IN_XDP { 0 } else { it.worker_send_ns };
        let spread = |value: &dyn Fn(&Signals) -> u32| {
            Spread::of(statuses().filter(knows).map(|status| f64::from(value(&status.signals))))
        };
        Self {
            transport: transport.to_owned(),
            send_ns: spread(&sent),
            receive_ns: spread(&|it| it.receive_ns),
            wire_ns: spread(&|it| it.wire_ns),
            guard_ns: spread(&|it| sent(it) + it.receive_ns),
            total_ns: spread(&|it| sent(it) + it.receive_ns + 2 * it.wire_ns),
        }
    }
}

/// Every transport but the base against it, policy by policy.
fn changes(points: &[Point]) -> Vec<Change> {
    let base_of = |policy: &str| points.iter().find(|point| point.transport == BASE && point.policy == policy);
    let change = |point: &Point| {
        let base = base_of(&point.policy)?;
        let means = point.round_mean_ns.iter().zip(&base.round_mean_ns);
        let shares = point.round_forwarded_share.iter().zip(&base.round_forwarded_share);
        Some(Change {
            transport: point.transport.clone(),
            policy: point.policy.clone(),
            mean_percent: Spread::of(means.map(|(own, base)| (own / base - 1.0) * 100.0))?,
            forwarded_points: Spread::of(shares.map(|(own, base)| (own - base) * 100.0))?,
        })
    };
    points.iter().filter(|point| point.transport != BASE).filter_map(change).collect()
}

fn text(found: &Transports) -> String {
    let head = [
        "policy",
        "transport",
        "mean",
        "p50",
        "p99",
        "forwarded",
        "bytes/packet",
        "lost",
        "mean against udp",
        "forwarded against udp",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for policy in &found.setup.policies {
        for point in found.points.iter().filter(|point| point.policy == *policy) {
            let is_of = |change: &&Change| change.policy == point.policy && change.transport == point.transport;
            let change = found.changes.iter().find(is_of);
            let signed = |spread: Option<Spread>, unit: &str| {
                let show = |it: Spread| format!("{:+.1} {unit} ({:+.1} to {:+.1})", it.median, it.min, it.max);
                spread.map_or_else(|| "-".to_owned(), show)
            };
            rows.push(vec![
                policy.clone(),
                point.transport.clone(),
                format_ns(point.mean_ns),
                format_ns(point.p50_ns as f64),
                format_ns(point.p99_ns as f64),
                format_share(point.forwarded_share),
                format!("{:.0}", point.bytes_per_packet),
                point.lost.to_string(),
                signed(change.map(|change| change.mean_percent), "%"),
                signed(change.map(|change| change.forwarded_points), "points"),
            ]);
        }
    }
    let mut text = format!("{}\n", align(&rows));
    for cost in &found.costs {
        let median = |spread: &Option<Spread>| spread.map_or_else(|| "?".to_owned(), |it| format_ns(it.median));
        let _ = writeln!(
            text,
            "forwarding over {}: send {}, receive {}, wire {}; the guard keeps packets below {}; in all {}",
            cost.transport,
            median(&cost.send_ns),
            median(&cost.receive_ns),
            median(&cost.wire_ns),
            median(&cost.guard_ns),
            median(&cost.total_ns)
        );
    }
    let _ = writeln!(
        text,
        "{} rounds; against {BASE}: median, least and most of the differences within a round",
        found.setup.rounds
    );
    let emulated = found.setup.emulated();
    if !emulated.is_empty() {
        let _ = writeln!(
            text,
            "emulated service: packets of kind {} occupy a worker without using the CPU ({} cores for {} nodes)",
            emulated.join(", "),
            found.host.cores,
            found.setup.nodes
        );
    }
    text
}

/// Width and height of the drawing, and left and right of its two plots.
const SIZE: (f64, f64) = (1000.0, 480.0);
const PLOTS: [(f64, f64); 2] = [(90.0, 500.0), (570.0, 970.0)];
const TOP: f64 = 96.0;
const BOTTOM: f64 = 400.0;

/// Mean latency and share forwarded: a group of bars for each policy, a bar for each transport.
fn draw(found: &Transports) -> String {
    let mut svg = Svg::new(SIZE.0, SIZE.1);
    let title = "Placement policies by the way between nodes";
    svg.text((90.0, 34.0), title, Style { size: 18.0, bold: true, ..plain("#222222") });
    let setup = &found.setup;
    let service = if setup.emulated().is_empty() { "computed" } else { "emulated" };
    let about =
        format!("{} nodes, load {:.2}, service {service}; seed {}", setup.nodes, setup.offered_load, setup.seed);
    svg.text((90.0, 56.0), &about, plain(PALE));
    for (index, transport) in TRANSPORTS.into_iter().enumerate() {
        let x = 600.0 + 110.0 * index as f64;
        svg.bar((x, 24.0), 14.0, 12.0, pen(index + 1).0);
        svg.text((x + 20.0, 35.0), transport, plain("#222222"));
    }
    let slowest = found.points.iter().map(|point| point.mean_ns).fold(1.0, f64::max);
    bars(&mut svg, found, 0, "mean latency", |point| (point.mean_ns / slowest, format_ns(point.mean_ns)));
    let most = found.points.iter().map(|point| point.forwarded_share).fold(1e-9, f64::max);
    bars(&mut svg, found, 1, "packets computed by another node", |point| {
        (point.forwarded_share / most, format_share(point.forwarded_share))
    });
    svg.text((90.0, SIZE.1 - 12.0), &found.host.line(), Style { size: 11.0, ..plain(PALE) });
    svg.finish(title)
}

fn bars(svg: &mut Svg, found: &Transports, place: usize, title: &str, value: impl Fn(&Point) -> (f64, String)) {
    let (left, right) = PLOTS[place];
    svg.text((left, TOP - 12.0), title, Style { size: 13.0, bold: true, ..plain("#222222") });
    let group = (right - left) / found.setup.policies.len().max(1) as f64;
    let width = group * 0.8 / TRANSPORTS.len() as f64;
    for (at, policy) in found.setup.policies.iter().enumerate() {
        let start = left + group * (at as f64 + 0.1);
        for (index, transport) in TRANSPORTS.into_iter().enumerate() {
            let is_it = |point: &&Point| point.policy == *policy && point.transport == transport;
            let Some(point) = found.points.iter().find(is_it) else { continue };
            let (share, label) = value(point);
            let (x, height) = (start + width * index as f64, (BOTTOM - TOP - 40.0) * share);
            svg.bar((x, BOTTOM - height), width * 0.92, height, pen(index + 1).0);
            let style = Style { size: 9.0, ..plain(PALE) };
            svg.turned_text((x + width * 0.6, BOTTOM - height - 4.0), &label, style, -90.0);
        }
        let middle = Style { anchor: Anchor::Middle, ..plain("#222222") };
        svg.text((left + group * (at as f64 + 0.5), BOTTOM + 18.0), policy, middle);
    }
    svg.line((left, BOTTOM), (right, BOTTOM), "#222222", 1.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(transport: &str, means: [f64; 3], shares: [f64; 3]) -> Point {
        Point {
            transport: transport.to_owned(),
            policy: "sooner".to_owned(),
            mean_ns: means[1],
            p50_ns: 1,
            p99_ns: 2,
            forwarded_share: shares[1],
            bytes_per_packet: 100.0,
            sent: 10,
            lost: 0,
            round_mean_ns: means.to_vec(),
            round_forwarded_share: shares.to_vec(),
        }
    }

    fn found() -> Transports {
        let options = Options { policies: vec!["sooner".to_owned()], ..Options::default() };
        let host = Environment { cores: 2, ..Environment::take() };
        let setup = Setup::new(&options, &host).unwrap();
        let mut found = Transports::new(host, &setup, &[]);
        found.points =
            vec![point(BASE, [100.0, 200.0, 300.0], [0.1; 3]), point("xdp", [90.0, 100.0, 330.0], [0.2, 0.3, 0.15])];
        found.changes = changes(&found.points);
        found
    }

    #[test]
    fn changes_are_formed_within_a_round() {
        let found = found();
        assert_eq!(found.changes.len(), 1);
        let Change { mean_percent: mean, forwarded_points: share, .. } = &found.changes[0];
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(mean.min, -50.0) && near(mean.median, -10.0) && near(mean.max, 10.0), "{mean:?}");
        assert!(near(share.min, 5.0) && near(share.median, 10.0) && near(share.max, 20.0), "{share:?}");
    }

    #[test]
    fn text_and_drawing_have_every_point() {
        let found = found();
        let text = text(&found);
        assert!(text.contains("-10.0 % (-50.0 to +10.0)"), "{text}");
        let drawing = draw(&found);
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
        assert_eq!(drawing.matches("<rect").count(), 1 + 3 + 4);
    }
}

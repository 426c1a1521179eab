//! `demo --sweep`: mean latency and bytes on the interconnect by the share of high computations, as Jang's thesis
//! (KAIST 2005) compares its estimated processing times with CPU loads.
//!
//! Low computations are CRC-32 of the payload, high ones the demonstration's heavy kind; most packets arrive at node 1. Every
//! share has the same load, so the rate falls as the share grows. Without high computations that load would take more
//! packets than a generator can send: then the rate is that of the smallest share above 0, and the output says so.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::options::Options;
use super::outcome::Outcome;
use super::plot::{PALE, pen, plain, tick_label, ticks};
use super::progress::Progress;
use super::round::{self, Round};
use super::setup::Setup;
use super::svg::{Anchor, Style, Svg};
use super::table::{align, format_ns, format_share};
use crate::autogroup::Favoured;
use crate::command;
use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::topology::{self, BPFFS, Cluster, Purpose, Shape};

/// Format of `sweep.json`.
pub const SCHEMA: &str = "dataplane.sweep/1";

/// The policy that the others are compared with, as in the thesis.
const BASE: &str = "cpu-load";
/// Policies unless others are asked for.
const POLICIES: [&str; 3] = [BASE, "ept-erl", "sooner"];
/// Shares of high computations, percent.
const SHARES: [u32; 11] = [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
/// The kinds of packets by name.
const LOW: &str = "checksum";
const HIGH: &str = "heavy";
/// What the thesis published at its best point: percent of the latency and of the bytes saved against CPU loads.
const PUBLISHED: (f64, f64) = (42.0, 60.0);
/// The goal of this project, in the same terms.
const GOAL: (f64, f64) = (60.0, 80.0);

/// A policy at a share.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// High computations, percent of the packets.
    pub share_percent: u32,
    /// Packets per second.
    pub rate_per_s: f64,
    /// Load of the cluster.
    pub offered_load: f64,
    /// The policy.
    pub policy: String,
    /// Mean latency, ns.
    pub mean_ns: f64,
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
}

/// What a policy saves against [`BASE`] at a share, percent; negative = it needs more.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Saving {
    /// The policy.
    pub policy: String,
    /// High computations, percent of the packets.
    pub share_percent: u32,
    /// Of the mean latency.
    pub latency_percent: f64,
    /// Of the bytes on the interconnect; `None` when there are none to save.
    pub bytes_percent: Option<f64>,
}

/// `sweep.json`.
#[derive(Debug, Serialize)]
pub struct Sweep {
    schema: &'static str,
    /// The machine.
    pub host: Environment,
    /// The command that was run.
    pub command: String,
    /// What all shares have in common; rate and mix are those of the last one.
    pub setup: Setup,
    /// By share, then policy.
    pub points: Vec<Point>,
    /// Every policy against the base, by share.
    pub savings: Vec<Saving>,
    /// What does not add up.
    pub problems: Vec<String>,
}

/// Runs the sweep: prints the table, writes `sweep.json` and `sweep.svg`.
///
/// # Errors
/// Something cannot be set up or fails, this process was interrupted, or a run does not add up. In the last case everything
/// has been printed and written.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let environment = Environment::take();
    let mut setup = Setup::new(options, &environment)?;
    if options.policies.is_empty() {
        setup.policies = POLICIES.map(str::to_owned).to_vec();
    } else if !setup.policies.iter().any(|name| name == BASE) {
        setup.policies.insert(0, BASE.to_owned());
    }
    let load = setup.offered_loads.first().copied().unwrap_or_default();
    let progress = Progress::new();
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        progress.say(&format!("removed {cluster}, left by a run that was killed"));
    }
    let _favoured = Favoured::take();
    let mut cluster = Cluster::build(Shape::new(Purpose::Demo, setup.nodes))?;
    let mut sweep = Sweep {
        schema: SCHEMA,
        host: environment.clone(),
        command: command::own_line(),
        setup: setup.clone(),
        points: Vec::new(),
        savings: Vec::new(),
        problems: Vec::new(),
    };
    for (turn, share) in SHARES.into_iter().enumerate() {
        let setup = at_share(&setup, share, load)?;
        let runs = run_share(
            &mut cluster,
            &setup,
            turn,
            |policy, number| {
                progress.show(&format!("{share} % high computations, {policy}, round {}", number + 1));
            },
            interrupt,
        )
        .with_context(|| format!("{share} % high computations"))?;
        let outcome = Outcome::new(environment.clone(), setup, &runs);
        progress.say(&sweep.take(share, outcome));
    }
    drop(cluster);
    progress.clear();
    sweep.savings = savings(&sweep.points);
    print!("\n{}", text(&sweep));
    let mut json = serde_json::to_string_pretty(&sweep)?;
    json.push('\n');
    fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    for (name, text) in [("sweep.json", json), ("sweep.svg", draw(&sweep))] {
        let path = options.out.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    if !sweep.problems.is_empty() {
        bail!("the sweep does not add up:\n  {}", sweep.problems.join("\n  "));
    }
    Ok(())
}

/// The setup at a share of high computations, at this load of node 1 as far as the generator can send it.
fn at_share(setup: &Setup, percent: u32, load: f64) -> Result<Setup> {
    let mut at = setup.clone();
    let with_weights = |at: &mut Setup, percent: u32| {
        let high = f64::from(percent) / 100.0;
        at.mix.retain(|kind| kind.name == LOW || kind.name == HIGH);
        at.mix.iter_mut().for_each(|kind| kind.weight = if kind.name == HIGH { high } else { 1.0 - high });
        at.offer(load)
    };
    let least = SHARES.into_iter().find(|percent| *percent > 0).unwrap_or(100);
    with_weights(&mut at, percent.max(least))?;
    if percent < least {
        let rate_per_s = at.rate_per_s;
        with_weights(&mut at, percent)?;
        at.send(rate_per_s)?;
    }
    Ok(at)
}

/// Every policy at one share, in turns; another one begins at each share and in each round.
fn run_share(
    cluster: &mut Cluster,
    setup: &Setup,
    turn: usize,
    mut on_start: impl FnMut(&str, u32),
    interrupt: &Interrupt,
) -> Result<Vec<(String, Vec<Round>)>> {
    let mut runs: Vec<(String, Vec<Round>)> = setup.policies.iter().map(|name| (name.clone(), Vec::new())).collect();
    let count = runs.len();
    for number in 0..setup.rounds {
        for place in 0..count {
            let (policy, rounds) = &mut runs[(turn + number as usize + place) % count];
            on_start(policy, number);
            rounds.push(round::run_again(cluster, setup, policy, number, interrupt).with_context(|| policy.clone())?);
        }
    }
    Ok(runs)
}

impl Sweep {
    /// Takes the outcome at a share; returns a line about it.
    fn take(&mut self, share: u32, outcome: Outcome) -> String {
        let mut line = format!("{share:>3} % high computations:");
        for (name, policy) in outcome.in_order() {
            let bytes_per_packet = policy.interconnect_bytes as f64 / policy.counts.sent.max(1) as f64;
            let _ = write!(line, "  {name} {}, {bytes_per_packet:.0} bytes", format_ns(policy.latency.mean_ns));
            self.points.push(Point {
                share_percent: share,
                rate_per_s: outcome.setup.rate_per_s,
                offered_load: outcome.setup.offered_load,
                policy: name.to_owned(),
                mean_ns: policy.latency.mean_ns,
                p99_ns: policy.latency.p99_ns,
                forwarded_share: policy.forwarded_share,
                bytes_per_packet,
                sent: policy.counts.sent,
                lost: policy.lost,
            });
        }
        self.problems.extend(outcome.problems.iter().map(|problem| format!("{share} %, {problem}")));
        self.setup = outcome.setup;
        line
    }

    /// Whether a share has the load of all: where the cluster is next to idle, savings mean little.
    fn is_loaded(&self, share: u32) -> bool {
        let mut points = self.points.iter().filter(|point| point.share_percent == share);
        points.all(|point| point.offered_load > 0.99 * self.setup.offered_load)
    }

    fn policies(&self) -> &[String] {
        &self.setup.policies
    }
}

/// Every policy but the base against it, share by share.
fn savings(points: &[Point]) -> Vec<Saving> {
    let base_at = |share| points.iter().find(|point| point.policy == BASE && point.share_percent == share);
    let saved = |own: f64, base: f64| (base > 0.0).then(|| (1.0 - own / base) * 100.0);
    let others = points.iter().filter(|point| point.policy != BASE);
    let saving = |point: &Point| {
        let base = base_at(point.share_percent)?;
        Some(Saving {
            policy: point.policy.clone(),
            share_percent: point.share_percent,
            latency_percent: saved(point.mean_ns, base.mean_ns)?,
            bytes_percent: saved(point.bytes_per_packet, base.bytes_per_packet),
        })
    };
    others.filter_map(saving).collect()
}

fn text(sweep: &Sweep) -> String {
    let head = ["high", "policy", "packets/s", "mean", "p99", "forwarded", "bytes/packet", "mean saved", "bytes saved"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for point in &sweep.points {
        let is_of = |saving: &&Saving| saving.policy == point.policy && saving.share_percent == point.share_percent;
        let saving = sweep.savings.iter().find(is_of);
        let percent = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0} %"));
        rows.push(vec![
            format!("{} %", point.share_percent),
            point.policy.clone(),
            format!("{:.0}", point.rate_per_s),
            format_ns(point.mean_ns),
            format_ns(point.p99_ns as f64),
            format_share(point.forwarded_share),
            format!("{:.0}", point.bytes_per_packet),
            percent(saving.map(|saving| saving.latency_percent)),
            percent(saving.and_then(|saving| saving.bytes_percent)),
        ]);
    }
    let mut text = format!("{}\n", align(&rows));
    for line in notes(sweep) {
        let _ = writeln!(text, "{line}");
    }
    text
}

/// Best points, and what one must know to read the table.
fn notes(sweep: &Sweep) -> Vec<String> {
    let mut notes = Vec::new();
    for policy in sweep.policies().iter().filter(|name| *name != BASE) {
        let own =
            || sweep.savings.iter().filter(|saving| saving.policy == *policy && sweep.is_loaded(saving.share_percent));
        let latency = own().max_by(|a, b| a.latency_percent.total_cmp(&b.latency_percent));
        let bytes = own().filter_map(|saving| Some((saving.share_percent, saving.bytes_percent?)));
        let bytes = bytes.max_by(|(_, a), (_, b)| a.total_cmp(b));
        if let (Some(latency), Some((share, bytes))) = (latency, bytes) {
            notes.push(format!(
                "{policy} against {BASE}, best points at full load: {:.0} % of the mean latency saved at {} % high computations, {bytes:.0} % of \
                 the bytes at {share} %",
                latency.latency_percent, latency.share_percent
            ));
        }
    }
    notes.push(format!(
        "goal: {} % of the latency and {} % of the bytes; the thesis published {} % and {} %",
        GOAL.0, GOAL.1, PUBLISHED.0, PUBLISHED.1
    ));
    let emulated = sweep.setup.emulated();
    if !emulated.is_empty() {
        notes.push(format!(
            "emulated service: packets of kind {} occupy a worker without using the CPU ({} cores for {} nodes)",
            emulated.join(", "),
            sweep.host.cores,
            sweep.setup.nodes
        ));
    }
    let lightest = sweep.points.iter().map(|point| point.offered_load).fold(f64::INFINITY, f64::min);
    notes.push(format!(
        "low computations are CRC-32; load of the cluster {:.2} at every share, {lightest:.3} without high computations, where the \
         generator's rate is the limit; {} of the packets at node 1",
        sweep.setup.offered_load,
        format_share(sweep.setup.arrival_shares.first().copied().unwrap_or_default()),
    ));
    notes
}

/// Width and height of the drawing, and left, top, right and bottom of its two plots.
const SIZE: (f64, f64) = (1000.0, 480.0);
const PLOTS: [(f64, f64, f64, f64); 2] = [(80.0, 90.0, 480.0, 400.0), (570.0, 90.0, 970.0, 400.0)];

/// Mean latency and bytes per packet by share.
fn draw(sweep: &Sweep) -> String {
    let mut svg = Svg::new(SIZE.0, SIZE.1);
    let title = "Placement policies by the share of high computations";
    svg.text((80.0, 34.0), title, Style { size: 18.0, bold: true, ..plain("#222222") });
    let setup = &sweep.setup;
    let service = if setup.emulated().is_empty() { "computed" } else { "emulated" };
    let about = format!(
        "{} nodes, {} of the packets at node 1, load {:.2}, high computations {service}; seed {}",
        setup.nodes,
        format_share(setup.arrival_shares.first().copied().unwrap_or_default()),
        setup.offered_load,
        setup.seed
    );
    svg.text((80.0, 56.0), &about, plain(PALE));
    legend(&mut svg, sweep.policies());
    let most = |value: fn(&Point) -> f64| sweep.points.iter().map(value).fold(1.0, f64::max);
    let slowest = most(|point| point.mean_ns);
    let fastest = sweep.points.iter().map(|point| point.mean_ns).fold(slowest, f64::min).max(1.0) / 1.3;
    let high = slowest * 1.3;
    let (_, top, _, bottom) = PLOTS[0];
    let log = move |ns: f64| bottom - (bottom - top) * (ns.max(1.0) / fastest).ln() / (high / fastest).ln();
    let latency_marks = ticks(fastest, high).into_iter().map(|ns| (log(ns), tick_label(ns))).collect::<Vec<_>>();
    panel(&mut svg, sweep, 0, "mean latency", &latency_marks, &|point| log(point.mean_ns));
    let bytes = most(|point| point.bytes_per_packet) * 1.1;
    let linear = move |value: f64| bottom - (bottom - top) * value / bytes;
    let step = 10f64.powf((bytes / 2.0).log10().floor());
    let byte_marks = (0..).map(|mark| f64::from(mark) * step).take_while(|value| *value <= bytes);
    let byte_marks = byte_marks.map(|value| (linear(value), format!("{value:.0}"))).collect::<Vec<_>>();
    panel(&mut svg, sweep, 1, "interconnect bytes per packet", &byte_marks, &|point| linear(point.bytes_per_packet));
    svg.text((80.0, SIZE.1 - 12.0), &sweep.host.line(), Style { size: 11.0, ..plain(PALE) });
    svg.finish(title)
}

/// Which line is whose: right of the title, a column each three.
fn legend(svg: &mut Svg, policies: &[String]) {
    for (index, policy) in policies.iter().enumerate() {
        let (color, dashes) = pen(index);
        let (x, y) = (600.0 + 130.0 * (index / 3) as f64, 24.0 + 18.0 * (index % 3) as f64);
        svg.path(&[(x, y - 4.0), (x + 30.0, y - 4.0)], color, 2.5, dashes);
        svg.text((x + 38.0, y), policy, plain("#222222"));
    }
}

/// One plot: a line per policy; `marks` are heights with their labels, `height` that of a point.
fn panel(
    svg: &mut Svg,
    sweep: &Sweep,
    place: usize,
    title: &str,
    marks: &[(f64, String)],
    height: &dyn Fn(&Point) -> f64,
) {
    let (left, top, right, bottom) = PLOTS[place];
    let x = |share: u32| left + (right - left) * f64::from(share) / 100.0;
    svg.text((left, top - 10.0), title, Style { size: 13.0, bold: true, ..plain("#222222") });
    for (y, label) in marks {
        svg.line((left, *y), (right, *y), "#e4e4e4", 1.0);
        svg.text((left - 8.0, y + 4.0), label, Style { anchor: Anchor::End, ..plain(PALE) });
    }
    for share in SHARES {
        let style = Style { anchor: Anchor::Middle, ..plain(PALE) };
        svg.text((x(share), bottom + 18.0), &share.to_string(), style);
    }
    let middle = Style { anchor: Anchor::Middle, ..plain("#222222") };
    svg.text(((left + right) / 2.0, bottom + 40.0), "high computations, % of packets", middle);
    svg.line((left, bottom), (right, bottom), "#222222", 1.0);
    for (index, policy) in sweep.policies().iter().enumerate() {
        let (color, dashes) = pen(index);
        let own = sweep.points.iter().filter(|point| point.policy == *policy);
        svg.path(&own.map(|point| (x(point.share_percent), height(point))).collect::<Vec<_>>(), color, 2.5, dashes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the load of [`setup`], but for share 0.
    fn point(share_percent: u32, policy: &str, mean_ns: f64, bytes_per_packet: f64) -> Point {
        Point {
            share_percent,
            rate_per_s: 1.0,
            offered_load: if share_percent == 0 { 0.0 } else { 0.5 },
            policy: policy.to_owned(),
            mean_ns,
            p99_ns: 0,
            forwarded_share: 0.0,
            bytes_per_packet,
            sent: 1,
            lost: 0,
        }
    }

    fn setup() -> Setup {
        Setup::new(&Options::default(), &Environment { cores: 2, ..Environment::take() }).unwrap()
    }

    #[test]
    fn savings_are_against_the_base_at_the_same_share() {
        let points = [
            point(0, BASE, 100.0, 0.0),
            point(0, "sooner", 90.0, 0.0),
            point(10, BASE, 200.0, 50.0),
            point(10, "sooner", 100.0, 5.0),
        ];
        let savings = savings(&points);
        assert_eq!(savings.len(), 2);
        assert_eq!(savings[0].bytes_percent, None, "no bytes, nothing to save");
        assert!((savings[1].latency_percent - 50.0).abs() < 1e-9);
        assert!((savings[1].bytes_percent.unwrap() - 90.0).abs() < 1e-9);
    }

    #[test]
    fn every_share_has_the_same_load_as_far_as_packets_can_be_sent() {
        let setup = setup();
        let [none, tenth, all] = [0, 10, 100].map(|percent| at_share(&setup, percent, 0.85).unwrap());
        for at in [&tenth, &all] {
            assert!((at.offered_loads[0] - 0.85).abs() < 1e-9, "{at:?}");
        }
        assert_eq!(none.rate_per_s, tenth.rate_per_s);
        assert!(none.offered_load < 0.1 && tenth.rate_per_s > 5.0 * all.rate_per_s);
        assert_eq!(none.mix.iter().map(|kind| kind.weight).collect::<Vec<_>>(), [1.0, 0.0]);
    }

    #[test]
    fn text_and_drawing_have_every_policy() {
        let mut sweep = Sweep {
            schema: SCHEMA,
            host: Environment::take(),
            command: String::new(),
            setup: Setup { policies: vec![BASE.into(), "sooner".into()], ..setup() },
            points: Vec::new(),
            savings: Vec::new(),
            problems: Vec::new(),
        };
        for share in SHARES {
            sweep.points.push(point(share, BASE, 2e6, 400.0));
            sweep.points.push(point(share, "sooner", 1e6 + f64::from(share), 100.0));
        }
        sweep.savings = savings(&sweep.points);
        let text = text(&sweep);
        assert!(
            text.contains("sooner against cpu-load, best points at full load: 50 % of the mean latency saved at 10 %"),
            "{text}"
        );
        let drawing = draw(&sweep);
        assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
        assert_eq!(drawing.matches(">sooner<").count(), 1);
    }
}

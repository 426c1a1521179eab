//! `dataplane-bench reload`: how long nothing is answered when a node's configuration, its programs or all of it is replaced under
//! load. What is lost, divided by the rate, is the effective blocked time: a pause that loses nothing is none, whatever a clock
//! says.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::Log;
use crate::autogroup::Favoured;
use crate::environment::Environment;
use crate::generate::{Kind, Offer, Offering};
use crate::interrupt::Interrupt;
use crate::peers::contender::Contender;
use crate::peers::lab::{Lab, TESTED};
use crate::peers::{self, Spread, product};
use crate::topology::{self, BPFFS, NodeSettings, Scheduling};

/// Traffic in front of the replacement and behind it.
const MARGIN: Duration = Duration::from_millis(700);
/// Longest that a replacement may take: the traffic goes on for so long.
const LONGEST: Duration = Duration::from_secs(5);
/// How much longer than planned the generator may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Frames that are still on their way arrive within this time.
const QUIET: Duration = Duration::from_millis(100);
/// The policy: one node answers alone.
const POLICY: &str = "local";
/// Another one by which it does, as its link leads nowhere.
const OTHER_POLICY: &str = "sooner";

/// How a node is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Not at all: what the path loses by itself.
    None,
    /// It is told to read its configuration again, which has not changed: its programs are loaded and replaced.
    Programs,
    /// It is told to read its configuration again, which has another policy, discipline and report interval.
    Config,
    /// It is stopped the ordinary way and started again with its configuration.
    Restart,
    /// It is killed, and started again.
    Kill,
}

impl Way {
    const ALL: [Self; 5] = [Self::None, Self::Programs, Self::Config, Self::Restart, Self::Kill];

    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Programs => "programs",
            Self::Config => "config",
            Self::Restart => "restart",
            Self::Kill => "kill",
        }
    }
}

/// Options of `reload`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Options {
    /// Ways, separated by commas [default: all].
    #[arg(long, value_enum, value_delimiter = ',')]
    ways: Vec<Way>,
    /// Frames per second meanwhile; well below what the node answers.
    #[arg(long, default_value_t = 20_000.0)]
    rate: f64,
    /// Times each way is tried, in turns.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Nominal size of the frames, bytes, frame check sequence included.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// What sends: live, xsk, pktgen, or pcap:FILE.
    #[arg(long, default_value_t = Kind::Live)]
    generator: Kind,
    /// Where to write reload.jsonl.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    #[serde(skip)]
    out: PathBuf,
}

/// A line of `reload.jsonl`.
#[derive(Clone, Debug, Serialize)]
struct Line {
    way: Way,
    round: u32,
    rate: f64,
    sent: u64,
    received: u64,
    lost: u64,
    /// What was lost divided by the rate, s.
    blocked_s: f64,
    /// What the replacement took, from the order to the word that it is done, s.
    replacement_s: f64,
}

/// Runs every way in turns: prints the table, writes `reload.jsonl`.
///
/// # Errors
/// An option makes no sense, a node or the generator fails, or this process was interrupted.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    ensure!((100.0..=1e7).contains(&options.rate), "--rate {}: 100 to 10 million", options.rate);
    if let Some(reason) = options.generator.absence() {
        bail!("generator {}: {reason}", options.generator);
    }
    for cluster in topology::remove_stale(BPFFS.as_ref())? {
        eprintln!("removed {cluster}, left by a run that was killed");
    }
    let environment = Environment::take();
    let ways = if options.ways.is_empty() { Way::ALL.to_vec() } else { options.ways.clone() };
    let mut log = Log::create(&options.out, "reload", &environment, options)?;
    let _favoured = Favoured::take();
    let mut lab = Lab::build(peers::own_program()?)?;
    let mut lines = Vec::new();
    for round in 0..options.rounds {
        for way in &ways {
            let line = measure(&mut lab, options, (*way, round), &environment, interrupt)?;
            let (lost, blocked_ms) = (line.lost, line.blocked_s * 1e3);
            eprintln!("round {}: {}: {lost} lost, {blocked_ms:.2} ms blocked", round + 1, way.name());
            log.write(&line)?;
            lines.push(line);
        }
    }
    drop(lab);
    print!("\n{}\n{}", environment.line(), text(&ways, &lines, options));
    log.announce();
    Ok(())
}

fn measure(
    lab: &mut Lab,
    options: &Options,
    (way, round): (Way, u32),
    environment: &Environment,
    interrupt: &Interrupt,
) -> Result<Line> {
    let settings = peers::settings(options.size, &options.generator, environment.cores);
    let node = NodeSettings {
        scheduling: Scheduling::Favoured,
        extra: product::functions() + &product::profile(&settings),
        ..NodeSettings::new(POLICY, settings.cpu)
    };
    lab.cluster.start(TESTED, &node, interrupt)?;
    let contender = Contender::ProductAnswer(POLICY.to_owned());
    let traffic = if way == Way::None { 2 * MARGIN } else { 2 * MARGIN + LONGEST };
    let offer = Offer {
        kind: options.generator.clone(),
        interface: lab.cluster.plan().port(TESTED).generator_interface,
        frame: contender.frame(lab, &settings)?,
        count: (options.rate * traffic.as_secs_f64()).min(f64::from(i32::MAX)) as u32,
        rate: Some(options.rate),
        cpu: settings.generator_cpu,
    };
    let before = lab.back()?.udp;
    let offering = Offering::start(&lab.cluster, &lab.program, &offer, interrupt)?;
    interrupt.sleep(MARGIN)?;
    let start = Instant::now();
    match way {
        Way::None => {}
        Way::Programs => {
            lab.cluster.reload(TESTED, &node)?;
        }
        Way::Config => {
            let (policy, discipline) = (OTHER_POLICY.to_owned(), "shortest".to_owned());
            let report_interval = 2 * node.report_interval;
            lab.cluster.reload(TESTED, &NodeSettings { policy, discipline, report_interval, ..node })?;
        }
        Way::Restart => {
            lab.cluster.stop(TESTED)?;
            lab.cluster.start(TESTED, &node, interrupt)?;
        }
        Way::Kill => {
            lab.cluster.kill(TESTED)?;
            lab.cluster.start(TESTED, &node, interrupt)?;
        }
    }
    let replacement = start.elapsed();
    ensure!(replacement < LONGEST, "the replacement took {replacement:?}: longer than the traffic, {LONGEST:?}");
    let offered = offering.wait(traffic + PATIENCE, interrupt)?;
    interrupt.sleep(QUIET)?;
    let received = lab.back()?.udp - before;
    lab.cluster.stop(TESTED)?;
    let lost = offered.sent.saturating_sub(received);
    let blocked_s = lost as f64 / options.rate;
    Ok(Line {
        way,
        round,
        rate: options.rate,
        sent: offered.sent,
        received,
        lost,
        blocked_s,
        replacement_s: replacement.as_secs_f64(),
    })
}

fn text(ways: &[Way], lines: &[Line], options: &Options) -> String {
    let mut text = format!(
        "{:.0} frames/s of {} bytes; blocked = lost / rate\n{:<8}  {:>6}  {:>9}  {:>12}  {:>12}  {:>12}  {:>14}\n",
        options.rate, options.size, "way", "rounds", "lost", "blocked min", "median", "max", "replacement"
    );
    for way in ways {
        let of = || lines.iter().filter(|line| line.way == *way);
        let Some(blocked) = Spread::of(of().map(|line| line.blocked_s * 1e3)) else { continue };
        let replacement = of().map(|line| line.replacement_s).sum::<f64>() / blocked.count as f64;
        let _ = writeln!(
            text,
            "{:<8}  {:>6}  {:>9}  {:>9.2} ms  {:>9.2} ms  {:>9.2} ms  {:>11.0} ms",
            way.name(),
            blocked.count,
            of().map(|line| line.lost).sum::<u64>(),
            blocked.min,
            blocked.median,
            blocked.max,
            replacement * 1e3
        );
    }
    text
}

//! `dataplane-bench interconnect`: the three ways in which frames travel between nodes, in one run, in turns.
//!
//! | question | how |
//! |---|---|
//! | how long does a packet take that the other node computes? | two nodes, one packet at a time, workers that spin, that sleep, and as configured by default |
//! | how many packets can a node send on? | overload, a played node 2, counted at its end of the link |
//! | what CPU time does one cost the node that sends it on? | in the same window: its threads, and XDP |
//!
//! The policy is `hrw`: the flow decides where a packet is computed, so one flow goes to node 2 and another stays at node 1
//! without any load to make it so. All turns of a round form ratios among each other; see `docs/benchmarking.md`.

mod cell;
mod flood;
mod outcome;
pub mod ping;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use dataplane_common::reason::Reason;
use serde::Serialize;

use self::cell::{Line, Place, RoundTrips, Transport, Waiting, settings};
use self::ping::Plan;
use crate::autogroup::Favoured;
use crate::cpu::NoiseWatch;
use crate::environment::Environment;
use crate::generate::Kind;
use crate::interrupt::{Interrupt, Interrupted};
use crate::peers::contender::Settings;
use crate::peers::lab::Lab;
use crate::peers::{self};
use crate::status::Status;
use crate::topology::{self, BPFFS, Cluster, Purpose, Shape};
use crate::trials::Log;

pub use self::outcome::SCHEMA;

/// The node of arrival.
const NODE: u16 = 1;
/// Flows that are tried in the search for one that goes to each node.
const FLOWS: u16 = 64;
/// Packets by which a flow is tried.
const TRIED: u32 = 16;
/// Packets in front of those that are measured.
const WARM_UP: u32 = 200;
/// Share of the packets that must have been computed where they had to be; the table shows what it was.
const PURITY: f64 = 0.9;

/// Options of `interconnect`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Options {
    /// Turns of each transport; with fewer than 5 the output says that it proves nothing.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Packets of each measurement of round trips.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    packets: u32,
    /// Lengths of the frames of round trips without frame check sequence, bytes, separated by commas; 74 is the shortest one
    /// that holds the number of the packet.
    #[arg(long, value_delimiter = ',', default_value = "74,1400")]
    frame_bytes: Vec<usize>,
    /// Length of each measurement of rate and CPU time, s.
    #[arg(long, default_value_t = 0.4)]
    window: f64,
    /// Nominal size of its frames, bytes, frame check sequence included.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Where to write interconnect.json and interconnect.jsonl.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    #[serde(skip)]
    out: PathBuf,
}

/// CPUs of the generator and the two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cpus {
    /// The generator.
    pub generator: usize,
    /// Nodes 1 and 2.
    pub nodes: [usize; 2],
}

impl Cpus {
    /// One each from three cores on; with two the generator shares that of node 1.
    const fn of(cores: usize) -> Self {
        match cores {
            0 | 1 => Self { generator: 0, nodes: [0, 0] },
            2 => Self { generator: 0, nodes: [0, 1] },
            _ => Self { generator: 0, nodes: [1, 2] },
        }
    }
}

/// A flow that goes to node 2, and one that stays at node 1.
#[derive(Clone, Copy, Debug)]
struct Flows {
    there: u16,
    here: u16,
}

/// Runs the comparison: prints the tables, writes `interconnect.json` and `interconnect.jsonl`.
///
/// # Errors
/// An option makes no sense, the clusters cannot be built, no flow goes to node 2, or this process was interrupted. A turn that
/// fails is named with the reason.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    ensure!((0.05..=10.0).contains(&options.window), "--window {}: between 0.05 and 10 s", options.window);
    for bytes in &options.frame_bytes {
        ensure!((74..=1400).contains(bytes), "--frame-bytes {bytes}: 74 to 1400");
    }
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        eprintln!("removed {cluster}, left by a run that was killed");
    }
    let environment = Environment::take();
    let cpus = Cpus::of(environment.cores);
    let mut log = Log::create(&options.out, "interconnect", &environment, options)?;
    let _favoured = Favoured::take();
    let mut bench = Bench {
        options,
        cpus,
        cluster: Cluster::build(Shape::new(Purpose::Bench, 2))?,
        lab: Lab::build(peers::own_program()?)?,
        flows: None,
        log: &mut log,
        lines: Vec::new(),
        failures: Vec::new(),
    };
    for round in 0..options.rounds {
        bench.round(round, environment.cores, interrupt)?;
    }
    let (lines, failures) = (std::mem::take(&mut bench.lines), std::mem::take(&mut bench.failures));
    drop(bench);
    let outcome = outcome::Outcome { failures, ..outcome::Outcome::new(environment, options, cpus, &lines) };
    print!("\n{}", outcome.text());
    log.announce();
    peers::write(&options.out, "interconnect.json", &outcome)
}

struct Bench<'a> {
    options: &'a Options,
    cpus: Cpus,
    cluster: Cluster,
    lab: Lab,
    flows: Option<Flows>,
    log: &'a mut Log,
    lines: Vec<Line>,
    failures: Vec<String>,
}

impl Bench<'_> {
    /// Every transport once in everything, another one first in each round.
    fn round(&mut self, round: u32, cores: usize, interrupt: &Interrupt) -> Result<()> {
        let turn = |at: usize| Transport::ALL[(at + round as usize) % Transport::ALL.len()];
        for waiting in Waiting::ALL {
            for transport in (0..Transport::ALL.len()).map(turn) {
                let measured = self.round_trips(round, transport, waiting, interrupt);
                let stopped = self.cluster.stop_all();
                let what = format!("{}, {}", transport.name(), waiting.name());
                self.note(round, &what, measured.and(stopped))?;
            }
        }
        let flow = self.flows.context("no flow goes to node 2: see the failures above")?.there;
        let settings: Settings = peers::settings(self.options.size, &Kind::Live, cores);
        let window = Duration::from_secs_f64(self.options.window);
        let mut path = flood::Path { lab: &mut self.lab, settings, flow, window };
        let dropped_frame_ns = path.dropped_frame_ns(interrupt)?;
        for transport in (0..Transport::ALL.len()).map(turn) {
            let flood = match path.run(transport, (round, dropped_frame_ns), interrupt) {
                Ok(flood) => flood,
                Err(error) => {
                    interrupt.check()?;
                    self.failures.push(format!("round {}: {}, one way: {error:#}", round + 1, transport.name()));
                    continue;
                }
            };
            eprintln!(
                "round {}: {}: {:.3} Mpps one way, {:.0} ns of CPU time each",
                round + 1,
                transport.name(),
                flood.rate() / 1e6,
                flood.cpu_ns()
            );
            self.log.write(&Line::Flood(flood))?;
            self.lines.push(Line::Flood(flood));
        }
        Ok(())
    }

    /// Takes down a failure, which ends one turn and not the run; an interrupt ends that.
    fn note(&mut self, round: u32, what: &str, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => Ok(()),
            Err(error) if error.is::<Interrupted>() => Err(error),
            Err(error) => {
                let failure = format!("round {}: {what}: {error:#}", round + 1);
                eprintln!("{failure}");
                self.failures.push(failure);
                Ok(())
            }
        }
    }

    /// Starts both nodes and measures round trips of each length, computed there and here.
    fn round_trips(&mut self, round: u32, transport: Transport, waiting: Waiting, interrupt: &Interrupt) -> Result<()> {
        for (node, cpu) in (NODE..).zip(self.cpus.nodes) {
            self.cluster.start(node, &settings(transport, waiting, cpu), interrupt)?;
        }
        self.cluster.wait_for_peers(interrupt)?;
        let flows = match self.flows {
            Some(flows) => flows,
            None => *self.flows.insert(find_flows(&self.cluster, self.cpus.generator, interrupt)?),
        };
        for frame_bytes in &self.options.frame_bytes {
            for place in Place::ALL {
                interrupt.check()?;
                let flow = if place == Place::There { flows.there } else { flows.here };
                let plan = self.plan(flow, *frame_bytes);
                let before = self.cluster.status(NODE)?;
                let watch = NoiseWatch::begin(&[self.cluster.pids(), vec![std::process::id()]].concat())?;
                let answers = ping::ask(&self.cluster, &plan, self.cpus.generator)?;
                let noise = watch.end()?;
                let after = self.cluster.status(NODE)?;
                let forwarded = forwarded(&after).saturating_sub(forwarded(&before));
                let quantile = |share| answers.round_trip.quantile_ns(share);
                let (p50_ns, p99_ns, p999_ns) = (quantile(0.5), quantile(0.99), quantile(0.999));
                let (sent, lost, frame_bytes) = (answers.sent, answers.lost, *frame_bytes);
                eprintln!(
                    "round {}: {}, {}, {frame_bytes} bytes at {}: p50 {:.1} us, p99 {:.1} us, {lost} lost",
                    round + 1,
                    transport.name(),
                    waiting.name(),
                    place.name(),
                    p50_ns as f64 / 1e3,
                    p99_ns as f64 / 1e3
                );
                let trips = RoundTrips {
                    round,
                    transport,
                    waiting,
                    place,
                    frame_bytes,
                    sent,
                    lost,
                    forwarded,
                    p50_ns,
                    p99_ns,
                    p999_ns,
                    noise,
                };
                check_place(&trips, &before, &after)?;
                let line = Line::RoundTrips(trips);
                self.log.write(&line)?;
                self.lines.push(line);
            }
        }
        Ok(())
    }

    fn plan(&self, flow: u16, frame_bytes: usize) -> Plan {
        Plan { port: self.cluster.plan().port(NODE), flow, frame_bytes, warm_up: WARM_UP, count: self.options.packets }
    }
}

/// Packets that node 1 has sent to node 2.
fn forwarded(status: &Status) -> u64 {
    status.count(Reason::Redirected) + status.count(Reason::SentForward)
}

/// Finds a flow for each node by trying.
fn find_flows(cluster: &Cluster, cpu: usize, interrupt: &Interrupt) -> Result<Flows> {
    let (mut there, mut here) = (None, None);
    for flow in 0..FLOWS {
        interrupt.check()?;
        let port = cluster.plan().port(NODE);
        let plan = Plan { port, flow, frame_bytes: 74, warm_up: 0, count: TRIED };
        let before = forwarded(&cluster.status(NODE)?);
        let answers = ping::ask(cluster, &plan, cpu)?;
        match forwarded(&cluster.status(NODE)?).saturating_sub(before) {
            0 => here = here.or(Some(flow)),
            count if count >= answers.sent => there = there.or(Some(flow)),
            // The plan changed meanwhile.
            _ => {}
        }
        if let (Some(there), Some(here)) = (there, here) {
            return Ok(Flows { there, here });
        }
    }
    bail!("none of {FLOWS} flows goes to node 2, or none stays at node 1: does node 1 see node 2?")
}

/// Whether the packets were computed where they had to be: a round trip of others would be worth nothing. The error says what node
/// 1 has counted between `before` and `after`.
fn check_place(trips: &RoundTrips, before: &Status, after: &Status) -> Result<()> {
    let share = trips.computed_there();
    if share >= PURITY {
        return Ok(());
    }
    let rose = Reason::ALL.iter().filter_map(|reason| {
        let by = after.count(*reason).saturating_sub(before.count(*reason));
        (by > trips.sent / 100).then(|| format!("{} {by}", reason.name()))
    });
    let (percent, rose) = (share * 100.0, rose.collect::<Vec<_>>().join(", "));
    bail!("only {percent:.1} % of {} packets were computed at {}: {rose}", trips.sent, trips.place.name());
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

//! `dataplane-bench demo`: each policy in turn on the same real traffic in the same cluster, and what came of it.
//!
//! Policies take turns, round by round, and each round begins with another one, so that whatever else the machine does
//! hits all of them alike. In one round every policy gets the very same packets at the very same times.

mod accounts;
mod options;
mod outcome;
pub(crate) mod pattern;
mod plot;
mod progress;
pub(crate) mod round;
pub(crate) mod setup;
pub(crate) mod svg;
mod sweep;
pub(crate) mod table;
mod transports;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

pub use self::options::Options;
pub use self::outcome::{Outcome, SCHEMA};
use self::progress::Progress;
use self::round::Round;
pub use self::setup::Order;
use self::setup::{Compute, Setup};
pub use self::sweep::SCHEMA as SWEEP_SCHEMA;
pub use self::table::describe;
pub use self::transports::SCHEMA as TRANSPORTS_SCHEMA;
use crate::command::line;
use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::topology::{self, BPFFS, Cluster, Host};
use crate::traffic::Event;

/// Runs the demonstration: builds a cluster, runs the policies, prints the table, writes JSON and plot, removes the cluster.
///
/// # Errors
/// Something cannot be set up or fails, this process was interrupted, or the run does not add up: packets are unaccounted
/// for, a ledger does not balance. In the last case everything has been printed and written.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    if options.sweep {
        return sweep::run(options, interrupt);
    }
    if options.transports {
        return transports::run(options, interrupt);
    }
    let environment = Environment::take();
    let setup = Setup::new(options, &environment)?;
    let progress = Progress::new();
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        progress.say(&format!("removed {cluster}, left by a run that was killed"));
    }
    progress.say(&announcement(&setup, &environment));
    let mut cluster = Cluster::build(setup.shape())?;
    let runs = run_rounds(&mut cluster, &setup, interrupt, &progress)?;
    progress.clear();
    let outcome = Outcome::new(environment, setup, &runs);
    print!("\n{}", table::text(&outcome));
    write(&options.out, &outcome)?;
    if options.keep {
        print!("\n{}", keep(cluster, &outcome.setup, interrupt)?);
    }
    if !outcome.problems.is_empty() {
        bail!("the run does not add up:\n  {}", outcome.problems.join("\n  "));
    }
    Ok(())
}

fn announcement(setup: &Setup, environment: &Environment) -> String {
    let seconds = f64::from(setup.rounds) * (setup.warm_up_s + setup.measured_s) * setup.policies.len() as f64;
    let service = match setup.compute {
        Compute::Real => "computed",
        Compute::Emulated => "emulated",
    };
    format!(
        "{} nodes, policies {}, {} rounds, heavy packets {service}; {seconds:.0} s of traffic on {}",
        setup.nodes,
        setup.policies.join(", "),
        setup.rounds,
        environment.line()
    )
}

/// Every policy in every round; round r begins with policy r.
fn run_rounds(
    cluster: &mut Cluster,
    setup: &Setup,
    interrupt: &Interrupt,
    progress: &Progress,
) -> Result<Vec<(String, Vec<Round>)>> {
    let mut runs: Vec<(String, Vec<Round>)> = setup.policies.iter().map(|name| (name.clone(), Vec::new())).collect();
    let count = runs.len();
    for round in 0..setup.rounds {
        for turn in 0..count {
            let (policy, rounds) = &mut runs[(turn + round as usize) % count];
            let place = format!("round {} of {}, {policy}", round + 1, setup.rounds);
            progress.show(&format!("{place}: starting nodes"));
            let done = round::run(cluster, setup, policy, round, interrupt, |event| {
                progress.show(&format!("{place}: {}", position(event)));
            });
            let done = done.with_context(|| place.clone())?;
            progress.say(&format!("{place}: {}", summary(&done)));
            rounds.push(done);
        }
    }
    Ok(runs)
}

fn position(event: &Event) -> String {
    match event {
        Event::Progress { sent, received, elapsed_ns } => {
            format!("{:.1} s, {sent} sent, {received} back", Duration::from_nanos(*elapsed_ns).as_secs_f64())
        }
        Event::Report(_) => "done".to_owned(),
    }
}

fn summary(round: &Round) -> String {
    let latency = &round.report.latency;
    let forwarded = round.interconnect.forwards as f64 / round.report.counts.sent.max(1) as f64;
    format!(
        "mean {}, p99 {}, {} forwarded, {} of {} back",
        table::format_ns(latency.mean_ns()),
        table::format_ns(latency.quantile_ns(0.99) as f64),
        table::format_share(forwarded),
        round.report.counts.received,
        round.report.counts.sent
    )
}

fn write(directory: &Path, outcome: &Outcome) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let mut json = serde_json::to_string_pretty(outcome)?;
    json.push('\n');
    for (name, text) in [("result.json", json), ("latency.svg", plot::draw(outcome))] {
        let path = directory.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}

/// Starts the nodes once more, to stay; returns how to use and to remove them.
fn keep(mut cluster: Cluster, setup: &Setup, interrupt: &Interrupt) -> Result<String> {
    let policy = setup.policies.last().context("BUG: no policy")?;
    for node in cluster.plan().nodes() {
        cluster.start_detached(node, &setup.node_settings(node, policy), interrupt)?;
    }
    cluster.wait_for_peers(interrupt)?;
    let plan = round::generator_plan(&cluster, setup, 0)?;
    let traffic = cluster.directory().join("traffic.json");
    fs::write(&traffic, serde_json::to_vec_pretty(&plan)?)
        .with_context(|| format!("cannot write {}", traffic.display()))?;
    let own = std::env::current_exe().context("cannot find out where this program lies")?;
    let mut generate = cluster.enter(Host::Generator, &own);
    generate.args(["generate", "--text"]).arg(&traffic);
    let load_table = topology::pins(Path::new(BPFFS), &cluster.plan().name(Host::Node(1))).join("LOAD_TABLE");
    let lines = [
        format!("kept: {} nodes running {policy}", setup.nodes),
        format!("  enter node 1   {}", line(&cluster.enter(Host::Node(1), "bash"))),
        format!("  status         {}", line(&cluster.status_command(1))),
        format!("  load table     bpftool map dump pinned {}", load_table.display()),
        format!("  send traffic   {}", line(&generate)),
        format!("  logs           {}", cluster.directory().display()),
        format!("  remove         {} clean {}", own.display(), cluster.plan().run()),
    ];
    cluster.keep();
    Ok(lines.join("\n") + "\n")
}

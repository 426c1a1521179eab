//! The `dataplane-bench` command.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use dataplane_bench::generate::{Kind, Offer, pktgen, replay};
use dataplane_bench::interrupt::{Interrupt, Interrupted};
use dataplane_bench::topology::{self, BPFFS};
use dataplane_bench::traffic::generator::{self, Event, GeneratorPlan};
use dataplane_bench::trials::{burst, faults, loss, reload, scale, soak};
use dataplane_bench::{ask, demo, interconnect, latency, maps, peers, report, throughput, validate};

/// Exit code after SIGINT or SIGTERM, as shells have it.
const INTERRUPTED: u8 = 130;

#[derive(Parser)]
#[command(name = "dataplane-bench", version, about = "Namespace clusters, traffic, measurement, tables and plots.")]
struct Cli {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Run each policy on the same traffic in a cluster of namespaces; print the table, write JSON and plot.
    Demo(demo::Options),
    /// Send traffic by a plan (JSON) in this network namespace; prints one JSON object a line.
    Generate {
        /// The plan.
        plan: PathBuf,
        /// Print a few lines for people at the end instead.
        #[arg(long)]
        text: bool,
    },
    /// Measure the dataplane beside what it can be compared with, in turns on one path.
    Peers(peers::Options),
    /// Search the highest rate without loss, and with little (MLRsearch's logic).
    Throughput(throughput::Options),
    /// Measure how long an answer takes at shares of the highest rate with little loss.
    Latency(latency::Options),
    /// Measure which share is lost at offered rates that fall from the highest (RFC 2544 section 26.3).
    Loss(loss::Options),
    /// Search the longest burst that passes without loss (RFC 2544 section 26.4, RFC 9004).
    Burst(burst::Options),
    /// Run for long and see whether anything drifts.
    Soak(soak::Options),
    /// Measure what more nodes carry.
    Scale(scale::Options),
    /// Measure how long nothing is answered when a node is replaced under load.
    Reload(reload::Options),
    /// Measure what is lost, repeated and late when nodes, links or reports fail.
    Faults(faults::Options),
    /// Compare the transports between nodes: round trips, rate, CPU time.
    Interconnect(interconnect::Options),
    /// Make one HTML page of the results in a directory.
    Report(report::Options),
    /// Compare the simulator with a cluster of namespaces, on the same packets.
    Validate(validate::Options),
    /// Drive the kernel's packet generator in this network namespace, with the letters of the kernel's sample scripts.
    Pktgen(pktgen::Settings),
    /// Send the frames of a capture in this network namespace.
    Replay(replay::Options),
    /// Send one offer (JSON) in this network namespace; prints one JSON object a line.
    #[command(hide = true)]
    Offer {
        /// The offer.
        offer: PathBuf,
    },
    /// Send packets one at a time by a plan (JSON) in this network namespace; prints what came back as JSON.
    #[command(hide = true)]
    Ping {
        /// The plan.
        plan: PathBuf,
    },
    /// Send active packets to a node from ordinary sockets of this network namespace, and check the answers.
    Ask(ask::Options),
    /// Show what libbpf reads of our eBPF object and of a node's pinned maps.
    Maps(maps::Options),
    /// Remove a cluster that `demo --keep` or a killed run left; without a name, list them.
    Clean {
        /// The cluster, for example dpd-4711-0.
        cluster: Option<String>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        Action::Demo(options) => interruptible(|interrupt| demo::run(options, interrupt)),
        Action::Generate { plan, text } => generate(plan, *text),
        Action::Peers(options) => interruptible(|interrupt| peers::run(options, interrupt)),
        Action::Throughput(options) => interruptible(|interrupt| throughput::run(options, interrupt)),
        Action::Latency(options) => interruptible(|interrupt| latency::run(options, interrupt)),
        Action::Loss(options) => interruptible(|interrupt| loss::run(options, interrupt)),
        Action::Burst(options) => interruptible(|interrupt| burst::run(options, interrupt)),
        Action::Soak(options) => interruptible(|interrupt| soak::run(options, interrupt)),
        Action::Scale(options) => interruptible(|interrupt| scale::run(options, interrupt)),
        Action::Reload(options) => interruptible(|interrupt| reload::run(options, interrupt)),
        Action::Faults(options) => interruptible(|interrupt| faults::run(options, interrupt)),
        Action::Interconnect(options) => interruptible(|interrupt| interconnect::run(options, interrupt)),
        Action::Ping { plan } => interconnect::ping::run(plan),
        Action::Report(options) => report::run(options),
        Action::Validate(options) => interruptible(|interrupt| validate::run(options, interrupt)),
        Action::Pktgen(settings) => run_pktgen(settings),
        Action::Replay(options) => interruptible(|interrupt| replay::run(options, interrupt)),
        Action::Offer { offer } => send(offer),
        Action::Ask(options) => ask_node(options),
        Action::Maps(options) => maps::run(options),
        Action::Clean { cluster } => clean(cluster.as_deref()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("interrupted");
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs something that an interrupt ends in good order.
fn interruptible(run: impl FnOnce(&Interrupt) -> Result<()>) -> Result<()> {
    run(&Interrupt::install()?)
}

fn ask_node(options: &ask::Options) -> Result<()> {
    ask::run(options, &Interrupt::install()?)
}

fn run_pktgen(settings: &pktgen::Settings) -> Result<()> {
    if let Some(reason) = pktgen::absence() {
        bail!("{reason}");
    }
    let interrupt = Interrupt::install()?;
    let driver = pktgen::Driver::configure(pktgen::Proc::here(), settings.clone())?;
    for (thread, outcome) in (settings.first..).zip(driver.run(&interrupt)?) {
        let rate = outcome.packets as f64 * 1e6 / outcome.elapsed_us.max(1) as f64;
        println!(
            "{}@{thread}: {} packets of {} bytes in {} us, {rate:.0} a second, {} errors",
            settings.interface, outcome.packets, outcome.bytes, outcome.elapsed_us, outcome.errors
        );
    }
    Ok(())
}

fn send(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let offer: Offer = serde_json::from_str(&text).with_context(|| format!("no offer: {}", path.display()))?;
    Kind::send(&offer, &Interrupt::install()?, &mut |event| event.print())
}

fn generate(path: &Path, as_text: bool) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let plan: GeneratorPlan = serde_json::from_str(&text).with_context(|| format!("no plan: {}", path.display()))?;
    generator::run(&plan, &mut |event| match event {
        Event::Report(report) if as_text => {
            print!("{}", demo::describe(&report));
            Ok(())
        }
        _ if as_text => Ok(()),
        event => event.print(),
    })
}

fn clean(cluster: Option<&str>) -> Result<()> {
    let found = topology::find()?;
    let Some(name) = cluster else {
        for cluster in &found {
            println!("{}  made by process {}: {}", cluster.run, cluster.owner, cluster.namespaces.join(" "));
        }
        return Ok(());
    };
    match found.iter().find(|cluster| cluster.run == name) {
        Some(cluster) => cluster.remove(Path::new(BPFFS)),
        None => bail!("there is no cluster {name}"),
    }
}

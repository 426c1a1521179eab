//! `dataplane-bench peers`: the dataplane and what it can be compared with, in one run, on one path, in turns.
//!
//! Every contender is offered more than it can take, by the same generator on the same CPU, and what arrives is counted.
//! All contenders run once in every round, each round begins with another one, and a ratio is formed of two measurements of
//! one round: what else the machine does hits both alike. See `docs/benchmarking.md` for how to read the result.

mod background;
pub mod contender;
mod goals;
mod kernel;
pub mod lab;
pub mod measure;
mod outcome;
mod plain;
pub(crate) mod product;
mod socket;
mod table;
mod tools;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use dataplane_common::policy::PolicyKind;

use self::contender::{Contender, Settings};
use self::lab::Lab;
use self::measure::Sample;
pub use self::outcome::{Outcome, SCHEMA, Spread};
use crate::autogroup::Favoured;
use crate::environment::Environment;
use crate::generate::Kind;
use crate::interrupt::{Interrupt, Interrupted};
use crate::topology::{self, BPFFS};

/// Fewest rounds whose ratios say anything.
const FEWEST_ROUNDS: u32 = 5;
/// Longest window, s: the occupation of the tested node must last longer.
const LONGEST_WINDOW: f64 = 1.5;

/// Options of `peers`.
#[derive(Args, Debug)]
pub struct Options {
    /// Turns of each contender; with fewer than 5 the output says that it proves nothing.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Length of each measurement, s.
    #[arg(long, default_value_t = 0.4)]
    window: f64,
    /// Nominal size of the frames, bytes, frame check sequence included.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Policies the dataplane runs, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "ept-erl")]
    policies: Vec<String>,
    /// Only contenders whose name holds one of these texts, separated by commas.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// What sends: live, xsk, pktgen, or pcap:FILE.
    #[arg(long, default_value_t = Kind::Live)]
    generator: Kind,
    /// Where to write peers.json.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

/// The measurements of one contender, or why there are none.
pub struct Entry {
    /// Who.
    pub contender: Contender,
    /// One per round, in their order; `None` for a round that failed.
    pub samples: Vec<Option<Sample>>,
    /// Why it did not start, or failed.
    pub failures: Vec<String>,
}

/// Runs the comparison: prints the table, writes `peers.json`.
///
/// # Errors
/// The lab cannot be built, an option makes no sense, or this process was interrupted. A contender that does not start is
/// no error: it is named with the reason.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    check(options)?;
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        eprintln!("removed {cluster}, left by a run that was killed");
    }
    let environment = Environment::take();
    let settings = settings(options.size, &options.generator, environment.cores);
    if let Some(reason) = options.generator.absence() {
        bail!("generator {}: {reason}", options.generator);
    }
    for kind in Kind::PLAIN {
        if let Some(reason) = kind.absence() {
            eprintln!("generator {kind} is not used: {reason}");
        }
    }
    let _favoured = Favoured::take();
    let mut lab = Lab::build(own_program()?)?;
    let mut entries = entries(options)?;
    for round in 0..options.rounds {
        run_round(&mut lab, &mut entries, round, options, &settings, interrupt)?;
    }
    drop(lab);
    let outcome = Outcome::new(environment, options, &settings, &entries);
    print!("\n{}", table::text(&outcome));
    write(&options.out, "peers.json", &outcome)
}

fn check(options: &Options) -> Result<()> {
    ensure!(options.rounds > 0, "--rounds 0: nothing to do");
    ensure!(
        options.window >= 0.05 && options.window <= LONGEST_WINDOW,
        "--window {}: between 0.05 and {LONGEST_WINDOW} s",
        options.window
    );
    for policy in &options.policies {
        ensure!(PolicyKind::from_name(policy).is_some(), "no policy {policy}: `dataplane policies` lists them");
    }
    Ok(())
}

/// This program.
///
/// # Errors
/// The kernel does not say where it lies.
pub fn own_program() -> Result<PathBuf> {
    std::env::current_exe().context("cannot find out where this program lies")
}

/// Frames of `size` bytes by `generator`, which has the first CPU; what is tested has the last.
pub fn settings(size: usize, generator: &Kind, cores: usize) -> Settings {
    Settings { size, by_pktgen: *generator == Kind::Pktgen, cpu: cores.saturating_sub(1), generator_cpu: 0 }
}

/// The contenders that are asked for; those whose program is missing are there with the reason.
fn entries(options: &Options) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for contender in Contender::all(&options.policies) {
        let name = contender.name();
        if !options.only.is_empty() && !options.only.iter().any(|text| name.contains(text)) {
            continue;
        }
        let missing = contender.needs().filter(|(program, _)| !is_installed(program));
        let failures = missing
            .map(|(program, package)| format!("{} is not installed (Debian package {package})", program.display()));
        entries.push(Entry { contender, samples: Vec::new(), failures: failures.into_iter().collect() });
    }
    ensure!(!entries.is_empty(), "--only {}: no contender's name holds that", options.only.join(","));
    Ok(entries)
}

fn is_installed(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).any(|directory| directory.join(program).is_file())
}

fn run_round(
    lab: &mut Lab,
    entries: &mut [Entry],
    round: u32,
    options: &Options,
    settings: &Settings,
    interrupt: &Interrupt,
) -> Result<()> {
    let count = entries.len();
    let measure = (&options.generator, Duration::from_secs_f64(options.window));
    for turn in 0..count {
        let entry = &mut entries[(turn + round as usize) % count];
        // What never worked is not tried again.
        if !entry.failures.is_empty() && entry.samples.iter().all(Option::is_none) {
            continue;
        }
        let name = entry.contender.name();
        match measure::run(lab, &entry.contender, settings, measure, interrupt) {
            Ok(sample) => {
                let (rate, others, stolen) =
                    (sample.rate / 1e6, sample.noise.others * 100.0, sample.noise.stolen * 100.0);
                let noise = format!("other programs {others:.0} %, stolen {stolen:.0} %");
                eprintln!("round {}: {name}: {rate:.3} Mpps ({noise})", round + 1);
                entry.samples.push(Some(sample));
            }
            Err(error) if error.is::<Interrupted>() => return Err(error),
            Err(error) => {
                eprintln!("round {}: {name}: {error:#}", round + 1);
                entry.failures.push(format!("{error:#}"));
                entry.samples.push(None);
                // What it held may be let go of some time later.
                thread::sleep(Duration::from_millis(50));
            }
        }
    }
    Ok(())
}

/// Writes a result into the directory.
///
/// # Errors
/// The directory or the file cannot be written.
pub fn write(directory: &Path, name: &str, value: &impl serde::Serialize) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let path = directory.join(name);
    let mut json = serde_json::to_string_pretty(value)?;
    json.push('\n');
    fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}

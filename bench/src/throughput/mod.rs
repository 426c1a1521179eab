//! `dataplane-bench throughput`: the highest rate without loss (NDR) and with little loss (PDR) of the dataplane and of what
//! it is compared with, by the search of [`crate::search`].

pub(crate) mod device;
mod table;

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use dataplane_common::policy::PolicyKind;
use serde::Serialize;

use self::device::Tested;
use crate::autogroup::Favoured;
use crate::cpu::Noise;
use crate::environment::Environment;
use crate::generate::Kind;
use crate::interrupt::Interrupt;
use crate::peers::contender::Contender;
use crate::peers::lab::Lab;
use crate::peers::{self, measure};
use crate::search::{self, Found, Goal, Limits, Trial};
use crate::topology::{self, BPFFS};

/// Format of `throughput.json`.
pub const SCHEMA: &str = "dataplane.throughput/1";
/// Window in which the generator's ceiling is measured.
pub(crate) const CEILING_WINDOW: Duration = Duration::from_millis(500);
/// Least load, frames per second.
const MIN_LOAD: u64 = 1000;

/// Which goals, with which durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// NDR and PDR by trials of half a second, two and a half seconds of them, bounds 2 % apart: a look.
    Short,
    /// NDR and PDR by FD.io CSIT's settings: 21 s of trials, bounds 0.5 % apart.
    Csit,
    /// One trial of 60 s without loss, as RFC 2544 has it.
    Rfc2544,
}

impl Preset {
    /// Its goals.
    pub fn goals(self) -> Vec<Goal> {
        let short = |goal: Goal| Goal {
            width: 0.02,
            initial_trial_s: 0.5,
            final_trial_s: 0.5,
            duration_sum_s: 2.5,
            preceding: 1,
            ..goal
        };
        match self {
            Self::Short => vec![short(Goal::NDR), short(Goal::PDR)],
            Self::Csit => vec![Goal::NDR, Goal::PDR],
            Self::Rfc2544 => vec![Goal::RFC2544],
        }
    }

    /// Sum of the trials of one search at most, s.
    const fn limit_s(self) -> f64 {
        match self {
            Self::Short => 60.0,
            Self::Csit | Self::Rfc2544 => 1200.0,
        }
    }
}

/// Options of `throughput`.
#[derive(Args, Debug)]
pub struct Options {
    /// Goals and durations.
    #[arg(long, value_enum, default_value_t = Preset::Short)]
    preset: Preset,
    /// Nominal size of the frames, bytes, frame check sequence included.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Policies the dataplane runs, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "ept-erl")]
    policies: Vec<String>,
    /// Contenders whose name holds one of these texts, separated by commas; "all" for every one.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "devmap redirect,dataplane redirect,by hand answer,dataplane answer"
    )]
    only: Vec<String>,
    /// What sends: live, xsk, pktgen, or pcap:FILE.
    #[arg(long, default_value_t = Kind::Live)]
    generator: Kind,
    /// Where to write throughput.json and trials.jsonl.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

/// A contender's result.
#[derive(Clone, Debug, Serialize)]
pub struct Searched {
    /// Name.
    pub name: String,
    /// One per goal; empty where it failed.
    pub found: Vec<Found>,
    /// Trials made.
    pub trials: usize,
    /// Why it did not start, or failed.
    pub failure: Option<String>,
}

/// All results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The machine.
    pub environment: Environment,
    /// Goals and durations.
    pub goals: Vec<Goal>,
    /// What sent.
    pub generator: String,
    /// What it delivers on this path to a program that only drops, frames per second.
    pub generator_ceiling: f64,
    /// Nominal size of the frames, bytes.
    pub frame_bytes: usize,
    /// The contenders.
    pub contenders: Vec<Searched>,
}

/// A line of `trials.jsonl`.
#[derive(Serialize)]
struct Line<'a> {
    contender: &'a str,
    #[serde(flatten)]
    trial: &'a Trial,
    loss_ratio: f64,
    noise: Noise,
}

/// Runs the searches: prints the table, writes `throughput.json` and every trial.
///
/// # Errors
/// The lab cannot be built, an option makes no sense, or this process was interrupted.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let chosen = chosen(&options.policies, &options.only)?;
    if let Some(reason) = options.generator.absence() {
        bail!("generator {}: {reason}", options.generator);
    }
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        eprintln!("removed {cluster}, left by a run that was killed");
    }
    let environment = Environment::take();
    let settings = peers::settings(options.size, &options.generator, environment.cores);
    let _favoured = Favoured::take();
    let mut lab = Lab::build(peers::own_program()?)?;
    let ceiling =
        measure::run(&mut lab, &Contender::Drop, &settings, (&options.generator, CEILING_WINDOW), interrupt)?.rate;
    eprintln!("generator {}: {:.3} Mpps on this path, all dropped", options.generator, ceiling / 1e6);
    let limits = Limits { min_load: MIN_LOAD, max_load: ceiling as u64, trials_s: options.preset.limit_s() };
    let goals = options.preset.goals();
    fs::create_dir_all(&options.out).with_context(|| format!("cannot create {}", options.out.display()))?;
    let path = options.out.join("trials.jsonl");
    let mut log = BufWriter::new(File::create(&path).with_context(|| format!("cannot create {}", path.display()))?);
    let mut contenders = Vec::new();
    for contender in chosen {
        let name = contender.name();
        let tested = Tested {
            lab: &mut lab,
            contender: &contender,
            settings: &settings,
            generator: &options.generator,
            interrupt,
        };
        let result = search_one(tested, &name, &goals, limits, &mut log);
        interrupt.check()?;
        contenders.push(result);
    }
    log.flush().with_context(|| format!("cannot write {}", path.display()))?;
    drop(lab);
    let outcome = Outcome {
        schema: SCHEMA,
        environment,
        goals,
        generator: options.generator.to_string(),
        generator_ceiling: ceiling,
        frame_bytes: options.size,
        contenders,
    };
    print!("\n{}", table::text(&outcome));
    println!("wrote {}", path.display());
    peers::write(&options.out, "throughput.json", &outcome)
}

/// The contenders whose name, commas left out, holds one of the texts `only`; "all" for every one.
///
/// # Errors
/// There is none, or no such policy.
pub(crate) fn chosen(policies: &[String], only: &[String]) -> Result<Vec<Contender>> {
    for policy in policies {
        ensure!(PolicyKind::from_name(policy).is_some(), "no policy {policy}: `dataplane policies` lists them");
    }
    let is_wanted = |contender: &Contender| {
        let name = contender.name().replace(',', "");
        only.iter().any(|text| text == "all" || name.contains(text.as_str()))
    };
    let chosen = Contender::all(policies).into_iter().filter(is_wanted).collect::<Vec<_>>();
    ensure!(!chosen.is_empty(), "--only {}: no contender's name holds that", only.join(","));
    Ok(chosen)
}

fn search_one(tested: Tested<'_>, name: &str, goals: &[Goal], limits: Limits, log: &mut impl Write) -> Searched {
    let mut trials = 0;
    let found = tested.run(|device| {
        search::run(device, goals, limits, |device, trial| {
            trials += 1;
            let line = Line { contender: name, trial, loss_ratio: trial.loss_ratio(), noise: device.noise };
            serde_json::to_writer(&mut *log, &line)?;
            writeln!(log).context("cannot write a trial")?;
            let (load, lost) = (trial.load as f64 / 1e6, trial.loss_ratio() * 100.0);
            let (others, stolen) = (device.noise.others * 100.0, device.noise.stolen * 100.0);
            let noise = format!("other programs {others:.0} %, stolen {stolen:.0} %");
            eprintln!("{name}: trial {trials}: {load:.3} Mpps, {lost:.3} % lost ({noise})");
            Ok(())
        })
    });
    let (found, failure) = match found {
        Ok(found) => (found, None),
        Err(error) => (Vec::new(), Some(format!("{error:#}"))),
    };
    Searched { name: name.to_owned(), found, trials, failure }
}

//! `dataplane-sim matrix`: policies and bounds over many clusters, with a report.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use dataplane_bench::sim::matrix::{Contender, Matrix, Plan, cells, files};
use indicatif::{ProgressBar, ProgressStyle};

use crate::settings::{Settings, run_seeds};

/// Who competes unless told otherwise: `sooner` and its peers, nodes serving in order of arrival and shortest first, and
/// `sooner` whose idle nodes ask for work, too.
const POLICIES: &str = "sooner,c3,prequal,jsq-d,lsq,ept-erl,ept,cpu-load,local,steal,sooner+pull,\
                        sooner+spt,c3+spt,prequal+spt,jsq-d+spt,lsq+spt,ept-erl+spt,steal+spt,sooner+spt+pull";

/// Packets of a run, and runs of each cell: usual, quick.
const PACKETS: [u64; 2] = [100_000, 30_000];
const SEEDS: [u64; 2] = [5, 3];

/// Options of `matrix`.
#[derive(Args)]
pub struct Options {
    /// Only the cells of the survey's tables, with fewer and shorter runs: about a minute.
    #[arg(long)]
    quick: bool,
    /// The policies, separated by commas; +spt = nodes serve the shortest first, +pull = idle nodes ask for work.
    #[arg(long, value_name = "LIST", default_value = POLICIES, hide_default_value = true)]
    policies: String,
    /// Only cells whose name contains this text, or whose group is so named: workloads, load, nodes, cost, speeds, pairs,
    /// others, held-out.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Lists the cells and what runs in them, and runs nothing.
    #[arg(long)]
    list: bool,
    /// Where matrix.csv, matrix.json and report.html go; the directory is made if need be.
    #[arg(long, value_name = "DIR", default_value = "matrix")]
    out: PathBuf,
    /// Packets of a run; cells with rare reports or many nodes take up to ten times as many. [default: 100000, quick 30000]
    #[arg(long)]
    packets: Option<u64>,
    /// Runs of each cell, each with a seed of its own. [default: 5, quick 3]
    #[arg(long)]
    seeds: Option<u64>,
    /// Seed of the first run; the others follow.
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Simulations at the same time.
    #[arg(long, default_value_t = thread::available_parallelism().map_or(1, usize::from))]
    jobs: usize,
    #[command(flatten)]
    settings: Settings,
}

impl Options {
    /// Runs the matrix, writes its files and prints its summary.
    ///
    /// # Errors
    /// An option has an impossible value, or a file cannot be written.
    pub fn run(&self) -> Result<()> {
        let plan = self.plan()?;
        if self.list {
            for cell in &plan.cells {
                println!("{:<10} {}  {}", cell.group.name(), cell.name(), cell.scenario.options().join(" "));
            }
            println!("{} cells, {} simulations", plan.cells.len(), plan.runs());
            return Ok(());
        }
        let bar = progress_bar(plan.runs());
        let matrix = Matrix::run(plan, self.command(), self.jobs, &|| bar.inc(1))?;
        bar.finish_and_clear();
        matrix.write(&self.out)?;
        print!("{}", files::text(&matrix));
        println!("\n{}", self.out.join("report.html").display());
        Ok(())
    }

    fn plan(&self) -> Result<Plan> {
        let contenders = self.policies.split(',').map(Contender::from_name).collect::<Result<Vec<_>>>()?;
        let (mut cells, left_out) = if self.quick { (cells::quick(), 0) } else { cells::full() };
        if let Some(text) = &self.only {
            cells.retain(|cell| cell.group.name() == text || cell.name().contains(text.as_str()));
            ensure!(!cells.is_empty(), "--only {text}: no cell or group has that in its name; --list shows them");
        }
        let place = usize::from(self.quick);
        let seeds = run_seeds(self.first_seed, self.seeds.unwrap_or(SEEDS[place]))?;
        let mut plan = Plan { cells, left_out, contenders, tuning: self.settings.tuning()?, seeds };
        plan.size(self.packets.unwrap_or(PACKETS[place]));
        Ok(plan)
    }

    /// The command that gives the same files, wherever they go and however many simulations run at a time.
    fn command(&self) -> String {
        let mut words = vec!["dataplane-sim matrix".to_owned()];
        words.extend(self.quick.then(|| "--quick".to_owned()));
        if self.policies != POLICIES {
            words.push(format!("--policies {}", self.policies));
        }
        words.extend(self.only.as_ref().map(|text| format!("--only '{}'", text.replace('\'', r"'\''"))));
        words.extend(self.packets.map(|packets| format!("--packets {packets}")));
        words.extend(self.seeds.map(|seeds| format!("--seeds {seeds}")));
        if self.first_seed != 1 {
            words.push(format!("--first-seed {}", self.first_seed));
        }
        words.extend(self.settings.words());
        words.join(" ")
    }
}

/// A bar on standard error, if that is a terminal.
fn progress_bar(runs: usize) -> ProgressBar {
    let bar = ProgressBar::new(runs as u64);
    // A template that could not be parsed would leave the usual bar.
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} simulations, {eta} left") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

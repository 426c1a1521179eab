//! `dataplane-sim reproduce`.

use std::fs;
use std::io::{IsTerminal, stderr};
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{Reproduction, markdown, to_json};
use super::{EXPERIMENTS, Effort, Experiment, ON_REAL_NODES};

/// Runs without `--seeds`, and without it but with `--quick`.
const SEEDS: (u64, u64) = (5, 2);

/// Runs published experiments: their figure, ours, and what differs.
#[derive(Args, Debug)]
pub struct Reproduce {
    /// Experiments by name (thesis), number (e1) or system (s1); `all`, or `list` to see them.
    #[arg(required_unless_present = "list", value_name = "SYSTEM")]
    names: Vec<String>,
    /// Lists the experiments.
    #[arg(long)]
    list: bool,
    /// Writes reproduce.json and reproduce.md there; the directory is made if need be.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs of each experiment, each with a seed of its own [default: 5, with --quick 2].
    #[arg(long)]
    seeds: Option<u64>,
    /// Seed of the first run; the others follow.
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Runs of a fifth of their length: a look, not a result.
    #[arg(long)]
    quick: bool,
}

impl Reproduce {
    /// Runs the experiments asked for and prints them.
    ///
    /// # Errors
    /// An unknown name, no seeds, an experiment that cannot run, or a directory that cannot be written. A missed mark is
    /// no error.
    pub fn run(&self) -> Result<()> {
        if self.list || self.names == ["list"] {
            print!("{}", list());
            return Ok(());
        }
        let chosen = choose(&self.names)?;
        let count = self.seeds.unwrap_or(if self.quick { SEEDS.1 } else { SEEDS.0 });
        ensure!(count > 0, "--seeds 0: nothing to run; 1 or more");
        let seeds = (0..count).map(|run| self.first_seed.wrapping_add(run)).collect();
        let effort = Effort { seeds, is_quick: self.quick };
        let progress = progress(chosen.len() as u64);
        let mut all = Vec::new();
        for experiment in chosen {
            progress.set_message(experiment.name);
            let evidence = (experiment.run)(&effort).with_context(|| format!("experiment {}", experiment.name))?;
            let reproduction = Reproduction { experiment: *experiment, evidence };
            progress.suspend(|| print!("{}", reproduction.text(&effort)));
            all.push(reproduction);
            progress.inc(1);
        }
        progress.finish_and_clear();
        if let Some(out) = &self.out {
            fs::create_dir_all(out).with_context(|| format!("--out {}: cannot make the directory", out.display()))?;
            let json = serde_json::to_string_pretty(&to_json(&all, &effort))?;
            for (name, text) in [("reproduce.json", json + "\n"), ("reproduce.md", markdown(&all, &effort))] {
                let path = out.join(name);
                fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            }
        }
        Ok(())
    }
}

/// A bar on the terminal, or nothing.
fn progress(experiments: u64) -> ProgressBar {
    let target = if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(experiments), target);
    match ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed}") {
        Ok(style) => bar.with_style(style),
        // The template is ours; without it the bar has the crate's own look.
        Err(_) => bar,
    }
}

/// The experiments of these names, in the order of the registry, each once.
fn choose(names: &[String]) -> Result<Vec<&'static Experiment>> {
    for name in names {
        let name = name.to_lowercase();
        if let Some((id, what)) = ON_REAL_NODES.iter().find(|(id, _)| id.to_lowercase() == name) {
            bail!("{id} is not simulated: it is {what}");
        }
        if name != "all" && !EXPERIMENTS.iter().any(|experiment| experiment.is_called(&name)) {
            let names = EXPERIMENTS.iter().map(|experiment| experiment.name).collect::<Vec<_>>().join(", ");
            bail!("no experiment {name}; there are {names}, their numbers (e1), their systems (s1), and all");
        }
    }
    let is_asked = |experiment: &&Experiment| {
        names.iter().map(|name| name.to_lowercase()).any(|name| name == "all" || experiment.is_called(&name))
    };
    Ok(EXPERIMENTS.iter().filter(is_asked).collect())
}

/// A line for each experiment.
fn list() -> String {
    let mut text = String::new();
    for Experiment { id, name, systems, title, .. } in EXPERIMENTS {
        text += &format!("{id:<4} {name:<22} {title} ({})\n", systems.join("; "));
    }
    for (id, what) in ON_REAL_NODES {
        text += &format!("{id:<4} {:<22} {what}\n", "(real nodes)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Result<Vec<&'static str>> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Ok(choose(&names)?.iter().map(|experiment| experiment.name).collect())
    }

    #[test]
    fn experiments_have_names_numbers_and_systems() {
        assert_eq!(names(&["thesis"]).unwrap(), ["thesis"]);
        assert_eq!(names(&["E1"]).unwrap(), ["thesis"]);
        assert!(names(&["s1"]).unwrap().contains(&"relay-storm"));
        assert_eq!(names(&["all", "thesis"]).unwrap().len(), EXPERIMENTS.len());
    }

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        let error = names(&["thesis", "nonsense"]).unwrap_err().to_string();
        assert!(error.contains("nonsense") && error.contains("thesis, "), "{error}");
        assert!(names(&["e2"]).unwrap_err().to_string().contains("real nodes"));
        assert!(names(&["s"]).is_err() && names(&["e"]).is_err() && names(&[""]).is_err());
    }

    #[test]
    fn the_list_has_a_line_for_each() {
        assert_eq!(list().lines().count(), EXPERIMENTS.len() + ON_REAL_NODES.len());
    }
}

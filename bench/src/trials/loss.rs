//! `dataplane-bench loss`: the share of frames lost at offered rates that fall from the highest one, as RFC 2544 section 26.3 has
//! it: in equal steps, until two trials in a row lose nothing.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use super::Log;
use super::path::{Bench, PathOptions};
use crate::autogroup::Favoured;
use crate::cpu::Noise;
use crate::interrupt::Interrupt;
use crate::search::{Device as _, Trial};
use crate::throughput::device::Path;

/// Options of `loss`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Options {
    /// Highest offered rate, frames per second [default: what the generator reaches on this path].
    #[arg(long)]
    max: Option<f64>,
    /// Step from one rate to the next, percent of the highest; RFC 2544 allows 10 at most.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=50))]
    step: u32,
    /// Length of each trial, s; RFC 2544 section 24 asks for 60.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    #[command(flatten)]
    path: PathOptions,
}

/// A line of `loss.jsonl`.
#[derive(Clone, Debug, Serialize)]
struct Line {
    contender: String,
    percent: u32,
    #[serde(flatten)]
    trial: Trial,
    loss_ratio: f64,
    noise: Noise,
}

/// Runs the trials: prints the table, writes `loss.jsonl`.
///
/// # Errors
/// An option makes no sense, the lab cannot be built, or this process was interrupted.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    ensure!(options.seconds > 0.0 && options.seconds <= 3600.0, "--seconds {}: up to an hour", options.seconds);
    let _favoured = Favoured::take();
    let mut bench = Bench::build(&options.path, interrupt)?;
    let max = options.max.unwrap_or(bench.ceiling);
    ensure!(max.is_finite() && max >= 1.0, "--max {max}: not a rate");
    let mut log = Log::create(&options.path.out, "loss", &bench.environment, options)?;
    let mut lines = Vec::new();
    for contender in bench.contenders.clone() {
        let name = contender.name();
        bench.with(&contender, interrupt, |path| descend(path, &name, (max, options), &mut log, &mut lines))?;
    }
    print!("\n{}\n{}", bench.environment.line(), text(&lines));
    log.announce();
    Ok(())
}

/// Tries one contender at falling rates.
fn descend(
    path: &mut Path<'_>,
    contender: &str,
    (max, options): (f64, &Options),
    log: &mut Log,
    lines: &mut Vec<Line>,
) -> Result<()> {
    let mut lossless_in_a_row = 0;
    for percent in percents(options.step) {
        let load = (max * f64::from(percent) / 100.0).round().max(1.0) as u64;
        let trial = path.measure(load, options.seconds)?;
        let loss_ratio = trial.loss_ratio();
        let line = Line { contender: contender.to_owned(), percent, loss_ratio, trial, noise: path.noise };
        log.write(&line)?;
        eprintln!("{contender}: {percent} % = {:.3} Mpps, {:.4} % lost", load as f64 / 1e6, loss_ratio * 100.0);
        lines.push(line);
        lossless_in_a_row = if loss_ratio == 0.0 { lossless_in_a_row + 1 } else { 0 };
        if lossless_in_a_row == 2 {
            break;
        }
    }
    Ok(())
}

/// The rates, percent of the highest.
fn percents(step: u32) -> impl Iterator<Item = u32> {
    (0..).map_while(move |index| 100u32.checked_sub(index * step)).take_while(|percent| *percent > 0)
}

fn text(lines: &[Line]) -> String {
    let mut text = format!("{:<28}  {:>7}  {:>9}  {:>9}  {:>9}\n", "contender", "offered", "Mpps", "received", "lost");
    for line in lines {
        let _ = writeln!(
            text,
            "{:<28}  {:>5} %  {:>9.4}  {:>9}  {:>7.4} %",
            line.contender,
            line.percent,
            line.trial.load as f64 / 1e6,
            line.trial.received,
            line.loss_ratio * 100.0
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_fall_in_equal_steps_from_the_highest() {
        assert_eq!(percents(10).collect::<Vec<_>>(), [100, 90, 80, 70, 60, 50, 40, 30, 20, 10]);
        assert_eq!(percents(30).collect::<Vec<_>>(), [100, 70, 40, 10]);
        assert_eq!(percents(50).last(), Some(50));
    }
}

//! `dataplane-bench loss`: the share of frames lost at offered rates that fall from the highest one, as RFC 2544 section 26.3 has
//! it: in equal steps, until two trials in a row lose nothing. Where the last step still loses, the rate is halved further: the highest
//! rate here is the generator's, which may be many times what the device under test can do.

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

/// Lowest rate that is tried, frames per second.
const LEAST_RATE: u64 = 1000;

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
    /// Offered rate, percent of the highest.
    percent: f64,
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
        let load = (max * percent / 100.0).round() as u64;
        if load < LEAST_RATE {
            break;
        }
        let trial = path.measure(load, options.seconds)?;
        let loss_ratio = trial.loss_ratio();
        let line = Line { contender: contender.to_owned(), percent, loss_ratio, trial, noise: path.noise };
        log.write(&line)?;
        eprintln!("{contender}: {percent:.1} % = {:.3} Mpps, {:.4} % lost", load as f64 / 1e6, loss_ratio * 100.0);
        lines.push(line);
        lossless_in_a_row = if loss_ratio == 0.0 { lossless_in_a_row + 1 } else { 0 };
        if lossless_in_a_row == 2 {
            break;
        }
    }
    Ok(())
}

/// The rates, percent of the highest: equal steps down to the last one above 0, and from there half of the one before, without
/// end.
fn percents(step: u32) -> impl Iterator<Item = f64> {
    let steps = (100 - 1) / step;
    let last = 100 - steps * step;
    let even = (0..=steps).map(move |index| f64::from(100 - index * step));
    even.chain((1..).map(move |halvings| f64::from(last) * 0.5f64.powi(halvings)))
}

fn text(lines: &[Line]) -> String {
    let mut text = format!("{:<28}  {:>7}  {:>9}  {:>9}  {:>9}\n", "contender", "offered", "Mpps", "received", "lost");
    for line in lines {
        let _ = writeln!(
            text,
            "{:<28}  {:>5.1} %  {:>9.4}  {:>9}  {:>7.4} %",
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
    fn rates_fall_in_equal_steps_from_the_highest_and_are_halved_below() {
        let first = |step, count| percents(step).take(count).collect::<Vec<_>>();
        assert_eq!(first(10, 12), [100.0, 90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0, 20.0, 10.0, 5.0, 2.5]);
        assert_eq!(first(30, 6), [100.0, 70.0, 40.0, 10.0, 5.0, 2.5]);
        assert_eq!(first(50, 4), [100.0, 50.0, 25.0, 12.5]);
    }
}

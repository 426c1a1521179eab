//! `dataplane-bench burst`: the longest burst of frames back to back that passes without loss (RFC 2544 section 26.4), by binary
//! search, repeated, and the buffer time that follows from it (RFC 9004 section 6).
//!
//! "Back to back" is as close as the generator sends them; its ceiling is the largest rate that RFC 9004 calls theoretical.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;

use super::Log;
use super::path::{Bench, PathOptions};
use crate::autogroup::Favoured;
use crate::cpu::Noise;
use crate::interrupt::Interrupt;
use crate::throughput::device::Path;

/// How long a burst may take to be sent.
const PATIENCE: Duration = Duration::from_secs(20);
/// Distance of two bursts at which the search ends, relative to the longer one.
const WIDTH: f64 = 0.02;

/// Options of `burst`.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Options {
    /// Longest burst that is tried, frames: one that passes whole says only that there is no limit below.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(2..=100_000_000))]
    max_frames: u32,
    /// Searches, of which the mean counts; RFC 9004 asks for 50.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeat: u32,
    #[command(flatten)]
    path: PathOptions,
}

/// A line of `burst.jsonl`: one burst, or the result of one search.
#[derive(Clone, Debug, Serialize)]
struct Line<'a> {
    contender: &'a str,
    search: u32,
    frames: u32,
    sent: u64,
    received: u64,
    noise: Noise,
}

/// What the searches for one contender found; the last lines of `burst.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Found {
    contender: String,
    /// Longest burst without loss of each search, frames.
    longest: Vec<u32>,
    /// Their mean.
    mean_frames: f64,
    /// Time that a burst of that length lasts at the generator's ceiling, s: what RFC 9004 calls the implied buffer time.
    implied_buffer_s: f64,
    /// Whether a search ended at the longest burst tried.
    is_limited: bool,
}

impl Found {
    fn new(contender: String, longest: Vec<u32>, ceiling: f64, max_frames: u32) -> Self {
        let mean_frames = longest.iter().map(|frames| f64::from(*frames)).sum::<f64>() / longest.len().max(1) as f64;
        let is_limited = longest.contains(&max_frames);
        Self { contender, longest, mean_frames, implied_buffer_s: mean_frames / ceiling, is_limited }
    }
}

/// Runs the searches: prints the table, writes `burst.jsonl`.
///
/// # Errors
/// The lab cannot be built, or this process was interrupted.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    let _favoured = Favoured::take();
    let mut bench = Bench::build(&options.path, interrupt)?;
    ensure!(bench.ceiling > 0.0, "the generator delivers nothing on this path");
    let mut log = Log::create(&options.path.out, "burst", &bench.environment, options)?;
    let mut all = Vec::new();
    for contender in bench.contenders.clone() {
        let name = contender.name();
        let longest = bench.with(&contender, interrupt, |path| {
            (0..options.repeat).map(|search| search_one(path, &name, (search, options.max_frames), &mut log)).collect()
        })?;
        if let Some(longest) = longest {
            let found = Found::new(name, longest, bench.ceiling, options.max_frames);
            log.write(&found)?;
            all.push(found);
        }
    }
    print!("\n{}\n{}", bench.environment.line(), text(&all, options.repeat));
    log.announce();
    Ok(())
}

fn search_one(path: &mut Path<'_>, contender: &str, (search, max): (u32, u32), log: &mut Log) -> Result<u32> {
    let found = longest(max, |frames| {
        let (sent, received) = path.offer(frames, None, PATIENCE)?;
        log.write(&Line { contender, search, frames, sent, received, noise: path.noise })?;
        Ok(received >= u64::from(frames))
    })?;
    eprintln!("{contender}: search {}: {found} frames", search + 1);
    Ok(found)
}

/// The longest burst up to `max` that passes, to [`WIDTH`]; 0 when not even one frame does.
fn longest(max: u32, mut passes: impl FnMut(u32) -> Result<bool>) -> Result<u32> {
    if passes(max)? {
        return Ok(max);
    }
    let (mut good, mut bad) = (0, max);
    while bad - good > 1 && f64::from(bad - good) > WIDTH * f64::from(bad) {
        let middle = good + (bad - good) / 2;
        if passes(middle)? {
            good = middle;
        } else {
            bad = middle;
        }
    }
    Ok(good)
}

fn text(all: &[Found], repeat: u32) -> String {
    let mut text = format!("{:<28}  {:>9}  {:>9}  {:>9}  {:>11}\n", "contender", "mean", "least", "most", "buffer, us");
    for found in all {
        let (least, most) = (found.longest.iter().min(), found.longest.iter().max());
        let _ = writeln!(
            text,
            "{:<28}  {:>9.0}  {:>9}  {:>9}  {:>11.1}{}",
            found.contender,
            found.mean_frames,
            least.unwrap_or(&0),
            most.unwrap_or(&0),
            found.implied_buffer_s * 1e6,
            if found.is_limited { "  (the longest burst tried: there may be no limit)" } else { "" }
        );
    }
    if repeat < 50 {
        let _ = writeln!(text, "means of {repeat}; RFC 9004 asks for 50 (--repeat 50)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_at_the_limit_of_the_device() {
        for limit in [0, 1, 5, 100, 1_999, 150_000] {
            let found = longest(200_000, |frames| Ok(frames <= limit)).unwrap();
            assert!(found <= limit && f64::from(limit - found) <= WIDTH * f64::from(limit) + 1.0, "{limit}: {found}");
        }
        let mut trials = 0;
        let found = longest(200_000, |_| {
            trials += 1;
            Ok(true)
        });
        assert_eq!((found.unwrap(), trials), (200_000, 1));
    }

    #[test]
    fn buffer_time_is_the_burst_at_the_ceiling() {
        let found = Found::new("x".to_owned(), vec![1000, 3000], 2e6, 5000);
        assert_eq!((found.mean_frames, found.implied_buffer_s, found.is_limited), (2000.0, 1e-3, false));
        assert!(Found::new("x".to_owned(), vec![5000], 2e6, 5000).is_limited);
    }
}

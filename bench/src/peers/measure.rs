//! One measurement of one contender: overload it, count what arrives in a window of time.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;

use super::contender::{Contender, CountedAt, Running, Settings};
use super::lab::{Lab, TESTED};
use crate::command;
use crate::cpu::{Noise, NoiseWatch};
use crate::generate::{Kind, Offer, Offering};
use crate::interrupt::Interrupt;
use crate::topology::{Host, PORT_INTERFACE};

/// From the start of the traffic to the window.
const WARM_UP: Duration = Duration::from_millis(150);
/// How long the first frame may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// What one measurement gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// Frames per second that arrived.
    pub rate: f64,
    /// Frames that arrived in the window.
    pub frames: u64,
    /// Length of the window, s.
    pub seconds: f64,
    /// What disturbed it.
    pub noise: Noise,
}

/// Starts the contender, overloads it for `window`, and ends it.
///
/// # Errors
/// It does not start, or what is measured is not what it should be.
pub fn run(
    lab: &mut Lab,
    contender: &Contender,
    settings: &Settings,
    (generator, window): (&Kind, Duration),
    interrupt: &Interrupt,
) -> Result<Sample> {
    let running = contender.start(lab, settings, interrupt)?;
    let sample = overload(lab, contender, running.as_ref(), settings, (generator, window), interrupt);
    let stopped = running.stop(lab);
    let sample = sample?;
    stopped?;
    Ok(sample)
}

fn overload(
    lab: &Lab,
    contender: &Contender,
    running: &dyn Running,
    settings: &Settings,
    (generator, window): (&Kind, Duration),
    interrupt: &Interrupt,
) -> Result<Sample> {
    let offer = Offer {
        kind: generator.clone(),
        interface: lab.cluster.plan().port(TESTED).generator_interface,
        frame: contender.frame(lab, settings)?,
        // More than any generator sends before it is stopped.
        count: i32::MAX as u32,
        rate: None,
        cpu: settings.generator_cpu,
    };
    let count = || received(lab, contender.counted_at(), running);
    let before = count()?;
    let offering = Offering::start(&lab.cluster, &lab.program, &offer, interrupt)?;
    let deadline = Instant::now() + PATIENCE;
    while count()? == before {
        ensure!(Instant::now() < deadline, "no frame arrived within {PATIENCE:?} ({})", contender.counted_at().name());
        interrupt.sleep(Duration::from_millis(2))?;
    }
    interrupt.sleep(WARM_UP)?;
    let mut ours = running.pids();
    ours.extend([std::process::id(), offering.pid()]);
    let watch = NoiseWatch::begin(&ours)?;
    let (first, start) = stamped(count)?;
    interrupt.sleep(window)?;
    let (last, end) = stamped(count)?;
    let noise = watch.end()?;
    offering.stop()?;
    let seconds = end.duration_since(start).as_secs_f64();
    let frames = last.saturating_sub(first);
    Ok(Sample { rate: frames as f64 / seconds, frames, seconds, noise })
}

/// A count and when it was taken: in the middle of the call.
fn stamped(count: impl Fn() -> Result<u64>) -> Result<(u64, Instant)> {
    let before = Instant::now();
    let number = count()?;
    Ok((number, before + before.elapsed() / 2))
}

/// Frames received so far.
///
/// # Errors
/// A counter cannot be read.
pub fn received(lab: &Lab, at: CountedAt, running: &dyn Running) -> Result<u64> {
    match at {
        CountedAt::Program => running.counted(),
        CountedAt::Back => Ok(lab.back()?.udp),
        CountedAt::Onward => lab.onward().map(|seen| seen.udp + seen.forwards),
        CountedAt::DriverRedirects => driver_count(lab, "xdp_redirect"),
        CountedAt::DriverDrops => driver_count(lab, "xdp_drops"),
    }
}

/// A counter of the tested port's driver, summed over its receive queues.
fn driver_count(lab: &Lab, name: &str) -> Result<u64> {
    let mut command: Command = lab.cluster.enter(Host::Node(TESTED), "ethtool");
    let text = command::output(command.args(["-S", PORT_INTERFACE]))?;
    sum_of(&text, name).with_context(|| format!("the driver has no counter {name}"))
}

/// Sum of `rx_queue_N_NAME: value` over N; `None` without any.
fn sum_of(text: &str, name: &str) -> Option<u64> {
    let values = text.lines().filter_map(|line| {
        let (key, value) = line.trim().strip_prefix("rx_queue_")?.split_once(": ")?;
        let (_, counter) = key.split_once('_')?;
        (counter == name).then(|| value.parse::<u64>().ok())?
    });
    values.reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_summed_and_other_counters_left_out() {
        let text = "NIC statistics:\n     rx_queue_0_xdp_redirect: 7\n     rx_queue_0_xdp_drops: 1\n     \
                    rx_queue_1_xdp_redirect: 5\n     tx_queue_0_xdp_redirect: 9\n";
        assert_eq!(sum_of(text, "xdp_redirect"), Some(12));
        assert_eq!(sum_of(text, "xdp_drops"), Some(1));
        assert_eq!(sum_of(text, "xdp_tx"), None);
    }
}

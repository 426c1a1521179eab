//! What a comparison says, as `peers.json` has it.

use serde::Serialize;

use super::contender::{Contender, CountedAt, Group, Settings};
use super::goals::{self, Goal};
use super::{Entry, FEWEST_ROUNDS, Options};
use crate::environment::Environment;
use crate::generate::Kind;

/// Format of the file.
pub const SCHEMA: &str = "dataplane.peers/1";

/// Least, middle and largest of several numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Least.
    pub min: f64,
    /// The median: of an even count, the mean of the middle two.
    pub median: f64,
    /// Largest.
    pub max: f64,
    /// How many.
    pub count: usize,
}

impl Spread {
    /// Of these numbers; `None` of none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values = values.into_iter().collect::<Vec<_>>();
        values.sort_by(f64::total_cmp);
        let (min, max, count) = (*values.first()?, *values.last()?, values.len());
        let median = (values[(count - 1) / 2] + values[count / 2]) / 2.0;
        Some(Self { min, median, max, count })
    }
}

/// A contender's result.
#[derive(Clone, Debug, Serialize)]
pub struct Result {
    /// Name.
    pub name: String,
    /// What it is compared with.
    pub group: Group,
    /// Where its frames were counted.
    pub counted_at: CountedAt,
    /// Frames per second that arrived, by round; `null` where it failed.
    pub rates: Vec<Option<f64>>,
    /// Their spread; `null` without any.
    pub rate: Option<Spread>,
    /// Ratio to the reference of its group, over rounds in which both worked.
    pub ratio: Option<Spread>,
    /// That reference.
    pub reference: String,
    /// Share of the CPUs that other programs used during its measurements.
    pub others: Option<Spread>,
    /// Share of the CPUs that the host of this virtual machine took away.
    pub stolen: Option<Spread>,
    /// Why it did not start, or failed.
    pub failures: Vec<String>,
}

/// A generator that was not used because it is not there.
#[derive(Clone, Debug, Serialize)]
pub struct Absent {
    /// Its name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// The comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The machine.
    pub environment: Environment,
    /// What was sent over.
    pub path: &'static str,
    /// How XDP was attached and sockets were bound.
    pub mode: &'static str,
    /// What sent.
    pub generator: String,
    /// What it delivers on this path to a program that only drops, frames per second: no contender can be faster.
    pub generator_ceiling: Option<Spread>,
    /// Generators this machine does not have.
    pub absent_generators: Vec<Absent>,
    /// Nominal size of the frames, bytes, frame check sequence included.
    pub frame_bytes: usize,
    /// CPU of the generator and of XDP programs.
    pub generator_cpu: usize,
    /// CPU of what is tested, where it has a thread.
    pub tested_cpu: usize,
    /// Turns of each contender.
    pub rounds: u32,
    /// Whether that many prove anything.
    pub enough_rounds: bool,
    /// Length of each measurement, s.
    pub window_s: f64,
    /// The contenders, in the order of their first turn.
    pub contenders: Vec<Result>,
    /// What was to be shown.
    pub goals: Vec<Goal>,
}

impl Outcome {
    /// Puts the measurements together.
    pub fn new(environment: Environment, options: &Options, settings: &Settings, entries: &[Entry]) -> Self {
        let absent = |kind: Kind| Some(Absent { name: kind.to_string(), reason: kind.absence()? });
        Self {
            schema: SCHEMA,
            environment,
            path: "two veth pairs between three network namespaces, one queue each",
            mode: "native XDP; AF_XDP in copy mode, the only one a veth has",
            generator: options.generator.to_string(),
            generator_ceiling: find(entries, &Contender::Drop).and_then(|entry| Spread::of(rates(entry).flatten())),
            absent_generators: Kind::PLAIN.into_iter().filter_map(absent).collect(),
            frame_bytes: settings.size,
            generator_cpu: settings.generator_cpu,
            tested_cpu: settings.cpu,
            rounds: options.rounds,
            enough_rounds: options.rounds >= FEWEST_ROUNDS,
            window_s: options.window,
            contenders: entries.iter().map(|entry| result(entry, entries)).collect(),
            goals: goals::check(entries),
        }
    }
}

/// The contender that others of a group are compared with.
pub const fn reference(group: Group) -> Contender {
    match group {
        Group::Drop => Contender::Drop,
        Group::Xdp => Contender::Redirect,
        Group::Receive => Contender::SocketDrop,
        Group::Answer => Contender::SocketAnswer,
        Group::Kernel => Contender::KernelForward,
    }
}

/// The entry of a contender.
pub fn find<'a>(entries: &'a [Entry], contender: &Contender) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.contender == *contender)
}

/// Rates by round.
pub fn rates(entry: &Entry) -> impl Iterator<Item = Option<f64>> {
    entry.samples.iter().map(|sample| sample.map(|sample| sample.rate))
}

fn result(entry: &Entry, entries: &[Entry]) -> Result {
    let reference = reference(entry.contender.group());
    let ratio = find(entries, &reference).and_then(|other| {
        let pairs = rates(entry).zip(rates(other)).filter_map(|(rate, other)| Some(rate? / other?));
        Spread::of(pairs)
    });
    Result {
        name: entry.contender.name(),
        group: entry.contender.group(),
        counted_at: entry.contender.counted_at(),
        rates: rates(entry).collect(),
        rate: Spread::of(rates(entry).flatten()),
        ratio,
        reference: reference.name(),
        others: Spread::of(entry.samples.iter().flatten().map(|sample| sample.noise.others)),
        stolen: Spread::of(entry.samples.iter().flatten().map(|sample| sample.noise.stolen)),
        failures: entry.failures.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_least_median_and_largest() {
        assert_eq!(Spread::of([]), None);
        let expected = Spread { min: 1.0, median: 2.5, max: 9.0, count: 4 };
        assert_eq!(Spread::of([9.0, 1.0, 3.0, 2.0]), Some(expected));
        assert_eq!(Spread::of([7.0]).map(|spread| spread.median), Some(7.0));
    }
}

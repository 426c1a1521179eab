//! What the comparison is to show, checked pair by pair.

use serde::Serialize;

use super::Entry;
use super::contender::Contender;
use super::outcome::{Spread, rates};

/// A goal and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// What is to be shown.
    pub what: String,
    /// The ratio wanted, at least.
    pub wanted: f64,
    /// The ratio, over rounds in which both sides worked; `null` when there was none.
    pub ratio: Option<Spread>,
    /// Whether its median is as wanted; `null` when there is none.
    pub is_met: Option<bool>,
}

/// Checks every goal for every policy that ran.
pub fn check(entries: &[Entry]) -> Vec<Goal> {
    let is_redirect = |contender: &Contender| matches!(contender, Contender::ProductRedirect(_));
    let is_receive = |contender: &Contender| matches!(contender, Contender::ProductReceive(_));
    let is_answer = |contender: &Contender| matches!(contender, Contender::ProductAnswer(_));
    let best_receive = [Contender::SocketDrop, Contender::TestpmdReceive];
    let best_answer = [Contender::SocketAnswer, Contender::TestpmdAnswer];
    [
        goals(entries, is_redirect, &[Contender::Redirect], 0.95, "a plain devmap redirect"),
        goals(entries, is_receive, &best_receive, 1.0, "the best AF_XDP receiver without decision"),
        goals(entries, is_answer, &best_answer, 1.0, "the best AF_XDP answerer without decision"),
        goals(entries, is_redirect, &[Contender::KernelForward], 3.5, "kernel forwarding"),
    ]
    .concat()
}

fn goals(
    entries: &[Entry],
    is_ours: impl Fn(&Contender) -> bool,
    others: &[Contender],
    wanted: f64,
    to: &str,
) -> Vec<Goal> {
    let others = entries.iter().filter(|entry| others.contains(&entry.contender)).collect::<Vec<_>>();
    let ours = entries.iter().filter(|entry| is_ours(&entry.contender));
    ours.map(|entry| {
        let best = |round: usize| {
            let rates = others.iter().filter_map(|other| other.samples.get(round).copied().flatten());
            rates.map(|sample| sample.rate).reduce(f64::max)
        };
        let pairs = rates(entry).enumerate().filter_map(|(round, rate)| Some(rate? / best(round)?));
        let ratio = Spread::of(pairs);
        Goal {
            what: format!("{} / {to}", entry.contender.name()),
            wanted,
            ratio,
            is_met: ratio.map(|ratio| ratio.median >= wanted),
        }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::measure::Sample;
    use super::*;
    use crate::cpu::Noise;

    fn entry(contender: Contender, rates: &[Option<f64>]) -> Entry {
        let sample = |rate: f64| Sample { rate, frames: 1, seconds: 1.0, noise: Noise::default() };
        Entry { contender, samples: rates.iter().map(|rate| rate.map(sample)).collect(), failures: Vec::new() }
    }

    #[test]
    fn the_best_other_of_each_round_counts() {
        let entries = [
            entry(Contender::ProductReceive("ept".to_owned()), &[Some(10.0), Some(10.0), Some(10.0)]),
            entry(Contender::SocketDrop, &[Some(5.0), Some(20.0), None]),
            entry(Contender::TestpmdReceive, &[Some(10.0), Some(10.0), None]),
        ];
        let goals = check(&entries);
        assert_eq!(goals.len(), 1);
        let ratio = goals[0].ratio.unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.max, ratio.count), (0.5, 0.75, 1.0, 2));
        assert_eq!(goals[0].is_met, Some(false));
    }

    #[test]
    fn a_goal_without_a_pair_is_neither_met_nor_missed() {
        let entries = [entry(Contender::ProductRedirect("ept".to_owned()), &[Some(1.0)])];
        let goals = check(&entries);
        assert_eq!(goals.len(), 2);
        assert!(goals.iter().all(|goal| goal.ratio.is_none() && goal.is_met.is_none()));
    }
}

//! What a policy's runs say together, as `result.json` has it.

use std::collections::BTreeMap;

use dataplane_common::reason::Reason;
use dataplane_user::functions::Builtin;
use serde::Serialize;

use super::accounts::{Interconnect, Packets};
use super::round::Round;
use super::setup::{Order, Setup};
use crate::chaos::{Chaos, Share, Tally};
use crate::command;
use crate::cpu::CpuShares;
use crate::environment::Environment;
use crate::status::{Function, Ledger, Status};
use crate::traffic::{Counts, Distribution};

/// Format of `result.json`.
pub const SCHEMA: &str = "dataplane.demo/1";

/// Points of the curve that goes into the plot and the JSON.
const CURVE_POINTS: u32 = 61;
/// The curve ends at the quantile 1 − 10^-this.
const CURVE_NINES: f64 = 3.0;

/// `result.json`.
#[derive(Debug, Serialize)]
pub struct Outcome {
    schema: &'static str,
    /// The machine.
    pub host: Environment,
    /// The command that was run.
    pub command: String,
    /// What was run.
    pub setup: Setup,
    /// By policy.
    pub policies: BTreeMap<String, PolicyOutcome>,
    /// One per policy, round and node.
    pub ledgers: Vec<LedgerEntry>,
    /// What is wrong with the run itself; empty when everything adds up.
    pub problems: Vec<String>,
}

/// One policy over all rounds.
#[derive(Debug, Default, Serialize)]
pub struct PolicyOutcome {
    /// Latency of the measured packets, ns.
    #[serde(flatten)]
    pub latency: Summary,
    /// Packets, over warm-up and measurement.
    #[serde(flatten)]
    pub counts: Counts,
    /// Packets that did not come back.
    pub lost: u64,
    /// Packets computed by another node than the one they arrived at.
    pub forwarded: u64,
    /// Their share of all packets.
    pub forwarded_share: f64,
    /// Bytes between the nodes for forwards and results.
    pub interconnect_bytes: u64,
    /// Packets that nobody can name.
    pub unaccounted: i64,
    /// Share of the results that came back after one of their flow that was sent later (RFC 4737, Type-P-Reordered).
    pub reordered_share: f64,
    /// Share of the results that came back right behind three or more such (RFC 4737, n-reordering with n >= 3).
    pub three_reordered_share: f64,
    /// Results that nodes sent out of the order of their flow, because an earlier one had not come in time.
    pub out_of_order_noted: u64,
    /// Median relative error of the estimated against the measured processing time: over nodes and functions, weighted
    /// by packets.
    pub ept_median_error: f64,
    /// Sum of the estimates ÷ sum of the measured times.
    pub ept_predicted_to_measured: f64,
    /// Share of the time that each node's workers were busy, mean over the rounds.
    pub busy: Vec<f64>,
    /// Where packets ended that did not come back.
    pub packets: Packets,
    /// What the nodes sent each other.
    pub interconnect: Interconnect,
    /// What happened to it on the links, in both directions of all of them; `None` without boxes in them.
    pub cables: Option<Tally>,
    /// Error of the generator's timer, ns; part of the latency.
    pub send_lag: Summary,
    /// By kind of packet.
    pub kinds: BTreeMap<String, KindOutcome>,
    /// By function.
    pub functions: BTreeMap<String, FunctionOutcome>,
    /// Each round by itself: how much of a difference is noise.
    pub rounds: Vec<RoundOutcome>,
    /// (quantile, latency in ns).
    pub latency_curve: Vec<(f64, u64)>,
}

/// A distribution in a few numbers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Values.
    pub measured: u64,
    /// Mean, ns.
    pub mean_ns: f64,
    /// Median, ns.
    pub p50_ns: u64,
    /// 90th percentile, ns.
    pub p90_ns: u64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// 99.9th percentile, ns.
    pub p999_ns: u64,
    /// Largest, ns.
    pub max_ns: u64,
}

impl Summary {
    /// Sums a distribution up.
    pub fn of(distribution: &Distribution) -> Self {
        Self {
            measured: distribution.count(),
            mean_ns: distribution.mean_ns(),
            p50_ns: distribution.quantile_ns(0.5),
            p90_ns: distribution.quantile_ns(0.9),
            p99_ns: distribution.quantile_ns(0.99),
            p999_ns: distribution.quantile_ns(0.999),
            max_ns: distribution.max_ns(),
        }
    }
}

/// One kind of packet under one policy.
#[derive(Debug, Serialize)]
pub struct KindOutcome {
    /// Packets sent.
    pub sent: u64,
    /// Packets that came back.
    pub received: u64,
    /// Whether its computation is emulated.
    pub emulated: bool,
    /// Latency of the measured ones.
    #[serde(flatten)]
    pub latency: Summary,
}

/// One function under one policy.
#[derive(Debug, Default, Serialize)]
pub struct FunctionOutcome {
    /// Packets computed.
    pub samples: u64,
    /// Sum of the estimates, ns.
    pub predicted_ns: u64,
    /// Sum of the measured times, ns.
    pub measured_ns: u64,
    /// Median relative error, over nodes weighted by packets.
    pub median_error: f64,
}

/// One round of one policy.
#[derive(Debug, Serialize)]
pub struct RoundOutcome {
    /// Number of the round.
    pub round: u32,
    /// Mean latency, ns.
    pub mean_ns: f64,
    /// 99th percentile, ns.
    pub p99_ns: u64,
    /// Share of packets computed by another node.
    pub forwarded_share: f64,
    /// Who used the CPUs.
    pub cpu: CpuShares,
}

/// A node's ledger at the end of a run.
#[derive(Debug, Serialize)]
pub struct LedgerEntry {
    /// Policy.
    pub policy: String,
    /// Round.
    pub round: u32,
    /// Node.
    pub node: u16,
    /// The ledger.
    #[serde(flatten)]
    pub ledger: Ledger,
}

impl Outcome {
    /// Puts the runs together: (policy, its rounds), in the order of the setup.
    pub fn new(host: Environment, setup: Setup, runs: &[(String, Vec<Round>)]) -> Self {
        let mut outcome = Self {
            schema: SCHEMA,
            host,
            command: command::own_line(),
            setup,
            policies: BTreeMap::new(),
            ledgers: Vec::new(),
            problems: Vec::new(),
        };
        let chaos = outcome.setup.chaos.unwrap_or_default();
        for (policy, rounds) in runs {
            let result = PolicyOutcome::new(&outcome.setup, rounds);
            outcome.problems.extend(problems(policy, outcome.setup.order, &chaos, &result));
            for round in rounds {
                // A kernel socket is read some time after the kernel has counted the frame, reports included.
                if outcome.setup.transport != "udp" && !round.interconnect.agrees_with_kernel() {
                    let account = &round.interconnect;
                    outcome.problems.push(format!(
                        "{policy}, round {}: nodes saw {} frames on their links, the kernel counted {} to {}",
                        round.round, account.frames_seen, account.kernel_frames_min, account.kernel_frames_max
                    ));
                }
                for status in &round.end.statuses {
                    let (node, ledger) = (status.node.id, status.ledger);
                    if !ledger.balances {
                        outcome.problems.push(format!(
                            "{policy}, round {}: the ledger of node {node} does not balance: {ledger:?}",
                            round.round
                        ));
                    }
                    outcome.ledgers.push(LedgerEntry { policy: policy.clone(), round: round.round, node, ledger });
                }
            }
            outcome.policies.insert(policy.clone(), result);
        }
        outcome
    }

    /// The policies with their results, in the order of the setup.
    pub fn in_order(&self) -> impl Iterator<Item = (&str, &PolicyOutcome)> {
        self.setup.policies.iter().filter_map(|name| Some((name.as_str(), self.policies.get(name)?)))
    }

    /// The policy with the lowest mean latency.
    pub fn fastest(&self) -> Option<&str> {
        let fastest = self.in_order().min_by(|(_, a), (_, b)| a.latency.mean_ns.total_cmp(&b.latency.mean_ns))?;
        Some(fastest.0)
    }
}

impl PolicyOutcome {
    fn new(setup: &Setup, rounds: &[Round]) -> Self {
        let mut latency = Distribution::default();
        let mut lag = Distribution::default();
        let mut outcome = Self { busy: vec![0.0; usize::from(setup.nodes)], ..Self::default() };
        for round in rounds {
            latency.merge(&round.report.latency);
            lag.merge(&round.report.lag);
            outcome.counts.add(&round.report.counts);
            outcome.packets.add(&round.packets);
            outcome.interconnect.add(&round.interconnect);
            if setup.chaos.is_some() {
                outcome.cables.get_or_insert_default().add(&round.cables);
            }
            for (sum, busy) in outcome.busy.iter_mut().zip(&round.busy) {
                *sum += busy / rounds.len() as f64;
            }
            outcome.rounds.push(RoundOutcome {
                round: round.round,
                mean_ns: round.report.latency.mean_ns(),
                p99_ns: round.report.latency.quantile_ns(0.99),
                forwarded_share: share(round.interconnect.forwards, round.report.counts.sent),
                cpu: round.cpu,
            });
        }
        outcome.lost = outcome.counts.lost();
        outcome.forwarded = outcome.interconnect.forwards;
        outcome.forwarded_share = share(outcome.forwarded, outcome.counts.sent);
        outcome.interconnect_bytes = outcome.interconnect.bytes;
        outcome.unaccounted = outcome.packets.unaccounted;
        outcome.reordered_share = share(outcome.counts.reordered, outcome.counts.received);
        outcome.three_reordered_share = share(outcome.counts.three_reordered, outcome.counts.received);
        let statuses = rounds.iter().flat_map(|round| &round.end.statuses);
        // Nodes start anew in every round.
        let noted = |status: &Status| status.count(Reason::NoteOutOfOrder) + status.count(Reason::NoteLate);
        outcome.out_of_order_noted = statuses.map(noted).sum();
        outcome.latency = Summary::of(&latency);
        outcome.send_lag = Summary::of(&lag);
        outcome.latency_curve = curve(&latency);
        outcome.kinds = kinds(setup, rounds);
        let functions = || rounds.iter().flat_map(|round| &round.end.statuses).flat_map(|status| &status.functions);
        outcome.ept_median_error = median_error(functions());
        outcome.ept_predicted_to_measured = share(
            functions().map(|function| function.predicted_ns).sum(),
            functions().map(|function| function.measured_ns).sum(),
        );
        for builtin in Builtin::ALL {
            let of_name = || functions().filter(|function| function.name == builtin.name());
            let samples = of_name().map(|function| function.samples).sum();
            if samples > 0 {
                let function = FunctionOutcome {
                    samples,
                    predicted_ns: of_name().map(|function| function.predicted_ns).sum(),
                    measured_ns: of_name().map(|function| function.measured_ns).sum(),
                    median_error: median_error(of_name()),
                };
                outcome.functions.insert(builtin.name().to_owned(), function);
            }
        }
        outcome
    }
}

fn kinds(setup: &Setup, rounds: &[Round]) -> BTreeMap<String, KindOutcome> {
    let mut kinds = BTreeMap::new();
    for (index, kind) in setup.mix.iter().enumerate() {
        let mut latency = Distribution::default();
        let (mut sent, mut received) = (0, 0);
        for report in rounds.iter().map(|round| &round.report.kinds[index]) {
            latency.merge(&report.latency);
            sent += report.sent;
            received += report.received;
        }
        let latency = Summary::of(&latency);
        kinds.insert(kind.name.clone(), KindOutcome { sent, received, emulated: kind.emulated, latency });
    }
    kinds
}

/// What must not be: each of these means that something was lost, broken or miscounted.
/// What cannot be, and is. What the boxes in the links were told to do is no problem: a copy of a forward comes back twice, and
/// a changed byte of an interconnect header can mean anything.
fn problems(policy: &str, order: Order, chaos: &Chaos, outcome: &PolicyOutcome) -> Vec<String> {
    let counts = &outcome.counts;
    let (copies, changes) = (chaos.duplicate > Share::NONE, chaos.corrupt > Share::NONE);
    // A node that gives an earlier result up says so.
    let disordered = match order {
        Order::Flow => counts.reordered.saturating_sub(outcome.out_of_order_noted),
        Order::None => 0,
    };
    let checks = [
        (changes, disordered, "packets came back out of order and no node knows why"),
        (changes, outcome.unaccounted.unsigned_abs(), "packets unaccounted for"),
        (copies || changes, counts.duplicated, "packets came back twice"),
        (changes, counts.misdelivered, "packets came out of the wrong port"),
        (changes, counts.corrupt, "packets came back with a wrong checksum"),
        (changes, counts.results_wrong, "results were wrong"),
    ];
    let wrong = checks.into_iter().filter(|(is_meant, count, _)| !is_meant && *count > 0);
    wrong.map(|(_, count, what)| format!("{policy}: {count} {what}")).collect()
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The median of the functions' median errors, weighted by packets.
fn median_error<'a>(functions: impl Iterator<Item = &'a Function>) -> f64 {
    let mut weighted = functions.map(|function| (function.error_p50_milli, function.samples)).collect::<Vec<_>>();
    weighted.sort_unstable();
    let half = weighted.iter().map(|(_, samples)| samples).sum::<u64>() / 2;
    let mut seen = 0;
    for (milli, samples) in weighted {
        seen += samples;
        if seen > half {
            return milli as f64 / 1000.0;
        }
    }
    0.0
}

/// Latency by quantile, in equal steps of "nines".
fn curve(distribution: &Distribution) -> Vec<(f64, u64)> {
    if distribution.count() == 0 {
        return Vec::new();
    }
    let quantile = |step: u32| 1.0 - 10f64.powf(-CURVE_NINES * f64::from(step) / f64::from(CURVE_POINTS - 1));
    (0..CURVE_POINTS).map(quantile).map(|quantile| (quantile, distribution.quantile_ns(quantile))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(error_p50_milli: u64, samples: u64) -> Function {
        Function {
            name: "crc32".to_owned(),
            type_id: 0xff02,
            worker: 0,
            a_ns: 0,
            b_ns_per_unit: 0.0,
            samples,
            predicted_ns: 0,
            measured_ns: 0,
            error_p50_milli,
            error_p99_milli: 0,
        }
    }

    #[test]
    fn the_median_error_weighs_packets() {
        let functions = [function(500, 10), function(20, 1000), function(30, 900)];
        assert!((median_error(functions.iter()) - 0.020).abs() < 1e-9);
        assert_eq!(median_error([].iter()), 0.0);
    }

    #[test]
    fn the_curve_runs_from_the_smallest_to_three_nines() {
        let mut distribution = Distribution::default();
        (1..=10_000).for_each(|ns| distribution.record(ns));
        let curve = curve(&distribution);
        assert_eq!(curve.len(), 61);
        assert_eq!(curve[0], (0.0, 1));
        assert!((curve[60].0 - 0.999).abs() < 1e-9 && (9_980..=10_000).contains(&curve[60].1));
        assert!((curve[20].0 - 0.9).abs() < 1e-9);
    }

    #[test]
    fn whatever_is_wrong_is_named() {
        assert!(problems("ept", Order::Flow, &Chaos::NONE, &PolicyOutcome::default()).is_empty());
        let counts = Counts { corrupt: 2, ..Counts::default() };
        let broken = PolicyOutcome { unaccounted: -3, counts, ..PolicyOutcome::default() };
        assert_eq!(
            problems("ept", Order::Flow, &Chaos::NONE, &broken),
            ["ept: 3 packets unaccounted for", "ept: 2 packets came back with a wrong checksum"]
        );
    }

    #[test]
    fn what_the_boxes_were_told_to_do_is_no_problem() {
        let counts = Counts { duplicated: 4, corrupt: 2, ..Counts::default() };
        let outcome = PolicyOutcome { counts, unaccounted: 1, ..PolicyOutcome::default() };
        let said = |chaos: &Chaos| problems("ept", Order::Flow, chaos, &outcome).len();
        assert_eq!(said(&Chaos::NONE), 3);
        assert_eq!(said(&Chaos { duplicate: Share::percent(1), ..Chaos::NONE }), 2);
        assert_eq!(said(&Chaos { corrupt: Share::percent(1), ..Chaos::NONE }), 0);
    }

    #[test]
    fn reordering_is_wrong_where_order_is_kept_and_nobody_gave_a_result_up() {
        let counts = Counts { reordered: 5, ..Counts::default() };
        let outcome =
            |out_of_order_noted| PolicyOutcome { counts: counts.clone(), out_of_order_noted, ..Default::default() };
        assert!(problems("ept", Order::None, &Chaos::NONE, &outcome(0)).is_empty());
        assert!(problems("ept", Order::Flow, &Chaos::NONE, &outcome(5)).is_empty());
        let said = problems("ept", Order::Flow, &Chaos::NONE, &outcome(2));
        assert_eq!(said, ["ept: 3 packets came back out of order and no node knows why"]);
    }
}

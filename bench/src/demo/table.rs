//! The outcome for people: a table, and below it what one must know to read it.

use std::fmt::Write as _;

use super::outcome::{Outcome, PolicyOutcome};
use super::setup::Order;
use crate::chaos::Tally;
use crate::cpu::CpuShares;
use crate::traffic::{Distribution, Report};

/// The text that ends a demonstration.
pub fn text(outcome: &Outcome) -> String {
    let mut rows = vec![header(outcome)];
    rows.extend(outcome.in_order().map(|(name, policy)| row(name, policy)));
    let mut text = align(&rows);
    text.push('\n');
    for line in notes(outcome) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn header(outcome: &Outcome) -> Vec<String> {
    let busy = (1..=outcome.setup.nodes).map(|node| format!("busy n{node}"));
    [
        "policy",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "forwarded",
        "interconnect",
        "sent",
        "lost",
        "unaccounted",
        "reordered (by 3+)",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain(busy)
    .chain(["EPT error".to_owned()])
    .collect()
}

fn row(name: &str, policy: &PolicyOutcome) -> Vec<String> {
    let latency = &policy.latency;
    let mut cells = vec![
        name.to_owned(),
        format_ns(latency.mean_ns),
        format_ns(latency.p50_ns as f64),
        format_ns(latency.p99_ns as f64),
        format_ns(latency.p999_ns as f64),
        format_share(policy.forwarded_share),
        format!("{:.2} MB", policy.interconnect_bytes as f64 / 1e6),
        policy.counts.sent.to_string(),
        policy.lost.to_string(),
        policy.unaccounted.to_string(),
        format_reordering(policy),
    ];
    cells.extend(policy.busy.iter().map(|busy| format_share(*busy)));
    cells.push(format!("{:.1} %", 100.0 * policy.ept_median_error));
    cells
}

/// Shares of reordered results; the second is of those that TCP would take for a loss.
fn format_reordering(policy: &PolicyOutcome) -> String {
    let percent = |share: f64| if share == 0.0 { "0".to_owned() } else { format!("{:.2}", 100.0 * share) };
    format!("{} % ({} %)", percent(policy.reordered_share), percent(policy.three_reordered_share))
}

fn notes(outcome: &Outcome) -> Vec<String> {
    let setup = &outcome.setup;
    let mut notes = Vec::new();
    if let Some(fastest) = outcome.fastest() {
        notes.push(format!("lowest mean latency: {fastest}"));
    }
    let emulated = setup.emulated();
    if !emulated.is_empty() {
        notes.push(format!(
            "emulated service: packets of kind {} occupy a worker without using the CPU ({} cores for {} nodes); the rest is \
             computed",
            emulated.join(", "),
            outcome.host.cores,
            setup.nodes
        ));
    }
    let shares = setup.arrival_shares.iter().map(|share| format_share(*share)).collect::<Vec<_>>().join(", ");
    let loads = setup.offered_loads.iter().map(|load| format!("{load:.2}")).collect::<Vec<_>>().join(", ");
    let bursts = match setup.pattern.burst() {
        Some(mean) => format!(" in bursts of {}", format_ns(mean.as_nanos() as f64)),
        None => String::new(),
    };
    notes.push(format!(
        "traffic: {:.0} packets/s, Poisson{bursts}; {shares} of them at the nodes in turn: loads {loads} if none moved, {:.2} for \
         all; load reports each {}",
        setup.rate_per_s,
        setup.offered_load,
        format_ns(setup.report_interval_us as f64 * 1e3)
    ));
    notes.push(order_note(outcome));
    notes.extend(cable_note(outcome));
    notes.extend(timer_note(outcome));
    notes.push(cpu_note(outcome));
    let (balanced, all) = (outcome.ledgers.iter().filter(|entry| entry.ledger.balances).count(), outcome.ledgers.len());
    let checked = outcome.in_order().map(|(_, policy)| policy.counts.results_checked).sum::<u64>();
    notes.push(format!("ledgers: {balanced} of {all} balance; results computed again: {checked}"));
    notes.push(
        "latency counts from the scheduled sending time; sent, forwarded, interconnect and busy cover the warm-up too"
            .into(),
    );
    notes
}

/// What happened to frames on the links, all policies together.
fn cable_note(outcome: &Outcome) -> Option<String> {
    let chaos = outcome.setup.chaos?;
    let mut sum = Tally::default();
    for tally in outcome.in_order().filter_map(|(_, policy)| policy.cables) {
        sum.add(&tally);
    }
    let total = sum.total();
    Some(format!(
        "links ({chaos}): {} frames, {} dropped, {} corrupted, {} sent twice, {} reordered, {} delayed; against the boxes' will \
         {} were lost",
        total.seen,
        total.dropped,
        total.corrupted,
        total.duplicated,
        total.reordered,
        total.delayed,
        sum.lost + sum.unsent
    ))
}

/// What was done about order.
fn order_note(outcome: &Outcome) -> String {
    let setup = &outcome.setup;
    let given_up = outcome.in_order().map(|(_, policy)| policy.out_of_order_noted).sum::<u64>();
    let kept = match setup.order {
        Order::Flow => format!("results leave in the order of their flow, {given_up} had to go before an earlier one"),
        Order::None => "results leave in any order".to_owned(),
    };
    let pulling = if setup.pull { ", and ask for work when idle" } else { "" };
    format!("{} flows at each node; {kept}; workers serve {}{pulling}", setup.flows, setup.discipline.name())
}

/// The outcome of one run of the generator, by kind of packet.
pub fn describe(report: &Report) -> String {
    let cells = |name: &str, sent: u64, received: u64, latency: &Distribution| {
        let percentile = |quantile| format_ns(latency.quantile_ns(quantile) as f64);
        let lost = (sent - received).to_string();
        vec![
            name.to_owned(),
            sent.to_string(),
            lost,
            format_ns(latency.mean_ns()),
            percentile(0.5),
            percentile(0.99),
            percentile(0.999),
        ]
    };
    let mut rows = vec![["kind", "sent", "lost", "mean", "p50", "p99", "p99.9"].map(str::to_owned).to_vec()];
    rows.extend(report.kinds.iter().map(|kind| cells(&kind.name, kind.sent, kind.received, &kind.latency)));
    rows.push(cells("all", report.counts.sent, report.counts.received, &report.latency));
    align(&rows)
}

/// How large the error of the generator's timer was, over all policies: at the most.
fn timer_note(outcome: &Outcome) -> Option<String> {
    let most = |value: fn(&PolicyOutcome) -> u64| outcome.in_order().map(|(_, policy)| value(policy)).max();
    let p50 = most(|policy| policy.send_lag.p50_ns)? as f64;
    let p99 = most(|policy| policy.send_lag.p99_ns)? as f64;
    let max = most(|policy| policy.send_lag.max_ns)? as f64;
    Some(format!(
        "timer error (scheduled to actual sending, part of the latency): p50 {}, p99 {}, max {}",
        format_ns(p50),
        format_ns(p99),
        format_ns(max)
    ))
}

/// Who used the CPUs, mean over all runs.
fn cpu_note(outcome: &Outcome) -> String {
    let runs = outcome.in_order().flat_map(|(_, policy)| &policy.rounds).map(|round| round.cpu).collect::<Vec<_>>();
    let shares = CpuShares::mean(&runs);
    format!(
        "CPUs during the runs: nodes {}, generator {}, other programs {} (noise), taken by the host {}",
        format_share(shares.nodes),
        format_share(shares.generator),
        format_share(shares.others),
        format_share(shares.stolen)
    )
}

/// Columns as wide as their widest cell; the first flush left, the others flush right.
/// Rows with their columns under each other: the first to the left, all others to the right.
pub fn align(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths = (0..columns).map(|column| width(column).unwrap_or(0)).collect::<Vec<_>>();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    text
}

/// A time with three significant digits.
pub fn format_ns(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => return format!("{ns:.0} ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let decimals = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

/// A share as a percentage.
pub fn format_share(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let texts = [0.0, 999.0, 1_234.0, 56_789.0, 512_000.0, 2_410_000.0, 3e9].map(format_ns);
        assert_eq!(texts, ["0 ns", "999 ns", "1.23 µs", "56.8 µs", "512 µs", "2.41 ms", "3.00 s"]);
    }

    #[test]
    fn reordering_shows_both_shares() {
        let outcome = |reordered_share, three_reordered_share| PolicyOutcome {
            reordered_share,
            three_reordered_share,
            ..PolicyOutcome::default()
        };
        assert_eq!(format_reordering(&outcome(0.0, 0.0)), "0 % (0 %)");
        assert_eq!(format_reordering(&outcome(0.0231, 0.00004)), "2.31 % (0.00 %)");
    }

    #[test]
    fn columns_line_up() {
        let rows = [["policy", "µs"], ["a", "1000"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(align(&rows), "policy    µs\na       1000\n");
    }
}

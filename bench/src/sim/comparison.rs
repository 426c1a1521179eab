//! Policies and bounds side by side on the same packets, several runs each.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::Result;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;
use serde_json::{Value, json};

use super::scenario::Scenario;
use super::statistics::{Estimate, Loss, Outcome};
use super::{bounds, run};

/// Simulates `policies` and the bounds on `scenario`, once for each seed, `jobs` runs at a time.
///
/// # Errors
/// The scenario is impossible.
pub fn compare(
    scenario: &Scenario,
    policies: &[PolicyKind],
    tuning: &Tuning,
    seeds: &[u64],
    jobs: usize,
) -> Result<Vec<Row>> {
    let means = |latencies: Vec<super::Latency>| latencies.iter().map(|latency| latency.mean_ns).collect::<Vec<_>>();
    let central = means(parallel(jobs, seeds, |seed| bounds::central_fcfs(scenario, *seed))?);
    let shortest = means(parallel(jobs, seeds, |seed| bounds::central_shortest(scenario, *seed))?);
    let oracle = parallel(jobs, seeds, |seed| bounds::oracle(scenario, tuning, *seed))?;
    let runs: Vec<(PolicyKind, u64)> =
        policies.iter().flat_map(|policy| seeds.iter().map(|seed| (*policy, *seed))).collect();
    let outcomes = parallel(jobs, &runs, |(policy, seed)| run(scenario, *policy, tuning, *seed))?;
    let mut rows = vec![
        Row::bound("central FCFS", &central, &central),
        Row::bound("central shortest", &shortest, &central),
        Row::policy("oracle push", &oracle, &central),
    ];
    for (policy, outcomes) in policies.iter().zip(outcomes.chunks(seeds.len().max(1))) {
        rows.push(Row::policy(policy.name(), outcomes, &central));
    }
    Ok(rows)
}

/// Runs `work` on every item, `jobs` at a time; results in the order of the items.
///
/// # Errors
/// That of the first item that has one.
pub fn parallel<T: Sync, R: Send>(jobs: usize, items: &[T], work: impl Fn(&T) -> Result<R> + Sync) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        while let Some((index, item)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, item))
        } {
            done.push((index, work(item)));
        }
        done
    };
    let mut all = thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.clamp(1, items.len().max(1))).map(|_| scope.spawn(take)).collect();
        let mut all = Vec::with_capacity(items.len());
        for thread in threads {
            match thread.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_unstable_by_key(|(index, _)| *index);
    all.into_iter().map(|(_, result)| result).collect()
}

/// Columns of the table with their widths.
const COLUMNS: [(&str, usize); 16] = [
    ("policy", 18),
    ("mean µs", 10),
    ("±", 9),
    ("ratio", 9),
    ("±", 8),
    ("p50 µs", 9),
    ("p99 µs", 10),
    ("p99.9 µs", 10),
    ("in order", 10),
    ("fwd %", 7),
    ("reord %", 8),
    ("util %", 7),
    ("max %", 7),
    ("lost %", 7),
    ("B/packet", 9),
    ("messages", 9),
];

/// A line of the table: the first cell to the left, all others to the right.
fn line(cells: impl IntoIterator<Item = String>) -> String {
    let pad = |((index, cell), (_, width)): ((usize, String), &(&str, usize))| {
        if index == 0 { format!("{cell:<width$}") } else { format!(" {cell:>width$}") }
    };
    cells.into_iter().enumerate().zip(&COLUMNS).map(pad).collect()
}

/// One line of the comparison.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the policy or bound.
    pub name: String,
    /// Mean latency, ns.
    pub mean_ns: Estimate,
    /// Mean latency over that of the central queue, run by run.
    pub ratio: Estimate,
    /// What only simulated policies have.
    pub rest: Option<Rest>,
}

/// Means over the runs of what a policy did beyond its mean latency.
#[derive(Clone, Copy, Debug)]
pub struct Rest {
    /// Median latency, ns.
    pub p50_ns: Estimate,
    /// 99th percentile, ns.
    pub p99_ns: Estimate,
    /// 99.9th percentile, ns.
    pub p999_ns: Estimate,
    /// Mean latency when results leave in the order of their flow, ns.
    pub ordered_mean_ns: Estimate,
    /// Share of packets that went to another node.
    pub forwarded: f64,
    /// Share of packets that came out after a later one of their flow.
    pub reordered: f64,
    /// Busy share of the nodes.
    pub utilisation: f64,
    /// Busy share of the busiest node.
    pub busiest: f64,
    /// Bytes of forwards and results per packet.
    pub interconnect_bytes: f64,
    /// Reports and messages per packet.
    pub messages: f64,
    /// Share of packets lost.
    pub lost: f64,
    /// Packets lost in a run, by [`Loss`].
    pub lost_by: [f64; Loss::ALL.len()],
    /// Events simulated.
    pub events: f64,
}

impl Row {
    /// The line of a bound: its mean latencies and those of the central queue by run, ns.
    pub fn bound(name: &str, means: &[f64], central: &[f64]) -> Self {
        Self {
            name: name.to_owned(),
            mean_ns: Estimate::of(means.iter().copied()),
            ratio: Estimate::of(means.iter().zip(central).map(|(mean, central)| mean / central)),
            rest: None,
        }
    }

    /// The line of a policy: what it did and the mean latencies of the central queue by run, ns.
    pub fn policy(name: &str, outcomes: &[Outcome], central: &[f64]) -> Self {
        let means: Vec<f64> = outcomes.iter().map(|outcome| outcome.latency.mean_ns).collect();
        let estimate = |value: fn(&Outcome) -> f64| Estimate::of(outcomes.iter().map(value));
        let per_packet = |value: fn(&Outcome) -> u64| {
            outcomes.iter().map(|outcome| value(outcome) as f64 / outcome.arrived as f64).sum::<f64>()
                / outcomes.len() as f64
        };
        let rest = Rest {
            p50_ns: estimate(|outcome| outcome.latency.p50_ns as f64),
            p99_ns: estimate(|outcome| outcome.latency.p99_ns as f64),
            p999_ns: estimate(|outcome| outcome.latency.p999_ns as f64),
            ordered_mean_ns: estimate(|outcome| outcome.ordered_mean_ns),
            forwarded: estimate(Outcome::forwarded).mean,
            reordered: estimate(|outcome| outcome.reordered).mean,
            utilisation: estimate(Outcome::mean_utilisation).mean,
            busiest: estimate(Outcome::max_utilisation).mean,
            interconnect_bytes: per_packet(|outcome| outcome.forwards.bytes + outcome.results.bytes),
            messages: per_packet(|outcome| outcome.reports.frames + outcome.messages.frames),
            lost: per_packet(|outcome| outcome.lost),
            lost_by: Loss::ALL.map(|cause| {
                outcomes.iter().map(|outcome| outcome.lost_by[cause as usize] as f64).sum::<f64>()
                    / outcomes.len() as f64
            }),
            events: estimate(|outcome| outcome.events as f64).mean,
        };
        Self { rest: Some(rest), ..Self::bound(name, &means, central) }
    }

    /// The head of the table.
    pub fn head() -> String {
        line(COLUMNS.map(|(name, _)| name.to_owned()))
    }

    /// The line of the table.
    pub fn text(&self) -> String {
        let us = |estimate: Estimate| format!("{:.2}", estimate.mean / 1000.0);
        let width = |estimate: Estimate, scale: f64| {
            if estimate.half_width.is_finite() { format!("{:.2}", estimate.half_width / scale) } else { "-".to_owned() }
        };
        let ratio = format!("{:.3}", self.ratio.mean);
        let mut cells =
            vec![self.name.clone(), us(self.mean_ns), width(self.mean_ns, 1000.0), ratio, width(self.ratio, 1.0)];
        if let Some(rest) = &self.rest {
            cells.extend([rest.p50_ns, rest.p99_ns, rest.p999_ns, rest.ordered_mean_ns].map(us));
            let shares = [rest.forwarded, rest.reordered, rest.utilisation, rest.busiest, rest.lost];
            cells.extend(shares.map(|share| format!("{:.2}", share * 100.0)));
            cells.extend([format!("{:.0}", rest.interconnect_bytes), format!("{:.2}", rest.messages)]);
        }
        line(cells)
    }

    /// What was lost in a run and why, as a line; `None` when nothing was.
    pub fn losses(&self) -> Option<String> {
        let rest = self.rest.as_ref().filter(|rest| rest.lost > 0.0)?;
        let causes = Loss::ALL.iter().zip(rest.lost_by).filter(|(_, packets)| *packets > 0.0);
        let causes = causes.map(|(cause, packets)| format!("{packets:.1} {}", cause.title())).collect::<Vec<_>>();
        Some(format!("{:<18} lost in a run: {}", self.name, causes.join(", ")))
    }

    /// The line as JSON.
    pub fn json(&self) -> Value {
        // JSON knows no infinity: the interval of a single run is null.
        let estimate = |estimate: Estimate| json!({ "mean": estimate.mean, "half_width": estimate.half_width });
        let mut value = json!({
            "policy": self.name,
            "mean_ns": estimate(self.mean_ns),
            "ratio_to_central_fcfs": estimate(self.ratio),
        });
        if let (Some(rest), Value::Object(fields)) = (&self.rest, &mut value) {
            let losses =
                Loss::ALL.iter().zip(rest.lost_by).map(|(cause, packets)| (cause.name().to_owned(), json!(packets)));
            let losses: Value = losses.collect();
            for (name, field) in [
                ("p50_ns", estimate(rest.p50_ns)),
                ("p99_ns", estimate(rest.p99_ns)),
                ("p999_ns", estimate(rest.p999_ns)),
                ("ordered_mean_ns", estimate(rest.ordered_mean_ns)),
                ("forwarded", json!(rest.forwarded)),
                ("reordered", json!(rest.reordered)),
                ("utilisation", json!(rest.utilisation)),
                ("utilisation_max", json!(rest.busiest)),
                ("interconnect_bytes_per_packet", json!(rest.interconnect_bytes)),
                ("messages_per_packet", json!(rest.messages)),
                ("lost", json!(rest.lost)),
                ("lost_packets_per_run", losses),
                ("events", json!(rest.events)),
            ] {
                fields.insert(name.to_owned(), field);
            }
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        let doubled = parallel(3, &items, |item| Ok(item * 2)).unwrap();
        assert_eq!(doubled, items.iter().map(|item| item * 2).collect::<Vec<_>>());
        assert!(parallel(2, &items, |item| if *item == 7 { anyhow::bail!("seven") } else { Ok(()) }).is_err());
        assert!(parallel(2, &[], |_: &u64| Ok(())).unwrap().is_empty());
    }

    #[test]
    fn a_comparison_has_bounds_and_policies_as_text_and_json() {
        let scenario = Scenario { packets: 5_000, warm_up: 500, ..Scenario::default() };
        let policies = [PolicyKind::Local, PolicyKind::EptErl];
        let compared = |jobs| compare(&scenario, &policies, &Tuning::DEFAULT, &[1, 2], jobs).unwrap();
        let rows = compared(1);
        let texts: Vec<String> = rows.iter().map(Row::text).collect();
        assert_eq!(texts, compared(2).iter().map(Row::text).collect::<Vec<_>>(), "jobs change nothing");
        assert_eq!(rows.len(), 5);
        assert!(texts[4].starts_with("ept-erl ") && texts[4].len() == Row::head().chars().count(), "{}", texts[4]);
        let json = rows[3].json();
        assert_eq!(json["policy"], "local");
        assert_eq!(json["forwarded"], 0.0);
        assert!((rows[0].ratio.mean - 1.0).abs() < 1e-9 && json["mean_ns"]["mean"].as_f64() > Some(10_000.0));
    }
}

//! E8: what a faster interconnect is worth: the computation size from which redirecting pays, and throughput at a latency
//! bound (the question that Jang's thesis leaves open).

use anyhow::Result;
use dataplane_common::load::Forwarding;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::super::ingress::Ingress;
use super::super::run;
use super::super::scenario::Scenario;
use super::super::statistics::Estimate;
use super::super::workload::Workload;
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::runs::{outcomes, plain_reports, sized};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E8",
    name: "interconnect",
    systems: &["S3 user-level interconnect"],
    title: "break-even computation size and throughput at a latency bound, by interconnect",
    assumptions: &[
        "Costs of a redirect (CPU of sender and receiver, wire) are assumed: kernel sockets 5 + 5 + 30 µs, AF_XDP with \
         copies 1.8 + 1.8 + 8 µs, AF_XDP without 0.25 + 0.25 + 3 µs. Measure your own and put them in.",
        "4 nodes, packets all of one size, reports each 100 µs, policy ept-erl.",
        "Break-even: the smallest computation for which redirecting lowers the mean latency by a twentieth, at load 0.7 \
         with arrivals at all nodes alike; without the guard, which would decide it by rule.",
        "Throughput: the highest rate of packets of 20 µs whose 99th percentile stays within 200 µs, when 60, 20, 10 and \
         10 % of them arrive at nodes 0 to 3; the cluster's capacity is 200 000 packets a second.",
    ],
    run: experiment,
};

const SOURCE: &str = "Y.-B. Jang, Cluster-based router architecture in active network, KAIST 2005, abstract";

/// An interconnect and its costs.
const INTERCONNECTS: [(&str, Forwarding); 3] = [
    ("kernel sockets", costs(5_000, 30_000)),
    ("AF_XDP, copies", costs(1_800, 8_000)),
    ("AF_XDP, no copies", costs(250, 3_000)),
];

const fn costs(cpu_ns: u32, wire_ns: u32) -> Forwarding {
    Forwarding { send_ns: cpu_ns, receive_ns: cpu_ns, wire_ns, wire_ns_per_byte_q16: 0 }
}

fn scenario(mean_service_ns: f64, load: f64, forwarding: Forwarding) -> Scenario {
    Scenario {
        nodes: 4,
        load,
        workload: Workload::Deterministic,
        mean_service_ns,
        ingress: Ingress::Weights(vec![0.6, 0.2, 0.1, 0.1]),
        forwarding,
        reports: plain_reports(100_000),
        ..Scenario::default()
    }
}

/// The least value between `low` and `high` for which `pays`, by halving the ratio of the two `steps` times.
fn least(mut low: f64, mut high: f64, steps: u32, pays: impl Fn(f64) -> Result<bool>) -> Result<f64> {
    for _ in 0..steps {
        let middle = (low * high).sqrt();
        if pays(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(high)
}

/// The smallest computation for which redirecting pays, µs.
fn break_even_us(forwarding: Forwarding, effort: &Effort, seed: u64) -> Result<f64> {
    let pays = |mean_ns: f64| -> Result<bool> {
        let scenario = Scenario { ingress: Ingress::Uniform, guard: false, ..scenario(mean_ns, 0.7, forwarding) };
        let scenario = sized(scenario, 20_000, effort);
        let mean = |policy| run(&scenario, policy, &Tuning::DEFAULT, seed).map(|outcome| outcome.latency.mean_ns);
        Ok(mean(PolicyKind::EptErl)? <= 0.95 * mean(PolicyKind::Local)?)
    };
    Ok(least(100.0, 1e6, 12, pays)? / 1000.0)
}

/// The highest rate at which the 99th percentile is within the bound, thousands of packets a second.
fn throughput_kpps(policy: PolicyKind, forwarding: Forwarding, effort: &Effort, seed: u64) -> Result<f64> {
    let is_over = |load: f64| -> Result<bool> {
        let scenario = sized(scenario(20_000.0, load, forwarding), 30_000, effort);
        Ok(run(&scenario, policy, &Tuning::DEFAULT, seed)?.latency.p99_ns > 200_000)
    };
    Ok(least(0.05, 1.2, 9, is_over)? * 4.0 / 20_000.0 * 1e6)
}

fn experiment(effort: &Effort) -> Result<Evidence> {
    let columns =
        ["interconnect", "break-even µs", "throughput, thousands/s", "20 µs at 0.6", "20 µs at 0.75", "100 µs at 0.75"];
    let mut table = Table::new("two numbers per interconnect; mean latency in µs and share redirected", &columns);
    let (mut sizes, mut rates) = (Vec::new(), Vec::new());
    for (name, forwarding) in INTERCONNECTS {
        let seeds = || effort.seeds.iter();
        let size = seeds().map(|seed| break_even_us(forwarding, effort, *seed)).collect::<Result<Vec<_>>>()?;
        let rate = seeds()
            .map(|seed| throughput_kpps(PolicyKind::EptErl, forwarding, effort, *seed))
            .collect::<Result<Vec<_>>>()?;
        let mut cells = vec![name.to_owned()];
        cells.push(format!("{:.1}", Estimate::of(size.iter().copied()).mean));
        cells.push(format!("{:.0}", Estimate::of(rate.iter().copied()).mean));
        for (mean_ns, load) in [(20_000.0, 0.6), (20_000.0, 0.75), (100_000.0, 0.75)] {
            let scenario = sized(scenario(mean_ns, load, forwarding), 30_000, effort);
            let outcomes = outcomes(&scenario, PolicyKind::EptErl, &Tuning::DEFAULT, effort)?;
            let mean = Estimate::of(outcomes.iter().map(|outcome| outcome.latency.mean_ns / 1000.0)).mean;
            let share = Estimate::of(outcomes.iter().map(|outcome| outcome.forwarded() * 100.0)).mean;
            cells.push(format!("{mean:.0} µs, {share:.0} %"));
        }
        table.row(cells);
        sizes.push(size);
        rates.push(rate);
    }
    let alone = effort
        .seeds
        .iter()
        .map(|seed| throughput_kpps(PolicyKind::Local, INTERCONNECTS[0].1, effort, *seed))
        .collect::<Result<Vec<_>>>()?;
    let dash = || "-".to_owned();
    let alone_text = format!("{:.0}", Estimate::of(alone.iter().copied()).mean);
    table.row(["none (local)".to_owned(), dash(), alone_text, dash(), dash(), dash()]);
    Ok(Evidence { findings: findings(&sizes, &rates), tables: vec![table] })
}

fn findings(sizes: &[Vec<f64>], rates: &[Vec<f64>]) -> Vec<Finding> {
    let published = Published {
        says: "user-level communication is a feasible enhancement (no figure)",
        figure: None,
        source: SOURCE,
    };
    let ratio = |of: &[f64], base: &[f64]| Estimate::of(of.iter().zip(base).map(|(of, base)| of / base));
    let finding =
        |what, ours, unit, direction| Finding { what, published, ours, unit, direction, size: None, differs: "" };
    let mean = |values: &[f64]| Estimate::of(values.iter().copied());
    vec![
        finding("break-even computation, kernel sockets", mean(&sizes[0]), "µs", Bound::Above(mean(&sizes[1]).mean)),
        finding(
            "break-even computation, AF_XDP with copies",
            mean(&sizes[1]),
            "µs",
            Bound::Below(mean(&sizes[0]).mean),
        ),
        finding("break-even computation, AF_XDP without", mean(&sizes[2]), "µs", Bound::Below(mean(&sizes[1]).mean)),
        finding(
            "throughput at the latency bound, AF_XDP with copies over kernel sockets",
            ratio(&rates[1], &rates[0]),
            "",
            Bound::Above(1.0),
        ),
        finding(
            "throughput at the latency bound, AF_XDP without copies over kernel sockets",
            ratio(&rates[2], &rates[0]),
            "",
            Bound::Above(1.0),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_finds_the_least_that_pays() {
        let found = least(1.0, 1000.0, 20, |value| Ok(value >= 37.0)).unwrap();
        assert!((found - 37.0).abs() < 0.01, "{found}");
    }
}

//! E3: how well the estimated processing time of a decision predicts the latency of its packet (Jang, KAIST 2005).

use anyhow::Result;
use dataplane_common::load::Forwarding;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::super::scenario::Scenario;
use super::super::statistics::{Estimate, Outcome};
use super::super::workload::Workload;
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::runs::{outcomes, plain_reports, sized};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E3",
    name: "ept-accuracy",
    systems: &["S1 EPT packet distribution"],
    title: "the estimate that a decision was made on against the latency of the packet",
    assumptions: &[
        "4 nodes of one worker, pinned, FIFO; 70 % low and 30 % high computations of 10 µs on average; redirects cost 1 + 1 µs \
         of CPU and 5 µs; reports carry loads alone; policy ept-erl.",
        "Service times are known exactly: what is measured is how well the wait is.",
        "R² is the part of the variance of the latencies that the estimates explain, taken as they are and not fitted.",
    ],
    run,
};

const LOADS: [f64; 6] = [0.3, 0.5, 0.6, 0.7, 0.8, 0.9];

fn run(effort: &Effort) -> Result<Evidence> {
    let columns = ["reports each", "load", "mean µs", "estimated µs", "R²", "mean absolute error µs", "redirected %"];
    let mut table = Table::new("estimate at the decision and latency", &columns);
    let mut least = Vec::new();
    for report_ns in [100_000, 20_000] {
        let explained = LOADS
            .iter()
            .map(|load| {
                let outcomes = simulate(*load, report_ns, effort)?;
                let mean = |value: fn(&Outcome) -> f64| Estimate::of(outcomes.iter().map(value));
                let explained = mean(|outcome| outcome.prediction.explained());
                table.row([
                    format!("{} µs", report_ns / 1000),
                    format!("{load}"),
                    format!("{:.1}", mean(|outcome| outcome.latency.mean_ns / 1e3).mean),
                    format!("{:.1}", mean(|outcome| outcome.prediction.mean_ns() / 1e3).mean),
                    format!("{:.3}", explained.mean),
                    format!("{:.2}", mean(|outcome| outcome.prediction.error_ns() / 1e3).mean),
                    format!("{:.0}", mean(|outcome| outcome.forwarded() * 100.0).mean),
                ]);
                Ok((*load, explained))
            })
            .collect::<Result<Vec<_>>>()?;
        let to_0_7 = explained.into_iter().filter(|(load, _)| *load <= 0.7).map(|(_, explained)| explained);
        least.extend(to_0_7.min_by(|a, b| a.mean.total_cmp(&b.mean)));
    }
    let what = [
        "R² of the estimate with reports each 100 µs, least over the loads to 0.7",
        "R² of the estimate with reports each 20 µs, least over the loads to 0.7",
    ];
    let finding = |(what, ours)| Finding {
        what,
        published: Published {
            says: "calculated EPT compared with measured end-to-end latency (no figure)",
            figure: None,
            source: "Y.-B. Jang, Cluster-based router architecture in active network, KAIST 2005, abstract",
        },
        ours,
        unit: "",
        direction: Bound::Above(0.5),
        size: Some(Bound::AtLeast(0.95)),
        differs: "A packet that stays has an exact estimate, but for redirects that interrupt it. One that leaves has a load \
                  that is a report old, and knows nothing of what others send there.",
    };
    Ok(Evidence { findings: what.into_iter().zip(least).map(finding).collect(), tables: vec![table] })
}

fn simulate(load: f64, report_ns: u64, effort: &Effort) -> Result<Vec<Outcome>> {
    let scenario = Scenario {
        nodes: 4,
        load,
        workload: Workload::LowHigh,
        forwarding: Forwarding { send_ns: 1_000, receive_ns: 1_000, wire_ns: 5_000, wire_ns_per_byte_q16: 0 },
        reports: plain_reports(report_ns),
        ..Scenario::default()
    };
    outcomes(&sized(scenario, 60_000, effort), PolicyKind::EptErl, &Tuning::DEFAULT, effort)
}

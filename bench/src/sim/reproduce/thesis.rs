//! E1: distribution by estimated processing time against distribution by CPU load (Jang, KAIST 2005).

use anyhow::Result;
use dataplane_common::load::Forwarding;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::super::ingress::Ingress;
use super::super::scenario::Scenario;
use super::super::statistics::Estimate;
use super::super::workload::Workload;
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::runs::{cut_percent, outcomes, plain_reports, sized};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E1",
    name: "thesis",
    systems: &["S1 EPT packet distribution"],
    title: "distribution by estimated processing time (ept) against distribution by CPU load (cpu-load)",
    assumptions: &[
        "The thesis' testbed, kinds of packets and shape of the load value are not known; these are ours.",
        "2 nodes of one core, FIFO; Poisson arrivals; low computations of 100 µs, high ones of 2000 µs; frames of 512 B.",
        "Redirecting costs 20 µs of CPU at each end, 50 µs on the way and 41 µs of transmission at 100 Mbit/s: about \
         a TCP interconnect of 2005. The ratios of these costs to the computations are what counts, and they are \
         calibrated.",
        "Loads are reported each 1 ms and nothing else carries them; no guard, as in the thesis.",
        "15 points for each mix: load 0.2, 0.35, 0.5, 0.65, 0.8 of the cluster; arrivals 100/0, 70/30, 50/50.",
        "'Up to' is the largest value over the 15 points.",
    ],
    run,
};

const SOURCE: &str = "Y.-B. Jang, Cluster-based router architecture in active network, KAIST 2005, abstract";
const LOADS: [f64; 5] = [0.2, 0.35, 0.5, 0.65, 0.8];
const FIRST_SHARES: [f64; 3] = [1.0, 0.7, 0.5];

/// A mix of packets and the interconnect they travel on.
struct Mix {
    name: &'static str,
    workload: Workload,
    mean_ns: f64,
    forwarding: Forwarding,
    report_ns: u64,
}

/// 20 + 20 µs CPU, 50 µs on the way and 512 B at 100 Mbit/s.
const OF_2005: Forwarding =
    Forwarding { send_ns: 20_000, receive_ns: 20_000, wire_ns: 90_960, wire_ns_per_byte_q16: 0 };
/// 1 + 1 µs CPU, 5 µs on the way and 512 B at 10 Gbit/s.
const OF_TODAY: Forwarding = Forwarding { send_ns: 1_000, receive_ns: 1_000, wire_ns: 5_410, wire_ns_per_byte_q16: 0 };

const MIXES: [Mix; 4] = [
    Mix {
        name: "low only",
        workload: Workload::Deterministic,
        mean_ns: 100_000.0,
        forwarding: OF_2005,
        report_ns: 1_000_000,
    },
    Mix {
        name: "90 % low, 10 % high",
        workload: Workload::TwoPoint { large_milli: 100, ratio: 20 },
        mean_ns: 290_000.0,
        forwarding: OF_2005,
        report_ns: 1_000_000,
    },
    Mix {
        name: "high only",
        workload: Workload::Deterministic,
        mean_ns: 2_000_000.0,
        forwarding: OF_2005,
        report_ns: 1_000_000,
    },
    Mix {
        name: "low only, AF_XDP-like",
        workload: Workload::Deterministic,
        mean_ns: 5_000.0,
        forwarding: OF_TODAY,
        report_ns: 50_000,
    },
];

/// What EPT saves against CPU load, %, over the points of the sweep, seed by seed.
struct Saved {
    largest_latency: Vec<f64>,
    mean_latency: Vec<f64>,
    largest_forwards: Vec<f64>,
    mean_forwards: Vec<f64>,
    /// Load, share of the first node, and mean latencies in µs where the most latency is saved.
    at: (f64, f64, f64, f64),
}

fn sweep(mix: &Mix, effort: &Effort) -> Result<Saved> {
    let (mut latency, mut forwards, mut points) = (Vec::new(), Vec::new(), Vec::new());
    for load in LOADS {
        for share in FIRST_SHARES {
            let scenario = Scenario {
                nodes: 2,
                load,
                workload: mix.workload,
                mean_service_ns: mix.mean_ns,
                ingress: Ingress::Skewed(share),
                guard: false,
                forwarding: mix.forwarding,
                reports: plain_reports(mix.report_ns),
                ..Scenario::default()
            };
            let scenario = sized(scenario, 15_000, effort);
            let by_load = outcomes(&scenario, PolicyKind::CpuLoad, &Tuning::DEFAULT, effort)?;
            let by_ept = outcomes(&scenario, PolicyKind::Ept, &Tuning::DEFAULT, effort)?;
            let figures = |outcomes: &[super::super::Outcome]| -> (Vec<f64>, Vec<f64>) {
                outcomes.iter().map(|outcome| (outcome.latency.mean_ns, outcome.redirected as f64)).unzip()
            };
            let ((load_ns, load_sent), (ept_ns, ept_sent)) = (figures(&by_load), figures(&by_ept));
            latency.push(cut_percent(&load_ns, &ept_ns));
            forwards.push(cut_percent(&load_sent, &ept_sent));
            let mean_us = |ns: &[f64]| ns.iter().sum::<f64>() / ns.len() as f64 / 1000.0;
            points.push((load, share, mean_us(&load_ns), mean_us(&ept_ns)));
        }
    }
    let seeds = 0..effort.seeds.len();
    let over_points = |cuts: &[Vec<f64>], fold: fn(&[f64]) -> f64| -> Vec<f64> {
        seeds.clone().map(|seed| fold(&cuts.iter().map(|cut| cut[seed]).collect::<Vec<_>>())).collect()
    };
    let most = |values: &[f64]| values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let saved_at = |point: &(f64, f64, f64, f64)| 1.0 - point.3 / point.2;
    let at = points.iter().copied().max_by(|a, b| saved_at(a).total_cmp(&saved_at(b))).unwrap_or_default();
    Ok(Saved {
        largest_latency: over_points(&latency, most),
        mean_latency: over_points(&latency, mean),
        largest_forwards: over_points(&forwards, most),
        mean_forwards: over_points(&forwards, mean),
        at,
    })
}

fn run(effort: &Effort) -> Result<Evidence> {
    let columns = ["mix", "latency cut, largest %", "mean %", "forwards cut, largest %", "mean %", "largest at"];
    let mut table = Table::new("ept against cpu-load over 15 points", &columns);
    let mut saved = Vec::new();
    for mix in &MIXES {
        let sweep = sweep(mix, effort)?;
        let mean = |values: &[f64]| format!("{:.1}", Estimate::of(values.iter().copied()).mean);
        let (load, share, from_us, to_us) = sweep.at;
        table.row([
            mix.name.to_owned(),
            mean(&sweep.largest_latency),
            mean(&sweep.mean_latency),
            mean(&sweep.largest_forwards),
            mean(&sweep.mean_forwards),
            format!("load {load}, {:.0} % at the first node: {from_us:.1} to {to_us:.1} µs", share * 100.0),
        ]);
        saved.push(sweep);
    }
    let estimate = |values: &[f64]| Estimate::of(values.iter().copied());
    let [low, _, high, modern] = [0, 1, 2, 3].map(|index| &saved[index]);
    let latency = Published { says: "mean latency up to 42 % lower", figure: Some(42.0), source: SOURCE };
    let bandwidth = Published { says: "internal bandwidth up to 60 % saved", figure: Some(60.0), source: SOURCE };
    let differs = "Testbed, packet kinds and load value of the thesis are not known. The cut grows with load and with the \
                   ratio of forwarding cost to computation; the maximum over a sweep depends on the points in it.";
    let base = Finding {
        what: "mean latency saved by EPT, low computations, largest over the sweep",
        published: latency,
        ours: estimate(&low.largest_latency),
        unit: "%",
        direction: Bound::Above(0.0),
        size: Some(Bound::AtLeast(35.0)),
        differs,
    };
    let findings = vec![
        base.clone(),
        Finding {
            what: "forwards saved by EPT, low computations, mean over the sweep",
            published: bandwidth,
            ours: estimate(&low.mean_forwards),
            size: Some(Bound::AtLeast(50.0)),
            differs: "The published 'up to' is a maximum over points that are not known; ours is the mean over 15 points, \
                      whose maximum is in the table. Forwarded packets stand for bandwidth: all have the same length.",
            ..base.clone()
        },
        Finding {
            what: "mean latency saved by EPT, high computations, largest over the sweep",
            published: Published {
                says: "the gain is largest for low-computation packets",
                figure: None,
                source: SOURCE,
            },
            ours: estimate(&high.largest_latency),
            direction: Bound::Below(estimate(&low.largest_latency).mean),
            size: Some(Bound::Within(-6.0, 6.0)),
            differs: "",
            ..base.clone()
        },
        Finding {
            what: "mean latency saved by EPT, packets of 5 µs on AF_XDP-like costs, largest over the sweep",
            ours: estimate(&modern.largest_latency),
            differs: "Not a published point: the thesis' effect carried over to today's costs by its ratios.",
            ..base
        },
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

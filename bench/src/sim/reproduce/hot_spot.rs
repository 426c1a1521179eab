//! E5 to E7: the estimated remote load (ERL) against hot spots that stale reports make (Jang, KAIST 2005).

use anyhow::Result;
use dataplane_common::load::{Erl, Forwarding};
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::super::engine::{Deciding, Engine};
use super::super::ingress::Ingress;
use super::super::scenario::Scenario;
use super::super::statistics::Estimate;
use super::super::trace::Trace;
use super::super::workload::Workload;
use super::finding::{Bound, Evidence, Finding, Published, Table, decimals};
use super::runs::{mean_us, outcomes, plain_reports, sized};
use super::{Effort, Experiment};

/// E5: see the module.
pub const SCALING: Experiment = Experiment {
    id: "E5",
    name: "scaling",
    systems: &["S2 ERL remote-load estimate"],
    title: "mean latency as nodes are added, by how sent work is added to old reports",
    assumptions: &[
        COMMON,
        "All packets arrive at one node, at the rate of 1.6 nodes' work, while the cluster grows from 2 to 16 nodes.",
        "The comparison was changed after a first miss: ties between nodes drawn at random stand beside ties that fall on the \
         first node.",
    ],
    run: scaling,
};

/// E6: see the module.
pub const HOT_SPOT: Experiment = Experiment {
    id: "E6",
    name: "hot-spot",
    systems: &["S2 ERL remote-load estimate"],
    title: "how uneven the backlogs are, by how sent work is added to old reports",
    assumptions: &[
        COMMON,
        "8 nodes, reports each 5 ms, all packets arrive at one node at the rate of 1.6 nodes' work.",
        "Hot-spot index: the largest backlog of the 7 peers over their mean plus 1 µs, looked at each 0.5 ms; 1 = even, \
         7 = all at one.",
    ],
    run: hot_spot,
};

/// E7: see the module.
pub const CROSSOVER: Experiment = Experiment {
    id: "E7",
    name: "erl-crossover",
    systems: &["S2 ERL remote-load estimate"],
    title: "which way of adding sent work wins, by number of nodes that packets arrive at and by age of reports",
    assumptions: &[COMMON, "16 nodes, load 0.7; packets arrive at 1, 2, 4 or 8 of them."],
    run: crossover,
};

const COMMON: &str = "90 % of the packets take 50 µs, 10 % take 1550 µs; redirects cost 1 µs of CPU at each end and 5 µs on \
                      the wire; only periodic reports carry loads; 'none' is the policy ept, the others \
                      are ept-erl. A tie falls on the first node by number, where the product draws one.";

const SOURCE: &str = "Y.-B. Jang, Cluster-based router architecture in active network, KAIST 2005, abstract";

/// How sent work is added, none first.
const MODES: [(&str, PolicyKind, Erl); 4] = [
    ("none", PolicyKind::Ept, Erl::Off),
    ("add", PolicyKind::EptErl, Erl::Add),
    ("drain", PolicyKind::EptErl, Erl::Drain),
    ("ack", PolicyKind::EptErl, Erl::Ack),
];

fn tuning(erl: Erl) -> Tuning {
    Tuning { erl: erl as u32, ..Tuning::DEFAULT }
}

fn scenario(nodes: usize, load: f64, ingress: Ingress, report_ns: u64) -> Scenario {
    Scenario {
        nodes,
        load,
        workload: Workload::TwoPoint { large_milli: 100, ratio: 31 },
        mean_service_ns: 200_000.0,
        ingress,
        forwarding: Forwarding { send_ns: 1_000, receive_ns: 1_000, wire_ns: 5_000, wire_ns_per_byte_q16: 0 },
        reports: plain_reports(report_ns),
        draws_ties: false,
        ..Scenario::default()
    }
}

/// Mean latencies in µs of the four modes, seed by seed.
fn means(scenario: &Scenario, effort: &Effort) -> Result<[Vec<f64>; 4]> {
    let mut all: [Vec<f64>; 4] = Default::default();
    for (means, (_, policy, erl)) in all.iter_mut().zip(MODES) {
        let outcomes = outcomes(scenario, policy, &tuning(erl), effort)?;
        *means = outcomes.iter().map(|outcome| outcome.latency.mean_ns / 1000.0).collect();
    }
    Ok(all)
}

fn row(label: [String; 2], means: &[Vec<f64>; 4]) -> Vec<String> {
    let mean = |values: &Vec<f64>| format!("{:.0}", Estimate::of(values.iter().copied()).mean);
    label.into_iter().chain(means.iter().map(mean)).collect()
}

/// Run by run, how many times `base` is `value`.
fn ratio(value: &[f64], base: &[f64]) -> Estimate {
    Estimate::of(value.iter().zip(base).map(|(value, base)| value / base))
}

const COLUMNS: [&str; 6] = ["reports each", "nodes", "none µs", "add µs", "drain µs", "ack µs"];

/// Report intervals of the scaling experiment, ns, and sizes of its cluster.
const PERIODS: [u64; 3] = [1_000_000, 5_000_000, 20_000_000];
const SIZES: [usize; 4] = [2, 4, 8, 16];

fn scaling(effort: &Effort) -> Result<Evidence> {
    let mut table = Table::new("mean latency, one node of arrival, 1.6 nodes' work", &COLUMNS);
    let mut cells = Vec::new();
    for period_ns in PERIODS {
        for nodes in SIZES {
            let scenario = scenario(nodes, 1.6 / nodes as f64, Ingress::Skewed(1.0), period_ns);
            let means = means(&sized(scenario, 20_000, effort), effort)?;
            table.row(row([format!("{} ms", period_ns / 1_000_000), nodes.to_string()], &means));
            cells.push(means);
        }
    }
    let mut drawn = Table::new("the same with ties drawn at random, as in the product", &COLUMNS);
    for nodes in SIZES {
        let scenario = scenario(nodes, 1.6 / nodes as f64, Ingress::Skewed(1.0), PERIODS[1]);
        let means = means(&sized(Scenario { draws_ties: true, ..scenario }, 20_000, effort), effort)?;
        drawn.row(row([format!("{} ms", PERIODS[1] / 1_000_000), nodes.to_string()], &means));
    }
    Ok(Evidence { findings: scaling_findings(&cells), tables: vec![table, drawn] })
}

/// The findings of E5 from its cells, by report interval and number of nodes.
fn scaling_findings(cells: &[[Vec<f64>; 4]]) -> Vec<Finding> {
    // Cells of 5 ms are 4 to 7; of 20 ms, 8 to 11.
    let (four, eight, sixteen) = (&cells[5], &cells[6], &cells[7]);
    let base = Finding {
        what: "latency without ERL at 16 nodes over that at 4, reports each 5 ms",
        published: Published {
            says: "packets concentrate on a node that is no longer the idlest (no figure)",
            figure: None,
            source: SOURCE,
        },
        ours: ratio(&sixteen[0], &four[0]),
        unit: "",
        direction: Bound::AtLeast(0.9),
        size: None,
        differs: "The thesis does not say which node a tie falls on. Where ties are drawn, as in the product, adding nodes helps \
                  even without ERL: see the second table.",
    };
    let falls =
        Published { says: "processing time falls as nodes are added (no figure)", figure: None, source: SOURCE };
    let third = Published { says: "the concentration is solved (no figure)", figure: None, source: SOURCE };
    vec![
        base.clone(),
        Finding {
            what: "latency with ERL as the thesis words it (add) at 16 nodes over that at 4, reports each 5 ms",
            published: falls,
            ours: ratio(&sixteen[1], &four[1]),
            direction: Bound::Below(1.0),
            differs: "",
            ..base.clone()
        },
        Finding {
            what: "latency with exact accounts (ack) over that without ERL, 8 nodes, reports each 5 ms",
            published: third,
            ours: ratio(&eight[3], &eight[0]),
            direction: Bound::Below(1.0),
            size: Some(Bound::AtMost(1.0 / 3.0)),
            differs: "",
            ..base.clone()
        },
        Finding {
            what: "latency with add over that without ERL, 2 nodes, reports each 20 ms",
            published: Published::nothing(
                "nothing; a rule that only adds must be worse than none where reports are slow and nodes few",
            ),
            ours: ratio(&cells[8][1], &cells[8][0]),
            direction: Bound::Above(1.0),
            differs: "",
            ..base
        },
    ]
}

/// Mean over time of the hot-spot index of `nodes` without the node of arrival, number 0.
fn index(scenario: &Scenario, policy: PolicyKind, tuning: Tuning, seed: u64) -> Result<f64> {
    scenario.check()?;
    let engine = Engine::new(scenario, Deciding { policy, tuning, sees_truth: false }, seed);
    let (mut sum, mut looks) = (0.0, 0.0);
    engine.run_watched(Trace::new(scenario, seed), 500_000, |now_ns, nodes| {
        let backlogs = nodes.iter().skip(1).map(|node| f64::from(node.truth(now_ns).mean_backlog_ns));
        let (total, most) = backlogs.fold((0.0, 0.0f64), |(total, most), ns| (total + ns, most.max(ns)));
        // A cluster without work is not uneven.
        sum += most / (total / (nodes.len() - 1) as f64 + 1_000.0);
        looks += 1.0;
    });
    Ok(sum / f64::max(looks, 1.0))
}

fn hot_spot(effort: &Effort) -> Result<Evidence> {
    let scenario = sized(scenario(8, 0.2, Ingress::Skewed(1.0), 5_000_000), 40_000, effort);
    let mut table = Table::new("hot-spot index of the 7 peers and mean latency", &["mode", "index", "mean µs"]);
    let mut indices = Vec::new();
    for (name, policy, erl) in MODES {
        let tuning = tuning(erl);
        let values =
            effort.seeds.iter().map(|seed| index(&scenario, policy, tuning, *seed)).collect::<Result<Vec<_>>>()?;
        let mean = mean_us(&outcomes(&scenario, policy, &tuning, effort)?).mean;
        let estimate = Estimate::of(values.iter().copied()).mean;
        table.row([name.to_owned(), format!("{estimate:.2}"), format!("{mean:.0}")]);
        indices.push(values);
    }
    let finding = |what, mode: usize| Finding {
        what,
        published: Published {
            says: "the concentration on one node is solved (no figure)",
            figure: None,
            source: SOURCE,
        },
        ours: ratio(&indices[mode], &indices[0]),
        unit: "",
        direction: Bound::Below(1.0),
        size: None,
        differs: "",
    };
    let findings = vec![
        finding("hot-spot index with ERL as the thesis words it (add) over that without", 1),
        finding("hot-spot index with exact accounts (ack) over that without", 3),
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

fn crossover(effort: &Effort) -> Result<Evidence> {
    let columns = ["reports each", "nodes of arrival", "none µs", "add µs", "drain µs", "ack µs", "least"];
    let mut table = Table::new("mean latency, 16 nodes, load 0.7", &columns);
    let (mut many, mut few) = (None, None);
    for period_ns in [200_000, 1_000_000, 5_000_000, 20_000_000] {
        for ingresses in [1, 2, 4, 8] {
            let weights = (0..16).map(|node| if node < ingresses { 1.0 } else { 0.0 }).collect();
            let scenario = scenario(16, 0.7, Ingress::Weights(weights), period_ns);
            let means = means(&sized(scenario, 16_000, effort), effort)?;
            let period_ms = period_ns as f64 / 1e6;
            let label = [format!("{period_ms:.*} ms", decimals(period_ms).min(1)), ingresses.to_string()];
            let least = MODES
                .iter()
                .zip(&means)
                .min_by(|a, b| a.1.iter().sum::<f64>().total_cmp(&b.1.iter().sum()))
                .map_or("", |((name, ..), _)| name);
            table.row(row(label, &means).into_iter().chain([least.to_owned()]));
            match (period_ns, ingresses) {
                (1_000_000, 4) => many = Some(ratio(&means[1], &means[2])),
                (20_000_000, 1) => few = Some(ratio(&means[2], &means[1])),
                _ => {}
            }
        }
    }
    let finding = |what, says, ours: Option<Estimate>| {
        let published = Published::nothing(says);
        let (unit, direction) = ("", Bound::Below(1.0));
        ours.map(|ours| Finding { what, published, ours, unit, direction, size: None, differs: "" })
    };
    let findings = [
        finding(
            "latency with add over that with drain, 4 of 16 nodes take arrivals, reports each 1 ms",
            "nothing; adding without end stands in for what other nodes send, which nobody sees",
            many,
        ),
        finding(
            "latency with drain over that with add, 1 of 16 nodes takes arrivals, reports each 20 ms",
            "nothing; where one node sends everything, what it sent is worked off while reports are old",
            few,
        ),
    ];
    Ok(Evidence { findings: findings.into_iter().flatten().collect(), tables: vec![table] })
}

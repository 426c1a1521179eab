//! E15: one against several front ends: how much a cluster takes in (KIPS 2003.11a).

use anyhow::Result;
use dataplane_common::load::Forwarding;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::super::ingress::Ingress;
use super::super::scenario::Scenario;
use super::super::statistics::{Estimate, Outcome};
use super::super::workload::Workload;
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::runs::{outcomes, plain_reports, sized};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E15",
    name: "front-ends",
    systems: &["S12 several front ends"],
    title: "throughput by number of nodes and of front ends among them",
    assumptions: &[
        "Every node works; the first M of them are front ends too, which all packets arrive at (least-work, reports each \
         100 µs). Results leave where they are computed, as with direct routing.",
        "A packet takes 20 µs; dispatching one to another node takes a front end 8 µs of CPU, receiving it 1 µs, the wire 5 µs.",
        "Offered are half as many packets again as the closed form says; throughput is packets over the time until the \
         last is out.",
        "Closed form: min(M / (8 µs · r + 20 µs · (1 − r)), N / (20 µs + 9 µs · r)), r = share redirected, as measured: a \
         front end spends the one or the other on each packet that it admits, and all nodes have all the work.",
    ],
    run,
};

const SERVICE_NS: f64 = 20_000.0;
const COSTS: Forwarding = Forwarding { send_ns: 8_000, receive_ns: 1_000, wire_ns: 5_000, wire_ns_per_byte_q16: 0 };

/// Packets a second, thousands, that M front ends and N nodes can take when a share `redirected` goes to others.
fn form_kpps(front_ends: usize, nodes: usize, redirected: f64) -> f64 {
    let (send, receive) = (f64::from(COSTS.send_ns), f64::from(COSTS.receive_ns));
    let workers = nodes as f64 / (SERVICE_NS + redirected * (send + receive));
    let admitting = front_ends as f64 / (redirected * send + (1.0 - redirected) * SERVICE_NS);
    workers.min(admitting) * 1e6
}

fn run(effort: &Effort) -> Result<Evidence> {
    let mut table = Table::new(
        "throughput, thousands of packets a second: ours (closed form)",
        &["nodes", "1 front end", "2 front ends", "4 front ends"],
    );
    // By front ends: throughput, seed by seed, and its relative error, for each number of nodes.
    let mut throughput = [Vec::new(), Vec::new(), Vec::new()];
    let mut errors = vec![0.0f64; effort.seeds.len()];
    for nodes in [1, 2, 4, 6, 8, 12, 16] {
        let mut cells = vec![nodes.to_string()];
        for (column, front_ends) in [1, 2, 4].into_iter().enumerate() {
            if front_ends > nodes {
                cells.push("-".to_owned());
                continue;
            }
            let weights = (0..nodes).map(|node| if node < front_ends { 1.0 } else { 0.0 }).collect();
            let offered = 1.5 * form_kpps(front_ends, nodes, (nodes as f64 - 1.0) / nodes as f64);
            let scenario = Scenario {
                nodes,
                load: offered / 1e6 * SERVICE_NS / nodes as f64,
                workload: Workload::Deterministic,
                mean_service_ns: SERVICE_NS,
                ingress: Ingress::Weights(weights),
                forwarding: COSTS,
                reports: plain_reports(100_000),
                ..Scenario::default()
            };
            let scenario = sized(scenario, 30_000, effort);
            let outcomes = outcomes(&scenario, PolicyKind::LeastWork, &Tuning::DEFAULT, effort)?;
            let kpps = |outcome: &Outcome| outcome.completed as f64 / outcome.span_ns as f64 * 1e6;
            let form = |outcome: &Outcome| form_kpps(front_ends, nodes, outcome.forwarded());
            for (error, outcome) in errors.iter_mut().zip(&outcomes).filter(|_| nodes <= 8) {
                *error = error.max((kpps(outcome) / form(outcome) - 1.0).abs() * 100.0);
            }
            let ours = Estimate::of(outcomes.iter().map(kpps)).mean;
            cells.push(format!("{ours:.0} ({:.0})", Estimate::of(outcomes.iter().map(form)).mean));
            throughput[column].push(outcomes.iter().map(kpps).collect::<Vec<_>>());
        }
        table.row(cells);
    }
    let source = "KIPS 2003.11a, 131-134, abstract";
    let better =
        Published { says: "one front end is the bottleneck; several are superior (no figure)", figure: None, source };
    let last = |column: usize, back: usize| throughput[column].iter().rev().nth(back).cloned().unwrap_or_default();
    let ratio = |of: Vec<f64>, base: Vec<f64>| Estimate::of(of.iter().zip(&base).map(|(of, base)| of / base));
    let base = Finding {
        what: "throughput with one front end, 16 nodes over 8",
        published: better,
        ours: ratio(last(0, 0), last(0, 2)),
        unit: "",
        direction: Bound::Below(1.2),
        size: Some(Bound::Below(1.1)),
        differs: "",
    };
    let findings = vec![
        base.clone(),
        Finding {
            what: "throughput of 16 nodes, two front ends over one",
            ours: ratio(last(1, 0), last(0, 0)),
            direction: Bound::Above(1.0),
            size: Some(Bound::Within(1.8, 2.2)),
            ..base.clone()
        },
        Finding {
            what: "largest difference from the closed form, up to 8 nodes",
            published: Published::nothing("nothing; the closed form is ours"),
            ours: Estimate::of(errors),
            unit: "%",
            direction: Bound::AtMost(25.0),
            size: Some(Bound::AtMost(10.0)),
            differs: "Beyond 8 nodes four front ends take in less than the form says: none sees what the others send between \
                      reports, and they run to the same nodes, front ends among them.",
        },
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

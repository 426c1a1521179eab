//! E4: without a guard, redirecting packets that cost less than their redirect makes a cluster relay itself to death.

use anyhow::Result;
use dataplane_common::load::{Erl, Forwarding};
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::super::ingress::Ingress;
use super::super::scenario::Scenario;
use super::super::statistics::Estimate;
use super::super::workload::Workload;
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::runs::{mean_us, outcomes, plain_reports, sized};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E4",
    name: "relay-storm",
    systems: &["S1 EPT packet distribution"],
    title: "the guard against redirects that cost more CPU time than the packet",
    assumptions: &[
        "4 nodes; packets of 2 µs; 60, 20, 10 and 10 % of them arrive at nodes 0 to 3; load 0.4 of the cluster.",
        "Redirecting costs 1.8 µs of CPU at each end and 2 µs on the wire; loads are reported each 100 µs.",
        "No source describes this: it follows from the thesis' rule, which compares the latencies of the one packet only.",
    ],
    run,
};

fn run(effort: &Effort) -> Result<Evidence> {
    let scenario = Scenario {
        nodes: 4,
        load: 0.4,
        workload: Workload::Deterministic,
        mean_service_ns: 2_000.0,
        ingress: Ingress::Weights(vec![0.6, 0.2, 0.1, 0.1]),
        forwarding: Forwarding { send_ns: 1_800, receive_ns: 1_800, wire_ns: 2_000, wire_ns_per_byte_q16: 0 },
        reports: plain_reports(100_000),
        ..Scenario::default()
    };
    let scenario = sized(scenario, 200_000, effort);
    let columns = ["policy", "guard", "redirected %", "mean µs"];
    let mut table = Table::new("packets of 2 µs, redirects of 3.6 µs CPU", &columns);
    let mut redirected = |guard: bool, policy: PolicyKind, erl: Erl| -> Result<(Estimate, Estimate)> {
        let tuning = Tuning { erl: erl as u32, ..Tuning::DEFAULT };
        let outcomes = outcomes(&Scenario { guard, ..scenario.clone() }, policy, &tuning, effort)?;
        let share = Estimate::of(outcomes.iter().map(|outcome| outcome.forwarded() * 100.0));
        let mean = mean_us(&outcomes);
        let erl = Erl::NAMES.iter().find(|(_, mode)| *mode == erl).map_or("", |(name, _)| name);
        let name = if policy == PolicyKind::EptErl { format!("ept-erl, {erl}") } else { policy.name().to_owned() };
        let guard = if guard { "on" } else { "off" };
        table.row([name, guard.to_owned(), format!("{:.1}", share.mean), format!("{:.1}", mean.mean)]);
        Ok((share, mean))
    };
    let (off, _) = redirected(false, PolicyKind::Ept, Erl::Ack)?;
    redirected(false, PolicyKind::EptErl, Erl::Drain)?;
    redirected(false, PolicyKind::EptErl, Erl::Ack)?;
    let (on, on_mean) = redirected(true, PolicyKind::Ept, Erl::Ack)?;
    let none = Published::nothing;
    let findings = vec![
        Finding {
            what: "packets redirected without the guard",
            published: none("nothing; by our estimate more than 80 % are redirected"),
            ours: off,
            unit: "%",
            direction: Bound::Above(on.mean),
            size: Some(Bound::Above(80.0)),
            differs: "",
        },
        Finding {
            what: "packets redirected with the guard",
            published: none("nothing; none should be redirected"),
            ours: on,
            unit: "%",
            direction: Bound::Below(off.mean),
            size: Some(Bound::AtMost(0.0)),
            differs: "",
        },
        Finding {
            what: "mean latency with the guard",
            published: none("nothing; below 20 µs by our estimate"),
            ours: on_mean,
            unit: "µs",
            direction: Bound::Above(0.0),
            size: Some(Bound::Below(20.0)),
            differs: "",
        },
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

//! What packets cost on the cluster, as measured in one round.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use dataplane_user::functions::Builtin;
use serde::Serialize;

use crate::demo::round::Round;
use crate::demo::setup::Setup;
use crate::status::Status;
use crate::traffic::Kind;

/// The costs of one round, means over the cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// Time in its function, ns, by kind in the order of the workload.
    pub service_ns: Vec<f64>,
    /// Speed of each node, thousandths of the mean, by node.
    pub speeds_milli: Vec<u32>,
    /// Time that a worker spends on a packet outside its function, ns.
    pub outside_ns: f64,
    /// CPU time of sending a packet to a peer, ns.
    pub send_ns: f64,
    /// CPU time of receiving one, what the worker spends on it left out, ns.
    pub receive_ns: f64,
    /// Time on the wire, one way, ns.
    pub wire_ns: f64,
    /// From the scheduled to the actual departure at the generator, ns.
    pub lag_ns: f64,
}

/// Packets of a function, and the time they took.
#[derive(Clone, Copy, Debug, Default)]
struct Served {
    packets: u64,
    ns: u64,
}

impl Costs {
    /// The costs of a round.
    ///
    /// # Errors
    /// A function of the workload was never measured.
    pub fn of(setup: &Setup, round: &Round) -> Result<Self> {
        let statuses = &round.end.statuses;
        let mut served: BTreeMap<&str, Served> = BTreeMap::new();
        for function in statuses.iter().flat_map(|status| &status.functions) {
            let sum = served.entry(&function.name).or_default();
            sum.packets += function.samples;
            sum.ns += function.measured_ns;
        }
        let sent = round.report.kinds.iter().map(|kind| kind.sent).collect::<Vec<_>>();
        let (outside_ns, packets) = statuses.iter().map(Status::outside).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let outside_ns = outside_ns as f64 / packets.max(1) as f64;
        let mean = |value: fn(&Status) -> u32| {
            statuses.iter().map(|status| f64::from(value(status))).sum::<f64>() / statuses.len().max(1) as f64
        };
        Ok(Self {
            service_ns: services(&setup.mix, &sent, &served)?,
            speeds_milli: speeds(&setup.mix, statuses),
            outside_ns,
            send_ns: mean(|status| status.signals.send_ns),
            // The nodes count what their workers do outside functions as a part of receiving.
            receive_ns: (mean(|status| status.signals.receive_ns) - outside_ns).max(0.0),
            wire_ns: mean(|status| status.signals.wire_ns),
            lag_ns: round.report.lag.mean_ns(),
        })
    }
}

/// How fast each node is against the mean: by the time that the emulated kinds take by the node's own fit. Nodes that share a
/// core with others, or with the generator, take longer. Nodes that compute have a core each and count as equal.
fn speeds(mix: &[Kind], statuses: &[Status]) -> Vec<u32> {
    let time = |status: &Status| {
        let kinds = mix.iter().filter(|kind| kind.emulated).filter_map(|kind| {
            let function = status.functions.iter().find(|function| function.name == kind.function)?;
            let ns = function.a_ns as f64 + function.b_ns_per_unit * f64::from(kind.operand?);
            (function.samples > 0).then_some((kind.weight * ns, function.samples as f64))
        });
        kinds.fold((0.0, 0.0), |(ns, samples), (kind_ns, of)| (ns + kind_ns, samples + of))
    };
    let times = statuses.iter().map(time).collect::<Vec<_>>();
    let samples = times.iter().map(|(_, samples)| samples).sum::<f64>();
    let mean = times.iter().map(|(ns, samples)| ns * samples).sum::<f64>() / samples.max(1.0);
    let speed = |(ns, samples): &(f64, f64)| if *samples > 0.0 && *ns > 0.0 { 1000.0 * mean / ns } else { 1000.0 };
    times.iter().map(|time| speed(time).round().clamp(1.0, 65_535.0) as u32).collect()
}

/// Mean time of each kind. Workers measure by function: kinds of one function share its time in proportion to their nominal
/// times; emulated ones last as long as they declare, and all are late by the same time on average.
fn services(mix: &[Kind], sent: &[u64], served: &BTreeMap<&str, Served>) -> Result<Vec<f64>> {
    let mut services = Vec::with_capacity(mix.len());
    for kind in mix {
        let function = served.get(kind.function.as_str()).copied().unwrap_or_default();
        ensure!(function.packets > 0, "no packet of kind {} was computed: a longer round is needed", kind.name);
        let mean_ns = function.ns as f64 / function.packets as f64;
        let declared = |kind: &Kind| match kind.builtin() {
            Ok(Builtin::Hold) => f64::from(kind.operand.unwrap_or(0)),
            _ => kind.nominal_ns as f64,
        };
        let alike = || mix.iter().zip(sent).filter(|(other, _)| other.function == kind.function);
        let packets = alike().map(|(_, sent)| *sent).sum::<u64>().max(1) as f64;
        let declared_ns = alike().map(|(kind, sent)| declared(kind) * *sent as f64).sum::<f64>() / packets;
        services.push(if kind.emulated {
            declared(kind) + mean_ns - declared_ns
        } else {
            mean_ns * declared(kind) / declared_ns.max(1.0)
        });
    }
    Ok(services)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, function: Builtin, operand: Option<u32>, nominal_ns: u64) -> Kind {
        let emulated = function == Builtin::Hold;
        Kind { name: name.to_owned(), function: function.name().to_owned(), operand, weight: 1.0, nominal_ns, emulated }
    }

    #[test]
    fn kinds_share_the_time_of_their_function() {
        let computed = [
            kind("light", Builtin::Sha256, Some(10), 100),
            kind("heavy", Builtin::Sha256, Some(100), 1_000),
            kind("checksum", Builtin::Crc32, None, 5),
        ];
        let served = BTreeMap::from([
            ("sha256", Served { packets: 40, ns: 30 * 110 + 10 * 1_100 }),
            ("crc32", Served { packets: 10, ns: 70 }),
        ]);
        assert_eq!(services(&computed, &[30, 10, 10], &served).unwrap(), [110.0, 1_100.0, 7.0]);
        let emulated = [kind("light", Builtin::Hold, Some(100), 150), kind("heavy", Builtin::Hold, Some(1_000), 1_050)];
        let served = BTreeMap::from([("hold", Served { packets: 4, ns: 3 * 160 + 1_060 })]);
        assert_eq!(services(&emulated, &[3, 1], &served).unwrap(), [160.0, 1_060.0]);
    }

    #[test]
    fn a_node_that_takes_longer_is_slower() {
        let node = |id, a_ns: u64, samples: u64| {
            let mut status = crate::status::tests::status(id, &[], &[]);
            let text = format!(
                r#"{{"name": "hold", "type_id": 1, "worker": 0, "a_ns": {a_ns}, "b_ns_per_unit": 1.0, "samples": {samples},
                    "predicted_ns": 0, "measured_ns": 0, "error_p50_milli": 0, "error_p99_milli": 0}}"#
            );
            status.functions.push(serde_json::from_str(&text).unwrap());
            status
        };
        let mix = [kind("light", Builtin::Hold, Some(100), 100)];
        assert_eq!(speeds(&mix, &[node(1, 0, 10), node(2, 100, 10)]), [1_500, 750]);
        assert_eq!(speeds(&mix, &[node(1, 0, 10), node(2, 0, 0)]), [1_000, 1_000], "one that computed nothing");
    }

    #[test]
    fn a_kind_that_was_not_measured_is_refused() {
        let mix = [kind("checksum", Builtin::Crc32, None, 5)];
        assert!(services(&mix, &[0], &BTreeMap::new()).unwrap_err().to_string().contains("checksum"));
    }
}

//! A round of the cluster as a scenario of the simulator: the same packets, the costs measured in the round.

use std::sync::Arc;

use anyhow::Result;
use dataplane_common::hash::mix;
use dataplane_common::load::Forwarding;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::costs::Costs;
use super::way::Way;
use crate::demo::setup::{Order, Setup};
use crate::sim::recording::{Recorded, Recording, Skipped};
use crate::sim::workload::Work;
use crate::sim::{self, Egress, Estimates, Reports, Scenario, Sleep};
use crate::traffic::Schedule;

/// Simulates a round under `policy`.
///
/// # Errors
/// The workload or the scenario is impossible.
pub fn simulate(setup: &Setup, round: u32, policy: PolicyKind, costs: &Costs, way: &Way) -> Result<sim::Outcome> {
    let (recording, warm_up) = recording(setup, round, costs)?;
    let scenario = scenario(setup, costs, way);
    let packets = recording.packets.len() as u64;
    let scenario = Scenario { packets, warm_up, ..scenario }.playing(Arc::new(recording), None);
    sim::run(&scenario, policy, &Tuning { discipline: setup.discipline.id(), ..Tuning::DEFAULT }, setup.seed)
}

/// The cluster without its packets.
fn scenario(setup: &Setup, costs: &Costs, way: &Way) -> Scenario {
    let wire_ns = costs.wire_ns.round() as u32;
    Scenario {
        nodes: usize::from(setup.nodes),
        speeds_milli: costs.speeds_milli.clone(),
        estimates: Estimates::KindMean,
        flows: u32::from(setup.flows),
        forwarding: Forwarding {
            send_ns: costs.send_ns.round() as u32,
            receive_ns: costs.receive_ns.round() as u32,
            wire_ns,
            wire_ns_per_byte_q16: 0,
        },
        egress: match setup.order {
            Order::Flow => Egress::Ordered,
            Order::None => Egress::Ingress,
        },
        sleep: Sleep { after_ns: way.spin_ns, wake_ns: way.wake_ns.round() as u32 },
        reports: Reports {
            interval_ns: setup.report_interval_us * 1_000,
            delay_ns: u64::from(wire_ns),
            ..Reports::default()
        },
        ..Scenario::default()
    }
}

/// The packets of a round as the generator sends them, and how many of them are not measured.
fn recording(setup: &Setup, round: u32, costs: &Costs) -> Result<(Recording, u64)> {
    let schedule = Schedule::new(&setup.workload(round)?)?;
    let first_ns = schedule.arrivals().first().map_or(0, |arrival| arrival.at_ns);
    let bytes = u16::try_from(setup.frame_bytes)?;
    let packet = |arrival: &crate::traffic::Arrival| {
        let flow = u32::from(arrival.node) * u32::from(setup.flows) + u32::from(arrival.flow);
        let service_ns = costs.service_ns[usize::from(arrival.kind)] + costs.outside_ns;
        Recorded {
            at_ns: arrival.at_ns - first_ns,
            spread: u32::from(arrival.node),
            flow,
            work: Work { service_ns: service_ns.round().max(1.0) as u32, bytes, kind: arrival.kind },
            class: 0,
            key: mix(u64::from(flow)) as u32,
        }
    };
    let packets: Vec<Recorded> = schedule.arrivals().iter().map(packet).collect();
    let warm_up = (0..packets.len()).take_while(|at| !schedule.is_measured(*at)).count() as u64;
    // Decisions see what nodes estimate, which is the time in the function.
    let kinds = setup.mix.iter().zip(&costs.service_ns);
    let kinds = kinds.map(|(kind, ns)| (kind.name.clone(), ns.round().max(1.0) as u32)).collect();
    let flows = u32::from(setup.nodes) * u32::from(setup.flows);
    Ok((Recording { packets, kinds, flows, skipped: Skipped::default() }, warm_up))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo;
    use crate::environment::Environment;

    #[test]
    fn the_simulator_plays_the_packets_of_the_round() {
        let options = demo::Options { seconds: Some(3.0), ..demo::Options::default() };
        let environment = Environment { cores: 2, ..Environment::take() };
        let setup = Setup::of(&options, &environment, true).unwrap();
        assert_eq!(setup.emulated(), ["light", "heavy"]);
        let service_ns = setup.mix.iter().map(|kind| kind.nominal_ns as f64).collect();
        let costs = Costs {
            service_ns,
            speeds_milli: vec![1_000; 3],
            outside_ns: 1_000.0,
            send_ns: 900.0,
            receive_ns: 900.0,
            wire_ns: 5e3,
            lag_ns: 0.0,
        };
        let way = Way { path_ns: 20_000.0, wake_ns: 30_000.0, spin_ns: 20_000 };
        let schedule = Schedule::new(&setup.workload(1).unwrap()).unwrap();
        let outcome = simulate(&setup, 1, PolicyKind::Local, &costs, &way).unwrap();
        assert_eq!(outcome.arrived, schedule.arrivals().len() as u64);
        let measured = (0..schedule.arrivals().len()).filter(|at| schedule.is_measured(*at)).count();
        assert_eq!((outcome.latency.count, outcome.redirected), (measured as u64, 0));
        // Load 0.85 at node 1, and what its worker does outside functions.
        assert!((outcome.utilisation[0] - 0.85).abs() < 0.1, "{:?}", outcome.utilisation);
        let awake = simulate(&setup, 1, PolicyKind::Local, &costs, &Way { wake_ns: 0.0, ..way }).unwrap();
        assert!(awake.latency.mean_ns < outcome.latency.mean_ns);
    }
}

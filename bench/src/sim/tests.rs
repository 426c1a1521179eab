//! The simulator against theory, against itself, and the collapse that the guard prevents.

use super::*;
use dataplane_common::load::{Erl, Forwarding};

fn simulate(scenario: &Scenario, policy: PolicyKind, seed: u64) -> Outcome {
    run(scenario, policy, &Tuning::DEFAULT, seed).unwrap()
}

/// A small run of the base cell.
fn small() -> Scenario {
    Scenario { packets: 20_000, warm_up: 2_000, ..Scenario::default() }
}

fn assert_near(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() <= tolerance, "{found} where {expected} was expected");
}

/// Mean sojourn time in M/M/k, in service times (Erlang's C formula).
fn erlang(servers: u32, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    let term = |n: u32| (1..=n).fold(1.0, |product, i| product * offered / f64::from(i));
    let last = term(servers) / (1.0 - load);
    let waits = last / ((0..servers).map(term).sum::<f64>() + last);
    1.0 + waits / (f64::from(servers) * (1.0 - load))
}

#[test]
fn a_single_node_is_an_m_m_1_queue() {
    let base = Scenario { nodes: 1, workload: Workload::Exponential, packets: 1_000_000, ..Scenario::default() };
    for load in [0.3, 0.7] {
        let outcome = simulate(&Scenario { load, ..base.clone() }, PolicyKind::Local, 1);
        assert_near(outcome.latency.mean_ns, 10_000.0 / (1.0 - load), 0.02);
        assert_near(outcome.mean_utilisation(), load, 0.01);
    }
}

#[test]
fn the_central_queue_is_an_m_m_k_queue() {
    let base = Scenario { workload: Workload::Exponential, packets: 1_000_000, ..Scenario::default() };
    for (nodes, workers, load) in [(1, 1, 0.7), (4, 2, 0.8), (16, 1, 0.9)] {
        let scenario = Scenario { nodes, workers, load, ..base.clone() };
        let latency = bounds::central_fcfs(&scenario, 1).unwrap();
        assert_near(latency.mean_ns, 10_000.0 * erlang((nodes * workers) as u32, load), 0.02);
    }
}

#[test]
fn waiting_in_m_d_1_is_half_of_that_in_m_m_1() {
    let workload = Workload::Deterministic;
    let scenario = Scenario { nodes: 1, workload, load: 0.7, packets: 500_000, ..Scenario::default() };
    let outcome = simulate(&scenario, PolicyKind::Local, 1);
    assert_near(outcome.latency.mean_ns, 10_000.0 * (1.0 + 0.7 / 0.3 / 2.0), 0.02);
}

#[test]
fn the_same_seed_gives_the_same_outcome() {
    let scenario = Scenario { loss: 0.01, estimates: Estimates::LogSigma(0.3), ..small() };
    for policy in PolicyKind::ALL {
        let outcome = simulate(&scenario, *policy, 7);
        assert_eq!(format!("{outcome:?}"), format!("{:?}", simulate(&scenario, *policy, 7)), "{policy:?}");
        assert_ne!(outcome.latency, simulate(&scenario, *policy, 8).latency, "{policy:?}");
    }
}

#[test]
fn no_packet_is_lost_unseen_and_littles_law_holds() {
    let failures = vec![
        Failure { node: 2, at_ns: 5_000_000, until_ns: Some(9_000_000) },
        Failure { node: 3, at_ns: 6_000_000, until_ns: None },
    ];
    for egress in [Egress::Direct, Egress::Ingress, Egress::Ordered] {
        for (failures, loss) in [(Vec::new(), 0.0), (Vec::new(), 0.02), (failures.clone(), 0.0)] {
            let loses = loss > 0.0 || !failures.is_empty();
            let scenario = Scenario { load: 0.6, egress, failures, loss, workers: 2, ..small() };
            for policy in PolicyKind::ALL {
                let outcome = simulate(&scenario, *policy, 3);
                assert_eq!(outcome.arrived, scenario.packets);
                assert_eq!(outcome.completed + outcome.lost, outcome.arrived, "{policy:?}");
                assert_eq!(outcome.lost_by.iter().sum::<u64>(), outcome.lost, "{policy:?}: each loss has a cause");
                assert_eq!(outcome.present_ns, outcome.sojourn_ns, "{policy:?}: L = λ W");
                assert!(loses || outcome.lost == 0, "{policy:?}");
            }
        }
    }
}

#[test]
fn a_failed_node_takes_its_own_packets_with_it_and_no_others() {
    let failures = vec![Failure { node: 2, at_ns: 5_000_000, until_ns: Some(10_000_000) }];
    let scenario = Scenario { load: 0.5, failures, ..small() };
    let outcome = simulate(&scenario, PolicyKind::EptErl, 3);
    // 5 ms of an eighth of the packets, 400 in a ms, and what others send before they know.
    assert!((230..400).contains(&outcome.lost), "{}", outcome.lost);
    let by = |cause: Loss| outcome.lost_by[cause as usize];
    let arrivals = trace::Trace::new(&scenario, 3).filter(|arrival| arrival.node == 2);
    let arrivals = arrivals.filter(|arrival| (5_000_000..10_000_000).contains(&arrival.at_ns)).count() as u64;
    assert_eq!((by(Loss::Arrival), by(Loss::Wire), by(Loss::Room)), (arrivals, 0, 0));
    let local = simulate(&scenario, PolicyKind::Local, 3);
    assert!(local.lost_by[Loss::Failure as usize] < 20, "what waited there: {:?}", local.lost_by);
    assert!(outcome.latency.mean_ns < 40_000.0, "{:?}", outcome.latency);
}

/// Seed-systems.md, E4: packets of 2 µs, redirects of 1.8 + 1.8 µs CPU, most packets at one node.
fn relays() -> Scenario {
    Scenario {
        nodes: 4,
        load: 0.4,
        workload: Workload::Deterministic,
        mean_service_ns: 2_000.0,
        ingress: Ingress::Weights(vec![0.6, 0.2, 0.1, 0.1]),
        forwarding: Forwarding { send_ns: 1_800, receive_ns: 1_800, wire_ns: 2_000, wire_ns_per_byte_q16: 0 },
        packets: 200_000,
        ..Scenario::default()
    }
}

#[test]
fn without_the_guard_the_cluster_relays_itself_to_death() {
    let unguarded = Scenario { guard: false, ..relays() };
    let drain = Tuning { erl: Erl::Drain as u32, ..Tuning::DEFAULT };
    let erl = run(&unguarded, PolicyKind::EptErl, &drain, 1).unwrap();
    let silent = Reports { piggyback: false, ..Reports::default() };
    let ept = simulate(&Scenario { reports: silent, ..unguarded.clone() }, PolicyKind::Ept, 1);
    for outcome in [&erl, &ept] {
        assert!(outcome.forwarded() > 0.8, "{}", outcome.forwarded());
        assert!(outcome.latency.mean_ns > 200_000.0, "{:?}", outcome.latency);
    }
    // Exact accounts alone avert the collapse: a node that is sent too much is seen to be.
    assert!(simulate(&unguarded, PolicyKind::EptErl, 1).forwarded() < 0.4);
    for policy in [PolicyKind::Ept, PolicyKind::EptErl] {
        let guarded = run(&relays(), policy, &drain, 1).unwrap();
        assert_eq!(guarded.redirected, 0, "{policy:?}");
        assert!(guarded.latency.mean_ns < 20_000.0, "{policy:?}: {:?}", guarded.latency);
    }
}

#[test]
fn bounds_are_below_and_the_oracle_is_between() {
    let scenario = small();
    let central = bounds::central_fcfs(&scenario, 5).unwrap();
    let shortest = bounds::central_shortest(&scenario, 5).unwrap();
    let oracle = bounds::oracle(&scenario, &Tuning::DEFAULT, 5).unwrap();
    let thesis = simulate(&scenario, PolicyKind::EptErl, 5);
    let local = simulate(&scenario, PolicyKind::Local, 5);
    let means = [shortest, central, oracle.latency, thesis.latency, local.latency].map(|latency| latency.mean_ns);
    assert!(means.is_sorted(), "{means:?}");
    assert_eq!(central.count, scenario.packets - scenario.warm_up);
}

#[test]
fn a_faster_node_serves_faster_and_takes_more() {
    let scenario = Scenario { nodes: 2, speeds_milli: vec![2000, 500], load: 0.5, ..small() };
    let outcome = simulate(&scenario, PolicyKind::EptErl, 1);
    assert!(outcome.utilisation.iter().all(|busy| (0.3..0.9).contains(busy)), "{:?}", outcome.utilisation);
    assert!(simulate(&scenario, PolicyKind::Local, 1).utilisation[1] > 0.95, "alone it is overloaded");
}

#[test]
fn report_modes_send_as_many_messages_as_they_say() {
    let mode = |mode| Scenario { reports: Reports { mode, ..Reports::default() }, ..small() };
    let frames = |scenario: &Scenario| simulate(scenario, PolicyKind::EptErl, 1).reports.frames;
    let periodic = simulate(&mode(ReportMode::Periodic), PolicyKind::EptErl, 1);
    let expected = periodic.span_ns / 100_000 * 8 * 7;
    assert!(periodic.reports.frames.abs_diff(expected) <= 8 * 7, "each 100 µs, 8 nodes, 7 receivers");
    let on_finish = frames(&mode(ReportMode::OnFinish));
    assert!(on_finish >= 20_000 * 7, "{on_finish}");
    let half = frames(&mode(ReportMode::KFinish(500)));
    let all = frames(&mode(ReportMode::KFinish(1000)));
    assert!(all < half && half < on_finish, "{all} {half} {on_finish}");
    assert!(frames(&mode(ReportMode::Threshold)) < periodic.reports.frames);
}

#[test]
fn fresh_reports_help_and_lost_ones_are_survived() {
    let with = |reports| simulate(&Scenario { reports, ..small() }, PolicyKind::Ept, 2).latency.mean_ns;
    let silent = Reports { piggyback: false, ..Reports::default() };
    let fresh = with(Reports { interval_ns: 10_000, ..silent });
    let stale = with(Reports { interval_ns: 500_000, ..silent });
    assert!(fresh < stale, "{fresh} against {stale}");
    assert!(with(silent) > with(Reports::default()), "piggybacked loads are fresher");
    let lossy = with(Reports { loss: 0.1, ..silent });
    assert!(lossy < 10.0 * with(silent), "{lossy}");
    let none = simulate(&Scenario { reports: Reports { loss: 1.0, ..silent }, ..small() }, PolicyKind::Ept, 2);
    assert_eq!(none.redirected, 0, "a node never heard of is no candidate");
}

#[test]
fn order_is_lost_by_redirecting_only_and_restored_at_a_price() {
    let local = simulate(&small(), PolicyKind::Local, 1);
    assert!(local.reordered == 0.0 && (local.ordered_mean_ns - local.latency.mean_ns).abs() < 1e-6);
    let scenario = Scenario { flows: 8, ..small() };
    let outcome = simulate(&scenario, PolicyKind::EptErl, 1);
    assert!(outcome.reordered > 0.01, "{}", outcome.reordered);
    assert!(outcome.ordered_mean_ns > outcome.latency.mean_ns);
}

#[test]
fn the_shortest_first_lower_the_mean() {
    let tuning = Tuning { discipline: dataplane_common::tuning::SHORTEST, ..Tuning::DEFAULT };
    let shortest = run(&small(), PolicyKind::EptErl, &tuning, 1).unwrap();
    let fifo = simulate(&small(), PolicyKind::EptErl, 1);
    assert!(shortest.latency.mean_ns < fifo.latency.mean_ns, "{:?} {:?}", shortest.latency, fifo.latency);
}

#[test]
fn a_full_node_loses_packets_and_says_so() {
    let scenario = Scenario { load: 1.5, memory_packets: 20, ..small() };
    let outcome = simulate(&scenario, PolicyKind::EptErl, 1);
    assert!((5_000..9_000).contains(&outcome.lost), "a third has no place: {}", outcome.lost);
    assert_eq!(outcome.completed + outcome.lost, outcome.arrived);
    assert_eq!(outcome.lost_by[Loss::Room as usize], outcome.lost);
    assert!(outcome.latency.max_ns < 20 * 60_000, "{:?}", outcome.latency);
    assert_eq!(simulate(&Scenario { load: 0.3, ..scenario }, PolicyKind::EptErl, 1).lost, 0);
}

#[test]
fn idle_workers_find_work() {
    let scenario = Scenario { workers: 2, load: 0.7, ..small() };
    let with = |pull| simulate(&Scenario { pull, ..scenario.clone() }, PolicyKind::Local, 1);
    let (never, always) = (with(Pull::Never), with(Pull::Always));
    assert_eq!((never.given, never.messages.frames), (0, 0));
    assert!(always.given > 1_000, "{}", always.given);
    assert!(always.latency.mean_ns < 0.7 * never.latency.mean_ns, "{:?} {:?}", always.latency, never.latency);
    assert_eq!(always.completed, always.arrived);
    assert_eq!(always.present_ns, always.sojourn_ns);
    // Requests that get no answer, and gifts that are lost, stop nobody.
    let failures = vec![Failure { node: 1, at_ns: 3_000_000, until_ns: Some(6_000_000) }];
    let broken = Scenario { pull: Pull::Always, loss: 0.02, failures, ..scenario };
    let outcome = simulate(&broken, PolicyKind::Local, 1);
    assert_eq!(outcome.completed + outcome.lost, outcome.arrived);
    assert!(outcome.given > always.given / 2, "{}", outcome.given);
}

#[test]
fn probes_are_answered_and_freshen_the_rows() {
    let scenario =
        Scenario { reports: Reports { piggyback: false, interval_ns: 1_000_000, ..Reports::default() }, ..small() };
    let tuning = Tuning::DEFAULT;
    let deciding = engine::Deciding { policy: PolicyKind::Ept, tuning, sees_truth: false };
    let mut engine = engine::Engine::new(&scenario, deciding, 1);
    engine.probes = 3;
    let probing = engine.run(trace::Trace::new(&scenario, 1));
    assert!(probing.messages.frames > 2 * 3 * 19_900, "{:?}", probing.messages);
    let blind = simulate(&scenario, PolicyKind::Ept, 1);
    assert!(probing.latency.mean_ns < blind.latency.mean_ns, "{:?} {:?}", probing.latency, blind.latency);
}

#[test]
fn thousands_of_nodes_run() {
    let scenario = Scenario { nodes: 4096, packets: 60_000, warm_up: 10_000, flows: 4, ..Scenario::default() };
    let outcome = simulate(&scenario, PolicyKind::EptErl, 1);
    assert_eq!(outcome.completed, 60_000);
    assert!(outcome.redirected > 0);
}

#[test]
fn impossible_scenarios_are_refused() {
    for broken in [
        Scenario { nodes: 0, ..small() },
        Scenario { workers: 65, ..small() },
        Scenario { load: 0.0, ..small() },
        Scenario { loss: 1.5, ..small() },
        Scenario { packets: 10, warm_up: 10, ..small() },
        Scenario { failures: vec![Failure { node: 8, at_ns: 0, until_ns: None }], ..small() },
        Scenario { ingress: Ingress::Skewed(2.0), ..small() },
        Scenario { classes: Vec::new(), ..small() },
    ] {
        assert!(run(&broken, PolicyKind::Local, &Tuning::DEFAULT, 1).is_err(), "{broken:?}");
    }
}

use std::process::Command;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::command;

/// Names the Python of an environment that has the package MLRsearch; `cargo xtask test` makes it.
const PYTHON_VARIABLE: &str = "DATAPLANE_MLRSEARCH_PYTHON";
/// Asks the package: how it classifies loads, and what it finds on a simulated device.
const CROSS_CHECK: &str = include_str!("cross_check.py");

/// A device that forwards so many frames a second and loses a share of all.
#[derive(Clone, Copy)]
struct Simulated {
    capacity: f64,
    loss_ratio: f64,
    trials: u32,
}

impl Simulated {
    fn new(capacity: f64) -> Self {
        Self { capacity, loss_ratio: 0.0, trials: 0 }
    }
}

impl Device for Simulated {
    fn measure(&mut self, load: u64, duration_s: f64) -> Result<Trial> {
        self.trials += 1;
        assert!(self.trials < 10_000, "the search does not end");
        let sent = (load as f64 * duration_s).round();
        let carried = (self.capacity * duration_s).min(sent) * (1.0 - self.loss_ratio);
        Ok(Trial { load, duration_s, sent: sent as u64, received: carried.floor() as u64 })
    }
}

const LIMITS: Limits = Limits { min_load: 10_000, max_load: 14_880_952, trials_s: 1e6 };
const GOALS: [Goal; 2] = [Goal::NDR, Goal::PDR];

fn search(device: &mut Simulated, goals: &[Goal]) -> Vec<Found> {
    run(device, goals, LIMITS, |_, _| Ok(())).unwrap()
}

fn assert_brackets(found: &Found, rate: f64) {
    let (lower, upper) = (found.lower.unwrap() as f64, found.upper.unwrap() as f64);
    assert!(lower <= rate && rate <= upper, "{rate} not in {found:?}");
    assert!(upper - lower <= found.goal.width * upper + 1.0, "{found:?}");
    assert!(found.is_reached);
}

#[test]
fn a_device_of_a_million_frames_a_second_is_found_out() {
    for capacity in [10_007.0, 123_456.0, 1e6, 14_000_000.0] {
        let found = search(&mut Simulated::new(capacity), &GOALS);
        assert_brackets(&found[0], capacity);
        // Above it the share of `load - capacity` is lost, of which half a percent is allowed.
        assert_brackets(&found[1], capacity / 0.995);
        let throughput = found[1].conditional_throughput.unwrap();
        assert!((throughput / capacity - 1.0).abs() < 0.005, "{throughput} at {capacity}");
    }
}

#[test]
fn the_preset_of_rfc_2544_ends_with_a_trial_of_a_minute_without_loss() {
    let mut trials = Vec::new();
    let goals = [Goal::RFC2544];
    let found = run(&mut Simulated::new(1e6), &goals, LIMITS, |_, trial| {
        trials.push(*trial);
        Ok(())
    })
    .unwrap();
    assert_brackets(&found[0], 1e6);
    let lower = found[0].lower.unwrap();
    assert!(trials.iter().any(|trial| trial.load == lower && trial.duration_s >= 60.0 && trial.loss_ratio() == 0.0));
}

#[test]
fn limits_that_the_device_does_not_reach_are_said() {
    let found = search(&mut Simulated::new(1e9), &GOALS);
    assert!(
        found.iter().all(|found| found.lower == Some(LIMITS.max_load) && found.upper.is_none() && found.is_reached)
    );
    let found = search(&mut Simulated::new(100.0), &GOALS);
    assert!(found.iter().all(|found| found.lower.is_none() && found.upper == Some(LIMITS.min_load)));
    let lossy = Simulated { loss_ratio: 0.001, ..Simulated::new(1e6) };
    let found = search(&mut { lossy }, &GOALS);
    assert_eq!((found[0].lower, found[0].upper), (None, Some(LIMITS.min_load)), "no load is without loss");
    assert_brackets(&found[1], 1e6 * 0.999 / 0.995);
}

#[test]
fn a_search_whose_time_is_up_says_so() {
    let limits = Limits { trials_s: 3.0, ..LIMITS };
    let found = run(&mut Simulated::new(1e6), &GOALS, limits, |_, _| Ok(())).unwrap();
    assert!(found.iter().all(|found| !found.is_reached), "{found:?}");
}

#[test]
fn goals_and_limits_that_make_no_sense_are_refused() {
    for goal in [
        Goal { loss_ratio: 1.0, ..Goal::NDR },
        Goal { exceed_ratio: 1.0, ..Goal::NDR },
        Goal { width: 0.0, ..Goal::NDR },
        Goal { initial_trial_s: 0.0, ..Goal::NDR },
        Goal { final_trial_s: 0.5, ..Goal::NDR },
        Goal { duration_sum_s: 0.9, ..Goal::NDR },
        Goal { preceding: 17, ..Goal::NDR },
    ] {
        assert!(Search::new(std::slice::from_ref(&goal), LIMITS).is_err(), "{goal:?}");
    }
    assert!(Search::new(&[], LIMITS).is_err());
    assert!(Search::new(&GOALS, Limits { min_load: 0, ..LIMITS }).is_err());
    assert!(Search::new(&GOALS, Limits { max_load: 10_000, ..LIMITS }).is_err());
}

#[test]
fn frames_that_were_not_sent_are_lost() {
    let trial = Trial { load: 100, duration_s: 1.0, sent: 90, received: 90 };
    assert!((trial.loss_ratio() - 0.1).abs() < 1e-12);
    let copies = Trial { load: 100, duration_s: 1.0, sent: 100, received: 110 };
    assert_eq!(copies.loss_ratio(), 0.0);
}

fn trials() -> impl Strategy<Value = Vec<Trial>> {
    let trial = (prop::sample::select(vec![0.5, 1.0, 2.0]), prop::sample::select(vec![0_u64, 0, 1, 5, 6, 500, 1000]));
    let trial = trial.prop_map(|(duration_s, lost)| {
        let sent = (1000.0 * duration_s) as u64;
        Trial { load: 1000, duration_s, sent, received: sent - lost.min(sent) }
    });
    prop::collection::vec(trial, 0..30)
}

proptest! {
    #[test]
    fn a_classified_load_stays_so_whatever_the_missing_time_brings(mut trials in trials()) {
        // Short trials may lose their weight later.
        trials.retain(|trial| trial.duration_s >= 1.0);
        let target = Goal::PDR.target(Goal::PDR.preceding);
        let stat = Stat::of(&trials, 1000, &target);
        let Some(bound) = stat.classify(&target) else { return Ok(()) };
        let missing = target.duration_sum_s - stat.good_long - stat.bad_long;
        for received in [0, 1000] {
            let mut more = trials.clone();
            let second = Trial { load: 1000, duration_s: 1.0, sent: 1000, received };
            more.extend((0..missing.max(0.0) as u32).map(|_| second));
            prop_assert_eq!(Stat::of(&more, 1000, &target).classify(&target), Some(bound));
        }
    }
}

/// Answers of the package; `None`, with the reason printed, where there is none.
fn ask(input: &serde_json::Value) -> Option<serde_json::Value> {
    let Some(python) = std::env::var_os(PYTHON_VARIABLE) else {
        println!("not cross-checked: {PYTHON_VARIABLE} names no Python with the package MLRsearch");
        return None;
    };
    let text = command::output_of_input(Command::new(python).args(["-c", CROSS_CHECK]), &input.to_string()).unwrap();
    Some(serde_json::from_str(&text).unwrap())
}

fn goal_json(goal: &Goal) -> serde_json::Value {
    json!({
        "loss_ratio": goal.loss_ratio, "exceed_ratio": goal.exceed_ratio, "relative_width": goal.width,
        "initial_trial_duration": goal.initial_trial_s, "final_trial_duration": goal.final_trial_s,
        "duration_sum": goal.duration_sum_s, "preceding_targets": goal.preceding,
    })
}

#[test]
fn loads_are_classified_as_the_package_mlrsearch_does() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut cases = Vec::new();
    for goal in [Goal::NDR, Goal::PDR, Goal { exceed_ratio: 0.0, duration_sum_s: 3.0, ..Goal::PDR }] {
        for _ in 0..60 {
            let tree = trials().new_tree(&mut runner).unwrap();
            cases.push((goal.clone(), proptest::strategy::ValueTree::current(&tree)));
        }
    }
    let input = cases.iter().map(|(goal, trials)| {
        let trials = trials.iter().map(|trial| json!([trial.load, trial.duration_s, trial.sent, trial.received]));
        json!({"goal": goal_json(goal), "trials": trials.collect::<Vec<_>>()})
    });
    let Some(answers) = ask(&json!({"classify": input.collect::<Vec<_>>()})) else { return };
    for ((goal, trials), answer) in cases.iter().zip(answers.as_array().unwrap()) {
        let target = goal.target(goal.preceding);
        let stat = Stat::of(trials, 1000, &target);
        let expected = match (answer["optimistic"].as_bool().unwrap(), answer["pessimistic"].as_bool().unwrap()) {
            (true, true) => Some(Bound::Lower),
            (false, false) => Some(Bound::Upper),
            _ => None,
        };
        assert_eq!(stat.classify(&target), expected, "{goal:?} {trials:?}");
        if !trials.is_empty() {
            let loss_ratio = answer["loss_ratio"].as_f64().unwrap_or(1.0);
            assert!((stat.quantile_loss_ratio(&target) - loss_ratio).abs() < 1e-9, "{goal:?} {trials:?} {answer}");
        }
    }
    assert_eq!(answers.as_array().unwrap().len(), cases.len());
}

#[test]
fn the_package_mlrsearch_finds_the_same_on_the_same_device() {
    for capacity in [1e6, 3_141_592.0] {
        let input = json!({"search": {
            "capacity": capacity, "min_load": LIMITS.min_load, "max_load": LIMITS.max_load,
            "goals": GOALS.iter().map(goal_json).collect::<Vec<_>>(),
        }});
        let Some(answers) = ask(&input) else { return };
        let found = search(&mut Simulated::new(capacity), &GOALS);
        for (found, answer) in found.iter().zip(answers.as_array().unwrap()) {
            let value = |name: &str| answer[name].as_f64().unwrap();
            let (lower, upper) = (found.lower.unwrap() as f64, found.upper.unwrap() as f64);
            assert!(lower <= value("upper") && value("lower") <= upper, "{found:?} {answer}");
            let ratio = found.conditional_throughput.unwrap() / value("throughput");
            assert!((ratio - 1.0).abs() <= found.goal.width, "{found:?} {answer}");
        }
    }
}

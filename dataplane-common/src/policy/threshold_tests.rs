use super::super::{Planner, PolicyKind};
use super::*;
use crate::plan::tests::Table;
use crate::plan::{HERE, SLOTS};
use proptest::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

/// The rule in f64, obviously right: a threshold, and of each node whether it is over and its load in its last event.
struct Model {
    threshold: f64,
    nodes: Vec<(bool, f64)>,
}

impl Model {
    fn new(nodes: usize, tuning: &Tuning) -> Self {
        Self { threshold: f64::from(tuning.threshold_milli), nodes: vec![(false, 0.0); nodes] }
    }

    /// The shares of all nodes after a turn; `None` when nobody has a weight. False beside it says that a comparison was too
    /// close to come out the same in whole numbers.
    fn turn(&mut self, kind: PolicyKind, tuning: &Tuning, loads: &[Option<u16>]) -> (bool, Option<Vec<f64>>) {
        let recovery =
            (self.threshold - (f64::from(tuning.threshold_milli) - f64::from(tuning.recovery_milli))).max(0.0);
        let before = self.threshold;
        let live: Vec<f64> = loads.iter().flatten().map(|load| f64::from(*load)).collect();
        let mean = live.iter().sum::<f64>() / live.len() as f64;
        let mut is_clear = true;
        for (node, load) in self.nodes.iter_mut().zip(loads) {
            let Some(load) = load.map(f64::from) else { continue };
            let bound = if node.0 { recovery } else { before };
            is_clear &= (load - bound).abs() > 0.01 || before == f64::from(tuning.threshold_milli);
            let goes_over = !node.0 && load >= before;
            let recovers = node.0 && load <= recovery;
            if goes_over || recovers {
                *node = (goes_over, load);
                if kind == PolicyKind::ThresholdAdaptive && (goes_over || tuning.adjust_on == 1) {
                    self.threshold += (mean - self.threshold) * f64::from(tuning.step_milli) / 1000.0;
                }
            }
        }
        let while_over = match kind {
            PolicyKind::ThresholdHalf => 0.5,
            PolicyKind::ThresholdExclude => 0.0,
            _ => [0.5, 0.0][tuning.over as usize],
        };
        let weights = self.nodes.iter().zip(loads).map(|((is_over, load), live)| {
            (if live.is_none() { 0.0 } else { 1000.0 - load }) * if *is_over { while_over } else { 1.0 }
        });
        let weights: Vec<f64> = weights.collect();
        let total: f64 = weights.iter().sum();
        (is_clear, (total > 0.0).then(|| weights.iter().map(|weight| weight / total).collect()))
    }
}

/// A turn in which the nodes have these loads; `None` is a node that is not live.
fn turn(plan: &mut Planner, table: &mut Table, tuning: &Tuning, loads: &[Option<u16>]) {
    for (member, load) in table.members.iter_mut().zip(loads) {
        member.is_live = load.is_some();
        member.busy_milli = load.unwrap_or(999);
    }
    plan.turn(table, tuning);
}

const KINDS: [PolicyKind; 3] = [PolicyKind::ThresholdHalf, PolicyKind::ThresholdAdaptive, PolicyKind::ThresholdExclude];

prop_compose! {
    fn settings()(
        threshold_milli in prop_oneof![Just(700), 1u32..=1000],
        distance in prop_oneof![Just(200), 0u32..=1000],
        step_milli in prop_oneof![Just(200), Just(100), Just(66), 0u32..=1000],
        over in 0u32..=1,
        adjust_on in 0u32..=1,
    ) -> Tuning {
        let recovery_milli = threshold_milli.saturating_sub(distance);
        Tuning { threshold_milli, recovery_milli, step_milli, over, adjust_on, ..Tuning::DEFAULT }
    }
}

/// Loads of up to six nodes over some turns.
fn runs() -> impl Strategy<Value = Vec<Vec<Option<u16>>>> {
    (1usize..7).prop_flat_map(|nodes| {
        let load = prop_oneof![1 => Just(None), 12 => (0u16..=1000).prop_map(Some)];
        proptest::collection::vec(proptest::collection::vec(load, nodes), 1..20)
    })
}

proptest! {
    #[test]
    fn shares_are_those_of_the_formula(tuning in settings(), run in runs()) {
        for kind in KINDS {
            let nodes = run[0].len();
            let mut table = Table::new(nodes as u16, 0);
            let (mut plan, mut model) = (Planner::new(kind), Model::new(nodes, &tuning));
            for loads in &run {
                turn(&mut plan, &mut table, &tuning, loads);
                let (is_clear, shares) = model.turn(kind, &tuning, loads);
                if !is_clear {
                    break;
                }
                let Some(shares) = shares else {
                    prop_assert_eq!(table.count(0, HERE), SLOTS);
                    continue;
                };
                for (node, share) in (0u16..).zip(&shares) {
                    let found = f64::from(table.count(0, node));
                    let exact = share * f64::from(SLOTS);
                    prop_assert!((found - exact).abs() <= 1.0, "{kind:?}: node {node} has {found} for {exact}");
                }
            }
        }
    }
}

/// Three nodes under one planner.
struct Cluster {
    plan: Box<Planner>,
    table: Table,
    tuning: Tuning,
}

impl Cluster {
    fn new(kind: PolicyKind, tuning: Tuning) -> Self {
        Self { plan: Box::new(Planner::new(kind)), table: Table::new(3, 0), tuning }
    }

    /// Slots of the nodes after a turn with these loads.
    fn at(&mut self, loads: [u16; 3]) -> [u32; 3] {
        turn(&mut self.plan, &mut self.table, &self.tuning, &loads.map(Some));
        [0, 1, 2].map(|node| self.table.count(0, node))
    }
}

/// What nodes of these weights get.
fn shares(weights: [u32; 3]) -> [u32; 3] {
    let total: u32 = weights.iter().sum();
    let end = |weight: u32| (weight * SLOTS + total / 2) / total;
    let ends = [end(weights[0]), end(weights[0] + weights[1]), SLOTS];
    [ends[0], ends[1] - ends[0], ends[2] - ends[1]]
}

#[test]
fn nodes_are_equal_before_any_event() {
    for kind in KINDS {
        assert_eq!(Cluster::new(kind, Tuning::DEFAULT).at([0, 400, 699]), shares([1, 1, 1]), "{kind:?}");
    }
}

#[test]
fn a_node_that_stays_over_counts_once_and_until_it_recovers() {
    for (kind, while_over) in [(PolicyKind::ThresholdHalf, [140, 100]), (PolicyKind::ThresholdExclude, [0, 0])] {
        let mut cluster = Cluster::new(kind, Tuning::DEFAULT);
        let mut weighs = |load, weight, why| {
            assert_eq!(cluster.at([0, 0, load]), shares([1000, 1000, weight]), "{kind:?}: {why}");
        };
        weighs(720, while_over[0], "over, by its load in the event");
        weighs(960, while_over[0], "staying over is no event");
        weighs(501, while_over[0], "above the recovery threshold");
        weighs(500, 500, "recovered");
        weighs(699, 500, "below the threshold, which is no event");
        weighs(800, while_over[1], "over again");
    }
}

#[test]
fn the_adaptive_threshold_goes_a_fifth_of_the_way_to_the_mean() {
    // Mean 400: the thresholds go from 700 and 500 to 640 and 440. Fixed ones stay.
    for (kind, moves) in [(PolicyKind::ThresholdAdaptive, true), (PolicyKind::ThresholdHalf, false)] {
        let mut cluster = Cluster::new(kind, Tuning::DEFAULT);
        assert_eq!(cluster.at([700, 300, 200]), shares([150, 1000, 1000]));
        let below = cluster.at([441, 639, 200]);
        let expected = if moves { [150, 1000, 1000] } else { [559, 1000, 1000] };
        assert_eq!(below, shares(expected), "{kind:?}: 639 is below, 441 above the recovery threshold");
        let expected = if moves { [560, 180, 1000] } else { [559, 1000, 1000] };
        assert_eq!(cluster.at([440, 640, 200]), shares(expected), "{kind:?}: both are events");
    }
}

#[test]
fn a_threshold_below_the_mean_goes_up() {
    let tuning = Tuning { threshold_milli: 300, recovery_milli: 100, ..Tuning::DEFAULT };
    let mut cluster = Cluster::new(PolicyKind::ThresholdAdaptive, tuning);
    // Mean 460: from 300 to 332.
    let first = cluster.at([200, 280, 900]);
    assert_eq!(cluster.at([200, 331, 900]), first);
    assert_eq!(cluster.at([200, 332, 900]), shares([1000, 334, 50]));
}

#[test]
fn recoveries_move_the_threshold_if_told_to() {
    for (adjust_on, weight) in [(0, 500), (1, 180)] {
        let tuning = Tuning { adjust_on, step_milli: 500, ..Tuning::DEFAULT };
        let mut cluster = Cluster::new(PolicyKind::ThresholdAdaptive, tuning);
        cluster.at([700, 700, 700]);
        // Three recoveries: three times half of the distance to the mean of 400 takes 700 to 437.5.
        assert_eq!(cluster.at([500, 500, 200]), shares([500, 500, 800]));
        assert_eq!(cluster.at([640, 0, 0]), shares([weight, 500, 800]), "over again only where the threshold fell");
    }
}

#[test]
fn over_says_what_the_adaptive_policy_leaves_a_node() {
    let mut cluster = Cluster::new(PolicyKind::ThresholdAdaptive, Tuning { over: 1, ..Tuning::DEFAULT });
    assert_eq!(cluster.at([700, 0, 0]), shares([0, 1000, 1000]));
}

#[test]
fn when_all_are_over_halves_are_whole_and_nothing_moves() {
    let mut cluster = Cluster::new(PolicyKind::ThresholdHalf, Tuning::DEFAULT);
    assert_eq!(cluster.at([800, 700, 900]), shares([200, 300, 100]));

    let mut cluster = Cluster::new(PolicyKind::ThresholdExclude, Tuning::DEFAULT);
    cluster.at([800, 700, 900]);
    assert_eq!(cluster.table.count(0, HERE), SLOTS, "nobody has a weight: packets stay where they arrive");

    // Three events move the threshold to 900 - 200 · 0.8³ = 797.6; then all stay over and it stays too.
    let mut cluster = Cluster::new(PolicyKind::ThresholdAdaptive, Tuning::DEFAULT);
    let over = cluster.at([900, 900, 900]);
    assert_eq!(cluster.at([1000, 1000, 1000]), over);
    assert_eq!(cluster.at([597, 598, 598]), shares([403 * 2, 100, 100]), "recovery 200 below");
}

#[test]
fn nodes_that_are_not_live_have_no_events_and_no_share() {
    let mut plan = Planner::new(PolicyKind::ThresholdHalf);
    let mut table = Table::new(3, 0);
    turn(&mut plan, &mut table, &Tuning::DEFAULT, &[Some(0), None, Some(0)]);
    assert_eq!([0, 1, 2].map(|node| table.count(0, node)), shares([1, 0, 1]));
    turn(&mut plan, &mut table, &Tuning::DEFAULT, &[Some(0), Some(500), Some(0)]);
    assert_eq!([0, 1, 2].map(|node| table.count(0, node)), shares([1, 1, 1]), "999 while it was away is forgotten");
}

#[test]
fn a_report_of_more_than_all_counts_as_all() {
    let mut cluster = Cluster::new(PolicyKind::ThresholdHalf, Tuning::DEFAULT);
    assert_eq!(cluster.at([u16::MAX, 0, 0]), shares([0, 1, 1]));
}

use super::super::{Planner, PolicyKind};
use super::*;
use crate::plan::tests::Table;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

const MS: u64 = 1_000_000;

/// What one node does between two turns.
#[derive(Clone, Debug)]
struct Step {
    sent: u32,
    /// Of 4, how many of the packets outstanding come back.
    quarters: u32,
    lost: u32,
    member: Member,
}

prop_compose! {
    fn step()(
        sent in prop_oneof![Just(0), 0u32..4],
        quarters in prop_oneof![Just(0), 0u32..=4],
        lost in prop_oneof![4 => Just(0), 1 => 0u32..2],
        response_ns in prop_oneof![1 => Just(0), 4 => 1u32..50_000_000],
        is_live in prop::bool::weighted(0.9),
        backlog_ns in 0u32..10_000_000,
        queued_milli in prop_oneof![Just(0), 1000u32..20_000],
        busy_milli in 0u16..=1000,
    ) -> Step {
        let member = Member { response_ns, is_live, backlog_ns, queued_milli, busy_milli, ..Member::default() };
        Step { sent, quarters, lost, member }
    }
}

/// One node as the rule in words sees it.
#[derive(Clone, Default)]
struct Node {
    asked_ms: Option<f64>,
    away_until_ms: Option<f64>,
}

impl Node {
    fn see(&mut self, now_ms: f64, asked: bool, answered: bool, tuning: &Tuning) {
        if self.away_until_ms.is_some_and(|until| now_ms < until) {
            return;
        }
        self.away_until_ms = None;
        if answered {
            self.asked_ms = None;
        } else if let Some(since) = self.asked_ms {
            if now_ms - since >= f64::from(tuning.max_response_ns) / 1e6 {
                self.asked_ms = None;
                self.away_until_ms = Some(now_ms + f64::from(tuning.hold_ns) / 1e6);
            }
        } else if asked {
            self.asked_ms = Some(now_ms);
        }
    }
}

/// The metric in f64, ns.
fn exact(member: &Member, tuning: &Tuning) -> f64 {
    let backlog = f64::from(member.backlog_ns);
    let queued = f64::from(member.queued_milli) / 1000.0;
    let response = match (member.response_ns, member.queued_milli) {
        (0, 0) => backlog,
        (0, _) => backlog + backlog / queued,
        (measured, _) => f64::from(measured),
    };
    let load = f64::from(member.busy_milli) / 1000.0;
    f64::from(tuning.response_milli) / 1000.0 * response * (1.0 + f64::from(tuning.load_milli) / 1000.0 * load)
}

proptest! {
    #[test]
    fn the_head_is_the_available_node_with_the_least_metric(
        run in (1usize..6).prop_flat_map(|nodes| {
            proptest::collection::vec((1u64..12, proptest::collection::vec(step(), nodes)), 1..40)
        }),
        response_milli in prop_oneof![Just(1000), 0u32..10_000],
        load_milli in prop_oneof![Just(0), Just(500), 0u32..10_000],
        hold_ms in prop_oneof![Just(0u32), 1u32..60],
    ) {
        let hold_ns = hold_ms * MS as u32;
        let tuning = Tuning { response_milli, load_milli, hold_ns, max_response_ns: 5_000_000, ..Tuning::DEFAULT };
        let nodes = run[0].1.len();
        let mut table = Table::new(nodes as u16, 0);
        let mut plan = Box::new(Planner::new(PolicyKind::Dss));
        let mut model = vec![Node::default(); nodes];
        for (passed_ms, steps) in run {
            table.now_ns += passed_ms * MS;
            let now_ms = table.now_ns as f64 / 1e6;
            for (index, step) in steps.iter().enumerate() {
                let before = table.members[index];
                let outstanding = before.outstanding + step.sent;
                // What is lost stays outstanding for ever, as it does in the load table.
                let back = if index == 0 { 0 } else { outstanding.saturating_sub(step.lost) * step.quarters / 4 };
                table.members[index] = Member {
                    node: before.node,
                    is_self: before.is_self,
                    is_live: before.is_self || step.member.is_live,
                    outstanding: if index == 0 { 0 } else { outstanding - back },
                    completed: before.completed.wrapping_add(back),
                    ..step.member
                };
                model[index].see(now_ms, index > 0 && step.sent > 0, back > 0, &tuning);
            }
            plan.turn(&mut table, &tuning);

            let available = |index: usize| table.members[index].is_live && model[index].away_until_ms.is_none();
            let best = (0..nodes).filter(|index| available(*index)).map(|index| exact(&table.members[index], &tuning));
            let best = best.fold(f64::INFINITY, f64::min);
            let head = usize::from(table.slots[1]);
            prop_assert!(available(head), "{head} is not available");
            let chosen = exact(&table.members[head], &tuning);
            // Whole numbers: a ns of the response and a thousandth of the load's factor.
            let error = best * 2e-3 + 2.0 + f64::from(load_milli) / 500.0;
            prop_assert!(chosen <= best + error, "{chosen} where {best} was best");
            prop_assert_eq!(table.count(0, head as u16) >= SLOTS - 1, true, "the head has all but one slot");
            let first = usize::from(table.slots[0]);
            let others = (0..nodes).filter(|index| available(*index)).count() > 1;
            prop_assert!(available(first) && (first != head) == others, "{first} is measured");
        }
    }
}

/// Nodes 0 to 2 under the planner; node 0 plans and is slow, node 1 is the fastest.
struct Cluster {
    plan: Box<Ranking>,
    table: Table,
}

impl Cluster {
    fn new() -> Self {
        let mut table = Table::new(3, 0);
        for (member, response_ns) in table.members.iter_mut().zip([900_000, 100_000, 200_000]) {
            member.response_ns = response_ns;
        }
        Self { plan: Box::default(), table }
    }

    /// The head after a turn `passed_ms` later.
    fn turn(&mut self, passed_ms: u64, tuning: &Tuning) -> u16 {
        self.table.now_ns += passed_ms * MS;
        self.plan.turn(&mut self.table, tuning);
        self.table.slots[1]
    }
}

#[test]
fn the_head_takes_everything_but_the_slot_that_measures_the_others() {
    let mut cluster = Cluster::new();
    let mut measured = Vec::new();
    for _ in 0..4 {
        assert_eq!(cluster.turn(10, &Tuning::DEFAULT), 1);
        assert_eq!(cluster.table.count(0, 1), SLOTS - 1);
        measured.push(cluster.table.slots[0]);
    }
    assert_eq!(measured, [2, 0, 2, 0]);
    cluster.table.members[1].response_ns = 200_001;
    assert_eq!(cluster.turn(10, &Tuning::DEFAULT), 2, "the next in rank");
}

#[test]
fn load_counts_as_told() {
    let mut cluster = Cluster::new();
    cluster.table.members[1].busy_milli = 1000;
    let heads = [0, 999, 1001].map(|load_milli| cluster.turn(10, &Tuning { load_milli, ..Tuning::DEFAULT }));
    assert_eq!(heads, [1, 1, 2], "100 µs · (1 + K_l) against 200 µs");
    cluster.table.members[1].busy_milli = u16::MAX;
    assert_eq!(cluster.turn(10, &Tuning { load_milli: 999, ..Tuning::DEFAULT }), 1, "a load is 1 at most");
    assert_eq!(cluster.turn(10, &Tuning { response_milli: 0, ..Tuning::DEFAULT }), 0, "a fixed preference");
}

#[test]
fn a_node_that_does_not_answer_is_left_out_and_tried_again() {
    let tuning = Tuning { max_response_ns: 5_000_000, hold_ns: 100_000_000, ..Tuning::DEFAULT };
    let mut cluster = Cluster::new();
    assert_eq!(cluster.turn(1, &tuning), 1);
    cluster.table.members[1].outstanding = 1;
    assert_eq!(cluster.turn(1, &tuning), 1, "asked");
    cluster.table.members[1].outstanding = 9;
    assert_eq!(cluster.turn(4, &tuning), 1, "silent for 4 ms");
    assert_eq!(cluster.turn(1, &tuning), 2, "silent for 5 ms");
    assert_ne!(cluster.table.slots[0], 1, "nor is it measured");
    cluster.table.members[1].outstanding = 7;
    cluster.table.members[1].completed = 2;
    assert_eq!(cluster.turn(99, &tuning), 2, "held, whatever comes late");
    assert_eq!(cluster.turn(1, &tuning), 1, "tried again");
    assert_eq!(cluster.turn(500, &tuning), 1, "what is lost and nothing sent is no silence");
}

#[test]
fn answers_end_a_silence() {
    let tuning = Tuning { max_response_ns: 5_000_000, ..Tuning::DEFAULT };
    let mut cluster = Cluster::new();
    for turn in 0..20 {
        cluster.table.members[1].outstanding += 1;
        cluster.table.members[1].completed += turn % 2;
        assert_eq!(cluster.turn(4, &tuning), 1, "one answer in 8 ms, never 5 ms without one from the time of asking");
    }
}

#[test]
fn this_node_is_always_available() {
    let mut cluster = Cluster::new();
    let tuning = Tuning { max_response_ns: 1, ..Tuning::DEFAULT };
    for _ in 0..4 {
        for member in &mut cluster.table.members {
            member.outstanding += 1;
        }
        cluster.turn(10, &tuning);
    }
    assert_eq!(cluster.table.count(0, 0), SLOTS);
}

#[test]
fn what_is_not_measured_is_its_backlog_and_a_packet() {
    let member = Member { backlog_ns: 6_000, queued_milli: 3_000, ..Member::default() };
    assert_eq!(response_ns(&member), 8_000);
    assert_eq!(response_ns(&Member { queued_milli: 0, ..member }), 6_000);
    assert_eq!(response_ns(&Member { response_ns: 1, ..member }), 1);
    assert_eq!(response_ns(&Member { backlog_ns: u32::MAX, queued_milli: 1, ..member }), u32::MAX);
}

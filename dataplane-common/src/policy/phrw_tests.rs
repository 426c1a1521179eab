use super::super::shares::tests::{board, live};
use super::super::testing::{decide, idle, job, params};
use super::super::{PolicyKind, Verdict};
use super::*;
use crate::load::Here;
use crate::plan::rendezvous;
use crate::plan::tests::Table;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

/// The node of reactive packets of `slot`: sort by hash, take the first few, of these the fastest, of these the one
/// that had the slot or the one with least to do.
fn model(table: &Table, slot: u32, had: u16, tuning: &Tuning) -> u16 {
    let mut nodes = live(table);
    nodes.sort_by_key(|node| core::cmp::Reverse(rendezvous(slot, *node)));
    nodes.truncate(tuning.depth as usize);
    let member = |node: &u16| *table.members.iter().find(|member| member.node == *node).unwrap();
    let fastest = nodes.iter().map(|node| member(node).speed_milli).max().unwrap();
    nodes.retain(|node| f64::from(member(node).speed_milli) >= f64::from(fastest) * 15.0 / 16.0);
    let least = nodes.iter().map(|node| member(node).backlog_ns).min().unwrap();
    let limit = f64::from(least) + f64::from(tuning.plan_ns);
    if nodes.iter().any(|node| *node == had && f64::from(member(node).backlog_ns) <= limit) {
        return had;
    }
    *nodes.iter().find(|node| member(node).backlog_ns == least).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn agrees_with_the_rule(
        first in board(),
        // Few speeds and backlogs, so that there are equals.
        turns in proptest::collection::vec(proptest::collection::vec((any::<bool>(), 1u16..4, 0u32..6), 9), 1..4),
        depth in 1u32..6,
    ) {
        let tuning = Tuning { depth, ..Tuning::DEFAULT };
        let mut table = first;
        let mut plan = Box::new(PriorityHrwPlan::default());
        for turn in turns {
            for (member, (is_live, speed, backlog)) in table.members.iter_mut().zip(turn) {
                member.is_live = is_live || member.is_self;
                (member.speed_milli, member.backlog_ns) = (1000 * speed + speed * 7 % 30, backlog * 4_000_000);
            }
            let had = table.slots.clone();
            plan.turn(&mut table, &tuning);
            for slot in (0..SLOTS).step_by(3) {
                let reactive = slot_of(1, slot) as usize;
                prop_assert_eq!(table.slots[reactive], model(&table, slot, had[reactive], &tuning));
            }
        }
    }
}

/// The cluster of the published comparison's reconstruction: eight nodes of different speed.
fn uneven() -> Table {
    let mut table = Table::new(8, 0);
    for (member, speed) in table.members.iter_mut().zip([2000, 2000, 1500, 1000, 1000, 750, 500, 500]) {
        member.speed_milli = speed;
    }
    table
}

#[test]
fn bulk_is_placed_as_by_hrw() {
    let (mut bulk, mut hrw) = (uneven(), uneven());
    PriorityHrwPlan::default().turn(&mut bulk, &Tuning::DEFAULT);
    super::super::hrw::HrwPlan::default().turn(&mut hrw, &Tuning::DEFAULT);
    assert_eq!(bulk.slots[..SLOTS as usize], hrw.slots[..SLOTS as usize]);
}

#[test]
fn reactive_packets_meet_faster_nodes() {
    let mut table = uneven();
    PriorityHrwPlan::default().turn(&mut table, &Tuning::DEFAULT);
    let mean_speed = |table_number: u32| {
        let sum: u32 = (0..8)
            .map(|node| table.count(table_number, node) * u32::from(table.members[usize::from(node)].speed_milli))
            .sum();
        sum / SLOTS
    };
    let (bulk, reactive) = (mean_speed(0), mean_speed(1));
    assert!(bulk.abs_diff(1156) < 40, "the mean of the nodes: {bulk}");
    // With three of eight drawn, the fastest is of speed 2 with probability 36/56, of 1.5 with 10/56, and so on: mean
    // 1696.
    assert!(reactive.abs_diff(1696) < 40, "{reactive}");
    let slots = 0..SLOTS as usize;
    let slower = slots.filter(|slot| {
        let speed = |slot: usize| table.members[usize::from(table.slots[slot])].speed_milli;
        speed(*slot + SLOTS as usize) < speed(*slot)
    });
    assert_eq!(slower.count(), 0, "nowhere slower than bulk");
}

#[test]
fn equals_share_by_backlog_and_stay_until_it_matters() {
    let mut table = Table::new(3, 0);
    let tuning = Tuning { depth: 3, ..Tuning::DEFAULT };
    let mut plan = Box::new(PriorityHrwPlan::default());
    plan.turn(&mut table, &tuning);
    let at_rest = table.slots.clone();
    assert_eq!(at_rest[..SLOTS as usize], at_rest[SLOTS as usize..], "with nothing to tell them apart, as bulk");
    table.members[1].backlog_ns = tuning.plan_ns;
    table.members[2].speed_milli = 1050;
    plan.turn(&mut table, &tuning);
    assert_eq!(table.slots, at_rest, "one plan interval of backlog and noise of speeds move nothing");
    table.members[1].backlog_ns = tuning.plan_ns + 1;
    table.members[2].backlog_ns = 1;
    plan.turn(&mut table, &tuning);
    assert_eq!(table.count(1, 1), 0);
    let moved = at_rest.iter().zip(&table.slots).filter(|(before, now)| before != now);
    assert!(moved.clone().all(|(before, now)| *before == 1 && *now == 0), "from the loaded to the least loaded");
    assert!(moved.count() > 1000);
}

#[test]
fn the_class_says_which_table() {
    let kind = PolicyKind::PriorityHrw;
    let mut table = super::super::testing::Table::new(Here::default(), [idle(), idle()]);
    (table.slots[77], table.slots[77 + SLOTS as usize]) = (1, 2);
    let verdicts: Vec<_> = (0..8)
        .map(|class| decide(kind, &Job { key: 77 + 4096, class, ..job(5000, 0) }, &params(kind), &table).verdict)
        .collect();
    assert_eq!(verdicts[..4], [Verdict::Redirect(1); 4]);
    assert_eq!(verdicts[4..], [Verdict::Redirect(2); 4]);
}

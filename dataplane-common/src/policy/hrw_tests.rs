use super::super::shares::tests::{board, live};
use super::super::testing::{decide, idle, job, params};
use super::super::{PolicyKind, Verdict};
use super::*;
use crate::load::Here;
use crate::plan::HERE;
use crate::plan::tests::Table;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

/// The node of the highest hash.
fn model(nodes: &[u16], slot: u32) -> u16 {
    nodes.iter().copied().max_by_key(|node| rendezvous(slot, *node)).unwrap_or(HERE)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn homes_are_where_the_highest_hash_is(
        first in board(),
        changes in proptest::collection::vec((0usize..9, any::<bool>()), 0..6),
    ) {
        let mut table = first;
        let mut plan = Box::new(HrwPlan::default());
        plan.turn(&mut table, &Tuning::DEFAULT);
        for (index, is_live) in changes {
            let before = (live(&table), table.slots.clone());
            let index = index % table.members.len();
            table.members[index].is_live = is_live || table.members[index].is_self;
            plan.turn(&mut table, &Tuning::DEFAULT);
            let now = live(&table);
            for slot in 0..SLOTS {
                let (was, is) = (before.1[slot as usize], table.slots[slot as usize]);
                prop_assert_eq!(is, model(&now, slot));
                let is_due = !now.contains(&was) || !before.0.contains(&is);
                prop_assert!(is == was || is_due, "{slot} moved from {was} to {is}");
            }
        }
    }
}

#[test]
fn only_slots_of_members_that_come_or_go_move() {
    let mut table = Table::new(8, 0);
    table.members[7].is_live = false;
    let mut plan = Box::new(HrwPlan::default());
    plan.turn(&mut table, &Tuning::DEFAULT);
    let seven = table.slots.clone();
    assert!((0..7).all(|node| table.count(0, node).abs_diff(SLOTS / 7) < 80), "even shares");
    table.members[7].is_live = true;
    plan.turn(&mut table, &Tuning::DEFAULT);
    let moved: Vec<_> =
        seven.iter().zip(&table.slots).filter(|(before, now)| before != now).map(|pair| *pair.1).collect();
    assert!(moved.len().abs_diff(SLOTS as usize / 8) < 80 && moved.iter().all(|node| *node == 7), "{}", moved.len());
    table.members[7].is_live = false;
    plan.turn(&mut table, &Tuning::DEFAULT);
    assert_eq!(table.slots, seven, "all come back to where they were");
}

#[test]
fn the_other_table_is_left_alone() {
    let mut table = Table::new(3, 0);
    HrwPlan::default().turn(&mut table, &Tuning::DEFAULT);
    assert_eq!(table.count(1, crate::plan::NOWHERE), SLOTS);
}

#[test]
fn nodes_of_arrival_agree() {
    // Seen from node 5: another order of members, other loads, another self.
    let (mut here, mut there) = (Table::new(6, 0), Table::new(6, 0));
    there.members.reverse();
    there.members[0].is_self = true;
    there.members[5].is_self = false;
    there.members[3].busy_milli = 900;
    HrwPlan::default().turn(&mut here, &Tuning::DEFAULT);
    HrwPlan::default().turn(&mut there, &Tuning::DEFAULT);
    assert_eq!(here.slots, there.slots);
}

#[test]
fn the_key_says_where() {
    let kind = PolicyKind::Hrw;
    let mut table = super::super::testing::Table::new(Here::default(), [idle(), idle()]);
    table.slots[77] = 2;
    for (random, class) in [(0, 0), (u32::MAX, 7)] {
        let on_slot = Job { key: 77 + 4096 * 3, class, ..job(5000, random) };
        assert_eq!(decide(kind, &on_slot, &params(kind), &table).verdict, Verdict::Redirect(2));
    }
    assert_eq!(table.charged.borrow()[77], 10_000);
}

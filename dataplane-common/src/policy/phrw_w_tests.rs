use super::super::shares::tests::board;
use super::super::testing::{decide, idle, job, params};
use super::super::{PolicyKind, Verdict};
use super::*;
use crate::load::Here;
use crate::plan::tests::Table;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

/// Charges work so that this part of it, thousandths, is reactive.
fn charge(table: &mut Table, share_milli: u32) {
    for slot in 0..SLOTS as usize {
        table.charged_ns[slot] += 1000 * u64::from(1000 - share_milli);
        table.charged_ns[slot + SLOTS as usize] += 1000 * u64::from(share_milli);
    }
}

proptest! {
    #[test]
    fn weights_add_up_to_the_capacity(table in board(), share_milli in 0u32..1000) {
        let live: Vec<_> = table.members.iter().filter(|member| member.is_live).collect();
        let weights = Weights {
            capacity: live.iter().map(|member| u64::from(capacity(member))).sum(),
            reactive: live.iter().map(|member| u64::from(reactive(member))).sum(),
            share_milli,
        };
        let rho = f64::from(share_milli) / 1000.0;
        let (speed, workers) = (|m: &Member| f64::from(m.speed_milli), |m: &Member| f64::from(m.workers));
        let capacities: f64 = live.iter().map(|member| speed(member) * workers(member)).sum();
        let squares: f64 = live.iter().map(|member| speed(member).powi(2) * workers(member)).sum();
        let bulk: f64 = live.iter().map(|member| f64::from(weights.bulk(member))).sum();
        let reactives: f64 = live.iter().map(|member| f64::from(reactive(member))).sum();
        let is_possible = live.iter().all(|m| rho * speed(m) / squares <= 63.0 / 64.0 / capacities);
        for member in live {
            let due = speed(member) * workers(member) / capacities;
            let square = speed(member).powi(2) * workers(member) / squares;
            let reactive = f64::from(reactive(member)) / reactives;
            prop_assert!((reactive / square - 1.0).abs() < 0.002, "{reactive} for {square}");
            let remainder = (due - rho * square).max(due / 64.0);
            let bulk = f64::from(weights.bulk(member)) / bulk;
            if is_possible {
                prop_assert!((bulk * (1.0 - rho) - remainder).abs() < 0.002, "{bulk}, {rho}, {remainder}");
                prop_assert!((rho * reactive + (1.0 - rho) * bulk - due).abs() < 0.002, "in total, {due}");
            }
        }
    }

    #[test]
    fn the_share_is_that_of_the_work(share_milli in 0u32..=1000) {
        let mut table = Table::new(2, 0);
        table.charged_ns[7] = u64::MAX - 5_000_000;
        let mut plan = Box::new(PriorityWeightedHrwPlan::default());
        plan.seen_ns = [u64::MAX - 5_000_000, 0];
        for _ in 0..100 {
            for slot in [7, 7 + SLOTS as usize] {
                let share = if slot == 7 { 1000 - share_milli } else { share_milli };
                table.charged_ns[slot] = table.charged_ns[slot].wrapping_add(u64::from(share) * 1000);
            }
            plan.turn(&mut table, &Tuning::DEFAULT);
        }
        prop_assert!(plan.share_milli.abs_diff(share_milli) < STEP_MILLI, "{}", plan.share_milli);
    }
}

/// Eight nodes of different speed.
fn uneven() -> Table {
    let mut table = Table::new(8, 0);
    for (member, speed) in table.members.iter_mut().zip([2000, 2000, 1500, 1000, 1000, 750, 500, 500]) {
        member.speed_milli = speed;
    }
    table
}

#[test]
fn fast_nodes_take_reactive_packets_and_totals_stay_in_proportion() {
    let mut table = uneven();
    let mut plan = Box::new(PriorityWeightedHrwPlan::default());
    charge(&mut table, 400);
    plan.turn(&mut table, &Tuning::DEFAULT);
    for node in 0..8u16 {
        let speed = f64::from(table.members[usize::from(node)].speed_milli);
        let [bulk, reactive] = [0, 1].map(|number| f64::from(table.count(number, node)) / 4096.0);
        let (due, square) = (speed / 9250.0, speed * speed / 13_312_500.0);
        assert!((reactive - square).abs() < 0.02, "node {node}: {reactive} for {square}");
        assert!((0.4 * reactive + 0.6 * bulk - due).abs() < 0.02, "node {node}: {bulk} and {reactive}");
    }
}

#[test]
fn without_reactive_packets_bulk_is_placed_as_by_weighted_hrw() {
    let (mut bulk, mut weighted) = (uneven(), uneven());
    charge(&mut bulk, 0);
    PriorityWeightedHrwPlan::default().turn(&mut bulk, &Tuning::DEFAULT);
    super::super::weighted_hrw::WeightedHrwPlan::default().turn(&mut weighted, &Tuning::DEFAULT);
    let slots = 0..SLOTS as usize;
    let same = slots.filter(|slot| bulk.slots[*slot] == weighted.slots[*slot]).count();
    assert!(same > 4085, "rounding may move a slot or two: {same}");
}

#[test]
fn with_nothing_but_reactive_packets_every_node_keeps_some_bulk() {
    let mut table = uneven();
    charge(&mut table, 1000);
    PriorityWeightedHrwPlan::default().turn(&mut table, &Tuning::DEFAULT);
    assert!((0..8).all(|node| table.count(0, node) > 0));
}

#[test]
fn a_member_that_goes_moves_its_own_slots_and_noise_moves_none() {
    let mut table = uneven();
    charge(&mut table, 300);
    let mut plan = Box::new(PriorityWeightedHrwPlan::default());
    plan.turn(&mut table, &Tuning::DEFAULT);
    let before = table.slots.clone();
    for (member, noise) in table.members.iter_mut().zip([20, -20, 15, -10, 10, 7, -5, 5]) {
        member.speed_milli = member.speed_milli.saturating_add_signed(noise);
    }
    charge(&mut table, 320);
    plan.turn(&mut table, &Tuning::DEFAULT);
    assert_eq!(table.slots, before);
    table.members[7].is_live = false;
    plan.turn(&mut table, &Tuning::DEFAULT);
    let reactive = SLOTS as usize..2 * SLOTS as usize;
    assert!(reactive.clone().all(|slot| before[slot] == 7 || table.slots[slot] == before[slot]));
    assert_eq!(table.count(0, 7) + table.count(1, 7), 0);
}

#[test]
fn the_share_in_force_follows_in_steps() {
    let mut table = uneven();
    let mut plan = Box::new(PriorityWeightedHrwPlan::default());
    let mut after_many = |share_milli: u32| {
        for _ in 0..1000 {
            charge(&mut table, share_milli);
            plan.turn(&mut table, &Tuning::DEFAULT);
        }
        plan.share_milli
    };
    let first = after_many(300);
    assert_eq!(first, 300);
    assert_eq!(after_many(345), first);
    assert_eq!(after_many(360), 350);
}

#[test]
fn the_class_says_which_table() {
    let kind = PolicyKind::PriorityWeightedHrw;
    let mut table = super::super::testing::Table::new(Here::default(), [idle(), idle()]);
    (table.slots[77], table.slots[77 + SLOTS as usize]) = (1, 2);
    for (class, node) in [(0, 1), (3, 1), (4, 2), (7, 2)] {
        let on_slot = Job { key: 77 + 4096, class, ..job(5000, 0) };
        assert_eq!(decide(kind, &on_slot, &params(kind), &table).verdict, Verdict::Redirect(node));
    }
}

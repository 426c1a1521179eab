use super::super::shares::tests::{board, charge, live, zipf};
use super::super::testing::{decide, idle, job, params};
use super::super::{PolicyKind, Verdict};
use super::*;
use crate::load::Here;
use crate::plan::tests::Table;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

/// All of the newest interval: what was charged is the histogram.
const NEWEST: Tuning = Tuning { renewal_milli: 1000, ..Tuning::DEFAULT };

/// Capacity of each live member, in board order.
fn capacities(table: &Table) -> Vec<f64> {
    let live = table.members.iter().filter(|member| member.is_live);
    live.map(|member| f64::from(member.speed_milli) * f64::from(member.workers)).collect()
}

/// Work that each live member has.
fn loads(table: &Table, work: &[u64]) -> Vec<f64> {
    let of =
        |node: u16| (0..SLOTS as usize).filter(move |slot| table.slots[*slot] == node).map(|slot| work[slot] as f64);
    live(table).into_iter().map(|node| of(node).sum()).collect()
}

fn largest(work: &[u64]) -> f64 {
    *work.iter().max().unwrap() as f64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn cuts_where_the_formula_says(table in board(), seed: u64, exponent in 0.0f64..1.3) {
        let (mut table, work) = (table, zipf(seed, exponent));
        charge(&mut table, &work);
        let mut plan = Box::new(HistogramPlan::default());
        plan.turn(&mut table, &NEWEST);
        let (nodes, capacities) = (live(&table), capacities(&table));
        let (total, whole) = (work.iter().sum::<u64>() as f64, capacities.iter().sum::<f64>());
        let mut before = 0.0;
        for (slot, work) in work.iter().enumerate() {
            let middle = (before + *work as f64 / 2.0) / total;
            before += *work as f64;
            let member = nodes.iter().position(|node| *node == table.slots[slot]);
            prop_assert!(member.is_some(), "slot {slot} has no live node");
            let from = capacities[..member.unwrap()].iter().sum::<f64>() / whole;
            let to = from + capacities[member.unwrap()] / whole;
            prop_assert!(from - 1e-12 <= middle && middle <= to + 1e-12, "slot {slot}: {from} {middle} {to}");
        }
        let largest = largest(&work);
        for (load, capacity) in loads(&table, &work).iter().zip(&capacities) {
            prop_assert!((load / total - capacity / whole).abs() <= largest / total + 1e-9, "within the largest slot");
        }
    }

    #[test]
    fn every_turn_leaves_a_balance_and_moves_nothing_without_need(
        table in board(),
        turns in proptest::collection::vec((any::<u64>(), 0.0f64..1.3, 0usize..9, any::<bool>()), 1..5),
    ) {
        let mut table = table;
        let mut plan = Box::new(HistogramPlan::default());
        for (seed, exponent, index, is_live) in turns {
            let index = index % table.members.len();
            table.members[index].is_live = is_live || table.members[index].is_self;
            let work = zipf(seed % 3, exponent);
            for again in [false, true] {
                let before = table.slots.clone();
                charge(&mut table, &work);
                plan.turn(&mut table, &NEWEST);
                prop_assert!(!again || table.slots == before, "the same work twice moves nothing");
                let (capacities, total) = (capacities(&table), work.iter().sum::<u64>() as f64);
                let whole: f64 = capacities.iter().sum();
                for (load, capacity) in loads(&table, &work).iter().zip(&capacities) {
                    let fair = total * capacity / whole;
                    prop_assert!((load - fair).abs() <= fair / 16.0 + largest(&work) + 2.0, "{load} of {fair}");
                }
                let nodes = live(&table);
                prop_assert!(table.slots[..SLOTS as usize].iter().all(|node| nodes.contains(node)));
            }
        }
    }
}

#[test]
fn equal_members_have_at_most_their_share_and_the_largest_slot() {
    for (nodes, exponent) in [(2, 0.0), (8, 0.8), (16, 1.0), (16, 1.3)] {
        let (mut table, work) = (Table::new(nodes, 0), zipf(7, exponent));
        charge(&mut table, &work);
        HistogramPlan::default().turn(&mut table, &NEWEST);
        let total = work.iter().sum::<u64>() as f64;
        let most = loads(&table, &work).into_iter().fold(0.0, f64::max) / total;
        assert!(most <= 1.0 / f64::from(nodes) + largest(&work) / total, "{nodes} nodes, Zipf {exponent}: {most}");
    }
}

#[test]
fn without_work_slots_are_equal() {
    let mut table = Table::new(4, 0);
    table.members[1].speed_milli = 5000;
    HistogramPlan::default().turn(&mut table, &NEWEST);
    assert_eq!([0, 1, 2, 3].map(|node| table.count(0, node)), [512, 2560, 512, 512]);
}

#[test]
fn slots_of_a_member_that_goes_go_to_the_others_and_no_other_slot_moves() {
    let mut table = Table::new(5, 0);
    let work = vec![1000; SLOTS as usize];
    let mut plan = Box::new(HistogramPlan::default());
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    let before = table.slots.clone();
    table.members[2].is_live = false;
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    assert!((0..SLOTS as usize).all(|slot| before[slot] == 2 || table.slots[slot] == before[slot]));
    assert!([0, 1, 3, 4].iter().all(|node| table.count(0, *node).abs_diff(1024) <= 1));
    table.members[2].is_live = true;
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    assert_eq!(table.slots, before, "a member that comes brings a new cut");
}

#[test]
fn a_member_without_any_work_left_is_reason_to_cut_anew() {
    let mut table = Table::new(2, 0);
    let mut plan = Box::new(HistogramPlan::default());
    let mut work = vec![1000; SLOTS as usize];
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    assert_eq!(table.slots[1500], 0);
    work[2048..].fill(0);
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    assert_eq!((table.slots[1023], table.slots[1024]), (0, 1));
}

#[test]
fn old_work_fades_by_the_renewal() {
    let mut table = Table::new(2, 0);
    let mut plan = Box::new(HistogramPlan::default());
    let tuning = Tuning { renewal_milli: 250, ..Tuning::DEFAULT };
    table.charged_ns[0] = 1_000_000;
    plan.turn(&mut table, &tuning);
    assert_eq!(plan.work.of(0), 250_000);
    plan.turn(&mut table, &tuning);
    assert_eq!(plan.work.of(0), 187_500);
}

#[test]
fn the_key_says_where() {
    let kind = PolicyKind::Histogram;
    let mut table = super::super::testing::Table::new(Here::default(), [idle(), idle()]);
    table.slots[77] = 2;
    let on_slot = Job { key: 77 + 4096, class: 7, ..job(5000, 0) };
    assert_eq!(decide(kind, &on_slot, &params(kind), &table).verdict, Verdict::Redirect(2));
    assert_eq!(table.charged.borrow()[77], 5000);
}

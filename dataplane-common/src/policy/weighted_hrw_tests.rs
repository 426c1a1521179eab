use super::super::shares::tests::{board, live};
use super::super::testing::{decide, idle, job, params};
use super::super::{PolicyKind, Verdict};
use super::*;
use crate::hash::mix;
use crate::load::Here;
use crate::plan::tests::Table;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

const ONE: f64 = (1u64 << FRACTION) as f64;

/// −log2 of a hash as a fraction.
fn exact(hash: u64) -> f64 {
    64.0 - (hash as f64).log2()
}

proptest! {
    #[test]
    fn logarithms_are_right_everywhere(hash in any::<u64>(), shift in 0u32..64) {
        let hash = (hash >> shift).max(1);
        let found = minus_log2(hash) as f64 / ONE;
        prop_assert!((found - exact(hash)).abs() < 3e-6, "{found} for {}", exact(hash));
        prop_assert!(minus_log2(hash) >= minus_log2(hash.saturating_add(hash >> 20)), "falls with the hash");
    }

    #[test]
    fn logarithms_are_right_where_it_matters(gap in 1u64..1 << 58) {
        // Near 2^64, −log2(1 − x) is x / ln 2; f64 cannot tell hashes there apart, their distance it can.
        let found = minus_log2(0u64.wrapping_sub(gap)) as f64 / ONE;
        let exact = -(-(gap as f64 / 2f64.powi(64))).ln_1p() / 2f64.ln();
        prop_assert!((found - exact).abs() <= exact * 0.002 + 2.0 / ONE, "{found} for {exact}");
    }

    #[test]
    fn homes_are_where_the_formula_says(table in board()) {
        let mut table = table;
        let mut plan = Box::new(WeightedHrwPlan::default());
        plan.turn(&mut table, &Tuning::DEFAULT);
        for slot in (0..SLOTS).step_by(7) {
            let score = |node: u16| {
                let member = table.members.iter().find(|member| member.node == node).copied().unwrap_or_default();
                let u = rendezvous(slot, node) as f64 / 2f64.powi(64);
                -f64::from(member.speed_milli) * f64::from(member.workers) / u.ln()
            };
            let best = live(&table).into_iter().map(score).fold(0.0, f64::max);
            let home = table.slots[slot as usize];
            prop_assert!(live(&table).contains(&home));
            // What the table of logarithms gets wrong may decide between two that are as good as equal.
            prop_assert!(score(home) >= best * 0.997, "slot {slot}: {} where {best} is best", score(home));
        }
    }
}

#[test]
fn ends() {
    assert_eq!((minus_log2(0), minus_log2(1), minus_log2(1 << 63)), (64 << FRACTION, 64 << FRACTION, 1 << FRACTION));
    assert!(minus_log2(u64::MAX) < 2);
    assert!(LOG2.is_sorted() && LOG2[0] == 0 && LOG2[256] == 1 << FRACTION);
    assert_eq!(weighted(0, 0, 0), u64::MAX);
}

#[test]
fn shares_are_in_proportion_to_weights_within_two_percent() {
    // More slots than a plan has: with 4096, chance alone makes for more than that.
    const MANY: u32 = 1 << 20;
    for weights in [vec![1, 1], vec![1000, 2000, 250, 4000], vec![7, 3], vec![1_000_000, 3_000_000_000, 2_000_000_000]]
    {
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        let mut count = vec![0u32; weights.len()];
        for slot in 0..MANY {
            let nodes = 0..weights.len();
            let best = nodes.min_by_key(|node| weighted(slot, *node as u16, weights[*node])).unwrap();
            count[best] += 1;
        }
        for (weight, count) in weights.iter().zip(&count) {
            let share = f64::from(*count) / f64::from(MANY);
            let due = f64::from(*weight) / total;
            // A very small share is drawn too seldom to be told to 2 %: three standard deviations of chance.
            let chance = 3.0 * (due / f64::from(MANY)).sqrt();
            assert!((share - due).abs() < (0.02 * due).max(chance), "{weight}: {share} for {due}");
        }
    }
}

#[test]
fn slots_are_in_proportion_to_speed_and_workers() {
    let mut table = Table::new(4, 0);
    for (member, (speed, workers)) in table.members.iter_mut().zip([(1000, 1), (1000, 2), (4000, 1), (500, 2)]) {
        (member.speed_milli, member.workers) = (speed, workers);
    }
    let mut plan = Box::new(WeightedHrwPlan::default());
    plan.turn(&mut table, &Tuning::DEFAULT);
    for (node, due) in (0..4).zip([512.0, 1024.0, 2048.0, 512.0f64]) {
        let found = f64::from(table.count(0, node));
        // Three standard deviations of a draw of 4096.
        assert!((found - due).abs() < 3.0 * (due * (1.0 - due / 4096.0)).sqrt(), "node {node}: {found} for {due}");
    }
}

#[test]
fn a_weight_that_grows_only_takes_and_one_that_shrinks_only_leaves() {
    let mut table = Table::new(5, 0);
    let mut plan = Box::new(WeightedHrwPlan::default());
    plan.turn(&mut table, &Tuning::DEFAULT);
    let before = table.slots.clone();
    table.members[2].speed_milli = 1500;
    plan.turn(&mut table, &Tuning::DEFAULT);
    let grown = table.slots.clone();
    let moved: Vec<_> = before.iter().zip(&grown).filter(|(before, now)| before != now).collect();
    assert!(moved.len() > 100 && moved.iter().all(|(_, now)| **now == 2));
    table.members[2].speed_milli = 1000;
    plan.turn(&mut table, &Tuning::DEFAULT);
    assert_eq!(table.slots, before);
}

#[test]
fn equal_weights_are_no_weights() {
    let mut table = Table::new(9, 0);
    WeightedHrwPlan::default().turn(&mut table, &Tuning::DEFAULT);
    let weighted = table.slots.clone();
    super::super::hrw::HrwPlan::default().turn(&mut table, &Tuning::DEFAULT);
    assert_eq!(weighted, table.slots);
}

#[test]
fn the_key_says_where() {
    let kind = PolicyKind::WeightedHrw;
    let mut table = super::super::testing::Table::new(Here::default(), [idle(), idle()]);
    table.slots[77] = 2;
    let on_slot = crate::policy::Job { key: 77 + 4096 * 3, ..job(5000, mix(1) as u32) };
    assert_eq!(decide(kind, &on_slot, &params(kind), &table).verdict, Verdict::Redirect(2));
    assert_eq!(table.charged.borrow()[77], 5000);
}

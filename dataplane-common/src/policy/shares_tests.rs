use super::*;
use crate::hash::{combine, mix};
use crate::plan::tests::Table;
use proptest::prelude::*;
use std::vec::Vec;

/// A board whose members may be gone, fast or slow.
pub(in crate::policy) fn board() -> impl Strategy<Value = Table> {
    let member = (prop::bool::weighted(0.8), 250u16..4000, 1u16..5, any::<u16>());
    proptest::collection::vec(member, 1..9).prop_map(|members| {
        let mut table = Table::new(members.len() as u16, 0);
        for (member, (is_live, speed_milli, workers, id)) in table.members.iter_mut().zip(members) {
            // Ids with gaps and in no order; two that are the same are made different.
            member.node += id % 500 * 8;
            member.is_live = is_live || member.is_self;
            (member.speed_milli, member.workers) = (speed_milli, workers);
        }
        table
    })
}

/// Work of slots: few heavy, most light, some none; `exponent` 1 is Zipf's law.
pub(in crate::policy) fn zipf(seed: u64, exponent: f64) -> Vec<u64> {
    let mut work: Vec<u64> = (1..=SLOTS).map(|rank| (1e9 / f64::from(rank).powf(exponent)) as u64).collect();
    work[SLOTS as usize * 7 / 8..].fill(0);
    let by_hash = |at: &usize| combine(mix(seed), *at as u64);
    let mut places: Vec<usize> = (0..SLOTS as usize).collect();
    places.sort_by_key(by_hash);
    places.iter().map(|place| work[*place]).collect()
}

/// Ids of the live members.
pub(in crate::policy) fn live(table: &Table) -> Vec<u16> {
    table.members.iter().filter(|member| member.is_live).map(|member| member.node).collect()
}

/// Takes `work` as what named the slots of table 0 since the last plan.
pub(in crate::policy) fn charge(table: &mut Table, work: &[u64]) {
    for (charged, work) in table.charged_ns.iter_mut().zip(work) {
        *charged = charged.wrapping_add(*work);
    }
}

proptest! {
    #[test]
    fn means_follow_the_work(
        // The counter wraps on the way.
        start in u64::MAX - 2_000_000_000..,
        work in proptest::collection::vec(0u64..1_000_000_000, 1..20),
        renewal in 1u32..1000,
    ) {
        let mut table = Table::new(1, 0);
        let mut slots = SlotWork::default();
        table.charged_ns[5] = start;
        slots.measure(&table, 1000);
        let g = f64::from(renewal) / 1000.0;
        let mut model = slots.of(5) as f64;
        for work in work {
            table.charged_ns[5] = table.charged_ns[5].wrapping_add(work);
            slots.measure(&table, renewal);
            model = model * (1.0 - g) + work as f64 * g;
            prop_assert!((slots.of(5) as f64 - model).abs() <= 1.0 / g + 1.0, "{} for {model}", slots.of(5));
        }
        prop_assert_eq!(slots.total(), slots.of(5), "no other slot has work");
    }

    #[test]
    fn shares_are_what_a_plain_model_says(table in board(), work in 0u64..1 << 52) {
        let mut shares = Shares::default();
        prop_assert!(shares.read(&table), "all are new");
        prop_assert!(!shares.read(&table), "and then known");
        let nodes: Vec<u16> = (0..shares.count()).map(|position| shares.node(position)).collect();
        prop_assert_eq!(&nodes, &live(&table));
        let capacities: Vec<f64> = table.members.iter().filter(|member| member.is_live)
            .map(|member| f64::from(member.speed_milli) * f64::from(member.workers)).collect();
        let total: f64 = capacities.iter().sum();
        for member in &table.members {
            prop_assert_eq!(shares.position(member.node).is_some(), member.is_live);
        }
        for (position, capacity) in capacities.iter().enumerate() {
            let exact = work as f64 * capacity / total;
            prop_assert!((shares.fair(position, work) as f64 - exact).abs() <= 1.0 + exact * 1e-9);
        }
    }

    #[test]
    fn the_soonest_is_through_soonest(
        table in board(),
        given in proptest::collection::vec(0u64..1_000_000, 9),
        work in 0u64..1_000_000,
    ) {
        let mut shares = Shares::default();
        shares.read(&table);
        for (position, given) in given.iter().enumerate().take(shares.count()) {
            shares.give(position, *given);
        }
        let time = |position: usize| (shares.given(position) + work) as f64 / f64::from(shares.capacity(position));
        let least = (0..shares.count()).map(time).fold(f64::INFINITY, f64::min);
        let found = shares.soonest(work).map(time);
        prop_assert!(found.is_some_and(|found| found <= least * (1.0 + 1e-12)), "{found:?} for {least}");
    }
}

#[test]
fn members_that_come_back_are_new() {
    let mut table = Table::new(3, 0);
    let mut shares = Shares::default();
    shares.read(&table);
    table.members[1].is_live = false;
    assert!(!shares.read(&table), "one that goes is not new");
    assert_eq!((shares.count(), shares.position(1), shares.position(2)), (2, None, Some(1)));
    table.members[1].is_live = true;
    assert!(shares.read(&table));
}

#[test]
fn any_work_shows_and_any_mean_ends() {
    let mut table = Table::new(1, 0);
    let mut slots = SlotWork::default();
    table.charged_ns[9] = 1;
    slots.measure(&table, 1);
    assert_eq!(slots.of(9), 1);
    slots.measure(&table, 1);
    assert_eq!(slots.of(9), 0);
    table.charged_ns[9] = u64::MAX;
    slots.measure(&table, 0);
    assert!(slots.of(9) > 0, "no weight is the least weight");
}

use super::*;
use crate::plan::tests::Table;
use crate::policy::hrw::unweighted;
use crate::policy::weighted_hrw::weighted;
use core::cell::Cell;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec::Vec;

/// Weights by node id, in place of members; 0 = not live.
fn table(weights: &[u16]) -> Table {
    let mut table = Table::new(weights.len() as u16, 0);
    for (member, weight) in table.members.iter_mut().zip(weights) {
        member.is_live = *weight > 0;
        member.workers = *weight;
    }
    table
}

fn weight(member: &Member) -> u32 {
    u32::from(member.workers)
}

/// The first `depth` nodes of `slot`, by sorting all.
fn model(weights: &[u16], slot: u32, depth: usize, rank: fn(u32, u16, u32) -> u64) -> Vec<u16> {
    let live = (0u16..).zip(weights).filter(|(_, weight)| **weight > 0);
    let mut ranked: Vec<_> = live.map(|(node, weight)| (rank(slot, node, u32::from(*weight)), node)).collect();
    ranked.sort_unstable();
    ranked.iter().map(|(_, node)| *node).take(depth).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_history_ends_in_the_order_that_sorting_gives(
        // Below 16, every change is more than noise.
        history in proptest::collection::vec((proptest::collection::vec(0u16..16, 1..12), 1u32..6), 1..6),
    ) {
        let mut ranking = Box::new(Ranking::<4>::default());
        for (weights, depth) in &history {
            ranking.turn(&table(weights), *depth, weight, weighted);
            for slot in (0..SLOTS).step_by(5) {
                let expected = model(weights, slot, (*depth).min(4) as usize, weighted);
                prop_assert_eq!(ranking.first(slot), expected.first().copied().unwrap_or(HERE));
                prop_assert_eq!(ranking.of(slot).collect::<Vec<_>>(), expected);
            }
        }
    }
}

#[test]
fn a_change_costs_a_few_ranks_per_slot_whatever_the_size() {
    let ranks = Cell::new(0);
    let counted = |slot: u32, node: u16, weight: u32| {
        ranks.set(ranks.get() + 1);
        unweighted(slot, node, weight)
    };
    let mut ranking = Box::new(Ranking::<1>::default());
    let mut weights = [1u16; 64];
    let mut cost = |weights: &[u16]| {
        ranks.set(0);
        ranking.turn(&table(weights), 1, weight, counted);
        ranks.get()
    };
    weights[63] = 0;
    assert_eq!(cost(&weights), 63 * SLOTS, "the first turn ranks all");
    assert_eq!(cost(&weights), 0, "nothing changed");
    weights[63] = 1;
    assert_eq!(cost(&weights), 2 * SLOTS, "one that comes is ranked against one");
    weights[7] = 0;
    let left = cost(&weights);
    assert!(left < 3 * SLOTS, "one that goes leaves a 64th of the slots to be ranked by all: {left}");
}

#[test]
fn noise_of_weights_is_not_taken_up() {
    let mut ranking = Box::new(Ranking::<1>::default());
    let mut plan = |weights: &[u16]| {
        ranking.turn(&table(weights), 1, weight, weighted);
        (0..SLOTS).map(|slot| ranking.first(slot)).collect::<Vec<_>>()
    };
    let first = plan(&[1600, 800]);
    assert_eq!(plan(&[1700, 750]), first, "a sixteenth either way");
    assert_ne!(plan(&[1701, 800]), first);
    assert_eq!(plan(&[1600, 800]), plan(&[1650, 800]), "measured against what is in force");
}

#[test]
fn of_equal_ranks_the_lowest_node_is_first() {
    let mut ranking = Box::new(Ranking::<4>::default());
    ranking.turn(&table(&[1, 1, 1]), 3, weight, |_, _, _| 7);
    assert_eq!(ranking.of(0).collect::<Vec<_>>(), [0, 1, 2]);
    let empty = Box::new(Ranking::<4>::default());
    assert_eq!(empty.first(0), HERE);
}

#[test]
fn the_largest_cluster_fits() {
    let mut ranking = Box::new(Ranking::<1>::default());
    let mut table = Table::new(MAX_NODES as u16, 0);
    table.members.push(Member { node: MAX_NODES as u16, is_live: true, ..Member::default() });
    ranking.turn(&table, 1, |_| 1, unweighted);
    let nodes: std::collections::BTreeSet<_> = (0..SLOTS).map(|slot| ranking.first(slot)).collect();
    assert!(nodes.len() > 2000 && nodes.iter().all(|node| usize::from(*node) < MAX_NODES));
}

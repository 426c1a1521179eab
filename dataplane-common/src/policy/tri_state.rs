//! `tri-state`: three states of load, three shares (after Deepalakshmi, as the threshold papers describe the method).
//!
//! ```text
//! L_i     = load_milli                                                  free < busy_milli ≤ busy < full_milli ≤ full
//! share_i ∝ 1 while free, 1/2 while busy, 0 while full; 1/10 for every node when all are full
//! ```
//! Shares are relative: a tenth for every node is an equal part for every node. The states are those of the last report,
//! without hysteresis. `L` weighs busy share, packet memory and run queue by settings ([`crate::plan::load_milli`]); to weigh
//! processor, memory and sessions 4 : 3 : 3, set `cpu_milli` 400, `memory_milli` 300 and `queue_milli` 300. The original was
//! not found: bounds, shares and weights are a reconstruction. Ignores speeds, numbers of workers and what forwarding costs.
//! Cost: one slot and one row.

use super::{Decision, Homes, Job, Needs, Policy, placed::drawn};
use crate::load::LoadView;
use crate::maps::Params;
use crate::plan::{Board, Member, Plan, load_milli, place_by_weight};
use crate::tuning::Tuning;

/// See the module.
pub struct TriState;

impl Policy for TriState {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS);
    type Plan = Shares;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        drawn(job, params, loads)
    }
}

/// The slow half: keeps nothing between turns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares;

impl Plan for Shares {
    fn turn<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
        let has_room = |member: Member| member.is_live && tenths(&member, tuning) > 0;
        let all_full = !(0..board.members()).any(|index| has_room(board.member(index)));
        place_by_weight(board, 0, |member| if all_full { 1 } else { tenths(member, tuning) });
    }
}

/// The share of a node by its state, tenths.
fn tenths(member: &Member, tuning: &Tuning) -> u32 {
    let load = load_milli(member, tuning);
    if load >= tuning.full_milli {
        0
    } else if load >= tuning.busy_milli {
        5
    } else {
        10
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Planner, PolicyKind};
    use super::*;
    use crate::plan::tests::Table;
    use crate::plan::{HERE, SLOTS};
    use proptest::prelude::*;
    use std::vec::Vec;

    /// Slots of every node after a turn; the loads of nodes that are not live are `None`.
    fn slots(loads: &[Option<u16>], tuning: &Tuning) -> Vec<u32> {
        let mut table = Table::new(loads.len() as u16, 0);
        for (member, load) in table.members.iter_mut().zip(loads) {
            member.is_live = load.is_some();
            member.busy_milli = load.unwrap_or(0);
        }
        Planner::new(PolicyKind::TriState).turn(&mut table, tuning);
        (0..loads.len() as u16).map(|node| table.count(0, node)).collect()
    }

    proptest! {
        #[test]
        fn shares_follow_the_states(
            loads in proptest::collection::vec(prop_oneof![1 => Just(None), 8 => (0u16..=1000).prop_map(Some)], 1..9),
            busy_milli in prop_oneof![Just(500), 0u32..=1000],
            full_milli in prop_oneof![Just(800), 0u32..=1000],
        ) {
            let tuning = Tuning { busy_milli, full_milli, ..Tuning::DEFAULT };
            let share = |load: &Option<u16>| match load.map(u32::from) {
                None => 0.0,
                Some(load) if load >= full_milli => 0.0,
                Some(load) if load >= busy_milli => 0.5,
                Some(_) => 1.0,
            };
            let mut shares: Vec<f64> = loads.iter().map(share).collect();
            if shares.iter().all(|share| *share == 0.0) {
                shares = loads.iter().map(|load| if load.is_some() { 0.1 } else { 0.0 }).collect();
            }
            let total: f64 = shares.iter().sum();
            for (found, share) in slots(&loads, &tuning).into_iter().zip(shares) {
                let exact = if total > 0.0 { share / total * f64::from(SLOTS) } else { 0.0 };
                prop_assert!((f64::from(found) - exact).abs() <= 1.0, "{found} for {exact}");
            }
        }
    }

    #[test]
    fn free_nodes_get_one_busy_ones_half_and_full_ones_nothing() {
        let found = slots(&[499, 500, 799, 800].map(Some), &Tuning::DEFAULT);
        assert_eq!(found, [2048, 1024, 1024, 0]);
    }

    #[test]
    fn all_full_is_all_equal() {
        assert_eq!(slots(&[800, 1000, 900, 850].map(Some), &Tuning::DEFAULT), [1024; 4]);
        assert_eq!(
            slots(&[Some(0), Some(900), None], &Tuning::DEFAULT),
            [SLOTS, 0, 0],
            "one that is not full is enough"
        );
        assert_eq!(slots(&[None, Some(900), Some(900)], &Tuning::DEFAULT), [0, 2048, 2048], "free, but not live");
    }

    #[test]
    fn the_weights_of_the_load_are_settings() {
        let mut table = Table::new(2, 0);
        table.members[1] = Member { busy_milli: 500, memory_milli: 900, queued_milli: 16_000, ..table.members[1] };
        let tuning = Tuning { cpu_milli: 400, memory_milli: 300, queue_milli: 300, ..Tuning::DEFAULT };
        Shares.turn(&mut table, &tuning);
        assert_eq!(table.count(0, 1), SLOTS / 3, "0.4 · 0.5 + 0.3 · 0.9 + 0.3 · 1 = 0.77: busy");
        assert_eq!(table.count(0, HERE), 0);
    }
}

//! `load-interpretation`: at random, with probabilities that would level the backlogs by the time of the next plan.
//!
//! ```text
//! K     = work placed by this node in the last interval · live nodes
//! L     : Σ n_i · max(0, L − W_i) = K                     the level that K fills the backlogs to, n_i workers each
//! p_i   = n_i · max(0, L − W_i) / K
//! node i has p_i of the slots; a packet takes a slot at random
//! ```
//! Basic Load Interpretation (Dahlin, *Interpreting Stale Load Information*, IEEE TPDS 2000): the older the
//! information is against the arrivals, the more uniform the probabilities are, and a node that looked idle is not run
//! over. `W` is the backlog a node reported last, `K` what arrives in the cluster until the next plan: the arrivals
//! are taken to be those of the last interval, and every node to have as many as this one (as in Goren, Vargaftik and
//! Moses, *Distributed Dispatching in the Parallel Server Model*, DISC 2020, where each dispatcher fills for all).
//! After an interval without arrivals, packets stay. Ignores: where a packet arrives (nearly all move), forwarding
//! cost, speeds, and what is computed meanwhile. Cost: one slot and one row; a plan costs log2 K passes over the
//! members.

use super::placed::drawn;
use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::{LoadView, saturate};
use crate::maps::Params;
use crate::plan::{Board, Member, Plan, SLOTS, place_by_weight};
use crate::tuning::Tuning;

/// See the module.
pub struct LoadInterpretation;

impl Policy for LoadInterpretation {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS.and(Needs::PLAN);
    type Plan = Filling;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        drawn(job, params, loads)
    }
}

/// Draws up the probabilities.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filling {
    /// Work that had named a slot at the last plan, ns (wrapping).
    charged_ns: u64,
}

impl Plan for Filling {
    fn turn<B: Board>(&mut self, board: &mut B, _tuning: &Tuning) {
        let charged_ns = (0..SLOTS).fold(0u64, |sum, slot| sum.wrapping_add(board.charged_ns(slot)));
        let own_ns = charged_ns.wrapping_sub(self.charged_ns);
        self.charged_ns = charged_ns;
        let live = (0..board.members()).filter(|index| board.member(*index).is_live).count() as u64;
        let arrivals_ns = own_ns.saturating_mul(live);
        let level_ns = level(board, arrivals_ns);
        // No member takes more than all arrivals, so what makes these fit makes every weight fit.
        let shift = (u64::BITS - arrivals_ns.leading_zeros()).saturating_sub(u32::BITS);
        place_by_weight(board, 0, |member| saturate(taken_ns(member, level_ns) >> shift));
    }
}

/// What `member` takes when it is filled to `level_ns`, ns (saturating).
fn taken_ns(member: &Member, level_ns: u64) -> u64 {
    level_ns.saturating_sub(member.backlog_ns.into()).saturating_mul(member.workers.into())
}

/// The highest level to which `arrivals_ns` of work fills the live members, ns.
fn level<B: Board>(board: &B, arrivals_ns: u64) -> u64 {
    let live = || (0..board.members()).map(|index| board.member(index)).filter(|member| member.is_live);
    let taken = |level_ns| live().fold(0u64, |sum, member| sum.saturating_add(taken_ns(&member, level_ns)));
    // One worker of the least loaded member alone would be filled to `above`.
    let mut below = live().map(|member| u64::from(member.backlog_ns)).min().unwrap_or(0);
    let mut above = below.saturating_add(arrivals_ns);
    while below < above {
        let middle = below + (above - below).div_ceil(2);
        if taken(middle) <= arrivals_ns {
            below = middle;
        } else {
            above = middle - 1;
        }
    }
    below
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::super::{PolicyKind, Verdict};
    use super::*;
    use crate::load::Here;
    use crate::plan::tests::Table;
    use crate::plan::{HERE, slot_of};
    use proptest::prelude::*;
    use std::vec::Vec;

    const KIND: PolicyKind = PolicyKind::LoadInterpretation;

    /// Dahlin's water filling in f64: sort, then find how many of the lowest are under water. One value per live
    /// member.
    fn water_filling(members: &[Member], arrivals: f64) -> Vec<(u16, f64)> {
        let mut sorted: Vec<&Member> = members.iter().filter(|member| member.is_live).collect();
        sorted.sort_by_key(|member| member.backlog_ns);
        let (mut workers, mut backlog, mut level) = (0.0, 0.0, 0.0);
        for member in &sorted {
            let next = f64::from(member.backlog_ns);
            if workers > 0.0 && (arrivals + backlog) / workers <= next {
                break;
            }
            workers += f64::from(member.workers);
            backlog += f64::from(member.workers) * next;
            level = (arrivals + backlog) / workers;
        }
        let share = |member: &Member| f64::from(member.workers) * (level - f64::from(member.backlog_ns)).max(0.0);
        sorted.iter().map(|member| (member.node, share(member) / arrivals)).collect()
    }

    proptest! {
        #[test]
        fn slots_follow_the_water_filling(
            states in proptest::collection::vec((0u32..2_000_000, 1u16..5, prop::bool::weighted(0.8)), 1..12),
            work in 1_000_000u64..40_000_000_000,
        ) {
            let mut table = Table::new(states.len() as u16, 0);
            for (member, (backlog_ns, workers, is_live)) in table.members.iter_mut().zip(states) {
                (member.backlog_ns, member.workers) = (backlog_ns, workers);
                member.is_live = is_live || member.is_self;
            }
            table.charged_ns[7] = work;
            Filling::default().turn(&mut table, &Tuning::DEFAULT);
            let live = table.members.iter().filter(|member| member.is_live).count();
            let shares = water_filling(&table.members, work as f64 * live as f64);
            for (node, share) in &shares {
                let slots = f64::from(table.count(0, *node));
                prop_assert!((slots - share * f64::from(SLOTS)).abs() <= 1.1, "node {node}: {slots} slots for {share}");
            }
            let placed: u32 = shares.iter().map(|(node, _)| table.count(0, *node)).sum();
            prop_assert_eq!(placed, SLOTS);
        }

        #[test]
        fn a_packet_goes_where_its_slot_says(mut table in testing::table(), plan in 0u16..10, random: u32) {
            let slot = slot_of(0, random) as usize;
            table.slots[slot] = plan;
            let params = testing::params(KIND);
            let decision = testing::decide(KIND, &testing::job(5_000, random), &params, &table);
            let may = table.candidates().any(|(node, _)| node == plan);
            prop_assert_eq!(decision.verdict, if may { Verdict::Redirect(plan) } else { Verdict::Local });
            prop_assert_eq!(table.charged.borrow()[slot], 5_000, "the plan counts on it");
        }
    }

    #[test]
    fn the_older_the_information_the_more_uniform() {
        let mut table = Table::new(2, 0);
        table.members[0].backlog_ns = 300_000;
        let mut plan = Filling::default();
        let mut shares = |work_ns: u64| {
            table.charged_ns[0] += work_ns;
            plan.turn(&mut table, &Tuning::DEFAULT);
            [0, 1, HERE].map(|node| table.count(0, node))
        };
        assert_eq!(shares(100_000), [0, 4096, 0], "200 µs arrive in both, and do not even fill the gap");
        assert_eq!(shares(300_000), [1024, 3072, 0], "600 µs: 450 level the two, the rest is halved");
        assert_eq!(shares(30_000_000), [2038, 2058, 0]);
        assert_eq!(shares(0), [0, 0, 4096], "nothing is known of the next packets");
    }

    #[test]
    fn extreme_members_do_no_harm() {
        let mut table = Table::new(3, 0);
        for member in &mut table.members {
            (member.backlog_ns, member.workers) = (u32::MAX, u16::MAX);
        }
        table.charged_ns[0] = u64::MAX / 2;
        Filling::default().turn(&mut table, &Tuning::DEFAULT);
        assert!((0..3).all(|node| (1365..=1366).contains(&table.count(0, node))));
        table.members.iter_mut().for_each(|member| member.is_live = false);
        Filling::default().turn(&mut table, &Tuning::DEFAULT);
        assert_eq!(table.count(0, HERE), SLOTS);
        let alone = testing::Table::new(Here::default(), []);
        let params = testing::params(KIND);
        assert_eq!(testing::decide(KIND, &testing::job(1, 0), &params, &alone).verdict, Verdict::Local);
    }
}

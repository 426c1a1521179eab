//! `phrw-w`: weighted rendezvous hashing with weights per class: reactive packets lean to fast nodes, bulk packets fill
//! up.
//!
//! ```text
//! home(slot, class) = argmax −w_j,class / ln(u_j)                    u as in `weighted-hrw`, the same for both classes
//! w_j,reactive = s_j² · n_j
//! w_j,bulk     = s_j · n_j / Σ s·n − ρ · s_j² · n_j / Σ s²·n,  at least 1/64 of its first term
//! ```
//! `s` is a node's speed, `n` its workers, `ρ` the share of the reactive packets (class 4 to 7) in the work that
//! arrives. With these weights a node has in total the share `s·n / Σ s·n` of the work, as with `weighted-hrw`, as long
//! as no bulk weight would be below its least: ρ · s_max / Σ s²·n < 1 / Σ s·n. A variant of `phrw` ([`super::phrw`]) of
//! this project, which loads no node beyond its share. The method of weights is [`super::weighted_hrw`]'s.
//!
//! `ρ` is a mean over about a second (64 plans of 10 ms) of what arrives here, taken up in steps of 5 %, so that slots
//! do not move with its noise. Cost: as `weighted-hrw`, twice.

use super::phrw::table_of;
use super::placed::planned;
use super::ranking::Ranking;
use super::shares::capacity;
use super::weighted_hrw::weighted;
use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::{LoadView, saturate};
use crate::maps::Params;
use crate::plan::{Board, Member, Plan, SLOTS, TABLES, slot_of};
use crate::tuning::Tuning;

/// See the module.
pub struct PriorityWeightedHrw;

impl Policy for PriorityWeightedHrw {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS);
    type Plan = PriorityWeightedHrwPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        planned(job, params, loads, slot_of(table_of(job.class), job.key))
    }
}

/// A change of the reactive share by this much is taken up, thousandths.
const STEP_MILLI: u32 = 50;
/// Plans over which work is averaged, as a power of two.
const MEMORY: u32 = 6;

/// The slow half: table 0 for bulk, table 1 for reactive packets.
#[derive(Default)]
pub struct PriorityWeightedHrwPlan {
    bulk: Ranking<1>,
    reactive: Ranking<1>,
    /// Work charged to each table until the last plan, ns (wrapping).
    seen_ns: [u64; TABLES as usize],
    /// Work of each table, decaying sum, ns.
    work_ns: [u64; TABLES as usize],
    /// Share of the reactive work in force, thousandths.
    share_milli: u32,
}

impl Plan for PriorityWeightedHrwPlan {
    fn turn<B: Board>(&mut self, board: &mut B, _tuning: &Tuning) {
        self.measure(board);
        let live = || (0..board.members()).map(|index| board.member(index)).filter(|member| member.is_live);
        let weights = Weights {
            capacity: live().map(|member| u64::from(capacity(&member))).sum(),
            reactive: live().map(|member| u64::from(reactive(&member))).sum(),
            share_milli: self.share_milli,
        };
        self.bulk.turn(board, 1, |member| weights.bulk(member), weighted);
        self.reactive.turn(board, 1, reactive, weighted);
        for slot in 0..SLOTS {
            board.place(slot, self.bulk.first(slot));
            board.place(slot_of(1, slot), self.reactive.first(slot));
        }
    }
}

impl PriorityWeightedHrwPlan {
    /// Measures the reactive share.
    fn measure<B: Board>(&mut self, board: &B) {
        for table in 0..TABLES {
            let charged = (0..SLOTS).fold(0, |sum: u64, slot| sum.wrapping_add(board.charged_ns(slot_of(table, slot))));
            let (seen, work) = (&mut self.seen_ns[table as usize], &mut self.work_ns[table as usize]);
            // Bounded, so that sums of it do not overflow.
            let newest = charged.wrapping_sub(*seen).min(1 << 48);
            *seen = charged;
            *work = *work - (*work >> MEMORY) + newest;
        }
        let [bulk, reactive] = self.work_ns;
        if let Some(share) = (reactive * 1000).checked_div(bulk + reactive) {
            let share = saturate(share);
            if share.abs_diff(self.share_milli) >= STEP_MILLI {
                self.share_milli = share;
            }
        }
    }
}

/// Reactive weight: the square of the speed, times the workers, in a unit in which the fastest node there can be just
/// fits.
fn reactive(member: &Member) -> u32 {
    saturate((u64::from(member.speed_milli) * u64::from(capacity(member))) >> 6).max(1)
}

/// What bulk weights are made of.
struct Weights {
    /// Sum of the capacities.
    capacity: u64,
    /// Sum of the reactive weights.
    reactive: u64,
    /// Share of the reactive work, thousandths.
    share_milli: u32,
}

impl Weights {
    /// Bulk weight: what is left of the member's share of everything.
    fn bulk(&self, member: &Member) -> u32 {
        let part = |own: u32, all: u64| (u64::from(own) << 32).checked_div(all).unwrap_or(0);
        let whole = part(capacity(member), self.capacity);
        let taken = part(reactive(member), self.reactive) * u64::from(self.share_milli) / 1000;
        saturate(whole.saturating_sub(taken).max(whole >> 6)).max(1)
    }
}

#[cfg(test)]
#[path = "phrw_w_tests.rs"]
mod tests;

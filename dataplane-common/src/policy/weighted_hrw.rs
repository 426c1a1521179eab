//! `weighted-hrw`: rendezvous hashing with weights, so that a node has slots in proportion to what it can compute.
//!
//! ```text
//! home(slot) = argmax −w_j / ln(u_j) over the live members j          u_j = hash(slot, j) / 2^64, uniform in (0, 1)
//! w_j = speed_j · workers_j
//! ```
//! −ln(u)/w is exponentially distributed with rate w, and the least of several exponentials is each with a probability
//! in proportion to its rate: node j is home to w_j/Σw of the slots (the method of logarithms of Schindelhauer and
//! Schomaker, SPAA 2005; in this form by Resch, SNIA SDC 2015). A weight that grows only takes slots, one that shrinks
//! only leaves some. Base 2 serves as well as base e. Cost: as [`super::hrw`].
//!
//! Speeds are measured at each node, so two nodes may hold weights that differ by up to a sixteenth
//! ([`super::ranking`]); they then disagree about the homes of about as small a part of the slots.

use super::placed::planned;
use super::ranking::Ranking;
use super::shares::capacity;
use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::LoadView;
use crate::maps::Params;
use crate::plan::{Board, Plan, SLOTS, rendezvous, slot_of};
use crate::tuning::Tuning;

/// See the module.
pub struct WeightedHrw;

impl Policy for WeightedHrw {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS);
    type Plan = WeightedHrwPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        planned(job, params, loads, slot_of(0, job.key))
    }
}

/// The slow half: table 0 holds the home of every slot.
#[derive(Default)]
pub struct WeightedHrwPlan {
    ranking: Ranking<1>,
}

impl Plan for WeightedHrwPlan {
    fn turn<B: Board>(&mut self, board: &mut B, _tuning: &Tuning) {
        self.ranking.turn(board, 1, capacity, weighted);
        for slot in 0..SLOTS {
            board.place(slot, self.ranking.first(slot));
        }
    }
}

/// The rank of `node` with `weight` (above 0) in `slot`: −log2(u) / weight, the lowest first.
pub(super) fn weighted(slot: u32, node: u16, weight: u32) -> u64 {
    (minus_log2(rendezvous(slot, node)) << 31).checked_div(u64::from(weight)).unwrap_or(u64::MAX)
}

/// Fraction bits of logarithms.
const FRACTION: u32 = 26;
/// Steps of the table, as a power of two.
const STEP_BITS: u32 = 8;
/// log2(1 + i/256).
const LOG2: [u32; (1 << STEP_BITS) + 1] = log2_table();

/// −log2(`hash` / 2^64) with 26 fraction bits, by the leading zeros and a straight line between the steps of a table.
///
/// Off by at most 3·10^−6. The hashes that win are those near 2^64, whose logarithm is near 0: there the error is below
/// 0.2 % of the value and the same for all nodes, so that it does not touch their shares.
const fn minus_log2(hash: u64) -> u64 {
    let zeros = hash.leading_zeros();
    if zeros == 64 {
        return 64 << FRACTION;
    }
    // The leading one goes, the bits after it are the fraction.
    let fraction = (hash << zeros) << 1;
    let step = (fraction >> (64 - STEP_BITS)) as usize;
    let within = (fraction << STEP_BITS) >> (64 - FRACTION);
    let (low, high) = (LOG2[step] as u64, LOG2[step + 1] as u64);
    let log2 = low + (((high - low) * within) >> FRACTION);
    ((zeros as u64 + 1) << FRACTION) - log2
}

/// Logarithms bit by bit: squaring a number doubles its logarithm, and a square above 2 yields a one.
const fn log2_table() -> [u32; (1 << STEP_BITS) + 1] {
    const ONE: u64 = 1 << 31;
    let mut table = [0; (1 << STEP_BITS) + 1];
    let mut step = 0;
    while step < 1 << STEP_BITS {
        let mut number = ONE + ((step as u64) << (31 - STEP_BITS));
        let mut bit = FRACTION;
        while bit > 0 {
            bit -= 1;
            number = (number * number) >> 31;
            if number >= 2 * ONE {
                number >>= 1;
                table[step] |= 1 << bit;
            }
        }
        step += 1;
    }
    table[step] = 1 << FRACTION;
    table
}

#[cfg(test)]
#[path = "weighted_hrw_tests.rs"]
mod tests;

//! `threshold-half`, `threshold-adaptive`, `threshold-exclude`: nodes whose load passes a threshold get less, until it falls
//! to a lower one.
//!
//! ```text
//! SL_i = load_milli                          event: SL_i ≥ TH (i is over from now on), or SL_i ≤ RTH (no longer)
//! w_i  = (1000 − SL_i at its last event) · (1, while i is over ½ or 0)          share of i = w_i / Σ w
//! adaptive, on an event:   TH ← TH + a · (mean SL − TH)      RTH = TH − (the configured distance)
//! ```
//! A node that stays over counts once. Before any event all nodes get the same: round robin. When all weights are zero,
//! packets are computed where they arrive. `SL` weighs busy share and packet memory by `cpu_milli` and `memory_milli`
//! ([`crate::plan::load_milli`]), `TH` = `threshold_milli`, `RTH` = `recovery_milli`, `a` = `step_milli`. There is no central
//! controller: every node keeps account of all nodes for the packets that arrive at it. Cost: one slot and one row.
//!
//! Sources, known by their descriptions (the formulas are a reconstruction): J. Lee, JKIECS 18(6), 2023 (half); K. Lee and
//! Kwon, JKICS 49(11), 2024 (adaptive); K. Lee and Kwon, JKIECS 17(6), 2022 (exclude). The 2024 paper contradicts itself:
//!
//! * It takes a node that is over off the list, yet explains its results by such nodes getting half. Setting `over`: half, or
//!   none. Half is the default: taking nodes off makes the load oscillate.
//! * It concludes that the mean load falls; its tables show the same mean (50.54 and 50.55 %). Only the largest load and the
//!   number of events can be expected to fall.
//! * It says that fixed thresholds fail when all nodes are over. So do adaptive ones: none can go over then, and nothing moves
//!   the threshold. It is left so; halves of all weights are the same shares.
//! * It moves the threshold on every event in one place, and only when a node goes over in another. Setting `adjust_on`: over
//!   (the default), or both.

use core::marker::PhantomData;

use super::{Decision, Homes, Job, Needs, Policy, placed::drawn};
use crate::load::LoadView;
use crate::maps::{MAX_NODES, Params};
use crate::plan::{Board, Member, Plan, load_milli, place_by_weight};
use crate::tuning::Tuning;

/// What the three policies do differently.
pub trait Rule {
    /// True when events move the threshold.
    const ADAPTS: bool;

    /// True when a node that is over gets nothing, not half.
    fn excludes(tuning: &Tuning) -> bool;
}

/// Fixed thresholds; half the weight while over.
pub struct Half;

impl Rule for Half {
    const ADAPTS: bool = false;

    fn excludes(_tuning: &Tuning) -> bool {
        false
    }
}

/// Thresholds that move towards the mean load; half the weight or none while over.
pub struct Adaptive;

impl Rule for Adaptive {
    const ADAPTS: bool = true;

    fn excludes(tuning: &Tuning) -> bool {
        tuning.over != 0
    }
}

/// Fixed thresholds; no weight while over.
pub struct Exclude;

impl Rule for Exclude {
    const ADAPTS: bool = false;

    fn excludes(_tuning: &Tuning) -> bool {
        true
    }
}

/// See the module.
pub struct Threshold<R>(PhantomData<R>);

impl<R: Rule> Policy for Threshold<R> {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS);
    type Plan = Thresholds<R>;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        drawn(job, params, loads)
    }
}

/// Where a node stands since its last event.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    is_over: bool,
    /// Its load in that event, thousandths; 0 before the first.
    load_milli: u16,
}

/// The slow half: events, weights and the threshold.
pub struct Thresholds<R> {
    nodes: [Standing; MAX_NODES],
    /// The threshold, thousandths in Q16, from the first turn on: steps towards the mean are fractions.
    threshold_q16: Option<u64>,
    /// Times a node went over, and times one recovered (wrapping).
    events: (u32, u32),
    rule: PhantomData<R>,
}

impl<R> Default for Thresholds<R> {
    fn default() -> Self {
        Self { nodes: [Standing::default(); MAX_NODES], threshold_q16: None, events: (0, 0), rule: PhantomData }
    }
}

impl<R: Rule> Thresholds<R> {
    /// How many times a node went over since the start, and how many times one recovered (both wrapping).
    pub const fn events(&self) -> (u32, u32) {
        self.events
    }

    /// Twice the weight of a member, so that its half is whole.
    fn weight(&self, member: &Member, excludes: bool) -> u32 {
        let Some(standing) = self.nodes.get(usize::from(member.node)) else {
            return 0;
        };
        let weight = 1000 - u32::from(standing.load_milli);
        match (standing.is_over, excludes) {
            (false, _) => 2 * weight,
            (true, false) => weight,
            (true, true) => 0,
        }
    }
}

impl<R: Rule> Plan for Thresholds<R> {
    fn turn<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
        let threshold = *self.threshold_q16.get_or_insert(u64::from(tuning.threshold_milli) << 16);
        let distance = tuning.threshold_milli.saturating_sub(tuning.recovery_milli);
        let recovery = threshold.saturating_sub(u64::from(distance) << 16);
        let (mut sum, mut live, mut moves) = (0u64, 0u64, 0u32);
        // All nodes are judged by the threshold as it was before the turn.
        for index in 0..board.members() {
            let member = board.member(index);
            let Some(standing) = self.nodes.get_mut(usize::from(member.node)).filter(|_| member.is_live) else {
                continue;
            };
            let load = load_milli(&member, tuning).min(1000);
            sum += u64::from(load);
            live += 1;
            let load_q16 = u64::from(load) << 16;
            let is_event = if standing.is_over { load_q16 <= recovery } else { load_q16 >= threshold };
            if is_event {
                *standing = Standing { is_over: !standing.is_over, load_milli: load as u16 };
                moves += u32::from(standing.is_over || tuning.adjust_on != 0);
                let count = if standing.is_over { &mut self.events.0 } else { &mut self.events.1 };
                *count = count.wrapping_add(1);
            }
        }
        if R::ADAPTS && moves > 0 {
            let mean = (sum << 16).checked_div(live).unwrap_or(threshold);
            let moved = (0..moves).fold(threshold, |threshold, _| step(threshold, mean, tuning.step_milli));
            self.threshold_q16 = Some(moved);
        }
        let excludes = R::excludes(tuning);
        place_by_weight(board, 0, |member| self.weight(member, excludes));
    }
}

/// `from`, moved by `step_milli` thousandths of its distance to `to`.
fn step(from: u64, to: u64, step_milli: u32) -> u64 {
    let part = from.abs_diff(to) * u64::from(step_milli) / 1000;
    if to < from { from - part } else { from + part }
}

#[cfg(test)]
#[path = "threshold_tests.rs"]
mod tests;

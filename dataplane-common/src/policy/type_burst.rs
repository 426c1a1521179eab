//! `type-burst`: a kind of packet that floods goes as a whole to the node that answers fastest (after J. Kim, as the threshold
//! papers describe the method; likely JKIECS 16(5), 2021).
//!
//! ```text
//! r1, r30 = rate of the function's packets that arrive here, forgotten in 1 s and in 30 s
//! floods:   r1 > flood_milli · r30  and  r1 > flood_share_milli · Σ r1    →  to argmin R_i over the live nodes
//! ends:     r1 < calm_milli · r30                                         →  as before
//! ```
//! Everything else goes to all live nodes alike, at random, which also keeps `R` measured. `R` is the response time of packets
//! computed at a node as measured; where it is not (this node's may not be), its backlog and one mean packet
//! ([`super::dss::response_ns`]). It is a mean over all functions. A flood keeps its node until it ends or the node is gone,
//! however slow it makes that node: the method does not look again.
//!
//! Rates are taken at most every 50 ms. Over a time shorter than theirs they are plain means, so that a start is no flood of
//! everything. Times, factors and the share are a reconstruction. Cost: one row, or one slot and one row.

use super::{Decision, Homes, Job, Needs, Policy, dss::response_ns, placed::drawn, placed::to_node};
use crate::load::LoadView;
use crate::maps::{MAX_FUNCTIONS, Params};
use crate::plan::{Board, Plan, place_by_weight};
use crate::tuning::Tuning;

/// Time in which the short-term rate forgets, µs.
const SHORT_US: u64 = 1_000_000;
/// Time in which the long-term rate forgets, µs.
const LONG_US: u64 = 30_000_000;
/// Shortest time over which rates are taken, µs: below, rounding would add up.
const SAMPLE_US: u64 = 50_000;

/// See the module.
pub struct TypeBurst;

impl Policy for TypeBurst {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PLAN.and(Needs::REPORTS).and(Needs::RESULTS).and(Needs::DEMAND);
    type Plan = Bursts;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        match job.home {
            0 => drawn(job, params, loads),
            home => to_node(job, params, loads, (home - 1) as u16),
        }
    }
}

/// A function's rates, and where it goes while it floods.
#[derive(Clone, Copy, Debug, Default)]
struct Kind {
    /// Packets that had arrived when the rates were last taken.
    arrivals: u64,
    /// Packets a second lately, thousandths.
    short: u64,
    /// Packets a second over a longer time, thousandths.
    long: u64,
    home: Option<u16>,
}

impl Kind {
    /// True when it floods now; `total` is the sum of all short-term rates.
    fn floods(&self, total: u64, tuning: &Tuning) -> bool {
        let rate = self.short.saturating_mul(1000);
        if self.home.is_some() {
            return rate >= self.long.saturating_mul(tuning.calm_milli.into());
        }
        rate > self.long.saturating_mul(tuning.flood_milli.into())
            && rate > total.saturating_mul(tuning.flood_share_milli.into())
    }
}

/// The slow half: the rates of all functions.
#[derive(Clone, Debug)]
pub struct Bursts {
    kinds: [Kind; MAX_FUNCTIONS],
    /// When rates were last taken, ns; `None` before the first turn.
    taken_ns: Option<u64>,
    /// Time the rates have been taken over, µs.
    known_us: u64,
}

impl Default for Bursts {
    fn default() -> Self {
        Self { kinds: [Kind::default(); MAX_FUNCTIONS], taken_ns: None, known_us: 0 }
    }
}

impl Bursts {
    /// Takes the rates if it is time.
    fn take<B: Board>(&mut self, board: &B) {
        let now_ns = board.now_ns();
        let passed_us = self.taken_ns.map_or(0, |taken_ns| now_ns.saturating_sub(taken_ns) / 1000);
        if self.taken_ns.is_some() && passed_us < SAMPLE_US {
            return;
        }
        for (index, kind) in self.kinds.iter_mut().enumerate().take(board.functions()) {
            let arrivals = board.demand(index).arrivals;
            if self.taken_ns.is_some() {
                let packets = arrivals.wrapping_sub(kind.arrivals);
                kind.short = mean(kind.short, SHORT_US.min(self.known_us), packets, passed_us);
                kind.long = mean(kind.long, LONG_US.min(self.known_us), packets, passed_us);
            }
            kind.arrivals = arrivals;
        }
        self.taken_ns = Some(now_ns);
        self.known_us = self.known_us.saturating_add(passed_us);
    }
}

/// The mean of a rate over the last `window_us` and of `packets` in the next `passed_us`, packets a second in thousandths.
fn mean(rate: u64, window_us: u64, packets: u64, passed_us: u64) -> u64 {
    let before = rate.saturating_mul(window_us);
    before.saturating_add(packets.saturating_mul(1_000_000_000)) / (window_us + passed_us).max(1)
}

/// The live node with the least response time; the first of equals.
fn fastest<B: Board>(board: &B) -> Option<u16> {
    (0..board.members())
        .map(|index| board.member(index))
        .filter(|member| member.is_live)
        .min_by_key(response_ns)
        .map(|member| member.node)
}

impl Plan for Bursts {
    fn turn<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
        place_by_weight(board, 0, |_| 1);
        self.take(board);
        let total = self.kinds.iter().map(|kind| kind.short).fold(0, u64::saturating_add);
        let is_live = |board: &B, node| {
            (0..board.members()).map(|index| board.member(index)).any(|m| m.is_live && m.node == node)
        };
        for (index, kind) in self.kinds.iter_mut().enumerate().take(board.functions()) {
            let home = match (kind.floods(total, tuning), kind.home) {
                (false, _) => None,
                (true, Some(node)) if is_live(board, node) => Some(node),
                (true, _) => fastest(board),
            };
            if home != kind.home {
                kind.home = home;
                board.set_home(index, home);
            }
        }
    }
}

#[cfg(test)]
#[path = "type_burst_tests.rs"]
mod tests;

//! `round-robin`: this node and its peers in turn, whatever their load: the baseline of every load balancer.
//!
//! ```text
//! position = turn mod (peers + 1)        positions 0 to peers − 1 are the peers, position `peers` is here
//! redirect to the first candidate among the FULL_SCAN peers from `position` on; stay when there is none
//! ```
//! A peer that is no candidate passes its turn on to the next one. Every ingress queue counts for itself, so several
//! of them together spread packets only on average. Ignores: load, the packet's cost, forwarding cost, speeds and
//! numbers of workers. Cost: one counter and up to [`FULL_SCAN`] steps, of which those behind the first candidate read
//! nothing.

use super::{Decision, FULL_SCAN, Homes, Job, Needs, Policy, Verdict, Why};
use crate::load::{LoadView, Row, Visit};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct RoundRobin;

impl Policy for RoundRobin {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, _params: &Params, loads: &L) -> Decision {
        let peers = loads.peers();
        // 64 bits: the divisor is then plainly not zero.
        let position = (u64::from(loads.turn()) % (u64::from(peers) + 1)) as u32;
        let left = peers.saturating_sub(position);
        to_position(job, loads, position, if left < FULL_SCAN { left } else { FULL_SCAN })
    }
}

struct First {
    now_ns: u64,
    node: u16,
    found: bool,
}

impl Visit for First {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        if !self.found && row.is_candidate(self.now_ns) {
            self.found = true;
            self.node = node;
        }
    }
}

/// To the first candidate among the `count` peers from `position` on; `count` = 0 says that the position is this
/// node's.
#[inline(always)]
pub(super) fn to_position<L: LoadView>(job: &Job, loads: &L, position: u32, count: u32) -> Decision {
    if count == 0 {
        return Decision::stay(0, Why::Turn);
    }
    let mut first = First { now_ns: job.now_ns, node: 0, found: false };
    loads.visit(position, 1, count, &mut first);
    if first.found {
        Decision { verdict: Verdict::Redirect(first.node), here: 0, there: u64::MAX, why: Why::Turn, done_ns: 0 }
    } else {
        Decision::stay(0, Why::Alone)
    }
}

#[cfg(test)]
mod tests {
    use super::super::PolicyKind;
    use super::super::testing::*;
    use super::*;
    use crate::load::Here;
    use crate::maps::LoadRow;
    use proptest::prelude::*;
    use std::vec::Vec;

    const KIND: PolicyKind = PolicyKind::RoundRobin;

    proptest! {
        #[test]
        fn the_next_candidate_in_order_has_the_turn(table in table(), turn: u32, random: u32) {
            table.turn.set(turn);
            let decision = decide(KIND, &job(5_000, random), &params(KIND), &table);
            // Written out: the nodes in order, this one last; skip what is stale.
            let order: Vec<usize> = (1..table.rows.len()).chain([0]).collect();
            let from = (f64::from(turn) % order.len() as f64) as usize;
            let taker = order[from..].iter().find(|node| **node == 0 || table.rows[**node].is_candidate(NOW));
            let found = if let Verdict::Redirect(node) = decision.verdict { usize::from(node) } else { 0 };
            prop_assert_eq!(Some(&found), taker);
        }
    }

    /// How many of `packets` each node gets.
    fn spread(table: &Table, packets: u32) -> Vec<u32> {
        let mut got = std::vec![0; table.rows.len()];
        for _ in 0..packets {
            match decide(KIND, &job(5_000, 0), &params(KIND), table).verdict {
                Verdict::Redirect(node) => got[usize::from(node)] += 1,
                Verdict::Local => got[0] += 1,
            }
        }
        got
    }

    #[test]
    fn everyone_has_the_same_number_of_packets() {
        let busy = LoadRow { backlog_ns: 1_000_000, queued_milli: 90_000, ..idle() };
        assert_eq!(spread(&Table::new(Here::default(), [idle(), busy, idle()]), 12), [3, 3, 3, 3]);
    }

    #[test]
    fn a_silent_node_passes_its_turn_on() {
        let stale = LoadRow { valid_until_ns: NOW, ..idle() };
        assert_eq!(spread(&Table::new(Here::default(), [idle(), stale, idle()]), 12), [3, 3, 0, 6]);
        assert_eq!(
            spread(&Table::new(Here::default(), [idle(), idle(), stale]), 12),
            [6, 3, 3, 0],
            "this node is next"
        );
        assert_eq!(spread(&Table::new(Here::default(), []), 3), [3]);
    }
}

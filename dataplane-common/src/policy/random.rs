//! `random`: this node or a peer, each with the same probability: what load balancing without any knowledge achieves.
//!
//! ```text
//! position = uniform in 0 ..= peers        position `peers` is here
//! redirect to the peer at `position` if it is a candidate; else stay
//! ```
//! Ignores: load, the packet's cost, forwarding cost, speeds and numbers of workers. Cost: one row.

use super::round_robin::to_position;
use super::{Decision, Homes, Job, Needs, Policy};
use crate::hash::below;
use crate::load::LoadView;
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct Random;

impl Policy for Random {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, _params: &Params, loads: &L) -> Decision {
        let peers = loads.peers();
        let position = below(job.random, peers.saturating_add(1));
        to_position(job, loads, position, if position < peers { 1 } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict, Why};
    use crate::load::{Here, Row};
    use proptest::prelude::*;

    const KIND: PolicyKind = PolicyKind::Random;

    proptest! {
        #[test]
        fn the_random_number_alone_says_where(table in table(), ept in 0u32..2_000_000, random: u32) {
            let decision = decide(KIND, &job(ept, random), &params(KIND), &table);
            let position = (f64::from(random) / 2f64.powi(32) * table.rows.len() as f64) as usize;
            // Row 0 is this node's, and it comes last.
            let expected = match table.rows.get(position + 1) {
                None => (Verdict::Local, Why::Turn),
                Some(row) if row.is_candidate(NOW) => (Verdict::Redirect(position as u16 + 1), Why::Turn),
                Some(_) => (Verdict::Local, Why::Alone),
            };
            prop_assert_eq!((decision.verdict, decision.why), expected);
        }
    }

    #[test]
    fn every_node_gets_its_share() {
        let table = Table::new(Here::default(), [idle(), idle(), idle(), idle()]);
        let mut got = [0u32; 5];
        for at in 0..50_000u64 {
            match decide(KIND, &job(5_000, crate::hash::mix(at) as u32), &params(KIND), &table).verdict {
                Verdict::Redirect(node) => got[usize::from(node)] += 1,
                Verdict::Local => got[0] += 1,
            }
        }
        // Standard deviation: 89 packets.
        assert!(got.iter().all(|packets| (9_600..10_400).contains(packets)), "{got:?}");
    }
}

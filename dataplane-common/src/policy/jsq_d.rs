//! `jsq-d`: join the shortest of `choices` queues drawn at random and of this node's.
//!
//! ```text
//! S = `choices` peers, drawn uniformly
//! redirect to argmin over S of there_j  iff  there_j < here        (both as in least-connections)
//! ```
//! The power of d choices (Mitzenmacher, IEEE TPDS 2001; Vvedenskaya, Dobrushin and Karpelevich, 1996): with two, the
//! share of servers with at least k packets falls as ρ^(2^k − 1) instead of ρ^k. With old reports the draw is worth
//! more than the minimum: nodes that look at different peers do not all run to the same one (Mitzenmacher, IEEE TPDS
//! 2000), so `choices` should fall as reports get older. Ignores: what least-connections ignores. Cost: `choices`
//! rows, whatever the number of nodes.

use super::least_connections::Shortest;
use super::{Decision, Homes, Job, Needs, Policy};
use crate::hash::{another, below};
use crate::load::{LoadView, Visit};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct JsqD;

impl Policy for JsqD {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let mut shortest = Shortest::new(job.now_ns);
        draw(loads, job.random, params.tuning.choices, &mut shortest);
        shortest.against(loads)
    }
}

/// Shows `count` peers, drawn by `random`, to `visitor`, or all when there are no more than that.
///
/// The draw is a random start and a random stride: two peers are a uniform pair; of more, some may be seen twice when
/// the stride divides the number of peers.
#[inline(always)]
pub(super) fn draw<L: LoadView, V: Visit>(loads: &L, random: u32, count: u32, visitor: &mut V) {
    let peers = loads.peers();
    if peers == 0 {
        return;
    }
    let start = below(random, peers);
    if count < peers {
        loads.visit(start, 1 + below(another(random), peers - 1), count, visitor);
    } else {
        loads.visit(start, 1, peers, visitor);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::least_connections::tests::{check, in_progress};
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict};
    use super::*;
    use crate::hash::mix;
    use crate::load::{Here, Row};
    use crate::maps::LoadRow;
    use crate::tuning::Tuning;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    /// The candidates of a draw, with their ids.
    pub fn drawn(table: &Table, random: u32, count: u32) -> Vec<(u16, &LoadRow)> {
        struct Seen(Vec<u16>);
        impl Visit for Seen {
            fn node<R: Row>(&mut self, node: u16, _row: &R) {
                self.0.push(node);
            }
        }
        let mut seen = Seen(Vec::new());
        draw(&table, random, count, &mut seen);
        let rows = seen.0.iter().map(|node| (*node, &table.rows[usize::from(*node)]));
        rows.filter(|(_, row)| row.is_candidate(NOW)).collect()
    }

    const KIND: PolicyKind = PolicyKind::JsqD;

    proptest! {
        #[test]
        fn agrees_with_the_formula_on_the_drawn(table in table(), choices in 1u32..12, random: u32) {
            let tuning = Tuning { choices, ..Tuning::DEFAULT };
            let decision = decide(KIND, &job(5_000, random), &Params { tuning, ..params(KIND) }, &table);
            check(decision, table.here.queued_milli.into(), drawn(&table, random, choices), in_progress, 0.0)?;
        }

        #[test]
        fn two_of_many_differ_and_all_of_few_are_seen(peers in 0usize..40, count in 1u32..20, random: u32) {
            let table = Table::new(Here::default(), (0..peers).map(|_| idle()));
            let seen = drawn(&table, random, count);
            prop_assert_eq!(seen.len(), peers.min(count as usize));
            if count <= 2 || count as usize >= peers {
                let different: BTreeSet<_> = seen.iter().map(|(node, _)| *node).collect();
                prop_assert_eq!(different.len(), seen.len());
            }
        }
    }

    #[test]
    fn the_shorter_of_two_is_a_third_from_the_best() {
        // Peers 1 to 89 have as many packets as their number; the least of two different ones is 90 / 3 on average.
        let queue = |packets: u32| LoadRow { queued_milli: packets * 1000, ..idle() };
        let table = Table::new(Here { queued_milli: u32::MAX, ..Here::default() }, (1..90).map(queue));
        let chosen = |at: u64| match decide(KIND, &job(5_000, mix(at) as u32), &params(KIND), &table).verdict {
            Verdict::Redirect(node) => f64::from(node),
            Verdict::Local => panic!("stayed with the longest queue"),
        };
        let mean = (0..20_000).map(chosen).sum::<f64>() / 20_000.0;
        // Standard deviation of the mean: 0.15.
        assert!((mean - 30.0).abs() < 0.6, "{mean}");
    }
}

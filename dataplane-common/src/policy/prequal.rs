//! `prequal`: the hot-cold lexicographic rule of Prequal, on a pool out of the load table.
//!
//! ```text
//! pool    = this node and up to 15 candidates, all or drawn
//! RIF_j   = Q_j + frames in flight to j / workers of j        requests in flight; here Q_here
//! hot     : more than rif_quantile of the others in the pool have a smaller RIF
//! value_j = max(mean response time of packets sent to j, ERL_j) when cold, 2^32 + RIF_j when hot
//! here    = W_here + C when cold, 2^32 + Q_here when hot
//! redirect to argmin value_j  iff  value_j < here
//! ```
//! After Wydrowski, Kleinberg, Rumble and Archer, *Load is not what you should balance: Introducing Prequal* (NSDI
//! 2024): among nodes with few requests in flight take the fastest, and only when all have many the one with the
//! fewest. Quantile 0 is control by requests in flight alone, 1 by latency alone. Differs: a pool of probe answers
//! ages and is used up, while the load table always holds the last report of every node, and frames sent since stand
//! for the paper's count of uses; so there are no probes. A probe says what latency is at the present RIF; a mean of
//! past responses does not, and so must not undercut what is known to wait there (ERL: reported, and in flight from
//! here). The quantile is that of the pool, not of a history, so a node with the fewest is always cold. Ignores: the
//! packet's own size, forwarding cost but for what the response time holds of it. Cost: two passes over at most 15
//! nodes and 16 comparisons each.

use super::jsq_d::draw;
use super::least_connections::in_progress_milli;
use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::{Erl, LoadView, Row, Visit, Word, saturate};
use crate::maps::Params;
use crate::plan::NoPlan;

/// Nodes in the pool, this one included: what the paper uses.
const POOL: u32 = 16;
/// Added to the value of a hot node: more than any latency.
const HOT: u64 = 1 << 32;
/// Requests in flight that no node has, thousandths: those of a place in the pool that is not in use.
const UNUSED: u32 = i32::MAX as u32;

/// See the module.
pub struct Prequal;

impl Policy for Prequal {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS.and(Needs::RESULTS);
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let here = loads.here();
        let (here_rif, latency_ns) =
            (rif_milli(here.queued_milli.into()), u64::from(here.backlog_ns) + u64::from(job.ept_ns));
        let mut pool = Pool { now_ns: job.now_ns, rifs_milli: [UNUSED; POOL as usize], nodes: 1 };
        pool.rifs_milli[0] = here_rif;
        draw(loads, job.random, POOL - 1, &mut pool);
        let mut best = Best { pool: &pool, quantile_milli: params.tuning.rif_quantile_milli, node: 0, value: u64::MAX };
        // The same random number draws the same nodes.
        draw(loads, job.random, POOL - 1, &mut best);
        Decision::compare(best.value_of(here_rif, saturate(latency_ns)), best.node, best.value, 0)
    }
}

/// `milli` requests in flight as the pool holds them.
#[inline(always)]
const fn rif_milli(milli: u64) -> u32 {
    if milli < UNUSED as u64 { milli as u32 } else { UNUSED - 1 }
}

/// Requests in flight of the pool, thousandths.
struct Pool {
    now_ns: u64,
    rifs_milli: [u32; POOL as usize],
    nodes: u32,
}

impl Visit for Pool {
    #[inline(always)]
    fn node<R: Row>(&mut self, _node: u16, row: &R) {
        // The bound also bounds the states in which the verifier can find the pool.
        if self.nodes < POOL && row.is_candidate(self.now_ns) {
            self.rifs_milli[self.nodes as usize] = rif_milli(in_progress_milli(row));
            self.nodes += 1;
        }
    }
}

/// The node of the pool with the least value, but for this one.
struct Best<'p> {
    pool: &'p Pool,
    quantile_milli: u32,
    node: u16,
    value: u64,
}

impl Best<'_> {
    /// The lexicographic order as one number.
    #[inline(always)]
    fn value_of(&self, rif_milli: u32, latency_ns: u32) -> u64 {
        let mut smaller = 0;
        for other in self.pool.rifs_milli {
            // The borrow of the difference, both being below 2^31. Sixteen comparisons would be sixteen branches, and the
            // verifier takes each both ways.
            smaller += other.wrapping_sub(rif_milli) >> 31;
        }
        let is_hot = smaller * 1000 > self.quantile_milli * (self.pool.nodes - 1);
        if is_hot { HOT + u64::from(rif_milli) } else { u64::from(latency_ns) }
    }
}

impl Visit for Best<'_> {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let response_ns = row.word(Word::Response) as u32;
        let waiting_ns = saturate(row.erl_ns(Erl::Ack, self.pool.now_ns));
        let latency_ns = if response_ns < waiting_ns { waiting_ns } else { response_ns };
        let value = self.value_of(rif_milli(in_progress_milli(row)), latency_ns);
        if value < self.value && row.is_candidate(self.pool.now_ns) {
            self.value = value;
            self.node = node;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::jsq_d::tests::drawn;
    use super::super::least_connections::tests::{check, in_progress};
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict};
    use super::*;
    use crate::load::Here;
    use crate::maps::LoadRow;
    use crate::tuning::Tuning;
    use proptest::prelude::*;
    use std::vec::Vec;

    const KIND: PolicyKind = PolicyKind::Prequal;

    fn params_with(rif_quantile_milli: u32) -> Params {
        Params { tuning: Tuning { rif_quantile_milli, ..Tuning::DEFAULT }, ..params(KIND) }
    }

    /// A decision at `quantile` against a pool that is sorted.
    fn agrees(table: &Table, ept: u32, quantile: u32, random: u32) -> Result<(), TestCaseError> {
        let decision = decide(KIND, &job(ept, random), &params_with(quantile), table);
        let seen = drawn(table, random, 15);
        let rif = |row: &LoadRow| in_progress(row).floor();
        let here_rif = f64::from(table.here.queued_milli);
        let mut sorted: Vec<f64> = seen.iter().map(|(_, row)| rif(row)).chain([here_rif]).collect();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len() - 1) * quantile as usize / 1000;
        let value = |rif: f64, latency: f64| if rif > sorted[at] { 2f64.powi(32) + rif } else { latency };
        let latency = |row: &LoadRow| {
            let in_flight = f64::from((row.sent_ns as u32).wrapping_sub(row.acked_ns)) / f64::from(row.workers);
            f64::from(row.response_ns).max(f64::from(row.backlog_ns) + in_flight)
        };
        let here = value(here_rif, f64::from(table.here.backlog_ns + ept));
        check(decision, here, seen, |row| value(rif(row), latency(row)), 0.0)
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_pool(table in table(), ept in 0u32..2_000_000, quantile in 0u32..=1000, random: u32) {
            agrees(&table, ept, quantile, random)?;
        }

        #[test]
        fn agrees_with_a_sorted_pool_out_of_many(
            table in table(),
            many in proptest::collection::vec(row(), 14..24),
            quantile in 0u32..=1000,
            random: u32,
        ) {
            let mut table = table;
            table.rows.extend(many);
            agrees(&table, 50_000, quantile, random)?;
        }
    }

    /// Peer 1 is the fastest and has the most in flight; this node waits longest.
    fn fast_but_hot() -> Table {
        let peer = |response_ns, packets: u32| LoadRow { response_ns, queued_milli: packets * 1000, ..idle() };
        let here = Here { backlog_ns: 100_000, queued_milli: 3000, ..Here::default() };
        Table::new(here, [peer(10_000, 9), peer(20_000, 2), peer(30_000, 1)])
    }

    #[test]
    fn the_quantile_decides_between_latency_and_requests_in_flight() {
        // All others have fewer in flight than peer 1, one of the three others has fewer than peer 2.
        for (quantile, node) in [(1000, 1), (999, 2), (334, 2), (333, 3), (0, 3)] {
            let decision = decide(KIND, &job(5_000, 0), &params_with(quantile), &fast_but_hot());
            assert_eq!(decision.verdict, Verdict::Redirect(node), "quantile {quantile}");
            assert_eq!(decision.there, u64::from(node) * 10_000);
        }
    }

    #[test]
    fn a_hot_node_sends_even_to_slower_ones() {
        let here = Here { backlog_ns: 0, queued_milli: 3000, ..Here::default() };
        let table = Table::new(here, [LoadRow { response_ns: 500_000, queued_milli: 1000, ..idle() }]);
        assert_eq!(decide(KIND, &job(5_000, 0), &params_with(840), &table).verdict, Verdict::Redirect(1));
        assert_eq!(decide(KIND, &job(5_000, 0), &params_with(1000), &table).verdict, Verdict::Local);
    }

    #[test]
    fn a_fast_past_does_not_hide_what_waits() {
        for (backlog_ns, node) in [(0, 2), (29_999, 2), (30_001, 3)] {
            let mut table = fast_but_hot();
            table.rows[2].backlog_ns = backlog_ns;
            assert_eq!(decide(KIND, &job(5_000, 0), &params_with(500), &table).verdict, Verdict::Redirect(node));
        }
    }

    #[test]
    fn a_queue_beyond_all_bounds_is_hot_but_among_its_like() {
        let peer = LoadRow { queued_milli: u32::MAX, response_ns: 20_000, ..idle() };
        for (queued_milli, there) in [(5000, HOT + u64::from(UNUSED - 1)), (u32::MAX, 20_000)] {
            let table = Table::new(Here { backlog_ns: 50_000, queued_milli, ..Here::default() }, [peer]);
            assert_eq!(decide(KIND, &job(5_000, 0), &params_with(840), &table).there, there);
        }
    }

    #[test]
    fn frames_in_flight_heat_a_node_before_its_next_report() {
        let mut table = fast_but_hot();
        let verdict = |table: &Table| decide(KIND, &job(5_000, 0), &params_with(500), table).verdict;
        assert_eq!(verdict(&table), Verdict::Redirect(2));
        table.rows[2].sent_frames = 2;
        assert_eq!(verdict(&table), Verdict::Redirect(3));
    }
}

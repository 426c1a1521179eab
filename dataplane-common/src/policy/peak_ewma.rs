//! `peak-ewma`: the lesser of two products of peak response time and packets on their way.
//!
//! ```text
//! S       = 2 peers, drawn uniformly
//! R_j     = max(peak response time of j · e^(−age/τ), F + C)       τ = peak · mean service time
//! there_j = R_j · (outstanding_j + 1)
//! here    = W_here + C
//! redirect to argmin over S of there_j  iff  there_j < here
//! ```
//! The Peak EWMA load metric and the choice of two of Finagle (Twitter, `com.twitter.finagle.loadbalancer`): a
//! response time worse than the mean is taken at once, better ones slowly, and all is forgotten with time, so that a
//! node that was slow is tried again. `outstanding` is the number of frames sent there that no result has come back
//! for.
//!
//! This node's value is its cost *times one*. The factor of the others stands for what their measured time cannot know
//! yet, the packets on their way; the backlog here is not measured but known, and holds every packet already. Finagle
//! keeps nodes without a measurement away while a request to them is open; here no node counts as faster than an idle
//! one could be, F + C, which bounds them without waiting for a result that may have been lost. Ignores: reported
//! loads, and sizes of the packets on their way. Cost: two rows.

use super::jsq_d::draw;
use super::{Decision, Homes, Job, Needs, Policy};
use crate::decay;
use crate::load::{LoadView, Row, Visit, Word, saturate};
use crate::maps::Params;
use crate::plan::NoPlan;

/// Peers looked at.
const CHOICES: u32 = 2;

/// See the module.
pub struct PeakEwma;

impl Policy for PeakEwma {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::RESULTS.and(Needs::REPORTS);
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let service_ns = u64::from(loads.signals().service_ns);
        let forget_ns = saturate(service_ns * u64::from(params.tuning.peak_milli) / 1000);
        let least_ns = u64::from(loads.forwarding().total_ns(job.bytes)) + u64::from(job.ept_ns);
        let mut least = Least { now_ns: job.now_ns, node: 0, value: u64::MAX, forget_ns, least_ns };
        draw(loads, job.random, CHOICES, &mut least);
        let here = u64::from(loads.here().backlog_ns) + u64::from(job.ept_ns);
        Decision::compare(here, least.node, least.value, 0)
    }
}

struct Least {
    now_ns: u64,
    node: u16,
    value: u64,
    /// Time in which a response time is forgotten.
    forget_ns: u32,
    /// What no response time is below.
    least_ns: u64,
}

impl Visit for Least {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let (peak_ns, peak_us) = row.halves(Word::Peak);
        let age = ((self.now_ns >> 10) as u32).wrapping_sub(peak_us);
        // A result that came after `now_ns` was read has no age.
        let age_ns = if age >= 1 << 31 { 0 } else { u64::from(age) << 10 };
        let decayed_ns = u64::from(decay::after(peak_ns, age_ns, self.forget_ns));
        let response_ns = if decayed_ns < self.least_ns { self.least_ns } else { decayed_ns };
        // 33 and 31 bits.
        let value = response_ns * (u64::from(row.outstanding()) + 1);
        if value < self.value && row.is_candidate(self.now_ns) {
            self.value = value;
            self.node = node;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::jsq_d::tests::drawn;
    use super::super::least_connections::tests::check;
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict};
    use super::*;
    use crate::load::Here;
    use crate::maps::LoadRow;
    use crate::tuning::Tuning;
    use proptest::prelude::*;

    const KIND: PolicyKind = PolicyKind::PeakEwma;

    proptest! {
        #[test]
        fn agrees_with_the_formula_on_the_drawn(
            table in table(),
            ept in 0u32..500_000,
            peak_milli in 1_000u32..1_000_000,
            random: u32,
        ) {
            let tuning = Tuning { peak_milli, ..Tuning::DEFAULT };
            let decision = decide(KIND, &job(ept, random), &Params { tuning, ..params(KIND) }, &table);
            let cost = &table.forwarding;
            // 200 bytes at 1 ns each.
            let idle = f64::from(cost.send_ns + cost.receive_ns + cost.wire_ns + 200 + ept);
            let tau = f64::from(table.signals.service_ns) * f64::from(peak_milli) / 1000.0;
            let load = |row: &LoadRow| {
                let age = 1024.0 * f64::from(((NOW >> 10) as u32).wrapping_sub(row.peak_us));
                let outstanding = f64::from((row.sent_frames as u32).wrapping_sub(row.completed_frames as u32));
                (f64::from(row.peak_ns) * (-age / tau).exp()).max(idle) * (outstanding + 1.0)
            };
            let here = f64::from(table.here.backlog_ns) + f64::from(ept);
            // What e^−x is good to, and half of it twice.
            check(decision, here, drawn(&table, random, 2), load, 0.075)?;
        }
    }

    /// A peer that answered `ago_ns` ago, after `peak_ns` at worst.
    fn peer(peak_ns: u32, ago_ns: u64) -> LoadRow {
        LoadRow { peak_ns, peak_us: ((NOW - ago_ns) >> 10) as u32, ..idle() }
    }

    #[test]
    fn a_peak_keeps_packets_away_until_it_is_forgotten() {
        let here = Here { backlog_ns: 100_000, ..Here::default() };
        // τ is 100 · 10 µs.
        let at = |ago_ns| {
            let table = Table::new(here, [peer(800_000, ago_ns)]);
            decide(KIND, &job(10_000, 0), &params(KIND), &table).verdict
        };
        assert_eq!([0, 1_500_000, 2_500_000].map(at), [Verdict::Local, Verdict::Local, Verdict::Redirect(1)]);
    }

    #[test]
    fn a_node_that_never_answered_is_tried_a_few_times() {
        let here = Here { backlog_ns: 100_000, ..Here::default() };
        let mut table = Table::new(here, [peer(0, 0)]);
        let mut sent = 0;
        while decide(KIND, &job(10_000, 0), &params(KIND), &table).verdict == Verdict::Redirect(1) {
            table.rows[1].sent_frames += 1;
            sent += 1;
        }
        assert_eq!(sent, 4, "one answers in 25.2 µs at best, and 110 µs is what this node takes");
    }

    #[test]
    fn a_result_from_the_future_is_fresh() {
        let here = Here { backlog_ns: 100_000, ..Here::default() };
        let table = Table::new(here, [LoadRow { peak_us: (NOW >> 10) as u32 + 1, ..peer(800_000, 0) }]);
        assert_eq!(decide(KIND, &job(10_000, 0), &params(KIND), &table).verdict, Verdict::Local);
    }
}

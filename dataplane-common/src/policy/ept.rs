//! `ept`: distribution by estimated processing time (Jang, KAIST 2005), with remote loads as last reported.
//!
//! ```text
//! here   = W_here + C              there_j = F + W_j + C
//! redirect to argmin there_j  iff  there_j + margin < here  and  send + receive < C   (the guard)
//! ```
//! `C` is the packet's estimated processing time, `W` the work ahead of it, `F` the forwarding cost: both ends' CPU and the
//! wire. The guard refuses redirects that burn more CPU than they move; without it a busy cluster of short packets spends
//! its time relaying. Cost: one pass over the nodes, or over a sample of them.

use super::{Decision, Homes, Job, Needs, Policy, Why, look};
use crate::load::{Erl, LoadView, Row, Visit};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct Ept;

impl Policy for Ept {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        least_ept(job, params, loads, Erl::Off)
    }
}

struct Least {
    now_ns: u64,
    node: u16,
    wait_ns: u64,
    erl: Erl,
}

impl Visit for Least {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let wait_ns = row.erl_ns(self.erl, self.now_ns);
        if wait_ns < self.wait_ns && row.is_candidate(self.now_ns) {
            self.wait_ns = wait_ns;
            self.node = node;
        }
    }
}

/// The rule of the module, with the remote wait estimated by `erl`.
#[inline(always)]
pub(super) fn least_ept<L: LoadView>(job: &Job, params: &Params, loads: &L, erl: Erl) -> Decision {
    let service = u64::from(job.ept_ns);
    let here = u64::from(loads.here().backlog_ns) + service;
    let cost = loads.forwarding();
    if params.guard != 0 && cost.cpu_ns() >= service {
        return Decision::stay(here, Why::Guard);
    }
    // A redirect must gain at least the forwarding cost, so a short queue needs no look at the others.
    let forward = u64::from(cost.total_ns(job.bytes));
    if here <= forward + service + u64::from(params.margin_ns) {
        return Decision::stay(here, Why::Short);
    }
    let mut least = Least { now_ns: job.now_ns, node: 0, wait_ns: u64::MAX, erl };
    look(loads, job.random, params.tuning.sample, &mut least);
    let there = if least.wait_ns == u64::MAX { u64::MAX } else { forward + least.wait_ns + service };
    Decision::compare(here, least.node, there, u64::from(params.margin_ns))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict};
    use super::*;
    use crate::load::Here;
    use proptest::prelude::*;

    /// The thesis's rule in f64, obviously right: the wait at the best candidate, if it finishes sooner by the margin.
    fn model(table: &Table, params: &Params, job: &Job, wait: impl Fn(&crate::maps::LoadRow) -> f64) -> Option<f64> {
        let c = f64::from(job.ept_ns);
        let cost = &table.forwarding;
        let cpu = f64::from(cost.send_ns) + f64::from(cost.receive_ns);
        let per_byte = f64::from(cost.wire_ns_per_byte_q16) / 65536.0;
        let forward = cpu + f64::from(cost.wire_ns) + job.bytes as f64 * per_byte;
        if cpu >= c {
            return None;
        }
        let best = table.candidates().map(|(_, row)| wait(row)).fold(f64::INFINITY, f64::min);
        let here = f64::from(table.here.backlog_ns) + c;
        (forward + best + c + f64::from(params.margin_ns) < here).then_some(best)
    }

    /// A decision of an `ept` policy is the model's: the same verdict, and the chosen node is one of the best.
    pub fn check(
        table: &Table,
        (kind, params): (PolicyKind, &Params),
        job: &Job,
        wait: impl Fn(&crate::maps::LoadRow) -> f64 + Copy,
    ) -> Result<(), TestCaseError> {
        let decision = decide(kind, job, params, table);
        match (decision.verdict, model(table, params, job, wait)) {
            (Verdict::Local, None) => Ok(()),
            (Verdict::Redirect(node), Some(best)) => {
                let chosen = wait(&table.rows[usize::from(node)]);
                prop_assert!((chosen - best).abs() < 1.0, "chose {chosen} where {best} was best");
                Ok(())
            }
            (verdict, best) => Err(TestCaseError::fail(std::format!("{verdict:?} against {best:?}"))),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_formula(table in table(), ept in 0u32..2_000_000, random: u32) {
            let kind = PolicyKind::Ept;
            check(&table, (kind, &params(kind)), &job(ept, random), |row| f64::from(row.backlog_ns))?;
        }
    }

    #[test]
    fn the_guard_keeps_packets_that_cost_less_than_a_redirect() {
        let busy = Here { backlog_ns: 50_000_000, queued_milli: 9000, ..Here::default() };
        let table = Table::new(busy, [idle()]);
        let kind = PolicyKind::EptErl;
        let guarded = decide(kind, &job(5_000, 0), &params(kind), &table);
        assert_eq!((guarded.verdict, guarded.why), (Verdict::Local, Why::Guard), "send + receive is 5 µs");
        assert_eq!(decide(kind, &job(5_001, 0), &params(kind), &table).verdict, Verdict::Redirect(1));
        let unguarded = Params { guard: 0, ..params(kind) };
        assert_eq!(decide(kind, &job(1, 0), &unguarded, &table).verdict, Verdict::Redirect(1));
    }
}

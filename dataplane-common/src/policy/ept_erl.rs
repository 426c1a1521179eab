//! `ept-erl`: [`super::ept`] with the estimated remote load (ERL) of the thesis: what a node reported plus what this node has
//! sent there, by one of the modes of [`Erl`]: exact under loss (`ack`, the default), the literal rule (`add`), or drained.
//!
//! Between two reports a node that looked idle receives one packet, not all of them.

use super::{Decision, Homes, Job, Needs, Policy, ept::least_ept};
use crate::load::{Erl, LoadView};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct EptErl;

impl Policy for EptErl {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        least_ept(job, params, loads, Erl::from_id(params.tuning.erl))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ept::tests::check;
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict};
    use super::*;
    use crate::load::Here;
    use crate::tuning::Tuning;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_the_formula_in_every_mode(table in table(), ept in 0u32..2_000_000, random: u32) {
            let kind = PolicyKind::EptErl;
            for (name, erl) in Erl::NAMES {
                let tuning = Tuning { erl: erl as u32, ..Tuning::DEFAULT };
                let wait = |row: &crate::maps::LoadRow| {
                    let backlog = f64::from(row.backlog_ns);
                    let sent_after = |position: u32| {
                        (f64::from((row.sent_ns as u32).wrapping_sub(position)) / f64::from(row.workers)).floor()
                    };
                    match name {
                        "off" => backlog,
                        "add" => backlog + sent_after(row.marked_ns),
                        "drain" => (backlog + sent_after(row.marked_ns) - (NOW - row.reported_at_ns) as f64).max(0.0),
                        _ => backlog + sent_after(row.acked_ns),
                    }
                };
                check(&table, (kind, &Params { tuning, ..params(kind) }), &job(ept, random), wait)?;
            }
        }
    }

    #[test]
    fn spreads_what_reports_alone_would_pile_up() {
        let busy = Here { backlog_ns: 5_000_000, queued_milli: 9000, ..Here::default() };
        for (kind, most) in [(PolicyKind::Ept, 10), (PolicyKind::EptErl, 5)] {
            let mut table = Table::new(busy, [idle(), idle()]);
            for _ in 0..10 {
                // Begin at node 1: without ERL, every tie falls on it.
                let Verdict::Redirect(node) = decide(kind, &job(100_000, 0), &params(kind), &table).verdict else {
                    panic!("{kind:?} stayed local")
                };
                table.rows[usize::from(node)].sent_ns += 100_000;
            }
            assert_eq!(table.rows[1].sent_ns, most * 100_000, "{kind:?}");
        }
    }
}

//! `jiq`: join an idle queue.
//!
//! ```text
//! stay  iff  Q_here = 0  or  no peer is idle
//! else redirect to an idle peer:  Q_j = 0 in its report, and nothing sent there that the report does not include
//! ```
//! After Lu, Xie, Kliot, Geller, Larus and Greenberg, *Join-Idle-Queue* (Performance Evaluation 2011): idle servers
//! hand out tokens, a dispatcher spends one per packet and, when it has none, does not look for the shortest queue.
//! Here a report of an empty queue is the token; sending spends it until a report includes the send. Differs: the
//! paper gives each token to one dispatcher, a report gives it to all, so two nodes may spend the same one; a packet
//! without a token stays instead of going to a random server. Ignores: sizes of packets, forwarding cost, speeds, and
//! all that is not idle. Cost: one pass over the nodes, or over a sample of them.

use super::{Decision, Homes, Job, Needs, Policy, Why, look};
use crate::load::{LoadView, Row, Visit};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct Jiq;

impl Policy for Jiq {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let here = u64::from(loads.here().queued_milli);
        if here == 0 {
            return Decision::stay(0, Why::Short);
        }
        let mut token = Token { now_ns: job.now_ns, node: 0, queue_milli: u64::MAX };
        look(loads, job.random, params.tuning.sample, &mut token);
        Decision::compare(here, token.node, token.queue_milli, 0)
    }
}

/// The first idle candidate; `queue_milli` is its queue, 0, once there is one.
struct Token {
    now_ns: u64,
    node: u16,
    queue_milli: u64,
}

impl Visit for Token {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        // Work in flight tells a spent token by positions, which are exact although frames may be lost.
        let idle = row.queued_milli() == 0 && row.in_flight_ns() == 0;
        if idle && self.queue_milli != 0 && row.is_candidate(self.now_ns) {
            self.queue_milli = 0;
            self.node = node;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict};
    use super::*;
    use crate::load::Here;
    use crate::maps::LoadRow;
    use proptest::prelude::*;
    use std::vec::Vec;

    const KIND: PolicyKind = PolicyKind::Jiq;

    proptest! {
        #[test]
        fn takes_an_idle_peer_when_this_node_is_not(
            mut table in table(),
            emptied in proptest::collection::vec(any::<bool>(), 9),
            random: u32,
        ) {
            // Few random rows are idle: empty some.
            for (row, empty) in table.rows.iter_mut().zip(emptied) {
                if empty {
                    (row.queued_milli, row.sent_ns) = (0, row.acked_ns.into());
                }
            }
            let decision = decide(KIND, &job(5_000, random), &params(KIND), &table);
            let idle = |row: &LoadRow| f64::from(row.queued_milli) == 0.0 && row.sent_ns as u32 == row.acked_ns;
            let tokens: Vec<u16> = table.candidates().filter(|(_, row)| idle(row)).map(|(node, _)| node).collect();
            let here = u64::from(table.here.queued_milli);
            let expected = match (here, tokens.is_empty()) {
                (0, _) => (Why::Short, u64::MAX),
                (_, true) => (Why::Alone, u64::MAX),
                _ => (Why::Worse, 0),
            };
            prop_assert_eq!((decision.why, decision.there, decision.here), (expected.0, expected.1, here));
            match decision.verdict {
                Verdict::Local => prop_assert!(here == 0 || tokens.is_empty()),
                Verdict::Redirect(node) => prop_assert!(tokens.contains(&node)),
            }
        }
    }

    #[test]
    fn a_token_is_spent_once() {
        let mut table = Table::new(Here { queued_milli: 5000, ..Here::default() }, [idle(), idle()]);
        let verdicts: Vec<Verdict> = (0..3)
            .map(|_| {
                let verdict = decide(KIND, &job(5_000, 0), &params(KIND), &table).verdict;
                if let Verdict::Redirect(node) = verdict {
                    table.rows[usize::from(node)].sent_ns += 5_000;
                }
                verdict
            })
            .collect();
        assert_eq!(verdicts, [Verdict::Redirect(1), Verdict::Redirect(2), Verdict::Local]);
        table.rows[2].acked_ns = 5_000;
        let fresh = decide(KIND, &job(5_000, 0), &params(KIND), &table);
        assert_eq!(fresh.verdict, Verdict::Redirect(2), "a report that includes the send is a new token");
    }
}

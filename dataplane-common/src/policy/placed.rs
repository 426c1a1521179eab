//! The fast half of every placing policy: look up a slot of the plan and go where it says.

use super::{Decision, Job, Verdict, Why};
use crate::load::{LoadView, Row};
use crate::maps::Params;
use crate::plan::{NOWHERE, slot_of};

/// Where the plan puts `slot`; its work is counted for the slot wherever it goes.
///
/// The packet stays when the slot is this node's, everybody's or nobody's ([`Why::Plan`]), and when the node that has it
/// may not take a packet now ([`Why::Alone`]): the next plan leaves that node out. Cost: one slot and one row.
#[inline(always)]
pub(super) fn planned<L: LoadView>(job: &Job, params: &Params, loads: &L, slot: u32) -> Decision {
    loads.charge_slot(slot, job.ept_ns);
    to_node(job, params, loads, loads.slot(slot))
}

/// As [`planned`], by a slot of table 0 drawn at random: the rule of every policy that gives nodes slots by weight.
#[inline(always)]
pub(super) fn drawn<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
    planned(job, params, loads, slot_of(0, job.random))
}

/// To `node`, as a plan names it, if it may take a packet.
#[inline(always)]
pub(super) fn to_node<L: LoadView>(job: &Job, params: &Params, loads: &L, node: u16) -> Decision {
    // HERE and NOWHERE are the two largest numbers; no node has them.
    if node >= NOWHERE || node == params.node {
        return Decision::stay(0, Why::Plan);
    }
    match loads.row(node) {
        Some(row) if row.is_candidate(job.now_ns) => {
            Decision { verdict: Verdict::Redirect(node), here: 0, there: u64::MAX, why: Why::Plan, done_ns: 0 }
        }
        _ => Decision::stay(0, Why::Alone),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::load::Here;
    use crate::maps::LoadRow;
    use crate::plan::{HERE, SLOTS};
    use proptest::prelude::*;

    /// Node 0 plans; node 1 is a candidate, node 2 is stale.
    fn three() -> Table {
        Table::new(Here::default(), [idle(), LoadRow { valid_until_ns: NOW, ..idle() }])
    }

    #[test]
    fn the_slot_says_where() {
        let gone = (Verdict::Local, Why::Alone);
        let cases = [
            (HERE, (Verdict::Local, Why::Plan)),
            (NOWHERE, (Verdict::Local, Why::Plan)),
            (0, (Verdict::Local, Why::Plan)),
            (1, (Verdict::Redirect(1), Why::Plan)),
            (2, gone),
            (3, gone),
        ];
        for (node, expected) in cases {
            let mut table = three();
            table.slots[77] = node;
            let decision = planned(&job(5_000, 0), &Params::DEFAULT, &&table, 77);
            assert_eq!((decision.verdict, decision.why), expected, "slot of {node}");
            assert_eq!(table.charged.borrow()[77], 5_000);
        }
    }

    proptest! {
        #[test]
        fn a_draw_takes_the_slot_of_its_random_number_in_table_0(random: u32, ept in 0u32..1_000_000) {
            let mut table = three();
            let slot = (random % SLOTS) as usize;
            table.slots[slot] = 1;
            let decision = drawn(&job(ept, random), &Params::DEFAULT, &&table);
            prop_assert_eq!(decision.verdict, Verdict::Redirect(1));
            let charged = table.charged.borrow();
            prop_assert_eq!(charged[slot], u64::from(ept));
            prop_assert_eq!(charged.iter().sum::<u64>(), u64::from(ept), "no other slot is charged");
        }
    }
}

//! `steal`: every packet stays where it arrives, and idle nodes pull.
//!
//! ```text
//! stay
//! ```
//! Receiver-initiated load sharing (Eager, Lazowska and Zahorjan, Performance Evaluation 1986), the way ZygOS shares
//! work between the cores of a machine (Prekas, Kogias and Bugnion, SOSP 2017). The decision is that of `local`; the
//! name tells the workers to pull ([`Needs::PULL`]). No packet moves unless a node has nothing else to do, but an idle
//! node waits a round trip for work, and one busy node can be relieved only as fast as others ask. Ignores: all at
//! arrival. Cost: none at arrival; a request and an answer per pull.

use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::LoadView;
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct Steal;

impl Policy for Steal {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::PULL;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(_job: &Job, _params: &Params, _loads: &L) -> Decision {
        Decision::LOCAL
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{PolicyKind, Verdict, Why};
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_pushed(table in table(), ept in 0u32..2_000_000, random: u32) {
            let kind = PolicyKind::Steal;
            let decision = decide(kind, &job(ept, random), &params(kind), &table);
            prop_assert_eq!((decision.verdict, decision.why), (Verdict::Local, Why::Alone));
            prop_assert!(kind.needs().has(Needs::PULL), "idle nodes pull");
        }
    }
}

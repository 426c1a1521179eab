//! `local`: no cluster, the lower bound of every comparison.

use super::{Decision, Homes, Job, Needs, Policy};
use crate::load::LoadView;
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct Local;

impl Policy for Local {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::NOTHING;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(_job: &Job, _params: &Params, _loads: &L) -> Decision {
        Decision::LOCAL
    }
}

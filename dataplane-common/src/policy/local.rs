//! `local`: no cluster, the lower bound of every comparison.

use super::{Decision, Job, Policy};
use crate::load::LoadView;
use crate::maps::Params;

/// See the module.
pub struct Local;

impl Policy for Local {
    #[inline(always)]
    fn decide<L: LoadView>(_job: &Job, _params: &Params, _loads: &L) -> Decision {
        Decision::LOCAL
    }
}

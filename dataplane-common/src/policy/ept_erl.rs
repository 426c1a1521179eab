//! `ept-erl`: [`super::ept`] with the estimated remote load (ERL) of the thesis, exact under loss: what a node reported
//! plus what this node has sent there and the report does not include yet (see [`crate::load`]).
//!
//! Between two reports a node that looked idle receives one packet, not all of them.

use super::{Decision, Job, Policy, ept::least_ept};
use crate::load::{Load, LoadView};
use crate::maps::Params;

/// See the module.
pub struct EptErl;

impl Policy for EptErl {
    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        least_ept(job, params, loads, Load::erl_ns)
    }
}

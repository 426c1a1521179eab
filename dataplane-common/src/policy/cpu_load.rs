//! `cpu-load`: distribution by CPU load, the baseline of the thesis (Jang, KAIST 2005).
//!
//! The load of a node is the length of its run queue: as last reported for others, current for this node. The packet goes
//! to the least loaded node; neither its own cost nor the cost of sending it is looked at, and the report is taken at face
//! value until the next one. Cost: one pass over the nodes.

use super::{Decision, Job, Policy, Verdict};
use crate::load::{Load, LoadView, Visit};
use crate::maps::Params;

/// See the module.
pub struct CpuLoad;

struct Least {
    now_ns: u64,
    node: u16,
    queued_milli: u64,
}

impl Visit for Least {
    #[inline(always)]
    fn node(&mut self, node: u16, load: &Load) {
        if load.is_candidate(self.now_ns) && u64::from(load.queued_milli) < self.queued_milli {
            self.queued_milli = u64::from(load.queued_milli);
            self.node = node;
        }
    }
}

impl Policy for CpuLoad {
    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, _params: &Params, loads: &L) -> Decision {
        let here = u64::from(loads.here().queued_milli);
        let mut least = Least { now_ns: job.now_ns, node: 0, queued_milli: u64::MAX };
        loads.visit(job.random, &mut least);
        let verdict = if least.queued_milli < here { Verdict::Redirect(least.node) } else { Verdict::Local };
        Decision { verdict, here, there: least.queued_milli }
    }
}

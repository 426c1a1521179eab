//! `cpu-load`: distribution by CPU load, the baseline of the thesis (Jang, KAIST 2005).
//!
//! The load of a node is the length of its run queue: as last reported for others, current for this node. The packet goes
//! to the least loaded node; neither its own cost nor the cost of sending it is looked at, and the report is taken at face
//! value until the next one. Cost: one pass over the nodes, or over a sample of them.

use super::{Decision, Homes, Job, Needs, Policy, look};
use crate::load::{LoadView, Row, Visit};
use crate::maps::Params;
use crate::plan::NoPlan;

/// See the module.
pub struct CpuLoad;

struct Least {
    now_ns: u64,
    node: u16,
    queued_milli: u64,
}

impl Visit for Least {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let queued_milli = u64::from(row.queued_milli());
        if queued_milli < self.queued_milli && row.is_candidate(self.now_ns) {
            self.queued_milli = queued_milli;
            self.node = node;
        }
    }
}

impl Policy for CpuLoad {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let here = u64::from(loads.here().queued_milli);
        let mut least = Least { now_ns: job.now_ns, node: 0, queued_milli: u64::MAX };
        look(loads, job.random, params.tuning.sample, &mut least);
        Decision::compare(here, least.node, least.queued_milli, 0)
    }
}

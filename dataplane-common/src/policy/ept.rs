//! `ept`: distribution by estimated processing time (Jang, KAIST 2005), with remote loads as last reported.
//!
//! ```text
//! here   = W_here + C              there_j = F + W_j + C
//! redirect to argmin there_j  iff  there_j + margin < here  and  send + receive < C   (the guard)
//! ```
//! `C` is the packet's estimated processing time, `W` the work ahead of it, `F` the forwarding cost: both ends' CPU and the
//! wire. The guard refuses redirects that burn more CPU than they move; without it a busy cluster of short packets spends
//! its time relaying. Cost: one pass over the nodes.

use super::{Decision, Job, Policy, Verdict};
use crate::load::{Load, LoadView, Visit};
use crate::maps::Params;

/// See the module.
pub struct Ept;

impl Policy for Ept {
    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        least_ept(job, params, loads, |load| u64::from(load.backlog_ns))
    }
}

struct Least<W> {
    now_ns: u64,
    node: u16,
    wait_ns: u64,
    wait_of: W,
}

impl<W: Fn(&Load) -> u64> Visit for Least<W> {
    #[inline(always)]
    fn node(&mut self, node: u16, load: &Load) {
        let wait_ns = (self.wait_of)(load);
        if load.is_candidate(self.now_ns) && wait_ns < self.wait_ns {
            self.wait_ns = wait_ns;
            self.node = node;
        }
    }
}

/// The rule of the module, with the remote wait read by `wait_of`.
#[inline(always)]
pub(super) fn least_ept<L: LoadView, W: Fn(&Load) -> u64>(
    job: &Job,
    params: &Params,
    loads: &L,
    wait_of: W,
) -> Decision {
    let service = u64::from(job.ept_ns);
    let here = u64::from(loads.here().backlog_ns) + service;
    // A redirect must gain at least the forwarding cost, so a short queue needs no look at the others.
    let forward = u64::from(params.forward_ns(job.bytes));
    if here <= forward + service + u64::from(params.margin_ns)
        || (params.guard != 0 && params.redirect_cpu_ns() >= service)
    {
        return Decision { verdict: Verdict::Local, here, there: u64::MAX };
    }
    let mut least = Least { now_ns: job.now_ns, node: 0, wait_ns: u64::MAX, wait_of };
    loads.visit(job.random, &mut least);
    if least.wait_ns == u64::MAX {
        return Decision { verdict: Verdict::Local, here, there: u64::MAX };
    }
    let there = forward + least.wait_ns + service;
    let verdict =
        if there + u64::from(params.margin_ns) < here { Verdict::Redirect(least.node) } else { Verdict::Local };
    Decision { verdict, here, there }
}

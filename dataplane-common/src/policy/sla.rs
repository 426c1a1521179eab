//! `sla`: a packet stays while its class can be served in time here, and is lent to the best node otherwise (after the dynamic
//! SLA distribution of KISS 2004.10c, 367–369, known by its description; the rule is a reconstruction).
//!
//! ```text
//! here    = A_here + C              there_j = F + A_j + C            A = what runs before the packet
//! stay                        while here ≤ R / 2
//! to argmin there_j           iff   there_j + margin < here  and  send + receive < C   (the guard)
//! ```
//! `R` is the response time promised to the packet's class: `target_high_ns` for classes 6 and 7, `target_middle_ns` for 3 to
//! 5, `target_low_ns` for 0 to 2. `C` and `F` are those of [`super::ept`]. `A` is the backlog (of other nodes: their estimated
//! remote load, by the setting `erl`) less the part that lies *behind* the packet ([`crate::bands::Behind`]):
//!
//! * discipline `class`: workers serve the highest class first, and the eight bands of a queue are its classes, band = 7 −
//!   class, as lower bands run first. Work of a lower class is not counted.
//! * discipline `shortest`: the bands are those of estimated processing times, as everywhere.
//! * discipline `fifo`: everything is ahead.
//!
//! Work sent since a report is taken to be of the classes that the report found. The published method also divides the nodes
//! among the classes and refuses what cannot be in time; here every node is the own partition of the packets that arrive at
//! it, and nothing is refused. Speeds are ignored. Cost: as `ept`, and no look at the others while the promise holds.

use super::{Decision, Homes, Job, Needs, Policy, Why, look};
use crate::bands::{BANDS, Behind, band_of};
use crate::load::{Erl, LoadView, Row, Visit, Word, saturate};
use crate::maps::Params;
use crate::plan::NoPlan;
use crate::tuning::{CLASS, Tuning};

/// See the module.
pub struct Sla;

impl Policy for Sla {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS;
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let service = u64::from(job.ept_ns);
        let band = band(job, &params.tuning);
        let load = loads.here();
        let here = u64::from(load.behind.ahead_ns(load.backlog_ns, band)) + service;
        let cost = loads.forwarding();
        if params.guard != 0 && cost.cpu_ns() >= service {
            return Decision::stay(here, Why::Guard);
        }
        if here <= u64::from(target_ns(job.class, &params.tuning)) / 2 {
            return Decision::stay(here, Why::Short);
        }
        let erl = Erl::from_id(params.tuning.erl);
        let mut least = Least { now_ns: job.now_ns, node: 0, wait_ns: u64::MAX, band, erl };
        look(loads, job.random, params.tuning.sample, &mut least);
        let forward = u64::from(cost.total_ns(job.bytes));
        let there = if least.wait_ns == u64::MAX { u64::MAX } else { forward + least.wait_ns + service };
        Decision::compare(here, least.node, there, u64::from(params.margin_ns))
    }
}

/// The band of the packet in the queues' accounts.
#[inline(always)]
const fn band(job: &Job, tuning: &Tuning) -> u32 {
    if tuning.discipline == CLASS { BANDS as u32 - 1 - (job.class as u32 & 7) } else { band_of(job.ept_ns) }
}

/// The response time promised to a class, ns.
#[inline(always)]
const fn target_ns(class: u8, tuning: &Tuning) -> u32 {
    match class {
        0..=2 => tuning.target_low_ns,
        3..=5 => tuning.target_middle_ns,
        _ => tuning.target_high_ns,
    }
}

struct Least {
    now_ns: u64,
    node: u16,
    wait_ns: u64,
    band: u32,
    erl: Erl,
}

impl Visit for Least {
    #[inline(always)]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        let backlog = saturate(row.erl_ns(self.erl, self.now_ns));
        let wait_ns = u64::from(Behind(row.word(Word::Behind)).ahead_ns(backlog, self.band));
        if wait_ns < self.wait_ns && row.is_candidate(self.now_ns) {
            self.wait_ns = wait_ns;
            self.node = node;
        }
    }
}

#[cfg(test)]
#[path = "sla_tests.rs"]
mod tests;

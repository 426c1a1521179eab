//! `sooner`: this project's own policy. A packet goes where it will be finished sooner, everyone else's delay counted.
//!
//! ```text
//! here    = W + x                          + (x − s) · L(W)
//! there_j = max(V_j, s + transit) + r + x_j + (x_j + r) · L(V_j) + h
//! h       = price · (s + r) · u / (1 − u)        L(w) = damping · arrivals · w
//! redirect to the least there_j of those looked at  iff  there_j + margin < here
//! ```
//! `x` is the packet's estimated processing time here and `x_j` there (by the measured speed of node j), `s` and `r` the CPU
//! time of sending and receiving, `u` the utilisation of the cluster.
//!
//! - `W` and `V_j` count only the work that runs before this packet ([`crate::bands`]).
//! - `V_j` is predicted ([`Row::predicted_ns`]): a reported load returns to its mean, is pushed up by what was sent there
//!   since, and falls no faster than a worker works.
//! - The wire overlaps the wait at the other node, hence the `max`.
//! - A redirect burns `s + r` of the cluster's CPU time: `h` is what that costs everyone at the present utilisation. Near
//!   saturation it is what keeps a cluster from relaying itself to death.
//! - `L` is the number of packets that a longer queue delays: long packets go on small imbalances, short ones on large ones.
//! - Nodes that differ by less than the predictions err (`spread` × the median error) are equals, and one of them is drawn,
//!   so that many senders do not all choose the same one.
//!
//! Theory: Hyytiä, Penttinen and Aalto, "Size- and state-aware dispatching problem" (EJOR 2012) for the value of a queue;
//! Mitzenmacher, "How useful is old information?" (TPDS 2000) for sampling. Cost: up to 16 nodes, or a sample of 8.

use core::hint::select_unpredictable;

use super::{Decision, Homes, Job, Needs, Policy, Why, look};
use crate::bands::{Behind, band_of};
use crate::decay::Rate;
use crate::hash::{Draws, below};
use crate::load::{Forwarding, LoadView, Row, Signals, Visit, Word, saturate};
use crate::maps::Params;
use crate::plan::NoPlan;
use crate::tuning::{CLASS, Tuning};

/// See the module.
pub struct Sooner;

/// Costs that are not 32 bits wide by themselves and packets are capped here, so that no product overflows: 4.3 seconds, 4096
/// packets in Q16.
const MOST_NS: u64 = 1 << 32;
const MOST_PACKETS_Q16: u64 = 1 << 28;

/// What a decision compares with, the same for every node.
struct Terms {
    now_ns: u64,
    service_ns: u32,
    band: u32,
    cost: Forwarding,
    /// `s + transit`.
    way_ns: u64,
    /// `h`.
    price_ns: u64,
    /// Packets that a ns of waiting work delays, Q32, damped; at most 32 bits.
    delayed_q32: u64,
    relax: Rate,
    gain_milli: u32,
}

impl Terms {
    #[inline(always)]
    fn new(job: &Job, cost: Forwarding, signals: &Signals, tuning: &Tuning) -> Self {
        let class_band = 7 - u32::from(job.class & 7);
        Self {
            now_ns: job.now_ns,
            service_ns: job.ept_ns,
            band: if tuning.discipline == CLASS { class_band } else { band_of(job.ept_ns) },
            cost,
            way_ns: u64::from(cost.send_ns) + u64::from(cost.transit_ns(job.bytes)),
            price_ns: (cost.cpu_ns().min(MOST_NS) * u64::from(signals.price_q16)) >> 16,
            delayed_q32: u64::from(signals.arrivals_q32) * u64::from(tuning.damping_milli) / 1000,
            relax: signals.relaxation(),
            gain_milli: tuning.gain_milli,
        }
    }

    /// What `work_ns` more in a queue of `wait_ns` costs the packets behind it, ns.
    #[inline(always)]
    fn delay_ns(&self, wait_ns: u32, work_ns: u64) -> u64 {
        // Neither factor has more than 32 bits.
        let packets_q16 = (u64::from(wait_ns) * self.delayed_q32) >> 16;
        (packets_q16.min(MOST_PACKETS_Q16) * work_ns) >> 16
    }

    /// The value of computing the packet here, where `wait_ns` of work runs before it.
    #[inline(always)]
    fn here(&self, wait_ns: u32) -> u64 {
        let relieved = self.service_ns.saturating_sub(self.cost.send_ns);
        u64::from(wait_ns) + u64::from(self.service_ns) + self.delay_ns(wait_ns, relieved.into())
    }

    /// The value of computing it on the node of `row`.
    #[inline(always)]
    fn there<R: Row>(&self, row: &R) -> u64 {
        let load = row.predicted_ns(self.now_ns, self.relax, self.gain_milli);
        let wait = Behind(row.word(Word::Behind)).ahead_ns(load, self.band);
        let speed = row.speed_milli();
        let service = u64::from(self.service_ns);
        let service = match speed {
            1000 => service,
            _ => (service * 1000).checked_div(speed.into()).unwrap_or(service).min(MOST_NS),
        };
        let work = service + u64::from(self.cost.receive_ns);
        let idle = u64::from(wait) < self.way_ns;
        select_unpredictable(idle, self.way_ns, wait.into()) + work + self.delay_ns(wait, work) + self.price_ns
    }
}

struct Best {
    terms: Terms,
    spread_ns: u32,
    draws: Draws,
    /// The least value with its handicap, the value, and whose it is.
    rank_ns: u64,
    there_ns: u64,
    node: u16,
}

impl Visit for Best {
    // In user space a function of its own: within a loop the compiler makes branches of selections again.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[cfg_attr(not(target_arch = "bpf"), inline(never))]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        if !row.is_candidate(self.terms.now_ns) {
            return;
        }
        let there_ns = self.terms.there(row);
        // A handicap drawn for each node makes a draw among those that differ by less than the spread.
        let handicap = below(self.draws.next(), self.spread_ns);
        let rank_ns = there_ns + u64::from(handicap);
        let is_better = rank_ns < self.rank_ns;
        self.rank_ns = select_unpredictable(is_better, rank_ns, self.rank_ns);
        self.there_ns = select_unpredictable(is_better, there_ns, self.there_ns);
        self.node = select_unpredictable(is_better, node, self.node);
    }
}

impl Policy for Sooner {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS.and(Needs::RESULTS).and(Needs::PREDICTION);
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let (here, cost) = (loads.here(), loads.forwarding());
        if params.guard != 0 && cost.cpu_ns() >= u64::from(job.ept_ns) {
            return Decision::stay(u64::from(here.backlog_ns) + u64::from(job.ept_ns), Why::Guard);
        }
        let (tuning, signals) = (&params.tuning, loads.signals());
        let terms = Terms::new(job, cost, &signals, tuning);
        let stay = terms.here(here.behind.ahead_ns(here.backlog_ns, terms.band));
        // Not even an idle node that computes it in no time would be better.
        let least = terms.way_ns + u64::from(cost.receive_ns) + terms.price_ns + u64::from(params.margin_ns);
        if stay <= least {
            return Decision::stay(stay, Why::Short);
        }
        let spread_ns = saturate(u64::from(signals.deviation_ns) * u64::from(tuning.spread_milli) / 1000);
        let draws = Draws::from(job.random);
        let mut best = Best { terms, spread_ns, draws, rank_ns: u64::MAX, there_ns: u64::MAX, node: 0 };
        look(loads, job.random, tuning.sample, &mut best);
        Decision::compare(stay, best.node, best.there_ns, u64::from(params.margin_ns))
    }
}

#[cfg(test)]
#[path = "sooner_tests.rs"]
mod tests;

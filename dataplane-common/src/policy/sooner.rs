//! `sooner`: this project's own policy. A packet goes where it will be finished sooner, everyone else's delay counted.
//!
//! ```text
//! t       = W + x                            t_j = max(V_j, s + transit) + r + x_j
//! here    = t   + (x − s) · L(W)             + early · max(0, e − t)
//! there_j = t_j + (x_j + r) · L(V_j) + h     + early · max(0, e − t_j)
//! h       = price · (s + r) · u / (1 − u)    L(w) = damping · arrivals · w
//! redirect to the least there_j of those looked at  iff  there_j + margin < here
//! ```
//! `x` is the packet's estimated processing time here and `x_j` there (by the measured speed of node j), `s` and `r` the CPU
//! time of sending and receiving, `u` the utilisation of the cluster, `e` the time until the earlier packets of its flow are
//! expected to be done ([`Job::earlier_ns`]).
//!
//! - `W` and `V_j` count only the work that runs before this packet ([`crate::bands`]).
//! - `V_j` is predicted ([`Row::predicted_ns`]): a reported load returns to its mean, is pushed up by what was sent there
//!   since, and falls no faster than a worker works.
//! - The wire overlaps the wait at the other node, hence the `max`.
//! - A redirect burns `s + r` of the cluster's CPU time: `h` is what that costs everyone at the present utilisation. Near
//!   saturation it is what keeps a cluster from relaying itself to death.
//! - A result that is ready before the earlier ones of its flow waits for them: overtaking gains nothing. So a flow moves where
//!   it does not overtake itself, unless that costs more: *safe switch* as a preference.
//! - `L` is the number of packets that a longer queue delays: long packets go on small imbalances, short ones on large ones.
//! - Nodes that differ by less than the predictions err (`spread` × the median error) are equals, and one of them is drawn,
//!   so that many senders do not all choose the same one. Among few there is little to fear, and the draw is narrower.
//!
//! Theory: Hyytiä, Penttinen and Aalto, "Size- and state-aware dispatching problem" (EJOR 2012) for the value of a queue;
//! Mitzenmacher, "How useful is old information?" (TPDS 2000) for sampling. Cost: up to 16 nodes, or a sample of 8.

use super::{Decision, Homes, Job, Needs, Policy, Verdict, Why, look};
use crate::bands::{Behind, band_of};
use crate::decay::Rate;
use crate::hash::{Draws, below};
use crate::load::{Forwarding, LoadView, Row, Signals, Visit, Word, saturate};
use crate::maps::Params;
use crate::pick::{Below, larger, less};
use crate::plan::NoPlan;
use crate::tuning::{CLASS, Tuning};

/// See the module.
pub struct Sooner;

/// Costs that are not 32 bits wide by themselves and packets are capped here, so that no product overflows: 4.3 seconds, 4096
/// packets in Q16.
const MOST_NS: u64 = 1 << 32;
const MOST_PACKETS_Q16: u64 = 1 << 28;

/// Peers from which the draw has its whole width.
const MANY_PEERS: u32 = 16;
/// More than any value.
const NOBODY: u64 = 1 << 62;

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
    /// `e`.
    earlier_ns: u32,
    early_milli: u32,
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
            earlier_ns: job.earlier_ns,
            early_milli: tuning.early_milli,
        }
    }

    /// What a result costs that is ready after `done_ns`, before the earlier ones of its flow, ns.
    #[inline(always)]
    fn early_ns(&self, done_ns: u64) -> u64 {
        less(self.earlier_ns.into(), done_ns) * u64::from(self.early_milli) / 1000
    }

    /// What `work_ns` more in a queue of `wait_ns` costs the packets behind it, ns.
    #[inline(always)]
    fn delay_ns(&self, wait_ns: u32, work_ns: u64) -> u64 {
        // Neither factor has more than 32 bits.
        let packets_q16 = (u64::from(wait_ns) * self.delayed_q32) >> 16;
        (packets_q16.min(MOST_PACKETS_Q16) * work_ns) >> 16
    }

    /// When the packet is done here, and the value of that, ns, where `wait_ns` of work runs before it.
    #[inline(always)]
    fn here(&self, wait_ns: u32) -> (u64, u64) {
        let relieved = self.service_ns.saturating_sub(self.cost.send_ns);
        let done = u64::from(wait_ns) + u64::from(self.service_ns);
        (done, done + self.delay_ns(wait_ns, relieved.into()) + self.early_ns(done))
    }

    /// When it would be done on the node of `row`, and the value of that, ns.
    #[inline(always)]
    fn there<R: Row>(&self, row: &R) -> (u64, u64) {
        let load = row.predicted_ns(self.now_ns, self.relax, self.gain_milli);
        let wait = Behind(row.word(Word::Behind)).ahead_ns(load, self.band);
        let speed = row.speed_milli();
        let service = u64::from(self.service_ns);
        let service = match speed {
            1000 => service,
            _ => (service * 1000).checked_div(speed.into()).unwrap_or(service).min(MOST_NS),
        };
        let work = service + u64::from(self.cost.receive_ns);
        let done = larger(self.way_ns, wait.into()) + work;
        (done, done + self.delay_ns(wait, work) + self.early_ns(done) + self.price_ns)
    }
}

/// Width of the draw, ns: the more nodes may choose the same one, the wider.
#[inline(always)]
fn spread_ns(deviation_ns: u32, spread_milli: u32, peers: u32) -> u32 {
    let followers = u64::from(peers.min(MANY_PEERS));
    saturate(u64::from(deviation_ns) * u64::from(spread_milli) * followers / (1000 * u64::from(MANY_PEERS)))
}

struct Best {
    terms: Terms,
    spread_ns: u32,
    draws: Draws,
    /// The least value with its handicap, the value, when the packet would be done, and whose it is.
    rank_ns: u64,
    there_ns: u64,
    done_ns: u64,
    node: u64,
}

impl Visit for Best {
    // In user space a function of its own: within a loop the compiler makes branches of selections again.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    #[cfg_attr(not(target_arch = "bpf"), inline(never))]
    fn node<R: Row>(&mut self, node: u16, row: &R) {
        if !row.is_candidate(self.terms.now_ns) {
            return;
        }
        let (done_ns, there_ns) = self.terms.there(row);
        // A handicap drawn for each node makes a draw among those that differ by less than the spread.
        let handicap = below(self.draws.next(), self.spread_ns);
        let rank_ns = there_ns + u64::from(handicap);
        let is_better = Below::of(rank_ns, self.rank_ns);
        self.rank_ns = is_better.pick(rank_ns, self.rank_ns);
        self.there_ns = is_better.pick(there_ns, self.there_ns);
        self.done_ns = is_better.pick(done_ns, self.done_ns);
        self.node = is_better.pick(node.into(), self.node);
    }
}

impl Policy for Sooner {
    const HOMES: Homes = Homes::ANY;
    const NEEDS: Needs = Needs::REPORTS.and(Needs::RESULTS).and(Needs::PREDICTION).and(Needs::EXPECTED);
    type Plan = NoPlan;

    #[inline(always)]
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
        let (here, cost) = (loads.here(), loads.forwarding());
        if params.guard != 0 && cost.cpu_ns() >= u64::from(job.ept_ns) {
            let stay = u64::from(here.backlog_ns) + u64::from(job.ept_ns);
            return Decision { done_ns: saturate(stay), ..Decision::stay(stay, Why::Guard) };
        }
        let (tuning, signals) = (&params.tuning, loads.signals());
        let terms = Terms::new(job, cost, &signals, tuning);
        let (done, stay) = terms.here(here.behind.ahead_ns(here.backlog_ns, terms.band));
        // Not even an idle node that computes it in no time would be better.
        let least = terms.way_ns + u64::from(cost.receive_ns) + terms.price_ns + u64::from(params.margin_ns);
        if stay <= least {
            return Decision { done_ns: saturate(done), ..Decision::stay(stay, Why::Short) };
        }
        let spread_ns = spread_ns(signals.deviation_ns, tuning.spread_milli, loads.peers());
        let draws = Draws::from(job.random);
        let mut best = Best { terms, spread_ns, draws, rank_ns: NOBODY, there_ns: NOBODY, done_ns: 0, node: 0 };
        look(loads, job.random, tuning.sample, &mut best);
        let there = if best.there_ns == NOBODY { u64::MAX } else { best.there_ns };
        let decision = Decision::compare(stay, best.node as u16, there, u64::from(params.margin_ns));
        let done = if matches!(decision.verdict, Verdict::Redirect(_)) { best.done_ns } else { done };
        Decision { done_ns: saturate(done), ..decision }
    }
}

#[cfg(test)]
#[path = "sooner_tests.rs"]
mod tests;

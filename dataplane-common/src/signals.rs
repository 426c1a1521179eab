//! What a node knows beyond single nodes: how busy the cluster is, and what forwarding costs. Divisions are done when it is
//! found out, not when it is used.

use core::mem::offset_of;

use crate::decay::Rate;
use crate::load::saturate;
use crate::maps::SignalsRow;
use crate::tuning::Tuning;

/// What deciders know of the cluster beyond single nodes, kept by the control thread ([`SignalsRow`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// Share of time the workers of the live nodes are busy, forwarding included, thousandths.
    pub utilisation_milli: u32,
    /// Mean service time of a packet, ns.
    pub service_ns: u32,
    /// Packets that arrive at a worker per ns, Q32: the mean over the cluster.
    pub arrivals_q32: u32,
    /// Median error of the predicted load of a node against its next report, ns.
    pub deviation_ns: u32,
    /// What a ns of CPU time that a redirect burns costs everyone, ns in Q16: price · u / (1 − u), where u is the utilisation,
    /// but 0.98 at most.
    pub price_q16: u32,
    /// How fast a load forgets a report ([`Rate::to_word`]).
    pub relax: u32,
}

/// Utilisation beyond which a redirect does not become more expensive, thousandths.
const MOST_UTILISATION: u32 = 980;

impl Signals {
    /// The signals of a cluster whose nodes are busy this share of the time with packets of this mean service time, for
    /// policies with these settings. The divisions are here, where there is time for them.
    pub const fn derive(utilisation_milli: u32, service_ns: u32, deviation_ns: u32, tuning: &Tuning) -> Self {
        let service = if service_ns == 0 { 1 } else { service_ns as u64 };
        let arrivals_q32 = saturate(((utilisation_milli as u64) << 32) / 1000 / service);
        let busy = if utilisation_milli > MOST_UTILISATION { MOST_UTILISATION } else { utilisation_milli };
        let price_q16 = saturate(((busy as u64 * tuning.price_milli as u64) << 16) / (1000 * (1000 - busy as u64)));
        let relax = tuning.relaxation(service_ns).to_word();
        Self { utilisation_milli, service_ns, arrivals_q32, deviation_ns, price_q16, relax }
    }

    /// How fast a load forgets a report.
    #[inline(always)]
    pub const fn relaxation(&self) -> Rate {
        Rate::from_word(self.relax)
    }

    /// Reads a [`SignalsRow`] by `word`, which returns the word at an offset.
    #[inline(always)]
    pub fn read(word: impl Fn(usize) -> u64) -> Self {
        let first = word(offset_of!(SignalsRow, utilisation_milli));
        let derived = word(offset_of!(SignalsRow, price_q16));
        Self {
            utilisation_milli: first as u32,
            service_ns: (first >> 32) as u32,
            arrivals_q32: word(offset_of!(SignalsRow, arrivals_q32)) as u32,
            deviation_ns: word(offset_of!(SignalsRow, deviation_ns)) as u32,
            price_q16: derived as u32,
            relax: (derived >> 32) as u32,
        }
    }

    /// The signals of a row.
    pub const fn of(row: &SignalsRow) -> Self {
        Self {
            utilisation_milli: row.utilisation_milli,
            service_ns: row.service_ns,
            arrivals_q32: row.arrivals_q32,
            deviation_ns: row.deviation_ns,
            price_q16: row.price_q16,
            relax: row.relax,
        }
    }
}

/// What sending a packet to a peer and having it back costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forwarding {
    /// CPU time of the sender, ns.
    pub send_ns: u32,
    /// CPU time of the receiver, ns.
    pub receive_ns: u32,
    /// Time on the wire, ns.
    pub wire_ns: u32,
    /// Time on the wire per byte, ns in Q16.
    pub wire_ns_per_byte_q16: u32,
}

impl Forwarding {
    /// The costs of a row.
    pub const fn of(row: &SignalsRow) -> Self {
        Self {
            send_ns: row.send_ns,
            receive_ns: row.receive_ns,
            wire_ns: row.wire_ns,
            wire_ns_per_byte_q16: row.wire_ns_per_byte_q16,
        }
    }

    /// Reads the costs in a [`SignalsRow`] by `word`, which returns the word at an offset.
    #[inline(always)]
    pub fn read(word: impl Fn(usize) -> u64) -> Self {
        let (cpu, wire) = (word(offset_of!(SignalsRow, send_ns)), word(offset_of!(SignalsRow, wire_ns)));
        Self {
            send_ns: cpu as u32,
            receive_ns: (cpu >> 32) as u32,
            wire_ns: wire as u32,
            wire_ns_per_byte_q16: (wire >> 32) as u32,
        }
    }

    /// Time `bytes` spend between the nodes, ns, CPU left out.
    #[inline(always)]
    pub const fn transit_ns(&self, bytes: usize) -> u32 {
        let transmission = (self.wire_ns_per_byte_q16 as u64 * bytes as u64) >> 16;
        saturate(self.wire_ns as u64 + transmission)
    }

    /// CPU time a redirect burns at both ends, ns.
    #[inline(always)]
    pub const fn cpu_ns(&self) -> u64 {
        self.send_ns as u64 + self.receive_ns as u64
    }

    /// What sending `bytes` to a peer adds to a packet's way, ns: both ends' CPU, wire and transmission time.
    #[inline(always)]
    pub const fn total_ns(&self, bytes: usize) -> u32 {
        saturate(self.cpu_ns() + self.transit_ns(bytes) as u64)
    }
}

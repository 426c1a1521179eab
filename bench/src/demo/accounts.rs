//! Where every packet of a run ended, and every frame between the nodes: what the generator saw against what the nodes
//! and the kernel counted.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use dataplane_common::reason::{Effect, Reason, Stage};
use dataplane_common::wire::link::{OVERHEAD_BYTES, REPORT_FRAME_BYTES};
use serde::Serialize;

use crate::status::Status;
use crate::topology::{Cluster, InterfaceCounters};
use crate::traffic::Counts;

/// Everything the cluster counts, at one moment.
pub struct Snapshot {
    /// The kernel's counters of all links, read before the statuses.
    pub links_before: InterfaceCounters,
    /// Status of each node, by id.
    pub statuses: Vec<Status>,
    /// The kernel's counters of all links, read after the statuses. Reports go on meanwhile.
    pub links_after: InterfaceCounters,
}

impl Snapshot {
    /// Reads a cluster whose nodes all run.
    ///
    /// # Errors
    /// A node or an interface cannot be read.
    pub fn take(cluster: &Cluster) -> Result<Self> {
        let links_before = cluster.link_counters()?;
        let statuses = cluster.plan().nodes().map(|node| cluster.status(node)).collect::<Result<_>>()?;
        Ok(Self { links_before, statuses, links_after: cluster.link_counters()? })
    }

    /// Whether every node's ledger balances.
    pub fn balances(&self) -> bool {
        self.statuses.iter().all(|status| status.ledger.balances)
    }
}

/// Where packets ended that did not come back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Packets {
    /// Dropped by a node, or left to its kernel: by the name of the reason, those that occurred.
    pub dropped: BTreeMap<String, u64>,
    /// Dropped by the kernel in front of a worker's receive ring.
    pub ring_dropped: u64,
    /// Forwarded packets that did not reach the other node.
    pub forwards_lost: i64,
    /// Results that did not reach the node of arrival.
    pub results_lost: i64,
    /// sent − received, copies included − all of the above: packets that nobody can name. Must be zero.
    pub unaccounted: i64,
}

impl Packets {
    /// Draws up the account of one run.
    ///
    /// # Errors
    /// A node does not know one of its peers.
    pub fn new(counts: &Counts, before: &Snapshot, after: &Snapshot) -> Result<Self> {
        let grown = |reason: Reason| total(after, reason) - total(before, reason);
        let mut packets = Self::default();
        for reason in Reason::ALL.iter().filter(|reason| ends_packets(**reason)) {
            let count = grown(*reason);
            if count > 0 {
                packets.dropped.insert(reason.name().to_owned(), count);
            }
        }
        let ring = |snapshot: &Snapshot| snapshot.statuses.iter().map(|status| status.ledger.ring_dropped).sum::<u64>();
        packets.ring_dropped = ring(after) - ring(before);
        packets.forwards_lost = forwards_missing(after)? - forwards_missing(before)?;
        let results_ended = grown(Reason::ResultReturned) + grown(Reason::ResultQueued) + grown(Reason::DropLinkPort);
        packets.results_lost = difference(grown(Reason::SentHome), results_ended);
        let named = packets.dropped.values().sum::<u64>() + packets.ring_dropped;
        packets.unaccounted = difference(counts.sent, counts.received + counts.duplicated + named)
            - packets.forwards_lost
            - packets.results_lost;
        Ok(packets)
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (reason, count) in &other.dropped {
            *self.dropped.entry(reason.clone()).or_default() += count;
        }
        self.ring_dropped += other.ring_dropped;
        self.forwards_lost += other.forwards_lost;
        self.results_lost += other.results_lost;
        self.unaccounted += other.unaccounted;
    }
}

/// Frames and bytes between the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Interconnect {
    /// Packets sent to another node to be computed.
    pub forwards: u64,
    /// Results sent back.
    pub results: u64,
    /// Load reports.
    pub reports: u64,
    /// Requests of idle nodes for work.
    pub requests: u64,
    /// Bytes of forwards, results and requests on the links, Ethernet and interconnect headers included: what a policy costs.
    pub bytes: u64,
    /// Bytes of reports on the links: the same for every policy.
    pub report_bytes: u64,
    /// Frames that the nodes' XDP programs saw on their links.
    pub frames_seen: u64,
    /// Frames that the kernel's interfaces counted between the last look before the run and the first one after it …
    pub kernel_frames_min: u64,
    /// … and between the first one before and the last one after. `frames_seen` must lie in between.
    pub kernel_frames_max: u64,
}

impl Interconnect {
    /// Draws up the account of one run in which every packet at a port had `frame_bytes`, and `route_bytes` more went in front of
    /// the interconnect header.
    pub fn new((frame_bytes, route_bytes): (usize, usize), before: &Snapshot, after: &Snapshot) -> Self {
        let overhead = OVERHEAD_BYTES + route_bytes;
        let grown = |reason: Reason| total(after, reason) - total(before, reason);
        let (forwards, results) = (grown(Reason::Redirected) + grown(Reason::SentForward), grown(Reason::SentHome));
        let requests = grown(Reason::PullQueued);
        let reports = grown(Reason::ReportTaken) + grown(Reason::DropReportOld);
        Self {
            forwards,
            results,
            reports,
            requests,
            bytes: (forwards + results) * (frame_bytes + overhead) as u64 + requests * overhead as u64,
            report_bytes: reports * (REPORT_FRAME_BYTES + route_bytes) as u64,
            frames_seen: grown(Reason::SeenLink),
            kernel_frames_min: after.links_before.rx_frames - before.links_after.rx_frames,
            kernel_frames_max: after.links_after.rx_frames - before.links_before.rx_frames,
        }
    }

    /// Whether nodes and kernel counted the same, as far as that can be told while reports go on.
    pub fn agrees_with_kernel(&self) -> bool {
        (self.kernel_frames_min..=self.kernel_frames_max).contains(&self.frames_seen)
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        self.forwards += other.forwards;
        self.requests += other.requests;
        self.results += other.results;
        self.reports += other.reports;
        self.bytes += other.bytes;
        self.report_bytes += other.report_bytes;
        self.frames_seen += other.frames_seen;
        self.kernel_frames_min += other.kernel_frames_min;
        self.kernel_frames_max += other.kernel_frames_max;
    }
}

/// Whether a frame counted here is a packet of the generator that will not come back.
///
/// Of what links drop, only frames count here that had been booked as arrived before; those refused earlier are missing
/// in the peer's account and so in [`Packets::forwards_lost`]. Frames of other protocols are none of the generator's.
fn ends_packets(reason: Reason) -> bool {
    match (reason.stage(), reason.effect()) {
        (Stage::Port | Stage::Worker, Effect::Drop) => true,
        (Stage::Port, Effect::Pass) => reason != Reason::PassNotActive,
        (Stage::Link, Effect::Drop) => matches!(
            reason,
            Reason::DropLinkType | Reason::DropLinkNoSocket | Reason::DropLinkHeadroom | Reason::DropLinkPort
        ),
        _ => false,
    }
}

fn total(snapshot: &Snapshot, reason: Reason) -> u64 {
    snapshot.statuses.iter().map(|status| status.count(reason)).sum()
}

/// Forwarded packets that their receivers have not seen.
fn forwards_missing(snapshot: &Snapshot) -> Result<i64> {
    let mut missing = 0;
    for sender in &snapshot.statuses {
        for receiver in snapshot.statuses.iter().filter(|status| status.node.id != sender.node.id) {
            let (from, to) = (sender.node.id, receiver.node.id);
            let sent = sender.peer(to).with_context(|| format!("node {from} does not know node {to}"))?;
            let received = receiver.peer(from).with_context(|| format!("node {to} does not know node {from}"))?;
            missing += difference(sent.sent_frames, received.received_frames);
        }
    }
    Ok(missing)
}

fn difference(a: u64, b: u64) -> i64 {
    a.wrapping_sub(b) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::status;

    fn snapshot(statuses: Vec<Status>, frames: u64) -> Snapshot {
        let counters = InterfaceCounters { rx_frames: frames, rx_bytes: 0 };
        Snapshot { links_before: counters, statuses, links_after: counters }
    }

    fn start() -> Snapshot {
        let one = status(1, &[(Reason::SeenLink, 5), (Reason::ReportTaken, 5)], &[(2, 0, 0)]);
        snapshot(vec![one, status(2, &[], &[(1, 0, 0)])], 7)
    }

    /// 100 packets at node 1: 60 computed there, 30 forwarded, 10 dropped; 29 arrive at node 2, 28 are computed there, of
    /// whose results 27 come home.
    fn end() -> Snapshot {
        let one = [
            (Reason::SeenLink, 5 + 27 + 10),
            (Reason::ReportTaken, 15),
            (Reason::Redirected, 30),
            (Reason::DropAnepVersion, 8),
            (Reason::DropTxFull, 1),
            (Reason::PassNoSocket, 1),
            (Reason::PassNotActive, 50),
            (Reason::ResultReturned, 27),
        ];
        let two = [(Reason::SeenLink, 29), (Reason::DropLinkNoSocket, 1), (Reason::SentHome, 28)];
        snapshot(vec![status(1, &one, &[(2, 30, 0)]), status(2, &two, &[(1, 0, 29)])], 7 + 27 + 10 + 29)
    }

    fn counts(sent: u64, received: u64) -> Counts {
        Counts { sent, received, ..Counts::default() }
    }

    #[test]
    fn every_packet_has_a_name() {
        let packets = Packets::new(&counts(100, 60 + 27), &start(), &end()).unwrap();
        assert_eq!(packets.forwards_lost, 1);
        assert_eq!(packets.results_lost, 1);
        assert_eq!(packets.dropped.values().sum::<u64>(), 11);
        assert!(!packets.dropped.contains_key("pass_not_active"));
        assert_eq!(packets.unaccounted, 0);
    }

    #[test]
    fn a_packet_without_a_name_shows() {
        assert_eq!(Packets::new(&counts(101, 87), &start(), &end()).unwrap().unaccounted, 1);
        assert_eq!(Packets::new(&counts(100, 88), &start(), &end()).unwrap().unaccounted, -1);
    }

    #[test]
    fn the_interconnect_counts_both_ways_and_keeps_reports_apart() {
        let account = Interconnect::new((446, 0), &start(), &end());
        assert_eq!((account.forwards, account.results, account.reports), (30, 28, 10));
        let bytes = 58 * (446 + OVERHEAD_BYTES as u64);
        assert_eq!((account.bytes, account.report_bytes), (bytes, 10 * REPORT_FRAME_BYTES as u64));
        assert_eq!(account.frames_seen, 66);
        assert!(account.agrees_with_kernel());
        let other = Interconnect { kernel_frames_max: 65, kernel_frames_min: 65, ..account };
        assert!(!other.agrees_with_kernel());
    }
}

//! What one node knows of the others: rows of the product's load table, filled as its XDP program fills them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use dataplane_common::decay::Rate;
use dataplane_common::feedback;
use dataplane_common::load::{self, Erl, LoadStamp, Row, saturate};
use dataplane_common::maps::LoadRow;
use dataplane_common::wire::link::Carried;

use super::frames::Frame;
use super::hashing::MixHasher;
use super::reports::Made;

/// What the rows of a node depend on beyond themselves.
#[derive(Clone, Copy, Debug)]
pub struct Learning {
    /// Whether the policy lives on the prediction of loads.
    pub predicts: bool,
    /// How fast a load forgets a report.
    pub relax: Rate,
    /// Time in which the peak of a response time is forgotten, ns.
    pub forget_ns: u32,
    /// [`dataplane_common::tuning::Tuning::gain_milli`].
    pub gain_milli: u32,
}

/// Frames with work on their way to a peer, or arrived there since its last report.
#[derive(Clone, Copy, Debug)]
struct Transit {
    arrives_ns: u64,
    position_ns: u32,
    frames: u32,
}

/// One peer as one node knows it.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Its row of the load table.
    row: Cell<LoadRow>,
    transit: RefCell<VecDeque<Transit>>,
    /// Packets sent there that are not back and not lost.
    open: u32,
}

impl Peer {
    /// The row.
    pub fn row(&self) -> &Cell<LoadRow> {
        &self.row
    }

    /// Until when the last report taken is good, ns: it tells reports apart.
    #[inline]
    pub fn known_ns(&self) -> u64 {
        self.row.get().valid_until_ns
    }

    /// A frame with `charged_ns` of work leaves for the peer; `None` for `arrives_ns` = it will be lost.
    pub fn send(&mut self, now_ns: u64, charged_ns: u32, arrives_ns: Option<u64>, learning: &Learning) {
        let row = self.row.get_mut();
        row.sent_ns += u64::from(charged_ns);
        row.sent_frames += 1;
        if learning.predicts {
            let before = u64::from(row.pressure_ns) | u64::from(row.pressure_us) << 32;
            let after = load::pressed(before, now_ns, learning.relax, charged_ns);
            (row.pressure_ns, row.pressure_us) = (after as u32, (after >> 32) as u32);
        }
        if let Some(arrives_ns) = arrives_ns {
            let (position_ns, frames) = (row.sent_ns as u32, row.sent_frames as u32);
            self.transit.get_mut().push_back(Transit { arrives_ns, position_ns, frames });
            self.open += 1;
        }
    }

    /// Newest position of our work and frames that had arrived at the peer at `read_ns`.
    fn arrived(&self, row: &LoadRow, read_ns: u64) -> (u32, u32) {
        let mut transit = self.transit.borrow_mut();
        let mut arrived = (row.acked_ns, row.acked_frames);
        while let Some(newest) = transit.iter().rposition(|frame| frame.arrives_ns <= read_ns) {
            arrived = (transit[newest].position_ns, transit[newest].frames);
            transit.drain(..=newest);
        }
        arrived
    }

    /// Takes a load of the peer, read at `read_ns`, unless a newer one is known. Returns by how much it was mispredicted.
    fn take_load(&self, (now_ns, read_ns): (u64, u64), carried: &Carried, learning: &Learning) -> Option<u32> {
        let mut row = self.row.get();
        if !(LoadStamp { stamp_us: row.stamp_us, epoch: row.stamp_epoch }).precedes(1, carried.stamp_us) {
            return None;
        }
        (row.stamp_us, row.stamp_epoch) = (carried.stamp_us, 1);
        let predicted =
            if learning.predicts { row.predicted_ns(now_ns, learning.relax, learning.gain_milli) } else { 0 };
        (row.acked_ns, row.acked_frames) = self.arrived(&row, read_ns);
        row.backlog_ns = carried.backlog_ns;
        row.queued_milli = carried.queued_milli();
        row.reported_at_ns = now_ns;
        (row.marked_ns, row.marked_frames) = (row.sent_ns as u32, row.sent_frames as u32);
        let mut error = None;
        if learning.predicts {
            (row.pressure_ns, row.pressure_us) = (row.in_flight_ns(), (now_ns >> 10) as u32);
            error = Some(predicted.abs_diff(saturate(row.erl_ns(Erl::Ack, now_ns))));
        }
        self.row.set(row);
        error
    }

    /// Takes the load that a frame of the peer carries. Returns by how much it was mispredicted.
    pub fn take_piggyback(&self, now_ns: u64, frame: &Frame, learning: &Learning) -> Option<u32> {
        self.take_load((now_ns, frame.read_ns), &frame.load, learning)
    }

    /// Takes a report that arrived at `now_ns`. Returns by how much the load was mispredicted.
    pub fn take_report(&self, now_ns: u64, made: &Made, learning: &Learning) -> Option<u32> {
        let carried = Carried {
            stamp_us: (made.at_ns >> 10) as u32,
            backlog_ns: made.backlog_ns,
            queued: Carried::queued_of(made.queued_milli),
            ..Carried::default()
        };
        let error = self.take_load((now_ns, made.at_ns), &carried, learning);
        let mut row = self.row.get();
        take_body(&mut row, made);
        self.row.set(row);
        error
    }

    /// Learns from a result that came back from the peer.
    pub fn take_result(&mut self, now_ns: u64, frame: &Frame, learning: &Learning) {
        self.close();
        let packet = &frame.packet;
        let row = self.row.get_mut();
        row.completed_frames += 1;
        let response_ns = feedback::response_ns(now_ns, packet.arrived_ns);
        row.response_ns = feedback::mean(row.response_ns, response_ns, 3);
        row.service_ns = feedback::mean(row.service_ns, packet.served_ns, 3);
        let now_us = (now_ns >> 10) as u32;
        let age_ns = u64::from(now_us.wrapping_sub(row.peak_us)) << 10;
        row.peak_ns = feedback::peak(row.peak_ns, response_ns, age_ns, learning.forget_ns);
        row.peak_us = now_us;
        row.speed_milli = feedback::speed(row.speed_milli, packet.charged_ns, packet.served_ns);
    }

    /// A packet sent there is back, or lost.
    pub fn close(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// True when forgetting the peer loses nothing but means.
    fn is_at_rest(&self) -> bool {
        self.open == 0
    }
}

/// The row of a peer of which nothing is known but this report, which arrived at `now_ns`.
pub fn row_of(now_ns: u64, made: &Made) -> LoadRow {
    let mut row = LoadRow {
        stamp_us: (made.at_ns >> 10) as u32,
        stamp_epoch: 1,
        backlog_ns: made.backlog_ns,
        queued_milli: made.queued_milli,
        reported_at_ns: now_ns,
        ..LoadRow::default()
    };
    take_body(&mut row, made);
    row
}

/// Takes the part of a report that no other frame carries.
fn take_body(row: &mut LoadRow, made: &Made) {
    row.report_seq = made.sequence;
    (row.workers, row.busy_milli) = (made.body.workers, made.body.busy_milli);
    (row.mean_backlog_ns, row.memory_milli) = (made.body.mean_backlog_ns, made.body.memory_milli);
    row.behind = made.body.behind;
    row.valid_until_ns = made.good_until_ns;
    row.reports += 1;
}

/// Up to this many nodes, each keeps a row for every other; beyond, for those it has to do with.
const DENSE: usize = 256;
/// Rows that all nodes of a large cluster together keep of peers at rest, about.
const AT_REST: usize = 1 << 17;

/// The peers of one node.
#[derive(Clone, Debug)]
pub struct Peers {
    dense: Vec<Peer>,
    sparse: HashMap<u16, Peer, BuildHasherDefault<MixHasher>>,
    /// Rows that are kept of peers at rest.
    least: usize,
    /// Rows from which on those at rest are forgotten.
    most: usize,
}

impl Peers {
    /// Peers of a node of a cluster of `nodes`, nothing known of any.
    pub fn new(nodes: usize) -> Self {
        let dense = if nodes <= DENSE { vec![Peer::default(); nodes] } else { Vec::new() };
        let least = (AT_REST / nodes).clamp(16, DENSE);
        Self { dense, sparse: HashMap::default(), least, most: least }
    }

    /// The peer, if something is known of it.
    pub fn get(&self, node: u16) -> Option<&Peer> {
        if self.dense.is_empty() { self.sparse.get(&node) } else { self.dense.get(usize::from(node)) }
    }

    /// The peer, known from now on.
    pub fn get_mut(&mut self, node: u16) -> &mut Peer {
        if !self.dense.is_empty() {
            return &mut self.dense[usize::from(node)];
        }
        if self.sparse.len() >= self.most && !self.sparse.contains_key(&node) {
            self.sparse.retain(|_, peer| !peer.is_at_rest());
            self.most = self.least.max(2 * self.sparse.len());
        }
        self.sparse.entry(node).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataplane_common::wire::link::Report;

    const LEARNING: Learning =
        Learning { predicts: true, relax: Rate::of(20_000), forget_ns: 1_000_000, gain_milli: 1000 };

    fn made(at_ns: u64, sequence: u32, backlog_ns: u32) -> Made {
        let body = Report { workers: 2, interval_us: 100, busy_milli: 300, ..Report::default() };
        Made { sequence, at_ns, good_until_ns: at_ns + 502_000, backlog_ns, queued_milli: 2_000, body }
    }

    #[test]
    fn reports_acknowledge_what_had_arrived_when_they_were_made() {
        let mut peer = Peer::default();
        peer.send(1_000_000, 5_000, Some(1_003_000), &LEARNING);
        peer.send(1_001_000, 700, None, &LEARNING);
        peer.send(1_002_000, 6_000, Some(1_005_000), &LEARNING);
        assert_eq!((peer.row.get().in_flight_ns(), peer.row.get().outstanding()), (11_700, 3));
        peer.take_report(1_006_000, &made(1_004_000, 1, 9_000), &LEARNING);
        let row = peer.row.get();
        assert_eq!((row.backlog_ns, row.in_flight_ns(), row.in_flight_frames()), (9_000, 6_700, 2));
        assert_eq!((row.marked_ns, row.pressure_ns, row.workers), (11_700, 6_700, 2));
        assert!(row.is_candidate(1_505_999) && !row.is_candidate(1_506_000), "as long as it is good");
        // The later position covers the frame that was lost.
        peer.take_report(1_012_000, &made(1_010_000, 2, 0), &LEARNING);
        assert_eq!(peer.row.get().in_flight_ns(), 0);
    }

    #[test]
    fn an_older_load_changes_nothing() {
        let mut peer = Peer::default();
        let frame = |read_ns: u64, backlog_ns| Frame {
            read_ns,
            load: Carried { stamp_us: (read_ns >> 10) as u32, backlog_ns, ..Carried::default() },
            ..Frame::default()
        };
        assert!(peer.take_piggyback(1_000_000, &frame(990_000, 5), &LEARNING).is_some());
        assert!(peer.take_piggyback(1_001_000, &frame(980_000, 7), &LEARNING).is_none());
        assert_eq!((peer.row.get().backlog_ns, peer.row.get().reported_at_ns), (5, 1_000_000));
        peer.take_report(1_002_000, &made(985_000, 1, 9), &LEARNING);
        assert_eq!((peer.row.get().backlog_ns, peer.row.get().workers), (5, 2), "the rest of the report is news");
        peer.send(1_003_000, 100, Some(1_004_000), &LEARNING);
        peer.take_piggyback(1_005_000, &frame(1_004_500, 100), &LEARNING);
        assert_eq!(peer.row.get().in_flight_ns(), 0);
    }

    #[test]
    fn a_row_made_of_a_report_is_that_of_a_peer_that_took_it() {
        let (peer, made) = (Peer::default(), made(1_000_000, 3, 9_000));
        peer.take_report(1_002_000, &made, &Learning { predicts: false, ..LEARNING });
        assert_eq!(row_of(1_002_000, &made), peer.row.get());
    }

    #[test]
    fn results_teach() {
        let mut peer = Peer::default();
        peer.send(0, 4_000, Some(10), &LEARNING);
        let mut frame = Frame::default();
        (frame.packet.arrived_ns, frame.packet.charged_ns, frame.packet.served_ns) = (1_000, 4_000, 2_000);
        peer.take_result(11_000, &frame, &LEARNING);
        let row = peer.row.get();
        assert_eq!((row.response_ns, row.peak_ns, row.service_ns, row.outstanding()), (10_000, 10_000, 2_000, 0));
        assert!(row.speed_milli > 1000 && peer.is_at_rest());
    }

    #[test]
    fn a_large_cluster_keeps_what_it_needs() {
        let mut peers = Peers::new(1024);
        for node in 0..1024 {
            peers.get_mut(node).send(0, 1, Some(1), &LEARNING);
            if node >= 100 {
                peers.get_mut(node).close();
            }
        }
        assert!(peers.sparse.len() <= 256, "{}", peers.sparse.len());
        assert!((0..100).all(|node| peers.get(node).is_some_and(|peer| peer.open == 1)));
        assert!(Peers::new(DENSE).get(255).is_some() && Peers::new(DENSE + 1).get(255).is_none());
    }
}

//! The control thread's clockwork: tells the peers this node's load, often under load and seldom when idle.
//!
//! It runs beside the workers, because a worker in the middle of a long computation could not keep the interval. Peers take
//! reports in XDP (`dp_link`), so a report wakes nobody there.

use std::mem::offset_of;
use std::net::SocketAddrV4;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use dataplane_common::bands::Behind;
use dataplane_common::decay;
use dataplane_common::load::{Here, Received, saturate};
use dataplane_common::maps::{LOAD_DRAINING, LOAD_SELF, LoadRow, WorkerRow};
use dataplane_common::reason::Reason;
use dataplane_common::report::{Moment, Plan, Schedule};
use dataplane_common::seal::SEAL_BYTES;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{Header, Kind, OVERHEAD_BYTES, REPORT_BYTES, Report};
use rustix::thread::ClockId;
use rustix::time::Timespec;

use crate::maps::Tables;
use crate::maps::tables::{add_own, pair, set};
use crate::sys::{BulkSocket, MOST, PacketSocket};
use crate::transport::{Taker, datagram};
use crate::ways::LiveWays;
use crate::worker::monotonic_ns;

/// Time over which the mean backlog is taken, ns.
const MEAN_NS: u32 = 1_000_000_000;

/// A peer and the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The peer's id.
    pub node: u16,
    /// Index of our interface that leads there.
    pub ifindex: u32,
    /// The peer's MAC address.
    pub mac: [u8; 6],
    /// Our interface's MAC address.
    pub source_mac: [u8; 6],
}

/// How reports leave, and arrive where XDP does not take them.
#[derive(Debug)]
pub enum ReportSocket {
    /// As Ethernet frames; peers' reports are taken by XDP.
    Packet(PacketSocket),
    /// By UDP sockets of the kernel.
    Udp {
        /// One for each link, with the interface's index.
        sockets: Vec<(u32, BulkSocket)>,
        /// What takes the reports of peers.
        taker: Box<Taker>,
    },
}

impl ReportSocket {
    /// Sends a frame out of interface `ifindex`; false when that cannot be done.
    fn send(&self, ifindex: u32, frame: &[u8]) -> bool {
        match self {
            Self::Packet(socket) => socket.send(ifindex, frame).is_ok(),
            Self::Udp { sockets, .. } => {
                let socket = sockets.iter().find(|(index, _)| *index == ifindex);
                let next = |(to, bytes): (SocketAddrV4, _)| (SocketAddrV4::new(*to.ip(), to.port() + 1), bytes);
                socket.is_some_and(|(_, socket)| socket.send(datagram(frame).map(next).into_iter()) == 1)
            }
        }
    }

    /// Takes the reports that have come.
    fn receive(&self) {
        let Self::Udp { sockets, taker } = self else { return };
        let mut frame = [[0; LONGEST_REPORT]; 8];
        for (_, socket) in sockets {
            let mut lengths = [0; MOST];
            let buffers = frame.iter_mut().map(|frame| &mut frame[ETHERNET_BYTES..]);
            let received = socket.receive(buffers, &mut lengths);
            for (frame, length) in frame.iter_mut().zip(&lengths[..received]) {
                let end = (ETHERNET_BYTES + length).min(frame.len());
                // Whatever else comes here has no worker to go to, and is none of ours: reports end in the taker.
                taker.take_report(&mut frame[..end]);
            }
        }
    }
}

/// Longest report frame with a seal, bytes.
const LONGEST_REPORT: usize = OVERHEAD_BYTES + SEAL_BYTES + REPORT_BYTES;

/// What the thread that reports does besides.
pub trait Beside {
    /// Called after every look, with the time; what changes for the reports.
    fn turn(&mut self, now_ns: u64) -> Orders;
    /// Called about every 100 ms.
    fn slow_turn(&mut self);
}

/// What changes for the reports.
#[derive(Debug, Default)]
pub struct Orders {
    /// The peers to report to from now on.
    pub peers: Option<Vec<PeerAddress>>,
    /// When to report from now on, and how much work a worker takes, ns (0 = any amount).
    pub plan: Option<(Plan, u32)>,
}

/// Reports of one node.
pub struct Reporter {
    tables: Arc<Tables>,
    peers: Vec<PeerAddress>,
    ways: Arc<LiveWays>,
    received: Vec<(Received, u32)>,
    socket: ReportSocket,
    node: u16,
    epoch: u32,
    workers: u32,
    /// Work a worker takes, ns; 0 = any amount.
    backlog_limit_ns: u32,
    schedule: Schedule,
    sequence: u32,
    last: Snapshot,
    /// Backlog of a worker, mean over about the last [`MEAN_NS`], ns.
    mean_backlog_ns: u32,
    /// Which part of the workers' backlog lies behind a packet of each band, the mean over the workers.
    behind: u64,
}

/// What the workers had done at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Snapshot {
    at_ns: u64,
    busy_ns: u64,
    charged_packets: u64,
    discharged_packets: u64,
    backlog_ns: u64,
    queued_milli: u64,
    frames_in_use: u64,
    frames: u64,
}

impl Snapshot {
    /// Share of packet memory in use, thousandths.
    fn memory_milli(&self) -> u16 {
        (self.frames_in_use * 1000).checked_div(self.frames).unwrap_or(0).min(1000) as u16
    }
}

impl Reporter {
    /// A reporter for `workers` workers of node `node` in boot `epoch`, each of which takes up to `backlog_limit_ns` of work
    /// (0 = any amount).
    pub fn new(
        tables: Arc<Tables>,
        (peers, ways): (Vec<PeerAddress>, Arc<LiveWays>),
        socket: ReportSocket,
        (node, epoch): (u16, u32),
        (workers, backlog_limit_ns): (u32, u32),
        plan: Plan,
    ) -> Self {
        Self {
            received: vec![(Received::default(), 0); peers.len()],
            tables,
            peers,
            ways,
            socket,
            node,
            epoch,
            workers,
            backlog_limit_ns,
            schedule: Schedule::new(plan),
            sequence: 0,
            last: Snapshot::default(),
            mean_backlog_ns: 0,
            behind: 0,
        }
    }

    /// Reports until `stop` is set; while `draining` is set, reports say that this node is full, so that no policy of any
    /// peer chooses it. What else the thread has to do is done in between.
    pub fn run(&mut self, stop: &AtomicBool, draining: &AtomicBool, beside: &mut impl Beside) {
        // The default slack of 50 µs would be half an interval; a failure only leaves it there.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut slow_at = 0;
        while !stop.load(Relaxed) {
            let now = monotonic_ns();
            if now >= slow_at {
                beside.slow_turn();
                slow_at = now + 100_000_000;
            }
            self.socket.receive();
            self.look(now, draining.load(Relaxed));
            let Orders { peers, plan } = beside.turn(now);
            if let Some(peers) = peers {
                self.received.resize(peers.len(), (Received::default(), 0));
                self.peers = peers;
            }
            if let Some((plan, backlog_limit_ns)) = plan {
                self.schedule = Schedule::new(plan);
                self.backlog_limit_ns = backlog_limit_ns;
            }
            sleep_until(now + u64::from(self.schedule.look_us().max(1)) * 1000);
        }
    }

    /// Reports to every peer if a report is due.
    fn look(&mut self, now_ns: u64, draining: bool) {
        // What was received is read before the backlog: a frame that arrives in between is counted twice for one interval,
        // never missed.
        for index in 0..self.peers.len() {
            self.received[index] = self.account_of(self.peers[index].node);
        }
        let mut snapshot = self.snapshot(now_ns);
        if draining {
            (snapshot.backlog_ns, snapshot.queued_milli) = (u64::MAX, u64::MAX);
        }
        let elapsed = now_ns.saturating_sub(self.last.at_ns).max(1);
        let busy_ns = snapshot.busy_ns.saturating_sub(self.last.busy_ns) / u64::from(self.workers);
        let busy_milli = (busy_ns.saturating_mul(1000) / elapsed).min(1000) as u16;
        let moment = Moment {
            now_ns,
            finished: snapshot.discharged_packets,
            waiting: saturate(snapshot.queued_milli / 1000),
            is_busy: snapshot.backlog_ns > 0 || snapshot.charged_packets != self.last.charged_packets,
            load_milli: busy_milli.into(),
        };
        let Some(interval_us) = self.schedule.due(&moment) else { return };
        self.follow(&snapshot, elapsed);
        self.sequence = self.sequence.wrapping_add(1);
        for index in 0..self.peers.len() {
            let peer = self.peers[index];
            let frame = self.frame(&peer, self.received[index], &snapshot, busy_milli, interval_us);
            let sent = frame.is_some_and(|frame| self.socket.send(peer.ifindex, &frame));
            let reason = if sent { Reason::ReportSent } else { Reason::DropReportUnsent };
            // Worker 0 has the row, but no worker counts these.
            add_own(self.tables.count(0, reason), 1);
        }
        self.show(&snapshot, busy_milli, draining);
        self.last = snapshot;
    }

    /// Moves the mean backlog towards the present one.
    fn follow(&mut self, snapshot: &Snapshot, elapsed_ns: u64) {
        let backlog_ns = saturate(snapshot.backlog_ns / u64::from(self.workers));
        let kept = decay::after(u32::MAX, elapsed_ns, MEAN_NS);
        let weigh = |ns: u32, weight: u32| (u64::from(ns) * u64::from(weight)) >> 32;
        self.mean_backlog_ns = saturate(weigh(self.mean_backlog_ns, kept) + weigh(backlog_ns, u32::MAX - kept));
        let shares = (0..self.workers).map(|worker| self.tables.worker_load(worker).behind);
        self.behind = Behind::mean(shares).0;
    }

    fn snapshot(&self, now_ns: u64) -> Snapshot {
        let mut sum = Snapshot { at_ns: now_ns, ..Snapshot::default() };
        for worker in 0..self.workers {
            let load = self.tables.worker_load(worker);
            let here = load.here(now_ns);
            sum.backlog_ns += u64::from(here.backlog_ns);
            sum.queued_milli += u64::from(here.queued_milli);
            sum.charged_packets = sum.charged_packets.wrapping_add(load.charged_packets);
            sum.discharged_packets = sum.discharged_packets.wrapping_add(load.discharged_packets);
            let row = self.tables.workers.row(worker);
            let memory = row.word(offset_of!(WorkerRow, frames_in_use)).load(Relaxed);
            sum.frames_in_use += memory & u64::from(u32::MAX);
            sum.frames += memory >> 32;
            sum.busy_ns = sum.busy_ns.wrapping_add(row.word(offset_of!(WorkerRow, busy_ns)).load(Relaxed));
            if load.serving_since_ns != 0 {
                sum.busy_ns = sum.busy_ns.wrapping_add(now_ns.saturating_sub(load.serving_since_ns));
            }
        }
        sum
    }

    /// What was received of `node`: position and boot, and frames, those lost on the way among them.
    fn account_of(&self, node: u16) -> (Received, u32) {
        let row = self.tables.load.row(u32::from(node));
        let received = Received::from_word(row.word(offset_of!(LoadRow, received_ns)).load(Acquire));
        (received, row.word(offset_of!(LoadRow, received_sequence)).load(Acquire) as u32)
    }

    /// The report to a peer; `None` when no way leads there.
    fn frame(
        &self,
        peer: &PeerAddress,
        (received, frames): (Received, u32),
        snapshot: &Snapshot,
        busy_milli: u16,
        interval_us: u32,
    ) -> Option<Vec<u8>> {
        let ways = self.ways.load();
        let way = ways.get(peer.node)?;
        let row = self.tables.load.row(u32::from(peer.node));
        let here = Here {
            backlog_ns: saturate(snapshot.backlog_ns / u64::from(self.workers)),
            queued_milli: saturate(snapshot.queued_milli / u64::from(self.workers)),
            ..Here::default()
        };
        let header = Header {
            sequence: self.sequence,
            position_ns: row.word(offset_of!(LoadRow, sent_ns)).load(Relaxed) as u32,
            load: here.carried(received, snapshot.at_ns),
            ..Header::without_frame(Kind::Report, self.node, peer.node, self.epoch)
        };
        let body = Report {
            behind: self.behind,
            mean_backlog_ns: self.mean_backlog_ns,
            received_frames: frames,
            interval_us,
            workers: self.workers as u16,
            busy_milli,
            memory_milli: snapshot.memory_milli(),
            limit_ns: self.limit_of(received, snapshot),
        };
        let mut frame = vec![0; ways.overhead(way, Kind::Report)];
        frame.extend_from_slice(&body.emit());
        ways.address(way, &header, &mut frame);
        Some(frame)
    }

    /// Position up to which a peer's work is taken: each peer may fill an equal share of what is left.
    fn limit_of(&self, received: Received, snapshot: &Snapshot) -> Option<u32> {
        if self.backlog_limit_ns == 0 {
            return None;
        }
        let accepted_ns = u64::from(self.backlog_limit_ns) * u64::from(self.workers);
        let left_ns = accepted_ns.saturating_sub(snapshot.backlog_ns) / self.peers.len().max(1) as u64;
        // Half of what a position can say is ahead of another one.
        Some(received.position_ns.wrapping_add(left_ns.min(i32::MAX as u64) as u32))
    }

    /// Shows the same in this node's own row of the load table.
    fn show(&self, snapshot: &Snapshot, busy_milli: u16, draining: bool) {
        let row = self.tables.load.row(u32::from(self.node));
        let backlog_ns = saturate(snapshot.backlog_ns / u64::from(self.workers));
        let queued_milli = saturate(snapshot.queued_milli / u64::from(self.workers));
        set(row, offset_of!(LoadRow, backlog_ns), pair(backlog_ns, 0));
        set(row, offset_of!(LoadRow, queued_milli), pair(queued_milli, self.workers | u32::from(busy_milli) << 16));
        let memory = u32::from(snapshot.memory_milli()) << 16;
        set(row, offset_of!(LoadRow, mean_backlog_ns), pair(self.mean_backlog_ns, memory | 1000));
        set(row, offset_of!(LoadRow, behind), self.behind);
        set(row, offset_of!(LoadRow, reported_at_ns), snapshot.at_ns);
        set(row, offset_of!(LoadRow, reports), u64::from(self.sequence));
        let flags = if draining { LOAD_SELF | LOAD_DRAINING } else { LOAD_SELF };
        set(row, offset_of!(LoadRow, acked_frames), pair(0, flags));
    }
}

fn sleep_until(at_ns: u64) {
    let until = Timespec { tv_sec: (at_ns / 1_000_000_000) as i64, tv_nsec: (at_ns % 1_000_000_000) as _ };
    // An interrupted sleep only means that the next report comes early.
    let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &until);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::tables::tests::tables;
    use crate::ways::{Way, Ways};
    use dataplane_common::report::Mode;

    #[test]
    fn a_report_carries_load_positions_and_promise() {
        let Ok(socket) = PacketSocket::open() else {
            eprintln!("SKIP a_report_carries_load_positions_and_promise: no CAP_NET_RAW");
            assert!(std::env::var_os("DATAPLANE_TEST_ALL").is_none(), "DATAPLANE_TEST_ALL forbids skipping");
            return;
        };
        let tables = Arc::new(tables(4, 2, 1, 1));
        let peer = PeerAddress { node: 3, ifindex: u32::MAX, mac: [2; 6], source_mac: [4; 6] };
        let row = tables.load.row(3);
        set(row, offset_of!(LoadRow, sent_ns), (1 << 32) + 77);
        set(row, offset_of!(LoadRow, received_ns), Received { position_ns: 55, epoch: 9 }.to_word());
        set(row, offset_of!(LoadRow, received_frames), 5);
        set(row, offset_of!(LoadRow, received_sequence), 6);
        set(tables.workers.row(0), offset_of!(WorkerRow, charged_ns), 3000);
        set(tables.workers.row(1), offset_of!(WorkerRow, charged_ns), 1000);
        set(tables.workers.row(1), offset_of!(WorkerRow, charged_packets), 2);
        let plan = Plan {
            mode: Mode::Periodic,
            busy_us: 100,
            idle_us: 1000,
            gap_us: 20,
            finish_percent: 50,
            threshold_milli: 700,
            recovery_milli: 500,
        };
        set(tables.workers.row(0), offset_of!(WorkerRow, frames_in_use), pair(300, 1000));
        let way =
            Way { node: 3, interface: 0, mac: peer.mac, source_mac: peer.source_mac, max_frame: 1_514, route: None };
        let ways = Arc::new(LiveWays::from_pointee(Ways::new([way])));
        let mut reporter = Reporter::new(
            Arc::clone(&tables),
            (vec![peer], ways),
            ReportSocket::Packet(socket),
            (1, 42),
            (2, 10_000),
            plan,
        );

        let snapshot = reporter.snapshot(10);
        let frame = reporter.frame(&peer, reporter.account_of(3), &snapshot, 500, 100).unwrap();
        let header = Header::parse(frame.as_slice(), ETHERNET_BYTES).unwrap();
        assert_eq!((header.kind, header.source, header.destination), (Kind::Report, 1, 3));
        assert_eq!((header.epoch, header.position_ns), (42, 77));
        let report = Report::parse(frame.as_slice(), OVERHEAD_BYTES).unwrap();
        assert_eq!((header.load.backlog_ns, header.load.queued_milli()), (2000, 1000));
        assert_eq!((header.load.received_ns, header.load.received_epoch, report.received_frames), (55, 9, 6));
        assert_eq!((report.busy_milli, report.workers, report.interval_us), (500, 2, 100));
        assert_eq!(report.memory_milli, 300);
        assert_eq!(report.limit_ns, Some(55 + 2 * 10_000 - 4000), "what is left of the limit");

        reporter.look(1_000_000, false);
        assert_eq!(reporter.schedule.look_us(), 100, "busy");
        assert_eq!(tables.count(0, Reason::DropReportUnsent).load(Relaxed), 1, "no such interface");
        let own = || tables.load.row(1).word(offset_of!(LoadRow, backlog_ns)).load(Relaxed);
        assert_eq!(own(), 2000);
        for worker in 0..2 {
            let charged = tables.workers.row(worker).word(offset_of!(WorkerRow, charged_ns)).load(Relaxed);
            set(tables.workers.row(worker), offset_of!(WorkerRow, discharged_ns), charged);
        }
        reporter.look(2_000_000, false);
        assert_eq!(reporter.schedule.look_us(), 1000, "idle");
        reporter.look(3_000_000, true);
        assert_eq!(reporter.schedule.look_us(), 100, "draining");
        assert_eq!(own(), u64::from(u32::MAX));
    }
}

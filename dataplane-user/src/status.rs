//! What a node looks like from outside: everything is read from its pinned maps, so it works for every node of the host,
//! whatever namespace it runs in, and as long as its pins exist.

mod show;

use std::path::Path;

use aya::maps::{Array, Map, MapData, MapError, PerCpuArray};
use dataplane_common::bands::Behind;
use dataplane_common::ledger::{Counters, Ledger};
use dataplane_common::load::{Erl, Row as _, WorkerLoad};
use dataplane_common::maps::{
    self as names, FunctionRow, LOAD_DRAINING, LoadRow, MetaRow, NameRow, PEER_DRAINING, PEER_MEMBER, PEER_UNREACHABLE,
    PEER_UNRESOLVED, PeerRow, QUEUE_BOUND, QUEUE_ZERO_COPY, QueueRow, SignalsRow, WorkerRow, function_slot,
    socket_slot,
};
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::{REASON_STRIDE, REASONS, Reason};
use serde::Serialize;

use crate::config::Order;
use crate::functions::Builtin;
use crate::maps::{MapValue, PinDir, PinError, Value};
use crate::worker::monotonic_ns;

pub(crate) use show::time;

/// `dataplane status -j`.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// `dataplane.status/1`.
    pub schema: &'static str,
    /// Who the node is.
    pub node: NodeStatus,
    /// Its AF_XDP sockets.
    pub sockets: Vec<SocketStatus>,
    /// Its workers.
    pub workers: Vec<WorkerStatus>,
    /// The other nodes, as it sees them.
    pub peers: Vec<PeerStatus>,
    /// What it knows of the cluster as a whole.
    pub signals: SignalsStatus,
    /// Its functions, as each worker measures them.
    pub functions: Vec<FunctionStatus>,
    /// What happened to frames, by [`Reason`] name.
    pub counters: serde_json::Map<String, serde_json::Value>,
    /// The proof that no frame is lost silently.
    pub ledger: LedgerStatus,
}

/// Who the node is.
#[derive(Clone, Debug, Serialize)]
pub struct NodeStatus {
    /// Name.
    pub name: String,
    /// Id.
    pub id: u32,
    /// `running`, `draining` when it takes no work of others, or `dead` when the process is gone and its pins are left.
    pub state: &'static str,
    /// Process id.
    pub pid: u32,
    /// Boot epoch.
    pub epoch: u32,
    /// Policy of functions that name none.
    pub policy: &'static str,
    /// Time since the start, ns.
    pub uptime_ns: u64,
    /// Report interval under load, µs.
    pub report_interval_us: u32,
    /// Inode of its network namespace.
    pub netns: u64,
}

/// One AF_XDP socket.
#[derive(Clone, Debug, Serialize)]
pub struct SocketStatus {
    /// Index of the interface in the node.
    pub interface: u32,
    /// Kernel index of the interface, in the node's namespace.
    pub ifindex: u32,
    /// Queue.
    pub queue: u32,
    /// Worker that serves it.
    pub worker: u32,
    /// True in zero-copy mode, false in copy mode.
    pub zero_copy: bool,
    /// Packets XDP gave to it.
    pub charged_packets: u64,
    /// Packets the worker took.
    pub taken_packets: u64,
    /// Dropped by the kernel: fill ring empty or memory short.
    pub rx_dropped: u64,
    /// Dropped by the kernel: receive ring full.
    pub rx_ring_full: u64,
    /// Descriptors of ours the kernel refused.
    pub invalid_descs: u64,
}

/// One worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    /// Index.
    pub worker: u32,
    /// CPU it is pinned to.
    pub cpu: u32,
    /// Thread id.
    pub tid: u32,
    /// Work waiting, ns.
    pub backlog_ns: u32,
    /// Packets waiting or in service.
    pub queued: u32,
    /// Work charged so far, ns.
    pub charged_ns: u64,
    /// Work discharged so far, ns.
    pub discharged_ns: u64,
    /// Of which written off because the frames never came, ns.
    pub lost_ns: u64,
    /// Packets of which that was the charge.
    pub lost_packets: u64,
    /// Time spent in functions, ns.
    pub busy_ns: u64,
    /// Time spent in steps that had packets, functions included, ns.
    pub stepped_ns: u64,
    /// Packets handled in those steps.
    pub stepped_packets: u64,
}

/// One peer.
#[derive(Clone, Debug, Serialize)]
pub struct PeerStatus {
    /// Id.
    pub id: u32,
    /// Name; null when it is not known.
    pub name: Option<String>,
    /// Whether it may take packets.
    pub state: PeerState,
    /// `present` or `draining` for a member of the cluster; null for a node that only the configuration names.
    pub member: Option<&'static str>,
    /// MAC address of its end of the link; null until it is known.
    pub mac: Option<String>,
    /// Age of the last load taken, ns; null before the first.
    pub age_ns: Option<u64>,
    /// Reports taken.
    pub reports: u64,
    /// Loads taken from forwards and results.
    pub piggybacked: u64,
    /// Backlog it reported, ns.
    pub backlog_ns: u32,
    /// Work sent there that the report does not include, ns.
    pub in_flight_ns: u32,
    /// Estimated remote load: what a packet sent now should expect to wait, ns.
    pub erl_ns: u64,
    /// Packets waiting or in service at one of its workers, thousandths.
    pub queued_milli: u32,
    /// Share of the last interval it was busy, thousandths.
    pub busy_milli: u16,
    /// Its workers.
    pub workers: u16,
    /// Work sent there, ns.
    pub sent_ns: u64,
    /// Frames with work sent there.
    pub sent_frames: u64,
    /// Frames of those that it says have arrived (low 32 bits).
    pub acked_frames: u32,
    /// Frames with work that arrived from it, in its present boot.
    pub received_frames: u64,
    /// Results that came back from it.
    pub completed_frames: u64,
    /// Its speed against this node's, thousandths; null until known.
    pub speed_milli: Option<u16>,
    /// Response time of packets sent there, mean over the last eight, ns; null before the first result, as the next three.
    pub response_ns: Option<u32>,
    /// Service time of these packets there, mean, ns.
    pub service_ns: Option<u32>,
    /// What a packet's way there and back takes beyond the time it spends there, mean, ns.
    pub transit_ns: Option<u32>,
    /// Length of the packets of which that is the mean, bytes.
    pub transit_bytes: Option<u32>,
    /// Backlog of the node, mean over about a second, ns.
    pub mean_backlog_ns: u32,
    /// Share of its packet memory in use, thousandths.
    pub memory_milli: u16,
}

/// Whether a peer may take packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    /// It may.
    Alive,
    /// Its reports have stopped.
    Stale,
    /// It has not reported yet.
    Unseen,
    /// The kernel has not found out its MAC address.
    Unresolved,
    /// It is a member without a link on a segment of this node's, or of another version.
    Unreachable,
}

impl PeerState {
    /// The state of the peer of `row` at `now_ns`.
    pub(crate) fn of(row: &LoadRow, now_ns: u64) -> Self {
        match row.valid_until_ns {
            0 => Self::Unseen,
            _ if row.is_candidate(now_ns) => Self::Alive,
            _ => Self::Stale,
        }
    }

    /// As [`PeerState::of`], for a peer that may not be reachable.
    fn of_peer(peer: &PeerRow, row: &LoadRow, now_ns: u64) -> Self {
        match peer.flags {
            flags if flags & PEER_UNREACHABLE != 0 => Self::Unreachable,
            flags if flags & PEER_UNRESOLVED != 0 => Self::Unresolved,
            _ => Self::of(row, now_ns),
        }
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unresolved => "unresolved",
            Self::Unreachable => "unreachable",
            Self::Alive => "alive",
            Self::Stale => "stale",
            Self::Unseen => "unseen",
        }
    }
}

/// What a node knows of the cluster as a whole.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SignalsStatus {
    /// Share of time the workers of the live nodes are busy, forwarding included, thousandths.
    pub utilisation_milli: u32,
    /// Mean service time of a packet here, ns.
    pub service_ns: u32,
    /// Packets that arrive at a worker per second, mean over the cluster.
    pub arrivals_per_s: f64,
    /// Median error of the predicted load of a node against its next report, ns; 0 unless a policy predicts.
    pub deviation_ns: u32,
    /// CPU time that sending a packet to a peer costs, ns.
    pub send_ns: u32,
    /// What comes on top of it where workers decide and send, ns; 0 = not known.
    pub worker_send_ns: u64,
    /// CPU time that receiving it costs, ns.
    pub receive_ns: u32,
    /// Time on the wire, whatever the length, ns.
    pub wire_ns: u32,
    /// Time on the wire per byte, ns.
    pub wire_ns_per_byte: f64,
}

/// One function on one worker.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionStatus {
    /// Name.
    pub name: &'static str,
    /// Type id.
    pub type_id: u32,
    /// Policy that places its packets.
    pub policy: &'static str,
    /// In which order its results leave.
    pub order: &'static str,
    /// Node that takes all its packets for now; null when they are placed one by one.
    pub home: Option<u32>,
    /// Worker.
    pub worker: u32,
    /// Fixed cost, ns.
    pub a_ns: u32,
    /// Cost per unit of work, ns.
    pub b_ns_per_unit: f64,
    /// Packets computed.
    pub samples: u64,
    /// Sum of their estimates, ns.
    pub predicted_ns: u64,
    /// Sum of their measured service times, ns.
    pub measured_ns: u64,
    /// Median service time, ns.
    pub service_p50_ns: u32,
    /// 99th percentile of the service time, ns.
    pub service_p99_ns: u32,
    /// Median of |estimate − measured| / measured, thousandths.
    pub error_p50_milli: u32,
    /// 99th percentile of it.
    pub error_p99_milli: u32,
}

/// [`Ledger`] for people and machines.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LedgerStatus {
    /// Frames that arrived at ports.
    pub port_seen: u64,
    /// Of which ended under a name.
    pub port_ended: u64,
    /// Frames that arrived on links.
    pub link_seen: u64,
    /// Of which ended under a name.
    pub link_ended: u64,
    /// Frames given to workers.
    pub queued: u64,
    /// Of which the kernel dropped in front of a receive ring.
    pub ring_dropped: u64,
    /// Of which workers took.
    pub taken: u64,
    /// Of which ended under a name.
    pub worker_ended: u64,
    /// Frames between two stages at the moment of reading.
    pub in_flight: i64,
    /// True when every frame has ended under a name.
    pub balances: bool,
}

impl From<Ledger> for LedgerStatus {
    fn from(ledger: Ledger) -> Self {
        Self {
            port_seen: ledger.port_seen,
            port_ended: ledger.port_ended,
            link_seen: ledger.link_seen,
            link_ended: ledger.link_ended,
            queued: ledger.queued,
            ring_dropped: ledger.ring_dropped,
            taken: ledger.taken,
            worker_ended: ledger.worker_ended,
            in_flight: ledger.in_flight(),
            balances: ledger.balances(),
        }
    }
}

/// A failure at the pinned map `name` of `dir`.
pub(crate) fn map_failed(dir: &PinDir, name: &'static str) -> impl Fn(MapError) -> PinError {
    let path = dir.path().join(name);
    move |error| PinError::Map(path.clone(), error)
}

/// Opens a pinned array.
pub(crate) fn pinned<T: MapValue>(dir: &PinDir, name: &'static str) -> Result<Array<MapData, Value<T>>, PinError> {
    Map::Array(dir.open(name)?).try_into().map_err(map_failed(dir, name))
}

/// Reads every row of a pinned array.
pub(crate) fn rows<T: MapValue>(dir: &PinDir, name: &'static str) -> Result<Vec<T>, PinError> {
    let array = pinned::<T>(dir, name)?;
    array.iter().map(|row| row.map(|value| value.0).map_err(map_failed(dir, name))).collect()
}

/// Counters of XDP and workers, summed.
fn counters(dir: &PinDir) -> Result<Counters, PinError> {
    let mut counters = [0u64; REASONS];
    let failed = map_failed(dir, names::XDP_COUNT);
    let xdp: PerCpuArray<MapData, u64> = Map::PerCpuArray(dir.open(names::XDP_COUNT)?).try_into().map_err(&failed)?;
    for reason in Reason::ALL {
        let per_cpu = xdp.get(&(*reason as u32), 0).map_err(&failed)?;
        counters[*reason as usize] = per_cpu.iter().sum();
    }
    for (at, count) in rows::<u64>(dir, names::WORKER_COUNT)?.into_iter().enumerate() {
        if let Some(counter) = counters.get_mut(at % REASON_STRIDE) {
            *counter += count;
        }
    }
    Ok(counters)
}

/// [`NodeStatus::state`] of a node whose process has ended.
const DEAD: &str = "dead";

impl Status {
    /// True when the node's process lives.
    pub fn is_running(&self) -> bool {
        self.node.state != DEAD
    }

    /// Reads the status of the node with these pins.
    ///
    /// # Errors
    /// [`PinError::NotRunning`] without pins, [`PinError::Abi`] for another version's.
    pub fn read(dir: &PinDir) -> Result<Self, PinError> {
        let meta = dir.meta()?;
        let now_ns = monotonic_ns();
        let queues = rows::<QueueRow>(dir, names::QUEUES)?;
        // Ends before beginnings: what moves while we read shows as in flight, not as made of nothing.
        let counters = counters(dir)?;
        let ring_dropped = queues.iter().map(|queue| queue.rx_dropped + queue.rx_ring_full).sum();
        let loads = rows::<LoadRow>(dir, names::LOAD_TABLE)?;
        let peers = rows::<PeerRow>(dir, names::PEERS)?;
        let workers = rows::<WorkerRow>(dir, names::WORKERS)?;
        let functions = rows::<FunctionRow>(dir, names::FUNCTIONS)?;
        let signals = rows::<SignalsRow>(dir, names::SIGNALS)?;
        let names = rows::<NameRow>(dir, names::NAMES)?;
        let is_draining = loads.get(meta.node as usize).is_some_and(|row| row.flags & LOAD_DRAINING != 0);
        let peers = (0..).zip(loads.iter().zip(&peers).zip(&names)).filter(|(_, ((_, peer), _))| peer.flags != 0);
        Ok(Self {
            schema: "dataplane.status/1",
            node: node_status(dir, &meta, is_draining, now_ns),
            sockets: sockets(&queues, &meta),
            workers: (0..).zip(&workers).map(|(index, row)| worker_status(index, row, now_ns)).collect(),
            peers: peers.map(|(id, ((row, peer), name))| peer_status(id, name, (row, peer), now_ns)).collect(),
            signals: signals_status(&signals.first().copied().unwrap_or_default()),
            functions: function_statuses(&functions, &meta),
            counters: Reason::ALL
                .iter()
                .map(|reason| (reason.name().to_owned(), counters[*reason as usize].into()))
                .collect(),
            ledger: Ledger::new(&counters, ring_dropped).into(),
        })
    }
}

fn node_status(dir: &PinDir, meta: &MetaRow, is_draining: bool, now_ns: u64) -> NodeStatus {
    let lives = dir.is_owned();
    NodeStatus {
        name: dir.node(),
        id: meta.node,
        state: match (lives, is_draining) {
            (false, _) => DEAD,
            (true, true) => "draining",
            (true, false) => "running",
        },
        pid: meta.pid,
        epoch: meta.epoch,
        policy: policy_name(meta.policy),
        uptime_ns: now_ns.saturating_sub(meta.started_ns),
        report_interval_us: meta.report_interval_us,
        netns: meta.netns,
    }
}

fn sockets(queues: &[QueueRow], meta: &MetaRow) -> Vec<SocketStatus> {
    let interfaces = queues.len() as u32 / names::MAX_WORKERS as u32;
    let slots = (0..interfaces).flat_map(|interface| (0..meta.workers).map(move |worker| (interface, worker)));
    slots
        .map(|(interface, worker)| (interface, queues[socket_slot(interface, worker) as usize]))
        .filter(|(_, row)| row.flags & QUEUE_BOUND != 0)
        .map(|(interface, row)| SocketStatus {
            interface,
            ifindex: row.ifindex,
            queue: row.queue,
            worker: row.worker,
            zero_copy: row.flags & QUEUE_ZERO_COPY != 0,
            charged_packets: row.charged_packets,
            taken_packets: row.taken_packets,
            rx_dropped: row.rx_dropped,
            rx_ring_full: row.rx_ring_full,
            invalid_descs: row.invalid_descs,
        })
        .collect()
}

/// The name of the policy of this number.
fn policy_name(id: u32) -> &'static str {
    PolicyKind::from_id(id).map_or("unknown", PolicyKind::name)
}

/// What the worker of `row` was charged, has done and is doing.
pub(crate) fn worker_load(row: &WorkerRow) -> WorkerLoad {
    WorkerLoad {
        charged_ns: row.charged_ns,
        discharged_ns: row.discharged_ns,
        charged_packets: row.charged_packets,
        discharged_packets: row.discharged_packets,
        serving_since_ns: row.serving_since_ns,
        serving_charge_ns: row.serving_charge_ns as u32,
        behind: Behind(row.behind),
    }
}

fn worker_status(index: u32, row: &WorkerRow, now_ns: u64) -> WorkerStatus {
    let here = worker_load(row).here(now_ns);
    WorkerStatus {
        worker: index,
        cpu: row.cpu,
        tid: row.tid,
        backlog_ns: here.backlog_ns,
        queued: here.queued_milli / 1000,
        charged_ns: row.charged_ns,
        discharged_ns: row.discharged_ns,
        lost_ns: row.lost_ns,
        lost_packets: row.lost_packets,
        busy_ns: row.busy_ns,
        stepped_ns: row.stepped_ns,
        stepped_packets: row.stepped_packets,
    }
}

fn peer_status(id: u32, name: &NameRow, (row, peer): (&LoadRow, &PeerRow), now_ns: u64) -> PeerStatus {
    let name = String::from_utf8_lossy(&name.name);
    let measured = |value: u32| (row.response_ns > 0).then_some(value);
    PeerStatus {
        id,
        name: Some(name.trim_end_matches('\0')).filter(|name| !name.is_empty()).map(str::to_owned),
        state: PeerState::of_peer(peer, row, now_ns),
        member: (peer.flags & PEER_MEMBER != 0).then_some(if peer.flags & PEER_DRAINING != 0 {
            "draining"
        } else {
            "present"
        }),
        mac: (peer.mac != [0; 6]).then(|| peer.mac.map(|octet| format!("{octet:02x}")).join(":")),
        age_ns: (row.reports > 0).then(|| row.age_ns(now_ns)),
        reports: row.reports,
        piggybacked: row.piggybacked,
        backlog_ns: row.backlog_ns,
        in_flight_ns: row.in_flight_ns(),
        erl_ns: row.erl_ns(Erl::Ack, now_ns),
        queued_milli: row.queued_milli,
        busy_milli: row.busy_milli,
        workers: row.workers,
        sent_ns: row.sent_ns,
        sent_frames: row.sent_frames,
        acked_frames: row.acked_frames,
        received_frames: row.received_frames,
        completed_frames: row.completed_frames,
        speed_milli: (row.speed_milli > 0).then_some(row.speed_milli),
        response_ns: measured(row.response_ns),
        service_ns: measured(row.service_ns),
        transit_ns: measured(row.transit_ns),
        transit_bytes: measured(row.transit_bytes),
        mean_backlog_ns: row.mean_backlog_ns,
        memory_milli: row.memory_milli,
    }
}

fn signals_status(row: &SignalsRow) -> SignalsStatus {
    SignalsStatus {
        utilisation_milli: row.utilisation_milli,
        service_ns: row.service_ns,
        arrivals_per_s: f64::from(row.arrivals_q32) / 4_294_967_296.0 * 1e9,
        deviation_ns: row.deviation_ns,
        send_ns: row.send_ns,
        worker_send_ns: row.worker_send_ns,
        receive_ns: row.receive_ns,
        wire_ns: row.wire_ns,
        wire_ns_per_byte: f64::from(row.wire_ns_per_byte_q16) / 65_536.0,
    }
}

fn function_statuses(rows: &[FunctionRow], meta: &MetaRow) -> Vec<FunctionStatus> {
    let slots = (0..meta.functions).flat_map(|function| (0..meta.workers).map(move |worker| (function, worker)));
    slots
        .filter_map(|(function, worker)| Some((worker, rows.get(function_slot(function, worker) as usize)?)))
        .map(|(worker, row)| FunctionStatus {
            name: Builtin::ALL.get(row.builtin as usize).map_or("unknown", |builtin| builtin.name()),
            type_id: row.type_id,
            policy: policy_name(row.policy),
            order: Order::from_id(row.order).map_or("unknown", Order::name),
            home: row.home.checked_sub(1),
            worker,
            a_ns: row.a_ns,
            b_ns_per_unit: f64::from(row.b_q16) / 65_536.0,
            samples: row.samples,
            predicted_ns: row.predicted_ns,
            measured_ns: row.measured_ns,
            service_p50_ns: row.service_p50_ns,
            service_p99_ns: row.service_p99_ns,
            error_p50_milli: row.error_p50_milli,
            error_p99_milli: row.error_p99_milli,
        })
        .collect()
}

/// Every node of the host, by name.
///
/// # Errors
/// [`PinError::NotRunning`] when there is none.
pub fn all(bpffs: &Path) -> Result<Vec<PinDir>, PinError> {
    let dirs = PinDir::all(bpffs);
    if dirs.is_empty() { Err(PinError::NotRunning(bpffs.join("dataplane"))) } else { Ok(dirs) }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;

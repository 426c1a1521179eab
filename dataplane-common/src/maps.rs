//! Layout of everything that XDP programs, workers, `status` and bpftool share: map names, sizes, values.
//!
//! Rules: plain `repr(C)` structs of integers without padding (padding would leak stack bytes into a map), one writer per
//! field or atomic adds, fields that must be read together adjacent in one aligned 8-byte word, what different cores write
//! on different cache lines. Map names have at most 15 characters (`BPF_OBJ_NAME_LEN`).

use crate::load::saturate;

/// Changes whenever a layout below, the metadata or the interconnect header changes.
pub const ABI_VERSION: u32 = 1;

/// Rows in the load table when the object is loaded by hand; `dataplane run` sizes it to the cluster.
pub const DEFAULT_NODES: usize = 64;
/// Largest node id plus one.
pub const MAX_NODES: usize = 4096;
/// Workers (and so receive queues per interface) a node may have.
pub const MAX_WORKERS: usize = 64;
/// Interfaces (ports and links) a node may have.
pub const MAX_INTERFACES: usize = 16;
/// Functions a node may have.
pub const MAX_FUNCTIONS: usize = 64;

/// `LOAD_TABLE`: [`LoadRow`] by node id.
pub const LOAD_TABLE: &str = "LOAD_TABLE";
/// `WORKERS`: [`WorkerRow`] by worker.
pub const WORKERS: &str = "WORKERS";
/// `QUEUES`: [`QueueRow`] by socket slot ([`socket_slot`]).
pub const QUEUES: &str = "QUEUES";
/// `FUNCTIONS`: [`FunctionRow`] by function and worker ([`function_slot`]).
pub const FUNCTIONS: &str = "FUNCTIONS";
/// `TYPES`: type id → function index.
pub const TYPES: &str = "TYPES";
/// `PEERS`: [`PeerRow`] by node id.
pub const PEERS: &str = "PEERS";
/// `LINKS`: node id → interface that leads there (a device map).
pub const LINKS: &str = "LINKS";
/// `PORTS`: interface index of the node → port (a device map).
pub const PORTS: &str = "PORTS";
/// `INTERFACES`: kernel ifindex → [`InterfaceRow`].
pub const INTERFACES: &str = "INTERFACES";
/// `XSKS`: socket slot → AF_XDP socket.
pub const XSKS: &str = "XSKS";
/// `XDP_COUNT`: per-CPU counter by [`crate::reason::Reason`].
pub const XDP_COUNT: &str = "XDP_COUNT";
/// `WORKER_COUNT`: counter by worker × [`crate::reason::REASON_STRIDE`] + reason.
pub const WORKER_COUNT: &str = "WORKER_COUNT";
/// `META`: one [`MetaRow`].
pub const META: &str = "META";

/// Every map, in the order `status` and `xtask maps` print them.
pub const ALL: [&str; 13] = [
    LOAD_TABLE,
    WORKERS,
    QUEUES,
    FUNCTIONS,
    TYPES,
    PEERS,
    LINKS,
    PORTS,
    INTERFACES,
    XSKS,
    XDP_COUNT,
    WORKER_COUNT,
    META,
];

/// Name of the read-only global that holds [`Params`].
pub const PARAMS: &str = "PARAMS";

/// Slot of the socket of interface `interface` and queue (= worker) `queue` in `XSKS` and `QUEUES`.
#[inline(always)]
pub const fn socket_slot(interface: u32, queue: u32) -> u32 {
    interface * MAX_WORKERS as u32 + queue
}

/// Slot of function `function` as worker `worker` measures it, in `FUNCTIONS`.
#[inline(always)]
pub const fn function_slot(function: u32, worker: u32) -> u32 {
    function * MAX_WORKERS as u32 + worker
}

/// One node of the load table.
///
/// Line 1 is what a decision reads. `sent_*` are atomic adds of the XDP programs that forward to the node; everything
/// else in a peer's row is written by the XDP program that takes the node's reports and frames, and in this node's own
/// row by its control thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct LoadRow {
    /// Reported backlog, mean over the node's workers, ns. One word with `acked_ns`.
    pub backlog_ns: u32,
    /// Position of our work that the report includes, ns (wrapping).
    pub acked_ns: u32,
    /// Until when the report is good, ns of this node's monotonic clock; 0 = never reported.
    pub valid_until_ns: u64,
    /// Packets waiting or in service at a worker of the node, thousandths. One word with `workers` and `busy_milli`.
    pub queued_milli: u32,
    /// The node's workers.
    pub workers: u16,
    /// Share of the last report interval the node's workers were busy, thousandths.
    pub busy_milli: u16,
    /// Work sent to the node, ns.
    pub sent_ns: u64,
    /// Frames with work sent to the node.
    pub sent_frames: u64,
    /// Reserved, zero.
    pub reserved1: [u64; 3],
    /// Newest position of the node's work that arrived here, ns (wrapping). One word with `received_epoch`.
    pub received_ns: u32,
    /// Boot epoch of the node that `received_ns` belongs to.
    pub received_epoch: u32,
    /// Frames with work that arrived from the node in that epoch.
    pub received_frames: u64,
    /// Sequence of the last report taken. One word with `report_epoch`.
    pub report_seq: u32,
    /// Boot epoch of the node in that report.
    pub report_epoch: u32,
    /// When the last report was taken, ns of this node's monotonic clock.
    pub reported_at_ns: u64,
    /// Reports taken.
    pub reports: u64,
    /// Frames of ours that the last report includes (wrapping).
    pub acked_frames: u32,
    /// [`LOAD_SELF`] and others.
    pub flags: u32,
    /// Reserved, zero.
    pub reserved2: [u64; 2],
}

/// [`LoadRow::flags`]: the row of this node itself.
pub const LOAD_SELF: u32 = 1;

/// One worker: what it was charged and what it has discharged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct WorkerRow {
    /// Work charged, ns. Atomic add of the XDP programs.
    pub charged_ns: u64,
    /// Packets charged. Atomic add of the XDP programs.
    pub charged_packets: u64,
    /// Reserved, zero.
    pub reserved1: [u64; 6],
    /// Work discharged, ns. Written by the worker.
    pub discharged_ns: u64,
    /// Packets discharged. Written by the worker.
    pub discharged_packets: u64,
    /// Start of the packet in service, ns of the monotonic clock; 0 = none.
    pub serving_since_ns: u64,
    /// Charge of the packet in service, ns.
    pub serving_charge_ns: u64,
    /// Time spent in functions, ns.
    pub busy_ns: u64,
    /// Discharged without a packet: charged by XDP, lost in front of the socket's receive ring, ns.
    pub lost_ns: u64,
    /// Packets of which that is the charge.
    pub lost_packets: u64,
    /// CPU the worker is pinned to.
    pub cpu: u32,
    /// Thread id of the worker.
    pub tid: u32,
}

/// One AF_XDP socket (interface × queue).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct QueueRow {
    /// Work charged through this socket, ns. Atomic add of the XDP programs; it travels as the position in the metadata, so that the worker sees the charge of frames that were lost before it.
    pub charged_ns: u64,
    /// Packets charged through this socket. Atomic add of the XDP programs.
    pub charged_packets: u64,
    /// Kernel index of the interface.
    pub ifindex: u32,
    /// Queue of the interface.
    pub queue: u32,
    /// Worker that serves the socket.
    pub worker: u32,
    /// [`QUEUE_BOUND`] and others.
    pub flags: u32,
    /// Packets of this socket the worker has taken (written by the worker).
    pub taken_packets: u64,
    /// Frames the kernel dropped because the fill ring was empty or memory short (`XDP_STATISTICS`).
    pub rx_dropped: u64,
    /// Frames the kernel dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Descriptors of ours that the kernel refused.
    pub invalid_descs: u64,
}

/// [`QueueRow::flags`]: a socket is bound.
pub const QUEUE_BOUND: u32 = 1;
/// [`QueueRow::flags`]: it runs in zero-copy mode.
pub const QUEUE_ZERO_COPY: u32 = 2;

/// One function as one worker measures it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct FunctionRow {
    /// Fixed cost, ns. One word with `b_q16`; written by the worker's estimator.
    pub a_ns: u32,
    /// Cost per unit of work, ns in Q16.
    pub b_q16: u32,
    /// Packets whose declared cost is above this are dropped, ns. 0 = function not present.
    pub limit_ns: u32,
    /// [`crate::function::Units`].
    pub units: u32,
    /// Type id that names the function.
    pub type_id: u32,
    /// Function of the registry (`dataplane functions` lists them).
    pub builtin: u32,
    /// Declared fixed cost, ns. One word with `declared_b_q16`; constant, so that nobody can train the limit away.
    pub declared_a_ns: u32,
    /// Declared cost per unit of work, ns in Q16.
    pub declared_b_q16: u32,
    /// Reserved, zero.
    pub reserved1: [u64; 4],
    /// Packets computed (written by the worker, as all below).
    pub samples: u64,
    /// Sum of the estimates charged for them, ns.
    pub predicted_ns: u64,
    /// Sum of their measured service times, ns.
    pub measured_ns: u64,
    /// Measured service time, median, ns (written by the control thread, as all below).
    pub service_p50_ns: u32,
    /// Measured service time, 99th percentile, ns.
    pub service_p99_ns: u32,
    /// Relative error of the estimate against the measurement, median, thousandths.
    pub error_p50_milli: u32,
    /// Relative error of the estimate, 99th percentile, thousandths.
    pub error_p99_milli: u32,
    /// Reserved, zero.
    pub reserved2: [u64; 3],
}

/// How to reach a peer over the interconnect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PeerRow {
    /// MAC address of the peer's interconnect interface.
    pub mac: [u8; 6],
    /// [`PEER_PRESENT`] and others.
    pub flags: u16,
    /// MAC address of our interface that leads there.
    pub source_mac: [u8; 6],
    /// Longest frame, Ethernet header included, that the link carries.
    pub max_frame: u16,
}

/// [`PeerRow::flags`]: the row describes a peer.
pub const PEER_PRESENT: u16 = 1;

/// What an interface is to the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct InterfaceRow {
    /// Index of the interface in this node, for [`socket_slot`] and the `port` field of interconnect frames.
    pub index: u32,
    /// [`INTERFACE_PORT`] or [`INTERFACE_LINK`].
    pub kind: u32,
}

/// [`InterfaceRow::kind`]: packets of the outside arrive here.
pub const INTERFACE_PORT: u32 = 1;
/// [`InterfaceRow::kind`]: leads to peers.
pub const INTERFACE_LINK: u32 = 2;

/// Who owns a set of maps. Begins with ABI and process id and keeps its size in every version, so that another version
/// can be told and stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MetaRow {
    /// [`ABI_VERSION`] of the owner.
    pub abi: u32,
    /// Process id of the owner.
    pub pid: u32,
    /// This node's id.
    pub node: u32,
    /// Boot epoch of the node.
    pub epoch: u32,
    /// Workers.
    pub workers: u32,
    /// Functions.
    pub functions: u32,
    /// Policy ([`crate::policy::PolicyKind`] as a number).
    pub policy: u32,
    /// Report interval under load, µs.
    pub report_interval_us: u32,
    /// When the owner started, ns of the monotonic clock.
    pub started_ns: u64,
    /// Inode of the network namespace the node runs in.
    pub netns: u64,
}

/// What the loader writes into the XDP object's read-only data. Constant for the life of the programs, so that the
/// verifier removes every policy but the chosen one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Params {
    /// [`ABI_VERSION`].
    pub abi: u32,
    /// [`crate::policy::PolicyKind`] as a number.
    pub policy: u32,
    /// This node's id.
    pub node: u16,
    /// Rows of the load table that may hold a peer (largest id + 1).
    pub nodes: u16,
    /// UDP port that carries ANEP.
    pub udp_port: u16,
    /// 1 = refuse redirects that cost more CPU than they save.
    pub guard: u16,
    /// Boot epoch of this node.
    pub epoch: u32,
    /// CPU time that sending a packet to a peer costs, ns.
    pub send_ns: u32,
    /// CPU time that receiving it costs, ns.
    pub receive_ns: u32,
    /// Time on the wire, ns.
    pub wire_ns: u32,
    /// Time on the wire per byte, ns in Q16.
    pub wire_ns_per_byte_q16: u32,
    /// A redirect must be better than staying by more than this, ns.
    pub margin_ns: u32,
}

impl Params {
    /// What an object loaded by hand runs with: everything stays local.
    pub const DEFAULT: Self = Self {
        abi: ABI_VERSION,
        policy: 0,
        node: 0,
        nodes: DEFAULT_NODES as u16,
        udp_port: crate::wire::anep::UDP_PORT,
        guard: 1,
        epoch: 1,
        send_ns: 0,
        receive_ns: 0,
        wire_ns: 0,
        wire_ns_per_byte_q16: 0,
        margin_ns: 0,
    };

    /// What sending `bytes` to a peer adds to a packet's way, ns: both ends' CPU, wire and transmission time.
    #[inline(always)]
    pub fn forward_ns(&self, bytes: usize) -> u32 {
        let transmission = (u64::from(self.wire_ns_per_byte_q16) * bytes as u64) >> 16;
        saturate(u64::from(self.send_ns) + u64::from(self.receive_ns) + u64::from(self.wire_ns) + transmission)
    }

    /// CPU time a redirect burns at both ends, ns.
    #[inline(always)]
    pub fn redirect_cpu_ns(&self) -> u64 {
        u64::from(self.send_ns) + u64::from(self.receive_ns)
    }
}

const _: () = assert!(size_of::<LoadRow>() == 128);
const _: () = assert!(size_of::<WorkerRow>() == 128);
const _: () = assert!(size_of::<QueueRow>() == 64);
const _: () = assert!(size_of::<FunctionRow>() == 128);
const _: () = assert!(size_of::<PeerRow>() == 16);
const _: () = assert!(size_of::<InterfaceRow>() == 8);
const _: () = assert!(size_of::<MetaRow>() == 48);
const _: () = assert!(size_of::<Params>() == 40);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_names_fit_the_kernel() {
        for name in ALL {
            assert!(name.len() <= 15, "{name}");
        }
    }

    #[test]
    fn words_read_together_are_aligned() {
        use core::mem::offset_of;
        assert_eq!(offset_of!(LoadRow, backlog_ns) % 8, 0);
        assert_eq!(offset_of!(LoadRow, queued_milli) % 8, 0);
        assert_eq!(offset_of!(LoadRow, received_ns) % 8, 0);
        assert_eq!(offset_of!(LoadRow, report_seq) % 8, 0);
        assert_eq!(offset_of!(LoadRow, received_ns), 64, "what a decision reads lies on one cache line");
        assert_eq!(offset_of!(WorkerRow, discharged_ns), 64, "XDP and worker write different cache lines");
        assert_eq!(offset_of!(FunctionRow, samples), 64);
    }

    #[test]
    fn forwarding_cost_adds_both_ends_and_the_wire() {
        let params =
            Params { send_ns: 1000, receive_ns: 2000, wire_ns: 500, wire_ns_per_byte_q16: 1 << 15, ..Params::DEFAULT };
        assert_eq!(params.forward_ns(100), 3550);
        assert_eq!(params.redirect_cpu_ns(), 3000);
    }
}

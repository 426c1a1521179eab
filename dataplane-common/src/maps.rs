//! Layout of everything that XDP programs, workers, `status` and bpftool share: map names, sizes, values.
//!
//! Rules: plain `repr(C)` structs of integers without padding (padding would leak stack bytes into a map), one writer per
//! field or atomic adds, fields that must be read together adjacent in one aligned 8-byte word, what different cores write
//! on different cache lines. Map names have at most 15 characters (`BPF_OBJ_NAME_LEN`).

use crate::estimate::Cost;
pub use crate::params::{AUTH_FULL, AUTH_HEADER, AUTH_OFF, AUTH_REPORTS, Params};

/// Changes whenever a layout below, the metadata or the interconnect header changes.
pub const ABI_VERSION: u32 = 8;

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
/// `TYPES`: type id → function index plus one; 0 = no function.
pub const TYPES: &str = "TYPES";
/// `PEERS`: [`PeerRow`] by node id.
pub const PEERS: &str = "PEERS";
/// `LINKS`: node id → interface that leads there (a device map).
pub const LINKS: &str = "LINKS";
/// `PORTS`: interface index of the node → port (a device map).
pub const PORTS: &str = "PORTS";
/// `IFINDEXES`: [`ifindex_slot`] → kernel ifindex (low half) and index in this node of one of the interfaces there; 0 = none.
pub const IFINDEXES: &str = "IFINDEXES";
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
/// `RELOADS`: one [`ReloadRow`].
pub const RELOADS: &str = "RELOADS";
/// `SLOTS`: [`SlotRow`] by slot.
pub const SLOTS: &str = "SLOTS";
/// `FLOWS`: [`FlowRow`] by flow slot.
pub const FLOWS: &str = "FLOWS";
/// `HELD`: [`crate::held::Word`] by place ([`crate::held::place`]).
pub const HELD: &str = "HELD";
/// `SIGNALS`: one [`SignalsRow`].
pub const SIGNALS: &str = "SIGNALS";
/// `ROSTER`: the ids of the peers, in the first [`SignalsRow::peers`] entries.
pub const ROSTER: &str = "ROSTER";
/// `NAMES`: [`NameRow`] by node id.
pub const NAMES: &str = "NAMES";
/// `KEYS`: [`crate::seal::KeyRow`] by number.
pub const KEYS: &str = "KEYS";
/// `SEALS`: [`crate::seal::SealRow`] by node id.
pub const SEALS: &str = "SEALS";
/// `TURNS`: per-CPU round-robin counter.
pub const TURNS: &str = "TURNS";

/// Every map, in the order `status` and `xtask maps` print them.
pub const ALL: [&str; 24] = [
    LOAD_TABLE,
    WORKERS,
    QUEUES,
    FUNCTIONS,
    TYPES,
    PEERS,
    LINKS,
    PORTS,
    IFINDEXES,
    INTERFACES,
    XSKS,
    XDP_COUNT,
    WORKER_COUNT,
    META,
    RELOADS,
    SLOTS,
    FLOWS,
    HELD,
    SIGNALS,
    ROSTER,
    NAMES,
    KEYS,
    SEALS,
    TURNS,
];

/// Type ids there are (16 bits): entries of `TYPES`.
pub const TYPE_IDS: usize = 1 << 16;
/// Entries of `IFINDEXES`: a power of two, more than a node may have interfaces.
pub const IFINDEX_SLOTS: usize = 64;

/// Entry of an interface in `IFINDEXES`. Where two share one, the second is found in `INTERFACES` alone.
#[inline(always)]
pub const fn ifindex_slot(ifindex: u32) -> u32 {
    ifindex % IFINDEX_SLOTS as u32
}

/// Name of the read-only global that holds [`Params`].
pub const PARAMS: &str = "PARAMS";

/// Two 32-bit fields as they lie in one word (the first field is the low half; the dataplane is little endian, as BPF programs
/// for this target are).
#[inline(always)]
pub const fn pair(first: u32, second: u32) -> u64 {
    first as u64 | (second as u64) << 32
}

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
/// Line 1 is what every decision reads, line 2 what some policies read, line 3 the accounts. `sent_*` are atomic adds of the
/// XDP programs that forward to the node, and `pressure_*` is theirs too; everything else in a peer's row is written by the
/// XDP program that takes the node's reports and frames, and in this node's own row by its control thread.
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
    /// When the last report was taken, ns of this node's monotonic clock.
    pub reported_at_ns: u64,
    /// Backlog of the node, mean over about a second, ns. One word with `speed_milli` and `memory_milli`.
    pub mean_backlog_ns: u32,
    /// Speed of the node against this node's, thousandths; 0 = not known.
    pub speed_milli: u16,
    /// Share of the node's packet memory that is in use, thousandths.
    pub memory_milli: u16,
    /// Which part of the node's backlog lies behind a packet ([`crate::bands::Behind`]).
    pub behind: u64,
    /// Work sent to the node lately, as far as it still weighs, ns. One word with `pressure_us`.
    pub pressure_ns: u32,
    /// When `pressure_ns` was that, µs (1024 ns) of this node's monotonic clock (wrapping).
    pub pressure_us: u32,
    /// Position of our work when the last report was taken, ns (wrapping). One word with `marked_frames`.
    pub marked_ns: u32,
    /// Frames of ours sent when the last report was taken (wrapping).
    pub marked_frames: u32,
    /// Response time of packets sent to the node, peak-sensitive mean, ns. One word with `peak_us`.
    pub peak_ns: u32,
    /// When the last result came, µs (1024 ns) of this node's monotonic clock (wrapping).
    pub peak_us: u32,
    /// Response time of packets sent to the node, mean over the last eight, ns; 0 = none yet. One word with `service_ns`.
    pub response_ns: u32,
    /// Mean service time of a packet at the node, ns.
    pub service_ns: u32,
    /// Results that came back from the node.
    pub completed_frames: u64,
    /// Frames of ours that the last report includes, those lost on the way among them (wrapping). One word with `flags`.
    pub acked_frames: u32,
    /// [`LOAD_SELF`] and others.
    pub flags: u32,
    /// Position up to which the node takes work of ours, ns (wrapping). One word with `limited`.
    pub limit_ns: u32,
    /// 1 = `limit_ns` holds; 0 = the node takes any amount.
    pub limited: u32,
    /// Reserved, zero.
    pub reserved2: u64,
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
    /// Reports taken.
    pub reports: u64,
    /// When the node read the load in this row, µs (1024 ns) of its monotonic clock (wrapping). One word with
    /// `stamp_epoch`.
    pub stamp_us: u32,
    /// Boot epoch of the node in that reading.
    pub stamp_epoch: u32,
    /// Loads taken from frames that were no reports.
    pub piggybacked: u64,
    /// What a packet's way to the node and back takes beyond the time it spends there, mean over the last 64, ns. One word
    /// with `transit_bytes`.
    pub transit_ns: u32,
    /// Length of those packets, mean, bytes.
    pub transit_bytes: u32,
    /// Newest sequence of the node's forwards that arrived in that epoch: frames with work that it has sent, those lost on the
    /// way included (wrapping).
    pub received_sequence: u32,
    /// Reserved, zero.
    pub reserved3: u32,
}

/// [`LoadRow::flags`]: the row of this node itself.
pub const LOAD_SELF: u32 = 1;
/// [`LoadRow::flags`]: this node takes no work of others.
pub const LOAD_DRAINING: u32 = 2;

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
    /// Which part of what waits lies behind a packet ([`crate::bands::Behind`]). Written by the worker.
    pub behind: u64,
    /// Discharged without a packet: charged by XDP, lost in front of the socket's receive ring, ns.
    pub lost_ns: u64,
    /// Packets of which that is the charge.
    pub lost_packets: u64,
    /// CPU the worker is pinned to.
    pub cpu: u32,
    /// Thread id of the worker.
    pub tid: u32,
    /// Time spent in functions, ns.
    pub busy_ns: u64,
    /// Frames of packet memory that hold a packet. Written by the worker; one word with `frames`.
    pub frames_in_use: u32,
    /// Frames of packet memory.
    pub frames: u32,
    /// Time in steps that had packets, ns: [`WorkerRow::busy_ns`] and what surrounds it. Written by the worker.
    pub stepped_ns: u64,
    /// Packets handled in those steps. Written by the worker.
    pub stepped_packets: u64,
    /// Reserved, zero.
    pub reserved2: [u64; 4],
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
    /// Reserved, zero.
    pub reserved1: [u64; 4],
    /// Packets of this socket the worker has taken (written by the worker).
    pub taken_packets: u64,
    /// Frames the kernel dropped because the fill ring was empty or memory short (`XDP_STATISTICS`).
    pub rx_dropped: u64,
    /// Frames the kernel dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Descriptors of ours that the kernel refused.
    pub invalid_descs: u64,
    /// Reserved, zero.
    pub reserved2: [u64; 4],
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
    /// Policy that places its packets ([`crate::policy::PolicyKind`] as a number). One word with `home`.
    pub policy: u32,
    /// Node that takes all packets of the function while it floods, plus one; 0 = none (`type-burst`).
    pub home: u32,
    /// [`ORDER_FLOW`] and others. One word with `flags`.
    pub order: u32,
    /// [`FUNCTION_WORKER`] and others.
    pub flags: u32,
    /// Packets of the function that arrived at this node's ports, in the row of worker 0 and only while a policy needs it.
    /// Atomic add of the XDP programs.
    pub arrivals: u64,
    /// Reserved, zero.
    pub reserved1: u64,
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

impl FunctionRow {
    /// Cost as it is measured.
    #[inline(always)]
    pub const fn measured(&self) -> Cost {
        Cost { a_ns: self.a_ns, b_q16: self.b_q16 }
    }

    /// Cost as it was declared.
    #[inline(always)]
    pub const fn declared(&self) -> Cost {
        Cost { a_ns: self.declared_a_ns, b_q16: self.declared_b_q16 }
    }
}

/// [`FunctionRow::order`]: results of a flow leave in the order in which its packets arrived.
pub const ORDER_FLOW: u32 = 0;
/// [`FunctionRow::order`]: results leave as they come.
pub const ORDER_NONE: u32 = 1;
/// [`FunctionRow::order`]: packets are computed where they arrive, in their order: the function keeps state of its flows.
pub const ORDER_AFFINE: u32 = 2;

/// [`FunctionRow::flags`]: workers decide about the function's packets, not the XDP program.
pub const FUNCTION_WORKER: u32 = 1;
/// [`FunctionRow::flags`]: the node that computes a packet sends its result out of a port of its own.
pub const FUNCTION_DIRECT: u32 = 2;
/// [`FunctionRow::flags`]: the node of arrival keeps a packet it forwards until the result is there.
pub const FUNCTION_LOSSLESS: u32 = 4;

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
    /// With [`PEER_ROUTED`]: IPv4 address of the peer.
    pub address: [u8; 4],
    /// With [`PEER_ROUTED`]: our IPv4 address.
    pub source_address: [u8; 4],
    /// With [`PEER_ROUTED`]: UDP port of the peer.
    pub udp_port: u16,
    /// Reserved, zero.
    pub reserved: [u16; 3],
}

/// [`PeerRow::flags`]: the row describes a peer that frames can be sent to.
pub const PEER_PRESENT: u16 = 1;
/// [`PeerRow::flags`]: frames travel in UDP over IPv4, and [`PeerRow::mac`] is the next hop's.
pub const PEER_ROUTED: u16 = 2;
/// [`PeerRow::flags`]: it is a member of the cluster at present.
pub const PEER_MEMBER: u16 = 4;
/// [`PeerRow::flags`]: the member is about to stop.
pub const PEER_DRAINING: u16 = 8;
/// [`PeerRow::flags`]: the kernel has no MAC address for it yet.
pub const PEER_UNRESOLVED: u16 = 16;
/// [`PeerRow::flags`]: the member has no link on a segment of ours, or is of another version.
pub const PEER_UNREACHABLE: u16 = 32;

/// What a peer is called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct NameRow {
    /// ASCII, then zeros; all zero = not known.
    pub name: [u8; 32],
}

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

/// How the last reload of the node's configuration ended, for whoever asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct ReloadRow {
    /// Reloads that have ended. Written last.
    pub attempts: u64,
    /// Of which the node took the configuration.
    pub taken: u64,
    /// When the last one ended, ns of the monotonic clock.
    pub at_ns: u64,
    /// Bytes of `text` in use. One word with `is_taken`.
    pub length: u32,
    /// 1 = the last one was taken.
    pub is_taken: u32,
    /// What the node said of the last one, UTF-8.
    pub text: [u8; RELOAD_TEXT],
}

/// Longest text of [`ReloadRow`], bytes.
pub const RELOAD_TEXT: usize = 992;

/// One slot of a placing policy's plan: packets whose key or random number falls on it go to one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SlotRow {
    /// Work that named the slot, ns. Atomic add of the XDP programs.
    pub charged_ns: u64,
    /// Node id, [`crate::plan::HERE`] or [`crate::plan::NOWHERE`]. Written by the control thread.
    pub node: u64,
}

/// One slot of flows: packets of ordered functions take a number on arrival, and their results leave in that order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FlowRow {
    /// Numbers given out. Atomic add of the XDP programs.
    pub issued: u64,
    /// Number of the next result to leave ([`crate::order::Released`]). Written by whoever sends that result.
    pub released: u64,
    /// When its packets so far are expected to be done, ns of the monotonic clock ([`crate::order::expected_ns`]). Written by
    /// whoever decides, where the policy estimates it; two at once may lose one of the two.
    pub expected_ns: u64,
}

/// Rows of `FLOWS`. A flow's slot is the low bits of its hash; flows of one slot wait for each other.
pub const FLOW_SLOTS: usize = 8192;

/// What deciders know beyond single nodes. The control thread writes all of it but `deviation_ns`, which is the XDP
/// program's that takes reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct SignalsRow {
    /// CPU time that sending a packet to a peer costs, ns. One word with `receive_ns`.
    pub send_ns: u32,
    /// CPU time that receiving it costs, ns.
    pub receive_ns: u32,
    /// Time on the wire, ns. One word with `wire_ns_per_byte_q16`.
    pub wire_ns: u32,
    /// Time on the wire per byte, ns in Q16.
    pub wire_ns_per_byte_q16: u32,
    /// Share of time the workers of the live nodes are busy, thousandths. One word with `service_ns`.
    pub utilisation_milli: u32,
    /// Mean service time of a packet here, ns.
    pub service_ns: u32,
    /// Packets that arrive at a worker per ns, Q32. One word with `peers`.
    pub arrivals_q32: u32,
    /// Entries of `ROSTER`: peers.
    pub peers: u32,
    /// Median error of the predicted load of a node against its next report, ns. One word with `reserved1`.
    pub deviation_ns: u32,
    /// Reserved, zero.
    pub reserved1: u32,
    /// CPU time that a worker takes to send a packet to a peer, which comes on top of `send_ns` where workers decide, ns; 0 = not
    /// known.
    pub worker_send_ns: u64,
    /// Derived: the price of CPU time that a redirect burns, ns a ns, Q16 ([`crate::load::Signals::price_q16`]). One word with
    /// `relax`.
    pub price_q16: u32,
    /// Derived: how fast a load forgets a report ([`crate::decay::Rate::to_word`]).
    pub relax: u32,
    /// Reserved, zero.
    pub reserved2: u64,
}

const _: () = assert!(size_of::<LoadRow>() == 192);
const _: () = assert!(size_of::<WorkerRow>() == 192);
const _: () = assert!(size_of::<QueueRow>() == 128);
const _: () = assert!(size_of::<FunctionRow>() == 128);
const _: () = assert!(size_of::<PeerRow>() == 32);
const _: () = assert!(size_of::<NameRow>() == 32);
const _: () = assert!(size_of::<InterfaceRow>() == 8);
const _: () = assert!(size_of::<MetaRow>() == 48);
const _: () = assert!(size_of::<ReloadRow>() == 1024);
const _: () = assert!(size_of::<SlotRow>() == 16);
const _: () = assert!(size_of::<FlowRow>() == 24);
const _: () = assert!(size_of::<SignalsRow>() == 64);

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
        assert_eq!(offset_of!(LoadRow, pressure_ns), 64, "what every decision reads lies on one cache line");
        assert_eq!(offset_of!(LoadRow, received_ns), 128);
        assert_eq!(offset_of!(WorkerRow, discharged_ns), 64, "XDP and worker write different cache lines");
        assert_eq!(offset_of!(WorkerRow, busy_ns), 128, "what decisions read of the worker's lies on one cache line");
        assert_eq!(offset_of!(QueueRow, taken_packets), 64, "XDP and worker write different cache lines");
        assert_eq!(offset_of!(FunctionRow, samples), 64);
    }
}

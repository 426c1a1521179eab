//! The maps, all BTF-typed so that libbpf and bpftool read them. Names, sizes and values are `dataplane_common::maps`.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::btf_maps::{Array, DevMap, HashMap, PerCpuArray, XskMap};
use aya_ebpf::macros::btf_map;
use aya_ebpf::programs::XdpContext;
use dataplane_common::classify::Active;
use dataplane_common::held::MAX_PLACES;
use dataplane_common::maps::{
    DEFAULT_NODES, FLOW_SLOTS, FlowRow, FunctionRow, IFINDEX_SLOTS, InterfaceRow, LoadRow, MAX_FUNCTIONS,
    MAX_INTERFACES, MAX_WORKERS, MetaRow, NameRow, PEER_PRESENT, PeerRow, QueueRow, ReloadRow, SignalsRow, SlotRow,
    TYPE_IDS, WorkerRow, ifindex_slot,
};
use dataplane_common::plan;
use dataplane_common::reason::{REASON_STRIDE, REASONS};
use dataplane_common::seal::{KEY_ROWS, KeyRow, SealRow};

const MMAPABLE: usize = BPF_F_MMAPABLE as usize;
const PLAN_SLOTS: usize = (plan::SLOTS * plan::TABLES) as usize;
const SOCKETS: usize = MAX_INTERFACES * MAX_WORKERS;

#[btf_map]
pub static LOAD_TABLE: Array<LoadRow, DEFAULT_NODES, MMAPABLE> = Array::new();
#[btf_map]
pub static WORKERS: Array<WorkerRow, MAX_WORKERS, MMAPABLE> = Array::new();
#[btf_map]
pub static QUEUES: Array<QueueRow, SOCKETS, MMAPABLE> = Array::new();
#[btf_map]
pub static FUNCTIONS: Array<FunctionRow, { MAX_FUNCTIONS * MAX_WORKERS }, MMAPABLE> = Array::new();
#[btf_map]
pub static WORKER_COUNT: Array<u64, { MAX_WORKERS * REASON_STRIDE }, MMAPABLE> = Array::new();
#[btf_map]
pub static META: Array<MetaRow, 1, MMAPABLE> = Array::new();
#[btf_map]
pub static RELOADS: Array<ReloadRow, 1, MMAPABLE> = Array::new();
#[btf_map]
pub static SLOTS: Array<SlotRow, PLAN_SLOTS, MMAPABLE> = Array::new();
#[btf_map]
pub static FLOWS: Array<FlowRow, FLOW_SLOTS, MMAPABLE> = Array::new();
#[btf_map]
pub static HELD: Array<u64, MAX_PLACES, MMAPABLE> = Array::new();
#[btf_map]
pub static SIGNALS: Array<SignalsRow, 1, MMAPABLE> = Array::new();
#[btf_map]
pub static ROSTER: Array<u64, DEFAULT_NODES, MMAPABLE> = Array::new();
#[btf_map]
pub static NAMES: Array<NameRow, DEFAULT_NODES, MMAPABLE> = Array::new();
#[btf_map]
pub static KEYS: Array<KeyRow, KEY_ROWS, MMAPABLE> = Array::new();
#[btf_map]
pub static SEALS: Array<SealRow, DEFAULT_NODES, MMAPABLE> = Array::new();
#[btf_map]
pub static FOUND: PerCpuArray<Found, 1> = PerCpuArray::new();
#[btf_map]
pub static TURNS: PerCpuArray<u64, 1> = PerCpuArray::new();
#[btf_map]
pub static PEERS: Array<PeerRow, DEFAULT_NODES> = Array::new();
#[btf_map]
pub static TYPES: Array<u32, TYPE_IDS> = Array::new();
#[btf_map]
pub static IFINDEXES: Array<u64, IFINDEX_SLOTS> = Array::new();
#[btf_map]
pub static INTERFACES: HashMap<u32, InterfaceRow, MAX_INTERFACES> = HashMap::new();
#[btf_map]
pub static LINKS: DevMap<DEFAULT_NODES> = DevMap::new();
#[btf_map]
pub static PORTS: DevMap<MAX_INTERFACES> = DevMap::new();
#[btf_map]
pub static XSKS: XskMap<SOCKETS> = XskMap::new();
#[btf_map]
pub static XDP_COUNT: PerCpuArray<u64, REASONS> = PerCpuArray::new();

/// What classification has found out about a packet, on its way to the decision.
///
/// It passes through memory that the verifier knows nothing about: the hundreds of paths that end here then look the same to
/// it, and it follows one of them instead of all. Without that, every instruction of every policy counts a hundred times
/// against the verifier's limit of a million.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Found {
    /// From the lowest 16 bits up: type id, offsets of IP and transport header, and which of the rest there is.
    pub kind: u64,
    /// Bytes of payload, and in the high half of what lies behind the packet.
    pub lengths: u64,
    /// Operand, and in the high half the key.
    pub numbers: u64,
    /// Where the parser's loops forget what they know.
    pub scratch: u32,
}

/// Index of the function that `type_id` names.
#[inline(always)]
pub fn function_of(type_id: u16) -> Option<u32> {
    // Entries are written before the program is attached, and hold the index plus one.
    TYPES.get(u32::from(type_id))?.checked_sub(1)
}

/// Index of the function of a packet.
#[inline(always)]
pub fn function_for(active: &Active) -> Option<u32> {
    if active.pktgen { Some(u32::from(active.anep.type_id)) } else { function_of(active.anep.type_id) }
}

/// Index in this node of the interface the frame arrived on.
#[inline(always)]
pub fn interface(ctx: &XdpContext) -> Option<u32> {
    let ifindex = ctx.ingress_ifindex() as u32;
    // The table of all is a hash table, which costs several times as much as an array.
    let near = IFINDEXES.get(ifindex_slot(ifindex)).copied().unwrap_or_default();
    if near as u32 == ifindex {
        return Some((near >> 32) as u32);
    }
    // SAFETY: entries are written before the program is attached and never removed while it runs.
    unsafe { INTERFACES.get(ifindex) }.map(|row| row.index)
}

/// True when `node` is a peer of this node.
#[inline(always)]
pub fn is_peer(node: u16) -> bool {
    PEERS.get(u32::from(node)).is_some_and(|row| row.flags & PEER_PRESENT != 0)
}

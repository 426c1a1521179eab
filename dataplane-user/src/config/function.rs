//! A function as the file has it: its limit, its policy, its order, the way of its results.

use dataplane_common::maps::{
    FUNCTION_DIRECT, FUNCTION_LOSSLESS, FUNCTION_WORKER, ORDER_AFFINE, ORDER_FLOW, ORDER_NONE,
};
use dataplane_common::policy::PolicyKind;

use super::{KnownFunction, Transport};

/// A function this node computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionConfig {
    /// Its name in the registry.
    pub name: &'static str,
    /// Type id that names it in a packet.
    pub type_id: u16,
    /// Packets whose estimated processing time is above this are dropped, ns.
    pub limit_ns: u32,
    /// What places its packets.
    pub policy: PolicyKind,
    /// In which order its results leave.
    pub order: Order,
    /// Where results of packets that another node computed leave.
    pub returns: Returns,
    /// The node of arrival keeps packets that another node computes until the result is there.
    pub lossless: bool,
}

impl FunctionConfig {
    /// Limit of a function for which the file gives none, ns.
    pub const DEFAULT_LIMIT_NS: u32 = 10_000_000;

    /// `known` under its own type id, placed by `policy`, with the default limit and order.
    pub const fn new(known: KnownFunction, policy: PolicyKind) -> Self {
        let KnownFunction { name, type_id } = known;
        Self {
            name,
            type_id,
            limit_ns: Self::DEFAULT_LIMIT_NS,
            policy,
            order: DEFAULT_ORDER,
            returns: Returns::Ingress,
            lossless: false,
        }
    }

    /// [`FunctionRow::flags`](dataplane_common::maps::FunctionRow::flags) on a node with this transport.
    pub const fn flags(&self, transport: Transport) -> u32 {
        let mut flags = 0;
        if self.lossless {
            flags |= FUNCTION_LOSSLESS | FUNCTION_WORKER;
        }
        if !matches!(transport, Transport::Xdp) {
            flags |= FUNCTION_WORKER;
        }
        if matches!(self.returns, Returns::Direct) {
            flags |= FUNCTION_DIRECT;
        }
        flags
    }
}

/// In which order results leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Those of a flow as its packets arrived.
    Flow,
    /// As they come.
    None,
    /// As with [`Order::Flow`], and packets are computed where they arrive: the function keeps state of its flows.
    Affine,
}

/// Where results of packets that another node computed leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// By the port their packet arrived at: they go home first.
    Ingress,
    /// By the [`Egress`] of the node that computed them.
    Direct,
}

impl Returns {
    /// Every way with its name in the file.
    pub const NAMES: [(&'static str, Self); 2] = [("ingress", Self::Ingress), ("direct", Self::Direct)];

    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingress => "ingress",
            Self::Direct => "direct",
        }
    }
}

/// Order of a function for which the file gives none.
pub const DEFAULT_ORDER: Order = Order::Flow;

impl Order {
    /// Every order with its name in the file.
    pub const NAMES: [(&'static str, Self); 3] = [("flow", Self::Flow), ("none", Self::None), ("affine", Self::Affine)];

    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flow => "flow",
            Self::None => "none",
            Self::Affine => "affine",
        }
    }

    /// The number in [`FunctionRow::order`](dataplane_common::maps::FunctionRow::order).
    pub const fn id(self) -> u32 {
        match self {
            Self::Flow => ORDER_FLOW,
            Self::None => ORDER_NONE,
            Self::Affine => ORDER_AFFINE,
        }
    }

    /// The order of this number.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::NAMES.iter().map(|(_, order)| *order).find(|order| order.id() == id)
    }
}

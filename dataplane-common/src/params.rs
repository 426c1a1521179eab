//! What the loader writes into the XDP programs' read-only data.

use crate::classify::Rules;
use crate::maps::{ABI_VERSION, DEFAULT_NODES};
use crate::tuning::Tuning;

/// [`Params::auth`]: nothing is sealed; there is no key.
pub const AUTH_OFF: u32 = 0;
/// [`Params::auth`]: reports and requests for work are sealed.
pub const AUTH_REPORTS: u32 = 1;
/// [`Params::auth`]: every interconnect header is sealed.
pub const AUTH_HEADER: u32 = 2;
/// [`Params::auth`]: every interconnect header is sealed, and the frame behind it.
pub const AUTH_FULL: u32 = 3;

/// What the loader writes into the XDP object's read-only data. Constant for the life of the programs, so that the
/// verifier removes every policy but the chosen ones; a reload loads other programs onto the same maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Params {
    /// [`ABI_VERSION`].
    pub abi: u32,
    /// [`crate::policy::PolicyKind`] of functions that name none, as a number.
    pub policy: u32,
    /// Policies some function uses: bit `PolicyKind as u32` of each.
    pub policies: u64,
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
    /// A redirect must be better than staying by more than this, ns.
    pub margin_ns: u32,
    /// 0 = decisions draw random numbers; anything else makes them repeatable: drawn from this and the packet's flow.
    pub seed: u32,
    /// 1 = take the loads that forwards and results carry, not only those of reports.
    pub piggyback: u32,
    /// Packets are refused at ports while more work than this waits at their worker, ns; 0 = never.
    pub backlog_limit_ns: u32,
    /// How interconnect frames prove where they come from: [`AUTH_OFF`] and others.
    pub auth: u32,
    /// UDP port of the interconnect on links that travel in UDP; reports go to the next one.
    pub link_port: u16,
    /// 1 = there are such links.
    pub routed: u16,
    /// The pktgen profile: UDP port of the first function ([`Rules::pktgen_port`]).
    pub pktgen_port: u16,
    /// Functions of the profile; 0 = it is off.
    pub pktgen_functions: u16,
    /// Operand of its packets.
    pub pktgen_operand: u32,
    /// Reserved, zero.
    pub reserved: u32,
    /// The settings of the policies.
    pub tuning: Tuning,
}

impl Params {
    /// What makes a packet active.
    #[inline(always)]
    pub const fn rules(&self) -> Rules {
        Rules {
            udp_port: self.udp_port,
            pktgen_port: self.pktgen_port,
            pktgen_functions: self.pktgen_functions,
            pktgen_operand: self.pktgen_operand,
        }
    }

    /// What an object loaded by hand runs with: everything stays local.
    pub const DEFAULT: Self = Self {
        abi: ABI_VERSION,
        policy: 0,
        policies: 1,
        node: 0,
        nodes: DEFAULT_NODES as u16,
        udp_port: crate::wire::anep::UDP_PORT,
        guard: 1,
        epoch: 1,
        margin_ns: 0,
        seed: 0,
        piggyback: 0,
        backlog_limit_ns: 0,
        auth: AUTH_OFF,
        link_port: crate::wire::link::UDP_PORT,
        routed: 0,
        pktgen_port: 0,
        pktgen_functions: 0,
        pktgen_operand: 0,
        reserved: 0,
        tuning: Tuning::DEFAULT,
    };
}

// No padding: another setting may need a reserved word.
const _: () = assert!(size_of::<Params>() == 64 + size_of::<Tuning>());

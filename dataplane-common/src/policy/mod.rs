//! Local, or on which other node: one file per policy, one line per policy in the registry below.
//!
//! A policy sees the packet's cost, the forwarding cost and every node's load, and returns a [`Decision`] that carries the
//! numbers it compared. The same code decides in XDP, in a worker and in the simulator.

mod cpu_load;
mod ept;
mod ept_erl;
mod local;

use crate::load::LoadView;
use crate::maps::Params;

/// The packet to decide about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Now, ns of the monotonic clock.
    pub now_ns: u64,
    /// Estimated processing time of the packet on an idle worker, ns.
    pub ept_ns: u32,
    /// Bytes that would travel, interconnect header included.
    pub bytes: usize,
    /// A random number; policies use it to break ties and to sample.
    pub random: u32,
}

/// Where the packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is computed here.
    Local,
    /// It is sent to this node.
    Redirect(u16),
}

/// A verdict and what was compared to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Where the packet goes.
    pub verdict: Verdict,
    /// The value of staying, in the policy's measure (ns, or thousandths of packets for `cpu-load`).
    pub here: u64,
    /// The value of the best other node, in the same measure; `u64::MAX` when there was no candidate.
    pub there: u64,
}

impl Decision {
    /// Stay, without having looked at any other node.
    pub const LOCAL: Self = Self { verdict: Verdict::Local, here: 0, there: u64::MAX };
}

/// A way to decide.
pub trait Policy {
    /// Decides about `job`.
    fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision;
}

macro_rules! policies {
    ($($variant:ident = $id:literal, $name:literal, $policy:ty, $help:literal;)*) => {
        /// Every policy. The number is what [`Params::policy`] holds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum PolicyKind {
            $(#[doc = $help] $variant = $id,)*
        }

        impl PolicyKind {
            /// Every policy, in registry order.
            pub const ALL: &'static [PolicyKind] = &[$(PolicyKind::$variant,)*];

            /// Name in configuration and output.
            pub const fn name(self) -> &'static str {
                match self { $(PolicyKind::$variant => $name,)* }
            }

            /// One line for people.
            pub const fn help(self) -> &'static str {
                match self { $(PolicyKind::$variant => $help,)* }
            }
        }

        /// Decides about `job` by the policy that `params` names; an unknown number stays local.
        #[inline(always)]
        pub fn decide<L: LoadView>(job: &Job, params: &Params, loads: &L) -> Decision {
            match params.policy {
                $($id => <$policy as Policy>::decide(job, params, loads),)*
                _ => Decision::LOCAL,
            }
        }
    };
}

policies! {
    Local = 0, "local", local::Local, "Every packet is computed where it arrives.";
    CpuLoad = 1, "cpu-load", cpu_load::CpuLoad, "To the node with the shortest reported run queue, whatever sending costs.";
    Ept = 2, "ept", ept::Ept, "To the node with the least estimated processing time, forwarding cost included, by reported loads.";
    EptErl = 3, "ept-erl", ept_erl::EptErl, "As ept, with the work already sent to a node added to what it reported.";
}

impl PolicyKind {
    /// The policy of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The policy of this number.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| *kind as u32 == id)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

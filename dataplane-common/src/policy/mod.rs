//! Local, or on which other node: one file per policy, one line per policy in the registry below.
//!
//! A policy sees the packet ([`Job`]), the load of every node and what forwarding costs ([`LoadView`]), and returns a
//! [`Decision`] that carries the numbers it compared. The same code decides in XDP, in a worker and in the simulator. A
//! policy that places by a plan has a second half ([`Policy::Plan`]) that runs on the control thread.

mod c3;
mod cpu_load;
mod dish;
mod dss;
mod ept;
mod ept_erl;
mod histogram;
mod hrw;
mod jiq;
mod jsq_d;
mod least_connections;
mod least_work;
mod load_interpretation;
mod local;
mod lsq;
mod oracle;
mod peak_ewma;
mod phrw;
mod phrw_w;
mod placed;
mod prequal;
mod random;
mod ranking;
mod round_robin;
mod shares;
mod sla;
mod sooner;
mod steal;
mod threshold;
mod tri_state;
mod type_burst;
mod ward;
mod weighted_hrw;

use crate::hash::{another, below};
use crate::load::{LoadView, Visit};
use crate::maps::Params;
use crate::plan::{Board, Plan};
use crate::tuning::Tuning;

/// The packet to decide about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Now, ns of the monotonic clock.
    pub now_ns: u64,
    /// Estimated processing time of the packet on an idle worker of this node, ns.
    pub ept_ns: u32,
    /// Bytes that would travel, interconnect header included.
    pub bytes: usize,
    /// Index of the function it names: its kind.
    pub function: u16,
    /// Node that takes all packets of this kind for now, plus one; 0 = none ([`crate::maps::FunctionRow::home`]).
    pub home: u32,
    /// Time until the earlier packets of its flow are expected to be done, ns; 0 when its result need not wait for theirs.
    pub earlier_ns: u32,
    /// Service class, 0 (lowest) to 7: the precedence bits of the IP header.
    pub class: u8,
    /// Hash of the flow: addresses, ports, protocol.
    pub flow: u32,
    /// Hash of what the packet is about: its key option, or else its flow.
    pub key: u32,
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

/// Why a packet stays or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Why {
    /// The policy looks at nothing, or nothing it looked at may take the packet.
    Alone = 0,
    /// Here it waits so little that no node can be better.
    Short = 1,
    /// Redirecting costs more CPU time than the packet.
    Guard = 2,
    /// The best other node is not better, all costs counted.
    Better = 3,
    /// The best other node is better.
    Worse = 4,
    /// The plan says so.
    Plan = 5,
    /// A number drawn or counted says so.
    Turn = 6,
}

impl Why {
    /// In words, after "stays because" or "goes because".
    pub const fn words(self) -> &'static str {
        match self {
            Self::Alone => "there is no other node to compare with",
            Self::Short => "it waits so little here that no node can be better",
            Self::Guard => "redirecting it costs more CPU time than computing it",
            Self::Better => "no other node is better, all costs counted",
            Self::Worse => "the other node is better, all costs counted",
            Self::Plan => "the plan of the policy says so",
            Self::Turn => "its turn or a random number says so",
        }
    }
}

/// A verdict and what was compared to reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Where the packet goes.
    pub verdict: Verdict,
    /// The value of staying, in the policy's measure (ns, or thousandths of packets for policies that count packets).
    pub here: u64,
    /// The value of the best other node, in the same measure; `u64::MAX` when none was compared.
    pub there: u64,
    /// The rule that decided.
    pub why: Why,
    /// Time until the packet is expected to be done, ns; 0 when the policy does not estimate it.
    pub done_ns: u32,
}

impl Decision {
    /// Stay, without having looked at any other node.
    pub const LOCAL: Self = Self { verdict: Verdict::Local, here: 0, there: u64::MAX, why: Why::Alone, done_ns: 0 };

    /// Stay, for `why`, with `here` as the value of staying.
    #[inline(always)]
    pub const fn stay(here: u64, why: Why) -> Self {
        Self { verdict: Verdict::Local, here, there: u64::MAX, why, done_ns: 0 }
    }

    /// Go to `node` when `there` is below `here` by more than `margin`; `there` = `u64::MAX` says that there is no node.
    #[inline(always)]
    pub const fn compare(here: u64, node: u16, there: u64, margin: u64) -> Self {
        if there == u64::MAX {
            return Self::stay(here, Why::Alone);
        }
        if there.saturating_add(margin) < here {
            Self { verdict: Verdict::Redirect(node), here, there, why: Why::Worse, done_ns: 0 }
        } else {
            Self { verdict: Verdict::Local, here, there, why: Why::Better, done_ns: 0 }
        }
    }
}

/// Where a policy can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Homes(u8);

impl Homes {
    /// The simulator only.
    pub const SIMULATOR: Self = Self(1);
    /// Workers and the simulator.
    pub const WORKER: Self = Self(3);
    /// XDP, workers and the simulator.
    pub const ANY: Self = Self(7);

    /// True when an XDP program can decide by it.
    pub const fn has_xdp(self) -> bool {
        self.0 & 4 != 0
    }

    /// True when a worker can decide by it.
    pub const fn has_worker(self) -> bool {
        self.0 & 2 != 0
    }
}

/// What a policy lives on. A configuration that does not provide it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs(u8);

impl Needs {
    /// Nothing.
    pub const NOTHING: Self = Self(0);
    /// Load reports of the peers.
    pub const REPORTS: Self = Self(1);
    /// Results that come back through this node.
    pub const RESULTS: Self = Self(2);
    /// A plan, drawn up by the control thread.
    pub const PLAN: Self = Self(4);
    /// Recent sends to each node, and how well its load was predicted.
    pub const PREDICTION: Self = Self(8);
    /// Idle nodes that pull work.
    pub const PULL: Self = Self(16);
    /// Probes of single nodes.
    pub const PROBES: Self = Self(32);
    /// How many packets of each function arrive.
    pub const DEMAND: Self = Self(64);
    /// When the packets of a flow are expected to be done.
    pub const EXPECTED: Self = Self(128);

    /// Both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// True when all of `other` is needed.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A way to decide.
pub trait Policy {
    /// Where it can run.
    const HOMES: Homes;
    /// What it lives on.
    const NEEDS: Needs;
    /// Its slow half; [`crate::plan::NoPlan`] for most.
    type Plan: Plan + Default;

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

            /// Where it can run.
            pub const fn homes(self) -> Homes {
                match self { $(PolicyKind::$variant => <$policy as Policy>::HOMES,)* }
            }

            /// What it lives on.
            pub const fn needs(self) -> Needs {
                match self { $(PolicyKind::$variant => <$policy as Policy>::NEEDS,)* }
            }
        }

        /// Decides about `job` by policy `policy`, one of those that `params` names; any other stays local.
        #[inline(always)]
        pub fn decide<L: LoadView>(policy: u32, job: &Job, params: &Params, loads: &L) -> Decision {
            match policy {
                $($id if params.policies & (1 << $id) != 0 => <$policy as Policy>::decide(job, params, loads),)*
                _ => Decision::LOCAL,
            }
        }

        /// The slow half of a policy. Large: keep it in a box.
        #[allow(clippy::large_enum_variant, reason = "there is one per node, in a box")]
        pub enum Planner {
            $(#[doc = $help] $variant(<$policy as Policy>::Plan),)*
        }

        impl Planner {
            /// A new planner of `kind`.
            pub fn new(kind: PolicyKind) -> Self {
                match kind { $(PolicyKind::$variant => Self::$variant(Default::default()),)* }
            }

            /// Draws up a plan.
            pub fn turn<B: Board>(&mut self, board: &mut B, tuning: &Tuning) {
                match self { $(Self::$variant(plan) => plan.turn(board, tuning),)* }
            }
        }
    };
}

policies! {
    Local = 0, "local", local::Local, "Every packet is computed where it arrives.";
    CpuLoad = 1, "cpu-load", cpu_load::CpuLoad, "To the node with the shortest reported run queue, whatever sending costs.";
    Ept = 2, "ept", ept::Ept, "To the node with the least estimated processing time, forwarding cost included, by reported loads.";
    EptErl = 3, "ept-erl", ept_erl::EptErl, "As ept, with the work already sent to a node added to what it reported.";
    RoundRobin = 4, "round-robin", round_robin::RoundRobin, "This node and its peers in turn.";
    Random = 5, "random", random::Random, "This node or a peer, at random.";
    LeastConnections = 6, "least-connections", least_connections::LeastConnections, "To the node with the fewest packets in progress, reported and in flight.";
    JsqD = 7, "jsq-d", jsq_d::JsqD, "As least-connections, among a few nodes drawn at random.";
    Jiq = 8, "jiq", jiq::Jiq, "To a node that reported itself idle and has been sent nothing since.";
    LeastWork = 9, "least-work", least_work::LeastWork, "To the node with the least work left, whatever sending costs.";
    LoadInterpretation = 10, "load-interpretation", load_interpretation::LoadInterpretation, "At random, by probabilities that level the reported backlogs.";
    PeakEwma = 11, "peak-ewma", peak_ewma::PeakEwma, "To the better of two nodes by peak response time and packets on their way.";
    C3 = 12, "c3", c3::C3, "To the node with the least response time plus cube of its queue.";
    Prequal = 13, "prequal", prequal::Prequal, "To the fastest of the nodes without too many packets in flight.";
    Lsq = 14, "lsq", lsq::Lsq, "To the shortest queue by own counts, which reports replace.";
    Steal = 15, "steal", steal::Steal, "Packets stay; idle nodes pull.";
    ThresholdHalf = 16, "threshold-half", threshold::Threshold<threshold::Half>, "By random shares; a node whose load passed the threshold gets half its share until it recovers.";
    ThresholdAdaptive = 17, "threshold-adaptive", threshold::Threshold<threshold::Adaptive>, "As threshold-half, with a threshold that moves towards the mean load when a node passes it.";
    ThresholdExclude = 18, "threshold-exclude", threshold::Threshold<threshold::Exclude>, "By random shares; a node whose load passed the threshold gets nothing until it recovers.";
    TriState = 19, "tri-state", tri_state::TriState, "By random shares of 1, 1/2 and 0 for nodes whose load is low, middle and high.";
    TypeBurst = 20, "type-burst", type_burst::TypeBurst, "By equal random shares; a function that floods goes as a whole to the node that answers fastest.";
    Dss = 21, "dss", dss::Dss, "To the one node with the least response time, weighed by load, that answers in time.";
    Sla = 22, "sla", sla::Sla, "Here while the class of the packet is served in time, else to the node with the least work of its class and above.";
    Hrw = 23, "hrw", hrw::Hrw, "To the node with the highest hash of key and node.";
    WeightedHrw = 24, "weighted-hrw", weighted_hrw::WeightedHrw, "As hrw, with keys in proportion to speed and workers.";
    PriorityHrw = 25, "phrw", phrw::PriorityHrw, "As hrw, with reactive packets to the fastest of the first few nodes.";
    PriorityWeightedHrw = 26, "phrw-w", phrw_w::PriorityWeightedHrw, "As weighted-hrw, with more reactive packets to fast nodes.";
    Histogram = 27, "histogram", histogram::Histogram, "By key, cut so that every node gets its share of the work.";
    Ward = 28, "ward", ward::Ward, "The most frequent keys here, every other key at its home.";
    Dish = 29, "dish", dish::Dish, "By key, to the node that had least load when the key came up; keys move off the busiest.";
    Sooner = 30, "sooner", sooner::Sooner, "Where it is finished sooner, by predicted loads, everyone else's delay and the CPU time of redirecting counted.";
    Oracle = 31, "oracle", oracle::Oracle, "To the node that finishes first, in a simulator that knows.";
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

    /// Its bit in [`Params::policies`].
    pub const fn bit(self) -> u64 {
        1 << self as u32
    }
}

/// The bits of [`Params::policies`] of the policies that need `needs`.
pub const fn needing(needs: Needs) -> u64 {
    let (mut mask, mut index) = (0, 0);
    while index < PolicyKind::ALL.len() {
        let kind = PolicyKind::ALL[index];
        if kind.needs().has(needs) {
            mask |= kind.bit();
        }
        index += 1;
    }
    mask
}

/// Up to this many peers, policies look at all of them; beyond, at a sample.
pub const FULL_SCAN: u32 = 16;

/// Shows peers to `visitor`: all when there are few or `sample` is 0, else `sample` of them, drawn by `random`. Either way
/// the first is drawn, so that ties do not always fall on the same node.
///
/// A sample is drawn with a random stride; when that divides the number of peers, some are seen twice, which does no harm.
#[inline(always)]
pub fn look<L: LoadView, V: Visit>(loads: &L, random: u32, sample: u32, visitor: &mut V) {
    let peers = loads.peers();
    if peers == 0 {
        return;
    }
    let start = below(random, peers);
    if peers <= FULL_SCAN || sample == 0 {
        loads.visit(start, 1, peers, visitor);
    } else {
        let stride = 1 + below(another(random), peers - 1);
        loads.visit(start, stride, if sample < peers { sample } else { peers }, visitor);
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

//! What is compared: transports, ways in which workers wait, where packets are computed; and a line of `interconnect.jsonl`.

use std::time::Duration;

use serde::Serialize;

use crate::cpu::Noise;
use crate::topology::{NodeSettings, Scheduling};

/// The policy of the nodes: the flow of a packet alone decides where it is computed.
pub const POLICY: &str = "hrw";

/// Time between two reports: long, so that they take no part in what is measured, and so that a worker that never sleeps does
/// not keep the reporter of its CPU from keeping its promise. The policy does not look at loads.
const REPORTS: Duration = Duration::from_millis(10);

/// How frames travel between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// Decided and redirected by the XDP program.
    Xdp,
    /// Decided by the worker, and sent over AF_XDP.
    Xsk,
    /// Decided by the worker, and sent by a kernel socket: the baseline.
    Udp,
}

impl Transport {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Xdp, Self::Xsk, Self::Udp];

    /// As the configuration names it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Xsk => "xsk",
            Self::Udp => "udp",
        }
    }
}

/// How workers wait for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// They never sleep.
    Spinning,
    /// They always sleep.
    Sleeping,
    /// With the default of the configuration.
    Deployed,
}

impl Waiting {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Spinning, Self::Sleeping, Self::Deployed];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spinning => "spinning",
            Self::Sleeping => "sleeping",
            Self::Deployed => "deployed",
        }
    }

    /// How long a worker spins; `None`: as the configuration has it.
    const fn spin(self) -> Option<Duration> {
        match self {
            Self::Spinning => Some(Duration::from_secs(1)),
            Self::Sleeping => Some(Duration::ZERO),
            Self::Deployed => None,
        }
    }
}

/// Settings of a node with one worker on `cpu`.
pub fn settings(transport: Transport, waiting: Waiting, cpu: usize) -> NodeSettings {
    let defaults = NodeSettings::new(POLICY, cpu);
    NodeSettings {
        transport: transport.name().to_owned(),
        spin: waiting.spin().unwrap_or(defaults.spin),
        extra: "[[function]]\nname = \"forward\"\norder = \"none\"\n".to_owned(),
        scheduling: Scheduling::Favoured,
        report_interval: REPORTS,
        idle_interval: REPORTS,
        ..defaults
    }
}

/// Where packets are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// At the node of arrival: what the round trip takes without the interconnect.
    Here,
    /// At the other node.
    There,
}

impl Place {
    /// Both.
    pub const ALL: [Self; 2] = [Self::There, Self::Here];

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Here => "node 1",
            Self::There => "node 2",
        }
    }
}

/// Round trips of one turn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RoundTrips {
    /// Number of the round, from 0.
    pub round: u32,
    /// How frames travelled.
    pub transport: Transport,
    /// How the workers waited.
    pub waiting: Waiting,
    /// Where the packets were computed.
    pub place: Place,
    /// Length of the frames without frame check sequence.
    pub frame_bytes: usize,
    /// Packets sent, the first ones that are not measured included.
    pub sent: u64,
    /// Packets without an answer.
    pub lost: u64,
    /// Packets that node 1 sent to node 2.
    pub forwarded: u64,
    /// Percentiles of the round trip, ns.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// What disturbed it.
    pub noise: Noise,
}

impl RoundTrips {
    /// Share of the packets that were computed where they had to be.
    pub fn computed_there(&self) -> f64 {
        let right = match self.place {
            Place::There => self.forwarded,
            Place::Here => self.sent.saturating_sub(self.forwarded),
        };
        right as f64 / self.sent.max(1) as f64
    }
}

/// One way, under overload.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Flood {
    /// Number of the round, from 0.
    pub round: u32,
    /// How frames travelled.
    pub transport: Transport,
    /// Nominal size of the frames, bytes, frame check sequence included.
    pub size: usize,
    /// Frames that reached node 1's port.
    pub offered: u64,
    /// Frames that arrived at the other end of the link.
    pub arrived: u64,
    /// Length of the window, s.
    pub seconds: f64,
    /// CPU time of all threads of node 1, ns.
    pub node_ns: u64,
    /// CPU time of the generator, in whose time XDP programs run, ns.
    pub generator_ns: u64,
    /// Of that, ns per offered frame when every frame is dropped at node 1's port: the generator's own cost.
    pub dropped_frame_ns: f64,
    /// What disturbed it.
    pub noise: Noise,
}

impl Flood {
    /// Frames per second that arrived.
    pub fn rate(&self) -> f64 {
        self.arrived as f64 / self.seconds
    }

    /// CPU time at node 1 per forwarded frame, ns: of its threads, and of what XDP did in the generator's time beyond
    /// dropping.
    pub fn cpu_ns(&self) -> f64 {
        let xdp_ns = (self.generator_ns as f64 - self.dropped_frame_ns * self.offered as f64).max(0.0);
        (self.node_ns as f64 + xdp_ns) / self.arrived.max(1) as f64
    }
}

/// A line of `interconnect.jsonl`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "trial", rename_all = "kebab-case")]
pub enum Line {
    /// Round trips.
    RoundTrips(RoundTrips),
    /// One way.
    Flood(Flood),
}

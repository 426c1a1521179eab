//! What is simulated: cluster, traffic, interconnect, reports, failures. Everything but the policy and the seed.

use std::sync::Arc;

use anyhow::{Result, ensure};
use dataplane_common::load::Forwarding;
use dataplane_common::maps::{MAX_NODES, MAX_WORKERS};

use super::ingress::Ingress;
use super::recording::Recording;
use super::workload::Workload;

/// When nodes report their load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReportMode {
    /// Every interval.
    Periodic,
    /// After every finished packet, and every interval (update-on-finish; Ok and Park, NPC 2004).
    OnFinish,
    /// After so many thousandths of the packets outstanding at the last report have finished, and every interval
    /// (K-percents-finish; Choi et al., KIPS Trans. A 14A(1), 2007).
    KFinish(u32),
    /// When the busy share, looked at every interval, passes the threshold of the tuning or falls to its recovery value
    /// (threshold alert; J. Lee, 2021).
    Threshold,
}

/// How loads travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reports {
    /// When a report is sent to every other node.
    pub mode: ReportMode,
    /// Time between two periodic reports, ns.
    pub interval_ns: u64,
    /// Least time between two reports of a node in the event modes, ns.
    pub gap_ns: u64,
    /// Time from a report's making to its arrival, ns.
    pub delay_ns: u64,
    /// Probability that a report does not reach one receiver.
    pub loss: f64,
    /// CPU time that each receiver spends on a report, ns.
    pub receive_ns: u32,
    /// Whether forwards, results and messages carry the load of their sender.
    pub piggyback: bool,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            mode: ReportMode::Periodic,
            interval_ns: 100_000,
            gap_ns: 0,
            delay_ns: 2_000,
            loss: 0.0,
            receive_ns: 0,
            piggyback: true,
        }
    }
}

/// A node stops, loses what it holds, and may come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The node.
    pub node: u16,
    /// When it stops, ns.
    pub at_ns: u64,
    /// When it is back, ns; `None` = never.
    pub until_ns: Option<u64>,
}

/// Where the result of a redirected packet leaves the cluster, which is where its latency ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// At the node that computed it (`order = "none"`).
    Direct,
    /// At the node of its arrival, after the way back.
    Ingress,
    /// As [`Egress::Ingress`], and in the order of its flow: latency ends when the result may leave.
    Ordered,
}

impl Egress {
    /// Whether results go back to the node of arrival before they leave.
    pub const fn is_home(self) -> bool {
        !matches!(self, Self::Direct)
    }
}

/// Sleep of idle workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleep {
    /// How long an idle worker looks for packets before it sleeps, ns.
    pub after_ns: u32,
    /// Time from the arrival of a packet at a sleeping worker to the beginning of its service, ns; 0 = workers never sleep.
    pub wake_ns: u32,
}

/// Whether idle workers ask other nodes for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// When the policy lives on it.
    ByPolicy,
    /// Never.
    Never,
    /// Whatever the policy.
    Always,
}

/// How well service times are estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Estimates {
    /// The estimate is the service time.
    Exact,
    /// The logarithm of estimate over service time is normal with this standard deviation; the mean is kept.
    LogSigma(f64),
    /// The estimate is the mean of the packet's kind.
    KindMean,
}

/// A recording as the traffic of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Playback {
    /// The recording.
    pub recording: Arc<Recording>,
    /// What the times between its packets are multiplied by.
    pub stretch: f64,
}

/// A cluster and its traffic. [`Scenario::default`] is the base cell of the comparison of policies: 8 nodes of one worker,
/// load 0.8, low and high computation mixed, reports each 100 µs, redirects of 0.5 + 0.5 µs CPU and 2 µs wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Nodes.
    pub nodes: usize,
    /// Workers of each node.
    pub workers: usize,
    /// Speeds of the nodes, thousandths of the reference node's, repeated as often as needed; empty = all 1000.
    pub speeds_milli: Vec<u32>,
    /// Work that arrives, as a share of what all workers together can do.
    pub load: f64,
    /// Distribution of service times.
    pub workload: Workload,
    /// Mean service time on the reference node, ns.
    pub mean_service_ns: f64,
    /// Where packets arrive.
    pub ingress: Ingress,
    /// What plays instead of traffic that is drawn; then workload, ingress, flows, keys and classes are those of the
    /// recording. Set by [`Scenario::playing`].
    pub playback: Option<Playback>,
    /// Flows of each node.
    pub flows: u32,
    /// Popularity of flows: flow number `flows · u^skew` for uniform `u`; 1 = all alike.
    pub flow_skew: f64,
    /// Keys that packets are about, with the popularities of Zipf's law, exponent 1; 0 = each flow has a key of its own.
    pub keys: u32,
    /// Parts of the classes 0, 1, … (at most 8) in the traffic.
    pub classes: Vec<f64>,
    /// Quality of the estimates.
    pub estimates: Estimates,
    /// Packets that a node can hold; one more is lost. 0 = any number.
    pub memory_packets: u32,
    /// Whether packets of a flow keep their order within a worker that serves the shortest first.
    pub keeps_flow_order: bool,
    /// Whether a tie between nodes falls on one drawn at random, as in the product; else on the first by number.
    pub draws_ties: bool,
    /// Whether redirects that cost more CPU than the packet are refused.
    pub guard: bool,
    /// A redirect must be better than staying by more than this, ns.
    pub margin_ns: u32,
    /// Cost of sending a packet to a peer.
    pub forwarding: Forwarding,
    /// Probability that a forwarded packet or its result is lost on the wire.
    pub loss: f64,
    /// CPU time that a probe or a request for work costs the node asked, ns.
    pub message_ns: u32,
    /// Where results leave.
    pub egress: Egress,
    /// Sleep of idle workers.
    pub sleep: Sleep,
    /// Reports.
    pub reports: Reports,
    /// Whether idle workers ask other nodes for work.
    pub pull: Pull,
    /// Time between two looks of a node's control thread at its signals, ns.
    pub control_ns: u64,
    /// Failures.
    pub failures: Vec<Failure>,
    /// Packets that arrive.
    pub packets: u64,
    /// The first of them, which are computed but not measured.
    pub warm_up: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            nodes: 8,
            workers: 1,
            speeds_milli: Vec::new(),
            load: 0.8,
            workload: Workload::LowHigh,
            mean_service_ns: 10_000.0,
            ingress: Ingress::Uniform,
            playback: None,
            flows: 64,
            flow_skew: 1.0,
            keys: 0,
            classes: vec![1.0],
            estimates: Estimates::Exact,
            memory_packets: 0,
            keeps_flow_order: true,
            draws_ties: true,
            guard: true,
            margin_ns: 0,
            forwarding: Forwarding { send_ns: 500, receive_ns: 500, wire_ns: 2_000, wire_ns_per_byte_q16: 0 },
            loss: 0.0,
            message_ns: 100,
            egress: Egress::Direct,
            sleep: Sleep::default(),
            reports: Reports::default(),
            pull: Pull::ByPolicy,
            control_ns: 1_000_000,
            failures: Vec::new(),
            packets: 100_000,
            warm_up: 10_000,
        }
    }
}

/// Most flows of all nodes together.
const MAX_FLOWS: u64 = 1 << 28;

impl Scenario {
    /// The scenario with `recording` as its traffic: as fast as it was recorded, or so that it offers `load`.
    pub fn playing(self, recording: Arc<Recording>, load: Option<f64>) -> Self {
        let mean_service_ns = recording.mean_service_ns();
        let recorded = mean_service_ns / (recording.gap_ns() * self.capacity());
        let (load, stretch) = load.map_or((recorded, 1.0), |load| (load, recorded / load));
        Self { load, mean_service_ns, playback: Some(Playback { recording, stretch }), ..self }
    }

    /// Flows of all nodes.
    pub fn all_flows(&self) -> usize {
        let drawn = self.nodes * self.flows as usize;
        self.playback.as_ref().map_or(drawn, |playback| playback.recording.flows as usize)
    }

    /// Kinds of packets.
    pub fn kinds(&self) -> usize {
        self.playback.as_ref().map_or(self.workload.kinds(), |playback| playback.recording.kinds.len())
    }

    /// Speed of a node, thousandths of the reference node's.
    pub fn speed_milli(&self, node: usize) -> u32 {
        if self.speeds_milli.is_empty() { 1000 } else { self.speeds_milli[node % self.speeds_milli.len()] }
    }

    /// Work that all workers together do in a unit of time.
    pub fn capacity(&self) -> f64 {
        (0..self.nodes).map(|node| f64::from(self.speed_milli(node)) / 1000.0).sum::<f64>() * self.workers as f64
    }

    /// Mean time between two arrivals, ns.
    pub fn gap_ns(&self) -> f64 {
        self.mean_service_ns / (self.load * self.capacity())
    }

    /// Says what is wrong with a scenario that cannot be simulated.
    ///
    /// # Errors
    /// A value is outside its bounds.
    pub fn check(&self) -> Result<()> {
        ensure!((1..=MAX_NODES).contains(&self.nodes), "{} nodes: 1 to {MAX_NODES} are possible", self.nodes);
        ensure!((1..=MAX_WORKERS).contains(&self.workers), "{} workers: 1 to {MAX_WORKERS} are possible", self.workers);
        let speeds = &self.speeds_milli;
        ensure!(
            speeds.iter().all(|speed| (1..=65_535).contains(speed)),
            "a speed is outside 0.001 to 65.5: {speeds:?}"
        );
        ensure!(self.load > 0.0 && self.load < 100.0, "load {}: more than 0 and less than 100", self.load);
        let mean = self.mean_service_ns;
        ensure!((10.0..=1e8).contains(&mean), "mean service time {mean} ns: 10 ns to 100 ms are possible");
        ensure!(
            self.flows >= 1 && u64::from(self.flows) * self.nodes as u64 <= MAX_FLOWS,
            "{} flows a node",
            self.flows
        );
        ensure!(self.flow_skew >= 1.0 && self.flow_skew <= 100.0, "flow skew {}: 1 to 100", self.flow_skew);
        let classes = &self.classes;
        ensure!((1..=8).contains(&classes.len()), "{} classes: 1 to 8 are possible", classes.len());
        ensure!(
            classes.iter().all(|part| part.is_finite() && *part >= 0.0),
            "a class has a negative part: {classes:?}"
        );
        ensure!(classes.iter().sum::<f64>() > 0.0, "no class has a part of the traffic");
        if let Estimates::LogSigma(sigma) = self.estimates {
            ensure!((0.0..=5.0).contains(&sigma), "log-sigma {sigma} of the estimates: 0 to 5");
        }
        for probability in [self.loss, self.reports.loss] {
            ensure!((0.0..=1.0).contains(&probability), "loss {probability}: a probability is 0 to 1");
        }
        ensure!(self.reports.interval_ns >= 1_000, "reports each {} ns: at least 1000", self.reports.interval_ns);
        ensure!(self.control_ns >= 1_000, "signals each {} ns: at least 1000", self.control_ns);
        ensure!(self.packets > self.warm_up, "{} packets, {} of them to warm up", self.packets, self.warm_up);
        ensure!(self.packets < 1 << 40, "{} packets: fewer than 2^40 are possible", self.packets);
        if let Some(Playback { recording, .. }) = &self.playback {
            let recorded = recording.packets.len() as u64;
            ensure!(self.packets <= recorded, "{} packets: the recording has {recorded}", self.packets);
        }
        for failure in &self.failures {
            ensure!(usize::from(failure.node) < self.nodes, "node {} shall fail and does not exist", failure.node);
            let Failure { at_ns, until_ns, .. } = *failure;
            ensure!(until_ns.is_none_or(|until_ns| until_ns > at_ns), "node {} is back before it fails", failure.node);
        }
        self.ingress.check(self.nodes)
    }
}

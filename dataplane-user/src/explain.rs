//! What a running node would do with a packet now, and why: `dataplane explain`.
//!
//! The tables that the node's XDP programs decide by are read once, without writing anything, and the same
//! [`decide`] decides over the copy. What is shown beside the decision is of that copy too, so that the numbers are those
//! that were compared. The programs' parameters are not in any map: they come from the node's configuration file, and the
//! maps are asked whether it is that node's.

mod show;
mod snapshot;

use std::hash::{BuildHasher as _, RandomState};

use anyhow::{Result, bail};
use aya::maps::{Map, PerCpuArray};
use dataplane_common::estimate::ept_ns;
use dataplane_common::function::Units;
use dataplane_common::load::{Erl, Forwarding, Row as _, Signals, saturate};
use dataplane_common::maps::{
    self as names, FUNCTION_WORKER, FunctionRow, LoadRow, MetaRow, ORDER_AFFINE, PEER_PRESENT, Params, PeerRow,
    SignalsRow, SlotRow, WorkerRow, function_slot,
};
use dataplane_common::policy::{Decision, Job, Needs, PolicyKind, Verdict, decide};
use dataplane_common::reason::Reason;
use dataplane_common::seal::forward_overhead;
use dataplane_common::wire::anep::{Anep, HEADER_BYTES as ANEP_BYTES};
use dataplane_common::wire::ip::{ETHERNET_BYTES, UDP_BYTES};
use serde::Serialize;

use crate::config::{Config, FunctionConfig, Order};
use crate::functions::Builtin;
use crate::maps::{PinDir, PinError};
use crate::status::{PeerState, map_failed, pinned, worker_load};
use crate::worker::monotonic_ns;

pub use snapshot::{Snapshot, View};

/// Bytes of an IPv4 header without options.
const IPV4_BYTES: usize = 20;
/// Bytes of an ANEP option with a value of one word.
const OPTION_BYTES: usize = 8;

/// The packet that is asked about: an active packet in UDP over IPv4, with room for the result of its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// Name of its function.
    pub function: &'a str,
    /// Worker of the queue that it arrives on.
    pub worker: u32,
    /// Bytes of payload.
    pub length: u16,
    /// Operand, if it has one.
    pub operand: Option<u32>,
    /// Service class, 0 to 7.
    pub class: u8,
    /// Hash of its flow.
    pub flow: u32,
    /// Hash of what it is about; without it, that of its flow.
    pub key: Option<u32>,
    /// The random number that the decision gets; without it, one is drawn.
    pub random: Option<u32>,
}

/// `dataplane explain -j`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// `dataplane.explain/1`.
    pub schema: &'static str,
    /// Name of the node.
    pub node: String,
    /// Name of the function.
    pub function: &'static str,
    /// Policy that places its packets.
    pub policy: &'static str,
    /// In which order its results leave.
    pub order: &'static str,
    /// Worker of the queue that the packet arrives on.
    pub worker: u32,
    /// The packet as the decision sees it.
    pub packet: PacketView,
    /// The load at that worker.
    pub here: HereView,
    /// What the node knows of the cluster as a whole.
    pub signals: SignalsView,
    /// What becomes of the packet.
    pub outcome: Outcome,
    /// The other nodes.
    pub peers: Vec<PeerView>,
}

/// A packet as a decision sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PacketView {
    /// Bytes of payload.
    pub payload_bytes: usize,
    /// Bytes of the frame, without what a network card adds to short ones.
    pub frame_bytes: usize,
    /// Bytes that would travel to a peer.
    pub link_bytes: usize,
    /// Work, in the units of the function; null when the packet lacks the operand.
    pub units: Option<u32>,
    /// Its cost as declared, ns; the function's limit is compared with it.
    pub declared_ns: u32,
    /// The function's limit, ns.
    pub limit_ns: u32,
    /// Estimated processing time, ns.
    pub ept_ns: u32,
    /// Service class.
    pub class: u8,
    /// Hash of the flow.
    pub flow: u32,
    /// Hash of what it is about.
    pub key: u32,
    /// The random number of the decision.
    pub random: u32,
}

/// The load where the packet would be queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HereView {
    /// Work ahead of it, ns.
    pub backlog_ns: u32,
    /// Packets ahead of it, thousandths.
    pub queued_milli: u32,
}

/// What is known of the cluster as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SignalsView {
    /// Share of time the workers of the live nodes are busy, thousandths.
    pub utilisation_milli: u32,
    /// Mean service time of a packet, ns.
    pub service_ns: u32,
    /// Median error of predicted loads, ns; 0 unless a policy predicts.
    pub deviation_ns: u32,
    /// CPU time that sending a packet costs, ns.
    pub send_ns: u32,
    /// CPU time that receiving one costs, ns.
    pub receive_ns: u32,
    /// Time this packet would spend between the nodes, ns.
    pub transit_ns: u32,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "lowercase")]
pub enum Outcome {
    /// It is dropped before anything is decided.
    Drop {
        /// The counter that says so.
        counter: &'static str,
        /// The same in words.
        why: &'static str,
    },
    /// It is computed here.
    Local(Compared),
    /// It is sent to a peer.
    Redirect {
        /// The peer's id.
        to: u16,
        /// Why.
        #[serde(flatten)]
        compared: Compared,
    },
    /// It should be sent to a peer, cannot, and is computed here.
    Stays {
        /// The peer's id.
        to: u16,
        /// The counter that says why it cannot.
        counter: &'static str,
        /// Why it should.
        #[serde(flatten)]
        compared: Compared,
    },
}

/// The numbers of a decision, and the rule that decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// The value of staying, in the policy's measure: ns, or thousandths of packets for policies that count packets.
    pub here: u64,
    /// The value of the best other node; null when none was compared.
    pub there: Option<u64>,
    /// A redirect must be better by more than this, ns, where the policy has a margin.
    pub margin_ns: u32,
    /// The rule, in words.
    pub why: &'static str,
}

/// A peer as the decision sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PeerView {
    /// Id.
    pub id: u16,
    /// Name in the configuration.
    pub name: String,
    /// `alive`: it may take packets; `stale` (its reports have stopped) and `unseen` (it has not reported yet): not.
    pub state: PeerState,
    /// Age of the load that is known of it, ns; null before the first report.
    pub age_ns: Option<u64>,
    /// Backlog it reported, ns.
    pub backlog_ns: u32,
    /// Packets waiting or in service at one of its workers, thousandths.
    pub queued_milli: u32,
    /// Work sent there that its load does not include, ns.
    pub in_flight_ns: u32,
    /// Estimated remote load by the configured mode, ns.
    pub erl_ns: u64,
    /// Load as policies predict it that predict, ns.
    pub predicted_ns: u32,
    /// What sending it there and having it back costs, ns: both ends' CPU time and the wire.
    pub forwarding_ns: u32,
    /// The value of the node in the policy's measure, were it the only one and this node full; null when it is no candidate
    /// or the policy does not compare it.
    pub there: Option<u64>,
    /// Longest frame that the link to it carries, bytes.
    pub max_frame: u16,
}

/// Everything a decision goes by, besides the packet.
struct Scene<'a> {
    params: Params,
    /// The function of the packet, as its worker measures it, and its index.
    function: FunctionRow,
    index: u16,
    snapshot: &'a Snapshot,
    /// The way to each node, by id.
    ways: &'a [PeerRow],
    now_ns: u64,
}

/// Explains what the node of `dir`, started with `config`, would do with the packet of `question` now.
///
/// # Errors
/// The node is not running, `config` is not what it was started with, or there is no such function or worker.
pub fn explain(dir: &PinDir, config: &Config, question: &Question<'_>) -> Result<Explanation> {
    let meta = dir.meta()?;
    if !dir.is_owned() {
        return Err(PinError::NotRunning(dir.path().to_owned()).into());
    }
    is_of(dir, config, &meta)?;
    let (index, configured) = named(config, question.function)?;
    if question.worker >= meta.workers {
        bail!(
            "there is no worker {}\n  why: node {} has {} workers, counted from 0\n  do:  name one with --worker",
            question.worker,
            dir.node(),
            meta.workers
        );
    }
    let functions = pinned::<FunctionRow>(dir, names::FUNCTIONS)?;
    let slot = function_slot(index, question.worker);
    let function = functions.get(&slot, 0).map_err(map_failed(dir, names::FUNCTIONS))?.0;
    if (function.type_id, function.policy) != (configured.type_id.into(), configured.policy as u32)
        || function.order != configured.order.id()
    {
        return Err(another(dir, &format!("function {} has another type id, policy or order there", configured.name)));
    }
    let params = config.params(meta.epoch);
    let ways = crate::status::rows::<PeerRow>(dir, names::PEERS)?;
    let (now_ns, mut snapshot) = read(dir, question.worker, configured.policy)?;
    if function.flags & FUNCTION_WORKER != 0 {
        // A worker decides, and counts what it takes itself to send.
        let cost = &mut snapshot.signals;
        cost.send_ns = cost.send_ns.saturating_add(saturate(cost.worker_send_ns));
    }
    let scene = Scene { params, function, index: index as u16, snapshot: &snapshot, ways: &ways, now_ns };
    Ok(scene.explain(config, configured, question))
}

/// Complains unless the maps are those of a node started with `config`.
fn is_of(dir: &PinDir, config: &Config, meta: &MetaRow) -> Result<()> {
    let name = dir.node();
    let found =
        |what: &str, theirs: String, ours: String| another(dir, &format!("its {what} is {theirs}, the file's {ours}"));
    if config.node.name != name {
        return Err(found("name", name, config.node.name.clone()));
    }
    if meta.node != u32::from(config.node.id) {
        return Err(found("id", meta.node.to_string(), config.node.id.to_string()));
    }
    if meta.policy != config.policy.kind as u32 {
        let theirs = PolicyKind::from_id(meta.policy).map_or("unknown", PolicyKind::name);
        return Err(found("policy", theirs.to_owned(), config.policy.kind.name().to_owned()));
    }
    let (workers, functions) = (config.workers.cpus.len() as u32, config.functions.len() as u32);
    if (meta.workers, meta.functions) != (workers, functions) {
        let count = |workers, functions| format!("{workers} workers and {functions} functions");
        let what = format!("it has {}, the file {}", count(meta.workers, meta.functions), count(workers, functions));
        return Err(another(dir, &what));
    }
    Ok(())
}

/// The node runs by another configuration.
fn another(dir: &PinDir, why: &str) -> anyhow::Error {
    anyhow::anyhow!(
        "the configuration is not that of node {}\n  why: {why}\n  do:  give --config the file that the node was started with",
        dir.node()
    )
}

/// The function of this name and its index.
fn named<'c>(config: &'c Config, name: &str) -> Result<(u32, &'c FunctionConfig)> {
    let Some(found) = (0..).zip(&config.functions).find(|(_, function)| function.name == name) else {
        let known: Vec<_> = config.functions.iter().map(|function| function.name).collect();
        bail!(
            "there is no function {name:?}\n  why: this node computes {}\n  do:  name one of these with --function",
            known.join(", ")
        );
    };
    Ok(found)
}

/// Reads what `policy` decides by at `worker`: the time first, as the XDP program takes it, then what moves fastest.
fn read(dir: &PinDir, worker: u32, policy: PolicyKind) -> Result<(u64, Snapshot), PinError> {
    let slots =
        if policy.needs().has(Needs::PLAN) { crate::status::rows::<SlotRow>(dir, names::SLOTS)? } else { Vec::new() };
    let turns: PerCpuArray<_, u64> =
        Map::PerCpuArray(dir.open(names::TURNS)?).try_into().map_err(map_failed(dir, names::TURNS))?;
    let turns = turns.get(&0, 0).map_err(map_failed(dir, names::TURNS))?;
    let signals = pinned::<SignalsRow>(dir, names::SIGNALS)?;
    let signals = signals.get(&0, 0).map_err(map_failed(dir, names::SIGNALS))?.0;
    let roster = pinned::<u64>(dir, names::ROSTER)?;
    let roster: Result<Vec<_>, _> = roster.iter().take(signals.peers as usize).collect();
    let roster: Vec<u16> = roster.map_err(map_failed(dir, names::ROSTER))?.iter().map(|node| node.0 as u16).collect();
    let workers = pinned::<WorkerRow>(dir, names::WORKERS)?;
    let table = pinned::<LoadRow>(dir, names::LOAD_TABLE)?;
    let now_ns = monotonic_ns();
    let row = workers.get(&worker, 0).map_err(map_failed(dir, names::WORKERS))?.0;
    let mut loads = vec![LoadRow::default(); table.len() as usize];
    for node in &roster {
        if let Some(load) = loads.get_mut(usize::from(*node)) {
            *load = table.get(&u32::from(*node), 0).map_err(map_failed(dir, names::LOAD_TABLE))?.0;
        }
    }
    let snapshot = Snapshot {
        here: worker_load(&row).here(now_ns),
        loads,
        roster,
        signals,
        slots: slots.iter().map(|slot| slot.node as u16).collect(),
        // Each CPU counts for itself; the one that counted most is the one that decides most.
        turns: turns.iter().max().map_or(0, |turns| *turns as u32),
    };
    Ok((now_ns, snapshot))
}

impl Scene<'_> {
    fn explain(&self, config: &Config, configured: &FunctionConfig, question: &Question<'_>) -> Explanation {
        let (job, packet) = self.packet(configured, question);
        let signals = Signals::of(&self.snapshot.signals);
        let cost = Forwarding::of(&self.snapshot.signals);
        let peers = self.snapshot.roster.iter().map(|node| {
            let name = config.peers.iter().find(|peer| peer.id == *node).map_or("", |peer| peer.name.as_str());
            self.peer(*node, name, &job)
        });
        Explanation {
            schema: "dataplane.explain/1",
            node: config.node.name.clone(),
            function: configured.name,
            policy: PolicyKind::from_id(self.function.policy).map_or("unknown", PolicyKind::name),
            order: Order::from_id(self.function.order).map_or("unknown", Order::name),
            worker: question.worker,
            here: HereView { backlog_ns: self.snapshot.here.backlog_ns, queued_milli: self.snapshot.here.queued_milli },
            signals: SignalsView {
                utilisation_milli: signals.utilisation_milli,
                service_ns: signals.service_ns,
                deviation_ns: signals.deviation_ns,
                send_ns: cost.send_ns,
                receive_ns: cost.receive_ns,
                transit_ns: cost.transit_ns(job.bytes),
            },
            outcome: self.outcome(&job, &packet),
            peers: peers.collect(),
            packet,
        }
    }

    /// The packet, as the XDP program would find it.
    fn packet(&self, configured: &FunctionConfig, question: &Question<'_>) -> (Job, PacketView) {
        let operand_bytes = if question.operand.is_some() { OPTION_BYTES } else { 0 };
        let result = Builtin::from_name(configured.name).map_or(0, Builtin::result_bytes);
        // An option is whole words: one for itself, the others for its value.
        let result_bytes = if result > 0 { 4 + result.next_multiple_of(4) } else { 0 };
        let header_len = ANEP_BYTES + operand_bytes + result_bytes;
        let packet_len = header_len + usize::from(question.length);
        let anep = Anep { header_len, packet_len, operand: question.operand, ..Anep::default() };
        let row = &self.function;
        let units = Units::from_map(row.units).of(&anep);
        let ept_ns = ept_ns(row.measured(), row.declared(), units.unwrap_or(0));
        let frame_bytes = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + packet_len;
        let job = Job {
            now_ns: self.now_ns,
            ept_ns,
            bytes: frame_bytes + forward_overhead(self.params.auth),
            function: self.index,
            // Nothing of its flow is out.
            earlier_ns: 0,
            home: row.home,
            class: question.class,
            flow: question.flow,
            key: question.key.unwrap_or(question.flow),
            random: question.random.unwrap_or_else(|| RandomState::new().hash_one(self.now_ns) as u32),
        };
        let view = PacketView {
            payload_bytes: usize::from(question.length),
            frame_bytes,
            link_bytes: job.bytes,
            units,
            declared_ns: row.declared().ns(units.unwrap_or(0)),
            limit_ns: row.limit_ns,
            ept_ns,
            class: job.class,
            flow: job.flow,
            key: job.key,
            random: job.random,
        };
        (job, view)
    }

    fn outcome(&self, job: &Job, packet: &PacketView) -> Outcome {
        let dropped = |reason: Reason| Outcome::Drop { counter: reason.name(), why: reason.help() };
        if packet.units.is_none() {
            return dropped(Reason::DropOperandMissing);
        }
        if packet.declared_ns > packet.limit_ns {
            return dropped(Reason::DropServiceLimit);
        }
        if self.function.order == ORDER_AFFINE {
            let why = "its function keeps state of its flows";
            return Outcome::Local(Compared { why, ..self.compared(&Decision::LOCAL) });
        }
        let decision = decide(self.function.policy, job, &self.params, &self.snapshot.whole());
        let compared = self.compared(&decision);
        let Verdict::Redirect(to) = decision.verdict else {
            return Outcome::Local(compared);
        };
        let way = self.way(to);
        let stays = |reason: Reason| Outcome::Stays { to, counter: reason.name(), compared };
        if way.flags & PEER_PRESENT == 0 {
            stays(Reason::NoteUnreachable)
        } else if job.bytes > usize::from(way.max_frame) {
            stays(Reason::NoteTooLong)
        } else {
            Outcome::Redirect { to, compared }
        }
    }

    fn compared(&self, decision: &Decision) -> Compared {
        Compared {
            here: decision.here,
            there: value(decision.there),
            margin_ns: self.params.margin_ns,
            why: decision.why.words(),
        }
    }

    fn way(&self, node: u16) -> PeerRow {
        self.ways.get(usize::from(node)).copied().unwrap_or_default()
    }

    fn peer(&self, id: u16, name: &str, job: &Job) -> PeerView {
        let row = self.snapshot.loads.get(usize::from(id)).copied().unwrap_or_default();
        let tuning = &self.params.tuning;
        let relax = Signals::of(&self.snapshot.signals).relaxation();
        let params = Params { guard: 0, ..self.params };
        let there = decide(self.function.policy, job, &params, &self.snapshot.alone(&id)).there;
        PeerView {
            id,
            name: name.to_owned(),
            state: PeerState::of(&row, self.now_ns),
            age_ns: (row.reported_at_ns > 0).then(|| row.age_ns(self.now_ns)),
            backlog_ns: row.backlog_ns,
            queued_milli: row.queued_milli,
            in_flight_ns: row.in_flight_ns(),
            erl_ns: row.erl_ns(Erl::from_id(tuning.erl), self.now_ns),
            predicted_ns: row.predicted_ns(self.now_ns, relax, tuning.gain_milli),
            forwarding_ns: Forwarding::of(&self.snapshot.signals).total_ns(job.bytes),
            there: value(there),
            max_frame: self.way(id).max_frame,
        }
    }
}

/// A value of a decision; [`u64::MAX`] stands for none.
fn value(value: u64) -> Option<u64> {
    (value != u64::MAX).then_some(value)
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;

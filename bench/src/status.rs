//! What `dataplane status -j` prints, as values. Fields that nobody here reads are left out.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use dataplane_common::reason::{REASONS, Reason};
use serde::{Deserialize, Serialize};

/// The format this file understands.
pub const SCHEMA: &str = "dataplane.status/1";

/// State of a node at one moment.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    schema: String,
    /// Who it is.
    pub node: Node,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// The other nodes, as it sees them.
    pub peers: Vec<Peer>,
    /// What it has measured of forwarding.
    #[serde(default)]
    pub signals: Signals,
    /// Its functions, one entry per function and worker.
    pub functions: Vec<Function>,
    /// Counters by the name of their [`Reason`].
    pub counters: BTreeMap<String, u64>,
    /// Its ledger.
    pub ledger: Ledger,
}

/// Who a node is.
#[derive(Clone, Debug, Deserialize)]
pub struct Node {
    /// Name.
    pub name: String,
    /// Id in the cluster.
    pub id: u16,
    /// Process id.
    pub pid: u32,
    /// Policy that decides.
    pub policy: String,
}

/// A worker.
#[derive(Clone, Debug, Deserialize)]
pub struct Worker {
    /// Number of the worker.
    pub worker: u32,
    /// CPU it is pinned to.
    pub cpu: u32,
    /// Work charged and not discharged, ns.
    pub backlog_ns: u64,
    /// Time spent in functions, ns.
    pub busy_ns: u64,
    /// Time spent in steps that had packets, functions included, ns.
    #[serde(default)]
    pub stepped_ns: u64,
    /// Packets handled in those steps.
    #[serde(default)]
    pub stepped_packets: u64,
}

/// What forwarding a packet costs, as the node has measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// CPU time of sending, ns.
    pub send_ns: u32,
    /// What comes on top of it where workers send, ns; 0 = not measured.
    #[serde(default)]
    pub worker_send_ns: u32,
    /// CPU time of receiving, what a worker spends outside the function included, ns.
    pub receive_ns: u32,
    /// Time on the wire, one way, ns.
    pub wire_ns: u32,
}

/// Another node, as this one sees it.
#[derive(Clone, Debug, Deserialize)]
pub struct Peer {
    /// Its id.
    pub id: u16,
    /// Its name, once known.
    pub name: Option<String>,
    /// What this node takes it for.
    pub state: String,
    /// Whether it is a member of the cluster: `present` or `draining`.
    pub member: Option<String>,
    /// MAC address of its end of the link, once known.
    pub mac: Option<String>,
    /// Backlog it reported, ns.
    pub backlog_ns: u64,
    /// Work sent there that its reports do not include, ns.
    pub in_flight_ns: u64,
    /// Frames with work sent there.
    pub sent_frames: u64,
    /// Work sent there, ns.
    pub sent_ns: u64,
    /// Frames with work that arrived from there.
    pub received_frames: u64,
    /// What a packet's way there and back takes beyond the time it spends there, ns; `None` before the first result.
    #[serde(default)]
    pub transit_ns: Option<u32>,
    /// Results that came back from there.
    #[serde(default)]
    pub completed_frames: u64,
}

impl Peer {
    /// Whether packets may be sent there.
    pub fn is_alive(&self) -> bool {
        self.state == "alive"
    }
}

/// A function as one worker measured it.
#[derive(Clone, Debug, Deserialize)]
pub struct Function {
    /// Name.
    pub name: String,
    /// Type id.
    pub type_id: u16,
    /// The worker.
    pub worker: u32,
    /// Fixed cost of the fit, ns.
    pub a_ns: u64,
    /// Cost per unit of work of the fit, ns.
    pub b_ns_per_unit: f64,
    /// Packets computed.
    pub samples: u64,
    /// Sum of the estimates charged for them, ns.
    pub predicted_ns: u64,
    /// Sum of their measured service times, ns.
    pub measured_ns: u64,
    /// Median relative error of the estimates, thousandths.
    pub error_p50_milli: u64,
    /// 99th percentile of the relative error, thousandths.
    pub error_p99_milli: u64,
}

/// What entered and left each stage of a node; see [`dataplane_common::ledger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Frames that arrived at ports.
    pub port_seen: u64,
    /// Frames of ports that ended in a named counter.
    pub port_ended: u64,
    /// Frames that arrived on links.
    pub link_seen: u64,
    /// Frames of links that ended in a named counter.
    pub link_ended: u64,
    /// Frames given to workers.
    pub queued: u64,
    /// Frames the kernel dropped in front of a worker's receive ring.
    pub ring_dropped: u64,
    /// Frames the workers took.
    pub taken: u64,
    /// Frames of workers that ended in a named counter.
    pub worker_ended: u64,
    /// Frames between two stages when the counters were read.
    pub in_flight: i64,
    /// Whether every frame that entered a stage has left it under a name.
    pub balances: bool,
}

impl Status {
    /// Reads what `dataplane status -j` printed.
    ///
    /// # Errors
    /// It is not JSON of this format, or a counter is missing.
    pub fn parse(text: &str) -> Result<Self> {
        let status: Self = serde_json::from_str(text)?;
        ensure!(status.schema == SCHEMA, "format {}, expected {SCHEMA}", status.schema);
        for reason in Reason::ALL {
            ensure!(status.counters.contains_key(reason.name()), "counter {} is missing", reason.name());
        }
        Ok(status)
    }

    /// A counter.
    pub fn count(&self, reason: Reason) -> u64 {
        // `parse` has seen to it that none is missing.
        self.counters.get(reason.name()).copied().unwrap_or(0)
    }

    /// All counters, by [`Reason`].
    pub fn counters(&self) -> [u64; REASONS] {
        let mut counters = [0; REASONS];
        for reason in Reason::ALL {
            counters[*reason as usize] = self.count(*reason);
        }
        counters
    }

    /// Time its workers spent in functions, ns.
    pub fn busy_ns(&self) -> u64 {
        self.workers.iter().map(|worker| worker.busy_ns).sum()
    }

    /// Time its workers spent on packets outside functions, ns, and the packets.
    pub fn outside(&self) -> (u64, u64) {
        let stepped_ns = self.workers.iter().map(|worker| worker.stepped_ns).sum::<u64>();
        (stepped_ns.saturating_sub(self.busy_ns()), self.workers.iter().map(|worker| worker.stepped_packets).sum())
    }

    /// What this node knows of another.
    pub fn peer(&self, id: u16) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.id == id)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// A status of node `id` with these counters (the others are 0) and these peers: (id, sent, received).
    pub(crate) fn status(id: u16, counts: &[(Reason, u64)], peers: &[(u16, u64, u64)]) -> Status {
        let mut counters = BTreeMap::new();
        for reason in Reason::ALL {
            counters.insert(reason.name().to_owned(), 0);
        }
        for (reason, count) in counts {
            counters.insert(reason.name().to_owned(), *count);
        }
        let peers = peers
            .iter()
            .map(|(id, sent, received)| {
                json!({"id": id, "state": "alive", "backlog_ns": 0, "in_flight_ns": 0, "sent_frames": sent,
                       "sent_ns": 0, "acked_frames": sent, "received_frames": received})
            })
            .collect::<Vec<_>>();
        let ledger = json!({"port_seen": 0, "port_ended": 0, "link_seen": 0, "link_ended": 0, "queued": 0,
                            "ring_dropped": 0, "taken": 0, "worker_ended": 0, "in_flight": 0, "balances": true});
        let value = json!({
            "schema": SCHEMA,
            "node": {"name": format!("n{id}"), "id": id, "pid": 1, "policy": "ept", "workers": 1},
            "workers": [{"worker": 0, "cpu": 0, "backlog_ns": 0, "busy_ns": 5}],
            "peers": peers, "functions": [], "counters": counters, "ledger": ledger,
        });
        Status::parse(&value.to_string()).unwrap()
    }

    #[test]
    fn counters_are_read_by_name() {
        let status = status(2, &[(Reason::Redirected, 7)], &[(1, 3, 4)]);
        assert_eq!(status.count(Reason::Redirected), 7);
        assert_eq!(status.counters()[Reason::Redirected as usize], 7);
        assert_eq!(status.peer(1).map(|peer| peer.received_frames), Some(4));
        assert_eq!(status.busy_ns(), 5);
    }

    #[test]
    fn other_formats_and_missing_counters_are_refused() {
        let good = serde_json::json!({"schema": "dataplane.status/2", "node": {"name": "n", "id": 1, "pid": 1,
            "policy": "ept"}, "workers": [], "peers": [], "functions": [], "counters": {}, "ledger":
            serde_json::to_value(Ledger::default()).unwrap()});
        assert!(Status::parse(&good.to_string()).unwrap_err().to_string().contains("dataplane.status/2"));
        let text = good.to_string().replace("status/2", "status/1");
        assert!(Status::parse(&text).unwrap_err().to_string().contains("port_seen"));
    }
}

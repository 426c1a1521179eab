//! What the control thread of a node does from time to time: it looks at its signals and draws up its plan.

use dataplane_common::feedback;
use dataplane_common::load::{Row, Signals, saturate};
use dataplane_common::plan::{Board, Demand, Member};
use dataplane_common::tuning::Tuning;

use super::node::{Node, Planning};
use super::peers::Peer;
use super::reports::{Delivery, Logs};
use super::view::catch_up;

/// Busy shares that the nodes reported last, summed as reports are made, so that a look at the cluster costs one read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    busy_milli: u64,
    nodes: u64,
}

impl Digest {
    /// A node's newest report says `after` where the one before said `before`; `None` = the node says nothing.
    pub fn replace(&mut self, before: Option<u16>, after: Option<u16>) {
        self.busy_milli = self.busy_milli + after.map_or(0, u64::from) - before.map_or(0, u64::from);
        self.nodes = self.nodes + u64::from(after.is_some()) - u64::from(before.is_some());
    }

    fn mean_milli(&self) -> Option<u32> {
        self.busy_milli.checked_div(self.nodes).map(|mean| mean as u32)
    }
}

/// Renews the signals of a node from its own measurements and what all nodes reported.
pub fn look(node: &mut Node, digest: &Digest) {
    let signals = node.signals.get();
    let (count, sum_ns) = node.services;
    let service_ns = saturate(sum_ns / count).max(1);
    let utilisation_milli = match digest.mean_milli() {
        // A mean over the last eight looks: one report interval says little.
        Some(busy_milli) => feedback::mean(signals.utilisation_milli, busy_milli, 3),
        None => signals.utilisation_milli,
    };
    node.set_signals(Signals::derive(utilisation_milli, service_ns, signals.deviation_ns, &node.params.tuning));
}

/// Has node number `id` draw up a plan.
pub fn plan(nodes: &mut [Node], (id, now_ns): (u16, u64), tuning: &Tuning, (logs, delivery): (&Logs, &Delivery)) {
    let node = &mut nodes[usize::from(id)];
    // The plan is out of the node while the board reads the nodes.
    let Some(mut planning) = node.planning.take() else {
        return;
    };
    let Planning { planner, slots, charged_ns, homes } = &mut planning;
    let mut board = Table { nodes, node: id, now_ns, logs, delivery, slots, charged_ns, homes };
    planner.turn(&mut board, tuning);
    nodes[usize::from(id)].planning = Some(planning);
}

/// The board of a node: its own load as it is, all others as it knows them.
struct Table<'a> {
    nodes: &'a [Node],
    node: u16,
    now_ns: u64,
    logs: &'a Logs,
    delivery: &'a Delivery,
    slots: &'a mut [u16],
    charged_ns: &'a [std::cell::Cell<u64>],
    homes: &'a mut [u32],
}

impl Table<'_> {
    fn own(&self) -> &Node {
        &self.nodes[usize::from(self.node)]
    }

    fn this(&self) -> Member {
        let node = self.own();
        let truth = node.truth(self.now_ns);
        let newest = self.logs.newest(node.id);
        Member {
            node: node.id,
            is_self: true,
            is_live: true,
            workers: node.workers.len() as u16,
            speed_milli: 1000,
            busy_milli: newest.body.busy_milli,
            memory_milli: newest.body.memory_milli,
            backlog_ns: truth.mean_backlog_ns,
            queued_milli: truth.queued_milli,
            reports: newest.sequence,
            ..Member::default()
        }
    }
}

impl Board for Table<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn members(&self) -> usize {
        self.nodes.len()
    }

    fn member(&self, index: usize) -> Member {
        if index == usize::from(self.node) {
            return self.this();
        }
        let (node, other, fresh) = (self.own(), index as u16, Peer::default());
        let peer = node.peers.get(other).unwrap_or(&fresh);
        catch_up(node, (peer, other), self.now_ns, (self.logs, self.delivery));
        let row = peer.row().get();
        Member {
            node: other,
            is_self: false,
            is_live: row.is_candidate(self.now_ns),
            workers: row.workers.max(1),
            speed_milli: row.speed_milli() as u16,
            busy_milli: row.busy_milli,
            memory_milli: row.memory_milli,
            backlog_ns: row.backlog_ns,
            queued_milli: row.queued_milli,
            response_ns: row.response_ns,
            outstanding: row.outstanding(),
            completed: row.completed_frames as u32,
            reports: row.reports as u32,
        }
    }

    fn functions(&self) -> usize {
        self.homes.len()
    }

    fn demand(&self, index: usize) -> Demand {
        Demand { arrivals: self.own().arrivals[index] }
    }

    fn set_home(&mut self, index: usize, node: Option<u16>) {
        self.homes[index] = node.map_or(0, |node| u32::from(node) + 1);
    }

    fn charged_ns(&self, slot: u32) -> u64 {
        self.charged_ns[slot as usize].get()
    }

    fn slot(&self, slot: u32) -> u16 {
        self.slots[slot as usize]
    }

    fn place(&mut self, slot: u32, node: u16) {
        self.slots[slot as usize] = node;
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{Reports, Scenario};
    use super::*;
    use dataplane_common::decay::Rate;
    use dataplane_common::policy::PolicyKind;

    #[test]
    fn the_digest_is_the_mean_of_the_newest_reports() {
        let mut digest = Digest::default();
        assert_eq!(digest.mean_milli(), None);
        digest.replace(None, Some(400));
        digest.replace(None, Some(800));
        digest.replace(Some(400), Some(600));
        assert_eq!(digest.mean_milli(), Some(700));
        digest.replace(Some(800), None);
        assert_eq!(digest.mean_milli(), Some(600));
    }

    #[test]
    fn signals_come_from_measurements() {
        let mut node = Node::new(&Scenario::default(), (PolicyKind::Local, &Tuning::DEFAULT), 0);
        let mut digest = Digest::default();
        digest.replace(None, Some(500));
        for _ in 0..10_000 {
            node.observe(4_000);
        }
        look(&mut node, &digest);
        let signals = node.signals.get();
        assert!((4_000..4_050).contains(&signals.service_ns), "{signals:?}");
        assert_eq!(signals.utilisation_milli, 500);
        let per_ns = f64::from(signals.arrivals_q32) / 2f64.powi(32);
        assert!((per_ns * f64::from(signals.service_ns) - 0.5).abs() < 0.001, "{signals:?}");
        let relax_ns = u64::from(signals.service_ns) * u64::from(Tuning::DEFAULT.relax_milli) / 1000;
        assert_eq!(node.learning.relax, Rate::of(saturate(relax_ns)));
    }

    #[test]
    fn a_board_shows_this_node_as_it_is_and_others_as_reported() {
        let scenario = Scenario { nodes: 2, ..Scenario::default() };
        let mut nodes: Vec<Node> =
            (0..2).map(|id| Node::new(&scenario, (PolicyKind::Local, &Tuning::DEFAULT), id)).collect();
        for node in &mut nodes {
            node.workers[0].queue(0, 0, (3_000, 0, 0), false);
        }
        nodes[1].workers[0].take_next();
        nodes[1].workers[0].serve(750, 250);
        nodes[1].look_at_busy_share(1_000);
        let (delivery, mut logs) = (Delivery::new(&Reports::default(), 1), Logs::new(2));
        let (made, packets) = nodes[1].report(1_000, 100);
        logs.make(1, made, packets, &delivery);
        let board = |now_ns| Table {
            nodes: &nodes,
            node: 0,
            now_ns,
            logs: &logs,
            delivery: &delivery,
            slots: &mut [],
            charged_ns: &[],
            homes: &mut [],
        };
        let (this, other) = (board(2_000).member(0), board(2_000).member(1));
        assert!(this.is_self && this.is_live && this.backlog_ns == 3_000);
        assert!(!other.is_live, "its report is on its way");
        let other = board(3_000).member(1);
        assert!(other.is_live && (other.backlog_ns, other.busy_milli, other.reports) == (2_750, 250, 1));
    }
}

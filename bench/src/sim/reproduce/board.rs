//! A cluster's load table and plan in memory, on which the product's policies decide and plan.

use std::cell::Cell;

use dataplane_common::load::{Forwarding, Here, LoadView, Signals, Visit};
use dataplane_common::maps::{LoadRow, Params};
use dataplane_common::plan::{Board, Demand, HERE, Member, SLOTS, TABLES};
use dataplane_common::policy::{self, Job, Planner, PolicyKind, Verdict};
use dataplane_common::tuning::Tuning;

/// Where requests arrive that arrive at none of the nodes: a switch, a client.
pub const OUTSIDE: u16 = u16::MAX - 2;

/// What one decider knows of all nodes, and its plan.
pub struct Cluster {
    /// Now, ns.
    pub now_ns: u64,
    /// The nodes as a plan sees them, by id.
    pub members: Vec<Member>,
    /// The nodes as a decision sees them, by id.
    pub rows: Vec<LoadRow>,
    /// The load where a request arrives.
    pub here: Here,
    /// What forwarding costs.
    pub forwarding: Forwarding,
    /// Requests of each kind that arrived.
    pub arrivals: Vec<u64>,
    kind: PolicyKind,
    params: Params,
    planner: Option<Box<Planner>>,
    slots: Vec<u16>,
    charged_ns: Vec<Cell<u64>>,
    homes: Vec<u32>,
    turn: Cell<u32>,
}

impl Cluster {
    /// A cluster of live nodes of these speeds, thousandths, one worker each, that `kind` distributes requests over.
    pub fn new(kind: PolicyKind, tuning: Tuning, speeds_milli: &[u16]) -> Self {
        let member = |(node, speed_milli): (u16, &u16)| Member {
            node,
            is_live: true,
            workers: 1,
            speed_milli: *speed_milli,
            ..Member::default()
        };
        let row = |speed_milli: &u16| LoadRow {
            valid_until_ns: u64::MAX,
            workers: 1,
            speed_milli: *speed_milli,
            ..LoadRow::default()
        };
        Self {
            now_ns: 0,
            members: (0..).zip(speeds_milli).map(member).collect(),
            rows: speeds_milli.iter().map(row).collect(),
            here: Here::default(),
            forwarding: Forwarding::default(),
            arrivals: Vec::new(),
            kind,
            params: Params { policy: kind as u32, policies: kind.bit(), tuning, ..Params::DEFAULT },
            planner: Some(Box::new(Planner::new(kind))),
            slots: vec![HERE; (SLOTS * TABLES) as usize],
            charged_ns: vec![Cell::new(0); (SLOTS * TABLES) as usize],
            homes: Vec::new(),
            turn: Cell::new(0),
        }
    }

    /// Has so many kinds of requests.
    pub fn with_kinds(self, kinds: usize) -> Self {
        Self { arrivals: vec![0; kinds], homes: vec![0; kinds], ..self }
    }

    /// Draws up the plan at `now_ns`.
    pub fn plan(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        // The planner is out while it reads and writes the board.
        if let Some(mut planner) = self.planner.take() {
            let tuning = self.params.tuning;
            planner.turn(self, &tuning);
            self.planner = Some(planner);
        }
    }

    /// The slow half of the policy.
    pub fn planner(&self) -> Option<&Planner> {
        self.planner.as_deref()
    }

    /// Who has a slot of table 0.
    pub fn owner(&self, slot: u32) -> u16 {
        self.slots[slot as usize]
    }

    /// The node that takes a request which arrives at `at`; `at` itself when the policy says that it stays.
    pub fn decide(&self, job: &Job, at: u16) -> u16 {
        let home = self.homes.get(usize::from(job.function)).copied().unwrap_or(0);
        let job = Job { home, now_ns: self.now_ns, ..*job };
        let params = Params { node: at, ..self.params };
        match policy::decide(self.kind as u32, &job, &params, &View { cluster: self, at }).verdict {
            Verdict::Local => at,
            Verdict::Redirect(node) => node,
        }
    }

    /// The part of table 0 that each node has; slots without one count for all alike.
    pub fn shares(&self) -> Vec<f64> {
        let mut shares = vec![0.0; self.members.len()];
        let mut nobodys = 0.0;
        for node in &self.slots[..SLOTS as usize] {
            match shares.get_mut(usize::from(*node)) {
                Some(share) => *share += 1.0 / f64::from(SLOTS),
                None => nobodys += 1.0 / f64::from(SLOTS),
            }
        }
        let each = nobodys / shares.len() as f64;
        shares.into_iter().map(|share| share + each).collect()
    }
}

/// The cluster as seen by a decision about a request that arrives at `at`.
struct View<'a> {
    cluster: &'a Cluster,
    at: u16,
}

impl View<'_> {
    fn has_own_row(&self) -> bool {
        usize::from(self.at) < self.cluster.rows.len()
    }
}

impl LoadView for View<'_> {
    type Row = LoadRow;

    fn here(&self) -> Here {
        self.cluster.here
    }

    fn peers(&self) -> u32 {
        self.cluster.rows.len() as u32 - u32::from(self.has_own_row())
    }

    fn row(&self, node: u16) -> Option<LoadRow> {
        if node == self.at { None } else { self.cluster.rows.get(usize::from(node)).copied() }
    }

    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        let peers = u64::from(self.peers()).max(1);
        for step in 0..u64::from(count) {
            let position = ((u64::from(start) + step * u64::from(stride)) % peers) as u16;
            let node = if position < self.at { position } else { position + 1 };
            if let Some(row) = self.cluster.rows.get(usize::from(node)) {
                visitor.node(node, row);
            }
        }
    }

    fn signals(&self) -> Signals {
        Signals::default()
    }

    fn forwarding(&self) -> Forwarding {
        self.cluster.forwarding
    }

    fn slot(&self, slot: u32) -> u16 {
        self.cluster.slots.get(slot as usize).copied().unwrap_or(HERE)
    }

    fn charge_slot(&self, slot: u32, ns: u32) {
        if let Some(charged_ns) = self.cluster.charged_ns.get(slot as usize) {
            charged_ns.set(charged_ns.get().wrapping_add(u64::from(ns)));
        }
    }

    fn turn(&self) -> u32 {
        self.cluster.turn.replace(self.cluster.turn.get().wrapping_add(1))
    }
}

impl Board for Cluster {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn members(&self) -> usize {
        self.members.len()
    }

    fn member(&self, index: usize) -> Member {
        self.members[index]
    }

    fn functions(&self) -> usize {
        self.homes.len()
    }

    fn demand(&self, index: usize) -> Demand {
        Demand { arrivals: self.arrivals[index] }
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
    use super::*;

    #[test]
    fn a_plan_spreads_requests_from_outside_over_all_nodes() {
        let mut cluster = Cluster::new(PolicyKind::WeightedHrw, Tuning::DEFAULT, &[1000, 3000]);
        cluster.plan(1);
        let shares = cluster.shares();
        assert!((shares[1] - 0.75).abs() < 0.03, "{shares:?}");
        let node = cluster.decide(&Job { key: 77, ..Job::default() }, OUTSIDE);
        assert_eq!(node, cluster.owner(77));
        assert_eq!(cluster.charged_ns[77].get(), 0);
        cluster.decide(&Job { key: 77, ept_ns: 5, ..Job::default() }, node);
        assert_eq!(cluster.charged_ns[77].get(), 5);
    }

    #[test]
    fn a_decision_sees_all_nodes_but_its_own() {
        let mut cluster = Cluster::new(PolicyKind::LeastConnections, Tuning::DEFAULT, &[1000; 3]);
        for (row, queued_milli) in cluster.rows.iter_mut().zip([0, 5_000, 2_000]) {
            row.queued_milli = queued_milli;
        }
        cluster.here.queued_milli = 9_000;
        assert_eq!(cluster.decide(&Job::default(), OUTSIDE), 0);
        assert_eq!(cluster.decide(&Job::default(), 0), 2);
    }
}

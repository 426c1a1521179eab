//! What no way of distributing can beat, on the same packets: one queue for all workers, without cost of forwarding.
//!
//! The central queue in order of arrival (M/G/k by simulation) bounds policies that do not know service times and nodes
//! that serve in order of arrival; the central queue that serves the shortest first bounds those that do, as long as nothing
//! is preempted. With unequal speeds both are references rather than strict bounds: an idle worker of greatest speed goes
//! first. The oracle is no bound but what redirecting could reach, at its cost, if every load were known at every moment.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use anyhow::Result;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::run;
use super::scenario::{Pull, Scenario};
use super::statistics::{Latency, Outcome, Times};
use super::trace::{Arrival, Trace};

/// The workers of all nodes as servers of one queue.
struct Servers {
    speeds_milli: Vec<u32>,
    /// Idle ones, the fastest first.
    idle: BTreeSet<usize>,
    /// Busy ones by the end of their packet.
    busy: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Servers {
    fn new(scenario: &Scenario) -> Self {
        let nodes = (0..scenario.nodes).map(|node| scenario.speed_milli(node));
        let mut speeds_milli: Vec<u32> = nodes.flat_map(|speed| vec![speed; scenario.workers]).collect();
        speeds_milli.sort_unstable_by_key(|speed| Reverse(*speed));
        let idle = (0..speeds_milli.len()).collect();
        Self { speeds_milli, idle, busy: BinaryHeap::new() }
    }

    /// Serves a packet on `server` from `start_ns`; returns when it is finished.
    fn serve(&mut self, server: usize, start_ns: u64, arrival: &Arrival) -> u64 {
        let service_ns = u64::from(arrival.work.service_ns) * 1000 / u64::from(self.speeds_milli[server]);
        let finish_ns = start_ns + service_ns.max(1);
        self.busy.push(Reverse((finish_ns, server)));
        finish_ns
    }

    /// The server that is free next, if that is not after `now_ns`: when, and which.
    fn freed(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        let Reverse(next) = *self.busy.peek()?;
        (next.0 <= now_ns).then(|| {
            self.busy.pop();
            next
        })
    }
}

/// Latencies of a central queue that serves in order of arrival.
///
/// # Errors
/// The scenario is impossible.
pub fn central_fcfs(scenario: &Scenario, seed: u64) -> Result<Latency> {
    scenario.check()?;
    let (mut servers, mut times) = (Servers::new(scenario), Times::default());
    for arrival in Trace::new(scenario, seed) {
        while let Some((_, server)) = servers.freed(arrival.at_ns) {
            servers.idle.insert(server);
        }
        // In order of arrival, a packet that waits gets the first server that is free after all before it have theirs.
        let (start_ns, server) = match servers.idle.pop_first() {
            Some(server) => (arrival.at_ns, server),
            None => match servers.freed(u64::MAX) {
                Some(next) => next,
                None => break,
            },
        };
        let finish_ns = servers.serve(server, start_ns, &arrival);
        if arrival.number >= scenario.warm_up {
            times.record(finish_ns - arrival.at_ns);
        }
    }
    Ok(times.finish())
}

/// A packet that waits for the shortest-first queue: the shortest is the greatest.
#[derive(PartialEq, Eq)]
struct Shortest(Arrival);

impl Ord for Shortest {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let key = |packet: &Self| (packet.0.work.service_ns, packet.0.number);
        key(other).cmp(&key(self))
    }
}

impl PartialOrd for Shortest {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Latencies of a central queue that serves the shortest packet first, without preemption.
///
/// # Errors
/// The scenario is impossible.
pub fn central_shortest(scenario: &Scenario, seed: u64) -> Result<Latency> {
    scenario.check()?;
    let (mut servers, mut times) = (Servers::new(scenario), Times::default());
    let mut waiting: BinaryHeap<Shortest> = BinaryHeap::new();
    let mut start = |servers: &mut Servers, server: usize, start_ns: u64, arrival: &Arrival| {
        let finish_ns = servers.serve(server, start_ns, arrival);
        if arrival.number >= scenario.warm_up {
            times.record(finish_ns - arrival.at_ns);
        }
    };
    let mut until = |servers: &mut Servers, waiting: &mut BinaryHeap<Shortest>, now_ns: u64, next: Option<Arrival>| {
        while let Some((free_ns, server)) = servers.freed(now_ns) {
            match waiting.pop() {
                Some(Shortest(arrival)) => start(servers, server, free_ns, &arrival),
                None => _ = servers.idle.insert(server),
            }
        }
        match next.map(|arrival| (arrival, servers.idle.pop_first())) {
            Some((arrival, Some(server))) => start(servers, server, arrival.at_ns, &arrival),
            Some((arrival, None)) => waiting.push(Shortest(arrival)),
            None => {}
        }
    };
    for arrival in Trace::new(scenario, seed) {
        until(&mut servers, &mut waiting, arrival.at_ns, Some(arrival));
    }
    until(&mut servers, &mut waiting, u64::MAX, None);
    Ok(times.finish())
}

/// What redirecting reaches when every load is known at every moment: the policy `oracle`, nobody asking for work.
///
/// # Errors
/// The scenario is impossible.
pub fn oracle(scenario: &Scenario, tuning: &Tuning, seed: u64) -> Result<Outcome> {
    run(&Scenario { pull: Pull::Never, ..scenario.clone() }, PolicyKind::Oracle, tuning, seed)
}

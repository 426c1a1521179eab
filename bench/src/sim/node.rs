//! A node: workers, what it knows of its peers, its reports, its signals and its plan.

use std::cell::Cell;

use dataplane_common::bands::{BANDS, Behind};
use dataplane_common::decay::Rate;
use dataplane_common::load::{Here, Received, Signals, saturate};
use dataplane_common::maps::{LoadRow, Params};
use dataplane_common::plan::{HERE, SLOTS, TABLES};
use dataplane_common::policy::{Needs, Planner, PolicyKind};
use dataplane_common::tuning::{FIFO, Tuning};
use dataplane_common::wire::link::{Carried, Report};

use super::events::Place;
use super::peers::{Learning, Peers};
use super::queue::Queue;
use super::reports::{Made, Receiver};
use super::scenario::Scenario;
use super::worker::Worker;

/// The plan of a node.
pub struct Planning {
    /// Who draws it up.
    pub planner: Box<Planner>,
    /// Who has each slot.
    pub slots: Vec<u16>,
    /// Work that has named each slot, ns.
    pub charged_ns: Vec<Cell<u64>>,
    /// Node that takes all packets of each kind, plus one; 0 = none.
    pub homes: Vec<u32>,
}

/// A mean over about the last second that is right from the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongMean {
    value: f64,
    since_ns: u64,
    at_ns: u64,
}

/// Time over which a node's mean backlog is taken, ns.
const MEAN_OVER_NS: u64 = 1_000_000_000;

impl LongMean {
    /// Adds the value that held until `now_ns`.
    fn add(&mut self, now_ns: u64, value: u32) {
        let passed = now_ns.saturating_sub(self.at_ns) as f64;
        let memory = now_ns.saturating_sub(self.since_ns).clamp(1, MEAN_OVER_NS) as f64;
        self.value += (f64::from(value) - self.value) * (passed / memory).min(1.0);
        self.at_ns = now_ns;
    }
}

/// A node.
pub struct Node {
    /// Its id.
    pub id: u16,
    /// Failures it has been through (wrapping).
    pub life: u8,
    /// False while it has failed.
    pub is_alive: bool,
    /// Its speed, thousandths of the reference node's.
    pub speed_milli: u32,
    /// Its workers.
    pub workers: Vec<Worker>,
    /// What it knows of the others.
    pub peers: Peers,
    /// Since when it lives, ns.
    pub booted_ns: u64,
    /// What its policy runs with.
    pub params: Params,
    /// Its signals; set by [`Node::set_signals`], but for the deviation.
    pub signals: Cell<Signals>,
    /// How its rows learn.
    pub learning: Learning,
    /// Its plan, when the policy places by one.
    pub planning: Option<Planning>,
    /// Packets of each kind that arrived here.
    pub arrivals: Vec<u64>,
    /// Decisions by turn.
    pub turn: Cell<u32>,
    /// Service times measured: their number and sum in ns, both halved when there are many.
    pub services: (u64, u64),
    /// Packets that it can hold; 0 = any number.
    memory_packets: u32,
    /// Frames with work on their way here, ns of it: what an oracle knows.
    pub inbound_ns: u64,
    mean_backlog: LongMean,
    /// CPU time used when last looked at, for the busy share of an interval: time and CPU time, ns.
    looked: (u64, u64),
    busy_milli: u16,
    /// Busy share in its last report of this life, thousandths.
    pub said: Option<u16>,
    /// Reports of others whose receipt has been charged to this node.
    pub received_reports: u64,
    /// CPU time used in former lives, ns.
    past_busy_ns: u64,
}

/// Packets over which a node takes its mean service time, at least.
const SERVICES: u64 = 8_192;
/// Packets as many as which the declared mean service time weighs in the beginning.
const DECLARED: u64 = 32;

impl Node {
    /// Node number `id` of `scenario`, with nothing to do.
    pub fn new(scenario: &Scenario, (policy, tuning): (PolicyKind, &Tuning), id: u16) -> Self {
        let params = Params {
            policy: policy as u32,
            policies: policy.bit(),
            node: id,
            nodes: scenario.nodes as u16,
            guard: u16::from(scenario.guard),
            margin_ns: scenario.margin_ns,
            tuning: *tuning,
            ..Params::DEFAULT
        };
        let kinds = scenario.kinds();
        let speed_milli = scenario.speed_milli(usize::from(id));
        let service_ns = scenario.mean_service_ns * 1000.0 / f64::from(speed_milli);
        let planning = || Planning {
            planner: Box::new(Planner::new(policy)),
            slots: vec![HERE; (SLOTS * TABLES) as usize],
            charged_ns: vec![Cell::new(0); (SLOTS * TABLES) as usize],
            homes: vec![0; kinds],
        };
        let queue = || Queue::new(tuning.discipline, scenario.keeps_flow_order);
        let learning = Learning {
            predicts: policy.needs().has(Needs::PREDICTION),
            gain_milli: tuning.gain_milli,
            relax: Rate::of(0),
            forget_ns: 0,
        };
        let mut node = Self {
            id,
            life: 0,
            is_alive: true,
            speed_milli,
            workers: (0..scenario.workers).map(|_| Worker::new(queue(), scenario.sleep)).collect(),
            peers: Peers::new(scenario.nodes),
            booted_ns: 0,
            params,
            signals: Cell::new(Signals::default()),
            learning,
            planning: policy.needs().has(Needs::PLAN).then(planning),
            arrivals: vec![0; kinds],
            turn: Cell::new(0),
            services: (DECLARED, (service_ns * DECLARED as f64) as u64),
            memory_packets: scenario.memory_packets,
            inbound_ns: 0,
            mean_backlog: LongMean::default(),
            looked: (0, 0),
            busy_milli: 0,
            said: None,
            received_reports: 0,
            past_busy_ns: 0,
        };
        node.set_signals(Signals::derive(0, saturate(service_ns as u64), 0, tuning));
        node
    }

    /// Begins a new life after a failure: nothing is queued, nothing is known.
    pub fn restart(&mut self, scenario: &Scenario, (policy, tuning): (PolicyKind, &Tuning), now_ns: u64) {
        let mut next = Self::new(scenario, (policy, tuning), self.id);
        next.life = self.life;
        next.booted_ns = now_ns;
        next.mean_backlog = LongMean { since_ns: now_ns, at_ns: now_ns, value: 0.0 };
        next.looked = (now_ns, self.past_busy_ns);
        next.received_reports = self.received_reports;
        next.past_busy_ns = self.past_busy_ns;
        *self = next;
    }

    /// Ends its life: CPU time is kept for the statistics.
    pub fn fail(&mut self, now_ns: u64) {
        self.past_busy_ns = self.busy_ns(now_ns);
        for worker in &mut self.workers {
            *worker = Worker::default();
        }
        self.is_alive = false;
        self.life = self.life.wrapping_add(1);
    }

    /// One of its workers, or itself, now.
    pub fn place(&self, worker: usize) -> Place {
        Place { node: self.id, worker: worker as u8, life: self.life }
    }

    /// Itself as a receiver of reports.
    #[inline]
    pub fn receiver(&self, now_ns: u64) -> Receiver {
        Receiver { node: self.id, now_ns, booted_ns: self.booted_ns }
    }

    /// Time the node needs for work of `reference_ns` on the reference node, ns.
    pub fn time_ns(&self, reference_ns: u32) -> u32 {
        if self.speed_milli == 1000 {
            return reference_ns;
        }
        saturate(u64::from(reference_ns) * 1000 / u64::from(self.speed_milli)).max(1)
    }

    /// Sets the signals, and how rows learn under them.
    pub fn set_signals(&mut self, signals: Signals) {
        self.learning.relax = signals.relaxation();
        self.learning.forget_ns = self.params.tuning.peak_forget_ns(signals.service_ns);
        self.signals.set(signals);
    }

    /// The load that a frame of `worker` carries.
    pub fn carried(&self, worker: usize, now_ns: u64) -> Carried {
        let (backlog_ns, queued_milli) = self.workers[worker].backlog(now_ns);
        Here { backlog_ns, queued_milli, ..Here::default() }.carried(Received::default(), now_ns)
    }

    /// Backlog and packets in thousandths, means over the workers, and packets in all.
    fn load(&self, now_ns: u64) -> (u32, u32, u32) {
        let (mut backlog_ns, mut queued_milli) = (0u64, 0u64);
        for worker in &self.workers {
            let load = worker.backlog(now_ns);
            backlog_ns += u64::from(load.0);
            queued_milli += u64::from(load.1);
        }
        let workers = self.workers.len() as u64;
        (saturate(backlog_ns / workers), saturate(queued_milli / workers), saturate(queued_milli / 1000))
    }

    /// True when one more packet finds no room.
    pub fn is_full(&self, now_ns: u64) -> bool {
        self.memory_packets > 0 && self.load(now_ns).2 >= self.memory_packets
    }

    fn behind(&self) -> Behind {
        if let [worker] = self.workers.as_slice() {
            return worker.queue.behind(worker.serving_charge_ns());
        }
        if self.params.tuning.discipline == FIFO {
            return Behind::default();
        }
        let mut by_band = [0; BANDS];
        for worker in &self.workers {
            worker.queue.add_bands(&mut by_band);
            by_band[0] += u64::from(worker.serving_charge_ns());
        }
        Behind::of(&by_band)
    }

    /// CPU time its workers have used, computation and forwarding, ns.
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        self.past_busy_ns + self.workers.iter().map(|worker| worker.busy_ns(now_ns)).sum::<u64>()
    }

    /// Takes the share of the time since the last look that the workers were busy.
    pub fn look_at_busy_share(&mut self, now_ns: u64) {
        let busy_ns = self.busy_ns(now_ns);
        let (then_ns, before_ns) = std::mem::replace(&mut self.looked, (now_ns, busy_ns));
        let whole_ns = now_ns.saturating_sub(then_ns) * self.workers.len() as u64;
        let busy_ns = busy_ns.saturating_sub(before_ns);
        self.busy_milli = (busy_ns * 1000).checked_div(whole_ns).unwrap_or(0).min(1000) as u16;
    }

    /// Share of the last whole interval that the workers were busy, thousandths.
    pub fn busy_milli(&self) -> u16 {
        self.busy_milli
    }

    /// A report of it, and the packets that it holds.
    pub fn report(&mut self, now_ns: u64, interval_us: u32) -> (Made, u32) {
        let (backlog_ns, queued_milli, packets) = self.load(now_ns);
        self.mean_backlog.add(now_ns, backlog_ns);
        let memory_milli = (u64::from(packets) * 1000).checked_div(self.memory_packets.into());
        let body = Report {
            behind: self.behind().0,
            mean_backlog_ns: self.mean_backlog.value as u32,
            received_frames: 0,
            interval_us,
            workers: self.workers.len() as u16,
            busy_milli: self.busy_milli,
            memory_milli: memory_milli.unwrap_or(0).min(1000) as u16,
            limit_ns: None,
        };
        (Made { at_ns: now_ns, backlog_ns, queued_milli, body, ..Made::default() }, packets)
    }

    /// Takes the service time of a packet into the mean.
    pub fn observe(&mut self, served_ns: u32) {
        let (count, sum_ns) = &mut self.services;
        *count += 1;
        *sum_ns += u64::from(served_ns);
        if *count >= 2 * SERVICES {
            (*count, *sum_ns) = (*count / 2, *sum_ns / 2);
        }
    }

    /// A row with what is true at this moment, everything on the way included: what an oracle sees.
    pub fn truth(&self, now_ns: u64) -> LoadRow {
        let (backlog_ns, queued_milli, _) = self.load(now_ns);
        let inbound_ns = saturate(self.inbound_ns / self.workers.len() as u64);
        LoadRow {
            backlog_ns: backlog_ns.saturating_add(inbound_ns),
            queued_milli,
            workers: self.workers.len() as u16,
            valid_until_ns: if self.is_alive { u64::MAX } else { 0 },
            reported_at_ns: now_ns,
            mean_backlog_ns: backlog_ns,
            behind: self.behind().0,
            ..LoadRow::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        Node::new(&Scenario { workers: 2, ..Scenario::default() }, (PolicyKind::Local, &Tuning::DEFAULT), 3)
    }

    #[test]
    fn a_report_says_what_the_workers_hold() {
        let mut node = node();
        for (worker, frame) in [(0, 0), (0, 1), (1, 2)] {
            node.workers[worker].queue(1_000, frame, (4_000, frame, 0), false);
        }
        node.look_at_busy_share(1_000);
        assert_eq!(node.busy_milli(), 0);
        node.workers[0].take_next();
        node.workers[0].serve(1_000, 4_000);
        node.look_at_busy_share(3_000);
        let (made, packets) = node.report(3_000, 100);
        assert_eq!((made.backlog_ns, made.queued_milli, made.body.busy_milli), (5_000, 1_500, 500));
        assert_eq!((made.body.workers, packets, made.body.mean_backlog_ns), (2, 3, 5_000));
    }

    #[test]
    fn the_long_mean_is_right_from_the_beginning() {
        let mut mean = LongMean::default();
        for tick in 1..=1000 {
            mean.add(tick * 100_000, if tick % 2 == 0 { 100 } else { 300 });
        }
        assert!((mean.value - 200.0).abs() < 1.0, "{}", mean.value);
    }

    #[test]
    fn a_new_life_knows_nothing() {
        let mut node = node();
        node.workers[0].queue(0, 1, (4_000, 1, 0), false);
        node.fail(20);
        assert!(!node.is_alive && node.workers[0].queue.is_empty());
        node.restart(&Scenario { workers: 2, ..Scenario::default() }, (PolicyKind::Local, &Tuning::DEFAULT), 30);
        assert!(node.is_alive && node.life == 1 && node.booted_ns == 30);
    }
}

//! The simulation itself: one event after the other, each handled by what the product would do at that moment.

use dataplane_common::hash::mix;
use dataplane_common::load::saturate;
use dataplane_common::policy::{self, Decision, Job, Needs, PolicyKind, Verdict};
use dataplane_common::tuning::Tuning;
use dataplane_common::wire::link::{OVERHEAD_BYTES, REPORT_FRAME_BYTES};

use super::control::{self, Digest};
use super::events::{Events, Place, What};
use super::flows::Flows;
use super::frames::{Frame, Frames, Kind, Packet};
use super::node::Node;
use super::random::{Random, stream};
use super::reports::{Delivery, Logs};
use super::scenario::{Egress, Failure, Pull, Scenario};
use super::statistics::{Loss, Outcome, Times};
use super::trace::{Arrival, Trace};
use super::view::{Rules, View, catch_up, note_error};

/// What decides, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deciding {
    /// The policy.
    pub policy: PolicyKind,
    /// Its settings.
    pub tuning: Tuning,
    /// Whether it sees true loads instead of reported ones.
    pub sees_truth: bool,
}

/// A simulation under way.
pub struct Engine<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) deciding: Deciding,
    pub(super) rules: Rules,
    pub(super) nodes: Vec<Node>,
    logs: Logs,
    pub(super) frames: Frames,
    pub(super) events: Events,
    pub(super) random: Random,
    pub(super) outcome: Outcome,
    pub(super) now_ns: u64,
    /// Whether idle workers ask for work.
    pub(super) pulls: bool,
    digest: Digest,
    flows: Flows,
    times: Times,
    /// Packets in the cluster.
    present: u64,
    /// Probes a packet.
    pub(super) probes: u32,
    /// CPU time burnt by redirecting, reports and messages, ns.
    overhead_ns: u64,
    /// Reports made by all nodes.
    reports: u64,
}

impl<'a> Engine<'a> {
    /// A simulation of a scenario that [`Scenario::check`] accepts.
    pub fn new(scenario: &'a Scenario, deciding: Deciding, seed: u64) -> Self {
        let needs = deciding.policy.needs();
        let has_peers = scenario.nodes > 1;
        let pulls = match scenario.pull {
            Pull::ByPolicy => needs.has(Needs::PULL),
            Pull::Never => false,
            Pull::Always => true,
        };
        let mut engine = Self {
            scenario,
            deciding,
            rules: Rules {
                forwarding: scenario.forwarding,
                delivery: Delivery::new(&scenario.reports, seed),
                sees_truth: deciding.sees_truth,
            },
            nodes: Vec::with_capacity(scenario.nodes),
            logs: Logs::new(scenario.nodes),
            frames: Frames::default(),
            events: Events::default(),
            random: stream(seed, 5),
            outcome: Outcome::default(),
            now_ns: 0,
            pulls: has_peers && pulls,
            digest: Digest::default(),
            flows: Flows::new(scenario.all_flows(), scenario.egress == Egress::Ordered),
            times: Times::default(),
            present: 0,
            probes: if has_peers && needs.has(Needs::PROBES) { deciding.tuning.probes } else { 0 },
            overhead_ns: 0,
            reports: 0,
        };
        for id in 0..scenario.nodes as u16 {
            engine.nodes.push(Node::new(scenario, (deciding.policy, &deciding.tuning), id));
            engine.schedule_timers(id);
        }
        for (index, failure) in (0..).zip(&scenario.failures) {
            engine.events.push(failure.at_ns, What::Fail(index));
        }
        engine
    }

    /// Starts the timers of a node, no two nodes at the same moment.
    fn schedule_timers(&mut self, id: u16) {
        let node = &self.nodes[usize::from(id)];
        let place = node.place(0);
        let phase = |interval_ns: u64| self.now_ns + interval_ns * (u64::from(id) + 1) / self.scenario.nodes as u64;
        let interval_ns = self.scenario.reports.interval_ns;
        self.events.push(phase(interval_ns), What::Report(place));
        self.events.push(phase(self.scenario.control_ns), What::Control(place));
        if node.planning.is_some() {
            // The first plan follows the first reports.
            self.events.push(phase(interval_ns) + interval_ns + self.scenario.reports.delay_ns, What::Plan(place));
        }
    }

    /// Runs until every packet of `trace` is out or lost.
    pub fn run(self, trace: Trace) -> Outcome {
        self.run_watched(trace, u64::MAX, |_, _| {})
    }

    /// As [`Engine::run`]; `watch` sees time and nodes every `every_ns`, after what happened until then.
    pub fn run_watched(mut self, trace: Trace, every_ns: u64, mut watch: impl FnMut(u64, &[Node])) -> Outcome {
        let mut trace = trace;
        let mut next = trace.next();
        let mut watch_ns = every_ns.max(1);
        while next.is_some() || self.present > 0 {
            self.outcome.events += 1;
            let event_ns = self.events.next_ns();
            while watch_ns < next.map_or(event_ns, |arrival| arrival.at_ns.min(event_ns)) {
                watch(watch_ns, &self.nodes);
                watch_ns = watch_ns.saturating_add(every_ns);
            }
            if let Some(arrival) = next.filter(|arrival| arrival.at_ns <= event_ns) {
                self.advance(arrival.at_ns);
                self.handle_arrival(&arrival);
                next = trace.next();
            } else if let Some((at_ns, what)) = self.events.pop() {
                self.advance(at_ns);
                self.handle(what);
            }
        }
        self.finish()
    }

    fn advance(&mut self, now_ns: u64) {
        self.outcome.present_ns += u128::from(self.present) * u128::from(now_ns - self.now_ns);
        self.now_ns = now_ns;
    }

    fn handle(&mut self, what: What) {
        let is_over = |place: Place, nodes: &[Node]| nodes[usize::from(place.node)].life != place.life;
        match what {
            What::Frame(number) => self.handle_frame(number),
            What::Fail(index) => self.handle_failure(index),
            What::Recover(index) => self.handle_recovery(index),
            What::Finish(place)
            | What::Prefetch(place)
            | What::Report(place)
            | What::Control(place)
            | What::Plan(place)
                if is_over(place, &self.nodes) => {}
            What::Finish(place) => self.handle_finish(place),
            What::Prefetch(place) => self.handle_prefetch(place),
            What::Report(place) => self.handle_report(place),
            What::Control(place) => {
                control::look(&mut self.nodes[usize::from(place.node)], &self.digest);
                self.events.push(self.now_ns + self.scenario.control_ns, what);
            }
            What::Plan(place) => {
                let tuning = &self.deciding.tuning;
                control::plan(&mut self.nodes, (place.node, self.now_ns), tuning, (&self.logs, &self.rules.delivery));
                self.events.push(self.now_ns + u64::from(tuning.plan_ns), what);
            }
        }
    }

    fn handle_arrival(&mut self, arrival: &Arrival) {
        let node = &mut self.nodes[usize::from(arrival.node)];
        node.arrivals[usize::from(arrival.work.kind)] += 1;
        self.outcome.arrived += 1;
        if !node.is_alive {
            self.outcome.lose(Loss::Arrival);
            return;
        }
        let packet = Packet {
            arrived_ns: self.now_ns,
            queued_ns: self.now_ns,
            service_ns: arrival.work.service_ns,
            charged_ns: node.time_ns(arrival.ept_ns),
            predicted_ns: 0,
            served_ns: 0,
            flow: arrival.flow,
            sequence: self.flows.number(arrival.flow),
            ingress: arrival.node,
            bytes: arrival.work.bytes,
            kind: arrival.work.kind,
            class: arrival.class,
            life: node.life,
            is_measured: arrival.number >= self.scenario.warm_up,
        };
        self.present += 1;
        for _ in 0..self.probes {
            self.probe(arrival.node);
        }
        let worker = self.worker_of(packet.flow);
        let decision = self.decide(arrival, &packet, worker);
        self.flows.expect(self.now_ns, packet.flow, decision.done_ns);
        let (destination, predicted_ns) = match decision.verdict {
            Verdict::Redirect(to) if to != arrival.node && usize::from(to) < self.nodes.len() => (to, decision.there),
            _ => (arrival.node, decision.here),
        };
        let packet = Packet { predicted_ns: saturate(predicted_ns), ..packet };
        let frame = Frame { packet, source: arrival.node, destination, ..Frame::default() };
        let number = self.frames.put(frame);
        if destination == arrival.node {
            self.queue(number, worker, false);
        } else {
            self.outcome.redirected += 1;
            self.forward(number, worker, Kind::Forward);
        }
    }

    /// The worker that receives a flow's packets: a port spreads flows over its queues.
    pub(super) fn worker_of(&self, flow: u32) -> usize {
        flow as usize % self.scenario.workers
    }

    #[inline(never)]
    fn decide(&self, arrival: &Arrival, packet: &Packet, worker: usize) -> Decision {
        let node = &self.nodes[usize::from(arrival.node)];
        let home = node.planning.as_ref().map_or(0, |planning| planning.homes[usize::from(packet.kind)]);
        let job = Job {
            now_ns: self.now_ns,
            ept_ns: packet.charged_ns,
            bytes: usize::from(packet.bytes) + OVERHEAD_BYTES,
            function: packet.kind,
            home,
            earlier_ns: match self.scenario.egress {
                Egress::Ordered => self.flows.earlier_ns(self.now_ns, packet.flow),
                Egress::Direct | Egress::Ingress => 0,
            },
            class: packet.class,
            flow: mix(u64::from(packet.flow)) as u32,
            key: arrival.key,
            random: if self.scenario.draws_ties { arrival.random } else { 0 },
        };
        let view = View { nodes: &self.nodes, logs: &self.logs, node, worker, now_ns: self.now_ns, rules: &self.rules };
        policy::decide(self.deciding.policy as u32, &job, &node.params, &view)
    }

    /// An interrupt takes CPU time of a worker. Returns when it is done.
    pub(super) fn interrupt(&mut self, node: u16, worker: usize, ns: u32) -> u64 {
        self.overhead_ns += u64::from(ns);
        self.nodes[usize::from(node)].workers[worker].interrupt(self.now_ns, ns)
    }

    /// Sends a packet, which is in no queue, to the destination of its frame.
    pub(super) fn forward(&mut self, number: u32, worker: usize, kind: Kind) {
        let frame = *self.frames.get(number);
        let (from, to, charged_ns) = (frame.source, frame.destination, frame.packet.charged_ns);
        let bytes = usize::from(frame.packet.bytes) + OVERHEAD_BYTES;
        self.outcome.forwards.add(1, bytes);
        let left_ns = self.interrupt(from, worker, self.rules.forwarding.send_ns);
        let arrives_ns = left_ns + u64::from(self.rules.forwarding.transit_ns(bytes));
        let is_lost = self.is_lost_on_the_wire();
        // What the peer had reported before counts before this packet does.
        self.nodes[usize::from(from)].peers.get_mut(to);
        self.catch_up(from, to);
        let node = &mut self.nodes[usize::from(from)];
        let learning = node.learning;
        node.peers.get_mut(to).send(self.now_ns, charged_ns, (!is_lost).then_some(arrives_ns), &learning);
        if is_lost {
            if kind == Kind::Given {
                self.rest_in_vain(to, &frame);
            }
            self.frames.take(number);
            self.lose(&frame.packet, Loss::Wire);
            return;
        }
        let load = node.carried(worker, self.now_ns);
        *self.frames.get_mut(number) = Frame { load, read_ns: self.now_ns, kind, ..frame };
        self.nodes[usize::from(to)].inbound_ns += u64::from(charged_ns);
        self.events.push(arrives_ns, What::Frame(number));
    }

    /// Lets `node` take the newest report of `other` that has reached it.
    pub(super) fn catch_up(&self, node: u16, other: u16) {
        let node = &self.nodes[usize::from(node)];
        if let Some(peer) = node.peers.get(other) {
            catch_up(node, (peer, other), self.now_ns, (&self.logs, &self.rules.delivery));
        }
    }

    pub(super) fn is_lost_on_the_wire(&mut self) -> bool {
        self.scenario.loss > 0.0 && self.random.unit() < self.scenario.loss
    }

    fn handle_frame(&mut self, number: u32) {
        match self.frames.get(number).kind {
            Kind::Forward | Kind::Given => self.handle_forward(number),
            Kind::Result => self.handle_result(number),
            Kind::Request => self.handle_request(number),
            Kind::Refusal => self.handle_refusal(number),
            Kind::Probe => self.handle_probe(number),
            Kind::Answer => {
                let frame = self.frames.take(number);
                self.take_load(&frame);
            }
            Kind::Packet => {}
        }
    }

    /// The destination of a frame takes the load that it carries, if it is alive and loads travel so.
    pub(super) fn take_load(&mut self, frame: &Frame) {
        let node = &mut self.nodes[usize::from(frame.destination)];
        let wants = self.scenario.reports.piggyback || frame.kind == Kind::Answer;
        if !node.is_alive || !wants {
            return;
        }
        node.peers.get_mut(frame.source);
        self.catch_up(frame.destination, frame.source);
        let node = &self.nodes[usize::from(frame.destination)];
        if let Some(peer) = node.peers.get(frame.source) {
            note_error(node, peer.take_piggyback(self.now_ns, frame, &node.learning));
        }
    }

    fn handle_forward(&mut self, number: u32) {
        let frame = *self.frames.get(number);
        self.nodes[usize::from(frame.destination)].inbound_ns -= u64::from(frame.packet.charged_ns);
        if frame.kind == Kind::Given {
            self.end_search(&frame);
        }
        if !self.nodes[usize::from(frame.destination)].is_alive {
            self.frames.take(number);
            self.lose_at(&frame.packet, frame.destination, Loss::Failure);
            return;
        }
        self.take_load(&frame);
        let worker = self.worker_of(frame.packet.flow);
        self.interrupt(frame.destination, worker, self.rules.forwarding.receive_ns);
        self.frames.get_mut(number).packet.queued_ns = self.now_ns;
        self.queue(number, worker, true);
    }

    /// Queues the packet at a worker of its frame's destination.
    fn queue(&mut self, number: u32, worker: usize, is_redirected: bool) {
        let frame = self.frames.get_mut(number);
        frame.kind = Kind::Packet;
        let (packet, destination) = (frame.packet, frame.destination);
        if self.nodes[usize::from(destination)].is_full(self.now_ns) {
            self.frames.take(number);
            self.lose_at(&packet, destination, Loss::Room);
            return;
        }
        let what = (packet.charged_ns, packet.flow, packet.class);
        self.nodes[usize::from(destination)].workers[worker].queue(self.now_ns, number, what, is_redirected);
        self.start(destination, worker);
    }

    /// Starts the next packet of a worker, if it has one and serves none.
    fn start(&mut self, id: u16, worker: usize) {
        let node = &mut self.nodes[usize::from(id)];
        let Some(number) = node.workers[worker].take_next() else {
            return;
        };
        let packet = &mut self.frames.get_mut(number).packet;
        packet.served_ns = node.time_ns(packet.service_ns);
        let finish_ns = node.workers[worker].serve(self.now_ns, packet.served_ns);
        let place = node.place(worker);
        self.events.push(finish_ns, What::Finish(place));
        if self.pulls {
            self.schedule_prefetch(place, finish_ns);
        }
    }

    fn handle_finish(&mut self, place: Place) {
        let (id, index) = (place.node, usize::from(place.worker));
        let node = &mut self.nodes[usize::from(id)];
        let worker = &mut node.workers[index];
        match worker.finish_ns() {
            Some(finish_ns) if finish_ns > self.now_ns => {
                // Interrupts have moved it.
                self.events.push(finish_ns, What::Finish(place));
                return;
            }
            _ => {}
        }
        let Some(waiting) = worker.finish() else {
            return;
        };
        let packet = self.frames.get(waiting.frame).packet;
        node.observe(packet.served_ns);
        let reports = self.logs.is_due_after_finish(id, &self.scenario.reports, self.now_ns);
        if packet.ingress == id {
            self.frames.take(waiting.frame);
            self.out(&packet);
        } else {
            self.send_result(waiting.frame, (id, index));
        }
        if reports {
            self.report(id);
        }
        self.start(id, index);
        if self.pulls {
            self.search_if_idle(place);
        }
    }

    /// Sends the result of a redirected packet, which `place` has computed, to the node of its arrival.
    fn send_result(&mut self, number: u32, (id, worker): (u16, usize)) {
        let frame = *self.frames.get(number);
        let packet = frame.packet;
        let bytes = usize::from(packet.bytes) + OVERHEAD_BYTES;
        if self.scenario.egress == Egress::Direct {
            self.out(&packet);
        }
        self.outcome.results.add(1, bytes);
        if self.is_lost_on_the_wire() {
            self.frames.take(number);
            self.end_result(&packet, id, Loss::Wire);
            return;
        }
        let load = self.nodes[usize::from(id)].carried(worker, self.now_ns);
        let (source, destination, read_ns) = (id, packet.ingress, self.now_ns);
        *self.frames.get_mut(number) = Frame { load, read_ns, source, destination, kind: Kind::Result, ..frame };
        let arrives_ns = self.now_ns + u64::from(self.rules.forwarding.transit_ns(bytes));
        self.events.push(arrives_ns, What::Frame(number));
    }

    /// A result does not reach the node of arrival of its packet.
    fn end_result(&mut self, packet: &Packet, computed_by: u16, cause: Loss) {
        self.close(packet, computed_by);
        if self.scenario.egress.is_home() {
            self.lose(packet, cause);
        }
    }

    fn handle_result(&mut self, number: u32) {
        let frame = self.frames.take(number);
        let node = &self.nodes[usize::from(frame.destination)];
        if !node.is_alive || node.life != frame.packet.life {
            self.end_result(&frame.packet, frame.source, Loss::Failure);
            return;
        }
        self.take_load(&frame);
        let node = &mut self.nodes[usize::from(frame.destination)];
        let learning = node.learning;
        node.peers.get_mut(frame.source).take_result(self.now_ns, &frame, &learning);
        if self.scenario.egress.is_home() {
            self.out(&frame.packet);
        }
    }

    /// A packet's result leaves the cluster.
    fn out(&mut self, packet: &Packet) {
        let latency_ns = self.now_ns - packet.arrived_ns;
        self.present -= 1;
        self.outcome.completed += 1;
        self.outcome.sojourn_ns += u128::from(latency_ns);
        if packet.is_measured {
            self.times.record(latency_ns);
            if packet.predicted_ns != 0 {
                self.outcome.prediction.record(packet.predicted_ns, latency_ns);
            }
        }
        self.flows.out(self.now_ns, (packet.flow, packet.sequence), packet.arrived_ns, packet.is_measured);
    }

    /// A packet is lost.
    fn lose(&mut self, packet: &Packet, cause: Loss) {
        self.present -= 1;
        self.outcome.lose(cause);
        self.outcome.sojourn_ns += u128::from(self.now_ns - packet.arrived_ns);
        self.flows.lose(self.now_ns, packet.flow, packet.sequence);
    }

    fn handle_report(&mut self, place: Place) {
        let reports = &self.scenario.reports;
        self.events.push(self.now_ns + reports.interval_ns, What::Report(place));
        let node = &mut self.nodes[usize::from(place.node)];
        node.look_at_busy_share(self.now_ns);
        let received = self.reports - node.received_reports;
        node.received_reports = self.reports;
        if self.logs.is_due_after_interval(place.node, reports, &self.deciding.tuning, node.busy_milli()) {
            self.report(place.node);
        }
        let burnt_ns = received * u64::from(reports.receive_ns);
        self.interrupt(place.node, 0, saturate(burnt_ns));
    }

    /// A node reports to all others.
    fn report(&mut self, id: u16) {
        let others = self.nodes.len() as u64 - 1;
        let node = &mut self.nodes[usize::from(id)];
        let (made, packets) = node.report(self.now_ns, self.scenario.reports.promised_us());
        self.digest.replace(node.said, Some(made.body.busy_milli));
        node.said = Some(made.body.busy_milli);
        self.logs.make(id, made, packets, &self.rules.delivery);
        self.reports += 1;
        node.received_reports += 1;
        self.outcome.reports.add(others, REPORT_FRAME_BYTES);
    }

    fn handle_failure(&mut self, index: u16) {
        let Failure { node: id, until_ns, .. } = self.scenario.failures[usize::from(index)];
        if let Some(until_ns) = until_ns {
            self.events.push(until_ns, What::Recover(index));
        }
        let node = &mut self.nodes[usize::from(id)];
        if !node.is_alive {
            return;
        }
        self.digest.replace(node.said.take(), None);
        let held: Vec<_> = node.workers.iter_mut().flat_map(|worker| worker.drain()).collect();
        node.fail(self.now_ns);
        for waiting in held {
            let frame = self.frames.take(waiting.frame);
            self.lose_at(&frame.packet, id, Loss::Failure);
        }
    }

    /// A packet is lost at a node.
    fn lose_at(&mut self, packet: &Packet, id: u16, cause: Loss) {
        if packet.ingress != id {
            self.close(packet, id);
        }
        self.lose(packet, cause);
    }

    /// A packet that its node of arrival had sent to `computed_by` will not come back.
    fn close(&mut self, packet: &Packet, computed_by: u16) {
        let node = &mut self.nodes[usize::from(packet.ingress)];
        if node.is_alive && node.life == packet.life {
            node.peers.get_mut(computed_by).close();
        }
    }

    fn handle_recovery(&mut self, index: u16) {
        let id = self.scenario.failures[usize::from(index)].node;
        let node = &mut self.nodes[usize::from(id)];
        if !node.is_alive {
            node.restart(self.scenario, (self.deciding.policy, &self.deciding.tuning), self.now_ns);
            node.received_reports = self.reports;
            self.logs.restart(id);
            self.schedule_timers(id);
        }
    }

    fn finish(mut self) -> Outcome {
        let whole_ns = (self.now_ns.max(1) * self.scenario.workers as u64) as f64;
        let share = |node: &Node| node.busy_ns(self.now_ns) as f64 / whole_ns;
        self.outcome.utilisation = self.nodes.iter().map(share).collect();
        self.outcome.overhead = self.overhead_ns as f64 / (whole_ns * self.nodes.len() as f64);
        let out = self.flows.out.max(1) as f64;
        self.outcome.ordered_mean_ns = self.flows.ordered_ns as f64 / out;
        self.outcome.reordered = self.flows.reordered as f64 / out;
        self.outcome.span_ns = self.now_ns;
        self.outcome.latency = self.flows.ordered.take().unwrap_or(self.times).finish();
        self.outcome
    }
}

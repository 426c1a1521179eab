//! Messages between nodes beside packets and reports: idle workers that ask for work, and probes of single nodes.
//!
//! A worker that is about to be idle asks a random node (prefetch), two more if that one has nothing to give, and rests for
//! 10 µs before it begins again. The node asked gives the packet whose move gains most, by the same reckoning as a redirect
//! (policies.md, 2.3 and 7.2), among those that have not been moved yet.

use dataplane_common::load::Forwarding;
use dataplane_common::wire::link::OVERHEAD_BYTES;

use super::engine::Engine;
use super::events::{Place, What};
use super::frames::{Frame, Kind};
use super::queue::Waiting;
use super::worker::Search;

/// Nodes asked one after the other.
const TRIES: u8 = 3;
/// Rest before the next round, ns.
const REST_NS: u64 = 10_000;
/// Packets of a queue that are considered.
const CONSIDERED: usize = 128;
/// Length of a message, bytes.
const MESSAGE_BYTES: usize = OVERHEAD_BYTES;

impl Engine<'_> {
    /// Sends a message; `None` for `worker` = no worker of the sender is meant.
    fn send_message(&mut self, kind: Kind, (from, to): (u16, u16), worker: usize, life: u8) {
        let worker_asked = worker.min(self.scenario.workers - 1);
        let load = self.nodes[usize::from(from)].carried(worker_asked, self.now_ns);
        let frame = Frame {
            load,
            read_ns: self.now_ns,
            source: from,
            destination: to,
            worker: worker as u8,
            life,
            kind,
            ..Frame::default()
        };
        self.outcome.messages.add(1, MESSAGE_BYTES);
        let number = self.frames.put(frame);
        let arrives_ns = self.now_ns + u64::from(self.rules.forwarding.transit_ns(MESSAGE_BYTES));
        self.events.push(arrives_ns, What::Frame(number));
    }

    /// A random node other than `id`.
    fn another(&mut self, id: u16) -> u16 {
        let node = self.random.below(self.nodes.len() as u64 - 1) as u16;
        if node < id { node } else { node + 1 }
    }

    /// Time before its end at which a worker looks for the next packet, ns.
    fn lead_ns(&self) -> u64 {
        2 * u64::from(self.rules.forwarding.transit_ns(MESSAGE_BYTES)) + u64::from(self.rules.forwarding.send_ns)
    }

    /// Has a worker look for work before the packet that ends at `finish_ns`, unless more waits.
    pub(super) fn schedule_prefetch(&mut self, place: Place, finish_ns: u64) {
        let worker = &self.nodes[usize::from(place.node)].workers[usize::from(place.worker)];
        if worker.queue.is_empty() {
            let at_ns = finish_ns.saturating_sub(self.lead_ns()).max(self.now_ns);
            self.events.push(at_ns, What::Prefetch(place));
        }
    }

    pub(super) fn handle_prefetch(&mut self, place: Place) {
        let lead_ns = self.lead_ns();
        let worker = &mut self.nodes[usize::from(place.node)].workers[usize::from(place.worker)];
        if worker.search == Search::Resting {
            worker.search = Search::None;
        }
        let ends_soon = worker.finish_ns().is_none_or(|finish_ns| finish_ns <= self.now_ns + lead_ns);
        if worker.queue.is_empty() && worker.search == Search::None && ends_soon {
            self.ask(place, 0);
        }
    }

    /// A worker has finished a packet: it looks for work when none is left.
    pub(super) fn search_if_idle(&mut self, place: Place) {
        let worker = &self.nodes[usize::from(place.node)].workers[usize::from(place.worker)];
        if !worker.is_serving() && worker.search == Search::None {
            self.ask(place, 0);
        }
    }

    /// Asks a random node, after `refused` others.
    fn ask(&mut self, place: Place, refused: u8) {
        let victim = self.another(place.node);
        self.nodes[usize::from(place.node)].workers[usize::from(place.worker)].search = Search::Asked(refused);
        self.send_message(Kind::Request, (place.node, victim), usize::from(place.worker), place.life);
    }

    pub(super) fn handle_request(&mut self, number: u32) {
        let request = self.frames.take(number);
        let victim = request.destination;
        if !self.nodes[usize::from(victim)].is_alive {
            self.rest_in_vain(request.source, &request);
            return;
        }
        self.take_load(&request);
        let node = &self.nodes[usize::from(victim)];
        let longest =
            (0..node.workers.len()).max_by_key(|worker| node.workers[*worker].queue.iter().len()).unwrap_or(0);
        self.interrupt(victim, longest, self.scenario.message_ns);
        let worker = &self.nodes[usize::from(victim)].workers[longest];
        let serving_ns = worker.finish_ns().map_or(0, |finish_ns| finish_ns.saturating_sub(self.now_ns));
        let utilisation_milli = self.nodes[usize::from(victim)].signals.get().utilisation_milli;
        let choice = Choice {
            cost: self.rules.forwarding,
            price_ns: price_ns(&self.rules.forwarding, utilisation_milli, self.deciding.tuning.price_milli),
            guard: self.scenario.guard,
        };
        let given = choice.index(worker.queue.iter(), serving_ns);
        let given = given.and_then(|index| self.nodes[usize::from(victim)].workers[longest].give(index));
        let Some(waiting) = given else {
            self.send_message(Kind::Refusal, (victim, request.source), usize::from(request.worker), request.life);
            return;
        };
        let frame = self.frames.get_mut(waiting.frame);
        (frame.source, frame.destination) = (victim, request.source);
        (frame.worker, frame.life) = (request.worker, request.life);
        self.outcome.given += 1;
        self.forward(waiting.frame, longest, Kind::Given);
    }

    /// A worker has an answer to its request.
    pub(super) fn end_search(&mut self, answer: &Frame) -> Option<u8> {
        let node = &mut self.nodes[usize::from(answer.destination)];
        if node.life != answer.life {
            return None;
        }
        let worker = &mut node.workers[usize::from(answer.worker)];
        match std::mem::take(&mut worker.search) {
            Search::Asked(refused) => Some(refused),
            other => {
                worker.search = other;
                None
            }
        }
    }

    pub(super) fn handle_refusal(&mut self, number: u32) {
        let refusal = self.frames.take(number);
        self.take_load(&refusal);
        let Some(refused) = self.end_search(&refusal) else {
            return;
        };
        let place = Place { node: refusal.destination, worker: refusal.worker, life: refusal.life };
        let worker = &self.nodes[usize::from(place.node)].workers[usize::from(place.worker)];
        if !worker.queue.is_empty() {
            return;
        }
        if refused + 1 < TRIES {
            self.ask(place, refused + 1);
        } else {
            self.rest(place);
        }
    }

    /// The worker that asked for work by `frame` gets no answer: it goes on after a rest.
    pub(super) fn rest_in_vain(&mut self, node: u16, frame: &Frame) {
        let place = Place { node, worker: frame.worker, life: frame.life };
        if self.nodes[usize::from(node)].life == place.life {
            self.rest(place);
        }
    }

    fn rest(&mut self, place: Place) {
        self.nodes[usize::from(place.node)].workers[usize::from(place.worker)].search = Search::Resting;
        self.events.push(self.now_ns + REST_NS, What::Prefetch(place));
    }

    /// Node `id` asks a random node for its load.
    pub(super) fn probe(&mut self, id: u16) {
        let target = self.another(id);
        let life = self.nodes[usize::from(id)].life;
        self.send_message(Kind::Probe, (id, target), 0, life);
    }

    pub(super) fn handle_probe(&mut self, number: u32) {
        let probe = self.frames.take(number);
        if !self.nodes[usize::from(probe.destination)].is_alive {
            return;
        }
        let worker = self.random.below(self.scenario.workers as u64) as usize;
        self.interrupt(probe.destination, worker, self.scenario.message_ns);
        self.send_message(Kind::Answer, (probe.destination, probe.source), worker, probe.life);
    }
}

/// What moving a packet must gain beyond its cost, because it burns CPU time of the cluster, ns.
fn price_ns(cost: &Forwarding, utilisation_milli: u32, price_milli: u32) -> i64 {
    let busy = u64::from(utilisation_milli.min(990));
    let per_packet = cost.cpu_ns() * busy / (1000 - busy);
    i64::try_from(per_packet * u64::from(price_milli) / 1000).unwrap_or(i64::MAX)
}

/// How a node chooses the packet that it gives away.
struct Choice {
    cost: Forwarding,
    price_ns: i64,
    guard: bool,
}

impl Choice {
    /// Position of the packet whose move to an idle worker gains most, `serving_ns` of work being ahead of all.
    fn index<'q>(&self, queue: impl ExactSizeIterator<Item = &'q Waiting>, serving_ns: u64) -> Option<usize> {
        let waiting = queue.len() as i64;
        let [send, receive, wire] = [self.cost.send_ns, self.cost.receive_ns, self.cost.wire_ns].map(i64::from);
        let mut ahead = i64::try_from(serving_ns).unwrap_or(i64::MAX / 2);
        let (mut most, mut best) = (self.price_ns, None);
        for (index, packet) in queue.enumerate().take(CONSIDERED) {
            let work = i64::from(packet.charged_ns);
            // It no longer waits here, those behind it no longer wait for it, and all wait while it is sent.
            let behind = waiting - 1 - index as i64;
            let gain = ahead - (send + wire + receive) + behind * work - waiting * send;
            let may_move = !packet.is_redirected && (!self.guard || work > send + receive);
            if may_move && gain > most {
                (most, best) = (gain, Some(index));
            }
            ahead += work;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::super::queue::Queue;
    use super::*;
    use dataplane_common::tuning::FIFO;

    const COST: Forwarding = Forwarding { send_ns: 500, receive_ns: 500, wire_ns: 2_000, wire_ns_per_byte_q16: 0 };

    fn choose(packets: &[(u32, bool)], serving_ns: u64, price_ns: i64) -> Option<usize> {
        let mut queue = Queue::new(FIFO, true);
        for (number, (charged_ns, is_redirected)) in (0..).zip(packets) {
            queue.push(0, number, (*charged_ns, number, 0), *is_redirected);
        }
        Choice { cost: COST, price_ns, guard: true }.index(queue.iter(), serving_ns)
    }

    #[test]
    fn the_packet_that_relieves_most_is_given() {
        assert_eq!(choose(&[(10_000, false)], 20_000, 0), Some(0));
        assert_eq!(choose(&[(2_000, false), (30_000, false), (2_000, false)], 5_000, 0), Some(1), "the elephant");
        assert_eq!(choose(&[(9_000, false), (9_000, false), (9_000, false)], 0, 0), Some(0), "two wait behind it");
    }

    #[test]
    fn nothing_is_given_that_gains_nothing() {
        assert_eq!(choose(&[], 90_000, 0), None);
        assert_eq!(choose(&[(10_000, false)], 3_000, 0), None, "it would start here sooner");
        assert_eq!(choose(&[(10_000, false)], 20_000, 50_000), None, "the price");
        assert_eq!(choose(&[(900, false)], 90_000, 0), None, "the guard");
        assert_eq!(choose(&[(10_000, true)], 90_000, 0), None, "moved before");
    }

    #[test]
    fn the_price_grows_with_utilisation() {
        let price = |milli| price_ns(&COST, milli, 2000);
        assert_eq!((price(0), price(500), price(800), price(1000)), (0, 2_000, 8_000, 198_000));
    }
}

//! Messages between nodes beside packets and reports: idle workers that ask for work, and probes of single nodes.
//!
//! A worker that is about to be idle asks a random node (prefetch), two more if that one has nothing to give, and rests for
//! 10 µs before it begins again. The node asked gives the packet whose move gains most ([`dataplane_common::pull`]), among
//! those that have not been moved yet.

use dataplane_common::pull::{CONSIDERED, Giving, Standing};
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
        let (cost, price_milli) = (self.rules.forwarding, self.deciding.tuning.price_milli);
        let giving = Giving::new(cost, utilisation_milli, price_milli, self.scenario.guard);
        let given = choose(&giving, worker.queue.iter(), serving_ns);
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

/// Position of the packet whose move to an idle worker gains most, `serving_ns` of work being ahead of all.
fn choose<'q>(giving: &Giving, queue: impl ExactSizeIterator<Item = &'q Waiting>, serving_ns: u64) -> Option<usize> {
    let waiting = queue.len() as u32;
    let (mut ahead_ns, mut most, mut best) = (serving_ns, 0, None);
    for (index, packet) in queue.enumerate().take(CONSIDERED) {
        let behind = waiting - 1 - index as u32;
        let standing = Standing { work_ns: packet.charged_ns, ahead_ns, behind, waiting };
        let gain = giving.gain_ns(&standing).filter(|gain| !packet.is_redirected && (best.is_none() || *gain > most));
        if let Some(gain) = gain {
            (most, best) = (gain, Some(index));
        }
        ahead_ns += u64::from(packet.charged_ns);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::queue::Queue;
    use super::*;
    use dataplane_common::load::Forwarding;
    use dataplane_common::tuning::FIFO;

    fn chosen(packets: &[(u32, bool)], serving_ns: u64) -> Option<usize> {
        let cost = Forwarding { send_ns: 500, receive_ns: 500, wire_ns: 2_000, wire_ns_per_byte_q16: 0 };
        let mut queue = Queue::new(FIFO, true);
        for (number, (charged_ns, is_redirected)) in (0..).zip(packets) {
            queue.push(0, number, (*charged_ns, number, 0), *is_redirected);
        }
        choose(&Giving::new(cost, 0, 2_000, true), queue.iter(), serving_ns)
    }

    #[test]
    fn the_packet_that_relieves_most_is_given() {
        assert_eq!(chosen(&[(10_000, false)], 20_000), Some(0));
        assert_eq!(chosen(&[(2_000, false), (30_000, false), (2_000, false)], 5_000), Some(1), "the elephant");
        assert_eq!(chosen(&[(9_000, false), (9_000, false), (9_000, false)], 0), Some(0), "two wait behind it");
    }

    #[test]
    fn nothing_is_given_that_gains_nothing() {
        assert_eq!(chosen(&[], 90_000), None);
        assert_eq!(chosen(&[(10_000, false)], 3_000), None, "it would start here sooner");
        assert_eq!(chosen(&[(10_000, true)], 20_000), None, "moved before");
    }
}

//! Work for idle nodes: a worker without packets asks a peer where some wait, and a worker that is asked gives away the packet
//! whose move gains most ([`dataplane_common::pull`]).
//!
//! Asking costs a frame each way and happens only while a worker is idle, or about to be. A request that brings nothing is not
//! answered but remembered for a while, and gets the first packet whose move gains anything; meanwhile its sender asks again,
//! another peer if there is a better one, after a rest.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use dataplane_common::decay::Rate;
use dataplane_common::load::{Received, Row as _, pressed};
use dataplane_common::maps::{FUNCTION_DIRECT, FUNCTION_LOSSLESS, FunctionRow, LoadRow, SignalsRow};
use dataplane_common::meta::{Metadata, Origin};
use dataplane_common::pull::Giving;
use dataplane_common::reason::Reason;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{Carried, FLAG_DIRECT, Header, Kind, OVERHEAD_BYTES};

use super::{Taken, Worker, monotonic_ns};
use crate::port::Port;
use crate::ways::Way;
use crate::xsk::Frame;

/// Packets that must wait or be in service at a peer's worker for it to be asked, thousandths: the one in service stays.
const BUSY_MILLI: u32 = 2_000;
/// Rest between two requests, ns.
const REST_NS: u64 = 20_000;
/// Peers whose requests are remembered.
const ASKERS: usize = 16;
/// For how long, ns: after that the peer has probably found work.
const REMEMBERED_NS: u64 = 200_000;

/// What a worker that pulls remembers.
#[derive(Debug)]
pub(super) struct Pulling {
    /// When the next request may be sent, ns.
    next_ns: u64,
    /// The peer looked at first next time, so that equals take turns.
    first: usize,
    /// Peers that asked in vain, and until when they are remembered, ns.
    askers: VecDeque<(u16, u64)>,
}

impl Pulling {
    pub(super) fn new() -> Self {
        Self { next_ns: 0, first: 0, askers: VecDeque::with_capacity(ASKERS) }
    }

    /// Who has asked is remembered longer than any test takes.
    #[cfg(test)]
    pub(super) fn remember_for_long(&mut self) {
        self.askers.iter_mut().for_each(|(_, until_ns)| *until_ns = u64::MAX);
    }

    /// The next request may be sent at once.
    #[cfg(test)]
    pub(super) fn rest_over(&mut self) {
        self.next_ns = 0;
    }
}

impl<P: Port> Worker<P> {
    /// Asks a peer for work, if one has some to give away and the last request is long enough ago.
    pub(super) fn ask_for_work(&mut self) {
        let Some(pulling) = &mut self.pulling else { return };
        let now_ns = monotonic_ns();
        if now_ns < pulling.next_ns {
            return;
        }
        let way = busiest(self.settings.ways.all(), pulling.first, |node| {
            let row = self.tables.load.row(u32::from(node));
            let busy = row.is_candidate(now_ns) && row.queued_milli() >= BUSY_MILLI && row.queued_milli() < u32::MAX;
            busy.then(|| row.backlog_ns())
        });
        pulling.first += 1;
        pulling.next_ns = now_ns + REST_NS;
        if let Some(way) = way {
            self.request(&way, now_ns);
        }
    }

    /// Before a packet is served behind which nothing waits: asks if it is over before an answer can come.
    pub(super) fn ask_early(&mut self, charged_ns: u32) {
        if self.pulling.is_some() && self.queue.as_ref().is_some_and(crate::queue::Queue::is_empty) {
            let cost = self.tables.forwarding_by_worker();
            let lead_ns = 2 * u64::from(cost.transit_ns(OVERHEAD_BYTES)) + u64::from(cost.send_ns);
            if u64::from(charged_ns) <= lead_ns {
                self.ask_for_work();
            }
        }
    }

    fn request(&mut self, way: &Way, now_ns: u64) {
        let Some(mut frame) = self.umem.allocate() else { return };
        // Frames are longer than that.
        if frame.set_len(self.settings.ways.overhead(way, Kind::Pull)).is_err() {
            return self.umem.release(frame);
        }
        let row = self.tables.load.row(u32::from(way.node));
        let header = Header {
            position_ns: row.word(offset_of!(LoadRow, sent_ns)).load(Relaxed) as u32,
            arrival_ns: now_ns,
            load: self.carried(way.node, now_ns),
            ..Header::without_frame(Kind::Pull, self.settings.params.node, way.node, self.settings.params.epoch)
        };
        self.settings.ways.address(way, &header, self.umem.bytes_mut(&mut frame));
        if self.send_alone(way.interface as usize, frame) {
            self.count(Reason::NotePullSent);
        }
    }

    /// Answers a request with a packet, if one waits whose move gains anything.
    pub(super) fn take_pull(&mut self, frame: Frame) {
        let header = Header::parse(self.umem.bytes(&frame), ETHERNET_BYTES);
        self.umem.release(frame);
        let Some(node) = header.ok().filter(|header| header.kind == Kind::Pull).map(|header| header.source) else {
            return self.count(Reason::DropMetadata);
        };
        match self.choose_for(node) {
            Some((taken, way)) => {
                self.count(Reason::PullAnswered);
                self.give(taken, &way);
            }
            None => {
                self.count(Reason::PullRefused);
                self.remember(node);
            }
        }
    }

    /// Remembers that a peer asked in vain.
    fn remember(&mut self, node: u16) {
        let Some(pulling) = &mut self.pulling else { return };
        pulling.askers.retain(|(known, _)| *known != node);
        if pulling.askers.len() < ASKERS {
            pulling.askers.push_back((node, monotonic_ns() + REMEMBERED_NS));
        }
    }

    /// Gives packets to those who asked before there were any, the first one first.
    pub(super) fn give_to_askers(&mut self) {
        while let Some((node, until_ns)) = self.pulling.as_mut().and_then(|pulling| pulling.askers.pop_front()) {
            if monotonic_ns() >= until_ns {
                continue;
            }
            let Some((taken, way)) = self.choose_for(node) else {
                if let Some(pulling) = &mut self.pulling {
                    pulling.askers.push_front((node, until_ns));
                }
                return;
            };
            self.give(taken, &way);
        }
    }

    /// The packet that `node` shall have, out of the queue, and the way there.
    fn choose_for(&mut self, node: u16) -> Option<(Taken, Way)> {
        let cost = self.tables.forwarding_by_worker();
        let signals = self.tables.signals.row(0).word(offset_of!(SignalsRow, utilisation_milli)).load(Relaxed);
        self.pulling.as_ref()?;
        let params = &self.settings.params;
        let way = self.settings.ways.get(node).copied()?;
        let front = self.settings.ways.overhead(&way, Kind::Forward);
        let giving = Giving::new(cost, signals as u32, params.tuning.price_milli, params.guard != 0);
        let taken = self.queue.as_mut()?.take_best(|taken, standing| {
            // A packet moves once. The frame has room in front for the header, where its metadata was.
            let fits = taken.frame.len() + front <= usize::from(way.max_frame) && taken.frame.headroom() >= front;
            if taken.metadata.origin == Origin::Port && fits { giving.gain_ns(standing) } else { None }
        })?;
        Some((taken, way))
    }

    /// Sends a packet that waited here to the node that asked for it.
    fn give(&mut self, taken: Taken, way: &Way) {
        let now_ns = monotonic_ns();
        let (_, flags) = self.handling_of(&taken);
        if flags & FUNCTION_LOSSLESS == 0 {
            self.send_away(taken, way, now_ns);
        } else if let Some(taken) = self.keep_and_send(taken, way, now_ns)
            && let Some(taken) = self.enqueue(taken, now_ns)
        {
            self.serve(taken);
        }
        self.flush(way.interface as usize);
    }

    /// Sends a packet to another node, and is done with it.
    pub(super) fn send_away(&mut self, taken: Taken, way: &Way, now_ns: u64) {
        let Taken { mut frame, metadata, due, socket, .. } = taken;
        let length = frame.len() as u16;
        if frame.push_front(self.settings.ways.overhead(way, Kind::Forward)).is_err() {
            // Not so: there is as much headroom in front of every packet. But it is counted and its turn passes on.
            self.end_service(due);
            return self.finish_dropped(&metadata, frame, Reason::DropTxFull);
        }
        let header = self.forward_header(&metadata, way.node, (length, socket as u16), now_ns);
        self.settings.ways.address(way, &header, self.umem.bytes_mut(&mut frame));
        self.end_service(due);
        self.send_as(way.interface as usize, frame, Reason::SentForward);
    }

    /// Charges the account of `node` with the packet, as the XDP program does for those it forwards itself.
    pub(super) fn forward_header(
        &self,
        metadata: &Metadata,
        node: u16,
        (length, port): (u16, u16),
        now_ns: u64,
    ) -> Header {
        let row = self.tables.load.row(u32::from(node));
        let function = self.tables.functions.row(self.functions[usize::from(metadata.function)].slot);
        let type_id = function.word(offset_of!(FunctionRow, type_id)).load(Relaxed);
        let flags = (function.word(offset_of!(FunctionRow, order)).load(Relaxed) >> 32) as u32;
        let charged = u64::from(metadata.charged_ns);
        let sent_ns = row.word(offset_of!(LoadRow, sent_ns)).fetch_add(charged, AcqRel) + charged;
        let sequence = row.word(offset_of!(LoadRow, sent_frames)).fetch_add(1, AcqRel) + 1;
        let pressure = row.word(offset_of!(LoadRow, pressure_ns));
        pressure.store(pressed(pressure.load(Relaxed), now_ns, self.relaxation(), metadata.charged_ns), Relaxed);
        Header {
            kind: Kind::Forward,
            hops: 1,
            flags: if flags & FUNCTION_DIRECT != 0 { FLAG_DIRECT } else { 0 },
            source: self.settings.params.node,
            destination: node,
            epoch: self.settings.params.epoch,
            sequence: sequence as u32,
            charged_ns: metadata.charged_ns,
            position_ns: sent_ns as u32,
            length,
            type_id: type_id as u16,
            port,
            flow: metadata.flow,
            arrival_ns: metadata.arrival_ns(now_ns),
            flow_sequence: metadata.flow_sequence,
            load: self.carried(node, now_ns),
            spent_ns: 0,
            held: 0,
            generation: 0,
        }
    }

    /// This node's load, as a frame to `node` carries it.
    pub(super) fn carried(&self, node: u16, now_ns: u64) -> Carried {
        let row = self.tables.load.row(u32::from(node));
        let received = Received::from_word(row.word(offset_of!(LoadRow, received_ns)).load(Relaxed));
        self.tables.worker_load(self.settings.worker).here(now_ns).carried(received, now_ns)
    }

    /// How fast a load forgets a report.
    fn relaxation(&self) -> Rate {
        Rate::from_word((self.tables.signals.row(0).word(offset_of!(SignalsRow, price_q16)).load(Relaxed) >> 32) as u32)
    }

    /// Sends one frame by itself, because those of a batch are counted as results; false when it could not be sent.
    pub(super) fn send_alone(&mut self, socket: usize, frame: Frame) -> bool {
        self.flush_all();
        let Some(to) = self.sockets.get_mut(socket) else {
            self.umem.release(frame);
            return false;
        };
        if let Err(full) = to.outgoing.push(frame) {
            self.umem.release(full.0);
            return false;
        }
        to.port.transmit(&mut self.umem, &mut to.outgoing);
        to.port.kick();
        let is_sent = to.outgoing.is_empty();
        to.outgoing.release_all(&mut self.umem);
        is_sent
    }
}

/// The peer with most work, of those that have any; equals take turns, beginning with `first`.
fn busiest(ways: &[Way], first: usize, work_ns: impl Fn(u16) -> Option<u32>) -> Option<Way> {
    let (mut most, mut best) = (0, None);
    for at in 0..ways.len() {
        let way = ways[(first + at) % ways.len()];
        if let Some(work) = work_ns(way.node).filter(|work| best.is_none() || *work > most) {
            (most, best) = (work, Some(way));
        }
    }
    best
}

//! Service in another order than that of arrival: everything that has arrived waits in a [`Queue`], and the next in rank is
//! served. Nothing that has begun is interrupted.

use dataplane_common::classify::{Class, classify, identify};
use dataplane_common::meta::Origin;
use dataplane_common::tuning::{CLASS, SHORTEST};
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{Header, OVERHEAD_BYTES};

use super::{BATCH, SEND_AT_ONCE_NS, Taken, Worker};
use crate::port::Port;
use crate::queue::{Flow, Full, Queue, Rank};

/// Two clocks of the kernel are compared, so an arrival may seem to lie ahead: by up to this, ns, it is understood.
const CLOCK_SLACK_NS: u64 = 1 << 20;

/// The queue of a worker of `frames` frames that serves in this order; `None` in order of arrival, which needs none unless
/// others take packets out of it, or the worker must know what waits before it serves (`is_used_anyway`).
///
/// Every packet lies in a frame, so there is a place for each.
pub(super) fn queue(discipline: u32, frames: u32, is_used_anyway: bool) -> Option<Queue<Taken>> {
    (is_used_anyway || matches!(discipline, SHORTEST | CLASS)).then(|| Queue::new(frames))
}

impl<P: Port> Worker<P> {
    /// Serves what waits, the next in rank first, and takes in what has arrived before each. Ends with a packet that took
    /// long, so that whatever is done once a step does not wait for several of them. Returns the number of packets done with.
    pub(super) fn step_by_rank(&mut self) -> usize {
        let (mut done, mut served) = (0, 0);
        while served < BATCH {
            let waiting = self.waiting();
            let taken: usize = (0..self.sockets.len()).map(|index| self.take_in(index)).sum();
            // Not all that is taken waits: what nobody can rank ends at once.
            done += waiting + taken - self.waiting();
            if self.pulling.is_some() {
                self.give_to_askers();
            }
            let Some(next) = self.queue.as_mut().and_then(Queue::pop) else { break };
            served += 1;
            if self.serve(next) >= SEND_AT_ONCE_NS {
                break;
            }
        }
        self.flush_all();
        for socket in &mut self.sockets {
            socket.port.recycle(&mut self.umem);
        }
        if served > 0 {
            self.show_behind(0);
        }
        done + served
    }

    /// Packets in the queue.
    fn waiting(&self) -> usize {
        self.queue.as_ref().map_or(0, Queue::len)
    }

    /// Takes everything that has arrived at a socket; returns the number of packets.
    fn take_in(&mut self, index: usize) -> usize {
        let mut taken = 0;
        // Ends, because the kernel is given no frames meanwhile.
        loop {
            let received = self.receive(index);
            taken += received;
            if received < BATCH {
                break;
            }
        }
        if taken > 0 {
            self.sockets[index].port.recycle(&mut self.umem);
        }
        taken
    }

    /// Has a packet wait for its turn; gives it back if it is to be served now. `now_ns` is a time after it was received.
    pub(super) fn enqueue(&mut self, taken: Taken, now_ns: u64) -> Option<Taken> {
        // A result or a request is no work.
        if self.queue.is_none() || matches!(taken.metadata.origin, Origin::Result | Origin::Pull) {
            return Some(taken);
        }
        let (flow, rank) = (self.flow_of(&taken), self.rank_of(&taken, now_ns));
        let work_ns = taken.metadata.charged_ns;
        match self.queue.as_mut()?.push(taken, flow, rank, work_ns) {
            Ok(()) => None,
            // Never: see `queue`. But a packet must not be lost.
            Err(Full(taken)) => Some(taken),
        }
    }

    /// The flow of a packet: of this node's own by its metadata, of a forwarded one by the header it came with.
    fn flow_of(&self, taken: &Taken) -> Flow {
        match taken.metadata.origin {
            Origin::Peer => match Header::parse(self.umem.bytes(&taken.frame), ETHERNET_BYTES) {
                Ok(header) => Flow { node: header.source, slot: header.flow },
                Err(_) => Flow::NONE,
            },
            _ => Flow { node: self.settings.params.node, slot: taken.metadata.flow },
        }
    }

    fn rank_of(&self, taken: &Taken, now_ns: u64) -> Rank {
        let arrival_ns = taken.metadata.arrival_ns(now_ns + CLOCK_SLACK_NS);
        match self.settings.params.tuning.discipline {
            CLASS => Rank::class(self.class_of(taken), arrival_ns),
            SHORTEST => Rank::shortest(taken.metadata.charged_ns, arrival_ns),
            _ => Rank::arrival(arrival_ns),
        }
    }

    /// The service class in a packet's own IP header; the lowest for what is no active packet and will be dropped.
    fn class_of(&self, taken: &Taken) -> u8 {
        let bytes = self.umem.bytes(&taken.frame);
        let inner = if taken.metadata.origin == Origin::Peer { bytes.get(OVERHEAD_BYTES..) } else { Some(bytes) };
        let Some(inner) = inner else { return 0 };
        match classify(inner, &self.settings.checks.rules) {
            Class::Active(active) => identify(inner, &active).class,
            _ => 0,
        }
    }
}

//! How a packet ends: its result leaves when its turn in its flow has come, and a packet without a result leaves its turn to
//! the next.

use dataplane_common::maps::FLOW_SLOTS;
use dataplane_common::meta::{Metadata, Origin};
use dataplane_common::reason::Reason;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{Header, Kind, OVERHEAD_BYTES};

use super::{InterfaceKind, Worker, monotonic_ns};
use crate::port::Port;
use crate::resequence::Offered;
use crate::xsk::Frame;

/// A result and the socket it leaves by; `None` is the mark of a packet that ended without a result.
pub(super) type Ending = Option<(usize, Frame)>;

/// What a frame of kind result holds.
enum Opened {
    /// A result and the socket of the port it leaves by.
    Result(usize),
    /// Word that there will be none.
    Mark,
    /// Frame and header contradict each other.
    Neither,
}

impl<P: Port> Worker<P> {
    /// Ends a packet of this node's ports or of a peer.
    #[inline]
    pub(super) fn finish(&mut self, metadata: &Metadata, ending: Ending) {
        // A forwarded packet's order is kept where it arrived.
        if metadata.origin == Origin::Peer {
            self.end(ending);
        } else {
            self.take_turn(metadata.flow, metadata.flow_sequence, ending);
        }
    }

    /// Ends a packet that is dropped under `reason`.
    ///
    /// When the results of its flow keep their order at the node it came from, that node is told not to wait: by the
    /// interconnect header alone.
    pub(super) fn finish_dropped(&mut self, metadata: &Metadata, mut frame: Frame, reason: Reason) {
        self.count(reason);
        if metadata.origin != Origin::Peer {
            self.umem.release(frame);
            return self.take_turn(metadata.flow, metadata.flow_sequence, None);
        }
        // For want of time or room here, not for what the packet is.
        let undone = matches!(reason, Reason::DropStopping | Reason::DropTxFull);
        let Some(way) = self.mark_result(&mut frame, metadata, undone) else {
            return self.umem.release(frame);
        };
        // Whoever waits for one that is lost here waits no longer than for one that is lost on the way.
        if self.send_alone(way.interface as usize, frame) {
            self.count(Reason::NoteMarkSent);
        }
    }

    /// Takes a result, or the mark of a packet without one, that came back from a peer before its turn.
    pub(super) fn take_result(&mut self, mut frame: Frame, metadata: &Metadata) {
        let ending = match self.open_result(&mut frame) {
            Opened::Result(socket) => Some((socket, frame)),
            Opened::Mark => {
                self.count(Reason::MarkEnded);
                self.umem.release(frame);
                None
            }
            Opened::Neither => {
                self.count(Reason::DropMetadata);
                self.umem.release(frame);
                None
            }
        };
        self.take_turn(metadata.flow, metadata.flow_sequence, ending);
    }

    /// Takes the interconnect header off a result.
    fn open_result(&mut self, frame: &mut Frame) -> Opened {
        let Ok(header) = Header::parse(self.umem.bytes(frame), ETHERNET_BYTES) else { return Opened::Neither };
        let socket = usize::from(header.port);
        let is_port = self.sockets.get(socket).is_some_and(|socket| socket.kind == InterfaceKind::Port);
        match (header.kind, usize::from(header.length)) {
            (Kind::Result, 0) => Opened::Mark,
            (Kind::Result, ETHERNET_BYTES..) if is_port => {
                // What lies behind is Ethernet padding.
                let cut = frame.pull_front(OVERHEAD_BYTES).and_then(|()| frame.set_len(header.length.into()));
                if cut.is_ok() { Opened::Result(socket) } else { Opened::Neither }
            }
            _ => Opened::Neither,
        }
    }

    /// Ends a packet when its turn has come, at once or later; at once if it is of no flow.
    #[inline]
    fn take_turn(&mut self, flow: u16, number: u32, ending: Ending) {
        // NO_FLOW, and whatever else is none.
        if usize::from(flow) >= FLOW_SLOTS {
            return self.end(ending);
        }
        let now_ns = monotonic_ns();
        match self.held.offer(&self.tables.flows, flow, number, ending, now_ns) {
            Offered::Held => {}
            Offered::Send(ending) => {
                self.end(ending);
                // Its leaving may be what others waited for.
                self.release_held(now_ns);
            }
            Offered::SendLate(ending) => self.end_late(ending),
        }
    }

    /// Ends every packet whose turn has come by now, or that has waited long enough; returns how many.
    pub(super) fn release_held(&mut self, now_ns: u64) -> usize {
        let mut released = 0;
        while let Some((ending, is_late)) = self.held.pop(&self.tables.flows, now_ns) {
            released += 1;
            if is_late { self.end_late(ending) } else { self.end(ending) }
        }
        released
    }

    fn end(&mut self, ending: Ending) {
        if let Some((socket, frame)) = ending {
            self.send(socket, frame);
        }
    }

    fn end_late(&mut self, ending: Ending) {
        if ending.is_some() {
            self.count(Reason::NoteOutOfOrder);
        }
        self.end(ending);
    }
}

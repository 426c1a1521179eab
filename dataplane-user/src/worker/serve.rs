//! What a worker does with one packet: computes it, measures it and gives the result its header.

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

use dataplane_common::estimate::Estimator;
use dataplane_common::load::saturate;
use dataplane_common::maps::{FunctionRow, WorkerRow};
use dataplane_common::meta::{Metadata, Origin};
use dataplane_common::reason::Reason;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{FLAG_DIRECT, FLAG_HELD, FLAG_UNDONE, Header, Kind, NO_FLOW, OVERHEAD_BYTES};

use super::{Worker, monotonic_ns};
use crate::functions::Builtin;
use crate::maps::tables::{add_own, set};
use crate::port::Port;
use crate::process;
use crate::ways::Way;
use crate::xsk::Frame;

/// A function of the node as the worker runs it.
pub(super) struct Function {
    pub(super) builtin: Builtin,
    pub(super) estimator: Estimator,
    /// Its row in `FUNCTIONS`.
    pub(super) slot: u32,
}

/// What becomes of a frame.
pub(super) enum Outcome {
    Send(Frame),
    /// It leaves by this socket's interface; its node of arrival has been told.
    SendDirect(Frame, usize),
    Drop(Frame, Reason),
}

impl<P: Port> Worker<P> {
    /// Computes one packet; returns what becomes of it and how long the function took, ns.
    pub(super) fn compute(&mut self, mut frame: Frame, metadata: &Metadata) -> (Outcome, u32) {
        if self.stop.load(Relaxed) {
            return (Outcome::Drop(frame, Reason::DropStopping), 0);
        }
        let Some(function) = self.functions.get_mut(usize::from(metadata.function)) else {
            return (Outcome::Drop(frame, Reason::DropMetadata), 0);
        };
        let bytes = self.umem.bytes_mut(&mut frame);
        let (outer, inner) = match metadata.origin {
            Origin::Port => (None, bytes),
            Origin::Peer => match open_forward(bytes) {
                Some((header, inner)) => (Some(header), inner),
                None => return (Outcome::Drop(frame, Reason::DropMetadata), 0),
            },
            Origin::Result | Origin::Pull => return (Outcome::Drop(frame, Reason::DropMetadata), 0),
        };
        let active = match process::validate(inner, function.builtin, self.settings.checks) {
            Ok(active) => active,
            Err(reason) => return (Outcome::Drop(frame, reason), 0),
        };
        let units = function.builtin.units().of(&active.anep).unwrap_or(0);
        // XDP has judged this for the node's own ports; what a peer forwards is judged here, whatever the peer charged.
        let row = self.tables.functions.row(function.slot);
        let limit_ns = row.word(offset_of!(FunctionRow, limit_ns)).load(Relaxed) as u32;
        if metadata.origin == Origin::Peer && limit_ns > 0 && function.builtin.prior().ns(units) > limit_ns {
            return (Outcome::Drop(frame, Reason::DropForwardLimit), 0);
        }
        let start = self.clock.raw();
        process::compute(inner, &active, function.builtin);
        let took = self.clock.delta_as_nanos(start, self.clock.raw());
        process::turn_round(inner, &active);
        let took_ns = u32::try_from(took).unwrap_or(u32::MAX);
        self.functions[usize::from(metadata.function)].estimator.observe(units, took_ns);
        self.publish(usize::from(metadata.function), metadata.charged_ns, took_ns);
        let outcome = match outer {
            None => Outcome::Send(frame),
            Some(header) => self.answer(frame, &header, metadata, took_ns),
        };
        (outcome, took_ns)
    }

    /// Addresses a computed packet of a peer: home, or out of this node's own port with a mark sent home.
    fn answer(&mut self, mut frame: Frame, forward: &Header, metadata: &Metadata, took_ns: u32) -> Outcome {
        let Some(way) = self.settings.ways.get(forward.source).copied() else {
            return Outcome::Drop(frame, Reason::DropNoWay);
        };
        let front = self.settings.ways.overhead(&way, Kind::Result);
        if frame.headroom() + OVERHEAD_BYTES < front {
            return Outcome::Drop(frame, Reason::DropTxFull);
        }
        // What lies behind the packet is Ethernet padding. A frame only gets shorter here, so this cannot fail.
        let _ = frame.set_len(OVERHEAD_BYTES + usize::from(forward.length));
        let _ = frame.pull_front(OVERHEAD_BYTES);
        let header = self.result_header(forward, metadata, took_ns);
        if forward.flags & FLAG_DIRECT != 0
            && let Some(egress) = self.settings.egress
        {
            let (to, from) = self.umem.bytes_mut(&mut frame).split_at_mut(6);
            if let Some(next_hop) = egress.next_hop {
                to.copy_from_slice(&next_hop);
            }
            from[..6].copy_from_slice(&egress.mac);
            self.send_mark(&way, &Header { length: 0, ..header });
            return Outcome::SendDirect(frame, egress.interface as usize);
        }
        // There is room: see above.
        let _ = frame.push_front(front);
        let header = Header { flags: header.flags & !FLAG_DIRECT, ..header };
        self.settings.ways.address(&way, &header, self.umem.bytes_mut(&mut frame));
        Outcome::Send(frame)
    }

    /// Sends a header without a frame home.
    fn send_mark(&mut self, way: &Way, header: &Header) {
        let Some(mut mark) = self.umem.allocate() else { return };
        if mark.set_len(self.settings.ways.overhead(way, Kind::Result)).is_err() {
            return self.umem.release(mark);
        }
        self.settings.ways.address(way, header, self.umem.bytes_mut(&mut mark));
        self.send_as(way.interface as usize, mark, Reason::NoteMarkSent);
    }

    /// Makes of a forwarded packet that is dropped the mark that there will be no result, and says which way it goes; `None`
    /// when nobody waits for it. `undone` says that another node may well compute the packet.
    pub(super) fn mark_result(&mut self, frame: &mut Frame, metadata: &Metadata, undone: bool) -> Option<Way> {
        let forward = Header::parse(self.umem.bytes(frame), ETHERNET_BYTES).ok()?;
        let is_held = forward.flags & FLAG_HELD != 0;
        if (forward.flow == NO_FLOW && !is_held) || forward.kind != Kind::Forward {
            return None;
        }
        let way = self.settings.ways.get(forward.source).copied()?;
        let flags = if is_held && undone { FLAG_HELD | FLAG_UNDONE } else { forward.flags & FLAG_HELD };
        let mark = Header { length: 0, flags, ..self.result_header(&forward, metadata, 0) };
        frame.set_len(OVERHEAD_BYTES).ok()?;
        frame.pull_front(OVERHEAD_BYTES).ok()?;
        frame.push_front(self.settings.ways.overhead(&way, Kind::Result)).ok()?;
        self.settings.ways.address(&way, &mark, self.umem.bytes_mut(frame));
        Some(way)
    }

    /// The header under which the result of `forward` goes home, with this node's load.
    fn result_header(&mut self, forward: &Header, metadata: &Metadata, took_ns: u32) -> Header {
        self.results = self.results.wrapping_add(1);
        let now_ns = monotonic_ns();
        self.show_done();
        Header {
            kind: Kind::Result,
            source: self.settings.params.node,
            destination: forward.source,
            epoch: self.settings.params.epoch,
            sequence: self.results,
            position_ns: took_ns,
            load: self.carried(forward.source, now_ns),
            spent_ns: saturate(now_ns.saturating_sub(metadata.arrival_ns(now_ns))),
            ..*forward
        }
    }

    /// Shows a measurement to deciders, `status` and the control thread.
    fn publish(&mut self, function: usize, charged_ns: u32, took_ns: u32) {
        let row = self.tables.functions.row(self.functions[function].slot);
        let (cost, shown) = (self.functions[function].estimator.cost().to_word(), offset_of!(FunctionRow, a_ns));
        // XDP reads its cache line with every packet, on another core.
        if row.word(shown).load(Relaxed) != cost {
            set(row, shown, cost);
        }
        add_own(row.word(offset_of!(FunctionRow, samples)), 1);
        add_own(row.word(offset_of!(FunctionRow, predicted_ns)), u64::from(charged_ns));
        add_own(row.word(offset_of!(FunctionRow, measured_ns)), u64::from(took_ns));
        let worker = self.tables.workers.row(self.settings.worker);
        add_own(worker.word(offset_of!(WorkerRow, busy_ns)), u64::from(took_ns));
        self.samples[function].record(charged_ns, took_ns);
    }
}

/// The header of a forwarded packet and the frame behind it; `None` when they contradict each other.
fn open_forward(bytes: &mut [u8]) -> Option<(Header, &mut [u8])> {
    let header = Header::parse(&*bytes, ETHERNET_BYTES).ok()?;
    let inner = bytes.get_mut(OVERHEAD_BYTES..OVERHEAD_BYTES + usize::from(header.length))?;
    (header.kind == Kind::Forward).then_some((header, inner))
}

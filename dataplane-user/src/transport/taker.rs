//! Frames of peers that come by kernel sockets: what `dp_link` does with those of an interface, in the thread that reads them.
//!
//! The rules are those of `dataplane-common` ([`taking`], [`seal`](dataplane_common::seal), [`held`]); only what is done with a
//! frame differs: there is no XDP_REDIRECT, so every result goes by a worker.

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use dataplane_common::held;
use dataplane_common::maps::{AUTH_OFF, FunctionRow, MAX_WORKERS, Params, QueueRow, WorkerRow, function_slot};
use dataplane_common::meta::{Metadata, Origin};
use dataplane_common::reason::Reason;
use dataplane_common::seal::{
    self, KEY_ROWS, KeyRow, SEAL_BYTES, SealRow, TAGGED_BYTES, admit, body_bytes, covers_body, is_sealed,
};
use dataplane_common::taking::{self, Cells};
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{FLAG_HELD, FLAG_UNDONE, Header, Kind, NO_FLOW, OVERHEAD_BYTES, Report};

use crate::maps::{MapValue, Row, Tables};
use crate::ways::LiveWays;
use crate::worker::monotonic_ns;

impl<T: MapValue> Cells for Row<'_, T> {
    #[inline]
    fn get(&self, offset: usize) -> u64 {
        self.word(offset).load(Acquire)
    }

    #[inline]
    fn set(&self, offset: usize, word: u64) {
        self.word(offset).store(word, Relaxed);
    }

    #[inline]
    fn add(&self, offset: usize, amount: u64) {
        self.word(offset).fetch_add(amount, AcqRel);
    }
}

/// The words of one peer's serials.
struct Serials<'a>(Row<'a, SealRow>);

impl seal::Taken for Serials<'_> {
    fn boot(&self) -> u64 {
        self.0.word(offset_of!(SealRow, epoch)).load(Acquire)
    }

    fn swap_boot(&self, old: u64, new: u64) -> bool {
        self.0.word(offset_of!(SealRow, epoch)).compare_exchange(old, new, AcqRel, Acquire).is_ok()
    }

    fn entry(&self, index: u32) -> u64 {
        self.0.word(offset_of!(SealRow, taken) + 8 * index as usize).load(Acquire)
    }

    fn swap_entry(&self, index: u32, old: u64, new: u64) -> bool {
        let entry = self.0.word(offset_of!(SealRow, taken) + 8 * index as usize);
        entry.compare_exchange(old, new, AcqRel, Acquire).is_ok()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Taker {
    tables: Arc<Tables>,
    params: Params,
    ways: Arc<LiveWays>,
    worker: u32,
    /// Of the socket, in `QUEUES`.
    slot: u32,
    /// Type id and index of every function.
    types: Box<[(u16, u16)]>,
}

impl Taker {
    /// What takes the frames that a socket of `worker` gets; `slot` is the socket's in `QUEUES`.
    pub fn new(tables: Arc<Tables>, params: Params, ways: Arc<LiveWays>, worker: u32, slot: u32) -> Self {
        let functions = tables.functions.len() / MAX_WORKERS as u32;
        let type_of = |index: u32| {
            let row = tables.functions.row(function_slot(index, worker));
            let is_there = row.word(offset_of!(FunctionRow, limit_ns)).load(Relaxed) as u32 != 0;
            is_there.then(|| (row.word(offset_of!(FunctionRow, type_id)).load(Relaxed) as u16, index as u16))
        };
        let types = (0..functions).filter_map(type_of).collect();
        Self { tables, params, ways, worker, slot, types }
    }

    /// Counts a frame. The thread that takes reports counts beside worker 0.
    fn count(&self, reason: Reason) {
        self.tables.count(self.worker, reason).fetch_add(1, Relaxed);
    }

    /// Takes a frame, which begins with an Ethernet header: what its worker is to do with it, and how many bytes at its start are
    /// done with; `None` when the frame has ended here, under a name.
    pub fn take(&self, frame: &mut [u8]) -> Option<(Metadata, usize)> {
        self.count(Reason::SeenLink);
        match self.open(frame) {
            Ok((header, skipped)) => {
                let metadata = self.take_header(&header, &frame[skipped..])?;
                Some((metadata, skipped))
            }
            Err(reason) => {
                self.count(reason);
                None
            }
        }
    }

    /// Takes a frame on the port where reports come; any other kind of frame ends there.
    pub fn take_report(&self, frame: &mut [u8]) {
        self.count(Reason::SeenLink);
        let opened = self.open(frame).and_then(|(header, skipped)| match header.kind {
            Kind::Report => Ok((header, skipped)),
            _ => Err(Reason::DropLinkKind),
        });
        match opened {
            // A report leaves nothing for a worker to do.
            Ok((header, skipped)) => drop(self.take_header(&header, &frame[skipped..])),
            Err(reason) => self.count(reason),
        }
    }

    /// Checks a frame's header and seal; the header, and where the frame begins without its seal.
    fn open(&self, frame: &mut [u8]) -> Result<(Header, usize), Reason> {
        let header = Header::parse(&*frame, ETHERNET_BYTES)?;
        if header.destination != self.params.node {
            return Err(Reason::DropLinkDestination);
        }
        if self.ways.load().get(header.source).is_none() {
            return Err(Reason::DropLinkSource);
        }
        if self.params.auth == AUTH_OFF {
            return if header.key() == 0 { Ok((header, 0)) } else { Err(Reason::DropLinkKey) };
        }
        if header.key() == 0 {
            let must = is_sealed(self.params.auth, header.kind);
            return if must { Err(Reason::DropLinkUnsealed) } else { Ok((header, 0)) };
        }
        self.check_seal(&header, frame)?;
        frame.copy_within(..OVERHEAD_BYTES, SEAL_BYTES);
        frame[SEAL_BYTES + ETHERNET_BYTES + 3] &= 0x0f;
        Ok((header.with_key(0), SEAL_BYTES))
    }

    fn check_seal(&self, header: &Header, frame: &[u8]) -> Result<(), Reason> {
        let row = self.tables.keys.row(u32::from(header.key()) % KEY_ROWS as u32);
        let word = |offset: usize| row.word(offset).load(Acquire);
        if word(offset_of!(KeyRow, valid)) == 0 {
            return Err(Reason::DropLinkKey);
        }
        let key = |at: usize| [word(at), word(at + 8)];
        let length = body_bytes(header);
        let Some(body) = frame.get(OVERHEAD_BYTES + SEAL_BYTES..).and_then(|body| body.get(..length)) else {
            return Err(Reason::DropLinkTruncated);
        };
        let number = |at: usize| {
            frame.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes: &[u8; 8]| u64::from_be_bytes(*bytes))
        };
        let tag = seal::tag(frame, ETHERNET_BYTES, key(offset_of!(KeyRow, header)));
        if tag != Some(number(ETHERNET_BYTES + TAGGED_BYTES)) {
            return Err(Reason::DropLinkTag);
        }
        let load = self.tables.load.row(header.source.into());
        if header.load.received_epoch != self.params.epoch as u16 {
            if header.kind == Kind::Report {
                taking::learn_boot(&load, header);
            }
            return Err(Reason::DropLinkStaleBoot);
        }
        let covers = covers_body(self.params.auth, header.kind) && length > 0;
        if covers && seal::hash(key(offset_of!(KeyRow, body)), body) != number(OVERHEAD_BYTES + 8) {
            return Err(Reason::DropLinkBody);
        }
        let admitted =
            admit(&Serials(self.tables.seals.row(header.source.into())), header.epoch, number(OVERHEAD_BYTES));
        if admitted.is_first {
            taking::begin_boot(&load, header);
        }
        if admitted.is_new { Ok(()) } else { Err(Reason::DropLinkReplay) }
    }

    fn take_header(&self, header: &Header, frame: &[u8]) -> Option<Metadata> {
        let now_ns = monotonic_ns();
        let row = self.tables.load.row(header.source.into());
        let signals = self.tables.signals.row(0);
        let piggyback = || {
            if taking::piggyback(&self.params, &row, &signals, header, now_ns) {
                self.count(Reason::NotePiggyback);
            }
        };
        match header.kind {
            Kind::Forward => {
                // The account comes first: the work has left the sender, whatever becomes of the packet here.
                taking::position(&row, header, 1);
                let Some((_, function)) = self.types.iter().find(|(type_id, _)| *type_id == header.type_id) else {
                    self.count(Reason::DropLinkType);
                    return None;
                };
                piggyback();
                Some(self.charge(Origin::Peer, header, *function, now_ns, Reason::ForwardQueued))
            }
            Kind::Pull => {
                taking::position(&row, header, 0);
                piggyback();
                Some(self.charge(Origin::Pull, header, 0, now_ns, Reason::PullQueued))
            }
            Kind::Report => {
                taking::position(&row, header, 0);
                let taken = Report::parse(frame, OVERHEAD_BYTES).map(|report| {
                    let is_new = taking::report(&self.params, &row, &signals, (header, &report), now_ns);
                    if is_new { Reason::ReportTaken } else { Reason::DropReportOld }
                });
                self.count(taken.unwrap_or_else(|reason| reason));
                None
            }
            Kind::Result => {
                if header.length > 0 && frame.len() < OVERHEAD_BYTES + ETHERNET_BYTES {
                    self.count(Reason::DropLinkTruncated);
                    return None;
                }
                piggyback();
                taking::result(&self.params, &row, &signals, header, now_ns);
                if header.flags & FLAG_HELD != 0 && !self.answer_held(header) {
                    return None;
                }
                Some(self.charge(Origin::Result, header, 0, header.arrival_ns, Reason::ResultQueued))
            }
        }
    }

    /// Ends the wait for the result of a packet that is kept here; false when the frame has ended with that.
    fn answer_held(&self, header: &Header) -> bool {
        let undone = header.flags & FLAG_UNDONE != 0;
        let answered = header.held < self.tables.held.len() && {
            let word = self.tables.held.row(header.held).word(0);
            let before = word.load(Acquire);
            let after = held::Word::from_word(before).answered(header.generation, undone);
            after.is_some_and(|after| word.compare_exchange(before, after.to_word(), AcqRel, Acquire).is_ok())
        };
        if !answered {
            self.count(Reason::DropLinkDuplicate);
        } else if undone {
            // Its turn is still to come.
            self.count(Reason::UndoneTaken);
        }
        answered && !undone
    }

    /// Charges the worker with a frame it is given.
    fn charge(&self, origin: Origin, header: &Header, function: u16, arrival_ns: u64, queued: Reason) -> Metadata {
        let row = self.tables.functions.row(function_slot(function.into(), self.worker));
        let policy = if origin == Origin::Peer {
            row.word(offset_of!(FunctionRow, policy)).load(Relaxed) as u32
        } else {
            self.params.policy
        };
        // A peer's estimate is not trusted beyond what this node would accept itself.
        let limit_ns = row.word(offset_of!(FunctionRow, limit_ns)).load(Relaxed) as u32;
        let charged_ns = if origin == Origin::Peer { header.charged_ns.min(limit_ns) } else { 0 };
        let (worker, socket) = (self.tables.workers.row(self.worker), self.tables.queues.row(self.slot));
        let ns = u64::from(charged_ns);
        worker.add(offset_of!(WorkerRow, charged_ns), ns);
        worker.add(offset_of!(WorkerRow, charged_packets), 1);
        let position = socket.word(offset_of!(QueueRow, charged_ns)).fetch_add(ns, AcqRel) + ns;
        let sequence = socket.word(offset_of!(QueueRow, charged_packets)).fetch_add(1, AcqRel) + 1;
        let is_result = origin == Origin::Result;
        self.count(queued);
        Metadata {
            function,
            charged_ns,
            arrival_16ns: Metadata::arrival_of(arrival_ns),
            position_ns: position,
            sequence: sequence as u32,
            origin,
            policy: policy as u8,
            flow: if is_result { header.flow } else { NO_FLOW },
            flow_sequence: if is_result { header.flow_sequence } else { 0 },
        }
    }
}

#[cfg(test)]
#[path = "taker_tests.rs"]
mod tests;

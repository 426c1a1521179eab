//! What a node knows of the load of all nodes, and the exact account of work it has sent to each of them.
//!
//! Every amount of work is a *position*: a counter of ns of estimated processing time that only grows and wraps at 2^32
//! (4.29 s of work, far above any backlog). The sender puts its position into every frame; the receiver keeps the newest
//! one it saw and returns it in its reports; the difference is the work in flight, exact although frames may be lost: a
//! later frame or report carries the position past the lost one.
//!
//! ```text
//! ERL = backlog the node reported + (position sent − position acknowledged)
//! ```
//!
//! A restarted node has a larger boot epoch; positions of different epochs are never compared.

use core::mem::offset_of;

use crate::bands::Behind;
use crate::decay::Rate;
use crate::maps::{LoadRow, WorkerRow, pair};
use crate::pick::{larger, less, smaller};
pub use crate::signals::{Forwarding, Signals};
use crate::wire::link::{Carried, Header};

/// A report is good for this many of the intervals it promises; then the node is no candidate until the next one.
pub const STALE_AFTER_INTERVALS: u64 = 5;

/// Longest report interval believed, µs.
pub const MAX_INTERVAL_US: u32 = 1_000_000;

/// True when `a` comes after `b` in a counter that wraps at 2^32 (RFC 1982 with 32 bits).
#[inline(always)]
pub const fn newer(a: u32, b: u32) -> bool {
    let ahead = a.wrapping_sub(b);
    ahead != 0 && ahead < 1 << 31
}

/// What a node has received of one peer: the newest position of that peer's work, and the peer's boot it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Newest position seen, ns (wrapping).
    pub position_ns: u32,
    /// Boot epoch of the peer; 0 before the first frame.
    pub epoch: u32,
}

impl Received {
    /// Both fields in one word, so that they are read together.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.position_ns as u64 | (self.epoch as u64) << 32
    }

    /// The inverse of [`Received::to_word`].
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self { position_ns: word as u32, epoch: (word >> 32) as u32 }
    }

    /// The account after a frame with this epoch and position, or `None` when the frame changes nothing (older
    /// position, or sent before the peer's last restart).
    #[inline(always)]
    pub fn advance(self, epoch: u32, position_ns: u32) -> Option<Self> {
        let next = Self { position_ns, epoch };
        if epoch == self.epoch {
            return newer(position_ns, self.position_ns).then_some(next);
        }
        (self.epoch == 0 || newer(epoch, self.epoch)).then_some(next)
    }
}

/// Which report of a peer was taken last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportStamp {
    /// Sequence number of the report.
    pub sequence: u32,
    /// Boot epoch of the peer; 0 before the first report.
    pub epoch: u32,
}

impl ReportStamp {
    /// Both fields in one word.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.sequence as u64 | (self.epoch as u64) << 32
    }

    /// The inverse of [`ReportStamp::to_word`].
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self { sequence: word as u32, epoch: (word >> 32) as u32 }
    }

    /// True when a report with this epoch and sequence is newer than the last one taken.
    #[inline(always)]
    pub fn precedes(self, epoch: u32, sequence: u32) -> bool {
        if epoch == self.epoch {
            return newer(sequence, self.sequence);
        }
        self.epoch == 0 || newer(epoch, self.epoch)
    }
}

/// When the load in a row was read by its node: frames that carry an older one change nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadStamp {
    /// µs (1024 ns) of the node's monotonic clock (wrapping).
    pub stamp_us: u32,
    /// Boot epoch of the node; 0 before the first frame.
    pub epoch: u32,
}

impl LoadStamp {
    /// Both fields in one word.
    #[inline(always)]
    pub const fn to_word(self) -> u64 {
        self.stamp_us as u64 | (self.epoch as u64) << 32
    }

    /// The inverse of [`LoadStamp::to_word`].
    #[inline(always)]
    pub const fn from_word(word: u64) -> Self {
        Self { stamp_us: word as u32, epoch: (word >> 32) as u32 }
    }

    /// True when a load with this epoch and stamp is newer than the one in the row.
    #[inline(always)]
    pub fn precedes(self, epoch: u32, stamp_us: u32) -> bool {
        ReportStamp { sequence: self.stamp_us, epoch: self.epoch }.precedes(epoch, stamp_us)
    }
}

/// Position of our work that a carried load includes.
///
/// A node that does not know this boot acknowledges nothing we could subtract, and nothing sent before it can still be
/// waiting there under our account: then all that was sent is acknowledged.
#[inline(always)]
pub fn acked_ns(load: &Carried, own_epoch: u32, sent_ns: u32) -> u32 {
    if load.received_epoch == own_epoch as u16 { load.received_ns } else { sent_ns }
}

/// How long a report is good that promises the next one within `interval_us`, ns.
#[inline(always)]
pub const fn valid_for_ns(interval_us: u32) -> u64 {
    // No node may promise to be silent for longer than a configuration can say.
    let interval_us = if interval_us > MAX_INTERVAL_US { MAX_INTERVAL_US } else { interval_us };
    STALE_AFTER_INTERVALS * 1000 * interval_us as u64
}

/// The account of a peer after one of its frames; see [`Received::advance`].
#[inline(always)]
pub fn take_position(received: Received, header: &Header) -> Option<Received> {
    received.advance(header.epoch, header.position_ns)
}

/// How the work sent to a node since its report is added to what it reported ([`Row::erl_ns`]). Jang's thesis (KAIST 2005)
/// adds and never subtracts; the other ways are this project's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Erl {
    /// Reported, plus what was sent and the report does not include: positions tell exactly.
    #[default]
    Ack = 0,
    /// The literal rule: reported, plus what was sent since the report came.
    Add = 1,
    /// As `Add`, less what the node has worked off since.
    Drain = 2,
    /// The report alone.
    Off = 3,
}

impl Erl {
    /// Every mode with its name in the configuration.
    pub const NAMES: [(&'static str, Self); 4] =
        [("ack", Self::Ack), ("add", Self::Add), ("drain", Self::Drain), ("off", Self::Off)];

    /// The mode of this number; an unknown one reads as [`Erl::Ack`].
    #[inline(always)]
    pub const fn from_id(id: u32) -> Self {
        match id {
            1 => Self::Add,
            2 => Self::Drain,
            3 => Self::Off,
            _ => Self::Ack,
        }
    }
}

/// The words of a [`LoadRow`] that decisions read; each is the offset of its first field, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// `backlog_ns`, `acked_ns`.
    Report = offset_of!(LoadRow, backlog_ns),
    /// `valid_until_ns`.
    ValidUntil = offset_of!(LoadRow, valid_until_ns),
    /// `queued_milli`, `workers`, `busy_milli`.
    Queue = offset_of!(LoadRow, queued_milli),
    /// `sent_ns`.
    SentNs = offset_of!(LoadRow, sent_ns),
    /// `sent_frames`.
    SentFrames = offset_of!(LoadRow, sent_frames),
    /// `reported_at_ns`.
    ReportedAt = offset_of!(LoadRow, reported_at_ns),
    /// `mean_backlog_ns`, `speed_milli`, `memory_milli`.
    Mean = offset_of!(LoadRow, mean_backlog_ns),
    /// `behind`.
    Behind = offset_of!(LoadRow, behind),
    /// `pressure_ns`, `pressure_us`.
    Pressure = offset_of!(LoadRow, pressure_ns),
    /// `marked_ns`, `marked_frames`.
    Marked = offset_of!(LoadRow, marked_ns),
    /// `peak_ns`, `peak_us`.
    Peak = offset_of!(LoadRow, peak_ns),
    /// `response_ns`, `service_ns`.
    Response = offset_of!(LoadRow, response_ns),
    /// `completed_frames`.
    Completed = offset_of!(LoadRow, completed_frames),
    /// `acked_frames`, `flags`.
    Acked = offset_of!(LoadRow, acked_frames),
}

/// The row of a remote node, read word by word: each word is whole, two words need not be of one instant.
pub trait Row {
    /// Reads a word.
    fn word(&self, word: Word) -> u64;

    /// Low and high half of a word.
    #[inline(always)]
    fn halves(&self, word: Word) -> (u32, u32) {
        let word = self.word(word);
        (word as u32, (word >> 32) as u32)
    }

    /// True when a packet may be sent there at `now_ns`.
    #[inline(always)]
    fn is_candidate(&self, now_ns: u64) -> bool {
        now_ns < self.word(Word::ValidUntil)
    }

    /// Backlog it reported, mean over its workers, ns.
    #[inline(always)]
    fn backlog_ns(&self) -> u32 {
        self.word(Word::Report) as u32
    }

    /// Packets waiting or in service at one of its workers, thousandths.
    #[inline(always)]
    fn queued_milli(&self) -> u32 {
        self.word(Word::Queue) as u32
    }

    /// Its workers; at least 1.
    #[inline(always)]
    fn workers(&self) -> u32 {
        let workers = (self.word(Word::Queue) >> 32) as u16;
        if workers == 0 { 1 } else { workers as u32 }
    }

    /// Time since its report, ns.
    #[inline(always)]
    fn age_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.word(Word::ReportedAt))
    }

    /// Its speed against this node's, thousandths: 2000 computes twice as fast. 1000 until known.
    #[inline(always)]
    fn speed_milli(&self) -> u32 {
        let speed = (self.word(Word::Mean) >> 32) as u16;
        if speed == 0 { 1000 } else { speed as u32 }
    }

    /// Work sent there that its last report does not include, ns.
    #[inline(always)]
    fn in_flight_ns(&self) -> u32 {
        ahead(self.word(Word::SentNs) as u32, (self.word(Word::Report) >> 32) as u32)
    }

    /// Frames sent there that its last report does not include.
    #[inline(always)]
    fn in_flight_frames(&self) -> u32 {
        ahead(self.word(Word::SentFrames) as u32, self.word(Word::Acked) as u32)
    }

    /// Frames sent there of which no result has come back.
    #[inline(always)]
    fn outstanding(&self) -> u32 {
        ahead(self.word(Word::SentFrames) as u32, self.word(Word::Completed) as u32)
    }

    /// Estimated remote load: the wait a packet sent now should expect at one of the node's workers, ns (saturating).
    #[inline(always)]
    fn erl_ns(&self, mode: Erl, now_ns: u64) -> u64 {
        let (backlog, acked) = self.halves(Word::Report);
        if mode as u32 == Erl::Off as u32 {
            return backlog as u64;
        }
        let since = if mode as u32 == Erl::Ack as u32 { acked } else { self.word(Word::Marked) as u32 };
        let sent = ahead(self.word(Word::SentNs) as u32, since);
        let expected = backlog as u64 + share(sent, self.workers()) as u64;
        if mode as u32 == Erl::Drain as u32 { expected.saturating_sub(self.age_ns(now_ns)) } else { expected }
    }

    /// Predicted load: the wait at one of the node's workers as it will have moved since the report, ns.
    ///
    /// A load returns to its mean at the rate `relax`, pushed away by what was sent; and it cannot have fallen faster
    /// than the worker works. `gain_milli` says how much our own packets tell about those of others.
    #[inline(always)]
    fn predicted_ns(&self, now_ns: u64, relax: Rate, gain_milli: u32) -> u32 {
        let (backlog, acked) = self.halves(Word::Report);
        let mean = self.word(Word::Mean) as u32;
        let age = self.age_ns(now_ns);
        // Nothing here branches on a load: whether one is above its mean, or old enough to be worked off, differs from row to
        // row, and a branch that is not foreseen costs as much as half of this.
        let kept_q16 = relax.factor_q16(age) as u64;
        let relaxed = (backlog as u64 * kept_q16 + mean as u64 * ((1 << 16) - kept_q16)) >> 16;
        // 0 and 1 are the same to a share.
        let workers = (self.word(Word::Queue) >> 32) as u16 as u32;
        let (pressure, since_us) = self.halves(Word::Pressure);
        let since = ((now_ns >> 10) as u32).wrapping_sub(since_us);
        let pressed = share(relax.after_us(pressure, since), workers) as u64;
        let expected = relaxed + pressed * gain_milli as u64 / 1000;
        let sent = share(ahead(self.word(Word::SentNs) as u32, acked), workers);
        let left = less(backlog.into(), age);
        let least = left + sent as u64;
        smaller(larger(expected, least), u32::MAX.into()) as u32
    }
}

impl Row for LoadRow {
    fn word(&self, word: Word) -> u64 {
        match word {
            Word::Report => pair(self.backlog_ns, self.acked_ns),
            Word::ValidUntil => self.valid_until_ns,
            Word::Queue => pair(self.queued_milli, self.workers as u32 | (self.busy_milli as u32) << 16),
            Word::SentNs => self.sent_ns,
            Word::SentFrames => self.sent_frames,
            Word::ReportedAt => self.reported_at_ns,
            Word::Mean => pair(self.mean_backlog_ns, self.speed_milli as u32 | (self.memory_milli as u32) << 16),
            Word::Behind => self.behind,
            Word::Pressure => pair(self.pressure_ns, self.pressure_us),
            Word::Marked => pair(self.marked_ns, self.marked_frames),
            Word::Peak => pair(self.peak_ns, self.peak_us),
            Word::Response => pair(self.response_ns, self.service_ns),
            Word::Completed => self.completed_frames,
            Word::Acked => pair(self.acked_frames, self.flags),
        }
    }
}

/// How far `sent` is ahead of `known`, both wrapping. The words are not read at one instant: an acknowledgement seen before
/// the send it covers is nothing in flight.
#[inline(always)]
const fn ahead(sent: u32, known: u32) -> u32 {
    let ahead = sent.wrapping_sub(known);
    if ahead >= 1 << 31 { 0 } else { ahead }
}

/// The word [`Word::Pressure`] after `charge_ns` more was sent at `now_ns`.
#[inline(always)]
pub const fn pressed(word: u64, now_ns: u64, relax: Rate, charge_ns: u32) -> u64 {
    let now_us = (now_ns >> 10) as u32;
    let age = now_us.wrapping_sub((word >> 32) as u32);
    let left = relax.after_us(word as u32, age);
    left.saturating_add(charge_ns) as u64 | (now_us as u64) << 32
}

/// The share of one of `workers` workers.
#[inline(always)]
pub const fn share(ns: u32, workers: u32) -> u32 {
    if workers > 1 { ns / workers } else { ns }
}

/// The load of this node where the packet would be queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// Work ahead of the packet at its worker, ns.
    pub backlog_ns: u32,
    /// Packets ahead of it, waiting or in service, thousandths.
    pub queued_milli: u32,
    /// Which part of the backlog runs before a packet.
    pub behind: Behind,
}

impl Here {
    /// This load at `now_ns`, as a frame carries it to a node of whose work `received` has arrived.
    #[inline(always)]
    pub const fn carried(&self, received: Received, now_ns: u64) -> Carried {
        Carried {
            stamp_us: (now_ns >> 10) as u32,
            backlog_ns: self.backlog_ns,
            received_ns: received.position_ns,
            received_epoch: received.epoch as u16,
            queued: Carried::queued_of(self.queued_milli),
        }
    }
}

/// What a worker was charged, has done and is doing. All values are of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Work charged so far, ns (wrapping at 2^64).
    pub charged_ns: u64,
    /// Work discharged so far, ns.
    pub discharged_ns: u64,
    /// Packets charged so far.
    pub charged_packets: u64,
    /// Packets discharged so far.
    pub discharged_packets: u64,
    /// When the packet in service began, ns of the monotonic clock; 0 when none is.
    pub serving_since_ns: u64,
    /// What the packet in service was charged, ns.
    pub serving_charge_ns: u32,
    /// Which part of what waits lies behind a packet of each band.
    pub behind: Behind,
}

impl WorkerLoad {
    /// Reads a [`WorkerRow`] by `word`, which returns the word at an offset.
    ///
    /// Discharges are read before charges: a packet that comes and goes meanwhile then counts as waiting for a moment. The
    /// other way round it would count as negative work.
    #[inline(always)]
    pub fn read(word: impl Fn(usize) -> u64) -> Self {
        let (discharged_ns, discharged_packets) =
            (word(offset_of!(WorkerRow, discharged_ns)), word(offset_of!(WorkerRow, discharged_packets)));
        let (serving_since_ns, serving_charge_ns) =
            (word(offset_of!(WorkerRow, serving_since_ns)), word(offset_of!(WorkerRow, serving_charge_ns)));
        Self {
            discharged_ns,
            discharged_packets,
            serving_since_ns,
            serving_charge_ns: serving_charge_ns as u32,
            behind: Behind(word(offset_of!(WorkerRow, behind))),
            charged_ns: word(offset_of!(WorkerRow, charged_ns)),
            charged_packets: word(offset_of!(WorkerRow, charged_packets)),
        }
    }

    /// What waits at the worker at `now_ns`: charged and not discharged, less what the packet in service has had.
    #[inline(always)]
    pub fn here(&self, now_ns: u64) -> Here {
        let waiting = self.charged_ns.wrapping_sub(self.discharged_ns);
        let packets = self.charged_packets.wrapping_sub(self.discharged_packets);
        // Charges and discharges are read one after the other; a discharge seen early is no work.
        let mut waiting = if waiting >= 1 << 63 { 0 } else { waiting };
        let packets = if packets >= 1 << 63 { 0 } else { packets };
        if self.serving_since_ns != 0 && now_ns > self.serving_since_ns {
            let served = now_ns - self.serving_since_ns;
            let charge = u64::from(self.serving_charge_ns);
            let served = if served > charge { charge } else { served };
            waiting = waiting.saturating_sub(served);
        }
        Here { backlog_ns: saturate(waiting), queued_milli: saturate(packets.wrapping_mul(1000)), behind: self.behind }
    }
}

/// `value`, or the largest `u32` when it is larger.
#[inline(always)]
pub const fn saturate(value: u64) -> u32 {
    if value > u32::MAX as u64 { u32::MAX } else { value as u32 }
}

/// The load of every node, as a decision sees it.
pub trait LoadView {
    /// A peer's row.
    type Row: Row;

    /// The load at the worker that would take the packet here.
    fn here(&self) -> Here;

    /// Number of peers, candidates or not. Positions from 0 to below this are what [`LoadView::visit`] takes.
    fn peers(&self) -> u32;

    /// The row of `node`, if there is one.
    fn row(&self, node: u16) -> Option<Self::Row>;

    /// Shows `count` peers to `visitor`, candidates or not, beginning at position `start` and `stride` further each time
    /// (all modulo the number of peers). `start` and `stride` are below that number, or 0 and 1.
    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V);

    /// What is known of the cluster as a whole.
    fn signals(&self) -> Signals;

    /// What forwarding costs.
    fn forwarding(&self) -> Forwarding;

    /// Where the plan of a placing policy puts `slot`: a node, [`crate::plan::HERE`] or [`crate::plan::NOWHERE`].
    fn slot(&self, slot: u32) -> u16;

    /// Counts `ns` of work that named `slot`.
    fn charge_slot(&self, slot: u32, ns: u32);

    /// A number that grows by one with every call, of this ingress (wrapping).
    fn turn(&self) -> u32;
}

/// What a policy does with each node.
pub trait Visit {
    /// Sees the row of `node`.
    fn node<R: Row>(&mut self, node: u16, row: &R);
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;

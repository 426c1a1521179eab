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

use crate::wire::link::{Header, Report};

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

/// What a report changes in the row of the node that sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowUpdate {
    /// Reported backlog, ns.
    pub backlog_ns: u32,
    /// Position of our work that the report includes, ns.
    pub acked_ns: u32,
    /// Frames of ours that the report includes.
    pub acked_frames: u32,
    /// Until when the report is good, ns of this node's monotonic clock.
    pub valid_until_ns: u64,
}

/// What `report` says about its sender, seen from this node.
///
/// `own_epoch` is this node's boot; `sent_ns` and `sent_frames` are what it has sent to the reporting node. A report
/// that does not know this boot acknowledges nothing we could subtract, and nothing sent before it can still be waiting
/// there under our account: in flight is then zero.
#[inline(always)]
pub fn take_report(report: &Report, own_epoch: u32, sent_ns: u32, sent_frames: u32, now_ns: u64) -> RowUpdate {
    let known = report.received_epoch == own_epoch;
    // No node may promise to be silent for longer than a configuration can say.
    let interval_us = if report.interval_us > MAX_INTERVAL_US { MAX_INTERVAL_US } else { report.interval_us };
    RowUpdate {
        backlog_ns: report.backlog_ns,
        acked_ns: if known { report.received_ns } else { sent_ns },
        acked_frames: if known { report.received_frames } else { sent_frames },
        valid_until_ns: now_ns + STALE_AFTER_INTERVALS * 1000 * u64::from(interval_us),
    }
}

/// The account of a peer after one of its frames; see [`Received::advance`].
#[inline(always)]
pub fn take_position(received: Received, header: &Header) -> Option<Received> {
    received.advance(header.epoch, header.position_ns)
}

/// The load of a remote node, as this node sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Backlog it reported, mean over its workers, ns.
    pub backlog_ns: u32,
    /// Position of our work that the report includes, ns.
    pub acked_ns: u32,
    /// Position of the work we have sent there, ns.
    pub sent_ns: u32,
    /// Packets waiting or in service at one of its workers, thousandths.
    pub queued_milli: u32,
    /// Its workers; at least 1.
    pub workers: u16,
    /// Until when the report is good, ns of this node's monotonic clock; 0 when there was none.
    pub valid_until_ns: u64,
}

impl Load {
    /// True when a packet may be sent there at `now_ns`.
    #[inline(always)]
    pub fn is_candidate(&self, now_ns: u64) -> bool {
        now_ns < self.valid_until_ns
    }

    /// Work sent there that its last report does not include, ns.
    #[inline(always)]
    pub fn in_flight_ns(&self) -> u32 {
        let ahead = self.sent_ns.wrapping_sub(self.acked_ns);
        // The words are not read at one instant: an acknowledgement seen before the send it covers is no work in flight.
        if ahead >= 1 << 31 { 0 } else { ahead }
    }

    /// Estimated remote load: the wait a packet sent now should expect at one of the node's workers, ns (saturating).
    #[inline(always)]
    pub fn erl_ns(&self) -> u64 {
        let in_flight = self.in_flight_ns();
        let share = if self.workers > 1 { in_flight / u32::from(self.workers) } else { in_flight };
        u64::from(self.backlog_ns) + u64::from(share)
    }
}

/// The load of this node where the packet would be queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Here {
    /// Work ahead of the packet at its worker, ns.
    pub backlog_ns: u32,
    /// Packets ahead of it, waiting or in service, thousandths.
    pub queued_milli: u32,
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
}

impl WorkerLoad {
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
        Here { backlog_ns: saturate(waiting), queued_milli: saturate(packets.wrapping_mul(1000)) }
    }
}

/// `value`, or the largest `u32` when it is larger.
#[inline(always)]
pub fn saturate(value: u64) -> u32 {
    if value > u64::from(u32::MAX) { u32::MAX } else { value as u32 }
}

/// The load of every node, read by value.
pub trait LoadView {
    /// The load at the worker that would take the packet here.
    fn here(&self) -> Here;

    /// Shows every remote node's row to `visitor`, candidates or not, beginning with row `start` (modulo the number of
    /// rows) and going round once, so that ties do not always fall on the same node.
    fn visit<V: Visit>(&self, start: u32, visitor: &mut V);
}

/// What a policy does with each node.
pub trait Visit {
    /// Sees the load of `node`.
    fn node(&mut self, node: u16, load: &Load);
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;

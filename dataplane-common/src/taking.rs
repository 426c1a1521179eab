//! What a frame of a peer changes in the rows of the load table, whoever takes it: the XDP program, or a worker that reads
//! kernel sockets.
//!
//! A row is written by one taker at a time, word by word; readers see whole words ([`crate::maps`]).

use core::mem::offset_of;

use crate::decay::Rate;
use crate::feedback;
use crate::load::{self, Erl, LoadStamp, Received, ReportStamp, Row, Word, saturate};
use crate::maps::{LoadRow, Params, SignalsRow, pair};
use crate::policy::{Needs, needing};
use crate::wire::link::{FLAG_DIRECT, Header, Kind, Report};

/// The aligned 8-byte words of a row that others read, and some add to, at the same time.
pub trait Cells {
    /// The word at an offset.
    fn get(&self, offset: usize) -> u64;

    /// Writes the word at an offset.
    fn set(&self, offset: usize, word: u64);

    /// Adds to the word at an offset, atomically.
    fn add(&self, offset: usize, amount: u64);
}

/// Cells of a load row, read as decisions read it.
struct Read<'a, C>(&'a C);

impl<C: Cells> Row for Read<'_, C> {
    #[inline(always)]
    fn word(&self, word: Word) -> u64 {
        self.0.get(word as usize)
    }
}

/// Policies that predict loads.
const PREDICTING: u64 = needing(Needs::PREDICTION);
/// Policies that learn from results.
const LEARNING: u64 = needing(Needs::RESULTS);

/// How fast a load forgets a report.
#[inline(always)]
fn relaxation<S: Cells>(signals: &S) -> Rate {
    Rate::from_word((signals.get(offset_of!(SignalsRow, price_q16)) >> 32) as u32)
}

/// Takes the position that a frame of the row's node carries, and counts the frame when it brought work.
#[inline(always)]
pub fn position<C: Cells>(row: &C, header: &Header, frames: u64) {
    const RECEIVED: usize = offset_of!(LoadRow, received_ns);
    const SEQUENCE: usize = offset_of!(LoadRow, received_sequence);
    let before = Received::from_word(row.get(RECEIVED));
    if let Some(after) = load::take_position(before, header) {
        if after.epoch != before.epoch {
            row.set(offset_of!(LoadRow, received_frames), 0);
            row.set(SEQUENCE, 0);
        }
        row.set(RECEIVED, after.to_word());
    }
    // A late frame of a boot that is over belongs to an account that is closed.
    if frames > 0 && Received::from_word(row.get(RECEIVED)).epoch == header.epoch {
        row.add(offset_of!(LoadRow, received_frames), frames);
        if load::newer(header.sequence, row.get(SEQUENCE) as u32) {
            row.set(SEQUENCE, pair(header.sequence, 0));
        }
    }
}

/// Learns from a genuine report whose sender does not know this boot of the receiver's that the sender has started anew, and
/// nothing else: it may have been recorded.
#[inline(always)]
pub fn learn_boot<C: Cells>(row: &C, header: &Header) {
    if Received::from_word(row.get(offset_of!(LoadRow, received_ns))).epoch != header.epoch {
        position(row, header, 0);
    }
}

/// Begins the account of a boot with the first frame that is known to be no recorded one: what [`learn_boot`] has taken for its
/// position may have been. A result has none.
#[inline(always)]
pub fn begin_boot<C: Cells>(row: &C, header: &Header) {
    if header.kind as u32 == Kind::Result as u32 {
        return;
    }
    row.set(offset_of!(LoadRow, received_frames), 0);
    row.set(offset_of!(LoadRow, received_sequence), 0);
    let begun = Received { position_ns: header.position_ns, epoch: header.epoch };
    row.set(offset_of!(LoadRow, received_ns), begun.to_word());
}

/// Takes the load that a frame carries into its sender's row; false when the row has a newer one.
#[inline(always)]
fn load<C: Cells, S: Cells>(params: &Params, row: &C, signals: &S, header: &Header, now_ns: u64) -> bool {
    const STAMP: usize = offset_of!(LoadRow, stamp_us);
    const QUEUE: usize = offset_of!(LoadRow, queued_milli);
    if !LoadStamp::from_word(row.get(STAMP)).precedes(header.epoch, header.load.stamp_us) {
        return false;
    }
    row.set(STAMP, LoadStamp { stamp_us: header.load.stamp_us, epoch: header.epoch }.to_word());
    let read = Read(row);
    let (sent_ns, sent_frames) = (read.word(Word::SentNs) as u32, read.word(Word::SentFrames) as u32);
    let predicting = params.policies & PREDICTING != 0;
    let predicted =
        if predicting { read.predicted_ns(now_ns, relaxation(signals), params.tuning.gain_milli) } else { 0 };
    let acked_ns = load::acked_ns(&header.load, params.epoch, sent_ns);
    row.set(offset_of!(LoadRow, backlog_ns), pair(header.load.backlog_ns, acked_ns));
    row.set(QUEUE, pair(header.load.queued_milli(), (row.get(QUEUE) >> 32) as u32));
    row.set(offset_of!(LoadRow, reported_at_ns), now_ns);
    row.set(offset_of!(LoadRow, marked_ns), pair(sent_ns, sent_frames));
    if predicting {
        row.set(offset_of!(LoadRow, pressure_ns), pair(read.in_flight_ns(), (now_ns >> 10) as u32));
        let found = saturate(read.erl_ns(Erl::Ack, now_ns));
        let deviation = signals.get(offset_of!(SignalsRow, deviation_ns)) as u32;
        let median = feedback::median(deviation, predicted.abs_diff(found));
        signals.set(offset_of!(SignalsRow, deviation_ns), pair(median, 0));
    }
    true
}

/// Takes the load that a forward or a result carries; tells whether it was news.
#[inline(always)]
pub fn piggyback<C: Cells, S: Cells>(params: &Params, row: &C, signals: &S, header: &Header, now_ns: u64) -> bool {
    if params.piggyback == 0 || !load(params, row, signals, header, now_ns) {
        return false;
    }
    row.add(offset_of!(LoadRow, piggybacked), 1);
    true
}

/// Takes a report into its sender's row; false when it is older than the last one.
#[inline(always)]
pub fn report<C: Cells, S: Cells>(
    params: &Params,
    row: &C,
    signals: &S,
    (header, report): (&Header, &Report),
    now_ns: u64,
) -> bool {
    const STAMP: usize = offset_of!(LoadRow, report_seq);
    const QUEUE: usize = offset_of!(LoadRow, queued_milli);
    const MEAN: usize = offset_of!(LoadRow, mean_backlog_ns);
    const ACKED: usize = offset_of!(LoadRow, acked_frames);
    if !ReportStamp::from_word(row.get(STAMP)).precedes(header.epoch, header.sequence) {
        return false;
    }
    row.set(STAMP, ReportStamp { sequence: header.sequence, epoch: header.epoch }.to_word());
    load(params, row, signals, header, now_ns);
    let busy = u32::from(report.workers) | u32::from(report.busy_milli) << 16;
    row.set(QUEUE, pair(row.get(QUEUE) as u32, busy));
    let speed = (row.get(MEAN) >> 32) as u16;
    row.set(MEAN, pair(report.mean_backlog_ns, u32::from(speed) | u32::from(report.memory_milli) << 16));
    row.set(offset_of!(LoadRow, behind), report.behind);
    let known = header.load.received_epoch == params.epoch as u16;
    let acked = if known { report.received_frames } else { Read(row).word(Word::SentFrames) as u32 };
    row.set(ACKED, pair(acked, (row.get(ACKED) >> 32) as u32));
    // A node that does not know this boot counts from a position we do not know.
    let limit = match report.limit_ns {
        Some(limit_ns) if known => pair(limit_ns, 1),
        _ => 0,
    };
    row.set(offset_of!(LoadRow, limit_ns), limit);
    row.set(offset_of!(LoadRow, valid_until_ns), now_ns + load::valid_for_ns(report.interval_us));
    row.add(offset_of!(LoadRow, reports), 1);
    true
}

/// Learns from a result that came back: how fast its node answers and computes, and what the way takes.
#[inline(always)]
pub fn result<C: Cells, S: Cells>(params: &Params, row: &C, signals: &S, header: &Header, now_ns: u64) {
    const RESPONSE: usize = offset_of!(LoadRow, response_ns);
    const PEAK: usize = offset_of!(LoadRow, peak_ns);
    const MEAN: usize = offset_of!(LoadRow, mean_backlog_ns);
    const TRANSIT: usize = offset_of!(LoadRow, transit_ns);
    row.add(offset_of!(LoadRow, completed_frames), 1);
    if header.length == 0 && header.flags & FLAG_DIRECT == 0 {
        // Nothing was computed.
        return;
    }
    let (charged_ns, served_ns) = (header.charged_ns, header.position_ns);
    let response_ns = feedback::response_ns(now_ns, header.arrival_ns);
    let known = row.get(RESPONSE);
    let service_ns = feedback::mean((known >> 32) as u32, served_ns, 3);
    row.set(RESPONSE, pair(feedback::mean(known as u32, response_ns, 3), service_ns));
    if params.policies & LEARNING != 0 {
        let (known, now_us) = (row.get(PEAK), (now_ns >> 10) as u32);
        let age_ns = u64::from(now_us.wrapping_sub((known >> 32) as u32)) << 10;
        let service_ns = (signals.get(offset_of!(SignalsRow, utilisation_milli)) >> 32) as u32;
        let forget_ns = params.tuning.peak_forget_ns(service_ns);
        row.set(PEAK, pair(feedback::peak(known as u32, response_ns, age_ns, forget_ns), now_us));
    }
    let known = row.get(MEAN);
    let speed = feedback::speed((known >> 32) as u16, charged_ns, served_ns);
    row.set(MEAN, (known & !(0xffff << 32)) | u64::from(speed) << 32);
    if header.length == 0 {
        // It says nothing about packets on their way.
        return;
    }
    let known = row.get(TRANSIT);
    let transit_ns = feedback::mean(known as u32, response_ns.saturating_sub(header.spent_ns), 6);
    row.set(TRANSIT, pair(transit_ns, feedback::mean((known >> 32) as u32, u32::from(header.length), 6)));
}

/// Notes that `charged_ns` of work goes to the row's node.
#[inline(always)]
pub fn press<C: Cells, S: Cells>(params: &Params, row: &C, signals: &S, now_ns: u64, charged_ns: u32) {
    const PRESSURE: usize = offset_of!(LoadRow, pressure_ns);
    if params.policies & PREDICTING != 0 {
        let pressed = load::pressed(row.get(PRESSURE), now_ns, relaxation(signals), charged_ns);
        row.set(PRESSURE, pressed);
    }
}

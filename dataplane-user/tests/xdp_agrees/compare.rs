//! One case: what is expected, what is found.

use std::mem::offset_of;
use std::sync::atomic::Ordering::Relaxed;

use dataplane_common::maps::{FlowRow, LoadRow, QueueRow, WorkerRow, socket_slot};
use dataplane_common::meta::Metadata;
use dataplane_common::reason::{REASONS, Reason};
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{Header, NO_FLOW, OVERHEAD_BYTES, emit_ethernet};

use dataplane_user::maps::Tables;

use crate::support::node::{Arrival, Node, Outcome};
use crate::support::words::{Place, Words};

pub const XDP_DROP: u32 = 1;
pub const XDP_PASS: u32 = 2;
pub const XDP_REDIRECT: u32 = 4;

/// The number of a packet in its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// The next one of the metadata's or header's flow.
    Next,
    /// The one that is there.
    Given,
}

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Left as it is, with this verdict.
    Left(u32),
    /// Given to the worker; position and sequence are filled in.
    Queued(Metadata, Number),
    /// Sent to a node; position and sequence are filled in.
    Forwarded { header: Header, mac: [u8; 6], source_mac: [u8; 6] },
    /// Sent out of a port.
    Returned,
}

/// What is expected of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub end: End,
    /// Counted once each.
    pub counted: Vec<Reason>,
    /// Words that change besides those that `end` implies.
    pub words: Vec<(Place, u64)>,
    /// Turns taken.
    pub turns: u64,
}

impl Expected {
    /// A frame that is left as it is.
    pub fn left(seen: Reason, verdict: u32, reason: Reason) -> Self {
        Self { end: End::Left(verdict), counted: vec![seen, reason], words: Vec::new(), turns: 0 }
    }
}

/// A case, after it has run.
pub struct Run<'a> {
    pub at: Arrival,
    pub frame: &'a [u8],
    pub outcome: Outcome,
    /// Turns that the program took.
    turns: u64,
    /// The words before.
    pub before: &'a Words,
    tables: &'a Tables,
}

impl Run<'_> {
    /// The word there, after the run.
    pub fn found(&self, place: Place) -> u64 {
        place.word(self.tables).load(Relaxed)
    }

    /// The time at which the program decided, as exactly as its output tells: to the ns when it was sent on, to 16 ns
    /// when a worker was given it, else between the times before and after. The last two are two possibilities, and sixteen where
    /// each ns matters.
    pub fn clocks(&self, matters: bool) -> Vec<u64> {
        let (from, to) = self.outcome.time;
        let sent = Header::parse(self.outcome.frame.as_slice(), ETHERNET_BYTES);
        if let Ok(header) = sent
            && self.outcome.frame.len() == self.frame.len() + OVERHEAD_BYTES
        {
            return vec![header.arrival_ns.clamp(from, to)];
        }
        let Some(record) = self.outcome.metadata.first_chunk().and_then(Metadata::parse) else { return vec![from, to] };
        let arrival_ns = record.arrival_ns(to);
        let step = if matters { 1 } else { 15 };
        (arrival_ns..arrival_ns + 16).step_by(step).map(|time| time.clamp(from, to)).collect()
    }
}

/// Runs cases on a node and keeps its accounts.
pub struct Comparison {
    /// Counters and words, as far as the cases explain them.
    counters: [u64; REASONS],
    words: Words,
    since_check: u32,
}

/// All counters and words are read after so many cases; after each case, only those that were set for it or that it
/// should have changed.
const CHECK_EVERY: u32 = 256;

impl Comparison {
    pub fn new(node: &Node<'_>) -> Self {
        node.take_written();
        Self { counters: node.count_all(), words: node.words(), since_check: 0 }
    }

    /// Runs a case, which begins with the round-robin counters at `turn`, and compares with what is expected: with one
    /// of several possibilities where the kernel knows more than we do. Returns the one that came true.
    pub fn run(
        &mut self,
        node: &mut Node<'_>,
        program: &'static str,
        (at, frame, turn): (Arrival, &[u8], u64),
        expected: impl FnOnce(&Run<'_>) -> Vec<Expected>,
    ) -> Result<Expected, String> {
        node.set_turns(turn);
        let written = node.take_written();
        for place in &written {
            self.words.set(*place, node.get(*place));
        }
        let outcome = node.run(program, at, frame);
        let turns = node.turns_since(turn);
        let run = Run { at, frame, outcome, turns, before: &self.words, tables: &node.tables };
        let mut wrong = String::new();
        let mut found = None;
        for expected in expected(&run) {
            match compare(&run, &expected, &written, &moved(&self.counters, node, &expected)) {
                Ok(words) => {
                    found = Some((expected, words));
                    break;
                }
                Err(reason) => wrong = format!("{wrong}\nnot {expected:?}: {reason}"),
            }
        }
        let Some((found, words)) = found else { return Err(format!("found {:02x?}{wrong}", run.outcome)) };
        for (place, word) in words {
            self.words.set(place, word);
        }
        for reason in &found.counted {
            self.counters[*reason as usize] += 1;
        }
        self.since_check += 1;
        if self.since_check == CHECK_EVERY { self.check_all(node) } else { Ok(()) }?;
        Ok(found)
    }

    /// Each case has shown that what it expects was counted once and written; that everything agrees shows that nothing
    /// else was.
    pub fn check_all(&mut self, node: &Node<'_>) -> Result<(), String> {
        self.since_check = 0;
        for place in node.take_written() {
            self.words.set(place, node.get(place));
        }
        let found = node.count_all();
        let moved = Reason::ALL.iter().filter(|reason| found[**reason as usize] != self.counters[**reason as usize]);
        let moved: Vec<_> = moved.map(|reason| reason.name()).collect();
        let changed = self.words.differences(&node.words());
        if moved.is_empty() && changed.is_empty() {
            return Ok(());
        }
        Err(format!(
            "one of the last {CHECK_EVERY} cases also moved {moved:?} and changed (before, after) {changed:x?}"
        ))
    }
}

/// By how much the counters have moved that should have, by one each.
fn moved(counters: &[u64; REASONS], node: &Node<'_>, expected: &Expected) -> Vec<(Reason, u64)> {
    let by = |reason: &Reason| (*reason, node.counter(*reason).wrapping_sub(counters[*reason as usize]));
    expected.counted.iter().map(by).collect()
}

/// Compares a run with what is expected of it. Returns the words that it has changed.
fn compare(
    run: &Run<'_>,
    expected: &Expected,
    written: &[Place],
    moved: &[(Reason, u64)],
) -> Result<Vec<(Place, u64)>, String> {
    let (mut verdict, mut out, mut metadata) = (XDP_REDIRECT, run.frame.to_vec(), Vec::new());
    let mut words = expected.words.clone();
    let mut add = |place, amount: u64| {
        let word = run.before.get(place).wrapping_add(amount);
        words.push((place, word));
        word
    };
    let mut next = |flow| (add(Place::flow(flow, offset_of!(FlowRow, issued)), 1) as u32).wrapping_sub(1);
    match &expected.end {
        End::Left(left) => verdict = *left,
        End::Queued(record, number) => {
            let flow_sequence = match number {
                Number::Next if record.flow != NO_FLOW => next(record.flow),
                _ => record.flow_sequence,
            };
            let socket = |offset| Place::queue(socket_slot(run.at.interface, run.at.queue), offset);
            let ns = u64::from(record.charged_ns);
            let position_ns = add(socket(offset_of!(QueueRow, charged_ns)), ns);
            let sequence = add(socket(offset_of!(QueueRow, charged_packets)), 1) as u32;
            add(Place::worker(run.at.queue, offset_of!(WorkerRow, charged_ns)), ns);
            add(Place::worker(run.at.queue, offset_of!(WorkerRow, charged_packets)), 1);
            metadata = Metadata { position_ns, sequence, flow_sequence, ..*record }.emit().to_vec();
        }
        End::Forwarded { header, mac, source_mac } => {
            let flow_sequence = if header.flow == NO_FLOW { 0 } else { next(header.flow) };
            let row = |offset| Place::load(header.destination, offset);
            let position_ns = add(row(offset_of!(LoadRow, sent_ns)), header.charged_ns.into()) as u32;
            let sequence = add(row(offset_of!(LoadRow, sent_frames)), 1) as u32;
            let header = Header { position_ns, sequence, flow_sequence, ..*header };
            out = [&emit_ethernet(*mac, *source_mac)[..], &header.emit(), run.frame].concat();
        }
        End::Returned => out = run.frame[OVERHEAD_BYTES..].to_vec(),
    }
    if run.outcome.verdict != verdict || run.outcome.frame != out || run.outcome.metadata != metadata {
        return Err(format!("verdict {verdict}, metadata {metadata:02x?}, frame {out:02x?}"));
    }
    if moved.iter().any(|(_, by)| *by != 1) || run.turns != expected.turns {
        return Err(format!("counters moved by {moved:?}, {} turns", run.turns));
    }
    let unexplained = unexplained(run, &words, written);
    if unexplained.is_empty() { Ok(words) } else { Err(format!("words (expected, found): {unexplained:x?}")) }
}

/// Words that are not what they should be, of those that were written before the run or should have changed: where,
/// what they should be, what they are. Of several entries for one place the last one counts.
fn unexplained(run: &Run<'_>, expected: &[(Place, u64)], written: &[Place]) -> Vec<(Place, u64, u64)> {
    let should_be = |place: Place| {
        let entry = expected.iter().rev().find(|(at, _)| *at == place);
        entry.map_or_else(|| run.before.get(place), |(_, word)| *word)
    };
    let places = written.iter().copied().chain(expected.iter().map(|(place, _)| *place));
    let words = places.map(|place| (place, should_be(place), run.found(place)));
    words.filter(|(_, expected, found)| expected != found).collect()
}

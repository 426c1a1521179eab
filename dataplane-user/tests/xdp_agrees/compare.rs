//! One case: what is expected, what is found.

use std::mem::offset_of;

use dataplane_common::maps::{LoadRow, QueueRow, WorkerRow, socket_slot};
use dataplane_common::meta::{METADATA_BYTES, Metadata, Origin};
use dataplane_common::reason::{REASONS, Reason};
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{Header, OVERHEAD_BYTES, emit_ethernet};

use crate::support::node::{Arrival, Node, Outcome, Place, Words};

pub const XDP_DROP: u32 = 1;
pub const XDP_PASS: u32 = 2;
pub const XDP_REDIRECT: u32 = 4;

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Left as it is, with this verdict.
    Left(u32),
    /// Given to the worker; position, sequence and arrival are filled in.
    Queued { function: u16, charged_ns: u32, origin: Origin },
    /// Sent to a node; position, sequence and arrival are filled in.
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
    /// Words that hold the time of the run, plus this.
    pub times: Vec<(Place, u64)>,
}

impl Expected {
    /// A frame that is left as it is.
    pub fn left(seen: Reason, verdict: u32, reason: Reason) -> Self {
        Self { end: End::Left(verdict), counted: vec![seen, reason], words: Vec::new(), times: Vec::new() }
    }
}

/// Runs cases on a node and keeps its accounts.
pub struct Comparison {
    /// Counters, as far as the cases explain them.
    counters: [u64; REASONS],
    since_check: u32,
}

/// All counters are read after so many cases; after each case, only those it should have moved.
const CHECK_EVERY: u32 = 256;

impl Comparison {
    pub fn new(node: &Node<'_>) -> Self {
        Self { counters: node.count_all(), since_check: 0 }
    }

    /// Runs one case and compares with what is possible. Returns which possibility came true.
    pub fn run(
        &mut self,
        node: &mut Node<'_>,
        program: &'static str,
        at: Arrival,
        frame: &[u8],
        possible: &[Expected],
    ) -> Result<usize, String> {
        let before = node.words();
        let outcome = node.run(program, at, frame);
        let after = node.words();
        let moved = self.moved(node, possible);
        let matches = |expected: &Expected| {
            let counted = moved.iter().all(|(reason, by)| *by == u64::from(expected.counted.contains(reason)));
            counted && has_end(&outcome, frame, &expected.end)
        };
        let Some(chosen) = possible.iter().position(matches) else {
            return Err(format!("found {outcome:02x?}\ncounters moved by {moved:?}"));
        };
        compare(node, at, frame, &outcome, &possible[chosen], before, &after)?;
        for (reason, by) in moved {
            self.counters[reason as usize] += by;
        }
        self.since_check += 1;
        if self.since_check == CHECK_EVERY { self.check_all(node) } else { Ok(()) }?;
        Ok(chosen)
    }

    /// By how much the counters have moved that some possibility moves.
    fn moved(&self, node: &Node<'_>, possible: &[Expected]) -> Vec<(Reason, u64)> {
        let mut moved: Vec<(Reason, u64)> = Vec::new();
        for reason in possible.iter().flat_map(|expected| &expected.counted) {
            if moved.iter().all(|(known, _)| known != reason) {
                moved.push((*reason, node.counter(*reason).wrapping_sub(self.counters[*reason as usize])));
            }
        }
        moved
    }

    /// Each case has shown that what it expects was counted once; that the sums agree shows that nothing else was.
    pub fn check_all(&mut self, node: &Node<'_>) -> Result<(), String> {
        self.since_check = 0;
        let found = node.count_all();
        let moved = Reason::ALL.iter().filter(|reason| found[**reason as usize] != self.counters[**reason as usize]);
        let moved: Vec<_> = moved.map(|reason| reason.name()).collect();
        if moved.is_empty() { Ok(()) } else { Err(format!("one of the last {CHECK_EVERY} cases also moved {moved:?}")) }
    }
}

/// Whether the outcome is of that kind, so that the rest can be compared.
fn has_end(outcome: &Outcome, frame: &[u8], end: &End) -> bool {
    let longer = outcome.frame.len() == frame.len() + OVERHEAD_BYTES;
    match end {
        End::Left(verdict) => outcome.verdict == *verdict,
        End::Queued { .. } => outcome.verdict == XDP_REDIRECT && outcome.metadata.len() == METADATA_BYTES,
        End::Forwarded { header, .. } => {
            let destination = Header::parse(outcome.frame.as_slice(), ETHERNET_BYTES).map(|header| header.destination);
            outcome.verdict == XDP_REDIRECT && longer && destination == Ok(header.destination)
        }
        End::Returned => outcome.verdict == XDP_REDIRECT && outcome.frame.len() + OVERHEAD_BYTES == frame.len(),
    }
}

fn compare(
    node: &Node<'_>,
    at: Arrival,
    frame: &[u8],
    outcome: &Outcome,
    expected: &Expected,
    mut words: Words,
    after: &Words,
) -> Result<(), String> {
    let clock = outcome.time.0..=outcome.time.1;
    let (mut out, mut metadata) = (frame.to_vec(), Vec::new());
    match &expected.end {
        End::Left(_) => {}
        End::Queued { function, charged_ns, origin } => {
            let socket = |offset| Place::Queue(socket_slot(at.interface, at.queue), offset);
            let position = words.add(socket(offset_of!(QueueRow, charged_ns)), (*charged_ns).into());
            let sequence = words.add(socket(offset_of!(QueueRow, charged_packets)), 1);
            words.add(Place::Worker(at.queue, offset_of!(WorkerRow, charged_ns)), (*charged_ns).into());
            words.add(Place::Worker(at.queue, offset_of!(WorkerRow, charged_packets)), 1);
            let found = outcome.metadata.first_chunk().and_then(Metadata::parse).ok_or("no metadata")?;
            let record = Metadata {
                function: *function,
                charged_ns: *charged_ns,
                arrival_ns: if clock.contains(&found.arrival_ns) { found.arrival_ns } else { outcome.time.0 },
                position_ns: position as _,
                sequence: sequence as _,
                origin: *origin,
                policy: node.params.policy as u8,
            };
            metadata = record.emit().to_vec();
        }
        End::Forwarded { header, mac, source_mac } => {
            let row = |offset| Place::load(header.destination, offset);
            let position = words.add(row(offset_of!(LoadRow, sent_ns)), header.charged_ns.into());
            let sequence = words.add(row(offset_of!(LoadRow, sent_frames)), 1);
            let found =
                Header::parse(outcome.frame.as_slice(), ETHERNET_BYTES).map_err(|reason| format!("{reason:?}"))?;
            let header = Header {
                position_ns: position as u32,
                sequence: sequence as u32,
                arrival_ns: if clock.contains(&found.arrival_ns) { found.arrival_ns } else { outcome.time.0 },
                ..*header
            };
            out = [&emit_ethernet(*mac, *source_mac)[..], &header.emit(), frame].concat();
        }
        End::Returned => out = frame[OVERHEAD_BYTES..].to_vec(),
    }
    if outcome.frame != out || outcome.metadata != metadata {
        return Err(format!("found {outcome:02x?}\nexpected metadata {metadata:02x?}, frame {out:02x?}"));
    }
    for (place, word) in &expected.words {
        words.set(*place, *word);
    }
    for (place, add) in &expected.times {
        let found = after.get(*place);
        let is_now = clock.contains(&found.wrapping_sub(*add));
        words.set(*place, if is_now { found } else { outcome.time.0 + add });
    }
    let differences = words.differences(after);
    if differences.is_empty() { Ok(()) } else { Err(format!("words (expected, found): {differences:x?}")) }
}

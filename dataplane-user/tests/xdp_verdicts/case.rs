//! What a case is, the node it runs on, and how it is checked.

use std::fmt::{Debug, Write};
use std::mem::offset_of;

use dataplane_common::maps::{FunctionRow, LoadRow, PEER_PRESENT, Params, PeerRow, QueueRow, WorkerRow, socket_slot};
use dataplane_common::meta::{Metadata, Origin};
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::Reason;

use crate::support::frames::{Interconnect, OVERHEAD};
use crate::support::node::{Arrival, LINK, Node, Outcome, PORT, Place, Site, Words};

pub const XDP_DROP: u32 = 1;
pub const XDP_PASS: u32 = 2;
pub const XDP_REDIRECT: u32 = 4;

/// This node, its boot, and its peers. `ABSENT` has a load row but is no peer.
pub const NODE: u16 = 2;
pub const EPOCH: u32 = 77;
pub const NEAR: u16 = 1;
pub const FAR: u16 = 3;
pub const ABSENT: u16 = 5;
const NODES: u16 = 8;

/// Functions of the node, by index: 1000 ns and 1 ns a byte; 2 ns times operand and byte; 1 ns times operand.
pub const BYTES: u16 = 0xff01;
pub const ROUNDS: u16 = 0xff03;
pub const TIMED: u16 = 0xff05;
pub const LIMIT_NS: u32 = 1_000_000;

/// What forwarding costs besides 1 ns a byte: send, receive and wire.
pub const SEND_NS: u32 = 2_000;
pub const RECEIVE_NS: u32 = 3_000;
pub const WIRE_NS: u32 = 10_000;
pub const MARGIN_NS: u32 = 500;
/// Longest frame that the link carries.
pub const MAX_FRAME: usize = 1514;

pub fn peer(node: u16) -> PeerRow {
    PeerRow {
        mac: [2, 0, 0, 0, 1, node as u8],
        flags: PEER_PRESENT,
        source_mac: [2, 0, 0, 0, 9, 9],
        max_frame: MAX_FRAME as u16,
    }
}

pub fn params(policy: PolicyKind) -> Params {
    Params {
        policy: policy as u32,
        node: NODE,
        nodes: NODES,
        epoch: EPOCH,
        send_ns: SEND_NS,
        receive_ns: RECEIVE_NS,
        wire_ns: WIRE_NS,
        wire_ns_per_byte_q16: 1 << 16,
        margin_ns: MARGIN_NS,
        ..Params::DEFAULT
    }
}

/// Gives a node the functions and peers above.
pub fn furnish(node: &mut Node<'_>) {
    let functions = [(BYTES, 1000, 1 << 16, 0), (ROUNDS, 0, 2 << 16, 2), (TIMED, 0, 1 << 16, 1)];
    for (index, (type_id, a_ns, b_q16, units)) in (0..).zip(functions) {
        let row = FunctionRow {
            a_ns,
            b_q16,
            declared_a_ns: a_ns,
            declared_b_q16: b_q16,
            limit_ns: LIMIT_NS,
            units,
            type_id: type_id.into(),
            ..Default::default()
        };
        node.set_function(index, row);
    }
    for id in [NEAR, FAR] {
        node.set_peer(id, peer(id));
    }
    node.set_peer(ABSENT, PeerRow { flags: 0, ..peer(ABSENT) });
}

/// A node with the functions and peers above and a socket on every queue.
pub fn node(site: &Site, policy: PolicyKind) -> Node<'_> {
    let mut node = site.node(params(policy));
    furnish(&mut node);
    node
}

/// What becomes of a frame.
#[derive(Clone, Debug)]
enum End {
    /// Left as it is, with this verdict.
    Left(u32),
    /// Given to the worker of its queue.
    Queued { function: u16, charged_ns: u32, from_peer: bool },
    /// Sent to a node; `arrival_ns`, position and sequence of the header are checked against clock and table.
    Forwarded(Interconnect),
    /// Sent out of a port, without the interconnect header.
    Returned,
}

/// What becomes of a word.
#[derive(Clone, Copy, Debug)]
enum Change {
    To(u64),
    /// The time of the run, plus this.
    Time(u64),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Case {
    name: String,
    program: &'static str,
    at: Arrival,
    frame: Vec<u8>,
    given: Vec<(Place, u64)>,
    counted: Vec<Reason>,
    end: End,
    changes: Vec<(Place, Change)>,
}

impl Case {
    fn new(name: &str, program: &'static str, interface: u32, counted: Vec<Reason>, frame: Vec<u8>) -> Self {
        let at = Arrival { interface, queue: 0, metadata: 0 };
        let (name, end) = (name.to_owned(), End::Left(XDP_PASS));
        Self { name, program, at, frame, given: Vec::new(), counted, end, changes: Vec::new() }
    }

    /// A frame from outside.
    pub fn port(name: &str, frame: Vec<u8>) -> Self {
        Self::new(name, "dp_ingress", PORT, vec![Reason::SeenPort], frame)
    }

    /// A frame from a peer.
    pub fn link(name: &str, frame: Vec<u8>) -> Self {
        Self::new(name, "dp_link", LINK, vec![Reason::SeenLink], frame)
    }

    /// A frame for a program that counts nothing.
    pub fn uncounted(name: &str, program: &'static str, frame: Vec<u8>) -> Self {
        Self::new(name, program, PORT, Vec::new(), frame)
    }

    /// On this interface.
    pub fn on(mut self, interface: u32) -> Self {
        self.at.interface = interface;
        self
    }

    /// On this queue.
    pub fn queue(mut self, queue: u32) -> Self {
        self.at.queue = queue;
        self
    }

    /// With metadata of somebody else's.
    pub fn metadata(mut self, bytes: usize) -> Self {
        self.at.metadata = bytes;
        self
    }

    /// With a word set before.
    pub fn given(mut self, place: Place, word: u64) -> Self {
        self.given.push((place, word));
        self
    }

    /// With a worker that has been charged this much, of this many packets, and done nothing.
    pub fn backlog(self, worker: u32, ns: u64, packets: u64) -> Self {
        self.given(Place::Worker(worker, offset_of!(WorkerRow, charged_ns)), ns)
            .given(Place::Worker(worker, offset_of!(WorkerRow, charged_packets)), packets)
    }

    /// With a fresh report of a node: backlog, and packets in its run queue.
    pub fn load(self, node: u16, backlog_ns: u32, packets: u32) -> Self {
        self.given(Place::load(node, offset_of!(LoadRow, backlog_ns)), backlog_ns.into())
            .given(Place::load(node, offset_of!(LoadRow, queued_milli)), u64::from(packets * 1000) | 1 << 32)
            .given(Place::load(node, offset_of!(LoadRow, valid_until_ns)), u64::MAX)
    }

    /// Also counted.
    pub fn noting(mut self, reason: Reason) -> Self {
        self.counted.push(reason);
        self
    }

    /// Also changed.
    pub fn changes(mut self, place: Place, word: u64) -> Self {
        self.changes.push((place, Change::To(word)));
        self
    }

    /// Also set to the time of the run plus `after`.
    pub fn times(mut self, place: Place, after: u64) -> Self {
        self.changes.push((place, Change::Time(after)));
        self
    }

    fn ends(mut self, end: End) -> Self {
        self.end = end;
        self
    }

    /// Left to the kernel stack.
    pub fn passes(self, reason: Reason) -> Self {
        self.noting(reason).ends(End::Left(XDP_PASS))
    }

    /// Left to the kernel stack, and not counted.
    pub fn passes_uncounted(self) -> Self {
        self.ends(End::Left(XDP_PASS))
    }

    /// Dropped.
    pub fn drops(self, reason: Reason) -> Self {
        self.noting(reason).ends(End::Left(XDP_DROP))
    }

    /// Given to the worker, which is charged.
    pub fn stays(self, function: u16, charged_ns: u32) -> Self {
        let from_peer = self.program == "dp_link";
        let counted = if from_peer { Reason::ForwardQueued } else { Reason::LocalQueued };
        self.noting(counted).ends(End::Queued { function, charged_ns, from_peer })
    }

    /// Given to the worker without charge or count.
    pub fn sinks(self) -> Self {
        self.ends(End::Queued { function: 0, charged_ns: 0, from_peer: false })
    }

    /// Sent to a node.
    pub fn goes_to(self, to: u16, type_id: u16, charged_ns: u32) -> Self {
        let row = peer(to);
        let header = Interconnect {
            mac: [row.mac, row.source_mac],
            version: 1,
            kind: 1,
            hops: 1,
            source: NODE,
            destination: to,
            epoch: EPOCH,
            sequence: 0,
            charged_ns,
            position_ns: 0,
            type_id,
            port: self.at.interface as u16,
            arrival_ns: 0,
        };
        self.noting(Reason::Redirected).ends(End::Forwarded(header))
    }

    /// Sent out of a port, as a result.
    pub fn returns(self) -> Self {
        self.noting(Reason::ResultReturned).ends(End::Returned)
    }
}

/// Runs every case on the node, each from cleared tables, and reports all that fail.
pub fn check(node: &mut Node<'_>, cases: &[Case]) {
    assert!(!cases.is_empty());
    let failures: Vec<String> = cases.iter().filter_map(|case| check_one(node, case).err()).collect();
    assert!(failures.is_empty(), "{} of {} cases fail\n\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn check_one(node: &mut Node<'_>, case: &Case) -> Result<(), String> {
    node.clear();
    for (place, word) in &case.given {
        node.set(*place, *word);
    }
    let (mut words, mut counters) = (node.words(), node.count_all());
    let outcome = node.run(case.program, case.at, &case.frame);
    let mut wrong = String::new();
    for reason in &case.counted {
        counters[*reason as usize] += 1;
    }
    check_end(case, node.params.policy as u8, &outcome, &mut words, &mut wrong);
    let after = node.words();
    for (place, change) in &case.changes {
        let word = after.get(*place);
        match *change {
            Change::To(word) => words.set(*place, word),
            Change::Time(add) if (outcome.time.0 + add..=outcome.time.1 + add).contains(&word) => {
                words.set(*place, word)
            }
            Change::Time(add) => words.set(*place, outcome.time.1 + add),
        }
    }
    for (place, expected, found) in words.differences(&after) {
        let _ = writeln!(wrong, "  {place:?} is {found} = {found:#x}, expected {expected} = {expected:#x}");
    }
    for (reason, (found, expected)) in Reason::ALL.iter().zip(node.count_all().iter().zip(counters)) {
        if *found != expected {
            let _ = writeln!(wrong, "  counter {} is off by {}", reason.name(), found.wrapping_sub(expected) as i64);
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("{} ({} bytes):\n{wrong}", case.name, case.frame.len())) }
}

/// Checks verdict, frame and metadata; enters into `words` what the end implies for the tables.
fn check_end(case: &Case, policy: u8, outcome: &Outcome, words: &mut Words, wrong: &mut String) {
    let mut expect = |what: &str, good: bool, found: &dyn Debug, expected: &dyn Debug| {
        if !good {
            let _ = writeln!(wrong, "  {what}: {found:02x?}\n  expected: {expected:02x?}");
        }
    };
    let (mut verdict, mut frame, mut metadata) = (XDP_REDIRECT, case.frame.clone(), vec![0xcd; case.at.metadata]);
    match &case.end {
        End::Left(left) => verdict = *left,
        End::Queued { function, charged_ns, from_peer } => {
            let socket = socket_slot(case.at.interface, case.at.queue);
            let ns = u64::from(*charged_ns);
            words.add(Place::Worker(case.at.queue, offset_of!(WorkerRow, charged_ns)), ns);
            words.add(Place::Worker(case.at.queue, offset_of!(WorkerRow, charged_packets)), 1);
            let position = words.add(Place::Queue(socket, offset_of!(QueueRow, charged_ns)), ns);
            let sequence = words.add(Place::Queue(socket, offset_of!(QueueRow, charged_packets)), 1);
            // What somebody else has put there may stay, but ours lies next to the frame.
            let found = outcome.metadata.last_chunk().and_then(Metadata::parse);
            let arrival_ns = found.map_or(0, |record| record.arrival_ns);
            let is_now = (outcome.time.0..=outcome.time.1).contains(&arrival_ns);
            let record = Metadata {
                function: *function,
                charged_ns: *charged_ns,
                arrival_ns: if is_now { arrival_ns } else { outcome.time.0 },
                position_ns: position as _,
                sequence: sequence as _,
                origin: if *from_peer { Origin::Peer } else { Origin::Port },
                policy: if case.program == "dp_sink" { 0 } else { policy },
            };
            metadata = record.emit().to_vec();
            if case.at.metadata > 0 && outcome.metadata.ends_with(&metadata) {
                metadata.clone_from(&outcome.metadata);
            }
        }
        End::Forwarded(header) => {
            let sent =
                words.add(Place::load(header.destination, offset_of!(LoadRow, sent_ns)), header.charged_ns.into());
            let frames = words.add(Place::load(header.destination, offset_of!(LoadRow, sent_frames)), 1);
            let arrival =
                outcome.frame.get(46..54).map_or(0, |bytes| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
            expect("arrival", (outcome.time.0..=outcome.time.1).contains(&arrival), &arrival, &outcome.time);
            let header =
                Interconnect { position_ns: sent as u32, sequence: frames as u32, arrival_ns: arrival, ..*header };
            frame = header.frame(&case.frame);
        }
        End::Returned => frame = case.frame[OVERHEAD..].to_vec(),
    }
    expect("verdict", outcome.verdict == verdict, &outcome.verdict, &verdict);
    expect("frame", outcome.frame == frame, &outcome.frame, &frame);
    expect("metadata", outcome.metadata == metadata, &outcome.metadata, &metadata);
}

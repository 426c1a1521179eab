//! What a case is, the node it runs on, and how it is checked.

use std::fmt::{Debug, Write};
use std::mem::offset_of;

use dataplane_common::classify::{Class, Rules, classify, identify};
use dataplane_common::maps::{
    FLOW_SLOTS, FlowRow, FunctionRow, LoadRow, PEER_PRESENT, Params, PeerRow, QueueRow, SignalsRow, WorkerRow,
    socket_slot,
};
use dataplane_common::meta::{Metadata, Origin};
use dataplane_common::order::Released;
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::Reason;

use crate::support::frames::{Interconnect, OVERHEAD, UDP_PORT};
use crate::support::node::{Arrival, LINK, Node, Outcome, PORT, Site};
use crate::support::words::{Place, Words, two};

pub const XDP_DROP: u32 = 1;
pub const XDP_PASS: u32 = 2;
pub const XDP_REDIRECT: u32 = 4;

/// This node, its boot, and its peers. `ABSENT` has a load row and is on the roster, but is no peer.
pub const NODE: u16 = 2;
pub const EPOCH: u32 = 0x0002_004d;
pub const NEAR: u16 = 1;
pub const FAR: u16 = 3;
pub const ABSENT: u16 = 5;
const NODES: u16 = 8;

/// Functions of the node, by index: 1000 ns and 1 ns a byte; 2 ns times operand and byte; 1 ns times operand.
pub const BYTES: u16 = 0xff01;
pub const ROUNDS: u16 = 0xff03;
pub const TIMED: u16 = 0xff05;
pub const LIMIT_NS: u32 = 1_000_000;

/// What is active where the pktgen profile is on: packets to three ports, with operand 5.
pub const PROFILE: Rules = Rules { udp_port: UDP_PORT, pktgen_port: 9_100, pktgen_functions: 3, pktgen_operand: 5 };

/// What forwarding costs besides 1 ns a byte: send, receive and wire.
pub const SEND_NS: u32 = 2_000;
pub const RECEIVE_NS: u32 = 3_000;
pub const WIRE_NS: u32 = 10_000;
pub const MARGIN_NS: u32 = 500;
/// Longest frame that the link carries.
pub const MAX_FRAME: usize = 1514;

/// The flow of what need not keep an order.
pub const NO_FLOW: u16 = 0xffff;

pub fn peer(node: u16) -> PeerRow {
    PeerRow {
        mac: [2, 0, 0, 0, 1, node as u8],
        flags: PEER_PRESENT,
        source_mac: [2, 0, 0, 0, 9, 9],
        max_frame: MAX_FRAME as u16,
        ..PeerRow::default()
    }
}

pub fn params(policy: PolicyKind) -> Params {
    Params {
        policy: policy as u32,
        policies: policy.bit(),
        node: NODE,
        nodes: NODES,
        epoch: EPOCH,
        margin_ns: MARGIN_NS,
        ..Params::DEFAULT
    }
}

/// The functions above, of the node's policy, in the order of arrival.
pub fn functions(policy: u32) -> [FunctionRow; 3] {
    [(BYTES, 1000, 1 << 16, 0), (ROUNDS, 0, 2 << 16, 2), (TIMED, 0, 1 << 16, 1)].map(|(type_id, a_ns, b_q16, units)| {
        FunctionRow {
            a_ns,
            b_q16,
            declared_a_ns: a_ns,
            declared_b_q16: b_q16,
            limit_ns: LIMIT_NS,
            units,
            type_id: type_id.into(),
            policy,
            ..FunctionRow::default()
        }
    })
}

/// Gives a node the functions and peers above.
pub fn furnish(node: &mut Node<'_>) {
    for (index, row) in (0..).zip(functions(node.params.policy)) {
        node.set_function(index, row);
    }
    for id in [NEAR, FAR] {
        node.set_peer(id, peer(id));
    }
    node.set_peer(ABSENT, PeerRow { flags: 0, ..peer(ABSENT) });
    node.set_signals(&SignalsRow {
        send_ns: SEND_NS,
        receive_ns: RECEIVE_NS,
        wire_ns: WIRE_NS,
        wire_ns_per_byte_q16: 1 << 16,
        ..SignalsRow::default()
    });
    node.set_roster(&[NEAR, FAR, ABSENT]);
}

/// A node with the functions and peers above and a socket on every queue.
pub fn node(site: &Site, policy: PolicyKind) -> Node<'_> {
    node_with(site, params(policy))
}

/// As [`node`], with other parameters.
pub fn node_with(site: &Site, params: Params) -> Node<'_> {
    let mut node = site.node(params);
    furnish(&mut node);
    node
}

/// The flow slot of an active packet.
pub fn flow_of(frame: &[u8]) -> u16 {
    let Class::Active(active) = classify(frame, &PROFILE) else { panic!("not active: {frame:02x?}") };
    (identify(frame, &active).flow % FLOW_SLOTS as u32) as u16
}

/// What is known of a packet's place in its flow.
#[derive(Clone, Copy, Debug)]
enum Numbered {
    /// It takes the next number.
    Next,
    /// It needs none.
    No,
    /// It has one: slot, number.
    Given(u16, u32),
}

/// What becomes of a frame.
#[derive(Clone, Debug)]
enum End {
    /// Left as it is, with this verdict.
    Left(u32),
    /// Given to the worker of its queue; `arrival_ns` is that of a result, else it is the time of the run.
    Queued { function: u16, charged_ns: u32, origin: Origin, numbered: Numbered, arrival_ns: u64 },
    /// Sent to a node; position, sequences, load and `arrival_ns` of the header are checked against clock and tables.
    Forwarded(Interconnect, Numbered),
    /// Sent out of a port, without the interconnect header.
    Returned,
}

/// What becomes of a word.
#[derive(Clone, Copy, Debug)]
enum Change {
    To(u64),
    /// This much more than it was.
    Add(u64),
    /// The time of the run, plus this.
    Time(u64),
    /// Its low half; the high half is the time of the run in 1024 ns.
    Stamped(u32),
    /// The number that leaves next; the one before it was released by this run.
    Released(u32),
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Case {
    name: String,
    program: &'static str,
    at: Arrival,
    frame: Vec<u8>,
    /// The frame without its seal, if the program takes that out.
    plain: Option<Vec<u8>>,
    given: Vec<(Place, u64)>,
    policy: Option<u8>,
    ordered: bool,
    counted: Vec<Reason>,
    end: End,
    changes: Vec<(Place, Change)>,
}

impl Case {
    fn new(name: &str, program: &'static str, interface: u32, counted: Vec<Reason>, frame: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            program,
            at: Arrival { interface, queue: 0, metadata: 0 },
            frame,
            plain: None,
            given: Vec::new(),
            policy: None,
            ordered: true,
            counted,
            end: End::Left(XDP_PASS),
            changes: Vec::new(),
        }
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

    /// Its seal is taken out, which leaves this.
    pub fn opens(mut self, plain: Vec<u8>) -> Self {
        self.plain = Some(plain);
        self
    }

    /// Its function has this policy, not the node's.
    pub fn by(mut self, policy: u32) -> Self {
        self.policy = Some(policy as u8);
        self
    }

    /// Its function keeps no order.
    pub fn unordered(mut self) -> Self {
        self.ordered = false;
        self
    }

    /// With a worker that has been charged this much, of this many packets, and done nothing.
    pub fn backlog(self, worker: u32, ns: u64, packets: u64) -> Self {
        self.given(Place::worker(worker, offset_of!(WorkerRow, charged_ns)), ns)
            .given(Place::worker(worker, offset_of!(WorkerRow, charged_packets)), packets)
    }

    /// With a fresh report of a node: backlog, and packets in its run queue.
    pub fn load(self, node: u16, backlog_ns: u32, packets: u32) -> Self {
        self.given(Place::load(node, offset_of!(LoadRow, backlog_ns)), backlog_ns.into())
            .given(Place::load(node, offset_of!(LoadRow, queued_milli)), two(packets * 1000, 1))
            .given(Place::load(node, offset_of!(LoadRow, valid_until_ns)), u64::MAX)
    }

    /// Also counted.
    pub fn noting(mut self, reason: Reason) -> Self {
        self.counted.push(reason);
        self
    }

    fn change(mut self, place: Place, change: Change) -> Self {
        self.changes.push((place, change));
        self
    }

    /// Also changed.
    pub fn changes(self, place: Place, word: u64) -> Self {
        self.change(place, Change::To(word))
    }

    /// Also added to.
    pub fn adds(self, place: Place, amount: u64) -> Self {
        self.change(place, Change::Add(amount))
    }

    /// Also set to the time of the run plus `after`.
    pub fn times(self, place: Place, after: u64) -> Self {
        self.change(place, Change::Time(after))
    }

    /// Also set to `low` and, in the high half, the time of the run in 1024 ns.
    pub fn stamps(self, place: Place, low: u32) -> Self {
        self.change(place, Change::Stamped(low))
    }

    /// Also released the result before `next` of this flow.
    pub fn releases(self, flow: u16, next: u32) -> Self {
        self.change(Place::flow(flow, offset_of!(FlowRow, released)), Change::Released(next))
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

    fn numbered(&self) -> Numbered {
        if self.ordered { Numbered::Next } else { Numbered::No }
    }

    /// Given to the worker, which is charged.
    pub fn stays(self, function: u16, charged_ns: u32) -> Self {
        let (origin, counted, numbered) = if self.program == "dp_link" {
            (Origin::Peer, Reason::ForwardQueued, Numbered::No)
        } else {
            (Origin::Port, Reason::LocalQueued, self.numbered())
        };
        self.noting(counted).ends(End::Queued { function, charged_ns, origin, numbered, arrival_ns: 0 })
    }

    /// Given to the worker without charge or count.
    pub fn sinks(self) -> Self {
        let (origin, numbered) = (Origin::Port, Numbered::No);
        self.ends(End::Queued { function: 0, charged_ns: 0, origin, numbered, arrival_ns: 0 })
    }

    /// Given to the worker as a result that comes before its turn.
    pub fn waits(self, header: &Interconnect) -> Self {
        let numbered = Numbered::Given(header.flow, header.flow_sequence);
        let arrival_ns = header.arrival_ns;
        self.noting(Reason::ResultQueued).ends(End::Queued {
            function: 0,
            charged_ns: 0,
            origin: Origin::Result,
            numbered,
            arrival_ns,
        })
    }

    /// Given to the worker as a request for work.
    pub fn asks(self) -> Self {
        let (origin, numbered) = (Origin::Pull, Numbered::No);
        self.noting(Reason::PullQueued).ends(End::Queued {
            function: 0,
            charged_ns: 0,
            origin,
            numbered,
            arrival_ns: 0,
        })
    }

    /// Sent to a node.
    pub fn goes_to(self, to: u16, type_id: u16, charged_ns: u32) -> Self {
        let row = peer(to);
        let header = Interconnect {
            mac: [row.mac, row.source_mac],
            source: NODE,
            destination: to,
            epoch: EPOCH,
            charged_ns,
            type_id,
            port: self.at.interface as u16,
            ..Interconnect::PLAIN
        };
        let numbered = self.numbered();
        self.noting(Reason::Redirected).ends(End::Forwarded(header, numbered))
    }

    /// Sent out of a port, as a result.
    pub fn returns(self) -> Self {
        self.noting(Reason::ResultReturned).ends(End::Returned)
    }
}

/// Runs every case on the node, each from the tables as they are now, and reports all that fail.
pub fn check(node: &mut Node<'_>, cases: &[Case]) {
    assert!(!cases.is_empty());
    let words = node.words();
    let needs_room = cases.iter().any(|case| case.at.metadata > 0);
    let has_room = !needs_room || node.has_room_for_metadata();
    // Before Linux 6.3 metadata has 32 bytes in all, and ours takes them.
    let cases: Vec<&Case> = cases.iter().filter(|case| has_room || case.at.metadata == 0).collect();
    let failures: Vec<String> = cases.iter().filter_map(|case| check_one(node, case, &words).err()).collect();
    words.restore(&node.tables);
    assert!(failures.is_empty(), "{} of {} cases fail\n\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn check_one(node: &mut Node<'_>, case: &Case, words: &Words) -> Result<(), String> {
    words.restore(&node.tables);
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
        let found = after.get(*place);
        let (from, to) = outcome.time;
        let word = match *change {
            Change::To(word) => word,
            Change::Add(amount) => words.get(*place).wrapping_add(amount),
            Change::Time(add) if (from + add..=to + add).contains(&found) => found,
            Change::Time(add) => to + add,
            Change::Stamped(low) if ((from >> 10) as u32..=(to >> 10) as u32).contains(&((found >> 32) as u32)) => {
                two(low, (found >> 32) as u32)
            }
            Change::Stamped(low) => two(low, (to >> 10) as u32),
            Change::Released(next) => {
                let cpu = Released::from_word(found).cpu().unwrap_or(0);
                let mut times = (from >> 10..=to >> 10).map(|us| Released::by_xdp(next, cpu, us << 10).to_word());
                times.find(|word| *word == found).unwrap_or(Released::by_xdp(next, cpu, to).to_word())
            }
        };
        words.set(*place, word);
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
    let plain = case.plain.as_ref().unwrap_or(&case.frame);
    let (mut verdict, mut frame, mut metadata) = (XDP_REDIRECT, plain.clone(), vec![0xcd; case.at.metadata]);
    match &case.end {
        End::Left(left) => verdict = *left,
        End::Queued { .. } => {
            let policy = if case.program == "dp_sink" { 0 } else { case.policy.unwrap_or(policy) };
            metadata = queued(case, policy, outcome, words).emit().to_vec();
            // What somebody else has put there may stay, but ours lies next to the frame.
            if case.at.metadata > 0 && outcome.metadata.ends_with(&metadata) {
                metadata.clone_from(&outcome.metadata);
            }
        }
        End::Forwarded(header, numbered) => {
            let arrival =
                outcome.frame.get(46..54).map_or(0, |bytes| bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b)));
            expect("arrival", (outcome.time.0..=outcome.time.1).contains(&arrival), &arrival, &outcome.time);
            frame = forwarded(case, header, *numbered, arrival, words).frame(&case.frame);
        }
        End::Returned => frame = plain[OVERHEAD..].to_vec(),
    }
    expect("verdict", outcome.verdict == verdict, &outcome.verdict, &verdict);
    expect("frame", outcome.frame == frame, &outcome.frame, &frame);
    expect("metadata", outcome.metadata == metadata, &outcome.metadata, &metadata);
}

/// The slot and number of the case's packet; enters a new number into `words`.
fn number(case: &Case, numbered: Numbered, words: &mut Words) -> (u16, u32) {
    match numbered {
        Numbered::No => (NO_FLOW, 0),
        Numbered::Given(slot, number) => (slot, number),
        Numbered::Next => {
            let slot = flow_of(&case.frame);
            (slot, (words.add(Place::flow(slot, offset_of!(FlowRow, issued)), 1) as u32).wrapping_sub(1))
        }
    }
}

/// The metadata of a frame that a worker is given, and what it is charged.
fn queued(case: &Case, policy: u8, outcome: &Outcome, words: &mut Words) -> Metadata {
    let End::Queued { function, charged_ns, origin, numbered, arrival_ns } = case.end else {
        panic!("{} is not queued", case.name)
    };
    let socket = socket_slot(case.at.interface, case.at.queue);
    let ns = u64::from(charged_ns);
    words.add(Place::worker(case.at.queue, offset_of!(WorkerRow, charged_ns)), ns);
    words.add(Place::worker(case.at.queue, offset_of!(WorkerRow, charged_packets)), 1);
    let position_ns = words.add(Place::queue(socket, offset_of!(QueueRow, charged_ns)), ns);
    let sequence = words.add(Place::queue(socket, offset_of!(QueueRow, charged_packets)), 1) as u32;
    let (flow, flow_sequence) = number(case, numbered, words);
    // The clock in 16 ns: all that the record has.
    let (from, to) = ((outcome.time.0 >> 4) as u32, (outcome.time.1 >> 4) as u32);
    let found = outcome.metadata.last_chunk().and_then(Metadata::parse).map_or(0, |record| record.arrival_16ns);
    let arrival_16ns = match origin {
        Origin::Result => (arrival_ns >> 4) as u32,
        _ if found.wrapping_sub(from) <= to.wrapping_sub(from) => found,
        _ => from,
    };
    Metadata { function, charged_ns, arrival_16ns, position_ns, sequence, origin, policy, flow, flow_sequence }
}

/// The header of a forward: the account of the receiver, the number in the flow, and the load of the worker at hand.
fn forwarded(
    case: &Case,
    header: &Interconnect,
    numbered: Numbered,
    arrival_ns: u64,
    words: &mut Words,
) -> Interconnect {
    let row = |offset| Place::load(header.destination, offset);
    let position_ns = words.add(row(offset_of!(LoadRow, sent_ns)), header.charged_ns.into()) as u32;
    let sequence = words.add(row(offset_of!(LoadRow, sent_frames)), 1) as u32;
    let (flow, flow_sequence) = number(case, numbered, words);
    let worker = |offset| words.get(Place::worker(case.at.queue, offset));
    let waiting = worker(offset_of!(WorkerRow, charged_ns)) - worker(offset_of!(WorkerRow, discharged_ns));
    let packets = worker(offset_of!(WorkerRow, charged_packets)) - worker(offset_of!(WorkerRow, discharged_packets));
    // A packet in service has always had its full charge, or there is none.
    let served = if worker(offset_of!(WorkerRow, serving_since_ns)) == 0 {
        0
    } else {
        worker(offset_of!(WorkerRow, serving_charge_ns))
    };
    let received = words.get(row(offset_of!(LoadRow, received_ns)));
    Interconnect {
        position_ns,
        sequence,
        flow,
        flow_sequence,
        arrival_ns,
        stamp_us: (arrival_ns / 1024) as u32,
        backlog_ns: (waiting - served).min(u32::MAX.into()) as u32,
        received_ns: received as u32,
        received_epoch: (received >> 32) as u16,
        queued: (packets * 16).min(0xffff) as u16,
        ..*header
    }
}

//! [`Worker::step`] allocates nothing once it has begun: not for results, not for drops, not when the ring is full or all of
//! the memory waits in the queue, not when results wait for their turn or are given up, not when it tidies up or hands its
//! samples over. Counted by the allocator of this binary,
//! for this thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use std::mem::offset_of;

use dataplane_common::classify::Rules;
use dataplane_common::maps::{
    FUNCTION_LOSSLESS, FUNCTION_WORKER, FunctionRow, LoadRow, Params, SignalsRow, WorkerRow, function_slot,
};
use dataplane_common::meta::{METADATA_BYTES, Metadata, Origin};
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::{Reason, Stage};
use dataplane_common::tuning::{CLASS, FIFO, SHORTEST, Tuning};
use dataplane_common::wire::link::NO_FLOW;
use dataplane_user::functions::Builtin;
use dataplane_user::maps::Tables;
use dataplane_user::port::{Losses, Port};
use dataplane_user::process::Checks;
use dataplane_user::samples::Exchange;
use dataplane_user::ways::{Way, Ways};
use dataplane_user::worker::{InterfaceKind, Settings, Worker};
use dataplane_user::xsk::{Batch, Umem, UmemConfig};
use frames::{Carrier, Interconnect, Packet, with};
use memory::{samples, tables};

#[path = "support/frames.rs"]
#[allow(dead_code, reason = "shared with tests that use other parts of it")]
mod frames;
#[path = "support/memory.rs"]
mod memory;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting calls by thread.
struct Counting;

impl Counting {
    fn count() {
        CALLS.set(CALLS.get() + 1);
    }
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread-local number without destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Frames of packet memory.
const FRAMES: u32 = 256;
/// What the kernel leaves free in front of metadata.
const ROOM: usize = 192;
/// How long a result waits for an earlier one of its flow.
const PATIENCE: Duration = Duration::from_millis(50);
/// A flow whose packets come in pairs, the second one first: results wait for a moment.
const SWAPPED: u16 = 1;
/// A flow of whose packets every other one never comes: results wait until there is no more room or no more patience.
const GAPS: u16 = 2;

/// A socket in memory: the same frames again and again, as many as a batch takes.
struct Loop {
    /// Metadata and frame in one piece.
    frames: Vec<Vec<u8>>,
    next: usize,
    /// Packets of each flow so far, at all sockets.
    numbers: Rc<Cell<[u32; 3]>>,
    /// Packets that one turn transmits; what is more finds the ring full.
    room: usize,
    taken: usize,
    closed: Arc<AtomicBool>,
}

impl Loop {
    /// Numbers a packet of a flow that is to have numbers. Forwarded packets have theirs at the node they come from.
    fn number(&self, bytes: &mut [u8]) {
        let Some(record) = bytes.first_chunk_mut::<METADATA_BYTES>() else { return };
        let Some(metadata) = Metadata::parse(record) else { return };
        if metadata.origin == Origin::Peer {
            return;
        }
        let mut numbers = self.numbers.get();
        let Some(count) = numbers.get_mut(usize::from(metadata.flow)) else { return };
        let flow_sequence = match metadata.flow {
            SWAPPED => *count ^ 1,
            GAPS => 2 * *count + 1,
            _ => return,
        };
        *count += 1;
        self.numbers.set(numbers);
        *record = Metadata { flow_sequence, ..metadata }.emit();
    }
}

impl Port for Loop {
    fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        self.taken = 0;
        let mut received = 0;
        while batch.room() > 0 && !self.closed.load(Relaxed) {
            let Some(mut frame) = umem.allocate() else { break };
            let bytes = &self.frames[self.next % self.frames.len()];
            self.next += 1;
            frame.set_len(ROOM + bytes.len()).expect("test frames are short");
            frame.pull_front(ROOM).expect("it is that long");
            umem.bytes_mut(&mut frame).copy_from_slice(bytes);
            self.number(umem.bytes_mut(&mut frame));
            frame.pull_front(METADATA_BYTES).expect("every frame begins with metadata");
            batch.push(frame).expect("there is room");
            received += 1;
        }
        received
    }

    fn transmit(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        let mut sent = 0;
        while self.taken < self.room {
            let Some(frame) = batch.pop() else { break };
            umem.release(frame);
            self.taken += 1;
            sent += 1;
        }
        sent
    }

    fn kick(&mut self) {}

    fn recycle(&mut self, _umem: &mut Umem) {}

    fn losses(&self) -> Losses {
        Losses { rx_dropped: self.next as u64, ..Losses::default() }
    }

    fn vacant(&self) -> u32 {
        0
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Frames of every function, good and bad, with metadata that runs ahead of itself as if frames were lost in between.
fn frames_of(origin: Origin) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (index, function) in Builtin::ALL.iter().enumerate() {
        let packet = Packet::new(function.type_id()).operand(3).result(32).checksum();
        let good = packet.frame();
        let small = Packet::new(function.type_id()).operand(3).frame();
        let bad_sum = with(good.clone(), packet.end() - 1, &[0xff]);
        let raw = Packet { carrier: Carrier::Protocol107, ..packet.clone() };
        let bad_anep = with(raw.frame(), raw.end() - 1, &[0xff]);
        for frame in [good.clone(), bad_sum, bad_anep, small, good[..60].to_vec(), vec![0xff; 64]] {
            let sequence = frames.len() * 3;
            // Some in one of a few flows, some in none.
            let flow = if frames.len() % 7 == 0 { NO_FLOW } else { frames.len() as u16 % 5 };
            let frame = if origin == Origin::Peer { Interconnect { flow, ..FORWARD }.frame(&frame) } else { frame };
            let metadata = Metadata {
                function: index as u16,
                // Some are expected to take long, and so are sent by themselves.
                charged_ns: if frames.len() % 25 == 0 { 5_000 } else { 100 + sequence as u32 },
                arrival_16ns: 1,
                position_ns: (sequence * 5_000) as _,
                sequence: sequence as _,
                origin,
                policy: 0,
                flow,
                flow_sequence: 0,
            };
            frames.push([&metadata.emit()[..], &frame].concat());
        }
    }
    frames.push(vec![0; METADATA_BYTES + 60]);
    for flow in [SWAPPED, GAPS, 3] {
        // The second one is bad: the node has no such port.
        for port in [0, 7] {
            let result = Metadata {
                function: 0,
                charged_ns: 0,
                arrival_16ns: 1,
                position_ns: 0,
                sequence: 0,
                origin: Origin::Result,
                policy: 0,
                flow,
                flow_sequence: 0,
            };
            frames.push([&result.emit()[..], &Interconnect { kind: 2, port, ..FORWARD }.frame(&[0; 60])].concat());
        }
    }
    let at = |origin, flow| Metadata {
        function: 0,
        charged_ns: 0,
        arrival_16ns: 1,
        position_ns: 0,
        sequence: 0,
        origin,
        policy: 0,
        flow,
        flow_sequence: 0,
    };
    let mark = Interconnect { kind: 2, ..FORWARD }.frame(&[]);
    frames.push([&at(Origin::Result, 3).emit()[..], &mark].concat());
    // Nobody knows the way back to this one's sender.
    if origin == Origin::Peer {
        let good = Packet::new(Builtin::Forward.type_id()).frame();
        let stray = Interconnect { source: 3, ..FORWARD }.frame(&good);
        frames.push([&at(Origin::Peer, NO_FLOW).emit()[..], &stray].concat());
    }
    // The second one asks in vain: it is no peer.
    for source in [1, 2] {
        let request = Interconnect { kind: 4, source, ..FORWARD }.frame(&[]);
        frames.push([&at(Origin::Pull, NO_FLOW).emit()[..], &request].concat());
    }
    frames
}

const FORWARD: Interconnect = Interconnect {
    mac: [[2; 6], [4; 6]],
    source: 1,
    epoch: 1,
    sequence: 1,
    charged_ns: 5_000,
    type_id: 0xff01,
    arrival_ns: 1,
    ..Interconnect::PLAIN
};

const WAY: Way = Way { node: 1, interface: 1, mac: [2; 6], source_mac: [4; 6], max_frame: 1_514, route: None };

/// A worker whose sockets have packets until `closed` is set.
fn worker(mode: Mode, tables: &Arc<Tables>, exchange: &Arc<Exchange>, closed: &Arc<AtomicBool>) -> Worker<Loop> {
    let settings = Settings {
        worker: 0,
        params: Params {
            policies: PolicyKind::RoundRobin.bit(),
            tuning: Tuning { discipline: mode.discipline, ..Tuning::DEFAULT },
            ..Params::DEFAULT
        },
        ways: Arc::new(Ways::new([WAY])),
        checks: Checks { rules: Rules::anep(frames::UDP_PORT), udp_checksum: true },
        spin: Duration::ZERO,
        patience: PATIENCE,
        pull: mode.pulls,
        retry: Duration::from_millis(20),
        egress: None,
    };
    let umem = Umem::new(&UmemConfig { frames: FRAMES, ..UmemConfig::default() }).expect("packet memory");
    let mut worker = Worker::new(settings, umem, Builtin::ALL, Arc::clone(tables), Arc::clone(exchange), samples());
    let numbers = Rc::default();
    for (interface, kind, origin) in [(0, InterfaceKind::Port, Origin::Port), (1, InterfaceKind::Link, Origin::Peer)] {
        worker.add_socket(
            interface,
            kind,
            Loop {
                frames: frames_of(origin),
                next: 0,
                numbers: Rc::clone(&numbers),
                room: 2,
                taken: 0,
                closed: Arc::clone(closed),
            },
        );
    }
    worker
}

/// Frames that hold a packet, as the worker shows it.
fn frames_in_use(tables: &Tables) -> u32 {
    tables.workers.row(0).word(offset_of!(WorkerRow, frames_in_use)).load(Relaxed) as u32
}

/// A peer that has work to give away, not far from here.
fn furnish(tables: &Tables) {
    let row = tables.load.row(1);
    row.word(offset_of!(LoadRow, queued_milli)).store(5_000, Relaxed);
    row.word(offset_of!(LoadRow, valid_until_ns)).store(u64::MAX, Relaxed);
    tables.roster.row(0).word(0).store(1, Relaxed);
    tables.signals.row(0).word(offset_of!(SignalsRow, arrivals_q32)).store(1 << 32, Relaxed);
    tables.signals.row(0).word(offset_of!(SignalsRow, wire_ns)).store(5_000, Relaxed);
}

/// How a worker works.
#[derive(Clone, Copy, Debug)]
struct Mode {
    discipline: u32,
    /// It asks for work.
    pulls: bool,
    /// It places packets itself, and keeps them until they are answered: which they never are.
    keeps: bool,
}

fn allocates_nothing(mode: Mode) {
    let has_queue = mode.pulls || mode.keeps || mode.discipline != FIFO;
    let tables = Arc::new(tables(Builtin::ALL.len() as u32));
    let exchange = Arc::new(Exchange::default());
    let closed = Arc::new(AtomicBool::new(false));
    furnish(&tables);
    if mode.keeps {
        let row = tables.functions.row(function_slot(0, 0));
        let flags = u64::from(FUNCTION_WORKER | FUNCTION_LOSSLESS) << 32;
        row.word(offset_of!(FunctionRow, order)).store(flags, Relaxed);
        row.word(offset_of!(FunctionRow, policy)).store(PolicyKind::RoundRobin as u64, Relaxed);
    }
    let mut worker = worker(mode, &tables, &exchange, &closed);
    // What peers forward for the last function is above its limit.
    let last = function_slot(Builtin::ALL.len() as u32 - 1, 0);
    tables.functions.row(last).word(offset_of!(FunctionRow, limit_ns)).store(1, Relaxed);
    worker.step();
    for round in 0..6 {
        exchange.lay_out(samples());
        let before = CALLS.get();
        let mut most_in_use = 0;
        for _ in 0..50 {
            let handled = worker.step();
            // A batch of each socket, and what had waited for its turn.
            assert!(handled >= 128 || has_queue && handled > 0, "{handled}");
            most_in_use = frames_in_use(&tables).max(most_in_use);
        }
        let calls = CALLS.get() - before;
        assert_eq!(calls, 0, "calls of the allocator in round {round} of {mode:?}");
        assert!(exchange.collect().is_some(), "samples were handed over in round {round}");
        assert!(most_in_use > 0, "results wait in round {round} of {mode:?}");
        // Longer than patience and the time between two housekeepings, so that the next round begins with what they do.
        std::thread::sleep(Duration::from_millis(60));
    }
    if has_queue {
        let in_use = frames_in_use(&tables);
        assert!(in_use > FRAMES / 2, "most of the memory waits: {in_use} frames");
    }
    worker.stop_on(Arc::new(AtomicBool::new(true)));
    worker.step();
    closed.store(true, Relaxed);
    while worker.step() > 0 {}
    std::thread::sleep(PATIENCE);
    while worker.step() > 0 {}
    // Every way of a packet was gone, so that nothing above is true of an empty loop only.
    let ways = Reason::ALL.iter().filter(|reason| reason.stage() == Stage::Worker);
    for reason in ways {
        let count = tables.count(0, *reason).load(Relaxed);
        let is_usual = match reason {
            Reason::SentForward => mode.pulls || mode.keeps,
            Reason::PullAnswered | Reason::NotePullSent => mode.pulls,
            Reason::SeenAgain | Reason::NoteKept | Reason::NoteKeptFull => mode.keeps,
            _ => true,
        };
        assert!(count > 0 || !is_usual, "{reason:?} of {mode:?}");
    }
    assert_eq!(worker.umem().ledger().free, FRAMES);
}

#[test]
fn a_step_allocates_nothing() {
    for (discipline, pulls, keeps) in
        [(FIFO, false, false), (FIFO, true, false), (SHORTEST, true, false), (CLASS, false, false), (FIFO, false, true)]
    {
        allocates_nothing(Mode { discipline, pulls, keeps });
    }
}

#[test]
fn the_allocator_counts() {
    let before = CALLS.get();
    drop(std::hint::black_box(Box::new(1u64)));
    assert_eq!(CALLS.get() - before, 2);
    let mut vec = std::hint::black_box(Vec::<u8>::with_capacity(1));
    vec.extend_from_slice(&[0; 4096]);
    assert_eq!(CALLS.get() - before, 4);
}

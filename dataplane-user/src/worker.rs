//! A worker: one pinned thread, one UMEM, one socket on its queue of every interface.
//!
//! [`Worker::step`] handles what has arrived and returns; it neither waits, allocates, locks nor logs. [`Worker::run`]
//! repeats it, spins a little when there is nothing, and then sleeps in `poll(2)`.
//!
//! ```text
//! rx ring ─► metadata ─► settle the account ─► validate, compute, turn round ─► discharge ─► tx ring of the same socket
//!                            (process.rs)                                       observe
//! ```

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use dataplane_common::estimate::Estimator;
use dataplane_common::maps::{FunctionRow, MAX_INTERFACES, QueueRow, WorkerRow, function_slot, socket_slot};
use dataplane_common::meta::{METADATA_BYTES, Metadata, Origin};
use dataplane_common::reason::Reason;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{Header, Kind, OVERHEAD_BYTES};
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::functions::Builtin;
use crate::maps::Tables;
use crate::maps::tables::{add_own, set};
use crate::port::Port;
use crate::process::{self, Checks};
use crate::samples::{Exchange, Samples};
use crate::xsk::{Batch, Frame, Umem};

/// Frames taken from a socket at once.
const BATCH: usize = 64;
/// A result that took longer than this to compute is sent at once; shorter ones wait for the end of their batch, because
/// a kick costs about as much.
const SEND_AT_ONCE_NS: u32 = 2_000;
/// How often a full transmit ring is kicked before its results are dropped.
const TRANSMIT_TRIES: usize = 16;
/// Shortest charge whose progress is shown to deciders: below, reading the clock costs more than it tells.
const SHOW_PROGRESS_NS: u32 = 2_000;
/// How often a worker looks at what the kernel dropped, and for charges whose frames never came.
const HOUSEKEEPING: Duration = Duration::from_millis(50);
/// Longest sleep; bounds how late a stop is seen.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

/// Who a worker is and how it behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Index of the worker, and the queue it serves.
    pub worker: u32,
    /// This node's id.
    pub node: u16,
    /// Boot epoch of the node.
    pub epoch: u32,
    /// What is verified.
    pub checks: Checks,
    /// How long to spin before sleeping.
    pub spin: Duration,
}

/// Whether an interface leads outside or to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// Packets arrive here and results leave here.
    Port,
    /// Forwarded packets arrive here and results go back here.
    Link,
}

/// One socket of a worker and the account of what was charged through it.
#[derive(Debug)]
struct Socket<P> {
    port: P,
    kind: InterfaceKind,
    slot: u32,
    /// Position and sequence up to which charges are settled (taken, or found lost).
    position_ns: u64,
    sequence: u32,
    /// Position seen at the last look at an empty ring.
    idle_position: Option<u64>,
}

struct Function {
    builtin: Builtin,
    estimator: Estimator,
    slot: u32,
}

/// See the module.
pub struct Worker<P> {
    settings: Settings,
    umem: Umem,
    sockets: Vec<Socket<P>>,
    functions: Vec<Function>,
    tables: Arc<Tables>,
    exchange: Arc<Exchange>,
    samples: Samples,
    incoming: Batch,
    outgoing: Batch,
    clock: quanta::Clock,
    results: u32,
    stop: Arc<AtomicBool>,
    last_housekeeping: quanta::Instant,
}

/// What is to be discharged when a packet is done.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    ns: u64,
    packets: u64,
}

/// What becomes of a frame.
enum Outcome {
    Send(Frame),
    Drop(Frame, Reason),
}

impl<P: Port> Worker<P> {
    /// A worker without sockets. `functions` are the node's, by function index; `samples` one empty set each.
    pub fn new(
        settings: Settings,
        umem: Umem,
        functions: &[Builtin],
        tables: Arc<Tables>,
        exchange: Arc<Exchange>,
        samples: Samples,
    ) -> Self {
        let functions = (0..)
            .zip(functions)
            .map(|(index, builtin)| Function {
                builtin: *builtin,
                estimator: Estimator::new(builtin.prior()),
                slot: function_slot(index, settings.worker),
            })
            .collect();
        let clock = quanta::Clock::new();
        let last_housekeeping = clock.now();
        Self {
            settings,
            umem,
            sockets: Vec::with_capacity(MAX_INTERFACES),
            functions,
            tables,
            exchange,
            samples,
            incoming: Batch::new(BATCH),
            outgoing: Batch::new(BATCH),
            clock,
            results: 0,
            stop: Arc::default(),
            last_housekeeping,
        }
    }

    /// Adds the socket of interface `interface` (the node's index). Call before the first step.
    pub fn add_socket(&mut self, interface: u32, kind: InterfaceKind, port: P) {
        let slot = socket_slot(interface, self.settings.worker);
        let mut socket = Socket { port, kind, slot, position_ns: 0, sequence: 0, idle_position: None };
        socket.port.recycle(&mut self.umem);
        self.sockets.push(socket);
    }

    /// Has the worker stop when `flag` is set: what it has received by then is dropped under a name, not computed.
    pub fn stop_on(&mut self, flag: Arc<AtomicBool>) {
        self.stop = flag;
    }

    /// Index of the worker.
    pub fn index(&self) -> u32 {
        self.settings.worker
    }

    /// The worker's packet memory, to open sockets on.
    pub fn umem_mut(&mut self) -> &mut Umem {
        &mut self.umem
    }

    /// The worker's packet memory.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Handles what has arrived; returns the number of packets.
    pub fn step(&mut self) -> usize {
        let mut handled = 0;
        for index in 0..self.sockets.len() {
            let socket = &mut self.sockets[index];
            let received = socket.port.receive(&mut self.umem, &mut self.incoming);
            while let Some(frame) = self.incoming.pop() {
                self.handle(index, frame);
            }
            self.flush(index);
            self.sockets[index].port.recycle(&mut self.umem);
            handled += received;
        }
        self.exchange.swap(&mut self.samples);
        if self.last_housekeeping.elapsed() >= HOUSEKEEPING {
            self.housekeep();
        }
        handled
    }

    /// Steps until the flag of [`Worker::stop_on`] is set and nothing is left.
    pub fn run(&mut self) {
        let mut idle_since: Option<quanta::Instant> = None;
        loop {
            // Read before the step: what arrived before the stop is handled by the step after it.
            let stopping = self.stop.load(Acquire);
            if self.step() > 0 {
                idle_since = None;
                continue;
            }
            if stopping {
                self.housekeep();
                return;
            }
            let since = *idle_since.get_or_insert_with(|| self.clock.now());
            if since.elapsed() < self.settings.spin {
                std::hint::spin_loop();
            } else {
                self.sleep();
            }
        }
    }

    fn sleep(&self) {
        let mut fds = self.sockets.iter().filter_map(|socket| socket.port.poll_fd());
        let Some(first) = fds.next() else { return };
        // `poll` wants an array; entries beyond the last socket watch the first one for nothing.
        let mut count = 1;
        let mut polled: [PollFd<'_>; MAX_INTERFACES] = std::array::from_fn(|index| {
            if index == 0 {
                return PollFd::from_borrowed_fd(first, PollFlags::IN);
            }
            match fds.next() {
                Some(fd) => {
                    count += 1;
                    PollFd::from_borrowed_fd(fd, PollFlags::IN)
                }
                None => PollFd::from_borrowed_fd(first, PollFlags::empty()),
            }
        });
        // A failed or interrupted poll only means that the next step comes early.
        let _ = rustix::event::poll(&mut polled[..count], Some(&SLEEP));
    }

    fn count(&self, reason: Reason) {
        add_own(self.tables.count(self.settings.worker, reason), 1);
    }

    fn handle(&mut self, index: usize, frame: Frame) {
        let metadata = self
            .umem
            .metadata(&frame, METADATA_BYTES)
            .and_then(<[u8]>::first_chunk::<METADATA_BYTES>)
            .and_then(Metadata::parse);
        let Some(metadata) = metadata else {
            self.count(Reason::SeenLocal);
            self.count(Reason::DropMetadata);
            self.umem.release(frame);
            return;
        };
        self.count(match metadata.origin {
            Origin::Port => Reason::SeenLocal,
            Origin::Peer => Reason::SeenForwarded,
        });
        let due = self.settle(index, &metadata);
        self.begin_service(metadata.charged_ns);
        let (outcome, took_ns) = self.serve(frame, &metadata);
        self.end_service(&due);
        match outcome {
            Outcome::Drop(frame, reason) => {
                self.count(reason);
                self.umem.release(frame);
            }
            Outcome::Send(frame) => {
                if let Err(full) = self.outgoing.push(frame) {
                    self.flush(index);
                    if let Err(full) = self.outgoing.push(full.0) {
                        self.count(Reason::DropTxFull);
                        self.umem.release(full.0);
                    }
                }
            }
        }
        if took_ns >= SEND_AT_ONCE_NS {
            self.flush(index);
        }
    }

    /// Settles the socket's account with this packet: discharges what was charged for frames that were lost before it,
    /// and returns what is to be discharged when it is done.
    ///
    /// That is its own charge, unless its charge was already written off as lost (then less, down to nothing).
    fn settle(&mut self, index: usize, metadata: &Metadata) -> Due {
        let socket = &mut self.sockets[index];
        let row = self.tables.queues.row(socket.slot);
        add_own(row.word(offset_of!(QueueRow, taken_packets)), 1);
        let due = metadata.position_ns.wrapping_sub(socket.position_ns);
        let packets = metadata.sequence.wrapping_sub(socket.sequence);
        if due >= 1 << 63 || packets >= 1 << 31 {
            return Due::default();
        }
        socket.position_ns = metadata.position_ns;
        socket.sequence = metadata.sequence;
        let charged_ns = u64::from(metadata.charged_ns);
        if due > charged_ns || packets > 1 {
            self.write_off(due.saturating_sub(charged_ns), packets.saturating_sub(1));
        }
        Due { ns: due.min(charged_ns), packets: u64::from(packets.min(1)) }
    }

    /// Discharges what was charged for frames that never came.
    fn write_off(&self, ns: u64, packets: u32) {
        let row = self.tables.workers.row(self.settings.worker);
        add_own(row.word(offset_of!(WorkerRow, lost_ns)), ns);
        add_own(row.word(offset_of!(WorkerRow, lost_packets)), u64::from(packets));
        add_own(row.word(offset_of!(WorkerRow, discharged_ns)), ns);
        add_own(row.word(offset_of!(WorkerRow, discharged_packets)), u64::from(packets));
    }

    fn begin_service(&self, charged_ns: u32) {
        if charged_ns >= SHOW_PROGRESS_NS {
            let row = self.tables.workers.row(self.settings.worker);
            set(row, offset_of!(WorkerRow, serving_charge_ns), u64::from(charged_ns));
            set(row, offset_of!(WorkerRow, serving_since_ns), monotonic_ns());
        }
    }

    fn end_service(&self, due: &Due) {
        let row = self.tables.workers.row(self.settings.worker);
        if row.word(offset_of!(WorkerRow, serving_since_ns)).load(Relaxed) != 0 {
            set(row, offset_of!(WorkerRow, serving_since_ns), 0);
        }
        add_own(row.word(offset_of!(WorkerRow, discharged_ns)), due.ns);
        add_own(row.word(offset_of!(WorkerRow, discharged_packets)), due.packets);
    }

    /// Computes one packet; returns what becomes of it and how long the function took, ns.
    fn serve(&mut self, mut frame: Frame, metadata: &Metadata) -> (Outcome, u32) {
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
        if let Some(header) = outer {
            let len = OVERHEAD_BYTES + usize::from(header.length);
            self.results = self.results.wrapping_add(1);
            address_result(self.umem.bytes_mut(&mut frame), &header, &self.settings, self.results);
            // What lies behind is Ethernet padding. A frame only gets shorter here, so this cannot fail.
            let _ = frame.set_len(len);
        }
        function.estimator.observe(units, took_ns);
        self.publish(usize::from(metadata.function), metadata.charged_ns, took_ns);
        (Outcome::Send(frame), took_ns)
    }

    /// Shows a measurement to deciders, `status` and the control thread.
    fn publish(&mut self, function: usize, charged_ns: u32, took_ns: u32) {
        let row = self.tables.functions.row(self.functions[function].slot);
        set(row, offset_of!(FunctionRow, a_ns), self.functions[function].estimator.cost().to_word());
        add_own(row.word(offset_of!(FunctionRow, samples)), 1);
        add_own(row.word(offset_of!(FunctionRow, predicted_ns)), u64::from(charged_ns));
        add_own(row.word(offset_of!(FunctionRow, measured_ns)), u64::from(took_ns));
        let worker = self.tables.workers.row(self.settings.worker);
        add_own(worker.word(offset_of!(WorkerRow, busy_ns)), u64::from(took_ns));
        self.samples[function].record(charged_ns, took_ns);
    }

    /// Gives the results to the socket and has the kernel send them.
    fn flush(&mut self, index: usize) {
        if self.outgoing.is_empty() {
            return;
        }
        let socket = &mut self.sockets[index];
        let mut sent = 0;
        for _ in 0..TRANSMIT_TRIES {
            sent += socket.port.transmit(&mut self.umem, &mut self.outgoing);
            socket.port.kick();
            if self.outgoing.is_empty() {
                break;
            }
            socket.port.recycle(&mut self.umem);
        }
        let worker = self.settings.worker;
        let sent_as = if socket.kind == InterfaceKind::Port { Reason::SentResult } else { Reason::SentHome };
        add_own(self.tables.count(worker, sent_as), sent as u64);
        let left = self.outgoing.len() as u64;
        if left > 0 {
            add_own(self.tables.count(worker, Reason::DropTxFull), left);
            self.outgoing.release_all(&mut self.umem);
        }
    }

    /// Copies the kernel's losses to the map, and writes off charges whose frames never came.
    ///
    /// A charge is written off when its socket's receive ring has been empty at two looks at least [`HOUSEKEEPING`]
    /// apart and nothing was charged in between: a frame that was not lost would have come into the ring long before.
    fn housekeep(&mut self) {
        self.last_housekeeping = self.clock.now();
        for index in 0..self.sockets.len() {
            let socket = &mut self.sockets[index];
            let row = self.tables.queues.row(socket.slot);
            let losses = socket.port.losses();
            set(row, offset_of!(QueueRow, rx_dropped), losses.rx_dropped);
            set(row, offset_of!(QueueRow, rx_ring_full), losses.rx_ring_full);
            set(row, offset_of!(QueueRow, invalid_descs), losses.invalid_descs);
            let charged = row.word(offset_of!(QueueRow, charged_ns)).load(Acquire);
            let packets = row.word(offset_of!(QueueRow, charged_packets)).load(Acquire) as u32;
            if socket.idle_position.replace(charged) != Some(charged) {
                continue;
            }
            let due = charged.wrapping_sub(socket.position_ns);
            let lost = packets.wrapping_sub(socket.sequence);
            if lost == 0 || lost >= 1 << 31 || due >= 1 << 63 {
                continue;
            }
            // Last look: anything that came meanwhile is taken, and then nothing is written off.
            if socket.port.receive(&mut self.umem, &mut self.incoming) > 0 {
                while let Some(frame) = self.incoming.pop() {
                    self.handle(index, frame);
                }
                self.flush(index);
                continue;
            }
            (socket.position_ns, socket.sequence) = (charged, packets);
            self.write_off(due, lost);
        }
    }
}

/// The header of a forwarded packet and the frame behind it; `None` when they contradict each other.
fn open_forward(bytes: &mut [u8]) -> Option<(Header, &mut [u8])> {
    let header = Header::parse(&*bytes, ETHERNET_BYTES).ok()?;
    let inner = bytes.get_mut(OVERHEAD_BYTES..OVERHEAD_BYTES + usize::from(header.length))?;
    (header.kind == Kind::Forward).then_some((header, inner))
}

/// Addresses a computed packet to the node it came from.
fn address_result(bytes: &mut [u8], forward: &Header, settings: &Settings, sequence: u32) {
    let header = Header {
        kind: Kind::Result,
        source: settings.node,
        destination: forward.source,
        epoch: settings.epoch,
        sequence,
        ..*forward
    };
    let (to, from) = bytes.split_at_mut(6);
    to.swap_with_slice(&mut from[..6]);
    bytes[ETHERNET_BYTES..OVERHEAD_BYTES].copy_from_slice(&header.emit());
}

/// Now, ns of the monotonic clock: the clock of `bpf_ktime_get_ns`.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;

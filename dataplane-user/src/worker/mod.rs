//! A worker: one pinned thread, one UMEM, one socket on its queue of every interface.
//!
//! [`Worker::step`] handles what has arrived and returns; it neither waits, allocates, locks nor logs. [`Worker::run`]
//! repeats it, spins a little when there is nothing, and then sleeps in `poll(2)`.
//!
//! ```text
//! rx ring ─► metadata ─► settle the account ─► queue ─► validate, compute, turn round ─► discharge ─► tx ring of the same socket
//!                          (account.rs)     (order.rs)     (serve.rs, process.rs)         observe
//! ```
//!
//! A packet whose function leaves that to workers is placed when it is taken (decide.rs), and kept until its result is there
//! if the function is lossless (keep.rs). Results of ordered flows leave in the order of their packets (ending.rs). In order of arrival there is no queue: packets are
//! served as they are taken, unless idle peers may ask for some (pull.rs).

mod account;
mod decide;
mod ending;
mod keep;
mod live;
mod order;
mod pull;
mod serve;

use std::cell::Cell;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use dataplane_common::estimate::Estimator;
use dataplane_common::maps::{FUNCTION_WORKER, FunctionRow, MAX_INTERFACES, Params, function_slot, socket_slot};
use dataplane_common::meta::{METADATA_BYTES, Metadata, Origin};
use dataplane_common::reason::Reason;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::functions::Builtin;
use crate::maps::Tables;
use crate::maps::tables::add_own;
use crate::port::Port;
use crate::process::Checks;
use crate::queue::Queue;
use crate::resequence::Resequencer;
use crate::samples::{Exchange, Samples};
use crate::ways::Ways;
use crate::xsk::{Batch, Frame, Umem};
use account::{Done, Due};
use ending::Ending;
use keep::Keeping;
use live::Live;
pub use live::LiveSettings;
use pull::Pulling;
use serve::{Function, Outcome};

/// Frames taken from a socket at once.
const BATCH: usize = 64;
/// A result that took longer than this to compute is sent at once; shorter ones wait for the end of their batch, because
/// a kick costs about as much.
const SEND_AT_ONCE_NS: u32 = 2_000;
/// How often a full transmit ring is kicked before its results are dropped.
const TRANSMIT_TRIES: usize = 16;
/// How often a worker looks at what the kernel dropped, and for charges whose frames never came.
const HOUSEKEEPING: Duration = Duration::from_millis(50);
/// Longest sleep; bounds how late a stop is seen.
const SLEEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
/// As [`SLEEP`], for a worker that looks for work at others or waits for their answers: about the time between two reports.
const LOOKOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };
/// As [`SLEEP`], while results are held.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000 };

/// Who a worker is and how it behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Index of the worker, and the queue it serves.
    pub worker: u32,
    /// What the XDP programs run with: the node's id and boot epoch, and how it decides.
    pub params: Params,
    /// How the other nodes are reached, unless [`Worker::follow_ways`] says otherwise.
    pub ways: Arc<Ways>,
    /// What is verified.
    pub checks: Checks,
    /// How long to spin before sleeping.
    pub spin: Duration,
    /// How long a result waits for one before it in its flow, before that is given up.
    pub patience: Duration,
    /// Whether the worker asks other nodes for work when it has none.
    pub pull: bool,
    /// How long a packet of a lossless function waits for its result beyond what is predicted.
    pub retry: Duration,
    /// The way out of results that do not go home.
    pub egress: Option<Egress>,
}

/// The way out of results that do not go home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// The node's index of the port.
    pub interface: u32,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// MAC address of the router that takes them; `None` = whoever sent the packet is on the port's segment.
    pub next_hop: Option<[u8; 6]>,
}

/// Whether an interface leads outside or to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// Packets arrive here and results leave here.
    Port,
    /// Forwarded packets arrive here and results go back here.
    Link,
}

impl InterfaceKind {
    /// What results that leave by such an interface are counted as.
    const fn sent_as(self) -> Reason {
        match self {
            Self::Port => Reason::SentResult,
            Self::Link => Reason::SentHome,
        }
    }
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
    /// Packets on their way to the transmit ring, and what they are counted as.
    outgoing: Batch,
    outgoing_as: Reason,
}

/// A packet taken from its ring, its socket's account settled with it.
#[derive(Debug)]
struct Taken {
    frame: Frame,
    metadata: Metadata,
    due: Due,
    /// The socket it came by.
    socket: usize,
    /// How often another node did not compute it.
    tries: u8,
}

/// See the module.
pub struct Worker<P> {
    settings: Settings,
    /// What may change while it runs.
    live: Live,
    umem: Umem,
    sockets: Vec<Socket<P>>,
    functions: Vec<Function>,
    tables: Arc<Tables>,
    exchange: Arc<Exchange>,
    samples: Samples,
    incoming: Batch,
    /// What has been taken and waits; none in order of arrival.
    queue: Option<Queue<Taken>>,
    /// Results that wait for others of their flow.
    held: Resequencer<Ending>,
    /// How it asks for work.
    pulling: Option<Pulling>,
    /// Whether some function's packets are placed by workers.
    decides: bool,
    /// Packets it has sent and keeps.
    keeping: Keeping,
    /// Decisions that took a turn.
    turns: Cell<u32>,
    clock: quanta::Clock,
    results: u32,
    /// What is to be discharged.
    done: Done,
    stop: Arc<AtomicBool>,
    last_housekeeping: quanta::Instant,
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
        let functions: Vec<_> = (0..)
            .zip(functions)
            .map(|(index, builtin)| Function {
                builtin: *builtin,
                estimator: Estimator::new(builtin.prior()),
                slot: function_slot(index, settings.worker),
            })
            .collect();
        let clock = quanta::Clock::new();
        let last_housekeeping = clock.now();
        let decides = decides(&functions, &tables);
        let queue = order::queue(settings.params.tuning.discipline, umem.frames(), settings.pull || decides);
        let pulling = settings.pull.then(Pulling::new);
        let keeping = Keeping::new(umem.frames() / 8);
        // Most of the memory stays for packets that arrive.
        let places = u16::try_from(umem.frames() / 4).unwrap_or(u16::MAX);
        let held = Resequencer::new(places, settings.patience.as_nanos() as u64);
        Self {
            settings,
            live: Live::default(),
            umem,
            sockets: Vec::with_capacity(MAX_INTERFACES),
            functions,
            tables,
            exchange,
            samples,
            incoming: Batch::new(BATCH),
            queue,
            held,
            pulling,
            decides,
            keeping,
            turns: Cell::new(0),
            clock,
            results: 0,
            done: Done::default(),
            stop: Arc::default(),
            last_housekeeping,
        }
    }

    /// Adds the socket of interface `interface` (the node's index). Call before the first step.
    pub fn add_socket(&mut self, interface: u32, kind: InterfaceKind, port: P) {
        let slot = socket_slot(interface, self.settings.worker);
        let outgoing = Batch::new(BATCH);
        let outgoing_as = kind.sent_as();
        let mut socket =
            Socket { port, kind, slot, position_ns: 0, sequence: 0, idle_position: None, outgoing, outgoing_as };
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

    /// Handles what has arrived; returns the number of packets it is done with. Zero means that none is left.
    pub fn step(&mut self) -> usize {
        let start = self.clock.raw();
        self.take_changes();
        let mut handled = if self.queue.is_some() { self.step_by_rank() } else { self.step_by_arrival() };
        if !self.held.is_empty() {
            handled += self.release_held(monotonic_ns());
        }
        if !self.keeping.is_empty() {
            handled += self.look_after_kept();
        }
        // What came by one socket may have to leave by another.
        self.flush_all();
        self.exchange.swap(&mut self.samples);
        if self.last_housekeeping.elapsed() >= HOUSEKEEPING {
            handled += self.housekeep();
        }
        self.show_memory();
        if handled > 0 {
            self.show_step(handled, self.clock.delta_as_nanos(start, self.clock.raw()));
        }
        handled
    }

    /// Serves a batch of every socket.
    fn step_by_arrival(&mut self) -> usize {
        let mut handled = 0;
        for index in 0..self.sockets.len() {
            handled += self.receive(index);
            self.flush_all();
            self.sockets[index].port.recycle(&mut self.umem);
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
                if self.housekeep() == 0 && self.keeping.is_empty() {
                    // Whatever is still missing will not come through this worker any more.
                    self.release_held(u64::MAX);
                    self.flush_all();
                    return;
                }
                continue;
            }
            self.ask_for_work();
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
        // The turn of a held result comes by another thread's or the XDP program's doing, which wakes nobody.
        let longest = match (self.held.is_empty(), self.pulling.is_some() || !self.keeping.is_empty()) {
            (false, _) => &NAP,
            (true, true) => &LOOKOUT,
            (true, false) => &SLEEP,
        };
        // A failed or interrupted poll only means that the next step comes early.
        let _ = rustix::event::poll(&mut polled[..count], Some(longest));
    }

    fn count(&self, reason: Reason) {
        add_own(self.tables.count(self.settings.worker, reason), 1);
    }

    /// Takes a batch of a socket: each packet is served, or waits if there is a queue. Returns the number of packets.
    fn receive(&mut self, index: usize) -> usize {
        let received = self.sockets[index].port.receive(&mut self.umem, &mut self.incoming);
        if received == 0 {
            return 0;
        }
        let now_ns = if self.queue.is_some() { monotonic_ns() } else { 0 };
        while let Some(frame) = self.incoming.pop() {
            let Some(taken) = self.take(index, frame) else { continue };
            let Some(taken) = self.place(taken, now_ns) else { continue };
            if let Some(taken) = self.enqueue(taken, now_ns) {
                self.serve(taken);
            }
        }
        received
    }

    /// Reads the metadata of a frame, counts it and settles its socket's account. A frame without metadata ends here.
    #[inline]
    fn take(&mut self, socket: usize, frame: Frame) -> Option<Taken> {
        let metadata = self
            .umem
            .metadata(&frame, METADATA_BYTES)
            .and_then(<[u8]>::first_chunk::<METADATA_BYTES>)
            .and_then(Metadata::parse);
        let Some(metadata) = metadata else {
            self.count(Reason::SeenLocal);
            self.count(Reason::DropMetadata);
            self.umem.release(frame);
            return None;
        };
        self.count(match metadata.origin {
            Origin::Port => Reason::SeenLocal,
            Origin::Peer => Reason::SeenForwarded,
            Origin::Result => Reason::SeenResult,
            Origin::Pull => Reason::SeenPull,
        });
        let due = self.settle(socket, &metadata);
        Some(Taken { frame, metadata, due, socket, tries: 0 })
    }

    /// Serves one packet and discharges it; returns how long its function took, ns.
    #[inline]
    fn serve(&mut self, taken: Taken) -> u32 {
        let Taken { frame, metadata, due, socket, .. } = taken;
        if metadata.origin == Origin::Result {
            self.end_service(due);
            self.take_result(frame, &metadata);
            return 0;
        }
        if metadata.origin == Origin::Pull {
            self.end_service(due);
            self.take_pull(frame);
            return 0;
        }
        self.ask_early(metadata.charged_ns);
        if metadata.charged_ns >= SEND_AT_ONCE_NS {
            // Results of short packets do not wait for a long one.
            self.flush_all();
        }
        self.begin_service(metadata.charged_ns);
        let (outcome, took_ns) = self.compute(frame, &metadata);
        self.end_service(due);
        match outcome {
            Outcome::Drop(frame, reason) => self.finish_dropped(&metadata, frame, reason),
            Outcome::Send(frame) => self.finish(&metadata, Some((socket, frame))),
            Outcome::SendDirect(frame, port) => self.finish(&metadata, Some((port, frame))),
        }
        if took_ns >= SEND_AT_ONCE_NS {
            if !self.held.is_empty() {
                self.release_held(monotonic_ns());
            }
            self.flush_all();
        }
        took_ns
    }

    /// Puts a result among those on their way to a socket's transmit ring.
    fn send(&mut self, index: usize, frame: Frame) {
        let sent_as = self.sockets[index].kind.sent_as();
        self.send_as(index, frame, sent_as);
    }

    /// Puts a packet among those on their way to a socket's transmit ring, to be counted under `sent_as`.
    fn send_as(&mut self, index: usize, frame: Frame, sent_as: Reason) {
        if self.sockets[index].outgoing_as != sent_as {
            self.flush(index);
            self.sockets[index].outgoing_as = sent_as;
        }
        let Err(full) = self.sockets[index].outgoing.push(frame) else { return };
        self.flush(index);
        if let Err(full) = self.sockets[index].outgoing.push(full.0) {
            self.count(Reason::DropTxFull);
            self.umem.release(full.0);
        }
    }

    /// Gives the results to the socket and has the kernel send them.
    fn flush(&mut self, index: usize) {
        let socket = &mut self.sockets[index];
        if socket.outgoing.is_empty() {
            return;
        }
        let mut sent = 0;
        for _ in 0..TRANSMIT_TRIES {
            sent += socket.port.transmit(&mut self.umem, &mut socket.outgoing);
            socket.port.kick();
            if socket.outgoing.is_empty() {
                break;
            }
            socket.port.recycle(&mut self.umem);
        }
        let worker = self.settings.worker;
        add_own(self.tables.count(worker, socket.outgoing_as), sent as u64);
        let left = socket.outgoing.len() as u64;
        if left > 0 {
            add_own(self.tables.count(worker, Reason::DropTxFull), left);
            socket.outgoing.release_all(&mut self.umem);
        }
    }

    /// As [`Worker::flush`], for every socket; then others may send what follows in the order of flows. What is done is
    /// discharged first.
    fn flush_all(&mut self) {
        self.show_done();
        for index in 0..self.sockets.len() {
            self.flush(index);
        }
        self.held.publish(&self.tables.flows);
    }
}

/// Whether workers place packets of some function.
fn decides(functions: &[Function], tables: &Tables) -> bool {
    let flags = |function: &Function| tables.functions.row(function.slot).word(offset_of!(FunctionRow, order));
    functions.iter().any(|it| flags(it).load(Relaxed) >> 32 & u64::from(FUNCTION_WORKER) != 0)
}

/// Now, ns of the monotonic clock: the clock of `bpf_ktime_get_ns`.
pub fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests;

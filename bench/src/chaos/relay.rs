//! [`Relay`]: the thread of a box, which copies, delays and reorders the frames that the programs give it.
//!
//! A reordered frame waits until a later one of its direction has gone by in the kernel, which the programs' counts show; the
//! thread looks at them every few microseconds while one waits, and sleeps otherwise.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use aya::maps::{Array, DevMap, MapData, XskMap};
use dataplane_common::chaos::{
    CHAOS_COUNT, CHAOS_OUT, CHAOS_RULE, CHAOS_XSKS, COUNT_WORDS, DIRECTIONS, Direction, Fate, FrameKind, KINDS,
    METADATA_BYTES, PROGRAMS, RULE_WORDS, count_index, rule_index, socket_index,
};
use dataplane_user::sys::NetDevice;
use dataplane_user::worker::monotonic_ns;
use dataplane_user::xsk::{Batch, Frame, Kick, Umem, UmemConfig, Xsk, XskConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::cable::{Opened, Place};
use super::impairment::Chaos;
use super::tally::{KindTally, Tally};
use crate::object::BenchObject;

/// Entries of each ring.
const RING: u32 = 512;
/// Frames taken from a socket at once.
const BATCH: usize = 64;
/// Longest time that a reordered frame waits for a later one, ns.
const LONGEST_WAIT_NS: u64 = 10_000_000;
/// Time between two looks while a frame waits for a later one, ns.
const LOOK_NS: u64 = 50_000;
/// Longest sleep, ns: when a stop is noticed at the latest.
const IDLE_NS: u64 = 10_000_000;

/// What the thread has done in one direction; see [`Tally`].
#[derive(Default)]
struct Done {
    relayed: AtomicU64,
    copies: AtomicU64,
    overtaken: AtomicU64,
    lost: AtomicU64,
    unsent: AtomicU64,
}

/// What cable and thread share.
pub(super) struct Shared {
    counts: Array<MapData, [u64; COUNT_WORDS]>,
    queues: u32,
    delays_ns: [[AtomicU64; KINDS]; DIRECTIONS],
    done: [Done; DIRECTIONS],
    stop: AtomicBool,
    failure: Mutex<Option<String>>,
}

impl Shared {
    /// Sets how long delayed frames are held.
    pub fn set_delay(&self, direction: Direction, kind: FrameKind, ns: u64) {
        self.delays_ns[direction as usize][kind as usize].store(ns, Ordering::Relaxed);
    }

    /// How long delayed frames of a kind are held, ns.
    pub fn delay_ns(&self, direction: Direction, kind: usize) -> u64 {
        self.delays_ns[direction as usize][kind].load(Ordering::Relaxed)
    }

    /// Tells the thread to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Notes why the thread has ended.
    pub fn fail(&self, why: String) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Why the thread has ended; `None` while it runs.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What has happened in one direction.
    pub fn tally(&self, direction: Direction) -> Result<Tally> {
        let done = &self.done[direction as usize];
        let mut tally = Tally::default();
        for kind in FrameKind::ALL {
            tally.kinds[kind as usize] = self.kind_tally(direction, kind)?;
        }
        tally.relayed = done.relayed.load(Ordering::Acquire);
        tally.copies = done.copies.load(Ordering::Relaxed);
        tally.overtaken = done.overtaken.load(Ordering::Relaxed);
        tally.lost = done.lost.load(Ordering::Relaxed);
        tally.unsent = done.unsent.load(Ordering::Relaxed);
        Ok(tally)
    }

    fn kind_tally(&self, direction: Direction, kind: FrameKind) -> Result<KindTally> {
        let mut sum = KindTally::default();
        for queue in 0..self.queues {
            let words = self.counts.get(&count_index(direction, kind, queue), 0).context(CHAOS_COUNT)?;
            sum.add(&KindTally::of_words(&words));
        }
        Ok(sum)
    }

    /// Frames of a direction that have gone by in the kernel.
    fn passed(&self, direction: Direction) -> Result<u64> {
        let mut passed = 0;
        for kind in FrameKind::ALL {
            let tally = self.kind_tally(direction, kind)?;
            passed += tally.passed + tally.corrupted;
        }
        Ok(passed)
    }
}

/// A queue of one interface of the box.
struct Port {
    socket: Xsk,
    outgoing: Batch,
}

/// A frame in the thread's hands, and where it is bound for.
struct Held {
    frame: Frame,
    direction: Direction,
    queue: usize,
}

/// A frame that waits for a later one.
struct Waiting {
    held: Held,
    /// Frames that had gone by when it came.
    ahead: u64,
    deadline_ns: u64,
}

/// The thread's state.
pub(super) struct Relay {
    umem: Umem,
    /// By side and queue; frames of a direction come in at the side of its number and leave at the other one.
    sides: [Vec<Port>; DIRECTIONS],
    incoming: Batch,
    /// Frames to be sent later, by time (ns) and number.
    later: BTreeMap<(u64, u64), Held>,
    waiting: Vec<Waiting>,
    serial: u64,
    shared: Arc<Shared>,
}

impl Relay {
    /// Opens sockets and attaches programs, on a thread that will do nothing else.
    pub fn open(place: &Place) -> Result<(Self, Opened)> {
        let path = &place.namespace;
        let file = File::open(path).with_context(|| format!("no namespace {}", path.display()))?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).context("cannot enter it")?;
        let mut indexes = Vec::new();
        for name in &place.interfaces {
            indexes.push(NetDevice::find(name).with_context(|| format!("no interface {name}"))?.index);
        }
        // A frame can be in each ring of each socket.
        let frames = DIRECTIONS as u32 * place.queues * 4 * RING;
        let config = UmemConfig { frames, frame_size: 4096, ..UmemConfig::default() };
        let mut umem = Umem::new(&config).context("packet memory")?;
        let first = open_ports(&mut umem, indexes[0], place.queues)?;
        let second = open_ports(&mut umem, indexes[1], place.queues)?;
        let sides = [first, second];
        let (object, rules, counts) = object(&indexes, &sides)?;
        let shared = Arc::new(Shared {
            counts,
            queues: place.queues,
            delays_ns: Default::default(),
            done: Default::default(),
            stop: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let mut opened = Opened { rules, shared: Arc::clone(&shared), links: Vec::new(), object };
        for (program, index) in PROGRAMS.into_iter().zip(indexes) {
            opened.links.push(opened.object.attach(program, index)?);
        }
        let incoming = Batch::new(BATCH);
        let relay = Self { umem, sides, incoming, later: BTreeMap::new(), waiting: Vec::new(), serial: 0, shared };
        Ok((relay, opened))
    }

    /// Relays until it is stopped.
    pub fn run(&mut self) -> Result<()> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.take_in()?;
            self.let_go()?;
            self.send()?;
            self.note_losses()?;
            self.wait()?;
        }
        Ok(())
    }

    /// Takes what the programs gave to the sockets.
    fn take_in(&mut self) -> Result<()> {
        for direction in Direction::ALL {
            for queue in 0..self.sides[direction as usize].len() {
                loop {
                    let socket = &mut self.sides[direction as usize][queue].socket;
                    if socket.receive(&mut self.umem, &mut self.incoming) == 0 {
                        break;
                    }
                    socket.recycle(&mut self.umem);
                    while let Some(frame) = self.incoming.pop() {
                        self.sort(Held { frame, direction, queue })?;
                    }
                }
                self.sides[direction as usize][queue].socket.recycle(&mut self.umem);
            }
        }
        Ok(())
    }

    /// Begins with a frame what its note says.
    fn sort(&mut self, held: Held) -> Result<()> {
        let metadata = self.umem.metadata(&held.frame, METADATA_BYTES);
        let Some(&[f0, f1, f2, f3, k0, k1, k2, k3]) = metadata.and_then(<[u8]>::first_chunk::<METADATA_BYTES>) else {
            self.umem.release(held.frame);
            bail!("BUG: a frame without room for its note");
        };
        let (fate, kind) = (u32::from_ne_bytes([f0, f1, f2, f3]), u32::from_ne_bytes([k0, k1, k2, k3]));
        let direction = held.direction;
        let now_ns = monotonic_ns();
        if fate == Fate::Delay as u32 {
            let delay_ns = self.shared.delay_ns(direction, kind as usize % KINDS);
            self.serial += 1;
            self.later.insert((now_ns.saturating_add(delay_ns), self.serial), held);
        } else if fate == Fate::Reorder as u32 {
            // Read after the frame was drawn: what is counted from here on is later.
            let ahead = match self.shared.passed(direction) {
                Ok(ahead) => ahead,
                Err(error) => {
                    self.umem.release(held.frame);
                    return Err(error);
                }
            };
            self.waiting.push(Waiting { held, ahead, deadline_ns: now_ns + LONGEST_WAIT_NS });
        } else {
            self.copy(&held);
            self.dispatch(held);
        }
        Ok(())
    }

    /// Puts a copy of a frame among those to be sent.
    fn copy(&mut self, held: &Held) {
        let Some(mut frame) = self.umem.allocate() else { return };
        if frame.set_len(held.frame.len()).is_err() {
            self.umem.release(frame);
            return;
        }
        self.umem.bytes_mut(&mut frame).copy_from_slice(self.umem.bytes(&held.frame));
        let done = &self.shared.done[held.direction as usize];
        let port = &mut self.sides[1 - held.direction as usize][held.queue];
        match port.outgoing.push(frame) {
            Ok(()) => drop(done.copies.fetch_add(1, Ordering::Relaxed)),
            Err(full) => self.umem.release(full.0),
        }
    }

    /// Puts a frame among those to be sent.
    fn dispatch(&mut self, held: Held) {
        let Held { frame, direction, queue } = held;
        let done = &self.shared.done[direction as usize];
        if let Err(full) = self.sides[1 - direction as usize][queue].outgoing.push(frame) {
            self.umem.release(full.0);
            done.unsent.fetch_add(1, Ordering::Relaxed);
        }
        done.relayed.fetch_add(1, Ordering::Release);
    }

    /// Lets those frames go whose time has come.
    fn let_go(&mut self) -> Result<()> {
        let now_ns = monotonic_ns();
        while let Some(entry) = self.later.first_entry() {
            if entry.key().0 > now_ns {
                break;
            }
            let held = entry.remove();
            self.dispatch(held);
        }
        if self.waiting.is_empty() {
            return Ok(());
        }
        let passed = [self.shared.passed(Direction::Forth)?, self.shared.passed(Direction::Back)?];
        for waiting in std::mem::take(&mut self.waiting) {
            let direction = waiting.held.direction as usize;
            if passed[direction] > waiting.ahead {
                self.shared.done[direction].overtaken.fetch_add(1, Ordering::Relaxed);
                self.dispatch(waiting.held);
            } else if now_ns >= waiting.deadline_ns {
                self.dispatch(waiting.held);
            } else {
                self.waiting.push(waiting);
            }
        }
        Ok(())
    }

    /// Gives to the kernel what is to be sent.
    fn send(&mut self) -> Result<()> {
        // What leaves at one side has come in at the other.
        for (side, done) in self.sides.iter_mut().zip(self.shared.done.iter().rev()) {
            for port in side {
                port.socket.transmit(&mut self.umem, &mut port.outgoing);
                match port.socket.kick_tx()? {
                    Kick::Unbound => bail!("an interface of the cable is gone"),
                    Kick::Busy => drop(done.unsent.fetch_add(1, Ordering::Relaxed)),
                    Kick::Idle | Kick::Woken | Kick::Again | Kick::NoBuffers | Kick::LinkDown => {}
                }
                port.socket.recycle(&mut self.umem);
            }
        }
        Ok(())
    }

    /// Notes what the kernel dropped in front of the sockets and behind them.
    fn note_losses(&self) -> Result<()> {
        for direction in Direction::ALL {
            let done = &self.shared.done[direction as usize];
            let mut lost = 0;
            for port in &self.sides[direction as usize] {
                let statistics = port.socket.statistics()?;
                lost += statistics.rx_dropped + statistics.rx_ring_full;
            }
            done.lost.store(lost, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sleeps until a frame comes or there is something to do.
    fn wait(&self) -> Result<()> {
        let is_sending =
            self.sides.iter().flatten().any(|port| !port.outgoing.is_empty() || port.socket.levels().tx > 0);
        let mut ns = if self.waiting.is_empty() && !is_sending { IDLE_NS } else { LOOK_NS };
        if let Some(((due_ns, _), _)) = self.later.first_key_value() {
            ns = ns.min(due_ns.saturating_sub(monotonic_ns()));
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: ns as i64 };
        let ports = self.sides.iter().flatten();
        let mut fds: Vec<_> = ports.map(|port| PollFd::new(&port.socket, PollFlags::IN)).collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for frames"),
        }
        if fds.iter().any(|fd| fd.revents().contains(PollFlags::ERR)) {
            // An interface that is down: `poll` returns at once until it is up again.
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let later = std::mem::take(&mut self.later).into_values();
        let waiting = std::mem::take(&mut self.waiting).into_iter().map(|waiting| waiting.held);
        for held in later.chain(waiting) {
            self.umem.release(held.frame);
        }
        self.incoming.release_all(&mut self.umem);
        for port in self.sides.iter_mut().flatten() {
            port.outgoing.release_all(&mut self.umem);
        }
    }
}

/// A socket on each queue of an interface.
fn open_ports(umem: &mut Umem, ifindex: u32, queues: u32) -> Result<Vec<Port>> {
    let mut ports = Vec::new();
    for queue in 0..queues {
        let config = XskConfig {
            rx_size: RING,
            tx_size: RING,
            fill_size: RING,
            completion_size: RING,
            ..XskConfig::new(ifindex, queue)
        };
        let mut socket = Xsk::open(umem, &config)?;
        socket.refill(umem);
        ports.push(Port { socket, outgoing: Batch::new(RING as usize) });
    }
    Ok(ports)
}

type Rules = Array<MapData, [u64; RULE_WORDS]>;
type Counts = Array<MapData, [u64; COUNT_WORDS]>;

/// The programs, told where to send to, and with rules that let everything pass.
fn object(indexes: &[u32], sides: &[Vec<Port>; DIRECTIONS]) -> Result<(BenchObject, Rules, Counts)> {
    let mut object = BenchObject::load()?;
    let mut out: DevMap<_> = object.map_mut(CHAOS_OUT)?.try_into()?;
    for direction in Direction::ALL {
        out.set(direction as u32, indexes[1 - direction as usize], None, 0).context(CHAOS_OUT)?;
    }
    let mut sockets: XskMap<_> = object.map_mut(CHAOS_XSKS)?.try_into()?;
    for direction in Direction::ALL {
        for (queue, port) in (0..).zip(&sides[direction as usize]) {
            sockets.set(socket_index(direction, queue), port.socket.as_fd(), 0).context(CHAOS_XSKS)?;
        }
    }
    let mut rules: Rules = object.take_map(CHAOS_RULE)?.try_into()?;
    for direction in Direction::ALL {
        for kind in FrameKind::ALL {
            rules.set(rule_index(direction, kind), Chaos::NONE.rule(0, kind).0, 0).context(CHAOS_RULE)?;
        }
    }
    let counts = object.take_map(CHAOS_COUNT)?.try_into()?;
    Ok((object, rules, counts))
}

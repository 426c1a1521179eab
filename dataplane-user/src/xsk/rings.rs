//! The four rings of a socket and the ways of frames through them, without a system call: what [`Xsk`](super::Xsk)
//! does on the packet path, and what a test does against `fake::Kernel`.
//!
//! No allocation, lock or log here. What goes wrong is counted.

use std::num::NonZeroU32;
use std::sync::Arc;

use super::error::Error;
use super::frame::Batch;
use super::mmap::Mapping;
use super::ring::{Consumer, Producer};
use super::sys::XdpDesc;
use super::umem::{Endpoint, Slot, Umem};

/// What happened on the packet path since the socket was opened. Plain numbers of the owning thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Descriptors of the rx ring that became frames.
    pub received: u64,
    /// Frames given to the tx ring.
    pub transmitted: u64,
    /// Frames that came back by the completion ring.
    pub completed: u64,
    /// Frames given to the fill ring.
    pub refilled: u64,
    /// Descriptors of the rx ring that were not believed.
    pub bad_rx_descriptors: u64,
    /// Addresses of the completion ring that were not believed.
    pub bad_completions: u64,
    /// Frames without a packet that were to be sent; they went to the free list instead.
    pub tx_empty: u64,
    /// Kicks: `sendto` and `recvfrom` calls.
    pub kicks: u64,
    /// Kicks that ended without progress, mostly by EAGAIN: the kernel lacked room for now. An EAGAIN that only says
    /// that one call does not send more is not counted.
    pub kick_again: u64,
    /// Kicks answered EBUSY: the driver dropped a frame (its carrier is down, say), or is being reconfigured.
    pub kick_busy: u64,
    /// Kicks answered ENOBUFS: no memory for the copy.
    pub kick_no_buffers: u64,
    /// Kicks answered ENETDOWN: the interface is down.
    pub kick_link_down: u64,
    /// Kicks answered ENXIO: the interface is gone; the socket is of no more use.
    pub kick_unbound: u64,
}

/// Entries in each ring at one moment: what waits there for the side that consumes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingLevels {
    /// Frames for the kernel to receive into.
    pub fill: u32,
    /// Packets for us to receive.
    pub rx: u32,
    /// Packets for the kernel to send.
    pub tx: u32,
    /// Sent frames for us to take back.
    pub completion: u32,
}

/// Our ends of a socket's four rings.
///
/// Every call takes the UMEM that the socket was opened on and panics with `BUG` for another one.
#[derive(Debug)]
pub struct Rings {
    fill: Producer<u64>,
    rx: Consumer<XdpDesc>,
    tx: Producer<XdpDesc>,
    completion: Consumer<u64>,
    umem: NonZeroU32,
    slot: Slot,
    /// What happened.
    pub(super) counters: Counters,
    /// Frames taken from the rx ring, and free frames, after the last refill.
    refilled_at: (u64, u32),
    /// The socket. Behind the rings: their mappings keep the socket open in the kernel, so they must go first.
    endpoint: Arc<Endpoint>,
    /// The packet memory must not be unmapped before the socket is closed.
    _memory: Arc<Mapping>,
}

/// The four ring ends of one side.
pub(super) struct Ends {
    pub fill: Producer<u64>,
    pub rx: Consumer<XdpDesc>,
    pub tx: Producer<XdpDesc>,
    pub completion: Consumer<u64>,
}

impl Rings {
    /// The rings of a socket that `umem` has entered as `slot`.
    pub(super) fn new(ends: Ends, umem: &Umem, slot: Slot, endpoint: Arc<Endpoint>) -> Self {
        Self {
            fill: ends.fill,
            rx: ends.rx,
            tx: ends.tx,
            completion: ends.completion,
            umem: umem.id(),
            slot,
            counters: Counters::default(),
            refilled_at: (0, 0),
            endpoint,
            _memory: Arc::clone(umem.memory()),
        }
    }

    /// A new socket's rings: enters it into the UMEM.
    pub(super) fn enter(ends: Ends, umem: &mut Umem, endpoint: Arc<Endpoint>) -> Result<Self, Error> {
        let slot = umem.enter(&endpoint)?;
        Ok(Self::new(ends, umem, slot, endpoint))
    }

    /// Takes received packets into `batch`, as many as it has room for. Returns how many.
    #[inline]
    pub fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        self.check(umem);
        let before = batch.len();
        let room = u32::try_from(batch.room()).unwrap_or(u32::MAX);
        let mut entries = self.rx.peek(room);
        for desc in &mut entries {
            match umem.admit(self.slot, desc) {
                Ok(frame) => {
                    if let Err(full) = batch.push(frame) {
                        // Never: peek gives no more than there is room for. But a frame must not be lost.
                        umem.release(full.0);
                    }
                }
                Err(_) => self.counters.bad_rx_descriptors += 1,
            }
        }
        entries.release();
        let received = batch.len() - before;
        self.counters.received += received as u64;
        received
    }

    /// Gives packets to the tx ring, the oldest of `batch` first. Returns how many; what the ring has no room for
    /// stays in `batch`. A frame without a packet is not sent but released, because the kernel would never complete it.
    ///
    /// The packets are sent after the next kick; the frames come back by [`complete`](Self::complete).
    #[inline]
    pub fn transmit(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        self.check(umem);
        let wanted = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        let mut entries = self.tx.reserve(wanted);
        entries.fill_with(|| {
            loop {
                let frame = batch.pop()?;
                if !frame.is_empty() {
                    return Some(umem.lend_outbound(self.slot, frame));
                }
                umem.release(frame);
                self.counters.tx_empty += 1;
            }
        });
        let sent = entries.submit();
        self.counters.transmitted += u64::from(sent);
        sent as usize
    }

    /// Takes sent frames from the completion ring into the free list. Returns how many.
    #[inline]
    pub fn complete(&mut self, umem: &mut Umem) -> usize {
        self.check(umem);
        let mut completed = 0;
        let mut entries = self.completion.peek(u32::MAX);
        for addr in &mut entries {
            match umem.complete(self.slot, addr) {
                Ok(()) => completed += 1,
                Err(_) => self.counters.bad_completions += 1,
            }
        }
        entries.release();
        self.counters.completed += completed as u64;
        completed
    }

    /// Fills the fill ring from the free list. Returns how many frames it took.
    ///
    /// Keep it full on a socket that mostly sends, too: some drivers leak without. Sockets of one UMEM draw on one
    /// free list; with fewer frames than [`XskConfig::frames`](super::XskConfig::frames) says, the first takes all.
    #[inline]
    pub fn refill(&mut self, umem: &mut Umem) -> usize {
        self.check(umem);
        let mut entries = self.fill.reserve(umem.available());
        entries.fill_with(|| umem.lend_inbound(self.slot));
        let filled = entries.submit();
        self.counters.refilled += u64::from(filled);
        self.refilled_at = (self.taken(), umem.available());
        filled as usize
    }

    /// Takes back sent frames and refills, as far as there can be anything to do: the kernel's cursors lie on cache lines that
    /// another core writes with every packet, and each look at them takes the line away from it.
    #[inline]
    pub fn recycle(&mut self, umem: &mut Umem) {
        if self.counters.completed + self.counters.bad_completions < self.counters.transmitted {
            self.complete(umem);
        }
        if self.refilled_at != (self.taken(), umem.available()) {
            self.refill(umem);
        }
    }

    /// Descriptors taken from the rx ring.
    fn taken(&self) -> u64 {
        self.counters.received + self.counters.bad_rx_descriptors
    }

    /// Frames that the kernel has to receive into and that hold no packet yet: given to the fill ring, and neither taken from
    /// the rx ring nor waiting there.
    pub fn vacant(&self) -> u32 {
        let vacant = self.counters.refilled.saturating_sub(self.taken()).saturating_sub(self.rx.level().into());
        u32::try_from(vacant).unwrap_or(u32::MAX)
    }

    /// What waits in each ring now.
    pub fn levels(&self) -> RingLevels {
        RingLevels {
            fill: self.fill.level(),
            rx: self.rx.level(),
            tx: self.tx.level(),
            completion: self.completion.level(),
        }
    }

    /// Packets in the tx ring that the kernel has not taken, as far as it has said: it tells late of some it dropped.
    #[inline]
    pub fn tx_level(&self) -> u32 {
        self.tx.level()
    }

    /// Whether the kernel wants a kick to go on sending.
    #[inline]
    pub fn tx_needs_wakeup(&self) -> bool {
        self.tx.need_wakeup()
    }

    /// Whether the kernel wants a kick to go on receiving.
    #[inline]
    pub fn fill_needs_wakeup(&self) -> bool {
        self.fill.need_wakeup()
    }

    /// What happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The socket behind the rings.
    pub(super) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    #[inline]
    #[track_caller]
    fn check(&self, umem: &Umem) {
        assert!(umem.id() == self.umem, "BUG: rings of UMEM {} used with UMEM {}", self.umem, umem.id());
    }
}

//! The account of a worker: what it was charged, what it discharges, and what it shows deciders of what waits.

use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use dataplane_common::bands::Behind;
use dataplane_common::maps::{QueueRow, WorkerRow};
use dataplane_common::meta::Metadata;
use dataplane_common::tuning::FIFO;

use super::{Worker, monotonic_ns};
use crate::maps::tables::{add_own, pair, set};
use crate::port::Port;

/// Shortest charge whose progress is shown to deciders: below, reading the clock costs more than it tells.
const SHOW_PROGRESS_NS: u32 = 2_000;

/// What is to be discharged when a packet is done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Due {
    ns: u32,
    packets: u32,
}

/// Work that is done and that deciders have not been shown.
///
/// They read its cache line on another core with every packet: a worker that wrote there with every packet would have both
/// wait for it each time. So short packets are shown together, never more than [`SHOW_PROGRESS_NS`] of them late.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    ns: u64,
    packets: u64,
}

impl<P: Port> Worker<P> {
    /// Settles the socket's account with this packet: discharges what was charged for frames that were lost before it,
    /// and returns what is to be discharged when it is done.
    ///
    /// That is its own charge, unless its charge was already written off as lost (then less, down to nothing).
    pub(super) fn settle(&mut self, index: usize, metadata: &Metadata) -> Due {
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
        // No more than the charge, which is a u32.
        Due { ns: due.min(charged_ns) as u32, packets: packets.min(1) }
    }

    /// Discharges what was charged for frames that never came.
    fn write_off(&self, ns: u64, packets: u32) {
        let row = self.tables.workers.row(self.settings.worker);
        add_own(row.word(offset_of!(WorkerRow, lost_ns)), ns);
        add_own(row.word(offset_of!(WorkerRow, lost_packets)), u64::from(packets));
        add_own(row.word(offset_of!(WorkerRow, discharged_ns)), ns);
        add_own(row.word(offset_of!(WorkerRow, discharged_packets)), u64::from(packets));
    }

    pub(super) fn begin_service(&self, charged_ns: u32) {
        if charged_ns >= SHOW_PROGRESS_NS {
            self.show_behind(charged_ns);
            let row = self.tables.workers.row(self.settings.worker);
            set(row, offset_of!(WorkerRow, serving_charge_ns), u64::from(charged_ns));
            set(row, offset_of!(WorkerRow, serving_since_ns), monotonic_ns());
        }
    }

    pub(super) fn end_service(&mut self, due: Due) {
        let row = self.tables.workers.row(self.settings.worker);
        if row.word(offset_of!(WorkerRow, serving_since_ns)).load(Relaxed) != 0 {
            set(row, offset_of!(WorkerRow, serving_since_ns), 0);
        }
        self.done.ns += u64::from(due.ns);
        self.done.packets += u64::from(due.packets);
        if self.done.ns >= u64::from(SHOW_PROGRESS_NS) {
            self.show_done();
        }
    }

    /// Discharges what is done.
    pub(super) fn show_done(&mut self) {
        let done = std::mem::take(&mut self.done);
        if done.packets > 0 || done.ns > 0 {
            let row = self.tables.workers.row(self.settings.worker);
            add_own(row.word(offset_of!(WorkerRow, discharged_ns)), done.ns);
            add_own(row.word(offset_of!(WorkerRow, discharged_packets)), done.packets);
        }
    }

    /// Shows which part of the backlog lies behind a packet of each band, while a packet charged `serving_ns` is in service
    /// (0: none is). In order of arrival nothing does, and the row says so without us.
    ///
    /// The packet in service runs before everything that comes. Half of its charge counts, which on average is left of it.
    pub(super) fn show_behind(&self, serving_ns: u32) {
        let Some(queue) = &self.queue else { return };
        if self.settings.params.tuning.discipline == FIFO {
            return;
        }
        let mut waiting_ns = *queue.waiting_ns();
        waiting_ns[0] += u64::from(serving_ns / 2);
        let row = self.tables.workers.row(self.settings.worker);
        set(row, offset_of!(WorkerRow, behind), Behind::of(&waiting_ns).0);
    }

    /// Shows what a step with packets took.
    pub(super) fn show_step(&self, packets: usize, ns: u64) {
        let row = self.tables.workers.row(self.settings.worker);
        add_own(row.word(offset_of!(WorkerRow, stepped_ns)), ns);
        add_own(row.word(offset_of!(WorkerRow, stepped_packets)), packets as u64);
    }

    /// Shows how many frames hold a packet.
    pub(super) fn show_memory(&self) {
        let vacant = self.sockets.iter().fold(0u32, |sum, socket| sum.saturating_add(socket.port.vacant()));
        let in_use = self.umem.outstanding().saturating_sub(vacant);
        let word = self.tables.workers.row(self.settings.worker).word(offset_of!(WorkerRow, frames_in_use));
        let shown = pair(in_use, self.umem.frames());
        // Deciders on other cores read its cache line: an idle worker leaves it alone.
        if word.load(Relaxed) != shown {
            word.store(shown, Relaxed);
        }
    }

    /// Copies the kernel's losses to the map, and writes off charges whose frames never came. Returns the packets that came
    /// meanwhile.
    ///
    /// A charge is written off when its socket's receive ring has been empty at two looks at least
    /// [`HOUSEKEEPING`](super::HOUSEKEEPING) apart and nothing was charged in between: a frame that was not lost would have
    /// come into the ring long before.
    pub(super) fn housekeep(&mut self) -> usize {
        self.last_housekeeping = self.clock.now();
        let mut came = 0;
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
            let received = self.receive(index);
            if received > 0 {
                self.flush_all();
                came += received;
                continue;
            }
            let socket = &mut self.sockets[index];
            (socket.position_ns, socket.sequence) = (charged, packets);
            self.write_off(due, lost);
        }
        came
    }
}

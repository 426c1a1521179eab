//! The mapped arrays of one node, shared by its workers and its control thread.

use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use dataplane_common::load::{self, Forwarding, Word, WorkerLoad};
pub use dataplane_common::maps::pair;
use dataplane_common::maps::{
    FlowRow, FunctionRow, LoadRow, MetaRow, NameRow, QueueRow, RELOAD_TEXT, ReloadRow, SignalsRow, SlotRow, WorkerRow,
};
use dataplane_common::reason::{REASON_STRIDE, Reason};
use dataplane_common::seal::{KeyRow, SealRow};

use super::mmap::{MappedArray, Row};

/// Every mapped array of a node.
#[derive(Debug)]
pub struct Tables {
    /// `LOAD_TABLE`.
    pub load: MappedArray<LoadRow>,
    /// `WORKERS`.
    pub workers: MappedArray<WorkerRow>,
    /// `QUEUES`.
    pub queues: MappedArray<QueueRow>,
    /// `FUNCTIONS`.
    pub functions: MappedArray<FunctionRow>,
    /// `WORKER_COUNT`.
    pub counts: MappedArray<u64>,
    /// `META`.
    pub meta: MappedArray<MetaRow>,
    /// `RELOADS`.
    pub reloads: MappedArray<ReloadRow>,
    /// `SLOTS`.
    pub slots: MappedArray<SlotRow>,
    /// `FLOWS`.
    pub flows: MappedArray<FlowRow>,
    /// `HELD`.
    pub held: MappedArray<u64>,
    /// `SIGNALS`.
    pub signals: MappedArray<SignalsRow>,
    /// `ROSTER`.
    pub roster: MappedArray<u64>,
    /// `NAMES`.
    pub names: MappedArray<NameRow>,
    /// `KEYS`.
    pub keys: MappedArray<KeyRow>,
    /// `SEALS`.
    pub seals: MappedArray<SealRow>,
}

impl Tables {
    /// The counter of `reason` of `worker`.
    #[inline]
    pub fn count(&self, worker: u32, reason: Reason) -> &AtomicU64 {
        self.counts.row(worker * REASON_STRIDE as u32 + reason as u32).word(0)
    }

    /// What `worker` was charged, has done and is doing, read word by word.
    pub fn worker_load(&self, worker: u32) -> WorkerLoad {
        let row = self.workers.row(worker);
        WorkerLoad::read(|offset| row.word(offset).load(Acquire))
    }

    /// What forwarding costs, as deciders read it.
    pub fn forwarding(&self) -> Forwarding {
        let row = self.signals.row(0);
        Forwarding::read(|offset| row.word(offset).load(Relaxed))
    }

    /// What forwarding costs where a worker decides and sends.
    pub fn forwarding_by_worker(&self) -> Forwarding {
        let cost = self.forwarding();
        let worker_ns = self.signals.row(0).word(offset_of!(SignalsRow, worker_send_ns)).load(Relaxed);
        Forwarding { send_ns: cost.send_ns.saturating_add(load::saturate(worker_ns)), ..cost }
    }

    /// Shows deciders what forwarding costs.
    pub fn set_forwarding(&self, cost: &Forwarding) {
        let row = self.signals.row(0);
        set(row, offset_of!(SignalsRow, send_ns), pair(cost.send_ns, cost.receive_ns));
        set(row, offset_of!(SignalsRow, wire_ns), pair(cost.wire_ns, cost.wire_ns_per_byte_q16));
    }

    /// Shows what a peer is called; nothing = it is gone.
    pub fn set_name(&self, node: u16, name: &str) {
        let mut bytes = [0; size_of::<NameRow>()];
        let length = name.len().min(bytes.len());
        bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
        let row = self.names.row(node.into());
        for (word, at) in bytes.as_chunks::<8>().0.iter().zip((0..).step_by(8)) {
            set(row, at, u64::from_le_bytes(*word));
        }
    }

    /// Shows how a reload that ended at `now_ns` went: whether it was taken, and what there is to say of it, of which the first
    /// [`RELOAD_TEXT`] bytes are shown.
    pub fn show_reload(&self, now_ns: u64, is_taken: bool, text: &str) {
        let row = self.reloads.row(0);
        let text = &text.as_bytes()[..text.floor_char_boundary(RELOAD_TEXT)];
        for (at, chunk) in text.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            set(row, offset_of!(ReloadRow, text) + at * 8, u64::from_le_bytes(word));
        }
        set(row, offset_of!(ReloadRow, length), pair(text.len() as u32, is_taken.into()));
        set(row, offset_of!(ReloadRow, at_ns), now_ns);
        add_own(row.word(offset_of!(ReloadRow, taken)), is_taken.into());
        // Whoever waits for this word may read the others once it has changed.
        row.word(offset_of!(ReloadRow, attempts)).fetch_add(1, Release);
    }
}

impl load::Row for Row<'_, LoadRow> {
    #[inline]
    fn word(&self, word: Word) -> u64 {
        Row::word(self, word as usize).load(Acquire)
    }
}

/// Adds to a word that only this thread writes: a plain load and store, not a locked instruction.
#[inline(always)]
pub fn add_own(word: &AtomicU64, amount: u64) {
    word.store(word.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// Writes a word of a row.
#[inline(always)]
pub fn set<T: super::MapValue>(row: Row<'_, T>, offset: usize, word: u64) {
    row.word(offset).store(word, Relaxed);
}

#[cfg(test)]
#[path = "loom_tests.rs"]
mod loom_tests;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::maps::MapValue;
    use dataplane_common::maps::FLOW_SLOTS;
    use dataplane_common::seal::KEY_ROWS;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
    use std::mem::offset_of;
    use std::os::fd::AsFd;

    fn anonymous<T: MapValue>(entries: u32) -> MappedArray<T> {
        let fd = memfd_create("map", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, u64::from(entries) * size_of::<T>() as u64).unwrap();
        MappedArray::map(fd.as_fd(), entries).unwrap()
    }

    /// Tables without a kernel map behind them.
    pub(crate) fn tables(nodes: u32, workers: u32, interfaces: u32, functions: u32) -> Tables {
        let per_worker = dataplane_common::maps::MAX_WORKERS as u32;
        Tables {
            load: anonymous(nodes),
            workers: anonymous(workers),
            queues: anonymous(interfaces * per_worker),
            functions: anonymous(functions * per_worker),
            counts: anonymous(workers * REASON_STRIDE as u32),
            meta: anonymous(1),
            reloads: anonymous(1),
            slots: anonymous(dataplane_common::plan::SLOTS * dataplane_common::plan::TABLES),
            flows: anonymous(FLOW_SLOTS as u32),
            held: anonymous(workers * dataplane_common::held::PLACES),
            signals: anonymous(1),
            roster: anonymous(nodes),
            names: anonymous(nodes),
            keys: anonymous(KEY_ROWS as u32),
            seals: anonymous(nodes),
        }
    }

    #[test]
    fn rows_and_words_are_shared_memory() {
        let tables = tables(2, 1, 1, 1);
        set(tables.load.row(1), offset_of!(LoadRow, sent_ns), 7);
        add_own(tables.load.row(1).word(offset_of!(LoadRow, sent_ns)), 5);
        assert_eq!(tables.load.row(1).word(offset_of!(LoadRow, sent_ns)).load(Relaxed), 12);
        assert_eq!(tables.load.row(0).word(offset_of!(LoadRow, sent_ns)).load(Relaxed), 0);
        assert_eq!((tables.load.len(), tables.load.is_empty()), (2, false));
    }

    #[test]
    #[should_panic(expected = "BUG: row 2 of a map with 2 rows")]
    fn rows_beyond_the_map_are_a_bug() {
        let tables = tables(2, 1, 1, 1);
        let _ = tables.load.row(2);
    }

    #[test]
    #[should_panic(expected = "BUG: no word at offset 4")]
    fn words_are_aligned() {
        let tables = tables(2, 1, 1, 1);
        let _ = tables.load.row(0).word(4);
    }
}

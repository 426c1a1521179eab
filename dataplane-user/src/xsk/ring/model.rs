//! The ring under loom: every interleaving and every reordering that the memory model allows, up to the bounds below.
//!
//! Loom is an ordinary dev-dependency and these are ordinary tests. `--cfg loom` for the whole build would also change
//! other crates in the tree, and a test that needs special flags is one that nobody runs.

#![expect(unsafe_code, reason = "implements the unsafe Memory trait and makes ring ends")]

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;

use super::{Consumer, Memory, Producer, Word};

/// Ring memory of loom's atomics and cells; loom reports an access to a cell that may race with another.
#[derive(Clone)]
struct Modelled(Arc<Shared>);

struct Shared {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    slots: Vec<UnsafeCell<u32>>,
}

impl Modelled {
    fn new(entries: u32, start: u32) -> Self {
        Self(Arc::new(Shared {
            producer: AtomicU32::new(start),
            consumer: AtomicU32::new(start),
            flags: AtomicU32::new(0),
            slots: (0..entries).map(|_| UnsafeCell::new(0)).collect(),
        }))
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        match word {
            Word::Producer => &self.0.producer,
            Word::Consumer => &self.0.consumer,
            Word::Flags => &self.0.flags,
        }
    }

    fn slot(&self, index: u32) -> &UnsafeCell<u32> {
        &self.0.slots[index as usize % self.0.slots.len()]
    }
}

impl Memory<u32> for Modelled {
    fn entries(&self) -> u32 {
        self.0.slots.len() as u32
    }

    fn load(&self, word: Word, order: Ordering) -> u32 {
        self.word(word).load(order)
    }

    fn store(&self, word: Word, value: u32, order: Ordering) {
        self.word(word).store(value, order);
    }

    unsafe fn read(&self, index: u32) -> u32 {
        // SAFETY: the caller's promise, which loom checks.
        self.slot(index).with(|slot| unsafe { *slot })
    }

    unsafe fn write(&self, index: u32, value: u32) {
        // SAFETY: the caller's promise, which loom checks.
        self.slot(index).with_mut(|slot| unsafe { *slot = value });
    }
}

/// Sends `total` numbers through a ring, up to `batch` at a time on both sides, and sees them arrive in order.
fn pass(entries: u32, total: u32, batch: u32, start: u32) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let memory = Modelled::new(entries, start);
        let other = memory.clone();
        let sender = thread::spawn(move || {
            // SAFETY: the only producer of this memory.
            let mut ring = unsafe { Producer::new(other) };
            let mut sent = 0;
            while sent < total {
                let mut numbers = sent..total;
                let mut reservation = ring.reserve(batch);
                reservation.fill_with(|| numbers.next());
                match reservation.submit() {
                    0 => thread::yield_now(),
                    n => sent += n,
                }
            }
        });
        // SAFETY: the only consumer of this memory.
        let mut ring = unsafe { Consumer::<u32, _>::new(memory) };
        let mut expected = 0;
        while expected < total {
            let mut entries = ring.peek(batch);
            for number in &mut entries {
                assert_eq!(number, expected, "an entry was lost, torn or read twice");
                expected += 1;
            }
            if entries.release() == 0 {
                thread::yield_now();
            }
        }
        sender.join().unwrap();
    });
}

#[test]
fn entries_arrive_in_order_one_by_one_under_every_reordering() {
    pass(2, 4, 1, u32::MAX - 1);
}

#[test]
fn entries_arrive_in_order_in_batches_under_every_reordering() {
    pass(2, 5, 2, u32::MAX - 2);
}

#[test]
fn a_ring_of_one_entry_never_overwrites_what_is_unread() {
    pass(1, 3, 2, u32::MAX);
}

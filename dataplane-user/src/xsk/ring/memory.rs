//! Where a ring lies: three words and an array that two sides share.
//!
//! The ring's arithmetic and its memory orderings are written once, in `ring.rs`, over this trait. It has two
//! implementations: [`Mapped`], which is the product, and `model::Modelled`, in which the words are loom's atomics
//! and the entries loom's cells, so that the very same code is checked under every allowed reordering.

#![expect(unsafe_code, reason = "reads and writes memory shared with the kernel")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::xsk::mmap::Mapping;
use crate::xsk::sys::{Plain, XdpRingOffset};

/// The shared words of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Count of entries ever produced, modulo 2^32.
    Producer,
    /// Count of entries ever consumed, modulo 2^32.
    Consumer,
    /// `XDP_RING_NEED_WAKEUP`, written by the kernel.
    Flags,
}

/// Memory of one ring.
pub trait Memory<T> {
    /// Number of entries, a power of two.
    fn entries(&self) -> u32;
    /// Atomic load of a word.
    fn load(&self, word: Word, order: Ordering) -> u32;
    /// Atomic store of a word.
    fn store(&self, word: Word, value: u32, order: Ordering);
    /// Reads the entry at `index` modulo the number of entries.
    ///
    /// # Safety
    /// The other side does not write this entry during the call.
    unsafe fn read(&self, index: u32) -> T;
    /// Writes the entry at `index` modulo the number of entries.
    ///
    /// # Safety
    /// The other side neither reads nor writes this entry during the call.
    unsafe fn write(&self, index: u32, value: T);
}

/// A ring in mapped memory.
#[derive(Debug)]
pub struct Mapped<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    slots: NonNull<T>,
    entries: u32,
    /// Keeps what the pointers point to.
    _mapping: Arc<Mapping>,
}

// SAFETY: the pointers lead into the mapping that the value keeps alive and that is not bound to a thread; access to
// words is atomic, access to entries is the business of the callers of the unsafe `read` and `write`.
unsafe impl<T: Plain> Send for Mapped<T> {}

impl<T: Plain> Mapped<T> {
    /// The ring of `entries` entries at `offsets` of `mapping`. `None` if `entries` is not a power of two or a part
    /// would lie outside the mapping or be misaligned.
    pub fn new(mapping: Arc<Mapping>, offsets: &XdpRingOffset, entries: u32) -> Option<Self> {
        if !entries.is_power_of_two() {
            return None;
        }
        Some(Self {
            producer: mapping.at(offsets.producer, 1)?,
            consumer: mapping.at(offsets.consumer, 1)?,
            flags: mapping.at(offsets.flags, 1)?,
            slots: mapping.at(offsets.desc, entries as usize)?,
            entries,
            _mapping: mapping,
        })
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        let pointer = match word {
            Word::Producer => self.producer,
            Word::Consumer => self.consumer,
            Word::Flags => self.flags,
        };
        // SAFETY: aligned and inside the mapping (`Mapping::at`), which lives as long as `self`; an `AtomicU32` may
        // change under a shared reference, by the kernel too.
        unsafe { pointer.as_ref() }
    }

    fn slot(&self, index: u32) -> NonNull<T> {
        let slot = (index & (self.entries - 1)) as usize;
        // SAFETY: `slot < entries`, and `entries` values lie inside the mapping (`Mapping::at`).
        unsafe { self.slots.add(slot) }
    }
}

/// A second view of the same ring, for the other side.
#[cfg(any(test, feature = "fake"))]
impl<T> Clone for Mapped<T> {
    fn clone(&self) -> Self {
        Self { _mapping: Arc::clone(&self._mapping), ..*self }
    }
}

impl<T: Plain> Memory<T> for Mapped<T> {
    #[inline]
    fn entries(&self) -> u32 {
        self.entries
    }

    #[inline]
    fn load(&self, word: Word, order: Ordering) -> u32 {
        self.word(word).load(order)
    }

    #[inline]
    fn store(&self, word: Word, value: u32, order: Ordering) {
        self.word(word).store(value, order);
    }

    #[inline]
    unsafe fn read(&self, index: u32) -> T {
        // SAFETY: in bounds and aligned (`slot`), any bit pattern is a value (`Plain`), and no write at the same
        // time (the caller's promise).
        unsafe { self.slot(index).read() }
    }

    #[inline]
    unsafe fn write(&self, index: u32, value: T) {
        // SAFETY: in bounds and aligned (`slot`), and no other access at the same time (the caller's promise).
        unsafe { self.slot(index).write(value) }
    }
}

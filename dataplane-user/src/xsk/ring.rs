//! One ring shared with the kernel: a [`Producer`] reserves and submits, a [`Consumer`] peeks and releases.
//!
//! Both cursors count entries since the ring was made, modulo 2^32, and the entry of count `c` lies at `c` modulo
//! the ring's size. The kernel's half of the protocol is described in
//! [xsk_queue.h](https://github.com/torvalds/linux/blob/v6.18/net/xdp/xsk_queue.h); these are its counterparts:
//!
//! - entries are written before the release store of `producer`, and read after an acquire load of it;
//! - entries are read before the release store of `consumer`, and overwritten after an acquire load of it.
//!
//! Each side keeps a copy of the other's cursor and loads the shared one only when the copy does not suffice.
//! The kernel's cursors are not trusted: whatever they hold, an index is masked and a count limited to the ring's
//! size, so a wrong one can give wrong entries (which `Umem` checks one by one) but no access outside the ring.
//!
//! No system calls here. There is one reservation per guard, and what was not submitted never becomes visible.

#![expect(unsafe_code, reason = "reads and writes ring entries, which the other side may touch at other times")]

mod memory;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::sync::atomic::Ordering;

pub use memory::{Mapped, Memory, Word};

use super::sys::XDP_RING_NEED_WAKEUP;

/// The producing end: ours for the fill and tx rings, the kernel's for the others.
#[derive(Debug)]
pub struct Producer<T, M = Mapped<T>> {
    memory: M,
    /// The shared producer word has this value; only we write it.
    producer: u32,
    /// The consumer word when last loaded; the true one is this or later.
    seen_consumer: u32,
    entry: PhantomData<T>,
}

impl<T, M: Memory<T>> Producer<T, M> {
    /// The producing end of `memory`, from the cursors found there.
    ///
    /// # Safety
    /// This is the only producer of that ring, in this process and elsewhere, for as long as it lives.
    pub unsafe fn new(memory: M) -> Self {
        let producer = memory.load(Word::Producer, Ordering::Relaxed);
        let seen_consumer = memory.load(Word::Consumer, Ordering::Acquire);
        Self { memory, producer, seen_consumer, entry: PhantomData }
    }

    /// Reserves up to `wanted` entries; the guard says how many it got.
    #[inline]
    pub fn reserve(&mut self, wanted: u32) -> Reservation<'_, T, M> {
        let mut room = self.room();
        if room < wanted {
            self.seen_consumer = self.memory.load(Word::Consumer, Ordering::Acquire);
            room = self.room();
        }
        Reservation { granted: wanted.min(room), written: 0, ring: self }
    }

    /// Entries that can be written for sure.
    fn room(&self) -> u32 {
        self.memory.entries().saturating_sub(self.producer.wrapping_sub(self.seen_consumer))
    }

    /// Entries submitted that the other side has not released yet, limited to the ring's size.
    #[inline]
    pub fn level(&self) -> u32 {
        let consumer = self.memory.load(Word::Consumer, Ordering::Acquire);
        self.producer.wrapping_sub(consumer).min(self.memory.entries())
    }

    /// Whether the kernel asks for a kick before it goes on consuming.
    ///
    /// The kernel may set the flag just after it found the ring empty and just before our submit; no fence on this
    /// side alone can exclude that. So ask again on every turn while the ring holds entries, not only after a submit.
    #[inline]
    pub fn need_wakeup(&self) -> bool {
        self.memory.load(Word::Flags, Ordering::Acquire) & XDP_RING_NEED_WAKEUP != 0
    }
}

/// Entries reserved in a [`Producer`]. Dropped without [`submit`](Self::submit), nothing has happened.
#[must_use = "nothing is visible to the other side before submit"]
pub struct Reservation<'a, T, M: Memory<T> = Mapped<T>> {
    ring: &'a mut Producer<T, M>,
    granted: u32,
    written: u32,
}

impl<T, M: Memory<T>> Reservation<'_, T, M> {
    /// Entries that can still be written.
    #[inline]
    pub fn remaining(&self) -> u32 {
        self.granted - self.written
    }

    /// Writes entries from `next` until it has none or the reservation is used up; `next` is not called again then.
    #[inline]
    pub fn fill_with(&mut self, mut next: impl FnMut() -> Option<T>) {
        while self.remaining() > 0
            && let Some(value) = next()
        {
            // SAFETY: the entry is one of `granted <= room()` ones after `producer`. The other side released them
            // (acquire load of its cursor) and does not look at them before `submit` moves the producer word.
            unsafe { self.ring.memory.write(self.ring.producer.wrapping_add(self.written), value) };
            self.written += 1;
        }
    }

    /// Makes what was written visible, and only that. Returns how many entries those are.
    #[inline]
    pub fn submit(self) -> u32 {
        if self.written > 0 {
            self.ring.producer = self.ring.producer.wrapping_add(self.written);
            self.ring.memory.store(Word::Producer, self.ring.producer, Ordering::Release);
        }
        self.written
    }
}

/// The consuming end: ours for the rx and completion rings, the kernel's for the others.
#[derive(Debug)]
pub struct Consumer<T, M = Mapped<T>> {
    memory: M,
    /// The shared consumer word has this value, except while a [`Peek`] lives; only we write it.
    consumer: u32,
    /// The producer word when last loaded; the true one is this or later.
    seen_producer: u32,
    entry: PhantomData<T>,
}

impl<T, M: Memory<T>> Consumer<T, M> {
    /// The consuming end of `memory`, from the cursors found there.
    ///
    /// # Safety
    /// This is the only consumer of that ring, in this process and elsewhere, for as long as it lives.
    pub unsafe fn new(memory: M) -> Self {
        let consumer = memory.load(Word::Consumer, Ordering::Relaxed);
        let seen_producer = memory.load(Word::Producer, Ordering::Acquire);
        Self { memory, consumer, seen_producer, entry: PhantomData }
    }

    /// Looks at up to `wanted` entries: an iterator over copies of them.
    #[inline]
    pub fn peek(&mut self, wanted: u32) -> Peek<'_, T, M> {
        let mut ready = self.ready();
        if ready < wanted {
            self.seen_producer = self.memory.load(Word::Producer, Ordering::Acquire);
            ready = self.ready();
        }
        Peek { granted: wanted.min(ready), taken: 0, ring: self }
    }

    /// Entries known to be readable.
    fn ready(&self) -> u32 {
        self.seen_producer.wrapping_sub(self.consumer).min(self.memory.entries())
    }

    /// Entries that wait to be read, limited to the ring's size.
    #[inline]
    pub fn level(&self) -> u32 {
        let producer = self.memory.load(Word::Producer, Ordering::Acquire);
        producer.wrapping_sub(self.consumer).min(self.memory.entries())
    }

    /// Plays the kernel: asks the producer for a kick, or no longer.
    #[cfg(any(test, feature = "fake"))]
    pub fn set_need_wakeup(&self, needed: bool) {
        let flags = if needed { XDP_RING_NEED_WAKEUP } else { 0 };
        self.memory.store(Word::Flags, flags, Ordering::Release);
    }
}

/// Entries of a [`Consumer`] that are being read. An entry that [`next`](Iterator::next) has returned is released,
/// at the latest when this is dropped: no entry is ever read twice.
#[must_use = "an entry is consumed by taking it from this iterator"]
pub struct Peek<'a, T, M: Memory<T> = Mapped<T>> {
    ring: &'a mut Consumer<T, M>,
    granted: u32,
    taken: u32,
}

impl<T, M: Memory<T>> Peek<'_, T, M> {
    /// Gives the entries taken back to the other side. Returns how many those are.
    #[inline]
    pub fn release(self) -> u32 {
        self.taken
    }
}

impl<T, M: Memory<T>> Iterator for Peek<'_, T, M> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.taken == self.granted {
            return None;
        }
        // SAFETY: the entry is one of `granted <= ready()` ones from `consumer` on. The other side published them
        // (acquire load of its cursor) and does not write them again before the consumer word passes them.
        let value = unsafe { self.ring.memory.read(self.ring.consumer.wrapping_add(self.taken)) };
        self.taken += 1;
        Some(value)
    }
}

impl<T, M: Memory<T>> Drop for Peek<'_, T, M> {
    #[inline]
    fn drop(&mut self) {
        if self.taken > 0 {
            self.ring.consumer = self.ring.consumer.wrapping_add(self.taken);
            self.ring.memory.store(Word::Consumer, self.ring.consumer, Ordering::Release);
        }
    }
}

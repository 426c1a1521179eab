//! Results of a flow leave in the order in which its packets arrived, wherever they were computed.
//!
//! Every packet of an ordered function takes a number in its flow slot on arrival (`FLOWS`, [`FlowRow::issued`]). Whoever has
//! a result asks for its turn: when its number is the next one to leave ([`FlowRow::released`]), it moves that on and sends.
//! Only the holder of the next number ever does that, so one compare-and-set is all the synchronisation that workers and the
//! XDP program need. A result before its turn is held here; a packet that ends without a result leaves a mark, so that
//! nobody waits for it. A result that was lost on the way is given up after a time, and if it comes after all, it is sent late.
//!
//! Cost: constant for a result whose turn it is; holding walks the (short) list of its slot.

use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use dataplane_common::maps::{FLOW_SLOTS, FlowRow};

use crate::maps::MappedArray;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The result's, and it has been taken: it must be sent now.
    Now,
    /// That of others before it.
    Later,
    /// It is over: later ones have left.
    Past,
}

/// The numbers to leave next, by flow slot.
pub trait Turns {
    /// Asks for the turn of `number`.
    fn take(&self, slot: u16, number: u32) -> Turn;
    /// Gives up every turn before that of `number`, and takes that.
    fn skip(&self, slot: u16, number: u32) -> Turn;
}

/// A word that several threads and the XDP program change.
trait Shared {
    fn get(&self) -> u64;
    /// Writes `new` if the word is `old`; tells whether it was.
    fn replace(&self, old: u64, new: u64) -> bool;
}

impl Shared for AtomicU64 {
    #[inline]
    fn get(&self) -> u64 {
        self.load(Acquire)
    }

    #[inline]
    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, AcqRel, Acquire).is_ok()
    }
}

/// [`Turns::take`] on a word.
#[inline]
fn take(released: &impl Shared, number: u32) -> Turn {
    loop {
        let next = released.get();
        match number.wrapping_sub(next as u32) {
            0 => {
                if released.replace(next, next.wrapping_add(1)) {
                    return Turn::Now;
                }
            }
            ahead if ahead < 1 << 31 => return Turn::Later,
            _ => return Turn::Past,
        }
    }
}

/// [`Turns::skip`] on a word.
fn skip(released: &impl Shared, number: u32) -> Turn {
    loop {
        let next = released.get();
        let ahead = number.wrapping_sub(next as u32);
        if ahead >= 1 << 31 {
            return Turn::Past;
        }
        let after = next.wrapping_add(u64::from(ahead) + 1);
        if released.replace(next, after) {
            return Turn::Now;
        }
    }
}

impl Turns for MappedArray<FlowRow> {
    #[inline]
    fn take(&self, slot: u16, number: u32) -> Turn {
        take(self.row(slot.into()).word(offset_of!(FlowRow, released)), number)
    }

    fn skip(&self, slot: u16, number: u32) -> Turn {
        skip(self.row(slot.into()).word(offset_of!(FlowRow, released)), number)
    }
}

/// No entry, or the end of a list.
const NONE: u16 = u16::MAX;

struct Entry<T> {
    number: u32,
    next: u16,
    give_up_ns: u64,
    item: Option<T>,
}

/// What became of an offered result.
#[derive(Debug, PartialEq, Eq)]
pub enum Offered<T> {
    /// Send it now: it is its turn.
    Send(T),
    /// Send it now: its turn is over, or there is no room to hold it.
    SendLate(T),
    /// It is held.
    Held,
}

/// The results that one worker holds. Allocates in [`Resequencer::new`] only.
pub struct Resequencer<T> {
    /// First entry of each slot's list, in order of numbers.
    heads: Box<[u16]>,
    entries: Vec<Entry<T>>,
    free: u16,
    /// Slots whose list is not empty.
    active: Vec<u16>,
    patience_ns: u64,
}

impl<T> Resequencer<T> {
    /// Holds up to `places` results, each for up to `patience_ns`.
    pub fn new(places: u16, patience_ns: u64) -> Self {
        let places = places.min(NONE - 1);
        let entry =
            |at| Entry { number: 0, next: if at + 1 < places { at + 1 } else { NONE }, give_up_ns: 0, item: None };
        Self {
            heads: vec![NONE; FLOW_SLOTS].into_boxed_slice(),
            entries: (0..places).map(entry).collect(),
            free: if places > 0 { 0 } else { NONE },
            active: Vec::with_capacity(usize::from(places)),
            patience_ns,
        }
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Offers the result with `number` of flow slot `slot`.
    #[inline]
    pub fn offer(&mut self, turns: &impl Turns, slot: u16, number: u32, item: T, now_ns: u64) -> Offered<T> {
        match turns.take(slot, number) {
            Turn::Now => Offered::Send(item),
            Turn::Past => Offered::SendLate(item),
            Turn::Later if self.free == NONE || usize::from(slot) >= self.heads.len() => {
                // Out of order is better than lost. Its turn is given up with those before it.
                turns.skip(slot, number);
                Offered::SendLate(item)
            }
            Turn::Later => {
                self.hold(slot, number, item, now_ns + self.patience_ns);
                Offered::Held
            }
        }
    }

    /// Puts an entry into its slot's list.
    fn hold(&mut self, slot: u16, number: u32, item: T, give_up_ns: u64) {
        let new = self.free;
        self.free = self.entries[usize::from(new)].next;
        let head = self.heads[usize::from(slot)];
        if head == NONE {
            self.active.push(slot);
        }
        // Results come about in order, but a list is short enough to walk from its front.
        let (mut before, mut at) = (NONE, head);
        while at != NONE && self.entries[usize::from(at)].number.wrapping_sub(number) >= 1 << 31 {
            (before, at) = (at, self.entries[usize::from(at)].next);
        }
        self.entries[usize::from(new)] = Entry { number, next: at, give_up_ns, item: Some(item) };
        if before == NONE {
            self.heads[usize::from(slot)] = new;
        } else {
            self.entries[usize::from(before)].next = new;
        }
    }

    /// Takes out a result whose turn has come, or that has waited long enough for those before it (then `true`). Call
    /// until there is none.
    pub fn pop(&mut self, turns: &impl Turns, now_ns: u64) -> Option<(T, bool)> {
        for at in 0..self.active.len() {
            let slot = self.active[at];
            let head = self.heads[usize::from(slot)];
            let entry = &mut self.entries[usize::from(head)];
            let turn = match turns.take(slot, entry.number) {
                Turn::Later if now_ns < entry.give_up_ns => continue,
                Turn::Later => {
                    turns.skip(slot, entry.number);
                    Turn::Past
                }
                turn => turn,
            };
            let item = entry.item.take();
            self.heads[usize::from(slot)] = std::mem::replace(&mut entry.next, self.free);
            self.free = head;
            if self.heads[usize::from(slot)] == NONE {
                self.active.swap_remove(at);
            }
            // An entry in a list has an item.
            return item.map(|item| (item, turn == Turn::Past));
        }
        None
    }
}

#[cfg(test)]
#[path = "resequence_tests.rs"]
mod tests;

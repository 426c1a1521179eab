//! Results of a flow leave in the order in which its packets arrived, wherever they were computed.
//!
//! Every packet of an ordered function takes a number in its flow slot on arrival (`FLOWS`, [`FlowRow::issued`]). Whoever has
//! the result whose number is the next to leave ([`FlowRow::released`]) sends it and passes the turn on. The rule is
//! [`dataplane_common::order`]; its consequence here is that a worker takes a turn in two steps:
//!
//! 1. It *claims* the turn and puts the frame among those to be sent. The word stays as it is, so nobody else can
//!    follow; only this worker knows that the next one may be claimed, too.
//! 2. When the frames have been sent it *publishes* ([`Resequencer::publish`]), and others may follow.
//!
//! A result before its turn is held; a packet that ends without a result leaves a mark, so that nobody waits for it. A result
//! that was lost on the way is given up after a time, and if it comes after all, it is sent late.
//!
//! Cost: constant for a result whose turn it is; holding walks the (short) list of its slot.

use std::mem::offset_of;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use dataplane_common::maps::{FLOW_SLOTS, FlowRow};
use dataplane_common::order::{Place, Released};

use crate::maps::MappedArray;

/// The numbers to leave next, by flow slot.
pub trait Turns {
    /// Which number leaves next.
    fn released(&self, slot: u16) -> Released;
    /// Makes `next` the number that leaves next, unless a later one is already: all before it have been sent or given up.
    fn advance(&self, slot: u16, next: u32);
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

/// [`Turns::advance`] on a word.
#[inline]
fn advance(word: &impl Shared, next: u32) {
    loop {
        let old = word.get();
        if Released::from_word(old).place(next) != Place::Later
            || word.replace(old, Released::by_worker(next).to_word())
        {
            return;
        }
    }
}

impl Turns for MappedArray<FlowRow> {
    #[inline]
    fn released(&self, slot: u16) -> Released {
        Released::from_word(self.row(slot.into()).word(offset_of!(FlowRow, released)).get())
    }

    #[inline]
    fn advance(&self, slot: u16, next: u32) {
        advance(self.row(slot.into()).word(offset_of!(FlowRow, released)), next);
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

/// The results that one worker holds, and the turns it has claimed. Allocates in [`Resequencer::new`] only.
pub struct Resequencer<T> {
    /// First entry of each slot's list, in order of numbers.
    heads: Box<[u16]>,
    entries: Vec<Entry<T>>,
    free: u16,
    /// Slots whose list is not empty.
    active: Vec<u16>,
    patience_ns: u64,
    /// The number after the last claimed one of each slot in `claimed`; means nothing in others.
    ends: Box<[u32]>,
    /// Slots with turns that have been claimed and not published.
    claimed: Vec<u16>,
    /// Whether a slot is in `claimed`.
    is_claimed: Box<[bool]>,
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
            ends: vec![0; FLOW_SLOTS].into_boxed_slice(),
            claimed: Vec::with_capacity(FLOW_SLOTS),
            is_claimed: vec![false; FLOW_SLOTS].into_boxed_slice(),
        }
    }

    /// What is held from now on is held for up to `patience_ns`.
    pub fn set_patience(&mut self, patience_ns: u64) {
        self.patience_ns = patience_ns;
    }

    /// True when nothing is held.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// Offers the result with `number` of flow slot `slot`, which must be below [`FLOW_SLOTS`].
    #[inline]
    pub fn offer(&mut self, turns: &impl Turns, slot: u16, number: u32, item: T, now_ns: u64) -> Offered<T> {
        match self.claim(turns, slot, number, now_ns) {
            Place::Next => Offered::Send(item),
            Place::Past => Offered::SendLate(item),
            Place::Later if self.free == NONE => {
                // Out of order is better than lost. Its turn is given up with those before it.
                self.give_up_before(turns, slot, number);
                Offered::SendLate(item)
            }
            Place::Later => {
                self.hold(slot, number, item, now_ns + self.patience_ns);
                Offered::Held
            }
        }
    }

    /// Lets others follow the results claimed so far. Call when these have been sent.
    #[inline]
    pub fn publish(&mut self, turns: &impl Turns) {
        while let Some(slot) = self.claimed.pop() {
            self.is_claimed[usize::from(slot)] = false;
            turns.advance(slot, self.ends[usize::from(slot)]);
        }
    }

    /// Claims the turn of `number` if it is the next one.
    #[inline]
    fn claim(&mut self, turns: &impl Turns, slot: u16, number: u32, now_ns: u64) -> Place {
        let at = usize::from(slot);
        let mut released = turns.released(slot);
        // Others can only have given up turns of ours; then theirs is the later number.
        if self.is_claimed[at] && released.place(self.ends[at]) == Place::Later {
            released = Released::by_worker(self.ends[at]);
        }
        match released.place(number) {
            Place::Next if !released.is_settled(now_ns) => Place::Later,
            Place::Next => {
                self.set_end(slot, number.wrapping_add(1));
                Place::Next
            }
            place => place,
        }
    }

    fn set_end(&mut self, slot: u16, end: u32) {
        let at = usize::from(slot);
        self.ends[at] = end;
        if !std::mem::replace(&mut self.is_claimed[at], true) {
            self.claimed.push(slot);
        }
    }

    /// Gives up every turn before that of `number`, and claims that.
    fn give_up_before(&mut self, turns: &impl Turns, slot: u16, number: u32) {
        turns.advance(slot, number);
        self.set_end(slot, number.wrapping_add(1));
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
            let (number, give_up_ns) = {
                let entry = &self.entries[usize::from(head)];
                (entry.number, entry.give_up_ns)
            };
            let is_late = match self.claim(turns, slot, number, now_ns) {
                Place::Later if now_ns < give_up_ns => continue,
                Place::Later => {
                    self.give_up_before(turns, slot, number);
                    true
                }
                place => place == Place::Past,
            };
            let entry = &mut self.entries[usize::from(head)];
            let item = entry.item.take();
            self.heads[usize::from(slot)] = std::mem::replace(&mut entry.next, self.free);
            self.free = head;
            if self.heads[usize::from(slot)] == NONE {
                self.active.swap_remove(at);
            }
            // An entry in a list has an item.
            return item.map(|item| (item, is_late));
        }
        None
    }
}

#[cfg(test)]
#[path = "resequence_tests.rs"]
mod tests;

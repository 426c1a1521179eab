//! The packets that wait in a worker, in the order in which they are to be served: pure, without I/O, clock or allocation
//! after its making.
//!
//! Packets of one flow keep their order, so only the first of each flow, its *head*, can be next. The heads lie in a heap by
//! [`Rank`]; behind each the rest of its flow hangs in a list, and a hash table leads to the last packet of every flow:
//!
//! ```text
//! buckets ─► last packet ─► last packet of another flow in the bucket      (chain)
//!                ▲
//! heap ─► head ─┴► packet ─► last packet                                   (next)
//! ```
//!
//! Adding a packet costs a look into the table, and a step into the heap if it is alone in its flow; taking the next one costs
//! O(log heads).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use dataplane_common::bands::{BANDS, band_of};
use dataplane_common::hash::mix;
use dataplane_common::pull::{CONSIDERED, Standing};
use dataplane_common::wire::link::NO_FLOW;

/// Shortest first: a nanosecond of estimated processing time weighs as much as this many of waiting. One twentieth is the
/// weight of ageing in the simulations that our defaults come from.
const AGEING: u64 = 20;
/// Class order: a packet counts as one class higher for every time it has waited this long, ns. From the lowest class to the
/// highest that makes 350 ms, the difference of their response time targets (`target_low_ns`, `target_high_ns`): a packet of
/// the lowest class that has left of its target what a fresh one of the highest has of its own is its equal.
const CLASS_NS: u64 = 50_000_000;
/// The highest class.
const HIGHEST: u8 = 7;
/// No place.
const NONE: u32 = u32::MAX;

/// What a packet is ranked by. Time is in no rank: all that waits ages alike, so the order of two packets never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// The least is next, ns.
    key: u64,
    /// Band under which its work is shown ([`Queue::waiting_ns`]).
    band: u32,
}

impl Rank {
    /// First come, first served.
    pub const fn arrival(arrival_ns: u64) -> Self {
        Self { key: arrival_ns, band: 0 }
    }

    /// Shortest estimated processing time first, with ageing: the least of `EPT − waiting time / 20`.
    ///
    /// That is the order of `20 · EPT + arrival` at any time. So a packet is overtaken only by those that arrive less than 20
    /// times its own estimated processing time after it.
    pub const fn shortest(ept_ns: u32, arrival_ns: u64) -> Self {
        Self { key: arrival_ns.saturating_add(AGEING * ept_ns as u64), band: band_of(ept_ns) }
    }

    /// The highest of the classes 0 to 7 first, then by arrival; a packet counts as one class higher for every 50 ms that it
    /// has waited, and so is overtaken only by those that arrive within 350 ms after it.
    pub const fn class(class: u8, arrival_ns: u64) -> Self {
        let below = HIGHEST.saturating_sub(class);
        Self { key: arrival_ns.saturating_add(CLASS_NS * below as u64), band: below as u32 }
    }
}

/// The flow a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Node at which it arrived.
    pub node: u16,
    /// Its slot there, or [`NO_FLOW`] for a packet that keeps no order.
    pub slot: u16,
}

impl Flow {
    /// The flow of a packet that keeps no order.
    pub const NONE: Self = Self { node: 0, slot: NO_FLOW };

    const fn is_ordered(self) -> bool {
        self.slot != NO_FLOW
    }
}

/// A full queue gives back what there was no place for.
#[derive(Debug)]
pub struct Full<T>(pub T);

/// A place for one packet; free ones hang together by `next`.
#[derive(Debug)]
struct Place<T> {
    item: Option<T>,
    rank: Rank,
    ticket: u64,
    work_ns: u32,
    flow: Flow,
    /// The packet behind it in its flow.
    next: u32,
    /// The last packet of another flow in the same bucket. Of a packet that is not its flow's last it means nothing.
    chain: u32,
}

impl<T> Place<T> {
    /// The entry of the heap for the packet here, at `place`.
    fn head(&self, place: u32) -> Head {
        Head { key: self.rank.key, ticket: self.ticket, place }
    }
}

/// The first packet of a flow, as the heap compares it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    key: u64,
    /// Equals are served as they came.
    ticket: u64,
    place: u32,
}

/// See the module. `T` is the packet.
#[derive(Debug)]
pub struct Queue<T> {
    places: Box<[Place<T>]>,
    /// The first free place. The last one used, so that warm memory is used again first.
    free: u32,
    /// The last packet of a flow, by hash.
    buckets: Box<[u32]>,
    heads: BinaryHeap<Reverse<Head>>,
    /// Room for [`Queue::take_best`].
    considered: Vec<Head>,
    len: u32,
    /// Packets added so far.
    tickets: u64,
    waiting_ns: [u64; BANDS],
}

impl<T> Queue<T> {
    /// An empty queue with this many places (at most 2^32 − 1).
    pub fn new(places: u32) -> Self {
        let next = |place: u32| if place + 1 < places { place + 1 } else { NONE };
        let place = |place| Place {
            item: None,
            rank: Rank { key: 0, band: 0 },
            ticket: 0,
            work_ns: 0,
            flow: Flow::NONE,
            next: next(place),
            chain: NONE,
        };
        Self {
            places: (0..places).map(place).collect(),
            free: if places > 0 { 0 } else { NONE },
            buckets: vec![NONE; places.next_power_of_two() as usize].into_boxed_slice(),
            heads: BinaryHeap::with_capacity(places as usize),
            considered: Vec::with_capacity(CONSIDERED),
            len: 0,
            tickets: 0,
            waiting_ns: [0; BANDS],
        }
    }

    /// Packets in it.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Work that waits, ns, by band: [`band_of`] its estimated processing time for shortest first, 7 − class for class order, one for all in order
    /// of arrival.
    pub fn waiting_ns(&self) -> &[u64; BANDS] {
        &self.waiting_ns
    }

    /// Adds a packet behind those of its flow; `work_ns` is what it adds to [`Queue::waiting_ns`].
    ///
    /// # Errors
    /// All places are taken; the packet comes back and nothing has changed.
    pub fn push(&mut self, item: T, flow: Flow, rank: Rank, work_ns: u32) -> Result<(), Full<T>> {
        let at = self.free;
        let Some(place) = self.places.get_mut(at as usize) else { return Err(Full(item)) };
        self.free = place.next;
        let ticket = self.tickets;
        *place = Place { item: Some(item), rank, ticket, work_ns, flow, next: NONE, chain: NONE };
        self.tickets += 1;
        self.len += 1;
        self.waiting_ns[rank.band as usize] += u64::from(work_ns);
        if flow.is_ordered() && self.follow(flow, at) {
            return Ok(());
        }
        self.heads.push(Reverse(self.places[at as usize].head(at)));
        Ok(())
    }

    /// Takes the packet that is next: of the heads of flows the one with the least rank.
    pub fn pop(&mut self) -> Option<T> {
        let head = self.heads.peek_mut()?;
        let at = head.0.place;
        let next = self.places[at as usize].next;
        if next == NONE {
            PeekMut::pop(head);
        } else {
            // One way down the heap instead of two.
            let mut head = head;
            *head = Reverse(self.places[next as usize].head(next));
        }
        self.vacate(at)
    }

    /// Takes the packet for which `gain` is most, of the heads of flows; none when it is `None` for all. Looks at
    /// [`CONSIDERED`] of them.
    pub fn take_best(&mut self, gain: impl Fn(&T, &Standing) -> Option<u64>) -> Option<T> {
        self.considered.clear();
        self.considered.extend(self.heads.iter().take(CONSIDERED).map(|head| head.0));
        self.considered.sort_unstable();
        let mut standing = Standing { work_ns: 0, ahead_ns: 0, behind: self.len, waiting: self.len };
        let (mut most, mut best) = (0, None);
        for head in &self.considered {
            let place = &self.places[head.place as usize];
            standing.behind -= 1;
            standing.work_ns = place.work_ns;
            let gain = place.item.as_ref().and_then(|item| gain(item, &standing));
            if let Some(gain) = gain.filter(|gain| best.is_none() || *gain > most) {
                (most, best) = (gain, Some(head.place));
            }
            standing.ahead_ns += u64::from(place.work_ns);
        }
        let at = best?;
        self.heads.retain(|head| head.0.place != at);
        let next = self.places[at as usize].next;
        if next != NONE {
            self.heads.push(Reverse(self.places[next as usize].head(next)));
        }
        self.vacate(at)
    }

    /// Empties the place of a head, which is in the heap no more.
    fn vacate(&mut self, at: u32) -> Option<T> {
        let place = &mut self.places[at as usize];
        let (item, flow, next) = (place.item.take(), place.flow, place.next);
        self.waiting_ns[place.rank.band as usize] -= u64::from(place.work_ns);
        self.len -= 1;
        place.next = self.free;
        self.free = at;
        if next == NONE && flow.is_ordered() {
            self.forget(flow, at);
        }
        item
    }

    /// Makes the packet at `at` the last of its flow; true if it is behind another there.
    fn follow(&mut self, flow: Flow, at: u32) -> bool {
        let bucket = self.bucket(flow);
        let (before, last) = self.find(bucket, |place| place.flow == flow);
        if last == NONE {
            self.places[at as usize].chain = self.buckets[bucket];
            self.buckets[bucket] = at;
            return false;
        }
        let last = &mut self.places[last as usize];
        last.next = at;
        let chain = last.chain;
        self.places[at as usize].chain = chain;
        self.link(bucket, before, at);
        true
    }

    /// Takes the flow whose only packet was at `at` out of the table.
    fn forget(&mut self, flow: Flow, at: u32) {
        let bucket = self.bucket(flow);
        let (before, found) = self.find(bucket, |place| place.flow == flow);
        debug_assert_eq!(found, at, "BUG: a flow's only packet is its last");
        let chain = self.places[at as usize].chain;
        self.link(bucket, before, chain);
    }

    /// The first packet in a bucket's chain that is `wanted` and the one before it, [`NONE`] each if there is none.
    fn find(&self, bucket: usize, wanted: impl Fn(&Place<T>) -> bool) -> (u32, u32) {
        let (mut before, mut at) = (NONE, self.buckets[bucket]);
        while let Some(place) = self.places.get(at as usize) {
            if wanted(place) {
                break;
            }
            (before, at) = (at, place.chain);
        }
        (before, at)
    }

    /// Has the chain of a bucket go on with `at` behind `before`, or begin with it.
    fn link(&mut self, bucket: usize, before: u32, at: u32) {
        match self.places.get_mut(before as usize) {
            Some(place) => place.chain = at,
            None => self.buckets[bucket] = at,
        }
    }

    fn bucket(&self, flow: Flow) -> usize {
        let hash = mix(u64::from(flow.node) << 16 | u64::from(flow.slot));
        // The number of buckets is a power of two.
        hash as usize & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;

//! Packets of lossless functions: a worker that sends one to another node keeps it until the result is there, and has it
//! computed again when the node does not answer.
//!
//! Who ends the wait is decided by one compare-and-swap on the packet's place ([`dataplane_common::held`]): the XDP program
//! that takes the result, or the worker that takes the packet back. So a packet may be computed twice, but its result leaves
//! once. What is sent is a copy: the kernel gives the frame of a sent packet back long before its result comes.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use dataplane_common::held::{PLACES, State, Word, place};
use dataplane_common::load::{Erl, Row as _};
use dataplane_common::maps::LoadRow;
use dataplane_common::meta::Metadata;
use dataplane_common::reason::Reason;
use dataplane_common::wire::link::{FLAG_HELD, Kind};

use super::account::Due;
use super::{Taken, Worker, monotonic_ns};
use crate::port::Port;
use crate::ways::Way;
use crate::xsk::Frame;

/// Kept packets looked at in one step.
const LOOKS: usize = 64;
/// A packet is sent to other nodes this often; then it is computed here.
const TRIES: u8 = 3;
/// A node may take this many times as long as predicted, or as it took lately.
const PATIENCE: u64 = 4;
/// Of what a node took lately, this many times `retry` count at most: results of one that stood still come very late, and what is
/// lost after them should not have to wait as long.
const SLOWEST: u64 = 5;

/// A packet that was sent and is kept.
#[derive(Debug)]
struct Kept {
    frame: Frame,
    metadata: Metadata,
    socket: usize,
    /// Its place among the worker's.
    index: u32,
    generation: u32,
    node: u16,
    deadline_ns: u64,
    tries: u8,
}

/// How long a result is waited for. Where everything is slower than predicted, packets that are placed anew too early would make it
/// slower still.
pub(super) const fn wait_ns(retry_ns: u64, expected_ns: u64, lately_ns: u64) -> u64 {
    let most_ns = SLOWEST * retry_ns;
    let lately_ns = if lately_ns < most_ns { lately_ns } else { most_ns };
    retry_ns + PATIENCE * if expected_ns > lately_ns { expected_ns } else { lately_ns }
}

/// The packets a worker keeps.
#[derive(Debug)]
pub(super) struct Keeping {
    kept: VecDeque<Kept>,
    /// Places that are free, and how often each was taken.
    free: Vec<(u32, u32)>,
}

impl Keeping {
    /// Room for up to `places` packets.
    pub(super) fn new(places: u32) -> Self {
        let places = places.min(PLACES);
        Self {
            kept: VecDeque::with_capacity(places as usize),
            free: (0..places).rev().map(|index| (index, 0)).collect(),
        }
    }

    /// True when no packet is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}

impl<P: Port> Worker<P> {
    /// Sends a copy of a packet to another node and keeps the packet; gives it back when there is no room for that.
    pub(super) fn keep_and_send(&mut self, taken: Taken, way: &Way, now_ns: u64) -> Option<Taken> {
        let Some((index, taken_before)) = self.keeping.free.pop() else {
            self.count(Reason::NoteKeptFull);
            return Some(taken);
        };
        let Some(mut copy) = self.umem.allocate() else {
            self.keeping.free.push((index, taken_before));
            self.count(Reason::NoteKeptFull);
            return Some(taken);
        };
        let (front, length) = (self.settings.ways.overhead(way, Kind::Forward), taken.frame.len());
        if copy.set_len(front + length).is_err() {
            self.umem.release(copy);
            self.keeping.free.push((index, taken_before));
            self.count(Reason::NoteTooLong);
            return Some(taken);
        }
        let Taken { frame, metadata, due, socket, tries } = taken;
        let held = place(self.settings.worker, index);
        let generation = taken_before.wrapping_add(1);
        self.tables.held.row(held).word(0).store(Word::waiting(generation).to_word(), Release);
        let mut header = self.forward_header(&metadata, way.node, (length as u16, socket as u16), now_ns);
        header.flags |= FLAG_HELD;
        (header.held, header.generation) = (held, generation);
        let bytes = self.umem.bytes_mut(&mut copy);
        bytes[front..].copy_from_slice(self.umem.bytes(&frame));
        self.settings.ways.address(way, &header, bytes);
        self.end_service(due);
        self.count(Reason::NoteKept);
        self.send_as(way.interface as usize, copy, Reason::SentForward);
        let row = self.tables.load.row(u32::from(way.node));
        let expected_ns = row.erl_ns(Erl::Ack, now_ns) + u64::from(metadata.charged_ns);
        let lately_ns = row.word(offset_of!(LoadRow, response_ns)).load(Relaxed) as u32;
        let deadline_ns = now_ns + wait_ns(self.settings.retry.as_nanos() as u64, expected_ns, lately_ns.into());
        let node = way.node;
        self.keeping.kept.push_back(Kept { frame, metadata, socket, index, generation, node, deadline_ns, tries });
        None
    }

    /// Looks whether results of kept packets have come, and places those anew that were not computed; returns how many are
    /// kept no longer.
    pub(super) fn look_after_kept(&mut self) -> usize {
        let mut ended = 0;
        let now_ns = monotonic_ns();
        for _ in 0..self.keeping.kept.len().min(LOOKS) {
            let Some(kept) = self.keeping.kept.pop_front() else { break };
            let word = self.tables.held.row(place(self.settings.worker, kept.index)).word(0);
            let is_late = now_ns >= kept.deadline_ns
                || !self.tables.load.row(u32::from(kept.node)).is_candidate(now_ns)
                || self.stop.load(Acquire);
            let waiting = Word::waiting(kept.generation);
            let state = match Word::from_word(word.load(Acquire)).state {
                State::Waiting if !is_late => {
                    self.keeping.kept.push_back(kept);
                    continue;
                }
                State::Waiting => {
                    let free = Word { state: State::Free, ..waiting };
                    match word.compare_exchange(waiting.to_word(), free.to_word(), AcqRel, Acquire) {
                        Ok(_) => State::Undone,
                        Err(found) => Word::from_word(found).state,
                    }
                }
                state => state,
            };
            ended += 1;
            self.keeping.free.push((kept.index, kept.generation));
            if state == State::Done {
                self.umem.release(kept.frame);
            } else {
                self.place_again(kept, now_ns);
            }
        }
        ended
    }

    /// Places a packet anew that another node has not computed.
    fn place_again(&mut self, kept: Kept, now_ns: u64) {
        self.count(Reason::SeenAgain);
        let Kept { frame, metadata, socket, tries, .. } = kept;
        // It was discharged when it was sent.
        let again = Taken { frame, metadata, due: Due::default(), socket, tries: tries + 1 };
        let stays = if again.tries < TRIES { self.place(again, now_ns) } else { Some(again) };
        if let Some(again) = stays.and_then(|again| self.enqueue(again, now_ns)) {
            self.serve(again);
        }
    }
}

//! The load table of a node as a decision of [`dataplane_common::policy`] sees it.

use std::cell::Cell;

use dataplane_common::feedback;
use dataplane_common::load::{Forwarding, Here, LoadView, Row, Signals, Visit, Word};
use dataplane_common::maps::LoadRow;
use dataplane_common::plan::HERE;

use super::node::Node;
use super::peers::{Peer, row_of};
use super::reports::{Delivery, Logs};

/// What all decisions of a run have in common.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Cost of forwarding.
    pub forwarding: Forwarding,
    /// How reports arrive.
    pub delivery: Delivery,
    /// Whether decisions see true loads instead of reported ones.
    pub sees_truth: bool,
}

/// The view of one worker of one node.
pub struct View<'a> {
    /// All nodes.
    pub nodes: &'a [Node],
    /// Their reports.
    pub logs: &'a Logs,
    /// The node that decides.
    pub node: &'a Node,
    /// Its worker that would take the packet.
    pub worker: usize,
    /// Now, ns.
    pub now_ns: u64,
    /// The rules of the run.
    pub rules: &'a Rules,
}

/// A row, kept by the node or made for the occasion.
pub enum Known<'a> {
    /// The node has a row for the peer.
    Kept(&'a Cell<LoadRow>),
    /// It has none, or does not need it.
    Made(LoadRow),
}

impl Row for Known<'_> {
    #[inline(always)]
    fn word(&self, word: Word) -> u64 {
        match self {
            Self::Kept(row) => row.get().word(word),
            Self::Made(row) => row.word(word),
        }
    }
}

/// Lets `node` take the newest report of `other` that has reached it, if it has not yet.
#[inline]
pub fn catch_up(node: &Node, (peer, other): (&Peer, u16), now_ns: u64, (logs, delivery): (&Logs, &Delivery)) {
    let known_ns = peer.known_ns();
    if known_ns != logs.newest(other).good_until_ns {
        take_late(node, (peer, other), now_ns, (logs, delivery));
    }
}

#[inline(never)]
fn take_late(node: &Node, (peer, other): (&Peer, u16), now_ns: u64, (logs, delivery): (&Logs, &Delivery)) {
    if let Some(made) = logs.reached(other, &node.receiver(now_ns), peer.known_ns(), delivery) {
        // Taken when it arrived, although looked at only now.
        let error = peer.take_report(made.at_ns + delivery.delay_ns, made, &node.learning);
        note_error(node, error);
    }
}

/// Takes the error of a predicted load into the node's signals.
pub fn note_error(node: &Node, error: Option<u32>) {
    if let Some(error) = error {
        let signals = node.signals.get();
        let deviation_ns = feedback::median(signals.deviation_ns, error);
        node.signals.set(Signals { deviation_ns, ..signals });
    }
}

impl<'a> View<'a> {
    #[inline]
    fn known(&self, node: u16) -> Known<'a> {
        if self.rules.sees_truth {
            return Known::Made(self.truth(node));
        }
        if let Some(peer) = self.node.peers.get(node) {
            catch_up(self.node, (peer, node), self.now_ns, (self.logs, &self.rules.delivery));
            return Known::Kept(peer.row());
        }
        let delivery = &self.rules.delivery;
        let made = self.logs.reached(node, &self.node.receiver(self.now_ns), 0, delivery);
        Known::Made(made.map_or_else(LoadRow::default, |made| row_of(made.at_ns + delivery.delay_ns, made)))
    }

    fn truth(&self, node: u16) -> LoadRow {
        let other = &self.nodes[usize::from(node)];
        let speed = u64::from(other.speed_milli) * 1000 / u64::from(self.node.speed_milli);
        LoadRow { speed_milli: u16::try_from(speed).unwrap_or(u16::MAX), ..other.truth(self.now_ns) }
    }

    /// The node at a position among the peers.
    fn peer_at(&self, position: u32) -> u16 {
        let position = position as u16;
        if position < self.node.id { position } else { position + 1 }
    }
}

impl<'a> LoadView for View<'a> {
    type Row = Known<'a>;

    fn here(&self) -> Here {
        self.node.workers[self.worker].here(self.now_ns)
    }

    fn peers(&self) -> u32 {
        self.nodes.len() as u32 - 1
    }

    fn row(&self, node: u16) -> Option<Known<'a>> {
        (usize::from(node) < self.nodes.len() && node != self.node.id).then(|| self.known(node))
    }

    #[inline(always)]
    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        let peers = self.peers();
        if peers == 0 {
            return;
        }
        let (mut position, stride) = (start % peers, stride % peers);
        for _ in 0..count {
            let node = self.peer_at(position);
            visitor.node(node, &self.known(node));
            position += stride;
            if position >= peers {
                position -= peers;
            }
        }
    }

    fn signals(&self) -> Signals {
        self.node.signals.get()
    }

    fn forwarding(&self) -> Forwarding {
        self.rules.forwarding
    }

    fn slot(&self, slot: u32) -> u16 {
        let planning = self.node.planning.as_ref();
        planning.and_then(|planning| planning.slots.get(slot as usize)).copied().unwrap_or(HERE)
    }

    fn charge_slot(&self, slot: u32, ns: u32) {
        let planning = self.node.planning.as_ref();
        if let Some(charged) = planning.and_then(|planning| planning.charged_ns.get(slot as usize)) {
            charged.set(charged.get().wrapping_add(u64::from(ns)));
        }
    }

    fn turn(&self) -> u32 {
        self.node.turn.replace(self.node.turn.get().wrapping_add(1))
    }
}

//! Decisions in the worker: for functions whose packets the XDP program does not place, because the node keeps them until
//! their result is there, or because frames do not travel by XDP.
//!
//! A worker decides when it takes a packet from its ring, between two services. It sees what the XDP program sees of other
//! nodes, and of itself it knows better: exactly what waits in front of the packet.

use std::cell::Cell;
use std::mem::offset_of;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use dataplane_common::bands::Behind;
use dataplane_common::classify::{Class, classify, identify};
use dataplane_common::credit::has_credit;
use dataplane_common::hash::mix;
use dataplane_common::load::{Forwarding, Here, LoadView, Signals, Visit, Word, saturate};
use dataplane_common::maps::{
    FUNCTION_LOSSLESS, FUNCTION_WORKER, FlowRow, FunctionRow, LoadRow, ORDER_AFFINE, SignalsRow, SlotRow,
};
use dataplane_common::meta::Origin;
use dataplane_common::order;
use dataplane_common::plan::HERE;
use dataplane_common::policy::{Job, Verdict, decide};
use dataplane_common::reason::Reason;
use dataplane_common::seal::forward_overhead;
use dataplane_common::tuning::FIFO;
use dataplane_common::wire::link::{Kind, NO_FLOW};

use super::{Taken, Worker};
use crate::maps::{Row, Tables};
use crate::port::Port;

/// The tables as the decision of a worker sees them.
struct Seen<'a> {
    tables: &'a Tables,
    /// What waits in front of the packet.
    here: Here,
    turns: &'a Cell<u32>,
}

impl Seen<'_> {
    fn signal(&self, offset: usize) -> u64 {
        self.tables.signals.row(0).word(offset).load(Relaxed)
    }
}

impl<'a> LoadView for Seen<'a> {
    type Row = Row<'a, LoadRow>;

    fn here(&self) -> Here {
        self.here
    }

    fn peers(&self) -> u32 {
        (self.signal(offset_of!(SignalsRow, arrivals_q32)) >> 32) as u32
    }

    fn row(&self, node: u16) -> Option<Row<'a, LoadRow>> {
        let node = u32::from(node);
        (node < self.tables.load.len()).then(|| self.tables.load.row(node))
    }

    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        // The number may have changed since the start was drawn.
        let peers = self.peers().min(self.tables.roster.len());
        let mut position = start;
        for _ in 0..count {
            if position >= peers {
                let Some(around) = position.checked_rem(peers) else { break };
                position = around;
            }
            let node = self.tables.roster.row(position).word(0).load(Relaxed) as u16;
            if let Some(row) = self.row(node) {
                visitor.node(node, &row);
            }
            position = position.saturating_add(stride);
        }
    }

    fn signals(&self) -> Signals {
        Signals::read(|offset| self.signal(offset))
    }

    fn forwarding(&self) -> Forwarding {
        self.tables.forwarding_by_worker()
    }

    fn slot(&self, slot: u32) -> u16 {
        if slot >= self.tables.slots.len() {
            return HERE;
        }
        self.tables.slots.row(slot).word(offset_of!(SlotRow, node)).load(Relaxed) as u16
    }

    fn charge_slot(&self, slot: u32, ns: u32) {
        if slot < self.tables.slots.len() {
            self.tables.slots.row(slot).word(offset_of!(SlotRow, charged_ns)).fetch_add(ns.into(), Relaxed);
        }
    }

    fn turn(&self) -> u32 {
        self.turns.set(self.turns.get().wrapping_add(1));
        self.turns.get()
    }
}

impl<P: Port> Worker<P> {
    /// Sends a packet of this node's ports to another node, if its function leaves that to workers and another node is better;
    /// else gives it back.
    pub(super) fn place(&mut self, taken: Taken, now_ns: u64) -> Option<Taken> {
        if !self.decides || taken.metadata.origin != Origin::Port {
            return Some(taken);
        }
        let (order, flags) = self.handling_of(&taken);
        if flags & FUNCTION_WORKER == 0 || order == ORDER_AFFINE {
            return Some(taken);
        }
        let Some(node) = self.choose(&taken, now_ns) else { return Some(taken) };
        let Some(way) = self.settings.ways.get(node).copied() else {
            self.count(Reason::NoteUnreachable);
            return Some(taken);
        };
        let row = self.tables.load.row(u32::from(node));
        let limit = row.word(offset_of!(LoadRow, limit_ns)).load(Acquire);
        if !has_credit(limit, row.word(Word::SentNs as usize).load(Relaxed), taken.metadata.charged_ns) {
            self.count(Reason::NoteNoCredit);
            return Some(taken);
        }
        if taken.frame.len() + self.settings.ways.overhead(&way, Kind::Forward) > usize::from(way.max_frame) {
            self.count(Reason::NoteTooLong);
            return Some(taken);
        }
        if flags & FUNCTION_LOSSLESS != 0 {
            return self.keep_and_send(taken, &way, now_ns);
        }
        self.send_away(taken, &way, now_ns);
        None
    }

    /// Order ([`FunctionRow::order`]) and flags of a packet's function.
    pub(super) fn handling_of(&self, taken: &Taken) -> (u32, u32) {
        let Some(function) = self.functions.get(usize::from(taken.metadata.function)) else { return (0, 0) };
        let row = self.tables.functions.row(function.slot);
        let word = row.word(offset_of!(FunctionRow, order)).load(Relaxed);
        (word as u32, (word >> 32) as u32)
    }

    /// The node that the policy chooses, if it is another one.
    fn choose(&self, taken: &Taken, now_ns: u64) -> Option<u16> {
        let metadata = &taken.metadata;
        let function = self.functions.get(usize::from(metadata.function))?;
        let bytes = self.umem.bytes(&taken.frame);
        let Class::Active(active) = classify(bytes, &self.settings.checks.rules) else { return None };
        let identity = identify(bytes, &active);
        let row = self.tables.functions.row(function.slot);
        let policy = row.word(offset_of!(FunctionRow, policy)).load(Relaxed);
        let params = &self.settings.params;
        let seed = if params.seed == 0 {
            now_ns ^ u64::from(metadata.sequence) << 32
        } else {
            u64::from(params.seed ^ identity.flow)
        };
        let expected = (metadata.flow != NO_FLOW)
            .then(|| self.tables.flows.row(metadata.flow.into()).word(offset_of!(FlowRow, expected_ns)));
        let earlier_ns = expected.map_or(0, |word| order::earlier_ns(word.load(Relaxed), now_ns));
        let job = Job {
            now_ns,
            ept_ns: metadata.charged_ns,
            bytes: bytes.len() + forward_overhead(params.auth),
            function: metadata.function,
            earlier_ns,
            home: (policy >> 32) as u32,
            class: identity.class,
            flow: identity.flow,
            key: identity.key,
            random: mix(seed) as u32,
        };
        let seen = Seen { tables: &self.tables, here: self.ahead(), turns: &self.turns };
        let decision = decide(policy as u32, &job, params, &seen);
        if let (Some(word), 1..) = (expected, decision.done_ns) {
            word.store(order::expected_ns(word.load(Relaxed), now_ns, decision.done_ns), Relaxed);
        }
        match decision.verdict {
            Verdict::Local => None,
            Verdict::Redirect(node) => Some(node),
        }
    }

    /// What waits in front of a packet that is taken now.
    fn ahead(&self) -> Here {
        let Some(queue) = &self.queue else { return Here::default() };
        let waiting_ns = queue.waiting_ns();
        Here {
            backlog_ns: saturate(waiting_ns.iter().sum()),
            queued_milli: saturate(queue.len() as u64 * 1000),
            behind: if self.settings.params.tuning.discipline == FIFO {
                Behind::default()
            } else {
                Behind::of(waiting_ns)
            },
        }
    }
}

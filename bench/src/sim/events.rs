//! What happens next: future events in order of time and, within one instant, in the order of their scheduling.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The frame of this number arrives at its destination.
    Frame(u32),
    /// A worker may have finished its packet.
    Finish(Place),
    /// A worker will soon be idle: time to ask another node for work.
    Prefetch(Place),
    /// A node reports its load.
    Report(Place),
    /// A node looks at its signals.
    Control(Place),
    /// A node draws up a plan.
    Plan(Place),
    /// The failure of this number begins.
    Fail(u16),
    /// It ends.
    Recover(u16),
}

/// A worker of a node in one of the node's lives: what was scheduled before a failure means nothing after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The node.
    pub node: u16,
    /// The worker; 0 where the whole node is meant.
    pub worker: u8,
    /// Failures the node has been through (wrapping).
    pub life: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    at_ns: u64,
    order: u64,
    what: What,
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives the greatest first.
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The future.
#[derive(Clone, Debug, Default)]
pub struct Events {
    heap: BinaryHeap<Event>,
    scheduled: u64,
}

impl Events {
    /// Schedules `what`.
    pub fn push(&mut self, at_ns: u64, what: What) {
        self.scheduled += 1;
        self.heap.push(Event { at_ns, order: self.scheduled, what });
    }

    /// When the next event is; the end of time when there is none.
    pub fn next_ns(&self) -> u64 {
        self.heap.peek().map_or(u64::MAX, |event| event.at_ns)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(u64, What)> {
        self.heap.pop().map(|event| (event.at_ns, event.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_scheduling() {
        let mut events = Events::default();
        for (at_ns, number) in [(5, 0), (3, 1), (5, 2), (3, 3), (9, 4), (0, 5)] {
            events.push(at_ns, What::Frame(number));
        }
        assert_eq!(events.next_ns(), 0);
        let mut found = Vec::new();
        while let Some((_, What::Frame(number))) = events.pop() {
            found.push(number);
        }
        assert_eq!(found, [5, 1, 3, 0, 2, 4]);
        assert_eq!(events.next_ns(), u64::MAX);
    }

    #[test]
    fn an_event_is_small() {
        assert_eq!(size_of::<Event>(), 24);
    }
}

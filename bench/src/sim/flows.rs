//! Order within flows: how much was lost of it on the way, and what it costs to restore it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use dataplane_common::order::{self, expected_ns};

use super::hashing::MixHasher;
use super::statistics::Times;

/// One flow.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Packets numbered.
    issued: u32,
    /// One more than the largest number that has come out.
    expected: u32,
    /// Number of the next packet to be released in order.
    released: u32,
    /// Packets that wait for earlier ones.
    held: u32,
    /// When the packets so far are expected to be done, ns ([`expected_ns`]).
    expected_ns: u64,
}

/// A packet that is out and waits for earlier ones of its flow; `None` = it was lost, and nobody need wait for it.
type Held = Option<(u64, bool)>;

/// All flows.
#[derive(Clone, Debug)]
pub struct Flows {
    flows: Vec<Flow>,
    held: HashMap<u64, Held, BuildHasherDefault<MixHasher>>,
    /// Measured packets out, and those of them that were reordered.
    pub out: u64,
    /// Packets that came out after a later one of their flow: Type-P-Reordered (RFC 4737, 3.3).
    pub reordered: u64,
    /// Latencies of measured packets until they could be released in order, sum in ns.
    pub ordered_ns: u128,
    /// These latencies, where more than their sum is wanted.
    pub ordered: Option<Times>,
}

impl Flows {
    /// So many flows, and whether each latency in order is to be kept.
    pub fn new(flows: usize, keeps_ordered: bool) -> Self {
        let flows = vec![Flow::default(); flows];
        let ordered = keeps_ordered.then(Times::default);
        Self { flows, held: HashMap::default(), out: 0, reordered: 0, ordered_ns: 0, ordered }
    }

    /// Numbers the next packet of a flow.
    pub fn number(&mut self, flow: u32) -> u32 {
        let flow = &mut self.flows[flow as usize];
        flow.issued = flow.issued.wrapping_add(1);
        flow.issued.wrapping_sub(1)
    }

    /// Time until the packets of a flow are expected to be done, ns.
    pub fn earlier_ns(&self, now_ns: u64, flow: u32) -> u32 {
        order::earlier_ns(self.flows[flow as usize].expected_ns, now_ns)
    }

    /// One more packet of a flow is expected to be done after `done_ns`.
    pub fn expect(&mut self, now_ns: u64, flow: u32, done_ns: u32) {
        let expected = &mut self.flows[flow as usize].expected_ns;
        *expected = expected_ns(*expected, now_ns, done_ns);
    }

    /// A packet that arrived at `arrived_ns` comes out.
    pub fn out(&mut self, now_ns: u64, (flow, number): (u32, u32), arrived_ns: u64, is_measured: bool) {
        let state = &mut self.flows[flow as usize];
        let is_late = number.wrapping_sub(state.expected) >= 1 << 31;
        if !is_late {
            state.expected = number.wrapping_add(1);
        }
        self.out += u64::from(is_measured);
        self.reordered += u64::from(is_measured && is_late);
        self.release(now_ns, (flow, number), Some((arrived_ns, is_measured)));
    }

    /// A packet will never come out.
    pub fn lose(&mut self, now_ns: u64, flow: u32, number: u32) {
        self.release(now_ns, (flow, number), None);
    }

    fn release(&mut self, now_ns: u64, (flow, number): (u32, u32), packet: Held) {
        let state = &mut self.flows[flow as usize];
        let key = |number: u32| u64::from(flow) << 32 | u64::from(number);
        if number != state.released {
            state.held += 1;
            self.held.insert(key(number), packet);
            return;
        }
        let mut next = Some(packet);
        while let Some(packet) = next {
            if let Some((arrived_ns, true)) = packet {
                self.ordered_ns += u128::from(now_ns - arrived_ns);
                if let Some(ordered) = &mut self.ordered {
                    ordered.record(now_ns - arrived_ns);
                }
            }
            state.released = state.released.wrapping_add(1);
            next = if state.held > 0 { self.held.remove(&key(state.released)) } else { None };
            state.held -= u32::from(next.is_some());
        }
    }

    /// Packets that wait for earlier ones.
    pub fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_behind_a_later_one_are_reordered_and_order_is_restored() {
        let mut flows = Flows::new(2, true);
        assert_eq!([flows.number(1), flows.number(1), flows.number(1), flows.number(0)], [0, 1, 2, 0]);
        flows.out(10, (1, 1), 5, true);
        flows.out(20, (1, 2), 6, true);
        assert_eq!((flows.held(), flows.reordered, flows.ordered_ns), (2, 0, 0));
        flows.out(30, (1, 0), 4, true);
        assert_eq!((flows.held(), flows.reordered, flows.out), (0, 1, 3));
        assert_eq!(flows.ordered_ns, 26 + 25 + 24, "all leave at 30");
        flows.out(40, (0, 0), 39, false);
        assert_eq!((flows.out, flows.ordered_ns), (3, 75));
        assert_eq!(flows.ordered.map(|ordered| ordered.finish().max_ns), Some(26));
    }

    #[test]
    fn a_flow_is_expected_to_be_done_with_its_last_packet() {
        let mut flows = Flows::new(2, false);
        flows.expect(100, 1, 50);
        flows.expect(110, 1, 5);
        assert_eq!((flows.earlier_ns(120, 1), flows.earlier_ns(200, 1), flows.earlier_ns(120, 0)), (30, 0, 0));
    }

    #[test]
    fn nobody_waits_for_a_lost_packet() {
        let mut flows = Flows::new(1, false);
        for _ in 0..4 {
            flows.number(0);
        }
        flows.out(10, (0, 2), 1, true);
        flows.lose(15, 0, 1);
        flows.lose(20, 0, 0);
        assert_eq!((flows.held(), flows.ordered_ns), (0, 19));
        flows.out(30, (0, 3), 25, true);
        assert_eq!((flows.ordered_ns, flows.reordered), (24, 0));
    }
}

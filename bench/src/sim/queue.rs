//! What waits at a worker, in the order in which it will be served.

use std::collections::VecDeque;

use dataplane_common::bands::{BANDS, Behind, band_of};
use dataplane_common::tuning::{CLASS, FIFO, SHORTEST};

/// A packet that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Packets of smaller keys are served first.
    key: u64,
    /// Number of its frame.
    pub frame: u32,
    /// What the worker is charged for it, ns.
    pub charged_ns: u32,
    /// Its flow.
    pub flow: u32,
    /// Its band: bands are served in their order.
    band: u8,
    /// Whether it has been on the interconnect.
    pub is_redirected: bool,
}

/// Time that a packet waits until it counts as one ns shorter, ns: shortest first with ageing serves the least
/// EPT − 0.05 · wait (policies.md, 7.2).
const AGEING: u64 = 20;

/// The packets that wait at a worker.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    waiting: VecDeque<Waiting>,
    discipline: u32,
    keeps_flow_order: bool,
    by_band: [u64; BANDS],
}

impl Queue {
    /// An empty queue of a discipline of [`dataplane_common::tuning`]. Packets of one flow keep their order if so wished.
    pub fn new(discipline: u32, keeps_flow_order: bool) -> Self {
        Self { discipline, keeps_flow_order, ..Self::default() }
    }

    /// Adds a packet of `class`.
    pub fn push(&mut self, now_ns: u64, frame: u32, (charged_ns, flow, class): (u32, u32, u8), is_redirected: bool) {
        let class_band = (BANDS - 1) as u8 - class.min(BANDS as u8 - 1);
        let (mut key, band) = match self.discipline {
            // EPT less a share of the wait: with the "now" that all have in common left out, a constant.
            SHORTEST => (AGEING * u64::from(charged_ns) + now_ns, band_of(charged_ns) as u8),
            CLASS => (u64::from(class_band), class_band),
            _ => (0, 0),
        };
        let mut at = self.waiting.len();
        for other in self.waiting.iter().rev() {
            if other.key <= key {
                break;
            }
            if self.keeps_flow_order && other.flow == flow {
                key = other.key;
                break;
            }
            at -= 1;
        }
        self.by_band[usize::from(band)] += u64::from(charged_ns);
        self.waiting.insert(at, Waiting { key, frame, charged_ns, flow, band, is_redirected });
    }

    /// Takes the packet to serve next.
    pub fn pop(&mut self) -> Option<Waiting> {
        self.remove(0)
    }

    /// Takes the packet at position `index`, 0 being the next.
    pub fn remove(&mut self, index: usize) -> Option<Waiting> {
        let waiting = self.waiting.remove(index)?;
        self.by_band[usize::from(waiting.band)] -= u64::from(waiting.charged_ns);
        Some(waiting)
    }

    /// The packets, the next first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Waiting> {
        self.waiting.iter()
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Which part of the work lies behind a packet of each band, when `serving_ns` more is in service, ahead of all; all is
    /// ahead in order of arrival.
    pub fn behind(&self, serving_ns: u32) -> Behind {
        if self.discipline == FIFO {
            return Behind::default();
        }
        let mut by_band = self.by_band;
        by_band[0] += u64::from(serving_ns);
        Behind::of(&by_band)
    }

    /// Adds the work that waits to that of other workers, by band.
    pub fn add_bands(&self, sum: &mut [u64; BANDS]) {
        for (sum, ns) in sum.iter_mut().zip(self.by_band) {
            *sum += ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(mut queue: Queue, packets: &[(u64, u32, u32, u8)]) -> Vec<u32> {
        for (number, (now_ns, charged_ns, flow, class)) in (0..).zip(packets) {
            queue.push(*now_ns, number, (*charged_ns, *flow, *class), false);
        }
        std::iter::from_fn(|| queue.pop()).map(|waiting| waiting.frame).collect()
    }

    #[test]
    fn disciplines_serve_in_their_order() {
        let packets = [(0, 900, 1, 0), (1, 100, 2, 5), (2, 500, 3, 5), (3, 50, 4, 7)];
        assert_eq!(order(Queue::new(FIFO, true), &packets), [0, 1, 2, 3]);
        assert_eq!(order(Queue::new(SHORTEST, true), &packets), [3, 1, 2, 0]);
        assert_eq!(order(Queue::new(CLASS, true), &packets), [3, 1, 2, 0]);
    }

    #[test]
    fn who_waits_long_enough_goes_first() {
        // 800 ns longer: 16 µs of waiting make up for it.
        assert_eq!(order(Queue::new(SHORTEST, true), &[(0, 900, 1, 0), (15_900, 100, 2, 0)]), [1, 0]);
        assert_eq!(order(Queue::new(SHORTEST, true), &[(0, 900, 1, 0), (16_100, 100, 2, 0)]), [0, 1]);
    }

    #[test]
    fn a_flow_keeps_its_order() {
        let packets = [(0, 900, 1, 0), (0, 500, 2, 0), (0, 100, 1, 0), (0, 50, 1, 0), (0, 700, 3, 0)];
        assert_eq!(order(Queue::new(SHORTEST, true), &packets), [1, 4, 0, 2, 3]);
        assert_eq!(order(Queue::new(SHORTEST, false), &packets), [3, 2, 1, 4, 0]);
    }

    #[test]
    fn bands_follow_what_waits() {
        let mut queue = Queue::new(SHORTEST, true);
        assert_eq!(queue.behind(500), Behind::default());
        queue.push(0, 0, (500, 1, 0), false);
        queue.push(0, 1, (100_000, 2, 0), false);
        assert!(queue.behind(0).ahead_ns(100_500, 0) < 1_000, "the long one is behind");
        assert!(queue.behind(100_000).ahead_ns(200_500, 0) > 99_000, "what is in service is ahead");
        assert_eq!(queue.remove(1).map(|waiting| waiting.frame), Some(1));
        assert_eq!(queue.behind(0).ahead_ns(500, 0), 500);
        assert_eq!((queue.remove(1), queue.iter().len(), queue.is_empty()), (None, 1, false));
    }
}

//! Nodes with memories for content: which requests hit, and how busy that makes the busiest node.
//!
//! A request names an object by Zipf's law and arrives at any node alike. The node that serves it takes the time of a hit
//! when the object is in its memory (least recently used ones leave), else that of a miss on top; a node that forwards it
//! takes the time of that. Throughput is that of the bottleneck: requests over the busy time of the busiest node. There
//! are no queues and no response times. One plan stands for the plans of all nodes, which see the same traffic.

use dataplane_common::hash::mix;
use dataplane_common::plan::{HERE, SLOTS};
use dataplane_common::policy::{Job, PolicyKind};
use dataplane_common::tuning::Tuning;

use super::super::random::{Alias, Random, stream};
use super::board::Cluster;

/// Objects.
pub const OBJECTS: usize = 20_000;
/// Time of a hit, ns.
pub const HIT_NS: u64 = 40_000;
/// Time that forwarding takes the node of arrival, ns: what the product's plan for `ward` assumes.
pub const FORWARD_NS: u64 = 14_000;
/// Requests between two plans.
const TURN: u64 = 2_000;
/// Weight of the newest of these intervals in a plan: it looks back over about 50 000 requests, as over a log.
const RENEWAL_MILLI: u32 = 40;
/// Requests over which the time that those for a slot take is averaged.
const LOOK_BACK: f64 = 20.0;
/// Share of a node's memory that the plan of `ward` is told of: slots hold unequal numbers of objects.
const TOLD: f64 = 0.9;
/// Share of the time that nodes are taken to be busy, on average, where a policy asks.
const BUSY: f64 = 0.6;

/// The assumptions of this model, for the experiments that use it.
pub const ASSUMPTIONS: &str = "20 000 objects of one size; a hit takes 40 µs, forwarding 14 µs of the node of arrival, which is any node alike. Throughput is that of the busiest node; there are no queues. Memories hold the least recently used.";

/// How popular objects are, and how much a node remembers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// Nodes.
    pub nodes: usize,
    /// Exponent of Zipf's law.
    pub zipf: f64,
    /// Share of all objects that a node's memory holds.
    pub memory: f64,
    /// Time of a miss on top of that of a hit, ns.
    pub miss_ns: u64,
}

/// What happens before and while requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Plans know the popularities, memories hold what has a place in them, and half as many requests as are counted went
    /// before.
    Warm,
    /// Plans know the popularities, memories are empty.
    Cold,
    /// As warm; a fiftieth of the ranks changes places each 20 000 requests.
    Drifting,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Every node serves what arrives at it, which is dealt out in turn.
    RoundRobin,
    /// Hash of the object modulo the number of nodes.
    Modulo,
    /// A policy of the product, which counts requests as work.
    Requests(PolicyKind),
    /// A policy of the product, which counts as work what requests for the slot took lately.
    Measured(PolicyKind),
}

/// What a run gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Served {
    /// Requests in a second of the busiest node.
    pub throughput: f64,
    /// Busy time of the busiest node over the mean.
    pub imbalance: f64,
    /// Share of requests that hit.
    pub hits: f64,
}

/// A memory of objects that forgets the least recently used.
struct Memory {
    capacity: usize,
    count: usize,
    /// Neighbours in the order of use; the entry after the objects is both ends.
    next: Vec<u32>,
    previous: Vec<u32>,
}

/// No neighbour: not in memory.
const ABSENT: u32 = u32::MAX;

impl Memory {
    fn new(capacity: usize) -> Self {
        let (mut next, mut previous) = (vec![ABSENT; OBJECTS + 1], vec![ABSENT; OBJECTS + 1]);
        (next[OBJECTS], previous[OBJECTS]) = (OBJECTS as u32, OBJECTS as u32);
        Self { capacity: capacity.max(1), count: 0, next, previous }
    }

    /// Uses an object. True when it was there.
    fn access(&mut self, object: u32) -> bool {
        let was_there = self.next[object as usize] != ABSENT;
        if was_there {
            self.unlink(object);
        } else if self.count == self.capacity {
            let oldest = self.previous[OBJECTS];
            self.unlink(oldest);
            self.next[oldest as usize] = ABSENT;
        } else {
            self.count += 1;
        }
        let first = self.next[OBJECTS];
        (self.next[object as usize], self.previous[object as usize]) = (first, OBJECTS as u32);
        (self.previous[first as usize], self.next[OBJECTS]) = (object, object);
        was_there
    }

    fn unlink(&mut self, object: u32) {
        let (next, previous) = (self.next[object as usize], self.previous[object as usize]);
        self.next[previous as usize] = next;
        self.previous[next as usize] = previous;
    }
}

/// A run under way.
struct Nodes {
    setting: Setting,
    way: Way,
    cluster: Cluster,
    memories: Vec<Memory>,
    busy_ns: Vec<u64>,
    /// Busy times at the last plan.
    planned_ns: Vec<u64>,
    /// What requests for a slot took, mean over the last ones, ns.
    slot_ns: Vec<f64>,
    /// How many they were, at most [`LOOK_BACK`].
    slot_requests: Vec<f64>,
    /// Object of each rank.
    objects: Vec<u32>,
    ranks: Alias,
    random: Random,
    number: u64,
}

impl Nodes {
    fn new(setting: Setting, way: Way, seed: u64) -> Self {
        let kind = match way {
            Way::Requests(kind) | Way::Measured(kind) => kind,
            Way::RoundRobin | Way::Modulo => PolicyKind::Local,
        };
        let tuning = Tuning {
            memory_share_milli: (setting.memory * TOLD * 1000.0) as u32,
            miss_ns: setting.miss_ns as u32,
            // Two parts of the busy share to one of the memory in use; there are no connections to count.
            cpu_milli: 667,
            memory_milli: 333,
            renewal_milli: RENEWAL_MILLI,
            ..Tuning::DEFAULT
        };
        let weights: Vec<f64> = (0..OBJECTS).map(|rank| (rank as f64 + 1.0).powf(-setting.zipf)).collect();
        let mut random = stream(seed, 400);
        let mut objects: Vec<u32> = (0..OBJECTS as u32).collect();
        for rank in (1..OBJECTS).rev() {
            objects.swap(rank, random.below(rank as u64 + 1) as usize);
        }
        let capacity = (setting.memory * OBJECTS as f64) as usize;
        Self {
            setting,
            way,
            cluster: Cluster::new(kind, tuning, &vec![1000; setting.nodes]),
            memories: (0..setting.nodes).map(|_| Memory::new(capacity)).collect(),
            busy_ns: vec![0; setting.nodes],
            planned_ns: vec![0; setting.nodes],
            slot_ns: vec![HIT_NS as f64; SLOTS as usize],
            slot_requests: vec![0.0; SLOTS as usize],
            objects,
            ranks: Alias::new(&weights),
            random,
            number: 0,
        }
    }

    /// Draws a request: object and node of arrival.
    fn draw(&mut self) -> (u32, u16) {
        let object = self.objects[self.ranks.draw(&mut self.random) as usize];
        (object, self.random.below(self.setting.nodes as u64) as u16)
    }

    /// The node that serves a request.
    fn place(&mut self, object: u32, at: u16) -> u16 {
        let key = mix(u64::from(object)) as u32;
        let ept_ns = match self.way {
            Way::RoundRobin => return (self.number % self.setting.nodes as u64) as u16,
            Way::Modulo => return (mix(u64::from(object) + 1) % self.setting.nodes as u64) as u16,
            Way::Requests(_) => HIT_NS as u32,
            Way::Measured(_) => self.slot_ns[key as usize % self.slot_ns.len()] as u32,
        };
        let job = Job { ept_ns, key, random: self.random.bits() as u32, ..Job::default() };
        self.cluster.decide(&job, at)
    }

    /// Serves a request. True when it hits.
    fn serve(&mut self) -> bool {
        let (object, at) = self.draw();
        let node = self.place(object, at);
        if node != at && self.way != Way::RoundRobin {
            self.busy_ns[usize::from(at)] += FORWARD_NS;
        }
        let hits = self.memories[usize::from(node)].access(object);
        let took_ns = HIT_NS + if hits { 0 } else { self.setting.miss_ns };
        self.busy_ns[usize::from(node)] += took_ns;
        let slot = mix(u64::from(object)) as u32 as usize % self.slot_ns.len();
        self.slot_requests[slot] = (self.slot_requests[slot] + 1.0).min(LOOK_BACK);
        self.slot_ns[slot] += (took_ns as f64 - self.slot_ns[slot]) / self.slot_requests[slot];
        self.after_request();
        hits
    }

    fn after_request(&mut self) {
        self.number += 1;
        if self.number.is_multiple_of(TURN) {
            self.plan();
        }
    }

    fn plan(&mut self) {
        let since: Vec<u64> = self.busy_ns.iter().zip(&self.planned_ns).map(|(now, then)| now - then).collect();
        let mean = since.iter().sum::<u64>() as f64 / since.len() as f64;
        for ((member, busy), memory) in self.cluster.members.iter_mut().zip(&since).zip(&self.memories) {
            let share = if mean > 0.0 { BUSY * *busy as f64 / mean } else { 0.0 };
            member.busy_milli = (share.min(1.0) * 1000.0) as u16;
            member.memory_milli = (memory.count * 1000 / memory.capacity) as u16;
        }
        self.planned_ns.clone_from(&self.busy_ns);
        let now_ns = self.cluster.now_ns + (mean / BUSY) as u64 + 1;
        self.cluster.plan(now_ns);
    }

    /// Lets the plan see `requests` that no node serves.
    fn teach(&mut self, requests: u64) {
        for _ in 0..requests {
            let (object, at) = self.draw();
            self.place(object, at);
            self.after_request();
        }
    }

    /// Puts every object where the plan has it, the most popular last.
    fn fill(&mut self) {
        for rank in (0..OBJECTS).rev() {
            let object = self.objects[rank];
            let slot = mix(u64::from(object)) as u32 % SLOTS;
            let node = match self.way {
                Way::RoundRobin => HERE,
                Way::Modulo => self.place(object, 0),
                Way::Requests(_) | Way::Measured(_) => self.cluster.owner(slot),
            };
            match self.memories.get_mut(usize::from(node)) {
                Some(memory) => {
                    memory.access(object);
                }
                None => {
                    for memory in &mut self.memories {
                        memory.access(object);
                    }
                }
            }
        }
    }

    /// A fiftieth of the ranks changes places with any other.
    fn drift(&mut self) {
        for _ in 0..OBJECTS / 100 {
            let [a, b] = [0, 0].map(|_: u8| self.random.below(OBJECTS as u64) as usize);
            self.objects.swap(a, b);
        }
    }
}

/// Serves `requests` and counts them.
pub fn serve(setting: Setting, way: Way, phase: Phase, requests: u64, seed: u64) -> Served {
    let mut nodes = Nodes::new(setting, way, seed);
    nodes.plan();
    match phase {
        Phase::Cold => nodes.teach(requests.min(50_000)),
        Phase::Warm | Phase::Drifting => {
            nodes.teach(requests.min(50_000));
            nodes.fill();
            for _ in 0..requests / 2 {
                nodes.serve();
            }
        }
    }
    let before = nodes.busy_ns.clone();
    let mut hits = 0u64;
    for number in 0..requests {
        if phase == Phase::Drifting && number % 20_000 == 19_999 {
            nodes.drift();
        }
        hits += u64::from(nodes.serve());
    }
    let busy: Vec<u64> = nodes.busy_ns.iter().zip(&before).map(|(now, then)| now - then).collect();
    let most = busy.iter().copied().max().unwrap_or(0).max(1) as f64;
    let mean = busy.iter().sum::<u64>() as f64 / busy.len() as f64;
    Served {
        throughput: requests as f64 / most * 1e9,
        imbalance: most / mean,
        hits: hits as f64 / requests.max(1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_forgets_the_least_recently_used() {
        let mut memory = Memory::new(2);
        assert_eq!([1, 2, 1, 3, 1, 2].map(|object| memory.access(object)), [false, false, true, false, true, false]);
        assert_eq!(memory.count, 2);
    }

    #[test]
    fn partitioning_hits_more_and_round_robin_is_even() {
        let setting = Setting { nodes: 4, zipf: 0.8, memory: 0.1, miss_ns: 800_000 };
        let [robin, modulo, hrw] = [Way::RoundRobin, Way::Modulo, Way::Requests(PolicyKind::Hrw)]
            .map(|way| serve(setting, way, Phase::Warm, 20_000, 1));
        assert!(robin.hits < modulo.hits && (modulo.hits - hrw.hits).abs() < 0.05, "{robin:?} {modulo:?} {hrw:?}");
        assert!(robin.imbalance < 1.05 && robin.throughput < hrw.throughput);
    }
}

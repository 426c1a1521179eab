use super::*;
use crate::tuning::Tuning;
use std::vec;
use std::vec::Vec;

/// A board in memory.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub now_ns: u64,
    pub members: Vec<Member>,
    pub demands: Vec<Demand>,
    pub homes: Vec<Option<u16>>,
    pub charged_ns: Vec<u64>,
    pub slots: Vec<u16>,
}

impl Table {
    /// `nodes` idle nodes of one worker, ids 0 up, node 0 the one that plans, and `functions` functions.
    pub(crate) fn new(nodes: u16, functions: usize) -> Self {
        let member = |node| Member {
            node,
            is_self: node == 0,
            is_live: true,
            workers: 1,
            speed_milli: 1000,
            ..Member::default()
        };
        Self {
            now_ns: 1_000_000_000,
            members: (0..nodes).map(member).collect(),
            demands: vec![Demand::default(); functions],
            homes: vec![None; functions],
            charged_ns: vec![0; (SLOTS * TABLES) as usize],
            slots: vec![NOWHERE; (SLOTS * TABLES) as usize],
        }
    }

    /// Slots of table `table` that `node` has.
    pub(crate) fn count(&self, table: u32, node: u16) -> u32 {
        let from = (table * SLOTS) as usize;
        self.slots[from..from + SLOTS as usize].iter().filter(|slot| **slot == node).count() as u32
    }
}

impl Board for Table {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }
    fn members(&self) -> usize {
        self.members.len()
    }
    fn member(&self, index: usize) -> Member {
        self.members[index]
    }
    fn functions(&self) -> usize {
        self.demands.len()
    }
    fn demand(&self, index: usize) -> Demand {
        self.demands[index]
    }
    fn set_home(&mut self, index: usize, node: Option<u16>) {
        self.homes[index] = node;
    }
    fn charged_ns(&self, slot: u32) -> u64 {
        self.charged_ns[slot as usize]
    }
    fn slot(&self, slot: u32) -> u16 {
        self.slots[slot as usize]
    }
    fn place(&mut self, slot: u32, node: u16) {
        self.slots[slot as usize] = node;
    }
}

#[test]
fn slots_follow_weights() {
    let mut table = Table::new(3, 0);
    place_by_weight(&mut table, 1, |member| [1, 2, 1][usize::from(member.node)]);
    assert_eq!([0, 1, 2].map(|node| table.count(1, node)), [1024, 2048, 1024]);
    assert_eq!(table.count(0, NOWHERE), SLOTS, "the other table is untouched");
    table.members[1].is_live = false;
    place_by_weight(&mut table, 1, |_| 7);
    assert_eq!([0, 1, 2].map(|node| table.count(1, node)), [2048, 0, 2048]);
    place_by_weight(&mut table, 1, |_| 0);
    assert_eq!(table.count(1, HERE), SLOTS);
}

#[test]
fn loads_are_weighted_means() {
    let member = Member { busy_milli: 600, memory_milli: 200, queued_milli: 8000, ..Member::default() };
    let tuning = Tuning { cpu_milli: 500, memory_milli: 500, queue_milli: 0, ..Tuning::DEFAULT };
    assert_eq!(load_milli(&member, &tuning), 400);
    let tuning = Tuning { cpu_milli: 0, memory_milli: 0, queue_milli: 1000, queue_full: 16, ..Tuning::DEFAULT };
    assert_eq!(load_milli(&member, &tuning), 500);
    let nothing = Tuning { cpu_milli: 0, memory_milli: 0, queue_milli: 0, ..Tuning::DEFAULT };
    assert_eq!(load_milli(&member, &nothing), 0);
}

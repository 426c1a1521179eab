//! Words of a node's mapped tables: where they are, what they were, what has changed.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use dataplane_common::maps::{self, FlowRow, FunctionRow, LoadRow, QueueRow, SignalsRow, SlotRow, WorkerRow};
use dataplane_common::seal::SealRow;
use dataplane_user::maps::{MapValue, MappedArray, Tables};

/// The tables that programs read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Load,
    Workers,
    Queues,
    Functions,
    Slots,
    Flows,
    Held,
    Signals,
    Roster,
    Seals,
}

impl Table {
    const ALL: [Self; 10] = [
        Self::Load,
        Self::Workers,
        Self::Queues,
        Self::Functions,
        Self::Slots,
        Self::Flows,
        Self::Held,
        Self::Signals,
        Self::Roster,
        Self::Seals,
    ];

    /// Words of a row.
    const fn words(self) -> usize {
        let bytes = match self {
            Self::Load => size_of::<LoadRow>(),
            Self::Workers => size_of::<WorkerRow>(),
            Self::Queues => size_of::<QueueRow>(),
            Self::Functions => size_of::<FunctionRow>(),
            Self::Slots => size_of::<SlotRow>(),
            Self::Flows => size_of::<FlowRow>(),
            Self::Signals => size_of::<SignalsRow>(),
            Self::Held | Self::Roster => 8,
            Self::Seals => size_of::<SealRow>(),
        };
        bytes / 8
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Load => maps::LOAD_TABLE,
            Self::Workers => maps::WORKERS,
            Self::Queues => maps::QUEUES,
            Self::Functions => maps::FUNCTIONS,
            Self::Slots => maps::SLOTS,
            Self::Flows => maps::FLOWS,
            Self::Held => maps::HELD,
            Self::Signals => maps::SIGNALS,
            Self::Roster => maps::ROSTER,
            Self::Seals => maps::SEALS,
        }
    }
}

/// A word of a table: row, and offset in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    table: Table,
    row: u32,
    offset: usize,
}

impl Place {
    /// Of a node's load row.
    pub fn load(node: u16, offset: usize) -> Self {
        Self { table: Table::Load, row: node.into(), offset }
    }

    /// Of a worker.
    pub fn worker(worker: u32, offset: usize) -> Self {
        Self { table: Table::Workers, row: worker, offset }
    }

    /// Of a socket.
    pub fn queue(socket: u32, offset: usize) -> Self {
        Self { table: Table::Queues, row: socket, offset }
    }

    /// Of a function as one worker measures it.
    pub fn function(slot: u32, offset: usize) -> Self {
        Self { table: Table::Functions, row: slot, offset }
    }

    /// Of a slot of the plan.
    pub fn slot(slot: u32, offset: usize) -> Self {
        Self { table: Table::Slots, row: slot, offset }
    }

    /// Of a slot of flows.
    pub fn flow(slot: u16, offset: usize) -> Self {
        Self { table: Table::Flows, row: slot.into(), offset }
    }

    /// Of a place for packets that are kept.
    pub fn held(place: u32) -> Self {
        Self { table: Table::Held, row: place, offset: 0 }
    }

    /// Of the signals.
    pub fn signals(offset: usize) -> Self {
        Self { table: Table::Signals, row: 0, offset }
    }

    /// The id at a position of the roster.
    pub fn roster(position: u32) -> Self {
        Self { table: Table::Roster, row: position, offset: 0 }
    }

    /// Of the serials of frames to and from a node.
    pub fn seal(node: u16, offset: usize) -> Self {
        Self { table: Table::Seals, row: node.into(), offset }
    }

    /// The word in the mapped tables.
    pub fn word(self, tables: &Tables) -> &AtomicU64 {
        match self.table {
            Table::Load => tables.load.row(self.row).word(self.offset),
            Table::Workers => tables.workers.row(self.row).word(self.offset),
            Table::Queues => tables.queues.row(self.row).word(self.offset),
            Table::Functions => tables.functions.row(self.row).word(self.offset),
            Table::Slots => tables.slots.row(self.row).word(self.offset),
            Table::Flows => tables.flows.row(self.row).word(self.offset),
            Table::Held => tables.held.row(self.row).word(self.offset),
            Table::Signals => tables.signals.row(self.row).word(self.offset),
            Table::Roster => tables.roster.row(self.row).word(self.offset),
            Table::Seals => tables.seals.row(self.row).word(self.offset),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]+{}", self.table.name(), self.row, self.offset)
    }
}

/// The words of all tables at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words {
    words: Vec<u64>,
    /// Index of the first word of each table.
    starts: [usize; Table::ALL.len()],
}

impl Words {
    /// The words now.
    pub fn of(tables: &Tables) -> Self {
        let mut words = Self::default();
        words.read(tables);
        words
    }

    /// Takes the words of now.
    pub fn read(&mut self, tables: &Tables) {
        self.words.clear();
        for table in Table::ALL {
            self.starts[table as usize] = self.words.len();
            match table {
                Table::Load => read_all(&tables.load, &mut self.words),
                Table::Workers => read_all(&tables.workers, &mut self.words),
                Table::Queues => read_all(&tables.queues, &mut self.words),
                Table::Functions => read_all(&tables.functions, &mut self.words),
                Table::Slots => read_all(&tables.slots, &mut self.words),
                Table::Flows => read_all(&tables.flows, &mut self.words),
                Table::Held => read_all(&tables.held, &mut self.words),
                Table::Signals => read_all(&tables.signals, &mut self.words),
                Table::Roster => read_all(&tables.roster, &mut self.words),
                Table::Seals => read_all(&tables.seals, &mut self.words),
            }
        }
    }

    /// Makes the tables what they were when the words were read.
    pub fn restore(&self, tables: &Tables) {
        for (place, word, _) in self.differences(&Self::of(tables)) {
            place.word(tables).store(word, Relaxed);
        }
    }

    fn index(&self, place: Place) -> usize {
        self.starts[place.table as usize] + place.row as usize * place.table.words() + place.offset / 8
    }

    fn place(&self, index: usize) -> Place {
        let is_behind = |table: &Table| self.starts[*table as usize] <= index;
        let table = Table::ALL.into_iter().rev().find(is_behind).expect("the first table starts at 0");
        let word = index - self.starts[table as usize];
        Place { table, row: (word / table.words()) as u32, offset: word % table.words() * 8 }
    }

    /// The word there.
    pub fn get(&self, place: Place) -> u64 {
        self.words[self.index(place)]
    }

    /// Writes the word there; returns what it was.
    pub fn set(&mut self, place: Place, word: u64) -> u64 {
        let index = self.index(place);
        std::mem::replace(&mut self.words[index], word)
    }

    /// Adds to the word there, and returns the sum.
    pub fn add(&mut self, place: Place, amount: u64) -> u64 {
        let sum = self.get(place).wrapping_add(amount);
        self.set(place, sum);
        sum
    }

    /// Words that differ: where, here, there.
    pub fn differences(&self, other: &Self) -> Vec<(Place, u64, u64)> {
        if self.words == other.words {
            return Vec::new();
        }
        let pairs = self.words.iter().zip(&other.words).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(index, (a, b))| (self.place(index), *a, *b)).collect()
    }
}

fn read_all<T: MapValue>(map: &MappedArray<T>, words: &mut Vec<u64>) {
    for row in 0..map.len() {
        let row = map.row(row);
        words.extend((0..size_of::<T>()).step_by(8).map(|offset| row.word(offset).load(Relaxed)));
    }
}

pub use dataplane_common::maps::pair as two;

/// The words of a load row, in their order.
pub fn words_of(row: &LoadRow) -> [u64; size_of::<LoadRow>() / 8] {
    let shares = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
    [
        two(row.backlog_ns, row.acked_ns),
        row.valid_until_ns,
        two(row.queued_milli, shares(row.workers, row.busy_milli)),
        row.sent_ns,
        row.sent_frames,
        row.reported_at_ns,
        two(row.mean_backlog_ns, shares(row.speed_milli, row.memory_milli)),
        row.behind,
        two(row.pressure_ns, row.pressure_us),
        two(row.marked_ns, row.marked_frames),
        two(row.peak_ns, row.peak_us),
        two(row.response_ns, row.service_ns),
        row.completed_frames,
        two(row.acked_frames, row.flags),
        two(row.limit_ns, row.limited),
        row.reserved2,
        two(row.received_ns, row.received_epoch),
        row.received_frames,
        two(row.report_seq, row.report_epoch),
        row.reports,
        two(row.stamp_us, row.stamp_epoch),
        row.piggybacked,
        two(row.transit_ns, row.transit_bytes),
        two(row.received_sequence, row.reserved3),
    ]
}

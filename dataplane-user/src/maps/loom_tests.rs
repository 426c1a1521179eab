//! The shared tables under every interleaving: one thread plays the XDP program, one the worker or the control thread, one a
//! reader. The reading code is the product's ([`WorkerLoad::read`], [`Row`]); only the memory is loom's.
//!
//! Words are written as the XDP program and the worker write them: charges by atomic adds, discharges and reports by plain
//! stores of whole words.

use std::mem::offset_of;

use dataplane_common::load::{Erl, Row, Word, WorkerLoad};
use dataplane_common::maps::{LoadRow, WorkerRow};
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use loom::thread;

/// The words of a row that a model uses, by offset.
struct Memory(Vec<(usize, AtomicU64)>);

impl Memory {
    fn new(offsets: &[usize]) -> Arc<Self> {
        Arc::new(Self(offsets.iter().map(|offset| (*offset, AtomicU64::new(0))).collect()))
    }

    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        self.0.iter().find(|(at, _)| *at == offset).map(|(_, word)| word)
    }

    fn read(&self, offset: usize) -> u64 {
        self.word(offset).map_or(0, |word| word.load(Acquire))
    }

    fn add(&self, offset: usize, amount: u64) -> u64 {
        self.word(offset).map_or(0, |word| word.fetch_add(amount, AcqRel) + amount)
    }

    fn write(&self, offset: usize, value: u64) {
        if let Some(word) = self.word(offset) {
            word.store(value, Release);
        }
    }
}

const CHARGED: usize = offset_of!(WorkerRow, charged_ns);
const DISCHARGED: usize = offset_of!(WorkerRow, discharged_ns);

#[test]
fn charges_and_discharges_are_never_torn_and_sum_to_zero_at_rest() {
    loom::model(|| {
        let row = Memory::new(&[CHARGED, DISCHARGED]);
        let programs: Vec<_> = [70, 30]
            .into_iter()
            .map(|ns| {
                let row = Arc::clone(&row);
                thread::spawn(move || row.add(CHARGED, ns))
            })
            .collect();
        // The worker discharges what it finds charged, as it does for packets it has taken.
        let done = row.read(CHARGED);
        row.write(DISCHARGED, done);
        let seen = WorkerLoad::read(|offset| row.read(offset)).here(0).backlog_ns;
        assert!([0, 30, 70, 100].contains(&seen), "{seen} was never charged");
        for program in programs {
            program.join().unwrap();
        }
        assert_eq!(row.read(CHARGED), 100, "no charge is lost");
        row.write(DISCHARGED, row.read(CHARGED));
        assert_eq!(WorkerLoad::read(|offset| row.read(offset)).here(0).backlog_ns, 0);
    });
}

#[test]
fn a_reader_never_sees_less_work_than_waits() {
    loom::model(|| {
        let row = Memory::new(&[CHARGED, DISCHARGED]);
        row.add(CHARGED, 40);
        let program = {
            let row = Arc::clone(&row);
            // A packet comes while another one is finished; 60 wait from its charge on.
            thread::spawn(move || {
                row.add(CHARGED, 60);
                row.write(DISCHARGED, 40);
            })
        };
        let seen = WorkerLoad::read(|offset| row.read(offset)).here(0).backlog_ns;
        assert!([40, 100, 60].contains(&seen), "{seen}");
        program.join().unwrap();
    });
}

/// A peer's row.
struct Peer(Arc<Memory>);

impl Row for Peer {
    fn word(&self, word: Word) -> u64 {
        self.0.read(word as usize)
    }
}

const SENT: usize = offset_of!(LoadRow, sent_ns);
const REPORT: usize = offset_of!(LoadRow, backlog_ns);

#[test]
fn the_estimated_remote_load_counts_every_packet_sent_exactly_once() {
    loom::model(|| {
        let row = Memory::new(&[SENT, REPORT]);
        // 50 are under way. A report that includes them says that they are the whole backlog; meanwhile 7 more are sent.
        row.add(SENT, 50);
        let (reporter, sender) = (Arc::clone(&row), Arc::clone(&row));
        let report = thread::spawn(move || reporter.write(REPORT, 50 | 50 << 32));
        let send = thread::spawn(move || sender.add(SENT, 7));
        let seen = Peer(Arc::clone(&row)).erl_ns(Erl::Ack, 0);
        assert!(seen == 50 || seen == 57, "{seen}: a report and what it acknowledges are one word");
        report.join().unwrap();
        send.join().unwrap();
        assert_eq!(Peer(row).erl_ns(Erl::Ack, 0), 57);
    });
}

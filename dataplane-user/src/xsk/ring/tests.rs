#![expect(unsafe_code, reason = "makes ring ends over memory of the test")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use proptest::prelude::*;

use super::{Consumer, Mapped, Memory, Producer, Word};
use crate::xsk::mmap::Mapping;
use crate::xsk::sys::XdpRingOffset;

const OFFSETS: XdpRingOffset = XdpRingOffset { producer: 0, consumer: 64, flags: 128, desc: 192 };

fn memory(entries: u32, start: u32) -> Mapped<u64> {
    let (mapping, _) = Mapping::anonymous(192 + entries as usize * 8, false).unwrap();
    let memory = Mapped::new(Arc::new(mapping), &OFFSETS, entries).unwrap();
    memory.store(Word::Producer, start, Ordering::Relaxed);
    memory.store(Word::Consumer, start, Ordering::Relaxed);
    memory
}

fn ends(memory: &Mapped<u64>) -> (Producer<u64>, Consumer<u64>) {
    // SAFETY: called once for a memory.
    let producer = unsafe { Producer::new(memory.clone()) };
    // SAFETY: called once for a memory.
    let consumer = unsafe { Consumer::new(memory.clone()) };
    (producer, consumer)
}

fn ring(entries: u32, start: u32) -> (Producer<u64>, Consumer<u64>) {
    ends(&memory(entries, start))
}

/// Reserves `wanted` entries, writes `values` to them, submits.
fn put(producer: &mut Producer<u64>, wanted: u32, values: impl IntoIterator<Item = u64>) -> u32 {
    let mut values = values.into_iter();
    let mut reservation = producer.reserve(wanted);
    reservation.fill_with(|| values.next());
    reservation.submit()
}

#[test]
fn what_was_written_but_not_submitted_stays_invisible() {
    let (mut producer, mut consumer) = ring(4, 0);
    let mut reservation = producer.reserve(4);
    reservation.fill_with(|| Some(7));
    drop(reservation);
    assert_eq!(consumer.peek(4).next(), None);
    assert_eq!(put(&mut producer, 4, [8]), 1, "the entries are still there to be reserved");
    assert_eq!(consumer.peek(4).collect::<Vec<_>>(), [8]);
}

#[test]
fn a_reservation_gets_what_there_is_room_for() {
    let (mut producer, mut consumer) = ring(4, u32::MAX - 1);
    assert_eq!(put(&mut producer, 3, 0..3), 3);
    assert_eq!(producer.reserve(3).remaining(), 1);
    assert_eq!(put(&mut producer, 9, 3..9), 1);
    assert_eq!(producer.reserve(1).remaining(), 0);
    assert_eq!(consumer.peek(2).count(), 2);
    assert_eq!(producer.reserve(9).remaining(), 2);
}

#[test]
fn submit_publishes_only_what_was_written() {
    let (mut producer, mut consumer) = ring(8, u32::MAX - 2);
    assert_eq!(put(&mut producer, 6, [1, 2]), 2);
    assert_eq!(consumer.level(), 2);
    assert_eq!(put(&mut producer, 6, [3]), 1);
    assert_eq!(consumer.peek(8).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn an_entry_that_was_taken_is_not_read_again_and_one_that_was_not_is() {
    let (mut producer, mut consumer) = ring(4, 0);
    put(&mut producer, 3, [1, 2, 3]);
    let mut peek = consumer.peek(3);
    assert_eq!(peek.next(), Some(1));
    assert_eq!(peek.release(), 1);
    assert_eq!(consumer.peek(3).next(), Some(2));
    assert_eq!(consumer.peek(3).collect::<Vec<_>>(), [3]);
    assert_eq!((producer.level(), consumer.level()), (0, 0));
}

#[test]
fn cursors_wrap_at_two_to_the_32_from_any_start() {
    for back in 0..20 {
        let (mut producer, mut consumer) = ring(4, u32::MAX - back);
        for value in 0..40 {
            assert_eq!(put(&mut producer, 3, [value, value + 100]), 2);
            assert_eq!(producer.level(), 2);
            assert_eq!(consumer.peek(4).collect::<Vec<_>>(), [value, value + 100]);
        }
    }
}

#[test]
fn a_cursor_that_cannot_be_gives_no_more_than_the_ring_has() {
    let memory = memory(4, 10);
    let (mut producer, mut consumer) = ends(&memory);
    memory.store(Word::Producer, 10 + 1000, Ordering::Relaxed);
    assert_eq!(consumer.peek(u32::MAX).count(), 4);
    assert_eq!(consumer.level(), 4);
    memory.store(Word::Consumer, 11, Ordering::Relaxed);
    assert_eq!(put(&mut producer, 4, 0..4), 4, "the old copy of the cursor still promises this room");
    memory.store(Word::Consumer, 500, Ordering::Relaxed);
    assert_eq!(producer.reserve(4).remaining(), 0, "a consumer ahead of the producer frees nothing");
    assert_eq!(producer.level(), 4);
}

#[test]
fn need_wakeup_follows_the_flag() {
    let (producer, consumer) = ring(4, 0);
    assert!(!producer.need_wakeup());
    consumer.set_need_wakeup(true);
    assert!(producer.need_wakeup());
    consumer.set_need_wakeup(false);
    assert!(!producer.need_wakeup());
}

#[test]
fn offsets_outside_the_mapping_or_misaligned_are_refused() {
    let (mapping, _) = Mapping::anonymous(4096, false).unwrap();
    let mapping = Arc::new(mapping);
    let fits = |offsets: XdpRingOffset, entries| Mapped::<u64>::new(Arc::clone(&mapping), &offsets, entries).is_some();
    assert!(fits(OFFSETS, 256));
    assert!(!fits(OFFSETS, 512), "192 + 4096 bytes");
    assert!(!fits(OFFSETS, 3), "not a power of two");
    assert!(!fits(OFFSETS, 0));
    assert!(!fits(XdpRingOffset { producer: 2, ..OFFSETS }, 4));
    assert!(!fits(XdpRingOffset { consumer: 4096, ..OFFSETS }, 4));
    assert!(!fits(XdpRingOffset { flags: u64::MAX, ..OFFSETS }, 4));
    assert!(!fits(XdpRingOffset { desc: 196, ..OFFSETS }, 4));
}

#[test]
fn two_threads_pass_half_a_million_entries_in_order() {
    const TOTAL: u64 = 500_000;
    let (mut producer, mut consumer) = ring(64, u32::MAX - 1000);
    let sender = thread::spawn(move || {
        let mut next = 0;
        while next < TOTAL {
            let sent = put(&mut producer, 16, next..TOTAL);
            next += u64::from(sent);
            if sent == 0 {
                thread::yield_now();
            }
        }
    });
    let mut expected = 0;
    while expected < TOTAL {
        let mut peek = consumer.peek(32);
        for value in &mut peek {
            assert_eq!(value, expected);
            expected += 1;
        }
        if peek.release() == 0 {
            thread::yield_now();
        }
    }
    sender.join().unwrap();
}

#[derive(Clone, Debug)]
enum Operation {
    Submit { wanted: u32, written: usize },
    Abandon { wanted: u32, written: usize },
    Take { wanted: u32, taken: usize },
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0..12u32, 0..12usize).prop_map(|(wanted, written)| Operation::Submit { wanted, written }),
        (0..12u32, 0..12usize).prop_map(|(wanted, written)| Operation::Abandon { wanted, written }),
        (0..12u32, 0..12usize).prop_map(|(wanted, taken)| Operation::Take { wanted, taken }),
    ]
}

proptest! {
    /// Any operations, from any cursor value (half of the time close to the wrap), against a queue that is obviously right.
    #[test]
    fn a_ring_behaves_as_a_bounded_queue(
        bits in 0..5u32,
        start in prop_oneof![any::<u32>(), (u32::MAX - 64)..=u32::MAX],
        operations in prop::collection::vec(operation(), 0..200),
    ) {
        let entries = 1 << bits;
        let (mut producer, mut consumer) = ring(entries, start);
        let mut oracle = VecDeque::new();
        let mut next = 0u64;
        for operation in operations {
            match operation {
                Operation::Submit { wanted, written } => {
                    let room = (entries as usize - oracle.len()).min(wanted as usize);
                    let values: Vec<u64> = (next..).take(written).collect();
                    let sent = put(&mut producer, wanted, values.iter().copied()) as usize;
                    prop_assert_eq!(sent, room.min(written));
                    oracle.extend(&values[..sent]);
                    next += written as u64;
                }
                Operation::Abandon { wanted, written } => {
                    let mut values = std::iter::repeat_n(u64::MAX, written);
                    producer.reserve(wanted).fill_with(|| values.next());
                }
                Operation::Take { wanted, taken } => {
                    let expected: Vec<u64> = oracle.iter().copied().take(taken.min(wanted as usize)).collect();
                    let got: Vec<u64> = consumer.peek(wanted).take(taken).collect();
                    prop_assert_eq!(&got, &expected);
                    oracle.drain(..got.len());
                }
            }
            prop_assert_eq!(producer.level() as usize, oracle.len());
            prop_assert_eq!(consumer.level() as usize, oracle.len());
        }
    }
}

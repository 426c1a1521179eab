use super::*;
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Next numbers in memory.
#[derive(Debug, Default)]
struct Table(Vec<AtomicU64>);

impl Table {
    fn new(next: u32) -> Self {
        Self((0..4).map(|_| AtomicU64::new(next.into())).collect())
    }
}

impl Turns for Table {
    fn take(&self, slot: u16, number: u32) -> Turn {
        take(&self.0[usize::from(slot)], number)
    }
    fn skip(&self, slot: u16, number: u32) -> Turn {
        skip(&self.0[usize::from(slot)], number)
    }
}

fn drain(held: &mut Resequencer<u32>, turns: &Table, now_ns: u64) -> Vec<(u32, bool)> {
    std::iter::from_fn(|| held.pop(turns, now_ns)).collect()
}

#[test]
fn results_leave_in_order() {
    let turns = Table::new(7);
    let mut held = Resequencer::new(8, 1000);
    assert_eq!(held.offer(&turns, 1, 9, 9, 0), Offered::Held);
    assert_eq!(held.offer(&turns, 1, 8, 8, 0), Offered::Held);
    assert_eq!(held.offer(&turns, 2, 7, 77, 0), Offered::Send(77), "another slot does not wait");
    assert_eq!(drain(&mut held, &turns, 0), []);
    assert_eq!(held.offer(&turns, 1, 7, 7, 0), Offered::Send(7));
    assert_eq!(drain(&mut held, &turns, 0), [(8, false), (9, false)]);
    assert!(held.is_empty());
}

#[test]
fn a_lost_result_is_waited_for_and_then_given_up() {
    let turns = Table::new(0);
    let mut held = Resequencer::new(8, 1000);
    assert_eq!(held.offer(&turns, 0, 2, 2, 100), Offered::Held);
    assert_eq!(held.offer(&turns, 0, 3, 3, 200), Offered::Held);
    assert_eq!(drain(&mut held, &turns, 1_099), []);
    assert_eq!(drain(&mut held, &turns, 1_100), [(2, true), (3, false)], "0 and 1 have been given up; 3 is next");
    assert_eq!(held.offer(&turns, 0, 1, 1, 2_000), Offered::SendLate(1));
    assert_eq!(held.offer(&turns, 0, 4, 4, 2_000), Offered::Send(4));
}

#[test]
fn without_room_a_result_is_sent_out_of_order() {
    let turns = Table::new(0);
    let mut held = Resequencer::new(1, 1000);
    assert_eq!(held.offer(&turns, 0, 1, 1, 0), Offered::Held);
    assert_eq!(held.offer(&turns, 0, 3, 3, 0), Offered::SendLate(3));
    assert_eq!(drain(&mut held, &turns, 0), [(1, true)], "its turn went with that of 3");
    assert_eq!(held.offer(&turns, 0, 4, 4, 0), Offered::Send(4));
}

#[test]
fn numbers_wrap() {
    let turns = Table::new(u32::MAX);
    let mut held = Resequencer::new(8, 1000);
    assert_eq!(held.offer(&turns, 0, 1, 1, 0), Offered::Held);
    assert_eq!(held.offer(&turns, 0, 0, 0, 0), Offered::Held);
    assert_eq!(held.offer(&turns, 0, u32::MAX, 5, 0), Offered::Send(5));
    assert_eq!(drain(&mut held, &turns, 0), [(0, false), (1, false)]);
}

proptest! {
    /// Two workers hold the results of four flows that arrive in any order.
    #[test]
    fn any_arrival_leaves_in_order(arrivals in Just((0u32..60).collect::<Vec<_>>()).prop_shuffle(), workers in proptest::collection::vec(0usize..2, 60)) {
        let turns = Table::new(0);
        let mut held = [Resequencer::new(64, u64::MAX / 2), Resequencer::new(64, u64::MAX / 2)];
        let mut left: Vec<Vec<u32>> = vec![Vec::new(); 4];
        for (at, worker) in arrivals.into_iter().zip(workers) {
            let (slot, number) = ((at % 4) as u16, at / 4);
            if let Offered::Send(item) = held[worker].offer(&turns, slot, number, at, 0) {
                left[(item % 4) as usize].push(item / 4);
            }
            // Each gives way to the other until neither has anything.
            while let Some((item, late)) = held[0].pop(&turns, 0).or_else(|| held[1].pop(&turns, 0)) {
                prop_assert!(!late);
                left[(item % 4) as usize].push(item / 4);
            }
        }
        for flow in left {
            prop_assert_eq!(flow, (0..15).collect::<Vec<_>>());
        }
    }

    /// Whatever is lost, everything else leaves, once.
    #[test]
    fn nothing_stays(lost in proptest::collection::btree_set(0u32..40, 0..10), order in Just((0u32..40).collect::<Vec<_>>()).prop_shuffle(), places in 0u16..12) {
        let turns = Table::new(0);
        let mut held = Resequencer::new(places, 10);
        let left = RefCell::new(Vec::new());
        for (now, number) in (0u64..).zip(order.iter().filter(|number| !lost.contains(number))) {
            match held.offer(&turns, 0, *number, *number, now) {
                Offered::Send(item) | Offered::SendLate(item) => left.borrow_mut().push(item),
                Offered::Held => {}
            }
            left.borrow_mut().extend(drain(&mut held, &turns, now).iter().map(|(item, _)| *item));
        }
        left.borrow_mut().extend(drain(&mut held, &turns, 1 << 40).iter().map(|(item, _)| *item));
        let left = left.into_inner();
        prop_assert_eq!(left.iter().collect::<BTreeSet<_>>().len(), left.len());
        prop_assert_eq!(left.len(), 40 - lost.len());
        prop_assert!(held.is_empty());
    }
}

impl Shared for loom::sync::atomic::AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Acquire)
    }
    fn replace(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, AcqRel, Acquire).is_ok()
    }
}

/// Two senders and a third that skips, in every order of their steps: each turn is taken once, and none is lost.
#[test]
fn turns_are_taken_once_whatever_the_interleaving() {
    use loom::sync::Arc;
    loom::model(|| {
        let released = Arc::new(loom::sync::atomic::AtomicU64::new(0));
        let first = {
            let released = Arc::clone(&released);
            loom::thread::spawn(move || take(&*released, 0))
        };
        let impatient = {
            let released = Arc::clone(&released);
            loom::thread::spawn(move || skip(&*released, 1))
        };
        let (first, second) = (first.join().unwrap(), impatient.join().unwrap());
        assert_eq!(second, Turn::Now, "nobody else has that number");
        assert!(matches!(first, Turn::Now | Turn::Past));
        assert_eq!(released.get(), 2);
        assert_eq!(take(&*released, 2), Turn::Now);
    });
}

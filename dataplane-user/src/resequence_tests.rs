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
    fn released(&self, slot: u16) -> Released {
        Released::from_word(self.0[usize::from(slot)].get())
    }
    fn advance(&self, slot: u16, next: u32) {
        advance(&self.0[usize::from(slot)], next);
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

#[test]
fn only_the_worker_that_claimed_a_turn_goes_on_before_it_is_published() {
    let turns = Table::new(0);
    let (mut one, mut other) = (Resequencer::new(8, 1000), Resequencer::new(8, 1000));
    assert_eq!(one.offer(&turns, 0, 0, 0, 0), Offered::Send(0));
    assert_eq!(one.offer(&turns, 0, 1, 1, 0), Offered::Send(1), "they are sent together");
    assert_eq!(other.offer(&turns, 0, 2, 2, 0), Offered::Held);
    assert_eq!(drain(&mut other, &turns, 0), []);
    one.publish(&turns);
    assert_eq!(drain(&mut other, &turns, 0), [(2, false)]);
    assert_eq!(one.offer(&turns, 0, 3, 3, 0), Offered::Held, "2 is on its way");
    other.publish(&turns);
    assert_eq!(drain(&mut one, &turns, 0), [(3, false)]);
}

#[test]
fn a_worker_follows_the_xdp_program_when_its_frames_have_left() {
    use dataplane_common::order::SETTLE_NS;
    let turns = Table::new(0);
    let mut held = Resequencer::new(8, 1_000_000_000);
    turns.0[0].store(Released::by_xdp(1, 0, 5_000_000).to_word(), std::sync::atomic::Ordering::Release);
    assert_eq!(held.offer(&turns, 0, 1, 1, 5_000_000), Offered::Held);
    assert_eq!(held.offer(&turns, 0, 2, 2, 5_010_000), Offered::Held);
    assert_eq!(drain(&mut held, &turns, 5_020_000), []);
    assert_eq!(drain(&mut held, &turns, 5_000_000 + 2 * SETTLE_NS), [(1, false), (2, false)]);
}

#[test]
fn a_turn_that_another_gave_up_is_past() {
    let turns = Table::new(0);
    let (mut one, mut other) = (Resequencer::new(8, 1000), Resequencer::new(0, 0));
    assert_eq!(one.offer(&turns, 0, 0, 0, 0), Offered::Send(0));
    assert_eq!(other.offer(&turns, 0, 5, 5, 0), Offered::SendLate(5), "no room");
    other.publish(&turns);
    assert_eq!(one.offer(&turns, 0, 1, 1, 0), Offered::SendLate(1));
    one.publish(&turns);
    assert_eq!(one.offer(&turns, 0, 6, 6, 0), Offered::Send(6), "publishing never goes back");
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
                held[worker].publish(&turns);
            }
            // Each gives way to the other until neither has anything.
            while let Some((by, (item, late))) = (0..2).find_map(|by| Some((by, held[by].pop(&turns, 0)?))) {
                prop_assert!(!late);
                left[(item % 4) as usize].push(item / 4);
                held[by].publish(&turns);
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

impl Turns for loom::sync::atomic::AtomicU64 {
    fn released(&self, _slot: u16) -> Released {
        Released::from_word(self.get())
    }
    fn advance(&self, _slot: u16, next: u32) {
        advance(self, next);
    }
}

/// Two workers with a result each, in every order of their steps: the second one is on the device after the first one.
#[test]
fn nobody_follows_a_result_that_has_not_been_sent() {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    loom::model(|| {
        // The device: how many results it has, and whether they came in order.
        let (released, device) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let first = {
            let (released, device) = (Arc::clone(&released), Arc::clone(&device));
            loom::thread::spawn(move || {
                let mut held = Resequencer::new(1, 1_000);
                assert_eq!(held.offer(&*released, 0, 0, (), 0), Offered::Send(()));
                device.store(1, std::sync::atomic::Ordering::Relaxed);
                held.publish(&*released);
            })
        };
        let mut held = Resequencer::new(1, 1_000);
        if held.offer(&*released, 0, 1, (), 0) == Offered::Send(()) {
            assert_eq!(device.load(std::sync::atomic::Ordering::Relaxed), 1, "number 0 is not there yet");
            held.publish(&*released);
        }
        first.join().unwrap();
        if !held.is_empty() {
            assert_eq!(held.pop(&*released, 0), Some(((), false)));
            held.publish(&*released);
        }
        assert_eq!(released.get(), 2);
    });
}

/// A worker with the next result and one that gives it up, in every order of their steps: no turn is lost.
#[test]
fn giving_up_loses_no_turn() {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;
    loom::model(|| {
        let released = Arc::new(AtomicU64::new(0));
        let first = {
            let released = Arc::clone(&released);
            loom::thread::spawn(move || {
                let mut held = Resequencer::new(1, 1_000);
                let offered = held.offer(&*released, 0, 0, (), 0);
                held.publish(&*released);
                offered
            })
        };
        let mut impatient = Resequencer::new(0, 0);
        let second = impatient.offer(&*released, 0, 1, (), 0);
        impatient.publish(&*released);
        let first = first.join().unwrap();
        assert!(matches!(first, Offered::Send(()) | Offered::SendLate(())));
        assert!(matches!(second, Offered::Send(()) | Offered::SendLate(())));
        assert_eq!(released.get(), 2);
    });
}

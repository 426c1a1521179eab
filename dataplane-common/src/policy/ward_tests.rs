use super::super::shares::tests::{board, charge, live, zipf};
use super::super::testing::{decide, idle, job, params};
use super::super::{PolicyKind, Verdict};
use super::*;
use crate::load::Here;
use crate::plan::tests::Table;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

/// What was charged last is the work.
const NEWEST: Tuning = Tuning { renewal_milli: 1000, ..Tuning::DEFAULT };

/// The formula of the module, by adding up: overhead of a core of these slots, ns.
fn overhead(work: &[u64], core: &[usize], nodes: usize, tuning: &Tuning) -> f64 {
    let total: f64 = work.iter().sum::<u64>() as f64;
    let part = |slots: &[usize]| slots.iter().map(|slot| work[*slot] as f64).sum::<f64>() / total;
    let room = (4096.0 * f64::from(tuning.memory_share_milli) / 1000.0).floor() as usize;
    let mut others: Vec<usize> = (0..work.len()).filter(|slot| !core.contains(slot)).collect();
    others.sort_by_key(|slot| Reverse(work[*slot]));
    others.truncate((room - core.len()) * nodes);
    let (forwarding, nodes) = (FORWARDING_NS as f64, nodes as f64);
    forwarding * (nodes - 1.0) / nodes * (1.0 - part(core))
        + f64::from(tuning.miss_ns) * (1.0 - part(core) - part(&others))
}

/// The least overhead, by trying the core of every size that the memory holds.
fn least(work: &[u64], nodes: usize, tuning: &Tuning) -> f64 {
    let mut order: Vec<usize> = (0..work.len()).collect();
    order.sort_by_key(|slot| Reverse(work[*slot]));
    let total: f64 = work.iter().sum::<u64>() as f64;
    let mut sums = vec![0.0];
    for slot in &order {
        sums.push(sums[sums.len() - 1] + work[*slot] as f64 / total);
    }
    let room = (4096.0 * f64::from(tuning.memory_share_milli) / 1000.0).floor() as usize;
    let others = (nodes as f64 - 1.0) / nodes as f64;
    let of = |count: usize| {
        let held = (count + (room - count) * nodes).min(4096);
        FORWARDING_NS as f64 * others * (1.0 - sums[count]) + f64::from(tuning.miss_ns) * (1.0 - sums[held])
    };
    (0..=room).map(of).fold(f64::INFINITY, f64::min)
}

fn core(table: &Table) -> Vec<usize> {
    (0..SLOTS as usize).filter(|slot| table.slots[*slot] == HERE).collect()
}

/// Every other slot has a live home, and none has more than a deal promises and a sixteenth.
fn check_homes(table: &Table, work: &[u64]) -> Result<(), TestCaseError> {
    let total: f64 = work.iter().sum::<u64>() as f64;
    let weight = |slot: usize| work[slot] as f64 + total / (16.0 * 4096.0) + 1.0;
    let others: Vec<usize> = (0..SLOTS as usize).filter(|slot| table.slots[*slot] != HERE).collect();
    let nodes = live(table);
    prop_assert!(others.iter().all(|slot| nodes.contains(&table.slots[*slot])), "a slot has no home");
    let sum: f64 = others.iter().map(|slot| weight(*slot)).sum();
    let largest = others.iter().map(|slot| weight(*slot)).fold(0.0, f64::max);
    let capacity = |node: u16| {
        let member = table.members.iter().find(|member| member.node == node).unwrap();
        f64::from(member.speed_milli) * f64::from(member.workers)
    };
    let whole: f64 = nodes.iter().map(|node| capacity(*node)).sum();
    for node in &nodes {
        let load: f64 = others.iter().filter(|slot| table.slots[**slot] == *node).map(|slot| weight(*slot)).sum();
        let due = (sum * 17.0 / 16.0 + (nodes.len() as f64 - 1.0) * largest) * capacity(*node) / whole;
        prop_assert!(load <= due * (1.0 + 1e-6) + 4096.0, "node {node} has {load} where {due} is due");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_core_costs_least_and_homes_are_even(
        table in board(),
        turns in proptest::collection::vec((0u64..3, 0.3f64..1.3, 0usize..9, any::<bool>()), 1..4),
        (memory_share_milli, miss_ns) in (0u32..300, prop_oneof![Just(0), 1_000u32..2_000_000]),
    ) {
        let tuning = Tuning { memory_share_milli, miss_ns, ..NEWEST };
        let mut table = table;
        let mut plan = Box::new(WardPlan::default());
        for (seed, exponent, index, is_live) in turns {
            let index = index % table.members.len();
            table.members[index].is_live = is_live || table.members[index].is_self;
            let work = zipf(seed, exponent);
            charge(&mut table, &work);
            plan.turn(&mut table, &tuning);
            let nodes = live(&table).len();
            let (least, core) = (least(&work, nodes, &tuning), core(&table));
            let found = overhead(&work, &core, nodes, &tuning);
            prop_assert!(found <= least * 17.0 / 16.0 + 0.01, "{found} where {least} is possible");
            check_homes(&table, &work)?;
            let before = table.slots.clone();
            charge(&mut table, &work);
            plan.turn(&mut table, &tuning);
            prop_assert!(table.slots == before, "the same work twice moves nothing");
        }
    }
}

#[test]
fn the_first_core_is_exactly_the_best() {
    let work = zipf(1, 1.0);
    let mut table = Table::new(16, 0);
    charge(&mut table, &work);
    WardPlan::default().turn(&mut table, &NEWEST);
    let core = core(&table);
    let floor = core.iter().map(|slot| work[*slot]).min().unwrap();
    let above = (0..SLOTS as usize).filter(|slot| work[*slot] > floor).count();
    assert!(above < core.len() && core.len() < 409, "the core is the {} slots with most work", core.len());
    let (found, least) = (overhead(&work, &core, 16, &NEWEST), least(&work, 16, &NEWEST));
    assert!((found / least - 1.0).abs() < 1e-6, "{found} and {least}");
}

#[test]
fn a_large_memory_makes_everything_core_and_dear_misses_make_none() {
    let work = zipf(2, 0.8);
    let cases = [(1000, 100_000, 3584), (100, 1_000_000_000, 0), (0, 100_000, 0)];
    for (memory_share_milli, miss_ns, expected) in cases {
        let mut table = Table::new(8, 0);
        charge(&mut table, &work);
        WardPlan::default().turn(&mut table, &Tuning { memory_share_milli, miss_ns, ..NEWEST });
        assert_eq!(core(&table).len(), expected, "memory {memory_share_milli}, miss {miss_ns}");
    }
}

#[test]
fn without_misses_the_core_fills_the_memory() {
    let mut table = Table::new(8, 0);
    charge(&mut table, &zipf(2, 0.8));
    WardPlan::default().turn(&mut table, &Tuning { memory_share_milli: 100, miss_ns: 0, ..NEWEST });
    assert_eq!(core(&table).len(), 409);
}

#[test]
fn alone_and_without_work_every_slot_has_a_home() {
    let mut table = Table::new(1, 0);
    WardPlan::default().turn(&mut table, &NEWEST);
    assert_eq!(table.count(0, 0), SLOTS);
    let mut table = Table::new(4, 0);
    table.members[3].workers = 5;
    WardPlan::default().turn(&mut table, &NEWEST);
    assert_eq!([0, 1, 2, 3].map(|node| table.count(0, node)), [512, 512, 512, 2560]);
}

#[test]
fn only_slots_of_a_member_that_goes_move() {
    let mut table = Table::new(5, 0);
    let work = zipf(3, 0.7);
    let mut plan = Box::new(WardPlan::default());
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    let before = table.slots.clone();
    table.members[2].is_live = false;
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    assert!((0..SLOTS as usize).all(|slot| before[slot] == 2 || table.slots[slot] == before[slot]));
    assert_eq!(table.count(0, 2), 0);
    table.members[2].is_live = true;
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    assert!(table.count(0, 2) > 500, "a member that comes gets its share");
}

#[test]
fn a_member_that_comes_gets_its_share_though_the_others_are_in_balance() {
    let mut table = Table::new(24, 0);
    table.members[23].is_live = false;
    let work = vec![1000; SLOTS as usize];
    let mut plan = Box::new(WardPlan::default());
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    table.members[23].is_live = true;
    charge(&mut table, &work);
    plan.turn(&mut table, &NEWEST);
    let homes = SLOTS - table.count(0, HERE);
    assert!(table.count(0, 23).abs_diff(homes / 24) <= 1, "{} of {homes}", table.count(0, 23));
}

#[test]
fn a_core_that_cooled_is_replaced_and_its_slots_get_homes() {
    let mut table = Table::new(8, 0);
    let mut plan = Box::new(WardPlan::default());
    charge(&mut table, &zipf(4, 1.0));
    plan.turn(&mut table, &NEWEST);
    let before = core(&table);
    charge(&mut table, &zipf(5, 1.0));
    plan.turn(&mut table, &NEWEST);
    let now = core(&table);
    let still = now.iter().filter(|slot| before.contains(slot)).count();
    assert!(now.len() > 10 && still < now.len() / 2, "{still} of {}", now.len());
    assert!(table.slots[..SLOTS as usize].iter().all(|node| *node == HERE || *node < 8));
}

#[test]
fn core_stays_and_others_go_home() {
    let kind = PolicyKind::Ward;
    let mut table = super::super::testing::Table::new(Here::default(), [idle(), idle()]);
    table.slots[77] = 2;
    for (key, verdict) in [(77 + 4096, Verdict::Redirect(2)), (78, Verdict::Local)] {
        assert_eq!(decide(kind, &Job { key, ..job(5000, 0) }, &params(kind), &table).verdict, verdict);
    }
    assert_eq!(table.charged.borrow()[77..79], [5000, 5000]);
}

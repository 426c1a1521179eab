use super::super::shares::tests::{board, charge, live, zipf};
use super::super::testing::{decide, idle, job, params};
use super::super::{PolicyKind, Verdict};
use super::*;
use crate::load::Here;
use crate::plan::Member;
use crate::plan::tests::Table;
use proptest::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

/// What was charged last is the work, and nothing moves once placed.
const STILL: Tuning = Tuning { renewal_milli: 1000, imbalance_milli: 1_000_000_000, ..Tuning::DEFAULT };
/// What was charged last is the work.
const NEWEST: Tuning = Tuning { renewal_milli: 1000, ..Tuning::DEFAULT };

/// Slots in all plans have this time, ns.
const INTERVAL: u64 = 20_000_000;

fn turn(plan: &mut DishPlan, table: &mut Table, work: &[u64], tuning: &Tuning) {
    table.now_ns += INTERVAL;
    charge(table, work);
    plan.turn(table, tuning);
}

fn speed(member: &Member) -> f64 {
    f64::from(member.speed_milli) / 1000.0 * f64::from(member.workers)
}

/// Work of each member, in board order.
fn loads(table: &Table, slots: &[u16], work: &[u64]) -> Vec<f64> {
    let of = |node: u16| (0..work.len()).filter(move |slot| slots[*slot] == node).map(|slot| work[slot] as f64);
    table.members.iter().map(|member| of(member.node).sum()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn used_slots_go_to_the_least_score_one_by_one(
        table in board(),
        states in proptest::collection::vec((0u16..1000, 0u16..1000, 0u32..20_000), 9),
        (seed, exponent) in (any::<u64>(), 0.0f64..1.2),
        (cpu_milli, queue_milli, memory_milli) in (1u32..1000, 0u32..1000, 0u32..1000),
    ) {
        let mut table = table;
        for (member, (busy, memory, queued)) in table.members.iter_mut().zip(states) {
            (member.busy_milli, member.memory_milli, member.queued_milli) = (busy, memory, queued);
        }
        let tuning = Tuning { cpu_milli, queue_milli, memory_milli, ..STILL };
        let work: Vec<u64> = zipf(seed, exponent).iter().map(|work| work / 200).collect();
        let mut plan = Box::new(DishPlan::default());
        turn(&mut plan, &mut table, &vec![0; work.len()], &tuning);
        prop_assert_eq!(table.count(0, NOWHERE), SLOTS, "nothing is used, nobody owns anything");
        turn(&mut plan, &mut table, &work, &tuning);
        let members: Vec<_> = table.members.iter().filter(|member| member.is_live).collect();
        let weights = f64::from(cpu_milli + queue_milli + memory_milli);
        let mut scores: Vec<f64> = members.iter().map(|member| {
            let queue = (f64::from(member.queued_milli) / 16.0).floor().min(1000.0);
            let sum = f64::from(member.busy_milli) * f64::from(cpu_milli)
                + f64::from(member.memory_milli) * f64::from(memory_milli) + queue * f64::from(queue_milli);
            (sum / weights).floor() / 1000.0
        }).collect();
        for (slot, work) in work.iter().enumerate() {
            if *work == 0 {
                prop_assert_eq!(table.slots[slot], NOWHERE);
                continue;
            }
            let owner = members.iter().position(|member| member.node == table.slots[slot]);
            prop_assert!(owner.is_some(), "slot {slot} has no live owner");
            let owner = owner.unwrap();
            let least = scores.iter().copied().fold(f64::INFINITY, f64::min);
            // Each of the slots given before is rounded to 10^-9.
            prop_assert!(scores[owner] <= least + 5e-6, "slot {slot}: {} where {least} is least", scores[owner]);
            scores[owner] += *work as f64 / (INTERVAL as f64 * speed(members[owner]));
        }
    }

    #[test]
    fn half_of_the_excess_of_the_busiest_goes_to_the_coolest(
        table in board(),
        owners in any::<u64>(),
        (seed, exponent, imbalance_milli) in (any::<u64>(), 0.0f64..1.2, 1000u32..2000),
    ) {
        let (mut table, work) = (table, zipf(seed, exponent));
        let nodes = live(&table);
        for slot in 0..SLOTS as usize {
            // The least of two draws: some have many more than others.
            let draw = crate::hash::mix(owners.wrapping_add(slot as u64));
            let at = (draw as usize % nodes.len()).min((draw >> 32) as usize % nodes.len());
            table.slots[slot] = nodes[at];
        }
        let before = table.slots.clone();
        turn(&mut DishPlan::default(), &mut table, &work, &Tuning { imbalance_milli, ..NEWEST });
        let (had, have) = (loads(&table, &before, &work), loads(&table, &table.slots, &work));
        let (total, speeds): (f64, f64) =
            (had.iter().sum(), table.members.iter().filter(|member| member.is_live).map(speed).sum());
        let time = |loads: &[f64], at: usize| loads[at] / speed(&table.members[at]);
        let positions: Vec<usize> = (0..table.members.len()).filter(|at| table.members[*at].is_live).collect();
        let busiest = *positions.iter().max_by(|a, b| time(&had, **a).total_cmp(&time(&had, **b))).unwrap();
        let coolest = *positions.iter().min_by(|a, b| time(&had, **a).total_cmp(&time(&had, **b))).unwrap();
        let fair = total * speed(&table.members[busiest]) / speeds;
        let moved: Vec<usize> = (0..SLOTS as usize).filter(|slot| before[*slot] != table.slots[*slot]).collect();
        if had[busiest] <= fair * f64::from(imbalance_milli) / 1000.0 {
            prop_assert!(moved.is_empty(), "nobody is too busy");
            return Ok(());
        }
        let from_to = (table.members[busiest].node, table.members[coolest].node);
        prop_assert!(moved.iter().all(|slot| (before[*slot], table.slots[*slot]) == from_to));
        let half = (had[busiest] - fair) / 2.0;
        let sum: f64 = moved.iter().map(|slot| work[*slot] as f64).sum();
        let is_late = |size: f64| {
            let would_be = (have[coolest] + size) / speed(&table.members[coolest]);
            would_be >= (have[busiest] - size) / speed(&table.members[busiest]) * (1.0 - 1e-9)
        };
        prop_assert!(time(&have, coolest) <= time(&have, busiest) || moved.is_empty());
        let stayed = (0..SLOTS as usize).filter(|slot| table.slots[*slot] == from_to.0);
        let mut stayed = stayed.map(|slot| work[slot] as f64);
        if sum > half + 2.0 {
            prop_assert_eq!(moved.len(), 1);
            prop_assert!(stayed.all(|size| size == 0.0 || size >= sum), "the smallest, as none was small enough");
        } else {
            prop_assert!(stayed.all(|size| size == 0.0 || sum + size >= half - 2.0 || is_late(size)), "one more fits");
        }
    }

    #[test]
    fn a_slot_has_one_live_owner_if_it_is_used(
        table in board(),
        turns in proptest::collection::vec((any::<u64>(), 0usize..9, any::<bool>()), 1..6),
    ) {
        let mut table = table;
        let mut plan = Box::new(DishPlan::default());
        let mut used = vec![false; SLOTS as usize];
        for (seed, index, is_live) in turns {
            let index = index % table.members.len();
            table.members[index].is_live = is_live || table.members[index].is_self;
            let work = zipf(seed % 4, 0.9);
            turn(&mut plan, &mut table, &work, &NEWEST);
            let nodes = live(&table);
            for (slot, work) in work.iter().enumerate() {
                used[slot] |= *work > 0;
                let owner = table.slots[slot];
                prop_assert!(nodes.contains(&owner) || owner == NOWHERE && *work == 0, "slot {slot}: {owner}");
                prop_assert!(used[slot] || owner == NOWHERE, "slot {slot} was never used");
            }
        }
    }
}

#[test]
fn work_that_lasts_is_soon_in_balance() {
    for (nodes, exponent) in [(4, 0.8), (8, 1.0), (16, 0.9)] {
        let (mut table, work) = (Table::new(nodes, 0), zipf(9, exponent));
        let mut plan = Box::new(DishPlan::default());
        // Everything begins at one node.
        table.slots[..SLOTS as usize].fill(3);
        for _ in 0..100 {
            turn(&mut plan, &mut table, &work, &NEWEST);
        }
        let loads = loads(&table, &table.slots, &work);
        let mean = loads.iter().sum::<f64>() / f64::from(nodes);
        let most = loads.iter().copied().fold(0.0, f64::max);
        let busiest = loads.iter().position(|load| *load == most).unwrap() as u16;
        let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
        // A slot cannot be split: the busiest keeps one that would only make another the busiest.
        let owned = (0..work.len()).filter(|slot| table.slots[*slot] == busiest && work[*slot] > 0);
        let smallest = owned.map(|slot| work[slot] as f64).fold(f64::INFINITY, f64::min);
        let is_stuck = least + smallest >= most - smallest;
        assert!(most <= 1.2 * mean || is_stuck, "{nodes} nodes, Zipf {exponent}: {} of the mean", most / mean);
        assert!(most <= 1.3 * mean, "{nodes} nodes, Zipf {exponent}: {} of the mean", most / mean);
        let before = table.slots.clone();
        turn(&mut plan, &mut table, &work, &NEWEST);
        assert_eq!(table.slots, before, "and then nothing moves");
    }
}

#[test]
fn slots_of_a_member_that_goes_find_owners_if_used_and_no_other_slot_moves() {
    let mut table = Table::new(4, 0);
    let mut work = vec![1000; SLOTS as usize];
    let mut plan = Box::new(DishPlan::default());
    turn(&mut plan, &mut table, &work, &STILL);
    assert!((0..4).all(|node| table.count(0, node) == 1024));
    let before = table.slots.clone();
    table.members[2].is_live = false;
    let unused = before.iter().position(|node| *node == 2).unwrap();
    work[unused] = 0;
    turn(&mut plan, &mut table, &work, &STILL);
    assert!((0..SLOTS as usize).all(|slot| before[slot] == 2 || table.slots[slot] == before[slot]));
    assert_eq!((table.slots[unused], table.count(0, NOWHERE), table.count(0, 2)), (NOWHERE, 1, 0));
    assert!([0, 1, 3].iter().all(|node| table.count(0, *node).abs_diff(1365) <= 1));
}

#[test]
fn the_first_plan_takes_the_time_between_plans_for_granted() {
    let mut table = Table::new(2, 0);
    table.members[0].busy_milli = 500;
    let mut plan = Box::new(DishPlan::default());
    // A tenth of a worker each: the idle node takes five of them and then every other one.
    let mut work = vec![0; SLOTS as usize];
    work[..9].fill(1_000_000);
    charge(&mut table, &work);
    plan.turn(&mut table, &STILL);
    let counts = [0, 1].map(|node| table.count(0, node));
    assert_eq!(counts, [2, 7]);
}

#[test]
fn unowned_slots_stay_and_are_counted() {
    let kind = PolicyKind::Dish;
    let mut table = super::super::testing::Table::new(Here::default(), [idle(), idle()]);
    (table.slots[77], table.slots[78]) = (2, NOWHERE);
    for (key, verdict) in [(77 + 4096, Verdict::Redirect(2)), (78, Verdict::Local)] {
        assert_eq!(decide(kind, &Job { key, ..job(5000, 0) }, &params(kind), &table).verdict, verdict);
    }
    assert_eq!(table.charged.borrow()[77..79], [5000, 5000]);
}

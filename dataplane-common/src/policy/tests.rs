use super::testing::*;
use super::*;
use crate::load::{Here, Row, Word};
use crate::maps::LoadRow;
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn local_never_redirects(table in table(), ept in 0u32..2_000_000, random: u32) {
        let kind = PolicyKind::Local;
        prop_assert_eq!(testing::decide(kind, &job(ept, random), &params(kind), &table), Decision::LOCAL);
    }

    #[test]
    fn stale_nodes_and_this_node_are_never_chosen(mut table in table(), ept in 0u32..2_000_000, random: u32, plan in 0u16..12) {
        table.slots.fill(plan);
        for kind in PolicyKind::ALL {
            let decision = testing::decide(*kind, &job(ept, random), &params(*kind), &table);
            if let Verdict::Redirect(node) = decision.verdict {
                let row = table.rows.get(usize::from(node));
                prop_assert!(node != 0 && row.is_some_and(|row| row.is_candidate(NOW)), "{:?} chose {}", kind, node);
            }
        }
    }

    #[test]
    fn a_policy_that_is_not_in_use_keeps_packets_here(table in table(), ept in 0u32..2_000_000, random: u32) {
        for kind in PolicyKind::ALL {
            let none = Params { policies: 0, ..params(*kind) };
            prop_assert_eq!(testing::decide(*kind, &job(ept, random), &none, &table), Decision::LOCAL);
        }
    }

    #[test]
    fn cpu_load_takes_the_shortest_run_queue(table in table(), random: u32) {
        let kind = PolicyKind::CpuLoad;
        let decision = testing::decide(kind, &job(1, random), &params(kind), &table);
        let best = table.candidates().map(|(_, row)| row.queued_milli).min();
        match decision.verdict {
            Verdict::Local => prop_assert!(best.is_none_or(|best| best >= table.here.queued_milli)),
            Verdict::Redirect(node) => prop_assert_eq!(Some(table.rows[usize::from(node)].queued_milli), best),
        }
    }

    #[test]
    fn look_shows_all_of_few_and_a_sample_of_many(peers in 0usize..100, sample in 0u32..20, random: u32) {
        struct Seen(std::vec::Vec<u16>);
        impl crate::load::Visit for Seen {
            fn node<R: Row>(&mut self, node: u16, _row: &R) {
                self.0.push(node);
            }
        }
        let table = Table::new(Here::default(), (0..peers).map(|_| LoadRow::default()));
        let mut seen = Seen(std::vec::Vec::new());
        look(&&table, random, sample, &mut seen);
        if peers <= FULL_SCAN as usize || sample == 0 {
            prop_assert_eq!(seen.0.iter().collect::<BTreeSet<_>>().len(), peers);
        }
        let many = peers > FULL_SCAN as usize && sample > 0;
        prop_assert_eq!(seen.0.len(), if many { peers.min(sample as usize) } else { peers });
        prop_assert!(seen.0.iter().all(|node| (1..=peers).contains(&usize::from(*node))));
    }
}

#[test]
fn a_sample_reaches_every_node_about_equally() {
    struct Count([u32; 65]);
    impl crate::load::Visit for Count {
        fn node<R: Row>(&mut self, node: u16, _row: &R) {
            self.0[usize::from(node)] += 1;
        }
    }
    let table = Table::new(Here::default(), (0..64).map(|_| LoadRow::default()));
    let mut count = Count([0; 65]);
    for at in 0..64_000u64 {
        look(&&table, crate::hash::mix(at) as u32, 8, &mut count);
    }
    assert!(count.0[1..].iter().all(|seen| (7_500..8_500).contains(seen)), "{:?}", count.0);
}

#[test]
fn ties_fall_where_the_random_number_says() {
    for kind in [PolicyKind::CpuLoad, PolicyKind::Ept, PolicyKind::EptErl] {
        let here = Here { backlog_ns: 5_000_000, queued_milli: 9000, ..Here::default() };
        let table = Table::new(here, [idle(), idle(), idle()]);
        let chosen: BTreeSet<_> = (0..4u32)
            .map(|quarter| testing::decide(kind, &job(100_000, quarter << 30), &params(kind), &table).verdict)
            .collect::<std::vec::Vec<_>>()
            .iter()
            .map(|verdict| if let Verdict::Redirect(node) = verdict { *node } else { 0 })
            .collect();
        assert_eq!(chosen, [1, 2, 3].into(), "{kind:?}");
    }
}

#[test]
fn rows_read_as_their_fields() {
    let row = LoadRow {
        backlog_ns: 1,
        acked_ns: 2,
        valid_until_ns: 3,
        queued_milli: 4,
        workers: 5,
        busy_milli: 6,
        speed_milli: 7,
        pressure_ns: 8,
        peak_us: 9,
        ..LoadRow::default()
    };
    assert_eq!(row.halves(Word::Report), (1, 2));
    assert_eq!(row.word(Word::Queue), 4 | 5 << 32 | 6 << 48);
    assert_eq!((row.queued_milli(), row.workers(), row.speed_milli()), (4, 5, 7));
    assert_eq!((row.halves(Word::Pressure).0, row.halves(Word::Peak).1), (8, 9));
    let empty = LoadRow::default();
    assert_eq!((empty.workers(), empty.speed_milli()), (1, 1000));
}

#[test]
fn names_and_numbers_lead_back_to_the_policy() {
    let numbers: BTreeSet<_> = PolicyKind::ALL.iter().map(|kind| *kind as u32).collect();
    assert_eq!(numbers.len(), PolicyKind::ALL.len());
    for kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::from_name(kind.name()), Some(*kind));
        assert_eq!(PolicyKind::from_id(*kind as u32), Some(*kind));
        assert!((*kind as u32) < 64, "policies are bits of a word");
        assert!(kind.help().ends_with('.'), "{kind:?}");
        assert!(kind.homes().has_worker() || !kind.homes().has_xdp());
    }
    assert_eq!(PolicyKind::from_name("nonsense"), None);
}

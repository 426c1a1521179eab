use super::*;
use crate::load::{Here, Load, Visit};
use proptest::prelude::*;
use std::vec::Vec;

/// A load table in a slice; row 0 is this node.
#[derive(Debug)]
struct Table {
    here: Here,
    rows: Vec<Load>,
}

impl LoadView for Table {
    fn here(&self) -> Here {
        self.here
    }

    fn visit<V: Visit>(&self, start: u32, visitor: &mut V) {
        let rows = self.rows.len() as u32;
        for step in 0..rows {
            let at = (start % rows + step) % rows;
            visitor.node(at as u16, &self.rows[at as usize]);
        }
    }
}

const NOW: u64 = 1_000_000;

fn load() -> impl Strategy<Value = Load> {
    (0u32..1_000_000, 0u32..200_000, any::<u32>(), 0u32..9, 1u16..4, any::<bool>()).prop_map(
        |(backlog_ns, in_flight, acked_ns, packets, workers, fresh)| Load {
            backlog_ns,
            acked_ns,
            sent_ns: acked_ns.wrapping_add(in_flight),
            queued_milli: packets * 1000,
            workers,
            valid_until_ns: if fresh { NOW + 1 } else { NOW },
        },
    )
}

fn table() -> impl Strategy<Value = Table> {
    let here =
        (0u32..2_000_000, 0u32..9).prop_map(|(backlog_ns, packets)| Here { backlog_ns, queued_milli: packets * 1000 });
    (here, proptest::collection::vec(load(), 0..9)).prop_map(|(here, others)| {
        let mut rows = Vec::from([Load::default()]);
        rows.extend(others);
        Table { here, rows }
    })
}

fn params(kind: PolicyKind) -> Params {
    Params {
        policy: kind as u32,
        send_ns: 2_000,
        receive_ns: 3_000,
        wire_ns: 10_000,
        wire_ns_per_byte_q16: 1 << 16,
        margin_ns: 500,
        ..Params::DEFAULT
    }
}

fn job(ept_ns: u32, random: u32) -> Job {
    Job { now_ns: NOW, ept_ns, bytes: 200, random }
}

/// The thesis's rule in f64, obviously right: the candidate of least wait, if it finishes sooner by the margin.
fn model(table: &Table, params: &Params, job: &Job, wait: impl Fn(&Load) -> f64, guard: bool) -> Option<f64> {
    let c = f64::from(job.ept_ns);
    let cpu = f64::from(params.send_ns) + f64::from(params.receive_ns);
    let forward = cpu + f64::from(params.wire_ns) + job.bytes as f64 * f64::from(params.wire_ns_per_byte_q16) / 65536.0;
    if guard && cpu >= c {
        return None;
    }
    let best = table.rows.iter().filter(|load| load.valid_until_ns > NOW).map(wait).fold(f64::INFINITY, f64::min);
    let here = f64::from(table.here.backlog_ns) + c;
    (forward + best + c + f64::from(params.margin_ns) < here).then_some(best)
}

/// Compares a decision of an `ept` policy with the model: the same verdict, and the chosen node is one of the best.
fn check_ept(
    table: &Table,
    kind: PolicyKind,
    job: &Job,
    wait: impl Fn(&Load) -> f64 + Copy,
) -> Result<(), TestCaseError> {
    let params = params(kind);
    let decision = decide(job, &params, table);
    match (decision.verdict, model(table, &params, job, wait, true)) {
        (Verdict::Local, None) => {}
        (Verdict::Redirect(node), Some(best)) => {
            let row = &table.rows[usize::from(node)];
            prop_assert!(row.is_candidate(NOW));
            prop_assert!((wait(row) - best).abs() < 1.0, "chose {} where {} was best", wait(row), best);
        }
        (verdict, best) => return Err(TestCaseError::fail(std::format!("{verdict:?} against {best:?}"))),
    }
    Ok(())
}

proptest! {
    #[test]
    fn local_never_redirects(table in table(), ept in 0u32..2_000_000, random: u32) {
        prop_assert_eq!(decide(&job(ept, random), &params(PolicyKind::Local), &table), Decision::LOCAL);
    }

    #[test]
    fn cpu_load_takes_the_shortest_run_queue(table in table(), random: u32) {
        let decision = decide(&job(1, random), &params(PolicyKind::CpuLoad), &table);
        let candidates = table.rows.iter().filter(|load| load.is_candidate(NOW));
        let best = candidates.map(|load| load.queued_milli).min();
        match decision.verdict {
            Verdict::Local => prop_assert!(best.is_none_or(|best| best >= table.here.queued_milli)),
            Verdict::Redirect(node) => {
                prop_assert_eq!(Some(table.rows[usize::from(node)].queued_milli), best);
                prop_assert!(table.rows[usize::from(node)].is_candidate(NOW));
            }
        }
    }

    #[test]
    fn ept_agrees_with_the_formula(table in table(), ept in 0u32..2_000_000, random: u32) {
        check_ept(&table, PolicyKind::Ept, &job(ept, random), |load| f64::from(load.backlog_ns))?;
    }

    #[test]
    fn ept_erl_agrees_with_the_formula(table in table(), ept in 0u32..2_000_000, random: u32) {
        check_ept(&table, PolicyKind::EptErl, &job(ept, random), |load| {
            f64::from(load.backlog_ns) + (f64::from(load.sent_ns.wrapping_sub(load.acked_ns)) / f64::from(load.workers)).floor()
        })?;
    }

    #[test]
    fn stale_nodes_and_this_node_are_never_chosen(table in table(), ept in 0u32..2_000_000, random: u32) {
        for kind in PolicyKind::ALL {
            if let Verdict::Redirect(node) = decide(&job(ept, random), &params(*kind), &table).verdict {
                prop_assert!(node != 0 && table.rows[usize::from(node)].is_candidate(NOW));
            }
        }
    }
}

#[test]
fn the_guard_keeps_packets_that_cost_less_than_a_redirect() {
    let idle = Load { workers: 1, valid_until_ns: NOW + 1, ..Load::default() };
    let busy = Here { backlog_ns: 50_000_000, queued_milli: 9000 };
    let table = Table { here: busy, rows: Vec::from([Load::default(), idle]) };
    let guarded = params(PolicyKind::EptErl);
    assert_eq!(decide(&job(5_000, 0), &guarded, &table).verdict, Verdict::Local, "send + receive is 5 µs");
    assert_eq!(decide(&job(5_001, 0), &guarded, &table).verdict, Verdict::Redirect(1));
    let unguarded = Params { guard: 0, ..guarded };
    assert_eq!(decide(&job(1, 0), &unguarded, &table).verdict, Verdict::Redirect(1));
}

#[test]
fn erl_spreads_what_reports_alone_would_pile_up() {
    let idle = Load { workers: 1, valid_until_ns: NOW + 1, ..Load::default() };
    let busy = Here { backlog_ns: 5_000_000, queued_milli: 9000 };
    for (kind, most) in [(PolicyKind::Ept, 10), (PolicyKind::EptErl, 5)] {
        let mut table = Table { here: busy, rows: Vec::from([Load::default(), idle, idle]) };
        for _ in 0..10 {
            // Start at row 1: without ERL, every tie falls on it.
            let Verdict::Redirect(node) = decide(&job(100_000, 1), &params(kind), &table).verdict else {
                panic!("{kind:?} stayed local")
            };
            table.rows[usize::from(node)].sent_ns += 100_000;
        }
        assert_eq!(table.rows[1].sent_ns, most * 100_000, "{kind:?}");
    }
}

#[test]
fn ties_fall_where_the_random_number_says() {
    let idle = Load { workers: 1, valid_until_ns: NOW + 1, ..Load::default() };
    let table = Table {
        here: Here { backlog_ns: 5_000_000, queued_milli: 9000 },
        rows: Vec::from([Load::default(), idle, idle, idle]),
    };
    let chosen: std::collections::BTreeSet<_> = (0..4)
        .map(|random| match decide(&job(100_000, random), &params(PolicyKind::EptErl), &table).verdict {
            Verdict::Redirect(node) => node,
            Verdict::Local => 0,
        })
        .collect();
    assert_eq!(chosen, [1, 2, 3].into());
}

#[test]
fn names_and_numbers_lead_back_to_the_policy() {
    for kind in PolicyKind::ALL {
        assert_eq!(PolicyKind::from_name(kind.name()), Some(*kind));
        assert_eq!(PolicyKind::from_id(*kind as u32), Some(*kind));
    }
    assert_eq!(PolicyKind::from_name("nonsense"), None);
    let unknown = Params { policy: 999, ..Params::DEFAULT };
    let table = Table { here: Here { backlog_ns: 1 << 30, queued_milli: 0 }, rows: Vec::new() };
    assert_eq!(decide(&job(1, 0), &unknown, &table), Decision::LOCAL);
}

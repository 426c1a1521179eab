use super::super::testing::*;
use super::super::{PolicyKind, Verdict};
use super::*;
use crate::load::Here;
use crate::maps::LoadRow;
use crate::tuning::{FIFO, SHORTEST};
use proptest::prelude::*;

const KIND: PolicyKind = PolicyKind::Sla;

fn with(tuning: Tuning) -> Params {
    Params { tuning, ..params(KIND) }
}

/// The rule in f64, obviously right: the wait at the best candidate, if the promise is in danger and it finishes sooner there.
fn model(table: &Table, tuning: &Tuning, job: &Job, wait: impl Fn(f64, u64) -> f64) -> Option<f64> {
    let c = f64::from(job.ept_ns);
    let cost = &table.forwarding;
    let cpu = f64::from(cost.send_ns) + f64::from(cost.receive_ns);
    let per_byte = f64::from(cost.wire_ns_per_byte_q16) / 65536.0;
    let forward = cpu + f64::from(cost.wire_ns) + job.bytes as f64 * per_byte;
    let promised = [tuning.target_low_ns, tuning.target_middle_ns, tuning.target_high_ns];
    let promised = f64::from(promised[usize::from(job.class) / 3]);
    let here = wait(table.here.backlog_ns.into(), table.here.behind.0) + c;
    if cpu >= c || here <= (promised / 2.0).floor() {
        return None;
    }
    let best = table.candidates().map(|(_, row)| there(row, &wait)).fold(f64::INFINITY, f64::min);
    (forward + best + c + 500.0 < here).then_some(best)
}

/// The wait at a node, sent work included.
fn there(row: &LoadRow, wait: impl Fn(f64, u64) -> f64) -> f64 {
    let in_flight = f64::from((row.sent_ns as u32).wrapping_sub(row.acked_ns));
    wait(f64::from(row.backlog_ns) + (in_flight / f64::from(row.workers)).floor(), row.behind)
}

proptest! {
    #[test]
    fn agrees_with_the_formula(
        table in table(),
        ept in 0u32..2_000_000,
        random: u32,
        class in 0u8..8,
        discipline in 0u32..3,
        promised in proptest::array::uniform3(1u32..4_000_000),
    ) {
        let [target_high_ns, target_middle_ns, target_low_ns] = promised;
        let tuning = Tuning { discipline, target_high_ns, target_middle_ns, target_low_ns, ..Tuning::DEFAULT };
        let job = Job { class, ..job(ept, random) };
        let of_ept = [1024u64, 4096, 16_384, 65_536, 262_144, 1 << 20, 1 << 22, u64::MAX];
        let band = match discipline {
            CLASS => 7 - usize::from(class),
            _ => of_ept.iter().take_while(|end| u64::from(ept) >= **end).count(),
        };
        // In 1/256 of the backlog, and whole ns.
        let wait = |backlog: f64, behind: u64| {
            (backlog * f64::from(256 - u32::from(behind.to_le_bytes()[band])) / 256.0).floor()
        };
        let decision = decide(KIND, &job, &with(tuning), &table);
        match (decision.verdict, model(&table, &tuning, &job, wait)) {
            (Verdict::Local, None) => {}
            (Verdict::Redirect(node), Some(best)) => {
                prop_assert_eq!(there(&table.rows[usize::from(node)], wait), best);
            }
            (verdict, best) => prop_assert!(false, "{verdict:?} against {best:?}"),
        }
    }
}

/// 40 ms wait here, 30 of them of class 0; node 1 is idle.
fn busy() -> Table {
    let mut waiting = [0; BANDS];
    (waiting[7], waiting[0]) = (30_000_000, 10_000_000);
    let here = Here { backlog_ns: 40_000_000, queued_milli: 9000, behind: Behind::of(&waiting) };
    Table::new(here, [idle()])
}

fn verdict(table: &Table, class: u8, tuning: Tuning) -> (Verdict, Why) {
    let decision = decide(KIND, &Job { class, ..job(100_000, 0) }, &with(tuning), table);
    (decision.verdict, decision.why)
}

#[test]
fn only_work_of_the_own_class_and_above_counts() {
    let tuning = Tuning { target_high_ns: 30_000_000, target_low_ns: 30_000_000, ..Tuning::DEFAULT };
    let class = Tuning { discipline: CLASS, ..tuning };
    assert_eq!(verdict(&busy(), 7, class), (Verdict::Local, Why::Short), "10 ms of class 7 are ahead");
    assert_eq!(verdict(&busy(), 0, class), (Verdict::Redirect(1), Why::Worse), "40 ms are ahead");
    let mut fifo = busy();
    fifo.here.behind = Behind::default();
    assert_eq!(verdict(&fifo, 7, Tuning { discipline: FIFO, ..tuning }), (Verdict::Redirect(1), Why::Worse));
    // 0.1 ms is band 4 of estimated times; the work of band 7 is longer and behind it.
    assert_eq!(verdict(&busy(), 0, Tuning { discipline: SHORTEST, ..tuning }), (Verdict::Local, Why::Short));
}

#[test]
fn a_packet_stays_while_its_class_is_served_in_half_the_promised_time() {
    let mut table = busy();
    table.here = Here { backlog_ns: 49_900_000, ..Here::default() };
    // Half of 100 ms are 50 ms: 49.9 + 0.1.
    let verdicts = |table: &Table| [0, 2, 3, 5, 6, 7].map(|class| verdict(table, class, Tuning::DEFAULT).0);
    let (stays, goes) = (Verdict::Local, Verdict::Redirect(1));
    assert_eq!(verdicts(&table), [stays, stays, stays, stays, goes, goes], "promised are 400, 100 and 50 ms");
    table.here.backlog_ns += 1;
    assert_eq!(verdicts(&table), [stays, stays, goes, goes, goes, goes]);
    table.here.backlog_ns = 199_900_001;
    assert_eq!(verdicts(&table), [goes; 6]);
}

#[test]
fn it_is_lent_to_the_node_with_the_least_of_its_class_ahead() {
    let mut table = busy();
    let mut waiting = [0; BANDS];
    waiting[7] = 1;
    // Node 2 has more to do, all of it of class 0.
    let low = LoadRow { backlog_ns: 9_000_000, behind: Behind::of(&waiting).0, ..idle() };
    table.rows[1].backlog_ns = 5_000_000;
    table.rows.push(low);
    let tuning = Tuning { discipline: CLASS, target_high_ns: 1, target_low_ns: 1, ..Tuning::DEFAULT };
    assert_eq!(verdict(&table, 7, tuning).0, Verdict::Redirect(2));
    assert_eq!(verdict(&table, 0, tuning).0, Verdict::Redirect(1));
    table.rows[2].valid_until_ns = NOW;
    assert_eq!(verdict(&table, 7, tuning).0, Verdict::Redirect(1));
    table.here.backlog_ns = 4_000_000;
    assert_eq!(verdict(&table, 0, tuning), (Verdict::Local, Why::Better), "late here, later there");
}

#[test]
fn the_guard_applies() {
    let decision = |guard, ept| {
        decide(KIND, &job(ept, 0), &Params { guard, ..with(Tuning { target_low_ns: 1, ..Tuning::DEFAULT }) }, &busy())
    };
    assert_eq!(decision(1, 5_000).why, Why::Guard, "send + receive is 5 µs");
    assert_eq!(decision(1, 5_001).verdict, Verdict::Redirect(1));
    assert_eq!(decision(0, 5_000).verdict, Verdict::Redirect(1));
}

#[test]
fn lending_must_gain_more_than_forwarding_and_the_margin() {
    let tuning = Tuning { target_low_ns: 1, ..Tuning::DEFAULT };
    let at = |backlog_ns| verdict(&Table::new(Here { backlog_ns, ..Here::default() }, [idle()]), 0, tuning);
    // Both ends 5 µs, the wire 10 µs and 1 ns a byte, margin 0.5 µs.
    assert_eq!(at(15_700), (Verdict::Local, Why::Better));
    assert_eq!(at(15_701), (Verdict::Redirect(1), Why::Worse));
}

use super::super::testing::*;
use super::super::{PolicyKind, Verdict};
use super::*;
use crate::load::Here;
use crate::maps::LoadRow;
use proptest::prelude::*;
use std::vec::Vec;

const KIND: PolicyKind = PolicyKind::Sooner;

/// The formulas of the module in f64.
struct Model<'a> {
    table: &'a Table,
    job: &'a Job,
    tuning: &'a Tuning,
}

impl Model<'_> {
    fn cost(&self) -> (f64, f64, f64) {
        let cost = &self.table.forwarding;
        let transit = f64::from(cost.wire_ns) + self.job.bytes as f64 * f64::from(cost.wire_ns_per_byte_q16) / 65536.0;
        (f64::from(cost.send_ns), f64::from(cost.receive_ns), transit)
    }

    fn delay(&self, wait: f64, work: f64) -> f64 {
        let rate = f64::from(self.table.signals.arrivals_q32) / 4_294_967_296.0;
        (wait * rate * f64::from(self.tuning.damping_milli) / 1000.0).min(4096.0) * work
    }

    fn ahead(&self, behind: Behind, load: f64) -> f64 {
        let share = (behind.0 >> (8 * band_of(self.job.ept_ns))) & 0xff;
        load * (256 - share) as f64 / 256.0
    }

    fn early(&self, done: f64) -> f64 {
        (f64::from(self.job.earlier_ns) - done).max(0.0) * f64::from(self.tuning.early_milli) / 1000.0
    }

    fn here(&self) -> f64 {
        let (x, (s, ..)) = (f64::from(self.job.ept_ns), self.cost());
        let wait = self.ahead(self.table.here.behind, f64::from(self.table.here.backlog_ns));
        wait + x + self.delay(wait, (x - s).max(0.0)) + self.early(wait + x)
    }

    fn predicted(&self, row: &LoadRow) -> f64 {
        let relax = f64::from(self.table.signals.service_ns) * f64::from(self.tuning.relax_milli) / 1000.0;
        // The straight-line exponential of `decay`, which has tests of its own.
        let left = |age: f64| f64::from(crate::decay::Rate::of(relax as u32).factor_q16(age as u64)) / 65536.0;
        let age = (NOW - row.reported_at_ns) as f64;
        let (backlog, mean) = (f64::from(row.backlog_ns), f64::from(row.mean_backlog_ns));
        let workers = f64::from(row.workers);
        let pressed = f64::from(row.pressure_ns) * left((((NOW >> 10) - u64::from(row.pressure_us)) << 10) as f64);
        let expected =
            mean + (backlog - mean) * left(age) + pressed / workers * f64::from(self.tuning.gain_milli) / 1000.0;
        let sent = f64::from((row.sent_ns as u32).wrapping_sub(row.acked_ns)) / workers;
        expected.max((backlog - age).max(0.0) + sent)
    }

    fn there(&self, row: &LoadRow) -> f64 {
        let (s, r, transit) = self.cost();
        let wait = self.ahead(Behind(row.behind), self.predicted(row));
        let speed = if row.speed_milli == 0 { 1.0 } else { f64::from(row.speed_milli) / 1000.0 };
        let work = f64::from(self.job.ept_ns) / speed + r;
        let u = (f64::from(self.table.signals.utilisation_milli) / 1000.0).min(0.98);
        let price = f64::from(self.tuning.price_milli) / 1000.0 * (s + r) * u / (1.0 - u);
        let done = wait.max(s + transit) + work;
        done + self.delay(wait, work) + price + self.early(done)
    }
}

/// Whole numbers against f64: a few ns a term, and the bands' sixteen bits.
fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 40.0 + 0.002 * a.abs().max(b.abs())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn agrees_with_the_formula(
        table in table(),
        ept in 0u32..2_000_000,
        earlier_ns in prop_oneof![Just(0), 0u32..5_000_000],
        random: u32,
        spread in prop_oneof![Just(0), Just(2000)],
    ) {
        let params = params(KIND);
        let params = Params { tuning: Tuning { spread_milli: spread, ..params.tuning }, ..params };
        let job = Job { earlier_ns, ..job(ept, random) };
        let decision = decide(KIND, &job, &params, &table);
        let cost = table.forwarding;
        if decision.why == Why::Guard {
            prop_assert!(cost.send_ns + cost.receive_ns >= ept);
            return Ok(());
        }
        let model = Model { table: &table, job: &job, tuning: &params.tuning };
        let here = model.here();
        prop_assert!(is_near(decision.here as f64, here), "here {} for {here}", decision.here);
        let values: Vec<_> = table.candidates().map(|(node, row)| (node, model.there(row))).collect();
        let best = values.iter().map(|(_, there)| *there).fold(f64::INFINITY, f64::min);
        let margin = f64::from(params.margin_ns);
        let followers = f64::from((&table).peers().min(16)) / 16.0;
        let spread = f64::from(table.signals.deviation_ns) * f64::from(spread) / 1000.0 * followers;
        match decision.verdict {
            Verdict::Redirect(node) => {
                let (_, there) = values.iter().find(|(id, _)| *id == node).unwrap();
                prop_assert!(is_near(decision.there as f64, *there), "there {} for {there}", decision.there);
                prop_assert!(*there <= best + spread || is_near(*there, best + spread), "{there}, best {best}");
                prop_assert!(there + margin < here || is_near(there + margin, here));
            }
            Verdict::Local => {
                // The drawn one was not better; without a spread that is the best one.
                let drawn = best + spread + margin;
                prop_assert!(drawn >= here || is_near(drawn, here), "best {best} for {here}");
            }
        }
    }
}

fn busy(backlog_ns: u32) -> Here {
    Here { backlog_ns, queued_milli: 9000, ..Here::default() }
}

#[test]
fn a_flow_does_not_overtake_itself_for_nothing() {
    let (kind, params) = (KIND, params(KIND));
    let table = Table::new(busy(40_000), [idle()]);
    let decide = |earlier_ns| decide(kind, &Job { earlier_ns, ..job(20_000, 0) }, &params, &table);
    let (free, bound) = (decide(0), decide(400_000));
    assert_eq!(free.verdict, Verdict::Redirect(1));
    assert!(free.done_ns > 20_000 && free.done_ns < 60_000, "{free:?}");
    // Both results would wait for the earlier ones, and a redirect costs.
    assert_eq!((bound.verdict, bound.done_ns), (Verdict::Local, 60_000), "{bound:?}");
    // An earlier end that either is behind changes nothing.
    assert_eq!(decide(10_000).verdict, free.verdict);
}

#[test]
fn the_wire_overlaps_the_wait_at_the_other_node() {
    let waiting = LoadRow { backlog_ns: 10_000, mean_backlog_ns: 10_000, ..idle() };
    let (kind, params) = (KIND, params(KIND));
    let there = |row: LoadRow| decide(kind, &job(20_000, 0), &params, &Table::new(busy(300_000), [row])).there;
    let (idle, waiting) = (there(idle()), there(waiting));
    assert!(waiting - idle < 3_000, "12 µs of way hide 10 µs of waiting: {idle}, {waiting}");
}

#[test]
fn a_redirect_is_dearer_the_busier_the_cluster() {
    let mut table = Table::new(busy(60_000), [idle()]);
    let verdict = |table: &Table| decide(KIND, &job(20_000, 0), &params(KIND), table).verdict;
    let at = |utilisation_milli| Signals::derive(utilisation_milli, 10_000, 1_000, &Tuning::DEFAULT);
    table.signals = at(300);
    assert_eq!(verdict(&table), Verdict::Redirect(1));
    table.signals = at(950);
    assert_eq!(verdict(&table), Verdict::Local);
}

#[test]
fn long_packets_go_on_smaller_imbalances() {
    let first_to_go = |ept: u32| {
        (0..200).map(|step| step * 1_000).find(|backlog| {
            let table = Table::new(busy(*backlog), [idle()]);
            decide(KIND, &job(ept, 0), &params(KIND), &table).verdict != Verdict::Local
        })
    };
    assert!(first_to_go(200_000) < first_to_go(10_000), "{:?}, {:?}", first_to_go(200_000), first_to_go(10_000));
}

#[test]
fn only_work_that_runs_before_the_packet_counts() {
    // All of the backlog is of long packets, which wait behind a short one.
    let behind = Behind::of(&[0, 0, 0, 0, 0, 0, 0, 1]);
    let here = Here { behind, ..busy(1_000_000) };
    let table = Table::new(here, [idle()]);
    assert_eq!(decide(KIND, &job(20_000, 0), &params(KIND), &table).verdict, Verdict::Local);
    let table = Table::new(busy(1_000_000), [idle()]);
    assert_eq!(decide(KIND, &job(20_000, 0), &params(KIND), &table).verdict, Verdict::Redirect(1));
}

#[test]
fn a_faster_node_is_worth_the_way() {
    let fast = LoadRow { speed_milli: 4000, ..idle() };
    let verdict = |row| decide(KIND, &job(100_000, 0), &params(KIND), &Table::new(Here::default(), [row])).verdict;
    assert_eq!((verdict(idle()), verdict(fast)), (Verdict::Local, Verdict::Redirect(1)));
}

#[test]
fn equals_share_the_packets_and_others_do_not_get_any() {
    let worse = LoadRow { backlog_ns: 200_000, mean_backlog_ns: 200_000, ..idle() };
    let table = Table::new(busy(2_000_000), [idle(), worse, idle()]);
    let mut counts = [0; 4];
    for random in 0..1000u64 {
        let random = crate::hash::mix(random) as u32;
        if let Verdict::Redirect(node) = decide(KIND, &job(50_000, random), &params(KIND), &table).verdict {
            counts[usize::from(node)] += 1;
        }
    }
    assert!(counts[1] > 400 && counts[3] > 400 && counts[2] == 0, "{counts:?}");
}

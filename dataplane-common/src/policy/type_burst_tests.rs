use super::super::testing::{idle, job, params};
use super::super::{Planner, PolicyKind, Verdict, Why, testing};
use super::*;
use crate::load::Here;
use crate::plan::tests::Table;
use crate::plan::{HERE, Member, SLOTS, slot_of};
use proptest::prelude::*;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

const MS: u64 = 1_000_000;

/// The rates of all functions in f64, packets a second, and which flood.
struct Model {
    short: Vec<f64>,
    long: Vec<f64>,
    known_s: f64,
    floods: Vec<bool>,
}

impl Model {
    fn new(functions: usize) -> Self {
        let zeros = vec![0.0; functions];
        Self { short: zeros.clone(), long: zeros, known_s: 0.0, floods: vec![false; functions] }
    }

    /// Counts what arrived in `passed_s`.
    fn take(&mut self, passed_s: f64, packets: &[u64]) {
        for (rates, window_s) in [(&mut self.short, 1.0), (&mut self.long, 30.0)] {
            let window_s = self.known_s.min(window_s);
            for (rate, packets) in rates.iter_mut().zip(packets) {
                *rate = (*rate * window_s + *packets as f64) / (window_s + passed_s);
            }
        }
        self.known_s += passed_s;
    }

    /// Finds who floods; false when a comparison was too close to come out the same in whole numbers.
    fn judge(&mut self, tuning: &Tuning) -> bool {
        let total: f64 = self.short.iter().sum();
        let [flood, calm, share] =
            [tuning.flood_milli, tuning.calm_milli, tuning.flood_share_milli].map(|milli| f64::from(milli) / 1000.0);
        let mut is_clear = true;
        for ((short, long), floods) in self.short.iter().zip(&self.long).zip(&mut self.floods) {
            let mut above = |bound: f64, error: f64| {
                is_clear &= (short - bound).abs() > error + short * 1e-6;
                *short > bound
            };
            // Whole numbers lose up to a packet a second of a long-term rate.
            *floods = match *floods {
                true => above(long * calm, calm),
                false => above(long * flood, flood) && above(total * share, 0.1),
            };
        }
        is_clear
    }
}

/// What happens between two turns: time, packets of every function, and response time of every node that is live.
type Step = (u64, Vec<u64>, Vec<Option<u32>>);

fn runs() -> impl Strategy<Value = Vec<Step>> {
    (1usize..4, 1usize..5).prop_flat_map(|(functions, nodes)| {
        let packets = prop_oneof![3 => Just(0u64), 3 => 0u64..200, 2 => 0u64..20_000];
        let response = prop_oneof![1 => Just(None), 9 => (1u32..1_000_000).prop_map(Some)];
        let step = (
            prop_oneof![Just(50u64), 1u64..2_000],
            proptest::collection::vec(packets, functions),
            proptest::collection::vec(response, nodes),
        );
        proptest::collection::vec(step, 1..40)
    })
}

proptest! {
    #[test]
    fn floods_are_those_of_the_formula_and_go_to_the_fastest(
        run in runs(),
        flood_milli in prop_oneof![Just(3000), 1000u32..6000],
        calm_milli in prop_oneof![Just(1500), 1000u32..3000],
        flood_share_milli in prop_oneof![Just(300), 0u32..=1000],
    ) {
        let tuning = Tuning { flood_milli, calm_milli, flood_share_milli, ..Tuning::DEFAULT };
        let (functions, nodes) = (run[0].1.len(), run[0].2.len());
        let mut table = Table::new(nodes as u16, functions);
        let mut plan = Box::new(Planner::new(PolicyKind::TypeBurst));
        let mut model = Model::new(functions);
        plan.turn(&mut table, &tuning);
        let (mut since_ms, mut since) = (0, vec![0; functions]);
        for (passed_ms, packets, responses) in run {
            table.now_ns += passed_ms * MS;
            for (demand, packets) in table.demands.iter_mut().zip(&packets) {
                demand.arrivals += packets;
            }
            for (member, response) in table.members.iter_mut().zip(&responses) {
                member.is_live = member.is_self || response.is_some();
                member.response_ns = response.unwrap_or(1);
            }
            let before = table.homes.clone();
            plan.turn(&mut table, &tuning);

            since_ms += passed_ms;
            since.iter_mut().zip(&packets).for_each(|(since, packets)| *since += packets);
            if since_ms >= 50 {
                model.take(since_ms as f64 / 1e3, &since);
                (since_ms, since) = (0, vec![0; functions]);
            }
            if !model.judge(&tuning) {
                break;
            }
            let live = || table.members.iter().filter(|member| member.is_live);
            let least = live().map(|member| member.response_ns).min();
            for ((floods, before), home) in model.floods.iter().zip(before).zip(&table.homes) {
                prop_assert_eq!(*floods, home.is_some());
                let Some(node) = *home else { continue };
                let chosen = live().find(|member| member.node == node);
                prop_assert!(chosen.is_some(), "{node} is not live");
                let stays = before.is_some_and(|before| live().any(|member| member.node == before));
                prop_assert!(!stays || before == *home, "it leaves a live node");
                prop_assert!(stays || chosen.map(|member| member.response_ns) == least, "not the fastest");
            }
        }
    }
}

/// Three nodes and two functions; function 1 has the steady rate of 100 packets a second.
struct Cluster {
    plan: Box<Bursts>,
    table: Table,
}

impl Cluster {
    fn new() -> Self {
        let mut table = Table::new(3, 2);
        for (member, response_ns) in table.members.iter_mut().zip([300, 100, 200]) {
            member.response_ns = response_ns;
        }
        let mut cluster = Self { plan: Box::default(), table };
        cluster.plan.turn(&mut cluster.table, &Tuning::DEFAULT);
        cluster
    }

    /// Goes on for `seconds` with `packets` of function 0 a tenth of a second, and says when its home changed, tenths.
    fn run(&mut self, seconds: u64, packets: u64) -> Vec<(u64, Option<u16>)> {
        let mut changes = Vec::new();
        for tenth in 1..=seconds * 10 {
            self.table.now_ns += 100 * MS;
            self.table.demands[0].arrivals += packets;
            self.table.demands[1].arrivals += 10;
            let before = self.table.homes[0];
            self.plan.turn(&mut self.table, &Tuning::DEFAULT);
            if self.table.homes[0] != before {
                changes.push((tenth, self.table.homes[0]));
            }
            assert_eq!(self.table.homes[1], None);
        }
        changes
    }
}

#[test]
fn a_steady_rate_is_no_flood_from_the_first_packet_on() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.run(60, 1000), []);
    let rates = cluster.plan.kinds[0];
    assert!(rates.short.abs_diff(10_000_000) < 2000 && rates.long.abs_diff(10_000_000) < 2000, "{rates:?}");
}

#[test]
fn a_flood_goes_to_the_fastest_node_until_it_is_calm() {
    let mut cluster = Cluster::new();
    assert_eq!(cluster.run(60, 10), []);
    // Ten times the rate: 10 − 9 · 1.1⁻ⁿ passes 3 · (10 − 9 · 1.00333⁻ⁿ) in the fourth tenth.
    assert_eq!(cluster.run(1, 100), [(4, Some(1))]);
    // r1 → 1000, and r30 passes 1000 / 1.5 after about 30 s · ln(900 / 333) = 30 s.
    let calm = cluster.run(40, 100);
    assert!(matches!(calm[..], [(tenth, None)] if (270..310).contains(&tenth)), "{calm:?}");
}

#[test]
fn rates_forget_in_a_second_and_in_thirty() {
    for (seconds, exact) in [(1, (1000.0, 1.0)), (30, (1000.0, 30.0))] {
        let mut cluster = Cluster::new();
        cluster.run(120, 0);
        cluster.run(seconds, 100);
        let expected = |tau: f64| exact.0 * 1000.0 * (1.0 - (-(seconds as f64) / tau).exp());
        let rates = cluster.plan.kinds[0];
        let near = |rate: u64, tau| (rate as f64 - expected(tau)).abs() < expected(tau) * 0.05;
        assert!(near(rates.short, 1.0) && near(rates.long, 30.0), "{rates:?}");
    }
}

#[test]
fn a_small_function_cannot_flood() {
    let mut cluster = Cluster::new();
    cluster.run(60, 0);
    assert_eq!(cluster.run(1, 4), [], "40 of 140 packets are less than 0.3");
    assert_eq!(cluster.run(1, 20).len(), 1, "200 of 300 are more");
}

#[test]
fn a_flood_leaves_a_node_that_is_gone_but_not_one_that_gets_slow() {
    let mut cluster = Cluster::new();
    cluster.run(60, 10);
    cluster.run(1, 100);
    cluster.table.members[1].response_ns = 1_000_000;
    assert_eq!(cluster.run(1, 100), []);
    cluster.table.members[1] = Member { response_ns: 1, is_live: false, ..cluster.table.members[1] };
    assert_eq!(cluster.run(1, 100), [(1, Some(2))]);
}

#[test]
fn everything_else_goes_to_all_live_nodes_alike() {
    let mut cluster = Cluster::new();
    assert_eq!([0, 1, 2].map(|node| cluster.table.count(0, node)), [1365, 1366, 1365]);
    cluster.table.members[2].is_live = false;
    cluster.run(1, 10);
    assert_eq!([0, 1, 2].map(|node| cluster.table.count(0, node)), [SLOTS / 2, SLOTS / 2, 0]);
}

#[test]
fn a_packet_of_a_flood_goes_home_and_others_by_their_slot() {
    let kind = PolicyKind::TypeBurst;
    let mut table = testing::Table::new(Here::default(), [idle(), idle()]);
    let job = job(5_000, 77);
    table.slots[slot_of(0, 77) as usize] = 2;
    let verdict = |home| testing::decide(kind, &Job { home, ..job }, &params(kind), &table).verdict;
    assert_eq!([0, 1, 2].map(verdict), [Verdict::Redirect(2), Verdict::Local, Verdict::Redirect(1)]);
    let gone = testing::decide(kind, &Job { home: 9, ..job }, &params(kind), &table);
    assert_eq!((gone.verdict, gone.why), (Verdict::Local, Why::Alone), "its home is gone");
    table.slots.fill(HERE);
    assert_eq!(testing::decide(kind, &job, &params(kind), &table).verdict, Verdict::Local);
}

//! E9b: a kind of request that floods goes to the server that answers fastest (J. Kim, as the threshold papers describe it).

use anyhow::Result;
use dataplane_common::policy::{Job, PolicyKind};
use dataplane_common::tuning::Tuning;

use super::super::random::stream;
use super::super::statistics::Estimate;
use super::board::{Cluster, OUTSIDE};
use super::farm::{Farm, Request};
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E9b",
    name: "type-burst",
    systems: &["S10 type bursts"],
    title: "response times while one kind floods: type-burst against equal random shares",
    assumptions: &[
        "5 servers, one of speed 4 and four of speed 1, FIFO; 4 kinds of requests of 5 ms on average, exponential, 70 a second \
         of each; for 10 s of each 60 s the first kind comes 7 times as often.",
        "Plans each 100 ms; response times are means over the last eight requests of a server, as in the product's rows.",
        "No figure is published; the direction is all that can be compared.",
    ],
    run,
};

const SPEEDS: [u16; 5] = [4000, 1000, 1000, 1000, 1000];
const MEAN_NS: f64 = 5e6;
const KINDS: usize = 4;
/// Requests of a kind in a second, and how many times as many come in a flood.
const RATE: (f64, f64) = (70.0, 7.0);
/// Length of a flood and time from one to the next, ns.
const FLOOD_NS: (u64, u64) = (10_000_000_000, 60_000_000_000);
const PLAN_NS: u64 = 100_000_000;

/// Mean response times of requests that arrive during a flood, ms: of the kind that floods, of all others.
fn simulate(policy: PolicyKind, floods: u64, seed: u64) -> (f64, f64) {
    let mut random = stream(seed, 800);
    let mut cluster = Cluster::new(policy, Tuning::DEFAULT, &SPEEDS).with_kinds(KINDS);
    let mut farm = Farm::new(&SPEEDS, false);
    let (mut now, mut next_plan_ns) = (0.0, 0);
    let (mut sums_ms, mut counts) = ([0.0; 2], [0.0; 2]);
    let period_ns = FLOOD_NS.1;
    let floods_at = |at_ns: u64| at_ns % period_ns >= period_ns - FLOOD_NS.0;
    while now < (floods * period_ns) as f64 {
        // The densest arrivals, thinned while nothing floods.
        let most = RATE.0 * (KINDS as f64 - 1.0 + RATE.1);
        now += random.exponential(1e9 / most);
        let now_ns = now as u64;
        while farm.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            let Some(done) = farm.finish() else { break };
            let member = &mut cluster.members[done.server];
            let (known, took) = (u64::from(member.response_ns), done.response_ns());
            let mean = if known == 0 { took } else { (7 * known + took) / 8 };
            member.response_ns = mean.min(u32::MAX.into()) as u32;
            if floods_at(done.request.at_ns) {
                let other = usize::from(done.request.kind != 0);
                sums_ms[other] += took as f64 / 1e6;
                counts[other] += 1.0;
            }
        }
        while next_plan_ns <= now_ns {
            cluster.plan(next_plan_ns + 1);
            next_plan_ns += PLAN_NS;
        }
        let place = random.unit() * (KINDS as f64 - 1.0 + RATE.1);
        let kind = if place < RATE.1 { 0 } else { 1 + ((place - RATE.1) as usize).min(KINDS - 2) };
        let is_thinned = kind == 0 && !floods_at(now_ns) && place >= 1.0;
        let (work_ns, number) = ((random.exponential(MEAN_NS) as u64).max(1), random.bits() as u32);
        if is_thinned {
            continue;
        }
        cluster.arrivals[kind] += 1;
        let job = Job { function: kind as u16, ept_ns: work_ns as u32, random: number, ..Job::default() };
        let server = match cluster.decide(&job, OUTSIDE) {
            OUTSIDE => number as usize % SPEEDS.len(),
            server => usize::from(server),
        };
        cluster.now_ns = now_ns;
        farm.submit(now_ns, server, Request { at_ns: now_ns, work_ns, class: 0, kind: kind as u16 });
    }
    (sums_ms[0] / counts[0], sums_ms[1] / counts[1])
}

fn run(effort: &Effort) -> Result<Evidence> {
    let floods = effort.of(10);
    let mut table = Table::new("mean response during floods, ms", &["policy", "kind that floods", "other kinds"]);
    // Random shares of a plan that weighs all alike: the same draws, without looking for floods.
    let calm = PolicyKind::ThresholdHalf;
    let all = [("equal shares", calm), ("type-burst", PolicyKind::TypeBurst)].map(|(name, policy)| {
        let runs: Vec<(f64, f64)> = effort.seeds.iter().map(|seed| simulate(policy, floods, *seed)).collect();
        let mean = |value: fn(&(f64, f64)) -> f64| format!("{:.1}", Estimate::of(runs.iter().map(value)).mean);
        table.row([name.to_owned(), mean(|run| run.0), mean(|run| run.1)]);
        runs
    });
    let ratio = |value: fn(&(f64, f64)) -> f64| {
        Estimate::of(all[1].iter().zip(&all[0]).map(|(burst, equal)| value(burst) / value(equal)))
    };
    let base = Finding {
        what: "response time of the kind that floods, type-burst over equal shares",
        published: Published {
            says: "a kind that floods is sent to the server with the fastest response (no figure)",
            figure: None,
            source: "J. Kim and T. Kwon, cited by K. Lee and T. Kwon 2024",
        },
        ours: ratio(|run| run.0),
        unit: "",
        direction: Bound::Below(1.0),
        size: None,
        differs: "",
    };
    let findings = vec![
        base.clone(),
        Finding {
            what: "response time of the other kinds meanwhile, type-burst over equal shares",
            ours: ratio(|run| run.1),
            differs: "The method does not look again: where the fastest server cannot take the whole flood, it is the worst \
                      choice. Here it can.",
            ..base
        },
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

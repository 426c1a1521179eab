//! E19: rendezvous hashing with priority for reactive requests (J. Kim and S. Kim, J. KIISE 30(12), 2003).

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use dataplane_common::hash::mix;
use dataplane_common::policy::{Job, PolicyKind};
use dataplane_common::tuning::Tuning;

use super::super::random::{Alias, stream};
use super::super::statistics::Estimate;
use super::board::{Cluster, OUTSIDE};
use super::farm::{Farm, Request};
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E19",
    name: "phrw",
    systems: &["S16 PHRW"],
    title: "response time of reactive requests on unequal servers: hrw, weighted-hrw, phrw, phrw-w",
    assumptions: &[
        "8 servers of speed 2, 2, 1.5, 1, 1, 0.75, 0.5 and 0.5, FIFO; Poisson arrivals at load 0.45 and 0.6; requests of \
         500 µs on average at speed 1, exponential; 30 % are reactive.",
        "Each request is about one of 20 000 keys, Zipf 0.7; a server remembers the 2000 it used last. Whether a key is \
         remembered is counted and changes no service time.",
        "Plans are the product's, drawn up each 10 ms on backlogs as they are; phrw looks at the 3 nodes of highest hash.",
    ],
    run,
};

const SPEEDS: [u16; 8] = [2000, 2000, 1500, 1000, 1000, 750, 500, 500];
const MEAN_NS: f64 = 500_000.0;
const REACTIVE: f64 = 0.3;
const KEYS: usize = 20_000;
const REMEMBERED: usize = 2_000;
const PLAN_NS: u64 = 10_000_000;
const POLICIES: [PolicyKind; 4] =
    [PolicyKind::Hrw, PolicyKind::WeightedHrw, PolicyKind::PriorityHrw, PolicyKind::PriorityWeightedHrw];

/// The keys that a server used last.
#[derive(Default)]
struct Memory {
    used: HashMap<u32, u64>,
    order: BTreeMap<u64, u32>,
}

impl Memory {
    /// Uses a key at a moment of its own. True when it was remembered.
    fn access(&mut self, key: u32, moment: u64) -> bool {
        let before = self.used.insert(key, moment);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        self.order.insert(moment, key);
        if self.order.len() > REMEMBERED
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.used.remove(&oldest);
        }
        before.is_some()
    }
}

/// What one policy did.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    /// Mean response time of reactive requests, µs.
    reactive_us: f64,
    /// Of the others, µs.
    bulk_us: f64,
    /// Share of keys remembered, %.
    hits: f64,
}

fn simulate(policy: PolicyKind, load: f64, requests: u64, seed: u64) -> Figures {
    let mut random = stream(seed, 700);
    let ranks = Alias::new(&(0..KEYS).map(|rank| (rank as f64 + 1.0).powf(-0.7)).collect::<Vec<_>>());
    let mut cluster = Cluster::new(policy, Tuning::DEFAULT, &SPEEDS);
    let mut farm = Farm::new(&SPEEDS, false);
    let mut memories: Vec<Memory> = SPEEDS.iter().map(|_| Memory::default()).collect();
    let gap_ns = MEAN_NS / load / (SPEEDS.iter().map(|speed| f64::from(*speed)).sum::<f64>() / 1000.0);
    let (mut sums_us, mut counts, mut hits) = ([0.0; 2], [0.0; 2], 0.0);
    let (mut now, mut next_plan_ns) = (0.0, 0);
    for number in 0..2 * requests {
        now += random.exponential(gap_ns);
        let now_ns = now as u64;
        while farm.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            let Some(done) = farm.finish() else { break };
            if number >= requests {
                let class = usize::from(done.request.class > 0);
                sums_us[class] += done.response_ns() as f64 / 1e3;
                counts[class] += 1.0;
            }
        }
        if now_ns >= next_plan_ns {
            for (server, member) in cluster.members.iter_mut().enumerate() {
                member.backlog_ns = farm.backlog_ns(server, now_ns).min(u32::MAX.into()) as u32;
            }
            cluster.plan(now_ns);
            next_plan_ns = now_ns + PLAN_NS;
        }
        let class = if random.unit() < REACTIVE { 7 } else { 0 };
        let key = mix(seed ^ u64::from(ranks.draw(&mut random)) << 20) as u32;
        let work_ns = (random.exponential(MEAN_NS) as u64).max(1);
        let job = Job { key, class, ept_ns: work_ns as u32, random: random.bits() as u32, ..Job::default() };
        let server = usize::from(cluster.decide(&job, OUTSIDE)).min(SPEEDS.len() - 1);
        let is_known = memories[server].access(key, number);
        hits += f64::from(u8::from(is_known && number >= requests));
        farm.submit(now_ns, server, Request { at_ns: now_ns, work_ns, class, kind: 0 });
    }
    Figures {
        reactive_us: sums_us[1] / counts[1],
        bulk_us: sums_us[0] / counts[0],
        hits: hits / requests as f64 * 100.0,
    }
}

fn run(effort: &Effort) -> Result<Evidence> {
    let requests = effort.of(100_000);
    let mut table = Table::new("mean response times", &["load", "policy", "reactive µs", "bulk µs", "remembered %"]);
    let mut at_045 = Vec::new();
    for load in [0.45, 0.6] {
        for policy in POLICIES {
            let all: Vec<Figures> = effort.seeds.iter().map(|seed| simulate(policy, load, requests, *seed)).collect();
            let values: [fn(&Figures) -> f64; 3] = [|run| run.reactive_us, |run| run.bulk_us, |run| run.hits];
            let cells = values.map(|value| format!("{:.0}", Estimate::of(all.iter().map(value)).mean));
            table.row([format!("{load}"), policy.name().to_owned()].into_iter().chain(cells));
            if load < 0.5 {
                at_045.push(all);
            }
        }
    }
    let ratio = |value: fn(&Figures) -> f64| {
        Estimate::of(at_045[2].iter().zip(&at_045[1]).map(|(phrw, weighted)| value(phrw) / value(weighted)))
    };
    let source = "J. KIISE 30(12), 2003, 708-713, abstract";
    let base = Finding {
        what: "reactive response time with phrw over that with weighted-hrw, load 0.45",
        published: Published {
            says: "effective for reactive data with a latency limit (no figure)",
            figure: None,
            source,
        },
        ours: ratio(|run| run.reactive_us),
        unit: "",
        direction: Bound::Below(1.0),
        size: Some(Bound::AtMost(0.9)),
        differs: "",
    };
    let findings = vec![
        base.clone(),
        Finding {
            what: "keys remembered with phrw over those with weighted-hrw, load 0.45",
            published: Published { says: "content-based mapping is kept (no figure)", figure: None, source },
            ours: ratio(|run| run.hits),
            direction: Bound::AtLeast(0.9),
            size: Some(Bound::AtLeast(0.98)),
            differs: "Reactive and bulk requests for a key go to different servers: what both ask for is remembered twice.",
            ..base
        },
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

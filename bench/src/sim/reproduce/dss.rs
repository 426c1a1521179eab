//! E11 to E13: server selection by a composite metric (Tomić, FERIT Osijek 2018; Tomić, Žagar and Martinović 2019).

use anyhow::Result;
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;

use super::super::random::{Random, normal, stream};
use super::super::statistics::Estimate;
use super::board::Cluster;
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::tcp::Path;
use super::{Effort, Experiment};

/// E11: see the module.
pub const SELECTION: Experiment = Experiment {
    id: "E11",
    name: "dss",
    systems: &["S4 DSS composite metric"],
    title: "two servers on two links each: Geographical, Hops, Random and RTT against the composite metric",
    assumptions: &[
        "Round-trip time, loss and hops of the links: 18 ms, 0.2 %, 7 and 24 ms, 0.05 %, 9 to server 0; 20 ms, 0.24 %, 6 and \
         22 ms, 0.05 %, 11 to server 1. Calibrated: the nearest of many points; path diversity decides the size of the gain.",
        "A request fetches 60 kB: a round trip, the transfer by Padhye's model (timeout 0.25 s, window 32), and 20 ms / \
         (1 − load) at the server, exponential. Loads swing by a sine, 0.45 ± 0.21, opposite to each other, 2000 requests a \
         period. Transfers vary by a logarithmic deviation of 0.3, round trips by 0.1.",
        "Geographical is a fixed preference for the nearer server's first link; Hops the link of fewest hops; RTT the least \
         of one probe for each request.",
        "The composite metric is the product's plan (policy dss, weight of the load 0) on response times, mean over \
         samples with weight 0.3; each 5 requests the plan has one other link measured.",
    ],
    run: selection,
};

/// E12: see the module.
pub const DETECTION: Experiment = Experiment {
    id: "E12",
    name: "dss-detection",
    systems: &["S4 DSS composite metric"],
    title: "time until a client turns from a dead server to the next",
    assumptions: &[
        "Two servers; the one in use dies at a random moment between two looks of the plan.",
        "The usual client sends its request again after 3 and 6 s and gives up 12 s later: 21 s.",
        "With a maximum response time of 800 ms the plan is drawn up each 20 ms and requests come each 10 ms; with one of \
         5 ms, each 0.2 ms and each 0.1 ms.",
    ],
    run: detection,
};

/// E13: see the module.
pub const MODEL: Experiment = Experiment {
    id: "E13",
    name: "dss-model",
    systems: &["S4 DSS composite metric"],
    title: "expected transfer time by Padhye's model against simulated transfers",
    assumptions: &[
        "Long transfers (20 000 segments) in a simulation of congestion avoidance with the loss model of Padhye et al.: what \
         the model assumes, not a TCP stack. Segments count when they are sent, as in the model. Round trips of 20 and 100 ms, timeouts of 0.25 and 1 s, window 32.",
    ],
    run: model,
};

const SOURCE: &str = "D. Tomić, doctoral thesis, FERIT Osijek 2018, abstract";
const TELECOM: &str = "Tomić, Žagar and Martinović, Telecommunication Systems 71(1), 2019, abstract";

/// Server, round-trip time in s, loss, hops.
const LINKS: [(usize, f64, f64, u32); 4] =
    [(0, 0.018, 0.002, 7), (0, 0.024, 0.0005, 9), (1, 0.020, 0.0024, 6), (1, 0.022, 0.0005, 11)];
const BYTES: f64 = 60_000.0;
const SERVER_S: f64 = 0.020;
const LOAD: (f64, f64) = (0.45, 0.21);
const PERIOD: f64 = 2_000.0;
const DEVIATION: (f64, f64) = (0.3, 0.1);
const GAIN: f64 = 0.3;
/// Requests between two plans.
const TURN: u64 = 5;

/// Time that request number `number` takes over `link`, s.
fn response_s(link: usize, number: u64, random: &mut Random) -> f64 {
    let (server, rtt_s, loss, _) = LINKS[link];
    let phase = std::f64::consts::TAU * number as f64 / PERIOD;
    let load = LOAD.0 + if server == 0 { LOAD.1 } else { -LOAD.1 } * phase.sin();
    let vary = |deviation: f64, random: &mut Random| (deviation * normal(random) - deviation * deviation / 2.0).exp();
    let path = Path { rtt_s: rtt_s * vary(DEVIATION.1, random), loss, timeout_s: 0.25, window: 32.0 };
    path.rtt_s + path.transfer_s(BYTES) * vary(DEVIATION.0, random) + random.exponential(SERVER_S / (1.0 - load))
}

/// The ways to choose, composite metric last.
const METHODS: [&str; 5] = ["RTT", "Geographical", "Random", "Hops", "composite metric"];

/// Mean time of a request by each method, s.
fn times_s(requests: u64, seed: u64) -> [f64; 5] {
    let mut sums = [0.0; 5];
    for (method, sum) in sums.iter_mut().enumerate() {
        // Every method has the same weather.
        let (mut choices, mut samples) = (stream(seed, 300), stream(seed, 301));
        let mut metric = Metric::new();
        for number in 0..requests {
            let link = match method {
                0 => {
                    let probe = |link: usize| LINKS[link].1 * (DEVIATION.1 * normal(&mut choices)).exp();
                    let probes: Vec<f64> = (0..LINKS.len()).map(probe).collect();
                    (0..LINKS.len()).min_by(|a, b| probes[*a].total_cmp(&probes[*b])).unwrap_or(0)
                }
                1 => 0,
                2 => choices.below(LINKS.len() as u64) as usize,
                3 => (0..LINKS.len()).min_by_key(|link| LINKS[*link].3).unwrap_or(0),
                _ => metric.choose(number, &mut choices),
            };
            let time_s = response_s(link, number, &mut samples);
            metric.learn(link, time_s);
            *sum += time_s / requests as f64;
        }
    }
    sums
}

/// The client of the composite metric: measured response times and the product's plan on them.
struct Metric {
    cluster: Cluster,
    mean_s: [Option<f64>; LINKS.len()],
}

impl Metric {
    fn new() -> Self {
        let cluster = Cluster::new(PolicyKind::Dss, Tuning::DEFAULT, &[1000; LINKS.len()]);
        Self { cluster, mean_s: [None; LINKS.len()] }
    }

    fn choose(&mut self, number: u64, random: &mut Random) -> usize {
        if number.is_multiple_of(TURN) {
            self.cluster.plan(number + 1);
            let measured = usize::from(self.cluster.owner(0));
            if measured < LINKS.len() {
                let time_s = response_s(measured, number, random);
                self.learn(measured, time_s);
            }
        }
        usize::from(self.cluster.owner(1)).min(LINKS.len() - 1)
    }

    fn learn(&mut self, link: usize, time_s: f64) {
        let mean_s = self.mean_s[link].map_or(time_s, |mean_s| mean_s + GAIN * (time_s - mean_s));
        self.mean_s[link] = Some(mean_s);
        let member = &mut self.cluster.members[link];
        member.response_ns = (mean_s * 1e9) as u32;
        member.completed = member.completed.wrapping_add(1);
    }
}

fn selection(effort: &Effort) -> Result<Evidence> {
    let requests = effort.of(40_000);
    let all: Vec<[f64; 5]> = effort.seeds.iter().map(|seed| times_s(requests, *seed)).collect();
    let longer = |method: usize| Estimate::of(all.iter().map(|times| (times[method] / times[4] - 1.0) * 100.0));
    let mut table = Table::new("mean time of a request", &["method", "ms", "longer than the composite metric, %"]);
    for (method, name) in METHODS.iter().enumerate() {
        let ms = Estimate::of(all.iter().map(|times| times[method] * 1e3)).mean;
        table.row([(*name).to_owned(), format!("{ms:.1}"), format!("{:.1}", longer(method).mean)]);
    }
    let others = |times: &[f64; 5]| -> [f64; 4] { [0, 1, 2, 3].map(|method| times[method] / times[4]) };
    let extreme = |fold: fn(f64, f64) -> f64| {
        Estimate::of(all.iter().map(|times| (others(times).into_iter().reduce(fold).unwrap_or(1.0) - 1.0) * 100.0))
    };
    let says = "the other methods take 8.5 % to 26.8 % longer";
    let differs =
        "The links of the experiment are not known. The size of the gain is that of the differences between paths.";
    let base = Finding {
        what: "how much longer the best other method takes",
        published: Published { says, figure: Some(8.5), source: SOURCE },
        ours: extreme(f64::min),
        unit: "%",
        direction: Bound::Above(0.0),
        size: Some(Bound::AtLeast(5.0)),
        differs,
    };
    let findings = vec![
        base.clone(),
        Finding {
            what: "how much longer the worst other method takes",
            published: Published { says, figure: Some(26.8), source: SOURCE },
            ours: extreme(f64::max),
            size: Some(Bound::Within(20.0, 35.0)),
            ..base.clone()
        },
        Finding {
            what: "efficiency index: mean over the other methods of their time over that of the composite metric",
            published: Published {
                says: "a high average efficiency index of 1.23",
                figure: Some(1.23),
                source: TELECOM,
            },
            ours: Estimate::of(all.iter().map(|times| others(times).iter().sum::<f64>() / 4.0)),
            unit: "",
            direction: Bound::Above(1.0),
            size: Some(Bound::Within(1.085, 1.268)),
            differs: "The definition of the index is a reconstruction: with 8.5 to 26.8 % it must lie within the mark.",
        },
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

/// Seconds from the death of the server in use to the first request that goes elsewhere.
pub(super) fn detected_s(tuning: Tuning, gap_ns: u64, random: &mut Random) -> f64 {
    let mut cluster = Cluster::new(PolicyKind::Dss, tuning, &[1000; 2]);
    (cluster.members[0].response_ns, cluster.members[1].response_ns) = (1_000, 2_000);
    let plan_ns = u64::from(tuning.plan_ns);
    // Two hundred requests before the server dies, which it does anywhere between two plans.
    let dies_ns = 100 * plan_ns + random.below(plan_ns);
    let give_up_ns = dies_ns + 4 * u64::from(tuning.max_response_ns) + 10 * plan_ns;
    let (mut now_ns, mut next_plan_ns) = (gap_ns, plan_ns);
    while now_ns < give_up_ns {
        while next_plan_ns <= now_ns {
            cluster.plan(next_plan_ns);
            next_plan_ns += plan_ns;
        }
        let server = usize::from(cluster.owner(1));
        let is_dead = server == 0 && now_ns >= dies_ns;
        if now_ns >= dies_ns && server == 1 {
            return (now_ns - dies_ns) as f64 / 1e9;
        }
        if let Some(member) = cluster.members.get_mut(server) {
            if is_dead { member.outstanding += 1 } else { member.completed += 1 }
        }
        now_ns += gap_ns;
    }
    f64::INFINITY
}

fn detection(effort: &Effort) -> Result<Evidence> {
    let trials = effort.of(200);
    let worst = |max_response_ns: u32, plan_ns: u32, gap_ns: u64| {
        let tuning = Tuning { max_response_ns, plan_ns, ..Tuning::DEFAULT };
        Estimate::of(effort.seeds.iter().map(|seed| {
            let mut random = stream(*seed, 310);
            (0..trials).map(|_| detected_s(tuning, gap_ns, &mut random)).fold(0.0, f64::max)
        }))
    };
    let (slow, fast) = (worst(800_000_000, 20_000_000, 10_000_000), worst(5_000_000, 200_000, 100_000));
    // First timeout 3 s, two retransmissions, each waiting twice as long as the one before.
    let usual: f64 = (0..3).map(|attempt| 3.0 * 2f64.powi(attempt)).sum();
    let mut table = Table::new("longest time to turn away over all trials", &["rule", "s"]);
    table.row(["SYN retransmissions".to_owned(), format!("{usual:.1}")]);
    table.row(["maximum response time 800 ms".to_owned(), format!("{:.3}", slow.mean)]);
    table.row(["maximum response time 5 ms".to_owned(), format!("{:.4}", fast.mean)]);
    let base = Finding {
        what: "longest time to turn away, maximum response time 800 ms",
        published: Published {
            says: "initial unavailability is detected in less than 1 s instead of 21 s",
            figure: Some(1.0),
            source: SOURCE,
        },
        ours: slow,
        unit: "s",
        direction: Bound::Below(usual),
        size: Some(Bound::AtMost(0.9)),
        differs: "",
    };
    let findings = vec![
        base.clone(),
        Finding {
            what: "the usual client's time to turn away",
            published: Published { says: "21 s", figure: Some(21.0), source: SOURCE },
            ours: Estimate::of(effort.seeds.iter().map(|_| usual)),
            direction: Bound::Above(slow.mean),
            size: Some(Bound::Within(21.0, 21.0)),
            differs: "Arithmetic, not a simulation: 3, 6 and 12 s.",
            ..base.clone()
        },
        Finding {
            what: "longest time to turn away, maximum response time 5 ms",
            published: Published {
                says: "the administrator may choose the time; the dataplane's default is 5 ms",
                figure: None,
                source: SOURCE,
            },
            ours: fast,
            size: Some(Bound::AtMost(0.006)),
            ..base
        },
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

fn model(effort: &Effort) -> Result<Evidence> {
    let segments = effort.of(20_000);
    let runs = effort.of(10);
    let mut table = Table::new(
        "20 000 segments, expected and simulated",
        &["loss %", "round trip ms", "expected s", "simulated s", "error %"],
    );
    let mut errors = vec![Vec::new(); effort.seeds.len()];
    for loss in [0.0005, 0.002, 0.01, 0.03, 0.05] {
        for (rtt_s, timeout_s) in [(0.02, 0.25), (0.1, 1.0)] {
            let path = Path { rtt_s, loss, timeout_s, window: 32.0 };
            let expected_s = segments as f64 / path.segments_per_s();
            let simulated: Vec<f64> = effort
                .seeds
                .iter()
                .map(|seed| {
                    let mut random = stream(*seed, 320);
                    (0..runs).map(|_| path.simulate_s(segments, &mut random)).sum::<f64>() / runs as f64
                })
                .collect();
            for (errors, simulated_s) in errors.iter_mut().zip(&simulated) {
                errors.push((expected_s / simulated_s - 1.0).abs() * 100.0);
            }
            let mean_s = Estimate::of(simulated).mean;
            table.row([
                format!("{}", loss * 100.0),
                format!("{:.0}", rtt_s * 1e3),
                format!("{expected_s:.1}"),
                format!("{mean_s:.1}"),
                format!("{:.1}", (expected_s / mean_s - 1.0) * 100.0),
            ]);
        }
    }
    let mean = |errors: &Vec<f64>| errors.iter().sum::<f64>() / errors.len() as f64;
    let finding = Finding {
        what: "mean absolute error of the expected time over loss rates and round trips",
        published: Published {
            says: "a model based on Padhye's maps a metric to the expected time of a request (no figure)",
            figure: None,
            source: SOURCE,
        },
        ours: Estimate::of(errors.iter().map(mean)),
        unit: "%",
        direction: Bound::AtMost(25.0),
        size: None,
        differs: "",
    };
    Ok(Evidence { findings: vec![finding], tables: vec![table] })
}

//! E20: dynamic distribution that keeps the promises of service classes, against static partitions (KISS 2004.10c).

use anyhow::Result;
use dataplane_common::bands::Behind;
use dataplane_common::load::{Here, saturate};
use dataplane_common::policy::{Job, PolicyKind};
use dataplane_common::tuning::{CLASS, Tuning};

use super::super::random::{Random, stream};
use super::super::statistics::Estimate;
use super::board::Cluster;
use super::farm::{CLASSES, Farm, Request};
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E20",
    name: "sla",
    systems: &["S17 SLA-aware distribution"],
    title: "promises missed by class: static partitions, weighted turns, least work without classes, and sla",
    assumptions: &[
        "7 servers of speed 2, 2, 1, 1, 1, 0.5 and 0.5; requests of 10 ms on average at speed 1, exponential; load 0.9; \
         promises of 50, 100 and 400 ms to the high, middle and low class.",
        "The mix swings each 2 s between 50, 30 and 20 % of high, middle and low requests and 20, 30 and 50 %.",
        "Static: a class has servers of its own, of speed 3, 2 and 3 together, in weighted turns. Least work: the server \
         that is through soonest, whatever the class. Both serve in order of arrival.",
        "sla: the product's policy at a server of the class's own partition, which keeps the request while it is in time \
         there by half the promise; servers serve the highest class first; loads are reported each 5 ms. The published \
         method also moves partitions and refuses requests; this does not.",
    ],
    run,
};

const SPEEDS: [u16; 7] = [2000, 2000, 1000, 1000, 1000, 500, 500];
const MEAN_NS: f64 = 10e6;
const LOAD: f64 = 0.9;
const SWING_NS: u64 = 2_000_000_000;
const REPORT_NS: u64 = 5_000_000;
/// Class, promise in ns, servers of its own.
const KINDS: [(u8, u64, &[usize]); 3] =
    [(7, 50_000_000, &[0, 2]), (4, 100_000_000, &[1]), (0, 400_000_000, &[3, 4, 5, 6])];
/// Parts of the kinds at the two ends of the swing.
const MIXES: [[f64; 3]; 2] = [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]];

/// How requests are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Static,
    Turns,
    LeastWork,
    Sla,
}

const WAYS: [(&str, Way); 4] = [
    ("static partitions", Way::Static),
    ("weighted turns", Way::Turns),
    ("least work", Way::LeastWork),
    ("sla", Way::Sla),
];

/// Servers in turn, in proportion to their speed (smooth weighted round robin).
struct Turns {
    servers: Vec<usize>,
    credit: Vec<i64>,
}

impl Turns {
    fn new(servers: impl IntoIterator<Item = usize>) -> Self {
        let servers: Vec<usize> = servers.into_iter().collect();
        Self { credit: vec![0; servers.len()], servers }
    }

    fn next(&mut self) -> usize {
        let mut total = 0;
        for (credit, server) in self.credit.iter_mut().zip(&self.servers) {
            *credit += i64::from(SPEEDS[*server]);
            total += i64::from(SPEEDS[*server]);
        }
        let at = (0..self.servers.len()).rev().max_by_key(|at| self.credit[*at]).unwrap_or(0);
        self.credit[at] -= total;
        self.servers[at]
    }
}

/// Share of requests of each kind that miss their promise, %.
fn simulate(way: Way, requests: u64, seed: u64) -> [f64; 3] {
    let mut random = stream(seed, 600);
    let mut farm = Farm::new(&SPEEDS, way == Way::Sla);
    let tuning = Tuning {
        discipline: CLASS,
        target_high_ns: KINDS[0].1 as u32,
        target_middle_ns: KINDS[1].1 as u32,
        target_low_ns: KINDS[2].1 as u32,
        ..Tuning::DEFAULT
    };
    let mut cluster = Cluster::new(PolicyKind::Sla, tuning, &SPEEDS);
    let mut all = Turns::new(0..SPEEDS.len());
    let mut own = KINDS.map(|(_, _, servers)| Turns::new(servers.iter().copied()));
    let (mut counts, mut missed) = ([0u64; 3], [0u64; 3]);
    let (mut now, mut reported_ns) = (0.0, 0);
    let gap_ns = MEAN_NS / LOAD / (SPEEDS.iter().map(|speed| f64::from(*speed)).sum::<f64>() / 1000.0);
    for _ in 0..requests {
        now += random.exponential(gap_ns);
        let now_ns = now as u64;
        while farm.next_end_ns().is_some_and(|end_ns| end_ns <= now_ns) {
            let Some(done) = farm.finish() else { break };
            let kind = usize::from(done.request.kind);
            counts[kind] += 1;
            missed[kind] += u64::from(done.response_ns() > KINDS[kind].1);
        }
        let kind = draw_kind(now_ns, &mut random);
        let (class, ..) = KINDS[kind];
        let work_ns = (random.exponential(MEAN_NS) as u64).max(1);
        let server = match way {
            Way::Static => own[kind].next(),
            Way::Turns => all.next(),
            Way::LeastWork => {
                let through_ns = |server: &usize| farm.backlog_ns(*server, now_ns) + time_ns(*server, work_ns);
                (0..SPEEDS.len()).min_by_key(through_ns).unwrap_or(0)
            }
            Way::Sla => {
                if now_ns >= reported_ns {
                    report(&mut cluster, &farm, now_ns);
                    reported_ns = now_ns + REPORT_NS;
                }
                place(&mut cluster, &farm, (own[kind].next(), now_ns), (class, work_ns), &mut random)
            }
        };
        farm.submit(now_ns, server, Request { at_ns: now_ns, work_ns, class, kind: kind as u16 });
    }
    [0, 1, 2].map(|kind| missed[kind] as f64 / counts[kind].max(1) as f64 * 100.0)
}

/// The kind of a request by the mix of the moment.
fn draw_kind(now_ns: u64, random: &mut Random) -> usize {
    let mix = MIXES[(now_ns / SWING_NS % 2) as usize];
    let mut rest = random.unit();
    for (kind, part) in mix.into_iter().enumerate() {
        if rest < part {
            return kind;
        }
        rest -= part;
    }
    mix.len() - 1
}

/// Time that work takes on a server, ns.
fn time_ns(server: usize, work_ns: u64) -> u64 {
    work_ns * 1000 / u64::from(SPEEDS[server])
}

/// Backlog of a server, ns, and which part of it is behind a request of each class.
fn load(farm: &Farm, server: usize, now_ns: u64) -> (u32, Behind) {
    let (serving_ns, waiting_ns) = farm.work_ns(server, now_ns);
    // Bands run from the highest class down; what is in service is ahead of all.
    let mut bands = [0; CLASSES];
    for (class, ns) in waiting_ns.into_iter().enumerate() {
        bands[CLASSES - 1 - class] = ns;
    }
    bands[0] += serving_ns;
    (saturate(bands.iter().sum()), Behind::of(&bands))
}

fn report(cluster: &mut Cluster, farm: &Farm, now_ns: u64) {
    for (server, row) in cluster.rows.iter_mut().enumerate() {
        let (backlog_ns, behind) = load(farm, server, now_ns);
        (row.backlog_ns, row.behind, row.acked_ns) = (backlog_ns, behind.0, row.sent_ns as u32);
    }
}

/// The server that the policy sends a request to which arrives at a server of its partition.
fn place(
    cluster: &mut Cluster,
    farm: &Farm,
    (at, now_ns): (usize, u64),
    (class, work_ns): (u8, u64),
    random: &mut Random,
) -> usize {
    let (backlog_ns, behind) = load(farm, at, now_ns);
    cluster.now_ns = now_ns;
    cluster.here = Here { backlog_ns, behind, queued_milli: 0 };
    let ept_ns = saturate(time_ns(at, work_ns));
    let job = Job { class, ept_ns, random: random.bits() as u32, ..Job::default() };
    let server = usize::from(cluster.decide(&job, at as u16));
    cluster.rows[server].sent_ns += time_ns(server, work_ns);
    server
}

fn run(effort: &Effort) -> Result<Evidence> {
    let requests = effort.of(200_000);
    let mut table = Table::new("promises missed, %", &["way", "high, 50 ms", "middle, 100 ms", "low, 400 ms"]);
    let mut all = Vec::new();
    for (name, way) in WAYS {
        let missed: Vec<[f64; 3]> = effort.seeds.iter().map(|seed| simulate(way, requests, *seed)).collect();
        let cells = [0, 1, 2].map(|kind| format!("{:.1}", Estimate::of(missed.iter().map(|run| run[kind])).mean));
        table.row([name.to_owned()].into_iter().chain(cells));
        all.push(missed);
    }
    let worst = |missed: &[[f64; 3]]| Estimate::of(missed.iter().map(|run| run.iter().copied().fold(0.0, f64::max)));
    let findings = vec![Finding {
        what: "promises missed with sla, worst class",
        published: Published {
            says: "better response time than the static method (no figure)",
            figure: None,
            source: "KISS 2004.10c, 367-369, abstract",
        },
        ours: worst(&all[3]),
        unit: "%",
        direction: Bound::Below(worst(&all[0]).mean),
        size: Some(Bound::Below(2.0)),
        differs: "The policy knows no speeds: a server of half the speed with little work looks as good as a fast one. It moves \
                  no partitions and refuses nothing, as the published method does.",
    }];
    Ok(Evidence { findings, tables: vec![table] })
}

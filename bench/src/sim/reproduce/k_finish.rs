//! E21: reports after K percent of the outstanding requests against reports after each (Choi et al., KIPS 14A(1), 2007).

use anyhow::Result;
use dataplane_common::policy::{Job, PolicyKind};
use dataplane_common::report::{Mode, Moment, Plan, Schedule};
use dataplane_common::tuning::Tuning;

use super::super::random::stream;
use super::super::statistics::Estimate;
use super::board::{Cluster, OUTSIDE};
use super::farm::{Done, Farm, Request};
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E21",
    name: "k-finish",
    systems: &["S18 K-percents-finish"],
    title: "messages and response time: K-percents-finish, update-on-finish and periodic reports",
    assumptions: &[
        "A switch and 8 equal servers, FIFO; Poisson arrivals at load 0.95; requests of 50 ms on average, hyperexponential: \
         90 % with a mean of 25 ms, 10 % with one of 275 ms.",
        "The switch takes the server with the fewest requests, reported and sent since (least-connections); reports take \
         no time. When to report is the product's schedule (report.rs).",
        "Periodic reports come each second, and, the harder comparison, as often as K-percents-finish reports.",
        "The published limits of unequal servers are left out: least-connections knows no speeds.",
    ],
    run,
};

const SOURCE: &str = "Choi, Kang, Ok and Park, KIPS Trans. A 14A(1), 2007, abstract";
const SERVERS: usize = 8;
const LOAD: f64 = 0.95;
const MEAN_NS: f64 = 50e6;
/// Part of the long requests, means of the short and the long ones in units of the mean.
const LONG: (f64, f64, f64) = (0.1, 0.5, 5.5);

/// Mean response time, ms, and messages per request.
type Figures = (f64, f64);

/// One run in which servers report in `mode`; `every_ns` is the interval of periodic reports.
fn simulate(mode: Mode, finish_percent: u32, every_ns: u64, requests: u64, seed: u64) -> Figures {
    let mut random = stream(seed, 200);
    let mut cluster = Cluster::new(PolicyKind::LeastConnections, Tuning::DEFAULT, &[1000; SERVERS]);
    // A switch computes nothing.
    cluster.here.queued_milli = u32::MAX;
    let mut farm = Farm::new(&[1000; SERVERS], false);
    // Nothing but its events makes a server report.
    let plan = Plan {
        mode,
        busy_us: 1,
        idle_us: u32::MAX,
        gap_us: 0,
        finish_percent,
        threshold_milli: 1000,
        recovery_milli: 0,
    };
    let mut schedules = [Schedule::new(plan); SERVERS];
    let mut finished = [0u64; SERVERS];
    let (mut sum_ns, mut measured, mut messages, mut now) = (0.0, 0.0, 0.0, 0.0);
    let mut next_report_ns = every_ns;
    let warm_up_ns = requests as f64 / 10.0 * MEAN_NS / LOAD / SERVERS as f64;
    for _ in 0..requests {
        now += random.exponential(MEAN_NS / LOAD / SERVERS as f64);
        let now_ns = now as u64;
        loop {
            let end_ns = farm.next_end_ns().unwrap_or(u64::MAX);
            if mode == Mode::Periodic && next_report_ns < end_ns.min(now_ns) {
                for server in 0..SERVERS {
                    report(&mut cluster, &farm, server);
                }
                messages += if now > warm_up_ns { SERVERS as f64 } else { 0.0 };
                next_report_ns += every_ns;
                continue;
            }
            if end_ns > now_ns {
                break;
            }
            let Some(done) = farm.finish() else { break };
            let Done { server, request, at_ns } = done;
            if request.at_ns as f64 > warm_up_ns {
                sum_ns += done.response_ns() as f64;
                measured += 1.0;
            }
            finished[server] += 1;
            let waiting = farm.present(server);
            let moment =
                Moment { now_ns: at_ns, finished: finished[server], waiting, is_busy: waiting > 0, load_milli: 0 };
            if mode != Mode::Periodic && schedules[server].due(&moment).is_some() {
                report(&mut cluster, &farm, server);
                messages += if now > warm_up_ns { 1.0 } else { 0.0 };
            }
        }
        let (part, short, long) = LONG;
        let mean = if random.unit() < part { long } else { short };
        let work_ns = (random.exponential(mean * MEAN_NS) as u64).max(1);
        let job = Job { random: random.bits() as u32, ..Job::default() };
        let server = cluster.decide(&job, OUTSIDE);
        let request = Request { at_ns: now_ns, work_ns, class: 0, kind: 0 };
        cluster.rows[usize::from(server)].sent_frames += 1;
        farm.submit(now_ns, usize::from(server), request);
    }
    (sum_ns / measured / 1e6, messages / measured)
}

/// A server's report reaches the switch at once.
fn report(cluster: &mut Cluster, farm: &Farm, server: usize) {
    let row = &mut cluster.rows[server];
    row.queued_milli = farm.present(server) * 1000;
    row.acked_frames = row.sent_frames as u32;
}

fn run(effort: &Effort) -> Result<Evidence> {
    let requests = effort.of(100_000);
    let all = |mode, percent, every_ns: u64| -> Vec<Figures> {
        effort.seeds.iter().map(|seed| simulate(mode, percent, every_ns, requests, *seed)).collect()
    };
    let mean = |figures: &[Figures]| Estimate::of(figures.iter().map(|figures| figures.0));
    let messages = |figures: &[Figures]| Estimate::of(figures.iter().map(|figures| figures.1));
    let each = all(Mode::OnFinish, 0, 0);
    let [half, three_quarters, whole] = [50, 75, 100].map(|percent| all(Mode::KFinish, percent, 0));
    let second = all(Mode::Periodic, 0, 1_000_000_000);
    let rate = LOAD * SERVERS as f64 / MEAN_NS;
    let equal_ns = SERVERS as f64 / rate / messages(&three_quarters).mean;
    let equal = all(Mode::Periodic, 0, equal_ns as u64);
    let mut table = Table::new("8 servers, load 0.95", &["reports", "messages per request", "mean response ms"]);
    let equal_name = "periodic, as many messages as K = 75";
    for (name, figures) in [
        ("update-on-finish", &each),
        ("K = 50", &half),
        ("K = 75", &three_quarters),
        ("K = 100", &whole),
        ("periodic, 1 s", &second),
        (equal_name, &equal),
    ] {
        let cell = |estimate: Estimate, digits: usize| format!("{:.digits$}", estimate.mean);
        table.row([name.to_owned(), cell(messages(figures), 2), cell(mean(figures), 0)]);
    }
    let ratio = |base: &[Figures]| Estimate::of(three_quarters.iter().zip(base).map(|(k, base)| k.0 / base.0));
    let saved = three_quarters.iter().zip(&each).map(|(k, each)| (1.0 - k.1 / each.1) * 100.0);
    let periodic = Published { says: "balance better than with periodic reports", figure: None, source: SOURCE };
    let base = Finding {
        what: "messages saved by K-percents-finish, K = 75, against update-on-finish",
        published: Published { says: "at least 50 % fewer", figure: Some(50.0), source: SOURCE },
        ours: Estimate::of(saved),
        unit: "%",
        direction: Bound::Above(0.0),
        size: Some(Bound::AtLeast(50.0)),
        differs: "K saves what is outstanding: one report for each K percent of it. At low load about one request is \
                  outstanding and there is little to save; the claim is one about busy servers.",
    };
    let findings = vec![
        base.clone(),
        Finding {
            what: "mean response time with K = 75 over that with update-on-finish",
            published: Published { says: "the same balance", figure: Some(1.0), source: SOURCE },
            ours: ratio(&each),
            unit: "",
            direction: Bound::AtMost(1.25),
            size: Some(Bound::AtMost(1.25)),
            differs: "",
        },
        Finding {
            what: "mean response time with K = 75 over that with reports each second",
            published: periodic,
            ours: ratio(&second),
            unit: "",
            direction: Bound::Below(1.0),
            size: None,
            differs: "",
        },
        Finding {
            what: "mean response time with K = 75 over that with as many periodic reports",
            published: periodic,
            ours: ratio(&equal),
            unit: "",
            direction: Bound::Below(1.0),
            size: None,
            differs: "The harder comparison, which the source does not make.",
        },
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

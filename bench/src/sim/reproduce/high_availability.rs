//! E16: how long a cluster sends to a node that is gone or stuck (heartbeat, fake and mon; KIEE 2000.07d).

use anyhow::Result;
use dataplane_common::load::{STALE_AFTER_INTERVALS, valid_for_ns};
use dataplane_common::policy::{Job, PolicyKind};
use dataplane_common::tuning::Tuning;

use super::super::random::{Random, stream};
use super::super::statistics::Estimate;
use super::board::{Cluster, OUTSIDE};
use super::dss::detected_s;
use super::finding::{Bound, Evidence, Finding, Published, Table};
use super::{Effort, Experiment};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    id: "E16",
    name: "high-availability",
    systems: &["S13 heartbeat, fake and mon"],
    title: "time until nothing is sent any more to a node that died, and to one whose worker hangs",
    assumptions: &[
        "Heartbeats are the load reports, good for 5 intervals: 2 s and 10 s, the defaults of the year 2000, and 10 and 50 ms. \
         Two nodes, least-connections, the one that dies always the better; it dies anywhere between two reports.",
        "A worker that hangs lets its node report as before. What finds it is the maximum response time of policy dss, \
         which does what mon did: 5 ms, plans each 0.2 ms, requests each 0.1 ms.",
        "Takeover of an address (fake) is not simulated: the dataplane has no address of its own to take over, and leaves that \
         to the router or VRRP in front.",
    ],
    run,
};

/// Seconds from death to the last request that is sent there.
fn noticed_s(interval_us: u32, random: &mut Random) -> f64 {
    let mut cluster = Cluster::new(PolicyKind::LeastConnections, Tuning::DEFAULT, &[1000; 2]);
    cluster.here.queued_milli = u32::MAX;
    cluster.rows[1].queued_milli = 1_000_000;
    let interval_ns = u64::from(interval_us) * 1000;
    let dies_ns = interval_ns + random.below(interval_ns);
    let gap_ns = (interval_ns / 1000).max(1);
    let (mut now_ns, mut last_ns, mut reported_ns) = (interval_ns, dies_ns, interval_ns);
    while now_ns < dies_ns + 2 * STALE_AFTER_INTERVALS * interval_ns {
        // The node reports while it lives; the other one always.
        while reported_ns <= now_ns {
            for (node, row) in cluster.rows.iter_mut().enumerate() {
                if node == 1 || reported_ns <= dies_ns {
                    row.valid_until_ns = reported_ns + valid_for_ns(interval_us);
                }
            }
            reported_ns += interval_ns;
        }
        cluster.now_ns = now_ns;
        if now_ns > dies_ns && cluster.decide(&Job::default(), OUTSIDE) == 0 {
            last_ns = now_ns;
        }
        now_ns += gap_ns;
    }
    (last_ns - dies_ns) as f64 / 1e9
}

fn run(effort: &Effort) -> Result<Evidence> {
    let trials = effort.of(50);
    let worst = |time_s: &dyn Fn(&mut Random) -> f64| {
        Estimate::of(effort.seeds.iter().map(|seed| {
            let mut random = stream(*seed, 900);
            (0..trials).map(|_| time_s(&mut random)).fold(0.0, f64::max)
        }))
    };
    // Reports promise at most one second: the old heartbeat is scaled.
    let old = worst(&|random| 2.0 * noticed_s(1_000_000, random));
    let new = worst(&|random| noticed_s(10_000, random));
    let hang = worst(&|random| {
        let tuning = Tuning { max_response_ns: 5_000_000, plan_ns: 200_000, ..Tuning::DEFAULT };
        detected_s(tuning, 100_000, random)
    });
    let mut table = Table::new("longest time over all trials", &["what", "s"]);
    table.row(["node dies, heartbeat 2 s".to_owned(), format!("{:.3}", old.mean)]);
    table.row(["node dies, heartbeat 10 ms".to_owned(), format!("{:.4}", new.mean)]);
    table.row(["worker hangs, 5 ms".to_owned(), format!("{:.4}", hang.mean)]);
    let source = "KIEE 2000.07d, 2962-2964, abstract; defaults of Linux-HA heartbeat";
    let says = "faults are detected and diagnosed so that little is lost (no figure)";
    let base = Finding {
        what: "longest time that a dead node is sent to, heartbeat 10 ms",
        published: Published { says, figure: None, source },
        ours: new,
        unit: "s",
        direction: Bound::Below(old.mean),
        size: Some(Bound::AtMost(0.065)),
        differs: "The mark is interval + dead time + 5 ms of this setting.",
    };
    let findings = vec![
        base.clone(),
        Finding {
            what: "longest time that a dead node is sent to, heartbeat 2 s",
            ours: old,
            direction: Bound::Above(new.mean),
            size: Some(Bound::AtMost(12.005)),
            differs: "Reports promise at most 1 s; the time is that with 1 s, doubled.",
            ..base.clone()
        },
        Finding {
            what: "longest time that a node with a hanging worker is sent to",
            ours: hang,
            direction: Bound::Below(1.0),
            size: Some(Bound::AtMost(0.006)),
            differs: "",
            ..base
        },
    ];
    Ok(Evidence { findings, tables: vec![table] })
}

//! What a packet takes from the generator to a worker and back, and what it takes to wake the worker: measured with packets
//! that have no work, one at a time, at a node that does nothing else.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde::Serialize;

use crate::demo::setup::Setup;
use crate::interrupt::Interrupt;
use crate::peers;
use crate::topology::{Cluster, NodeSettings};
use crate::traffic::{GeneratorPlan, Kind, Report, Workload, session};

/// The node that answers.
const NODE: u16 = 1;
/// Packets per second: so few that each finds the worker idle and, unless it may not sleep, asleep.
const RATE: f64 = 500.0;
/// Measured time of each run.
const MEASURED: Duration = Duration::from_secs(2);
/// Time before it.
const WARM_UP: Duration = Duration::from_millis(200);
/// How long a worker that is not to sleep looks for packets: nearly all gaps are shorter.
const AWAKE: Duration = Duration::from_millis(20);
/// The generator stops waiting for packets when none has come for this long.
const QUIET: Duration = Duration::from_millis(300);

/// The way of a packet, in ns, medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Way {
    /// From the departure at the generator to the arrival there, less the time of the worker.
    pub path_ns: f64,
    /// What a packet takes longer when it has to wake the worker.
    pub wake_ns: f64,
    /// How long an idle worker looks for packets before it sleeps.
    pub spin_ns: u32,
}

impl Way {
    /// For people.
    pub fn line(&self) -> String {
        format!(
            "way from the generator to a worker and back {:.1} us; waking a worker that has slept (idle for {} us) {:.1} us",
            self.path_ns / 1e3,
            self.spin_ns / 1000,
            self.wake_ns / 1e3
        )
    }
}

/// Measures it at node 1, which must not run.
///
/// # Errors
/// The node or the generator fails, nothing comes back, or this process was interrupted.
pub fn measure(cluster: &mut Cluster, setup: &Setup, interrupt: &Interrupt) -> Result<Way> {
    let usual = setup.node_settings(NODE, "local");
    let spin_ns = u32::try_from(usual.spin.as_nanos())?;
    let awake = probe(cluster, setup, &NodeSettings { spin: AWAKE, ..usual.clone() }, interrupt)?;
    let asleep = probe(cluster, setup, &usual, interrupt)?;
    Ok(Way {
        path_ns: (awake.answer_ns - awake.worker_ns).max(0.0),
        wake_ns: (asleep.answer_ns - awake.answer_ns).max(0.0),
        spin_ns,
    })
}

/// What one run gave.
struct Probe {
    /// Median time from departure to arrival, ns.
    answer_ns: f64,
    /// Mean time of the worker on a packet, ns.
    worker_ns: f64,
}

fn probe(cluster: &mut Cluster, setup: &Setup, settings: &NodeSettings, interrupt: &Interrupt) -> Result<Probe> {
    cluster.start(NODE, settings, interrupt)?;
    let plan =
        GeneratorPlan { workload: workload(setup), ports: vec![cluster.plan().port(NODE)], quiet: QUIET, late: None };
    let report: Report = session::run(cluster, &peers::own_program()?, &plan, interrupt, |_| {})?;
    let status = cluster.status(NODE)?;
    cluster.stop(NODE)?;
    ensure!(report.latency.count() > 0, "no packet without work came back from node {NODE}");
    let (outside_ns, packets) = status.outside();
    let answer_ns = report.latency.quantile_ns(0.5).saturating_sub(report.lag.quantile_ns(0.5)) as f64;
    let worker_ns = (outside_ns + status.busy_ns()) as f64 / packets.max(1) as f64;
    Ok(Probe { answer_ns, worker_ns })
}

fn workload(setup: &Setup) -> Workload {
    Workload {
        kinds: vec![Kind::without_work()],
        node_weights: vec![1.0],
        rate_per_s: RATE,
        flows: 1,
        burst: None,
        frame_bytes: setup.frame_bytes,
        warm_up: WARM_UP,
        measured: MEASURED,
        seed: setup.seed,
    }
}

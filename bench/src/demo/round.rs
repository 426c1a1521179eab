//! One run of one policy: nodes up, traffic, everything quiet, accounts, nodes down.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::accounts::{Interconnect, Packets, Snapshot};
use super::setup::Setup;
use crate::chaos::{Chaos, Tally};
use crate::cpu::{CpuShares, CpuTimes};
use crate::interrupt::{Interrupt, Interrupted};
use crate::topology::Cluster;
use crate::traffic::{Event, GeneratorPlan, Report, session};

/// The generator stops waiting for packets when none has come for this long.
const QUIET: Duration = Duration::from_millis(500);
/// Looks at the ledgers before an imbalance is believed: reports go on, and one may be between two counters.
const LOOKS: u32 = 20;

/// What one run gave.
pub struct Round {
    /// Number of the round.
    pub round: u32,
    /// What the generator measured.
    pub report: Report,
    /// Where its packets ended.
    pub packets: Packets,
    /// What the nodes sent each other.
    pub interconnect: Interconnect,
    /// Share of the sending time that each node's workers were busy.
    pub busy: Vec<f64>,
    /// Who used the CPUs meanwhile.
    pub cpu: CpuShares,
    /// What happened to frames on the links; zeros without boxes in them.
    pub cables: Tally,
    /// The cluster at rest, after the run.
    pub end: Snapshot,
}

/// As [`run`], and once more if it fails: on a busy machine a node may not be ready in time, and a long measurement should
/// not end of it. What failed first is said on standard error.
///
/// # Errors
/// As [`run`], the second time; an interrupt at once.
pub fn run_again(
    cluster: &mut Cluster,
    setup: &Setup,
    policy: &str,
    round: u32,
    interrupt: &Interrupt,
) -> Result<Round> {
    match run(cluster, setup, policy, round, interrupt, |_| {}) {
        Err(error) if !error.is::<Interrupted>() => {
            eprintln!("{policy}: once more, because: {error:#}");
            cluster.stop_all()?;
            run(cluster, setup, policy, round, interrupt, |_| {})
        }
        done => done,
    }
}

/// Runs `policy` once in `cluster`, whose nodes do not run yet, and stops the nodes.
///
/// # Errors
/// A node or the generator fails, or this process was interrupted.
pub fn run(
    cluster: &mut Cluster,
    setup: &Setup,
    policy: &str,
    round: u32,
    interrupt: &Interrupt,
    on_progress: impl FnMut(&Event),
) -> Result<Round> {
    for node in cluster.plan().nodes() {
        cluster.start(node, &setup.node_settings(node, policy), interrupt)?;
    }
    cluster.wait_for_peers(interrupt)?;
    let round = measure(cluster, setup, round, interrupt, on_progress)?;
    cluster.stop_all()?;
    Ok(round)
}

fn measure(
    cluster: &mut Cluster,
    setup: &Setup,
    round: u32,
    interrupt: &Interrupt,
    on_progress: impl FnMut(&Event),
) -> Result<Round> {
    let before = Snapshot::take(cluster)?;
    let cables_before = cluster.tally_all()?;
    if let Some(chaos) = &setup.chaos {
        cluster.impair_all(chaos)?;
    }
    let plan = generator_plan(cluster, setup, round)?;
    let program = std::env::current_exe().context("cannot find out where this program lies")?;
    let cpu_before = CpuTimes::take(&cluster.pids())?;
    let report = session::run(cluster, Path::new(&program), &plan, interrupt, on_progress)?;
    let cpu = cpu_before.shares_until(&CpuTimes::take(&cluster.pids())?, report.cpu_ns);
    let end = at_rest(cluster, interrupt)?;
    cluster.impair_all(&Chaos::NONE)?;
    let cables = cluster.tally_all()?.since(&cables_before);
    let busy = before
        .statuses
        .iter()
        .zip(&end.statuses)
        .map(|(before, after)| (after.busy_ns() - before.busy_ns()) as f64 / report.sending_ns as f64);
    Ok(Round {
        round,
        packets: Packets::new(&report.counts, &before, &end)?,
        interconnect: Interconnect::new((setup.frame_bytes, setup.route_bytes()), &before, &end),
        busy: busy.collect(),
        cpu,
        cables,
        report,
        end,
    })
}

/// The generator's orders for a round.
///
/// # Errors
/// As [`Setup::workload`].
pub fn generator_plan(cluster: &Cluster, setup: &Setup, round: u32) -> Result<GeneratorPlan> {
    let ports = cluster.plan().nodes().map(|node| cluster.plan().port(node)).collect();
    Ok(GeneratorPlan { workload: setup.workload(round)?, ports, quiet: QUIET, late: None })
}

/// Reads the cluster when every ledger balances, or after enough looks as it is then.
fn at_rest(cluster: &Cluster, interrupt: &Interrupt) -> Result<Snapshot> {
    let mut snapshot = Snapshot::take(cluster)?;
    for _ in 1..LOOKS {
        if snapshot.balances() {
            break;
        }
        interrupt.sleep(Duration::from_millis(5))?;
        snapshot = Snapshot::take(cluster)?;
    }
    Ok(snapshot)
}

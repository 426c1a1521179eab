//! One packet at a time in a closed loop: sent when the answer to the one before is there. It runs as a process of its own in the
//! generator's namespace, which sleeps while it waits, so that a node may have its CPU.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dataplane_user::functions::Builtin;
use dataplane_user::worker::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::command;
use crate::packet::{Probe, Recipe, Reply};
use crate::peers;
use crate::topology::{Cluster, Host, PortPlan};
use crate::traffic::Distribution;
use crate::traffic::wire::Wire;

/// Real-time priority: it sleeps nearly all the time, and must not wait for a node's work when it wakes.
const PRIORITY: &str = "20";
/// An answer that takes longer counts as lost.
const PATIENCE: Duration = Duration::from_millis(200);
/// So many lost ones end the run: something is wrong, and each costs the whole of [`PATIENCE`].
const MOST_LOST: u64 = 20;

/// What to send.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Where to.
    pub port: PortPlan,
    /// Number of the flow: the UDP source port, which decides where the packets are computed.
    pub flow: u16,
    /// Length of the frames without frame check sequence.
    pub frame_bytes: usize,
    /// Packets that are sent first and not measured.
    pub warm_up: u32,
    /// Packets that are measured.
    pub count: u32,
}

/// What came back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answers {
    /// Packets sent, those that are not measured included.
    pub sent: u64,
    /// Packets without an answer in time.
    pub lost: u64,
    /// From the call that sends to the arrival of the answer at the generator's XDP program, of the measured ones.
    pub round_trip: Distribution,
}

/// Sends a plan and prints the answers as JSON; the body of the process.
///
/// # Errors
/// The plan is impossible, the sockets cannot be opened, the kernel refuses to send, or too many packets are lost.
pub fn run(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let plan: Plan = serde_json::from_str(&text).with_context(|| format!("no plan: {}", path.display()))?;
    println!("{}", serde_json::to_string(&send(&plan)?)?);
    Ok(())
}

fn send(plan: &Plan) -> Result<Answers> {
    let recipe = Recipe::to_port(&plan.port, plan.flow, Builtin::Forward.type_id());
    let template = recipe.with_frame_bytes(plan.frame_bytes)?.template()?;
    let mut wire = Wire::open(std::slice::from_ref(&plan.port.generator_interface))?;
    let mut answers = Answers::default();
    for number in 0..plan.warm_up + plan.count {
        let sequence = u64::from(number);
        let probe = Probe { sequence, scheduled_ns: 0 };
        wire.prepare(template.frame_bytes(), |frame| template.write(&probe, frame))?;
        let start_ns = monotonic_ns();
        wire.send(0)?;
        answers.sent += 1;
        match wait(&mut wire, sequence, start_ns)? {
            Some(arrival_ns) if number >= plan.warm_up => {
                answers.round_trip.record(arrival_ns.saturating_sub(start_ns));
            }
            Some(_) => {}
            None => answers.lost += 1,
        }
        ensure!(answers.lost < MOST_LOST, "{MOST_LOST} of {} packets were not answered", answers.sent);
    }
    Ok(answers)
}

/// Waits for the answer to packet `sequence`; when it arrived, or `None` without one in time.
fn wait(wire: &mut Wire, sequence: u64, start_ns: u64) -> Result<Option<u64>> {
    let mut arrived = None;
    loop {
        wire.receive(|frame| {
            if Reply::parse(frame.bytes).is_some_and(|reply| reply.is_intact && reply.probe.sequence == sequence) {
                arrived = frame.arrival_ns;
            }
        });
        let waited = Duration::from_nanos(monotonic_ns().saturating_sub(start_ns));
        if arrived.is_some() || waited >= PATIENCE {
            return Ok(arrived);
        }
        wire.wait(PATIENCE - waited)?;
    }
}

/// Runs a plan in the generator's namespace on `cpu`, and returns what came back.
///
/// # Errors
/// The process cannot be started or fails: the error shows what it said.
pub fn ask(cluster: &Cluster, plan: &Plan, cpu: usize) -> Result<Answers> {
    let file = cluster.directory().join("ping.json");
    fs::write(&file, serde_json::to_vec(plan)?).with_context(|| format!("cannot write {}", file.display()))?;
    let mut ping = cluster.enter_bound(Host::Generator, "chrt");
    ping.args(["--fifo", PRIORITY, "taskset", "--cpu-list", &cpu.to_string()]);
    ping.arg(peers::own_program()?).arg("ping").arg(&file).stdin(Stdio::null());
    let text = command::output(&mut ping)?;
    serde_json::from_str(&text).with_context(|| format!("not understood: output of {}", command::line(&ping)))
}

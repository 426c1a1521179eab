//! Sends a schedule over AF_XDP and takes what comes back: `dataplane-bench generate`, a process in the generator's
//! namespace that prints [`Event`]s, one JSON object a line.
//!
//! One thread does both directions. Nothing is lost by that: arrival times are stamped by an XDP program in the kernel,
//! so it does not matter when the frame is looked at, and sockets and packet memory need no lock. The thread receives
//! only while the next packet is not due for a while, so receiving does not delay sending.

use std::io::{self, Write as _};
use std::num::NonZeroU64;
use std::time::Duration;

use anyhow::{Context, Result};
use dataplane_user::functions::Builtin;
use dataplane_user::worker::monotonic_ns;
use rustix::thread::{clock_nanosleep_absolute, set_current_timer_slack};
use rustix::time::{ClockId, Timespec, clock_gettime};
use serde::{Deserialize, Serialize};

use super::account::{Account, Report, Returned};
use super::schedule::{Arrival, Schedule, Workload};
use super::verify::Samples;
use super::wire::{Received, Wire};
use crate::packet::{Probe, Recipe, Reply, Template};
use crate::topology::PortPlan;

/// From the start of the program's run to time 0 of the schedule.
const LEAD: Duration = Duration::from_millis(20);
/// The socket is looked at only if the next packet is not due for this long.
const RECEIVE_GAP_NS: u64 = 40_000;
/// The thread wakes up this long before a packet is due and spins for the rest: waking up takes about as long.
const EARLY_NS: u64 = 15_000;
/// Pause between two looks at the sockets when nothing is to be sent.
const IDLE: Duration = Duration::from_micros(500);
/// Time between two progress lines.
const PROGRESS: Duration = Duration::from_millis(250);

/// What the generator is told to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GeneratorPlan {
    /// Traffic.
    pub workload: Workload,
    /// Ports, in the order of the workload's node weights.
    pub ports: Vec<PortPlan>,
    /// The run ends when nothing has come back for this long after the last packet.
    pub quiet: Duration,
    /// Latency beyond which a packet is late; without it nobody notes when packets are lost or late.
    pub late: Option<Duration>,
}

/// A line of the generator's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Where it is.
    Progress {
        /// Packets sent.
        sent: u64,
        /// Packets that came back.
        received: u64,
        /// Time of the schedule that has passed, ns.
        elapsed_ns: u64,
    },
    /// The outcome: the last line.
    Report(Box<Report>),
}

impl Event {
    /// Writes it to the standard output, as [`super::session`] reads it.
    ///
    /// # Errors
    /// Nobody reads the output any more.
    pub fn print(&self) -> Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut output = io::stdout().lock();
        output.write_all(&line).and_then(|()| output.flush()).context("nobody reads the output")
    }
}

/// Runs a plan to its end and hands over the events; the last one is the report.
///
/// # Errors
/// The plan is impossible, the sockets cannot be opened, the kernel refuses to send, or `on_event` fails.
pub fn run(plan: &GeneratorPlan, on_event: &mut dyn FnMut(Event) -> Result<()>) -> Result<()> {
    // Without this the kernel may wake a sleeper 50 µs late on purpose.
    set_current_timer_slack(NonZeroU64::new(1))?;
    let schedule = Schedule::new(&plan.workload)?;
    let interfaces = plan.ports.iter().map(|port| port.generator_interface.clone()).collect::<Vec<_>>();
    let frames = Frames::new(plan)?;
    let wire = Wire::open(&interfaces)?;
    let start_ns = monotonic_ns() + LEAD.as_nanos() as u64;
    let account = Account::new(&plan.workload, &schedule, start_ns);
    let account = if let Some(late) = plan.late { account.watch(late) } else { account };
    let samples = Samples::new(plan.workload.kinds.len());
    let mut generator = Generator {
        plan,
        schedule: &schedule,
        frames,
        wire,
        account,
        samples,
        start_ns,
        last_progress_ns: 0,
        on_event,
    };
    generator.send_all()?;
    generator.drain();
    let report = generator.close()?;
    on_event(Event::Report(Box::new(report)))
}

/// Every frame that is sent, laid out: by kind, node and flow.
struct Frames {
    templates: Vec<Template>,
    functions: Vec<Builtin>,
    nodes: usize,
    flows: usize,
}

impl Frames {
    fn new(plan: &GeneratorPlan) -> Result<Self> {
        let workload = &plan.workload;
        let mut templates = Vec::new();
        let mut functions = Vec::new();
        for kind in &workload.kinds {
            let function = kind.builtin()?;
            functions.push(function);
            for port in &plan.ports {
                for flow in 0..workload.flows {
                    let recipe = Recipe {
                        operand: kind.operand,
                        result_bytes: function.result_bytes(),
                        ..Recipe::to_port(port, flow, function.type_id())
                    };
                    templates.push(recipe.with_frame_bytes(workload.frame_bytes)?.template()?);
                }
            }
        }
        Ok(Self { templates, functions, nodes: plan.ports.len(), flows: usize::from(workload.flows) })
    }

    fn template(&self, arrival: &Arrival) -> &Template {
        let (kind, node, flow) = (usize::from(arrival.kind), usize::from(arrival.node), usize::from(arrival.flow));
        &self.templates[(kind * self.nodes + node) * self.flows + flow]
    }
}

struct Generator<'a> {
    plan: &'a GeneratorPlan,
    schedule: &'a Schedule,
    frames: Frames,
    wire: Wire,
    account: Account<'a>,
    samples: Samples,
    start_ns: u64,
    last_progress_ns: u64,
    on_event: &'a mut dyn FnMut(Event) -> Result<()>,
}

impl Generator<'_> {
    /// Sends every packet at its time.
    fn send_all(&mut self) -> Result<()> {
        for (sequence, arrival) in self.schedule.arrivals().iter().enumerate() {
            let due_ns = self.account.due_ns(sequence);
            let template = self.frames.template(arrival);
            let probe = Probe { sequence: sequence as u64, scheduled_ns: due_ns };
            // All but the sending is done ahead of time.
            self.wire.prepare(template.frame_bytes(), |frame| template.write(&probe, frame))?;
            self.wait_until(due_ns)?;
            let now_ns = monotonic_ns();
            self.wire.send(usize::from(arrival.node))?;
            self.account.sent(sequence, now_ns);
            if self.wire.is_filling() {
                self.receive();
            }
        }
        Ok(())
    }

    /// Receives and tells progress while there is time, sleeps, and spins to the very moment.
    fn wait_until(&mut self, due_ns: u64) -> Result<()> {
        if due_ns.saturating_sub(monotonic_ns()) > RECEIVE_GAP_NS {
            self.receive();
            self.progress()?;
        }
        if due_ns.saturating_sub(monotonic_ns()) > EARLY_NS {
            sleep_until(due_ns - EARLY_NS)?;
        }
        while monotonic_ns() < due_ns {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Receives until everything is back or nothing more comes.
    fn drain(&mut self) {
        let quiet_ns = self.plan.quiet.as_nanos() as u64;
        let mut last_ns = monotonic_ns();
        while self.account.counts().lost() > 0 && monotonic_ns() - last_ns < quiet_ns {
            if self.receive() > 0 {
                last_ns = monotonic_ns();
            } else {
                std::thread::sleep(IDLE);
            }
        }
        // A copy comes right behind its original, unless something went wrong on the way.
        let wait_ns = if self.plan.late.is_some() { quiet_ns } else { IDLE.as_nanos() as u64 };
        let until_ns = monotonic_ns() + wait_ns;
        while monotonic_ns() < until_ns {
            std::thread::sleep(IDLE);
            self.receive();
        }
    }

    fn receive(&mut self) -> usize {
        let Self { schedule, frames, wire, account, samples, plan, .. } = self;
        wire.receive(|received| take(received, schedule, frames, account, samples, &plan.workload))
    }

    fn progress(&mut self) -> Result<()> {
        let now_ns = monotonic_ns();
        if now_ns - self.last_progress_ns < PROGRESS.as_nanos() as u64 {
            return Ok(());
        }
        self.last_progress_ns = now_ns;
        let counts = self.account.counts();
        let elapsed_ns = now_ns.saturating_sub(self.start_ns);
        (self.on_event)(Event::Progress { sent: counts.sent, received: counts.received, elapsed_ns })
    }

    /// Checks the sample, after everything is back.
    fn close(mut self) -> Result<Report> {
        for is_right in std::mem::take(&mut self.samples).check() {
            self.account.checked(is_right);
        }
        let dropped = self.wire.dropped()?;
        anyhow::ensure!(dropped == 0, "the generator itself lost {dropped} frames: its sockets were full");
        let mut report = self.account.close();
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        report.cpu_ns = cpu.tv_sec as u64 * 1_000_000_000 + cpu.tv_nsec as u64;
        Ok(report)
    }
}

/// Books a frame that came back.
fn take(
    received: &Received<'_>,
    schedule: &Schedule,
    frames: &Frames,
    account: &mut Account<'_>,
    samples: &mut Samples,
    workload: &Workload,
) {
    // To a group: the kernels of the namespaces introduce themselves to each other (ARP, IPv6). A result has one receiver.
    if received.bytes.first().is_some_and(|first| first & 1 != 0) {
        return;
    }
    let (Some(arrival_ns), Some(reply)) = (received.arrival_ns, Reply::parse(received.bytes)) else {
        account.foreign();
        return;
    };
    let sequence = reply.probe.sequence;
    // Ports are few.
    let returned = Returned { sequence, node: received.port as u16, arrival_ns, is_intact: reply.is_intact };
    if account.returned(&returned) {
        let kind = usize::from(schedule.arrivals()[sequence as usize].kind);
        let operand = workload.kinds[kind].operand;
        samples.offer(sequence, kind, frames.functions[kind], operand, reply.payload, reply.result);
    }
}

/// Sleeps until a moment of the monotonic clock, ns.
fn sleep_until(ns: u64) -> Result<()> {
    let time = Timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as _ };
    clock_nanosleep_absolute(ClockId::Monotonic, &time).context("cannot sleep")
}

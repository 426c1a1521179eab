//! The dataplane as a contender: a real node in its namespace, beside a next node that is played.
//!
//! The next node only reports: always idle, and what it acknowledges is what its end of the link has counted. So the tested
//! node decides as it always does, and no second node takes part in the use of the CPUs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use dataplane_common::reason::Reason;
use dataplane_common::wire::anep::UDP_PORT;
use dataplane_common::wire::link::{Carried, Header, Kind, NO_FLOW, Report, emit_ethernet};
use dataplane_user::functions::Builtin;
use dataplane_user::sys::{NetDevice, PacketSocket};
use dataplane_user::worker::monotonic_ns;

use super::contender::{Running, Settings};
use super::lab::{Lab, NEXT, TESTED, inside};
use crate::generate::FrameSpec;
use crate::interrupt::Interrupt;
use crate::status::Status;
use crate::topology::{Host, NodeSettings};

/// A UDP source port for the one flow.
const SENDER_PORT: u16 = 40_000;
/// Computation that a redirected packet asks for: more than a redirect costs, so that one can pay.
const REDIRECTED_WORK_NS: u32 = 20_000;
/// Work that keeps the tested node's worker occupied, so that every redirect pays: packets, and ns of each. All together
/// less than 2^32 ns, which is as much as a load can say.
const OCCUPATION: (u32, u32) = (80, 49_000_000);
/// Time between two reports of the next node.
const REPORT_INTERVAL: Duration = Duration::from_millis(1);
/// Time within which it promises the next one: longer than any pause of its thread.
const PROMISE_US: u32 = 200_000;
/// How long the tested node may take to hear of the next node, and of its own work.
const PATIENCE: Duration = Duration::from_secs(5);
/// Share of the frames that must have gone the way that is measured.
const PURITY: f64 = 0.99;

/// Which way the packets are to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// To the next node.
    Redirect,
    /// To the worker here.
    Local,
}

fn spec(lab: &Lab, size: usize, function: Builtin) -> FrameSpec {
    let port = lab.cluster.plan().port(TESTED);
    FrameSpec {
        size,
        macs: (port.generator_mac, port.node_mac),
        addresses: (port.generator_ipv4, port.node_ipv4),
        ports: (SENDER_PORT, UDP_PORT),
        type_id: function.type_id(),
        operand: None,
        is_sound: true,
    }
}

/// A packet that costs next to nothing and comes back.
///
/// # Errors
/// The size is not one of Ethernet's.
pub fn answered_frame(lab: &Lab, size: usize) -> Result<Vec<u8>> {
    spec(lab, size, Builtin::Forward).build()
}

/// The same with a wrong UDP checksum: decided about, received, checked, and dropped.
///
/// # Errors
/// The size is not one of Ethernet's.
pub fn checked_frame(lab: &Lab, size: usize) -> Result<Vec<u8>> {
    FrameSpec { is_sound: false, ..spec(lab, size, Builtin::Forward) }.build()
}

/// A packet that is worth a redirect.
///
/// # Errors
/// The size is not one of Ethernet's.
pub fn redirected_frame(lab: &Lab, size: usize) -> Result<Vec<u8>> {
    FrameSpec { operand: Some(REDIRECTED_WORK_NS), ..spec(lab, size, Builtin::Hold) }.build()
}

struct Node {
    task: Task,
    pids: Vec<u32>,
    next: NextNode,
}

/// Starts the tested node under `policy` and the played one beside it.
///
/// # Errors
/// The node does not start, or does not come to see the next one.
pub fn start(
    lab: &mut Lab,
    settings: &Settings,
    policy: &str,
    task: Task,
    interrupt: &Interrupt,
) -> Result<Box<dyn Running>> {
    let mut node = NodeSettings::new(policy, settings.cpu);
    node.extra = [Builtin::Forward, Builtin::Hold]
        .map(|function| format!("[[function]]\nname = \"{}\"\nlimit = \"1s\"\n", function.name()))
        .join("\n");
    lab.cluster.start(TESTED, &node, interrupt)?;
    let started = occupy_and_report(lab, task, interrupt);
    match started {
        Ok(next) => Ok(Box::new(Node { task, pids: lab.cluster.pids(), next })),
        Err(error) => {
            // The failure to start is what is told.
            let _ = lab.cluster.stop(TESTED);
            Err(error)
        }
    }
}

fn occupy_and_report(lab: &Lab, task: Task, interrupt: &Interrupt) -> Result<NextNode> {
    if task == Task::Redirect {
        occupy(lab)?;
        wait_for(lab, interrupt, "its own work", |status| {
            status.workers.iter().map(|worker| worker.backlog_ns).sum::<u64>()
                > u64::from(OCCUPATION.0 / 2 * OCCUPATION.1)
        })?;
    }
    let next = NextNode::start(lab)?;
    wait_for(lab, interrupt, "the next node", |status| {
        status.peers.iter().any(|peer| peer.id == NEXT && peer.is_alive())
    })?;
    Ok(next)
}

/// Gives the tested node's worker work that occupies it without using the CPU. Nobody else is there yet to take it.
fn occupy(lab: &Lab) -> Result<()> {
    let interface = lab.cluster.plan().port(TESTED).generator_interface;
    let frame = FrameSpec { operand: Some(OCCUPATION.1), ..spec(lab, crate::generate::frame::MIN_SIZE, Builtin::Hold) };
    let frame = frame.build()?;
    inside(&lab.cluster, Host::Generator, || {
        let device = NetDevice::find(&interface).with_context(|| format!("interface {interface}"))?;
        let socket = PacketSocket::open().context("packet socket")?;
        for _ in 0..OCCUPATION.0 {
            socket.send(device.index, &frame).with_context(|| format!("cannot send out of {interface}"))?;
        }
        Ok(())
    })
}

fn wait_for(lab: &Lab, interrupt: &Interrupt, what: &str, is_seen: impl Fn(&Status) -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_seen(&lab.cluster.status(TESTED)?) {
        ensure!(Instant::now() < deadline, "the node did not see {what} within {PATIENCE:?}");
        interrupt.sleep(Duration::from_millis(2))?;
    }
    Ok(())
}

impl Running for Node {
    fn pids(&self) -> Vec<u32> {
        self.pids.clone()
    }

    fn stop(mut self: Box<Self>, lab: &mut Lab) -> Result<()> {
        let status = lab.cluster.status(TESTED);
        let next = self.next.join();
        lab.cluster.stop(TESTED)?;
        next?;
        check_purity(&status?, self.task)
    }
}

/// Whether the packets went the way whose rate was measured: a rate of something else would be worth nothing.
fn check_purity(status: &Status, task: Task) -> Result<()> {
    let (wanted, what) = match task {
        Task::Redirect => (Reason::Redirected, "redirected"),
        Task::Local => (Reason::LocalQueued, "kept"),
    };
    let (went, seen) = (status.count(wanted), status.count(Reason::SeenPort));
    let share = went as f64 / seen.max(1) as f64;
    if share < PURITY {
        let others = Reason::ALL.iter().filter(|reason| **reason != wanted && status.count(**reason) > seen / 1000);
        let others = others.map(|reason| format!("{} {}", reason.name(), status.count(*reason)));
        bail!("only {went} of {seen} packets were {what}: {}", others.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// The played node.
struct NextNode {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl NextNode {
    fn start(lab: &Lab) -> Result<Self> {
        let plan = lab.cluster.plan();
        let (ours, tested) = (plan.link(NEXT, TESTED), plan.link(TESTED, NEXT));
        let onward = lab.onward_receiver();
        let (device, socket) = inside(&lab.cluster, Host::Node(NEXT), || {
            let device = NetDevice::find(&ours.interface).with_context(|| format!("interface {}", ours.interface))?;
            Ok((device, PacketSocket::open().context("packet socket")?))
        })?;
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        let epoch = (monotonic_ns() >> 20) as u32;
        let thread = thread::spawn(move || {
            let mut sequence = 0;
            while !flag.load(Ordering::Relaxed) {
                let frame = report(sequence, epoch, onward.last_forward()?, tested.mac, ours.mac);
                // A full queue costs one report.
                let _ = socket.send(device.index, &frame);
                sequence = sequence.wrapping_add(1);
                thread::sleep(REPORT_INTERVAL);
            }
            Ok(())
        });
        Ok(Self { is_over, thread: Some(thread) })
    }

    fn join(&mut self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        match self.thread.take() {
            Some(thread) => thread.join().map_err(|_| anyhow!("BUG: the played node panicked"))?,
            None => Ok(()),
        }
    }
}

impl Drop for NextNode {
    fn drop(&mut self) {
        // A failure was told by `stop`, or nobody asked.
        let _ = self.join();
    }
}

/// A report of an idle node that has received everything up to `last` (epoch, position).
fn report(sequence: u32, epoch: u32, last: (u32, u32), to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let header = Header {
        kind: Kind::Report,
        hops: 1,
        source: NEXT,
        destination: TESTED,
        epoch,
        sequence,
        charged_ns: 0,
        position_ns: 0,
        length: 0,
        type_id: 0,
        port: 0,
        flow: NO_FLOW,
        arrival_ns: 0,
        flow_sequence: 0,
        load: Carried {
            // Microseconds of 1024 ns, as the wire has them.
            stamp_us: (monotonic_ns() >> 10) as u32,
            backlog_ns: 0,
            received_ns: last.1,
            received_epoch: last.0 as u16,
            queued: 0,
        },
        spent_ns: 0,
    };
    let report = Report { interval_us: PROMISE_US, workers: 1, ..Report::default() };
    [emit_ethernet(to, from).as_slice(), &header.emit(), &report.emit()].concat()
}

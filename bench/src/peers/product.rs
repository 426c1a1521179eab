//! The dataplane as a contender: a real node in its namespace, beside a next node that is played.
//!
//! The next node only reports: always idle, and what it acknowledges is what its end of the link has counted. So the tested
//! node decides as it always does, and no second node takes part in the use of the CPUs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use dataplane_common::load::{Here, Received};
use dataplane_common::reason::Reason;
use dataplane_common::wire::anep::UDP_PORT;
use dataplane_common::wire::ip::{ETHERNET_BYTES, ETHERTYPE_IPV4};
use dataplane_common::wire::link::{self, Header, Kind, Report, emit_ethernet};
use dataplane_common::wire::route::Route;
use dataplane_user::functions::Builtin;
use dataplane_user::sys::{NetDevice, PacketSocket};
use dataplane_user::worker::monotonic_ns;

use super::background::Background;
use super::contender::{Running, Settings};
use super::kernel;
use super::lab::{Lab, NEXT, TESTED, inside, take_cpu};
use crate::generate::FrameSpec;
use crate::generate::frame::MIN_SIZE;
use crate::interrupt::Interrupt;
use crate::status::Status;
use crate::topology::{Host, LinkEnd, NodeSettings, Scheduling};

/// A UDP source port for the one flow.
const SENDER_PORT: u16 = 40_000;
/// Computation that a redirected packet asks for: more than a redirect costs, so that one can pay.
const REDIRECTED_WORK_NS: u32 = 20_000;
/// Work of a packet that keeps the tested node's worker occupied, so that every redirect pays.
const OCCUPATION: Duration = Duration::from_millis(49);
/// So many of them wait: less than 2^32 ns all together, which is as much as a load can say.
const OCCUPATIONS: u32 = 60;
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
    /// To the kernel: they are no active packets.
    Pass,
}

/// The tested node's functions, with the order of their results.
const FUNCTIONS: [(Builtin, &str); 3] =
    [(Builtin::Forward, "none"), (Builtin::Spin, "none"), (Builtin::Hold, "affine")];

/// UDP port of the first of them for packets of the kernel's generator; the sender's is none of theirs.
const PKTGEN_PORT: u16 = 9_100;

/// A packet of the generator.
fn offered(lab: &Lab, settings: &Settings, function: Builtin) -> FrameSpec {
    let place = FUNCTIONS.iter().position(|(known, _)| *known == function).unwrap_or_default() as u16;
    let destination = if settings.by_pktgen { PKTGEN_PORT + place } else { UDP_PORT };
    spec(lab, settings.size, (function, destination))
}

fn spec(lab: &Lab, size: usize, (function, destination): (Builtin, u16)) -> FrameSpec {
    let port = lab.cluster.plan().port(TESTED);
    FrameSpec {
        size,
        macs: (port.generator_mac, port.node_mac),
        addresses: (port.generator_ipv4, port.node_ipv4),
        ports: (SENDER_PORT, destination),
        type_id: function.type_id(),
        operand: None,
        is_sound: true,
    }
}

/// A packet that costs next to nothing and comes back.
///
/// # Errors
/// The size is not one of Ethernet's.
pub fn answered_frame(lab: &Lab, settings: &Settings) -> Result<Vec<u8>> {
    offered(lab, settings, Builtin::Forward).build()
}

/// The same with a wrong UDP checksum: decided about, received, checked, and dropped.
///
/// # Errors
/// The size is not one of Ethernet's, or the kernel's generator is to send it, which makes no such packet.
pub fn checked_frame(lab: &Lab, settings: &Settings) -> Result<Vec<u8>> {
    ensure!(
        !settings.by_pktgen,
        "its packets have a wrong checksum, and pktgen sends none such: choose another --generator"
    );
    FrameSpec { is_sound: false, ..offered(lab, settings, Builtin::Forward) }.build()
}

/// A packet that is worth a redirect.
///
/// # Errors
/// The size is not one of Ethernet's.
pub fn redirected_frame(lab: &Lab, settings: &Settings) -> Result<Vec<u8>> {
    FrameSpec { operand: Some(REDIRECTED_WORK_NS), ..offered(lab, settings, Builtin::Spin) }.build()
}

struct Node {
    task: Task,
    pids: Vec<u32>,
    company: Company,
}

/// The threads that act for the rest of the cluster.
struct Company {
    occupier: Option<Background>,
    /// Packets that keep the worker occupied, so far.
    occupations: Arc<AtomicU64>,
    next_node: Background,
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
    node.extra = functions() + &profile(settings);
    node.scheduling = Scheduling::Favoured;
    // What occupies the worker is more than a node takes by default.
    node.backlog_limit = Duration::ZERO;
    lab.cluster.start(TESTED, &node, interrupt)?;
    match keep_company(lab, settings.generator_cpu, task, interrupt) {
        Ok(company) => Ok(Box::new(Node { task, pids: lab.cluster.pids(), company })),
        Err(error) => {
            // The failure to start is what is told.
            let _ = lab.cluster.stop(TESTED);
            Err(error)
        }
    }
}

/// A node in front of the kernel's forwarding.
struct Passing {
    node: Box<dyn Running>,
    forwarding: Box<dyn Running>,
}

/// Starts the tested node, and makes its kernel a router for what is none of the node's.
///
/// # Errors
/// As [`start`], or a setting is refused.
pub fn start_passing(
    lab: &mut Lab,
    settings: &Settings,
    policy: &str,
    interrupt: &Interrupt,
) -> Result<Box<dyn Running>> {
    let forwarding = kernel::start_forwarding(lab)?;
    match start(lab, settings, policy, Task::Pass, interrupt) {
        Ok(node) => Ok(Box::new(Passing { node, forwarding })),
        Err(error) => {
            // The failure to start is what is told.
            let _ = forwarding.stop(lab);
            Err(error)
        }
    }
}

impl Running for Passing {
    fn pids(&self) -> Vec<u32> {
        self.node.pids()
    }

    fn stop(self: Box<Self>, lab: &mut Lab) -> Result<()> {
        let stopped = self.node.stop(lab);
        self.forwarding.stop(lab)?;
        stopped
    }
}

/// The functions in use, as configuration: what occupies the worker stays where it arrives.
pub fn functions() -> String {
    let section = |function: Builtin, order: &str| {
        format!("[[function]]\nname = \"{}\"\nlimit = \"1s\"\norder = \"{order}\"\n", function.name())
    };
    FUNCTIONS.map(|(function, order)| section(function, order)).join("\n")
}

/// What makes packets of the kernel's generator active, if it sends; the ports are those of [`FUNCTIONS`].
pub fn profile(settings: &Settings) -> String {
    if !settings.by_pktgen {
        return String::new();
    }
    format!("[active]\npktgen_port = {PKTGEN_PORT}\npktgen_operand = {REDIRECTED_WORK_NS}\n")
}

fn keep_company(lab: &Lab, cpu: usize, task: Task, interrupt: &Interrupt) -> Result<Company> {
    let occupations = Arc::new(AtomicU64::new(0));
    let occupier = match task {
        Task::Redirect => Some(occupy(lab, cpu, Arc::clone(&occupations))?),
        Task::Local | Task::Pass => None,
    };
    if occupier.is_some() {
        let least_ns = (OCCUPATION * (OCCUPATIONS / 2)).as_nanos();
        wait_for(lab, interrupt, "its own work", |status| {
            status.workers.iter().map(|worker| u128::from(worker.backlog_ns)).sum::<u128>() > least_ns
        })?;
    }
    let next_node = play_next_node(lab, cpu, false)?;
    wait_for_next_node(lab, interrupt)?;
    Ok(Company { occupier, occupations, next_node })
}

/// Keeps the tested node's worker occupied without using the CPU, by packets that may not be sent away. They come from `cpu`,
/// where the generator is: a veth receives where the sender of the first packet is, and goes on there while packets wait.
fn occupy(lab: &Lab, cpu: usize, count: Arc<AtomicU64>) -> Result<Background> {
    let interface = lab.cluster.plan().port(TESTED).generator_interface;
    let (device, socket) = packet_socket(lab, Host::Generator, &interface)?;
    let operand = Some(OCCUPATION.as_nanos() as u32);
    let frame = FrameSpec { operand, ..spec(lab, MIN_SIZE, (Builtin::Hold, UDP_PORT)) }.build()?;
    Ok(Background::start(move |is_over| {
        take_cpu(cpu)?;
        let send = || {
            socket.send(device.index, &frame).with_context(|| format!("cannot send out of {interface}"))?;
            count.fetch_add(1, Ordering::Relaxed);
            anyhow::Ok(())
        };
        (0..OCCUPATIONS).try_for_each(|_| send())?;
        let mut due = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            due += OCCUPATION;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            // Under overload the interface's queue may be full, which costs one of them.
            let _ = send();
        }
        Ok(())
    }))
}

fn wait_for(lab: &Lab, interrupt: &Interrupt, what: &str, is_seen: impl Fn(&Status) -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_seen(&lab.cluster.status(TESTED)?) {
        ensure!(Instant::now() < deadline, "the node did not see {what} within {PATIENCE:?}");
        interrupt.sleep(Duration::from_millis(2))?;
    }
    Ok(())
}

/// Waits until the tested node sees the next one.
///
/// # Errors
/// It does not in time, or this process was interrupted.
pub(crate) fn wait_for_next_node(lab: &Lab, interrupt: &Interrupt) -> Result<()> {
    wait_for(lab, interrupt, "the next node", |status| {
        status.peers.iter().any(|peer| peer.id == NEXT && peer.is_alive())
    })
}

impl Running for Node {
    fn pids(&self) -> Vec<u32> {
        self.pids.clone()
    }

    fn stop(mut self: Box<Self>, lab: &mut Lab) -> Result<()> {
        let status = lab.cluster.status(TESTED);
        let company = self.company.next_node.end().and(self.company.occupier.as_mut().map_or(Ok(()), Background::end));
        lab.cluster.stop(TESTED)?;
        company?;
        check_purity(&status?, self.task, self.company.occupations.load(Ordering::Relaxed))
    }
}

/// Whether the packets went the way whose rate was measured: a rate of something else would be worth nothing.
fn check_purity(status: &Status, task: Task, occupations: u64) -> Result<()> {
    // What the kernels of the namespaces say to each other is no packet of ours.
    let chatter = status.count(Reason::PassNotActive);
    let (wanted, what, not_ours) = match task {
        Task::Redirect => (Reason::Redirected, "redirected", chatter + occupations),
        Task::Local => (Reason::LocalQueued, "kept", chatter),
        Task::Pass => (Reason::PassNotActive, "passed", 0),
    };
    let (went, seen) = (status.count(wanted), status.count(Reason::SeenPort).saturating_sub(not_ours));
    let share = went as f64 / seen.max(1) as f64;
    if share < PURITY {
        let others = Reason::ALL.iter().filter(|reason| **reason != wanted && status.count(**reason) > seen / 1000);
        let others = others.map(|reason| format!("{} {}", reason.name(), status.count(*reason)));
        bail!("only {went} of {seen} packets were {what}: {}", others.collect::<Vec<_>>().join(", "));
    }
    Ok(())
}

/// Plays the next node on `cpu`: reports until it is over, with `in_udp` by datagrams.
///
/// # Errors
/// A socket cannot be opened.
pub(crate) fn play_next_node(lab: &Lab, cpu: usize, in_udp: bool) -> Result<Background> {
    let plan = lab.cluster.plan();
    let (ours, tested) = (plan.link(NEXT, TESTED), plan.link(TESTED, NEXT));
    let onward = lab.onward_receiver();
    let (device, socket) = packet_socket(lab, Host::Node(NEXT), &ours.interface)?;
    let epoch = (monotonic_ns() >> 20) as u32;
    Ok(Background::start(move |is_over| {
        take_cpu(cpu)?;
        let mut sequence = 0;
        while !is_over.load(Ordering::Relaxed) {
            let mut frame = report(sequence, epoch, onward.last_forward()?, tested.mac, ours.mac);
            if in_udp {
                frame = in_datagram(&frame, &ours, &tested);
            }
            // A full queue costs one report.
            let _ = socket.send(device.index, &frame);
            sequence = sequence.wrapping_add(1);
            thread::sleep(REPORT_INTERVAL);
        }
        Ok(())
    }))
}

/// A socket for whole frames, and the interface to send them out of.
fn packet_socket(lab: &Lab, host: Host, interface: &str) -> Result<(NetDevice, PacketSocket)> {
    inside(&lab.cluster, host, || {
        let device = NetDevice::find(interface).with_context(|| format!("interface {interface}"))?;
        Ok((device, PacketSocket::open().context("packet socket")?))
    })
}

/// A report of an idle node that has received everything up to `last` (epoch, position).
fn report(sequence: u32, epoch: u32, last: (u32, u32), to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    let received = Received { epoch: last.0, position_ns: last.1 };
    let header = Header {
        sequence,
        load: Here::default().carried(received, monotonic_ns()),
        ..Header::without_frame(Kind::Report, NEXT, TESTED, epoch)
    };
    let report = Report { interval_us: PROMISE_US, workers: 1, ..Report::default() };
    [emit_ethernet(to, from).as_slice(), &header.emit(), &report.emit()].concat()
}

/// The same in UDP, as nodes send reports to each other.
fn in_datagram(frame: &[u8], from: &LinkEnd, to: &LinkEnd) -> Vec<u8> {
    let payload = &frame[ETHERNET_BYTES..];
    // Reports go to the port behind that of forwards.
    let route = Route { address: to.ipv4.octets(), source: from.ipv4.octets(), port: link::UDP_PORT + 1 };
    let ethertype = ETHERTYPE_IPV4.to_be_bytes();
    [&to.mac[..], &from.mac, &ethertype, &route.emit(payload.len(), 0), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::tests::status;

    #[test]
    fn packets_that_went_another_way_spoil_a_measurement() {
        let counts = |redirected: u64, kept: u64| {
            status(
                1,
                &[
                    (Reason::SeenPort, 1060),
                    (Reason::PassNotActive, 10),
                    (Reason::Redirected, redirected),
                    (Reason::LocalQueued, kept),
                ],
                &[],
            )
        };
        assert!(check_purity(&counts(1000, 50), Task::Redirect, 50).is_ok());
        let error = check_purity(&counts(900, 150), Task::Redirect, 50).unwrap_err().to_string();
        assert!(
            error.starts_with("only 900 of 1000 packets were redirected") && error.contains("local_queued 150"),
            "{error}"
        );
        assert!(check_purity(&counts(0, 1050), Task::Local, 0).is_ok());
        assert!(check_purity(&counts(0, 1050), Task::Pass, 0).is_err());
    }

    #[test]
    fn the_next_node_speaks_the_interconnects_language() {
        let frame = report(7, 3, (0x1234_5678, 99), [2; 6], [4; 6]);
        let header = Header::parse(frame.as_slice(), dataplane_common::wire::ip::ETHERNET_BYTES).unwrap();
        assert_eq!((header.kind, header.source, header.destination), (Kind::Report, NEXT, TESTED));
        assert_eq!((header.load.received_epoch, header.load.received_ns), (0x5678, 99));
        assert!(Report::parse(frame.as_slice(), dataplane_common::wire::link::OVERHEAD_BYTES).is_ok());
    }
}

//! One way under overload: node 1 in the laboratory of [`peers`](crate::peers), with a played node 2 that only reports and an XDP
//! program at the end of the link that counts and drops. So no second node takes part in the use of the CPUs.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dataplane_common::reason::Reason;
use dataplane_common::wire::anep::UDP_PORT;
use dataplane_user::functions::Builtin;

use super::cell::{Flood, Transport, Waiting, settings};
use crate::cpu::{Noise, NoiseWatch, process_ns};
use crate::generate::{FrameSpec, Kind, Offer, Offering};
use crate::interrupt::Interrupt;
use crate::packet::FIRST_SOURCE_PORT;
use crate::peers::contender::{Contender, Settings};
use crate::peers::lab::{Lab, TESTED};
use crate::peers::product;
use crate::status::Status;

/// From the start of the traffic to the window.
const WARM_UP: Duration = Duration::from_millis(150);
/// How long the first frame may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// From the moment at which the node sees the other one to the traffic: its plan must know of it, too.
const PLAN: Duration = Duration::from_millis(50);

/// Share of the packets that must have gone to node 2.
const PURITY: f64 = 0.98;

/// Node and generator, where they run, and what is sent.
pub struct Path<'a> {
    /// The laboratory.
    pub lab: &'a mut Lab,
    /// CPUs and the frames' nominal size.
    pub settings: Settings,
    /// The flow whose packets go to node 2.
    pub flow: u16,
    /// Length of a measurement.
    pub window: Duration,
}

/// Counts and times at one moment.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    offered: u64,
    arrived: u64,
    node_ns: u64,
    generator_ns: u64,
}

impl Path<'_> {
    /// What a frame costs the generator when it is dropped at the port, ns of CPU time.
    ///
    /// # Errors
    /// The program or the generator does not start.
    pub fn dropped_frame_ns(&mut self, interrupt: &Interrupt) -> Result<f64> {
        let running = Contender::Drop.start(self.lab, &self.settings, interrupt)?;
        let measured = self.measure(interrupt, |_| Ok((running.counted()?, running.counted()?, 0)));
        running.stop(self.lab)?;
        let (first, last) = measured?.0;
        let frames = last.offered.saturating_sub(first.offered);
        ensure!(frames > 0, "the generator sent nothing within {:?}", self.window);
        Ok((last.generator_ns - first.generator_ns) as f64 / frames as f64)
    }

    /// Overloads node 1 with packets for node 2.
    ///
    /// # Errors
    /// The node or the generator does not start, or packets went another way.
    pub fn run(
        &mut self,
        transport: Transport,
        (round, dropped_frame_ns): (u32, f64),
        interrupt: &Interrupt,
    ) -> Result<Flood> {
        let node = settings(transport, Waiting::Sleeping, self.settings.cpu);
        self.lab.cluster.start(TESTED, &node, interrupt)?;
        let measured = self.measure_node(transport, interrupt);
        self.lab.cluster.stop(TESTED)?;
        let ((first, last), noise) = measured?;
        let flood = Flood {
            round,
            transport,
            size: self.settings.size,
            offered: last.offered.saturating_sub(first.offered),
            arrived: last.arrived.saturating_sub(first.arrived),
            seconds: last.at.duration_since(first.at).as_secs_f64(),
            node_ns: last.node_ns.saturating_sub(first.node_ns),
            generator_ns: last.generator_ns.saturating_sub(first.generator_ns),
            dropped_frame_ns,
            noise,
        };
        ensure!(flood.arrived > 0, "no packet was sent on by {}", transport.name());
        Ok(flood)
    }

    fn measure_node(&mut self, transport: Transport, interrupt: &Interrupt) -> Result<((Reading, Reading), Noise)> {
        let _next_node = product::play_next_node(self.lab, self.settings.generator_cpu, transport == Transport::Udp)?;
        product::wait_for_next_node(self.lab, interrupt)?;
        interrupt.sleep(PLAN)?;
        let pid = *self.lab.cluster.pids().first().context("BUG: a started node without a process")?;
        let result = self.measure(interrupt, |lab| {
            let (seen, node_ns) = (lab.onward()?, process_ns(pid)?);
            // Last, because a process has to be started for it.
            let offered = lab.cluster.status(TESTED)?.count(Reason::SeenPort);
            Ok((offered, seen.udp + seen.forwards, node_ns))
        })?;
        check_purity(&self.lab.cluster.status(TESTED)?, transport)?;
        Ok(result)
    }

    /// Overloads what runs and reads `counts` (frames at the port, frames sent on, CPU time of the node) at both ends of
    /// the window.
    fn measure(
        &self,
        interrupt: &Interrupt,
        counts: impl Fn(&Lab) -> Result<(u64, u64, u64)>,
    ) -> Result<((Reading, Reading), Noise)> {
        let offer = Offer {
            kind: Kind::Live,
            interface: self.lab.cluster.plan().port(TESTED).generator_interface,
            frame: self.frame()?,
            // More than any generator sends before it is stopped.
            count: i32::MAX as u32,
            rate: None,
            cpu: self.settings.generator_cpu,
        };
        let before = counts(self.lab)?.0;
        let offering = Offering::start(&self.lab.cluster, &self.lab.program, &offer, interrupt)?;
        let deadline = Instant::now() + PATIENCE;
        while counts(self.lab)?.0 <= before {
            ensure!(Instant::now() < deadline, "no frame arrived at the port within {PATIENCE:?}");
            interrupt.sleep(Duration::from_millis(2))?;
        }
        interrupt.sleep(WARM_UP)?;
        let read = || {
            let (at, generator_ns) = (Instant::now(), process_ns(offering.pid())?);
            let (offered, arrived, node_ns) = counts(self.lab)?;
            anyhow::Ok(Reading { at, offered, arrived, node_ns, generator_ns })
        };
        let ours = [self.lab.cluster.pids(), vec![std::process::id(), offering.pid()]].concat();
        let watch = NoiseWatch::begin(&ours)?;
        let first = read()?;
        interrupt.sleep(self.window)?;
        let last = read()?;
        let noise = watch.end()?;
        offering.stop()?;
        Ok(((first, last), noise))
    }

    fn frame(&self) -> Result<Vec<u8>> {
        let port = self.lab.cluster.plan().port(TESTED);
        let spec = FrameSpec {
            size: self.settings.size,
            macs: (port.generator_mac, port.node_mac),
            addresses: (port.generator_ipv4, port.node_ipv4),
            ports: (FIRST_SOURCE_PORT + self.flow, UDP_PORT),
            type_id: Builtin::Forward.type_id(),
            operand: None,
            is_sound: true,
        };
        spec.build()
    }
}

/// Whether packets went to node 2 whose way there is measured: all that XDP has seen, or all that the worker has taken.
fn check_purity(status: &Status, transport: Transport) -> Result<()> {
    let (sent, seen, what) = match transport {
        Transport::Xdp => (status.count(Reason::Redirected), status.count(Reason::SeenPort), "XDP has seen"),
        Transport::Xsk | Transport::Udp => {
            (status.count(Reason::SentForward), status.ledger.taken, "the worker has taken")
        }
    };
    let share = sent as f64 / seen.max(1) as f64;
    ensure!(share >= PURITY, "{}: only {sent} of {seen} packets that {what} went to node 2", transport.name());
    Ok(())
}

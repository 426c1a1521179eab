//! [`Status`] as people read it.

use std::fmt::{self, Write as _};

use dataplane_common::reason::{Effect, Reason};

use super::{FunctionStatus, Status};

/// ns as a person reads it.
pub fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// The same of what may not be known yet.
fn known(ns: Option<u64>) -> String {
    ns.map_or_else(|| "-".to_owned(), time)
}

/// Thousandths as a person reads them.
fn percent(milli: u32) -> String {
    format!("{:.1} %", f64::from(milli) / 10.0)
}

/// How a function's packets are placed, and in which order its results leave.
fn placement(function: &FunctionStatus) -> String {
    let home = function.home.map_or_else(String::new, |node| format!(", all to node {node}"));
    format!("{} ({}){home}", function.policy, function.order)
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.node;
        writeln!(
            f,
            "NODE {} (id {})  {}  pid {}  up {}  policy {}  reports every {}",
            node.name,
            node.id,
            node.state,
            node.pid,
            time(node.uptime_ns),
            node.policy,
            time(u64::from(node.report_interval_us) * 1000)
        )?;
        self.write_sockets(f)?;
        self.write_peers(f)?;
        self.write_signals(f)?;
        self.write_functions(f)?;
        self.write_ledger(f)
    }
}

impl Status {
    fn write_sockets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nWORKER  CPU  BACKLOG      QUEUED  BUSY         LOST")?;
        for worker in &self.workers {
            writeln!(
                f,
                "{:<7} {:<4} {:<12} {:<7} {:<12} {}",
                worker.worker,
                worker.cpu,
                time(worker.backlog_ns.into()),
                worker.queued,
                time(worker.busy_ns),
                worker.lost_packets
            )?;
        }
        writeln!(f, "\nSOCKET  IFINDEX  QUEUE  MODE       CHARGED     TAKEN       RING FULL  NO FRAME")?;
        for socket in &self.sockets {
            writeln!(
                f,
                "{:<7} {:<8} {:<6} {:<10} {:<11} {:<11} {:<10} {}",
                socket.interface,
                socket.ifindex,
                socket.queue,
                if socket.zero_copy { "zero-copy" } else { "copy" },
                socket.charged_packets,
                socket.taken_packets,
                socket.rx_ring_full,
                socket.rx_dropped
            )?;
        }
        Ok(())
    }

    fn write_peers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nPEER  NAME         STATE       MEMBER   MAC               AGE          BACKLOG      IN FLIGHT    SENT        ARRIVED     RECEIVED"
        )?;
        for peer in &self.peers {
            writeln!(
                f,
                "{:<5} {:<12} {:<11} {:<8} {:<17} {:<12} {:<12} {:<12} {:<11} {:<11} {}",
                peer.id,
                peer.name.as_deref().unwrap_or("-"),
                peer.state.name(),
                peer.member.unwrap_or("-"),
                peer.mac.as_deref().unwrap_or("-"),
                known(peer.age_ns),
                time(peer.backlog_ns.into()),
                time(peer.in_flight_ns.into()),
                peer.sent_frames,
                peer.acked_frames,
                peer.received_frames
            )?;
        }
        writeln!(f, "\nPEER  SPEED  SERVICE      RESPONSE     TRANSIT      BUSY    PIGGYBACKED  RESULTS")?;
        for peer in &self.peers {
            writeln!(
                f,
                "{:<5} {:<6} {:<12} {:<12} {:<12} {:<7} {:<12} {}",
                peer.id,
                peer.speed_milli.map_or_else(|| "-".to_owned(), |speed| format!("{:.2}", f64::from(speed) / 1e3)),
                known(peer.service_ns.map(u64::from)),
                known(peer.response_ns.map(u64::from)),
                known(peer.transit_ns.map(u64::from)),
                percent(peer.busy_milli.into()),
                peer.piggybacked,
                peer.completed_frames
            )?;
        }
        Ok(())
    }

    fn write_signals(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signals = &self.signals;
        writeln!(
            f,
            "\nCLUSTER  busy {}  service {}  predictions err by {}",
            percent(signals.utilisation_milli),
            time(signals.service_ns.into()),
            time(signals.deviation_ns.into())
        )?;
        writeln!(
            f,
            "FORWARDING  send {} (by a worker {} more)  receive {}  wire {} + {:.3} ns/byte",
            time(signals.send_ns.into()),
            time(signals.worker_send_ns),
            time(signals.receive_ns.into()),
            time(signals.wire_ns.into()),
            signals.wire_ns_per_byte
        )
    }

    fn write_functions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\nFUNCTION  TYPE    WORKER  COST                          PACKETS     P50          P99          EPT ERROR  POLICY (ORDER)"
        )?;
        for function in &self.functions {
            let mut cost = String::new();
            write!(cost, "{} + {:.3} ns/unit", time(function.a_ns.into()), function.b_ns_per_unit)?;
            writeln!(
                f,
                "{:<9} {:#06x}  {:<7} {:<29} {:<11} {:<12} {:<12} {:<10} {}",
                function.name,
                function.type_id,
                function.worker,
                cost,
                function.samples,
                time(function.service_p50_ns.into()),
                time(function.service_p99_ns.into()),
                percent(function.error_p50_milli),
                placement(function)
            )?;
        }
        Ok(())
    }

    fn write_ledger(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nLEDGER")?;
        for reason in Reason::ALL {
            let count = self.counters.get(reason.name()).and_then(serde_json::Value::as_u64).unwrap_or_default();
            if count > 0 {
                let sign = match reason.effect() {
                    Effect::Seen => "+",
                    Effect::Note => " ",
                    _ => "-",
                };
                writeln!(f, "  {sign} {:<28} {count:>12}  {}", reason.name(), reason.help())?;
            }
        }
        let ledger = &self.ledger;
        if ledger.ring_dropped > 0 {
            let help = "Dropped by the kernel in front of a receive ring.";
            writeln!(f, "  - {:<28} {:>12}  {help}", "ring_dropped", ledger.ring_dropped)?;
        }
        match (ledger.balances, ledger.in_flight) {
            (true, _) => writeln!(f, "  balances: every frame has ended under a name"),
            (false, in_flight) => writeln!(f, "  {in_flight} frames in flight (it balances at rest)"),
        }
    }
}

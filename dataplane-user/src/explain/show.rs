//! [`Explanation`] as people read it.

use std::fmt;

use super::{Compared, Explanation, Outcome, PeerView};
use crate::status::{PeerState, time};

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, function, policy, order, worker, packet, here, signals, .. } = self;
        writeln!(f, "NODE {node}  function {function}  policy {policy}  order {order}  worker {worker}")?;
        writeln!(
            f,
            "PACKET  {} bytes of payload, {} of frame, {} on a link  EPT {}  class {}  flow {:#010x}  key {:#010x}  random {:#010x}",
            packet.payload_bytes,
            packet.frame_bytes,
            packet.link_bytes,
            time(packet.ept_ns.into()),
            packet.class,
            packet.flow,
            packet.key,
            packet.random
        )?;
        writeln!(
            f,
            "HERE  backlog {}  queued {:.1}",
            time(here.backlog_ns.into()),
            f64::from(here.queued_milli) / 1e3
        )?;
        writeln!(
            f,
            "CLUSTER  busy {:.1} %  service {}  predictions err by {}",
            f64::from(signals.utilisation_milli) / 10.0,
            time(signals.service_ns.into()),
            time(signals.deviation_ns.into())
        )?;
        writeln!(
            f,
            "FORWARDING  send {}  receive {}  transit {}",
            time(signals.send_ns.into()),
            time(signals.receive_ns.into()),
            time(signals.transit_ns.into())
        )?;
        self.write_outcome(f)?;
        self.write_peers(f)
    }
}

impl Explanation {
    fn write_outcome(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\n")?;
        match &self.outcome {
            Outcome::Drop { counter, why } => {
                let packet = &self.packet;
                match packet.units {
                    Some(_) => {
                        let (declared, limit) = (time(packet.declared_ns.into()), time(packet.limit_ns.into()));
                        writeln!(f, "DROPPED ({counter}): {why}\n  declared cost {declared}  limit {limit}")
                    }
                    None => writeln!(f, "DROPPED ({counter}): {why}"),
                }
            }
            Outcome::Local(compared) => {
                writeln!(f, "STAYS because {}", compared.why)?;
                write_compared(f, compared)
            }
            Outcome::Redirect { to, compared } => {
                writeln!(f, "GOES to {} because {}", self.name_of(*to), compared.why)?;
                write_compared(f, compared)
            }
            Outcome::Stays { to, counter, compared } => {
                let name = self.name_of(*to);
                writeln!(f, "STAYS ({counter}): it should go to {name} because {}, and cannot", compared.why)?;
                write_compared(f, compared)
            }
        }
    }

    /// Id and name of a peer.
    fn name_of(&self, id: u16) -> String {
        let name = self.peers.iter().find(|peer| peer.id == id).map_or("", |peer| peer.name.as_str());
        format!("node {id} {name}").trim_end().to_owned()
    }

    fn write_peers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.peers.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "\nPEER  NAME      CANDIDATE    AGE        BACKLOG    QUEUED  IN FLIGHT  ERL        PREDICTED  FORWARDING  THERE"
        )?;
        for peer in &self.peers {
            let PeerView { id, name, .. } = peer;
            let candidate = match peer.state {
                PeerState::Alive => "yes".to_owned(),
                other => format!("no: {}", other.name()),
            };
            writeln!(
                f,
                "{id:<5} {name:<9} {candidate:<12} {:<10} {:<10} {:<7.1} {:<10} {:<10} {:<10} {:<11} {}",
                peer.age_ns.map_or_else(|| "-".to_owned(), time),
                time(peer.backlog_ns.into()),
                f64::from(peer.queued_milli) / 1e3,
                time(peer.in_flight_ns.into()),
                time(peer.erl_ns),
                time(peer.predicted_ns.into()),
                time(peer.forwarding_ns.into()),
                number(peer.there)
            )?;
        }
        Ok(())
    }
}

fn write_compared(f: &mut fmt::Formatter<'_>, compared: &Compared) -> fmt::Result {
    let (here, there, margin) = (compared.here, number(compared.there), time(compared.margin_ns.into()));
    writeln!(f, "  here {here}  there {there}  (in the policy's measure)  margin {margin}")
}

/// `-` for none.
fn number(value: Option<u64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

//! Active packets of a capture as the traffic of a run: when they came, what they ask for, and what that costs.
//!
//! A capture says nothing about processing times. They follow from the packet as the dataplane estimates them: the cost of
//! its function, `a + b · units`, with the units of the function's registration (bytes of payload, the operand, or rounds).

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use dataplane_common::classify::{Active, Class, Rules, classify, identify};
use dataplane_common::estimate::Cost;
use dataplane_common::function::Units;
use dataplane_common::hash::{combine, mix};
use dataplane_common::packet::Packet as _;
use dataplane_common::wire::anep::UDP_PORT;
use dataplane_user::functions::Builtin;

use super::workload::Work;
use crate::capture::{self, Captured};

/// Offset of the destination in an IP header and its length in words of 4 bytes: IPv4, IPv6.
const DESTINATIONS: [(usize, usize); 2] = [(16, 1), (24, 4)];

/// By what the node at which a recorded packet arrives is found: this, modulo the number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArriveBy {
    /// A hash of its flow, as a router spreads flows over paths of equal cost.
    Flow,
    /// A hash of its destination address: each address belongs to one node.
    Destination,
    /// The number of the interface that captured it: each interface is one node's.
    Interface,
}

/// What the functions cost.
#[derive(Clone, Debug)]
pub struct Costs {
    /// By type id.
    functions: BTreeMap<u16, Function>,
}

/// A function as far as a recording must know it.
#[derive(Clone, Debug)]
struct Function {
    name: String,
    units: Units,
    cost: Cost,
    /// Room for the result that a packet must bring, bytes.
    result_bytes: usize,
}

impl Default for Costs {
    /// Every packet function that there is, at the cost that the dataplane assumes until it has measured.
    fn default() -> Self {
        let function = |builtin: &Builtin| {
            let (units, cost, result_bytes) = (builtin.units(), builtin.prior(), builtin.result_bytes());
            (builtin.type_id(), Function { name: builtin.name().to_owned(), units, cost, result_bytes })
        };
        Self { functions: Builtin::ALL.iter().map(function).collect() }
    }
}

impl Costs {
    /// Takes a cost written `FUNCTION=A_NS` or `FUNCTION=A_NS,B_NS`: ns a packet, and ns a unit. The function is a name or a
    /// type id; one that there is not works by bytes of payload.
    ///
    /// # Errors
    /// It is not written so, or there is no such function.
    pub fn set(&mut self, text: &str) -> Result<()> {
        let help = || format!("{text} is not of the form FUNCTION=A_NS or FUNCTION=A_NS,B_NS_PER_UNIT");
        let (name, cost) = text.split_once('=').with_context(help)?;
        let (fixed, unit) = cost.split_once(',').unwrap_or((cost, "0"));
        let number = |text: &str, most: f64| text.parse::<f64>().ok().filter(|ns| (0.0..most).contains(ns));
        let a_ns = number(fixed, f64::from(u32::MAX)).with_context(help)?.round() as u32;
        let b_q16 = (number(unit, 65_536.0).with_context(help)? * 65_536.0).round() as u32;
        let cost = Cost { a_ns, b_q16 };
        let known = self.functions.iter().find(|(_, function)| function.name == name).map(|(id, _)| *id);
        let number = name.strip_prefix("0x").map_or_else(|| name.parse().ok(), |hex| u16::from_str_radix(hex, 16).ok());
        let type_id = known.or(number).with_context(|| {
            let names = Builtin::ALL.iter().map(|function| function.name()).collect::<Vec<_>>().join(", ");
            format!("{text}: no function {name}; there are {names}, and type ids such as 0xff10")
        })?;
        let unknown = || Function { name: name.to_owned(), units: Units::Length, cost, result_bytes: 0 };
        self.functions.entry(type_id).or_insert_with(unknown).cost = cost;
        Ok(())
    }
}

/// A packet of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When it came, ns after the first one.
    pub at_ns: u64,
    /// What its node of arrival is found by.
    pub spread: u32,
    /// Its flow: numbers from 0, in the order of first appearance.
    pub flow: u32,
    /// Its work.
    pub work: Work,
    /// Its class.
    pub class: u8,
    /// Hash of what it is about.
    pub key: u32,
}

/// What else was in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Frames that are no active packets: other traffic, fragments, results.
    pub inactive: u64,
    /// Active packets that a node would drop.
    pub malformed: u64,
    /// Frames of which too little was kept to read the active packet's header.
    pub cut: u64,
}

/// The active packets of a capture.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// The packets, in the order in which they came.
    pub packets: Vec<Recorded>,
    /// Name of the function and mean service time in ns, by kind.
    pub kinds: Vec<(String, u32)>,
    /// Number of flows.
    pub flows: u32,
    /// What was left out.
    pub skipped: Skipped,
}

impl Recording {
    /// Reads the active packets of the capture at `path`.
    ///
    /// # Errors
    /// See [`capture::read`]; or there are fewer than two active packets, all at the same moment, or some of a function
    /// without a cost; or they shall arrive by interface and there is only one.
    pub fn read(path: &Path, costs: &Costs, arrive_by: ArriveBy) -> Result<Self> {
        let mut reading = Reading::new(costs, arrive_by);
        let interfaces = capture::read(path, |frame| {
            reading.take(&frame);
            Ok(())
        })?;
        let by_interface = arrive_by == ArriveBy::Interface;
        ensure!(
            !by_interface || interfaces > 1,
            "{} has one interface: all packets would arrive at one node",
            path.display()
        );
        reading.finish().with_context(|| format!("nothing to simulate in {}", path.display()))
    }

    /// Time from the first packet to the last, ns.
    pub fn span_ns(&self) -> u64 {
        self.packets.last().map_or(0, |last| last.at_ns)
    }

    /// Mean time between two packets, ns.
    pub fn gap_ns(&self) -> f64 {
        self.span_ns() as f64 / (self.packets.len().max(2) - 1) as f64
    }

    /// Mean service time on the reference node, ns.
    pub fn mean_service_ns(&self) -> f64 {
        let sum: f64 = self.packets.iter().map(|packet| f64::from(packet.work.service_ns)).sum();
        sum / self.packets.len().max(1) as f64
    }

    /// One line for people.
    pub fn summary(&self) -> String {
        let Skipped { inactive, malformed, cut } = self.skipped;
        let kinds = self.kinds.iter().map(|(name, ns)| format!("{name} {:.2} µs", f64::from(*ns) / 1000.0));
        format!(
            "{} active packets of {} flows in {:.3} ms, mean service time {:.2} µs ({}); left out: {inactive} frames not active, \
             {malformed} malformed, {cut} cut short",
            self.packets.len(),
            self.flows,
            self.span_ns() as f64 / 1e6,
            self.mean_service_ns() / 1000.0,
            kinds.collect::<Vec<_>>().join(", ")
        )
    }
}

/// A packet that is not yet in its place.
struct Found {
    at_ns: u64,
    flow: u32,
    packet: Recorded,
}

/// A capture that is being read.
struct Reading<'a> {
    costs: &'a Costs,
    arrive_by: ArriveBy,
    found: Vec<Found>,
    /// Kinds by type id.
    kinds: BTreeMap<u16, u16>,
    /// Packets of functions without a cost, by type id.
    unknown: BTreeMap<u16, u64>,
    skipped: Skipped,
    /// A frame of which a part was not kept, with zeros in its place.
    whole: Vec<u8>,
}

impl<'a> Reading<'a> {
    fn new(costs: &'a Costs, arrive_by: ArriveBy) -> Self {
        Self {
            costs,
            arrive_by,
            found: Vec::new(),
            kinds: BTreeMap::new(),
            unknown: BTreeMap::new(),
            skipped: Skipped::default(),
            whole: Vec::new(),
        }
    }

    fn take(&mut self, frame: &Captured<'_>) {
        let kept = frame.bytes.len();
        // Lengths are checked against the frame, of which the capture may have kept the beginning only.
        let mut whole = std::mem::take(&mut self.whole);
        whole.clear();
        whole.extend_from_slice(frame.bytes);
        whole.resize(kept.max(frame.length.min(usize::from(u16::MAX))), 0);
        match classify(whole.as_slice(), &Rules::anep(UDP_PORT)) {
            Class::NotActive | Class::Fragment | Class::Result => self.skipped.inactive += 1,
            Class::Malformed(_) if kept < whole.len() => self.skipped.cut += 1,
            Class::Malformed(_) => self.skipped.malformed += 1,
            Class::Active(active) if active.anep.start + active.anep.header_len > kept => self.skipped.cut += 1,
            Class::Active(active) => self.add(frame, &whole, &active),
        }
        self.whole = whole;
    }

    fn add(&mut self, frame: &Captured<'_>, bytes: &[u8], active: &Active) {
        let type_id = active.anep.type_id;
        let Some(function) = self.costs.functions.get(&type_id) else {
            *self.unknown.entry(type_id).or_default() += 1;
            return;
        };
        let has_room = active.anep.result_len >= function.result_bytes;
        let Some(units) = function.units.of(&active.anep).filter(|_| has_room) else {
            self.skipped.malformed += 1;
            return;
        };
        let next = self.kinds.len() as u16;
        let kind = *self.kinds.entry(type_id).or_insert(next);
        let identity = identify(bytes, active);
        let spread = match self.arrive_by {
            ArriveBy::Flow => mix(u64::from(identity.flow)) as u32,
            ArriveBy::Destination => destination_hash(bytes, active),
            ArriveBy::Interface => frame.interface,
        };
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let work = Work { service_ns: function.cost.ns(units).max(1), bytes: length, kind };
        let packet = Recorded { at_ns: 0, spread, flow: 0, work, class: identity.class, key: identity.key };
        self.found.push(Found { at_ns: frame.at_ns, flow: identity.flow, packet });
    }

    fn finish(mut self) -> Result<Recording> {
        let unknown = self.unknown.iter().map(|(id, count)| format!("{count} of {id:#06x}")).collect::<Vec<_>>();
        ensure!(
            unknown.is_empty(),
            "packets of functions whose cost is not known: {}; give it, --cost TYPE_ID=A_NS,B_NS_PER_BYTE",
            unknown.join(", ")
        );
        let Skipped { inactive, malformed, cut } = self.skipped;
        ensure!(
            self.found.len() > 1,
            "{} active packets (UDP port {UDP_PORT} or IP protocol 107) among {} frames, {malformed} malformed and {cut} cut short",
            self.found.len(),
            self.found.len() as u64 + inactive + malformed + cut
        );
        // Several interfaces are written in turns: the file need not be in the order of time.
        self.found.sort_by_key(|found| found.at_ns);
        let first_ns = self.found[0].at_ns;
        let mut flows = HashMap::new();
        let place = |found: &Found| {
            let next = flows.len() as u32;
            let flow = *flows.entry(found.flow).or_insert(next);
            Recorded { at_ns: found.at_ns - first_ns, flow, ..found.packet }
        };
        let packets: Vec<Recorded> = self.found.iter().map(place).collect();
        ensure!(packets.last().is_some_and(|last| last.at_ns > 0), "all active packets came at the same moment");
        let mut kinds = vec![(String::new(), 0); self.kinds.len()];
        for (type_id, kind) in &self.kinds {
            let name = self.costs.functions.get(type_id).map_or_else(String::new, |function| function.name.clone());
            let times = packets.iter().filter(|packet| packet.work.kind == *kind).map(|packet| packet.work.service_ns);
            let (sum, count) = times.fold((0u64, 0), |(sum, count), ns| (sum + u64::from(ns), count + 1));
            kinds[usize::from(*kind)] = (name, (sum / count.max(1)) as u32);
        }
        Ok(Recording { packets, kinds, flows: flows.len() as u32, skipped: self.skipped })
    }
}

fn destination_hash(frame: &[u8], active: &Active) -> u32 {
    let (offset, words) = DESTINATIONS[usize::from(active.v6)];
    let word = |word: usize| u64::from(frame.u32(active.l3 + offset + 4 * word).unwrap_or_default());
    (0..words).fold(0, |hash, at| combine(hash, word(at))) as u32
}

#[cfg(test)]
#[path = "recording_tests.rs"]
mod tests;

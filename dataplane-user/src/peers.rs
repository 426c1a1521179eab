//! The peers of a running node: those of the configuration and the members of the cluster, with the way to each.
//!
//! The control thread looks at every turn whether a member has come, changed or gone, or a neighbour has another MAC address, and
//! then writes what is different: rows of `PEERS` and `LINKS`, the roster that decisions visit, the list of the reporter, the ways
//! of workers that pull. A peer without a MAC address, or without a link that both are on, has a row for `status` and is not
//! [`PEER_PRESENT`], so nothing chooses it.

use std::collections::BTreeMap;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;

use dataplane_common::maps::{
    ABI_VERSION, AUTH_OFF, LoadRow, PEER_DRAINING, PEER_MEMBER, PEER_PRESENT, PEER_ROUTED, PEER_UNREACHABLE,
    PEER_UNRESOLVED, PeerRow, SignalsRow,
};
use dataplane_common::reason::Reason;
use dataplane_common::wire::route::{ROUTE_BYTES, Route};

use crate::config::{Config, Encapsulation, PeerEnd, Transport};
use crate::maps::Tables;
use crate::maps::tables::{pair, set};
use crate::membership::{Event, Member, Refusal, Refusals, name_hash};
use crate::neighbour::{self, Neighbours};
use crate::reporter::PeerAddress;
use crate::seal::Sealer;
use crate::sys::NetDevice;
use crate::ways::{LiveWays, Way, Ways};
use crate::xdp::PeerMaps;

/// How often refused datagrams are taken into the counters, ns.
const COUNT_NS: u64 = 100_000_000;

/// A link of the node.
#[derive(Clone, Debug)]
pub struct Link {
    /// The interface.
    pub device: NetDevice,
    /// The node's index of it.
    pub interface: u32,
    /// What it is connected to.
    pub segment: String,
    /// Longest frame, Ethernet header included, bytes.
    pub max_frame: u16,
    /// Our address, where frames travel in UDP.
    pub source: Option<Ipv4Addr>,
}

/// Where the rows of peers are written.
pub trait PeerRows {
    /// Writes the row of `node`, which is reached through interface `ifindex`.
    ///
    /// # Errors
    /// In words; nothing else of the node depends on this row.
    fn write(&mut self, node: u16, ifindex: u32, row: PeerRow) -> Result<(), String>;
}

impl PeerRows for PeerMaps {
    fn write(&mut self, node: u16, ifindex: u32, row: PeerRow) -> Result<(), String> {
        self.set(node, ifindex, row).map_err(|error| error.to_string())
    }
}

/// A peer of the configuration.
#[derive(Clone, Copy, Debug)]
struct Configured {
    node: u16,
    /// Its place in [`Peers::links`].
    link: usize,
    end: PeerEnd,
    /// Membership has said that it is gone, and not that it is back.
    is_gone: bool,
}

/// What was written of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    ifindex: u32,
    interface: u32,
    /// Longest frame of the link, bytes.
    max_frame: u16,
    row: PeerRow,
}

impl Written {
    /// Where frames go that travel in UDP.
    fn route(&self) -> Option<Route> {
        let PeerRow { address, source_address: source, udp_port: port, .. } = self.row;
        (self.row.flags & PEER_ROUTED != 0).then_some(Route { address, source, port })
    }
}

/// A peer named by its address on a link whose frames do not travel in UDP.
fn on_link(link: &Link, peer: &Configured) -> Option<(u32, IpAddr)> {
    match peer.end {
        PeerEnd::Address(address) if link.source.is_none() => Some((link.device.index, address)),
        _ => None,
    }
}

/// See the module.
pub struct Peers<R> {
    links: Vec<Link>,
    configured: Vec<Configured>,
    /// What the configuration calls them.
    names: BTreeMap<u16, String>,
    members: BTreeMap<u16, Member>,
    events: Option<(Receiver<Event>, Arc<Refusals>)>,
    counted: [u64; Refusal::ALL.len()],
    count_ns: u64,
    neighbours: Option<Neighbours>,
    functions: Vec<(u16, u32)>,
    /// UDP port of peers.
    port: u16,
    /// The kernel finds the way: MAC addresses do not matter.
    by_kernel: bool,
    /// Next hop of peers whose frames travel in UDP.
    hops: BTreeMap<u16, (u32, IpAddr)>,
    written: BTreeMap<u16, Written>,
    rows: R,
    tables: Arc<Tables>,
    ways: Arc<LiveWays>,
    /// How frames to the peers are sealed ([`dataplane_common::maps::Params::auth`]).
    auth: u32,
    is_due: bool,
    warn: fn(&str),
}

impl<R: PeerRows> Peers<R> {
    /// The peers of `config`, none of them written yet. `neighbours` is needed where some are named by their IP addresses; `warn`
    /// takes what an operator should know.
    pub fn new(
        config: &Config,
        links: Vec<Link>,
        (rows, tables): (R, Arc<Tables>),
        mut neighbours: Option<Neighbours>,
        warn: fn(&str),
    ) -> Self {
        let configured: Vec<_> = config
            .peers
            .iter()
            .filter_map(|peer| {
                let link = links.iter().position(|link| link.device.name == peer.link)?;
                Some(Configured { node: peer.id, link, end: peer.end, is_gone: false })
            })
            .collect();
        if let Some(neighbours) = &mut neighbours {
            neighbours.follow(configured.iter().filter_map(|peer| on_link(&links[peer.link], peer)));
        }
        Self {
            configured,
            names: config.peers.iter().map(|peer| (peer.id, peer.name.clone())).collect(),
            links,
            members: BTreeMap::new(),
            events: None,
            counted: [0; Refusal::ALL.len()],
            count_ns: 0,
            neighbours,
            functions: functions(config),
            port: config.interconnect.port,
            by_kernel: config.interconnect.transport == Transport::Udp,
            hops: BTreeMap::new(),
            written: BTreeMap::new(),
            rows,
            tables,
            ways: Arc::default(),
            auth: config.interconnect.auth_id(),
            is_due: true,
            warn,
        }
    }

    /// True when some peer of `config` is named by its IP address, or members may be.
    pub fn need_neighbours(config: &Config) -> bool {
        let in_udp = config.links.iter().any(|link| link.encapsulation == Encapsulation::Udp);
        in_udp || config.peers.iter().any(|peer| matches!(peer.end, PeerEnd::Address(_)))
    }

    /// Follows the members of a cluster from now on.
    pub fn listen(&mut self, events: Receiver<Event>, refusals: Arc<Refusals>) {
        self.events = Some((events, refusals));
    }

    /// The ways to the peers, for workers.
    pub fn ways(&self) -> Arc<LiveWays> {
        Arc::clone(&self.ways)
    }

    /// Takes what has happened since, and writes what is different; the peers that may be sent to, when they are others than before.
    pub fn turn(&mut self, now_ns: u64) -> Option<Vec<PeerAddress>> {
        while let Some(event) = self.events.as_ref().and_then(|(events, _)| events.try_recv().ok()) {
            self.take(event);
        }
        if self.neighbours.as_mut().is_some_and(|neighbours| neighbours.turn(now_ns)) {
            self.is_due = true;
        }
        if now_ns >= self.count_ns {
            self.count_ns = now_ns + COUNT_NS;
            self.count();
        }
        if !std::mem::take(&mut self.is_due) {
            return None;
        }
        self.find_hops();
        self.write()
    }

    fn take(&mut self, event: Event) {
        self.is_due = true;
        match event {
            Event::Up(member) | Event::Changed(member) => {
                if !self.members.contains_key(&member.node) {
                    self.compare(&member);
                }
                self.note_configured(member.node, false);
                self.members.insert(member.node, member);
            }
            Event::Down(member) => {
                self.note_configured(member.node, true);
                self.members.remove(&member.node);
            }
        }
    }

    fn note_configured(&mut self, node: u16, is_gone: bool) {
        self.configured.iter_mut().filter(|peer| peer.node == node).for_each(|peer| peer.is_gone = is_gone);
    }

    /// Warns of what a member does differently.
    fn compare(&self, member: &Member) {
        let (node, profile) = (member.node, &member.profile);
        if profile.abi != ABI_VERSION {
            (self.warn)(&format!(
                "node {node} ({}) is of another version (ABI {}, this node has {ABI_VERSION}) and gets no packets",
                profile.name, profile.abi
            ));
        }
        for (type_id, hash) in &profile.functions {
            if self.functions.iter().any(|(known, other)| known == type_id && other != hash) {
                (self.warn)(&format!(
                    "node {node} ({}) means another function by type id {type_id:#06x} than this node",
                    profile.name
                ));
            }
        }
    }

    /// Shows refused datagrams among the counters. No worker counts these, so worker 0 has the rows.
    fn count(&mut self) {
        let Some((_, refusals)) = &self.events else { return };
        for (refusal, counted) in Refusal::ALL.into_iter().zip(&mut self.counted) {
            let found = refusals.count(refusal);
            self.tables.count(0, reason_of(refusal)).fetch_add(found - *counted, Relaxed);
            *counted = found;
        }
    }

    /// Writes what is different; the peers that may be sent to, when they are others than before.
    fn write(&mut self) -> Option<Vec<PeerAddress>> {
        let before = (self.addresses(), self.present_ways());
        let wanted = self.wanted();
        let gone: Vec<_> =
            self.written.iter().filter(|(node, _)| !wanted.contains_key(node)).map(|(node, it)| (*node, *it)).collect();
        for (node, was) in gone {
            self.write_row(node, Written { row: PeerRow::default(), ..was });
            self.tables.set_name(node, "");
            self.written.remove(&node);
        }
        for (node, written) in wanted {
            if self.written.get(&node) != Some(&written) {
                self.write_row(node, written);
                self.tables.set_name(node, self.name(node));
                self.written.insert(node, written);
            }
        }
        let (now, ways) = (self.addresses(), self.present_ways());
        // Where frames travel in UDP, another IP address behind the same MAC address is another way, too.
        if (&now, &ways) == (&before.0, &before.1) {
            return None;
        }
        self.publish(&now, ways);
        Some(now)
    }

    fn write_row(&mut self, node: u16, written: Written) {
        if let Err(error) = self.rows.write(node, written.ifindex, written.row) {
            (self.warn)(&format!("the way to node {node} cannot be written: {error}"));
        }
        if written.row.flags & PEER_PRESENT == 0 {
            // Its last report holds no longer, so that it is chosen by nobody until it reports again.
            set(self.tables.load.row(u32::from(node)), offset_of!(LoadRow, valid_until_ns), 0);
        }
    }

    /// Shows deciders whom to visit, and workers whom to ask. Positions are written before their number when it grows, and after it
    /// when it shrinks; a decision that reads between the two looks at a node twice or not at all.
    fn publish(&self, peers: &[PeerAddress], ways: Vec<Way>) {
        let count = self.tables.signals.row(0);
        let few = (count.word(offset_of!(SignalsRow, arrivals_q32)).load(Relaxed) >> 32).min(peers.len() as u64);
        let arrivals = count.word(offset_of!(SignalsRow, arrivals_q32)).load(Relaxed) as u32;
        set(count, offset_of!(SignalsRow, arrivals_q32), pair(arrivals, few as u32));
        for (position, peer) in (0..).zip(peers) {
            self.tables.roster.row(position).word(0).store(peer.node.into(), Relaxed);
        }
        set(count, offset_of!(SignalsRow, arrivals_q32), pair(arrivals, peers.len() as u32));
        let ways = Ways::new(ways);
        self.ways.store(Arc::new(if self.auth == AUTH_OFF {
            ways
        } else {
            ways.sealed(Sealer::new(Arc::clone(&self.tables), self.auth))
        }));
    }

    /// The ways to [`Self::addresses`].
    fn present_ways(&self) -> Vec<Way> {
        let way = |peer: PeerAddress| {
            let written = self.written.get(&peer.node)?;
            Some(Way {
                node: peer.node,
                interface: written.interface,
                mac: peer.mac,
                source_mac: peer.source_mac,
                max_frame: written.max_frame,
                route: written.route(),
            })
        };
        self.addresses().into_iter().filter_map(way).collect()
    }

    /// The peers that may be sent to: those of the configuration in its order, then members by id.
    fn addresses(&self) -> Vec<PeerAddress> {
        let configured = self.configured.iter().map(|peer| peer.node);
        let others = self.written.keys().copied().filter(|node| self.configured(*node).is_none());
        let address = |node| {
            let written = self.written.get(&node).filter(|written| written.row.flags & PEER_PRESENT != 0)?;
            let PeerRow { mac, source_mac, .. } = written.row;
            Some(PeerAddress { node, ifindex: written.ifindex, mac, source_mac })
        };
        configured.chain(others).filter_map(address).collect()
    }

    /// What a peer is called: by itself if it is a member, else by the configuration.
    fn name(&self, node: u16) -> &str {
        let member = self.members.get(&node).map(|member| &member.profile.name);
        member.or_else(|| self.names.get(&node)).map_or("", String::as_str)
    }

    fn configured(&self, node: u16) -> Option<&Configured> {
        self.configured.iter().find(|peer| peer.node == node)
    }

    /// What should be written.
    fn wanted(&self) -> BTreeMap<u16, Written> {
        let configured = self.configured.iter().filter(|peer| !peer.is_gone).map(|peer| peer.node);
        configured.chain(self.members.keys().copied()).map(|node| (node, self.row(node))).collect()
    }

    fn row(&self, node: u16) -> Written {
        let member = self.members.get(&node);
        let mut flags = 0;
        if let Some(member) = member {
            flags |= PEER_MEMBER;
            flags |= if member.profile.draining { PEER_DRAINING } else { 0 };
        }
        let way = match self.configured(node) {
            Some(peer) => Some((&self.links[peer.link], self.mac(peer))),
            None => member.and_then(|member| self.shared_link(member)).map(|(link, mac)| (link, Some(mac))),
        };
        let way = way.map(|(link, mac)| (link, if link.source.is_some() { self.hop_mac(node) } else { mac }));
        let speaks_ours = member.is_none_or(|member| member.profile.abi == ABI_VERSION);
        let Some((link, mac)) = way.filter(|_| speaks_ours) else {
            let row = PeerRow { flags: flags | PEER_UNREACHABLE, ..PeerRow::default() };
            return Written { ifindex: 0, interface: 0, max_frame: 0, row };
        };
        flags |= if mac.is_some() { PEER_PRESENT } else { PEER_UNRESOLVED };
        let address = self.address(node).filter(|_| link.source.is_some());
        flags |= if address.is_some() { PEER_ROUTED } else { 0 };
        let row = PeerRow {
            mac: mac.unwrap_or_default(),
            flags,
            source_mac: link.device.mac,
            max_frame: link.max_frame - if address.is_some() { ROUTE_BYTES as u16 } else { 0 },
            address: address.map(|it| it.octets()).unwrap_or_default(),
            source_address: link.source.map(|it| it.octets()).unwrap_or_default(),
            udp_port: if address.is_some() { self.port } else { 0 },
            ..PeerRow::default()
        };
        Written { ifindex: link.device.index, interface: link.interface, max_frame: link.max_frame, row }
    }

    /// The address that frames for `node` bear, if they travel in UDP.
    fn address(&self, node: u16) -> Option<Ipv4Addr> {
        let address = match self.configured(node) {
            Some(Configured { end: PeerEnd::Address(address), .. }) => Some(*address),
            Some(_) => None,
            None => self.members.get(&node).and_then(|member| {
                self.links.iter().find_map(|link| Some(member.profile.link(&link.segment)?.address))?
            }),
        };
        match address? {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        }
    }

    /// Finds the next hops to peers whose frames travel in UDP, and follows them.
    fn find_hops(&mut self) {
        if self.by_kernel || self.links.iter().all(|link| link.source.is_none()) {
            return;
        }
        let nodes: Vec<u16> =
            self.configured.iter().map(|peer| peer.node).chain(self.members.keys().copied()).collect();
        let hops: BTreeMap<_, _> =
            nodes.into_iter().filter_map(|node| Some((node, hop_to(self.address(node)?)?))).collect();
        if hops == self.hops {
            return;
        }
        self.hops = hops;
        let named = self.configured.iter().filter_map(|peer| on_link(&self.links[peer.link], peer));
        let wanted: Vec<_> = named.chain(self.hops.values().copied()).collect();
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.follow(wanted);
        }
    }

    /// MAC address of the next hop to `node`.
    fn hop_mac(&self, node: u16) -> Option<[u8; 6]> {
        self.address(node)?;
        if self.by_kernel {
            return Some([0; 6]);
        }
        self.neighbours.as_ref()?.mac(*self.hops.get(&node)?)
    }

    fn mac(&self, peer: &Configured) -> Option<[u8; 6]> {
        let followed = |address: IpAddr| self.neighbours.as_ref()?.mac((self.links[peer.link].device.index, address));
        match peer.end {
            PeerEnd::Mac(mac) => Some(mac),
            PeerEnd::Address(address) => followed(address),
        }
    }

    /// The first link of this node that leads where a member has one too, and the member's end of it.
    fn shared_link(&self, member: &Member) -> Option<(&Link, [u8; 6])> {
        self.links.iter().find_map(|link| Some((link, member.profile.link(&link.segment)?.mac)))
    }
}

/// The next hop on the way to an address, as the kernel would take it; `None` while there is no way.
fn hop_to(address: Ipv4Addr) -> Option<(u32, IpAddr)> {
    let route = neighbour::Route::to(address.into()).ok()?;
    Some((route.ifindex, route.gateway.unwrap_or(address.into())))
}

/// The functions of a node, as its profile names them.
pub fn functions(config: &Config) -> Vec<(u16, u32)> {
    config.functions.iter().map(|function| (function.type_id, name_hash(function.name))).collect()
}

const fn reason_of(refusal: Refusal) -> Reason {
    match refusal {
        Refusal::Malformed => Reason::DropMemberMalformed,
        Refusal::Version => Reason::DropMemberVersion,
        Refusal::NoKey => Reason::DropMemberNoKey,
        Refusal::Tag => Reason::DropMemberTag,
        Refusal::Clock => Reason::DropMemberClock,
        Refusal::Replayed => Reason::DropMemberReplayed,
        Refusal::Conflict => Reason::DropMemberConflict,
    }
}

#[cfg(test)]
#[path = "peers_tests.rs"]
mod tests;

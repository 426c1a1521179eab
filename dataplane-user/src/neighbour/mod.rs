//! Who is behind an IP address: the kernel's neighbour table, followed live over rtnetlink (`rtnetlink(7)`), and its routes.
//!
//! The kernel resolves, this module asks it to and listens. Frames that AF_XDP or XDP send do not refresh an entry, so those that
//! are wanted are brought to its mind every [`NUDGE_NS`]: it then probes what it has not heard of for a while. An entry counts as
//! long as the kernel itself would send by it, so also while it is being probed.

mod netlink;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};

use netlink::{Netlink, Received, family};

/// How often the kernel is reminded of an entry that is wanted, ns.
pub const NUDGE_NS: u64 = 1_000_000_000;
/// How often messages of the kernel are looked for, ns.
const LOOK_NS: u64 = 10_000_000;

/// An address and the interface it is looked for on.
pub type Neighbour = (u32, IpAddr);

/// The neighbours that somebody wants to know, as the kernel's table has them.
pub struct Neighbours {
    netlink: Netlink,
    wanted: BTreeMap<Neighbour, Entry>,
    look_ns: u64,
    nudge_ns: u64,
    /// A dump is under way; entries that it does not mention are gone.
    dumps: bool,
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    mac: Option<[u8; 6]>,
    /// Mentioned since the dump began.
    is_mentioned: bool,
    /// The kernel needs no reminder: somebody wrote the entry by hand.
    is_permanent: bool,
}

impl Neighbours {
    /// Nothing is wanted yet.
    ///
    /// # Errors
    /// There is no rtnetlink socket to be had.
    pub fn open() -> io::Result<Self> {
        let netlink = Netlink::open(&[libc::RTNLGRP_NEIGH])?;
        Ok(Self { netlink, wanted: BTreeMap::new(), look_ns: 0, nudge_ns: 0, dumps: false })
    }

    /// Follows exactly these from now on. What is known of those that were followed before stays known.
    pub fn follow(&mut self, wanted: impl IntoIterator<Item = Neighbour>) {
        let known = std::mem::take(&mut self.wanted);
        let entry = |neighbour: Neighbour| (neighbour, known.get(&neighbour).copied().unwrap_or_default());
        self.wanted = wanted.into_iter().map(entry).collect();
        (self.look_ns, self.nudge_ns) = (0, 0);
        self.dump();
    }

    /// The MAC address of a neighbour that is followed; `None` while the kernel has none.
    pub fn mac(&self, neighbour: Neighbour) -> Option<[u8; 6]> {
        self.wanted.get(&neighbour)?.mac
    }

    /// Takes what the kernel has said since, if it is time to look; true when a MAC address has changed.
    pub fn turn(&mut self, now_ns: u64) -> bool {
        if self.wanted.is_empty() || now_ns < self.look_ns {
            return false;
        }
        self.look_ns = now_ns + LOOK_NS;
        if now_ns >= self.nudge_ns {
            self.nudge_ns = now_ns + NUDGE_NS;
            self.nudge();
        }
        let mut has_changed = false;
        loop {
            match self.netlink.receive() {
                Ok(Received::Message(RouteNetlinkMessage::NewNeighbour(message))) => {
                    has_changed |= self.take(&message, true);
                }
                Ok(Received::Message(RouteNetlinkMessage::DelNeighbour(message))) => {
                    has_changed |= self.take(&message, false);
                }
                Ok(Received::Message(_)) => {}
                Ok(Received::Done) => has_changed |= self.end_dump(),
                Ok(Received::Nothing) => return has_changed,
                // The kernel had more to say than there was room for.
                Err(_) => {
                    self.dump();
                    return has_changed;
                }
            }
        }
    }

    /// Asks for the whole table. The answer comes with the messages.
    fn dump(&mut self) {
        self.wanted.values_mut().for_each(|entry| entry.is_mentioned = false);
        let asked = self.netlink.dump(RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default()));
        self.dumps = asked.is_ok();
    }

    fn end_dump(&mut self) -> bool {
        let mut has_changed = false;
        if std::mem::take(&mut self.dumps) {
            for entry in self.wanted.values_mut().filter(|entry| !entry.is_mentioned) {
                has_changed |= entry.mac.take().is_some();
            }
        }
        has_changed
    }

    fn take(&mut self, message: &NeighbourMessage, is_there: bool) -> bool {
        let (mut address, mut mac) = (None, None);
        for attribute in &message.attributes {
            match attribute {
                NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => address = Some(IpAddr::from(*ip)),
                NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => address = Some(IpAddr::from(*ip)),
                NeighbourAttribute::LinkLayerAddress(bytes) => mac = <[u8; 6]>::try_from(bytes.as_slice()).ok(),
                _ => {}
            }
        }
        let state = message.header.state;
        let neighbour = address.map(|address| (message.header.ifindex, address));
        let Some(entry) = neighbour.and_then(|neighbour| self.wanted.get_mut(&neighbour)) else { return false };
        let mac = mac.filter(|_| is_there && is_usable(state));
        entry.is_mentioned = true;
        entry.is_permanent = mac.is_some() && state == NeighbourState::Permanent;
        std::mem::replace(&mut entry.mac, mac) != mac
    }

    /// Has the kernel resolve what it does not know and probe what it has not heard of for a while.
    fn nudge(&mut self) {
        for ((ifindex, address), _) in self.wanted.iter().filter(|(_, entry)| !entry.is_permanent) {
            let mut message = NeighbourMessage::default();
            message.header.family = family(*address);
            message.header.ifindex = *ifindex;
            message.header.flags = NeighbourFlags::Use;
            message.attributes.push(NeighbourAttribute::Destination((*address).into()));
            // Without CAP_NET_ADMIN, or while the interface is down, the entry stays as it is; the next try is soon.
            let _ = self.netlink.create(RouteNetlinkMessage::NewNeighbour(message));
        }
    }
}

/// Whether the kernel would send by an entry in this state (`NUD_VALID` without `NUD_NONE`).
const fn is_usable(state: NeighbourState) -> bool {
    use NeighbourState::{Delay, Noarp, Permanent, Probe, Reachable, Stale};
    matches!(state, Reachable | Stale | Delay | Probe | Permanent | Noarp)
}

/// The way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Interface that leads there.
    pub ifindex: u32,
    /// Our address that packets there bear.
    pub source: Option<IpAddr>,
    /// Gateway; `None` when the address is on the interface's own segment.
    pub gateway: Option<IpAddr>,
}

impl Route {
    /// The way that the kernel would take to `address`.
    ///
    /// # Errors
    /// `ENETUNREACH` when there is none, and what else the kernel says.
    pub fn to(address: IpAddr) -> io::Result<Self> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(address);
        message.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        message.attributes.push(RouteAttribute::Destination(address.into()));
        let mut netlink = Netlink::open(&[])?;
        let RouteNetlinkMessage::NewRoute(found) = netlink.ask(RouteNetlinkMessage::GetRoute(message))? else {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        };
        let mut route = Self { ifindex: 0, source: None, gateway: None };
        for attribute in &found.attributes {
            match attribute {
                RouteAttribute::Oif(ifindex) => route.ifindex = *ifindex,
                RouteAttribute::PrefSource(source) => route.source = ip(source),
                RouteAttribute::Gateway(gateway) => route.gateway = ip(gateway),
                _ => {}
            }
        }
        Ok(route)
    }
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

/// The IP addresses of an interface, in the kernel's order.
///
/// # Errors
/// What the kernel says.
pub fn addresses(ifindex: u32) -> io::Result<Vec<IpAddr>> {
    let mut netlink = Netlink::open(&[])?;
    netlink.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
    let mut found = Vec::new();
    loop {
        match netlink.wait()? {
            Received::Message(RouteNetlinkMessage::NewAddress(message)) if message.header.index == ifindex => {
                // On a point-to-point interface `Address` is the other end's, and `Local` ours.
                let local = message.attributes.iter().find_map(|attribute| match attribute {
                    AddressAttribute::Local(ip) => Some(*ip),
                    _ => None,
                });
                let any = message.attributes.iter().find_map(|attribute| match attribute {
                    AddressAttribute::Address(ip) => Some(*ip),
                    _ => None,
                });
                found.extend(local.or(any));
            }
            Received::Done => return Ok(found),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "netns_tests.rs"]
mod tests;

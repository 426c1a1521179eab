//! What a node brings to its cluster: links, peers, membership.

use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::{Context, Result};
use dataplane_common::maps::ABI_VERSION;

use super::{Attached, max_frame};
use crate::config::{self, Config, Encapsulation};
use crate::maps::Tables;
use crate::membership::{Event, Key, LinkEnd, Membership, Profile, Settings};
use crate::neighbour::{self, Neighbours};
use crate::peers::{Link, Peers, functions};
use crate::sys::NetDevice;
use crate::worker::InterfaceKind;
use crate::xdp::PeerMaps;

/// The links of a node, in the order of its configuration.
///
/// # Errors
/// Frames shall travel in UDP on a link without an IPv4 address.
pub(super) fn links(config: &Config, interfaces: &[Attached]) -> Result<Vec<Link>> {
    let attached = |link: &config::Link| {
        let is_it = |at: &Attached| at.kind == InterfaceKind::Link && at.device.name == link.interface.name;
        let (interface, attached) = (0..).zip(interfaces).find(|(_, attached)| is_it(attached))?;
        let source = match link.encapsulation {
            Encapsulation::Ethernet => Ok(None),
            Encapsulation::Udp => source_of(&attached.device).map(Some),
        };
        Some(source.map(|source| Link {
            source,
            device: attached.device.clone(),
            interface,
            segment: link.segment.clone(),
            max_frame: max_frame(&attached.device),
        }))
    };
    config.links.iter().filter_map(attached).collect()
}

/// The first IPv4 address of an interface.
fn source_of(device: &NetDevice) -> Result<Ipv4Addr> {
    let name = &device.name;
    let addresses =
        neighbour::addresses(device.index).with_context(|| format!("cannot read the addresses of {name}"))?;
    let v4 = addresses.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    v4.with_context(|| {
        format!(
            "the link {name} has no IPv4 address\n  why: its frames travel in UDP, which needs one\n  do:  ip address add ADDRESS/PREFIX dev {name}, or encapsulation = \"ethernet\""
        )
    })
}

/// The peers, of which nothing is written yet.
pub(super) fn peers(config: &Config, links: Vec<Link>, maps: PeerMaps, tables: Arc<Tables>) -> Result<Peers<PeerMaps>> {
    let neighbours = if Peers::<PeerMaps>::need_neighbours(config) {
        let socket = Neighbours::open();
        Some(socket.context("cannot follow the kernel's neighbour table, which a [[peer]] with an address needs")?)
    } else {
        None
    };
    Ok(Peers::new(config, links, (maps, tables), neighbours, warn))
}

/// Takes part in the cluster, if the configuration has one.
pub(super) fn join(config: &Config, epoch: u32, links: &[Link]) -> Result<Option<(Membership, Receiver<Event>)>> {
    let Some(membership) = &config.membership else { return Ok(None) };
    let key = match &membership.key_file {
        Some(path) => Key::from_file(path, &membership.cluster)?,
        None => Key::without_secret(&membership.cluster),
    };
    let settings = Settings {
        node: config.node.id,
        epoch,
        bind: membership.bind,
        join: membership.join.clone(),
        max_nodes: membership.max_nodes,
        key,
        profile: profile(config, links),
    };
    Membership::start(settings).map(Some)
}

/// What the node tells the others of itself.
pub(super) fn profile(config: &Config, links: &[Link]) -> Profile {
    let end = |link: &Link| LinkEnd {
        segment: link.segment.clone(),
        mac: link.device.mac,
        // A link needs none unless it is routed.
        address: neighbour::addresses(link.device.index).ok().and_then(|all| all.first().copied()),
    };
    Profile {
        name: config.node.name.clone(),
        abi: ABI_VERSION,
        workers: config.workers.cpus.len() as u16,
        draining: false,
        links: links.iter().map(end).collect(),
        functions: functions(config),
    }
}

/// Tells the operator something of a running node.
fn warn(text: &str) {
    // Nobody may be listening.
    let _ = writeln!(std::io::stderr(), "warning: {text}");
}

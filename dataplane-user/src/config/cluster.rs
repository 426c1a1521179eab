//! Links, peers and membership.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use super::Interface;

/// An interface that leads to peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The interface.
    pub interface: Interface,
    /// What it is connected to: members reach each other over links on one segment.
    pub segment: String,
    /// What frames travel in.
    pub encapsulation: Encapsulation,
}

/// What interconnect frames travel in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// Ethernet: both ends are on one segment.
    #[default]
    Ethernet,
    /// UDP over IPv4: there may be routers between the ends.
    Udp,
}

impl Encapsulation {
    /// Every encapsulation with its name in the file.
    pub const NAMES: [(&'static str, Self); 2] = [("ethernet", Self::Ethernet), ("udp", Self::Udp)];

    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ethernet => "ethernet",
            Self::Udp => "udp",
        }
    }
}

impl Link {
    /// Segment of a link for which the file gives none.
    pub const DEFAULT_SEGMENT: &str = "main";
}

/// Another node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: u16,
    /// Name of the [`Config::links`] interface that leads there.
    pub link: String,
    /// Its end of the link.
    pub end: PeerEnd,
}

/// A peer's end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// Its MAC address.
    Mac([u8; 6]),
    /// Its IP address on the link, behind which the kernel finds the MAC address.
    Address(IpAddr),
}

/// How nodes find each other ([`crate::membership`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// This node's address on the management network.
    pub bind: SocketAddr,
    /// Addresses of other nodes, which are asked for the rest.
    pub join: Vec<SocketAddr>,
    /// File with the key of the cluster; `None` when anyone may join.
    pub key_file: Option<PathBuf>,
    /// Name of the cluster: datagrams of another one are refused.
    pub cluster: String,
    /// Nodes with an id from here on cannot join.
    pub max_nodes: u16,
}

impl Membership {
    /// Name of a cluster for which the file gives none.
    pub const DEFAULT_CLUSTER: &str = "dataplane";
    /// Rows of the tables unless the file has another number.
    pub const DEFAULT_MAX_NODES: u16 = 64;
}

/// What is wrong with `name` as a node's name, which is also a directory's; `None` when nothing is.
pub fn node_name_problem(name: &str) -> Option<String> {
    let letter = |c: char| c.is_ascii_lowercase();
    match name.chars().find(|c| !letter(*c) && !c.is_ascii_digit() && *c != '-') {
        Some(c) => Some(format!("holds {c:?}")),
        None if !name.starts_with(letter) => Some("does not begin with a letter".to_owned()),
        None if name.len() > 32 => Some(format!("has {} characters", name.len())),
        None => None,
    }
}

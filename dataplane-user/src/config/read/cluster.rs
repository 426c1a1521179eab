//! What links, peers and `[membership]` mean.

use std::net::{IpAddr, SocketAddr};

use dataplane_common::maps::MAX_NODES;

use super::super::error::Complaint;
use super::super::nearest::did_you_mean;
use super::super::value;
use super::super::{Encapsulation, Link, Membership, Node, Peer, PeerEnd, Transport};
use super::walk::{Field, Section};
use super::{KnownLink, Reader};

/// Most seeds of a node.
const MAX_SEEDS: usize = 64;

impl Reader<'_> {
    pub(super) fn link(&mut self, section: &Section<'_>) -> Option<Link> {
        let interface = self.interface(section);
        let segment = self.field(section, "segment", value::shared_name);
        let encapsulation = self.field(section, "encapsulation", value::word(Encapsulation::NAMES.to_vec(), "choice"));
        let encapsulation = encapsulation.or(Encapsulation::default());
        let is_bad = segment.is_bad();
        let span = segment.good().map_or_else(|| section.header.clone(), |(_, span)| span);
        let segment = segment.or(Link::DEFAULT_SEGMENT.to_owned());
        match (&interface, section.table.get("interface")) {
            (Some(link), Some(value)) => {
                let known = KnownLink {
                    name: link.name.clone(),
                    span: value.span(),
                    used: false,
                    encapsulation,
                    segment: (!is_bad).then(|| (segment.clone(), span)),
                };
                self.links.push(known);
            }
            _ => self.links_are_complete = false,
        }
        if is_bad { None } else { Some(Link { interface: interface?, segment, encapsulation }) }
    }

    /// With membership, no two links of a node are on one segment.
    pub(super) fn claim_segments(&mut self) {
        for link in &self.links {
            let Some((segment, span)) = &link.segment else { continue };
            let taken = self.segments.iter().find(|(taken, _)| taken == segment);
            let Some((_, holder)) = taken else {
                self.segments.push((segment.clone(), link.name.clone()));
                continue;
            };
            let complaint = Complaint::new(
                format!("the links {holder} and {} are both on the segment {segment}", link.name),
                "members reach each other where both have a link on one segment, and there is one way",
                "write segment = \"NAME\" in each [[link]], on all nodes the same name for what they share",
            );
            self.problems.add_of_whole(span, complaint);
        }
    }

    pub(super) fn peer(&mut self, section: &Section<'_>) -> Option<Peer> {
        let (name, id) = self.identity(section);
        let link = self.required(section, "link", "link = \"to-n2\"", value::name("\"to-n2\""));
        let link = self.known_link(link);
        let end = self.peer_end(section);
        if let (Some(link), Some((end, span))) = (&link, end.good()) {
            let claim = (link.clone(), *end);
            self.ends.push((link.clone(), *end, span.clone()));
            self.addresses.claim(claim, &format!("this address on {link}"), section, &span, &mut self.problems);
        }
        Some(Peer { name: name?, id: id?, link: link?, end: end.value()? })
    }

    /// `mac`, or `address` instead of it.
    fn peer_end(&mut self, section: &Section<'_>) -> Field<PeerEnd> {
        let Some(mac) = section.table.get("mac") else {
            if section.table.contains_key("address") {
                return self.field(section, "address", |found| value::ip(found).map(PeerEnd::Address));
            }
            let example = "mac = \"02:00:00:00:02:01\", or address = \"198.18.1.2\" where the kernel can resolve it";
            return self.required(section, "mac", example, |found| value::mac(found).map(PeerEnd::Mac));
        };
        if section.table.contains_key("address") {
            let what = "this [[peer]] has a mac and an address";
            let why = "with an address, the MAC address comes from the kernel's neighbour table";
            self.problems.add_of_whole(&mac.span(), Complaint::new(what, why, "remove one of the two"));
        }
        self.field(section, "mac", |found| value::mac(found).map(PeerEnd::Mac))
    }

    /// Frames in UDP need addresses, and kernel sockets need frames in UDP.
    pub(super) fn check_encapsulation(&mut self, transport: Transport) {
        for link in &self.links {
            if transport == Transport::Udp && link.encapsulation != Encapsulation::Udp {
                let complaint = Complaint::new(
                    format!("the link {} does not carry UDP, as transport = \"udp\" needs", link.name),
                    "a kernel socket sends and receives UDP",
                    "write encapsulation = \"udp\" in the [[link]] and the address of each [[peer]] there, or another transport",
                );
                self.problems.add_of_whole(&link.span, complaint);
            }
        }
        for (link, end, span) in &self.ends {
            let in_udp = self.links.iter().any(|it| it.name == *link && it.encapsulation == Encapsulation::Udp);
            if in_udp && !matches!(end, PeerEnd::Address(IpAddr::V4(_))) {
                let complaint = Complaint::new(
                    format!("the peer needs an IPv4 address, because frames on {link} travel in UDP"),
                    "routers between the two look at addresses",
                    "write address = \"198.18.1.2\", the peer's on its end of the link, instead of a mac",
                );
                self.problems.add_of_whole(span, complaint);
            }
        }
    }

    /// The link that a peer names, noted as used, if there is one.
    fn known_link(&mut self, link: Field<String>) -> Option<String> {
        let Field::Good(link) = link else {
            self.peers_are_complete = false;
            return None;
        };
        let (span, link) = (link.span(), link.into_inner());
        if let Some(known) = self.links.iter_mut().find(|known| known.name == link) {
            known.used = true;
            return Some(link);
        }
        self.peers_are_complete = false;
        if self.links_are_complete {
            let quoted = self.problems.quote(&span);
            let holder = self.interfaces.taken.iter().find(|(name, _)| *name == link);
            let what = match holder {
                Some((_, holder)) => format!("link = {quoted} names {holder}, not a link"),
                None => {
                    let hint = did_you_mean(&link, self.links.iter().map(|known| known.name.as_str()));
                    format!("link = {quoted} names no [[link]]{hint}")
                }
            };
            let why = "frames for the peer leave through this interface";
            let todo = "write the interface of a [[link]], and add that section if there is none";
            self.problems.add_of_whole(&span, Complaint::new(what, why, todo));
        }
        None
    }

    /// Links that no `[[peer]]` names. With membership, peers that nobody has named may come.
    pub(super) fn unused_links(&mut self, has_membership: bool) {
        if !self.peers_are_complete || has_membership {
            return;
        }
        for link in self.links.iter().filter(|link| !link.used) {
            let complaint = Complaint::new(
                format!("the link {} leads to no peer", link.name),
                "the node would take the interface over and never send to it",
                format!("write link = {:?} in a [[peer]], add [membership], or remove the [[link]]", link.name),
            );
            self.problems.add_of_whole(&link.span, complaint);
        }
    }

    pub(super) fn membership(&mut self, section: &Section<'_>, node: Option<&Node>) -> Option<Membership> {
        let bind = self.required(section, "bind", "bind = \"192.0.2.1:7946\"", value::socket_address);
        let join = self.seeds(section);
        let key_file = self.field(section, "key_file", value::path);
        let auth = self.field(section, "auth", value::word(vec![("key", true), ("off", false)], "choice"));
        self.check_auth(section, &key_file, &auth);
        let cluster = self.field(section, "cluster", value::shared_name);
        const WHY: &str = "the tables of every node have a row for each id below it";
        let max_nodes = self.field(section, "max_nodes", value::number(1..=MAX_NODES as u16, WHY));
        let (clusters, rows) = (cluster.is_bad(), max_nodes.is_bad());
        let span = max_nodes.good().map_or_else(|| section.header.clone(), |(_, span)| span);
        let max_nodes = max_nodes.or(Membership::DEFAULT_MAX_NODES);
        if let Some(node) = node.filter(|node| node.id >= max_nodes && !rows) {
            let complaint = Complaint::new(
                format!("max_nodes = {max_nodes} leaves no row for this node's id, {}", node.id),
                WHY,
                format!(
                    "write max_nodes = {} or more, on all nodes the same, or give this node a lower id",
                    node.id + 1
                ),
            );
            self.problems.add_of_whole(&span, complaint);
        }
        if clusters || rows {
            return None;
        }
        let cluster = cluster.or(Membership::DEFAULT_CLUSTER.to_owned());
        Some(Membership { bind: bind.value()?, join: join?, key_file: key_file.value(), cluster, max_nodes })
    }

    /// A key file, or the word that there shall be none.
    fn check_auth(&mut self, section: &Section<'_>, key_file: &Field<std::path::PathBuf>, auth: &Field<bool>) {
        if key_file.is_bad() || auth.is_bad() {
            return;
        }
        let wants_key = auth.good().is_none_or(|(wants_key, _)| *wants_key);
        let complaint = match (key_file.good(), wants_key) {
            (None, true) => Complaint::new(
                "[membership] has no key_file",
                "whoever reaches the socket could join the cluster and take packets",
                "write key_file = \"/etc/dataplane/cluster.key\", or auth = \"off\" where nobody else can reach it",
            ),
            (Some(_), false) => Complaint::new(
                "auth = \"off\" contradicts key_file",
                "with a key, datagrams without its tag are refused",
                "remove one of the two",
            ),
            _ => return,
        };
        let span = auth.good().map_or_else(|| section.header.clone(), |(_, span)| span);
        self.problems.add_of_whole(&span, complaint);
    }

    fn seeds(&mut self, section: &Section<'_>) -> Option<Vec<SocketAddr>> {
        const TODO: &str = "write a list of addresses, like [\"192.0.2.2:7946\"]";
        let Some(value) = section.table.get("join") else { return Some(Vec::new()) };
        let list = value.get_ref().as_array().filter(|list| list.len() <= MAX_SEEDS);
        let Some(list) = list else {
            let what = match value.get_ref().as_array() {
                Some(list) => format!("join lists {} addresses, more than {MAX_SEEDS}", list.len()),
                None => format!("join is {}, not a list", value::kind(value.get_ref())),
            };
            let why = "every one of them is asked for the other members, for ever";
            self.problems.add(&value.span(), Complaint::new(what, why, TODO));
            return None;
        };
        let mut seeds = Some(Vec::with_capacity(list.len()));
        for entry in list {
            match value::socket_address(entry.get_ref()) {
                Ok(seed) => seeds.iter_mut().for_each(|seeds| seeds.push(seed)),
                Err(complaint) => {
                    let what = format!("the address {} in join {}", self.problems.quote(&entry.span()), complaint.what);
                    self.problems.add(&entry.span(), Complaint { what, ..complaint });
                    seeds = None;
                }
            }
        }
        seeds
    }
}

//! What a cluster looks like before anything of it exists: names, addresses, and the texts that `ip` and the nodes read.
//!
//! ```text
//!                    namespace …-gen
//!          g1            g2            g3          generator ends
//!          │             │             │
//!   namespace …-n1   …-n2          …-n3
//!         port          port          port         198.18.k.1, fd00:0:0:k::1
//!       to-n2 ───────── to-n1           │
//!       to-n3 ──────────┼────────────── to-n1      full mesh, Ethernet only
//!                       to-n3 ───────── to-n2
//! ```

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use dataplane_common::seal::SEAL_BYTES;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::OVERHEAD_BYTES;
use dataplane_common::wire::route::ROUTE_BYTES;
use dataplane_user::maps::PinDir;
use serde::{Deserialize, Serialize};

/// A MAC address.
pub type Mac = [u8; 6];

/// Name of each node's interface to the outside.
pub const PORT_INTERFACE: &str = "port";

/// Most nodes of a cluster: a full mesh on one machine is meant to be small.
pub const MAX_NODES: u16 = 5;

/// Clusters this process has planned, for unique names.
static SERIAL: AtomicU32 = AtomicU32::new(0);

/// Whom a cluster is for; the first part of each of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The demonstration: names begin with `dpd-`.
    Demo,
    /// Tests: names begin with `dpt-`.
    Test,
    /// Benchmarks: names begin with `dpb-`.
    Bench,
}

impl Purpose {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Demo, Self::Test, Self::Bench];

    /// First part of each name.
    pub const fn prefix(self) -> &'static str {
        match self {
            Self::Demo => "dpd-",
            Self::Test => "dpt-",
            Self::Bench => "dpb-",
        }
    }
}

/// Size of a cluster.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Whom it is for.
    pub purpose: Purpose,
    /// Nodes, 2 to [`MAX_NODES`].
    pub nodes: u16,
    /// Queues of every interface: as many as each node has workers.
    pub queues: u16,
    /// MTU of the ports. The links' is larger by what the interconnect puts in front.
    pub port_mtu: u16,
    /// Links with a [`Cable`](crate::chaos::Cable) in them, each as its two nodes, the lower id first.
    pub cables: Vec<(u16, u16)>,
}

impl Shape {
    /// `nodes` nodes with one worker each and the usual MTU.
    pub fn new(purpose: Purpose, nodes: u16) -> Self {
        Self { purpose, nodes, queues: 1, port_mtu: 1500, cables: Vec::new() }
    }

    /// The same with a cable in every link.
    pub fn with_cables(self) -> Self {
        let pairs = (1..=self.nodes).flat_map(|node| (node + 1..=self.nodes).map(move |peer| (node, peer)));
        Self { cables: pairs.collect(), ..self }
    }

    /// MTU of the links: a forwarded frame carries the original's Ethernet header as payload, and there is room for a seal.
    pub fn link_mtu(&self) -> usize {
        usize::from(self.port_mtu) + ETHERNET_BYTES + OVERHEAD_BYTES + SEAL_BYTES + ROUTE_BYTES
    }
}

/// A network namespace of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Where traffic comes from.
    Generator,
    /// A node, by its id (from 1).
    Node(u16),
    /// The middle of all links that have a cable in them.
    Box,
}

/// A node's way to the outside: a veth pair from the node to the generator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortPlan {
    /// The node.
    pub node: u16,
    /// Interface at the generator; the node's is [`PORT_INTERFACE`].
    pub generator_interface: String,
    /// MAC address at the node.
    pub node_mac: Mac,
    /// MAC address at the generator.
    pub generator_mac: Mac,
    /// IPv4 address at the node, in a /24.
    pub node_ipv4: Ipv4Addr,
    /// IPv4 address at the generator.
    pub generator_ipv4: Ipv4Addr,
    /// IPv6 address at the node, in a /64.
    pub node_ipv6: Ipv6Addr,
    /// IPv6 address at the generator.
    pub generator_ipv6: Ipv6Addr,
}

/// One end of a link between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkEnd {
    /// Interface at this end.
    pub interface: String,
    /// MAC address at this end.
    pub mac: Mac,
    /// IPv4 address at this end, of a /30.
    pub ipv4: Ipv4Addr,
}

/// How the kernel shares out CPUs to a node's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// As any other program.
    Ordinary,
    /// Before all ordinary programs, so that what else runs on this machine disturbs a measurement little. Nodes that
    /// share a CPU do not interrupt each other. For nodes that leave the CPU idle part of the time.
    RealTime,
    /// With the largest share that ordinary programs can have, for nodes that use all of a CPU: they would shut everything
    /// else out if they came before it.
    Favoured,
}

impl Scheduling {
    /// The program, with its first arguments, that starts another one so.
    pub(super) const fn words(self) -> &'static [&'static str] {
        match self {
            Self::Ordinary => &["nice", "-n", "0"],
            Self::RealTime => &["chrt", "--rr", "10"],
            Self::Favoured => &["nice", "-n", "-20"],
        }
    }
}

/// How the nodes of a cluster are to run; becomes their configuration.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Policy that decides.
    pub policy: String,
    /// CPUs of the workers, one each.
    pub cpus: Vec<usize>,
    /// Frames of packet memory of each worker: its rings hold half of them.
    pub frames: u32,
    /// How long a worker looks for packets before it sleeps.
    pub spin: Duration,
    /// How long a result waits for an earlier one of its flow.
    pub patience: Duration,
    /// In which order workers serve what waits.
    pub discipline: String,
    /// Idle workers ask peers for work.
    pub pull: bool,
    /// Work beyond which packets are refused; zero = never.
    pub backlog_limit: Duration,
    /// Time between two load reports under load.
    pub report_interval: Duration,
    /// Time between two load reports without load.
    pub idle_interval: Duration,
    /// CPU time that sending a packet to a peer costs.
    pub send: Duration,
    /// CPU time that receiving one costs.
    pub receive: Duration,
    /// Time on the wire.
    pub wire: Duration,
    /// What a redirect must gain.
    pub margin: Duration,
    /// Decide as Jang's thesis does: without the guard, and by its rule for work sent.
    pub thesis: bool,
    /// Whether the configuration names the peers; else something in [`Self::extra`] has to find them.
    pub names_peers: bool,
    /// More configuration, TOML sections as they stand.
    pub extra: String,
    /// How frames travel between nodes: `xdp`, `xsk` or `udp`.
    pub transport: String,
    /// They travel in UDP; with the transport `udp` always.
    pub routed: bool,
    /// How the kernel schedules it.
    pub scheduling: Scheduling,
}

impl NodeSettings {
    /// `policy` with the product's defaults and one worker on `cpu`.
    pub fn new(policy: &str, cpu: usize) -> Self {
        Self {
            policy: policy.to_owned(),
            cpus: vec![cpu],
            frames: 4096,
            spin: Duration::from_micros(20),
            patience: Duration::from_millis(50),
            discipline: "fifo".to_owned(),
            pull: false,
            backlog_limit: Duration::from_millis(500),
            report_interval: Duration::from_micros(100),
            idle_interval: Duration::from_millis(1),
            send: Duration::from_micros(2),
            receive: Duration::from_micros(2),
            wire: Duration::from_micros(10),
            margin: Duration::ZERO,
            thesis: false,
            names_peers: true,
            extra: String::new(),
            transport: "xdp".to_owned(),
            routed: false,
            scheduling: Scheduling::Ordinary,
        }
    }
}

/// A cluster on paper. See the module.
#[derive(Clone, Debug)]
pub struct Plan {
    shape: Shape,
    run: String,
}

impl Plan {
    /// Plans a cluster with names that no other cluster has: they hold this process's id and a number.
    ///
    /// # Errors
    /// More or fewer nodes than a cluster can have, or no queue.
    pub fn new(shape: Shape) -> Result<Self> {
        ensure!((2..=MAX_NODES).contains(&shape.nodes), "{} nodes: a cluster has 2 to {MAX_NODES}", shape.nodes);
        ensure!(shape.queues > 0, "an interface has at least one queue");
        for (at, (node, peer)) in shape.cables.iter().enumerate() {
            let is_link = 1 <= *node && node < peer && *peer <= shape.nodes;
            ensure!(is_link, "a cable from node {node} to node {peer}: there is no such link");
            ensure!(!shape.cables[..at].contains(&(*node, *peer)), "two cables from node {node} to node {peer}");
        }
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let run = format!("{}{}-{serial}", shape.purpose.prefix(), process::id());
        Ok(Self { shape, run })
    }

    /// Size of the cluster.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// What all names of the cluster begin with.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Ids of the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = u16> + use<> {
        1..=self.shape.nodes
    }

    /// Every namespace.
    pub fn hosts(&self) -> impl Iterator<Item = Host> + use<> {
        let cables = (!self.shape.cables.is_empty()).then_some(Host::Box);
        std::iter::once(Host::Generator).chain(self.nodes().map(Host::Node)).chain(cables)
    }

    /// Name of a namespace; a node's name is the same, because pins are not kept apart by namespaces.
    pub fn name(&self, host: Host) -> String {
        match host {
            Host::Generator => format!("{}-gen", self.run),
            Host::Node(node) => format!("{}-n{node}", self.run),
            Host::Box => format!("{}-box", self.run),
        }
    }

    /// The port of `node`.
    pub fn port(&self, node: u16) -> PortPlan {
        // MAX_NODES is far below 256.
        let k = node as u8;
        PortPlan {
            node,
            generator_interface: format!("g{node}"),
            node_mac: [2, 0, 0, 0, k, 1],
            generator_mac: [2, 0, 0, 0, k, 2],
            node_ipv4: Ipv4Addr::new(198, 18, k, 1),
            generator_ipv4: Ipv4Addr::new(198, 18, k, 2),
            node_ipv6: Ipv6Addr::new(0xfd00, 0, 0, node, 0, 0, 0, 1),
            generator_ipv6: Ipv6Addr::new(0xfd00, 0, 0, node, 0, 0, 0, 2),
        }
    }

    /// The end at `node` of the link to `peer`.
    pub fn link(&self, node: u16, peer: u16) -> LinkEnd {
        // Nodes are few: both fit four bits.
        let pair = (node.min(peer) << 4 | node.max(peer)) as u8;
        let host = if node < peer { 1 } else { 2 };
        LinkEnd {
            interface: format!("to-n{peer}"),
            mac: [2, 0, 0, 1, node as u8, peer as u8],
            ipv4: Ipv4Addr::new(198, 19, pair, host),
        }
    }

    /// The end in the box of the half of a cable that `node` is at; the other half ends at `peer`.
    pub fn cable_end(&self, node: u16, peer: u16) -> LinkEnd {
        LinkEnd {
            interface: format!("c{node}-{peer}"),
            mac: [2, 0, 0, 2, node as u8, peer as u8],
            ipv4: Ipv4Addr::UNSPECIFIED,
        }
    }

    /// The other nodes.
    pub fn peers(&self, node: u16) -> impl Iterator<Item = u16> + use<> {
        self.nodes().filter(move |peer| *peer != node)
    }

    /// Interfaces of a namespace, without the loopback.
    pub fn interfaces(&self, host: Host) -> Vec<String> {
        match host {
            Host::Generator => self.nodes().map(|node| self.port(node).generator_interface).collect(),
            Host::Node(node) => {
                let links = self.peers(node).map(|peer| self.link(node, peer).interface);
                std::iter::once(PORT_INTERFACE.to_owned()).chain(links).collect()
            }
            Host::Box => {
                let ends = |(node, peer): &(u16, u16)| {
                    [self.cable_end(*node, *peer).interface, self.cable_end(*peer, *node).interface]
                };
                self.shape.cables.iter().flat_map(ends).collect()
            }
        }
    }

    /// Commands for `ip -batch` that make the namespaces and the veth pairs.
    pub(super) fn creation(&self) -> String {
        let mut text = String::new();
        let mut add = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        for host in self.hosts() {
            add(format!("netns add {}", self.name(host)));
        }
        let generator = self.name(Host::Generator);
        for node in self.nodes() {
            let (name, port) = (self.name(Host::Node(node)), self.port(node));
            let mtu = usize::from(self.shape.port_mtu);
            let near = self.end(PORT_INTERFACE, &name, port.node_mac, mtu);
            let far = self.end(&port.generator_interface, &generator, port.generator_mac, mtu);
            add(format!("link add {near} type veth peer {far}"));
            for peer in self.peers(node).filter(|peer| *peer > node) {
                let (there, back) = (self.link(node, peer), self.link(peer, node));
                let near = self.end(&there.interface, &name, there.mac, self.shape.link_mtu());
                let far = self.end(&back.interface, &self.name(Host::Node(peer)), back.mac, self.shape.link_mtu());
                if !self.shape.cables.contains(&(node, peer)) {
                    add(format!("link add {near} type veth peer {far}"));
                    continue;
                }
                let middle = [self.cable_end(node, peer), self.cable_end(peer, node)]
                    .map(|end| self.end(&end.interface, &self.name(Host::Box), end.mac, self.shape.link_mtu()));
                add(format!("link add {near} type veth peer {}", middle[0]));
                add(format!("link add {far} type veth peer {}", middle[1]));
            }
        }
        text
    }

    /// One end of a veth pair, as `ip link add` takes it.
    fn end(&self, interface: &str, namespace: &str, mac: Mac, mtu: usize) -> String {
        let (mac, queues) = (format_mac(mac), self.shape.queues);
        format!("name {interface} netns {namespace} address {mac} mtu {mtu} numtxqueues {queues} numrxqueues {queues}")
    }

    /// Commands for `ip -batch` inside a namespace: addresses, neighbours, everything up.
    ///
    /// Neighbours are written down on both sides and no link-local address is made, so that nothing but the traffic
    /// moves: no ARP, no router solicitation, no duplicate address detection.
    pub(super) fn configuration(&self, host: Host) -> String {
        let mut text = String::from("link set dev lo up\n");
        for interface in self.interfaces(host) {
            let _ = writeln!(text, "link set dev {interface} addrgenmode none up");
        }
        let ports = match host {
            Host::Generator => self.nodes().collect(),
            Host::Node(node) => vec![node],
            Host::Box => Vec::new(),
        };
        for port in ports.into_iter().map(|node| self.port(node)) {
            let (interface, own, other, own6, other6, mac) = match host {
                Host::Generator => (
                    port.generator_interface.as_str(),
                    port.generator_ipv4,
                    port.node_ipv4,
                    port.generator_ipv6,
                    port.node_ipv6,
                    port.node_mac,
                ),
                // The box has no ports.
                Host::Node(_) | Host::Box => (
                    PORT_INTERFACE,
                    port.node_ipv4,
                    port.generator_ipv4,
                    port.node_ipv6,
                    port.generator_ipv6,
                    port.generator_mac,
                ),
            };
            let mac = format_mac(mac);
            let _ = writeln!(text, "addr add {own}/24 dev {interface}");
            let _ = writeln!(text, "addr add {own6}/64 dev {interface} nodad");
            for neighbour in [other.to_string(), other6.to_string()] {
                let _ = writeln!(text, "neigh replace {neighbour} lladdr {mac} dev {interface} nud permanent");
            }
        }
        if let Host::Node(node) = host {
            for (own, other) in self.peers(node).map(|peer| (self.link(node, peer), self.link(peer, node))) {
                let (interface, mac) = (&own.interface, format_mac(other.mac));
                let _ = writeln!(text, "addr add {}/30 dev {interface}", own.ipv4);
                let _ = writeln!(text, "neigh replace {} lladdr {mac} dev {interface} nud permanent", other.ipv4);
            }
        }
        text
    }

    /// Configuration of `node`, as `dataplane run --config` reads it.
    pub fn config(&self, node: u16, settings: &NodeSettings) -> String {
        let mut text = String::new();
        let mut add = |line: String| {
            text.push_str(&line);
            text.push('\n');
        };
        add(format!("[node]\nname = \"{}\"\nid = {node}\n", self.name(Host::Node(node))));
        add(format!("[[port]]\ninterface = \"{PORT_INTERFACE}\"\nmode = \"native\"\n"));
        let in_udp = settings.routed || settings.transport == "udp";
        // What a test adds may have the section already.
        if settings.transport != "xdp" {
            add(format!("[interconnect]\ntransport = \"{}\"\n", settings.transport));
        }
        for peer in self.peers(node) {
            let (near, far) = (self.link(node, peer), self.link(peer, node));
            let segment = format!("n{}-n{}", node.min(peer), node.max(peer));
            let link = format!("interface = \"{}\"\nmode = \"native\"\nsegment = \"{segment}\"\n", near.interface);
            let encapsulation = if in_udp { "udp" } else { "ethernet" };
            add(format!("[[link]]\n{link}encapsulation = \"{encapsulation}\"\n"));
            if !settings.names_peers {
                continue;
            }
            let end = if in_udp {
                format!("address = \"{}\"", far.ipv4)
            } else {
                format!("mac = \"{}\"", format_mac(far.mac))
            };
            add(format!(
                "[[peer]]\nname = \"{}\"\nid = {peer}\nlink = \"{}\"\n{end}\n",
                self.name(Host::Node(peer)),
                near.interface,
            ));
        }
        add(format!(
            "[workers]\ncpus = {:?}\nframes = {}\nspin = \"{}\"\npatience = \"{}\"\ndiscipline = \"{}\"\npull = {}\nbacklog_limit = \"{}\"\n",
            settings.cpus,
            settings.frames,
            format_duration(settings.spin),
            format_duration(settings.patience),
            settings.discipline,
            settings.pull,
            format_duration(settings.backlog_limit)
        ));
        add(format!(
            "[policy]\nname = \"{}\"\nmargin = \"{}\"\nthesis = {}\n",
            settings.policy,
            format_duration(settings.margin),
            settings.thesis
        ));
        add(format!(
            "[forwarding]\nsend = \"{}\"\nreceive = \"{}\"\nwire = \"{}\"\n",
            format_duration(settings.send),
            format_duration(settings.receive),
            format_duration(settings.wire)
        ));
        add(format!(
            "[reports]\ninterval = \"{}\"\nidle_interval = \"{}\"",
            format_duration(settings.report_interval),
            format_duration(settings.idle_interval)
        ));
        if !settings.extra.is_empty() {
            add(format!("\n{}", settings.extra));
        }
        text
    }
}

/// Where the pinned maps of a node are.
pub fn pins(bpffs: &Path, node: &str) -> std::path::PathBuf {
    PinDir::of(bpffs, node).path().to_owned()
}

/// A MAC address as `ip` and the configuration write it.
pub fn format_mac(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The MAC address that a text says: six pairs of hexadecimal digits with colons between them.
///
/// # Errors
/// It says none; the error is for people.
pub fn parse_mac(text: &str) -> Result<Mac, String> {
    let pair = |digits: &str| u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2);
    let bytes = text.split(':').map(pair).collect::<Option<Vec<_>>>();
    let mac = bytes.and_then(|bytes| Mac::try_from(bytes).ok());
    mac.ok_or_else(|| format!("{text} is no MAC address: six pairs of hexadecimal digits with colons between them"))
}

/// A duration with the largest unit in which it is a whole number.
pub fn format_duration(duration: Duration) -> String {
    let ns = duration.as_nanos();
    for (unit, name) in [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")] {
        if ns != 0 && ns.is_multiple_of(unit) {
            return format!("{}{name}", ns / unit);
        }
    }
    format!("{ns}ns")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(nodes: u16) -> Plan {
        Plan::new(Shape::new(Purpose::Test, nodes)).unwrap()
    }

    #[test]
    fn clusters_of_one_process_have_different_names() {
        assert_ne!(plan(2).run(), plan(2).run());
        assert!(plan(2).name(Host::Node(2)).starts_with(&format!("dpt-{}-", process::id())));
    }

    #[test]
    fn sizes_outside_the_limits_are_refused() {
        for nodes in [0, 1, MAX_NODES + 1] {
            assert!(Plan::new(Shape::new(Purpose::Test, nodes)).is_err());
        }
        assert!(Plan::new(Shape { queues: 0, ..Shape::new(Purpose::Test, 2) }).is_err());
    }

    #[test]
    fn every_address_is_used_once() {
        let plan = plan(MAX_NODES);
        let mut macs = BTreeSet::new();
        let mut interfaces = 0;
        for node in plan.nodes() {
            let port = plan.port(node);
            macs.extend([port.node_mac, port.generator_mac]);
            macs.extend(plan.peers(node).map(|peer| plan.link(node, peer).mac));
            interfaces += 2 + plan.peers(node).count();
        }
        assert_eq!(macs.len(), interfaces);
        assert!(macs.iter().all(|mac| mac[0] & 3 == 2), "locally administered, unicast");
    }

    #[test]
    fn interface_names_fit_the_kernel_and_pairs_are_made_once() {
        let plan = plan(3);
        for host in plan.hosts() {
            assert!(plan.interfaces(host).iter().all(|name| name.len() <= 15));
        }
        // 3 ports and 3 links.
        assert_eq!(plan.creation().matches("type veth").count(), 6);
        assert_eq!(plan.creation().matches("netns add").count(), 4);
    }

    #[test]
    fn a_cable_makes_two_pairs_of_one() {
        let plan = Plan::new(Shape::new(Purpose::Test, 3).with_cables()).unwrap();
        assert_eq!(plan.shape().cables, [(1, 2), (1, 3), (2, 3)]);
        // 3 ports and 3 links of two halves.
        assert_eq!(plan.creation().matches("type veth").count(), 9);
        assert_eq!(plan.hosts().last(), Some(Host::Box));
        assert_eq!(plan.interfaces(Host::Box), ["c1-2", "c2-1", "c1-3", "c3-1", "c2-3", "c3-2"]);
        for cables in [vec![(2, 1)], vec![(1, 1)], vec![(1, 4)], vec![(0, 1)], vec![(1, 2), (1, 2)]] {
            assert!(Plan::new(Shape { cables, ..Shape::new(Purpose::Test, 3) }).is_err());
        }
    }

    #[test]
    fn links_carry_what_ports_do_with_the_interconnect_header_in_front() {
        let shape = Shape::new(Purpose::Test, 2);
        // A frame of the largest size at a port is MTU + 14 bytes; 54 more go in front; a link's frame is MTU + 14 too.
        assert!(shape.link_mtu() + 14 >= usize::from(shape.port_mtu) + 14 + 54);
    }

    #[test]
    fn the_configuration_names_the_other_nodes() {
        let plan = plan(3);
        let text = plan.config(2, &NodeSettings::new("ept-erl", 1));
        assert_eq!(text.matches("[[peer]]").count(), 2);
        assert!(text.contains(&format!("name = \"{}\"\nid = 2\n", plan.name(Host::Node(2)))), "{text}");
        assert!(text.contains("link = \"to-n3\"\nmac = \"02:00:00:01:03:02\""), "{text}");
        assert!(text.contains("cpus = [1]"), "{text}");
        assert!(text.contains("interval = \"100us\"\nidle_interval = \"1ms\""), "{text}");
    }

    #[test]
    fn durations_take_the_largest_whole_unit() {
        let texts = [0, 1, 1_500, 2_000, 3_000_000, 4_000_000_000].map(|ns| format_duration(Duration::from_nanos(ns)));
        assert_eq!(texts, ["0ns", "1ns", "1500ns", "2us", "3ms", "4s"]);
    }
}

//! What one node is told to do: the TOML file, checked in full before anything is opened.
//!
//! [`Config::parse`] walks the parsed document by hand instead of deriving a deserialiser: a derived one stops at the
//! first mistake, this one reports every mistake of the file at once, each with its place, the reason and what to write
//! instead. A [`Config`] that was returned holds: names and ids are unique, every peer's link exists, every number is
//! within what [`maps`](dataplane_common::maps) can hold.
//!
//! | file | what it knows |
//! |---|---|
//! | `schema.rs` | which sections and keys there are |
//! | `change.rs` | what differs between two configurations, and what a running node can take |
//! | `cluster.rs` | links, peers and membership as they were read |
//! | `settings.rs` | the settings of the policies as keys |
//! | `read.rs` | what sections mean: defaults, checks between them |
//! | `read/placement.rs` | the same of `[policy]` and `[[function]]` |
//! | `read/cluster.rs` | the same of `[[peer]]` and `[membership]` |
//! | `read/walk.rs` | finds sections and keys |
//! | `value.rs` | what one value may be |
//! | `units.rs` | `"100us"`, `"10Gbit/s"` |
//! | `nearest.rs` | "did you mean" |
//! | `function.rs` | a function, its order and the way of its results |
//! | `error.rs` | mistakes and how they are shown |
//! | `write.rs` | [`Config::to_toml`] |

mod change;
mod cluster;
mod error;
mod function;
mod nearest;
mod read;
mod schema;
mod settings;
mod units;
mod value;
mod write;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use dataplane_common::load::{self, Erl};
use dataplane_common::maps::{ABI_VERSION, AUTH_FULL, AUTH_HEADER, AUTH_OFF, AUTH_REPORTS, Params};
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::Tuning;
use dataplane_common::wire::{anep, link};

pub use change::Change;
pub use cluster::{Encapsulation, Link, Membership, Peer, PeerEnd, node_name_problem};
pub use dataplane_common::report::Mode as ReportMode;
pub use error::{ConfigErrors, Place, Problem};
pub use function::{DEFAULT_ORDER, FunctionConfig, Order, Returns};
pub use settings::{KnownSetting, settings};

/// A function the caller can run, as the file may name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownFunction {
    /// Name in the file.
    pub name: &'static str,
    /// Type id it answers to unless the file says otherwise.
    pub type_id: u16,
}

/// One node, complete: what the file left out is filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Who this node is.
    pub node: Node,
    /// Where active packets arrive; at least one.
    pub ports: Vec<Interface>,
    /// Interfaces that lead to peers.
    pub links: Vec<Link>,
    /// Other nodes that are known beforehand.
    pub peers: Vec<Peer>,
    /// How nodes find each other; without it there are only [`Config::peers`].
    pub membership: Option<Membership>,
    /// Threads and packet memory.
    pub workers: Workers,
    /// How packets are placed.
    pub policy: Policy,
    /// What sending a packet to a peer costs.
    pub forwarding: Forwarding,
    /// How frames travel between nodes.
    pub interconnect: Interconnect,
    /// The way out of results that do not go home.
    pub egress: Egress,
    /// How often load is reported.
    pub reports: Reports,
    /// How active packets are recognised.
    pub active: Active,
    /// What this node computes.
    pub functions: Vec<FunctionConfig>,
}

/// Who this node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Name, also of the directory of its pinned maps.
    pub name: String,
    /// Row of the load table, below [`MAX_NODES`](dataplane_common::maps::MAX_NODES).
    pub id: u16,
}

/// A network interface the node takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's name for it.
    pub name: String,
    /// Where its XDP program runs.
    pub mode: Mode,
    /// Whether its AF_XDP sockets skip the copy.
    pub zero_copy: ZeroCopy,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, or fail.
    #[default]
    Native,
    /// Behind the driver, on the kernel's buffers: works everywhere, slower.
    Skb,
    /// In the driver if it can, else behind it, and say which.
    Auto,
}

impl Mode {
    /// Every mode with its name in the file.
    pub const NAMES: [(&'static str, Self); 3] = [("native", Self::Native), ("skb", Self::Skb), ("auto", Self::Auto)];

    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Skb => "skb",
            Self::Auto => "auto",
        }
    }
}

/// Whether the driver receives into and sends from packet memory directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// If the driver can.
    #[default]
    Auto,
    /// Or fail.
    On,
    /// Never: the kernel copies.
    Off,
}

impl ZeroCopy {
    /// Every choice with its name in the file.
    pub const NAMES: [(&'static str, Self); 3] = [("auto", Self::Auto), ("on", Self::On), ("off", Self::Off)];

    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Threads and packet memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workers {
    /// CPU of each worker. Worker k serves queue k of every interface.
    pub cpus: Vec<u32>,
    /// UMEM frames of each worker, a power of two.
    pub frames: u32,
    /// Bytes of a frame: 2048 or 4096.
    pub frame_size: u32,
    /// How long a worker without packets spins before it sleeps, ns; 0 = it sleeps at once.
    pub spin_ns: u32,
    /// How long a result waits for an earlier one of its flow before that is given up, ns.
    pub patience_ns: u32,
    /// Idle workers ask other nodes for work.
    pub pull: bool,
    /// Packets are refused while more work than this waits at their worker, and peers are told to send no more, ns; 0 = never.
    pub backlog_limit_ns: u32,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            cpus: vec![0],
            frames: 4096,
            frame_size: 2048,
            spin_ns: 20_000,
            patience_ns: 50_000_000,
            pull: false,
            backlog_limit_ns: 500_000_000,
        }
    }
}

/// How packets are placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The rule for functions that name none.
    pub kind: PolicyKind,
    /// A redirect must be better than staying by more than this, ns.
    pub margin_ns: u32,
    /// As the thesis has it: redirects are not refused for costing more CPU time than they save, and the defaults of
    /// [`Policy::tuning`] are those of [`Policy::tuning_of`].
    pub thesis: bool,
    /// The settings of the policies, the discipline of the workers among them.
    pub tuning: Tuning,
}

impl Policy {
    /// The settings unless the file has others: with `thesis`, work sent counts by the literal rule, and all nodes are
    /// looked at.
    pub const fn tuning_of(thesis: bool) -> Tuning {
        if thesis { Tuning { erl: Erl::Add as u32, sample: 0, ..Tuning::DEFAULT } } else { Tuning::DEFAULT }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { kind: PolicyKind::EptErl, margin_ns: 0, thesis: false, tuning: Self::tuning_of(false) }
    }
}

/// What sending a packet to a peer costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forwarding {
    /// CPU time of the sender, ns.
    pub send_ns: u32,
    /// CPU time of the receiver, ns.
    pub receive_ns: u32,
    /// Time on the wire, whatever the length, ns.
    pub wire_ns: u32,
    /// Bandwidth of the wire, bit/s.
    pub bandwidth_bits: u64,
    /// The others are replaced by what is measured ([`crate::forwarding`]).
    pub measure: bool,
}

impl Forwarding {
    /// The costs as deciders read them.
    pub fn cost(&self) -> load::Forwarding {
        load::Forwarding {
            send_ns: self.send_ns,
            receive_ns: self.receive_ns,
            wire_ns: self.wire_ns,
            wire_ns_per_byte_q16: self.wire_ns_per_byte_q16(),
        }
    }

    /// Time on the wire per byte, ns in Q16, rounded to the nearest.
    pub fn wire_ns_per_byte_q16(&self) -> u32 {
        // ns per byte = 8 bits × 10^9 ns / bandwidth.
        const BYTE_Q16: u64 = (8 * 1_000_000_000) << 16;
        let bandwidth = self.bandwidth_bits.max(1);
        u32::try_from((BYTE_Q16 + bandwidth / 2) / bandwidth).unwrap_or(u32::MAX)
    }
}

impl Default for Forwarding {
    fn default() -> Self {
        Self { send_ns: 2_000, receive_ns: 2_000, wire_ns: 10_000, bandwidth_bits: 10_000_000_000, measure: true }
    }
}

/// How frames travel between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interconnect {
    /// Who decides and sends.
    pub transport: Transport,
    /// UDP port of links with [`Encapsulation::Udp`]; reports go to the next one.
    pub port: u16,
    /// How long a packet of a lossless function waits for its result beyond what is predicted, ns.
    pub retry_ns: u32,
    /// File of the cluster's keys ([`crate::keys`]); `None` = frames prove nothing.
    pub key_file: Option<PathBuf>,
    /// What the keys seal besides reports and requests for work.
    pub auth: Auth,
    /// Name of the cluster: frames of another one do not verify, even under the same key file.
    pub cluster: String,
}

impl Default for Interconnect {
    fn default() -> Self {
        Self {
            transport: Transport::Xdp,
            port: link::UDP_PORT,
            retry_ns: 20_000_000,
            key_file: None,
            auth: Auth::Off,
            cluster: "dataplane".to_owned(),
        }
    }
}

impl Interconnect {
    /// [`Params::auth`] of a node.
    pub const fn auth_id(&self) -> u32 {
        match (&self.key_file, self.auth) {
            (None, _) => AUTH_OFF,
            (Some(_), Auth::Off) => AUTH_REPORTS,
            (Some(_), Auth::Header) => AUTH_HEADER,
            (Some(_), Auth::Full) => AUTH_FULL,
        }
    }
}

/// What proves that a forward or a result comes from a node of the cluster. Reports and requests for work do so whenever there
/// is a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Nothing.
    Off,
    /// A seal over its header.
    Header,
    /// A seal over its header and the packet behind it.
    Full,
}

impl Auth {
    /// Every choice with its name in the file.
    pub const NAMES: [(&'static str, Self); 3] = [("off", Self::Off), ("header", Self::Header), ("full", Self::Full)];

    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Header => "header",
            Self::Full => "full",
        }
    }
}

/// Who decides about packets, and how those that go to another node are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The XDP program decides and redirects, and the packet wakes no worker of this node.
    Xdp,
    /// Workers decide, and send over AF_XDP out of their packet memory.
    Xsk,
    /// Workers decide, and send and receive by UDP sockets of the kernel.
    Udp,
}

impl Transport {
    /// Every transport with its name in the file.
    pub const NAMES: [(&'static str, Self); 3] = [("xdp", Self::Xdp), ("xsk", Self::Xsk), ("udp", Self::Udp)];

    /// Name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Xsk => "xsk",
            Self::Udp => "udp",
        }
    }
}

/// The way out of results that do not go home ([`Returns::Direct`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Name of the [`Config::ports`] interface they leave by.
    pub interface: String,
    /// MAC address of the router that takes them; `None` = senders of packets are on that interface's segment.
    pub next_hop: Option<[u8; 6]>,
}

/// When load is reported to peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reports {
    /// What makes the node report.
    pub mode: ReportMode,
    /// Time between two reports under load when the clock makes them, ns.
    pub interval_ns: u32,
    /// Longest time between two reports, when idle or when nothing happens, ns; not below `interval_ns`.
    pub idle_interval_ns: u32,
    /// [`ReportMode::KFinish`]: the share of the packets waiting at the last report that must be finished, percent.
    pub finish_share: u32,
    /// Least time between two reports when the clock does not make them, ns.
    pub min_gap_ns: u32,
    /// Forwards and results carry the load too, and are listened to.
    pub piggyback: bool,
}

impl Default for Reports {
    fn default() -> Self {
        Self {
            mode: ReportMode::Periodic,
            interval_ns: 100_000,
            idle_interval_ns: 1_000_000,
            finish_share: 50,
            min_gap_ns: 20_000,
            piggyback: true,
        }
    }
}

/// How active packets are recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// UDP port that carries ANEP.
    pub udp_port: u16,
    /// Check the UDP checksum before computing.
    pub verify_udp_checksum: bool,
    /// Packets of the kernel's packet generator are active, too: UDP port of the first function, in the order of
    /// [`Config::functions`]; `None` = they are not.
    pub pktgen_port: Option<u16>,
    /// The operand of those packets.
    pub pktgen_operand: u32,
}

impl Default for Active {
    fn default() -> Self {
        Self { udp_port: anep::UDP_PORT, verify_udp_checksum: true, pktgen_port: None, pktgen_operand: 0 }
    }
}

/// Longest configuration file, bytes.
const MAX_BYTES: u64 = 1 << 20;

impl Config {
    /// Reads a configuration; `functions` are those it may name.
    ///
    /// # Errors
    /// Every mistake of the text, in its order.
    pub fn parse(text: &str, functions: &[KnownFunction]) -> Result<Self, ConfigErrors> {
        read::config(text, functions)
    }

    /// Reads the configuration file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, or as [`Config::parse`].
    pub fn load(path: impl AsRef<Path>, functions: &[KnownFunction]) -> Result<Self, ConfigErrors> {
        let path = path.as_ref();
        let bytes = read_bounded(path).map_err(|error| ConfigErrors::unreadable(path, &error))?;
        let parsed = match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(text, functions),
            Err(error) => Err(ConfigErrors::not_utf8(&bytes, error.valid_up_to())),
        };
        parsed.map_err(|errors| errors.in_file(path))
    }

    /// The complete configuration as a file that [`Config::parse`] reads back as the same.
    pub fn to_toml(&self) -> String {
        write::toml(self)
    }

    /// What the XDP programs must know of it; `epoch` tells this start of the node from earlier ones.
    pub fn params(&self, epoch: u32) -> Params {
        let largest = self.peers.iter().map(|peer| peer.id).fold(self.node.id, u16::max);
        let room = self.membership.as_ref().map_or(0, |membership| membership.max_nodes);
        Params {
            abi: ABI_VERSION,
            policy: self.policy.kind as u32,
            policies: self.functions.iter().fold(0, |policies, function| policies | function.policy.bit()),
            node: self.node.id,
            nodes: largest.saturating_add(1).max(room),
            udp_port: self.active.udp_port,
            guard: (!self.policy.thesis).into(),
            epoch,
            margin_ns: self.policy.margin_ns,
            piggyback: self.reports.piggyback.into(),
            backlog_limit_ns: self.workers.backlog_limit_ns,
            auth: self.interconnect.auth_id(),
            link_port: self.interconnect.port,
            routed: self.links.iter().any(|link| link.encapsulation == Encapsulation::Udp).into(),
            pktgen_port: self.active.pktgen_port.unwrap_or_default(),
            pktgen_functions: self.active.pktgen_port.map_or(0, |_| self.functions.len() as u16),
            pktgen_operand: self.active.pktgen_operand,
            tuning: self.policy.tuning,
            ..Params::DEFAULT
        }
    }
}

/// Reads a file of at most [`MAX_BYTES`]: a device or a mistaken path must not fill the memory.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "longer than 1 MiB, which no configuration is"));
    }
    Ok(bytes)
}

/// A commented file that sets everything, for `dataplane config example`. Settings behind `#` without a space may be
/// uncommented as they stand.
pub fn example() -> &'static str {
    include_str!("example.toml")
}

#[cfg(test)]
mod tests;

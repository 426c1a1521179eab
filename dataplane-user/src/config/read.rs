//! What the sections of a parsed file mean: defaults, and the checks between them.
//!
//! Reading goes on after a mistake. So that one mistake does not cause a second message, a [`Field`] remembers whether
//! it was absent or bad, and checks between places look only at good ones.

mod cluster;
mod placement;
mod walk;

use std::ops::Range;

use dataplane_common::load::MAX_INTERVAL_US;
use dataplane_common::maps::{MAX_INTERFACES, MAX_NODES, MAX_WORKERS};
use dataplane_common::tuning::Tuning;
use toml::de::DeTable;

use super::error::{Complaint, ConfigErrors, Problems};
use super::schema::{
    ACTIVE, EGRESS, FORWARDING, INTERCONNECT, LINK, MEMBERSHIP, NODE, PEER, POLICY, PORT, REPORTS, WORKERS,
};
use super::units::show_duration;
use super::value::{self, UP_TO_A_SECOND};
use super::{
    Active, Auth, Config, Egress, Encapsulation, Forwarding, Interconnect, Interface, KnownFunction, Mode, Node,
    PeerEnd, ReportMode, Reports, Transport, Workers, ZeroCopy,
};
use walk::{Claims, Section};

/// Reads `text`.
pub(super) fn config(text: &str, functions: &[KnownFunction]) -> Result<Config, ConfigErrors> {
    let (root, syntax) = DeTable::parse_recoverable(text);
    let mut problems = Problems::new(text);
    problems.add_syntax(&syntax);
    let mut reader = Reader {
        root: root.get_ref(),
        known: functions,
        problems,
        names: Claims::new("nodes are told apart by their names", "give each node of the cluster a name of its own"),
        ids: Claims::new("a node's id is its row of the load table", "give each node of the cluster an id of its own"),
        interfaces: Claims::new(
            "an interface runs one XDP program, as a port or as a link, and a queue has one socket",
            "name each interface once",
        ),
        addresses: Claims::new(
            "frames for one of the two would reach the other",
            "write the address of this peer's end of the link",
        ),
        segments: Vec::new(),
        ends: Vec::new(),
        links: Vec::new(),
        links_are_complete: true,
        peers_are_complete: true,
        discipline: Tuning::DEFAULT.discipline,
        pull: Some(Workers::default().pull),
        pktgen: None,
        transport: Some(Interconnect::default().transport),
    };
    let config = reader.config();
    reader.problems.into_result(config)
}

/// A link whose name is good.
struct KnownLink {
    name: String,
    span: Range<usize>,
    used: bool,
    /// What frames travel in.
    encapsulation: Encapsulation,
    /// What it is on, and where that is written; `None` after a mistake.
    segment: Option<(String, Range<usize>)>,
}

struct Reader<'t> {
    root: &'t DeTable<'t>,
    known: &'t [KnownFunction],
    problems: Problems<'t>,
    names: Claims<String>,
    ids: Claims<u16>,
    interfaces: Claims<String>,
    addresses: Claims<(String, PeerEnd)>,
    /// Links of peers, their ends, and where these are written.
    ends: Vec<(String, PeerEnd, Range<usize>)>,
    /// Segments of the links, with the link that has it.
    segments: Vec<(String, String)>,
    links: Vec<KnownLink>,
    /// Every `[[link]]` has a good name: only then can a peer's link be called unknown.
    links_are_complete: bool,
    /// Every `[[peer]]` has a good link: only then can a link be called unused.
    peers_are_complete: bool,
    /// The discipline of the workers, which lies among the settings of the policies.
    discipline: u32,
    /// Whether idle workers pull; `None` after a mistake.
    pull: Option<bool>,
    /// Where `pktgen_port` is written.
    pktgen: Option<Range<usize>>,
    /// How frames travel between nodes, which says who decides; `None` after a mistake.
    transport: Option<Transport>,
}

/// Sections.
impl<'t> Reader<'t> {
    fn config(&mut self) -> Option<Config> {
        self.unknown_sections();
        let node = self.node();
        let (ports, links) = (self.tables(&PORT), self.tables(&LINK));
        if ports.is_empty() {
            self.missing_section(&PORT, "active packets arrive at a port", "interface = \"eth1\"");
        }
        self.at_most(MAX_INTERFACES, "ports and links", ports.iter().chain(&links));
        let ports: Vec<_> = ports.iter().map(|section| self.interface(section)).collect();
        let links: Vec<_> = links.iter().map(|section| self.link(section)).collect();
        let peers: Vec<_> = self.tables(&PEER).iter().map(|section| self.peer(section)).collect();
        let membership: Option<Option<_>> =
            self.tables(&MEMBERSHIP).first().map(|section| self.membership(section, node.as_ref()));
        self.unused_links(membership.is_some());
        if membership.is_some() {
            self.claim_segments();
        }
        let workers = self.table(&WORKERS, Self::workers);
        // Before the policies: who decides depends on it.
        let interconnect = self.table(&INTERCONNECT, Self::interconnect);
        let mut policy = self.table(&POLICY, Self::policy);
        policy.tuning.discipline = self.discipline;
        self.check_encapsulation(interconnect.transport);
        let active = self.table(&ACTIVE, Self::active);
        let functions = self.functions(policy.kind);
        if let Some(functions) = &functions {
            self.check_pktgen(&active, functions.len());
        }
        let config = Config {
            forwarding: self.table(&FORWARDING, Self::forwarding),
            interconnect,
            egress: self.egress(&ports)?,
            reports: self.table(&REPORTS, Self::reports),
            active,
            functions: functions?,
            workers,
            policy,
            node: node?,
            ports: ports.into_iter().collect::<Option<_>>()?,
            links: links.into_iter().collect::<Option<_>>()?,
            peers: peers.into_iter().collect::<Option<_>>()?,
            membership: membership.map_or(Some(None), |read| read.map(Some))?,
        };
        Some(config)
    }

    fn node(&mut self) -> Option<Node> {
        let sections = self.tables(&NODE);
        let Some(section) = sections.first() else {
            self.missing_section(&NODE, "a node must say who it is", "name = \"n1\" and id = 1");
            return None;
        };
        let (name, id) = self.identity(section);
        Some(Node { name: name?, id: id? })
    }

    /// `name` and `id` of this node or of a peer.
    fn identity(&mut self, section: &Section<'_>) -> (Option<String>, Option<u16>) {
        let name = self.required(section, "name", "name = \"n1\"", value::node_name);
        if let Some((name, span)) = name.good() {
            let label = format!("the name {name}");
            self.names.claim(name.clone(), &label, section, &span, &mut self.problems);
        }
        const WHY: &str = "the id is the node's row in the load table, which has 4096";
        const { assert!(MAX_NODES == 4096) };
        let id = self.required(section, "id", "id = 1", value::number(0..=MAX_NODES as u16 - 1, WHY));
        if let Some((id, span)) = id.good() {
            self.ids.claim(*id, &format!("the id {id}"), section, &span, &mut self.problems);
        }
        (name.value(), id.value())
    }

    fn interface(&mut self, section: &Section<'_>) -> Option<Interface> {
        let name = self.required(section, "interface", "interface = \"eth1\"", value::interface_name);
        if let Some((name, span)) = name.good() {
            let label = format!("the interface {name}");
            self.interfaces.claim(name.clone(), &label, section, &span, &mut self.problems);
        }
        let mode = self.field(section, "mode", value::word(Mode::NAMES.to_vec(), "mode"));
        let zero_copy = self.field(section, "zero_copy", value::word(ZeroCopy::NAMES.to_vec(), "choice"));
        if let (Some((Mode::Skb, _)), Some((ZeroCopy::On, span))) = (mode.good(), zero_copy.good()) {
            let complaint = Complaint::new(
                "zero_copy = \"on\" contradicts mode = \"skb\"",
                "in skb mode the kernel has copied the packet before the XDP program sees it",
                "write mode = \"native\", or zero_copy = \"off\"",
            );
            self.problems.add_of_whole(&span, complaint);
        }
        Some(Interface {
            name: name.value()?,
            mode: mode.or(Mode::default()),
            zero_copy: zero_copy.or(ZeroCopy::default()),
        })
    }

    fn workers(&mut self, section: &Section<'_>) -> Workers {
        let default = Workers::default();
        let frames = value::power_of_two(256..=65_536, "rings and the free list count frames in powers of two");
        let size = value::number_among(&[2048, 4096], "the kernel divides each page of packet memory evenly");
        let spin = value::duration(UP_TO_A_SECOND, "a spinning worker keeps its CPU from everyone else");
        let patience = value::duration(UP_TO_A_SECOND, "held results keep their packet memory");
        let backlog = value::duration(UP_TO_A_SECOND, "positions of work wrap after four seconds");
        self.discipline = self.discipline(section);
        let pull = self.field(section, "pull", value::flag);
        self.pull = if pull.is_bad() { None } else { Some(pull.or(default.pull)) };
        Workers {
            cpus: self.cpus(section).unwrap_or(default.cpus),
            frames: self.field(section, "frames", frames).or(default.frames),
            frame_size: self.field(section, "frame_size", size).or(default.frame_size),
            spin_ns: self.field(section, "spin", spin).or(default.spin_ns),
            patience_ns: self.field(section, "patience", patience).or(default.patience_ns),
            pull: self.pull.unwrap_or(default.pull),
            backlog_limit_ns: self.field(section, "backlog_limit", backlog).or(default.backlog_limit_ns),
        }
    }

    fn cpus(&mut self, section: &Section<'_>) -> Option<Vec<u32>> {
        const TODO: &str = "write the CPU of each worker, like [2, 3]";
        let value = section.table.get("cpus")?;
        let span = value.span();
        let Some(list) = value.get_ref().as_array() else {
            let what = format!("cpus = {} is {}, not a list", self.problems.quote(&span), value::kind(value.get_ref()));
            self.problems.add(&span, Complaint::new(what, "there is one worker for each CPU listed", TODO));
            return None;
        };
        if list.is_empty() || list.len() > MAX_WORKERS {
            let what = format!("cpus lists {} CPUs", list.len());
            let why = format!("there is one worker for each, at least 1 and at most {MAX_WORKERS}");
            self.problems.add(&span, Complaint::new(what, why, TODO));
        }
        let cpu = value::number(0..=1023, "the kernel's CPU sets have 1024 places");
        let mut cpus: Vec<u32> = Vec::new();
        for entry in list {
            let span = entry.span();
            match cpu(entry.get_ref()) {
                Ok(cpu) if cpus.contains(&cpu) => {
                    let what = format!("CPU {cpu} is listed twice");
                    let why = "two workers on one CPU wait for each other, and estimates count that as service time";
                    self.problems.add(&span, Complaint::new(what, why, TODO));
                }
                Ok(cpu) => cpus.push(cpu),
                Err(complaint) => {
                    let what = format!("the CPU {} {}", self.problems.quote(&span), complaint.what);
                    self.problems.add(&span, Complaint { what, ..complaint });
                }
            }
        }
        Some(cpus)
    }

    fn forwarding(&mut self, section: &Section<'_>) -> Forwarding {
        let default = Forwarding::default();
        let cost = || value::duration(UP_TO_A_SECOND, "this is the cost of one packet");
        Forwarding {
            send_ns: self.field(section, "send", cost()).or(default.send_ns),
            receive_ns: self.field(section, "receive", cost()).or(default.receive_ns),
            wire_ns: self.field(section, "wire", cost()).or(default.wire_ns),
            bandwidth_bits: self.field(section, "bandwidth", value::bandwidth).or(default.bandwidth_bits),
            measure: self.field(section, "measure", value::flag).or(default.measure),
        }
    }

    fn interconnect(&mut self, section: &Section<'_>) -> Interconnect {
        let default = Interconnect::default();
        let transport = value::word(Transport::NAMES.to_vec(), "transport");
        let port = value::number(1..=u16::MAX - 1, "a UDP port has 16 bits, 0 is none, and reports go to the next one");
        let retry =
            value::duration(1_000_000..=1_000_000_000, "a packet that waits for its result keeps its packet memory");
        let key_file = self.field(section, "key_file", value::path);
        let auth = self.field(section, "auth", value::word(Auth::NAMES.to_vec(), "authentication"));
        if let Some((Auth::Header | Auth::Full, span)) = auth.good()
            && !key_file.is_bad()
            && key_file.good().is_none()
        {
            let what = format!("auth = {} needs a key_file", self.problems.quote(&span));
            let why = "frames are sealed with the keys of that file";
            let todo = "write key_file = \"/etc/dataplane/keys\"; `dataplane key new` prints a key";
            self.problems.add_of_whole(&span, Complaint::new(what, why, todo));
        }
        let key_file = key_file.value();
        let transport = self.field(section, "transport", transport);
        self.transport = if transport.is_bad() { None } else { Some(transport.or(default.transport)) };
        let default_auth = if key_file.is_some() { Auth::Header } else { Auth::Off };
        Interconnect {
            transport: self.transport.unwrap_or(default.transport),
            port: self.field(section, "port", port).or(default.port),
            retry_ns: self.field(section, "retry", retry).or(default.retry_ns),
            auth: auth.or(default_auth),
            cluster: self.field(section, "cluster", value::name("\"dataplane\"")).or(default.cluster),
            key_file,
        }
    }

    /// The way out of results; the first port unless the file says otherwise.
    fn egress(&mut self, ports: &[Option<Interface>]) -> Option<Egress> {
        let first = ports.iter().flatten().next().map(|port| port.name.clone());
        let sections = self.tables(&EGRESS);
        let Some(section) = sections.first() else {
            return Some(Egress { interface: first?, next_hop: None });
        };
        let interface = self.field(section, "interface", value::name("\"eth1\""));
        if let Some((name, span)) = interface.good()
            && ports.iter().all(Option::is_some)
            && !ports.iter().flatten().any(|port| port.name == *name)
        {
            let what = format!("interface = {} names no [[port]]", self.problems.quote(&span));
            let why = "results leave the node by one of its ports";
            self.problems.add_of_whole(&span, Complaint::new(what, why, "write the interface of a [[port]]"));
        }
        let next_hop = self.field(section, "next_hop", value::mac);
        let interface = interface.value().or(first)?;
        Some(Egress { interface, next_hop: next_hop.value() })
    }

    fn reports(&mut self, section: &Section<'_>) -> Reports {
        const WHY: &str =
            "more reports than one in 10us take the time they tell about; after 1s a report tells nothing";
        let default = Reports::default();
        let range = || value::duration(10_000..=MAX_INTERVAL_US * 1000, WHY);
        let interval = self.field(section, "interval", range());
        let idle = self.field(section, "idle_interval", range());
        let interval_is_bad = interval.is_bad();
        let interval_ns = interval.or(default.interval_ns);
        if let Some((idle_ns, span)) = idle.good()
            && !interval_is_bad
            && *idle_ns < interval_ns
        {
            let complaint = Complaint::new(
                format!("idle_interval = {} is below interval", self.problems.quote(&span)),
                "an idle node has less to report than a busy one",
                format!("write {:?} or more", show_duration(interval_ns.into())),
            );
            self.problems.add_of_whole(&span, complaint);
        }
        let share = value::number(1..=100, "it is a share of the packets that waited at the last report, in percent");
        Reports {
            mode: self.field(section, "mode", value::word(ReportMode::NAMES.to_vec(), "mode")).or(default.mode),
            interval_ns,
            idle_interval_ns: idle.or(default.idle_interval_ns.max(interval_ns)),
            finish_share: self.field(section, "finish_share", share).or(default.finish_share),
            min_gap_ns: self.field(section, "min_gap", range()).or(default.min_gap_ns),
            piggyback: self.field(section, "piggyback", value::flag).or(default.piggyback),
        }
    }

    fn active(&mut self, section: &Section<'_>) -> Active {
        let default = Active::default();
        let port = || value::number(1..=u16::MAX, "a UDP port has 16 bits, and 0 is none");
        Active {
            udp_port: self.field(section, "udp_port", port()).or(default.udp_port),
            verify_udp_checksum: self
                .field(section, "verify_udp_checksum", value::flag)
                .or(default.verify_udp_checksum),
            pktgen_port: self.pktgen_port(section, port()),
            pktgen_operand: self
                .field(section, "pktgen_operand", value::number(0..=u32::MAX, "an operand has 32 bits"))
                .or(default.pktgen_operand),
        }
    }

    fn pktgen_port(
        &mut self,
        section: &Section<'_>,
        read: impl Fn(&toml::de::DeValue<'_>) -> value::Read<u16>,
    ) -> Option<u16> {
        let field = self.field(section, "pktgen_port", read);
        self.pktgen = field.good().map(|(_, span)| span);
        field.value()
    }

    /// Every function has a port of its own, which ANEP does not use.
    fn check_pktgen(&mut self, active: &Active, functions: usize) {
        let (Some(first), Some(span)) = (active.pktgen_port, self.pktgen.clone()) else { return };
        let last = usize::from(first) + functions.max(1) - 1;
        let complaint = if last > usize::from(u16::MAX) {
            Complaint::new(
                format!("the last of {functions} functions would have port {last}"),
                "each function has a port of its own, from this one on, and ports have 16 bits",
                "write a smaller port",
            )
        } else if (usize::from(first)..=last).contains(&usize::from(active.udp_port)) {
            Complaint::new(
                format!("ports {first} to {last} contain udp_port, {}", active.udp_port),
                "packets on that port are ANEP",
                "write a port above it, or so far below that no function reaches it",
            )
        } else {
            return;
        };
        self.problems.add_of_whole(&span, complaint);
    }
}

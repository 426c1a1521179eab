//! [`Cluster`]: nodes in network namespaces of this machine, joined by veth pairs, with a namespace that sends traffic.
//!
//! ```no_run
//! use dataplane_bench::interrupt::Interrupt;
//! use dataplane_bench::topology::{Cluster, NodeSettings, Purpose, Shape};
//!
//! # fn main() -> anyhow::Result<()> {
//! let mut cluster = Cluster::build(Shape::new(Purpose::Test, 3))?;
//! for node in cluster.plan().nodes() {
//!     cluster.start(node, &NodeSettings::new("ept-erl", 0), &Interrupt::never())?;
//! }
//! cluster.wait_for_peers(&Interrupt::never())?;
//! println!("{:?}", cluster.status(1)?.ledger);
//! cluster.kill(2)?; // what a crash looks like
//! # Ok(())
//! # }
//! ```
//!
//! Dropping a cluster ends its nodes and removes everything that it made: namespaces, interfaces, pins, files. Names hold
//! the maker's process id, so that what a killed run leaves behind is found by the next one ([`remove_stale`]).

mod leftovers;
mod plan;
mod process;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

pub use self::leftovers::{Found, find, remove_stale};
pub use self::plan::{
    Host, LinkEnd, MAX_NODES, Mac, NodeSettings, PORT_INTERFACE, Plan, PortPlan, Purpose, Scheduling, Shape,
    format_duration, format_mac, parse_mac, pins,
};
pub use self::process::NodeProcess;
use crate::chaos::{self, Cable, Chaos, Direction, Place, Tally};
use crate::command;
use crate::interrupt::Interrupt;
use crate::status::Status;

/// Where the BPF file system is mounted.
pub const BPFFS: &str = "/sys/fs/bpf";

/// Environment variable that names the `dataplane` program; else it is looked for beside this one.
pub const PROGRAM_VARIABLE: &str = "DATAPLANE_BIN";

/// How long nodes may take to see each other.
const PEER_PATIENCE: Duration = Duration::from_secs(10);

/// Frames and bytes of an interface, as the kernel counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounters {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
}

/// A cluster in namespaces. See the module.
#[derive(Debug)]
pub struct Cluster {
    plan: Plan,
    program: PathBuf,
    bpffs: PathBuf,
    /// Configurations and logs.
    directory: PathBuf,
    nodes: BTreeMap<u16, NodeProcess>,
    /// By link, the lower node first.
    cables: BTreeMap<(u16, u16), Cable>,
    kept: bool,
}

impl Cluster {
    /// Makes namespaces, interfaces and addresses; no node runs yet.
    ///
    /// # Errors
    /// Not root, a program is missing (`ip`, `ethtool`, `nsenter`, `setpriv`), or the kernel refuses. Nothing is left.
    pub fn build(shape: Shape) -> Result<Self> {
        let plan = Plan::new(shape)?;
        let directory = leftovers::directory(plan.run());
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let bpffs = PathBuf::from(BPFFS);
        // From here on a failure drops the cluster, which removes what there is of it.
        let (nodes, cables) = (BTreeMap::new(), BTreeMap::new());
        let mut cluster = Self { plan, program: program()?, bpffs, directory, nodes, cables, kept: false };
        cluster.make().context("cannot build the cluster of namespaces (are you root?)")?;
        cluster.lay_cables()?;
        Ok(cluster)
    }

    fn make(&self) -> Result<()> {
        command::output_of_input(Command::new("ip").args(["-batch", "-"]), &self.plan.creation())?;
        for host in self.plan.hosts() {
            let mut ip = Command::new("ip");
            ip.args(["-netns", &self.plan.name(host), "-batch", "-"]);
            command::output_of_input(&mut ip, &self.plan.configuration(host))?;
            for interface in self.plan.interfaces(host) {
                // A veth hands over packets of local sockets with unfinished checksums, and nobody finishes them there.
                command::output(self.enter(host, "ethtool").args(["-K", &interface, "tx", "off"]))?;
            }
        }
        Ok(())
    }

    fn lay_cables(&mut self) -> Result<()> {
        for (number, (node, peer)) in (0..).zip(self.plan.shape().cables.clone()) {
            for (host, end) in [(node, self.plan.link(node, peer)), (peer, self.plan.link(peer, node))] {
                // A veth takes frames that the box redirects when it runs XDP, which a link by kernel sockets does not, or GRO.
                let mut ethtool = self.enter(Host::Node(host), "ethtool");
                command::output(ethtool.args(["-K", &end.interface, "gro", "on"]))?;
            }
            let place = Place {
                namespace: chaos::namespace(&self.plan.name(Host::Box)),
                interfaces: [self.plan.cable_end(node, peer).interface, self.plan.cable_end(peer, node).interface],
                queues: self.plan.shape().queues.into(),
                number,
            };
            self.cables.insert((node, peer), Cable::open(&place)?);
        }
        Ok(())
    }

    /// Says what shall happen from now on to frames of the named kinds that `node` sends to `peer`.
    ///
    /// # Errors
    /// There is no cable in that link; or as [`Cable::apply_to`].
    pub fn impair(&mut self, node: u16, peer: u16, chaos: &Chaos) -> Result<()> {
        let (link, direction) = link_and_direction(node, peer);
        self.cables.get_mut(&link).with_context(|| no_cable(link))?.apply_to(direction, chaos)
    }

    /// Says the same for both directions of every link that has a cable.
    ///
    /// # Errors
    /// As [`Cable::apply_to`].
    pub fn impair_all(&mut self, chaos: &Chaos) -> Result<()> {
        self.cables.values_mut().try_for_each(|cable| cable.apply(chaos))
    }

    /// What has happened on the cable to the frames that `node` sent to `peer`, once none is held there.
    ///
    /// # Errors
    /// There is no cable in that link; or as [`Cable::settled`].
    pub fn tally(&self, node: u16, peer: u16, interrupt: &Interrupt) -> Result<Tally> {
        let (link, direction) = link_and_direction(node, peer);
        self.cables.get(&link).with_context(|| no_cable(link))?.settled(direction, interrupt)
    }

    /// What has happened on all cables up to now; frames may be held, and more may come.
    ///
    /// # Errors
    /// As [`Cable::tally`].
    pub fn tally_all(&self) -> Result<Tally> {
        let mut sum = Tally::default();
        for cable in self.cables.values() {
            for direction in Direction::ALL {
                sum.add(&cable.tally(direction)?);
            }
        }
        Ok(sum)
    }

    /// Names, addresses and configurations.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Where configurations and logs lie while the cluster lives.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// A command that runs `program` inside a namespace. It sees the file systems of this process, `/sys/fs/bpf` too.
    pub fn enter(&self, host: Host, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(self.namespace_argument(host)).arg("--").arg(program);
        command
    }

    /// As [`Self::enter`], for long runs: when the thread that starts it ends, whatever way, it gets SIGTERM.
    pub fn enter_bound(&self, host: Host, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "nsenter"]).arg(self.namespace_argument(host)).arg("--").arg(program);
        command
    }

    fn namespace_argument(&self, host: Host) -> String {
        format!("--net=/run/netns/{}", self.plan.name(host))
    }

    /// Starts a node and waits until it is ready. Call it from a thread that lives as long as the node shall.
    ///
    /// # Errors
    /// It runs already, refuses its configuration, or is not ready in time.
    pub fn start(&mut self, node: u16, settings: &NodeSettings, interrupt: &Interrupt) -> Result<()> {
        let command = self.enter_bound(Host::Node(node), settings.scheduling.words()[0]);
        self.launch(node, settings, interrupt, command)
    }

    /// As [`Self::start`], but the node goes on when this process ends; for a cluster that shall be kept.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_detached(&mut self, node: u16, settings: &NodeSettings, interrupt: &Interrupt) -> Result<()> {
        let command = self.enter(Host::Node(node), settings.scheduling.words()[0]);
        self.launch(node, settings, interrupt, command)
    }

    fn launch(
        &mut self,
        node: u16,
        settings: &NodeSettings,
        interrupt: &Interrupt,
        mut command: Command,
    ) -> Result<()> {
        if self.nodes.contains_key(&node) {
            bail!("node {node} runs already");
        }
        let config = self.write_config(node, settings)?;
        command.args(&settings.scheduling.words()[1..]).arg(&self.program);
        command.arg("run").arg("--config").arg(&config).arg("--bpffs").arg(&self.bpffs);
        let log = self.directory.join(format!("n{node}.log"));
        let process = NodeProcess::start(command, &log, interrupt).with_context(|| format!("node {node}"))?;
        self.nodes.insert(node, process);
        Ok(())
    }

    fn write_config(&self, node: u16, settings: &NodeSettings) -> Result<PathBuf> {
        let config = self.directory.join(format!("n{node}.toml"));
        fs::write(&config, self.plan.config(node, settings))
            .with_context(|| format!("cannot write {}", config.display()))?;
        Ok(config)
    }

    /// Has a running node go on with other settings; gives what it says of that.
    ///
    /// # Errors
    /// It refuses them, and goes on as before.
    pub fn reload(&self, node: u16, settings: &NodeSettings) -> Result<String> {
        self.write_config(node, settings)?;
        command::output(&mut self.command_about(node, "reload"))
    }

    /// Has a running node take no work of others, or take it again.
    ///
    /// # Errors
    /// It does not say that it has heard.
    pub fn drain(&self, node: u16, drains: bool) -> Result<String> {
        let mut command = self.command_about(node, "drain");
        command.args((!drains).then_some("--undo"));
        command::output(&mut command)
    }

    /// A command of the program about a running node.
    fn command_about(&self, node: u16, action: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([action, "--node", &self.plan.name(Host::Node(node))]).arg("--bpffs").arg(&self.bpffs);
        command
    }

    /// A running node's process.
    ///
    /// # Errors
    /// It was not started, or was stopped.
    pub fn process(&mut self, node: u16) -> Result<&mut NodeProcess> {
        self.nodes.get_mut(&node).with_context(|| format!("node {node} is not running"))
    }

    /// Process ids of the running nodes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.values().map(NodeProcess::pid).collect()
    }

    /// Stops a node the ordinary way.
    ///
    /// # Errors
    /// It is not running, or does not end well.
    pub fn stop(&mut self, node: u16) -> Result<()> {
        let process = self.nodes.remove(&node).with_context(|| format!("node {node} is not running"))?;
        process.stop().with_context(|| format!("node {node}"))
    }

    /// Stops every node, all of them even if one fails; then the first failure is returned.
    ///
    /// # Errors
    /// As [`Self::stop`].
    pub fn stop_all(&mut self) -> Result<()> {
        let mut nodes = std::mem::take(&mut self.nodes);
        let mut ends = nodes.iter_mut().map(|(node, process)| (*node, process.ask_to_stop())).collect::<Vec<_>>();
        for ((_, end), (_, process)) in ends.iter_mut().zip(nodes) {
            if end.is_ok() {
                *end = process.wait_for_stop();
            }
        }
        ends.into_iter().try_for_each(|(node, end)| end.with_context(|| format!("node {node}")))
    }

    /// Kills a node (SIGKILL). Its pins stay, as after a crash.
    ///
    /// # Errors
    /// It is not running.
    pub fn kill(&mut self, node: u16) -> Result<()> {
        self.nodes.remove(&node).with_context(|| format!("node {node} is not running"))?.kill()
    }

    /// The command that prints the status of a node as JSON.
    pub fn status_command(&self, node: u16) -> Command {
        let mut command = self.command_about(node, "status");
        command.arg("--json");
        command
    }

    /// What a node says of itself, read from its pinned maps.
    ///
    /// # Errors
    /// It has none, or the output is not what [`Status`] expects.
    pub fn status(&self, node: u16) -> Result<Status> {
        let mut command = self.status_command(node);
        let text = command::output(&mut command)?;
        Status::parse(&text).with_context(|| format!("not understood: output of {}", command::line(&command)))
    }

    /// Waits until every running node takes every other running node for alive.
    ///
    /// # Errors
    /// That does not happen in time, or this process was interrupted.
    pub fn wait_for_peers(&self, interrupt: &Interrupt) -> Result<()> {
        let deadline = Instant::now() + PEER_PATIENCE;
        loop {
            let missing = self.missing_peers()?;
            if missing.is_empty() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("after {PEER_PATIENCE:?} nodes do not see each other: {}", missing.join(", "));
            }
            interrupt.sleep(Duration::from_millis(20))?;
        }
    }

    fn missing_peers(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for node in self.nodes.keys() {
            let status = self.status(*node)?;
            let absent = status.peers.iter().filter(|peer| self.nodes.contains_key(&peer.id) && !peer.is_alive());
            missing.extend(absent.map(|peer| format!("node {node} sees node {} as {}", peer.id, peer.state)));
        }
        Ok(missing)
    }

    /// The kernel's counters of a node's interface.
    ///
    /// # Errors
    /// `ip` does not know the interface.
    pub fn interface_counters(&self, node: u16, interface: &str) -> Result<InterfaceCounters> {
        let mut command = Command::new("ip");
        command.args(["-netns", &self.plan.name(Host::Node(node)), "-json", "-statistics", "link", "show", interface]);
        let text = command::output(&mut command)?;
        parse_counters(&text).with_context(|| format!("not understood: output of {}", command::line(&command)))
    }

    /// Sum of [`Self::interface_counters`] over every end of every link: each frame between nodes counts once, where it
    /// arrives.
    ///
    /// # Errors
    /// As [`Self::interface_counters`].
    pub fn link_counters(&self) -> Result<InterfaceCounters> {
        let mut sum = InterfaceCounters::default();
        for node in self.plan.nodes() {
            for peer in self.plan.peers(node) {
                let counters = self.interface_counters(node, &self.plan.link(node, peer).interface)?;
                sum.rx_frames += counters.rx_frames;
                sum.rx_bytes += counters.rx_bytes;
            }
        }
        Ok(sum)
    }

    /// Leaves the cluster as it is when this value is dropped: namespaces, files, and nodes started with
    /// [`Self::start_detached`]. Returns what [`find`] will call it.
    pub fn keep(mut self) -> String {
        self.kept = true;
        for (_, process) in std::mem::take(&mut self.nodes) {
            // Its destructor would kill the node.
            std::mem::forget(process);
        }
        self.plan.run().to_owned()
    }

    fn remove(&mut self) -> Result<()> {
        let stopped = self.stop_all();
        // Their threads are inside the namespace.
        self.cables.clear();
        let found = find()?.into_iter().find(|found| found.run == self.plan.run());
        // Without a namespace there are still the files.
        let found = found.unwrap_or_else(|| Found { run: self.plan.run().to_owned(), ..Found::default() });
        stopped.and(found.remove(&self.bpffs))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Err(error) = self.remove() {
            eprintln!("warning: cluster {}: {error:#}", self.plan.run());
        }
    }
}

/// The `dataplane` program: named by [`PROGRAM_VARIABLE`], or in the directory of this program, or (for a test, which
/// cargo puts into a directory of its own) above it.
fn program() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os(PROGRAM_VARIABLE) {
        return Ok(path.into());
    }
    let own = std::env::current_exe().context("cannot find out where this program lies")?;
    let mut tried = Vec::new();
    for directory in own.ancestors().skip(1).take(2) {
        let path = directory.join("dataplane");
        if path.is_file() {
            return Ok(path);
        }
        tried.push(path.display().to_string());
    }
    bail!("no `dataplane` program at {} (build it, or set {PROGRAM_VARIABLE})", tried.join(" or "))
}

/// The link between two nodes, and the direction of its cable from the first to the second.
fn link_and_direction(node: u16, peer: u16) -> ((u16, u16), Direction) {
    if node < peer { ((node, peer), Direction::Forth) } else { ((peer, node), Direction::Back) }
}

fn no_cable((node, peer): (u16, u16)) -> String {
    format!("there is no cable between node {node} and node {peer}")
}

fn parse_counters(text: &str) -> Result<InterfaceCounters> {
    let value: serde_json::Value = serde_json::from_str(text)?;
    let rx = &value[0]["stats64"]["rx"];
    let field = |name: &str| rx[name].as_u64().with_context(|| format!("no stats64.rx.{name}"));
    Ok(InterfaceCounters { rx_frames: field("packets")?, rx_bytes: field("bytes")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_counters_are_read_from_ip() {
        let text = r#"[{"ifname":"to-n2","stats64":{"rx":{"bytes":820,"packets":10,"errors":0},"tx":{"bytes":1}}}]"#;
        assert_eq!(parse_counters(text).unwrap(), InterfaceCounters { rx_frames: 10, rx_bytes: 820 });
        assert!(parse_counters("[]").is_err());
    }
}

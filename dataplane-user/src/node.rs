//! A running node: configuration in, XDP attached, workers and reporter running; and the way back.

mod background;
mod cluster;
mod kernel;
mod publisher;
mod quiet;
mod reload;

use std::mem::offset_of;
use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Release;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use aya::programs::links::FdLink;
use dataplane_common::maps::{
    FunctionRow, INTERFACE_LINK, INTERFACE_PORT, InterfaceRow, MetaRow, Params, QUEUE_BOUND, QUEUE_ZERO_COPY, QueueRow,
    WorkerRow, socket_slot,
};
use dataplane_common::report;
use dataplane_common::wire::ip::ETHERNET_BYTES;

use self::background::{Background, Reload};
use self::publisher::Publisher;
pub use self::reload::Prepared;
use crate::advice;
use crate::config::{self, Config};
use crate::control::Control;
use crate::forwarding::Programs;
use crate::functions::Builtin;
use crate::keys;
use crate::maps::tables::{pair, set};
use crate::maps::{ClaimedDir, PinDir, Tables};
use crate::membership::{Membership, Profile, Refused};
use crate::peers::Link;
use crate::process::Checks;
use crate::reporter::Reporter;
use crate::samples::{Exchange, FunctionSamples, Samples};
use crate::sys::NetDevice;
use crate::transport::{Socket, Taker, UdpPort};
use crate::ways::LiveWays;
use crate::worker::{Egress, InterfaceKind, LiveSettings, Settings, Worker, monotonic_ns};
use crate::xdp::{self, Mode, Object, Sizes};
use crate::xsk::{Umem, UmemConfig, Xsk, XskConfig, ZeroCopy};

/// Fewest entries of a socket's rings.
const SMALLEST_RING: u32 = 64;
/// How long a stopping node waits for packets it holds and for results of packets it has sent to peers.
const DRAIN: Duration = Duration::from_millis(200);

/// The program of the ports.
const PORT_PROGRAM: &str = "dp_ingress";
/// The program of the links.
const LINK_PROGRAM: &str = "dp_link";

/// The program of interfaces of this kind.
fn program_of(kind: InterfaceKind) -> &'static str {
    if kind == InterfaceKind::Port { PORT_PROGRAM } else { LINK_PROGRAM }
}

/// The object that `cargo xtask build` made, if this binary was built after it.
#[cfg(embedded_object)]
pub fn embedded_object() -> Option<&'static [u8]> {
    Some(aya::include_bytes_aligned!(env!("DATAPLANE_BPF_OBJECT")))
}

/// The object that `cargo xtask build` made, if this binary was built after it.
#[cfg(not(embedded_object))]
pub fn embedded_object() -> Option<&'static [u8]> {
    None
}

/// Every function with its default type id, as the configuration needs it.
pub fn known_functions() -> Vec<config::KnownFunction> {
    let known = |function: &Builtin| config::KnownFunction { name: function.name(), type_id: function.type_id() };
    Builtin::ALL.iter().map(known).collect()
}

/// An interface of the node.
struct Attached {
    device: NetDevice,
    kind: InterfaceKind,
    mode: config::Mode,
    zero_copy: config::ZeroCopy,
    link: Option<FdLink>,
}

/// A running node. Dropping it without [`Node::stop`] detaches the programs, because the links close.
pub struct Node {
    config: Config,
    epoch: u32,
    sizes: Sizes,
    object: Object,
    pins: ClaimedDir,
    tables: Arc<Tables>,
    interfaces: Vec<Attached>,
    workers: Vec<JoinHandle<()>>,
    /// The settings of each worker.
    settings: Vec<Arc<LiveSettings>>,
    /// To the reporter's thread.
    reloads: Option<Sender<Reload>>,
    reporter: Option<JoinHandle<()>>,
    /// Until the reporter's thread has them.
    keys: Option<keys::Follower>,
    stop_workers: Arc<AtomicBool>,
    stop_reporter: Arc<AtomicBool>,
    draining: Arc<AtomicBool>,
    /// With what the node says of itself.
    membership: Option<(Membership, Profile)>,
    /// What the operator should know, in words.
    pub notices: Vec<String>,
}

impl Node {
    /// Starts a node: claims its pins, loads and fills the object, opens sockets, starts threads, attaches programs.
    ///
    /// # Errors
    /// What failed, why, and what to do; nothing is left behind.
    pub fn start(config: &Config, object: &[u8], bpffs: &Path) -> Result<Self> {
        let pins = PinDir::of(bpffs, &config.node.name).claim()?;
        let epoch = boot_epoch();
        let interfaces = find_interfaces(config)?;
        let functions: Vec<Builtin> =
            config.functions.iter().filter_map(|function| Builtin::from_name(function.name)).collect();
        let params = config.params(epoch);
        let sizes = Sizes {
            nodes: u32::from(params.nodes),
            workers: config.workers.cpus.len() as u32,
            interfaces: interfaces.len() as u32,
            functions: functions.len() as u32,
        };
        let mut object = Object::load(object, params, sizes).map_err(with_advice(advice::Operation::LoadObject))?;
        fill(&mut object, config, &interfaces)?;
        let tables = Arc::new(object.tables()?);
        tables.set_forwarding(&config.forwarding.cost());
        write_meta(&tables, config, epoch, &sizes);
        let interconnect = &config.interconnect;
        let follow = |path: &PathBuf| keys::Follower::start(path, &interconnect.cluster, Arc::clone(&tables));
        let keys = interconnect.key_file.as_ref().map(follow).transpose()?;
        object.pin(pins.dir())?;
        let mut node = Self {
            config: config.clone(),
            epoch,
            sizes,
            object,
            pins,
            tables,
            interfaces,
            workers: Vec::new(),
            settings: Vec::new(),
            reloads: None,
            reporter: None,
            keys,
            stop_workers: Arc::default(),
            stop_reporter: Arc::default(),
            draining: Arc::default(),
            membership: None,
            notices: Vec::new(),
        };
        node.run(config, epoch, &functions)?;
        Ok(node)
    }

    fn run(&mut self, config: &Config, epoch: u32, functions: &[Builtin]) -> Result<()> {
        let links = cluster::links(config, &self.interfaces)?;
        let mut peers = cluster::peers(config, links.clone(), self.object.peer_maps()?, Arc::clone(&self.tables))?;
        let present = peers.turn(monotonic_ns()).unwrap_or_default();
        let socket = kernel::report_socket(config, &self.tables, epoch, (&links, peers.ways()))?;
        let mut exchanges = Vec::new();
        let mut workers = Vec::new();
        for (index, cpu) in (0..).zip(&config.workers.cpus) {
            let exchange = Arc::new(Exchange::default());
            let settings = self.settings(config, index, config.params(epoch));
            let live = Arc::new(LiveSettings::from_pointee(settings.clone()));
            let mut worker = self.open_worker(config, settings, (functions, &exchange), (&links, peers.ways()))?;
            worker.follow_ways(peers.ways());
            worker.follow_settings(Arc::clone(&live));
            self.settings.push(live);
            workers.push((*cpu, worker));
            exchanges.push(exchange);
        }
        for (cpu, worker) in workers {
            self.workers.push(spawn_worker(worker, cpu, &self.tables, &self.stop_workers)?);
        }
        for program in [LINK_PROGRAM, PORT_PROGRAM] {
            self.object.load_program(program).map_err(with_advice(advice::Operation::LoadObject))?;
        }
        // Links first: when the first port is attached, results find their way home.
        for kind in [InterfaceKind::Link, InterfaceKind::Port] {
            // Links by kernel sockets are the kernel's.
            if kind == InterfaceKind::Port || !kernel::carries(config) {
                self.attach(kind)?;
            }
        }
        let reporter = Reporter::new(
            Arc::clone(&self.tables),
            (present.clone(), peers.ways()),
            socket,
            (config.node.id, epoch),
            (config.workers.cpus.len() as u32, config.workers.backlog_limit_ns),
            report_plan(config),
        );
        let mut control = Control::new(Arc::clone(&self.tables), config, &present);
        control.measure(config, programs(&mut self.object, config)?);
        let publisher = Publisher::new(Arc::clone(&self.tables), exchanges, functions.len())?;
        let log = self.object.log();
        // Last: whoever hears of this node may send to it.
        if let Some((membership, events)) = cluster::join(config, epoch, &links)? {
            peers.listen(events, Arc::clone(membership.refusals()));
            self.membership = Some((membership, cluster::profile(config, &links)));
        }
        let (reloads, orders) = mpsc::channel();
        self.reloads = Some(reloads);
        let background = Background { control, peers, publisher, log, keys: self.keys.take(), reloads: orders };
        self.reporter = Some(background.spawn(reporter, &self.stop_reporter, &self.draining)?);
        Ok(())
    }

    /// What a worker is told.
    fn settings(&self, config: &Config, worker: u32, params: Params) -> Settings {
        Settings {
            worker,
            params,
            ways: Arc::default(),
            checks: Checks { rules: params.rules(), udp_checksum: config.active.verify_udp_checksum },
            spin: Duration::from_nanos(config.workers.spin_ns.into()),
            patience: Duration::from_nanos(config.workers.patience_ns.into()),
            pull: config.workers.pull,
            retry: Duration::from_nanos(config.interconnect.retry_ns.into()),
            egress: self.egress(config),
        }
    }

    /// The way out of results that do not go home.
    fn egress(&self, config: &Config) -> Option<Egress> {
        let (interface, attached) =
            (0..).zip(&self.interfaces).find(|(_, attached)| attached.device.name == config.egress.interface)?;
        Some(Egress { interface, mac: attached.device.mac, next_hop: config.egress.next_hop })
    }

    /// A worker with a socket on its queue of every interface.
    fn open_worker(
        &mut self,
        config: &Config,
        settings: Settings,
        (functions, exchange): (&[Builtin], &Arc<Exchange>),
        (links, ways): (&[Link], Arc<LiveWays>),
    ) -> Result<Worker<Socket>> {
        let (queue, params) = (settings.worker, settings.params);
        let umem = UmemConfig {
            frames: config.workers.frames,
            frame_size: config.workers.frame_size,
            ..UmemConfig::default()
        };
        let umem = Umem::new(&umem).with_context(|| format!("packet memory of worker {queue}"))?;
        let samples = empty_samples(functions.len())?;
        let tables = Arc::clone(&self.tables);
        let mut worker = Worker::new(settings, umem, functions, tables, Arc::clone(exchange), samples);
        // Half of the frames wait for packets, the other half is in the worker's hands or on its way out.
        let interfaces = self.interfaces.len() as u32;
        let ring = 1 << (config.workers.frames / 2 / interfaces).max(1).ilog2();
        if ring < SMALLEST_RING {
            bail!(
                "{} frames per worker are too few for {interfaces} interfaces\n  why: each needs rings of {SMALLEST_RING} frames, and as many again to send from\n  do:  set [workers] frames to {} or more",
                config.workers.frames,
                (interfaces * SMALLEST_RING * 2).next_power_of_two()
            );
        }
        for index in 0..self.interfaces.len() {
            let interface = &self.interfaces[index];
            let link = links.iter().find(|link| link.interface == index as u32);
            if let Some(source) = link.and_then(|link| link.source).filter(|_| kernel::carries(config)) {
                let slot = socket_slot(index as u32, queue);
                let address = SocketAddrV4::new(source, config.interconnect.port);
                let socket = kernel::open(address, true)?;
                let taker = Taker::new(Arc::clone(&self.tables), params, Arc::clone(&ways), queue, slot);
                worker.add_socket(index as u32, interface.kind, Socket::Udp(UdpPort::new(socket, taker)));
                continue;
            }
            let xsk_config = XskConfig {
                rx_size: ring,
                tx_size: ring,
                fill_size: ring,
                completion_size: ring,
                zero_copy: match interface.zero_copy {
                    config::ZeroCopy::Auto => ZeroCopy::Auto,
                    config::ZeroCopy::On => ZeroCopy::Force,
                    config::ZeroCopy::Off => ZeroCopy::Off,
                },
                ..XskConfig::new(interface.device.index, queue)
            };
            let xsk = Xsk::open(worker.umem_mut(), &xsk_config).map_err(|error| {
                let context = advice::Context {
                    interface: Some(&interface.device.name),
                    queue: Some(queue),
                    ..Default::default()
                };
                let zero_copy = interface.zero_copy;
                explain(&error, error.errno(), advice::Operation::BindXsk { zero_copy }, &context)
            })?;
            let slot = socket_slot(index as u32, queue);
            self.object.set_socket(slot, xsk.as_fd())?;
            let zero_copy = if xsk.mode() == crate::xsk::Mode::ZeroCopy { QUEUE_ZERO_COPY } else { 0 };
            let row = self.tables.queues.row(slot);
            set(row, offset_of!(QueueRow, ifindex), pair(interface.device.index, queue));
            set(row, offset_of!(QueueRow, worker), pair(queue, QUEUE_BOUND | zero_copy));
            worker.add_socket(index as u32, interface.kind, Socket::Xsk(xsk));
        }
        Ok(worker)
    }

    fn attach(&mut self, kind: InterfaceKind) -> Result<()> {
        let program = program_of(kind);
        for interface in self.interfaces.iter_mut().filter(|interface| interface.kind == kind) {
            let (name, ifindex) = (&interface.device.name, interface.device.index);
            let context =
                advice::Context { interface: Some(name), mtu: Some(interface.device.mtu), ..Default::default() };
            let mut attach = |mode: Mode| self.object.attach(program, ifindex, mode);
            let refused = |error: xdp::Error, mode: config::Mode| {
                explain(&error, error.errno(), advice::Operation::AttachXdp { mode }, &context)
            };
            let link = match interface.mode {
                config::Mode::Native => attach(Mode::Native).map_err(|error| refused(error, config::Mode::Native))?,
                config::Mode::Skb => attach(Mode::Skb).map_err(|error| refused(error, config::Mode::Skb))?,
                config::Mode::Auto => match attach(Mode::Native) {
                    Ok(link) => link,
                    Err(native) => {
                        self.notices.push(format!(
                            "{name}: native XDP is not available ({native}); running in SKB MODE, which is slower"
                        ));
                        interface.mode = config::Mode::Skb;
                        attach(Mode::Skb).map_err(|error| refused(error, config::Mode::Skb))?
                    }
                },
            };
            if interface.mode == config::Mode::Auto {
                interface.mode = config::Mode::Native;
            }
            interface.link = Some(link);
        }
        Ok(())
    }

    /// One line per interface: name, role, mode.
    pub fn describe(&self) -> Vec<String> {
        let describe = |interface: &Attached| {
            let kind = if interface.kind == InterfaceKind::Port { "port" } else { "link" };
            format!("{kind} {} ({} mode)", interface.device.name, interface.mode.name())
        };
        self.interfaces.iter().map(describe).collect()
    }

    /// Where the node's maps are pinned.
    pub fn pins(&self) -> &PinDir {
        self.pins.dir()
    }

    /// True when a thread of the node has ended although nobody stopped it.
    pub fn is_broken(&self) -> bool {
        let membership = self.membership.as_ref().is_some_and(|(membership, _)| membership.is_broken());
        membership || self.workers.iter().chain(&self.reporter).any(JoinHandle::is_finished)
    }

    /// Why the cluster does not let this node in at present.
    pub fn refused(&self) -> Option<Refused> {
        self.membership.as_ref()?.0.view().refused
    }

    /// An interface of the node that is gone, or has been made anew under its name: its sockets and programs went with it.
    pub fn lost_interface(&self) -> Option<&str> {
        let is_there = |device: &NetDevice| NetDevice::find(&device.name).is_ok_and(|now| now.index == device.index);
        self.interfaces
            .iter()
            .map(|interface| &interface.device)
            .find(|device| !is_there(device))
            .map(|it| it.name.as_str())
    }

    /// Takes no work of other nodes from now on, or takes it again: reports say "full", and membership that the node drains.
    /// What it has been sent is computed, and what arrives at its own ports is placed as ever.
    pub fn drain(&self, draining: bool) {
        self.draining.store(draining, Release);
        if let Some((membership, profile)) = &self.membership {
            membership.set_profile(Profile { draining, ..profile.clone() });
        }
    }

    /// Leaves the cluster and stops: peers are told to send nothing more, ports go back to the kernel stack, what is
    /// held is finished and sent, then everything is removed.
    ///
    /// # Errors
    /// When a thread had panicked or the pins cannot be removed; the programs are detached in any case.
    pub fn stop(mut self) -> Result<()> {
        self.drain(true);
        for interface in self.interfaces.iter_mut().filter(|interface| interface.kind == InterfaceKind::Port) {
            interface.link = None;
        }
        let deadline = Instant::now() + DRAIN;
        // Two looks in a row without work: reports that say "full" have reached the peers by then.
        let mut quiet = 0;
        while Instant::now() < deadline && quiet < 2 {
            thread::sleep(Duration::from_millis(10));
            quiet = if self.is_quiet() { quiet + 1 } else { 0 };
        }
        self.stop_workers.store(true, Release);
        let mut failed = self.workers.drain(..).map(JoinHandle::join).filter(Result::is_err).count();
        failed +=
            self.membership.take().map(|(membership, _)| membership.leave()).into_iter().filter(Result::is_err).count();
        self.stop_reporter.store(true, Release);
        failed += self.reporter.take().map(JoinHandle::join).into_iter().filter(Result::is_err).count();
        self.interfaces.clear();
        self.pins.release()?;
        if failed > 0 {
            bail!("BUG: {failed} threads of the node had ended by a panic");
        }
        Ok(())
    }
}

/// Tells this start of the node from earlier ones: tenths of a second since 1970, wrapping; neither it nor its low half, which
/// frames carry, is 0, as that means "not known". Peers compare epochs in
/// serial arithmetic, so a clock set back across a restart makes them ignore the node until it has caught up.
fn boot_epoch() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let epoch = (since.as_millis() / 100) as u32;
    if epoch as u16 == 0 { epoch + 1 } else { epoch }
}

fn explain(
    error: &dyn std::error::Error,
    errno: Option<i32>,
    operation: advice::Operation,
    context: &advice::Context,
) -> anyhow::Error {
    match errno {
        Some(errno) => {
            let advice = advice::advice(operation, errno, context);
            anyhow::anyhow!("{error}\n  why: {}\n  do:  {}", advice.why, advice.todo)
        }
        None => anyhow::anyhow!("{error}"),
    }
}

fn with_advice(operation: advice::Operation) -> impl FnOnce(xdp::Error) -> anyhow::Error {
    move |error| explain(&error, error.errno(), operation, &advice::Context::default())
}

fn find_interfaces(config: &Config) -> Result<Vec<Attached>> {
    let ports = config.ports.iter().map(|interface| (interface, InterfaceKind::Port));
    let links = config.links.iter().map(|link| (&link.interface, InterfaceKind::Link));
    ports
        .chain(links)
        .map(|(interface, kind)| {
            let name = &interface.name;
            let device = NetDevice::find(name).with_context(|| {
                format!(
                    "there is no interface {name}\n  why: the configuration names it\n  do:  ip link show, and correct [[port]] or [[link]]"
                )
            })?;
            Ok(Attached { device, kind, mode: interface.mode, zero_copy: interface.zero_copy, link: None })
        })
        .collect()
}

/// Fills the object's tables of interfaces and functions from the configuration.
fn fill(object: &mut Object, config: &Config, interfaces: &[Attached]) -> Result<()> {
    for (index, interface) in (0..).zip(interfaces) {
        let kind = if interface.kind == InterfaceKind::Port { INTERFACE_PORT } else { INTERFACE_LINK };
        object.set_interface(interface.device.index, InterfaceRow { index, kind })?;
    }
    for (index, function) in (0..).zip(&config.functions) {
        let builtin = Builtin::from_name(function.name).context("BUG: a function that is not in the registry")?;
        let prior = builtin.prior();
        let row = FunctionRow {
            a_ns: prior.a_ns,
            b_q16: prior.b_q16,
            limit_ns: function.limit_ns,
            units: builtin.units() as u32,
            type_id: function.type_id.into(),
            declared_a_ns: prior.a_ns,
            declared_b_q16: prior.b_q16,
            policy: function.policy as u32,
            order: function.order.id(),
            flags: function.flags(config.interconnect.transport),
            builtin: Builtin::ALL.iter().position(|known| *known == builtin).unwrap_or_default() as u32,
            ..FunctionRow::default()
        };
        object.set_function(index, row)?;
    }
    Ok(())
}

/// The loaded programs that run, for whoever measures their run time.
fn programs(object: &mut Object, config: &Config) -> Result<Programs> {
    let link = (!kernel::carries(config)).then(|| object.program_fd(LINK_PROGRAM)).transpose()?;
    Ok(Programs { ingress: object.program_fd(PORT_PROGRAM)?, link })
}

/// Longest frame of an interface, bytes.
fn max_frame(device: &NetDevice) -> u16 {
    u16::try_from(device.mtu as usize + ETHERNET_BYTES).unwrap_or(u16::MAX)
}

/// When the node reports.
fn report_plan(config: &Config) -> report::Plan {
    let params = config.params(1);
    report::Plan {
        mode: config.reports.mode,
        busy_us: config.reports.interval_ns / 1000,
        idle_us: config.reports.idle_interval_ns / 1000,
        gap_us: config.reports.min_gap_ns / 1000,
        finish_percent: config.reports.finish_share,
        threshold_milli: params.tuning.threshold_milli,
        recovery_milli: params.tuning.recovery_milli,
    }
}

fn write_meta(tables: &Tables, config: &Config, epoch: u32, sizes: &Sizes) {
    use std::os::unix::fs::MetadataExt;
    let row = tables.meta.row(0);
    let netns = std::fs::metadata("/proc/self/ns/net").map_or(0, |meta| meta.ino());
    set(row, offset_of!(MetaRow, abi), pair(dataplane_common::maps::ABI_VERSION, std::process::id()));
    set(row, offset_of!(MetaRow, node), pair(config.node.id.into(), epoch));
    set(row, offset_of!(MetaRow, workers), pair(sizes.workers, sizes.functions));
    show_policy(tables, config);
    set(row, offset_of!(MetaRow, started_ns), monotonic_ns());
    set(row, offset_of!(MetaRow, netns), netns);
}

fn show_policy(tables: &Tables, config: &Config) {
    let row = tables.meta.row(0);
    set(row, offset_of!(MetaRow, policy), pair(config.policy.kind as u32, config.reports.interval_ns / 1000));
}

fn spawn_worker(
    mut worker: Worker<Socket>,
    cpu: u32,
    tables: &Arc<Tables>,
    stop: &Arc<AtomicBool>,
) -> Result<JoinHandle<()>> {
    let tables = Arc::clone(tables);
    worker.stop_on(Arc::clone(stop));
    let index = worker.index();
    let (pinned, is_pinned) = std::sync::mpsc::sync_channel(1);
    let handle = thread::Builder::new().name(format!("worker{index}")).spawn(move || {
        let pin = pin_to(cpu);
        let row = tables.workers.row(index);
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        set(row, offset_of!(WorkerRow, cpu), pair(cpu, tid.unsigned_abs()));
        // Sleeps of `hold` would otherwise be late by the default slack of 50 µs.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let is_pinned = pin.is_ok();
        let _ = pinned.send(pin);
        if is_pinned {
            worker.run();
        }
    })?;
    is_pinned.recv().context("BUG: a worker ended before it began")??;
    Ok(handle)
}

/// Pins the calling thread to `cpu` and checks that it stays there.
fn pin_to(cpu: u32) -> Result<()> {
    let allowed = core_affinity::set_for_current(core_affinity::CoreId { id: cpu as usize });
    let set = rustix::thread::sched_getaffinity(None)?;
    if allowed && set.count() == 1 && set.is_set(cpu as usize) {
        return Ok(());
    }
    bail!(
        "cannot pin a worker to CPU {cpu}\n  why: it does not exist or this process may not use it\n  do:  correct [workers] cpus; `taskset -p $$` shows what is allowed"
    )
}

fn empty_samples(functions: usize) -> Result<Samples> {
    (0..functions).map(|_| FunctionSamples::new().context("BUG: histogram bounds")).collect()
}

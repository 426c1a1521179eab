//! The XDP object: load it for a node, fill its tables, attach its programs, take them off again.
//!
//! Attachments are BPF links held by file descriptors: when the process ends, by whatever way, the kernel detaches the
//! programs and the interface works as before. aya's fallback to a netlink attachment, which would outlive a crash, is
//! refused.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use aya::maps::xdp::XdpMapError;
use aya::maps::{Array, DevMap, HashMap as BpfHashMap, Map, MapData, PerCpuArray, XskMap};
use aya::programs::links::{FdLink, LinkError};
use aya::programs::xdp::XdpLink;
use aya::programs::{ProgramError, Xdp, XdpError, XdpMode};
use aya::{Ebpf, EbpfError, EbpfLoader};
use dataplane_common::held;
use dataplane_common::maps::{
    self as names, FLOW_SLOTS, FLOWS, FUNCTIONS, FlowRow, FunctionRow, HELD, IFINDEXES, INTERFACES, InterfaceRow, KEYS,
    LINKS, LOAD_TABLE, LoadRow, MAX_WORKERS, META, MetaRow, NAMES, NameRow, PARAMS, PEERS, PORTS, Params, PeerRow,
    QUEUES, QueueRow, RELOADS, ROSTER, ReloadRow, SEALS, SIGNALS, SLOTS, SignalsRow, SlotRow, TYPES, WORKER_COUNT,
    WORKERS, WorkerRow, XDP_COUNT, XSKS, function_slot, ifindex_slot,
};
use dataplane_common::plan;
use dataplane_common::reason::{REASON_STRIDE, Reason};
use dataplane_common::seal::{KEY_ROWS, KeyRow, SealRow};

use crate::kernel_log::KernelLog;
use crate::maps::tables::pair;
use crate::maps::{MapValue, MappedArray, PinDir, Tables, Value};

/// How XDP is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the kernel's generic path: works everywhere, slower.
    Skb,
}

impl Mode {
    /// Name in configuration and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Skb => "skb",
        }
    }
}

/// How often a program is offered to the verifier when signals interrupt it.
const LOAD_TRIES: u32 = 20;
/// Lines of the verifier's log that an error shows; `bpftool -d prog loadall` prints all of them.
const LOG_TAIL: usize = 12;

/// What can go wrong between the object and the interface.
#[derive(Debug)]
pub enum Error {
    /// The object was refused: by its format, or by the verifier, whose last words are in the text.
    Load(EbpfError),
    /// A program of the object was refused by the verifier or is not there.
    Program(&'static str, ProgramError),
    /// A map is not there, has another type, or refused an update.
    Map(&'static str, aya::maps::MapError),
    /// A program's descriptor could not be duplicated.
    Duplicate(std::io::Error),
    /// A map could not be mapped into this process.
    Mmap(&'static str, std::io::Error),
    /// A map could not be pinned.
    Pin(&'static str, aya::pin::PinError),
    /// The program could not be attached.
    Attach {
        /// Interface index.
        ifindex: u32,
        /// Mode that was tried.
        mode: Mode,
        /// Why.
        source: ProgramError,
    },
    /// The kernel offers no BPF link for XDP (it is older than 5.9).
    NoLink(LinkError),
}

impl Error {
    /// The errno behind the error, for [`crate::advice`].
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Attach { source, .. } | Self::Program(_, source) => program_errno(source),
            Self::Mmap(_, source) | Self::Duplicate(source) => source.raw_os_error(),
            _ => None,
        }
    }
}

fn program_errno(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(call) => call.io_error.raw_os_error(),
        ProgramError::LoadError { io_error, .. } => io_error.raw_os_error(),
        ProgramError::XdpError(XdpError::NetlinkError(_)) => Some(libc::EINVAL),
        _ => None,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => write!(f, "the eBPF object was refused: {error}"),
            Self::Program(name, ProgramError::LoadError { io_error, verifier_log }) => {
                let log = verifier_log.to_string();
                let lines: Vec<_> = log.lines().collect();
                let tail = lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n    ");
                write!(f, "program {name} was refused: {io_error}; the verifier's last words:\n    {tail}")
            }
            Self::Program(name, error) => write!(f, "program {name} was refused: {error}"),
            Self::Map(name, error) => write!(f, "map {name}: {error}"),
            Self::Duplicate(error) => write!(f, "a program's descriptor cannot be duplicated: {error}"),
            Self::Mmap(name, error) => write!(f, "map {name} cannot be mapped: {error}"),
            Self::Pin(name, error) => write!(f, "map {name} cannot be pinned: {error}"),
            Self::Attach { ifindex, mode, source } => {
                write!(f, "cannot attach in {} mode to interface {ifindex}: {source}", mode.name())
            }
            Self::NoLink(error) => write!(f, "this kernel attaches XDP without a BPF link (before Linux 5.9): {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// Sizes of a node's maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of the load table: largest node id + 1.
    pub nodes: u32,
    /// Workers.
    pub workers: u32,
    /// Interfaces.
    pub interfaces: u32,
    /// Functions.
    pub functions: u32,
}

/// The tables of peers of a loaded object.
pub struct PeerMaps {
    links: DevMap<MapData>,
    peers: Array<MapData, Value<PeerRow>>,
}

impl PeerMaps {
    /// Writes the row of peer `node`, which is reached through interface `ifindex`; 0 leaves the way there as it is.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn set(&mut self, node: u16, ifindex: u32, row: PeerRow) -> Result<(), Error> {
        if ifindex != 0 {
            self.links.set(u32::from(node), ifindex, None, 0).map_err(device_map(LINKS))?;
        }
        self.peers.set(u32::from(node), Value(row), 0).map_err(|error| Error::Map(PEERS, error))
    }
}

/// A loaded object.
pub struct Object {
    ebpf: Ebpf,
    sizes: Sizes,
}

impl Object {
    /// Loads the maps of `object` for a node; programs are loaded when they are attached.
    ///
    /// # Errors
    /// [`Error::Load`].
    pub fn load(object: &[u8], params: Params, sizes: Sizes) -> Result<Self, Error> {
        Self::load_onto(object, params, sizes, None)
    }

    /// Loads `object` onto the maps that another one has pinned in `pins` and that have these sizes: programs that replace those
    /// of the other find everything as it is.
    ///
    /// # Errors
    /// [`Error::Load`].
    pub fn load_again(object: &[u8], params: Params, sizes: Sizes, pins: &PinDir) -> Result<Self, Error> {
        Self::load_onto(object, params, sizes, Some(pins))
    }

    fn load_onto(object: &[u8], params: Params, sizes: Sizes, pins: Option<&PinDir>) -> Result<Self, Error> {
        let params = Value(params);
        let per_worker = MAX_WORKERS as u32;
        let mut loader = EbpfLoader::new();
        loader
            .override_global(PARAMS, &params, true)
            .map_max_entries(LOAD_TABLE, sizes.nodes)
            .map_max_entries(PEERS, sizes.nodes)
            .map_max_entries(LINKS, sizes.nodes)
            .map_max_entries(ROSTER, sizes.nodes)
            .map_max_entries(NAMES, sizes.nodes)
            .map_max_entries(SEALS, sizes.nodes)
            .map_max_entries(WORKERS, sizes.workers)
            .map_max_entries(QUEUES, sizes.interfaces * per_worker)
            .map_max_entries(XSKS, sizes.interfaces * per_worker)
            .map_max_entries(FUNCTIONS, sizes.functions.max(1) * per_worker)
            .map_max_entries(HELD, sizes.workers * held::PLACES)
            .map_max_entries(WORKER_COUNT, sizes.workers * REASON_STRIDE as u32);
        if let Some(pins) = pins {
            for name in names::ALL {
                loader.map_pin_path(name, pins.path().join(name));
            }
        }
        let ebpf = loader.load(object).map_err(Error::Load)?;
        Ok(Self { ebpf, sizes })
    }

    /// Pins every map in the node's directory.
    ///
    /// # Errors
    /// [`Error::Pin`]; what was pinned before it stays for the caller to remove.
    pub fn pin(&self, dir: &PinDir) -> Result<(), Error> {
        for name in names::ALL {
            if let Some(map) = self.ebpf.map(name) {
                map.pin(dir.path().join(name)).map_err(|error| Error::Pin(name, error))?;
            }
        }
        Ok(())
    }

    /// Maps the shared arrays into this process.
    ///
    /// # Errors
    /// [`Error::Map`], [`Error::Mmap`].
    pub fn tables(&self) -> Result<Tables, Error> {
        let per_worker = MAX_WORKERS as u32;
        Ok(Tables {
            load: self.map_array::<LoadRow>(LOAD_TABLE, self.sizes.nodes)?,
            workers: self.map_array::<WorkerRow>(WORKERS, self.sizes.workers)?,
            queues: self.map_array::<QueueRow>(QUEUES, self.sizes.interfaces * per_worker)?,
            functions: self.map_array::<FunctionRow>(FUNCTIONS, self.sizes.functions.max(1) * per_worker)?,
            counts: self.map_array::<u64>(WORKER_COUNT, self.sizes.workers * REASON_STRIDE as u32)?,
            meta: self.map_array::<MetaRow>(META, 1)?,
            reloads: self.map_array::<ReloadRow>(RELOADS, 1)?,
            slots: self.map_array::<SlotRow>(SLOTS, plan::SLOTS * plan::TABLES)?,
            flows: self.map_array::<FlowRow>(FLOWS, FLOW_SLOTS as u32)?,
            held: self.map_array::<u64>(HELD, self.sizes.workers * held::PLACES)?,
            signals: self.map_array::<SignalsRow>(SIGNALS, 1)?,
            roster: self.map_array::<u64>(ROSTER, self.sizes.nodes)?,
            names: self.map_array::<NameRow>(NAMES, self.sizes.nodes)?,
            keys: self.map_array::<KeyRow>(KEYS, KEY_ROWS as u32)?,
            seals: self.map_array::<SealRow>(SEALS, self.sizes.nodes)?,
        })
    }

    fn map_array<T: MapValue>(&self, name: &'static str, entries: u32) -> Result<MappedArray<T>, Error> {
        let Some(Map::Array(data)) = self.ebpf.map(name) else {
            return Err(missing(name));
        };
        let info = data.info().map_err(|error| Error::Map(name, error))?;
        if info.value_size() as usize != size_of::<T>() || info.max_entries() < entries {
            return Err(missing(name));
        }
        MappedArray::map(data.fd().as_fd(), entries).map_err(|error| Error::Mmap(name, error))
    }

    fn map_mut(&mut self, name: &'static str) -> Result<&mut Map, Error> {
        self.ebpf.map_mut(name).ok_or_else(|| missing(name))
    }

    /// Makes `index` of this node known as `row`; a port also becomes a way out for results.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn set_interface(&mut self, ifindex: u32, row: InterfaceRow) -> Result<(), Error> {
        let mut interfaces: BpfHashMap<&mut MapData, u32, Value<InterfaceRow>> =
            typed(INTERFACES, self.map_mut(INTERFACES)?)?;
        interfaces.insert(ifindex, Value(row), 0).map_err(|error| Error::Map(INTERFACES, error))?;
        let mut near: Array<&mut MapData, u64> = typed(IFINDEXES, self.map_mut(IFINDEXES)?)?;
        near.set(ifindex_slot(ifindex), pair(ifindex, row.index), 0).map_err(|error| Error::Map(IFINDEXES, error))?;
        if row.kind == names::INTERFACE_PORT {
            let mut ports: DevMap<&mut MapData> = typed(PORTS, self.map_mut(PORTS)?)?;
            ports.set(row.index, ifindex, None, 0).map_err(device_map(PORTS))?;
        }
        Ok(())
    }

    /// Makes peer `node` reachable through interface `ifindex`.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn set_peer(&mut self, node: u16, ifindex: u32, row: PeerRow) -> Result<(), Error> {
        self.peer_maps()?.set(node, ifindex, row)
    }

    /// The tables of peers, for a thread that changes them while the object runs.
    ///
    /// # Errors
    /// [`Error::Map`], [`Error::Duplicate`].
    pub fn peer_maps(&self) -> Result<PeerMaps, Error> {
        let links: DevMap<MapData> = self.another(LINKS)?.try_into().map_err(|error| Error::Map(LINKS, error))?;
        let peers: Array<MapData, Value<PeerRow>> =
            self.another(PEERS)?.try_into().map_err(|error| Error::Map(PEERS, error))?;
        Ok(PeerMaps { links, peers })
    }

    /// The map `name` under another descriptor.
    fn another(&self, name: &'static str) -> Result<Map, Error> {
        let (Some(Map::Array(data)) | Some(Map::DevMap(data))) = self.ebpf.map(name) else {
            return Err(missing(name));
        };
        let fd = data.fd().as_fd().try_clone_to_owned().map_err(Error::Duplicate)?;
        let failed = |error| Error::Map(name, error);
        Map::from_map_data(MapData::from_fd(fd).map_err(failed)?).map_err(failed)
    }

    /// Makes a function known under `type_id`, with one row per worker.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn set_function(&mut self, index: u32, row: FunctionRow) -> Result<(), Error> {
        let workers = self.sizes.workers;
        let mut rows: Array<&mut MapData, Value<FunctionRow>> = typed(FUNCTIONS, self.map_mut(FUNCTIONS)?)?;
        for worker in 0..workers {
            rows.set(function_slot(index, worker), Value(row), 0).map_err(|error| Error::Map(FUNCTIONS, error))?;
        }
        let mut types: Array<&mut MapData, u32> = typed(TYPES, self.map_mut(TYPES)?)?;
        types.set(row.type_id, index + 1, 0).map_err(|error| Error::Map(TYPES, error))
    }

    /// Gives the packets of socket slot `slot` to the AF_XDP socket `fd`.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn set_socket(&mut self, slot: u32, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let mut sockets: XskMap<&mut MapData> = typed(XSKS, self.map_mut(XSKS)?)?;
        sockets.set(slot, fd, 0).map_err(|error| Error::Map(XSKS, error))
    }

    /// Loads `program` into the kernel (once), so that it can be attached or run on test input.
    ///
    /// # Errors
    /// [`Error::Program`] with the verifier's words.
    pub fn load_program(&mut self, name: &'static str) -> Result<&mut Xdp, Error> {
        let absent = || ProgramError::InvalidName { name: name.to_owned() };
        let program = self.ebpf.program_mut(name).ok_or_else(|| Error::Program(name, absent()))?;
        let program: &mut Xdp = program.try_into().map_err(|error| Error::Program(name, error))?;
        // The verifier gives up with EAGAIN when a signal waits for this thread (`do_check` in kernel/bpf/verifier.c), also
        // for one that nobody sent us: a freezer or a tracer does that.
        let mut tries = LOAD_TRIES;
        while program.fd().is_err() {
            tries -= 1;
            match program.load() {
                Err(error) if tries > 0 && is_interrupted(&error) => {}
                loaded => loaded.map_err(|error| Error::Program(name, error))?,
            }
        }
        Ok(program)
    }

    /// Another descriptor of a loaded program.
    ///
    /// # Errors
    /// [`Error::Program`]; [`Error::Duplicate`] when the process may open no more files.
    pub fn program_fd(&mut self, name: &'static str) -> Result<OwnedFd, Error> {
        let program = self.load_program(name)?;
        let fd = program.fd().map_err(|error| Error::Program(name, error))?;
        fd.as_fd().try_clone_to_owned().map_err(Error::Duplicate)
    }

    /// Attaches `program` to interface `ifindex`. Dropping the link detaches it.
    ///
    /// # Errors
    /// [`Error::Attach`], [`Error::NoLink`].
    pub fn attach(&mut self, name: &'static str, ifindex: u32, mode: Mode) -> Result<FdLink, Error> {
        let flags = match mode {
            Mode::Native => XdpMode::Driver,
            Mode::Skb => XdpMode::Skb,
        };
        let program = self.load_program(name)?;
        let failed = |source| Error::Attach { ifindex, mode, source };
        let id = program.attach_to_if_index(ifindex, flags).map_err(failed)?;
        let link = program.take_link(id).map_err(failed)?;
        FdLink::try_from(link).map_err(Error::NoLink)
    }

    /// Puts `program` in the place of the one behind `link`. No packet sees the interface without a program.
    ///
    /// # Errors
    /// [`Error::Attach`]: the interface has no program now.
    pub fn replace(&mut self, name: &'static str, (ifindex, mode): (u32, Mode), link: FdLink) -> Result<FdLink, Error> {
        let program = self.load_program(name)?;
        let failed = |source| Error::Attach { ifindex, mode, source };
        let link = XdpLink::try_from(link).map_err(Error::NoLink)?;
        let id = program.attach_to_link(link).map_err(failed)?;
        let link = program.take_link(id).map_err(failed)?;
        FdLink::try_from(link).map_err(Error::NoLink)
    }

    /// The reader of the object's log, for an object built with `--log`.
    pub fn log(&mut self) -> Option<KernelLog> {
        KernelLog::of(&mut self.ebpf)
    }

    /// The XDP programs' counter of `reason`, summed over CPUs.
    ///
    /// # Errors
    /// [`Error::Map`].
    pub fn count(&self, reason: Reason) -> Result<u64, Error> {
        let map = self.ebpf.map(XDP_COUNT).ok_or_else(|| missing(XDP_COUNT))?;
        let counters: PerCpuArray<&MapData, u64> = map.try_into().map_err(|error| Error::Map(XDP_COUNT, error))?;
        let per_cpu = counters.get(&(reason as u32), 0).map_err(|error| Error::Map(XDP_COUNT, error))?;
        Ok(per_cpu.iter().sum())
    }

    /// The map `name`, for reading.
    pub fn map(&self, name: &str) -> Option<&Map> {
        self.ebpf.map(name)
    }
}

/// A device map's error; programs behind its entries, the other thing that can fail, are not used.
fn device_map(name: &'static str) -> impl Fn(XdpMapError) -> Error {
    move |error| match error {
        XdpMapError::MapError(error) => Error::Map(name, error),
        XdpMapError::ChainedProgramNotSupported => missing(name),
    }
}

fn is_interrupted(error: &ProgramError) -> bool {
    matches!(error, ProgramError::LoadError { io_error, .. } if io_error.raw_os_error() == Some(libc::EAGAIN))
}

fn missing(name: &'static str) -> Error {
    Error::Map(name, aya::maps::MapError::InvalidName { name: name.to_owned() })
}

fn typed<'a, M>(name: &'static str, map: &'a mut Map) -> Result<M, Error>
where
    M: TryFrom<&'a mut Map, Error = aya::maps::MapError>,
{
    M::try_from(map).map_err(|error| Error::Map(name, error))
}

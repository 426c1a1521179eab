//! A node's maps and programs without its threads, in a network namespace that ends with the test.
//!
//! ```text
//!   namespace of the test's thread
//!   ┌─────────────────────────────────────────────────────┐
//!   │  port  a0 ═══ b0     many queues, an AF_XDP         │
//!   │  link  a1 ═══ b1     socket on the first two of a0, │
//!   │  port  a2 ═══ b2     a1 and a2; b2 is not the       │
//!   │                      node's, and stands for any     │
//!   │                      interface it does not know     │
//!   └─────────────────────────────────────────────────────┘
//! ```
//! Programs run through `BPF_PROG_TEST_RUN`: the kernel executes them on a frame and a context (interface, queue) of
//! ours and returns verdict, frame and metadata; no packet moves. The sockets are there because a program may only
//! redirect to what is in the map.

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::{fmt, fs, io, thread};

use aya::programs::{TestRun, TestRunOptions};
use dataplane_common::maps::{
    FunctionRow, INTERFACE_LINK, INTERFACE_PORT, InterfaceRow, LoadRow, Params, PeerRow, QueueRow, WorkerRow,
    socket_slot,
};
use dataplane_common::reason::{REASONS, Reason};
use dataplane_user::maps::{MapValue, MappedArray, Tables};
use dataplane_user::sys::NetDevice;
use dataplane_user::worker::monotonic_ns;
use dataplane_user::xdp::{Object, Sizes};
use dataplane_user::xsk::{Umem, UmemConfig, Xsk, XskConfig, ZeroCopy};

/// Interface indexes of every node here, as in the drawing.
pub const PORT: u32 = 0;
pub const LINK: u32 = 1;
pub const OTHER_PORT: u32 = 2;
/// An interface that is none of the node's.
pub const STRANGER: u32 = 3;
/// Workers. Interfaces have more queues than a node may have workers.
pub const WORKERS: u32 = 2;
/// Queues of each interface.
const QUEUES: u32 = 66;
/// Functions a node may be given.
pub const FUNCTIONS: u32 = 8;

/// The object that the build made.
pub fn object() -> Vec<u8> {
    let path = std::env::var_os("DATAPLANE_BPF_OBJECT").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/bpf/dataplane.o")),
        PathBuf::from,
    );
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask build` makes it", path.display()))
}

/// Whether `test` may run. With `DATAPLANE_TEST_ALL` a reason not to is a failure.
pub fn may_run(test: &str) -> bool {
    let reason = match Command::new("ip").arg("-V").output() {
        _ if !rustix::process::geteuid().is_root() => "not root",
        Err(_) => "no ip command",
        Ok(_) => return true,
    };
    assert!(std::env::var_os("DATAPLANE_TEST_ALL").is_none(), "{test} cannot run: {reason}");
    println!("SKIP {test}: {reason}");
    false
}

/// Runs `body` on a thread with a network namespace of its own. The namespace has no name, so that it goes with the
/// thread whatever happens to this process.
pub fn inside(test: &str, body: impl FnOnce(&Site) + Send) {
    if !may_run(test) {
        return;
    }
    let run = || {
        // SAFETY: concerns this thread only, which nothing else runs on.
        let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(rc, 0, "unshare: {}", io::Error::last_os_error());
        body(&Site::new());
    };
    if let Err(panic) = thread::scope(|scope| scope.spawn(run).join()) {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` in the calling thread's namespace.
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip was there before");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Interfaces and sockets, for any number of nodes one after the other.
pub struct Site {
    object: Vec<u8>,
    devices: Vec<NetDevice>,
    sockets: Vec<(u32, Xsk)>,
    _umem: Umem,
}

impl Site {
    fn new() -> Self {
        let umem_config = UmemConfig { frames: 64, ..UmemConfig::default() };
        let mut umem = Umem::new(&umem_config).unwrap_or_else(|error| panic!("{error}"));
        let (mut devices, mut sockets) = (Vec::new(), Vec::new());
        for interface in [PORT, LINK, OTHER_PORT] {
            let name = format!("a{interface}");
            ip(&format!("link add {name} numrxqueues {QUEUES} numtxqueues {QUEUES} type veth peer name b{interface}"));
            ip(&format!("link set {name} addrgenmode none up"));
            let device = NetDevice::find(&name).unwrap_or_else(|error| panic!("{name}: {error}"));
            for queue in 0..WORKERS {
                let config = XskConfig {
                    rx_size: 8,
                    tx_size: 8,
                    fill_size: 8,
                    completion_size: 8,
                    zero_copy: ZeroCopy::Auto,
                    ..XskConfig::new(device.index, queue)
                };
                let socket = Xsk::open(&mut umem, &config).unwrap_or_else(|error| panic!("{error}"));
                sockets.push((socket_slot(interface, queue), socket));
            }
            devices.push(device);
        }
        devices.push(NetDevice::find("b2").unwrap_or_else(|error| panic!("b2: {error}")));
        Self { object: object(), devices, sockets, _umem: umem }
    }

    /// Kernel index of an interface.
    pub fn ifindex(&self, interface: u32) -> u32 {
        self.devices[interface as usize].index
    }

    /// A node with these parameters, its interfaces known, with a socket on every queue.
    pub fn node(&self, params: Params) -> Node<'_> {
        let mut node = self.node_without_sockets(params);
        for (slot, socket) in &self.sockets {
            node.object.set_socket(*slot, socket.as_fd()).unwrap_or_else(|error| panic!("{error}"));
        }
        node
    }

    /// As [`Site::node`], but no socket is in the map.
    pub fn node_without_sockets(&self, params: Params) -> Node<'_> {
        let sizes = Sizes { nodes: params.nodes.into(), workers: WORKERS, interfaces: STRANGER, functions: FUNCTIONS };
        let mut object = Object::load(&self.object, params, sizes).unwrap_or_else(|error| panic!("{error}"));
        for (index, device) in (0..STRANGER).zip(&self.devices) {
            let kind = if index == LINK { INTERFACE_LINK } else { INTERFACE_PORT };
            object.set_interface(device.index, InterfaceRow { index, kind }).unwrap_or_else(|error| panic!("{error}"));
        }
        let tables = object.tables().unwrap_or_else(|error| panic!("{error}"));
        Node { site: self, object, tables, params }
    }
}

/// Where a frame arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Interface of the node.
    pub interface: u32,
    /// Queue of it.
    pub queue: u32,
    /// Bytes of metadata that the driver, or a program before ours, has put in front of the frame.
    pub metadata: usize,
}

/// What a program did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its verdict.
    pub verdict: u32,
    /// The metadata.
    pub metadata: Vec<u8>,
    /// The frame.
    pub frame: Vec<u8>,
    /// The monotonic clock before and after, ns.
    pub time: (u64, u64),
}

/// A loaded object and its tables.
pub struct Node<'a> {
    site: &'a Site,
    /// The object, to change its maps.
    pub object: Object,
    /// The mapped tables.
    pub tables: Tables,
    /// What the programs run with.
    pub params: Params,
}

/// Bytes of a context (`struct xdp_md`): data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
const CONTEXT: usize = 24;

impl Node<'_> {
    /// Makes a function known; all workers measure it alike.
    pub fn set_function(&mut self, index: u32, row: FunctionRow) {
        self.object.set_function(index, row).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Makes a peer reachable over the link.
    pub fn set_peer(&mut self, node: u16, row: PeerRow) {
        let ifindex = self.site.ifindex(LINK);
        self.object.set_peer(node, ifindex, row).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Runs a program on a frame.
    pub fn run(&mut self, program: &'static str, at: Arrival, frame: &[u8]) -> Outcome {
        let data = [&vec![0xcd; at.metadata][..], frame].concat();
        let mut context = [0u8; CONTEXT];
        let fields = [at.metadata as u32, data.len() as u32, 0, self.site.ifindex(at.interface), at.queue, 0];
        for (bytes, field) in context.chunks_exact_mut(4).zip(fields) {
            bytes.copy_from_slice(&field.to_ne_bytes());
        }
        let (mut data_out, mut context_out) = (vec![0; 4096], [0u8; CONTEXT]);
        let program = self.object.load_program(program).unwrap_or_else(|error| panic!("{error}"));
        let before = monotonic_ns();
        let options = TestRunOptions {
            data_in: Some(&data),
            data_out: Some(&mut data_out),
            ctx_in: Some(&context),
            ctx_out: Some(&mut context_out),
            ..TestRunOptions::new()
        };
        let result =
            program.test_run(options).unwrap_or_else(|error| panic!("test_run of {} bytes: {error}", data.len()));
        let time = (before, monotonic_ns());
        data_out.truncate(result.data_size_out as usize);
        let start = u32::from_ne_bytes([context_out[0], context_out[1], context_out[2], context_out[3]]) as usize;
        let frame = data_out.split_off(start);
        Outcome { verdict: result.return_value, metadata: data_out, frame, time }
    }

    /// Frames counted under `reason`, on all CPUs.
    pub fn counter(&self, reason: Reason) -> u64 {
        self.object.count(reason).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Every counter.
    pub fn count_all(&self) -> [u64; REASONS] {
        std::array::from_fn(|at| self.counter(Reason::ALL[at]))
    }

    /// Every word of the tables that programs write.
    pub fn words(&self) -> Words {
        let mut words = Vec::new();
        read_all(&self.tables.load, &mut words);
        read_all(&self.tables.workers, &mut words);
        read_all(&self.tables.queues, &mut words);
        Words { words, nodes: self.tables.load.len() }
    }

    /// Sets every word of those tables to zero.
    pub fn clear(&self) {
        clear_all(&self.tables.load);
        clear_all(&self.tables.workers);
        clear_all(&self.tables.queues);
    }

    /// Writes the words of a load row that decisions and accounts read.
    pub fn set_load(&self, node: u16, row: &LoadRow) {
        let two = |first: u32, second: u32| u64::from(first) | u64::from(second) << 32;
        let place = |offset, word| self.set(Place::load(node, offset), word);
        place(offset_of!(LoadRow, backlog_ns), two(row.backlog_ns, row.acked_ns));
        place(offset_of!(LoadRow, valid_until_ns), row.valid_until_ns);
        place(offset_of!(LoadRow, queued_milli), two(row.queued_milli, u32::from(row.workers)));
        place(offset_of!(LoadRow, sent_ns), row.sent_ns);
        place(offset_of!(LoadRow, sent_frames), row.sent_frames);
        place(offset_of!(LoadRow, received_ns), two(row.received_ns, row.received_epoch));
        place(offset_of!(LoadRow, received_frames), row.received_frames);
        place(offset_of!(LoadRow, report_seq), two(row.report_seq, row.report_epoch));
    }

    /// Writes a word.
    pub fn set(&self, place: Place, word: u64) {
        match place {
            Place::Load(row, offset) => self.tables.load.row(row).word(offset).store(word, Relaxed),
            Place::Worker(row, offset) => self.tables.workers.row(row).word(offset).store(word, Relaxed),
            Place::Queue(row, offset) => self.tables.queues.row(row).word(offset).store(word, Relaxed),
        }
    }
}

fn read_all<T: MapValue>(map: &MappedArray<T>, words: &mut Vec<u64>) {
    for row in 0..map.len() {
        let row = map.row(row);
        words.extend((0..size_of::<T>()).step_by(8).map(|offset| row.word(offset).load(Relaxed)));
    }
}

fn clear_all<T: MapValue>(map: &MappedArray<T>) {
    for row in 0..map.len() {
        for offset in (0..size_of::<T>()).step_by(8) {
            map.row(row).word(offset).store(0, Relaxed);
        }
    }
}

/// A word of a table: row, and offset in it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Of `LOAD_TABLE`.
    Load(u32, usize),
    /// Of `WORKERS`.
    Worker(u32, usize),
    /// Of `QUEUES`.
    Queue(u32, usize),
}

impl Place {
    /// A word of a node's load row.
    pub fn load(node: u16, offset: usize) -> Self {
        Self::Load(node.into(), offset)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(row, offset) => write!(f, "LOAD_TABLE[{row}]+{offset}"),
            Self::Worker(row, offset) => write!(f, "WORKERS[{row}]+{offset}"),
            Self::Queue(row, offset) => write!(f, "QUEUES[{row}]+{offset}"),
        }
    }
}

/// The words of the tables at one moment.
#[derive(Clone, PartialEq, Eq)]
pub struct Words {
    words: Vec<u64>,
    nodes: u32,
}

const LOAD_WORDS: usize = size_of::<LoadRow>() / 8;
const WORKER_WORDS: usize = size_of::<WorkerRow>() / 8;
const QUEUE_WORDS: usize = size_of::<QueueRow>() / 8;

impl Words {
    fn index(&self, place: Place) -> usize {
        let workers = self.nodes as usize * LOAD_WORDS;
        let queues = workers + WORKERS as usize * WORKER_WORDS;
        match place {
            Place::Load(row, offset) => row as usize * LOAD_WORDS + offset / 8,
            Place::Worker(row, offset) => workers + row as usize * WORKER_WORDS + offset / 8,
            Place::Queue(row, offset) => queues + row as usize * QUEUE_WORDS + offset / 8,
        }
    }

    fn place(&self, index: usize) -> Place {
        let workers = self.nodes as usize * LOAD_WORDS;
        let queues = workers + WORKERS as usize * WORKER_WORDS;
        if index < workers {
            Place::Load((index / LOAD_WORDS) as u32, index % LOAD_WORDS * 8)
        } else if index < queues {
            Place::Worker(((index - workers) / WORKER_WORDS) as u32, (index - workers) % WORKER_WORDS * 8)
        } else {
            Place::Queue(((index - queues) / QUEUE_WORDS) as u32, (index - queues) % QUEUE_WORDS * 8)
        }
    }

    /// The word there.
    pub fn get(&self, place: Place) -> u64 {
        self.words[self.index(place)]
    }

    /// Writes the word there.
    pub fn set(&mut self, place: Place, word: u64) {
        let index = self.index(place);
        self.words[index] = word;
    }

    /// Adds to the word there, and returns the sum.
    pub fn add(&mut self, place: Place, amount: u64) -> u64 {
        let sum = self.get(place).wrapping_add(amount);
        self.set(place, sum);
        sum
    }

    /// Words that differ: where, here, there.
    pub fn differences(&self, other: &Self) -> Vec<(Place, u64, u64)> {
        let pairs = self.words.iter().zip(&other.words).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(index, (a, b))| (self.place(index), *a, *b)).collect()
    }
}

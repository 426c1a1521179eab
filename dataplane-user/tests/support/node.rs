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

use std::cell::RefCell;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{fs, io, thread};

use aya::maps::{Map, MapData, PerCpuArray, PerCpuValues};
use aya::programs::{TestRun, TestRunOptions};
use aya::util::nr_cpus;
use dataplane_common::maps::{
    FunctionRow, INTERFACE_LINK, INTERFACE_PORT, InterfaceRow, LoadRow, Params, PeerRow, SignalsRow, TURNS, socket_slot,
};
use dataplane_common::reason::{REASONS, Reason};
use dataplane_user::maps::Tables;
use dataplane_user::sys::NetDevice;
use dataplane_user::worker::monotonic_ns;
use dataplane_user::xdp::{Object, Sizes};
use dataplane_user::xsk::{Umem, UmemConfig, Xsk, XskConfig, ZeroCopy};

use super::words::{Place, Words, two, words_of};

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

/// The maps of `object` for a node of the sizes here.
pub fn load(object: &[u8], params: Params) -> Object {
    let sizes = Sizes { nodes: params.nodes.into(), workers: WORKERS, interfaces: STRANGER, functions: FUNCTIONS };
    Object::load(object, params, sizes).unwrap_or_else(|error| panic!("{error}"))
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
        let mut object = load(&self.object, params);
        for (index, device) in (0..STRANGER).zip(&self.devices) {
            let kind = if index == LINK { INTERFACE_LINK } else { INTERFACE_PORT };
            object.set_interface(device.index, InterfaceRow { index, kind }).unwrap_or_else(|error| panic!("{error}"));
        }
        let tables = object.tables().unwrap_or_else(|error| panic!("{error}"));
        let turns = turns(&object);
        Node { site: self, object, tables, turns, written: RefCell::default(), params }
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
    turns: PerCpuArray<MapData, u64>,
    written: RefCell<Vec<Place>>,
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
        let (data, context) = self.input(at, frame);
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

    /// Whether this kernel lets drivers put more than 32 bytes of metadata in front of a frame, as Linux does since 6.3.
    pub fn has_room_for_metadata(&mut self) -> bool {
        let (data, context) = self.input(Arrival { interface: PORT, queue: 0, metadata: 36 }, &[0; 64]);
        let program = self.object.load_program("dp_pass").unwrap_or_else(|error| panic!("{error}"));
        let options = TestRunOptions { data_in: Some(&data), ctx_in: Some(&context), ..TestRunOptions::new() };
        program.test_run(options).is_ok()
    }

    /// Runs a program `runs` times on one frame; the mean time of a run.
    pub fn time(&mut self, program: &'static str, at: Arrival, frame: &[u8], runs: u32) -> Duration {
        let (data, context) = self.input(at, frame);
        let program = self.object.load_program(program).unwrap_or_else(|error| panic!("{error}"));
        let options =
            TestRunOptions { data_in: Some(&data), ctx_in: Some(&context), repeat: runs, ..TestRunOptions::new() };
        program.test_run(options).unwrap_or_else(|error| panic!("test_run: {error}")).duration
    }

    /// Data and context of a run.
    fn input(&self, at: Arrival, frame: &[u8]) -> (Vec<u8>, [u8; CONTEXT]) {
        let data = [&vec![0xcd; at.metadata][..], frame].concat();
        let mut context = [0u8; CONTEXT];
        let fields = [at.metadata as u32, data.len() as u32, 0, self.site.ifindex(at.interface), at.queue, 0];
        for (bytes, field) in context.chunks_exact_mut(4).zip(fields) {
            bytes.copy_from_slice(&field.to_ne_bytes());
        }
        (data, context)
    }

    /// Frames counted under `reason`, on all CPUs.
    pub fn counter(&self, reason: Reason) -> u64 {
        self.object.count(reason).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Every counter.
    pub fn count_all(&self) -> [u64; REASONS] {
        std::array::from_fn(|at| self.counter(Reason::ALL[at]))
    }

    /// Every word of the mapped tables.
    pub fn words(&self) -> Words {
        Words::of(&self.tables)
    }

    /// The word there.
    pub fn get(&self, place: Place) -> u64 {
        place.word(&self.tables).load(Relaxed)
    }

    /// Writes a word.
    pub fn set(&self, place: Place, word: u64) {
        place.word(&self.tables).store(word, Relaxed);
        self.written.borrow_mut().push(place);
    }

    /// Where words were written since the last call.
    pub fn take_written(&self) -> Vec<Place> {
        self.written.take()
    }

    /// Writes a load row.
    pub fn set_load(&self, node: u16, row: &LoadRow) {
        for (index, word) in words_of(row).into_iter().enumerate() {
            self.set(Place::load(node, 8 * index), word);
        }
    }

    /// Makes these nodes the ones that decisions look at. The signals say how many there are: set them first.
    pub fn set_roster(&self, ids: &[u16]) {
        for (position, id) in (0..).zip(ids) {
            self.set(Place::roster(position), (*id).into());
        }
        let place = Place::signals(offset_of!(SignalsRow, arrivals_q32));
        self.set(place, two(self.get(place) as u32, ids.len() as u32));
    }

    /// Writes the signals.
    pub fn set_signals(&self, row: &SignalsRow) {
        let words = [
            two(row.send_ns, row.receive_ns),
            two(row.wire_ns, row.wire_ns_per_byte_q16),
            two(row.utilisation_milli, row.service_ns),
            two(row.arrivals_q32, row.peers),
            two(row.deviation_ns, row.reserved1),
            row.worker_send_ns,
            two(row.price_q16, row.relax),
        ];
        for (index, word) in words.into_iter().enumerate() {
            self.set(Place::signals(8 * index), word);
        }
    }

    /// Sets the round-robin counters of all CPUs, so that it does not matter on which one a program runs.
    pub fn set_turns(&mut self, turn: u64) {
        let values = PerCpuValues::try_from(vec![turn; cpus()]).unwrap_or_else(|error| panic!("{error}"));
        self.turns.set(0, values, 0).unwrap_or_else(|error| panic!("{error}"));
    }

    /// How often programs have taken a turn since the counters were set to `turn`, on all CPUs.
    pub fn turns_since(&self, turn: u64) -> u64 {
        let values = self.turns.get(&0, 0).unwrap_or_else(|error| panic!("{error}"));
        values.iter().map(|value| value.wrapping_sub(turn)).sum()
    }
}

fn cpus() -> usize {
    nr_cpus().unwrap_or_else(|(what, error)| panic!("{what}: {error}"))
}

/// A second handle of the round-robin counters, for writing.
fn turns(object: &Object) -> PerCpuArray<MapData, u64> {
    let Some(Map::PerCpuArray(data)) = object.map(TURNS) else { panic!("no map {TURNS}") };
    let open = || MapData::from_id(data.info()?.id());
    let data = open().unwrap_or_else(|error| panic!("{TURNS}: {error}"));
    PerCpuArray::try_from(Map::PerCpuArray(data)).unwrap_or_else(|error| panic!("{TURNS}: {error}"))
}

//! What the namespace tests share: a running cluster with the generator's end in this process.
#![allow(dead_code, reason = "each test binary uses its part of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::fs::File;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::packet::{Probe, Recipe, Reply};
use dataplane_bench::status::Status;
use dataplane_bench::topology::{Cluster, Host, NodeSettings, PortPlan, Purpose, Shape};
use dataplane_bench::traffic::wire::Wire;
use dataplane_common::reason::Reason;
use dataplane_common::wire::{fold_checksum, sum_words};
use dataplane_user::functions::{Builtin, Call};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How long anything may take that is expected to happen.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// True when the test must be skipped: it needs root. `DATAPLANE_TEST_ALL` makes that a failure.
pub fn lacks_root() -> bool {
    if rustix::process::geteuid().is_root() {
        return false;
    }
    let test = thread::current().name().unwrap_or("test").to_owned();
    assert!(
        std::env::var_os("DATAPLANE_TEST_ALL").is_none(),
        "{test} needs root and DATAPLANE_TEST_ALL forbids skipping"
    );
    println!("SKIP {test}: needs root");
    true
}

/// A running cluster and the generator's end of its ports.
pub struct Bench {
    pub cluster: Cluster,
    pub wire: Wire,
}

/// Runs `body` with `nodes` running nodes, on a thread inside the generator's namespace.
pub fn with_cluster(nodes: u16, settings: impl Fn(u16) -> NodeSettings + Sync, body: impl FnOnce(&mut Bench) + Send) {
    with_shape(Shape::new(Purpose::Test, nodes), settings, body);
}

/// As [`with_cluster`], for a cluster of any shape.
pub fn with_shape(shape: Shape, settings: impl Fn(u16) -> NodeSettings + Sync, body: impl FnOnce(&mut Bench) + Send) {
    with_hosts(shape, |bench| {
        for node in bench.cluster.plan().nodes() {
            bench.cluster.start(node, &settings(node), &Interrupt::never()).unwrap();
        }
        bench.cluster.wait_for_peers(&Interrupt::never()).unwrap();
        body(bench);
    });
}

/// As [`with_shape`], but no node runs yet.
pub fn with_hosts(shape: Shape, body: impl FnOnce(&mut Bench) + Send) {
    if lacks_root() {
        return;
    }
    thread::scope(|scope| {
        let test = scope.spawn(|| {
            let cluster = Cluster::build(shape).unwrap();
            enter(&cluster, Host::Generator);
            let interfaces = cluster.plan().interfaces(Host::Generator);
            // First the generator's programs: a veth takes redirected frames only when its peer runs one.
            let wire = Wire::open(&interfaces).unwrap();
            body(&mut Bench { cluster, wire });
        });
        if let Err(panic) = test.join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Moves the calling thread into a namespace of the cluster.
pub fn enter(cluster: &Cluster, host: Host) {
    let namespace = File::open(format!("/run/netns/{}", cluster.plan().name(host))).unwrap();
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&namespace), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Workers on the two CPUs in turn; reports every millisecond, because the nodes share them with everything else.
pub fn settings(policy: &str, node: u16) -> NodeSettings {
    NodeSettings {
        report_interval: Duration::from_millis(1),
        idle_interval: Duration::from_millis(2),
        ..NodeSettings::new(policy, usize::from(node) % available_cpus())
    }
}

pub fn available_cpus() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// What came back: how often each sequence number, and what was wrong.
#[derive(Default)]
pub struct Replies {
    pub seen: BTreeMap<u64, u32>,
    damaged: Vec<u64>,
    wrong_results: Vec<u64>,
}

impl Replies {
    pub fn take(&mut self, frame: &[u8]) {
        let Some(reply) = Reply::parse(frame) else { return };
        let sequence = reply.probe.sequence;
        *self.seen.entry(sequence).or_default() += 1;
        if !reply.is_intact {
            self.damaged.push(sequence);
        }
        let crc = Builtin::Crc32;
        if reply.type_id == crc.type_id() {
            let (mut payload, mut expected) = (reply.payload.to_vec(), [0; 4]);
            crc.compute(Call { payload: &mut payload, operand: 0, result: &mut expected });
            if reply.result[..4] != expected {
                self.wrong_results.push(sequence);
            }
        }
    }

    pub fn assert_intact(&self) {
        assert!(self.damaged.is_empty(), "wrong checksums in what came back: {:?}", self.damaged);
        assert!(self.wrong_results.is_empty(), "wrong results in what came back: {:?}", self.wrong_results);
    }

    pub fn assert_exactly(&self, count: u64) {
        self.assert_intact();
        let lost: Vec<_> = (0..count).filter(|sequence| !self.seen.contains_key(sequence)).collect();
        let doubled: Vec<_> = self.seen.iter().filter(|(_, times)| **times > 1).collect();
        assert!(lost.is_empty() && doubled.is_empty(), "of {count}: lost {lost:?}, doubled {doubled:?}");
    }
}

impl Bench {
    pub fn status(&self, node: u16) -> Status {
        self.cluster.status(node).unwrap()
    }

    pub fn counter(&self, node: u16, reason: Reason) -> u64 {
        self.status(node).counters[reason.name()]
    }

    pub fn port(&self, node: u16) -> PortPlan {
        self.cluster.plan().port(node)
    }

    pub fn send_raw(&mut self, node: u16, frame: &[u8]) {
        self.wire.prepare(frame.len(), |bytes| bytes.copy_from_slice(frame)).unwrap();
        self.wire.send(usize::from(node) - 1).unwrap();
    }

    pub fn send(&mut self, node: u16, recipe: &Recipe, sequence: u64) {
        let frame = recipe.template().unwrap().frame(&Probe { sequence, scheduled_ns: 0 });
        self.send_raw(node, &frame);
    }

    /// Receives until `count` different packets have come back, or patience ends.
    pub fn collect(&mut self, replies: &mut Replies, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while replies.seen.len() < count && Instant::now() < deadline {
            self.wire.receive(|frame| replies.take(frame.bytes));
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until the ledger of every running node of `nodes` balances and nothing waits anywhere.
    pub fn wait_for_rest(&self, nodes: impl IntoIterator<Item = u16>) -> Vec<Status> {
        let nodes: Vec<_> = nodes.into_iter().collect();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let statuses: Vec<_> = nodes.iter().map(|node| self.status(*node)).collect();
            let rests = |status: &Status| {
                status.ledger.balances
                    && status.workers.iter().all(|worker| worker.backlog_ns == 0)
                    && status.peers.iter().filter(|peer| peer.is_alive()).all(|peer| peer.in_flight_ns == 0)
            };
            if statuses.iter().all(rests) {
                return statuses;
            }
            assert!(Instant::now() < deadline, "no rest: {statuses:#?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A packet to `port` for `function` with its operand and room for its result.
pub fn recipe(port: &PortPlan, function: Builtin, operand: u32) -> Recipe {
    Recipe {
        operand: Some(operand),
        result_bytes: function.result_bytes(),
        payload_bytes: 200,
        ..Recipe::to_port(port, 0, function.type_id())
    }
}

/// An Ethernet frame with a UDP datagram from the generator to `port`, for the kernel.
pub fn udp_frame(port: &PortPlan, destination: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [port.node_mac, port.generator_mac].concat();
    frame.extend(0x0800u16.to_be_bytes());
    let udp_len = 8 + payload.len() as u16;
    let [t0, t1] = (20 + udp_len).to_be_bytes();
    let mut ip = [0x45, 0, t0, t1, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    ip[12..16].copy_from_slice(&port.generator_ipv4.octets());
    ip[16..20].copy_from_slice(&port.node_ipv4.octets());
    let sum = fold_checksum(sum_words(&ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    for number in [5555, destination, udp_len, 0] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend(payload);
    frame
}

/// A kernel UDP echo on port 7 of node `node`, until `stop` is set.
pub fn echo<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    bench: &'scope Cluster,
    node: u16,
    stop: &'scope AtomicBool,
) {
    let (started, is_started) = std::sync::mpsc::channel();
    scope.spawn(move || {
        enter(bench, Host::Node(node));
        let socket = UdpSocket::bind(("0.0.0.0", 7)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        started.send(()).unwrap();
        let mut buffer = [0; 2048];
        while !stop.load(Ordering::Relaxed) {
            if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                socket.send_to(&buffer[..len], from).unwrap();
            }
        }
    });
    is_started.recv().unwrap();
}

/// Asks the echo and returns how long the answer took.
pub fn ask_echo(wire: &mut Wire, port: &PortPlan, question: &[u8]) -> Option<Duration> {
    let frame = udp_frame(port, 7, question);
    let start = Instant::now();
    wire.prepare(frame.len(), |bytes| bytes.copy_from_slice(&frame)).unwrap();
    wire.send(usize::from(port.node) - 1).unwrap();
    let mut answered = false;
    while !answered && start.elapsed() < PATIENCE {
        wire.receive(|frame| answered |= frame.bytes.ends_with(question));
    }
    answered.then(|| start.elapsed())
}

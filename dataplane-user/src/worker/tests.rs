//! The worker against `xsk::fake`: the test is the kernel and the XDP programs, charges and delivers, and takes what is sent.
//! Every test ends with [`Rig::finish`]: no frame is missing, and all that was charged is discharged.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use dataplane_common::classify::Rules;
use dataplane_common::ledger::Ledger;
use dataplane_common::load::WorkerLoad;
use dataplane_common::maps::{FunctionRow, LoadRow, QueueRow, WorkerRow};
use dataplane_common::reason::REASONS;
use dataplane_common::tuning::{CLASS, FIFO};
use dataplane_common::wire::link::NO_FLOW;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::maps::Tables;
use crate::maps::tables::tests::tables;
use crate::maps::tables::{pair, set};
use crate::port::Losses;
use crate::process::tests::frames::{self, Carrier, Interconnect, Packet, with};
use crate::samples::FunctionSamples;
use crate::ways::Way;
use crate::xsk::fake::{self, FakeConfig, Kernel};
use crate::xsk::{Rings, UmemConfig};

/// Not 0, so that a row of another worker would be noticed.
const WORKER: u32 = 1;
const NODE: u16 = 2;
const EPOCH: u32 = 77;
const FRAMES: u32 = 512;
/// Interfaces of the node.
const PORT: usize = 0;
const LINK: usize = 1;

#[path = "decide_tests.rs"]
mod decide;
#[path = "ending_tests.rs"]
mod ending;
#[path = "keep_tests.rs"]
mod keep;
#[path = "live_tests.rs"]
mod live;
#[path = "order_tests.rs"]
mod order;
#[path = "pull_tests.rs"]
mod pull;

/// Rings without a kernel behind them.
#[derive(Debug)]
struct FakePort {
    rings: Rings,
    shared: Arc<Shared>,
}

/// What the test sees of a port that the worker owns.
#[derive(Debug, Default)]
struct Shared {
    looks: AtomicU64,
    /// Looks from now on that find nothing: what is there comes right after.
    early_looks: AtomicU64,
    recycles: AtomicU64,
    kicks: AtomicU64,
    rx_dropped: AtomicU64,
    rx_ring_full: AtomicU64,
    invalid_descs: AtomicU64,
}

impl Port for FakePort {
    fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        self.shared.looks.fetch_add(1, Relaxed);
        let early = self.shared.early_looks.load(Relaxed);
        self.shared.early_looks.store(early.saturating_sub(1), Relaxed);
        if early > 0 { 0 } else { self.rings.receive(umem, batch) }
    }

    fn transmit(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        self.rings.transmit(umem, batch)
    }

    fn kick(&mut self) {
        self.shared.kicks.fetch_add(1, Relaxed);
    }

    fn recycle(&mut self, umem: &mut Umem) {
        self.shared.recycles.fetch_add(1, Relaxed);
        self.rings.recycle(umem);
    }

    fn losses(&self) -> Losses {
        Losses {
            rx_dropped: self.shared.rx_dropped.load(Relaxed),
            rx_ring_full: self.shared.rx_ring_full.load(Relaxed),
            invalid_descs: self.shared.invalid_descs.load(Relaxed),
        }
    }

    fn vacant(&self) -> u32 {
        self.rings.vacant()
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// A worker with a port and a link, and everything around it.
struct Rig {
    worker: Worker<FakePort>,
    kernels: [Kernel; 2],
    shared: [Arc<Shared>; 2],
    tables: Arc<Tables>,
    exchange: Arc<Exchange>,
    /// When packets arrive, unless a test says otherwise: how long the test itself takes changes no order.
    start_ns: u64,
}

/// How long held results wait for others.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long kept packets wait for their result.
const RETRY: Duration = Duration::from_secs(3600);
const CHECKS: Checks = Checks { rules: Rules::anep(frames::UDP_PORT), udp_checksum: true };

/// A charge as XDP makes it, for the metadata of its packet.
#[derive(Clone, Copy, Debug)]
struct Charged {
    ns: u32,
    position_ns: u64,
    sequence: u64,
}

/// The way to a node: all are reached alike.
fn way(node: u16) -> Way {
    let [source_mac, mac] = FORWARD.mac;
    Way { node, interface: LINK as u32, mac, source_mac, max_frame: 1_514, route: None }
}

impl Rig {
    fn new() -> Self {
        Self::with(256, CHECKS, FIFO)
    }

    fn with(tx_size: u32, checks: Checks, discipline: u32) -> Self {
        Self::set_up(
            tx_size,
            |settings| {
                settings.checks = checks;
                settings.params.tuning.discipline = discipline;
            },
            |_| {},
        )
    }

    /// A worker whose settings and tables are changed before it is made.
    fn set_up(tx_size: u32, change: impl FnOnce(&mut Settings), furnish: impl FnOnce(&Tables)) -> Self {
        let params = Params { node: NODE, epoch: EPOCH, nodes: 4, ..Params::DEFAULT };
        let mut settings = Settings {
            worker: WORKER,
            params,
            ways: Arc::new(Ways::new([0, 1, 3].map(way))),
            checks: CHECKS,
            spin: Duration::ZERO,
            patience: PATIENCE,
            pull: false,
            retry: RETRY,
            egress: None,
        };
        change(&mut settings);
        let functions = Builtin::ALL;
        let tables = Arc::new(tables(4, WORKER + 1, 3, functions.len() as u32));
        furnish(&tables);
        let exchange = Arc::new(Exchange::default());
        let samples = empty_samples();
        let umem = Umem::new(&UmemConfig { frames: FRAMES, ..UmemConfig::default() }).unwrap();
        let mut worker = Worker::new(settings, umem, functions, Arc::clone(&tables), Arc::clone(&exchange), samples);
        let config = FakeConfig { tx_size, ..FakeConfig::new(128) };
        let mut open = |kind, interface| {
            let (rings, kernel) = fake::open(worker.umem_mut(), &config).unwrap();
            let shared = Arc::new(Shared::default());
            worker.add_socket(interface, kind, FakePort { rings, shared: Arc::clone(&shared) });
            (kernel, shared)
        };
        let (port, link) = (open(InterfaceKind::Port, 0), open(InterfaceKind::Link, 1));
        let (kernels, shared) = ([port.0, link.0], [port.1, link.1]);
        let mut rig = Self { worker, kernels, shared, tables, exchange, start_ns: monotonic_ns() };
        rig.rest();
        rig
    }

    /// No housekeeping before the test asks for it, however slow the machine is.
    fn rest(&mut self) {
        self.worker.last_housekeeping = self.worker.clock.now() + Duration::from_secs(3600);
    }

    fn housekeep(&mut self) {
        self.worker.housekeep();
        self.rest();
    }

    /// Charges a packet through a socket, as XDP does.
    fn charge(&self, socket: usize, ns: u32) -> Charged {
        let add = |word: &AtomicU64, amount: u32| word.fetch_add(amount.into(), Relaxed) + u64::from(amount);
        let worker = self.tables.workers.row(WORKER);
        add(worker.word(offset_of!(WorkerRow, charged_ns)), ns);
        add(worker.word(offset_of!(WorkerRow, charged_packets)), 1);
        let queue = self.tables.queues.row(socket_slot(socket as u32, WORKER));
        let position_ns = add(queue.word(offset_of!(QueueRow, charged_ns)), ns);
        let sequence = add(queue.word(offset_of!(QueueRow, charged_packets)), 1);
        Charged { ns, position_ns, sequence }
    }

    /// The metadata of a packet without a flow.
    fn metadata(&self, socket: usize, charged: Charged, function: Builtin) -> Metadata {
        Metadata {
            function: index_of(function),
            charged_ns: charged.ns,
            arrival_16ns: Metadata::arrival_of(self.start_ns),
            position_ns: charged.position_ns,
            sequence: charged.sequence as u32,
            origin: if socket == PORT { Origin::Port } else { Origin::Peer },
            policy: 0,
            flow: NO_FLOW,
            flow_sequence: 0,
        }
    }

    /// Delivers a frame with the metadata of its charge; false when a ring has no room for it.
    fn deliver_charged(&mut self, socket: usize, charged: Charged, function: Builtin, frame: &[u8]) -> bool {
        self.kernels[socket].deliver_with_metadata(&self.metadata(socket, charged, function).emit(), frame)
    }

    fn deliver(&mut self, socket: usize, ns: u32, function: Builtin, frame: &[u8]) {
        let charged = self.charge(socket, ns);
        assert!(self.deliver_charged(socket, charged, function, frame));
    }

    /// Takes what is in a transmit ring; the frames come back at once.
    fn take(&mut self, socket: usize) -> Vec<Vec<u8>> {
        let kernel = &mut self.kernels[socket];
        let sent = std::iter::from_fn(|| kernel.transmit()).collect();
        let in_flight = kernel.in_flight();
        assert_eq!(kernel.complete(in_flight), in_flight);
        sent
    }

    fn counters(&self) -> [u64; REASONS] {
        std::array::from_fn(|at| self.tables.count(WORKER, Reason::ALL[at]).load(Relaxed))
    }

    /// The counters are these, and no other.
    #[track_caller]
    fn counted(&self, expected: &[(Reason, u64)]) {
        let counters = self.counters();
        let found: Vec<_> = Reason::ALL
            .iter()
            .map(|reason| (*reason, counters[*reason as usize]))
            .filter(|(_, count)| *count > 0)
            .collect();
        let mut expected: Vec<_> = expected.iter().copied().filter(|(_, count)| *count > 0).collect();
        expected.sort();
        assert_eq!(found, expected);
    }

    fn load(&self) -> WorkerLoad {
        self.tables.worker_load(WORKER)
    }

    fn worker_word(&self, offset: usize) -> u64 {
        self.tables.workers.row(WORKER).word(offset).load(Relaxed)
    }

    /// Work and packets written off.
    fn lost(&self) -> (u64, u64) {
        (self.worker_word(offset_of!(WorkerRow, lost_ns)), self.worker_word(offset_of!(WorkerRow, lost_packets)))
    }

    /// Work and packets charged and not discharged.
    fn left(&self) -> (u64, u64) {
        let load = self.load();
        (load.charged_ns.wrapping_sub(load.discharged_ns), load.charged_packets.wrapping_sub(load.discharged_packets))
    }

    fn queue_word(&self, socket: usize, offset: usize) -> u64 {
        self.tables.queues.row(socket_slot(socket as u32, WORKER)).word(offset).load(Relaxed)
    }

    /// Comes to rest and checks that nothing is missing.
    #[track_caller]
    fn finish(mut self) {
        for _ in 0..3 {
            while self.worker.step() > 0 {
                self.take(PORT);
                self.take(LINK);
            }
            self.housekeep();
            self.take(PORT);
            self.take(LINK);
        }
        assert_eq!(self.worker.step(), 0);
        let frames = self.worker.umem().ledger();
        assert!(frames.is_balanced(), "{frames:?}");
        assert_eq!((frames.worker, frames.outbound, frames.stranded), (0, 0, 0), "{frames:?}");
        assert_eq!(frames.free + frames.inbound, FRAMES, "{frames:?}");
        let ledger = Ledger::new(&self.counters(), 0);
        assert_eq!(ledger.taken, ledger.worker_ended, "{ledger:?}");
        assert_eq!(self.left(), (0, 0), "charged and not discharged: ns, packets");
        assert_eq!(self.worker_word(offset_of!(WorkerRow, serving_since_ns)), 0, "a packet is still in service");
        assert_eq!(self.worker_word(offset_of!(WorkerRow, behind)), 0, "nothing waits");
        assert_eq!(
            self.worker_word(offset_of!(WorkerRow, frames_in_use)),
            pair(0, FRAMES),
            "frames that hold a packet"
        );
        let others = self.tables.workers.row(0);
        assert!(
            (0..size_of::<WorkerRow>()).step_by(8).all(|at| others.word(at).load(Relaxed) == 0),
            "another worker's row"
        );
    }
}

fn index_of(function: Builtin) -> u16 {
    Builtin::ALL.iter().position(|known| *known == function).unwrap() as u16
}

fn empty_samples() -> Samples {
    Builtin::ALL.iter().map(|_| FunctionSamples::new().unwrap()).collect()
}

fn packet(function: Builtin) -> Packet {
    let packet = Packet::new(function.type_id()).operand(2_000);
    if function.result_bytes() > 0 { packet.result(function.result_bytes()) } else { packet }
}

/// CRC-32 (IEEE 802.3), bit by bit.
fn crc32(bytes: &[u8]) -> Vec<u8> {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
        }
    }
    (!crc).to_be_bytes().to_vec()
}

/// What a function leaves in the result option.
fn result(function: Builtin, packet: &Packet, rounds: u32) -> Vec<u8> {
    match function {
        Builtin::Crc32 => crc32(&packet.payload),
        Builtin::Sha256 => {
            let mut digest = Sha256::digest(&packet.payload).to_vec();
            for _ in 1..rounds {
                digest = Sha256::digest([&digest[..], &packet.payload].concat()).to_vec();
            }
            digest
        }
        Builtin::Forward | Builtin::Spin | Builtin::Hold | Builtin::SlowHold => Vec::new(),
    }
}

/// A forwarded packet's header, from node 1.
const FORWARD: Interconnect = Interconnect {
    mac: [[2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]],
    version: 3,
    kind: 1,
    hops: 1,
    flags: 0,
    source: 1,
    destination: NODE,
    epoch: 31,
    sequence: 555,
    charged_ns: 4_321,
    position_ns: 98_765,
    type_id: 0xff01,
    port: 3,
    flow: 44,
    arrival_ns: 0x0102_0304_0506_0708,
    flow_sequence: 0x0a0b_0c0d,
    stamp_us: 1,
    backlog_ns: 2,
    received_ns: 3,
    received_epoch: 4,
    queued: 5,
    spent_ns: 0,
    held: 0,
    generation: 0,
};

/// The header of the result of [`FORWARD`], with the numbers that only the worker knows as they are in `frame`.
fn homeward(sequence: u32, frame: &[u8]) -> Interconnect {
    let [to, from] = FORWARD.mac;
    let own = Own::of(frame);
    Interconnect {
        mac: [from, to],
        kind: 2,
        source: NODE,
        destination: 1,
        epoch: EPOCH,
        sequence,
        position_ns: own.took_ns,
        stamp_us: own.stamp_us,
        backlog_ns: own.backlog_ns,
        received_ns: own.received_ns,
        received_epoch: own.received_epoch,
        queued: own.queued,
        spent_ns: own.spent_ns,
        ..FORWARD
    }
}

/// The numbers of a result that only the worker knows.
#[derive(Clone, Copy, Debug)]
struct Own {
    took_ns: u32,
    stamp_us: u32,
    backlog_ns: u32,
    received_ns: u32,
    received_epoch: u16,
    queued: u16,
    spent_ns: u32,
}

impl Own {
    fn of(frame: &[u8]) -> Self {
        let header = &frame[14..frames::OVERHEAD];
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let half = |at: usize| u16::from_be_bytes(header[at..at + 2].try_into().unwrap());
        Self {
            took_ns: word(20),
            stamp_us: word(44),
            backlog_ns: word(48),
            received_ns: word(52),
            received_epoch: half(56),
            queued: half(58),
            spent_ns: word(60),
        }
    }
}

mod results {
    use super::*;

    #[test]
    fn every_function_answers_behind_every_encapsulation() {
        let mut rig = Rig::new();
        let mut count = 0;
        for function in Builtin::ALL {
            for vlans in 0..=2 {
                for carrier in [Carrier::Udp, Carrier::UdpWithoutChecksum, Carrier::Protocol107] {
                    for v6 in [false, true] {
                        if v6 && carrier == Carrier::UdpWithoutChecksum {
                            continue;
                        }
                        let packet = Packet { vlans, carrier, v6, ..packet(*function).checksum() };
                        rig.deliver(PORT, 2_000, *function, &packet.frame());
                        assert_eq!(rig.worker.step(), 1);
                        let expected = packet.answer(&result(*function, &packet, 2_000)).frame();
                        assert_eq!(rig.take(PORT), [expected], "{function:?} {packet:?}");
                        count += 1;
                    }
                }
            }
        }
        rig.counted(&[(Reason::SeenLocal, count), (Reason::SentResult, count)]);
        assert_eq!((rig.lost(), rig.left()), ((0, 0), (0, 0)));
        rig.finish();
    }

    #[test]
    fn functions_give_known_answers() {
        let mut rig = Rig::new();
        let crc = Packet { payload: b"123456789".to_vec(), ..packet(Builtin::Crc32) };
        let sha = Packet { payload: b"abc".to_vec(), ..Packet::new(Builtin::Sha256.type_id()).operand(1).result(32) };
        rig.deliver(PORT, 1, Builtin::Crc32, &crc.frame());
        rig.deliver(PORT, 1, Builtin::Sha256, &sha.frame());
        rig.worker.step();
        let digest = [
            0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23, 0xb0, 0x03,
            0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61, 0xf2, 0x00, 0x15, 0xad,
        ];
        let expected = [crc.answer(&[0xcb, 0xf4, 0x39, 0x26]).frame(), sha.answer(&digest).frame()];
        assert_eq!(rig.take(PORT), expected);
        rig.finish();
    }

    #[test]
    fn forwarded_packets_go_home_with_the_header_they_came_with() {
        let mut rig = Rig::new();
        for (at, function) in (1..).zip(Builtin::ALL) {
            let packet = Packet { vlans: 1, ..packet(*function).checksum() };
            rig.deliver(LINK, 4_321, *function, &FORWARD.frame(&packet.frame()));
            assert_eq!(rig.worker.step(), 1);
            let answer = packet.answer(&result(*function, &packet, 2_000)).frame();
            let sent = rig.take(LINK);
            assert_eq!(sent.len(), 1);
            assert_eq!(sent[0], homeward(at, &sent[0]).frame(&answer), "{function:?}");
            assert!(rig.take(PORT).is_empty());
        }
        let count = Builtin::ALL.len() as u64;
        rig.counted(&[(Reason::SeenForwarded, count), (Reason::SentHome, count)]);
        rig.finish();
    }

    #[test]
    fn results_say_what_the_worker_knows() {
        let mut rig = Rig::new();
        let home = rig.tables.load.row(1);
        set(home, offset_of!(LoadRow, received_ns), pair(0xfedc_ba98, 0x0007_0031));
        let spin = Packet::new(0xff04).operand(500_000);
        let before_ns = rig.start_ns;
        // Long before the worker looks, and behind it a packet that waits.
        let early = rig.metadata(LINK, rig.charge(LINK, 300_000_000), Builtin::Spin);
        let early = Metadata { arrival_16ns: Metadata::arrival_of(before_ns - 20_000_000), ..early };
        assert!(rig.kernels[LINK].deliver_with_metadata(&early.emit(), &FORWARD.frame(&spin.frame())));
        rig.deliver(LINK, 50_000_000, Builtin::Spin, &FORWARD.frame(&spin.frame()));
        assert_eq!(rig.worker.step(), 2);
        let after_ns = monotonic_ns();
        let sent = rig.take(LINK);
        let [first, second] = [0, 1].map(|at| Own::of(&sent[at]));
        let all_ns = (after_ns - before_ns) as u32;
        for own in [first, second] {
            assert!((480_000..=all_ns).contains(&own.took_ns), "{own:?} {all_ns}");
            let age_us = ((after_ns >> 10) as u32).wrapping_sub(own.stamp_us);
            assert!(age_us <= (all_ns >> 10) + 1, "{own:?} {age_us}");
            assert_eq!((own.received_ns, own.received_epoch), (0xfedc_ba98, 0x31));
            assert!(own.spent_ns >= own.took_ns, "{own:?}");
        }
        assert!((20_000_000..=20_000_100 + all_ns).contains(&first.spent_ns), "{first:?} {all_ns}");
        assert!(second.spent_ns <= all_ns + 100, "{second:?} {all_ns}");
        // The one in service counts for what is left of its charge.
        let left = |charged: u32| charged.saturating_sub(all_ns)..charged;
        assert!(left(350_000_000).contains(&first.backlog_ns), "{first:?} {all_ns}");
        assert!(left(50_000_000).contains(&second.backlog_ns), "{second:?} {all_ns}");
        assert_eq!((first.queued, second.queued), (2 * 16, 16));
        rig.finish();
    }

    #[test]
    fn padding_behind_a_forwarded_packet_stays_behind() {
        let mut rig = Rig::new();
        let packet = Packet::new(0xff01).payload_of(0);
        let padded = [FORWARD.frame(&packet.frame()), vec![0xaa; 30]].concat();
        rig.deliver(LINK, 1, Builtin::Forward, &padded);
        rig.worker.step();
        let sent = rig.take(LINK);
        assert_eq!(sent, [homeward(1, &sent[0]).frame(&packet.answer(&[]).frame())]);
        rig.finish();
    }

    #[test]
    fn many_packets_leave_in_the_order_they_came() {
        let mut rig = Rig::new();
        let packet = |number: usize| Packet { payload: number.to_be_bytes().to_vec(), ..Packet::new(0xff01) };
        // More than a batch, and a ring several times over.
        for round in 0..20 {
            for number in 0..100 {
                rig.deliver(PORT, 10, Builtin::Forward, &packet(round * 100 + number).frame());
                rig.deliver(LINK, 10, Builtin::Forward, &FORWARD.frame(&packet(round * 100 + number).frame()));
            }
            while rig.worker.step() > 0 {}
            let expected: Vec<_> = (0..100).map(|number| packet(round * 100 + number).answer(&[]).frame()).collect();
            assert_eq!(rig.take(PORT), expected);
            let inner: Vec<_> = rig.take(LINK).into_iter().map(|frame| frame[frames::OVERHEAD..].to_vec()).collect();
            assert_eq!(inner, expected);
        }
        assert_eq!(rig.lost(), (0, 0));
        rig.finish();
    }

    #[test]
    fn long_computations_do_not_wait_for_the_batch() {
        let mut rig = Rig::new();
        let spin = Packet::new(0xff04).operand(SEND_AT_ONCE_NS * 2).frame();
        for _ in 0..5 {
            rig.deliver(PORT, 10_000, Builtin::Spin, &spin);
        }
        assert_eq!(rig.worker.step(), 5);
        assert_eq!(rig.shared[PORT].kicks.load(Relaxed), 5, "each was sent by itself");
        assert_eq!(rig.take(PORT).len(), 5);
        rig.finish();
    }

    #[test]
    fn a_stop_drops_what_has_arrived_under_a_name() {
        let mut rig = Rig::new();
        for _ in 0..70 {
            rig.deliver(PORT, 10, Builtin::Forward, &Packet::new(0xff01).frame());
        }
        rig.worker.stop_on(Arc::new(AtomicBool::new(true)));
        rig.worker.run();
        rig.rest();
        rig.counted(&[(Reason::SeenLocal, 70), (Reason::DropStopping, 70)]);
        assert_eq!(rig.left(), (0, 0));
        rig.finish();
    }

    #[test]
    fn a_forward_beyond_the_limit_here_is_dropped_whatever_the_peer_charged() {
        for (origin, reason) in [(LINK, Reason::DropForwardLimit), (PORT, Reason::SentResult)] {
            let mut rig = Rig::new();
            for index in 0..Builtin::ALL.len() as u32 {
                let row = rig.tables.functions.row(function_slot(index, WORKER));
                set(row, offset_of!(FunctionRow, limit_ns), 100_000);
            }
            let spin = Packet::new(0xff04).operand(200_000).frame();
            let frame = if origin == LINK { FORWARD.frame(&spin) } else { spin };
            rig.deliver(origin, 1, Builtin::Spin, &frame);
            rig.worker.step();
            let seen = if origin == PORT { Reason::SeenLocal } else { Reason::SeenForwarded };
            rig.counted(&[(seen, 1), (reason, 1), (Reason::NoteMarkSent, u64::from(origin == LINK))]);
            rig.take(origin);
            rig.finish();
        }
    }
}

mod drops {
    use dataplane_common::wire::ip::ETHERNET_BYTES;
    use dataplane_common::wire::link::{Carried, Header, Kind, OVERHEAD_BYTES};

    use super::*;

    /// The header of a frame, without what depends on the sender's state.
    fn parse(frame: &[u8]) -> Header {
        let header = Header::parse(frame, ETHERNET_BYTES).unwrap();
        Header { epoch: 0, sequence: 0, position_ns: 0, load: Carried::default(), spent_ns: 0, ..header }
    }

    fn is_forward(frame: &[u8]) -> bool {
        Header::parse(frame, ETHERNET_BYTES).is_ok_and(|header| header.kind == Kind::Forward)
    }

    /// What the node of arrival is told of a forwarded packet that was dropped here.
    fn mark_of(frame: &[u8]) -> Header {
        let forward = parse(frame);
        let (source, destination) = (NODE, forward.source);
        Header { kind: Kind::Result, length: 0, source, destination, ..forward }
    }

    /// A frame that ends in that counter; its charge is discharged all the same.
    fn dropped(socket: usize, function: Builtin, frame: &[u8], reason: Reason) {
        let mut rig = Rig::new();
        rig.deliver(socket, 3_000, function, frame);
        assert_eq!(rig.worker.step(), 1);
        let seen = if socket == PORT { Reason::SeenLocal } else { Reason::SeenForwarded };
        let marks = if socket == LINK && is_forward(frame) { vec![mark_of(frame)] } else { vec![] };
        rig.counted(&[(seen, 1), (reason, 1), (Reason::NoteMarkSent, marks.len() as u64)]);
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (0, 0)), "{reason:?}");
        assert!(rig.take(PORT).is_empty());
        let sent = rig.take(LINK);
        assert_eq!(sent.iter().map(|frame| parse(frame)).collect::<Vec<_>>(), marks, "{reason:?}");
        assert!(sent.iter().all(|frame| frame.len() == OVERHEAD_BYTES));
        // The next packet is none the worse for it.
        let good = packet(Builtin::Crc32);
        rig.deliver(PORT, 1, Builtin::Crc32, &good.frame());
        rig.worker.step();
        assert_eq!(rig.take(PORT), [good.answer(&crc32(&good.payload)).frame()]);
        rig.finish();
    }

    /// As [`dropped`], as a local packet and as a forwarded one.
    fn dropped_anywhere(function: Builtin, frame: &[u8], reason: Reason) {
        dropped(PORT, function, frame, reason);
        dropped(LINK, function, &FORWARD.frame(frame), reason);
    }

    #[test]
    fn wrong_udp_checksum() {
        for v6 in [false, true] {
            let packet = Packet { v6, ..packet(Builtin::Forward) };
            let frame = packet.frame();
            for at in [packet.l3() + if v6 { 20 } else { 13 }, packet.l4() + 1, packet.l4() + 7, packet.end() - 1] {
                let bad = with(frame.clone(), at, &[frame[at] ^ 0x10]);
                // A byte of the IPv4 header would be found by its own checksum.
                let bad = if v6 { bad } else { frames::with_ip_checksum(bad, &packet) };
                dropped_anywhere(Builtin::Forward, &bad, Reason::DropUdpChecksum);
            }
        }
    }

    #[test]
    fn no_udp_checksum_over_ipv6() {
        let packet = Packet { v6: true, carrier: Carrier::UdpWithoutChecksum, ..packet(Builtin::Forward) };
        dropped_anywhere(Builtin::Forward, &packet.frame(), Reason::DropUdpChecksum);
    }

    #[test]
    fn wrong_anep_checksum() {
        for carrier in [Carrier::UdpWithoutChecksum, Carrier::Protocol107] {
            let packet = Packet { carrier, ..packet(Builtin::Forward).checksum() };
            let frame = packet.frame();
            for at in [packet.anep() + 1, packet.checksum_offset(), packet.end() - 1] {
                let bad = with(frame.clone(), at, &[frame[at] ^ 0x01]);
                dropped_anywhere(Builtin::Forward, &bad, Reason::DropAnepChecksum);
            }
        }
    }

    #[test]
    fn no_room_for_the_result() {
        let none = Packet::new(0xff02);
        dropped_anywhere(Builtin::Crc32, &none.frame(), Reason::DropResultRoom);
        dropped_anywhere(Builtin::Crc32, &none.result(0).frame(), Reason::DropResultRoom);
        let small = Packet::new(0xff03).operand(1).result(28);
        dropped_anywhere(Builtin::Sha256, &small.frame(), Reason::DropResultRoom);
    }

    #[test]
    fn a_function_that_the_worker_does_not_have() {
        let mut rig = Rig::new();
        let charged = rig.charge(PORT, 700);
        let metadata =
            Metadata { function: Builtin::ALL.len() as u16, ..rig.metadata(PORT, charged, Builtin::Forward) };
        assert!(rig.kernels[PORT].deliver_with_metadata(&metadata.emit(), &packet(Builtin::Forward).frame()));
        rig.worker.step();
        rig.counted(&[(Reason::SeenLocal, 1), (Reason::DropMetadata, 1)]);
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (0, 0)));
        rig.finish();
    }

    #[test]
    fn metadata_of_another_program() {
        let mut rig = Rig::new();
        let frame = packet(Builtin::Forward).frame();
        let charged = rig.charge(PORT, 700);
        let good = rig.metadata(PORT, charged, Builtin::Forward);
        let (ours, peers) = (good.emit(), Metadata { origin: Origin::Peer, ..good }.emit());
        let origin_at = (0..METADATA_BYTES).find(|at| ours[*at] != peers[*at]).unwrap();
        for (at, byte) in [(0, 0), (1, 0), (origin_at, 4)] {
            let bad = with(ours.to_vec(), at, &[byte]);
            assert!(rig.kernels[PORT].deliver_with_metadata(&bad, &frame));
        }
        assert!(rig.kernels[PORT].deliver_with_metadata(&[0; METADATA_BYTES], &frame));
        assert_eq!(rig.worker.step(), 4);
        rig.counted(&[(Reason::SeenLocal, 4), (Reason::DropMetadata, 4)]);
        assert_eq!((rig.left(), rig.lost()), ((700, 1), (0, 0)), "nobody can say whose charge it was");
        rig.finish();
    }

    #[test]
    fn what_is_no_active_packet() {
        let good = packet(Builtin::Forward);
        let other_port = Packet { port: [40_000, 53], ..good.clone() };
        dropped_anywhere(Builtin::Forward, &other_port.frame(), Reason::DropMetadata);
        dropped_anywhere(Builtin::Forward, &with(good.frame(), good.anep(), &[9]), Reason::DropMetadata);
        dropped_anywhere(Builtin::Forward, &good.frame()[..30], Reason::DropMetadata);
        dropped(PORT, Builtin::Forward, &[0xff; 60], Reason::DropMetadata);
    }

    #[test]
    fn a_forwarded_packet_with_a_bad_header() {
        let inner = packet(Builtin::Forward).frame();
        let frame = FORWARD.frame(&inner);
        let one_more = ((inner.len() + 1) as u16).to_be_bytes();
        for bad in [
            Interconnect { kind: 2, ..FORWARD }.frame(&inner),
            Interconnect { kind: 3, ..FORWARD }.frame(&inner),
            Interconnect { version: 1, ..FORWARD }.frame(&inner),
            Interconnect { hops: 0, ..FORWARD }.frame(&inner),
            with(frame.clone(), 38, &one_more),
            frame[..40].to_vec(),
            FORWARD.frame(&[]),
        ] {
            dropped(LINK, Builtin::Forward, &bad, Reason::DropMetadata);
        }
    }

    #[test]
    fn checks_that_are_off_are_not_made() {
        let mut rig = Rig::with(128, Checks { udp_checksum: false, ..CHECKS }, FIFO);
        let packet = packet(Builtin::Forward);
        // What an offload leaves behind: some other sum.
        let frame = with(packet.frame(), packet.l4() + 6, &[0x12, 0x34]);
        rig.deliver(PORT, 1, Builtin::Forward, &frame);
        rig.worker.step();
        assert_eq!(rig.take(PORT), [packet.answer(&[]).frame()], "the answer has a sum of its own");
        rig.finish();
    }

    #[test]
    fn a_transmit_ring_that_stays_full() {
        let mut rig = Rig::with(16, CHECKS, FIFO);
        for _ in 0..40 {
            rig.deliver(PORT, 100, Builtin::Forward, &packet(Builtin::Forward).frame());
        }
        for _ in 0..20 {
            rig.deliver(LINK, 100, Builtin::Forward, &FORWARD.frame(&packet(Builtin::Forward).frame()));
        }
        assert_eq!(rig.worker.step(), 60);
        let ends = [(Reason::SentResult, 16), (Reason::SentHome, 16), (Reason::DropTxFull, 28)];
        rig.counted(&[&[(Reason::SeenLocal, 40), (Reason::SeenForwarded, 20)][..], &ends].concat());
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (0, 0)), "the work was done");
        assert_eq!((rig.take(PORT).len(), rig.take(LINK).len()), (16, 16));
        rig.deliver(PORT, 100, Builtin::Forward, &packet(Builtin::Forward).frame());
        rig.worker.step();
        assert_eq!(rig.take(PORT).len(), 1, "room again");
        rig.finish();
    }
}

mod accounts {
    use super::*;

    const NS: [u32; 5] = [1, 50_000, 0, 7, 1_000_000];

    fn deliver(rig: &mut Rig, socket: usize, ns: u32) {
        let charged = rig.charge(socket, ns);
        deliver_late(rig, socket, charged);
    }

    fn deliver_late(rig: &mut Rig, socket: usize, charged: Charged) {
        let frame = Packet::new(0xff01).frame();
        let frame = if socket == PORT { frame } else { FORWARD.frame(&frame) };
        assert!(rig.deliver_charged(socket, charged, Builtin::Forward, &frame));
    }

    #[test]
    fn what_was_charged_is_discharged_exactly() {
        let mut rig = Rig::new();
        let (mut ns, mut packets) = (0, 0);
        for charge in NS {
            for socket in [PORT, LINK] {
                deliver(&mut rig, socket, charge);
                (ns, packets) = (ns + u64::from(charge), packets + 1);
            }
            rig.worker.step();
            let load = rig.load();
            assert_eq!((load.discharged_ns, load.discharged_packets), (ns, packets));
        }
        assert_eq!(rig.lost(), (0, 0));
        for socket in [PORT, LINK] {
            assert_eq!(rig.queue_word(socket, offset_of!(QueueRow, taken_packets)), 5);
        }
        rig.finish();
    }

    #[test]
    fn nothing_is_discharged_before_it_is_done() {
        let mut rig = Rig::new();
        deliver(&mut rig, PORT, 1_234);
        assert_eq!(rig.left(), (1_234, 1));
        rig.worker.step();
        assert_eq!(rig.left(), (0, 0));
        rig.finish();
    }

    #[test]
    fn frames_lost_before_a_packet_are_written_off_with_it() {
        let mut rig = Rig::new();
        for lost in [[700, 0, 5], [1, 2, 3]] {
            for ns in lost {
                rig.charge(PORT, ns);
            }
            deliver(&mut rig, PORT, 40);
            rig.charge(LINK, 9_000);
        }
        rig.worker.step();
        assert_eq!((rig.lost(), rig.left()), ((711, 6), (18_000, 2)), "the link's account is another one");
        assert_eq!(rig.queue_word(PORT, offset_of!(QueueRow, taken_packets)), 2);
        deliver(&mut rig, LINK, 1);
        rig.worker.step();
        assert_eq!((rig.lost(), rig.left()), ((18_711, 8), (0, 0)));
        rig.finish();
    }

    #[test]
    fn frames_lost_without_a_successor_are_written_off_when_idle() {
        let mut rig = Rig::new();
        deliver(&mut rig, PORT, 40);
        rig.charge(PORT, 500);
        rig.charge(LINK, 60);
        rig.worker.step();
        assert_eq!(rig.left(), (560, 2));
        rig.housekeep();
        assert_eq!((rig.left(), rig.lost()), ((560, 2), (0, 0)), "it may still be on its way");
        rig.charge(PORT, 3);
        rig.housekeep();
        assert_eq!((rig.left(), rig.lost()), ((503, 2), (60, 1)), "the port is not idle");
        rig.housekeep();
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (563, 3)));
        rig.housekeep();
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (563, 3)), "once");
        deliver(&mut rig, PORT, 8);
        rig.worker.step();
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (563, 3)), "the account goes on");
        rig.finish();
    }

    #[test]
    fn a_frame_in_the_ring_is_taken_and_not_written_off() {
        let mut rig = Rig::new();
        rig.charge(PORT, 500);
        rig.housekeep();
        let before = rig.lost();
        // It comes between the two looks of the housekeeping that would write it off.
        let charged = Charged { ns: 500, position_ns: 500, sequence: 1 };
        deliver_late(&mut rig, PORT, charged);
        rig.housekeep();
        assert_eq!((before, rig.lost(), rig.left()), ((0, 0), (0, 0), (0, 0)));
        assert_eq!(rig.take(PORT).len(), 1);
        rig.counted(&[(Reason::SeenLocal, 1), (Reason::SentResult, 1)]);
        rig.finish();
    }

    #[test]
    fn late_frames_are_computed_and_not_discharged_again() {
        let mut rig = Rig::new();
        let late: Vec<_> = [500, 70, 1].map(|ns| rig.charge(PORT, ns)).into();
        rig.housekeep();
        rig.housekeep();
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (571, 3)));
        for charged in late {
            deliver_late(&mut rig, PORT, charged);
        }
        deliver(&mut rig, PORT, 30);
        rig.worker.step();
        let load = rig.load();
        assert_eq!((load.discharged_ns, load.discharged_packets, rig.lost()), (601, 4, (571, 3)));
        assert_eq!(rig.take(PORT).len(), 4);
        rig.finish();
    }

    #[test]
    fn late_frames_count_as_taken() {
        let mut rig = Rig::new();
        let late: Vec<_> = [500, 70, 1].map(|ns| rig.charge(PORT, ns)).into();
        rig.housekeep();
        rig.housekeep();
        for charged in late {
            deliver_late(&mut rig, PORT, charged);
        }
        rig.worker.step();
        // "Packets of this socket the worker has taken": `QueueRow::taken_packets`.
        assert_eq!(rig.queue_word(PORT, offset_of!(QueueRow, taken_packets)), 3);
        rig.finish();
    }

    #[test]
    fn a_packet_that_was_overtaken_is_discharged_once() {
        let mut rig = Rig::new();
        let charges = [300, 20, 1].map(|ns| rig.charge(PORT, ns));
        for at in [1, 0, 2] {
            deliver_late(&mut rig, PORT, charges[at]);
        }
        rig.worker.step();
        let load = rig.load();
        assert_eq!((load.discharged_ns, load.discharged_packets, rig.lost()), (321, 3, (300, 1)));
        rig.finish();
    }

    #[test]
    fn positions_wrap() {
        let mut rig = Rig::new();
        for _ in 0..20 {
            deliver(&mut rig, PORT, 1 << 30);
            rig.charge(PORT, 1 << 20);
            rig.worker.step();
        }
        deliver(&mut rig, PORT, 5);
        rig.worker.step();
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (20 << 20, 20)));
        assert_eq!(rig.load().discharged_ns, (20 << 30) + (20 << 20) + 5);
        rig.finish();
    }

    #[test]
    fn losses_of_many_seconds_of_work_are_settled_by_the_next_packet() {
        let mut rig = Rig::new();
        // A full ring in front of a slow function: 3000 packets of 1 ms.
        for _ in 0..3_000 {
            rig.charge(PORT, 1_000_000);
        }
        for _ in 0..3 {
            deliver(&mut rig, PORT, 1_000_000);
            rig.worker.step();
        }
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (3_000_000_000, 3_000)));
        rig.finish();
    }

    #[test]
    fn losses_of_many_seconds_of_work_are_written_off_when_idle() {
        let mut rig = Rig::new();
        for _ in 0..9_000 {
            rig.charge(PORT, 1_000_000);
        }
        rig.housekeep();
        rig.housekeep();
        assert_eq!((rig.left(), rig.lost()), ((0, 0), (9_000_000_000, 9_000)));
        rig.finish();
    }

    #[test]
    fn the_packet_in_service_is_shown_while_it_is() {
        let mut rig = Rig::new();
        let hold = Packet::new(0xff05).operand(200_000_000);
        rig.deliver(PORT, 50_000_000, Builtin::Hold, &hold.frame());
        let tables = Arc::clone(&rig.tables);
        let before = monotonic_ns();
        let seen = std::thread::scope(|scope| {
            scope.spawn(|| rig.worker.step());
            let until = Instant::now() + Duration::from_secs(10);
            loop {
                let load = tables.worker_load(WORKER);
                // Some time into the service, the work left is the charge less what it has had.
                let now = monotonic_ns();
                if load.serving_since_ns != 0 && now > load.serving_since_ns + 1_000_000 {
                    break (load, now);
                }
                assert!(Instant::now() < until, "no packet in service");
                std::thread::yield_now();
            }
        });
        let (load, now) = seen;
        assert!((before..now).contains(&load.serving_since_ns), "{before} {load:?} {now}");
        assert_eq!((load.serving_charge_ns, load.charged_ns, load.discharged_ns), (50_000_000, 50_000_000, 0));
        let here = load.here(now);
        assert_eq!(here.queued_milli, 1_000);
        assert_eq!(u64::from(here.backlog_ns), 50_000_000u64.saturating_sub(now - load.serving_since_ns));
        assert_eq!(rig.take(PORT), [hold.answer(&[]).frame()]);
        rig.finish();
    }
}

mod measurements {
    use super::*;

    #[test]
    fn estimates_and_service_times_are_summed_by_function() {
        let mut rig = Rig::new();
        let spin = Packet::new(0xff04).operand(30_000).frame();
        for _ in 0..10 {
            rig.deliver(PORT, 25_000, Builtin::Spin, &spin);
        }
        rig.deliver(LINK, 400, Builtin::Forward, &FORWARD.frame(&Packet::new(0xff01).frame()));
        rig.worker.step();
        let word = |function: Builtin, offset| {
            rig.tables.functions.row(function_slot(index_of(function).into(), WORKER)).word(offset).load(Relaxed)
        };
        assert_eq!(word(Builtin::Spin, offset_of!(FunctionRow, samples)), 10);
        assert_eq!(word(Builtin::Spin, offset_of!(FunctionRow, predicted_ns)), 250_000);
        let measured = word(Builtin::Spin, offset_of!(FunctionRow, measured_ns));
        assert!(measured >= 290_000, "{measured}");
        assert_eq!(word(Builtin::Forward, offset_of!(FunctionRow, samples)), 1);
        assert_eq!(word(Builtin::Forward, offset_of!(FunctionRow, predicted_ns)), 400);
        assert_eq!(word(Builtin::Hold, offset_of!(FunctionRow, samples)), 0);
        let busy = rig.worker_word(offset_of!(WorkerRow, busy_ns));
        assert_eq!(busy, measured + word(Builtin::Forward, offset_of!(FunctionRow, measured_ns)));
        rig.finish();
    }

    #[test]
    fn the_published_cost_follows_what_is_measured() {
        let mut rig = Rig::new();
        let slot = function_slot(index_of(Builtin::Spin).into(), WORKER);
        for round in 0..40 {
            for operand in [20_000, 40_000] {
                let frame = Packet::new(0xff04).operand(operand + round).frame();
                rig.deliver(PORT, 1_000, Builtin::Spin, &frame);
            }
            rig.worker.step();
            rig.take(PORT);
        }
        let word = rig.tables.functions.row(slot).word(offset_of!(FunctionRow, a_ns)).load(Relaxed);
        let cost = dataplane_common::estimate::Cost::from_word(word).ns(30_000);
        // Never below what was spun; how far above it is for the machine to say.
        assert!(cost >= 29_000, "30 us of spinning are estimated at {cost} ns");
        rig.finish();
    }

    #[test]
    fn samples_are_exchanged_when_a_set_is_laid_out() {
        let mut rig = Rig::new();
        let frame = Packet::new(0xff01).frame();
        let send = |rig: &mut Rig, count: usize| {
            for _ in 0..count {
                rig.deliver(PORT, 500, Builtin::Forward, &frame);
            }
            rig.worker.step();
        };
        send(&mut rig, 3);
        assert!(rig.exchange.collect().is_none(), "nobody asked");
        assert!(rig.exchange.lay_out(empty_samples()).is_none());
        send(&mut rig, 2);
        let collected = rig.exchange.collect().unwrap();
        assert_eq!(collected[0].service_ns.len(), 5);
        assert!(collected[1..].iter().all(|samples| samples.service_ns.is_empty()));
        assert!(rig.exchange.lay_out(empty_samples()).is_none());
        send(&mut rig, 4);
        assert_eq!(rig.exchange.collect().unwrap()[0].service_ns.len(), 4);
        rig.finish();
    }

    #[test]
    fn losses_that_the_kernel_counts_are_shown() {
        let mut rig = Rig::new();
        let shared = Arc::clone(&rig.shared[LINK]);
        shared.rx_dropped.store(5, Relaxed);
        shared.rx_ring_full.store(6, Relaxed);
        shared.invalid_descs.store(7, Relaxed);
        rig.housekeep();
        let word = |socket, offset| rig.queue_word(socket, offset);
        let shown = |socket| {
            [offset_of!(QueueRow, rx_dropped), offset_of!(QueueRow, rx_ring_full), offset_of!(QueueRow, invalid_descs)]
                .map(|offset| word(socket, offset))
        };
        assert_eq!((shown(PORT), shown(LINK)), ([0, 0, 0], [5, 6, 7]));
        rig.finish();
    }
}

mod mixed {
    use super::*;

    /// What may happen to a worker.
    #[derive(Clone, Debug)]
    enum Event {
        /// A packet of this function and flow, charged this much, arrives.
        Packet { socket: usize, function: Builtin, flow: u16, ns: u32, good: bool },
        /// A packet is charged and does not arrive, for now.
        Held { socket: usize, ns: u32 },
        /// The oldest of those arrives after all.
        Late,
        /// Bytes arrive with metadata of ours, charged.
        Noise { socket: usize, bytes: Vec<u8> },
        /// Bytes arrive with any metadata.
        Stranger { socket: usize, metadata: Vec<u8>, bytes: Vec<u8> },
        /// The worker looks.
        Step,
        /// It tidies up.
        Housekeep,
        /// The kernel sends what it has.
        Transmit { socket: usize },
    }

    fn event() -> impl Strategy<Value = Event> {
        let socket = prop_oneof![Just(PORT), Just(LINK)];
        let bytes = || proptest::collection::vec(any::<u8>(), 0..120);
        let ns = prop_oneof![Just(0u32), 1u32..5_000, Just(1 << 31)];
        let function =
            prop_oneof![Just(Builtin::Forward), Just(Builtin::Crc32), Just(Builtin::Sha256), Just(Builtin::Spin)];
        let flow = prop_oneof![0u16..3, Just(NO_FLOW)];
        prop_oneof![
            8 => (socket.clone(), function, flow, ns.clone(), proptest::bool::weighted(0.8))
                .prop_map(|(socket, function, flow, ns, good)| Event::Packet { socket, function, flow, ns, good }),
            2 => (socket.clone(), ns).prop_map(|(socket, ns)| Event::Held { socket, ns }),
            1 => Just(Event::Late),
            1 => (socket.clone(), bytes()).prop_map(|(socket, bytes)| Event::Noise { socket, bytes }),
            1 => (socket.clone(), proptest::collection::vec(any::<u8>(), METADATA_BYTES), bytes())
                .prop_map(|(socket, metadata, bytes)| Event::Stranger { socket, metadata, bytes }),
            3 => Just(Event::Step),
            1 => Just(Event::Housekeep),
            2 => socket.prop_map(|socket| Event::Transmit { socket }),
        ]
    }

    fn frame(socket: usize, function: Builtin, good: bool) -> Vec<u8> {
        let packet = Packet::new(function.type_id()).operand(1);
        let packet = if function.result_bytes() > 0 { packet.result(function.result_bytes()) } else { packet };
        let frame = packet.frame();
        let frame = if good { frame } else { with(frame, packet.payload_at(), &[0xff]) };
        let source = 1 + u16::from(good);
        if socket == PORT { frame } else { Interconnect { source, ..FORWARD }.frame(&frame) }
    }

    /// What was delivered and what came out.
    #[derive(Default)]
    struct Totals {
        delivered: u64,
        sent: u64,
    }

    fn apply(rig: &mut Rig, event: &Event, held: &mut VecDeque<(usize, Charged)>, totals: &mut Totals) {
        // A ring without room loses the packet: its charge is written off later.
        match event {
            Event::Packet { socket, function, flow, ns, good } => {
                let metadata = Metadata { flow: *flow, ..rig.metadata(*socket, rig.charge(*socket, *ns), *function) };
                let frame = frame(*socket, *function, *good);
                totals.delivered += u64::from(rig.kernels[*socket].deliver_with_metadata(&metadata.emit(), &frame));
            }
            Event::Held { socket, ns } => held.push_back((*socket, rig.charge(*socket, *ns))),
            Event::Late => {
                if let Some((socket, charged)) = held.pop_front() {
                    let frame = frame(socket, Builtin::Forward, true);
                    totals.delivered += u64::from(rig.deliver_charged(socket, charged, Builtin::Forward, &frame));
                }
            }
            Event::Noise { socket, bytes } => {
                let charged = rig.charge(*socket, 77);
                totals.delivered += u64::from(rig.deliver_charged(*socket, charged, Builtin::Crc32, bytes));
            }
            Event::Stranger { socket, metadata, bytes } => {
                totals.delivered += u64::from(rig.kernels[*socket].deliver_with_metadata(metadata, bytes));
            }
            Event::Step => {
                rig.worker.step();
            }
            Event::Housekeep => rig.housekeep(),
            Event::Transmit { socket } => totals.sent += rig.take(*socket).len() as u64,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn whatever_happens_nothing_is_lost_and_every_charge_is_discharged_once(
            discipline in FIFO..=CLASS,
            events in proptest::collection::vec(event(), 0..300),
        ) {
            let mut rig = Rig::with(32, CHECKS, discipline);
            let (mut held, mut totals) = (VecDeque::new(), Totals::default());
            for event in &events {
                apply(&mut rig, event, &mut held, &mut totals);
                let load = rig.load();
                prop_assert!(load.discharged_ns <= load.charged_ns, "{load:?} after {event:?}");
                prop_assert!(load.discharged_packets <= load.charged_packets, "{load:?} after {event:?}");
            }
            loop {
                let handled = rig.worker.step();
                totals.sent += (rig.take(PORT).len() + rig.take(LINK).len()) as u64;
                if handled == 0 {
                    break;
                }
            }
            let ledger = Ledger::new(&rig.counters(), 0);
            prop_assert_eq!((ledger.taken, ledger.worker_ended), (totals.delivered, totals.delivered));
            let counters = rig.counters();
            let sent: u64 = [Reason::SentResult, Reason::SentHome, Reason::NoteMarkSent]
                .iter()
                .map(|reason| counters[*reason as usize])
                .sum();
            prop_assert_eq!(sent, totals.sent);
            rig.finish();
        }
    }
}

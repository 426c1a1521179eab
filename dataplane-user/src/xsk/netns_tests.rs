//! Real sockets on veth pairs, each test in network namespaces of its own. Needs root and `ip`.
//!
//! ```text
//!   namespace of the test's thread
//!   ┌──────────────────────────────────┐
//!   │  Xsk ── a0 ═══ b0 ── AF_PACKET   │
//!   │  Xsk ── a1 ═══ b1 ── AF_PACKET   │
//!   └──────────────────────────────────┘
//! ```
//! No XDP program is attached, so this is the tx side, binding, sharing and the states; the rx side is tested with
//! the program that redirects to it. Each test ends by asserting that no frame is missing.

#![expect(unsafe_code, reason = "setns, AF_PACKET and poll")]

use std::fs::File;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::fake::Kernel;
use super::rings::Rings;
use super::socket::{Memories, size_rings};
use super::sys;
use super::umem::Endpoint;
use super::*;

/// Local experimental ethertype, so that nothing else on the wire is counted.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];

/// Whether the test may run. With `DATAPLANE_TEST_ALL=1` a reason not to is a failure.
fn may_run(test: &str) -> bool {
    // SAFETY: geteuid has no preconditions.
    let root = unsafe { libc::geteuid() } == 0;
    let reason = match Command::new("ip").arg("-V").output() {
        _ if !root => "not root",
        Err(_) => "no ip command",
        Ok(_) => return true,
    };
    assert!(std::env::var("DATAPLANE_TEST_ALL").as_deref() != Ok("1"), "{test} cannot run: {reason}");
    println!("SKIP {test}: {reason}");
    false
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A network namespace that is deleted, with all in it, when dropped.
struct Namespace(String);

impl Namespace {
    /// With `pairs` veth pairs `a0`/`b0`, `a1`/`b1` …, all up.
    fn new(pairs: u32) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("xsk-test-{}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        ip(&format!("netns add {name}"));
        let namespace = Self(name);
        for pair in 0..pairs {
            namespace.ip(&format!("link add a{pair} type veth peer name b{pair}"));
            namespace.ip(&format!("link set a{pair} addrgenmode none up"));
            namespace.ip(&format!("link set b{pair} addrgenmode none"));
            namespace.raise(&format!("b{pair}"));
        }
        namespace
    }

    fn ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.0));
    }

    /// Sets an interface up and waits for its carrier, without which the kernel drops what is sent.
    fn raise(&self, interface: &str) {
        self.ip(&format!("link set {interface} up"));
        let until = Instant::now() + Duration::from_secs(5);
        let has_carrier = || {
            let output = Command::new("ip").args(["-n", &self.0, "link", "show", interface]).output().unwrap();
            String::from_utf8_lossy(&output.stdout).contains("LOWER_UP")
        };
        while !has_carrier() {
            assert!(Instant::now() < until, "{interface} has no carrier");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Moves the calling thread into it.
    fn enter(&self) {
        let file = File::open(format!("/run/netns/{}", self.0)).unwrap();
        // SAFETY: changes the namespace of this thread only; the descriptor is open.
        let rc = unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) };
        assert_eq!(rc, 0, "setns: {}", io::Error::last_os_error());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Not `ip`: a second panic would hide the first.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Runs the test on a thread of its own inside a new namespace.
fn inside(test: &str, pairs: u32, body: impl FnOnce(&Namespace) + Send) {
    if !may_run(test) {
        return;
    }
    let namespace = Namespace::new(pairs);
    let outcome = thread::scope(|scope| {
        let run = || {
            namespace.enter();
            body(&namespace);
        };
        scope.spawn(run).join()
    });
    drop(namespace);
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

fn ifindex(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).unwrap();
    // SAFETY: a terminated string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "no interface {name:?}");
    index
}

/// Counts our packets as they leave an interface for the kernel.
struct Receiver {
    fd: OwnedFd,
    expected: u64,
}

impl Receiver {
    fn new(interface: &str) -> Self {
        let protocol = u16::from_be_bytes(ETHERTYPE).to_be();
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_NONBLOCK, protocol.into()) };
        assert!(fd >= 0, "AF_PACKET: {}", io::Error::last_os_error());
        // SAFETY: the descriptor is new and ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: integers and bytes; all zeros is a value.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = ifindex(interface) as i32;
        let size = size_of::<libc::sockaddr_ll>() as u32;
        // SAFETY: the address is valid for reads of `size` bytes.
        let rc = unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size) };
        assert_eq!(rc, 0, "bind: {}", io::Error::last_os_error());
        Self { fd, expected: 0 }
    }

    /// Reads what has come and checks that it is the next numbers in order. Returns how many in all.
    fn drain(&mut self) -> u64 {
        let mut packet = [0u8; 2048];
        loop {
            // SAFETY: the buffer is valid for writes of its length.
            let n = unsafe { libc::recv(self.fd.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len(), 0) };
            if n < 0 {
                assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::WouldBlock);
                return self.expected;
            }
            assert_eq!(n, 60);
            let number = u64::from_be_bytes(packet[14..22].try_into().unwrap());
            assert_eq!(number, self.expected, "lost, doubled or out of order");
            self.expected += 1;
        }
    }
}

/// Appends numbered packets to the batch, as many as there is room and frames for, up to `limit`.
fn generate(umem: &mut Umem, batch: &mut Batch, next: &mut u64, limit: u64) {
    while *next < limit && batch.room() > 0 {
        let Some(mut frame) = umem.allocate() else { return };
        frame.set_len(60).unwrap();
        let bytes = umem.bytes_mut(&mut frame);
        bytes.fill(0);
        bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        bytes[12..14].copy_from_slice(&ETHERTYPE);
        bytes[14..22].copy_from_slice(&next.to_be_bytes());
        *next += 1;
        batch.push(frame).unwrap();
    }
}

/// A socket in copy mode with rings of `entries`.
fn config(interface: &str, entries: u32) -> XskConfig {
    XskConfig {
        rx_size: entries,
        tx_size: entries,
        fill_size: entries,
        completion_size: entries,
        zero_copy: ZeroCopy::Off,
        ..XskConfig::new(ifindex(interface), 0)
    }
}

/// For sockets after the first, which take the mode of that.
fn shared(interface: &str, entries: u32) -> XskConfig {
    XskConfig { zero_copy: ZeroCopy::Auto, ..config(interface, entries) }
}

fn umem(frames: u32) -> Umem {
    Umem::new(&UmemConfig { frames, ..UmemConfig::default() }).unwrap()
}

/// Sends until `total` packets were given to the ring and all have come back. Returns the receiver's count.
fn send_all(umem: &mut Umem, xsk: &mut Xsk, receiver: &mut Receiver, total: u64) -> u64 {
    let mut batch = Batch::new(64);
    let mut next = receiver.expected;
    let end = next + total;
    let until = Instant::now() + Duration::from_secs(60);
    let done = xsk.counters().completed + total;
    while xsk.counters().completed < done {
        generate(umem, &mut batch, &mut next, end);
        xsk.transmit(umem, &mut batch);
        xsk.kick_tx().unwrap();
        receiver.drain();
        xsk.complete(umem);
        assert!(Instant::now() < until, "{:?} {:?}", xsk.counters(), xsk.levels());
    }
    assert!(batch.is_empty());
    receiver.drain()
}

#[track_caller]
fn balanced(umem: &Umem) -> Ledger {
    let ledger = umem.ledger();
    assert!(ledger.is_balanced() && ledger.worker == 0, "{ledger:?}");
    ledger
}

#[test]
fn a_socket_says_what_it_obtained() {
    inside("a_socket_says_what_it_obtained", 1, |_| {
        let mut umem = umem(256);
        let mut xsk = Xsk::open(&mut umem, &config("a0", 64)).unwrap();
        assert_eq!((xsk.mode(), xsk.bind_attempts()), (Mode::Copy, 1));
        assert!(xsk.tx_budget() == 64 || xsk.tx_budget() == 32, "budget {}", xsk.tx_budget());
        assert_eq!(xsk.statistics().unwrap(), XdpStatistics::default());
        assert_eq!(xsk.refill(&mut umem), 64);
        assert_eq!(xsk.levels(), RingLevels { fill: 64, ..RingLevels::default() });
        assert_eq!((xsk.kick_rx().unwrap(), xsk.kick_tx().unwrap()), (Kick::Idle, Kick::Idle));
        assert_eq!(balanced(&umem).inbound, 64);
        drop(xsk);
        assert_eq!(balanced(&umem).stranded, 64);
    });
}

#[test]
fn automatic_mode_falls_back_to_copy_and_forced_zero_copy_fails() {
    inside("automatic_mode_falls_back_to_copy_and_forced_zero_copy_fails", 1, |_| {
        let mut umem = umem(256);
        let auto = Xsk::open(&mut umem, &shared("a0", 64)).unwrap();
        assert_eq!(auto.mode(), Mode::Copy);
        drop(auto);
        let forced = XskConfig { zero_copy: ZeroCopy::Force, ..config("b0", 64) };
        let error = Xsk::open(&mut umem, &forced).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EOPNOTSUPP), "{error}");
        balanced(&umem);
    });
}

#[test]
fn a_later_socket_cannot_have_another_mode_than_the_first() {
    inside("a_later_socket_cannot_have_another_mode_than_the_first", 2, |_| {
        let mut umem = umem(256);
        let _first = Xsk::open(&mut umem, &config("a0", 64)).unwrap();
        let second = XskConfig { zero_copy: ZeroCopy::Force, ..config("a1", 64) };
        let error = Xsk::open(&mut umem, &second).unwrap_err();
        assert!(matches!(error, Error::WrongMode { obtained: Mode::Copy, .. }), "{error}");
        // The queue is free again.
        Xsk::open(&mut umem, &shared("a1", 64)).unwrap();
        balanced(&umem);
    });
}

#[test]
fn errors_name_interface_queue_call_and_errno() {
    inside("errors_name_interface_queue_call_and_errno", 1, |_| {
        let mut umem = umem(256);
        let nowhere = XskConfig { ifindex: 9999, ..config("a0", 64) };
        let error = Xsk::open(&mut umem, &nowhere).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV), "{error}");
        let queue = XskConfig { queue_id: 77, ..config("a0", 64) };
        match Xsk::open(&mut umem, &queue).unwrap_err() {
            Error::System { ifindex, queue_id: 77, operation: Operation::Bind { attempts: 1 }, source } => {
                assert_eq!((ifindex, source.raw_os_error()), (queue.ifindex, Some(libc::EINVAL)));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(balanced(&umem).free, 256);
    });
}

#[test]
fn sent_packets_arrive_exactly_and_frames_are_recycled_through_a_small_umem() {
    inside("sent_packets_arrive_exactly_and_frames_are_recycled_through_a_small_umem", 1, |_| {
        const TOTAL: u64 = 100_000;
        let mut umem = umem(96);
        let mut receiver = Receiver::new("b0");
        let mut xsk = Xsk::open(&mut umem, &config("a0", 64)).unwrap();
        assert_eq!(send_all(&mut umem, &mut xsk, &mut receiver, TOTAL), TOTAL);
        let counters = *xsk.counters();
        assert_eq!((counters.transmitted, counters.completed, counters.bad_completions), (TOTAL, TOTAL, 0));
        assert_eq!(xsk.statistics().unwrap().tx_invalid_descs, 0);
        assert_eq!(balanced(&umem).free, 96);
    });
}

#[test]
fn one_kick_empties_a_tx_ring_longer_than_the_budget() {
    inside("one_kick_empties_a_tx_ring_longer_than_the_budget", 1, |_| {
        let mut umem = umem(512);
        let mut receiver = Receiver::new("b0");
        let mut xsk = Xsk::open(&mut umem, &XskConfig { tx_budget: 32, ..config("a0", 256) }).unwrap();
        assert_eq!(xsk.tx_budget(), 32);
        let (mut batch, mut next) = (Batch::new(256), 0);
        generate(&mut umem, &mut batch, &mut next, 200);
        assert_eq!(xsk.transmit(&mut umem, &mut batch), 200);
        assert_eq!(xsk.kick_tx().unwrap(), Kick::Idle);
        assert_eq!((xsk.levels().tx, receiver.drain()), (0, 200));
        assert_eq!((xsk.counters().kicks, xsk.counters().kick_again), (200u64.div_ceil(32), 0));
        assert_eq!(xsk.complete(&mut umem), 200);
        assert_eq!(balanced(&umem).free, 512);
    });
}

#[test]
fn a_full_completion_ring_stops_sending_and_loses_nothing() {
    inside("a_full_completion_ring_stops_sending_and_loses_nothing", 1, |_| {
        let mut umem = umem(128);
        let mut receiver = Receiver::new("b0");
        let small = XskConfig { completion_size: 16, ..config("a0", 64) };
        let mut xsk = Xsk::open(&mut umem, &small).unwrap();
        let (mut batch, mut next) = (Batch::new(64), 0);
        generate(&mut umem, &mut batch, &mut next, 40);
        xsk.transmit(&mut umem, &mut batch);
        assert_eq!(xsk.kick_tx().unwrap(), Kick::Again);
        assert_eq!((receiver.drain(), xsk.levels().completion, xsk.counters().kick_again), (16, 16, 1));
        for total in [32, 40] {
            xsk.complete(&mut umem);
            xsk.kick_tx().unwrap();
            assert_eq!(receiver.drain(), total);
        }
        xsk.complete(&mut umem);
        assert_eq!(balanced(&umem).free, 128);
    });
}

#[test]
fn two_interfaces_share_one_umem() {
    inside("two_interfaces_share_one_umem", 2, |_| {
        let mut umem = umem(128);
        let (mut receiver0, mut receiver1) = (Receiver::new("b0"), Receiver::new("b1"));
        let mut first = Xsk::open(&mut umem, &config("a0", 32)).unwrap();
        let mut second = Xsk::open(&mut umem, &shared("a1", 32)).unwrap();
        assert_eq!((second.mode(), first.refill(&mut umem), second.refill(&mut umem)), (Mode::Copy, 32, 32));
        for _ in 0..10 {
            send_all(&mut umem, &mut first, &mut receiver0, 500);
            send_all(&mut umem, &mut second, &mut receiver1, 300);
        }
        assert_eq!((receiver0.drain(), receiver1.drain()), (5000, 3000));
        let ledger = balanced(&umem);
        assert_eq!((ledger.inbound, ledger.outbound, ledger.free), (64, 0, 64));
        // The second socket carries the UMEM on when the first is gone, and a third can share from it.
        drop(first);
        let mut third = Xsk::open(&mut umem, &shared("a0", 32)).unwrap();
        send_all(&mut umem, &mut third, &mut receiver0, 100);
        send_all(&mut umem, &mut second, &mut receiver1, 100);
        assert_eq!((receiver0.drain(), receiver1.drain()), (5100, 3100));
        assert_eq!(balanced(&umem).stranded, 32);
    });
}

#[test]
fn a_bundle_moves_to_its_worker_thread() {
    inside("a_bundle_moves_to_its_worker_thread", 1, |_| {
        let mut receiver = Receiver::new("b0");
        let mut umem = umem(64);
        let mut xsk = Xsk::open(&mut umem, &config("a0", 32)).unwrap();
        let worker = thread::spawn(move || {
            send_all(&mut umem, &mut xsk, &mut receiver, 1000);
            (umem, xsk, receiver)
        });
        let (umem, xsk, receiver) = worker.join().unwrap();
        assert_eq!((receiver.expected, xsk.counters().completed), (1000, 1000));
        balanced(&umem);
    });
}

#[test]
fn a_queue_in_use_is_waited_for_and_then_taken_or_reported() {
    inside("a_queue_in_use_is_waited_for_and_then_taken_or_reported", 1, |_| {
        let (mut umem_a, mut umem_b) = (umem(128), umem(128));
        let holder = Xsk::open(&mut umem_a, &config("a0", 32)).unwrap();
        let impatient = XskConfig { bind_patience: Duration::from_millis(20), ..config("a0", 32) };
        match Xsk::open(&mut umem_b, &impatient).unwrap_err() {
            Error::System { operation: Operation::Bind { attempts }, source, .. } => {
                assert!(attempts > 1 && source.raw_os_error() == Some(libc::EBUSY), "{attempts} {source}");
            }
            other => panic!("{other:?}"),
        }
        let closer = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(holder);
        });
        let xsk = Xsk::open(&mut umem_b, &config("a0", 32)).unwrap();
        assert!(xsk.bind_attempts() > 1);
        closer.join().unwrap();
        balanced(&umem_a);
        balanced(&umem_b);
    });
}

#[test]
fn a_queue_can_be_reopened_at_once_many_times() {
    inside("a_queue_can_be_reopened_at_once_many_times", 1, |_| {
        let mut umem = umem(128);
        let mut receiver = Receiver::new("b0");
        for round in 1..=10 {
            let mut xsk = Xsk::open(&mut umem, &config("a0", 32)).unwrap();
            assert_eq!(send_all(&mut umem, &mut xsk, &mut receiver, 50), 50 * round);
            drop(xsk);
        }
        assert_eq!(balanced(&umem).free, 128, "sockets that held no frame when closed strand none");
    });
}

#[test]
fn a_link_that_is_down_is_a_state_and_its_packets_wait() {
    inside("a_link_that_is_down_is_a_state_and_its_packets_wait", 1, |namespace| {
        let mut umem = umem(64);
        let mut receiver = Receiver::new("b0");
        let mut xsk = Xsk::open(&mut umem, &config("a0", 32)).unwrap();
        namespace.ip("link set a0 down");
        let (mut batch, mut next) = (Batch::new(8), 0);
        generate(&mut umem, &mut batch, &mut next, 8);
        xsk.transmit(&mut umem, &mut batch);
        assert_eq!(xsk.kick_tx().unwrap(), Kick::LinkDown);
        assert_eq!((xsk.levels().tx, xsk.counters().kick_link_down), (8, 1));
        namespace.raise("a0");
        assert_eq!(xsk.kick_tx().unwrap(), Kick::Idle);
        assert_eq!(receiver.drain(), 8);
        xsk.complete(&mut umem);
        assert_eq!(balanced(&umem).free, 64);
    });
}

#[test]
fn packets_dropped_for_lack_of_carrier_come_back_and_do_not_block_the_ring() {
    inside("packets_dropped_for_lack_of_carrier_come_back_and_do_not_block_the_ring", 1, |namespace| {
        let mut umem = umem(64);
        let mut xsk = Xsk::open(&mut umem, &config("a0", 16)).unwrap();
        namespace.ip("link set b0 down");
        let mut batch = Batch::new(16);
        let mut next = 1_000_000;
        for _ in 0..200 {
            generate(&mut umem, &mut batch, &mut next, u64::MAX);
            xsk.transmit(&mut umem, &mut batch);
            assert_eq!(xsk.kick_tx().unwrap(), Kick::Busy);
            xsk.complete(&mut umem);
        }
        batch.release_all(&mut umem);
        let counters = *xsk.counters();
        assert!(counters.completed >= 190, "{counters:?}");
        while umem.outstanding() > 0 {
            xsk.kick_tx().unwrap();
            xsk.complete(&mut umem);
        }
        namespace.raise("b0");
        let mut receiver = Receiver::new("b0");
        assert_eq!(send_all(&mut umem, &mut xsk, &mut receiver, 100), 100);
        assert_eq!(balanced(&umem).free, 64);
    });
}

#[test]
fn a_removed_interface_is_a_state() {
    inside("a_removed_interface_is_a_state", 1, |namespace| {
        let mut umem = umem(64);
        let mut xsk = Xsk::open(&mut umem, &config("a0", 32)).unwrap();
        let (mut batch, mut next) = (Batch::new(4), 0);
        generate(&mut umem, &mut batch, &mut next, 4);
        xsk.transmit(&mut umem, &mut batch);
        namespace.ip("link del a0");
        assert_eq!(xsk.kick_tx().unwrap(), Kick::Unbound);
        assert_eq!(xsk.counters().kick_unbound, 1);
        assert_eq!(balanced(&umem).outbound, 4);
        drop(xsk);
        assert_eq!(balanced(&umem).stranded, 4);
    });
}

#[test]
fn poll_on_the_socket_sends_in_copy_mode() {
    inside("poll_on_the_socket_sends_in_copy_mode", 1, |_| {
        let mut umem = umem(64);
        let mut receiver = Receiver::new("b0");
        let mut xsk = Xsk::open(&mut umem, &config("a0", 32)).unwrap();
        let (mut batch, mut next) = (Batch::new(8), 0);
        generate(&mut umem, &mut batch, &mut next, 8);
        xsk.transmit(&mut umem, &mut batch);
        let mut entry = libc::pollfd { fd: xsk.as_fd().as_raw_fd(), events: libc::POLLOUT, revents: 0 };
        // SAFETY: one entry, valid for reads and writes.
        let ready = unsafe { libc::poll(&raw mut entry, 1, 1000) };
        assert_eq!((ready, entry.revents & libc::POLLOUT), (1, libc::POLLOUT));
        assert_eq!((receiver.drain(), xsk.complete(&mut umem)), (8, 8));
        assert_eq!(balanced(&umem).free, 64);
    });
}

/// The kernel's own ring layout, with the kernel's part played by us: rings that nobody has bound are just memory.
#[test]
fn rings_of_an_unbound_socket_work_as_those_of_the_fake() {
    if !may_run("rings_of_an_unbound_socket_work_as_those_of_the_fake") {
        return;
    }
    let mut umem = umem(64);
    let fd = sys::socket().unwrap();
    let config = XskConfig { rx_size: 16, tx_size: 16, fill_size: 16, completion_size: 16, ..XskConfig::new(1, 0) };
    size_rings(fd.as_fd(), &config).unwrap();
    let ours = Memories::map(fd.as_fd(), &config).unwrap();
    let theirs = Memories::map(fd.as_fd(), &config).unwrap();
    // SAFETY: the only ends of our side.
    let ends = unsafe { ours.user_ends() };
    // SAFETY: the only ends of the other side; an unbound socket has no user in the kernel.
    let mut kernel = unsafe { Kernel::new(theirs, &umem) };
    let endpoint = std::sync::Arc::new(Endpoint { fd: Some(fd) });
    let mut rings = Rings::enter(ends, &mut umem, endpoint).unwrap();
    assert!(rings.tx_needs_wakeup(), "the kernel sets the flag when it makes a tx ring");
    assert!(!rings.fill_needs_wakeup());
    let mut batch = Batch::new(16);
    for value in 0..1000u32 {
        rings.refill(&mut umem);
        assert!(kernel.deliver(&value.to_le_bytes()));
        rings.receive(&mut umem, &mut batch);
        rings.transmit(&mut umem, &mut batch);
        assert_eq!(kernel.transmit(), Some(value.to_le_bytes().to_vec()));
        kernel.complete(1);
        assert_eq!(rings.complete(&mut umem), 1);
    }
    let ledger = balanced(&umem);
    assert_eq!((ledger.inbound, ledger.outbound), (15, 0));
}

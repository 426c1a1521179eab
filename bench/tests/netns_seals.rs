//! A cluster whose frames are sealed: it works, changes its key under load, survives a restart, and believes no recording. See
//! README.md beside this file for a drawing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::fs;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::topology::{Cluster, Host, NodeSettings, Purpose, Shape};
use dataplane_common::reason::Reason;
use dataplane_common::wire::link::ETHERTYPE_LINK;
use dataplane_user::functions::Builtin;
use dataplane_user::sys::{NetDevice, PacketSocket};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType, recv, socket_with};
use support::{Bench, PATIENCE, Replies, enter, recipe, settings, with_hosts};

/// Longer than a node takes to see that its key file has changed.
const SEEN: Duration = Duration::from_millis(400);

fn key_file(cluster: &Cluster) -> PathBuf {
    cluster.directory().join("keys")
}

/// Writes the key file of all nodes: these keys, by number.
fn write_keys(cluster: &Cluster, numbers: &[u8]) {
    let line = |number: &u8| format!("{number} {}\n", format!("{number:02x}").repeat(32));
    let fresh = cluster.directory().join("keys.new");
    fs::write(&fresh, numbers.iter().map(line).collect::<String>()).unwrap();
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(fresh, key_file(cluster)).unwrap();
}

fn start(bench: &mut Bench, node: u16) {
    let extra = format!("[interconnect]\nkey_file = {:?}\nauth = \"full\"\n", key_file(&bench.cluster));
    let settings = NodeSettings { extra, ..settings("ept-erl", node) };
    bench.cluster.start(node, &settings, &Interrupt::never()).unwrap();
}

/// More than node 1 can compute: everything comes back, and some of it was computed by others. `meanwhile` is told how many
/// packets have been sent.
#[track_caller]
fn assert_shared(bench: &mut Bench, count: u64, mut meanwhile: impl FnMut(&Cluster, u64)) {
    let before = bench.counter(1, Reason::Redirected);
    let hold = recipe(&bench.port(1), Builtin::Hold, 1_000_000);
    let mut replies = Replies::default();
    for sequence in 0..count {
        bench.send(1, &hold, sequence);
        bench.wire.receive(|frame| replies.take(frame.bytes));
        meanwhile(&bench.cluster, sequence);
        thread::sleep(Duration::from_micros(600));
    }
    bench.collect(&mut replies, count as usize);
    replies.assert_exactly(count);
    assert!(bench.counter(1, Reason::Redirected) > before + count / 10, "the others compute too");
}

/// Frames that were refused for their seals, at all of `nodes`.
fn refused(bench: &Bench, nodes: &[u16]) -> Vec<(Reason, u64)> {
    const SEALS: [Reason; 5] = [
        Reason::DropLinkUnsealed,
        Reason::DropLinkKey,
        Reason::DropLinkTag,
        Reason::DropLinkBody,
        Reason::DropLinkReplay,
    ];
    let count = |reason| nodes.iter().map(|node| bench.counter(*node, reason)).sum();
    SEALS.map(|reason| (reason, count(reason))).into_iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_sealed_cluster_answers_changes_its_key_and_restarts() {
    with_hosts(Shape::new(Purpose::Test, 3), |bench| {
        write_keys(&bench.cluster, &[1]);
        (1..=3).for_each(|node| start(bench, node));
        bench.cluster.wait_for_peers(&Interrupt::never()).unwrap();
        assert_shared(bench, 400, |_, _| ());

        // Both keys, then the new one signs, then the old one goes.
        let mut steps = [&[1, 2][..], &[2, 1], &[2]].into_iter();
        let mut next = Instant::now();
        let count = 6_000;
        assert_shared(bench, count, |cluster, _| {
            if Instant::now() >= next
                && let Some(numbers) = steps.next()
            {
                write_keys(cluster, numbers);
                next = Instant::now() + SEEN;
            }
        });
        assert_eq!(steps.next(), None, "{count} packets take longer than the change of the key");
        assert_eq!(refused(bench, &[1, 2, 3]), []);

        bench.wait_for_rest(1..=3);
        bench.cluster.stop(2).unwrap();
        start(bench, 2);
        bench.cluster.wait_for_peers(&Interrupt::never()).unwrap();
        assert_shared(bench, 400, |_, _| ());
        assert_eq!(refused(bench, &[1, 2, 3]), []);
        bench.wait_for_rest(1..=3);
    });
}

/// Interconnect frames that arrive in this thread's namespace and that no program takes.
fn record(socket: &OwnedFd, frames: usize) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut recorded = Vec::new();
    while recorded.len() < frames {
        assert!(Instant::now() < deadline, "only {} frames to record", recorded.len());
        let mut frame = vec![0; 2_048];
        match recv(socket, &mut frame[..], RecvFlags::DONTWAIT) {
            Ok((length, _)) => {
                frame.truncate(length);
                recorded.push(frame);
            }
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    recorded
}

#[test]
fn a_recording_changes_nothing_but_a_counter() {
    with_hosts(Shape::new(Purpose::Test, 2), |bench| {
        write_keys(&bench.cluster, &[1]);
        start(bench, 1);
        start(bench, 2);
        bench.cluster.wait_for_peers(&Interrupt::never()).unwrap();
        // While node 1 is down, what node 2 sends to its old boot is there for everybody.
        bench.cluster.stop(1).unwrap();
        let near = bench.cluster.plan().link(1, 2);
        let far = bench.cluster.plan().link(2, 1);
        let recorded = thread::scope(|scope| {
            let recorder = scope.spawn(|| {
                enter(&bench.cluster, Host::Node(1));
                let protocol = NonZeroU32::new(ETHERTYPE_LINK.to_be().into()).map(Protocol::from_raw);
                let flags = rustix::net::SocketFlags::CLOEXEC;
                let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, protocol).unwrap();
                record(&socket, 100)
            });
            recorder.join().unwrap()
        });
        assert!(recorded.iter().all(|frame| frame[12..14] == ETHERTYPE_LINK.to_be_bytes()), "{}", near.interface);
        start(bench, 1);
        bench.cluster.wait_for_peers(&Interrupt::never()).unwrap();
        bench.cluster.stop(2).unwrap();
        let before = bench.status(1);
        thread::scope(|scope| {
            let replay = scope.spawn(|| {
                enter(&bench.cluster, Host::Node(2));
                let (socket, device) = (PacketSocket::open().unwrap(), NetDevice::find(&far.interface).unwrap());
                for frame in recorded.iter().chain(&recorded) {
                    socket.send(device.index, frame).unwrap();
                }
            });
            replay.join().unwrap();
        });
        let deadline = Instant::now() + PATIENCE;
        let stale = || bench.counter(1, Reason::DropLinkStaleBoot) - before.count(Reason::DropLinkStaleBoot);
        while stale() < 200 {
            assert!(Instant::now() < deadline, "{} of 200 recorded frames were refused", stale());
            thread::sleep(Duration::from_millis(10));
        }
        let after = bench.status(1);
        let taken = |reason| after.count(reason) - before.count(reason);
        for reason in [Reason::ReportTaken, Reason::ForwardQueued, Reason::PullQueued, Reason::ResultReturned] {
            assert_eq!(taken(reason), 0, "{reason:?}");
        }
        let told = |peers: &[dataplane_bench::status::Peer]| peers.iter().map(|peer| peer.sent_frames).sum::<u64>();
        assert_eq!(told(&before.peers), told(&after.peers));
        assert!(after.peers.iter().all(|peer| !peer.is_alive()), "a recording keeps nobody alive");
    });
}

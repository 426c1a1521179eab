//! Clusters whose nodes are not told who the others are: members that find each other, come and go; and peers that are named by
//! their IP addresses. See README.md beside this file for a drawing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::fs;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use dataplane_bench::command;
use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::status::Peer;
use dataplane_bench::topology::{Cluster, Host, NodeSettings, Purpose, Shape, format_mac};
use dataplane_common::reason::Reason;
use dataplane_user::functions::Builtin;
use rustix::process::Signal;
use support::{Bench, PATIENCE, Replies, recipe, settings, with_hosts};

fn ip(namespace: &str, arguments: &str) {
    let mut ip = Command::new("ip");
    command::output(ip.args(["-netns", namespace]).args(arguments.split_whitespace())).unwrap();
}

/// Address of a node on the management network.
fn management(node: u16) -> String {
    format!("198.19.0.{node}")
}

/// Joins the nodes by a bridge in the generator's namespace, and gives them a key.
fn connect(cluster: &Cluster) {
    let generator = cluster.plan().name(Host::Generator);
    ip(&generator, "link add mgmt type bridge");
    ip(&generator, "addr add 198.19.0.254/24 dev mgmt");
    ip(&generator, "link set mgmt up");
    for node in cluster.plan().nodes() {
        let name = cluster.plan().name(Host::Node(node));
        ip(&generator, &format!("link add m{node} type veth peer name mgmt netns {name}"));
        ip(&generator, &format!("link set m{node} master mgmt up"));
        ip(&name, &format!("addr add {}/24 dev mgmt", management(node)));
        ip(&name, "link set mgmt up");
    }
    let key = cluster.directory().join("cluster.key");
    fs::write(&key, format!("1 {}\n", "5a".repeat(32))).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
}

/// A node that knows two others' addresses and nothing else of them.
fn member(cluster: &Cluster, node: u16) -> NodeSettings {
    let seeds: Vec<_> = [1, 2].map(|seed| format!("{}:7946", management(seed))).into();
    let key = cluster.directory().join("cluster.key");
    let extra = format!("[membership]\nbind = \"{}:7946\"\njoin = {seeds:?}\nkey_file = {key:?}\n", management(node));
    NodeSettings { names_peers: false, extra, ..settings("ept-erl", node) }
}

fn start(bench: &mut Bench, node: u16) {
    let settings = member(&bench.cluster, node);
    bench.cluster.start(node, &settings, &Interrupt::never()).unwrap();
}

fn peers(bench: &Bench, node: u16) -> Vec<Peer> {
    bench.status(node).peers
}

#[track_caller]
fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what} has not happened");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until each of `nodes` sees exactly the others of them, all alive.
#[track_caller]
fn wait_for_cluster(bench: &Bench, nodes: &[u16]) {
    wait_for(&format!("a cluster of {nodes:?}"), || {
        nodes.iter().all(|node| {
            let seen = peers(bench, *node);
            let others: Vec<_> = nodes.iter().copied().filter(|other| other != node).collect();
            seen.iter().map(|peer| peer.id).eq(others)
                && seen.iter().all(|peer| peer.is_alive() && peer.member.as_deref() == Some("present"))
        })
    });
}

/// More than node 1 can compute: everything comes back, and some of it was computed by each of `helpers`.
#[track_caller]
fn assert_shared(bench: &mut Bench, helpers: &[u16]) {
    let sent = |bench: &Bench| -> Vec<u64> {
        let peers = peers(bench, 1);
        let of = |helper: &u16| peers.iter().find(|peer| peer.id == *helper).map_or(0, |peer| peer.sent_frames);
        helpers.iter().map(of).collect()
    };
    let (before, hold) = (sent(bench), recipe(&bench.port(1), Builtin::Hold, 1_000_000));
    let mut replies = Replies::default();
    for sequence in 0..400 {
        bench.send(1, &hold, sequence);
        bench.wire.receive(|frame| replies.take(frame.bytes));
        thread::sleep(Duration::from_micros(400));
    }
    bench.collect(&mut replies, 400);
    replies.assert_exactly(400);
    let after = sent(bench);
    assert!(before.iter().zip(&after).all(|(before, after)| after > before), "{helpers:?}: {before:?} {after:?}");
}

#[test]
fn nodes_find_each_other_share_work_die_come_back_and_leave() {
    with_hosts(Shape::new(Purpose::Test, 3), |bench| {
        connect(&bench.cluster);
        for node in 1..=3 {
            start(bench, node);
        }
        wait_for_cluster(bench, &[1, 2, 3]);
        assert_shared(bench, &[2, 3]);
        bench.wait_for_rest(1..=3);

        bench.cluster.kill(2).unwrap();
        wait_for("node 2 is gone from the others", || {
            [1, 3].iter().all(|node| peers(bench, *node).iter().all(|peer| peer.id != 2))
        });
        assert_shared(bench, &[3]);
        start(bench, 2);
        wait_for_cluster(bench, &[1, 2, 3]);
        assert_shared(bench, &[2, 3]);

        bench.cluster.stop(3).unwrap();
        wait_for_cluster(bench, &[1, 2]);
        assert_shared(bench, &[2]);
        bench.wait_for_rest(1..=2);

        let stranger = UdpSocket::bind("198.19.0.254:0").unwrap();
        stranger.send_to(b"let me in", (management(1), 7946)).unwrap();
        stranger.send_to(&[b"DPM\x01\x01".as_slice(), &[0; 100]].concat(), (management(1), 7946)).unwrap();
        wait_for("both datagrams are counted", || {
            let status = bench.status(1);
            status.count(Reason::DropMemberMalformed) == 1 && status.count(Reason::DropMemberTag) == 1
        });
        wait_for_cluster(bench, &[1, 2]);
    });
}

#[test]
fn a_drained_node_gets_no_work_until_that_is_undone() {
    with_hosts(Shape::new(Purpose::Test, 3), |bench| {
        connect(&bench.cluster);
        for node in 1..=3 {
            start(bench, node);
        }
        wait_for_cluster(bench, &[1, 2, 3]);
        let of_node_2 = |bench: &Bench| peers(bench, 1).into_iter().find(|peer| peer.id == 2).unwrap();
        assert_eq!(of_node_2(bench).name.as_deref(), Some(bench.cluster.plan().name(Host::Node(2)).as_str()));

        bench.cluster.drain(2, true).unwrap();
        wait_for("node 1 knows that node 2 drains", || {
            let peer = of_node_2(bench);
            peer.member.as_deref() == Some("draining") && peer.backlog_ns == u64::from(u32::MAX)
        });
        let before = of_node_2(bench).sent_frames;
        assert_shared(bench, &[3]);
        assert_eq!(of_node_2(bench).sent_frames, before, "node 2 drains");
        // What arrives at its own port is its own.
        let crc = recipe(&bench.port(2), Builtin::Crc32, 0);
        let mut replies = Replies::default();
        bench.send(2, &crc, 0);
        bench.collect(&mut replies, 1);
        replies.assert_exactly(1);

        bench.cluster.drain(2, false).unwrap();
        wait_for_cluster(bench, &[1, 2, 3]);
        assert_shared(bench, &[2, 3]);
        bench.wait_for_rest(1..=3);
    });
}

/// Members whose frames travel in UDP, to the addresses that they announce.
fn members_share_work_in_udp(transport: &'static str) {
    with_hosts(Shape::new(Purpose::Test, 3), |bench| {
        connect(&bench.cluster);
        let start = |bench: &mut Bench, node: u16| {
            let member = member(&bench.cluster, node);
            let settings = NodeSettings { transport: transport.to_owned(), routed: true, ..member };
            bench.cluster.start(node, &settings, &Interrupt::never()).unwrap();
        };
        for node in 1..=3 {
            start(bench, node);
        }
        wait_for_cluster(bench, &[1, 2, 3]);
        assert_shared(bench, &[2, 3]);
        bench.wait_for_rest(1..=3);

        // It comes back with another address behind the same MAC address.
        bench.cluster.stop(2).unwrap();
        wait_for_cluster(bench, &[1, 3]);
        let names = [1, 2].map(|node| bench.cluster.plan().name(Host::Node(node)));
        let (near, far) = (bench.cluster.plan().link(1, 2), bench.cluster.plan().link(2, 1));
        let other = "198.19.200.2";
        ip(&names[1], &format!("addr del {}/30 dev {}", far.ipv4, far.interface));
        ip(&names[1], &format!("addr add {other}/30 dev {}", far.interface));
        ip(&names[1], &format!("route add {}/32 dev {} src {other}", near.ipv4, far.interface));
        let neighbour = |interface: &str, mac| format!("lladdr {} nud permanent dev {interface}", format_mac(mac));
        ip(&names[1], &format!("neigh replace {} {}", near.ipv4, neighbour(&far.interface, near.mac)));
        ip(&names[0], &format!("route add {other}/32 dev {}", near.interface));
        ip(&names[0], &format!("neigh replace {other} {}", neighbour(&near.interface, far.mac)));
        start(bench, 2);
        wait_for_cluster(bench, &[1, 2, 3]);
        assert_shared(bench, &[2]);
    });
}

#[test]
fn members_are_reached_over_routed_links() {
    members_share_work_in_udp("xdp");
}

#[test]
fn members_are_reached_by_kernel_sockets() {
    members_share_work_in_udp("udp");
}

#[test]
fn a_node_that_does_not_report_is_not_chosen_and_comes_back_with_its_reports() {
    with_hosts(Shape::new(Purpose::Test, 2), |bench| {
        connect(&bench.cluster);
        start(bench, 1);
        start(bench, 2);
        wait_for_cluster(bench, &[1, 2]);
        bench.cluster.process(2).unwrap().signal(Signal::STOP).unwrap();
        // First its reports are missing, then it does not answer; it may be seen in either state, but never as alive.
        wait_for("node 2 is not chosen", || peers(bench, 1).iter().all(|peer| !peer.is_alive()));
        wait_for("node 2 is no member", || peers(bench, 1).is_empty());
        bench.cluster.process(2).unwrap().signal(Signal::CONT).unwrap();
        wait_for_cluster(bench, &[1, 2]);
        assert_shared(bench, &[2]);
    });
}

#[test]
fn a_peer_named_by_its_address_is_resolved_and_followed() {
    with_hosts(Shape::new(Purpose::Test, 2), |bench| {
        let names = [1, 2].map(|node| bench.cluster.plan().name(Host::Node(node)));
        let link = |node: u16| bench.cluster.plan().link(node, 3 - node);
        let (near, far) = (link(1), link(2));
        ip(&names[0], &format!("addr add 198.19.1.1/24 dev {}", near.interface));
        let peer = |node: u16, end: &str| {
            let interface = link(node).interface;
            let id = 3 - node;
            let extra = format!("[[peer]]\nname = \"other\"\nid = {id}\nlink = \"{interface}\"\n{end}\n");
            NodeSettings { names_peers: false, extra, ..settings("ept-erl", node) }
        };
        let one = peer(1, "address = \"198.19.1.2\"");
        let two = peer(2, &format!("mac = \"{}\"", format_mac(near.mac)));
        bench.cluster.start(1, &one, &Interrupt::never()).unwrap();
        assert_eq!(peers(bench, 1)[0].state, "unresolved", "nobody has the address");
        bench.cluster.start(2, &two, &Interrupt::never()).unwrap();
        ip(&names[1], &format!("addr add 198.19.1.2/24 dev {}", far.interface));
        wait_for("node 2 is resolved", || peers(bench, 1)[0].is_alive());
        assert_eq!(peers(bench, 1)[0].mac.as_deref(), Some(format_mac(far.mac).as_str()));
        wait_for("node 1 is seen", || peers(bench, 2)[0].is_alive());
        assert_shared(bench, &[2]);

        // As when another interface card takes the address over.
        ip(
            &names[0],
            &format!("neigh replace 198.19.1.2 lladdr 02:00:00:00:99:01 dev {} nud permanent", near.interface),
        );
        wait_for("the new address is taken", || peers(bench, 1)[0].mac.as_deref() == Some("02:00:00:00:99:01"));
        ip(&names[0], &format!("neigh del 198.19.1.2 dev {}", near.interface));
        wait_for("it is asked for again", || peers(bench, 1)[0].mac.as_deref() == Some(format_mac(far.mac).as_str()));
        wait_for("node 2 is alive again", || peers(bench, 1)[0].is_alive());
        assert_shared(bench, &[2]);
    });
}

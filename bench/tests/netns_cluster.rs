//! Clusters that work: every packet comes back once, whatever carries it, and bad ones end under their own names. See
//! README.md beside this file for a drawing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use dataplane_bench::command;
use dataplane_bench::demo::Order;
use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::packet::{Addresses, Carrier, Probe, Recipe, Reply};
use dataplane_bench::topology::{BPFFS, Cluster, Host, NodeSettings, PortPlan, Purpose, Scheduling, Shape, pins};
use dataplane_bench::traffic::{GeneratorPlan, Kind, Report, Workload, session};
use dataplane_common::reason::Reason;
use dataplane_common::wire::anep::UDP_PORT;
use dataplane_user::functions::Builtin;
use dataplane_user::sys::{NetDevice, PacketSocket};
use support::{Bench, PATIENCE, Replies, enter, lacks_root, recipe, settings, with_cluster, with_shape};

#[test]
fn a_loaded_cluster_returns_every_packet_once_and_every_ledger_balances() {
    with_cluster(
        3,
        |node| settings("ept-erl", node),
        |bench| {
            let port = bench.port(1);
            let kinds = [
                recipe(&port, Builtin::Forward, 0),
                recipe(&port, Builtin::Crc32, 0),
                recipe(&port, Builtin::Sha256, 5),
                recipe(&port, Builtin::Spin, 20_000),
                recipe(&port, Builtin::Hold, 1_500_000),
            ];
            let mut replies = Replies::default();
            for sequence in 0..3000 {
                bench.send(1, &kinds[sequence as usize % kinds.len()], sequence);
                bench.wire.receive(|frame| replies.take(frame.bytes));
                thread::sleep(Duration::from_micros(150));
                if sequence == 1500 {
                    assert_bpftool_reads(bench);
                }
            }
            bench.collect(&mut replies, 3000);
            replies.assert_exactly(3000);
            let statuses = bench.wait_for_rest(1..=3);
            let sum = |reason: Reason| statuses.iter().map(|status| status.counters[reason.name()]).sum::<u64>();
            let redirected = statuses[0].counters[Reason::Redirected.name()];
            assert!(redirected > 100, "node 1 was overloaded and redirected {redirected} packets");
            assert_eq!(sum(Reason::ForwardQueued), redirected);
            assert_eq!(sum(Reason::ResultReturned) + sum(Reason::ResultQueued), redirected);
            assert_eq!(sum(Reason::SentResult) + sum(Reason::ResultReturned), 3000);
            for status in &statuses {
                for function in status.functions.iter().filter(|function| function.samples > 50) {
                    assert!(function.predicted_ns > 0 && function.measured_ns > 0, "{function:?}");
                }
            }
        },
    );
}

#[test]
fn idle_nodes_take_work_from_a_busy_one() {
    with_cluster(
        3,
        |node| NodeSettings { pull: true, ..settings("steal", node) },
        |bench| {
            let port = bench.port(1);
            let long = recipe(&port, Builtin::Hold, 1_000_000);
            let mut replies = Replies::default();
            // Faster than one node can compute them.
            for sequence in 0..600 {
                bench.send(1, &long, sequence);
                bench.wire.receive(|frame| replies.take(frame.bytes));
                thread::sleep(Duration::from_micros(300));
            }
            bench.collect(&mut replies, 600);
            replies.assert_exactly(600);
            let statuses = bench.wait_for_rest(1..=3);
            let given = statuses[0].count(Reason::SentForward);
            assert!(given > 100, "nodes 2 and 3 were idle and took {given} of 600 packets");
            assert_eq!(statuses[0].count(Reason::Redirected), 0, "the policy sends nothing away by itself");
            assert!(statuses[0].count(Reason::PullAnswered) <= given, "some asked before there was a packet");
            let computed = |node: usize| statuses[node].count(Reason::SentHome);
            assert_eq!(computed(1) + computed(2), given);
            assert!(computed(1) > 0 && computed(2) > 0, "{} and {}", computed(1), computed(2));
        },
    );
}

/// bpftool prints the pinned load table with the fields' names, also while traffic runs.
fn assert_bpftool_reads(bench: &Bench) {
    let dir = pins(BPFFS.as_ref(), &bench.cluster.plan().name(Host::Node(1)));
    let text =
        command::output(Command::new("bpftool").args(["map", "dump", "pinned"]).arg(dir.join("LOAD_TABLE"))).unwrap();
    for field in ["backlog_ns", "acked_ns", "valid_until_ns", "queued_milli", "sent_ns", "received_epoch"] {
        assert!(text.contains(&format!("\"{field}\":")), "{field} in {text}");
    }
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(rows[2]["value"]["sent_frames"].as_u64().unwrap() + rows[3]["value"]["sent_frames"].as_u64().unwrap() > 0);
}

#[test]
fn every_encapsulation_is_computed_here_and_on_another_node() {
    with_cluster(
        2,
        |node| settings("ept-erl", node),
        |bench| {
            let port = bench.port(1);
            let v6 = Addresses::V6 { source: port.generator_ipv6, destination: port.node_ipv6 };
            // 40 rounds over 1000 bytes: long enough for the guard to let it be sent away, short enough for the limit.
            let base = Recipe { payload_bytes: 1000, ..recipe(&port, Builtin::Sha256, 40) };
            let crc = Recipe { payload_bytes: 1000, ..recipe(&port, Builtin::Crc32, 0) };
            let shapes = [
                base.clone(),
                crc.clone(),
                Recipe { addresses: v6, ..base.clone() },
                Recipe { carrier: Carrier::Protocol107, ..base.clone() },
                Recipe { carrier: Carrier::Protocol107, addresses: v6, ..base.clone() },
                Recipe { vlans: vec![7], ..base.clone() },
                Recipe { vlans: vec![7, 8], addresses: v6, ..base.clone() },
                Recipe { checksum: true, ..base.clone() },
                Recipe {
                    checksum: true,
                    carrier: Carrier::Udp { source: 9, destination: UDP_PORT, checksum: false },
                    ..crc
                },
            ];
            let mut replies = Replies::default();
            for (sequence, shape) in (0..).zip(&shapes) {
                // One at a time, so that there is never a reason to send one away.
                bench.send(1, shape, sequence);
                bench.collect(&mut replies, sequence as usize + 1);
            }
            replies.assert_exactly(shapes.len() as u64);
            let status = bench.status(1);
            let kept = status.counters[Reason::SentResult.name()];
            assert_eq!(kept, shapes.len() as u64, "an idle node keeps its packets: {status:#?}");
            // The same while node 1 is occupied: now they are computed by node 2 and come back by node 1.
            let mut replies = Replies::default();
            let occupied = recipe(&port, Builtin::Hold, 9_000_000);
            let away = shapes.iter().filter(|shape| shape.type_id == Builtin::Sha256.type_id());
            bench.send(1, &occupied, 0);
            let mut count = 1;
            for shape in away {
                bench.send(1, shape, count);
                count += 1;
            }
            bench.collect(&mut replies, count as usize);
            replies.assert_exactly(count);
            let statuses = bench.wait_for_rest(1..=2);
            assert_eq!(statuses[1].counters[Reason::SentHome.name()], count - 1, "{:#?}", statuses[0].counters);
        },
    );
}

#[test]
fn bad_packets_are_counted_under_their_own_reason_and_disturb_nobody() {
    with_cluster(
        2,
        |node| settings("local", node),
        |bench| {
            let port = bench.port(1);
            let good = Recipe { checksum: true, ..recipe(&port, Builtin::Crc32, 0) };
            let template = good.template().unwrap();
            let frame = template.frame(&Probe { sequence: 0, scheduled_ns: 0 });
            let anep = template.anep_at();
            let no_udp_sum =
                Recipe { carrier: Carrier::Udp { source: 9, destination: UDP_PORT, checksum: false }, ..good.clone() };
            let unsummed = no_udp_sum.template().unwrap().frame(&Probe { sequence: 0, scheduled_ns: 0 });
            let edit = |frame: &[u8], at: usize, value: u8| {
                let mut frame = frame.to_vec();
                frame[at] = value;
                frame
            };
            let bad = [
                (Reason::DropAnepVersion, edit(&frame, anep, 2)),
                (Reason::DropAnepHeaderShort, edit(&frame, anep + 5, 1)),
                (Reason::DropAnepHeaderPastEnd, edit(&frame, anep + 4, 9)),
                (Reason::DropAnepPacketPastFrame, edit(&frame, anep + 6, 9)),
                (Reason::DropUnknownType, edit(&frame, anep + 3, 0xee)),
                (Reason::DropIpChecksum, edit(&frame, 24, 0x55)),
                (Reason::DropUdpLength, edit(&frame, 38, 9)),
                (Reason::DropAnepOptionLength, edit(&frame, anep + 11, 0)),
                (Reason::DropUdpChecksum, edit(&frame, frame.len() - 1, 0)),
                (Reason::DropAnepChecksum, edit(&unsummed, unsummed.len() - 1, 0)),
                (Reason::DropOperandMissing, {
                    let recipe = Recipe { operand: None, ..recipe(&port, Builtin::Sha256, 1) };
                    recipe.template().unwrap().frame(&Probe { sequence: 0, scheduled_ns: 0 })
                }),
                (Reason::DropServiceLimit, {
                    let recipe = recipe(&port, Builtin::Hold, 1_000_000_000);
                    recipe.template().unwrap().frame(&Probe { sequence: 0, scheduled_ns: 0 })
                }),
                (Reason::DropGroupSource, edit(&frame, 6, 0x03)),
                (Reason::DropResultRoom, {
                    let recipe = Recipe { result_bytes: 0, ..recipe(&port, Builtin::Crc32, 0) };
                    recipe.template().unwrap().frame(&Probe { sequence: 0, scheduled_ns: 0 })
                }),
            ];
            let mut replies = Replies::default();
            for (reason, frame) in &bad {
                bench.send_raw(1, frame);
                assert!(!replies.seen.contains_key(&0), "{reason:?} was answered");
            }
            // Truncated at every length, from an Ethernet header on.
            for cut in 14..frame.len() {
                bench.send_raw(1, &frame[..cut]);
            }
            bench.send(1, &good, 1);
            bench.collect(&mut replies, 1);
            assert_eq!(replies.seen.keys().collect::<Vec<_>>(), [&1], "the good packet, and nothing else, came back");
            let statuses = bench.wait_for_rest(1..=2);
            let counters = &statuses[0].counters;
            let cuts = (frame.len() - 14) as u64;
            for (reason, _) in &bad {
                let expected = match reason {
                    // Every cut inside the ANEP packet.
                    Reason::DropAnepPacketPastFrame => 1 + (frame.len() - anep - 8) as u64,
                    _ => 1,
                };
                assert_eq!(counters[reason.name()], expected, "{reason:?} in {counters:#?}");
            }
            assert_eq!(counters[Reason::DropAnepTruncated.name()], 8);
            assert!(counters[Reason::PassNotActive.name()] >= cuts - 8 - (frame.len() - anep - 8) as u64);
            assert_eq!(counters[Reason::SentResult.name()], 1);
            assert_eq!(statuses[1].ledger.port_seen, statuses[1].counters[Reason::PassNotActive.name()]);
        },
    );
}

#[test]
fn two_nodes_do_not_answer_each_other() {
    with_cluster(
        2,
        |node| settings("local", node),
        |bench| {
            let port = bench.port(1);
            // As from another node: its answer would be an active packet to whoever has the port number of ANEP.
            let carriers =
                [Carrier::Udp { source: UDP_PORT, destination: UDP_PORT, checksum: true }, Carrier::Protocol107];
            for carrier in carriers {
                bench.send(1, &Recipe { carrier, ..recipe(&port, Builtin::Crc32, 0) }, 7);
            }
            let mut answers = Vec::new();
            let deadline = Instant::now() + PATIENCE;
            while answers.len() < carriers.len() && Instant::now() < deadline {
                // The node's kernel says something of its own now and then.
                bench.wire.receive(|frame| answers.extend(Reply::parse(frame.bytes).map(|_| frame.bytes.to_vec())));
            }
            for mut answer in answers {
                // Turned round by hand, as the other node would send it.
                let (to, from) = answer.split_at_mut(6);
                to.swap_with_slice(&mut from[..6]);
                bench.send_raw(1, &answer);
            }
            let statuses = bench.wait_for_rest(1..=2);
            let counters = &statuses[0].counters;
            assert_eq!(counters[Reason::SentResult.name()], 2, "{counters:#?}");
            assert_eq!(counters[Reason::PassResult.name()], 2, "{counters:#?}");
        },
    );
}

#[test]
fn work_beyond_the_limit_is_refused_whatever_was_measured_before() {
    with_cluster(
        2,
        |node| settings("local", node),
        |bench| {
            let port = bench.port(1);
            let endless = Recipe { payload_bytes: 24, ..recipe(&port, Builtin::Sha256, u32::MAX) };
            bench.send(1, &endless, 0);
            // Many packets of next to no work must not make large ones look cheap.
            let mut replies = Replies::default();
            for sequence in 1..=300 {
                bench.send(1, &recipe(&port, Builtin::Hold, sequence as u32 % 100), sequence);
            }
            bench.collect(&mut replies, 300);
            bench.send(1, &recipe(&port, Builtin::Hold, 1_000_000_000), 301);
            bench.send(1, &recipe(&port, Builtin::Hold, 1_000_000), 302);
            bench.collect(&mut replies, 301);
            let statuses = bench.wait_for_rest(1..=2);
            assert_eq!(statuses[0].counters[Reason::DropServiceLimit.name()], 2);
            assert_eq!(statuses[0].counters[Reason::SentResult.name()], 301);
        },
    );
}

#[test]
fn every_queue_has_its_worker_and_queues_without_one_pass_to_the_kernel() {
    let shape = Shape { queues: 2, ..Shape::new(Purpose::Test, 2) };
    // Node 1 has a worker for each queue, node 2 for the first one only.
    let cpus = |node| if node == 1 { vec![0, 1] } else { vec![0] };
    let two_workers = move |node| NodeSettings { cpus: cpus(node), ..settings("local", node) };
    with_shape(shape, two_workers, |bench| {
        for node in [1, 2] {
            let port = bench.port(node);
            let frame =
                recipe(&port, Builtin::Crc32, 0).template().unwrap().frame(&Probe { sequence: 0, scheduled_ns: 0 });
            for cpu in [0, 1] {
                send_from_cpu(&bench.cluster, &port, &frame, cpu, 50);
            }
        }
        let statuses = bench.wait_for_rest(1..=2);
        let taken = |node: u16| -> Vec<u64> {
            let text = command::output(&mut bench.cluster.status_command(node)).unwrap();
            let status: serde_json::Value = serde_json::from_str(&text).unwrap();
            let sockets = status["sockets"].as_array().unwrap().iter();
            sockets
                .filter(|socket| socket["interface"] == 0)
                .map(|socket| socket["taken_packets"].as_u64().unwrap())
                .collect()
        };
        assert_eq!(taken(1), [50, 50]);
        assert_eq!(statuses[0].counters[Reason::SentResult.name()], 100);
        assert_eq!(taken(2), [50]);
        assert_eq!(statuses[1].counters[Reason::PassNoSocket.name()], 50);
    });
}

/// Sends a frame to `port` from `cpu`: past the queueing discipline, a veth has a queue per CPU.
fn send_from_cpu(cluster: &Cluster, port: &PortPlan, frame: &[u8], cpu: usize, count: usize) {
    thread::scope(|scope| {
        scope.spawn(|| {
            enter(cluster, Host::Generator);
            assert!(core_affinity::set_for_current(core_affinity::CoreId { id: cpu }));
            let device = NetDevice::find(&port.generator_interface).unwrap();
            let socket = PacketSocket::open().unwrap();
            for _ in 0..count {
                socket.send(device.index, frame).unwrap();
            }
        });
    });
}

#[test]
fn results_keep_the_order_of_their_flow_where_it_is_asked_for() {
    if lacks_root() {
        return;
    }
    let (kept, held) = overload_one_of_three(Order::Flow);
    assert_eq!(kept.counts.reordered, 0, "{:?}", kept.counts);
    assert!(held > 0, "results of other nodes came before their turn");
    // The same packets at the same times: without it the order is lost, so that the test above can fail.
    let (lost, held) = overload_one_of_three(Order::None);
    assert!(lost.counts.reordered > 0, "{:?}", lost.counts);
    assert_eq!(held, 0);
    println!("reordered: {} of {}, kept: 0", lost.counts.reordered, lost.counts.received);
}

/// Most packets of 64 flows arrive at one node, which cannot compute them alone. What the receiver saw, and how many results
/// of other nodes had to wait for earlier ones.
fn overload_one_of_three(order: Order) -> (Report, u64) {
    let mut cluster = Cluster::build(Shape::new(Purpose::Test, 3)).unwrap();
    for node in cluster.plan().nodes() {
        // Nothing takes so long that a result is given up, unless others keep a node from running.
        let scheduling = Scheduling::RealTime;
        let settings = NodeSettings { extra: order.sections(false), scheduling, ..settings("ept-erl", node) };
        cluster.start(node, &settings, &Interrupt::never()).unwrap();
    }
    cluster.wait_for_peers(&Interrupt::never()).unwrap();
    let kind = |function: Builtin, nominal_ns: u32, weight| Kind {
        name: format!("{} {nominal_ns}", function.name()),
        function: function.name().to_owned(),
        operand: Some(nominal_ns),
        weight,
        nominal_ns: nominal_ns.into(),
        emulated: true,
    };
    let workload = Workload {
        kinds: vec![
            kind(Builtin::Crc32, 1_000, 1.0),
            kind(Builtin::Hold, 200_000, 2.0),
            kind(Builtin::Hold, 1_500_000, 1.0),
        ],
        node_weights: vec![6.0, 1.0, 1.0],
        rate_per_s: 4_000.0,
        flows: 64,
        burst: None,
        frame_bytes: 200,
        warm_up: Duration::ZERO,
        measured: Duration::from_millis(1_500),
        seed: 5,
    };
    let ports = cluster.plan().nodes().map(|node| cluster.plan().port(node)).collect();
    let plan = GeneratorPlan { workload, ports, quiet: Duration::from_millis(500), late: None };
    let program = Path::new(env!("CARGO_BIN_EXE_dataplane-bench"));
    let report = session::run(&cluster, program, &plan, &Interrupt::never(), |_| {}).unwrap();
    assert_eq!((report.counts.lost(), report.counts.duplicated), (0, 0), "{:?}", report.counts);
    let statuses = cluster.plan().nodes().map(|node| cluster.status(node).unwrap());
    (report, statuses.map(|status| status.count(Reason::ResultQueued)).sum())
}

//! Clusters in trouble: ordinary traffic, killed and stopped nodes, overload. See README.md beside this file for a drawing.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dataplane_bench::command;
use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::packet::Probe;
use dataplane_bench::status::Status;
use dataplane_bench::topology::{BPFFS, Host, NodeSettings, PORT_INTERFACE, pins};
use dataplane_bench::traffic::wire::Wire;
use dataplane_common::reason::Reason;
use dataplane_user::functions::Builtin;
use support::{Bench, PATIENCE, Replies, ask_echo, echo, recipe, settings, with_cluster};

fn program() -> PathBuf {
    std::env::var_os("DATAPLANE_BIN").map_or_else(|| "target/release/dataplane".into(), PathBuf::from)
}

#[test]
fn ordinary_traffic_reaches_the_kernel_while_the_node_works() {
    with_cluster(
        2,
        |node| settings("local", node),
        |bench| {
            let port = bench.port(1);
            let stop = AtomicBool::new(false);
            let Bench { cluster, wire } = bench;
            thread::scope(|scope| {
                echo(scope, cluster, 1, &stop);
                let busy = recipe(&port, Builtin::Spin, 100_000).template().unwrap();
                for round in 0..20u64 {
                    let frame = busy.frame(&Probe { sequence: round, scheduled_ns: 0 });
                    wire.prepare(frame.len(), |bytes| bytes.copy_from_slice(&frame)).unwrap();
                    wire.send(0).unwrap();
                    let question = format!("round {round} of the echo");
                    assert!(ask_echo(wire, &port, question.as_bytes()).is_some(), "{question}");
                }
                stop.store(true, Ordering::Relaxed);
            });
            assert!(bench.counter(1, Reason::PassNotActive) >= 20);
            bench.wait_for_rest(1..=2);
        },
    );
}

#[test]
fn a_killed_node_gives_its_interface_back_and_gets_no_more_packets() {
    let interval = Duration::from_millis(2);
    let settings =
        move |node| NodeSettings { report_interval: interval, idle_interval: interval, ..settings("ept-erl", node) };
    with_cluster(3, settings, |bench| {
        let (port, victim) = (bench.port(1), bench.port(2));
        let hold = recipe(&port, Builtin::Hold, 1_000_000).template().unwrap();
        let send = |wire: &mut Wire, sequence| {
            let frame = hold.frame(&Probe { sequence, scheduled_ns: 0 });
            wire.prepare(frame.len(), |bytes| bytes.copy_from_slice(&frame)).unwrap();
            wire.send(0).unwrap();
            wire.receive(|_| ());
            thread::sleep(Duration::from_micros(400));
        };
        for sequence in 0..500 {
            send(&mut bench.wire, sequence);
        }
        let sent = |bench: &Bench| bench.status(1).peers.iter().find(|peer| peer.id == 2).unwrap().sent_frames;
        assert!(sent(bench) > 10, "node 2 works for node 1");

        bench.cluster.kill(2).unwrap();
        let killed = Instant::now();
        // The load goes on; after 10 report intervals nothing more is sent to the dead node.
        while killed.elapsed() < 10 * interval {
            send(&mut bench.wire, 1000);
        }
        let after_ten_intervals = sent(bench);
        for sequence in 0..200 {
            send(&mut bench.wire, 2000 + sequence);
        }
        assert_eq!(sent(bench), after_ten_intervals, "packets were sent to a node that is dead for 10 intervals");
        assert_eq!(bench.status(1).peers.iter().find(|peer| peer.id == 2).unwrap().state, "stale");
        let took = {
            let stop = AtomicBool::new(false);
            let Bench { cluster, wire } = &mut *bench;
            thread::scope(|scope| {
                echo(scope, cluster, 2, &stop);
                let took = ask_echo(wire, &victim, b"is the kernel there?");
                stop.store(true, Ordering::Relaxed);
                took
            })
        };
        let took = took.unwrap();
        println!("kernel echo over the dead node's port answered in {took:?}");
        let dir = pins(BPFFS.as_ref(), &bench.cluster.plan().name(Host::Node(2)));
        let deadline = Instant::now() + PATIENCE;
        while dir.exists() {
            assert!(Instant::now() < deadline, "pins of the killed node are left: {}", dir.display());
            thread::sleep(Duration::from_millis(5));
        }
        bench.wait_for_rest([1, 3]);

        // It comes back under a new boot epoch, with a clean account.
        bench.cluster.start(2, &settings(2), &Interrupt::never()).unwrap();
        bench.cluster.wait_for_peers(&Interrupt::never()).unwrap();
        let before = sent(bench);
        for sequence in 0..500 {
            send(&mut bench.wire, 3000 + sequence);
        }
        assert!(sent(bench) > before, "the restarted node gets packets again");
        bench.wait_for_rest(1..=3);
    });
}

#[test]
fn a_name_has_one_owner_and_nothing_else_is_touched() {
    with_cluster(
        2,
        |node| settings("local", node),
        |bench| {
            let program = program();
            let refused = |arguments: &[&std::ffi::OsStr]| {
                let output = Command::new(&program).args(arguments).output().unwrap();
                assert!(!output.status.success(), "{arguments:?}");
                String::from_utf8_lossy(&output.stderr).into_owned()
            };
            // A second node of the same name, in its own namespace: refused, and the first one keeps its pins.
            let name = bench.cluster.plan().name(Host::Node(1));
            let config = bench.cluster.directory().join("n1.toml");
            let mut second = bench.cluster.enter(Host::Node(2), &program);
            let output = second.arg("run").arg("--config").arg(&config).output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!output.status.success() && text.contains("already running"), "{text}");
            assert!(pins(BPFFS.as_ref(), &name).join("LOAD_TABLE").exists());
            assert_eq!(bench.status(1).node.name, name);
            // What is no BPF file system is left as it is, and a name is no path.
            let elsewhere = bench.cluster.directory().join("elsewhere");
            let precious = elsewhere.join("dataplane").join(&name).join("thesis.txt");
            fs::create_dir_all(precious.parent().unwrap()).unwrap();
            fs::write(&precious, "years of work").unwrap();
            let elsewhere = elsewhere.as_os_str();
            let text =
                refused(&["run".as_ref(), "--bpffs".as_ref(), elsewhere, "--config".as_ref(), config.as_os_str()]);
            assert!(text.contains("is not on a BPF file system"), "{text}");
            refused(&["unload".as_ref(), "--all".as_ref(), "--bpffs".as_ref(), elsewhere]);
            refused(&["unload".as_ref(), "--node".as_ref(), "../victim".as_ref()]);
            assert_eq!(fs::read_to_string(&precious).unwrap(), "years of work");
        },
    );
}

#[test]
fn the_kernel_answers_within_100_ms_of_a_kill() {
    with_cluster(
        2,
        |node| settings("local", node),
        |bench| {
            let port = bench.port(1);
            let stop = AtomicBool::new(false);
            let pid = bench.cluster.process(1).unwrap().pid();
            let Bench { cluster, wire } = &mut *bench;
            thread::scope(|scope| {
                echo(scope, cluster, 1, &stop);
                let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
                let took = ask_echo(wire, &port, b"at once");
                stop.store(true, Ordering::Relaxed);
                // Not a measure of speed: a node that keeps its interface would never answer.
                assert!(took.is_some_and(|took| took < Duration::from_millis(100)), "{took:?}");
                println!("kernel echo answered {:?} after kill -9", took.unwrap_or_default());
            });
            bench.cluster.kill(1).unwrap();
        },
    );
}

#[test]
fn overload_is_dropped_under_a_name_and_its_charges_are_written_off() {
    // Without a limit the ring decides, with one the XDP program.
    overload(Duration::ZERO, |status| status.ledger.ring_dropped);
    overload(Duration::from_millis(100), |status| status.count(Reason::DropOverload));
}

fn overload(backlog_limit: Duration, refused: fn(&Status) -> u64) {
    with_cluster(
        2,
        |node| NodeSettings { backlog_limit, ..settings("local", node) },
        |bench| {
            let port = bench.port(1);
            let hold = recipe(&port, Builtin::Hold, 500_000);
            let count = 3000;
            for sequence in 0..count {
                bench.send(1, &hold, sequence);
            }
            let mut replies = Replies::default();
            let deadline = Instant::now() + PATIENCE;
            let status = loop {
                bench.wire.receive(|frame| replies.take(frame.bytes));
                let status = bench.status(1);
                if status.ledger.balances && status.workers[0].backlog_ns == 0 {
                    break status;
                }
                assert!(Instant::now() < deadline, "no rest: {status:#?}");
                thread::sleep(Duration::from_millis(10));
            };
            bench.wire.receive(|frame| replies.take(frame.bytes));
            let refused = refused(&status);
            assert!(refused > 0, "{count} packets were taken: {:?}", status.ledger);
            assert_eq!(replies.seen.len() as u64 + refused, count, "{:?}", status.ledger);
        },
    );
}

#[test]
fn a_node_whose_interface_goes_says_so_and_ends() {
    with_cluster(
        2,
        |node| settings("local", node),
        |bench| {
            let name = bench.cluster.plan().name(Host::Node(1));
            let link = bench.cluster.plan().link(1, 2).interface;
            command::output(Command::new("ip").args(["-netns", &name, "link", "del", &link])).unwrap();
            let deadline = Instant::now() + PATIENCE;
            while bench.cluster.process(1).unwrap().is_running().unwrap() {
                assert!(Instant::now() < deadline, "the node goes on without {link}");
                thread::sleep(Duration::from_millis(20));
            }
            let log = fs::read_to_string(bench.cluster.process(1).unwrap().log()).unwrap();
            assert!(log.contains(&format!("interface {link} is gone")), "{log}");
            assert!(!pins(BPFFS.as_ref(), &name).exists(), "pins");
            // Both have ended; this only collects the children.
            bench.cluster.kill(1).unwrap();
            bench.cluster.kill(2).unwrap();
        },
    );
}

#[test]
fn a_stopped_node_leaves_nothing_behind() {
    with_cluster(
        2,
        |node| settings("ept-erl", node),
        |bench| {
            let name = bench.cluster.plan().name(Host::Node(1));
            let dir = pins(BPFFS.as_ref(), &name);
            let link = || {
                let mut ip = Command::new("ip");
                command::output(ip.args(["-netns", &name, "link", "show", PORT_INTERFACE])).unwrap()
            };
            assert!(dir.join("LOAD_TABLE").exists() && link().contains("xdp"));
            let pid = bench.cluster.process(1).unwrap().pid();
            bench.cluster.stop(1).unwrap();
            assert!(!dir.exists(), "pins");
            assert!(!link().contains("xdp"), "{}", link());
            assert!(!fs::exists(format!("/proc/{pid}")).unwrap(), "process");
            // `unload` does the same to a node that somebody else started.
            let program = program();
            let victim = bench.cluster.plan().name(Host::Node(2));
            let text = command::output(Command::new(program).args(["unload", "--node", &victim])).unwrap();
            assert!(text.contains("is unloaded"), "{text}");
            assert!(!pins(BPFFS.as_ref(), &victim).exists());
            // Its pins are the last thing it removes, and then it ends.
            let deadline = Instant::now() + PATIENCE;
            while bench.cluster.process(2).unwrap().is_running().unwrap() {
                assert!(Instant::now() < deadline, "process");
                thread::sleep(Duration::from_millis(20));
            }
            // Already gone; this only collects the child.
            bench.cluster.kill(2).unwrap();
        },
    );
}

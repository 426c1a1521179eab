//! Nodes that take another configuration while they run. See README.md beside this file for a drawing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::thread;
use std::time::Duration;

use dataplane_bench::packet::Probe;
use dataplane_bench::topology::{Cluster, NodeSettings};
use dataplane_common::reason::Reason;
use dataplane_user::functions::Builtin;
use support::{Bench, Replies, recipe, settings, with_cluster};

/// Work of a packet, ns, and the time to the next one: node 1 can just compute them alone.
const WORK_NS: u32 = 300_000;
const GAP: Duration = Duration::from_micros(500);

/// Settings of the function whose packets come.
fn function(keys: &str) -> String {
    format!("[[function]]\nname = \"hold\"\n{keys}\n")
}

/// What the nodes run by at the beginning.
fn first(node: u16) -> NodeSettings {
    by("local", node)
}

/// Another policy; any amount of work is taken, because `local` leaves all of it at one node.
fn by(policy: &str, node: u16) -> NodeSettings {
    NodeSettings { extra: function(""), backlog_limit: Duration::ZERO, ..settings(policy, node) }
}

/// Sends packets to node 1 for as long as `meanwhile` takes, and some more: each is answered once.
fn send_during(bench: &mut Bench, meanwhile: impl FnOnce(&Cluster) + Send) {
    let hold = recipe(&bench.port(1), Builtin::Hold, WORK_NS).template().unwrap();
    let mut replies = Replies::default();
    let Bench { cluster, wire } = bench;
    let count = thread::scope(|scope| {
        let other = scope.spawn(|| meanwhile(cluster));
        let mut count = 0;
        let mut left = 200;
        while left > 0 {
            let frame = hold.frame(&Probe { sequence: count, scheduled_ns: 0 });
            wire.prepare(frame.len(), |bytes| bytes.copy_from_slice(&frame)).unwrap();
            wire.send(0).unwrap();
            wire.receive(|frame| replies.take(frame.bytes));
            thread::sleep(GAP);
            count += 1;
            left -= u32::from(other.is_finished());
        }
        other.join().unwrap();
        count
    });
    bench.collect(&mut replies, count as usize);
    replies.assert_exactly(count);
}

#[test]
fn a_reload_under_load_loses_nothing() {
    with_cluster(3, first, |bench| {
        let turn = |policy: &str| by(policy, 1);
        let turns = [
            turn("ept-erl"),
            NodeSettings { discipline: "shortest".to_owned(), pull: true, ..turn("sooner") },
            NodeSettings { extra: function("lossless = true"), ..turn("least-work") },
            NodeSettings { backlog_limit: Duration::from_secs(1), ..turn("hrw") },
            turn("local"),
        ];
        send_during(bench, |cluster| {
            for turn in turns {
                thread::sleep(Duration::from_millis(100));
                for node in 1..=3 {
                    let cpus = settings("", node).cpus;
                    let said = cluster.reload(node, &NodeSettings { cpus, ..turn.clone() }).unwrap();
                    assert!(said.contains("is reloaded: changed") && said.contains("[policy]"), "{said}");
                }
            }
        });
        let statuses = bench.wait_for_rest(1..=3);
        let count = |reason| statuses.iter().map(|status| status.count(reason)).sum::<u64>();
        assert!(count(Reason::Redirected) > 0, "packets were placed by XDP");
        assert!(count(Reason::NoteKept) > 0, "and by workers, which kept them");
        assert_eq!(count(Reason::NoteOutOfOrder), 0, "in order all the time");
        assert!(statuses.iter().all(|status| status.node.policy == "local"), "the last one");
    });
}

#[test]
fn what_a_node_cannot_take_changes_nothing() {
    with_cluster(3, first, |bench| {
        let refused = |bench: &Bench, settings: NodeSettings| {
            let error = format!("{:#}", bench.cluster.reload(1, &settings).unwrap_err());
            assert!(error.contains("goes on as before"), "{error}");
            error
        };
        let error = refused(bench, NodeSettings { transport: "xsk".to_owned(), ..first(1) });
        assert!(
            error.contains("cannot change [interconnect] transport") && error.contains("start it again"),
            "{error}"
        );
        let error = refused(bench, NodeSettings { policy: "best".to_owned(), ..first(1) });
        assert!(error.contains("best") && error.contains("n1.toml"), "{error}");
        assert_eq!(bench.status(1).node.policy, "local");
        send_during(bench, |_| ());
        bench.wait_for_rest(1..=3);
    });
}

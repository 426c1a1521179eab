//! Nodes that take another configuration while they run. See README.md beside this file for a drawing.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::thread;
use std::time::Duration;

use dataplane_bench::topology::NodeSettings;
use dataplane_common::reason::Reason;
use dataplane_user::functions::Builtin;
use support::{Bench, Replies, recipe, settings, with_cluster};

/// Packets of a test: node 1 cannot compute them alone in the time in which they come.
const PACKETS: u64 = 1_000;

/// Settings of the function whose packets come.
fn function(keys: &str) -> String {
    format!("[[function]]\nname = \"hold\"\n{keys}\n")
}

/// What the nodes run by at the beginning.
fn first(node: u16) -> NodeSettings {
    NodeSettings { extra: function(""), ..settings("local", node) }
}

/// Sends all packets to node 1, and reloads each node `turns.len()` times meanwhile.
fn send_and_reload(bench: &mut Bench, turns: &[NodeSettings]) -> Replies {
    let hold = recipe(&bench.port(1), Builtin::Hold, 1_000_000);
    let mut replies = Replies::default();
    let share = PACKETS / (turns.len() as u64 + 1);
    for sequence in 0..PACKETS {
        if sequence > 0 && sequence % share == 0 {
            let turn = &turns[(sequence / share) as usize - 1];
            for node in 1..=3 {
                let cpus = settings("", node).cpus;
                let said = bench.cluster.reload(node, &NodeSettings { cpus, ..turn.clone() }).unwrap();
                assert!(said.contains("is reloaded: changed [policy]"), "{said}");
            }
        }
        bench.send(1, &hold, sequence);
        bench.wire.receive(|frame| replies.take(frame.bytes));
        thread::sleep(Duration::from_micros(500));
    }
    bench.collect(&mut replies, PACKETS as usize);
    replies
}

#[test]
fn a_reload_under_load_loses_nothing() {
    with_cluster(3, first, |bench| {
        let turn = |policy: &str| NodeSettings { extra: function(""), ..settings(policy, 1) };
        let turns = [
            turn("ept-erl"),
            NodeSettings { discipline: "shortest".to_owned(), pull: true, ..turn("sooner") },
            NodeSettings { extra: function("lossless = true"), ..turn("least-work") },
            NodeSettings { backlog_limit: Duration::ZERO, ..turn("hrw") },
            turn("local"),
        ];
        send_and_reload(bench, &turns).assert_exactly(PACKETS);
        let statuses = bench.wait_for_rest(1..=3);
        let count = |reason| statuses.iter().map(|status| status.count(reason)).sum::<u64>();
        assert!(count(Reason::Redirected) > PACKETS / 20, "packets were placed by XDP");
        assert!(count(Reason::NoteKept) > PACKETS / 100, "and by workers, which kept them");
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
        assert!(error.contains("cannot change [interconnect] transport") && error.contains("start it again"), "{error}");
        let error = refused(bench, NodeSettings { policy: "best".to_owned(), ..first(1) });
        assert!(error.contains("best") && error.contains("n1.toml"), "{error}");
        assert_eq!(bench.status(1).node.policy, "local");
        let replies = send_and_reload(bench, &[]);
        replies.assert_exactly(PACKETS);
        bench.wait_for_rest(1..=3);
    });
}

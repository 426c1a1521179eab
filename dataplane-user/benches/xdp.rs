//! What a decision costs in XDP, by policy and number of nodes: `cargo bench -p dataplane-user --bench xdp` (root; after
//! `cargo xtask build`).
//!
//! The kernel runs `dp_ingress` on one packet many times (`BPF_PROG_TEST_RUN` with `repeat`) and says how long a run took. The
//! packet waits long here and longer everywhere else, so that every policy must look at others, and most decide to stay. Shown is
//! the time beyond that of the policy `local` on the same packet: the decision alone. What `local` itself takes beyond an empty
//! program, `dp_pass`, is shown above the table: recognising the packet, its estimate, and the way to the worker as far as a
//! repeated run can go it (after a few repetitions there is no room in front of the frame for more metadata).
//!
//! All cells are measured in turn, many times over; shown are the median and, in brackets, the least and the most.
#![expect(clippy::unwrap_used, reason = "a bench fails by panicking")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::mem::offset_of;
use std::time::Duration;

use dataplane_common::maps::{
    AUTH_FULL, AUTH_HEADER, AUTH_OFF, FunctionRow, LoadRow, PEER_PRESENT, Params, PeerRow, SignalsRow, WorkerRow,
};
use dataplane_common::policy::PolicyKind;
use dataplane_common::reason::Reason;
use dataplane_common::seal::{KEY_ROWS, KeyRow};
use dataplane_common::tuning::Tuning;
use dataplane_user::keys;
use dataplane_user::worker::monotonic_ns;
use support::frames::{Interconnect, Packet, SealKey};
use support::node::{Arrival, LINK, Node, PORT, Site, inside};
use support::words::Place;

/// Cluster sizes, this node included.
const NODES: [u16; 3] = [3, 16, 256];
/// Measurements of each cell.
const SAMPLES: usize = 15;
/// Runs in a measurement.
const RUNS: u32 = 20_000;
const TYPE: u16 = 0xff04;
/// Estimated processing time of the packet, ns.
const EPT_NS: u32 = 50_000;

/// A forward whose fields do not matter.
const FORWARD: Interconnect =
    Interconnect { mac: [[2; 6], [4; 6]], epoch: 9, sequence: 1, type_id: TYPE, ..Interconnect::PLAIN };

/// One column of one policy.
struct Cell<'a> {
    policy: PolicyKind,
    nodes: u16,
    node: Node<'a>,
    ns: Vec<f64>,
}

fn node(site: &Site, policy: PolicyKind, nodes: u16) -> Node<'_> {
    let params = Params { policy: policy as u32, policies: policy.bit(), node: 0, nodes, epoch: 1, ..Params::DEFAULT };
    let mut node = site.node(params);
    let row = FunctionRow {
        b_q16: 1 << 16,
        declared_b_q16: 1 << 16,
        limit_ns: 1_000_000_000,
        units: 1,
        type_id: TYPE.into(),
        policy: policy as u32,
        ..FunctionRow::default()
    };
    node.set_function(0, row);
    let signals = SignalsRow {
        send_ns: 500,
        receive_ns: 500,
        wire_ns: 2_000,
        utilisation_milli: 600,
        service_ns: 10_000,
        arrivals_q32: 1 << 18,
        deviation_ns: 5_000,
        price_q16: 2 * (600 << 16) / 400,
        relax: Tuning::DEFAULT.relaxation(10_000).to_word(),
        ..SignalsRow::default()
    };
    node.set_signals(&signals);
    let peers: Vec<u16> = (1..nodes).collect();
    node.set_roster(&peers);
    let now_ns = monotonic_ns();
    for peer in peers {
        node.set_peer(
            peer,
            PeerRow { mac: [2; 6], flags: PEER_PRESENT, source_mac: [4; 6], max_frame: 1_514, ..PeerRow::default() },
        );
        let row = LoadRow {
            backlog_ns: 2_000_000 + 1_000 * u32::from(peer),
            valid_until_ns: u64::MAX,
            queued_milli: 30_000,
            workers: 1,
            busy_milli: 900,
            reported_at_ns: now_ns,
            mean_backlog_ns: 2_000_000,
            speed_milli: 1_000,
            response_ns: 2_000_000,
            service_ns: 10_000,
            peak_ns: 2_000_000,
            peak_us: (now_ns >> 10) as u32,
            ..LoadRow::default()
        };
        node.set_load(peer, &row);
    }
    node
}

/// Time of one run, ns. The first few runs charge the worker, so what waits there is set before.
fn run_ns(node: &mut Node<'_>, program: &'static str, frame: &[u8]) -> f64 {
    node.set(Place::worker(0, offset_of!(WorkerRow, charged_ns)), 300_000);
    node.set(Place::worker(0, offset_of!(WorkerRow, charged_packets)), 9);
    node.take_written();
    let took: Duration = node.time(program, Arrival { interface: PORT, queue: 0, metadata: 0 }, frame, RUNS);
    took.as_secs_f64() * 1e9
}

fn median(ns: &mut [f64]) -> (f64, f64, f64) {
    ns.sort_by(f64::total_cmp);
    (ns[ns.len() / 2], ns[0], ns[ns.len() - 1])
}

/// What checking a seal costs in `dp_link`, beyond a frame that is refused where its seal would be looked at. Measured are frames
/// that were taken before: they pass every check but the last one, and stay as they are.
fn seals(site: &Site) {
    const PEER: u16 = 1;
    let key = SealKey { number: 1, keys: [[1, 2], [3, 4]] };
    let row = KeyRow { header: key.keys[0], body: key.keys[1], valid: 1, ..KeyRow::default() };
    println!("checking a seal, ns: median [least, most] of {SAMPLES}\n");
    println!("{:<10}{:>24}{:>24}", "auth", "64 bytes", "1400 bytes");
    for (name, auth) in [("header", AUTH_HEADER), ("full", AUTH_FULL)] {
        print!("{name:<10}");
        for bytes in [64, 1_400] {
            let mut ns = Vec::new();
            let header = Interconnect { source: PEER, destination: 0, received_epoch: 1, ..FORWARD };
            let frame = key.seal(&header.frame(&vec![0x5a; bytes]), 1, auth == AUTH_FULL);
            let node = |auth: u32| {
                let params = Params { auth, node: 0, nodes: 2, epoch: 1, ..Params::DEFAULT };
                let mut node = site.node(params);
                node.set_peer(PEER, PeerRow { flags: PEER_PRESENT, ..PeerRow::default() });
                let mut rows = [KeyRow::default(); KEY_ROWS];
                rows[1] = row;
                keys::write(&node.tables, &rows);
                node
            };
            let (mut open, mut sealed) = (node(AUTH_OFF), node(auth));
            let at = Arrival { interface: LINK, queue: 0, metadata: 0 };
            sealed.run("dp_link", at, &frame);
            for _ in 0..SAMPLES {
                let time = |node: &mut Node<'_>| node.time("dp_link", at, &frame, RUNS).as_secs_f64() * 1e9;
                let refused = time(&mut open);
                ns.push(time(&mut sealed) - refused);
            }
            assert!(sealed.counter(Reason::DropLinkReplay) >= u64::from(RUNS));
            let (median, least, most) = median(&mut ns);
            print!("{:>24}", format!("{median:.0} [{least:.0}, {most:.0}]"));
        }
        println!();
    }
    println!();
}

fn main() {
    inside("xdp", |site| {
        seals(site);
        let frame = Packet::new(TYPE).operand(EPT_NS).frame();
        let policies = || PolicyKind::ALL.iter().copied().filter(|kind| kind.homes().has_xdp());
        let mut cells: Vec<Cell<'_>> = policies()
            .flat_map(|policy| NODES.map(|nodes| (policy, nodes)))
            .map(|(policy, nodes)| Cell { policy, nodes, node: node(site, policy, nodes), ns: Vec::new() })
            .collect();
        let mut empty = Vec::new();
        for _ in 0..SAMPLES {
            empty.push(run_ns(&mut cells[0].node, "dp_pass", &frame));
            for cell in &mut cells {
                cell.ns.push(run_ns(&mut cell.node, "dp_ingress", &frame));
            }
        }
        let local: Vec<f64> = cells.iter().find(|cell| cell.policy == PolicyKind::Local).unwrap().ns.clone();
        let beyond = |from: &[f64], base: &[f64]| {
            let mut ns: Vec<f64> = from.iter().zip(base).map(|(from, base)| from - base).collect();
            let (median, least, most) = median(&mut ns);
            format!("{median:.0} [{least:.0}, {most:.0}]")
        };
        println!(
            "empty program: {:.0} ns a run; local beyond it: {} ns",
            median(&mut empty.clone()).0,
            beyond(&local, &empty)
        );
        println!("decision in XDP beyond local, ns: median [least, most] of {SAMPLES}\n");
        print!("{:<20}", "policy");
        NODES.iter().for_each(|nodes| print!("{:>24}", format!("{nodes} nodes")));
        println!();
        for policy in policies() {
            print!("{:<20}", policy.name());
            for nodes in NODES {
                let cell = cells.iter().find(|cell| (cell.policy, cell.nodes) == (policy, nodes)).unwrap();
                // Headers that repeated runs put in front of the frame make it another one.
                let goes = cell.node.counter(Reason::Redirected) > 0;
                print!("{:>24}", if goes { "sends it away".to_owned() } else { beyond(&cell.ns, &local) });
            }
            println!();
        }
    });
}

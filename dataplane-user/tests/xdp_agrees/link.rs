//! `dp_link` against `Header`, `Report` and `load` of `dataplane_common`.

use std::mem::offset_of;

use dataplane_common::load::{Received, ReportStamp, take_position, take_report};
use dataplane_common::maps::{FunctionRow, LoadRow, PEER_PRESENT, Params, PeerRow};
use dataplane_common::meta::Origin;
use dataplane_common::packet::Packet as _;
use dataplane_common::reason::Reason;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{ETHERTYPE_LINK, Header, Kind, OVERHEAD_BYTES, Report};

use super::compare::{Comparison, End, Expected, XDP_DROP, XDP_PASS};
use super::generate::{SHORTEST, TYPES, UNKNOWN_TYPE};
use crate::support::frames::{Interconnect, Load};
use crate::support::node::{Arrival, LINK, Node, OTHER_PORT, PORT, Place, inside};
use crate::support::random::Random;

const CASES: u64 = 40_000;
const NODE: u16 = 2;
const NODES: u16 = 6;
const EPOCH: u32 = 4;
/// Nodes 0, 1 and 3 are peers; 4 has a row that is not in use, 5 has none.
const PEERS: [u16; 3] = [0, 1, 3];
const LIMIT_NS: u32 = 100_000;

/// What a row of the load table holds before a frame.
#[derive(Clone, Copy, Debug)]
struct Account {
    received: Received,
    frames: u64,
    stamp: ReportStamp,
    sent_ns: u64,
    sent_frames: u64,
    reports: u64,
}

fn frame(random: &mut Random) -> Vec<u8> {
    let header = Interconnect {
        mac: [[2; 6], [4; 6]],
        version: if random.once_in(20) { random.word() as u8 } else { 1 },
        kind: if random.once_in(20) { random.word() as u8 } else { 1 + random.below(3) as u8 },
        hops: if random.once_in(20) { random.word() as u8 } else { 1 },
        source: if random.once_in(8) { random.pick(&[2, 4, 5, 6, 0xffff]) } else { random.pick(&PEERS) },
        destination: if random.once_in(20) { random.word() as u16 } else { NODE },
        epoch: random.pick(&[3, 4, 4, 4, 5, u32::MAX]),
        sequence: near(random),
        charged_ns: random.pick(&[0, 1, LIMIT_NS, LIMIT_NS + 1, u32::MAX]),
        position_ns: near(random),
        type_id: if random.once_in(8) { UNKNOWN_TYPE } else { random.pick(&TYPES) },
        port: random.pick(&[0, 1, 2, 3, 15, 16, 0xffff]),
        arrival_ns: random.word(),
    };
    let mut frame = if header.kind == 3 && !random.once_in(10) {
        header.report(&body(random))
    } else {
        let length = random.below(120) as usize;
        let inner = random.bytes(length);
        header.frame(&inner)
    };
    if random.once_in(8) {
        let at = 12 + random.below(frame.len() as u64 - 12) as usize;
        frame[at] = random.word() as u8;
    }
    match random.below(8) {
        0 => frame.truncate(SHORTEST + random.below((frame.len() - SHORTEST) as u64 + 1) as usize),
        1 => frame.resize(frame.len() + 9, 0),
        _ => {}
    }
    frame
}

/// A number near zero of a counter that wraps, seldom far away.
fn near(random: &mut Random) -> u32 {
    if random.once_in(10) {
        random.pick(&[1 << 31, (1 << 31) - 1, 1 << 30])
    } else {
        (random.below(64) as u32).wrapping_sub(32)
    }
}

fn body(random: &mut Random) -> Load {
    Load {
        backlog_ns: random.word() as u32,
        queued_milli: random.word() as u32,
        received_ns: near(random),
        received_epoch: random.pick(&[0, 3, EPOCH, EPOCH, 5]),
        received_frames: random.word() as u32,
        busy_milli: random.word() as u16,
        workers: random.below(3) as u16,
        interval_us: random.below(3) as u32 * 100,
    }
}

fn fill(node: &Node<'_>, random: &mut Random) -> Vec<Account> {
    let account = |id: u16, random: &mut Random| {
        let account = Account {
            received: Received { position_ns: near(random), epoch: random.pick(&[0, 3, 4, 4, 5, u32::MAX]) },
            frames: random.below(100),
            stamp: ReportStamp { sequence: near(random), epoch: random.pick(&[0, 3, 4, 4, 5, u32::MAX]) },
            sent_ns: random.word(),
            sent_frames: random.word(),
            reports: random.word(),
        };
        node.set_load(
            id,
            &LoadRow {
                received_ns: account.received.position_ns,
                received_epoch: account.received.epoch,
                received_frames: account.frames,
                report_seq: account.stamp.sequence,
                report_epoch: account.stamp.epoch,
                sent_ns: account.sent_ns,
                sent_frames: account.sent_frames,
                ..LoadRow::default()
            },
        );
        node.set(Place::load(id, offset_of!(LoadRow, reports)), account.reports);
        account
    };
    (0..NODES).map(|id| account(id, random)).collect()
}

fn expected(frame: &[u8], at: Arrival, accounts: &[Account], now_ns: u64) -> Expected {
    let drops = |reason| Expected::left(Reason::SeenLink, XDP_DROP, reason);
    if frame.u16(12) != Some(ETHERTYPE_LINK) {
        return Expected::left(Reason::SeenLink, XDP_PASS, Reason::PassLink);
    }
    let header = match Header::parse(frame, ETHERNET_BYTES) {
        Ok(header) => header,
        Err(reason) => return drops(reason),
    };
    if header.destination != NODE {
        return drops(Reason::DropLinkDestination);
    }
    if !PEERS.contains(&header.source) {
        return drops(Reason::DropLinkSource);
    }
    let account = &accounts[usize::from(header.source)];
    match header.kind {
        Kind::Forward => Expected { words: position(&header, account, 1), ..forward(&header, at) },
        // What would leave is not even an Ethernet header.
        Kind::Result if frame.len() < OVERHEAD_BYTES + ETHERNET_BYTES => drops(Reason::DropLinkTruncated),
        Kind::Result if [PORT, OTHER_PORT].contains(&header.port.into()) => {
            let counted = vec![Reason::SeenLink, Reason::ResultReturned];
            Expected { end: End::Returned, counted, words: Vec::new(), times: Vec::new() }
        }
        Kind::Result => drops(Reason::DropLinkPort),
        Kind::Report => match Report::parse(frame, OVERHEAD_BYTES) {
            Ok(body) => report(&header, &body, account, now_ns),
            Err(reason) => drops(reason),
        },
    }
}

fn forward(header: &Header, at: Arrival) -> Expected {
    let Some(function) = TYPES.iter().position(|known| *known == header.type_id) else {
        return Expected::left(Reason::SeenLink, XDP_DROP, Reason::DropLinkType);
    };
    // The last function is not in use, and nothing is bound on the other port.
    if function + 1 == TYPES.len() || at.interface != LINK {
        return Expected::left(Reason::SeenLink, XDP_DROP, Reason::DropLinkNoSocket);
    }
    let charged_ns = header.charged_ns.min(LIMIT_NS);
    let end = End::Queued { function: function as u16, charged_ns, origin: Origin::Peer };
    Expected { end, counted: vec![Reason::SeenLink, Reason::ForwardQueued], words: Vec::new(), times: Vec::new() }
}

/// What a frame of a peer with so many packets writes into its account.
fn position(header: &Header, account: &Account, frames: u64) -> Vec<(Place, u64)> {
    let place = |offset| Place::load(header.source, offset);
    let after = take_position(account.received, header);
    let epoch = after.unwrap_or(account.received).epoch;
    let before = if epoch == account.received.epoch { account.frames } else { 0 };
    // Frames are counted by boot: one of an older boot counts nowhere.
    let count = if header.epoch == epoch { before + frames } else { before };
    let received = after.unwrap_or(account.received).to_word();
    vec![(place(offset_of!(LoadRow, received_ns)), received), (place(offset_of!(LoadRow, received_frames)), count)]
}

fn report(header: &Header, body: &Report, account: &Account, now_ns: u64) -> Expected {
    let place = |offset| Place::load(header.source, offset);
    let mut words = position(header, account, 0);
    if !account.stamp.precedes(header.epoch, header.sequence) {
        return Expected { words, ..Expected::left(Reason::SeenLink, XDP_DROP, Reason::DropReportOld) };
    }
    let update = take_report(body, EPOCH, account.sent_ns as u32, account.sent_frames as u32, now_ns);
    let two = |first: u32, second: u32| u64::from(first) | u64::from(second) << 32;
    let shares = u32::from(body.workers) | u32::from(body.busy_milli) << 16;
    words.extend([
        (place(offset_of!(LoadRow, report_seq)), two(header.sequence, header.epoch)),
        (place(offset_of!(LoadRow, backlog_ns)), two(update.backlog_ns, update.acked_ns)),
        (place(offset_of!(LoadRow, queued_milli)), two(body.queued_milli, shares)),
        (place(offset_of!(LoadRow, acked_frames)), update.acked_frames.into()),
        (place(offset_of!(LoadRow, reports)), account.reports.wrapping_add(1)),
    ]);
    let times = vec![
        (place(offset_of!(LoadRow, reported_at_ns)), 0),
        (place(offset_of!(LoadRow, valid_until_ns)), update.valid_until_ns - now_ns),
    ];
    Expected { words, times, ..Expected::left(Reason::SeenLink, XDP_DROP, Reason::ReportTaken) }
}

#[test]
fn frames_of_peers() {
    inside("frames_of_peers", |site| {
        let seed = Random::seed();
        let mut random = Random::new(seed);
        let mut node = site.node(Params { node: NODE, nodes: NODES, epoch: EPOCH, ..Params::DEFAULT });
        for (index, type_id) in (0..).zip(TYPES) {
            let limit_ns = if index + 1 == TYPES.len() as u32 { 0 } else { LIMIT_NS };
            node.set_function(index, FunctionRow { type_id: type_id.into(), limit_ns, ..FunctionRow::default() });
        }
        for id in 0..5 {
            let flags = if PEERS.contains(&id) { PEER_PRESENT } else { 0 };
            node.set_peer(id, PeerRow { flags, ..PeerRow::default() });
        }
        let mut comparison = Comparison::new(&node);
        let mut ends = [0; 3];
        for case in 0..CASES {
            let accounts = fill(&node, &mut random);
            let frame = frame(&mut random);
            let at = Arrival { interface: LINK, queue: random.below(2) as u32, metadata: 0 };
            let expected = expected(&frame, at, &accounts, 1 << 40);
            let found = comparison.run(&mut node, "dp_link", at, &frame, std::slice::from_ref(&expected));
            if let Err(wrong) = found {
                let what = format!("DATAPLANE_SEED={seed}, case {case}, frame {frame:02x?}");
                panic!("{what}:\n{wrong}\nexpected: {expected:?}\naccounts: {accounts:?}");
            }
            ends[match expected.end {
                End::Queued { .. } => 0,
                End::Returned => 1,
                _ if expected.counted.contains(&Reason::ReportTaken) => 2,
                _ => continue,
            }] += 1;
        }
        comparison.check_all(&node).unwrap_or_else(|wrong| panic!("DATAPLANE_SEED={seed}: {wrong}"));
        println!("{CASES} cases: {ends:?} forwards queued, results returned, reports taken");
        assert!(ends.iter().all(|count| *count > CASES / 50), "{ends:?}");
    });
}

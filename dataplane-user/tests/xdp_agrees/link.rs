//! `dp_link` against `Header`, `Report`, `load` and `feedback` of `dataplane_common`.

use std::mem::offset_of;

use dataplane_common::decay::Rate;
use dataplane_common::feedback;
use dataplane_common::held;
use dataplane_common::load::{
    Erl, LoadStamp, Received, ReportStamp, Row, acked_ns, newer, take_position, valid_for_ns,
};
use dataplane_common::maps::{FLOW_SLOTS, FlowRow, FunctionRow, LoadRow, PEER_PRESENT, Params, PeerRow, SignalsRow};
use dataplane_common::meta::{Metadata, Origin};
use dataplane_common::order::{Place as Turn, Released};
use dataplane_common::packet::Packet as _;
use dataplane_common::policy::{Needs, needing};
use dataplane_common::reason::Reason;
use dataplane_common::tuning::Tuning;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{
    ETHERTYPE_LINK, FLAG_DIRECT, FLAG_HELD, FLAG_UNDONE, Header, Kind, NO_FLOW, OVERHEAD_BYTES, Report,
};
use dataplane_user::worker::monotonic_ns;

use super::compare::{Comparison, End, Expected, Number, Run, XDP_DROP, XDP_PASS};
use super::generate::{SHORTEST, TYPES, UNKNOWN_TYPE};
use crate::support::frames::{Interconnect, Load};
use crate::support::node::{Arrival, LINK, Node, OTHER_PORT, PORT, STRANGER, WORKERS, inside};
use crate::support::random::Random;
use crate::support::words::{Place, two, words_of};

/// Cases of each node.
const CASES: u64 = 10_000;
const NODE: u16 = 2;
const NODES: u16 = 6;
const EPOCH: u32 = 0x0003_0004;
/// Nodes 0, 1 and 3 are peers; 4 has a row that is not in use, 5 has none.
const PEERS: [u16; 3] = [0, 1, 3];
const LIMIT_NS: u32 = 100_000;
/// Flows of results: of the table, and beyond it.
const FLOWS: [u16; 5] = [0, 7, FLOW_SLOTS as u16 - 1, FLOW_SLOTS as u16, NO_FLOW];

/// A node, and what its tables hold before a frame.
/// Places for packets that are kept.
const HELD_PLACES: u32 = WORKERS * held::PLACES;

struct Subject {
    params: Params,
    rows: Vec<LoadRow>,
    signals: SignalsRow,
}

fn frame(random: &mut Random, rows: &[LoadRow]) -> Vec<u8> {
    let source = if random.once_in(8) { random.pick(&[2, 4, 5, 6, 0xffff]) } else { random.pick(&PEERS) };
    let header = Interconnect {
        mac: [[2; 6], [4; 6]],
        version: if random.once_in(20) { random.word() as u8 } else { 3 },
        kind: if random.once_in(20) { random.word() as u8 } else { 1 + random.below(4) as u8 },
        hops: if random.once_in(20) { random.word() as u8 } else { 1 },
        // Seldom with the number of a key.
        flags: match random.below(9) {
            0 => random.word() as u8,
            1 | 2 => random.below(8) as u8,
            _ => 0,
        },
        source,
        destination: if random.once_in(20) { random.word() as u16 } else { NODE },
        epoch: random.pick(&[3, 4, 4, 4, 5, u32::MAX]),
        sequence: near(random),
        charged_ns: random.pick(&[0, 1, 5_000, LIMIT_NS, LIMIT_NS + 1, u32::MAX]),
        position_ns: if random.once_in(2) { near(random) } else { random.below(20_000) as u32 },
        type_id: if random.once_in(8) { UNKNOWN_TYPE } else { random.pick(&TYPES) },
        port: random.pick(&[0, 0, 0, 1, 2, 3, 15, 16, 0xffff]),
        flow: random.pick(&FLOWS),
        arrival_ns: arrival(random, rows.get(usize::from(source))),
        flow_sequence: near(random),
        stamp_us: near(random),
        backlog_ns: random.pick(&[0, 9_999, 400_000, u32::MAX]),
        received_ns: near(random),
        received_epoch: random.pick(&[0, 3, EPOCH as u16, EPOCH as u16, EPOCH as u16, 5]),
        queued: random.pick(&[0, 1, 16, 40, u16::MAX - 1, u16::MAX]),
        spent_ns: random.pick(&[0, 10_000, 1_000_000, u32::MAX]),
        held: random.pick(&[0, 1, 2, 3, u32::MAX]),
        generation: random.pick(&[0, 1, 2]),
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

/// When the packet of a result arrived: an age ago or in the future. Where the first response of a node tells the time
/// of the run, also lately.
fn arrival(random: &mut Random, row: Option<&LoadRow>) -> u64 {
    if row.is_some_and(|row| row.response_ns == 0) {
        monotonic_ns() - random.below(2_000_000)
    } else {
        random.pick(&[0, 1, u64::MAX, u64::MAX - 1])
    }
}

fn body(random: &mut Random) -> Load {
    Load {
        behind: random.word(),
        mean_backlog_ns: random.word() as u32,
        received_frames: random.word() as u32,
        interval_us: random.pick(&[0, 100, 200, 1_000_000, 1_000_001, u32::MAX]),
        workers: random.below(3) as u16,
        busy_milli: random.word() as u16,
        memory_milli: random.word() as u16,
        limit_ns: random.once_in(2).then(|| random.word() as u32),
    }
}

fn row(random: &mut Random) -> LoadRow {
    let epoch = |random: &mut Random| random.pick(&[0, 3, 4, 4, 5, u32::MAX]);
    let now_ns = monotonic_ns();
    let longest = random.pick(&[1, 1 << 10, 1 << 20, 1 << 28]);
    let recent_ns = now_ns - random.below(longest);
    LoadRow {
        backlog_ns: random.pick(&[0, 10_000, 500_000, u32::MAX]),
        acked_ns: near(random),
        valid_until_ns: random.word(),
        queued_milli: random.word() as u32,
        workers: random.below(4) as u16,
        busy_milli: random.word() as u16,
        sent_ns: random.word() << 32 | u64::from(near(random)),
        sent_frames: random.word(),
        reported_at_ns: random.pick(&[0, recent_ns, u64::MAX]),
        mean_backlog_ns: random.pick(&[0, 20_000, 300_000]),
        speed_milli: random.pick(&[0, 1, 500, 1_000, u16::MAX]),
        memory_milli: random.word() as u16,
        behind: random.word(),
        pressure_ns: random.pick(&[0, 30_000, u32::MAX]),
        pressure_us: random.pick(&[0, (recent_ns >> 10) as u32]),
        marked_ns: random.word() as u32,
        marked_frames: random.word() as u32,
        peak_ns: random.pick(&[0, 1_000, 5_000_000, u32::MAX]),
        peak_us: random.pick(&[0, (recent_ns >> 10) as u32]),
        response_ns: random.pick(&[0, 1, 30_000, u32::MAX]),
        service_ns: random.pick(&[0, 1, 8_000, u32::MAX]),
        completed_frames: random.word(),
        acked_frames: random.word() as u32,
        flags: random.word() as u32,
        received_ns: near(random),
        received_epoch: epoch(random),
        received_frames: random.below(100),
        received_sequence: near(random),
        report_seq: near(random),
        report_epoch: epoch(random),
        reports: random.word(),
        stamp_us: near(random),
        stamp_epoch: epoch(random),
        piggybacked: random.word(),
        transit_ns: random.pick(&[0, 1, 12_000, u32::MAX]),
        transit_bytes: random.pick(&[0, 1, 600, u32::MAX]),
        limit_ns: random.word() as u32,
        limited: random.below(2) as u32,
        ..LoadRow::default()
    }
}

impl Subject {
    fn fill(&mut self, node: &Node<'_>, random: &mut Random) {
        self.rows = (0..NODES).map(|_| row(random)).collect();
        for (id, row) in (0..).zip(&self.rows) {
            node.set_load(id, row);
        }
        self.signals = SignalsRow {
            service_ns: random.pick(&[0, 1_000, 50_000, u32::MAX]),
            deviation_ns: random.pick(&[0, 1, 50_000, u32::MAX]),
            relax: random.pick(&[0, 1 << 20, u32::MAX]),
            ..SignalsRow::default()
        };
        node.set_signals(&self.signals);
        for place in 0..4 {
            let states = [held::State::Free, held::State::Waiting, held::State::Done, held::State::Undone];
            let word = held::Word { generation: random.pick(&[0, 1, 2]), state: random.pick(&states) };
            node.set(Place::held(place), word.to_word());
        }
        for flow in FLOWS.into_iter().filter(|flow| usize::from(*flow) < FLOW_SLOTS) {
            // A CPU that the program cannot take for its own.
            let recent_ns = monotonic_ns() - random.below(1 << 18);
            let next = near(random);
            let released =
                random.pick(&[Released::by_worker(next), Released::by_xdp(next, u32::MAX, recent_ns)]).to_word();
            node.set(Place::flow(flow, offset_of!(FlowRow, released)), released);
        }
    }

    /// What is expected of a frame, for every time at which it may have been taken.
    fn expected(&self, run: &Run<'_>) -> Vec<Expected> {
        let drops = |reason| vec![Expected::left(Reason::SeenLink, XDP_DROP, reason)];
        if run.frame.u16(12) != Some(ETHERTYPE_LINK) {
            return vec![Expected::left(Reason::SeenLink, XDP_PASS, Reason::PassLink)];
        }
        let header = match Header::parse(run.frame, ETHERNET_BYTES) {
            Ok(header) => header,
            Err(reason) => return drops(reason),
        };
        if header.destination != NODE {
            return drops(Reason::DropLinkDestination);
        }
        if !PEERS.contains(&header.source) {
            return drops(Reason::DropLinkSource);
        }
        if header.key() != 0 {
            // This node has no keys.
            return drops(Reason::DropLinkKey);
        }
        let report = Report::parse(run.frame, OVERHEAD_BYTES);
        match (header.kind, report) {
            // What would leave is not even an Ethernet header.
            (Kind::Result, _) if header.length > 0 && run.frame.len() < OVERHEAD_BYTES + ETHERNET_BYTES => {
                return drops(Reason::DropLinkTruncated);
            }
            (Kind::Report, Err(reason)) => return drops(reason),
            _ => {}
        }
        let clocks = clocks(run, &header, report.ok()).into_iter();
        clocks
            .map(|now_ns| match (header.kind, report) {
                (Kind::Forward, _) => self.forward(run, &header, now_ns),
                (Kind::Report, Ok(report)) => self.report(&header, &report, now_ns),
                (Kind::Pull, _) => self.pull(run, &header, now_ns),
                _ => self.result(run, &header, now_ns),
            })
            .collect()
    }

    fn row(&self, header: &Header) -> LoadRow {
        self.rows[usize::from(header.source)]
    }

    fn forward(&self, run: &Run<'_>, header: &Header, now_ns: u64) -> Expected {
        let (mut row, mut signals) = (self.row(header), self.signals);
        receive(&mut row, header, 1);
        let drops = |row: &LoadRow, reason| Expected {
            words: words(header.source, row, &self.signals),
            ..Expected::left(Reason::SeenLink, XDP_DROP, reason)
        };
        let Some(function) = TYPES.iter().position(|known| *known == header.type_id) else {
            return drops(&row, Reason::DropLinkType);
        };
        // The last function is not in use.
        if function + 1 == TYPES.len() || run.at.interface == STRANGER {
            return drops(&row, Reason::DropLinkNoSocket);
        }
        let mut counted = vec![Reason::SeenLink, Reason::ForwardQueued];
        self.take_piggyback(&mut row, &mut signals, header, now_ns, &mut counted);
        let charged_ns = header.charged_ns.min(LIMIT_NS);
        let record = Metadata {
            function: function as u16,
            policy: function as u8,
            ..record(Origin::Peer, charged_ns, now_ns, NO_FLOW, 0)
        };
        let words = words(header.source, &row, &signals);
        Expected { end: End::Queued(record, Number::Given), counted, words, turns: 0 }
    }

    fn pull(&self, run: &Run<'_>, header: &Header, now_ns: u64) -> Expected {
        let (mut row, mut signals) = (self.row(header), self.signals);
        receive(&mut row, header, 0);
        let mut counted = vec![Reason::SeenLink];
        self.take_piggyback(&mut row, &mut signals, header, now_ns, &mut counted);
        let words = words(header.source, &row, &signals);
        if run.at.interface == STRANGER {
            counted.push(Reason::DropLinkNoSocket);
            return Expected { end: End::Left(XDP_DROP), counted, words, turns: 0 };
        }
        counted.push(Reason::PullQueued);
        let policy = self.params.policy as u8;
        let record = Metadata { policy, ..record(Origin::Pull, 0, now_ns, NO_FLOW, 0) };
        Expected { end: End::Queued(record, Number::Given), counted, words, turns: 0 }
    }

    fn result(&self, run: &Run<'_>, header: &Header, now_ns: u64) -> Expected {
        let (mut row, mut signals) = (self.row(header), self.signals);
        let mut counted = vec![Reason::SeenLink];
        self.take_piggyback(&mut row, &mut signals, header, now_ns, &mut counted);
        self.learn(&mut row, header, now_ns);
        let mut words = words(header.source, &row, &signals);
        if header.flags & FLAG_HELD != 0 {
            let place = Place::held(header.held);
            let undone = header.flags & FLAG_UNDONE != 0;
            let in_table = header.held < HELD_PLACES;
            let answered = in_table.then(|| held::Word::from_word(run.before.get(place)));
            let Some(after) = answered.and_then(|word| word.answered(header.generation, undone)) else {
                counted.push(Reason::DropLinkDuplicate);
                return Expected { end: End::Left(XDP_DROP), counted, words, turns: 0 };
            };
            words.push((place, after.to_word()));
            if undone {
                counted.push(Reason::UndoneTaken);
                return Expected { end: End::Left(XDP_DROP), counted, words, turns: 0 };
            }
        }
        if header.flow != NO_FLOW {
            let place = Place::flow(header.flow, offset_of!(FlowRow, released));
            let in_table = usize::from(header.flow) < FLOW_SLOTS;
            let released = in_table.then(|| Released::from_word(run.before.get(place)));
            let turn = released.map_or(Turn::Past, |released| match released.place(header.flow_sequence) {
                Turn::Next if !released.is_settled(now_ns) => Turn::Later,
                turn => turn,
            });
            match turn {
                Turn::Next => {
                    let cpu = Released::from_word(run.found(place)).cpu().unwrap_or(0);
                    let next = header.flow_sequence.wrapping_add(1);
                    words.push((place, Released::by_xdp(next, cpu, now_ns).to_word()));
                }
                Turn::Later if run.at.interface == STRANGER => {
                    counted.push(Reason::DropLinkNoSocket);
                    return Expected { end: End::Left(XDP_DROP), counted, words, turns: 0 };
                }
                Turn::Later => {
                    counted.push(Reason::ResultQueued);
                    let policy = self.params.policy as u8;
                    let (flow, number) = (header.flow, header.flow_sequence);
                    let record = Metadata { policy, ..record(Origin::Result, 0, header.arrival_ns, flow, number) };
                    return Expected { end: End::Queued(record, Number::Given), counted, words, turns: 0 };
                }
                Turn::Past if header.length > 0 => counted.push(Reason::NoteLate),
                Turn::Past => {}
            }
        }
        if header.length == 0 {
            counted.push(Reason::MarkTaken);
            return Expected { end: End::Left(XDP_DROP), counted, words, turns: 0 };
        }
        let leaves = [PORT, OTHER_PORT].contains(&header.port.into());
        counted.push(if leaves { Reason::ResultReturned } else { Reason::DropLinkPort });
        Expected { end: if leaves { End::Returned } else { End::Left(XDP_DROP) }, counted, words, turns: 0 }
    }

    fn report(&self, header: &Header, body: &Report, now_ns: u64) -> Expected {
        let (mut row, mut signals) = (self.row(header), self.signals);
        receive(&mut row, header, 0);
        let last = ReportStamp { sequence: row.report_seq, epoch: row.report_epoch };
        if !last.precedes(header.epoch, header.sequence) {
            let words = words(header.source, &row, &signals);
            return Expected { words, ..Expected::left(Reason::SeenLink, XDP_DROP, Reason::DropReportOld) };
        }
        self.take_load(&mut row, &mut signals, header, now_ns);
        let is_known = header.load.received_epoch == self.params.epoch as u16;
        let row = LoadRow {
            report_seq: header.sequence,
            report_epoch: header.epoch,
            workers: body.workers,
            busy_milli: body.busy_milli,
            mean_backlog_ns: body.mean_backlog_ns,
            memory_milli: body.memory_milli,
            behind: body.behind,
            acked_frames: if is_known { body.received_frames } else { row.sent_frames as u32 },
            valid_until_ns: now_ns + valid_for_ns(body.interval_us),
            reports: row.reports.wrapping_add(1),
            limit_ns: body.limit_ns.filter(|_| is_known).unwrap_or(0),
            limited: u32::from(is_known && body.limit_ns.is_some()),
            ..row
        };
        let words = words(header.source, &row, &signals);
        Expected { words, ..Expected::left(Reason::SeenLink, XDP_DROP, Reason::ReportTaken) }
    }

    fn take_piggyback(
        &self,
        row: &mut LoadRow,
        signals: &mut SignalsRow,
        header: &Header,
        now_ns: u64,
        counted: &mut Vec<Reason>,
    ) {
        if self.params.piggyback != 0 && self.take_load(row, signals, header, now_ns) {
            row.piggybacked = row.piggybacked.wrapping_add(1);
            counted.push(Reason::NotePiggyback);
        }
    }

    fn take_load(&self, row: &mut LoadRow, signals: &mut SignalsRow, header: &Header, now_ns: u64) -> bool {
        let last = LoadStamp { stamp_us: row.stamp_us, epoch: row.stamp_epoch };
        if !last.precedes(header.epoch, header.load.stamp_us) {
            return false;
        }
        let rate = Rate::from_word(signals.relax);
        let predicted_ns = row.predicted_ns(now_ns, rate, self.params.tuning.gain_milli);
        (row.stamp_us, row.stamp_epoch) = (header.load.stamp_us, header.epoch);
        row.backlog_ns = header.load.backlog_ns;
        row.acked_ns = acked_ns(&header.load, self.params.epoch, row.sent_ns as u32);
        row.queued_milli = header.load.queued_milli();
        row.reported_at_ns = now_ns;
        (row.marked_ns, row.marked_frames) = (row.sent_ns as u32, row.sent_frames as u32);
        if self.params.policies & needing(Needs::PREDICTION) != 0 {
            (row.pressure_ns, row.pressure_us) = (row.in_flight_ns(), (now_ns >> 10) as u32);
            let found_ns = row.erl_ns(Erl::Ack, now_ns).min(u32::MAX.into()) as u32;
            signals.deviation_ns = feedback::median(signals.deviation_ns, predicted_ns.abs_diff(found_ns));
        }
        true
    }

    fn learn(&self, row: &mut LoadRow, header: &Header, now_ns: u64) {
        let response_ns = feedback::response_ns(now_ns, header.arrival_ns);
        let (charged_ns, served_ns) = (header.charged_ns, header.position_ns);
        row.completed_frames = row.completed_frames.wrapping_add(1);
        if header.length == 0 && header.flags & FLAG_DIRECT == 0 {
            return;
        }
        row.response_ns = feedback::mean(row.response_ns, response_ns, 3);
        row.service_ns = feedback::mean(row.service_ns, served_ns, 3);
        if self.params.policies & needing(Needs::RESULTS) != 0 {
            let now_us = (now_ns >> 10) as u32;
            let age_ns = u64::from(now_us.wrapping_sub(row.peak_us)) << 10;
            let forget = u64::from(self.signals.service_ns) * u64::from(self.params.tuning.peak_milli) / 1000;
            row.peak_ns = feedback::peak(row.peak_ns, response_ns, age_ns, forget.min(u32::MAX.into()) as u32);
            row.peak_us = now_us;
        }
        row.speed_milli = feedback::speed(row.speed_milli, charged_ns, served_ns);
        if header.length == 0 {
            return;
        }
        row.transit_ns = feedback::mean(row.transit_ns, response_ns.saturating_sub(header.spent_ns), 6);
        row.transit_bytes = feedback::mean(row.transit_bytes, header.length.into(), 6);
    }
}

/// Enters a frame with so many packets into the account of its peer.
fn receive(row: &mut LoadRow, header: &Header, frames: u64) {
    let before = Received { position_ns: row.received_ns, epoch: row.received_epoch };
    let after = take_position(before, header).unwrap_or(before);
    if after.epoch != before.epoch {
        (row.received_frames, row.received_sequence) = (0, 0);
    }
    // Frames are counted by boot: one of an older boot counts nowhere.
    if frames > 0 && header.epoch == after.epoch {
        row.received_frames += frames;
        if newer(header.sequence, row.received_sequence) {
            row.received_sequence = header.sequence;
        }
    }
    (row.received_ns, row.received_epoch) = (after.position_ns, after.epoch);
}

fn record(origin: Origin, charged_ns: u32, arrival_ns: u64, flow: u16, flow_sequence: u32) -> Metadata {
    let arrival_16ns = Metadata::arrival_of(arrival_ns);
    Metadata {
        function: 0,
        charged_ns,
        arrival_16ns,
        position_ns: 0,
        sequence: 0,
        origin,
        policy: 0,
        flow,
        flow_sequence,
    }
}

/// The words of a peer's row, and the one of the signals that follows its loads.
fn words(node: u16, row: &LoadRow, signals: &SignalsRow) -> Vec<(Place, u64)> {
    let deviation = (Place::signals(offset_of!(SignalsRow, deviation_ns)), two(signals.deviation_ns, 0));
    let words = words_of(row).into_iter().enumerate();
    words.map(|(index, word)| (Place::load(node, 8 * index), word)).chain([deviation]).collect()
}

/// The times at which the frame may have been taken. The program tells the time when it takes a load or a report, and
/// nearly when it gives a packet to a worker; a first response tells it, too. What else depends on the time does so by
/// units of 1024 ns.
fn clocks(run: &Run<'_>, header: &Header, report: Option<Report>) -> Vec<u64> {
    let (from, to) = run.outcome.time;
    let place = |offset| Place::load(header.source, offset);
    let reported = place(offset_of!(LoadRow, reported_at_ns));
    let valid = place(offset_of!(LoadRow, valid_until_ns));
    let promised_ns = report.map_or(0, |report| valid_for_ns(report.interval_us));
    let response = place(offset_of!(LoadRow, response_ns));
    let response_ns = if run.before.get(response) as u32 == 0 { run.found(response) as u32 } else { 0 };
    let told = [
        run.found(reported),
        run.found(valid).wrapping_sub(promised_ns),
        header.arrival_ns.wrapping_add(response_ns.into()),
    ];
    if let Some(now_ns) = told.into_iter().find(|time| (from..=to).contains(time)) {
        return vec![now_ns];
    }
    if matches!(header.kind, Kind::Forward | Kind::Pull) && !run.outcome.metadata.is_empty() {
        return run.clocks(false);
    }
    (from >> 10..=to >> 10).map(|us| (us << 10).clamp(from, to)).collect()
}

#[test]
fn frames_of_peers() {
    inside("frames_of_peers", |site| {
        let base = Params { node: NODE, nodes: NODES, epoch: EPOCH, ..Params::DEFAULT };
        let wanting = needing(Needs::PREDICTION) | needing(Needs::RESULTS);
        let slow = Tuning { relax_milli: 100_000, gain_milli: 300, peak_milli: 1_000, ..Tuning::DEFAULT };
        let variants = [
            base,
            Params { piggyback: 1, ..base },
            Params { policies: base.policies | wanting, ..base },
            Params { policies: base.policies | wanting, piggyback: 1, tuning: slow, ..base },
        ];
        let mut ends = [0; 4];
        for (index, params) in (0..).zip(variants) {
            let mut random = Random::new(Random::seed() + index);
            let mut node = site.node(params);
            furnish(&mut node);
            let mut subject = Subject { params, rows: Vec::new(), signals: SignalsRow::default() };
            let mut comparison = Comparison::new(&node);
            for case in 0..CASES {
                subject.fill(&node, &mut random);
                let frame = frame(&mut random, &subject.rows);
                let interface = if random.once_in(20) { STRANGER } else { LINK };
                let at = Arrival { interface, queue: random.below(2) as u32, metadata: 0 };
                let found = comparison.run(&mut node, "dp_link", (at, &frame, 0), |run| subject.expected(run));
                let expected = found.unwrap_or_else(|wrong| {
                    panic!(
                        "DATAPLANE_SEED={}, case {case} of {params:?}, {at:?}, frame {frame:02x?}:\n{wrong}\n{:x?}",
                        Random::seed(),
                        subject.rows
                    )
                });
                ends[match &expected.end {
                    End::Queued(record, _) if record.origin == Origin::Peer => 0,
                    End::Returned => 1,
                    End::Queued(..) => 2,
                    _ if expected.counted.contains(&Reason::ReportTaken) => 3,
                    _ => continue,
                }] += 1;
            }
            comparison.check_all(&node).unwrap_or_else(|wrong| panic!("{params:?}: {wrong}"));
        }
        let cases = 4 * CASES;
        println!("{cases} cases: {ends:?} forwards queued, results returned, results held, reports taken");
        assert!(ends.iter().all(|count| *count > cases / 50), "{ends:?}");
    });
}

/// Gives a node its functions, each with a policy of its own, and its peers.
fn furnish(node: &mut Node<'_>) {
    for (index, type_id) in (0..).zip(TYPES) {
        let limit_ns = if index + 1 == TYPES.len() as u32 { 0 } else { LIMIT_NS };
        node.set_function(
            index,
            FunctionRow { type_id: type_id.into(), limit_ns, policy: index, ..FunctionRow::default() },
        );
    }
    for id in 0..5 {
        let flags = if PEERS.contains(&id) { PEER_PRESENT } else { 0 };
        node.set_peer(id, PeerRow { flags, ..PeerRow::default() });
    }
}

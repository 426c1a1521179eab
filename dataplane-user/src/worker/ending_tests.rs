//! How packets of flows end: the test is the XDP program of the node, which numbers packets on arrival, sends the results
//! whose turn it is, and gives all others to the worker.

use dataplane_common::maps::FlowRow;
use dataplane_common::tuning::SHORTEST;

use super::*;
use crate::resequence::Resequencer;

/// The flow of most tests, and another one.
const FLOW: u16 = 9;
const OTHER: u16 = 10;
/// Results that the worker may hold.
const PLACES: u16 = 64;
/// Longer than any test takes, however slow the machine is.
const ENDLESS: Duration = Duration::from_secs(3600);
const DISCIPLINES: [u32; 3] = [FIFO, SHORTEST, CLASS];

/// The result of [`answer`] as a peer sends it.
const RESULT: Interconnect = Interconnect { kind: 2, source: 3, destination: NODE, port: 0, ..FORWARD };

/// The same for another port.
fn result_to(port: u16) -> Interconnect {
    Interconnect { port, ..RESULT }
}

/// A worker that never gives a result up.
fn rig(discipline: u32) -> Rig {
    rig_with(discipline, ENDLESS)
}

fn rig_with(discipline: u32, patience: Duration) -> Rig {
    let mut rig = Rig::with(256, CHECKS, discipline);
    rig.worker.held = Resequencer::new(PLACES, patience.as_nanos() as u64);
    rig
}

/// A packet whose result can be told from others.
fn question(name: u8) -> Packet {
    Packet { payload: vec![name; 8], ..Packet::new(0xff01) }
}

/// Its result.
fn answer(name: u8) -> Vec<u8> {
    question(name).answer(&[]).frame()
}

/// A packet that will be dropped: its checksum is wrong.
fn broken(name: u8) -> Vec<u8> {
    let packet = question(name);
    with(packet.frame(), packet.end() - 1, &[!name])
}

impl Rig {
    /// A packet arrives at the port as number `number` of a flow.
    fn arrive(&mut self, flow: u16, number: u32, frame: &[u8]) {
        self.arrive_charged(flow, number, 1_000, frame);
    }

    fn arrive_charged(&mut self, flow: u16, number: u32, charged_ns: u32, frame: &[u8]) {
        let charged = self.charge(PORT, charged_ns);
        let metadata = Metadata { flow, flow_sequence: number, ..self.metadata(PORT, charged, Builtin::Forward) };
        assert!(self.kernels[PORT].deliver_with_metadata(&metadata.emit(), frame));
    }

    /// The result of number `number`, sent away before, comes back; false when it was sent on at once.
    fn come_back(&mut self, flow: u16, number: u32, frame: &[u8]) -> bool {
        if self.xdp_takes_turn(flow, number) {
            return false;
        }
        self.hold(flow, number, frame);
        true
    }

    /// XDP gives a result to the worker, whatever its turn.
    fn hold(&mut self, flow: u16, number: u32, frame: &[u8]) {
        let charged = self.charge(LINK, 0);
        let metadata = Metadata {
            origin: Origin::Result,
            flow,
            flow_sequence: number,
            ..self.metadata(LINK, charged, Builtin::Forward)
        };
        assert!(self.kernels[LINK].deliver_with_metadata(&metadata.emit(), frame));
    }

    /// What XDP does before it sends a result on.
    fn xdp_takes_turn(&self, flow: u16, number: u32) -> bool {
        let row = self.tables.flows.row(flow.into());
        let released = row.word(offset_of!(FlowRow, released));
        let next = u64::from(number);
        released.compare_exchange(next, next + 1, Relaxed, Relaxed).is_ok()
    }

    /// The number that leaves next.
    fn next(&self, flow: u16) -> u64 {
        self.tables.flows.row(flow.into()).word(offset_of!(FlowRow, released)).load(Relaxed)
    }

    /// Names of the results that left by the port since the last call.
    fn left_by_port(&mut self) -> Vec<u8> {
        self.take(PORT).iter().map(|frame| frame[frame.len() - 1]).collect()
    }
}

#[test]
fn a_result_waits_until_the_one_before_it_has_left() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        rig.arrive(FLOW, 1, &question(1).frame());
        rig.arrive(FLOW, 2, &question(2).frame());
        while rig.worker.step() > 0 {}
        assert!(rig.left_by_port().is_empty(), "number 0 is somewhere else");
        assert_eq!(rig.left(), (0, 0), "what waits for its turn is no work");
        assert_eq!(rig.worker_word(offset_of!(WorkerRow, frames_in_use)), pair(2, FRAMES), "but takes memory");
        // It comes back and is sent by the XDP program.
        assert!(!rig.come_back(FLOW, 0, &RESULT.frame(&answer(0))));
        assert_eq!(rig.worker.step(), 2);
        assert_eq!(rig.left_by_port(), [1, 2]);
        assert_eq!(rig.next(FLOW), 3);
        rig.counted(&[(Reason::SeenLocal, 2), (Reason::SentResult, 2)]);
        rig.finish();
    }
}

#[test]
fn flows_do_not_wait_for_each_other() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        rig.arrive(FLOW, 1, &question(1).frame());
        rig.arrive(OTHER, 0, &question(2).frame());
        while rig.worker.step() > 0 {}
        assert_eq!(rig.left_by_port(), [2]);
        assert!(rig.xdp_takes_turn(FLOW, 0));
        rig.worker.step();
        assert_eq!(rig.left_by_port(), [1]);
        rig.finish();
    }
}

#[test]
fn results_in_turn_leave_at_once() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        for number in 0..20 {
            rig.arrive(FLOW, number, &question(number as u8).frame());
        }
        while rig.worker.step() > 0 {}
        assert_eq!(rig.left_by_port(), (0..20).collect::<Vec<_>>());
        rig.finish();
    }
}

#[test]
fn the_shortest_of_a_flow_does_not_overtake() {
    let mut rig = rig(SHORTEST);
    rig.arrive_charged(FLOW, 0, 9_000_000, &question(0).frame());
    rig.arrive_charged(FLOW, 1, 100, &question(1).frame());
    rig.arrive_charged(OTHER, 0, 3_000, &question(7).frame());
    while rig.worker.step() > 0 {}
    assert_eq!(rig.left_by_port(), [7, 0, 1]);
    rig.finish();
}

#[test]
fn a_dropped_packet_leaves_its_turn_to_the_next() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        rig.arrive(FLOW, 0, &broken(0));
        rig.arrive(FLOW, 1, &question(1).frame());
        while rig.worker.step() > 0 {}
        assert_eq!(rig.left_by_port(), [1]);
        assert_eq!(rig.next(FLOW), 2);
        rig.counted(&[(Reason::SeenLocal, 2), (Reason::DropUdpChecksum, 1), (Reason::SentResult, 1)]);
        rig.finish();
    }
}

#[test]
fn the_turn_of_a_dropped_packet_waits_for_those_before_it() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        rig.arrive(FLOW, 1, &broken(1));
        rig.arrive(FLOW, 2, &question(2).frame());
        while rig.worker.step() > 0 {}
        assert_eq!((rig.left_by_port(), rig.next(FLOW)), (vec![], 0));
        assert_eq!(rig.worker_word(offset_of!(WorkerRow, frames_in_use)), pair(1, FRAMES), "a mark has no frame");
        assert!(rig.xdp_takes_turn(FLOW, 0));
        rig.worker.step();
        assert_eq!((rig.left_by_port(), rig.next(FLOW)), (vec![2], 3));
        rig.counted(&[(Reason::SeenLocal, 2), (Reason::DropUdpChecksum, 1), (Reason::SentResult, 1)]);
        rig.finish();
    }
}

/// A second port beside those of the rig.
fn add_port(rig: &mut Rig) -> Kernel {
    let (rings, kernel) = fake::open(rig.worker.umem_mut(), &FakeConfig::new(64)).unwrap();
    rig.worker.add_socket(2, InterfaceKind::Port, FakePort { rings, shared: Arc::default() });
    kernel
}

#[test]
fn a_result_of_a_peer_leaves_by_the_port_its_packet_came_by() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        let mut second = add_port(&mut rig);
        let padded = |port, name| [result_to(port).frame(&answer(name)), vec![0xaa; 30]].concat();
        assert!(rig.come_back(FLOW, 1, &padded(2, 1)));
        assert!(rig.come_back(FLOW, 2, &padded(0, 2)));
        while rig.worker.step() > 0 {}
        assert_eq!((rig.take(PORT), second.transmit()), (vec![], None));
        assert!(rig.xdp_takes_turn(FLOW, 0));
        assert_eq!(rig.worker.step(), 2);
        assert_eq!(second.transmit(), Some(answer(1)), "without the header and what Ethernet put behind");
        assert_eq!((second.transmit(), second.complete(1)), (None, 1));
        assert_eq!(rig.take(PORT), [answer(2)]);
        assert!(rig.take(LINK).is_empty());
        rig.counted(&[(Reason::SeenResult, 2), (Reason::SentResult, 2)]);
        rig.finish();
    }
}

#[test]
fn a_result_whose_turn_comes_on_its_way_to_the_worker_leaves_at_once() {
    let mut rig = rig(FIFO);
    assert!(rig.come_back(FLOW, 1, &RESULT.frame(&answer(1))));
    assert!(rig.xdp_takes_turn(FLOW, 0));
    rig.worker.step();
    assert_eq!(rig.left_by_port(), [1]);
    rig.finish();
}

#[test]
fn local_results_and_those_of_peers_wait_for_each_other() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        for number in [1, 3] {
            rig.arrive(FLOW, number, &question(number as u8).frame());
        }
        for number in [4, 2] {
            assert!(rig.come_back(FLOW, number, &RESULT.frame(&answer(number as u8))));
        }
        while rig.worker.step() > 0 {}
        assert!(rig.left_by_port().is_empty());
        assert!(rig.xdp_takes_turn(FLOW, 0));
        rig.worker.step();
        assert_eq!(rig.left_by_port(), [1, 2, 3, 4]);
        rig.finish();
    }
}

#[test]
fn a_bad_result_is_counted_and_leaves_its_turn_to_the_next() {
    let good = RESULT.frame(&answer(1));
    let bad = [
        ("a port that the node does not have", result_to(7).frame(&answer(1))),
        ("no port", result_to(u16::MAX).frame(&answer(1))),
        ("a link", result_to(LINK as u16).frame(&answer(1))),
        ("no result", Interconnect { kind: 1, ..RESULT }.frame(&answer(1))),
        ("another version", Interconnect { version: 9, ..RESULT }.frame(&answer(1))),
        ("less than it says", good[..good.len() - 1].to_vec()),
        ("less than a header", good[..frames::OVERHEAD - 1].to_vec()),
        ("next to nothing", good[..1].to_vec()),
        ("less than an Ethernet header", RESULT.frame(&[0; 13])),
    ];
    for (what, frame) in bad {
        let mut rig = rig(FIFO);
        assert!(rig.come_back(FLOW, 1, &frame));
        assert!(rig.come_back(FLOW, 2, &RESULT.frame(&answer(2))));
        rig.worker.step();
        rig.counted(&[(Reason::SeenResult, 2), (Reason::DropMetadata, 1)]);
        assert!(rig.xdp_takes_turn(FLOW, 0), "{what}");
        rig.worker.step();
        assert_eq!((rig.left_by_port(), rig.next(FLOW)), (vec![2], 3), "{what}");
        assert!(rig.take(LINK).is_empty());
        rig.counted(&[(Reason::SeenResult, 2), (Reason::DropMetadata, 1), (Reason::SentResult, 1)]);
        rig.finish();
    }
}

#[test]
fn a_peer_that_dropped_a_packet_leaves_its_turn_to_the_next() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        assert!(rig.come_back(FLOW, 1, &RESULT.frame(&[])));
        assert!(rig.come_back(FLOW, 2, &RESULT.frame(&answer(2))));
        rig.worker.step();
        assert!(rig.left_by_port().is_empty());
        assert!(rig.xdp_takes_turn(FLOW, 0));
        rig.worker.step();
        assert_eq!((rig.left_by_port(), rig.next(FLOW)), (vec![2], 3));
        rig.counted(&[(Reason::SeenResult, 2), (Reason::MarkEnded, 1), (Reason::SentResult, 1)]);
        rig.finish();
    }
}

#[test]
fn nobody_waits_for_a_flow_that_keeps_no_order_elsewhere() {
    let mut rig = rig(FIFO);
    let frame = Interconnect { flow: NO_FLOW, ..FORWARD }.frame(&broken(1));
    rig.deliver(LINK, 1_000, Builtin::Forward, &frame);
    rig.worker.step();
    assert!(rig.take(LINK).is_empty());
    rig.counted(&[(Reason::SeenForwarded, 1), (Reason::DropUdpChecksum, 1)]);
    rig.finish();
}

#[test]
fn the_shortest_result_is_an_ethernet_header() {
    let mut rig = rig(FIFO);
    rig.xdp_takes_turn(FLOW, 0);
    rig.hold(FLOW, 1, &RESULT.frame(&[5; 14]));
    rig.worker.step();
    assert_eq!(rig.take(PORT), [vec![5; 14]]);
    rig.finish();
}

#[test]
fn a_result_without_a_flow_leaves_at_once() {
    for flow in [NO_FLOW, NO_FLOW - 1] {
        let mut rig = rig(FIFO);
        rig.hold(flow, 3, &RESULT.frame(&answer(1)));
        rig.worker.step();
        assert_eq!(rig.left_by_port(), [1]);
        rig.arrive(flow, 3, &question(2).frame());
        rig.worker.step();
        assert_eq!(rig.left_by_port(), [2]);
        rig.finish();
    }
}

#[test]
fn patience_ends() {
    for discipline in DISCIPLINES {
        let mut rig = rig_with(discipline, Duration::from_millis(1));
        rig.arrive(FLOW, 2, &question(2).frame());
        rig.hold(FLOW, 3, &RESULT.frame(&answer(3)));
        rig.arrive(FLOW, 5, &question(5).frame());
        while rig.worker.step() > 0 {}
        std::thread::sleep(Duration::from_millis(2));
        while rig.worker.step() > 0 {}
        assert_eq!(rig.left_by_port(), [2, 3, 5], "in order at least");
        assert_eq!(rig.next(FLOW), 6);
        // One note each for the gaps in front of 2 and of 5. The turn of 3 came with 2.
        let sent = [(Reason::SeenLocal, 2), (Reason::SeenResult, 1), (Reason::SentResult, 3)];
        rig.counted(&[&sent[..], &[(Reason::NoteOutOfOrder, 2)]].concat());
        // What had been given up comes after all, and is better than lost.
        rig.arrive(FLOW, 1, &question(1).frame());
        rig.hold(FLOW, 4, &RESULT.frame(&answer(4)));
        while rig.worker.step() > 0 {}
        let mut late = rig.left_by_port();
        late.sort_unstable();
        assert_eq!(late, [1, 4]);
        let sent = [(Reason::SeenLocal, 3), (Reason::SeenResult, 2), (Reason::SentResult, 5)];
        rig.counted(&[&sent[..], &[(Reason::NoteOutOfOrder, 4)]].concat());
        assert_eq!(rig.next(FLOW), 6, "turns do not go back");
        rig.finish();
    }
}

#[test]
fn a_mark_that_comes_late_says_nothing() {
    let mut rig = rig(FIFO);
    assert!(rig.xdp_takes_turn(FLOW, 0));
    rig.arrive(FLOW, 0, &broken(0));
    rig.worker.step();
    rig.counted(&[(Reason::SeenLocal, 1), (Reason::DropUdpChecksum, 1)]);
    assert_eq!(rig.next(FLOW), 1);
    rig.finish();
}

#[test]
fn what_finds_no_place_leaves_out_of_order() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        let all = u32::from(PLACES) + 1;
        for number in 1..=all {
            rig.arrive(FLOW, number, &question(number as u8).frame());
        }
        while rig.worker.step() > 0 {}
        let mut names: Vec<_> = (1..u8::try_from(all).unwrap()).collect();
        names.insert(0, all as u8);
        assert_eq!(rig.left_by_port(), names, "the last one gives up the turns of all before it");
        let all = u64::from(all);
        rig.counted(&[(Reason::SeenLocal, all), (Reason::SentResult, all), (Reason::NoteOutOfOrder, all)]);
        rig.finish();
    }
}

#[test]
fn most_of_the_memory_stays_for_packets_that_arrive() {
    let mut rig = Rig::with(256, CHECKS, FIFO);
    rig.worker.settings.patience = ENDLESS;
    let places = FRAMES / 4;
    for number in 1..=places {
        rig.arrive(FLOW, number, &question(0).frame());
        rig.worker.step();
        rig.take(PORT);
    }
    let in_use = rig.worker_word(offset_of!(WorkerRow, frames_in_use)) as u32;
    assert!(in_use <= places, "{in_use} frames");
    assert!(rig.xdp_takes_turn(FLOW, 0) || rig.next(FLOW) > 0);
    rig.finish();
}

#[test]
fn a_stop_releases_everything() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        rig.arrive(FLOW, 1, &question(1).frame());
        rig.arrive(FLOW, 4, &question(4).frame());
        rig.hold(OTHER, 2, &RESULT.frame(&answer(2)));
        while rig.worker.step() > 0 {}
        assert!(rig.left_by_port().is_empty());
        // These arrive while the node stops: they are dropped, and a result is none of its work.
        rig.arrive(FLOW, 2, &question(9).frame());
        rig.hold(OTHER, 0, &RESULT.frame(&answer(0)));
        rig.worker.stop_on(Arc::new(AtomicBool::new(true)));
        rig.worker.run();
        rig.rest();
        let mut names = rig.left_by_port();
        assert_eq!(names.remove(0), 0, "it was its turn");
        names.sort_unstable();
        assert_eq!(names, [1, 2, 4]);
        rig.counted(&[
            (Reason::SeenLocal, 3),
            (Reason::SeenResult, 2),
            (Reason::DropStopping, 1),
            (Reason::SentResult, 4),
            (Reason::NoteOutOfOrder, 3),
        ]);
        assert!(rig.worker.held.is_empty());
        assert_eq!((rig.next(FLOW), rig.next(OTHER)), (5, 3));
        rig.finish();
    }
}

#[test]
fn without_an_order_nothing_waits() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        for number in [3, 1, 2] {
            rig.arrive(NO_FLOW, number, &question(number as u8).frame());
        }
        while rig.worker.step() > 0 {}
        assert_eq!(rig.left_by_port(), [3, 1, 2]);
        rig.counted(&[(Reason::SeenLocal, 3), (Reason::SentResult, 3)]);
        assert!((0..16).all(|flow| rig.next(flow) == 0), "no flow is touched");
        rig.finish();
    }
}

#[test]
fn a_forwarded_packet_goes_home_whatever_its_turn_there() {
    for discipline in DISCIPLINES {
        let mut rig = rig(discipline);
        let forward = Interconnect { flow: FLOW, flow_sequence: 5, ..FORWARD };
        rig.deliver(LINK, 1_000, Builtin::Forward, &forward.frame(&question(1).frame()));
        while rig.worker.step() > 0 {}
        assert_eq!(rig.take(LINK).len(), 1);
        assert_eq!(rig.next(FLOW), 0);
        rig.counted(&[(Reason::SeenForwarded, 1), (Reason::SentHome, 1)]);
        rig.finish();
    }
}

#[test]
fn a_full_transmit_ring_drops_held_results_under_a_name() {
    let mut rig = Rig::with(16, CHECKS, FIFO);
    rig.worker.held = Resequencer::new(PLACES, ENDLESS.as_nanos() as u64);
    for number in 1..=40 {
        rig.arrive(FLOW, number, &question(number as u8).frame());
    }
    while rig.worker.step() > 0 {}
    assert!(rig.xdp_takes_turn(FLOW, 0));
    rig.worker.step();
    assert_eq!(rig.left_by_port(), (1..=16).collect::<Vec<_>>());
    assert_eq!(rig.next(FLOW), 41);
    rig.counted(&[(Reason::SeenLocal, 40), (Reason::SentResult, 16), (Reason::DropTxFull, 24)]);
    rig.finish();
}

mod mixed {
    use super::*;

    /// What becomes of a packet that arrives.
    #[derive(Clone, Copy, Debug)]
    enum Way {
        /// It is computed here, charged this much.
        Here { ns: u32 },
        /// It is computed here and dropped.
        Dropped,
        /// It is sent away, and the result comes back so many packets later.
        Away { after: usize },
        /// As `Away`, and the result is bad.
        Spoilt { after: usize },
        /// It is sent away and lost.
        Lost,
    }

    impl Way {
        fn has_result(self) -> bool {
            matches!(self, Self::Here { .. } | Self::Away { .. })
        }
    }

    fn way(may_lose: bool) -> impl Strategy<Value = Way> {
        prop_oneof![
            4 => (0u32..5_000).prop_map(|ns| Way::Here { ns }),
            1 => Just(Way::Dropped),
            4 => (0usize..30).prop_map(|after| Way::Away { after }),
            1 => (0usize..30).prop_map(|after| Way::Spoilt { after }),
            u32::from(may_lose) => Just(Way::Lost),
        ]
    }

    /// Packets of three flows with what becomes of each, and whether the worker looks when it has arrived.
    fn packets(may_lose: bool) -> impl Strategy<Value = Vec<(u16, Way, bool)>> {
        proptest::collection::vec((0u16..3, way(may_lose), any::<bool>()), 0..60)
    }

    /// Plays the packets; what left, by name, in the order of leaving.
    fn play(rig: &mut Rig, packets: &[(u16, Way, bool)]) -> Vec<u8> {
        let mut numbers = [0; 3];
        let mut away = Vec::new();
        let mut left = Vec::new();
        for at in 0..packets.len() + 30 {
            if let Some((flow, way, _)) = packets.get(at).copied() {
                let (name, number) = (at as u8, numbers[usize::from(flow)]);
                numbers[usize::from(flow)] += 1;
                match way {
                    Way::Here { ns } => rig.arrive_charged(flow, number, ns, &question(name).frame()),
                    Way::Dropped => rig.arrive(flow, number, &broken(name)),
                    Way::Away { after } => away.push((at + after, flow, number, name, RESULT)),
                    Way::Spoilt { after } => away.push((at + after, flow, number, name, result_to(7))),
                    Way::Lost => {}
                }
            }
            for (_, flow, number, name, header) in away.extract_if(.., |(due, ..)| *due <= at) {
                let held = rig.come_back(flow, number, &header.frame(&answer(name)));
                // The XDP program drops a result for a port that the node does not have.
                left.extend((!held && header.port == RESULT.port).then_some(name));
            }
            if packets.get(at).is_none_or(|(_, _, looks)| *looks) {
                rig.worker.step();
                left.extend(rig.left_by_port());
            }
        }
        loop {
            let handled = rig.worker.step();
            left.extend(rig.left_by_port());
            if handled == 0 {
                return left;
            }
        }
    }

    fn names_of(packets: &[(u16, Way, bool)], flow: u16) -> Vec<u8> {
        let of_flow = packets.iter().enumerate().filter(|(_, (of, way, _))| *of == flow && way.has_result());
        of_flow.map(|(at, _)| at as u8).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn results_leave_in_the_order_of_their_flow_wherever_they_come_from(
            discipline in FIFO..=CLASS,
            packets in packets(false),
        ) {
            let mut rig = rig(discipline);
            let left = play(&mut rig, &packets);
            for flow in 0..3 {
                let expected = names_of(&packets, flow);
                let of_flow: Vec<_> = left.iter().copied().filter(|name| expected.contains(name)).collect();
                prop_assert_eq!(of_flow, expected);
            }
            prop_assert_eq!(left.len(), packets.iter().filter(|(_, way, _)| way.has_result()).count());
            prop_assert_eq!(rig.counters()[Reason::NoteOutOfOrder as usize], 0);
            prop_assert!(rig.worker.held.is_empty());
            rig.finish();
        }

        #[test]
        fn whatever_is_lost_every_other_result_leaves_once(
            discipline in FIFO..=CLASS,
            places in 0u16..8,
            packets in packets(true),
        ) {
            let mut rig = rig(discipline);
            // Nothing is waited for.
            rig.worker.held = Resequencer::new(places, 0);
            let mut left = play(&mut rig, &packets);
            left.sort_unstable();
            let expected: Vec<_> = {
                let mut names: Vec<_> = (0..3).flat_map(|flow| names_of(&packets, flow)).collect();
                names.sort_unstable();
                names
            };
            prop_assert_eq!(left, expected);
            prop_assert!(rig.worker.held.is_empty());
            rig.finish();
        }
    }
}

//! The cable box by itself: frames counted in front of it and behind it, one impairment at a time. No node runs; both ends of
//! the link are in this process.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod support;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use dataplane_bench::chaos::{Chaos, FrameKind, Kinds, Share, Tally};
use dataplane_bench::interrupt::Interrupt;
use dataplane_bench::topology::{Cluster, Host, Purpose, Shape};
use dataplane_bench::traffic::wire::Wire;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::ETHERTYPE_LINK;
use dataplane_user::worker::monotonic_ns;
use support::{PATIENCE, enter, lacks_root};

/// Frames of a test in each direction.
const FRAMES: u64 = 2_000;
/// Bytes of a frame.
const BYTES: usize = 100;
/// Where a frame's number is.
const NUMBER: usize = 40;

/// A link with a box in it, and its ends at nodes 1 and 2.
struct Link {
    cluster: Cluster,
    ends: [Wire; 2],
}

/// A frame that came out, and when.
struct Arrival {
    number: u64,
    bytes: Vec<u8>,
    arrival_ns: u64,
}

impl Link {
    fn new() -> Self {
        let shape = Shape { cables: vec![(1, 2)], ..Shape::new(Purpose::Test, 2) };
        let cluster = Cluster::build(shape).unwrap();
        let ends = [(1, 2), (2, 1)].map(|(node, peer)| {
            let interface = cluster.plan().link(node, peer).interface;
            thread::scope(|scope| {
                let open = scope.spawn(|| {
                    enter(&cluster, Host::Node(node));
                    Wire::open(&[interface]).unwrap()
                });
                open.join().unwrap()
            })
        });
        Self { cluster, ends }
    }

    /// The frame of a kind and number from node 1 to node 2, or back.
    fn frame(kind: FrameKind, number: u64) -> Vec<u8> {
        let mut frame = vec![0x5a; BYTES];
        frame[12..14].copy_from_slice(&ETHERTYPE_LINK.to_be_bytes());
        frame[ETHERNET_BYTES + 1] = kind as u8;
        frame[NUMBER..NUMBER + 8].copy_from_slice(&number.to_be_bytes());
        frame
    }

    fn send(&mut self, from: usize, frame: &[u8]) {
        self.ends[from].prepare(frame.len(), |bytes| bytes.copy_from_slice(frame)).unwrap();
        self.ends[from].send(0).unwrap();
    }

    /// Sends numbered frames of a kind from one end, and takes what comes out at the other until nothing is missing there. Also
    /// returns when each was sent.
    fn pass(&mut self, from: usize, kind: FrameKind) -> (Vec<Arrival>, Vec<u64>) {
        let (mut arrivals, mut sent_ns) = (Vec::new(), Vec::new());
        let before = self.tally(from);
        for number in 0..FRAMES {
            sent_ns.push(monotonic_ns());
            self.send(from, &Self::frame(kind, number));
            self.take(1 - from, &mut arrivals);
        }
        let after = self.tally(from);
        let count = leaving(&after) - leaving(&before);
        let deadline = Instant::now() + PATIENCE;
        while (arrivals.len() as u64) < count && Instant::now() < deadline {
            self.take(1 - from, &mut arrivals);
        }
        // Whatever came on top would be a frame too many.
        thread::sleep(Duration::from_millis(20));
        self.take(1 - from, &mut arrivals);
        assert_eq!(arrivals.len() as u64, count, "{after:?}");
        assert_eq!(after.kind(kind).seen - before.kind(kind).seen, FRAMES);
        assert_eq!((after.lost, after.unsent), (0, 0));
        (arrivals, sent_ns)
    }

    fn take(&mut self, at: usize, arrivals: &mut Vec<Arrival>) {
        self.ends[at].receive(|received| {
            let number = u64::from_be_bytes(received.bytes[NUMBER..NUMBER + 8].try_into().unwrap());
            let (bytes, arrival_ns) = (received.bytes.to_vec(), received.arrival_ns.unwrap());
            arrivals.push(Arrival { number, bytes, arrival_ns });
        });
    }

    fn tally(&self, from: usize) -> Tally {
        let (node, peer) = if from == 0 { (1, 2) } else { (2, 1) };
        self.cluster.tally(node, peer, &Interrupt::never()).unwrap()
    }
}

fn leaving(tally: &Tally) -> u64 {
    tally.total().leaving()
}

fn numbers(arrivals: &[Arrival]) -> Vec<u64> {
    arrivals.iter().map(|arrival| arrival.number).collect()
}

/// Frames that came out after one with a larger number (RFC 4737, Type-P-Reordered).
fn reordered(arrivals: &[Arrival]) -> u64 {
    let mut largest = 0;
    let is_late = |arrival: &&Arrival| {
        largest = largest.max(arrival.number);
        arrival.number < largest
    };
    arrivals.iter().filter(is_late).count() as u64
}

#[test]
fn an_unimpaired_cable_changes_nothing_in_either_direction() {
    if lacks_root() {
        return;
    }
    let mut link = Link::new();
    for (from, kind) in [(0, FrameKind::Forward), (1, FrameKind::Result), (0, FrameKind::Report), (1, FrameKind::Other)]
    {
        let (arrivals, _) = link.pass(from, kind);
        for (number, arrival) in (0..FRAMES).zip(&arrivals) {
            assert_eq!(arrival.bytes, Link::frame(kind, number));
        }
        assert_eq!(link.tally(from).kind(kind).passed, FRAMES);
    }
}

#[test]
fn dropped_frames_are_those_counted_and_the_same_for_the_same_seed() {
    if lacks_root() {
        return;
    }
    let chaos = Chaos { drop: Share::percent(20), seed: 5, ..Chaos::NONE };
    let run = |chaos: &Chaos| {
        let mut link = Link::new();
        link.cluster.impair_all(chaos).unwrap();
        let (arrivals, _) = link.pass(0, FrameKind::Forward);
        let dropped = link.tally(0).kind(FrameKind::Forward).dropped;
        assert_eq!(arrivals.len() as u64 + dropped, FRAMES);
        // Five standard deviations.
        assert!(dropped.abs_diff(FRAMES / 5) < 90, "{dropped}");
        (numbers(&arrivals), numbers(&link.pass(1, FrameKind::Forward).0))
    };
    let (forth, back) = run(&chaos);
    assert_ne!(forth, back, "directions draw apart");
    assert_eq!(run(&chaos), (forth.clone(), back));
    assert_ne!(run(&Chaos { seed: 6, ..chaos }).0, forth);
}

#[test]
fn duplicated_frames_come_twice() {
    if lacks_root() {
        return;
    }
    let mut link = Link::new();
    link.cluster.impair(1, 2, &Chaos { duplicate: Share::percent(10), ..Chaos::NONE }).unwrap();
    let (arrivals, _) = link.pass(0, FrameKind::Forward);
    let mut times = BTreeMap::new();
    for arrival in &arrivals {
        assert_eq!(arrival.bytes, Link::frame(FrameKind::Forward, arrival.number));
        *times.entry(arrival.number).or_insert(0u64) += 1;
    }
    let tally = link.tally(0);
    let twice = times.values().filter(|times| **times == 2).count() as u64;
    assert_eq!((times.len() as u64, twice), (FRAMES, tally.kind(FrameKind::Forward).duplicated));
    assert!(twice > 0 && tally.copies == twice);
    // The other direction was not spoken of.
    let (arrivals, _) = link.pass(1, FrameKind::Forward);
    assert_eq!(arrivals.len() as u64, FRAMES);
}

#[test]
fn reordered_frames_come_once_and_behind_later_ones() {
    if lacks_root() {
        return;
    }
    let mut link = Link::new();
    link.cluster.impair_all(&Chaos { reorder: Share::percent(5), ..Chaos::NONE }).unwrap();
    let (arrivals, _) = link.pass(1, FrameKind::Result);
    let tally = link.tally(1);
    let count = reordered(&arrivals);
    assert!(tally.overtaken > 0, "{tally:?}");
    assert!((tally.overtaken..=tally.kind(FrameKind::Result).reordered).contains(&count), "{count}: {tally:?}");
    let mut numbers = numbers(&arrivals);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..FRAMES).collect::<Vec<_>>());
}

#[test]
fn delayed_frames_are_never_early() {
    if lacks_root() {
        return;
    }
    let mut link = Link::new();
    let delay_by = Duration::from_millis(20);
    link.cluster.impair_all(&Chaos { delay: Share::percent(10), delay_by, ..Chaos::NONE }).unwrap();
    let (arrivals, sent_ns) = link.pass(0, FrameKind::Pull);
    let took = |arrival: &Arrival| arrival.arrival_ns - sent_ns[arrival.number as usize];
    let slow = arrivals.iter().filter(|arrival| u128::from(took(arrival)) >= delay_by.as_nanos()).count() as u64;
    let delayed = link.tally(0).kind(FrameKind::Pull).delayed;
    assert!(delayed > 0 && slow >= delayed, "{slow} took so long, {delayed} were delayed");
}

#[test]
fn corrupt_frames_differ_in_one_byte_behind_the_ethernet_header() {
    if lacks_root() {
        return;
    }
    let mut link = Link::new();
    let chaos = Chaos { corrupt: Share::percent(30), corrupt_from: NUMBER as u16 + 8, ..Chaos::NONE };
    link.cluster.impair(1, 2, &chaos).unwrap();
    link.cluster.impair(2, 1, &Chaos { corrupt_from: 0, ..chaos }).unwrap();
    let (arrivals, _) = link.pass(0, FrameKind::Forward);
    let mut changed = 0;
    for arrival in &arrivals {
        let sent = Link::frame(FrameKind::Forward, arrival.number);
        let places: Vec<_> = (0..BYTES).filter(|at| sent[*at] != arrival.bytes[*at]).collect();
        assert!(places.len() <= 1 && places.iter().all(|at| *at >= NUMBER + 8), "{places:?}");
        changed += places.len() as u64;
    }
    let corrupted = link.tally(0).kind(FrameKind::Forward).corrupted;
    assert!(corrupted > 0 && changed == corrupted, "{changed} changed, {corrupted} counted");
    // Anywhere: also in the number, but never in the Ethernet header.
    let (arrivals, _) = link.pass(1, FrameKind::Forward);
    let head = &Link::frame(FrameKind::Forward, 0)[..ETHERNET_BYTES];
    assert!(arrivals.iter().all(|arrival| arrival.bytes[..ETHERNET_BYTES] == *head));
}

#[test]
fn a_cut_cable_lets_nothing_through_until_it_is_healed_and_kinds_are_apart() {
    if lacks_root() {
        return;
    }
    let mut link = Link::new();
    link.cluster.impair_all(&Chaos::CUT).unwrap();
    for (from, kind) in [(0, FrameKind::Forward), (1, FrameKind::Other)] {
        assert!(link.pass(from, kind).0.is_empty());
    }
    link.cluster.impair_all(&Chaos { kinds: Kinds::of(&[FrameKind::Forward]), ..Chaos::NONE }).unwrap();
    assert_eq!(link.pass(0, FrameKind::Forward).0.len() as u64, FRAMES);
    assert!(link.pass(0, FrameKind::Report).0.is_empty());
    link.cluster.impair_all(&Chaos::NONE).unwrap();
    assert_eq!(link.pass(0, FrameKind::Report).0.len() as u64, FRAMES);
    assert_eq!(link.pass(1, FrameKind::Other).0.len() as u64, FRAMES);
}

#[test]
fn a_cable_that_is_not_there_cannot_be_impaired() {
    if lacks_root() {
        return;
    }
    let mut cluster = Cluster::build(Shape::new(Purpose::Test, 2)).unwrap();
    let error = cluster.impair(2, 1, &Chaos::CUT).unwrap_err().to_string();
    assert_eq!(error, "there is no cable between node 1 and node 2");
}

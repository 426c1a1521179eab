//! The queue against a list in order of arrival, searched from end to end with the formula as it is written down.

use dataplane_common::bands::Behind;
use proptest::prelude::*;

use super::*;

/// A packet as the model knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Packet {
    number: u32,
    flow: Flow,
    ept_ns: u32,
    class: u8,
    arrival_ns: u64,
}

/// Everything that waits, in order of arrival.
#[derive(Debug, Default)]
struct Model(Vec<Packet>);

impl Model {
    /// Takes the packet with the least score among those that have none of their flow before them.
    fn pop(&mut self, score: impl Fn(&Packet) -> f64) -> Option<Packet> {
        let is_head = |at: &usize| {
            let flow = self.0[*at].flow;
            flow.slot == NO_FLOW || self.0[..*at].iter().all(|other| other.flow != flow)
        };
        // `min_by` finds the first of equals.
        let best =
            (0..self.0.len()).filter(is_head).min_by(|a, b| score(&self.0[*a]).total_cmp(&score(&self.0[*b])))?;
        Some(self.0.remove(best))
    }

    fn waiting_ns(&self, band: impl Fn(&Packet) -> usize) -> [u64; BANDS] {
        let mut waiting = [0; BANDS];
        for packet in &self.0 {
            waiting[band(packet)] += u64::from(packet.ept_ns);
        }
        waiting
    }
}

/// What happens to a queue.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A packet arrives.
    Push { node: u16, slot: u16, ept_ns: u32, class: u8 },
    /// One is taken.
    Pop,
    /// Time passes.
    Pass(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let slot = prop_oneof![0u16..6, Just(NO_FLOW), Just(NO_FLOW - 1)];
    let ept_ns = prop_oneof![0u32..3_000, 0u32..3_000_000, any::<u32>()];
    let push = (0u16..3, slot, ept_ns, 0u8..8).prop_map(|(node, slot, ept_ns, class)| Event::Push {
        node,
        slot,
        ept_ns,
        class,
    });
    // Long enough that ageing changes the order of packets of microseconds and of classes.
    let pass = prop_oneof![0u64..100, 0u64..100_000, 0u64..200_000_000].prop_map(Event::Pass);
    proptest::collection::vec(prop_oneof![4 => push, 3 => Just(Event::Pop), 2 => pass], 0..400)
}

/// Runs a queue of `places` and a model beside each other: rank, score at a time, and band of a packet.
fn agrees(
    places: u32,
    events: &[Event],
    rank: impl Fn(&Packet) -> Rank,
    score: impl Fn(&Packet, u64) -> f64,
    band: impl Fn(&Packet) -> usize,
) -> Result<(), TestCaseError> {
    let (mut queue, mut model) = (Queue::new(places), Model::default());
    let mut now_ns = 1_000_000;
    for (number, event) in (0..).zip(events) {
        match *event {
            Event::Push { node, slot, ept_ns, class } => {
                let packet = Packet { number, flow: Flow { node, slot }, ept_ns, class, arrival_ns: now_ns };
                let pushed = queue.push(packet, packet.flow, rank(&packet), ept_ns);
                prop_assert_eq!(pushed.is_ok(), model.0.len() < places as usize);
                match pushed {
                    Ok(()) => model.0.push(packet),
                    Err(Full(back)) => prop_assert_eq!(back, packet),
                }
            }
            Event::Pop => prop_assert_eq!(queue.pop(), model.pop(|packet| score(packet, now_ns))),
            Event::Pass(ns) => now_ns += ns,
        }
        prop_assert_eq!((queue.len(), queue.is_empty()), (model.0.len(), model.0.is_empty()));
        prop_assert_eq!(*queue.waiting_ns(), model.waiting_ns(&band));
    }
    while !model.0.is_empty() {
        prop_assert_eq!(queue.pop(), model.pop(|packet| score(packet, now_ns)));
    }
    prop_assert_eq!(queue.pop(), None);
    prop_assert_eq!(*queue.waiting_ns(), [0; BANDS]);
    prop_assert!(queue.buckets.iter().all(|bucket| *bucket == NONE), "a flow without packets is remembered");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_next_has_the_least_ept_less_a_twentieth_of_its_wait(places in 0u32..40, events in events()) {
        let rank = |packet: &Packet| Rank::shortest(packet.ept_ns, packet.arrival_ns);
        // Exact: all terms are twentieths below 2^53.
        let score = |packet: &Packet, now: u64| packet.ept_ns as f64 * 20.0 - (now - packet.arrival_ns) as f64;
        agrees(places, &events, rank, score, |packet| band_of(packet.ept_ns) as usize)?;
    }

    #[test]
    fn the_next_has_the_highest_class_with_one_more_for_every_50_ms(places in 0u32..40, events in events()) {
        let rank = |packet: &Packet| Rank::class(packet.class, packet.arrival_ns);
        let score = |packet: &Packet, now: u64| {
            -(f64::from(packet.class) * 50e6 + (now - packet.arrival_ns) as f64)
        };
        agrees(places, &events, rank, score, |packet| usize::from(7 - packet.class))?;
    }

    #[test]
    fn packets_of_a_flow_keep_their_order(events in events()) {
        let mut queue = Queue::new(256);
        let mut out = Vec::new();
        let mut pushed = Vec::new();
        for (number, event) in (0u32..).zip(&events) {
            match *event {
                Event::Push { node, slot, ept_ns, .. } => {
                    let flow = Flow { node, slot };
                    if queue.push((flow, number), flow, Rank::shortest(ept_ns, 0), 0).is_ok() {
                        pushed.push((flow, number));
                    }
                }
                Event::Pop => out.extend(queue.pop()),
                Event::Pass(_) => {}
            }
        }
        out.extend(std::iter::from_fn(|| queue.pop()));
        let of_flow = |packets: &[(Flow, u32)], flow: Flow| -> Vec<u32> {
            packets.iter().filter(|packet| packet.0 == flow).map(|packet| packet.1).collect()
        };
        for (flow, _) in pushed.iter().filter(|(flow, _)| flow.slot != NO_FLOW) {
            prop_assert_eq!(of_flow(&out, *flow), of_flow(&pushed, *flow));
        }
        let sorted = |mut packets: Vec<(Flow, u32)>| {
            packets.sort_by_key(|packet| packet.1);
            packets
        };
        prop_assert_eq!(sorted(out), sorted(pushed), "nothing is lost or made");
    }
}

/// Serves a queue that is never without a `short` packet for `for_ns`; when the long one before it was served, if it was.
fn overload(rank: impl Fn(bool, u64) -> Rank, short_ns: u64, for_ns: u64) -> Option<u64> {
    let mut queue = Queue::new(16);
    queue.push(false, Flow::NONE, rank(false, 0), 0).unwrap();
    let mut now_ns = 0;
    while now_ns < for_ns {
        queue.push(true, Flow::NONE, rank(true, now_ns), 0).unwrap();
        let is_short = queue.pop().unwrap();
        if !is_short {
            return Some(now_ns);
        }
        now_ns += short_ns;
    }
    None
}

#[test]
fn a_long_packet_waits_at_most_20_times_its_length_for_shorter_ones() {
    let rank = |is_short, arrival_ns| Rank::shortest(if is_short { 1_000 } else { 1_000_000 }, arrival_ns);
    let served = overload(rank, 1_000, 1_000_000_000).unwrap();
    assert_eq!(served, 20 * (1_000_000 - 1_000), "equals are served as they came");
    let at_once = |is_short, _| Rank::shortest(if is_short { 1_000 } else { 1_000_000 }, 0);
    assert_eq!(overload(at_once, 1_000, 1_000_000_000), None, "without ageing it would starve");
}

#[test]
fn a_low_class_waits_at_most_350_ms_for_higher_ones() {
    let rank = |is_high, arrival_ns| Rank::class(if is_high { 7 } else { 0 }, arrival_ns);
    let served = overload(rank, 100_000, 2_000_000_000).unwrap();
    assert_eq!(served, 350_000_000);
    let without = |is_high, _| Rank::class(if is_high { 7 } else { 0 }, 0);
    assert_eq!(overload(without, 100_000, 2_000_000_000), None);
}

#[test]
fn a_packet_of_another_node_is_of_another_flow() {
    let mut queue = Queue::new(4);
    let flow = |node| Flow { node, slot: 3 };
    queue.push("first, long", flow(1), Rank::shortest(1_000, 0), 0).unwrap();
    queue.push("first, short", flow(1), Rank::shortest(1, 0), 0).unwrap();
    queue.push("other", flow(2), Rank::shortest(10, 0), 0).unwrap();
    assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), ["other", "first, long", "first, short"]);
}

#[test]
fn classes_beyond_the_highest_are_the_highest() {
    assert_eq!(Rank::class(200, 5), Rank::class(7, 5));
    assert_eq!(Rank::class(0, 5).band as usize, BANDS - 1);
}

#[test]
fn many_flows_in_one_bucket_are_told_apart() {
    // Two buckets for a hundred flows: more than there are places, one after the other.
    let mut queue = Queue::new(2);
    assert_eq!(queue.buckets.len(), 2);
    for node in 0..100u16 {
        for slot in [1, 2] {
            queue.push((node, slot), Flow { node, slot }, Rank::shortest(u32::from(slot), 0), 1).unwrap();
        }
        assert!(queue.push((node, 3), Flow { node, slot: 3 }, Rank::shortest(0, 0), 1).is_err());
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some((node, 1)), Some((node, 2)), None));
    }
    assert_eq!(queue.buckets.as_ref(), [NONE, NONE]);
}

#[test]
fn shares_of_what_waits_follow() {
    let mut queue = Queue::new(4);
    queue.push((), Flow::NONE, Rank::shortest(3_000_000, 0), 3_000_000).unwrap();
    queue.push((), Flow::NONE, Rank::shortest(500, 0), 1_000_000).unwrap();
    let behind = Behind::of(queue.waiting_ns());
    assert_eq!(behind.ahead_ns(4_000_000, 0), 1_000_000);
    assert_eq!(behind.ahead_ns(4_000_000, band_of(3_000_000)), 4_000_000);
}

//! The worker when it does not serve in order of arrival.

use dataplane_common::bands::{BANDS, Behind, band_of};
use dataplane_common::maps::FlowRow;
use dataplane_common::tuning::SHORTEST;

use super::*;

/// Work that takes long enough for a step to end with it.
const LONG_NS: u32 = SEND_AT_ONCE_NS * 2;

fn rig(discipline: u32) -> Rig {
    Rig::with(256, CHECKS, discipline)
}

/// A packet that says who it is, so that its result can be told.
#[derive(Clone, Copy, Debug)]
struct Job {
    name: u8,
    socket: usize,
    /// Node it is from, for a forwarded one.
    source: u16,
    flow: u16,
    charged_ns: u32,
    /// How long before the others it arrived.
    age_ns: u64,
    class: u8,
    v6: bool,
    /// How long it spins, ns.
    spin_ns: u32,
}

/// A short packet of a flow of its own.
const JOB: Job = Job {
    name: 0,
    socket: PORT,
    source: 1,
    flow: NO_FLOW,
    charged_ns: 1_000,
    age_ns: 0,
    class: 0,
    v6: false,
    spin_ns: LONG_NS,
};

impl Job {
    fn frame(&self) -> Vec<u8> {
        let packet = Packet { v6: self.v6, ..Packet::new(0xff04).operand(self.spin_ns) };
        let packet = Packet { payload: vec![self.name; 8], ..packet };
        let mut frame = packet.frame();
        if self.v6 {
            // The precedence bits are the upper three of the traffic class, whose upper half shares a byte with the version.
            frame[packet.l3()] = 0x60 | self.class << 1;
        } else {
            frame[packet.l3() + 1] = self.class << 5;
            frame = frames::with_ip_checksum(frame, &packet);
        }
        if self.socket == PORT {
            return frame;
        }
        Interconnect { source: self.source, flow: self.flow, ..FORWARD }.frame(&frame)
    }

    fn deliver(&self, rig: &mut Rig) {
        let charged = rig.charge(self.socket, self.charged_ns);
        // XDP leaves the flow of a forwarded packet in its header.
        let flow = if self.socket == PORT { self.flow } else { NO_FLOW };
        let issued = |flow| rig.tables.flows.row(flow).word(offset_of!(FlowRow, issued)).fetch_add(1, Relaxed);
        let metadata = Metadata {
            arrival_16ns: Metadata::arrival_of(rig.start_ns - self.age_ns),
            flow,
            flow_sequence: if flow == NO_FLOW { 0 } else { issued(flow.into()) as u32 },
            ..rig.metadata(self.socket, charged, Builtin::Spin)
        };
        assert!(rig.kernels[self.socket].deliver_with_metadata(&metadata.emit(), &self.frame()), "{self:?}");
    }
}

/// The names of the packets sent since the last call.
fn sent(rig: &mut Rig) -> Vec<u8> {
    [PORT, LINK].iter().flat_map(|socket| rig.take(*socket)).map(|frame| frame[frame.len() - 1]).collect()
}

/// Serves jobs that are all there at the start; their names in the order of service. Each must be [`LONG_NS`] long, so that it
/// takes a step of its own.
#[track_caller]
fn order_of_service(discipline: u32, jobs: &[Job]) -> Vec<u8> {
    let mut rig = rig(discipline);
    for job in jobs {
        job.deliver(&mut rig);
    }
    let mut order = Vec::new();
    for _ in jobs {
        assert_eq!(rig.worker.step(), 1);
        let sent = sent(&mut rig);
        assert_eq!(sent.len(), 1);
        order.extend(sent);
    }
    rig.finish();
    order
}

#[test]
fn the_shortest_is_served_first_wherever_it_came_from() {
    let job = |name, socket, charged_ns| Job { name, socket, charged_ns, ..JOB };
    let jobs = [
        job(1, PORT, 50_000_000),
        job(2, PORT, 7_000_000),
        job(3, LINK, 60_000_000),
        job(4, LINK, 6_000_000),
        job(5, PORT, 20_000_000),
        job(6, LINK, 0),
    ];
    assert_eq!(order_of_service(SHORTEST, &jobs), [6, 4, 2, 5, 1, 3]);
}

#[test]
fn a_long_wait_makes_up_for_length() {
    let job = |name, charged_ns, age_ns| Job { name, charged_ns, age_ns, ..JOB };
    let jobs = [
        job(1, 10_000_000, 0),
        job(2, 50_000_000, 900_000_000),
        job(3, 50_000_000, 700_000_000),
        job(4, 50_000_000, 0),
    ];
    // 50 ms less a twentieth of 900 ms is less than 10 ms, less a twentieth of 700 ms is more.
    assert_eq!(order_of_service(SHORTEST, &jobs), [2, 1, 3, 4]);
}

#[test]
fn an_arrival_that_seems_to_lie_ahead_is_no_old_one() {
    let mut rig = rig(SHORTEST);
    let short = Job { name: 1, ..JOB };
    short.deliver(&mut rig);
    let charged = rig.charge(PORT, 1_000_000_000);
    let ahead = Metadata {
        arrival_16ns: Metadata::arrival_of(monotonic_ns() + 500_000),
        ..rig.metadata(PORT, charged, Builtin::Spin)
    };
    assert!(rig.kernels[PORT].deliver_with_metadata(&ahead.emit(), &Job { name: 2, ..JOB }.frame()));
    rig.worker.step();
    assert_eq!(sent(&mut rig), [1]);
    rig.worker.step();
    assert_eq!(sent(&mut rig), [2]);
    rig.finish();
}

#[test]
fn packets_of_a_flow_wait_for_each_other() {
    let job = |name, flow, charged_ns| Job { name, flow, charged_ns, ..JOB };
    let jobs = [
        job(1, 5, 90_000_000),
        job(2, 5, 1_000_000),
        job(3, 5, 40_000_000),
        job(4, NO_FLOW, 60_000_000),
        job(5, 6, 80_000_000),
        job(6, NO_FLOW, 30_000_000),
    ];
    assert_eq!(order_of_service(SHORTEST, &jobs), [6, 4, 5, 1, 2, 3]);
    let classes = [5, 7, 1, 3, 4, 0];
    let jobs: Vec<_> = jobs.iter().zip(classes).map(|(job, class)| Job { class, ..*job }).collect();
    assert_eq!(order_of_service(CLASS, &jobs), [1, 2, 5, 4, 3, 6]);
}

#[test]
fn the_flow_of_a_forwarded_packet_is_that_of_its_own_node() {
    let job = |name, socket, source, charged_ns| Job { name, socket, source, charged_ns, flow: 5, ..JOB };
    let jobs = [
        job(1, LINK, 1, 70_000_000),
        job(2, LINK, 1, 1_000_000),
        job(3, LINK, 3, 60_000_000),
        job(4, PORT, 0, 90_000_000),
        job(5, PORT, 0, 2_000_000),
    ];
    assert_eq!(order_of_service(SHORTEST, &jobs), [3, 1, 2, 4, 5]);
}

#[test]
fn the_highest_class_is_served_first_whatever_carries_it() {
    let mut jobs = Vec::new();
    for (name, class) in [(1, 0), (2, 3), (3, 7), (4, 1), (5, 6), (6, 3), (7, 5)] {
        // Long before short: the length has no say.
        let socket = if name % 2 == 0 { LINK } else { PORT };
        jobs.push(Job { name, class, socket, v6: name % 3 == 0, charged_ns: 80_000_000 >> name, ..JOB });
    }
    assert_eq!(order_of_service(CLASS, &jobs), [3, 5, 7, 2, 6, 4, 1]);
}

#[test]
fn a_class_rises_by_one_every_50_ms() {
    let job = |name, class, age_ms: u64| Job { name, class, age_ns: age_ms * 1_000_000, ..JOB };
    let jobs = [job(1, 7, 0), job(2, 0, 400), job(3, 0, 300), job(4, 6, 20), job(5, 4, 160)];
    assert_eq!(order_of_service(CLASS, &jobs), [2, 5, 1, 4, 3]);
}

#[test]
fn in_order_of_arrival_nothing_else_counts() {
    let mut rig = rig(FIFO);
    for name in 1..=5 {
        Job { name, charged_ns: 80_000_000 >> name, class: name, flow: u16::from(name % 2), ..JOB }.deliver(&mut rig);
    }
    assert_eq!(rig.worker.step(), 5);
    assert_eq!(sent(&mut rig), [1, 2, 3, 4, 5]);
    rig.finish();
}

#[test]
fn what_arrives_during_a_service_competes_for_the_next() {
    let mut rig = rig(SHORTEST);
    for name in [1, 2] {
        Job { name, charged_ns: 50_000_000, ..JOB }.deliver(&mut rig);
    }
    rig.worker.step();
    assert_eq!(sent(&mut rig), [1]);
    Job { name: 3, socket: LINK, ..JOB }.deliver(&mut rig);
    rig.worker.step();
    assert_eq!(sent(&mut rig), [3]);
    rig.worker.step();
    assert_eq!(sent(&mut rig), [2]);
    rig.finish();
}

#[test]
fn every_socket_is_looked_at_before_every_service() {
    let mut rig = rig(SHORTEST);
    for _ in 0..20 {
        Job { spin_ns: 0, ..JOB }.deliver(&mut rig);
    }
    let looks = |rig: &Rig| [PORT, LINK].map(|socket| rig.shared[socket].looks.load(Relaxed));
    let before = looks(&rig);
    let mut served = 0;
    let mut steps = 0;
    // A service that the machine interrupts for long ends its step.
    while served < 20 {
        served += rig.worker.step();
        steps += 1;
    }
    let after = looks(&rig);
    assert!(after[PORT] - before[PORT] >= 20 && after[LINK] - before[LINK] >= 20, "{before:?} {after:?} {steps}");
    assert_eq!(sent(&mut rig).len(), 20);
    rig.finish();
}

#[test]
fn results_of_short_packets_do_not_wait_for_a_long_one() {
    let mut rig = rig(SHORTEST);
    Job { name: 1, charged_ns: 1_000_000, ..JOB }.deliver(&mut rig);
    Job { name: 2, charged_ns: 100, spin_ns: 0, ..JOB }.deliver(&mut rig);
    while rig.worker.step() > 0 {}
    assert_eq!(rig.shared[PORT].kicks.load(Relaxed), 2, "each was sent by itself");
    assert_eq!(sent(&mut rig), [2, 1]);
    rig.finish();
}

#[test]
fn the_work_that_waits_is_shown_by_band() {
    let mut rig = rig(SHORTEST);
    let charges = [900, 3_000, 3_500, 70_000, 5_000_000, 30_000_000];
    for charged_ns in charges {
        Job { charged_ns, ..JOB }.deliver(&mut rig);
    }
    for served in 1..=charges.len() {
        rig.worker.step();
        let mut waiting = [0; BANDS];
        for charge in &charges[served..] {
            waiting[band_of(*charge) as usize] += u64::from(*charge);
        }
        assert_eq!(rig.load().behind, Behind::of(&waiting), "{served}");
        let left: u64 = waiting.iter().sum();
        assert_eq!(rig.left(), (left, (charges.len() - served) as u64), "settled when taken, discharged when served");
    }
    assert_eq!(sent(&mut rig).len(), charges.len());
    rig.finish();
}

#[test]
fn the_bands_of_class_order_are_classes() {
    let mut rig = rig(CLASS);
    for class in [7, 6, 6, 2, 0] {
        Job { class, charged_ns: 1_000_000, ..JOB }.deliver(&mut rig);
    }
    rig.worker.step();
    let mut waiting = [0; BANDS];
    (waiting[1], waiting[5], waiting[7]) = (2_000_000, 1_000_000, 1_000_000);
    assert_eq!(rig.load().behind, Behind::of(&waiting));
    while rig.worker.step() > 0 {}
    sent(&mut rig);
    rig.finish();
}

#[test]
fn half_of_what_is_in_service_counts_as_ahead() {
    let mut rig = rig(SHORTEST);
    let hold = Packet::new(0xff05).operand(200_000_000).frame();
    rig.deliver(PORT, 40_000_000, Builtin::Hold, &hold);
    Job { charged_ns: 60_000_000, ..JOB }.deliver(&mut rig);
    let tables = Arc::clone(&rig.tables);
    let seen = std::thread::scope(|scope| {
        scope.spawn(|| rig.worker.step());
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let load = tables.worker_load(WORKER);
            if load.serving_since_ns != 0 {
                break load;
            }
            assert!(Instant::now() < until, "no packet in service");
            std::thread::yield_now();
        }
    });
    let mut waiting = [0; BANDS];
    (waiting[0], waiting[band_of(60_000_000) as usize]) = (20_000_000, 60_000_000);
    assert_eq!(seen.behind, Behind::of(&waiting));
    while rig.worker.step() > 0 {}
    assert_eq!(rig.take(PORT).len(), 2);
    rig.finish();
}

#[test]
fn frames_that_hold_a_packet_are_counted() {
    for discipline in [FIFO, SHORTEST] {
        let mut rig = rig(discipline);
        let in_use = |rig: &Rig| rig.worker_word(offset_of!(WorkerRow, frames_in_use));
        rig.worker.step();
        assert_eq!(in_use(&rig), pair(0, FRAMES), "those that wait for a packet hold none");
        // More than a batch; the kernel has sent none of the results.
        for _ in 0..70 {
            Job { spin_ns: if discipline == FIFO { 0 } else { LONG_NS }, ..JOB }.deliver(&mut rig);
        }
        rig.worker.step();
        assert_eq!(in_use(&rig), pair(70, FRAMES), "in rings, in the queue, on their way out");
        while rig.worker.step() > 0 {}
        assert_eq!(in_use(&rig), pair(70, FRAMES));
        assert_eq!(sent(&mut rig).len(), 70);
        rig.worker.step();
        assert_eq!(in_use(&rig), pair(0, FRAMES));
        rig.finish();
    }
}

#[test]
fn a_stop_drops_what_waits_under_a_name() {
    let mut rig = rig(SHORTEST);
    for _ in 0..70 {
        JOB.deliver(&mut rig);
    }
    rig.worker.step();
    assert_eq!(rig.left(), (69_000, 69));
    rig.worker.stop_on(Arc::new(AtomicBool::new(true)));
    rig.worker.run();
    rig.rest();
    rig.counted(&[(Reason::SeenLocal, 70), (Reason::DropStopping, 69), (Reason::SentResult, 1)]);
    assert_eq!((rig.left(), rig.lost()), ((0, 0), (0, 0)));
    sent(&mut rig);
    rig.finish();
}

#[test]
fn losses_are_settled_when_a_packet_is_taken_and_not_when_it_is_served() {
    let mut rig = rig(SHORTEST);
    rig.charge(PORT, 700);
    Job { name: 1, charged_ns: 5_000_000, ..JOB }.deliver(&mut rig);
    rig.charge(PORT, 30);
    Job { name: 2, charged_ns: 40_000, ..JOB }.deliver(&mut rig);
    rig.charge(PORT, 9);
    // The one in the middle has left the queue before the first.
    rig.worker.step();
    assert_eq!(sent(&mut rig), [2]);
    assert_eq!((rig.lost(), rig.left()), ((730, 2), (5_000_009, 2)));
    rig.housekeep();
    rig.housekeep();
    assert_eq!((rig.lost(), rig.left()), ((739, 3), (5_000_000, 1)), "what waits in the queue is not lost");
    rig.worker.step();
    assert_eq!(rig.left(), (0, 0));
    assert_eq!(rig.queue_word(PORT, offset_of!(QueueRow, taken_packets)), 2);
    assert_eq!(sent(&mut rig), [1]);
    rig.finish();
}

#[test]
fn a_frame_that_housekeeping_finds_waits_and_is_served() {
    let mut rig = rig(SHORTEST);
    let charged = rig.charge(PORT, 500);
    rig.housekeep();
    assert!(rig.deliver_charged(PORT, charged, Builtin::Spin, &JOB.frame()));
    assert_eq!(rig.worker.housekeep(), 1);
    rig.rest();
    assert_eq!((rig.lost(), rig.left()), ((0, 0), (500, 1)));
    assert_eq!(rig.worker.step(), 1);
    assert_eq!(rig.left(), (0, 0));
    sent(&mut rig);
    rig.finish();
}

#[test]
fn a_frame_that_comes_at_the_very_end_is_dropped_under_a_name() {
    let mut rig = rig(SHORTEST);
    let charged = rig.charge(PORT, 500);
    rig.housekeep();
    assert!(rig.deliver_charged(PORT, charged, Builtin::Spin, &JOB.frame()));
    // The last step does not see it, the housekeeping behind it does.
    rig.shared[PORT].early_looks.store(1, Relaxed);
    rig.worker.stop_on(Arc::new(AtomicBool::new(true)));
    rig.worker.run();
    rig.rest();
    rig.counted(&[(Reason::SeenLocal, 1), (Reason::DropStopping, 1)]);
    rig.finish();
}

#[test]
fn the_kernel_gets_frames_again_before_the_step_ends() {
    let mut rig = rig(SHORTEST);
    let recycles = |rig: &Rig| [PORT, LINK].map(|socket| rig.shared[socket].recycles.load(Relaxed));
    let before = recycles(&rig);
    JOB.deliver(&mut rig);
    assert_eq!(rig.worker.step(), 1);
    let after = recycles(&rig);
    assert_eq!([after[PORT] - before[PORT], after[LINK] - before[LINK]], [2, 1], "when some were taken and at the end");
    sent(&mut rig);
    rig.finish();
}

#[test]
fn all_of_the_memory_may_wait() {
    let mut rig = rig(SHORTEST);
    let mut delivered = 0u64;
    // The kernel receives whatever it has a frame for, and sends nothing.
    for round in 0..40 {
        while rig.deliver_charged(PORT, rig.charge(PORT, 1_000), Builtin::Spin, &JOB.frame()) {
            delivered += 1;
        }
        assert_eq!(rig.worker.step(), 1);
        assert_eq!(rig.counters()[Reason::SeenLocal as usize], delivered, "round {round}");
    }
    let frames = rig.worker.umem().ledger();
    assert!(delivered > 300, "{delivered}");
    assert!(frames.is_balanced() && frames.worker as u64 == delivered - 40, "{frames:?}");
    rig.take(PORT);
    while rig.worker.step() > 0 {
        rig.take(PORT);
    }
    assert_eq!(rig.counters()[Reason::SentResult as usize], delivered);
    rig.finish();
}

#[test]
fn results_of_others_and_what_nobody_knows_do_not_wait() {
    let mut rig = rig(SHORTEST);
    Job { charged_ns: 0, ..JOB }.deliver(&mut rig);
    let result = Metadata { origin: Origin::Result, ..rig.metadata(LINK, rig.charge(LINK, 0), Builtin::Forward) };
    assert!(rig.kernels[LINK].deliver_with_metadata(&result.emit(), &FORWARD.frame(&JOB.frame())));
    assert!(rig.kernels[PORT].deliver_with_metadata(&[0; METADATA_BYTES], &JOB.frame()));
    assert_eq!(rig.worker.step(), 3);
    assert_eq!(rig.counters()[Reason::SeenResult as usize], 1);
    assert_eq!(sent(&mut rig).len(), 1);
    rig.finish();
}

//! UMEM, frames and the packet path against `fake::Kernel`. No privileges, no NIC. Each test ends with [`balanced`].

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;

use super::fake::{self, FakeConfig, Kernel};
use super::sys::XdpDesc;
use super::*;

const FRAME: usize = 2048;
/// Where received packets start without extra headroom.
const START: usize = 256;

fn umem(frames: u32) -> Umem {
    Umem::new(&UmemConfig { frames, ..UmemConfig::default() }).unwrap()
}

fn open(umem: &mut Umem, entries: u32) -> (Rings, Kernel) {
    fake::open(umem, &FakeConfig::new(entries)).unwrap()
}

/// Receives all that waits and returns the packets, their frames released.
fn drain(rings: &mut Rings, umem: &mut Umem) -> Vec<Vec<u8>> {
    let mut batch = Batch::new(64);
    rings.receive(umem, &mut batch);
    let packets = batch.iter().map(|frame| umem.bytes(frame).to_vec()).collect();
    batch.release_all(umem);
    packets
}

/// A frame with this packet.
fn packet(umem: &mut Umem, bytes: &[u8]) -> Frame {
    let mut frame = umem.allocate().unwrap();
    frame.set_len(bytes.len()).unwrap();
    umem.bytes_mut(&mut frame).copy_from_slice(bytes);
    frame
}

/// No frame is missing, and none is in the worker's hands.
#[track_caller]
fn balanced(umem: &Umem) -> Ledger {
    let ledger = umem.ledger();
    assert!(ledger.is_balanced(), "{ledger:?}");
    assert_eq!(ledger.worker, 0, "{ledger:?}");
    assert_eq!(ledger.total - ledger.free, umem.outstanding());
    ledger
}

/// The message of the `BUG` panic that `action` ends with.
fn bug(action: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(action)).expect_err("no panic");
    let message = payload.downcast_ref::<String>().cloned().unwrap_or_default();
    assert!(message.starts_with("BUG"), "{message}");
    message
}

mod frame {
    use super::*;

    #[test]
    fn the_packet_moves_within_its_frame_and_never_out_of_it() {
        let mut umem = umem(1);
        let mut frame = umem.allocate().unwrap();
        assert_eq!((frame.headroom(), frame.len(), frame.tailroom()), (START, 0, FRAME - START));
        let room = FRAME - START;
        assert_eq!(frame.set_len(room + 1), Err(OutOfFrame { wanted: room + 1, available: room }));
        assert_eq!(frame.set_len(usize::MAX), Err(OutOfFrame { wanted: usize::MAX, available: room }));
        assert_eq!(frame.set_len(65536 + 4), Err(OutOfFrame { wanted: 65540, available: room }));
        frame.set_len(room).unwrap();
        assert_eq!(frame.tailroom(), 0);
        assert_eq!(frame.push_front(START + 1), Err(OutOfFrame { wanted: START + 1, available: START }));
        frame.push_front(START).unwrap();
        assert_eq!((frame.headroom(), frame.len()), (0, FRAME));
        assert_eq!(umem.bytes(&frame).len(), FRAME);
        assert_eq!(frame.push_front(1), Err(OutOfFrame { wanted: 1, available: 0 }));
        assert_eq!(frame.pull_front(FRAME + 1), Err(OutOfFrame { wanted: FRAME + 1, available: FRAME }));
        frame.pull_front(FRAME).unwrap();
        assert_eq!((frame.headroom(), frame.len(), frame.tailroom()), (FRAME, 0, 0));
        assert!(umem.bytes_mut(&mut frame).is_empty());
        umem.release(frame);
        balanced(&umem);
    }

    #[test]
    fn headers_pushed_and_pulled_leave_the_rest_of_the_packet_alone() {
        let mut umem = umem(2);
        let mut frame = packet(&mut umem, b"payload");
        frame.push_front(4).unwrap();
        umem.bytes_mut(&mut frame)[..4].copy_from_slice(b"head");
        assert_eq!(umem.bytes(&frame), b"headpayload");
        frame.pull_front(6).unwrap();
        assert_eq!(umem.bytes(&frame), b"yload");
        umem.release(frame);
        balanced(&umem);
    }

    #[test]
    fn several_frames_can_be_changed_at_the_same_time() {
        let mut umem = umem(2);
        let mut a = packet(&mut umem, &[1; 100]);
        let mut b = packet(&mut umem, &[2; 100]);
        let (bytes_a, bytes_b) = (umem.bytes_mut(&mut a), umem.bytes_mut(&mut b));
        bytes_a.swap_with_slice(bytes_b);
        assert_eq!((umem.bytes(&a), umem.bytes(&b)), (&[2; 100][..], &[1; 100][..]));
        umem.release(a);
        umem.release(b);
        balanced(&umem);
    }

    #[test]
    fn dropping_a_frame_is_counted_and_a_panic_in_debug_builds() {
        let mut umem = umem(2);
        let frame = umem.allocate().unwrap();
        let before = leaked_frames();
        let outcome = catch_unwind(AssertUnwindSafe(|| drop(frame)));
        assert_eq!(outcome.is_err(), cfg!(debug_assertions));
        assert!(leaked_frames() > before);
        let ledger = umem.ledger();
        assert!(ledger.is_balanced(), "a lost frame is still accounted for");
        assert_eq!((ledger.worker, ledger.free), (1, 1));
    }

    #[test]
    fn a_frame_of_another_umem_is_refused_everywhere() {
        let (mut ours, mut theirs) = (umem(4), umem(4));
        let (mut rings, _kernel) = open(&mut ours, 4);
        let mut frame = theirs.allocate().unwrap();
        bug(|| drop(ours.bytes(&frame).to_vec()));
        bug(|| drop(ours.metadata(&frame, 1).map(<[u8]>::to_vec)));
        bug(|| ours.bytes_mut(&mut frame).fill(0));
        theirs.release(frame);
        let frame = theirs.allocate().unwrap();
        bug(|| ours.release(frame));
        let mut batch = Batch::new(1);
        batch.push(packet(&mut theirs, b"x")).unwrap();
        bug(|| assert_eq!(rings.transmit(&mut ours, &mut batch), 0));
        let message = bug(|| assert_eq!(rings.refill(&mut theirs), 0));
        assert!(message.contains("UMEM"), "{message}");
        balanced(&ours);
    }

    #[test]
    fn metadata_ends_where_the_packet_starts_and_stays_in_the_frame() {
        let mut umem = umem(4);
        let (mut rings, mut kernel) = open(&mut umem, 4);
        rings.refill(&mut umem);
        assert!(kernel.deliver_with_metadata(b"\x01\x02\x03\x04", b"packet"));
        let mut batch = Batch::new(4);
        assert_eq!(rings.receive(&mut umem, &mut batch), 1);
        let mut frame = batch.pop().unwrap();
        assert_eq!(umem.metadata(&frame, 4), Some(&b"\x01\x02\x03\x04"[..]));
        assert_eq!(umem.metadata(&frame, 0), Some(&b""[..]));
        assert_eq!(umem.metadata(&frame, START).map(<[u8]>::len), Some(START));
        assert_eq!(umem.metadata(&frame, START + 1), None);
        assert_eq!(umem.metadata(&frame, usize::MAX), None);
        frame.push_front(START).unwrap();
        assert_eq!(umem.metadata(&frame, 1), None);
        umem.release(frame);
        balanced(&umem);
    }

    #[test]
    fn a_full_batch_gives_the_frame_back() {
        let mut umem = umem(2);
        let mut batch = Batch::new(1);
        batch.push(umem.allocate().unwrap()).unwrap();
        let Full(frame) = batch.push(umem.allocate().unwrap()).unwrap_err();
        umem.release(frame);
        assert_eq!((batch.len(), batch.room()), (1, 0));
        batch.release_all(&mut umem);
        balanced(&umem);
    }
}

mod umem_ {
    use super::*;

    #[test]
    fn numbers_that_the_kernel_would_refuse_are_refused_by_name() {
        let field = |config: UmemConfig| match Umem::new(&config) {
            Err(Error::Config { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let good = UmemConfig::default();
        assert_eq!(field(UmemConfig { frame_size: 1024, ..good.clone() }), "frame_size");
        assert_eq!(field(UmemConfig { frame_size: 0, ..good.clone() }), "frame_size");
        assert_eq!(field(UmemConfig { frame_size: 65536 + 2048, ..good.clone() }), "frame_size");
        assert_eq!(field(UmemConfig { headroom: 2048 - 256, ..good.clone() }), "headroom");
        assert_eq!(field(UmemConfig { headroom: u32::MAX - 255, ..good.clone() }), "headroom");
        assert_eq!(field(UmemConfig { frames: 0, ..good }), "frames");
    }

    #[test]
    fn frames_run_out_and_come_back() {
        let mut umem = umem(3);
        let frames: Vec<Frame> = std::iter::from_fn(|| umem.allocate()).collect();
        assert_eq!(frames.len(), 3);
        assert_eq!((umem.available(), umem.outstanding(), umem.ledger().worker), (0, 3, 3));
        frames.into_iter().for_each(|frame| umem.release(frame));
        assert_eq!(balanced(&umem).free, 3);
    }

    #[test]
    fn huge_pages_are_obtained_or_their_refusal_reported() {
        let mut umem = Umem::new(&UmemConfig { huge_pages: true, frame_size: 4096, ..UmemConfig::default() }).unwrap();
        match umem.pages() {
            Pages::Huge => {}
            Pages::FellBack { errno } => assert_eq!(errno, libc::ENOMEM),
            Pages::Base => panic!("huge pages were not tried"),
        }
        let frame = packet(&mut umem, &[7; 4096 - 256]);
        umem.release(frame);
        balanced(&umem);
    }

    #[test]
    fn headroom_moves_the_start_of_packets() {
        let mut umem = Umem::new(&UmemConfig { frames: 4, headroom: 64, ..UmemConfig::default() }).unwrap();
        let (mut rings, mut kernel) = open(&mut umem, 4);
        rings.refill(&mut umem);
        assert!(!kernel.deliver(&[0; FRAME - START - 64 + 1]), "longer than what is left");
        assert!(kernel.deliver(&[9; FRAME - START - 64]));
        let mut batch = Batch::new(1);
        rings.receive(&mut umem, &mut batch);
        let frame = batch.pop().unwrap();
        assert_eq!((frame.headroom(), frame.tailroom()), (START + 64, 0));
        umem.release(frame);
        balanced(&umem);
    }

    #[test]
    fn what_a_closed_socket_held_is_stranded_and_its_place_used_again_only_when_empty() {
        let mut umem = umem(64);
        let (mut rings, kernel) = open(&mut umem, 8);
        assert_eq!(rings.refill(&mut umem), 8);
        assert_eq!(umem.ledger().inbound, 8);
        drop((rings, kernel));
        assert_eq!(balanced(&umem).stranded, 8);
        for _ in 0..1000 {
            drop(open(&mut umem, 8));
        }
        let (mut rings, mut kernel) = open(&mut umem, 8);
        rings.refill(&mut umem);
        kernel.deliver(b"works");
        assert_eq!(drain(&mut rings, &mut umem), [b"works"]);
        let ledger = balanced(&umem);
        assert_eq!((ledger.stranded, ledger.inbound), (8, 7));
    }

    #[test]
    fn a_umem_tells_at_most_256_sockets_apart() {
        let mut umem = umem(1);
        let sockets: Vec<_> = (0..256).map(|_| open(&mut umem, 1)).collect();
        let refused = fake::open(&mut umem, &FakeConfig::new(1));
        assert!(matches!(refused, Err(Error::TooManySockets { limit: 256 })));
        drop(sockets);
        drop(open(&mut umem, 1));
        balanced(&umem);
    }
}

mod path {
    use super::*;

    #[test]
    fn a_packet_goes_in_and_out_and_its_frame_comes_back() {
        let mut umem = umem(8);
        let (mut rings, mut kernel) = open(&mut umem, 4);
        let mut batch = Batch::new(4);
        for turn in 0..100u8 {
            rings.refill(&mut umem);
            assert!(kernel.deliver(&[turn; 60]));
            assert_eq!(rings.receive(&mut umem, &mut batch), 1);
            for frame in batch.iter_mut() {
                umem.bytes_mut(frame)[0] = !turn;
            }
            assert_eq!(rings.transmit(&mut umem, &mut batch), 1);
            let sent = kernel.transmit().unwrap();
            assert_eq!((sent.len(), sent[0], sent[1]), (60, !turn, turn));
            assert_eq!(umem.ledger().outbound, 1);
            assert_eq!(kernel.complete(1), 1);
            assert_eq!(rings.complete(&mut umem), 1);
        }
        let counters = rings.counters();
        assert_eq!((counters.received, counters.transmitted, counters.completed), (100, 100, 100));
        let ledger = balanced(&umem);
        assert_eq!((ledger.inbound, ledger.outbound), (3, 0));
    }

    #[test]
    fn a_full_tx_ring_leaves_the_rest_in_the_batch_in_order() {
        let mut umem = umem(16);
        let (mut rings, mut kernel) = open(&mut umem, 4);
        let mut batch = Batch::new(8);
        for value in 0..6 {
            batch.push(packet(&mut umem, &[value])).unwrap();
        }
        assert_eq!(rings.transmit(&mut umem, &mut batch), 4);
        assert_eq!(rings.transmit(&mut umem, &mut batch), 0);
        let left: Vec<u8> = batch.iter().map(|frame| umem.bytes(frame)[0]).collect();
        assert_eq!(left, [4, 5]);
        assert_eq!(kernel.transmit(), Some(vec![0]));
        assert_eq!(rings.transmit(&mut umem, &mut batch), 1);
        batch.release_all(&mut umem);
        let sent: Vec<_> = std::iter::from_fn(|| kernel.transmit()).collect();
        assert_eq!(sent, [[1], [2], [3], [4]]);
        assert_eq!(balanced(&umem).outbound, 5);
    }

    #[test]
    fn a_frame_without_a_packet_is_released_instead_of_sent() {
        let mut umem = umem(4);
        let (mut rings, mut kernel) = open(&mut umem, 4);
        let mut batch = Batch::new(4);
        batch.push(umem.allocate().unwrap()).unwrap();
        batch.push(packet(&mut umem, b"full")).unwrap();
        batch.push(umem.allocate().unwrap()).unwrap();
        assert_eq!(rings.transmit(&mut umem, &mut batch), 1);
        assert!(batch.is_empty());
        assert_eq!(rings.counters().tx_empty, 2);
        assert_eq!((kernel.transmit(), kernel.transmit()), (Some(b"full".to_vec()), None));
        assert_eq!(balanced(&umem).outbound, 1);
    }

    #[test]
    fn receive_takes_no_more_than_the_batch_has_room_for() {
        let mut umem = umem(8);
        let (mut rings, mut kernel) = open(&mut umem, 8);
        rings.refill(&mut umem);
        (0..5).for_each(|value| assert!(kernel.deliver(&[value])));
        let mut batch = Batch::new(3);
        assert_eq!(rings.receive(&mut umem, &mut batch), 3);
        assert_eq!(rings.receive(&mut umem, &mut batch), 0);
        assert_eq!(rings.levels().rx, 2);
        batch.release_all(&mut umem);
        assert_eq!(drain(&mut rings, &mut umem), [[3], [4]]);
        balanced(&umem);
    }

    #[test]
    fn refill_stops_at_the_ring_or_at_the_last_free_frame() {
        let mut umem = umem(6);
        let (mut a, mut kernel) = open(&mut umem, 4);
        let (mut b, _kernel) = open(&mut umem, 4);
        assert_eq!((a.refill(&mut umem), b.refill(&mut umem)), (4, 2));
        assert_eq!((a.refill(&mut umem), b.refill(&mut umem)), (0, 0));
        kernel.deliver(b"x");
        drain(&mut a, &mut umem);
        assert_eq!(b.refill(&mut umem), 1);
        assert_eq!(balanced(&umem).inbound, 6);
    }

    #[test]
    fn frames_move_between_sockets_of_one_umem() {
        let mut umem = umem(16);
        let (mut port, mut port_kernel) = open(&mut umem, 4);
        let (mut link, mut link_kernel) = open(&mut umem, 4);
        let mut batch = Batch::new(4);
        for value in 0..50u8 {
            port.refill(&mut umem);
            link.refill(&mut umem);
            port_kernel.deliver(&[value]);
            port.receive(&mut umem, &mut batch);
            link.transmit(&mut umem, &mut batch);
            assert_eq!(link_kernel.transmit(), Some(vec![value]));
            link_kernel.complete(1);
            assert_eq!((port.complete(&mut umem), link.complete(&mut umem)), (0, 1));
        }
        let ledger = balanced(&umem);
        assert_eq!((ledger.inbound, ledger.outbound), (7, 0));
    }

    #[test]
    fn completions_may_come_in_any_order() {
        let mut umem = umem(8);
        let (mut rings, mut kernel) = open(&mut umem, 8);
        let mut batch = Batch::new(8);
        (0..8).for_each(|value| batch.push(packet(&mut umem, &[value])).unwrap());
        rings.transmit(&mut umem, &mut batch);
        while kernel.transmit().is_some() {}
        for n in [7, 0, 3, 4, 1, 2] {
            assert!(kernel.complete_nth(n));
        }
        assert_eq!(rings.complete(&mut umem), 6);
        assert_eq!(balanced(&umem).outbound, 2);
        kernel.complete(2);
        assert_eq!(rings.complete(&mut umem), 2);
        assert_eq!(balanced(&umem).free, 8);
    }

    #[test]
    fn need_wakeup_is_seen_on_fill_and_tx() {
        let mut umem = umem(4);
        let (rings, mut kernel) = open(&mut umem, 4);
        assert_eq!((rings.fill_needs_wakeup(), rings.tx_needs_wakeup()), (false, false));
        kernel.set_tx_need_wakeup(true);
        assert_eq!((rings.fill_needs_wakeup(), rings.tx_needs_wakeup()), (false, true));
        kernel.set_fill_need_wakeup(true);
        kernel.set_tx_need_wakeup(false);
        assert_eq!((rings.fill_needs_wakeup(), rings.tx_needs_wakeup()), (true, false));
        balanced(&umem);
    }

    #[test]
    fn a_worker_and_its_kernel_run_on_two_threads() {
        const PACKETS: u32 = 20_000;
        let mut umem = umem(32);
        let (mut rings, mut kernel) = open(&mut umem, 8);
        let kernel = std::thread::spawn(move || {
            let (mut sent, mut echoed) = (0u32, 0u32);
            while echoed < PACKETS {
                if sent < PACKETS && kernel.deliver(&sent.to_le_bytes()) {
                    sent += 1;
                }
                match kernel.transmit() {
                    Some(packet) => {
                        assert_eq!(packet, echoed.to_be_bytes());
                        echoed += 1;
                    }
                    None => std::thread::yield_now(),
                }
                kernel.complete(8);
            }
            while kernel.in_flight() > 0 {
                kernel.complete(8);
                std::thread::yield_now();
            }
            kernel
        });
        let mut batch = Batch::new(16);
        while rings.counters().completed < u64::from(PACKETS) {
            assert!(!kernel.is_finished() || rings.levels().completion > 0, "{:?}", rings.counters());
            rings.complete(&mut umem);
            rings.refill(&mut umem);
            // Only when all are sent: one that waits for room has been turned round already.
            if batch.is_empty() {
                rings.receive(&mut umem, &mut batch);
                for frame in batch.iter_mut() {
                    umem.bytes_mut(frame).reverse();
                }
            }
            if rings.transmit(&mut umem, &mut batch) == 0 {
                std::thread::yield_now();
            }
        }
        batch.release_all(&mut umem);
        drop(kernel.join().unwrap());
        assert_eq!(balanced(&umem).outbound, 0);
    }
}

mod lies {
    use super::*;

    #[test]
    fn descriptors_outside_the_umem_are_counted_and_cost_nothing() {
        let mut umem = umem(8);
        let (mut rings, mut kernel) = open(&mut umem, 8);
        rings.refill(&mut umem);
        let end = 8 * FRAME as u64;
        for addr in [end, end + 5, u64::from(u32::MAX) * FRAME as u64, 1 << 48, u64::MAX] {
            kernel.deliver_descriptor(XdpDesc { addr, len: 64, options: 0 });
            kernel.complete_address(addr);
        }
        assert!(drain(&mut rings, &mut umem).is_empty());
        assert_eq!(rings.complete(&mut umem), 0);
        assert_eq!((rings.counters().bad_rx_descriptors, rings.counters().bad_completions), (5, 5));
        assert_eq!(balanced(&umem).inbound, 8);
    }

    #[test]
    fn a_packet_past_its_frame_or_with_options_is_counted_and_its_frame_freed() {
        let mut umem = umem(8);
        let (mut rings, mut kernel) = open(&mut umem, 8);
        rings.refill(&mut umem);
        let lies = [(0, FRAME + 1, 0), (256, FRAME - 255, 0), (2047, 2, 0), (0, u32::MAX as usize, 0), (256, 64, 1)];
        for (offset, len, options) in lies {
            let addr = kernel.take_fill().unwrap() + offset;
            kernel.deliver_descriptor(XdpDesc { addr, len: len as u32, options });
        }
        assert!(drain(&mut rings, &mut umem).is_empty());
        assert_eq!(rings.counters().bad_rx_descriptors, 5);
        assert_eq!(balanced(&umem).free, 5);
        let addr = kernel.take_fill().unwrap();
        kernel.deliver_descriptor(XdpDesc { addr, len: FRAME as u32, options: 0 });
        assert_eq!(drain(&mut rings, &mut umem).len(), 1, "a packet that fills its frame is right");
    }

    #[test]
    fn a_frame_that_was_not_lent_is_not_believed() {
        let mut umem = umem(8);
        let (mut rings, mut kernel) = open(&mut umem, 4);
        let (mut other, mut other_kernel) = open(&mut umem, 4);
        rings.refill(&mut umem);
        let addr = kernel.take_fill().unwrap();
        let desc = XdpDesc { addr, len: 64, options: 0 };
        // Twice the same.
        kernel.deliver_descriptor(desc);
        kernel.deliver_descriptor(desc);
        let mut batch = Batch::new(4);
        assert_eq!(rings.receive(&mut umem, &mut batch), 1);
        assert_eq!(rings.counters().bad_rx_descriptors, 1);
        // While it is in the worker's hands.
        kernel.deliver_descriptor(desc);
        kernel.complete_address(addr);
        assert_eq!((rings.receive(&mut umem, &mut batch), rings.complete(&mut umem)), (0, 0));
        // While it is being sent; by another socket; completed twice.
        rings.transmit(&mut umem, &mut batch);
        kernel.deliver_descriptor(desc);
        other_kernel.deliver_descriptor(desc);
        other_kernel.complete_address(addr);
        assert_eq!((rings.receive(&mut umem, &mut batch), other.receive(&mut umem, &mut batch)), (0, 0));
        assert_eq!(other.complete(&mut umem), 0);
        kernel.complete_address(addr);
        kernel.complete_address(addr);
        assert_eq!(rings.complete(&mut umem), 1);
        // While it is free.
        kernel.deliver_descriptor(desc);
        assert_eq!(rings.receive(&mut umem, &mut batch), 0);
        assert_eq!((rings.counters().bad_rx_descriptors, rings.counters().bad_completions), (4, 2));
        assert_eq!((other.counters().bad_rx_descriptors, other.counters().bad_completions), (1, 1));
        assert_eq!(balanced(&umem).inbound, 3);
    }
}

mod any_order {
    use super::*;

    #[derive(Clone, Debug)]
    enum Operation {
        Refill,
        Deliver(usize),
        Receive(usize),
        /// What the worker does with the oldest frame it has.
        Send,
        Release,
        Hold,
        Allocate,
        /// What the kernel does.
        TakeTx(usize),
        Complete(usize),
        Reap,
        Lie(u64, u32),
    }

    fn operation() -> impl Strategy<Value = (usize, Operation)> {
        let operation = prop_oneof![
            2 => Just(Operation::Refill),
            4 => (0..4usize).prop_map(Operation::Deliver),
            4 => (0..4usize).prop_map(Operation::Receive),
            4 => Just(Operation::Send),
            2 => Just(Operation::Release),
            1 => Just(Operation::Hold),
            1 => Just(Operation::Allocate),
            3 => (0..4usize).prop_map(Operation::TakeTx),
            3 => (0..6usize).prop_map(Operation::Complete),
            2 => Just(Operation::Reap),
            1 => (any::<u64>(), any::<u32>()).prop_map(|(addr, len)| Operation::Lie(addr, len)),
        ];
        (0..2usize, operation)
    }

    /// Two sockets on one UMEM, with an oracle of what must arrive where.
    struct World {
        umem: Umem,
        sockets: Vec<(Rings, Kernel)>,
        /// Packets delivered and not received, sent and not taken by the kernel; per socket.
        arriving: Vec<VecDeque<Vec<u8>>>,
        leaving: Vec<VecDeque<Vec<u8>>>,
        batch: Batch,
        held: Vec<Frame>,
        /// What each frame in the worker's hands must contain.
        contents: HashMap<u32, Vec<u8>>,
        next: u64,
    }

    impl World {
        fn new(start: u32) -> Self {
            let mut umem = umem(12);
            let config = FakeConfig { start, ..FakeConfig::new(4) };
            let sockets = (0..2).map(|_| fake::open(&mut umem, &config).unwrap()).collect();
            Self {
                umem,
                sockets,
                arriving: vec![VecDeque::new(); 2],
                leaving: vec![VecDeque::new(); 2],
                batch: Batch::new(6),
                held: Vec::new(),
                contents: HashMap::new(),
                next: 0,
            }
        }

        fn new_packet(&mut self) -> Vec<u8> {
            self.next += 1;
            self.next.to_le_bytes().repeat(1 + self.next as usize % 9)
        }

        fn step(&mut self, socket: usize, operation: &Operation) {
            match *operation {
                Operation::Refill => drop(self.sockets[socket].0.refill(&mut self.umem)),
                Operation::Deliver(count) => (0..count).for_each(|_| {
                    let packet = self.new_packet();
                    if self.sockets[socket].1.deliver(&packet) {
                        self.arriving[socket].push_back(packet);
                    }
                }),
                Operation::Receive(limit) => self.receive(socket, limit),
                Operation::Send => self.send(socket),
                Operation::Release => {
                    if let Some(frame) = self.batch.pop().or_else(|| self.held.pop()) {
                        self.check(&frame);
                        self.contents.remove(&frame.index());
                        self.umem.release(frame);
                    }
                }
                Operation::Hold => self.held.extend(self.batch.pop()),
                Operation::Allocate => {
                    if let Some(mut frame) = self.umem.allocate() {
                        let bytes = self.new_packet();
                        frame.set_len(bytes.len()).unwrap();
                        self.umem.bytes_mut(&mut frame).copy_from_slice(&bytes);
                        self.contents.insert(frame.index(), bytes);
                        self.held.push(frame);
                    }
                }
                Operation::TakeTx(count) => (0..count).for_each(|_| {
                    assert_eq!(self.sockets[socket].1.transmit(), self.leaving[socket].pop_front());
                }),
                Operation::Complete(n) => drop(self.sockets[socket].1.complete_nth(n)),
                Operation::Reap => drop(self.sockets[socket].0.complete(&mut self.umem)),
                Operation::Lie(addr, len) => {
                    // Outside the UMEM; the module `lies` has the ones inside.
                    let addr = (12 * FRAME as u64).saturating_add(addr);
                    if self.sockets[socket].1.deliver_descriptor(XdpDesc { addr, len, options: 0 }) {
                        self.arriving[socket].push_back(Vec::new());
                    }
                }
            }
        }

        fn receive(&mut self, socket: usize, limit: usize) {
            let mut batch = Batch::new(limit);
            self.sockets[socket].0.receive(&mut self.umem, &mut batch);
            while let Some(frame) = batch.pop() {
                let mut expected = self.arriving[socket].pop_front().unwrap();
                while expected.is_empty() {
                    expected = self.arriving[socket].pop_front().unwrap();
                }
                assert_eq!(self.umem.bytes(&frame), expected);
                assert!(self.contents.insert(frame.index(), expected).is_none(), "two frames of one index");
                if let Err(Full(frame)) = self.batch.push(frame) {
                    self.held.push(frame);
                }
            }
        }

        fn send(&mut self, socket: usize) {
            for frame in self.batch.iter() {
                self.check(frame);
            }
            let indexes: Vec<u32> = self.batch.iter().map(Frame::index).collect();
            let sent = self.sockets[socket].0.transmit(&mut self.umem, &mut self.batch);
            for index in &indexes[..sent] {
                self.leaving[socket].push_back(self.contents.remove(index).unwrap());
            }
            let left: Vec<u32> = self.batch.iter().map(Frame::index).collect();
            assert_eq!(left, indexes[sent..]);
        }

        fn check(&self, frame: &Frame) {
            assert_eq!(Some(self.umem.bytes(frame)), self.contents.get(&frame.index()).map(Vec::as_slice));
        }

        /// Every frame is somewhere, and the counts agree with the hands.
        fn audit(&self) {
            let ledger = self.umem.ledger();
            assert!(ledger.is_balanced(), "{ledger:?}");
            assert_eq!(ledger.worker as usize, self.batch.len() + self.held.len());
            let outbound: usize = self.leaving.iter().map(VecDeque::len).sum();
            assert!(ledger.outbound as usize >= outbound);
        }

        /// Lets everything come to rest: all frames are free or in a fill ring.
        fn finish(mut self) {
            self.held.drain(..).for_each(|frame| self.umem.release(frame));
            self.batch.release_all(&mut self.umem);
            for (rings, kernel) in &mut self.sockets {
                drain(rings, &mut self.umem);
                while kernel.transmit().is_some() {}
                while kernel.in_flight() > 0 {
                    kernel.complete(4);
                    rings.complete(&mut self.umem);
                }
                rings.complete(&mut self.umem);
                assert_eq!(rings.counters().bad_completions, 0);
                assert_eq!(rings.counters().transmitted, rings.counters().completed);
            }
            let fill: u32 = self.sockets.iter().map(|(rings, _)| rings.levels().fill).sum();
            let ledger = balanced(&self.umem);
            assert_eq!((ledger.inbound, ledger.outbound), (fill, 0));
        }
    }

    proptest! {
        /// No order of calls, no liar and no wrap of the cursors loses, doubles or mixes up a frame.
        #[test]
        fn no_frame_is_ever_lost_or_doubled(
            start in prop_oneof![any::<u32>(), (u32::MAX - 16)..=u32::MAX],
            operations in prop::collection::vec(operation(), 0..300),
        ) {
            let mut world = World::new(start);
            for (socket, operation) in &operations {
                world.step(*socket, operation);
                world.audit();
            }
            world.finish();
        }
    }
}

mod config {
    use super::*;

    #[test]
    fn ring_sizes_that_are_no_powers_of_two_are_refused_by_name() {
        let mut umem = umem(1);
        let good = XskConfig::new(1, 0);
        let bad = [
            (XskConfig { rx_size: 0, ..good.clone() }, "rx_size"),
            (XskConfig { tx_size: 1000, ..good.clone() }, "tx_size"),
            (XskConfig { fill_size: 1 << 21, ..good.clone() }, "fill_size"),
            (XskConfig { completion_size: 3, ..good.clone() }, "completion_size"),
        ];
        for (config, name) in bad {
            match Xsk::open(&mut umem, &config) {
                Err(Error::Config { field, .. }) => assert_eq!(field, name),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(good.frames(), 8192);
    }

    #[test]
    fn an_error_says_where_what_and_why() {
        let source = std::io::Error::from_raw_os_error(libc::EBUSY);
        let error = Error::System { ifindex: 7, queue_id: 3, operation: Operation::Bind { attempts: 9 }, source };
        let text = error.to_string();
        assert!(text.contains("bind") && text.contains("ifindex 7") && text.contains("queue 3"), "{text}");
        assert_eq!(error.errno(), Some(libc::EBUSY));
        assert!(std::error::Error::source(&error).is_some());
    }
}

//! Packets of lossless functions: kept until they are answered, computed again when they are not.

use dataplane_common::held::{PLACES, State, Word, place};
use dataplane_common::maps::{FUNCTION_LOSSLESS, FUNCTION_WORKER, ORDER_FLOW, ORDER_NONE};
use dataplane_common::wire::link::{FLAG_HELD, FLAG_UNDONE, Header, OVERHEAD_BYTES};

use super::decide::{LONG_NS, arrives, header, question, report};
use super::*;

fn rig(retry: Duration) -> Rig {
    super::decide::rig(ORDER_NONE, FUNCTION_WORKER | FUNCTION_LOSSLESS, |settings| settings.retry = retry)
}

/// Two packets arrive, the second is sent and kept; its header.
fn sends_one(rig: &mut Rig) -> Header {
    for number in 0..2 {
        arrives(rig, number);
    }
    rig.worker.step();
    assert_eq!(rig.take(PORT), [question(0).answer(&[]).frame()]);
    let sent = rig.take(LINK);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0][OVERHEAD_BYTES..], question(1).frame());
    header(&sent[0])
}

/// The answer to a kept packet comes, as the XDP program takes it; true when it is the one that counts.
fn answered(rig: &Rig, header: &Header, undone: bool) -> bool {
    let word = rig.tables.held.row(header.held).word(0);
    let after = Word::from_word(word.load(Relaxed)).answered(header.generation, undone);
    after.inspect(|after| word.store(after.to_word(), Relaxed)).is_some()
}

#[test]
fn a_packet_is_kept_until_it_is_answered() {
    let mut rig = rig(RETRY);
    let sent = sends_one(&mut rig);
    assert_eq!((sent.flags, sent.held, sent.generation), (FLAG_HELD, place(WORKER, 0), 1));
    assert_eq!(rig.left(), (0, 0), "the work has gone with the packet");
    rig.worker.step();
    assert!(!rig.worker.keeping.is_empty());
    assert!(answered(&rig, &sent, false));
    assert!(!answered(&rig, &sent, false), "a second result is one too many");
    rig.worker.step();
    assert!(rig.worker.keeping.is_empty());
    rig.counted(&[(Reason::SeenLocal, 2), (Reason::SentResult, 1), (Reason::SentForward, 1), (Reason::NoteKept, 1)]);
    rig.finish();
}

#[test]
fn a_packet_that_is_not_answered_is_computed_again_and_answered_once() {
    // Late, silent, or the node says that it has not computed it.
    for case in 0..3 {
        let mut rig = rig(if case == 0 { Duration::ZERO } else { RETRY });
        let sent = sends_one(&mut rig);
        if case == 0 {
            std::thread::sleep(Duration::from_nanos(5 * u64::from(LONG_NS) + 1));
        } else if case == 2 {
            assert!(answered(&rig, &sent, true));
        }
        // Nobody else may take it.
        report(&mut rig, 0);
        rig.worker.step();
        rig.worker.step();
        assert_eq!(rig.take(PORT), [question(1).answer(&[]).frame()], "case {case}");
        assert!(!answered(&rig, &sent, false), "the late result is one too many");
        rig.counted(&[
            (Reason::SeenLocal, 2),
            (Reason::SentResult, 2),
            (Reason::SentForward, 1),
            (Reason::NoteKept, 1),
            (Reason::SeenAgain, 1),
        ]);
        rig.finish();
    }
}

#[test]
fn a_packet_is_tried_elsewhere_a_few_times_and_then_computed_here() {
    let mut rig = rig(RETRY);
    let mut sent = sends_one(&mut rig);
    let mut generations = vec![sent.generation];
    for number in 2..5 {
        assert!(answered(&rig, &sent, true));
        // Something waits here, so that it would go away again.
        arrives(&mut rig, number);
        rig.worker.step();
        rig.take(PORT);
        let again = rig.take(LINK);
        let Some(frame) = again.first() else { break };
        sent = header(frame);
        generations.push(sent.generation);
    }
    while rig.worker.step() > 0 {}
    assert!(rig.worker.keeping.is_empty());
    assert!(generations.len() <= 3, "{generations:?}");
    rig.finish();
}

#[test]
fn without_room_to_keep_it_a_packet_is_computed_here() {
    let mut rig = rig(RETRY);
    rig.worker.keeping = crate::worker::keep::Keeping::new(1);
    // The third finds as much work here as there, the fourth more.
    for number in 0..4 {
        arrives(&mut rig, number);
    }
    while rig.worker.step() > 0 {}
    assert_eq!((rig.take(LINK).len(), rig.take(PORT).len()), (1, 3));
    rig.counted(&[
        (Reason::SeenLocal, 4),
        (Reason::SentResult, 3),
        (Reason::SentForward, 1),
        (Reason::NoteKept, 1),
        (Reason::NoteKeptFull, 1),
    ]);
    report(&mut rig, 0);
    rig.worker.step();
    rig.finish();
}

#[test]
fn a_stopping_worker_ends_what_it_keeps_under_a_name() {
    let mut rig = rig(RETRY);
    let sent = sends_one(&mut rig);
    rig.worker.stop_on(Arc::new(AtomicBool::new(true)));
    while rig.worker.step() > 0 {}
    assert!(rig.worker.keeping.is_empty());
    assert!(!answered(&rig, &sent, false));
    rig.counted(&[
        (Reason::SeenLocal, 2),
        (Reason::SentResult, 1),
        (Reason::SentForward, 1),
        (Reason::NoteKept, 1),
        (Reason::SeenAgain, 1),
        (Reason::DropStopping, 1),
    ]);
    rig.finish();
}

#[test]
fn who_cannot_compute_a_kept_packet_says_so() {
    // Stopping: another node may well compute it. Broken: none would.
    for (stopping, flow, flags) in [(true, NO_FLOW, FLAG_HELD | FLAG_UNDONE), (false, 44, FLAG_HELD)] {
        let mut rig = super::decide::rig(ORDER_FLOW, 0, |_| {});
        rig.worker.stop_on(Arc::new(AtomicBool::new(stopping)));
        let mut inner = question(1).frame();
        if !stopping {
            let last = inner.len() - 1;
            inner[last] ^= 1;
        }
        let forward = Interconnect { flags: FLAG_HELD, held: 9, generation: 4, flow, ..FORWARD };
        rig.deliver(LINK, 4_321, Builtin::Forward, &forward.frame(&inner));
        rig.worker.step();
        let sent = rig.take(LINK);
        assert_eq!(sent.len(), 1);
        let mark = header(&sent[0]);
        assert_eq!((mark.length, mark.flags, mark.held, mark.generation), (0, flags, 9, 4));
        rig.finish();
    }
}

proptest! {
    /// Whatever happens to what is sent, each packet is answered once: by the peer or here.
    #[test]
    fn every_packet_is_answered_once(fates in prop::collection::vec(0u8..4, 1..60)) {
        let mut rig = rig(RETRY);
        let (mut answers, mut sent_count) = (0, 0);
        let mut late: Vec<Header> = Vec::new();
        for (number, fate) in fates.iter().enumerate() {
            arrives(&mut rig, number as u8);
            arrives(&mut rig, number as u8);
            for _ in 0..4 {
                rig.worker.step();
                answers += rig.take(PORT).len();
                for frame in rig.take(LINK) {
                    sent_count += 1;
                    let sent = header(&frame);
                    match fate {
                        // Answered, perhaps twice.
                        0 | 1 => {
                            let counts = answered(&rig, &sent, false);
                            prop_assert!(counts);
                            answers += 1;
                            prop_assert!(*fate == 0 || !answered(&rig, &sent, false));
                        }
                        2 => prop_assert!(answered(&rig, &sent, true)),
                        // Not answered until the very end.
                        _ => late.push(sent),
                    }
                }
            }
        }
        report(&mut rig, 0);
        for _ in 0..200 {
            rig.worker.step();
            answers += rig.take(PORT).len();
            rig.take(LINK);
        }
        for sent in late {
            prop_assert!(!answered(&rig, &sent, false));
        }
        prop_assert!(sent_count > 0);
        prop_assert_eq!(answers, 2 * fates.len());
        let states = (0..PLACES).map(|index| Word::from_word(rig.tables.held.row(place(WORKER, index)).word(0).load(Relaxed)));
        prop_assert!(states.into_iter().all(|word| word.state != State::Waiting));
        rig.finish();
    }
}

#[test]
fn a_result_is_waited_for_as_long_as_it_took_lately() {
    assert_eq!(crate::worker::keep::wait_ns(20, 100, 7), 20 + 400);
    assert_eq!(crate::worker::keep::wait_ns(20, 7, 90), 20 + 360);
    assert_eq!(crate::worker::keep::wait_ns(20, 7, 1_000_000), 20 + 400, "up to five times `retry`");
}

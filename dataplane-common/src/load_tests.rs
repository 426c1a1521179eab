use super::*;
use proptest::prelude::*;

fn carried(received: Received) -> Carried {
    Carried { received_ns: received.position_ns, received_epoch: received.epoch as u16, ..Carried::default() }
}

#[test]
fn newer_follows_serial_arithmetic() {
    assert!(newer(1, 0) && newer(0, u32::MAX) && newer(5, u32::MAX - 5));
    assert!(!newer(0, 0) && !newer(0, 1) && !newer(u32::MAX, 0));
}

#[test]
fn words_round_trip() {
    let received = Received { position_ns: 0xffff_0001, epoch: 0x1234_5678 };
    assert_eq!(Received::from_word(received.to_word()), received);
    let stamp = ReportStamp { sequence: 9, epoch: 0xffff_ffff };
    assert_eq!(ReportStamp::from_word(stamp.to_word()), stamp);
}

#[test]
fn stale_reports_are_no_candidates() {
    let load = LoadRow { valid_until_ns: 1000, workers: 1, ..LoadRow::default() };
    assert!(load.is_candidate(999));
    assert!(!load.is_candidate(1000));
    assert!(!LoadRow::default().is_candidate(0));
}

#[test]
fn a_load_of_an_unknown_boot_acknowledges_everything() {
    assert_eq!(acked_ns(&carried(Received { position_ns: 7, epoch: 1 }), 2, 500), 500);
    assert_eq!(acked_ns(&carried(Received { position_ns: 7, epoch: 2 }), 2, 500), 7);
    assert_eq!(valid_for_ns(100), 500_000);
    assert_eq!(valid_for_ns(u32::MAX), valid_for_ns(MAX_INTERVAL_US));
}

#[test]
fn loads_are_taken_in_the_order_they_were_read() {
    let stamp = LoadStamp { stamp_us: u32::MAX, epoch: 4 };
    assert_eq!(LoadStamp::from_word(stamp.to_word()), stamp);
    assert!(stamp.precedes(4, 3) && !stamp.precedes(4, u32::MAX) && !stamp.precedes(4, u32::MAX - 1));
    assert!(stamp.precedes(5, 0) && !stamp.precedes(3, 3) && LoadStamp::default().precedes(9, 0));
}

#[test]
fn predictions_return_to_the_mean_but_not_faster_than_work_is_done() {
    let row = LoadRow { workers: 1, mean_backlog_ns: 10_000, reported_at_ns: 1 << 30, ..LoadRow::default() };
    let now = 1 << 30;
    let idle = row.predicted_ns(now, Rate::of(20_000), 1000);
    let later = row.predicted_ns(now + 10_000, Rate::of(20_000), 1000);
    let old = row.predicted_ns(now + 1_000_000, Rate::of(20_000), 1000);
    assert_eq!((idle, old), (0, 10_000));
    assert!(0 < later && later < 10_000);
    let elephant = LoadRow { backlog_ns: 500_000, ..row };
    assert_eq!(elephant.predicted_ns(now + 100_000, Rate::of(20_000), 1000), 400_000, "it works off one ns a ns");
    let pressed = LoadRow { pressure_ns: 5_000, pressure_us: (now >> 10) as u32, sent_ns: 5_000, ..row };
    assert_eq!(pressed.predicted_ns(now, Rate::of(20_000), 1000), 5_000, "what was just sent is there");
    assert_eq!(pressed.predicted_ns(now, Rate::of(20_000), 2000), 10_000, "and others have sent as much");
}

#[test]
fn a_restarted_peer_starts_a_new_account() {
    let old = Received { position_ns: 1_000_000, epoch: 5 };
    assert_eq!(old.advance(6, 10), Some(Received { position_ns: 10, epoch: 6 }));
    assert_eq!(old.advance(4, 2_000_000), None, "a frame from before the restart");
    let stamp = ReportStamp { sequence: 100, epoch: 5 };
    assert!(stamp.precedes(6, 1) && !stamp.precedes(5, 100) && stamp.precedes(5, 101) && !stamp.precedes(4, 200));
}

#[test]
fn worker_load_counts_what_the_packet_in_service_has_had() {
    let load = WorkerLoad {
        charged_ns: 1000,
        discharged_ns: 200,
        charged_packets: 3,
        discharged_packets: 1,
        serving_since_ns: 50,
        serving_charge_ns: 300,
        behind: Behind(7),
    };
    assert_eq!(load.here(50), Here { backlog_ns: 800, queued_milli: 2000, behind: Behind(7) });
    assert_eq!(load.here(150).backlog_ns, 700);
    assert_eq!(load.here(10_000).backlog_ns, 500, "an overrun counts as finished, not as negative work");
    let early = WorkerLoad { charged_ns: 5, discharged_ns: 9, ..WorkerLoad::default() };
    assert_eq!(early.here(0).backlog_ns, 0);
}

/// What may happen between a sender and a receiver.
#[derive(Clone, Debug)]
enum Event {
    /// Send work; `true` when the frame arrives.
    Send(u32, bool),
    /// The receiver finishes some of what it holds.
    Finish(u32),
    /// Reports travel both ways; each arrives or is lost.
    Report { to_receiver: bool, to_sender: bool },
    /// The receiver restarts, losing what it holds.
    RestartReceiver,
    /// The sender restarts.
    RestartSender,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1u32..2_000_000, any::<bool>()).prop_map(|(ns, arrives)| Event::Send(ns, arrives)),
        4 => (1u32..4_000_000).prop_map(Event::Finish),
        4 => (any::<bool>(), any::<bool>()).prop_map(|(to_receiver, to_sender)| Event::Report { to_receiver, to_sender }),
        1 => Just(Event::RestartReceiver),
        1 => Just(Event::RestartSender),
    ]
}

/// One sender, one receiver and the plain truth about them.
struct Pair {
    sent_ns: u32,
    acked_ns: u32,
    reported_ns: u32,
    sender_epoch: u32,
    received: Received,
    receiver_holds: u64,
}

impl Pair {
    fn new(start: u32) -> Self {
        Self {
            sent_ns: start,
            acked_ns: start,
            reported_ns: 0,
            sender_epoch: 1,
            received: Received::default(),
            receiver_holds: 0,
        }
    }

    fn exchange(&mut self, to_receiver: bool, to_sender: bool) {
        if to_receiver {
            self.received = self.received.advance(self.sender_epoch, self.sent_ns).unwrap_or(self.received);
        }
        if to_sender {
            self.acked_ns = acked_ns(&carried(self.received), self.sender_epoch, self.sent_ns);
            self.reported_ns = saturate(self.receiver_holds);
        }
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Send(ns, arrives) => {
                self.sent_ns = self.sent_ns.wrapping_add(ns);
                if arrives {
                    self.received = self.received.advance(self.sender_epoch, self.sent_ns).unwrap_or(self.received);
                    self.receiver_holds += u64::from(ns);
                }
            }
            Event::Finish(ns) => self.receiver_holds = self.receiver_holds.saturating_sub(u64::from(ns)),
            Event::Report { to_receiver, to_sender } => self.exchange(to_receiver, to_sender),
            Event::RestartReceiver => {
                self.received = Received::default();
                self.receiver_holds = 0;
            }
            Event::RestartSender => {
                self.sender_epoch += 1;
                (self.sent_ns, self.acked_ns, self.reported_ns) = (0, 0, 0);
            }
        }
    }

    fn load(&self) -> LoadRow {
        LoadRow {
            backlog_ns: self.reported_ns,
            acked_ns: self.acked_ns,
            sent_ns: self.sent_ns.into(),
            workers: 1,
            ..LoadRow::default()
        }
    }
}

proptest! {
    #[test]
    fn erl_is_exact_after_an_exchange_whatever_was_lost(start: u32, events in proptest::collection::vec(event(), 0..200)) {
        let mut pair = Pair::new(start);
        for event in &events {
            pair.apply(event);
        }
        // One exchange that arrives in both directions settles the account: nothing is in flight, whatever was lost.
        pair.exchange(true, true);
        prop_assert_eq!(pair.load().in_flight_ns(), 0);
        prop_assert_eq!(pair.load().erl_ns(Erl::Ack, 0), u64::from(saturate(pair.receiver_holds)));
        // From here on the estimate grows by exactly what is sent.
        let before = pair.load().erl_ns(Erl::Ack, 0);
        pair.apply(&Event::Send(1234, true));
        prop_assert_eq!(pair.load().erl_ns(Erl::Ack, 0), before + 1234);
    }
}

#[test]
fn erl_shares_in_flight_work_among_workers() {
    let load = LoadRow { backlog_ns: 100, acked_ns: u32::MAX - 9, sent_ns: 290, workers: 3, ..LoadRow::default() };
    assert_eq!(load.in_flight_ns(), 300);
    assert_eq!(load.erl_ns(Erl::Ack, 0), 200);
}

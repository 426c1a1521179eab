//! The worker when its configuration is reloaded: nothing that it has is lost.

use dataplane_common::maps::{FUNCTION_WORKER, ORDER_NONE};
use dataplane_common::policy::PolicyKind;
use dataplane_common::tuning::SHORTEST;
use dataplane_common::wire::link::Kind;

use super::decide::{arrives, header, question};
use super::*;

/// Has the worker follow settings, and gives them with the way to replace them.
fn follow(rig: &mut Rig) -> (Settings, Arc<LiveSettings>) {
    let settings = rig.worker.settings.clone();
    let live = Arc::new(LiveSettings::from_pointee(settings.clone()));
    rig.worker.follow_settings(Arc::clone(&live));
    (settings, live)
}

#[test]
fn the_discipline_changes_while_packets_wait() {
    let mut rig = Rig::new();
    let (mut settings, live) = follow(&mut rig);
    assert!(rig.worker.queue.is_none(), "in order of arrival nothing waits in the worker");
    settings.params.tuning.discipline = SHORTEST;
    live.store(Arc::new(settings.clone()));
    // The long one came first.
    for (number, ns) in [(0, 90_000), (1, 1_000)] {
        let charged = rig.charge(PORT, ns);
        assert!(rig.deliver_charged(PORT, charged, Builtin::Forward, &question(number).frame()));
    }
    while rig.worker.step() > 0 {}
    assert_eq!(rig.take(PORT), [1, 0].map(|number| question(number).answer(&[]).frame()));

    // Back again: the queue stays, and what the row says of what waits behind goes.
    set(rig.tables.workers.row(WORKER), offset_of!(WorkerRow, behind), 7);
    settings.params.tuning.discipline = FIFO;
    live.store(Arc::new(settings));
    for (number, ns) in [(2, 90_000), (3, 1_000)] {
        let charged = rig.charge(PORT, ns);
        assert!(rig.deliver_charged(PORT, charged, Builtin::Forward, &question(number).frame()));
    }
    while rig.worker.step() > 0 {}
    assert_eq!(rig.take(PORT), [2, 3].map(|number| question(number).answer(&[]).frame()));
    rig.counted(&[(Reason::SeenLocal, 4), (Reason::SentResult, 4)]);
    rig.finish();
}

#[test]
fn a_function_begins_to_leave_decisions_to_workers() {
    let mut rig = super::decide::rig(ORDER_NONE, 0, |settings| settings.params.policies = PolicyKind::Local.bit());
    let (mut settings, live) = follow(&mut rig);
    for number in 0..2 {
        arrives(&mut rig, number);
    }
    rig.worker.step();
    assert_eq!((rig.take(PORT).len(), rig.take(LINK).len()), (2, 0), "decided by XDP: both are for here");

    for index in 0..Builtin::ALL.len() as u32 {
        let row = rig.tables.functions.row(function_slot(index, WORKER));
        set(row, offset_of!(FunctionRow, order), pair(ORDER_NONE, FUNCTION_WORKER));
    }
    settings.params.policies = PolicyKind::LeastWork.bit();
    live.store(Arc::new(settings));
    for number in 2..4 {
        arrives(&mut rig, number);
    }
    rig.worker.step();
    assert_eq!(rig.take(PORT).len(), 1);
    assert_eq!(rig.take(LINK).iter().map(|frame| header(frame).kind).collect::<Vec<_>>(), [Kind::Forward]);
    rig.finish();
}

#[test]
fn who_the_worker_is_and_its_ways_stay() {
    let mut rig = Rig::new();
    let (settings, live) = follow(&mut rig);
    let retry = Duration::from_millis(3);
    live.store(Arc::new(Settings { worker: 9, ways: Arc::default(), retry, pull: true, ..settings }));
    rig.worker.step();
    let found = &rig.worker.settings;
    assert_eq!((found.worker, found.ways.all().len(), found.retry), (WORKER, 3, retry));
    assert!(rig.worker.pulling.is_some() && rig.worker.queue.is_some(), "packets wait where others may ask for them");
    live.store(Arc::new(Settings { pull: false, ..rig.worker.settings.clone() }));
    rig.worker.step();
    assert!(rig.worker.pulling.is_none());
    rig.finish();
}

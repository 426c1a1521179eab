//! How the core of `dataplane-common` reads and writes the world from inside XDP: map rows in aligned volatile words.

use core::ffi::{c_long, c_void};
use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};
use core::mem::offset_of;
use core::ptr::{addr_of, addr_of_mut, read_volatile, write_volatile};

use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_loop};
use dataplane_common::decay::Rate;
use dataplane_common::feedback;
use dataplane_common::held;
use dataplane_common::load::{
    self, Erl, Forwarding, Here, LoadStamp, LoadView, Received, ReportStamp, Row, Signals, Visit, Word, WorkerLoad,
    saturate,
};
use dataplane_common::maps::{FunctionRow, LoadRow, MAX_WORKERS, Params, SignalsRow, WorkerRow, function_slot};
use dataplane_common::order::{Place, Released};
use dataplane_common::plan::HERE;
use dataplane_common::policy::{Needs, needing};
use dataplane_common::wire::link::{FLAG_DIRECT, FLAG_UNDONE, Header, Report};

use crate::maps::{FLOWS, FUNCTIONS, HELD, LOAD_TABLE, ROSTER, SIGNALS, SLOTS, TURNS};

/// Written by the loader before the programs are verified; constant afterwards.
#[unsafe(no_mangle)]
static PARAMS: Params = Params::DEFAULT;

/// This node's parameters. The compiler knows only the default, so it must not see where the reference leads; the verifier
/// does, and removes what they rule out.
#[inline(always)]
pub fn params() -> &'static Params {
    let params: &'static Params = &PARAMS;
    // SAFETY: a valid reference is read.
    unsafe { read_volatile(&params) }
}

/// Adds to a counter that other CPUs and the workers add to or read at the same time.
#[inline(always)]
pub fn add(word: *mut u64, amount: u64) {
    // SAFETY: callers pass a field of a map value they have looked up, aligned and valid while the program runs.
    unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(word, amount) };
}

/// As [`add`]; returns the value after.
#[inline(always)]
pub fn add_and_get(word: *mut u64, amount: u64) -> u64 {
    // With a relaxed order LLVM 22 emits the instruction without BPF_FETCH although the result is used, and the "value
    // before" is then the amount itself. Any stronger order fetches.
    // SAFETY: as for `add`.
    let before = unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::AcqRel }>(word, amount) };
    before.wrapping_add(amount)
}

/// Reads the aligned 8-byte word at `field`.
#[inline(always)]
pub fn read_word<T>(field: *const T) -> u64 {
    // SAFETY: callers pass the first field of an aligned 8-byte word of a live map value.
    unsafe { read_volatile(field.cast::<u64>()) }
}

/// Writes the aligned 8-byte word at `field`.
#[inline(always)]
fn write_word<T>(field: *mut T, word: u64) {
    // SAFETY: callers pass the first field of an aligned 8-byte word of a live map value.
    unsafe { write_volatile(field.cast::<u64>(), word) }
}

/// Two 32-bit fields as they lie in one word (little endian: the first field is the low half).
#[inline(always)]
const fn word(first: u32, second: u32) -> u64 {
    first as u64 | (second as u64) << 32
}

/// What a decision needs of a function, as the worker of `queue` measures it; `None` when there is no such worker.
#[inline(always)]
pub fn function(function: u32, queue: u32) -> Option<FunctionRow> {
    if queue >= MAX_WORKERS as u32 {
        return None;
    }
    let row = FUNCTIONS.get_ptr(function_slot(function, queue))?;
    // SAFETY: `row` is a live map value; only addresses are taken.
    let fields = unsafe {
        (
            addr_of!((*row).a_ns),
            addr_of!((*row).limit_ns),
            addr_of!((*row).declared_a_ns),
            addr_of!((*row).policy),
            addr_of!((*row).order),
        )
    };
    let (cost, limit, declared) = (read_word(fields.0), read_word(fields.1), read_word(fields.2));
    let (policy, order) = (read_word(fields.3), read_word(fields.4));
    // A row without a limit is not in use.
    if limit as u32 == 0 {
        return None;
    }
    Some(FunctionRow {
        a_ns: cost as u32,
        b_q16: (cost >> 32) as u32,
        limit_ns: limit as u32,
        units: (limit >> 32) as u32,
        declared_a_ns: declared as u32,
        declared_b_q16: (declared >> 32) as u32,
        policy: policy as u32,
        home: (policy >> 32) as u32,
        order: order as u32,
        flags: (order >> 32) as u32,
        ..FunctionRow::default()
    })
}

/// A row of the load table.
pub struct XdpRow(*const LoadRow);

impl Row for XdpRow {
    #[inline(always)]
    fn word(&self, word: Word) -> u64 {
        // SAFETY: the row is a live map value, and every `Word` is the offset of an aligned word in it.
        let at = unsafe { self.0.byte_add(word as usize) };
        read_word(at)
    }
}

/// The load table as the decision sees it.
pub struct Table {
    /// Row of the worker that would take the packet here.
    pub worker: *const WorkerRow,
    /// What is known of the cluster as a whole. Each look-up of a row costs some ns, so there is one.
    pub signals: *const SignalsRow,
    /// Now, ns of the monotonic clock.
    pub now_ns: u64,
}

/// What waits at the worker of `row`, a live map value.
#[inline(always)]
pub fn here(row: *const WorkerRow, now_ns: u64) -> Here {
    // SAFETY: callers pass a live map value, and `read` asks for offsets of aligned words in it.
    let worker = WorkerLoad::read(|offset| read_word(unsafe { row.byte_add(offset) }));
    worker.here(now_ns)
}

impl Table {
    /// The word at `offset` of the signals.
    #[inline(always)]
    fn signal(&self, offset: usize) -> u64 {
        // SAFETY: the row is a live map value, and callers pass the offset of an aligned word in it.
        read_word(unsafe { self.signals.byte_add(offset) })
    }
}

impl LoadView for Table {
    type Row = XdpRow;

    #[inline(always)]
    fn here(&self) -> Here {
        here(self.worker, self.now_ns)
    }

    #[inline(always)]
    fn peers(&self) -> u32 {
        (self.signal(offset_of!(SignalsRow, arrivals_q32)) >> 32) as u32
    }

    #[inline(always)]
    fn row(&self, node: u16) -> Option<XdpRow> {
        LOAD_TABLE.get_ptr(u32::from(node)).map(XdpRow)
    }

    #[inline(always)]
    fn visit<V: Visit>(&self, start: u32, stride: u32, count: u32, visitor: &mut V) {
        let peers = self.peers();
        // The number may have changed since the start was drawn.
        let mut state = Round { visitor, next: if start < peers { start } else { 0 }, stride, peers };
        let callback: unsafe extern "C" fn(u32, *mut c_void) -> c_long = visit_one::<V>;
        // SAFETY: `visit_one` matches the callback's signature, and `state` outlives the call.
        unsafe { bpf_loop(count, callback as *mut c_void, addr_of_mut!(state).cast(), 0) };
    }

    #[inline(always)]
    fn signals(&self) -> Signals {
        let first = self.signal(offset_of!(SignalsRow, utilisation_milli));
        Signals {
            utilisation_milli: first as u32,
            service_ns: (first >> 32) as u32,
            arrivals_q32: self.signal(offset_of!(SignalsRow, arrivals_q32)) as u32,
            deviation_ns: self.signal(offset_of!(SignalsRow, deviation_ns)) as u32,
        }
    }

    #[inline(always)]
    fn forwarding(&self) -> Forwarding {
        Forwarding::read(|offset| self.signal(offset))
    }

    #[inline(always)]
    fn slot(&self, slot: u32) -> u16 {
        let Some(row) = SLOTS.get_ptr(slot) else {
            return HERE;
        };
        // SAFETY: `row` is a live map value; only an address is taken.
        read_word(unsafe { addr_of!((*row).node) }) as u16
    }

    #[inline(always)]
    fn charge_slot(&self, slot: u32, ns: u32) {
        if let Some(row) = SLOTS.get_ptr_mut(slot) {
            // SAFETY: `row` is a live map value; only an address is taken.
            add(unsafe { addr_of_mut!((*row).charged_ns) }, u64::from(ns));
        }
    }

    #[inline(always)]
    fn turn(&self) -> u32 {
        let Some(turn) = TURNS.get_ptr_mut(0) else {
            return 0;
        };
        // SAFETY: the value is this CPU's own, and XDP programs of one CPU do not interrupt each other.
        unsafe {
            *turn += 1;
            *turn as u32
        }
    }
}

/// The word at `offset` of the signals.
#[inline(always)]
fn signal(offset: usize) -> u64 {
    let Some(row) = SIGNALS.get_ptr(0) else {
        return 0;
    };
    // SAFETY: the row is a live map value, and callers pass the offset of an aligned word in it.
    read_word(unsafe { row.byte_add(offset) })
}

struct Round<'a, V> {
    visitor: &'a mut V,
    next: u32,
    stride: u32,
    peers: u32,
}

/// One step of `bpf_loop`: shows the peer at the next position to the visitor.
unsafe extern "C" fn visit_one<V: Visit>(_index: u32, state: *mut c_void) -> c_long {
    // SAFETY: `visit` passes a `Round<V>` that lives until `bpf_loop` returns, and nobody else has it.
    let round = unsafe { &mut *state.cast::<Round<'_, V>>() };
    let position = round.next;
    // Start and stride are below the number of peers: a remainder without the division, which costs as much as the row.
    let next = position.wrapping_add(round.stride);
    round.next = if next >= round.peers { next.wrapping_sub(round.peers) } else { next };
    let Some(node) = ROSTER.get_ptr(position) else {
        return 1;
    };
    let node = read_word(node) as u16;
    if let Some(row) = LOAD_TABLE.get_ptr(u32::from(node)) {
        round.visitor.node(node, &XdpRow(row));
    }
    0
}

/// How fast a load forgets a report.
#[inline(always)]
fn relaxation(params: &Params) -> Rate {
    params.tuning.relaxation((signal(offset_of!(SignalsRow, utilisation_milli)) >> 32) as u32)
}

/// Policies that predict loads.
const PREDICTING: u64 = needing(Needs::PREDICTION);
/// Policies that learn from results.
const LEARNING: u64 = needing(Needs::RESULTS);

/// Counts an arrival for `function`, when a policy wants to know.
#[inline(always)]
pub fn count_demand(params: &Params, function: u32) {
    if params.policies & needing(Needs::DEMAND) != 0
        && let Some(row) = FUNCTIONS.get_ptr_mut(function_slot(function, 0))
    {
        // SAFETY: `row` is a live map value; only an address is taken.
        add(unsafe { addr_of_mut!((*row).arrivals) }, 1);
    }
}

/// Takes the position that a frame of a peer carries, and counts the frame when it brought work.
#[inline(always)]
pub fn take_position(header: &Header, frames: u64) {
    let Some(row) = LOAD_TABLE.get_ptr_mut(u32::from(header.source)) else {
        return;
    };
    // SAFETY: `row` is a live map value; only addresses are taken.
    let (received, received_frames, sequence) = unsafe {
        (addr_of_mut!((*row).received_ns), addr_of_mut!((*row).received_frames), addr_of_mut!((*row).received_sequence))
    };
    let before = Received::from_word(read_word(received));
    if let Some(after) = load::take_position(before, header) {
        if after.epoch != before.epoch {
            write_word(received_frames, 0);
            write_word(sequence, 0);
        }
        write_word(received, after.to_word());
    }
    // A late frame of a boot that is over belongs to an account that is closed.
    if frames > 0 && Received::from_word(read_word(received)).epoch == header.epoch {
        add(received_frames, frames);
        if load::newer(header.sequence, read_word(sequence) as u32) {
            write_word(sequence, word(header.sequence, 0));
        }
    }
}

/// Takes the load that a frame carries into its sender's row; false when the row has a newer one.
#[inline(always)]
fn take_load(params: &Params, row: *mut LoadRow, header: &Header, now_ns: u64) -> bool {
    // SAFETY: `row` is a live map value; only addresses are taken.
    let (stamp, report, queue) =
        unsafe { (addr_of_mut!((*row).stamp_us), addr_of_mut!((*row).backlog_ns), addr_of_mut!((*row).queued_milli)) };
    if !LoadStamp::from_word(read_word(stamp)).precedes(header.epoch, header.load.stamp_us) {
        return false;
    }
    write_word(stamp, LoadStamp { stamp_us: header.load.stamp_us, epoch: header.epoch }.to_word());
    let before = XdpRow(row);
    let (sent_ns, sent_frames) = (before.word(Word::SentNs) as u32, before.word(Word::SentFrames) as u32);
    let predicting = params.policies & PREDICTING != 0;
    let predicted =
        if predicting { before.predicted_ns(now_ns, relaxation(params), params.tuning.gain_milli) } else { 0 };
    write_word(report, word(header.load.backlog_ns, load::acked_ns(&header.load, params.epoch, sent_ns)));
    write_word(queue, word(header.load.queued_milli(), (read_word(queue) >> 32) as u32));
    // SAFETY: `row` is a live map value; only addresses are taken.
    let fields = unsafe {
        (addr_of_mut!((*row).reported_at_ns), addr_of_mut!((*row).marked_ns), addr_of_mut!((*row).pressure_ns))
    };
    write_word(fields.0, now_ns);
    write_word(fields.1, word(sent_ns, sent_frames));
    if predicting {
        let after = XdpRow(row);
        write_word(fields.2, word(after.in_flight_ns(), (now_ns >> 10) as u32));
        let found = saturate(after.erl_ns(Erl::Ack, now_ns));
        if let Some(signals) = SIGNALS.get_ptr_mut(0) {
            // SAFETY: `signals` is a live map value; only an address is taken.
            let deviation = unsafe { addr_of_mut!((*signals).deviation_ns) };
            let median = feedback::median(read_word(deviation) as u32, predicted.abs_diff(found));
            write_word(deviation, word(median, 0));
        }
    }
    true
}

/// Takes the load that a forward or a result carries; tells whether it was news.
#[inline(always)]
pub fn take_piggyback(params: &Params, header: &Header, now_ns: u64) -> bool {
    if params.piggyback == 0 {
        return false;
    }
    let Some(row) = LOAD_TABLE.get_ptr_mut(u32::from(header.source)) else {
        return false;
    };
    if !take_load(params, row, header, now_ns) {
        return false;
    }
    // SAFETY: `row` is a live map value; only an address is taken.
    add(unsafe { addr_of_mut!((*row).piggybacked) }, 1);
    true
}

/// Takes a report into its sender's row; false when it is older than the last one.
#[inline(always)]
pub fn take_report(params: &Params, header: &Header, report: &Report, now_ns: u64) -> bool {
    let Some(row) = LOAD_TABLE.get_ptr_mut(u32::from(header.source)) else {
        return false;
    };
    // SAFETY: `row` is a live map value; only an address is taken.
    let stamp = unsafe { addr_of_mut!((*row).report_seq) };
    if !ReportStamp::from_word(read_word(stamp)).precedes(header.epoch, header.sequence) {
        return false;
    }
    write_word(stamp, ReportStamp { sequence: header.sequence, epoch: header.epoch }.to_word());
    take_load(params, row, header, now_ns);
    // SAFETY: `row` is a live map value; only addresses are taken.
    let fields = unsafe {
        (
            addr_of_mut!((*row).queued_milli),
            addr_of_mut!((*row).mean_backlog_ns),
            addr_of_mut!((*row).behind),
            addr_of_mut!((*row).acked_frames),
            addr_of_mut!((*row).valid_until_ns),
            addr_of_mut!((*row).reports),
            addr_of_mut!((*row).limit_ns),
        )
    };
    write_word(
        fields.0,
        word(read_word(fields.0) as u32, u32::from(report.workers) | u32::from(report.busy_milli) << 16),
    );
    let speed = (read_word(fields.1) >> 32) as u16;
    write_word(fields.1, word(report.mean_backlog_ns, u32::from(speed) | u32::from(report.memory_milli) << 16));
    write_word(fields.2, report.behind);
    let known = header.load.received_epoch == params.epoch as u16;
    let acked = if known { report.received_frames } else { XdpRow(row).word(Word::SentFrames) as u32 };
    write_word(fields.3, word(acked, (read_word(fields.3) >> 32) as u32));
    // A node that does not know this boot counts from a position we do not know.
    write_word(fields.6, match report.limit_ns {
        Some(limit_ns) if known => word(limit_ns, 1),
        _ => 0,
    });
    write_word(fields.4, now_ns + load::valid_for_ns(report.interval_us));
    add(fields.5, 1);
    true
}

/// Learns from a result that came back: how fast its node answers and computes, and what the way takes.
#[inline(always)]
pub fn take_result(params: &Params, header: &Header, now_ns: u64) {
    let Some(row) = LOAD_TABLE.get_ptr_mut(u32::from(header.source)) else {
        return;
    };
    // SAFETY: `row` is a live map value; only addresses are taken.
    let fields = unsafe {
        (
            addr_of_mut!((*row).completed_frames),
            addr_of_mut!((*row).response_ns),
            addr_of_mut!((*row).peak_ns),
            addr_of_mut!((*row).mean_backlog_ns),
            addr_of_mut!((*row).transit_ns),
        )
    };
    add(fields.0, 1);
    let is_direct = header.flags & FLAG_DIRECT != 0;
    if header.length == 0 && !is_direct {
        // Nothing was computed.
        return;
    }
    let (charged_ns, served_ns) = (header.charged_ns, header.position_ns);
    let response_ns = feedback::response_ns(now_ns, header.arrival_ns);
    let known = read_word(fields.1);
    write_word(
        fields.1,
        word(feedback::mean(known as u32, response_ns, 3), feedback::mean((known >> 32) as u32, served_ns, 3)),
    );
    if params.policies & LEARNING != 0 {
        let (known, now_us) = (read_word(fields.2), (now_ns >> 10) as u32);
        let age_ns = u64::from(now_us.wrapping_sub((known >> 32) as u32)) << 10;
        let service_ns = (signal(offset_of!(SignalsRow, utilisation_milli)) >> 32) as u32;
        let forget_ns = params.tuning.peak_forget_ns(service_ns);
        write_word(fields.2, word(feedback::peak(known as u32, response_ns, age_ns, forget_ns), now_us));
    }
    let known = read_word(fields.3);
    let speed = feedback::speed((known >> 32) as u16, charged_ns, served_ns);
    write_word(fields.3, (known & !(0xffff << 32)) | u64::from(speed) << 32);
    if header.length == 0 {
        // It says nothing about packets on their way.
        return;
    }
    let known = read_word(fields.4);
    let transit_ns = response_ns.saturating_sub(header.spent_ns);
    write_word(
        fields.4,
        word(
            feedback::mean(known as u32, transit_ns, 6),
            feedback::mean((known >> 32) as u32, u32::from(header.length), 6),
        ),
    );
}

/// Notes that `charged_ns` of work went to the node of `row`.
#[inline(always)]
pub fn press(params: &Params, row: *mut LoadRow, now_ns: u64, charged_ns: u32) {
    if params.policies & PREDICTING != 0 {
        // SAFETY: `row` is a live map value; only an address is taken.
        let pressure = unsafe { addr_of_mut!((*row).pressure_ns) };
        write_word(pressure, load::pressed(read_word(pressure), now_ns, relaxation(params), charged_ns));
    }
}

/// The number of a packet in its flow slot; `None` when results need not keep an order.
#[inline(always)]
pub fn number_in_flow(slot: u16) -> u32 {
    let Some(row) = FLOWS.get_ptr_mut(u32::from(slot)) else {
        return 0;
    };
    // SAFETY: `row` is a live map value; only an address is taken.
    (add_and_get(unsafe { addr_of_mut!((*row).issued) }, 1) as u32).wrapping_sub(1)
}

/// Releases the result with `number` of flow slot `slot` if it is its turn, and says where it stood.
#[inline(always)]
pub fn take_turn(slot: u16, number: u32, now_ns: u64) -> Place {
    let Some(row) = FLOWS.get_ptr_mut(u32::from(slot)) else {
        return Place::Past;
    };
    // SAFETY: `row` is a live map value; only an address is taken.
    let word = unsafe { addr_of_mut!((*row).released) };
    let before = read_word(word);
    let released = Released::from_word(before);
    match released.place(number) {
        Place::Next => {
            // SAFETY: the helper takes no pointers and is available to XDP programs.
            let cpu = unsafe { bpf_get_smp_processor_id() };
            if !released.may_follow(cpu, now_ns) {
                return Place::Later;
            }
            let after = Released::by_xdp(number.wrapping_add(1), cpu, now_ns).to_word();
            // Only giving up can come between.
            if compare_and_set(word, before, after) { Place::Next } else { Place::Past }
        }
        place => place,
    }
}

/// Ends the wait for the result of a packet that is kept here; false when nobody waits for it any more.
#[inline(always)]
pub fn answer_held(header: &Header) -> bool {
    let Some(place) = HELD.get_ptr_mut(header.held) else {
        return false;
    };
    let before = read_word(place);
    match held::Word::from_word(before).answered(header.generation, header.flags & FLAG_UNDONE != 0) {
        Some(after) => compare_and_set(place, before, after.to_word()),
        None => false,
    }
}

/// Sets `*word` to `new` if it is `old`; tells whether it was.
#[inline(always)]
fn compare_and_set(word: *mut u64, old: u64, new: u64) -> bool {
    // SAFETY: as for `add`.
    let (_, was) =
        unsafe { atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(word, old, new) };
    was
}

//! How the core of `dataplane-common` reads and writes the world from inside XDP: map rows in aligned volatile words.

use core::ffi::{c_long, c_void};
use core::intrinsics::{AtomicOrdering, atomic_cxchg, atomic_xadd};
use core::mem::offset_of;
use core::ptr::{addr_of, addr_of_mut, read_volatile, write_volatile};

use aya_ebpf::helpers::generated::{bpf_get_smp_processor_id, bpf_loop};
use dataplane_common::held;
use dataplane_common::load::{Forwarding, Here, LoadView, Row, Signals, Visit, Word, WorkerLoad};
use dataplane_common::maps::{FunctionRow, LoadRow, MAX_WORKERS, Params, SignalsRow, WorkerRow, function_slot};
use dataplane_common::order::{self, Place, Released};
use dataplane_common::plan::HERE;
use dataplane_common::policy::{Needs, needing};
use dataplane_common::taking::{self, Cells};
use dataplane_common::wire::link::{FLAG_UNDONE, Header, NO_FLOW, Report};

use crate::maps::{FLOWS, FUNCTIONS, HELD, LOAD_TABLE, ROSTER, SIGNALS, SLOTS, TURNS};

/// Policies that want to know how many packets of each function arrive.
const COUNTING: u64 = needing(Needs::DEMAND);
/// Policies that want to know when the packets of a flow are expected to be done.
const EXPECTING: u64 = needing(Needs::EXPECTED);

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
            addr_of!((*row).type_id),
        )
    };
    let (cost, limit, declared) = (read_word(fields.0), read_word(fields.1), read_word(fields.2));
    let (policy, order, type_id) = (read_word(fields.3), read_word(fields.4), read_word(fields.5));
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
        type_id: type_id as u32,
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
        Signals::read(|offset| self.signal(offset))
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

/// Counts an arrival for `function`, when a policy wants to know.
#[inline(always)]
pub fn count_demand(params: &Params, function: u32) {
    if params.policies & COUNTING != 0
        && let Some(row) = FUNCTIONS.get_ptr_mut(function_slot(function, 0))
    {
        // SAFETY: `row` is a live map value; only an address is taken.
        add(unsafe { addr_of_mut!((*row).arrivals) }, 1);
    }
}

/// The words of a live map value.
struct Live<T>(*mut T);

impl<T> Cells for Live<T> {
    #[inline(always)]
    fn get(&self, offset: usize) -> u64 {
        // SAFETY: the value is live, and `taking` asks for offsets of aligned words in it.
        read_word(unsafe { self.0.byte_add(offset) })
    }

    #[inline(always)]
    fn set(&self, offset: usize, word: u64) {
        // SAFETY: as above.
        write_word(unsafe { self.0.byte_add(offset) }, word);
    }

    #[inline(always)]
    fn add(&self, offset: usize, amount: u64) {
        // SAFETY: as above.
        add(unsafe { self.0.byte_add(offset) }.cast(), amount);
    }
}

/// The signals, looked up when they are needed: mostly they are not.
struct TheSignals;

impl Cells for TheSignals {
    #[inline(always)]
    fn get(&self, offset: usize) -> u64 {
        SIGNALS.get_ptr_mut(0).map_or(0, |row| Live(row).get(offset))
    }

    #[inline(always)]
    fn set(&self, offset: usize, word: u64) {
        if let Some(row) = SIGNALS.get_ptr_mut(0) {
            Live(row).set(offset, word);
        }
    }

    #[inline(always)]
    fn add(&self, offset: usize, amount: u64) {
        if let Some(row) = SIGNALS.get_ptr_mut(0) {
            Live(row).add(offset, amount);
        }
    }
}

/// The row of a frame's sender.
#[inline(always)]
fn row_of(header: &Header) -> Option<Live<LoadRow>> {
    LOAD_TABLE.get_ptr_mut(u32::from(header.source)).map(Live)
}

/// See [`taking::position`].
#[inline(always)]
pub fn take_position(header: &Header, frames: u64) {
    if let Some(row) = row_of(header) {
        taking::position(&row, header, frames);
    }
}

/// See [`taking::learn_boot`].
#[inline(always)]
pub fn learn_boot(header: &Header) {
    if let Some(row) = row_of(header) {
        taking::learn_boot(&row, header);
    }
}

/// See [`taking::begin_boot`].
#[inline(always)]
pub fn begin_boot(header: &Header) {
    if let Some(row) = row_of(header) {
        taking::begin_boot(&row, header);
    }
}

/// See [`taking::piggyback`].
#[inline(always)]
pub fn take_piggyback(params: &Params, header: &Header, now_ns: u64) -> bool {
    match row_of(header) {
        Some(row) => taking::piggyback(params, &row, &TheSignals, header, now_ns),
        None => false,
    }
}

/// See [`taking::report`].
#[inline(always)]
pub fn take_report(params: &Params, header: &Header, report: &Report, now_ns: u64) -> bool {
    match row_of(header) {
        Some(row) => taking::report(params, &row, &TheSignals, (header, report), now_ns),
        None => false,
    }
}

/// See [`taking::result`].
#[inline(always)]
pub fn take_result(params: &Params, header: &Header, now_ns: u64) {
    if let Some(row) = row_of(header) {
        taking::result(params, &row, &TheSignals, header, now_ns);
    }
}

/// Notes that `charged_ns` of work went to the node of `row`.
#[inline(always)]
pub fn press(params: &Params, row: *mut LoadRow, now_ns: u64, charged_ns: u32) {
    taking::press(params, &Live(row), &TheSignals, now_ns, charged_ns);
}

/// The word in which the end of a flow slot's packets stands, if a policy wants to know and results keep an order.
#[inline(always)]
fn expected(params: &Params, slot: u16) -> Option<*mut u64> {
    if params.policies & EXPECTING == 0 || slot == NO_FLOW {
        return None;
    }
    let row = FLOWS.get_ptr_mut(u32::from(slot))?;
    // SAFETY: `row` is a live map value; only an address is taken.
    Some(unsafe { addr_of_mut!((*row).expected_ns) })
}

/// Time until the packets so far of a flow slot are expected to be done, ns.
#[inline(always)]
pub fn earlier_ns(params: &Params, slot: u16, now_ns: u64) -> u32 {
    match expected(params, slot) {
        Some(word) => order::earlier_ns(read_word(word), now_ns),
        None => 0,
    }
}

/// Notes that one more of them is expected to be done `done_ns` after `now_ns`; 0 = nobody knows.
#[inline(always)]
pub fn expect(params: &Params, slot: u16, now_ns: u64, done_ns: u32) {
    if done_ns > 0
        && let Some(word) = expected(params, slot)
    {
        write_word(word, order::expected_ns(read_word(word), now_ns, done_ns));
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

/// Sets `*word` to `new` if it is `old`; tells whether it was. Ordered with everything.
#[inline(always)]
pub fn compare_and_set(word: *mut u64, old: u64, new: u64) -> bool {
    // SAFETY: as for `add`.
    let (_, was) =
        unsafe { atomic_cxchg::<u64, { AtomicOrdering::SeqCst }, { AtomicOrdering::SeqCst }>(word, old, new) };
    was
}

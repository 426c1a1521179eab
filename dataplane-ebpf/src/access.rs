//! How the core of `dataplane-common` reads and writes the world from inside XDP: frames between two pointers, map rows in
//! aligned volatile words.

use core::ffi::{c_long, c_void};
use core::intrinsics::{AtomicOrdering, atomic_xadd};
use core::ptr::{addr_of, addr_of_mut, read_volatile, write_volatile};

use aya_ebpf::helpers::generated::bpf_loop;
use aya_ebpf::programs::XdpContext;
use dataplane_common::load::{self, Here, Load, LoadView, Received, ReportStamp, Visit, WorkerLoad};
use dataplane_common::maps::{FunctionRow, LoadRow, MAX_WORKERS, Params, function_slot};
use dataplane_common::packet::{MAX_OFFSET, Packet};
use dataplane_common::wire::link::{Header, Report};

use crate::maps::{FUNCTIONS, LOAD_TABLE, WORKERS};

/// Written by the loader before the programs are verified; constant afterwards.
#[unsafe(no_mangle)]
static PARAMS: Params = Params::DEFAULT;

/// This node's parameters. Read volatile, because the compiler knows only the default.
#[inline(always)]
pub fn params() -> Params {
    // SAFETY: PARAMS is a valid, initialised static of this object.
    unsafe { read_volatile(&PARAMS) }
}

/// The frame of an XDP context.
pub struct XdpFrame {
    start: usize,
    end: usize,
}

impl XdpFrame {
    /// The frame as it is now; a helper that moves its start invalidates it.
    #[inline(always)]
    pub fn of(ctx: &XdpContext) -> Self {
        Self { start: ctx.data(), end: ctx.data_end() }
    }
}

impl Packet for XdpFrame {
    #[inline(always)]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        const { assert!(N >= 2) };
        // The verifier wants a bound on the offset and the comparison on the very pointer that is read.
        if offset > MAX_OFFSET {
            return None;
        }
        let at = self.start + offset;
        if at + N > self.end {
            return None;
        }
        // SAFETY: the N bytes at `at` lie between the frame's start and end, checked above; [u8; N] has alignment 1.
        Some(unsafe { *(at as *const [u8; N]) })
    }
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
fn read_word<T>(field: *const T) -> u64 {
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
    let fields = unsafe { (addr_of!((*row).a_ns), addr_of!((*row).limit_ns), addr_of!((*row).declared_a_ns)) };
    let (cost, limit, declared) = (read_word(fields.0), read_word(fields.1), read_word(fields.2));
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
        ..FunctionRow::default()
    })
}

/// The load table as the decision sees it.
pub struct Table {
    /// Worker that would take the packet here.
    pub worker: u32,
    /// Rows that may hold a peer.
    pub nodes: u32,
    /// Now, ns of the monotonic clock.
    pub now_ns: u64,
}

impl LoadView for Table {
    #[inline(always)]
    fn here(&self) -> Here {
        let Some(row) = WORKERS.get_ptr(self.worker) else {
            return Here::default();
        };
        // SAFETY: `row` is a live map value; only addresses are taken.
        let fields = unsafe {
            (
                addr_of!((*row).charged_ns),
                addr_of!((*row).charged_packets),
                addr_of!((*row).discharged_ns),
                addr_of!((*row).discharged_packets),
                addr_of!((*row).serving_since_ns),
                addr_of!((*row).serving_charge_ns),
            )
        };
        let worker = WorkerLoad {
            discharged_ns: read_word(fields.2),
            discharged_packets: read_word(fields.3),
            serving_since_ns: read_word(fields.4),
            serving_charge_ns: read_word(fields.5) as u32,
            charged_ns: read_word(fields.0),
            charged_packets: read_word(fields.1),
        };
        worker.here(self.now_ns)
    }

    #[inline(always)]
    fn visit<V: Visit>(&self, start: u32, visitor: &mut V) {
        let mut state = Round { visitor, start: start % self.nodes.max(1), nodes: self.nodes };
        let callback: unsafe extern "C" fn(u32, *mut c_void) -> c_long = visit_one::<V>;
        // SAFETY: `visit_one` matches the callback's signature, and `state` outlives the call.
        unsafe { bpf_loop(self.nodes, callback as *mut c_void, addr_of_mut!(state).cast(), 0) };
    }
}

struct Round<'a, V> {
    visitor: &'a mut V,
    start: u32,
    nodes: u32,
}

/// One step of `bpf_loop`: shows row `start + index` to the visitor.
unsafe extern "C" fn visit_one<V: Visit>(index: u32, state: *mut c_void) -> c_long {
    // SAFETY: `visit` passes a `Round<V>` that lives until `bpf_loop` returns, and nobody else has it.
    let round = unsafe { &mut *state.cast::<Round<'_, V>>() };
    let mut node = round.start + index;
    if node >= round.nodes {
        node -= round.nodes;
    }
    if let Some(row) = LOAD_TABLE.get_ptr(node) {
        round.visitor.node(node as u16, &load_of(row));
    }
    0
}

#[inline(always)]
fn load_of(row: *const LoadRow) -> Load {
    // SAFETY: `row` is a live map value; only addresses are taken.
    let fields = unsafe {
        (
            addr_of!((*row).backlog_ns),
            addr_of!((*row).valid_until_ns),
            addr_of!((*row).queued_milli),
            addr_of!((*row).sent_ns),
        )
    };
    let report = read_word(fields.0);
    let queued = read_word(fields.2);
    Load {
        backlog_ns: report as u32,
        acked_ns: (report >> 32) as u32,
        valid_until_ns: read_word(fields.1),
        queued_milli: queued as u32,
        workers: (queued >> 32) as u16,
        sent_ns: read_word(fields.3) as u32,
    }
}

/// Takes the position that a frame of a peer carries, and counts the frame when it brought work.
#[inline(always)]
pub fn take_position(header: &Header, frames: u64) {
    let Some(row) = LOAD_TABLE.get_ptr_mut(u32::from(header.source)) else {
        return;
    };
    // SAFETY: `row` is a live map value; only addresses are taken.
    let (received, received_frames) =
        unsafe { (addr_of_mut!((*row).received_ns), addr_of_mut!((*row).received_frames)) };
    let before = Received::from_word(read_word(received));
    if let Some(after) = load::take_position(before, header) {
        if after.epoch != before.epoch {
            write_word(received_frames, 0);
        }
        write_word(received, after.to_word());
    }
    // A late frame of a boot that is over belongs to an account that is closed.
    if frames > 0 && Received::from_word(read_word(received)).epoch == header.epoch {
        add(received_frames, frames);
    }
}

/// Takes a report into its sender's row; false when it is older than the last one.
#[inline(always)]
pub fn take_report(params: &Params, header: &Header, report: &Report, now_ns: u64) -> bool {
    let Some(row) = LOAD_TABLE.get_ptr_mut(u32::from(header.source)) else {
        return false;
    };
    // SAFETY: `row` is a live map value; only addresses are taken.
    let (stamp, sent_ns, sent_frames) =
        unsafe { (addr_of_mut!((*row).report_seq), addr_of!((*row).sent_ns), addr_of!((*row).sent_frames)) };
    if !ReportStamp::from_word(read_word(stamp)).precedes(header.epoch, header.sequence) {
        return false;
    }
    let (sent_ns, sent_frames) = (read_word(sent_ns) as u32, read_word(sent_frames) as u32);
    let update = load::take_report(report, params.epoch, sent_ns, sent_frames, now_ns);
    write_word(stamp, ReportStamp { sequence: header.sequence, epoch: header.epoch }.to_word());
    // SAFETY: `row` is a live map value; only addresses are taken.
    let fields = unsafe {
        (
            addr_of_mut!((*row).backlog_ns),
            addr_of_mut!((*row).queued_milli),
            addr_of_mut!((*row).acked_frames),
            addr_of_mut!((*row).reported_at_ns),
            addr_of_mut!((*row).valid_until_ns),
            addr_of_mut!((*row).reports),
        )
    };
    write_word(fields.0, word(update.backlog_ns, update.acked_ns));
    write_word(fields.1, word(report.queued_milli, u32::from(report.workers) | u32::from(report.busy_milli) << 16));
    write_word(fields.2, word(update.acked_frames, 0));
    write_word(fields.3, now_ns);
    write_word(fields.4, update.valid_until_ns);
    add(fields.5, 1);
    true
}

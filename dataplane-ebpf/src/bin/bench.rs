//! XDP programs of the benchmarks: a generator, receivers that count, the plain programs the dataplane is compared with, and the
//! cable box that impairs links.
//!
//! An object of its own, so that nothing of it is loaded where the dataplane runs. `dataplane-bench` loads it by the names
//! below; numbers that both sides must agree on are in `dataplane_common::bench`.
#![no_std]
#![no_main]
#![feature(asm_experimental_arch)]

#[path = "../chaos.rs"]
mod chaos;
#[path = "../wide.rs"]
#[expect(dead_code, reason = "the generator only writes")]
mod wide;

use core::ffi::{c_long, c_void};
use core::mem::swap;
use core::ptr::{addr_of_mut, write_volatile};

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_DROP, XDP_TX};
use aya_ebpf::btf_maps::{Array, DevMap, PerCpuArray, XskMap};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::helpers::generated::bpf_loop;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use dataplane_common::bench::{COUNTERS, Counter, FRAME_WORDS, PACE_END, PACE_GAP, PACE_NEXT, PACE_START, PACE_WORDS};
use dataplane_common::wire::ip::{ETHERNET_BYTES, ETHERTYPE_IPV4, IPV4_BYTES, PROTOCOL_UDP};
use dataplane_common::wire::link::{ETHERTYPE_LINK, Kind};

/// What was seen, by [`Counter`].
#[btf_map]
static BENCH_COUNT: PerCpuArray<u64, COUNTERS> = PerCpuArray::new();
/// Boot epoch (high half) and position (low half) of the last forward seen.
#[btf_map]
static BENCH_LAST: Array<u64, 1> = Array::new();
/// First bytes of the frames that the generator sends.
#[btf_map]
static BENCH_FRAME: Array<[u64; FRAME_WORDS], 1> = Array::new();
/// When the generator sends.
#[btf_map]
static BENCH_PACE: Array<[u64; PACE_WORDS], 1> = Array::new();
/// Where `bn_redirect` sends to: entry 0.
#[btf_map]
static BENCH_OUT: DevMap<1> = DevMap::new();
/// Sockets of `bn_socket`, by queue.
#[btf_map]
static BENCH_XSKS: XskMap<64> = XskMap::new();

/// Longest that one frame is waited for, ns. A frame that is due later is sent early: programs must end.
const LONGEST_WAIT_NS: u64 = 1_000_000;
/// Looks at the clock while waiting; each takes some 20 ns or more, so this is longer than the longest wait.
const LOOKS: u32 = 1 << 17;

#[inline(always)]
fn count(counter: Counter) {
    if let Some(value) = BENCH_COUNT.get_ptr_mut(counter as u32) {
        // SAFETY: the value is this CPU's own, and XDP programs of one CPU do not interrupt each other.
        unsafe { *value += 1 };
    }
}

/// The `N` bytes at `offset`.
#[inline(always)]
pub(crate) fn bytes<const N: usize>(ctx: &XdpContext, offset: usize) -> Option<*mut [u8; N]> {
    let at = ctx.data() + offset;
    if at + N > ctx.data_end() {
        return None;
    }
    Some(at as *mut [u8; N])
}

/// Counts a frame under its kind.
#[inline(always)]
fn count_frame(ctx: &XdpContext) {
    let counter = match bytes::<2>(ctx, 12) {
        // SAFETY: `bytes` has checked the bounds.
        Some(ethertype) => match u16::from_be_bytes(unsafe { *ethertype }) {
            ETHERTYPE_IPV4 => ipv4_kind(ctx),
            ETHERTYPE_LINK => link_kind(ctx),
            _ => Counter::Other,
        },
        None => Counter::Other,
    };
    count(counter);
}

#[inline(always)]
fn ipv4_kind(ctx: &XdpContext) -> Counter {
    match bytes::<IPV4_BYTES>(ctx, ETHERNET_BYTES) {
        // SAFETY: `bytes` has checked the bounds.
        Some(header) if unsafe { (*header)[9] } == PROTOCOL_UDP => Counter::Udp,
        _ => Counter::Other,
    }
}

/// A forward counts, and its position is kept for whoever acknowledges it.
#[inline(always)]
fn link_kind(ctx: &XdpContext) -> Counter {
    let Some(header) = bytes::<24>(ctx, ETHERNET_BYTES) else {
        return Counter::Other;
    };
    // SAFETY: `bytes` has checked the bounds.
    let header = unsafe { *header };
    if header[1] != Kind::Forward as u8 {
        return Counter::Other;
    }
    let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if let Some(last) = BENCH_LAST.get_ptr_mut(0) {
        // SAFETY: a live map value; one aligned word.
        unsafe { write_volatile(last, u64::from(number(8)) << 32 | u64::from(number(20))) };
    }
    Counter::Forward
}

/// Receives: counts and drops. Also the plain XDP drop.
#[xdp]
pub fn bn_drop(ctx: XdpContext) -> u32 {
    count_frame(&ctx);
    XDP_DROP
}

/// Plain XDP_TX: back to the sender.
#[xdp]
pub fn bn_tx(ctx: XdpContext) -> u32 {
    let Some(macs) = bytes::<12>(&ctx, 0) else {
        return XDP_DROP;
    };
    // SAFETY: `bytes` has checked the bounds.
    let (destination, source) = unsafe { (*macs).split_at_mut(6) };
    for (to, from) in destination.iter_mut().zip(source) {
        swap(to, from);
    }
    XDP_TX
}

/// Plain redirect to another interface, by a device map.
#[xdp]
pub fn bn_redirect(_ctx: XdpContext) -> u32 {
    match BENCH_OUT.redirect(0, 0) {
        Ok(action) | Err(action) => action,
    }
}

/// Every frame to the socket of its queue.
#[xdp]
pub fn bn_socket(ctx: XdpContext) -> u32 {
    match BENCH_XSKS.redirect(ctx.rx_queue_index(), u64::from(XDP_DROP)) {
        Ok(action) | Err(action) => action,
    }
}

/// Generates: to be run by `BPF_PROG_TEST_RUN` with live frames. Waits until the frame is due, writes it, counts it, and
/// sends it out of the interface that it claims to come from.
///
/// The frame is written each time because the kernel recycles pages as the receiver left them.
#[xdp]
pub fn bn_generate(ctx: XdpContext) -> u32 {
    let (Some(frame), Some(pace)) = (BENCH_FRAME.get_ptr(0), BENCH_PACE.get_ptr_mut(0)) else {
        return XDP_ABORTED;
    };
    // SAFETY: a live map value; the generator runs on one CPU.
    if unsafe { (*pace)[PACE_GAP] } > 0 && !wait_for_turn(pace) {
        return XDP_DROP;
    }
    let Some(to) = bytes::<{ FRAME_WORDS * 8 }>(&ctx, 0) else {
        return XDP_ABORTED;
    };
    // SAFETY: a live map value, and `bytes` has checked the bounds of the frame's side.
    unsafe { wide::store(to as usize, &*frame.cast::<[u8; FRAME_WORDS * 8]>()) };
    count(Counter::Generated);
    XDP_TX
}

struct Wait {
    due_ns: u64,
}

/// Waits until the next frame is due; false when the time to send is over: what could not be sent in time is not sent. Times
/// are counted in thousandths of a nanosecond, so that no rate is rounded.
#[inline(always)]
fn wait_for_turn(pace: *mut [u64; PACE_WORDS]) -> bool {
    // SAFETY: a live map value; the generator runs on one CPU.
    let words = unsafe { *pace };
    // SAFETY: the helper takes no pointers.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    if now_ns >= words[PACE_END] {
        return false;
    }
    let mut wait = Wait { due_ns: words[PACE_START] + words[PACE_NEXT] / 1000 };
    if wait.due_ns > now_ns + LONGEST_WAIT_NS {
        wait.due_ns = now_ns + LONGEST_WAIT_NS;
    }
    if wait.due_ns > now_ns {
        let look: unsafe extern "C" fn(u32, *mut c_void) -> c_long = look;
        // SAFETY: `look` matches the callback's signature, and `wait` outlives the call.
        unsafe { bpf_loop(LOOKS, look as *mut c_void, addr_of_mut!(wait).cast(), 0) };
    }
    // SAFETY: as above.
    unsafe { (*pace)[PACE_NEXT] = words[PACE_NEXT] + words[PACE_GAP] };
    true
}

unsafe extern "C" fn look(_index: u32, wait: *mut c_void) -> c_long {
    // SAFETY: `wait_for_turn` passes a `Wait` that lives until `bpf_loop` returns.
    let due_ns = unsafe { (*wait.cast::<Wait>()).due_ns };
    // SAFETY: the helper takes no pointers.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    c_long::from(now_ns >= due_ns)
}

/// The licence the kernel reads.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

/// A panic that can be reached makes the verifier refuse the program, because the loop never ends.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

//! The cable box: a program on each of two interfaces that hands every frame on to the other one, and drops, corrupts or gives
//! to a socket those that [`dataplane_common::chaos`] says.
//!
//! What needs memory or time (a copy, a later moment, a place behind another frame) is the work of the box's thread in user space,
//! `bench/src/chaos/relay.rs`; everything else ends here, so that an unimpaired frame is never woken up for.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_DROP};
use aya_ebpf::btf_maps::{Array, DevMap, XskMap};
use aya_ebpf::helpers::bpf_xdp_adjust_meta;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use dataplane_common::chaos::{
    COUNT_WORDS, DIRECTIONS, Direction, Fate, FrameKind, KINDS, METADATA_BYTES, QUEUES, RULE_WORDS, Rule, SEEN,
    count_index, rule_index, socket_index,
};
use dataplane_common::wire::ip::{ETHERNET_BYTES, ETHERTYPE_IPV4, PROTOCOL_UDP};
use dataplane_common::wire::link::{ETHERTYPE_LINK, UDP_PORT};
use dataplane_common::wire::route::{PORT_AT, ROUTE_BYTES};

use crate::bytes;

/// What happens to frames, by direction and kind.
#[btf_map]
static CHAOS_RULE: Array<[u64; RULE_WORDS], { DIRECTIONS * KINDS }> = Array::new();
/// What happened to frames, by direction, kind and queue.
#[btf_map]
static CHAOS_COUNT: Array<[u64; COUNT_WORDS], { DIRECTIONS * KINDS * QUEUES }> = Array::new();
/// Where frames of each direction leave.
#[btf_map]
static CHAOS_OUT: DevMap<DIRECTIONS> = DevMap::new();
/// Sockets that take frames of each direction and queue.
#[btf_map]
static CHAOS_XSKS: XskMap<{ DIRECTIONS * QUEUES }> = XskMap::new();

/// Largest offset in a frame that the verifier is told of: more than the longest frame has.
const OFFSET_MASK: u32 = 0x3fff;

/// Frames from the first end to the second.
#[xdp]
pub fn bn_chaos_forth(ctx: XdpContext) -> u32 {
    hand_on(&ctx, Direction::Forth)
}

/// Frames from the second end to the first.
#[xdp]
pub fn bn_chaos_back(ctx: XdpContext) -> u32 {
    hand_on(&ctx, Direction::Back)
}

#[inline(always)]
fn hand_on(ctx: &XdpContext, direction: Direction) -> u32 {
    let (kind, queue) = (kind(ctx), ctx.rx_queue_index());
    let rule = CHAOS_RULE.get_ptr(rule_index(direction, kind));
    let count = CHAOS_COUNT.get_ptr_mut(count_index(direction, kind, queue));
    // The box makes its interfaces with no more queues than there are counts.
    let (Some(rule), Some(count), true) = (rule, count, queue < QUEUES as u32) else {
        return XDP_ABORTED;
    };
    // SAFETY: a live map value. User space may change it meanwhile; then this frame meets a mixture of both rules.
    let rule = Rule(unsafe { *rule });
    // SAFETY: a live map value that only this queue's poll writes, and a queue is polled by one CPU at a time.
    let number = unsafe { add(count, SEEN) };
    let drawn = rule.draw(number);
    let fate = match rule.fate(drawn) {
        Fate::Corrupt if !corrupt(ctx, &rule, drawn) => Fate::Pass,
        held @ (Fate::Duplicate | Fate::Reorder | Fate::Delay) if !note(ctx, held, kind) => Fate::Pass,
        fate => fate,
    };
    // SAFETY: as above.
    unsafe { add(count, fate as usize) };
    let handed = match fate {
        Fate::Drop => return XDP_DROP,
        Fate::Pass | Fate::Corrupt => CHAOS_OUT.redirect(direction as u32, 0),
        Fate::Duplicate | Fate::Reorder | Fate::Delay => {
            CHAOS_XSKS.redirect(socket_index(direction, queue), u64::from(XDP_DROP))
        }
    };
    match handed {
        Ok(action) | Err(action) => action,
    }
}

/// Adds one to a word of a count and returns what it was.
///
/// # Safety
/// `count` is a live map value that nobody else writes.
#[inline(always)]
unsafe fn add(count: *mut [u64; COUNT_WORDS], word: usize) -> u64 {
    // SAFETY: the mask keeps it inside the value; the rest is the caller's promise.
    unsafe {
        let word = count.cast::<u64>().add(word & (COUNT_WORDS - 1));
        let before = word.read();
        word.write(before + 1);
        before
    }
}

#[inline(always)]
fn kind(ctx: &XdpContext) -> FrameKind {
    let Some(head) = bytes::<{ ETHERNET_BYTES + 2 }>(ctx, 0) else {
        return FrameKind::Other;
    };
    // SAFETY: `bytes` has checked the bounds.
    let head = unsafe { *head };
    match u16::from_be_bytes([head[12], head[13]]) {
        ETHERTYPE_LINK => FrameKind::from_wire(head[ETHERNET_BYTES + 1]),
        ETHERTYPE_IPV4 => kind_in_udp(ctx),
        _ => FrameKind::Other,
    }
}

/// The same of a frame that travels in UDP to the default port, or to the next one.
#[inline(always)]
fn kind_in_udp(ctx: &XdpContext) -> FrameKind {
    let Some(head) = bytes::<{ ETHERNET_BYTES + ROUTE_BYTES + 2 }>(ctx, 0) else {
        return FrameKind::Other;
    };
    // SAFETY: `bytes` has checked the bounds.
    let byte = |at: usize| unsafe { (*head)[at] };
    let port = u16::from_be_bytes([byte(PORT_AT), byte(PORT_AT + 1)]);
    // An IPv4 header without options, and UDP behind it.
    let is_udp = byte(ETHERNET_BYTES) == 0x45 && byte(ETHERNET_BYTES + 9) == PROTOCOL_UDP;
    if is_udp && (port == UDP_PORT || port == UDP_PORT + 1) {
        FrameKind::from_wire(byte(ETHERNET_BYTES + ROUTE_BYTES + 1))
    } else {
        FrameKind::Other
    }
}

/// Changes a byte; false when there is none to change.
#[inline(always)]
fn corrupt(ctx: &XdpContext, rule: &Rule, drawn: u64) -> bool {
    let len = (ctx.data_end() - ctx.data()) as u32;
    let Some((at, change)) = rule.corruption(drawn, len) else {
        return false;
    };
    // With the byte before it, never the frame's first: of a check of one byte alone the verifier (Linux 6.18,
    // `find_good_pkt_pointers`) learns nothing.
    let Some(pair) = bytes::<2>(ctx, (at.wrapping_sub(1) & OFFSET_MASK) as usize) else {
        return false;
    };
    // SAFETY: `bytes` has checked the bounds.
    unsafe { (*pair)[1] ^= change };
    true
}

/// Writes fate and kind in front of a frame; false when there is no room.
#[inline(always)]
fn note(ctx: &XdpContext, fate: Fate, kind: FrameKind) -> bool {
    // A program before this one may have put metadata there; ours goes between it and the frame.
    let foreign = ctx.metadata_end().wrapping_sub(ctx.metadata());
    let foreign = if foreign > 252 { 0 } else { foreign };
    // SAFETY: the context is valid; the frame's pointers are read again below.
    if unsafe { bpf_xdp_adjust_meta(ctx.as_ptr().cast(), -(METADATA_BYTES as i32)) } != 0 {
        return false;
    }
    let at = ctx.metadata() + foreign;
    if at + METADATA_BYTES > ctx.metadata_end() {
        return false;
    }
    // SAFETY: the bounds are checked just above; metadata is aligned to four bytes.
    unsafe {
        (at as *mut u32).write(fate as u32);
        (at as *mut u32).add(1).write(kind as u32);
    }
    true
}

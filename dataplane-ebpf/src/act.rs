//! What is done with a frame once it is decided: counted, charged, given to a worker, sent to a peer or out of a port.

use core::ffi::c_void;
use core::ptr::{addr_of, addr_of_mut, write};

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::helpers::{bpf_xdp_adjust_head, bpf_xdp_adjust_meta};
use aya_ebpf::programs::XdpContext;
use dataplane_common::credit::has_credit;
use dataplane_common::load::Received;
use dataplane_common::maps::{AUTH_HEADER, LoadRow, PEER_PRESENT, PEER_ROUTED, Params, WorkerRow, socket_slot};
use dataplane_common::meta::{METADATA_BYTES, Metadata, Origin};
use dataplane_common::packet::Packet;
use dataplane_common::reason::Reason;
use dataplane_common::seal::SEAL_BYTES;
use dataplane_common::wire::ip::{ETHERNET_BYTES, ETHERTYPE_IPV4};
use dataplane_common::wire::link::{Carried, ETHERTYPE_LINK, Header, NO_FLOW, OVERHEAD_BYTES, emit_ethernet};
use dataplane_common::wire::route::{ROUTE_BYTES, Route};

use crate::access::{add, add_and_get, here, number_in_flow, press, read_word};
use crate::frame::XdpFrame;
use crate::maps::{LINKS, LOAD_TABLE, PEERS, PORTS, QUEUES, WORKERS, XDP_COUNT, XSKS};
use crate::seal::{self, Key};
use crate::wide;

/// Counts a frame.
#[inline(always)]
pub fn count(reason: Reason) {
    if let Some(counter) = XDP_COUNT.get_ptr_mut(reason as u32) {
        // SAFETY: the value is this CPU's own, and XDP programs of one CPU do not interrupt each other.
        unsafe { *counter += 1 };
    }
}

/// What a worker is charged with.
pub struct Charge {
    pub function: u16,
    pub charged_ns: u32,
    pub arrival_ns: u64,
    pub origin: Origin,
    pub policy: u32,
    /// Slot of the flow and the number in it; [`Number::Next`] takes a number.
    pub flow: u16,
    pub number: Number,
}

/// The number of a packet in its flow.
#[derive(Clone, Copy)]
pub enum Number {
    /// It has one.
    Given(u32),
    /// It takes the next one.
    Next,
}

/// Why a frame cannot be given to a worker.
pub enum Refused {
    /// No socket is bound to the queue; the frame is unchanged.
    NoSocket,
    /// There is no room for the metadata.
    NoHeadroom,
}

/// Charges the worker of the frame's queue and gives it the frame: the program must then return XDP_REDIRECT.
#[inline(always)]
pub fn queue(ctx: &XdpContext, interface: u32, charge: &Charge) -> Result<(), Refused> {
    match WORKERS.get_ptr_mut(ctx.rx_queue_index()) {
        Some(worker) => queue_at(ctx, interface, worker, charge),
        None => Err(Refused::NoSocket),
    }
}

/// As [`queue`], when the worker's row is at hand.
#[inline(always)]
pub fn queue_at(ctx: &XdpContext, interface: u32, worker: *mut WorkerRow, charge: &Charge) -> Result<(), Refused> {
    let slot = socket_slot(interface, ctx.rx_queue_index());
    if XSKS.redirect(slot, u64::from(XDP_PASS)).is_err() {
        return Err(Refused::NoSocket);
    }
    let Some(socket) = QUEUES.get_ptr_mut(slot) else {
        return Err(Refused::NoSocket);
    };
    // A program before ours may have put metadata there; ours goes between it and the frame.
    let foreign = ctx.metadata_end().wrapping_sub(ctx.metadata());
    let foreign = if foreign > 252 { 0 } else { foreign };
    // SAFETY: the context is valid; the frame's pointers are read again below.
    if unsafe { bpf_xdp_adjust_meta(ctx.as_ptr().cast(), -(METADATA_BYTES as i32)) } != 0 {
        return Err(Refused::NoHeadroom);
    }
    let at = ctx.metadata() + foreign;
    if at + METADATA_BYTES > ctx.metadata_end() {
        return Err(Refused::NoHeadroom);
    }
    let ns = u64::from(charge.charged_ns);
    // SAFETY: both rows are live map values; only addresses are taken.
    let fields = unsafe {
        (
            addr_of_mut!((*socket).charged_ns),
            addr_of_mut!((*socket).charged_packets),
            addr_of_mut!((*worker).charged_ns),
            addr_of_mut!((*worker).charged_packets),
        )
    };
    let record = Metadata {
        function: charge.function,
        charged_ns: charge.charged_ns,
        arrival_16ns: Metadata::arrival_of(charge.arrival_ns),
        position_ns: add_and_get(fields.0, ns),
        sequence: add_and_get(fields.1, 1) as u32,
        origin: charge.origin,
        policy: charge.policy as u8,
        flow: charge.flow,
        flow_sequence: match charge.number {
            Number::Given(number) => number,
            Number::Next if charge.flow == NO_FLOW => 0,
            Number::Next => number_in_flow(charge.flow),
        },
    };
    add(fields.2, ns);
    add(fields.3, 1);
    // SAFETY: the bytes lie between metadata start and end, checked above.
    unsafe { wide::store(at, &record.emit()) };
    Ok(())
}

/// Puts the interconnect header in front of the frame, charges the peer's account and points the frame at the link: the
/// program must then return XDP_REDIRECT. False, with the frame unchanged, when the peer cannot be reached from here.
/// `worker` is the row of the worker that would have taken it.
#[inline(always)]
pub fn forward(ctx: &XdpContext, params: &Params, worker: *const WorkerRow, mut header: Header, bytes: usize) -> bool {
    if params.routed != 0 && has_headroom(ctx.as_ptr()) != 0 {
        return unreachable();
    }
    let node = u32::from(header.destination);
    let (Some(peer), Some(row)) = (PEERS.get_ptr(node), LOAD_TABLE.get_ptr_mut(node)) else {
        return unreachable();
    };
    // SAFETY: `peer` is a live map value; only addresses are taken.
    let (mac, source_mac) = unsafe { (addr_of!((*peer).mac), addr_of!((*peer).source_mac)) };
    let (to, from) = (read_word(mac), read_word(source_mac));
    if (to >> 48) as u16 & PEER_PRESENT == 0 {
        return unreachable();
    }
    // SAFETY: `row` is a live map value; only addresses are taken.
    let (limit, sent) = unsafe { (addr_of!((*row).limit_ns), addr_of!((*row).sent_ns)) };
    if !has_credit(read_word(limit), read_word(sent), header.charged_ns) {
        count(Reason::NoteNoCredit);
        return false;
    }
    if bytes > (from >> 48) as usize {
        count(Reason::NoteTooLong);
        return false;
    }
    let (key, overhead) = if params.auth >= AUTH_HEADER {
        match Key::signing() {
            Some(key) => (Some(key), OVERHEAD_BYTES + SEAL_BYTES),
            None => return unreachable(),
        }
    } else {
        (None, OVERHEAD_BYTES)
    };
    if LINKS.redirect(node, 0).is_err() {
        return unreachable();
    }
    // SAFETY: the context is valid; the frame's pointers are read again below.
    if unsafe { bpf_xdp_adjust_head(ctx.as_ptr().cast(), -(overhead as i32)) } != 0 {
        return unreachable();
    }
    let at = ctx.data();
    if at + overhead > ctx.data_end() {
        return unreachable();
    }
    // SAFETY: `row` is a live map value; only addresses are taken.
    let (sent_ns, sent_frames) = unsafe { (addr_of_mut!((*row).sent_ns), addr_of_mut!((*row).sent_frames)) };
    let ns = u64::from(header.charged_ns);
    header.position_ns = add_and_get(sent_ns, ns) as u32;
    header.sequence = add_and_get(sent_frames, 1) as u32;
    press(params, row, header.arrival_ns, header.charged_ns);
    if header.flow != NO_FLOW {
        header.flow_sequence = number_in_flow(header.flow);
    }
    header.load = carried(worker, row, header.arrival_ns);
    // SAFETY: the bytes lie between the frame's start and end, checked above.
    unsafe { wide::store(at, &ethernet(to, from)) };
    if let Some(key) = &key {
        header.flags |= key.flags();
    }
    // SAFETY: as above.
    unsafe { wide::store(at + ETHERNET_BYTES, &header.emit()) };
    if let Some(key) = &key {
        // SAFETY: as above.
        unsafe { seal::seal(ctx, params, &header, key, at) };
    }
    if params.routed != 0 {
        // It cannot fail: `has_headroom` has looked.
        route(ctx.as_ptr());
    }
    true
}

/// The Ethernet header of a frame to a peer, of the words that hold the two addresses in its row.
#[inline(always)]
fn ethernet(to: u64, from: u64) -> [u8; ETHERNET_BYTES] {
    let ethertype = u64::from(ETHERTYPE_LINK.to_be());
    let (first, last) = (to & 0xffff_ffff_ffff | from << 48, from >> 16 & 0xffff_ffff | ethertype << 32);
    let mut bytes = [0; ETHERNET_BYTES];
    bytes[..wide::WORD].copy_from_slice(&first.to_le_bytes());
    bytes[wide::WORD..].copy_from_slice(&last.to_le_bytes()[..ETHERNET_BYTES - wide::WORD]);
    bytes
}

/// Whether there is room in front of the frame for all headers that there are.
#[inline(never)]
fn has_headroom(ctx: *mut c_void) -> u64 {
    let ctx = &XdpContext::new(ctx.cast());
    let bytes = OVERHEAD_BYTES + SEAL_BYTES + ROUTE_BYTES;
    // SAFETY: the context is valid; nobody uses a pointer into the frame from before.
    if unsafe { bpf_xdp_adjust_head(ctx.as_ptr().cast(), -(bytes as i32)) } != 0 {
        return 1;
    }
    // SAFETY: as above.
    u64::from(unsafe { bpf_xdp_adjust_head(ctx.as_ptr().cast(), bytes as i32) } != 0)
}

/// Puts an interconnect frame into UDP, if its peer is reached so. Not in line, and told by the frame itself: callers have no stack
/// left for it.
#[inline(never)]
fn route(ctx: *mut c_void) {
    let ctx = &XdpContext::new(ctx.cast());
    let frame = XdpFrame::of(ctx);
    let (Some(node), Some(flow)) = (frame.u16(ETHERNET_BYTES + 6), frame.u16(ETHERNET_BYTES + 30)) else {
        return;
    };
    let Some(peer) = PEERS.get(u32::from(node)) else {
        return;
    };
    if peer.flags & PEER_ROUTED == 0 {
        return;
    }
    // SAFETY: the context is valid; the frame's pointers are read again below.
    if unsafe { bpf_xdp_adjust_head(ctx.as_ptr().cast(), -(ROUTE_BYTES as i32)) } != 0 {
        // Not so: `has_headroom` has looked. The work is in the account, and that it has not arrived is told by the next frame.
        return;
    }
    let (at, end) = (ctx.data(), ctx.data_end());
    if at + ETHERNET_BYTES + ROUTE_BYTES > end {
        return;
    }
    // The addresses are there, behind the room.
    // SAFETY: the bytes lie between the frame's start and end, checked above.
    unsafe { wide::store(at, &wide::load::<{ wide::WORD }>(at + ROUTE_BYTES)) };
    // SAFETY: as above; [u8; N] has alignment 1.
    unsafe { write((at + 8) as *mut [u8; 4], wide::load::<4>(at + ROUTE_BYTES + 8)) };
    // SAFETY: as above.
    unsafe { write((at + 12) as *mut [u8; 2], ETHERTYPE_IPV4.to_be_bytes()) };
    let way = Route { address: peer.address, source: peer.source_address, port: peer.udp_port };
    let (words, last) = way.words(end - at - ETHERNET_BYTES - ROUTE_BYTES, flow);
    for (index, word) in words.into_iter().enumerate() {
        // SAFETY: as above.
        unsafe { wide::store(at + ETHERNET_BYTES + wide::WORD * index, &word.to_be_bytes()) };
    }
    // SAFETY: as above.
    unsafe { write((at + ETHERNET_BYTES + wide::WORD * words.len()) as *mut [u8; 4], last.to_be_bytes()) };
}

/// Takes an interconnect frame out of UDP: it is then as if it had come over Ethernet. False when the frame is too short.
#[inline(always)]
pub fn take_out_of_udp(ctx: &XdpContext) -> bool {
    let at = ctx.data();
    if at + ETHERNET_BYTES + ROUTE_BYTES > ctx.data_end() {
        return false;
    }
    // SAFETY: the bytes lie between the frame's start and end, checked above; [u8; N] has alignment 1.
    let [a, b, c, d, e, f, g, h, i, j, k, l] = unsafe { *(at as *const [u8; 12]) };
    let ethernet = emit_ethernet([a, b, c, d, e, f], [g, h, i, j, k, l]);
    // SAFETY: as above.
    unsafe { write((at + ROUTE_BYTES) as *mut [u8; ETHERNET_BYTES], ethernet) };
    // SAFETY: the context is valid and no pointer into the frame is used afterwards.
    unsafe { bpf_xdp_adjust_head(ctx.as_ptr().cast(), ROUTE_BYTES as i32) == 0 }
}

/// The load of this node as a frame to the node of `row` carries it.
#[inline(always)]
fn carried(worker: *const WorkerRow, row: *const LoadRow, now_ns: u64) -> Carried {
    // SAFETY: `row` is a live map value; only an address is taken.
    let received = Received::from_word(read_word(unsafe { addr_of!((*row).received_ns) }));
    here(worker, now_ns).carried(received, now_ns)
}

/// Notes a redirect that cannot be carried out.
#[inline(always)]
fn unreachable() -> bool {
    count(Reason::NoteUnreachable);
    false
}

/// Takes the interconnect header off a result and points the frame at the port it leaves by: the program must then
/// return XDP_REDIRECT. False when this node has no such port.
#[inline(always)]
pub fn return_result(ctx: &XdpContext, port: u32) -> bool {
    if PORTS.redirect(port, 0).is_err() {
        return false;
    }
    // SAFETY: the context is valid and no pointer into the frame is used afterwards.
    unsafe { bpf_xdp_adjust_head(ctx.as_ptr().cast(), OVERHEAD_BYTES as i32) == 0 }
}

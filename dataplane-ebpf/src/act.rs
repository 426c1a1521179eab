//! What is done with a frame once it is decided: counted, charged, given to a worker, sent to a peer or out of a port.

use core::ptr::{addr_of_mut, write};

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::helpers::{bpf_xdp_adjust_head, bpf_xdp_adjust_meta};
use aya_ebpf::programs::XdpContext;
use dataplane_common::maps::{InterfaceRow, PEER_PRESENT, socket_slot};
use dataplane_common::meta::{METADATA_BYTES, Metadata, Origin};
use dataplane_common::reason::Reason;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{HEADER_BYTES, Header, OVERHEAD_BYTES, emit_ethernet};

use crate::access::{add, add_and_get};
use crate::maps::{LINKS, LOAD_TABLE, PEERS, PORTS, QUEUES, WORKERS, XDP_COUNT, XSKS};

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
pub fn queue(ctx: &XdpContext, interface: &InterfaceRow, charge: &Charge, policy: u32) -> Result<(), Refused> {
    let queue = ctx.rx_queue_index();
    let slot = socket_slot(interface.index, queue);
    if XSKS.redirect(slot, u64::from(XDP_PASS)).is_err() {
        return Err(Refused::NoSocket);
    }
    let (Some(socket), Some(worker)) = (QUEUES.get_ptr_mut(slot), WORKERS.get_ptr_mut(queue)) else {
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
        arrival_ns: charge.arrival_ns,
        position_ns: add_and_get(fields.0, ns),
        sequence: add_and_get(fields.1, 1) as u32,
        origin: charge.origin,
        policy: policy as u8,
    };
    add(fields.2, ns);
    add(fields.3, 1);
    // SAFETY: the bytes lie between metadata start and end, checked above; [u8; N] has alignment 1.
    unsafe { write(at as *mut [u8; METADATA_BYTES], record.emit()) };
    Ok(())
}

/// Puts the interconnect header in front of the frame, charges the peer's account and points the frame at the link: the
/// program must then return XDP_REDIRECT. False, with the frame unchanged, when the peer cannot be reached from here.
#[inline(always)]
pub fn forward(ctx: &XdpContext, mut header: Header, bytes: usize) -> bool {
    let node = u32::from(header.destination);
    let (Some(peer), Some(row)) = (PEERS.get(node), LOAD_TABLE.get_ptr_mut(node)) else {
        return unreachable();
    };
    if peer.flags & PEER_PRESENT == 0 {
        return unreachable();
    }
    if bytes > usize::from(peer.max_frame) {
        count(Reason::NoteTooLong);
        return false;
    }
    let ethernet = emit_ethernet(peer.mac, peer.source_mac);
    if LINKS.redirect(node, 0).is_err() {
        return unreachable();
    }
    // SAFETY: the context is valid; the frame's pointers are read again below.
    if unsafe { bpf_xdp_adjust_head(ctx.as_ptr().cast(), -(OVERHEAD_BYTES as i32)) } != 0 {
        return unreachable();
    }
    let at = ctx.data();
    if at + OVERHEAD_BYTES > ctx.data_end() {
        return unreachable();
    }
    // SAFETY: `row` is a live map value; only addresses are taken.
    let (sent_ns, sent_frames) = unsafe { (addr_of_mut!((*row).sent_ns), addr_of_mut!((*row).sent_frames)) };
    let ns = u64::from(header.charged_ns);
    header.position_ns = add_and_get(sent_ns, ns) as u32;
    header.sequence = add_and_get(sent_frames, 1) as u32;
    // SAFETY: the bytes lie between the frame's start and end, checked above; [u8; N] has alignment 1.
    unsafe { write(at as *mut [u8; ETHERNET_BYTES], ethernet) };
    // SAFETY: as above.
    unsafe { write((at + ETHERNET_BYTES) as *mut [u8; HEADER_BYTES], header.emit()) };
    true
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

//! The XDP programs. Glue only: every rule about packets or nodes is in `dataplane-common`.
//!
//! | program | attached to | does |
//! |---|---|---|
//! | `dp_ingress` | ports | classify, decide, give to a worker or send to a peer |
//! | `dp_link` | interconnect links | take reports, give forwarded packets to a worker, send results out of their port |
//! | `dp_sink` | a measuring host | stamp the arrival time and give every frame to an AF_XDP socket |
//! | `dp_pass` | the far end of a veth | nothing; a veth takes redirected frames only when its peer runs XDP |
#![no_std]
#![no_main]
#![feature(core_intrinsics, asm_experimental_arch)]
#![expect(internal_features, reason = "atomic_xadd is the only atomic that reaches BPF v3 (docs/architecture.md)")]

mod access;
mod act;
mod frame;
mod maps;
mod seal;
mod wide;

use access::{Table, params};
use act::{Charge, Number, count};
use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_REDIRECT};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use dataplane_common::classify::{Active, Class, classify, identify};
use dataplane_common::estimate::ept_ns;
use dataplane_common::function::Units;
use dataplane_common::hash::mix;
use dataplane_common::maps::{
    AUTH_OFF, FLOW_SLOTS, FUNCTION_DIRECT, FUNCTION_WORKER, ORDER_AFFINE, ORDER_NONE, Params, WorkerRow,
};
use dataplane_common::meta::Origin;
use dataplane_common::order::Place;
use dataplane_common::packet::Packet;
use dataplane_common::policy::{Decision, Job, Verdict, decide};
use dataplane_common::reason::Reason;
use dataplane_common::seal::forward_overhead;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{
    Carried, ETHERTYPE_LINK, FLAG_DIRECT, FLAG_HELD, FLAG_UNDONE, Header, Kind, NO_FLOW, OVERHEAD_BYTES, Report,
};
use dataplane_common::wire::route::is_routed;
use frame::XdpFrame;
use maps::Found;

/// Frames from outside.
#[xdp]
pub fn dp_ingress(ctx: XdpContext) -> u32 {
    count(Reason::SeenPort);
    let params = params();
    let Some(found) = maps::FOUND.get_ptr_mut(0) else {
        return pass(Reason::PassNoSocket);
    };
    match classify(&XdpFrame::with_scratch(&ctx, found), &params.rules()) {
        Class::NotActive => pass(Reason::PassNotActive),
        Class::Fragment => pass(Reason::PassFragment),
        Class::Result => pass(Reason::PassResult),
        Class::Malformed(reason) => drop_frame(reason),
        Class::Active(active) => {
            frame::remember(found, &active);
            handle_active(&ctx, params, found, &frame::recall(found))
        }
    }
}

#[inline(always)]
fn handle_active(ctx: &XdpContext, params: &Params, found: *mut Found, active: &Active) -> u32 {
    let Some(function) = maps::function_for(active) else {
        return if active.anep.discard_unknown {
            drop_frame(Reason::DropUnknownType)
        } else {
            pass(Reason::PassUnknownType)
        };
    };
    let queue = ctx.rx_queue_index();
    // One after the other: a pair of options makes LLVM spill the payload of a `None`, which the verifier refuses.
    let Some(interface) = maps::interface(ctx) else {
        return pass(Reason::PassNoSocket);
    };
    let Some(row) = access::function(function, queue) else {
        return pass(Reason::PassNoSocket);
    };
    let Some(units) = Units::from_map(row.units).of(&active.anep) else {
        return drop_frame(Reason::DropOperandMissing);
    };
    if row.declared().ns(units) > row.limit_ns {
        return drop_frame(Reason::DropServiceLimit);
    }
    let ept_ns = ept_ns(row.measured(), row.declared(), units);
    if active.trailing > 0 {
        count(Reason::NoteTrailing);
    }
    let Some(worker) = maps::WORKERS.get_ptr_mut(queue) else {
        return pass(Reason::PassNoSocket);
    };
    let Some(signals) = maps::SIGNALS.get_ptr(0) else {
        return pass(Reason::PassNoSocket);
    };
    let frame = XdpFrame::of(ctx);
    let identity = identify(&frame, active);
    let now_ns = now_ns();
    let flow = if row.order == ORDER_NONE { NO_FLOW } else { identity.flow as u16 & (FLOW_SLOTS as u16 - 1) };
    let job = Job {
        now_ns,
        ept_ns,
        bytes: frame.len() + forward_overhead(params.auth),
        function: function as u16,
        home: row.home,
        // Whatever is known of the flow, the verifier follows one way on.
        earlier_ns: frame::forget(found, access::earlier_ns(params, flow, now_ns)),
        class: identity.class,
        flow: identity.flow,
        key: identity.key,
        random: random(params, identity.flow, now_ns),
    };
    access::count_demand(params, function);
    let decision = if row.order == ORDER_AFFINE || row.flags & FUNCTION_WORKER != 0 {
        Decision::LOCAL
    } else {
        decide(row.policy, &job, params, &Table { worker, signals, now_ns })
    };
    #[cfg(feature = "log")]
    log_decision(ctx, active.anep.type_id, ept_ns, &decision);
    access::expect(params, flow, now_ns, decision.done_ns);
    if let Verdict::Redirect(node) = decision.verdict
        && forward(ctx, params, worker, (node, &job), (row.type_id as u16, interface as u16, flow), row.flags)
    {
        return XDP_REDIRECT;
    }
    if params.backlog_limit_ns != 0 && access::here(worker, now_ns).backlog_ns > params.backlog_limit_ns {
        return drop_frame(Reason::DropOverload);
    }
    let charge = Charge {
        function: function as u16,
        charged_ns: ept_ns,
        arrival_ns: now_ns,
        origin: Origin::Port,
        policy: row.policy,
        flow,
        number: Number::Next,
    };
    match act::queue_at(ctx, interface, worker, &charge) {
        Ok(()) => {
            count(Reason::LocalQueued);
            XDP_REDIRECT
        }
        Err(act::Refused::NoSocket) => pass(Reason::PassNoSocket),
        Err(act::Refused::NoHeadroom) => drop_frame(Reason::DropHeadroom),
    }
}

/// Now, ns of the monotonic clock.
#[inline(always)]
fn now_ns() -> u64 {
    // SAFETY: the helper takes no pointers and is available to XDP programs.
    unsafe { bpf_ktime_get_ns() }
}

/// The packet's random number: with a seed always the same for a flow, else of the clock, whose low bits nobody outside
/// controls; the kernel's generator takes several times as long.
#[inline(always)]
fn random(params: &Params, flow: u32, now_ns: u64) -> u32 {
    mix(if params.seed == 0 { now_ns } else { u64::from(params.seed ^ flow) }) as u32
}

/// Sends the packet of `job` to `node`; false, with the frame unchanged, when that cannot be done.
#[inline(always)]
fn forward(
    ctx: &XdpContext,
    params: &Params,
    worker: *const WorkerRow,
    (node, job): (u16, &Job),
    (type_id, port, flow): (u16, u16, u16),
    function_flags: u32,
) -> bool {
    let header = Header {
        kind: Kind::Forward,
        hops: 1,
        flags: if function_flags & FUNCTION_DIRECT != 0 { FLAG_DIRECT } else { 0 },
        source: params.node,
        destination: node,
        epoch: params.epoch,
        sequence: 0,
        charged_ns: job.ept_ns,
        position_ns: 0,
        length: (job.bytes - forward_overhead(params.auth)) as u16,
        type_id,
        port,
        flow,
        arrival_ns: job.now_ns,
        flow_sequence: 0,
        load: Carried::default(),
        spent_ns: 0,
        held: 0,
        generation: 0,
    };
    let sent = act::forward(ctx, params, worker, header, job.bytes);
    if sent {
        count(Reason::Redirected);
    }
    sent
}

/// One line per decision with the numbers it compared.
#[cfg(feature = "log")]
fn log_decision(ctx: &XdpContext, type_id: u16, ept_ns: u32, decision: &dataplane_common::policy::Decision) {
    let node = match decision.verdict {
        Verdict::Local => -1,
        Verdict::Redirect(node) => i32::from(node),
    };
    let (here, there) = (decision.here, decision.there);
    aya_log_ebpf::info!(ctx, "type {:x} EPT {} ns: here {}, there {}, to node {}", type_id, ept_ns, here, there, node);
}

/// Frames from peers.
#[xdp]
pub fn dp_link(ctx: XdpContext) -> u32 {
    count(Reason::SeenLink);
    let params = params();
    let frame = XdpFrame::of(&ctx);
    let frame = if params.routed != 0 && is_routed(&frame, params.link_port) {
        if !act::take_out_of_udp(&ctx) {
            return drop_frame(Reason::DropLinkTruncated);
        }
        XdpFrame::of(&ctx)
    } else if frame.u16(12) == Some(ETHERTYPE_LINK) {
        frame
    } else {
        return pass(Reason::PassLink);
    };
    let header = match Header::parse(&frame, ETHERNET_BYTES) {
        Ok(header) => header,
        Err(reason) => return drop_frame(reason),
    };
    if header.destination != params.node {
        return drop_frame(Reason::DropLinkDestination);
    }
    if !maps::is_peer(header.source) {
        return drop_frame(Reason::DropLinkSource);
    }
    let frame = if params.auth == AUTH_OFF {
        if header.key() != 0 {
            // What follows the header is no body that this node could read.
            return drop_frame(Reason::DropLinkKey);
        }
        frame
    } else {
        if let Err(reason) = seal::open(&ctx, params, &header) {
            return drop_frame(reason);
        }
        // Without its seal it begins elsewhere.
        XdpFrame::of(&ctx)
    };
    match header.kind {
        Kind::Forward => handle_forward(&ctx, params, &header),
        Kind::Result if header.length > 0 && frame.len() < OVERHEAD_BYTES + ETHERNET_BYTES => {
            drop_frame(Reason::DropLinkTruncated)
        }
        Kind::Result => handle_result(&ctx, params, &header),
        Kind::Report => match Report::parse(&frame, OVERHEAD_BYTES) {
            Ok(report) => handle_report(params, &header, &report),
            Err(reason) => drop_frame(reason),
        },
        Kind::Pull => handle_pull(&ctx, params, &header),
    }
}

#[inline(always)]
fn handle_forward(ctx: &XdpContext, params: &Params, header: &Header) -> u32 {
    // The account comes first: the work has left the link, whatever becomes of the packet here.
    access::take_position(header, 1);
    let Some(function) = maps::function_of(header.type_id) else {
        return drop_frame(Reason::DropLinkType);
    };
    let Some(interface) = maps::interface(ctx) else {
        return drop_frame(Reason::DropLinkNoSocket);
    };
    let Some(row) = access::function(function, ctx.rx_queue_index()) else {
        return drop_frame(Reason::DropLinkNoSocket);
    };
    let arrival_ns = now_ns();
    take_piggyback(params, header, arrival_ns);
    let charge = Charge {
        function: function as u16,
        // A peer's estimate is not trusted beyond what this node would accept itself.
        charged_ns: if header.charged_ns > row.limit_ns { row.limit_ns } else { header.charged_ns },
        arrival_ns,
        origin: Origin::Peer,
        policy: row.policy,
        flow: NO_FLOW,
        number: Number::Given(0),
    };
    match act::queue(ctx, interface, &charge) {
        Ok(()) => {
            count(Reason::ForwardQueued);
            XDP_REDIRECT
        }
        Err(act::Refused::NoSocket) => drop_frame(Reason::DropLinkNoSocket),
        Err(act::Refused::NoHeadroom) => drop_frame(Reason::DropLinkHeadroom),
    }
}

#[inline(always)]
fn handle_result(ctx: &XdpContext, params: &Params, header: &Header) -> u32 {
    let now_ns = now_ns();
    take_piggyback(params, header, now_ns);
    access::take_result(params, header, now_ns);
    if header.flags & FLAG_HELD != 0 {
        if !access::answer_held(header) {
            return drop_frame(Reason::DropLinkDuplicate);
        }
        if header.flags & FLAG_UNDONE != 0 {
            // Its turn is still to come.
            count(Reason::UndoneTaken);
            return XDP_DROP;
        }
    }
    if header.flow != NO_FLOW {
        match access::take_turn(header.flow, header.flow_sequence, now_ns) {
            Place::Next => {}
            Place::Past if header.length > 0 => count(Reason::NoteLate),
            Place::Past => {}
            Place::Later => return hold_result(ctx, params, header),
        }
    }
    send_result(ctx, header)
}

#[inline(always)]
fn take_piggyback(params: &Params, header: &Header, now_ns: u64) {
    if access::take_piggyback(params, header, now_ns) {
        count(Reason::NotePiggyback);
    }
}

#[inline(always)]
fn send_result(ctx: &XdpContext, header: &Header) -> u32 {
    if header.length == 0 {
        // Its turn has passed on, and there is nothing to send.
        count(Reason::MarkTaken);
        return XDP_DROP;
    }
    if act::return_result(ctx, u32::from(header.port)) {
        count(Reason::ResultReturned);
        XDP_REDIRECT
    } else {
        drop_frame(Reason::DropLinkPort)
    }
}

/// Gives a result that came before its turn to a worker, which holds it until then.
#[inline(always)]
fn hold_result(ctx: &XdpContext, params: &Params, header: &Header) -> u32 {
    let Some(interface) = maps::interface(ctx) else {
        return drop_frame(Reason::DropLinkNoSocket);
    };
    let charge = Charge {
        function: 0,
        charged_ns: 0,
        arrival_ns: header.arrival_ns,
        origin: Origin::Result,
        policy: params.policy,
        flow: header.flow,
        number: Number::Given(header.flow_sequence),
    };
    match act::queue(ctx, interface, &charge) {
        Ok(()) => {
            count(Reason::ResultQueued);
            XDP_REDIRECT
        }
        Err(act::Refused::NoSocket) => {
            // Out of order is better than lost.
            if header.length > 0 {
                count(Reason::NoteLate);
            }
            send_result(ctx, header)
        }
        Err(act::Refused::NoHeadroom) => drop_frame(Reason::DropLinkHeadroom),
    }
}

/// Gives a request for work to the worker of its queue.
#[inline(always)]
fn handle_pull(ctx: &XdpContext, params: &Params, header: &Header) -> u32 {
    access::take_position(header, 0);
    let arrival_ns = now_ns();
    take_piggyback(params, header, arrival_ns);
    let Some(interface) = maps::interface(ctx) else {
        return drop_frame(Reason::DropLinkNoSocket);
    };
    let charge = Charge {
        function: 0,
        charged_ns: 0,
        arrival_ns,
        origin: Origin::Pull,
        policy: params.policy,
        flow: NO_FLOW,
        number: Number::Given(0),
    };
    match act::queue(ctx, interface, &charge) {
        Ok(()) => {
            count(Reason::PullQueued);
            XDP_REDIRECT
        }
        Err(act::Refused::NoSocket) => drop_frame(Reason::DropLinkNoSocket),
        Err(act::Refused::NoHeadroom) => drop_frame(Reason::DropLinkHeadroom),
    }
}

#[inline(always)]
fn handle_report(params: &Params, header: &Header, report: &Report) -> u32 {
    access::take_position(header, 0);
    let now_ns = now_ns();
    if access::take_report(params, header, report, now_ns) {
        count(Reason::ReportTaken);
        XDP_DROP
    } else {
        drop_frame(Reason::DropReportOld)
    }
}

/// Every frame to the socket of its queue, with its arrival time in the metadata.
#[xdp]
pub fn dp_sink(ctx: XdpContext) -> u32 {
    let Some(interface) = maps::interface(&ctx) else {
        return XDP_PASS;
    };
    let arrival_ns = now_ns();
    let charge = Charge {
        function: 0,
        charged_ns: 0,
        arrival_ns,
        origin: Origin::Port,
        policy: 0,
        flow: NO_FLOW,
        number: Number::Given(0),
    };
    match act::queue(&ctx, interface, &charge) {
        Ok(()) => XDP_REDIRECT,
        Err(_) => XDP_PASS,
    }
}

/// Everything to the kernel stack.
#[xdp]
pub fn dp_pass(_ctx: XdpContext) -> u32 {
    XDP_PASS
}

#[inline(always)]
fn pass(reason: Reason) -> u32 {
    count(reason);
    XDP_PASS
}

#[inline(always)]
fn drop_frame(reason: Reason) -> u32 {
    count(reason);
    XDP_DROP
}

/// The licence the kernel reads: the programs use GPL-only helpers.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

/// A panic that can be reached makes the verifier refuse the program, because the loop never ends.
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

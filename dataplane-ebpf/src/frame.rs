//! Frames between two pointers, as `dataplane-common` reads them, and what was found out about one.

use core::arch::asm;
use core::ptr::{addr_of_mut, read_volatile, write_volatile};

use aya_ebpf::programs::XdpContext;
use dataplane_common::classify::Active;
use dataplane_common::packet::{MAX_OFFSET, Packet};
use dataplane_common::wire::anep::Anep;

use crate::maps::Found;
use crate::wide;

/// The frame of an XDP context.
pub struct XdpFrame {
    start: usize,
    end: usize,
    scratch: *mut u32,
}

impl XdpFrame {
    /// The frame as it is now; a helper that moves its start invalidates it.
    #[inline(always)]
    pub fn of(ctx: &XdpContext) -> Self {
        Self::between(ctx.data(), ctx.data_end())
    }

    /// The frame between two pointers of a context.
    #[inline(always)]
    pub fn between(start: usize, end: usize) -> Self {
        Self { start, end, scratch: core::ptr::null_mut() }
    }

    /// As [`XdpFrame::of`], with a word of this CPU's for [`Packet::forget`].
    #[inline(always)]
    pub fn with_scratch(ctx: &XdpContext, found: *mut Found) -> Self {
        // SAFETY: `found` is a live map value; only an address is taken.
        Self { scratch: unsafe { addr_of_mut!((*found).scratch) }, ..Self::of(ctx) }
    }
}

impl Packet for XdpFrame {
    #[inline(always)]
    fn len(&self) -> usize {
        self.end - self.start
    }

    #[inline(always)]
    fn forget(&self, value: u32) -> u32 {
        if self.scratch.is_null() {
            return value;
        }
        // SAFETY: a word of a live map value of this CPU, and XDP programs of one CPU do not interrupt each other.
        unsafe { write_volatile(self.scratch, value) };
        // SAFETY: as above.
        unsafe { read_volatile(self.scratch) }
    }

    #[inline(always)]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        const { assert!(N >= 2) };
        // The verifier wants a bound on the offset and the comparison on the very pointer that is read.
        if offset > MAX_OFFSET {
            return None;
        }
        // Verifiers before Linux 6.3 or so lose that bound on the way through a 32-bit copy, so it is written down once more.
        let mut offset = offset as u64;
        // SAFETY: plain arithmetic on a register.
        unsafe { asm!("{0} &= {1}", inout(reg) offset, const MAX_OFFSET, options(pure, nomem, nostack)) };
        let at = self.start + offset as usize;
        if at + N > self.end {
            return None;
        }
        // SAFETY: the N bytes at `at` lie between the frame's start and end, checked above.
        Some(unsafe { wide::load(at) })
    }
}

/// Puts what was found out about a packet away; see [`Found`].
#[inline(always)]
pub fn remember(found: *mut Found, active: &Active) {
    let anep = &active.anep;
    let value = Found {
        type_id: u32::from(anep.type_id),
        discard_unknown: u32::from(anep.discard_unknown),
        payload_len: anep.payload_len() as u32,
        trailing: active.trailing as u32,
        has_operand: u32::from(anep.operand.is_some()),
        operand: anep.operand.unwrap_or(0),
        has_key: u32::from(anep.key.is_some()),
        key: anep.key.unwrap_or(0),
        l3: active.l3 as u32,
        l4: active.l4 as u32,
        v6: u32::from(active.v6),
        udp: u32::from(active.udp),
        pktgen: u32::from(active.pktgen),
        scratch: 0,
    };
    // SAFETY: `found` is a live map value of this CPU, and XDP programs of one CPU do not interrupt each other.
    unsafe { write_volatile(found, value) };
}

/// Reads it again: an active packet without the offsets that only workers need.
#[inline(always)]
pub fn recall(found: *const Found) -> Active {
    // SAFETY: as above.
    let found = unsafe { read_volatile(found) };
    Active {
        anep: Anep {
            // The header ends where the payload begins; only its length matters from here on.
            header_len: 0,
            packet_len: found.payload_len as usize,
            type_id: found.type_id as u16,
            discard_unknown: found.discard_unknown != 0,
            operand: if found.has_operand != 0 { Some(found.operand) } else { None },
            key: if found.has_key != 0 { Some(found.key) } else { None },
            ..Anep::default()
        },
        pktgen: found.pktgen != 0,
        l3: found.l3 as usize,
        l4: found.l4 as usize,
        v6: found.v6 != 0,
        udp: found.udp != 0,
        trailing: found.trailing as usize,
    }
}

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
        if self.scratch.is_null() { value } else { through(self.scratch, value) }
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

/// `value`, of which the verifier forgets what it knows: see [`Packet::forget`].
#[inline(always)]
pub fn forget(found: *mut Found, value: u32) -> u32 {
    // SAFETY: `found` is a live map value; only an address is taken.
    through(unsafe { addr_of_mut!((*found).scratch) }, value)
}

/// `value`, written to a word and read again.
#[inline(always)]
fn through(word: *mut u32, value: u32) -> u32 {
    // SAFETY: a word of a live map value of this CPU, and XDP programs of one CPU do not interrupt each other.
    unsafe { write_volatile(word, value) };
    // SAFETY: as above.
    unsafe { read_volatile(word) }
}

/// Bits of the highest 16 of [`Found::kind`].
const DISCARD_UNKNOWN: u64 = 1 << 48;
const OPERAND: u64 = 1 << 49;
const KEY: u64 = 1 << 50;
const V6: u64 = 1 << 51;
const UDP: u64 = 1 << 52;
const PKTGEN: u64 = 1 << 53;

/// Puts what was found out about a packet away; see [`Found`].
#[inline(always)]
pub fn remember(found: *mut Found, active: &Active) {
    let anep = &active.anep;
    let when = |is: bool, bit: u64| if is { bit } else { 0 };
    let kind = u64::from(anep.type_id)
        | (active.l3 as u64) << 16
        | (active.l4 as u64) << 32
        | when(anep.discard_unknown, DISCARD_UNKNOWN)
        | when(anep.operand.is_some(), OPERAND)
        | when(anep.key.is_some(), KEY)
        | when(active.v6, V6)
        | when(active.udp, UDP)
        | when(active.pktgen, PKTGEN);
    let value = Found {
        kind,
        lengths: anep.payload_len() as u64 | (active.trailing as u64) << 32,
        numbers: u64::from(anep.operand.unwrap_or(0)) | u64::from(anep.key.unwrap_or(0)) << 32,
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
    let has = |bit: u64| found.kind & bit != 0;
    let half = |at: u32| (found.kind >> at) as usize & 0xffff;
    Active {
        anep: Anep {
            // The header ends where the payload begins; only its length matters from here on.
            header_len: 0,
            packet_len: found.lengths as u32 as usize,
            type_id: found.kind as u16,
            discard_unknown: has(DISCARD_UNKNOWN),
            operand: if has(OPERAND) { Some(found.numbers as u32) } else { None },
            key: if has(KEY) { Some((found.numbers >> 32) as u32) } else { None },
            ..Anep::default()
        },
        pktgen: has(PKTGEN),
        l3: half(16),
        l4: half(32),
        v6: has(V6),
        udp: has(UDP),
        trailing: (found.lengths >> 32) as usize,
    }
}

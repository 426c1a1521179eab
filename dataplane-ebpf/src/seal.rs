//! Seals in XDP: the same seals as in `dataplane_common::seal`, of frames that lie between two pointers. With
//! [`AUTH_OFF`](dataplane_common::maps::AUTH_OFF) the verifier removes all of it.

use core::ffi::{c_long, c_void};
use core::ptr::{addr_of, addr_of_mut};

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::helpers::bpf_xdp_adjust_head;
use aya_ebpf::helpers::generated::bpf_loop;
use aya_ebpf::programs::XdpContext;
use dataplane_common::maps::Params;
use dataplane_common::packet::Packet;
use dataplane_common::reason::Reason;
use dataplane_common::seal::{
    self, KeyRow, SEAL_BYTES, SealRow, Sip, TAGGED_BYTES, Taken, admit, body_bytes, covers_body, is_sealed,
};
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::{Header, Kind, OVERHEAD_BYTES};

use crate::access::{add_and_get, begin_boot, compare_and_set, learn_boot, read_word};
use crate::frame::XdpFrame;
use crate::maps::{KEYS, SEALS};
use crate::wide::{self, WORD};

/// Where the body of a sealed frame begins.
const BODY: usize = OVERHEAD_BYTES + SEAL_BYTES;
/// Where a sealed frame has its tag.
const TAG: usize = ETHERNET_BYTES + TAGGED_BYTES;
/// No byte of a frame that a program sees in one piece lies behind this.
const LAST: usize = 0x3fff;
/// Words of a body that are taken by one step.
const WORDS: usize = 8;

/// A key of this node: its number, and its row.
#[derive(Clone, Copy)]
pub struct Key {
    number: u8,
    row: *const KeyRow,
}

impl Key {
    /// The key that this node seals with.
    #[inline(always)]
    pub fn signing() -> Option<Self> {
        let row = KEYS.get_ptr(0)?;
        // SAFETY: `row` is a live map value; only an address is taken.
        Self::of(read_word(unsafe { addr_of!((*row).signing) }) as u8)
    }

    #[inline(always)]
    fn of(number: u8) -> Option<Self> {
        let row = KEYS.get_ptr(u32::from(number))?;
        // SAFETY: as above.
        if read_word(unsafe { addr_of!((*row).valid) }) != 0 { Some(Self { number, row }) } else { None }
    }

    /// Its number as the flags of a header have it.
    #[inline(always)]
    pub fn flags(&self) -> u8 {
        self.number << 4
    }

    /// Key of the tag.
    #[inline(always)]
    fn header(&self) -> [u64; 2] {
        // SAFETY: `row` is a live map value; only addresses are taken.
        let words = unsafe { (addr_of!((*self.row).header[0]), addr_of!((*self.row).header[1])) };
        [read_word(words.0), read_word(words.1)]
    }

    /// Key of the body tag.
    #[inline(always)]
    fn body(&self) -> [u64; 2] {
        // SAFETY: as above.
        let words = unsafe { (addr_of!((*self.row).body[0]), addr_of!((*self.row).body[1])) };
        [read_word(words.0), read_word(words.1)]
    }
}

/// The tag of the frame between two pointers. Not in line: with the hash in it, the rest of a program would have no registers.
#[inline(never)]
fn tag(start: usize, end: usize, k0: u64, k1: u64) -> u64 {
    // Callers have seen that the frame is long enough.
    seal::tag(&XdpFrame::between(start, end), ETHERNET_BYTES, [k0, k1]).unwrap_or_default()
}

/// A body being hashed.
struct Body {
    ctx: *mut xdp_md,
    sip: Sip,
    /// Offset of the first step's words in the frame.
    from: usize,
}

/// One step of `bpf_loop`: takes the next `N` words of the body.
unsafe extern "C" fn take<const N: usize>(index: u32, state: *mut c_void) -> c_long {
    // SAFETY: `body_tag` passes a `Body` that lives until `bpf_loop` returns, and nobody else has it.
    let body = unsafe { &mut *state.cast::<Body>() };
    let ctx = XdpContext::new(body.ctx);
    let offset = body.from + N * WORD * index as usize;
    if offset > LAST {
        return 1;
    }
    let at = ctx.data() + offset;
    if at + N * WORD > ctx.data_end() {
        return 1;
    }
    let mut sip = body.sip;
    for word in 0..N {
        // SAFETY: the N words at `at` lie between the frame's start and end, checked above.
        sip.word(u64::from_le_bytes(unsafe { wide::load::<WORD>(at + WORD * word) }));
    }
    body.sip = sip;
    0
}

/// The tag of the first `length` bytes of a sealed frame's body, all of which are there. Not in line: what it keeps for
/// `bpf_loop` would lie on the stack of the whole program, which has 512 bytes with all that it calls.
#[inline(never)]
fn body_tag(ctx: *mut xdp_md, k0: u64, k1: u64, length: usize) -> u64 {
    let mut body = Body { ctx, sip: Sip::new([k0, k1]), from: BODY };
    let ctx = XdpContext::new(ctx);
    let state: *mut c_void = addr_of_mut!(body).cast();
    let steps: unsafe extern "C" fn(u32, *mut c_void) -> c_long = take::<WORDS>;
    // SAFETY: `take` matches the callback's signature, and `body` outlives the call.
    unsafe { bpf_loop((length / (WORDS * WORD)) as u32, steps as *mut c_void, state, 0) };
    body.from = BODY + (length & !(WORDS * WORD - 1));
    let words: unsafe extern "C" fn(u32, *mut c_void) -> c_long = take::<1>;
    // SAFETY: as above.
    unsafe { bpf_loop((length / WORD % WORDS) as u32, words as *mut c_void, state, 0) };
    let rest = match length % WORD {
        0 => 0,
        left => {
            // There is a seal before the body, so that the last eight bytes are always there.
            let offset = BODY - WORD + length;
            let at = ctx.data() + offset;
            if offset > LAST || at + WORD > ctx.data_end() {
                return 0;
            }
            // SAFETY: the word at `at` lies between the frame's start and end, checked above.
            u64::from_le_bytes(unsafe { wide::load::<WORD>(at) }) >> (8 * (WORD - left))
        }
    };
    body.sip.finish(length, rest)
}

/// Seals a frame whose header is written, with [`Key::flags`] and room for the seal behind it. `at` is the frame's start, where
/// [`BODY`] bytes lie.
///
/// # Safety
/// They lie inside the frame, as the verifier has seen.
#[inline(always)]
pub unsafe fn seal(ctx: &XdpContext, params: &Params, header: &Header, key: &Key, at: usize) {
    let length = usize::from(header.length);
    let body = if covers_body(params.auth, header.kind) && length > 0 {
        let [k0, k1] = key.body();
        body_tag(ctx.ctx, k0, k1, length)
    } else {
        0
    };
    let Some(row) = SEALS.get_ptr_mut(u32::from(header.destination)) else {
        return;
    };
    // SAFETY: `row` is a live map value; only an address is taken.
    let serial = add_and_get(unsafe { addr_of_mut!((*row).issued) }, 1);
    // SAFETY: the caller's promise.
    unsafe { wide::store(at + OVERHEAD_BYTES, &serial.to_be_bytes()) };
    // SAFETY: as above.
    unsafe { wide::store(at + OVERHEAD_BYTES + WORD, &body.to_be_bytes()) };
    let [k0, k1] = key.header();
    let tag = tag(at, ctx.data_end(), k0, k1);
    // SAFETY: as above.
    unsafe { wide::store(at + TAG, &tag.to_be_bytes()) };
}

/// The words of one peer's serials.
struct Serials(*mut SealRow);

impl Serials {
    #[inline(always)]
    fn boot_word(&self) -> *mut u64 {
        // SAFETY: the row is a live map value; only an address is taken.
        unsafe { addr_of_mut!((*self.0).epoch) }.cast()
    }

    #[inline(always)]
    fn entry_word(&self, index: u32) -> *mut u64 {
        // SAFETY: as above, and `admit` asks for entries that there are.
        unsafe { addr_of_mut!((*self.0).taken).cast::<u64>().add(index as usize) }
    }
}

impl Taken for Serials {
    #[inline(always)]
    fn boot(&self) -> u64 {
        read_word(self.boot_word())
    }

    #[inline(always)]
    fn swap_boot(&self, old: u64, new: u64) -> bool {
        compare_and_set(self.boot_word(), old, new)
    }

    #[inline(always)]
    fn entry(&self, index: u32) -> u64 {
        read_word(self.entry_word(index))
    }

    #[inline(always)]
    fn swap_entry(&self, index: u32, old: u64, new: u64) -> bool {
        compare_and_set(self.entry_word(index), old, new)
    }
}

/// Checks the seal of a frame and takes it out, so that the frame is what it would be without one.
///
/// # Errors
/// The reason under which the frame is dropped.
#[inline(always)]
pub fn open(ctx: &XdpContext, params: &Params, header: &Header) -> Result<(), Reason> {
    if header.key() == 0 {
        return if is_sealed(params.auth, header.kind) { Err(Reason::DropLinkUnsealed) } else { Ok(()) };
    }
    let Some(key) = Key::of(header.key()) else {
        return Err(Reason::DropLinkKey);
    };
    let (frame, length) = (XdpFrame::of(ctx), body_bytes(header));
    if BODY + length > frame.len() {
        return Err(Reason::DropLinkTruncated);
    }
    let word = |at: usize| frame.read::<WORD>(at).map_or(0, u64::from_be_bytes);
    let (serial, body, found) = (word(OVERHEAD_BYTES), word(OVERHEAD_BYTES + WORD), word(TAG));
    let [k0, k1] = key.header();
    if tag(ctx.data(), ctx.data_end(), k0, k1) != found {
        return Err(Reason::DropLinkTag);
    }
    if header.load.received_epoch != params.epoch as u16 {
        if header.kind as u32 == Kind::Report as u32 {
            learn_boot(header);
        }
        return Err(Reason::DropLinkStaleBoot);
    }
    // All of this before the serial is taken: the frame that was sent may still come.
    if covers_body(params.auth, header.kind) && length > 0 {
        let [k0, k1] = key.body();
        if body_tag(ctx.ctx, k0, k1, length) != body {
            return Err(Reason::DropLinkBody);
        }
    }
    let Some(row) = SEALS.get_ptr_mut(u32::from(header.source)) else {
        return Err(Reason::DropLinkSource);
    };
    let admitted = admit(&Serials(row), header.epoch, serial);
    if admitted.is_first {
        begin_boot(header);
    }
    if !admitted.is_new {
        return Err(Reason::DropLinkReplay);
    }
    if take_out(ctx, header) { Ok(()) } else { Err(Reason::DropLinkTruncated) }
}

/// Moves what lies in front of the seal over it, and lets the frame begin there.
#[inline(always)]
fn take_out(ctx: &XdpContext, header: &Header) -> bool {
    let at = ctx.data();
    if at + BODY > ctx.data_end() {
        return false;
    }
    // From the end to the beginning: what is written over has been moved. The first word overlaps the second.
    let mut offset = OVERHEAD_BYTES;
    while offset > 0 {
        offset = offset.saturating_sub(WORD);
        // SAFETY: the bytes in front of the body lie inside the frame, checked above.
        let word = unsafe { wide::load::<WORD>(at + offset) };
        // SAFETY: as above.
        unsafe { wide::store(at + offset + SEAL_BYTES, &word) };
    }
    // SAFETY: as above. The byte of the flags, without the key.
    unsafe { *((at + ETHERNET_BYTES + SEAL_BYTES + 3) as *mut u8) = header.flags & 0x0f };
    // SAFETY: the context is valid and no pointer into the frame is used afterwards.
    unsafe { bpf_xdp_adjust_head(ctx.as_ptr().cast(), SEAL_BYTES as i32) == 0 }
}

//! Words of a packet in one instruction each. The compiler takes bytes without alignment one by one, and its option to do
//! otherwise concerns the stack too, where the verifier insists on alignment.

use core::arch::asm;

/// Bytes moved at once.
pub const WORD: usize = 8;

/// The `N` bytes at `at`.
///
/// # Safety
/// They lie inside the frame, as the verifier has seen.
#[inline(always)]
pub unsafe fn load<const N: usize>(at: usize) -> [u8; N] {
    let word: u64;
    match N {
        // SAFETY: the caller's promise.
        4 => unsafe { asm!("{} = *(u32 *)({} + 0)", out(reg) word, in(reg) at, options(readonly, nostack)) },
        // SAFETY: the caller's promise.
        WORD => unsafe { asm!("{} = *(u64 *)({} + 0)", out(reg) word, in(reg) at, options(readonly, nostack)) },
        // SAFETY: the caller's promise; [u8; N] has alignment 1.
        _ => return unsafe { *(at as *const [u8; N]) },
    }
    let mut bytes = [0; N];
    bytes.copy_from_slice(&word.to_ne_bytes()[..N]);
    bytes
}

/// Writes an even number of bytes at `at`.
///
/// # Safety
/// They lie inside the frame or its metadata, as the verifier has seen.
#[inline(always)]
pub unsafe fn store<const N: usize>(at: usize, bytes: &[u8; N]) {
    const { assert!(N.is_multiple_of(2)) };
    let (words, rest) = bytes.as_chunks::<WORD>();
    for (index, word) in words.iter().enumerate() {
        let (at, word) = (at + WORD * index, u64::from_ne_bytes(*word));
        // SAFETY: the caller's promise.
        unsafe { asm!("*(u64 *)({} + 0) = {}", in(reg) at, in(reg) word, options(nostack)) };
    }
    let at = at + WORD * words.len();
    let (halves, rest) = rest.as_chunks::<4>();
    for (index, half) in halves.iter().enumerate() {
        let (at, half) = (at + 4 * index, u64::from(u32::from_ne_bytes(*half)));
        // SAFETY: the caller's promise.
        unsafe { asm!("*(u32 *)({} + 0) = {}", in(reg) at, in(reg) half, options(nostack)) };
    }
    let at = at + 4 * halves.len();
    for (index, quarter) in rest.as_chunks::<2>().0.iter().enumerate() {
        let (at, quarter) = (at + 2 * index, u64::from(u16::from_ne_bytes(*quarter)));
        // SAFETY: the caller's promise.
        unsafe { asm!("*(u16 *)({} + 0) = {}", in(reg) at, in(reg) quarter, options(nostack)) };
    }
}

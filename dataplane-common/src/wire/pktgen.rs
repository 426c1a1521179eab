//! Packets of the kernel's packet generator (`net/core/pktgen.c`), which carries nothing but its own header.
//!
//! ```text
//! UDP payload: | magic (4) | sequence (4) | seconds (4) | microseconds (4) | result room (up to 32) | payload … |
//! ```
//!
//! All big endian; behind the header pktgen sends zeros. A node with the *pktgen profile* takes such a packet for an active one: its
//! UDP destination port names the function. The header stays as it was, so whoever gets the result finds sequence and time in it.

/// First word of every packet (`PKTGEN_MAGIC`).
pub const MAGIC: u32 = 0xbe9b_e955;
/// Bytes of the header (`struct pktgen_hdr`).
pub const HEADER_BYTES: usize = 16;
/// Most bytes behind it that are kept for the function's result.
pub const RESULT_BYTES: usize = 32;

/// Bytes for the result in a UDP payload of `payload` bytes, whole words.
#[inline(always)]
pub const fn result_room(payload: usize) -> usize {
    let behind = payload.saturating_sub(HEADER_BYTES);
    (if behind < RESULT_BYTES { behind } else { RESULT_BYTES }) & !3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_gets_whole_words_of_what_there_is() {
        let rooms = [0, 15, 16, 18, 19, 20, 47, 48, 49, 1_400].map(result_room);
        assert_eq!(rooms, [0, 0, 0, 0, 0, 4, 28, 32, 32, 32]);
    }
}

//! Bytes on the wire: one file per protocol, each with its constants, offsets, parse and emit.
//!
//! Contract of every file here: offsets are in bytes from the start of the header, numbers are big endian, a
//! parse function never panics for any input and reports what is wrong as a [`crate::reason::Reason`], an emit
//! function writes every byte of what it returns. `docs/wire.md` describes the same formats in prose.

pub mod anep;
pub mod ip;
pub mod link;
pub mod pktgen;
pub mod route;

/// The Internet checksum (RFC 1071): folds a sum of 16-bit words into one's complement form.
///
/// `sum` is the plain sum of big-endian 16-bit words; up to 2^16 words may have been added.
#[inline(always)]
pub const fn fold_checksum(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    let twice = (once & 0xffff) + (once >> 16);
    !(twice as u16)
}

/// The plain sum of the big-endian 16-bit words of `bytes` (odd length padded with a zero byte), to be combined with
/// other sums and given to [`fold_checksum`]. `bytes` may be up to 128 KiB long.
#[inline]
pub fn sum_words(bytes: &[u8]) -> u32 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut sum: u32 = 0;
    for pair in pairs {
        sum += u32::from(u16::from_be_bytes(*pair));
    }
    match rest {
        [last] => sum + (u32::from(*last) << 8),
        _ => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::{fold_checksum, sum_words};

    #[test]
    fn checksum_agrees_with_the_worked_example_of_rfc_1071() {
        // RFC 1071 section 3: 0001 f203 f4f5 f6f7 sum to ddf2 after folding.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold_checksum(sum_words(&bytes)), !0xddf2);
    }

    #[test]
    fn odd_length_is_padded_with_zero() {
        assert_eq!(sum_words(&[0x12, 0x34, 0x56]), 0x1234 + 0x5600);
    }
}

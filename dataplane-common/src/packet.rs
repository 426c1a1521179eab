//! Bounds-checked reads of a frame, so that one parser serves slices and XDP frames.

/// A frame that can be read at any offset without ever panicking.
pub trait Packet {
    /// Bytes in the frame.
    fn len(&self) -> usize;

    /// True when the frame has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The `N` bytes at `offset`, or `None` when they do not lie wholly inside the frame.
    ///
    /// Offsets beyond [`MAX_OFFSET`] are refused by every implementation: the BPF verifier needs a bound, and a
    /// parser that behaved differently in user space would not be the same parser. `N` is at least 2: LLVM turns the
    /// bound of a single byte, `at + 1 > end`, into `at >= end`, from which the verifier learns nothing.
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;

    /// `value`, of which whoever proves this program safe forgets what it knows.
    ///
    /// The BPF verifier follows every path through a parser, and a loop that knows which way it went multiplies them. What is
    /// forgotten at the end of a step is the same on every path, and one of them is followed. Elsewhere this does nothing.
    #[inline(always)]
    fn forget(&self, value: u32) -> u32 {
        value
    }

    /// The big-endian 16-bit number at `offset`.
    #[inline(always)]
    fn u16(&self, offset: usize) -> Option<u16> {
        self.read(offset).map(u16::from_be_bytes)
    }

    /// The big-endian 32-bit number at `offset`.
    #[inline(always)]
    fn u32(&self, offset: usize) -> Option<u32> {
        self.read(offset).map(u32::from_be_bytes)
    }
}

/// Largest offset a header may start at. Every header the dataplane reads lies in front of it.
pub const MAX_OFFSET: usize = 0x3ff;

impl Packet for [u8] {
    #[inline]
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    #[inline]
    fn read<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        const { assert!(N >= 2) };
        if offset > MAX_OFFSET {
            return None;
        }
        self.get(offset..)?.first_chunk().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Packet;

    #[test]
    fn reads_only_what_lies_wholly_inside() {
        let frame: &[u8] = &[1, 2, 3, 4, 5];
        assert_eq!(frame.u32(1), Some(0x0203_0405));
        assert_eq!(frame.u32(2), None);
        assert_eq!(frame.read::<2>(4), None);
        assert_eq!(frame.read::<2>(3), Some([4, 5]));
        assert_eq!(frame.u16(usize::MAX), None);
    }

    #[test]
    fn refuses_offsets_the_verifier_would_refuse() {
        let frame = [0u8; 2048];
        assert!(frame.as_slice().u16(super::MAX_OFFSET).is_some());
        assert!(frame.as_slice().u16(super::MAX_OFFSET + 1).is_none());
    }
}

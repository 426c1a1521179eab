//! [`Frame`], the move-only right to one frame of a UMEM, and [`Batch`], the frames that travel together.

use std::collections::VecDeque;
use std::fmt;
use std::mem;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use super::umem::Umem;

/// Frames dropped outside the ways, in this process.
static LEAKED: AtomicU64 = AtomicU64::new(0);

/// How many [`Frame`]s this process has lost by dropping them: each is a bug, and one frame less for its UMEM.
pub fn leaked_frames() -> u64 {
    LEAKED.load(Ordering::Relaxed)
}

/// The exclusive right to the bytes of one frame, with the place of the packet in it.
///
/// Made only by its [`Umem`], which gives out a frame once and not again before it has come back. A frame leaves the
/// worker's hands through [`Umem::release`] or a tx ring. Dropping it is a bug: counted in
/// [`leaked_frames`], and a panic in debug builds unless the thread is panicking already.
///
/// Invariant: `offset + len <= size`, and `index` is one of the UMEM's.
#[must_use = "a frame that is dropped is lost to its UMEM"]
pub struct Frame {
    umem: NonZeroU32,
    index: u32,
    offset: u16,
    len: u16,
    size: u16,
}

const _: () = assert!(mem::size_of::<Option<Frame>>() == 16);

/// A change of a frame's packet bounds that would leave the frame. The frame is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfFrame {
    /// Bytes asked for.
    pub wanted: usize,
    /// Bytes there.
    pub available: usize,
}

impl fmt::Display for OutOfFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes wanted, {} available in the frame", self.wanted, self.available)
    }
}

impl std::error::Error for OutOfFrame {}

impl Frame {
    /// For [`Umem`] alone. The caller sees to the invariant and that no other `Frame` of this index exists.
    pub(super) fn new(umem: NonZeroU32, index: u32, size: u16, offset: u16, len: u16) -> Self {
        debug_assert!(u32::from(offset) + u32::from(len) <= u32::from(size), "BUG: packet past its frame");
        Self { umem, index, offset, len, size }
    }

    /// Ends the frame without counting it as lost; for [`Umem`], which has noted where it went.
    pub(super) fn retire(self) {
        mem::forget(self);
    }

    /// The UMEM it belongs to.
    pub(super) fn umem(&self) -> NonZeroU32 {
        self.umem
    }

    /// Number of the frame in its UMEM, for traces.
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Bytes of the packet.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// Whether there is no packet in it. Such a frame cannot be sent: the kernel would keep it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes in front of the packet: what [`push_front`](Self::push_front) can take.
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.offset)
    }

    /// Bytes behind the packet: how much longer [`set_len`](Self::set_len) can make it.
    #[inline]
    pub fn tailroom(&self) -> usize {
        usize::from(self.size) - usize::from(self.offset) - usize::from(self.len)
    }

    /// Moves the packet's start `n` bytes forward to the frame's start: room for a header in front. The bytes gained
    /// hold whatever was there, often the XDP metadata.
    ///
    /// # Errors
    /// More than [`headroom`](Self::headroom).
    #[inline]
    pub fn push_front(&mut self, n: usize) -> Result<(), OutOfFrame> {
        match u16::try_from(n) {
            Ok(step) if step <= self.offset => {
                self.offset -= step;
                self.len += step;
                Ok(())
            }
            _ => Err(OutOfFrame { wanted: n, available: self.headroom() }),
        }
    }

    /// Takes `n` bytes off the packet's start: a header is done with.
    ///
    /// # Errors
    /// More than [`len`](Self::len).
    #[inline]
    pub fn pull_front(&mut self, n: usize) -> Result<(), OutOfFrame> {
        match u16::try_from(n) {
            Ok(step) if step <= self.len => {
                self.offset += step;
                self.len -= step;
                Ok(())
            }
            _ => Err(OutOfFrame { wanted: n, available: self.len() }),
        }
    }

    /// Sets the packet's length, its start unchanged. Bytes gained hold whatever was there.
    ///
    /// # Errors
    /// More than fits between the packet's start and the end of the frame.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result<(), OutOfFrame> {
        let available = self.size - self.offset;
        match u16::try_from(len) {
            Ok(len) if len <= available => {
                self.len = len;
                Ok(())
            }
            _ => Err(OutOfFrame { wanted: len, available: usize::from(available) }),
        }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({}/{} @{} len {})", self.umem, self.index, self.offset, self.len)
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        LEAKED.fetch_add(1, Ordering::Relaxed);
        if cfg!(debug_assertions) && !thread::panicking() {
            panic!("BUG: {self:?} dropped instead of released or sent");
        }
    }
}

/// A frame that a full [`Batch`] gives back.
#[derive(Debug)]
pub struct Full(pub Frame);

/// Frames in order, at most as many as it was made for; it never allocates after that.
#[derive(Debug)]
pub struct Batch {
    frames: VecDeque<Frame>,
    limit: usize,
}

impl Batch {
    /// An empty batch for up to `limit` frames.
    pub fn new(limit: usize) -> Self {
        Self { frames: VecDeque::with_capacity(limit), limit }
    }

    /// Frames in it.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether it holds none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Frames that can still be added.
    #[inline]
    pub fn room(&self) -> usize {
        self.limit - self.frames.len()
    }

    /// Adds a frame at the end.
    ///
    /// # Errors
    /// No room; the frame comes back.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Full> {
        if self.room() == 0 {
            return Err(Full(frame));
        }
        self.frames.push_back(frame);
        Ok(())
    }

    /// Adds a frame at the end, or gives it back to its UMEM when there is no room; true when that was so.
    pub fn push_or_release(&mut self, umem: &mut Umem, frame: Frame) -> bool {
        match self.push(frame) {
            Ok(()) => false,
            Err(full) => {
                umem.release(full.0);
                true
            }
        }
    }

    /// Takes the frame that has been in it longest.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    /// The frames, oldest first.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Frame> {
        self.frames.iter()
    }

    /// The frames, oldest first, to change their packets.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Frame> {
        self.frames.iter_mut()
    }

    /// Gives all frames back to their UMEM.
    ///
    /// # Panics
    /// `BUG` if one is of another UMEM.
    pub fn release_all(&mut self, umem: &mut Umem) {
        while let Some(frame) = self.pop() {
            umem.release(frame);
        }
    }
}

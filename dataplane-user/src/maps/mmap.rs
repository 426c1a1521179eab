//! Array maps mapped into this process: the same words XDP reads and adds to, as atomics.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use super::MapValue;

/// A `BPF_F_MMAPABLE` array map of `T`, mapped shared.
///
/// Rows are reached as aligned 8-byte words ([`Row::word`]), never as `&T`: XDP programs and other workers write them at
/// the same time.
#[derive(Debug)]
pub struct MappedArray<T> {
    base: NonNull<u8>,
    entries: u32,
    bytes: usize,
    value: PhantomData<T>,
}

// SAFETY: the mapping is plain shared memory, reached through `&AtomicU64` only; it has no tie to a thread.
unsafe impl<T> Send for MappedArray<T> {}
// SAFETY: as for Send.
unsafe impl<T> Sync for MappedArray<T> {}

impl<T: MapValue> MappedArray<T> {
    /// Bytes from one row to the next; the kernel rounds the value size up to 8.
    const STRIDE: usize = size_of::<T>();
    const CHECK: () = assert!(size_of::<T>().is_multiple_of(8), "map values are whole words");

    /// Maps `entries` rows of the map behind `fd`. The caller has checked that its value is a `T` (`maps::check`).
    ///
    /// # Errors
    /// What `mmap(2)` says: EPERM or EINVAL for a map that is not mmapable or is smaller.
    pub fn map(fd: BorrowedFd<'_>, entries: u32) -> io::Result<Self> {
        let () = Self::CHECK;
        let bytes = (entries as usize * Self::STRIDE).max(1);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => {
                Ok(Self { base, entries, bytes, value: PhantomData })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> u32 {
        self.entries
    }

    /// True when there is no row.
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Row `index`.
    ///
    /// # Panics
    /// `BUG` when there is no such row: indexes come from the node's own configuration, never from a packet.
    #[inline]
    #[track_caller]
    pub fn row(&self, index: u32) -> Row<'_, T> {
        assert!(index < self.entries, "BUG: row {index} of a map with {} rows", self.entries);
        // SAFETY: the offset is below `bytes`, the size of the mapping, by the check above.
        let base = unsafe { self.base.add(index as usize * Self::STRIDE) };
        Row { base, map: PhantomData }
    }
}

impl<T> Drop for MappedArray<T> {
    fn drop(&mut self) {
        // SAFETY: the region was mapped by `map` with this length, and rows borrow `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// One row of a [`MappedArray`].
#[derive(Clone, Copy, Debug)]
pub struct Row<'a, T> {
    base: NonNull<u8>,
    map: PhantomData<&'a MappedArray<T>>,
}

impl<'a, T: MapValue> Row<'a, T> {
    /// The word whose first byte is `offset` bytes into the row (use `offset_of!`).
    ///
    /// # Panics
    /// `BUG` when the offset is not that of a word of the row; a constant offset costs nothing.
    #[inline(always)]
    #[track_caller]
    pub fn word(&self, offset: usize) -> &'a AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= size_of::<T>(), "BUG: no word at offset {offset}");
        // SAFETY: the word lies inside the row by the check above.
        let word = unsafe { self.base.add(offset) };
        // SAFETY: rows are page- and 8-byte-aligned, the memory lives as long as the map that 'a borrows, and everybody
        // in this process reaches it as an atomic.
        unsafe { word.cast::<AtomicU64>().as_ref() }
    }
}

//! The owner of a mapped region: rings and packet memory. Hands out raw pointers only, because the kernel writes to
//! this memory while we hold it, and a `&[u8]` would promise the compiler that nobody does.

#![expect(unsafe_code, reason = "mmap, munmap and pointer arithmetic inside one mapping")]

use std::io;
use std::mem::{align_of, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

/// Bytes of a huge page on x86-64 and on aarch64 with 4 KiB base pages; `MAP_HUGETLB` without a size takes the
/// system's default, and `munmap` wants a multiple of it.
const HUGE_PAGE: usize = 2 << 20;

/// Which pages a region of packet memory lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Base pages, as asked for.
    Base,
    /// Huge pages, as asked for.
    Huge,
    /// Base pages, although huge ones were asked for: `mmap` refused them with this errno. `ENOMEM` means that
    /// `/proc/sys/vm/nr_hugepages` is too low.
    FellBack {
        /// What `mmap(MAP_HUGETLB)` failed with.
        errno: i32,
    },
}

/// One `mmap`ped region, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a `Mapping` is an address range that it alone unmaps; mappings belong to the process, not to a thread.
unsafe impl Send for Mapping {}
// SAFETY: through `&Mapping` one gets pointers, never access; who dereferences them answers for it.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory of at least `len` bytes, on huge pages if `huge` and the system has them.
    ///
    /// # Errors
    /// What `mmap` says for base pages; a refusal of huge pages is reported in [`Pages`] instead.
    pub fn anonymous(len: usize, huge: bool) -> io::Result<(Self, Pages)> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut pages = Pages::Base;
        if huge {
            match Self::map(len.next_multiple_of(HUGE_PAGE), flags | libc::MAP_HUGETLB, None) {
                Ok(mapping) => return mapping.not_inherited().map(|mapping| (mapping, Pages::Huge)),
                Err(error) => pages = Pages::FellBack { errno: error.raw_os_error().unwrap_or(0) },
            }
        }
        Self::map(len, flags, None)?.not_inherited().map(|mapping| (mapping, pages))
    }

    /// The `len` bytes at `offset` of a device or socket, shared with the kernel.
    ///
    /// # Errors
    /// What `mmap` says.
    pub fn device(fd: BorrowedFd<'_>, offset: i64, len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, Some((fd, offset)))
    }

    fn map(len: usize, flags: i32, source: Option<(BorrowedFd<'_>, i64)>) -> io::Result<Self> {
        let (fd, offset) = source.map_or((-1, 0), |(fd, offset)| (fd.as_raw_fd(), offset));
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, len })
    }

    /// Keeps the region out of children. A forked child would share the pages copy-on-write, and on kernels before
    /// 5.19 the *parent's* next write could move to a fresh page while the kernel goes on using the pinned one.
    fn not_inherited(self) -> io::Result<Self> {
        // SAFETY: the range is exactly this mapping; MADV_DONTFORK changes nothing in this process.
        let rc = unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_DONTFORK) };
        if rc != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(self)
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// A pointer to `count` values of `T` that begin `offset` bytes into the region, or `None` if they are not
    /// aligned or not all inside it. The pointer is valid as long as the mapping lives.
    pub fn at<T>(&self, offset: u64, count: usize) -> Option<NonNull<T>> {
        let offset = usize::try_from(offset).ok()?;
        let end = count.checked_mul(size_of::<T>())?.checked_add(offset)?;
        if end > self.len || !(self.base.as_ptr().addr() + offset).is_multiple_of(align_of::<T>()) {
            return None;
        }
        // SAFETY: `offset <= end <= len`, so the result lies inside the mapping or one past its end.
        Some(unsafe { self.base.add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one `mmap` returned, nobody else unmaps it, and every holder of a pointer into it
        // also holds (a reference to) this owner.
        let rc = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(rc, 0, "BUG: munmap of a range that mmap returned failed");
    }
}

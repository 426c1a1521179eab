//! The kernel's AF_XDP interface as Rust sees it: structs, constants and one function per system call, no logic.
//!
//! Line numbers are those of [`if_xdp.h` in v6.18](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h).

#![expect(unsafe_code, reason = "system calls take raw pointers")]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// A type for which every bit pattern is a value, so that it may be read from memory the kernel writes.
///
/// # Safety
/// The type has no padding, no pointers and no invalid bit patterns.
pub unsafe trait Plain: Copy + Send + 'static {}

// SAFETY: an integer has no invalid bit pattern.
unsafe impl Plain for u64 {}

/// Share the UMEM of the socket in `shared_umem_fd`. [if_xdp.h L16](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L16)
pub const XDP_SHARED_UMEM: u16 = 1 << 0;
/// Refuse zero copy. [if_xdp.h L17](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L17)
pub const XDP_COPY: u16 = 1 << 1;
/// Refuse copy mode. [if_xdp.h L18](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L18)
pub const XDP_ZEROCOPY: u16 = 1 << 2;
/// Let the driver sleep and say so in the ring flags. [if_xdp.h L27](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L27)
pub const XDP_USE_NEED_WAKEUP: u16 = 1 << 3;
/// The ring flag that asks for a kick. [if_xdp.h L57](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L57)
pub const XDP_RING_NEED_WAKEUP: u32 = 1 << 0;

/// Where the words of each ring lie in its mapping. [if_xdp.h L74](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L74)
pub const XDP_MMAP_OFFSETS: i32 = 1;
/// Entries of the rx ring. [if_xdp.h L75](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L75)
pub const XDP_RX_RING: i32 = 2;
/// Entries of the tx ring. [if_xdp.h L76](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L76)
pub const XDP_TX_RING: i32 = 3;
/// Register memory as UMEM. [if_xdp.h L77](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L77)
pub const XDP_UMEM_REG: i32 = 4;
/// Entries of the fill ring. [if_xdp.h L78](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L78)
pub const XDP_UMEM_FILL_RING: i32 = 5;
/// Entries of the completion ring. [if_xdp.h L79](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L79)
pub const XDP_UMEM_COMPLETION_RING: i32 = 6;
/// Counters of a socket. [if_xdp.h L80](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L80)
pub const XDP_STATISTICS: i32 = 7;
/// What the socket obtained. [if_xdp.h L81](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L81)
pub const XDP_OPTIONS: i32 = 8;
/// Frames that one kick sends in copy mode, since v6.17. [if_xdp.h L82](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L82)
pub const XDP_MAX_TX_SKB_BUDGET: i32 = 9;

/// Set in [`XdpOptions::flags`] when the socket runs without copying. [if_xdp.h L107](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L107)
pub const XDP_OPTIONS_ZEROCOPY: u32 = 1 << 0;

/// `mmap` offset of the rx ring. [if_xdp.h L110](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L110)
pub const XDP_PGOFF_RX_RING: i64 = 0;
/// `mmap` offset of the tx ring. [if_xdp.h L111](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L111)
pub const XDP_PGOFF_TX_RING: i64 = 0x8000_0000;
/// `mmap` offset of the fill ring. [if_xdp.h L112](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L112)
pub const XDP_UMEM_PGOFF_FILL_RING: i64 = 0x1_0000_0000;
/// `mmap` offset of the completion ring. [if_xdp.h L113](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L113)
pub const XDP_UMEM_PGOFF_COMPLETION_RING: i64 = 0x1_8000_0000;

/// Bytes the kernel keeps free in front of a received packet, after the UMEM's own headroom.
/// [bpf.h](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/bpf.h)
pub const XDP_PACKET_HEADROOM: u32 = 256;

/// Address of an AF_XDP socket. [if_xdp.h L48](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L48)
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SockaddrXdp {
    /// `AF_XDP`.
    pub family: u16,
    /// `XDP_SHARED_UMEM`, `XDP_COPY`, `XDP_ZEROCOPY`, `XDP_USE_NEED_WAKEUP`.
    pub flags: u16,
    /// Interface index in the socket's network namespace.
    pub ifindex: u32,
    /// Queue of that interface.
    pub queue_id: u32,
    /// A bound socket of the same UMEM; only read with `XDP_SHARED_UMEM`.
    pub shared_umem_fd: u32,
}

/// Byte offsets of one ring's words in its mapping. [if_xdp.h L59](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L59)
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct XdpRingOffset {
    /// The `u32` that the producing side advances.
    pub producer: u64,
    /// The `u32` that the consuming side advances.
    pub consumer: u64,
    /// The first entry.
    pub desc: u64,
    /// The `u32` with `XDP_RING_NEED_WAKEUP`.
    pub flags: u64,
}

/// Offsets of the four rings. [if_xdp.h L66](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L66)
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct XdpMmapOffsets {
    /// Rx ring.
    pub rx: XdpRingOffset,
    /// Tx ring.
    pub tx: XdpRingOffset,
    /// Fill ring.
    pub fr: XdpRingOffset,
    /// Completion ring.
    pub cr: XdpRingOffset,
}

// SAFETY: sixteen `u64`, no padding.
unsafe impl Plain for XdpMmapOffsets {}

/// Argument of `XDP_UMEM_REG`. [if_xdp.h L84](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L84)
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct XdpUmemReg {
    /// Address of the memory, page aligned.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Bytes of a frame.
    pub chunk_size: u32,
    /// Bytes to leave in front of `XDP_PACKET_HEADROOM`.
    pub headroom: u32,
    /// `XDP_UMEM_*` flags; none are used here.
    pub flags: u32,
    /// Bytes of tx metadata; unused here. Before v6.8 this was padding, so it must be written.
    pub tx_metadata_len: u32,
}

/// Answer of `XDP_STATISTICS`: the kernel's counters of one socket, in packets or descriptors. [if_xdp.h L93](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L93)
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpStatistics {
    /// Received packets dropped for other reasons than the ones below, such as being longer than a frame.
    pub rx_dropped: u64,
    /// Fill ring entries the kernel refused.
    pub rx_invalid_descs: u64,
    /// Tx descriptors the kernel refused.
    pub tx_invalid_descs: u64,
    /// Received packets dropped because the rx ring was full.
    pub rx_ring_full: u64,
    /// Times the kernel found the fill ring empty.
    pub rx_fill_ring_empty_descs: u64,
    /// Times the kernel found the tx ring empty.
    pub tx_ring_empty_descs: u64,
}

// SAFETY: six `u64`, no padding.
unsafe impl Plain for XdpStatistics {}

/// Answer of `XDP_OPTIONS`. [if_xdp.h L102](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L102)
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct XdpOptions {
    /// `XDP_OPTIONS_ZEROCOPY` or nothing.
    pub flags: u32,
}

// SAFETY: one `u32`.
unsafe impl Plain for XdpOptions {}

/// An entry of the rx and tx rings. [if_xdp.h L166](https://github.com/torvalds/linux/blob/v6.18/include/uapi/linux/if_xdp.h#L166)
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpDesc {
    /// Byte offset of the packet in the UMEM.
    pub addr: u64,
    /// Bytes of the packet.
    pub len: u32,
    /// Zero for a packet that lies in one frame and carries no tx metadata.
    pub options: u32,
}

// SAFETY: `u64` and two `u32`, no padding.
unsafe impl Plain for XdpDesc {}

const _: () = assert!(size_of::<SockaddrXdp>() == 16);
const _: () = assert!(size_of::<XdpMmapOffsets>() == 128);
const _: () = assert!(size_of::<XdpUmemReg>() == 32);
const _: () = assert!(size_of::<XdpStatistics>() == 48);
const _: () = assert!(size_of::<XdpOptions>() == 4);
const _: () = assert!(size_of::<XdpDesc>() == 16);

/// `socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC)`. Needs `CAP_NET_RAW`.
pub fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to us and to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `setsockopt(SOL_XDP, option)`.
pub fn set_option<T: Copy>(fd: BorrowedFd<'_>, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of `size_of::<T>()` bytes during the call.
    let rc = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(rc as isize)
}

/// `getsockopt(SOL_XDP, option)`. An answer of another length than `T` is `ErrorKind::Unsupported`: kernels before
/// 5.4 give shorter ones, which this module does not read.
pub fn get_option<T: Plain>(fd: BorrowedFd<'_>, option: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is valid for writes of `len` bytes during the call, `len` for reads and writes.
    let rc =
        unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value.as_mut_ptr().cast(), &raw mut len) };
    check(rc as isize)?;
    if len as usize != size_of::<T>() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: zeroed, perhaps overwritten by the kernel, and every bit pattern of a `Plain` type is a value.
    Ok(unsafe { value.assume_init() })
}

/// `bind`.
pub fn bind(fd: BorrowedFd<'_>, address: &SockaddrXdp) -> io::Result<()> {
    // SAFETY: `address` is valid for reads of its size during the call.
    let rc = unsafe {
        libc::bind(fd.as_raw_fd(), ptr::from_ref(address).cast(), size_of::<SockaddrXdp>() as libc::socklen_t)
    };
    check(rc as isize)
}

/// `sendto` without data: the kick of the tx ring.
pub fn kick_tx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a null buffer of length zero and no address; the kernel reads neither.
    let rc = unsafe { libc::sendto(fd.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0) };
    check(rc)
}

/// `recvfrom` without data: the kick of the fill ring.
pub fn kick_rx(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a null buffer of length zero and no address; the kernel writes neither.
    let rc = unsafe {
        libc::recvfrom(fd.as_raw_fd(), ptr::null_mut(), 0, libc::MSG_DONTWAIT, ptr::null_mut(), ptr::null_mut())
    };
    check(rc)
}

fn check(rc: isize) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

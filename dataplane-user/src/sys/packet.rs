//! A packet socket (`packet(7)`) for the few frames that do not come from a worker: load reports.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use dataplane_common::wire::link::ETHERTYPE_LINK;

/// Sends whole Ethernet frames out of any interface of the namespace it was opened in.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
}

impl PacketSocket {
    /// Opens a socket that only sends (protocol 0), past the queueing discipline. Needs `CAP_NET_RAW`.
    ///
    /// # Errors
    /// `EPERM` without the capability.
    pub fn open() -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let bypass: libc::c_int = 1;
        // SAFETY: the value is a live c_int and its size is given.
        let result = unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_QDISC_BYPASS,
                std::ptr::from_ref(&bypass).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { fd }) }
    }

    /// Sends one frame, Ethernet header included, out of the interface with this index.
    ///
    /// # Errors
    /// What `sendto(2)` says; `ENETDOWN` and `ENOBUFS` are states of the interface.
    pub fn send(&self, ifindex: u32, frame: &[u8]) -> io::Result<()> {
        // SAFETY: all-zero is a valid sockaddr_ll: integers and an array of integers.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = ETHERTYPE_LINK.to_be();
        address.sll_ifindex = ifindex as i32;
        // SAFETY: frame and address are live for the call and their lengths are given.
        let sent = unsafe {
            libc::sendto(
                self.fd.as_raw_fd(),
                frame.as_ptr().cast(),
                frame.len(),
                libc::MSG_DONTWAIT,
                std::ptr::from_ref(&address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

//! A UDP socket that sends and receives many datagrams in one system call (`sendmmsg(2)`, `recvmmsg(2)`).

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{from_mut, from_ref, null_mut};

/// Most datagrams of one call.
pub const MOST: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct BulkSocket {
    socket: UdpSocket,
}

impl BulkSocket {
    /// A socket on `address` that does not block. With `shared`, others may be bound there too, and the kernel gives each flow to
    /// one of them (`SO_REUSEPORT`, `socket(7)`).
    ///
    /// # Errors
    /// What `socket(2)`, `setsockopt(2)` and `bind(2)` say; `EADDRNOTAVAIL` = the host does not have the address.
    pub fn bind(address: SocketAddrV4, shared: bool) -> io::Result<Self> {
        // SAFETY: no pointers are passed.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        if shared {
            let on: libc::c_int = 1;
            // SAFETY: the value is a live c_int and its size is given.
            let result = unsafe {
                libc::setsockopt(
                    fd.as_raw_fd(),
                    libc::SOL_SOCKET,
                    libc::SO_REUSEPORT,
                    from_ref(&on).cast(),
                    size_of::<libc::c_int>() as libc::socklen_t,
                )
            };
            if result < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        let to = sockaddr(address);
        // SAFETY: the address is live and its size is given.
        let result = unsafe {
            libc::bind(fd.as_raw_fd(), from_ref(&to).cast(), size_of::<libc::sockaddr_in>() as libc::socklen_t)
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { socket: UdpSocket::from(fd) }) }
    }

    /// Receives up to [`MOST`] datagrams, one into each of `buffers`, and writes their lengths to `lengths`; returns how many
    /// came. A datagram longer than its buffer is cut, and reports its whole length.
    pub fn receive<'b>(&self, buffers: impl Iterator<Item = &'b mut [u8]>, lengths: &mut [usize; MOST]) -> usize {
        let mut pieces = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; MOST];
        let mut count = 0;
        for (piece, buffer) in pieces.iter_mut().zip(buffers) {
            *piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            count += 1;
        }
        let mut messages = messages(&mut pieces);
        // SAFETY: the first `count` messages point at pieces that live as long as the call, and these at buffers that `'b`
        // keeps borrowed mutably; there is no time-out.
        let received = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                null_mut(),
            )
        };
        // Nothing there, or a state of the interface: both end with a later call.
        let received = usize::try_from(received).unwrap_or(0);
        for (length, message) in lengths.iter_mut().zip(&messages[..received]) {
            *length = message.msg_len as usize;
        }
        received
    }

    /// Sends up to [`MOST`] datagrams; returns how many the kernel took, from the first on.
    pub fn send<'b>(&self, datagrams: impl Iterator<Item = (SocketAddrV4, &'b [u8])>) -> usize {
        let mut pieces = [libc::iovec { iov_base: null_mut(), iov_len: 0 }; MOST];
        let mut addresses = [sockaddr(SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0)); MOST];
        let mut count = 0;
        for ((piece, address), (to, bytes)) in pieces.iter_mut().zip(&mut addresses).zip(datagrams) {
            *piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            *address = sockaddr(to);
            count += 1;
        }
        let mut messages = messages(&mut pieces);
        for (message, address) in messages.iter_mut().zip(&mut addresses) {
            message.msg_hdr.msg_name = from_mut(address).cast();
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        }
        // SAFETY: the first `count` messages point at addresses and pieces that live as long as the call, and these at bytes
        // that `'b` keeps borrowed; the kernel only reads them.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT) };
        usize::try_from(sent).unwrap_or(0)
    }

    /// Datagrams the kernel has dropped because the socket's memory was full (`SO_MEMINFO`, since Linux 4.12).
    pub fn dropped(&self) -> u64 {
        // include/uapi/linux/sock_diag.h: SK_MEMINFO_DROPS is the ninth of nine.
        let mut values = [0u32; 9];
        let mut length = size_of_val(&values) as libc::socklen_t;
        // SAFETY: the values are live and their size is given.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                values.as_mut_ptr().cast(),
                from_mut(&mut length),
            )
        };
        if result < 0 { 0 } else { values[8].into() }
    }

    /// Where it is bound.
    ///
    /// # Errors
    /// What `getsockname(2)` says.
    pub fn local_addr(&self) -> io::Result<std::net::SocketAddr> {
        self.socket.local_addr()
    }
}

impl AsFd for BulkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// One message for each piece.
fn messages(pieces: &mut [libc::iovec; MOST]) -> [libc::mmsghdr; MOST] {
    // SAFETY: all-zero is a valid mmsghdr: integers and null pointers.
    let mut messages: [libc::mmsghdr; MOST] = unsafe { std::mem::zeroed() };
    for (message, piece) in messages.iter_mut().zip(pieces) {
        message.msg_hdr.msg_iov = from_mut(piece);
        message.msg_hdr.msg_iovlen = 1;
    }
    messages
}

fn sockaddr(address: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    fn open() -> (BulkSocket, SocketAddrV4) {
        let socket = BulkSocket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), true).unwrap();
        let SocketAddr::V4(address) = socket.local_addr().unwrap() else { unreachable!("bound to IPv4") };
        (socket, address)
    }

    #[test]
    fn many_datagrams_cross_in_one_call_each_way() {
        let ((from, _), (to, address)) = (open(), open());
        let packets: Vec<Vec<u8>> = (0..MOST + 6).map(|n| vec![n as u8; n + 1]).collect();
        assert_eq!(from.send(packets.iter().map(|packet| (address, packet.as_slice()))), MOST, "the rest waits");
        let (mut buffers, mut lengths) = (vec![[0u8; 40]; MOST], [0; MOST]);
        let mut received = 0;
        while received < MOST {
            let came = to.receive(buffers[received..].iter_mut().map(<[u8; 40]>::as_mut_slice), &mut lengths);
            for (at, length) in lengths[..came].iter().enumerate() {
                let (buffer, number) = (&buffers[received + at], received + at);
                assert_eq!(*length, number + 1, "longer ones are cut and say so");
                assert!(buffer[..(*length).min(40)].iter().all(|byte| *byte == number as u8));
            }
            received += came;
        }
        assert_eq!(to.receive(buffers.iter_mut().map(<[u8; 40]>::as_mut_slice), &mut lengths), 0);
        assert_eq!((from.send(std::iter::empty()), to.dropped()), (0, 0));
    }

    #[test]
    fn what_the_kernel_drops_is_counted() {
        let ((from, _), (to, address)) = (open(), open());
        let packet = [0u8; 1400];
        // Some hundred KiB fit by default (net.core.rmem_default).
        while to.dropped() == 0 {
            from.send(std::iter::repeat_n((address, packet.as_slice()), MOST));
        }
    }
}

//! Index, MAC address and MTU of a network interface, by `ioctl(2)`: `/sys/class/net` shows the namespace it was mounted
//! in, which need not be ours.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A network interface as this network namespace sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetDevice {
    /// Name.
    pub name: String,
    /// Kernel index.
    pub index: u32,
    /// MAC address.
    pub mac: [u8; 6],
    /// MTU, bytes (without Ethernet header).
    pub mtu: u32,
}

impl NetDevice {
    /// Looks `name` up.
    ///
    /// # Errors
    /// `ENODEV` when there is no such interface.
    pub fn find(name: &str) -> io::Result<Self> {
        let socket = datagram_socket()?;
        let mut request = request(name)?;
        ask(&socket, libc::SIOCGIFINDEX, &mut request)?;
        // SAFETY: the kernel has filled this member for SIOCGIFINDEX.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        ask(&socket, libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: the kernel has filled this member for SIOCGIFMTU.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu };
        ask(&socket, libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: the kernel has filled this member for SIOCGIFHWADDR.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let mut mac = [0u8; 6];
        for (to, from) in mac.iter_mut().zip(address.sa_data) {
            *to = from as u8;
        }
        Ok(Self { name: name.to_owned(), index: index.unsigned_abs(), mac, mtu: mtu.unsigned_abs() })
    }
}

fn datagram_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all-zero is a valid ifreq: integers and arrays of integers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte stays zero as the terminator.
    if name.is_empty() || name.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ask(socket: &OwnedFd, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: `request` is a valid ifreq that outlives the call; these requests read its name and fill its union.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), what, std::ptr::from_mut(request)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::NetDevice;

    #[test]
    fn finds_loopback_and_refuses_what_is_not_there() {
        let lo = NetDevice::find("lo").unwrap();
        assert_eq!((lo.mac, lo.name.as_str()), ([0; 6], "lo"));
        assert!(lo.index > 0 && lo.mtu >= 1500);
        for name in ["", "no-such-if", "a-name-that-is-far-too-long"] {
            assert_eq!(NetDevice::find(name).unwrap_err().raw_os_error(), Some(libc::ENODEV), "{name}");
        }
    }
}

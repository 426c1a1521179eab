//! A socket of rtnetlink: one request at a time, or messages as they come.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// Room for what one read brings: the kernel fills at most 32 KiB at a time (`NLMSG_GOODSIZE` and its callers).
const ROOM: usize = 1 << 16;
/// Bytes of a message's header (`struct nlmsghdr`).
const HEADER_BYTES: usize = 16;

/// What the kernel said.
#[derive(Debug)]
pub(super) enum Received {
    /// A message, or a part of an answer.
    Message(RouteNetlinkMessage),
    /// An answer of several parts is complete, or a request was carried out.
    Done,
    /// Nothing is there.
    Nothing,
}

/// See the module.
pub(super) struct Netlink {
    socket: Socket,
    room: Vec<u8>,
    /// What of `room` has not been read yet.
    rest: std::ops::Range<usize>,
    sequence: u32,
}

impl Netlink {
    /// A socket that hears what is said to these groups (`RTNLGRP_…`).
    pub(super) fn open(groups: &[u32]) -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        for group in groups {
            socket.add_membership(*group)?;
        }
        Ok(Self { socket, room: vec![0; ROOM], rest: 0..0, sequence: 0 })
    }

    /// Leaves the kernel as little room as it allows.
    #[cfg(test)]
    pub(super) fn shrink(&self) {
        self.socket.set_rx_buf_sz(1).unwrap();
    }

    /// Sends a request for everything of a kind.
    pub(super) fn dump(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.send(message, NLM_F_REQUEST | NLM_F_DUMP)
    }

    /// Sends a request that makes something; it is not confirmed.
    pub(super) fn create(&mut self, message: RouteNetlinkMessage) -> io::Result<()> {
        self.send(message, NLM_F_REQUEST | NLM_F_CREATE)
    }

    /// Sends a request and waits for the answer.
    pub(super) fn ask(&mut self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        self.send(message, NLM_F_REQUEST)?;
        loop {
            if let Received::Message(answer) = self.wait()? {
                return Ok(answer);
            }
        }
    }

    /// The next message, if there is one.
    pub(super) fn receive(&mut self) -> io::Result<Received> {
        self.next(libc::MSG_DONTWAIT)
    }

    /// The next message. The kernel answers every request, so this does not wait long after one.
    pub(super) fn wait(&mut self) -> io::Result<Received> {
        self.next(0)
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        (header.flags, header.sequence_number) = (flags, self.sequence);
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(|_| ())
    }

    fn next(&mut self, flags: libc::c_int) -> io::Result<Received> {
        loop {
            while let Some(bytes) = self.cut() {
                // A message that the library does not know is not for us.
                let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&self.room[bytes]) else {
                    continue;
                };
                match message.payload {
                    NetlinkPayload::InnerMessage(message) => return Ok(Received::Message(message)),
                    NetlinkPayload::Done(_) => return Ok(Received::Done),
                    NetlinkPayload::Overrun(_) => return Err(io::Error::from_raw_os_error(libc::ENOBUFS)),
                    NetlinkPayload::Error(error) if error.code.is_none() => return Ok(Received::Done),
                    // That of a request which nobody waits for says only that it will be sent again.
                    NetlinkPayload::Error(error) if flags == 0 => return Err(error.to_io()),
                    _ => {}
                }
            }
            match self.socket.recv(&mut self.room.as_mut_slice(), flags) {
                Ok(length) => self.rest = 0..length.min(ROOM),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next message of what was read.
    fn cut(&mut self) -> Option<std::ops::Range<usize>> {
        let rest = self.room.get(self.rest.clone())?;
        let length = u32::from_ne_bytes(rest.first_chunk::<4>().copied()?) as usize;
        if length < HEADER_BYTES || length > rest.len() {
            self.rest = 0..0;
            return None;
        }
        let start = self.rest.start;
        // Messages are aligned to four bytes (`NLMSG_ALIGN`).
        self.rest.start = (start + length.next_multiple_of(4)).min(self.rest.end);
        Some(start..start + length)
    }
}

/// The family of an address.
pub(super) const fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

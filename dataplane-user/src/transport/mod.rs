//! How frames travel between nodes.
//!
//! | `[interconnect] transport` | who decides | frames leave | frames arrive |
//! |---|---|---|---|
//! | `xdp` | `dp_ingress` | `XDP_REDIRECT` | `dp_link`, then AF_XDP |
//! | `xsk` | the worker | the worker's AF_XDP socket on the link | `dp_link`, then AF_XDP |
//! | `udp` | the worker | a kernel socket ([`udp`]) | a kernel socket, then [`taker`] |
//!
//! The first two need no more than the sockets a worker has on every interface. All three understand each other: over links with
//! `encapsulation = "udp"` the frames are the same.

mod taker;
mod udp;

use std::os::fd::BorrowedFd;

pub use taker::Taker;
pub use udp::{UdpPort, datagram};

use crate::port::{Losses, Port};
use crate::xsk::{Batch, Umem, Xsk};

/// A worker's way in and out of an interface.
#[derive(Debug)]
pub enum Socket {
    /// AF_XDP.
    Xsk(Xsk),
    /// The kernel's UDP, for links.
    Udp(UdpPort),
}

/// Calls the port that there is.
macro_rules! either {
    ($self:ident, $port:ident => $call:expr) => {
        match $self {
            Socket::Xsk($port) => $call,
            Socket::Udp($port) => $call,
        }
    };
}

impl Port for Socket {
    fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        either!(self, port => Port::receive(port, umem, batch))
    }

    fn transmit(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        either!(self, port => Port::transmit(port, umem, batch))
    }

    fn kick(&mut self) {
        either!(self, port => port.kick());
    }

    fn recycle(&mut self, umem: &mut Umem) {
        either!(self, port => Port::recycle(port, umem));
    }

    fn losses(&self) -> Losses {
        either!(self, port => port.losses())
    }

    fn vacant(&self) -> u32 {
        either!(self, port => Port::vacant(port))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        either!(self, port => port.poll_fd())
    }
}

//! A link by the kernel's UDP sockets: the baseline that user-level communication is compared with.
//!
//! A frame that a worker sends has the headers of the routed interconnect in front; its addresses say where the datagram goes, and
//! the kernel makes headers of its own. A datagram that arrives gets an Ethernet header in front and goes through the [`Taker`].

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd};

use dataplane_common::meta::METADATA_BYTES;
use dataplane_common::wire::ip::ETHERNET_BYTES;
use dataplane_common::wire::link::emit_ethernet;
use dataplane_common::wire::route::{ADDRESS_AT, PORT_AT, ROUTE_BYTES};

use super::Taker;
use crate::port::{Losses, Port};
use crate::sys::{BulkSocket, MOST};
use crate::xsk::{Batch, Frame, Umem};

/// See the module.
#[derive(Debug)]
pub struct UdpPort {
    socket: BulkSocket,
    taker: Taker,
    /// Frames to receive into.
    vacant: Batch,
}

impl UdpPort {
    /// A port on a socket, whose frames `taker` takes.
    pub fn new(socket: BulkSocket, taker: Taker) -> Self {
        Self { socket, taker, vacant: Batch::new(MOST) }
    }

    /// Has frames to receive into, as far as there are any.
    fn provide(&mut self, umem: &mut Umem) {
        while self.vacant.room() > 0 {
            let Some(mut frame) = umem.allocate() else { return };
            // All that is behind its start, so this cannot fail.
            let _ = frame.set_len(frame.tailroom());
            self.vacant.push_or_release(umem, frame);
        }
    }
}

/// Gives a received frame its Ethernet header, and in front of it the metadata that its taker wants; false when it ends here.
fn take(taker: &Taker, umem: &mut Umem, frame: &mut Frame, length: usize) -> bool {
    if frame.set_len((ETHERNET_BYTES + length).min(frame.len())).is_err() {
        return false;
    }
    let bytes = umem.bytes_mut(frame);
    bytes[..ETHERNET_BYTES].copy_from_slice(&emit_ethernet([0; 6], [0; 6]));
    let Some((metadata, skipped)) = taker.take(bytes) else { return false };
    let placed = frame.pull_front(skipped).and_then(|()| frame.push_front(METADATA_BYTES));
    if placed.is_err() {
        return false;
    }
    umem.bytes_mut(frame)[..METADATA_BYTES].copy_from_slice(&metadata.emit());
    frame.pull_front(METADATA_BYTES).is_ok()
}

impl Port for UdpPort {
    fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        self.provide(umem);
        let room = batch.room();
        let mut lengths = [0; MOST];
        let received = {
            let umem = &*umem;
            let buffers = self.vacant.iter_mut().take(room).map(|frame| &mut umem.bytes_mut(frame)[ETHERNET_BYTES..]);
            self.socket.receive(buffers, &mut lengths)
        };
        let mut taken = 0;
        for length in &lengths[..received] {
            let Some(mut frame) = self.vacant.pop() else { break };
            if take(&self.taker, umem, &mut frame, *length) {
                taken += 1;
                batch.push_or_release(umem, frame);
            } else {
                umem.release(frame);
            }
        }
        taken
    }

    fn transmit(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        let sent = {
            let umem = &*umem;
            self.socket.send(batch.iter().filter_map(|frame| datagram(umem.bytes(frame))))
        };
        for _ in 0..sent {
            if let Some(frame) = batch.pop() {
                umem.release(frame);
            }
        }
        sent
    }

    fn kick(&mut self) {}

    fn recycle(&mut self, umem: &mut Umem) {
        self.provide(umem);
    }

    fn losses(&self) -> Losses {
        // What the kernel drops here was never charged: it is no loss in front of a worker, but one of the link.
        Losses::default()
    }

    fn vacant(&self) -> u32 {
        self.vacant.len() as u32
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// Where a frame of the routed interconnect goes, and what it carries; `None` when it is too short to be one.
pub fn datagram(frame: &[u8]) -> Option<(SocketAddrV4, &[u8])> {
    let address: [u8; 4] = *frame.get(ADDRESS_AT..)?.first_chunk()?;
    let port: [u8; 2] = *frame.get(PORT_AT..)?.first_chunk()?;
    let to = SocketAddrV4::new(Ipv4Addr::from(address), u16::from_be_bytes(port));
    Some((to, frame.get(ETHERNET_BYTES + ROUTE_BYTES..)?))
}

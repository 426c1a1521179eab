//! What a worker needs of a socket: an AF_XDP socket in the product, rings without a kernel in tests.

use std::os::fd::{AsFd, BorrowedFd};

use crate::xsk::{Batch, Umem, Xsk};

/// What the kernel says it dropped or refused on a socket (`XDP_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Frames dropped because the fill ring was empty or memory short.
    pub rx_dropped: u64,
    /// Frames dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Descriptors of ours that the kernel refused.
    pub invalid_descs: u64,
}

/// A source and sink of frames.
pub trait Port {
    /// Takes received packets into `batch`; returns how many.
    fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize;

    /// Gives packets to the transmit ring; what it has no room for stays in `batch`. Returns how many it took.
    fn transmit(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize;

    /// Makes the kernel send what is in the transmit ring.
    fn kick(&mut self);

    /// Takes back sent frames and gives the kernel frames to receive into.
    fn recycle(&mut self, umem: &mut Umem);

    /// What the kernel dropped or refused so far.
    fn losses(&self) -> Losses;

    /// Frames the kernel has to receive into that hold no packet yet.
    fn vacant(&self) -> u32;

    /// The descriptor to poll for received packets.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>>;
}

impl Port for Xsk {
    fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        Xsk::receive(self, umem, batch)
    }

    fn transmit(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        Xsk::transmit(self, umem, batch)
    }

    fn kick(&mut self) {
        // States of the kernel are counted by the socket; what it cannot name is counted there too and tried again with
        // the next packet, because a worker has nobody to report an error to.
        let _ = self.kick_tx();
    }

    fn recycle(&mut self, umem: &mut Umem) {
        Xsk::recycle(self, umem);
        let _ = self.kick_rx();
    }

    fn losses(&self) -> Losses {
        let statistics = self.statistics().unwrap_or_default();
        Losses {
            // Both count packets. rx_fill_ring_empty_descs counts looks at an empty ring, and so belongs to no ledger.
            rx_dropped: statistics.rx_dropped,
            rx_ring_full: statistics.rx_ring_full,
            invalid_descs: statistics.tx_invalid_descs + statistics.rx_invalid_descs,
        }
    }

    fn vacant(&self) -> u32 {
        Xsk::vacant(self)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }
}

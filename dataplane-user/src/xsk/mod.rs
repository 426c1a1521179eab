//! AF_XDP sockets: packets straight from a NIC queue into memory of ours, and back.
//!
//! [`Umem`] is a worker's packet memory, [`Frame`] the right to one frame of it, [`Xsk`] a socket on one queue of one
//! interface. A worker has one UMEM and several sockets on it; a frame received on one may leave by any other.
//!
//! ```text
//!              free list ──refill──► fill ring ──► kernel ──► rx ring ──receive──► Batch of Frame
//!                  ▲                                                                │        │
//!                  ├──────────────────────────release───────────────────────────────┘   transmit
//!                  └───complete──── completion ring ◄── kernel ◄── tx ring ◄─────────────────┘
//! ```
//!
//! # Why this is safe
//!
//! Outside `sys`, `mmap`, `ring` and `umem` nothing needs `unsafe` but the promise, in `socket`, that rings just made have
//! no other user; `fake`, for tests, also copies packets as the kernel does. The code relies on these statements, and
//! each is enforced where it says:
//!
//! 1. **A frame has one owner, and it is written down.** `Umem::owners` says for each frame whether the free list, the
//!    worker or a certain socket has it. A [`Frame`] is made only by the UMEM and only in the step that notes the
//!    worker as the owner; it is neither `Clone` nor `Copy`, its fields are private, and it ends only in the step that
//!    notes the next owner (`umem.rs`). So there are never two `Frame`s of one index, whatever the kernel writes.
//! 2. **Bytes need a frame.** [`Umem::bytes`], [`Umem::metadata`] and [`Umem::bytes_mut`] are the only ways to memory
//!    that the kernel also writes. The slice borrows the frame (mutably for `bytes_mut`) and the UMEM for as long as it
//!    lives, so the frame cannot be sent meanwhile. The frame must be of this UMEM (checked, in release too), and its
//!    offset and length lie inside the frame (the invariant of [`Frame`], kept by each of its methods).
//! 3. **The kernel touches only what it was given.** Its part of the contract: it writes a frame between fill ring and
//!    rx ring, reads one between tx ring and completion ring. This, and that it keeps to the two orderings in `ring.rs`,
//!    is all that is trusted. What it *says* is not: a descriptor becomes a frame only if that frame was lent to that
//!    very socket and the packet lies inside it; otherwise it is counted ([`Counters::bad_rx_descriptors`],
//!    [`Counters::bad_completions`]). A cursor may hold anything: indexes are masked, counts limited.
//! 4. **What both sides write is atomic.** Cursors and flags are `AtomicU32` in every access. Entries are plain memory,
//!    written before a release store of the producer and read after an acquire load of it, and the other way round for
//!    the consumer. The model checker runs this very code (`ring/model.rs`). Each end of a ring exists once: making a
//!    `Producer` or `Consumer` is unsafe, and they are not `Clone`.
//! 5. **Memory outlives its use by ownership.** A socket holds the packet memory (`Arc`), each ring its mapping. No
//!    reference or slice covers memory that the kernel may be writing; `mmap.rs` gives out pointers only.
//! 6. **A frame cannot be forgotten quietly.** Dropping one panics in debug builds and counts in release
//!    ([`leaked_frames`]). That costs a frame, not safety. [`Umem::ledger`] counts all frames by place, and every test
//!    here ends by asserting that none is missing.
//!
//! # Threads
//!
//! One worker, one thread: frames move by `&mut`, there is no lock and no atomic but the rings' own. UMEM, sockets and
//! batches are `Send`, so the control thread opens them and the pinned thread runs them.

mod error;
mod frame;
mod mmap;
mod ring;
mod rings;
mod socket;
mod sys;
mod umem;

#[cfg(any(test, feature = "fake"))]
pub mod fake;

#[cfg(test)]
mod netns_tests;
#[cfg(test)]
mod tests;

pub use error::{Error, Operation, RingKind};
pub use frame::{Batch, Frame, Full, OutOfFrame, leaked_frames};
pub use mmap::Pages;
pub use rings::{Counters, RingLevels, Rings};
pub use socket::{Kick, Mode, Xsk, XskConfig, ZeroCopy};
pub use sys::{XdpDesc, XdpStatistics};
pub use umem::{Ledger, Umem, UmemConfig};

// A worker is built on the control thread and moved to its own.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<(Umem, Vec<Xsk>, Batch)>();
};

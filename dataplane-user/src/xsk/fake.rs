//! The kernel's side of a socket's rings, played by a test: rings, UMEM and everything built on them run without a
//! NIC, without privileges, and at any cursor value.
//!
//! [`open`] gives [`Rings`] as a socket would have them and the [`Kernel`] behind them. The kernel receives a packet
//! when told ([`Kernel::deliver`]), takes one to send when told ([`Kernel::transmit`]), and gives frames back when
//! told, in any order ([`Kernel::complete`], [`Kernel::complete_nth`]). It can also lie ([`Kernel::deliver_descriptor`]).

#![expect(unsafe_code, reason = "reads and writes frames as the kernel does, outside Rust's borrows")]

use std::collections::VecDeque;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::error::Error;
use super::mmap::Mapping;
use super::ring::{Consumer, Mapped, Memory, Producer, Word};
use super::rings::Rings;
use super::socket::Memories;
use super::sys::{Plain, XDP_PACKET_HEADROOM, XdpDesc, XdpRingOffset};
use super::umem::{Endpoint, Umem};

/// Sizes of the rings and where their cursors begin.
#[derive(Clone, Copy, Debug)]
pub struct FakeConfig {
    /// Entries of the rx ring, a power of two, as for all four.
    pub rx_size: u32,
    /// Entries of the tx ring.
    pub tx_size: u32,
    /// Entries of the fill ring.
    pub fill_size: u32,
    /// Entries of the completion ring.
    pub completion_size: u32,
    /// Value of all cursors at the start; near `u32::MAX` they wrap soon.
    pub start: u32,
}

impl FakeConfig {
    /// Four rings of `entries`, with cursors that wrap after the first few.
    pub fn new(entries: u32) -> Self {
        let start = u32::MAX - entries / 2;
        Self { rx_size: entries, tx_size: entries, fill_size: entries, completion_size: entries, start }
    }
}

/// The kernel behind one set of rings.
#[derive(Debug)]
pub struct Kernel {
    fill: Consumer<u64>,
    rx: Producer<XdpDesc>,
    tx: Consumer<XdpDesc>,
    completion: Producer<u64>,
    memory: Arc<Mapping>,
    frame_size: u64,
    /// Where in a frame received packets start.
    packet_offset: u64,
    /// Addresses of frames taken from the tx ring and not given back.
    in_flight: VecDeque<u64>,
}

/// Opens a fake socket on `umem`. It counts as one of its sockets, but no real one can share from it.
///
/// # Errors
/// [`Error::Config`] if a size is not a power of two, [`Error::Memory`], [`Error::TooManySockets`].
pub fn open(umem: &mut Umem, config: &FakeConfig) -> Result<(Rings, Kernel), Error> {
    let memories = Memories {
        fill: ring(config.fill_size, config.start)?,
        rx: ring(config.rx_size, config.start)?,
        tx: ring(config.tx_size, config.start)?,
        completion: ring(config.completion_size, config.start)?,
    };
    let kernel_side = Memories {
        fill: memories.fill.clone(),
        rx: memories.rx.clone(),
        tx: memories.tx.clone(),
        completion: memories.completion.clone(),
    };
    // SAFETY: the memory was made above, and these are the only ends of the kernel's side.
    let kernel = unsafe { Kernel::new(kernel_side, umem) };
    // SAFETY: the memory was made above, and these are the only ends of the user's side.
    let ends = unsafe { memories.user_ends() };
    let rings = Rings::enter(ends, umem, Arc::new(Endpoint { fd: None }))?;
    Ok((rings, kernel))
}

/// A ring in plain memory, its words on cache lines of their own, as the kernel lays them out.
fn ring<T: Plain>(entries: u32, start: u32) -> Result<Mapped<T>, Error> {
    let offsets = XdpRingOffset { producer: 0, consumer: 128, flags: 256, desc: 320 };
    let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
    let (mapping, _) = Mapping::anonymous(bytes, false).map_err(|source| Error::Memory { bytes, source })?;
    let ring = Mapped::new(Arc::new(mapping), &offsets, entries).ok_or(Error::Config {
        field: "ring size",
        value: entries.into(),
        accepted: "a power of two",
    })?;
    ring.store(Word::Producer, start, Ordering::Relaxed);
    ring.store(Word::Consumer, start, Ordering::Relaxed);
    Ok(ring)
}

impl Kernel {
    /// The kernel's ends of the rings.
    ///
    /// # Safety
    /// There is no other kernel for them.
    pub(super) unsafe fn new(memories: Memories, umem: &Umem) -> Self {
        Self {
            // SAFETY: the caller's promise.
            fill: unsafe { Consumer::new(memories.fill) },
            // SAFETY: the caller's promise.
            rx: unsafe { Producer::new(memories.rx) },
            // SAFETY: the caller's promise.
            tx: unsafe { Consumer::new(memories.tx) },
            // SAFETY: the caller's promise.
            completion: unsafe { Producer::new(memories.completion) },
            memory: Arc::clone(umem.memory()),
            frame_size: umem.frame_size().into(),
            packet_offset: (umem.headroom() + XDP_PACKET_HEADROOM).into(),
            in_flight: VecDeque::new(),
        }
    }

    /// Receives a packet into a frame of the fill ring. False, and nothing has happened, if the fill ring is empty,
    /// the rx ring full, or the packet longer than a frame takes.
    pub fn deliver(&mut self, packet: &[u8]) -> bool {
        self.deliver_with_metadata(&[], packet)
    }

    /// Like [`deliver`](Self::deliver), with XDP metadata in front of the packet.
    pub fn deliver_with_metadata(&mut self, metadata: &[u8], packet: &[u8]) -> bool {
        let fits = self.packet_offset + packet.len() as u64 <= self.frame_size;
        if !fits || metadata.len() as u64 > self.packet_offset || self.rx.reserve(1).remaining() == 0 {
            return false;
        }
        let Some(addr) = self.take_fill() else { return false };
        // The kernel aligns what it finds in the fill ring down to a frame.
        let addr = addr - addr % self.frame_size + self.packet_offset;
        self.write(addr - metadata.len() as u64, metadata);
        self.write(addr, packet);
        self.deliver_descriptor(XdpDesc { addr, len: packet.len() as u32, options: 0 })
    }

    /// Puts any descriptor into the rx ring, true or not. False if the ring is full.
    pub fn deliver_descriptor(&mut self, desc: XdpDesc) -> bool {
        put(&mut self.rx, desc)
    }

    /// Takes an address from the fill ring, to be delivered later or never.
    pub fn take_fill(&mut self) -> Option<u64> {
        self.fill.peek(1).next()
    }

    /// Takes a packet from the tx ring: a copy of it. Its frame is in flight until completed.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        let desc = self.tx.peek(1).next()?;
        self.in_flight.push_back(desc.addr);
        Some(self.read(desc.addr, desc.len))
    }

    /// Frames in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Gives up to `count` frames in flight back, oldest first. Returns how many the completion ring took.
    pub fn complete(&mut self, count: usize) -> usize {
        (0..count).take_while(|_| self.complete_nth(0)).count()
    }

    /// Gives the `n`th oldest frame in flight back. False if there is none or the completion ring is full.
    pub fn complete_nth(&mut self, n: usize) -> bool {
        let Some(&addr) = self.in_flight.get(n) else { return false };
        let done = self.complete_address(addr);
        if done {
            self.in_flight.remove(n);
        }
        done
    }

    /// Puts any address into the completion ring, true or not. False if the ring is full.
    pub fn complete_address(&mut self, addr: u64) -> bool {
        put(&mut self.completion, addr)
    }

    /// Says that the driver sleeps until it is kicked for the fill ring, or not.
    pub fn set_fill_need_wakeup(&mut self, needed: bool) {
        self.fill.set_need_wakeup(needed);
    }

    /// Says that the driver sleeps until it is kicked for the tx ring, or not.
    pub fn set_tx_need_wakeup(&mut self, needed: bool) {
        self.tx.set_need_wakeup(needed);
    }

    fn write(&self, addr: u64, bytes: &[u8]) {
        let Some(target) = self.memory.at::<u8>(addr, bytes.len()) else {
            panic!("BUG: fill ring entry {addr} outside the UMEM");
        };
        // SAFETY: inside the mapping (`at`), and a frame of the fill ring is ours, as the kernel, until it is delivered.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), target.as_ptr(), bytes.len()) };
    }

    fn read(&self, addr: u64, len: u32) -> Vec<u8> {
        let Some(source) = self.memory.at::<u8>(addr, len as usize) else {
            panic!("BUG: tx descriptor {addr}+{len} outside the UMEM");
        };
        let mut bytes = vec![0; len as usize];
        // SAFETY: inside the mapping (`at`), and a frame of the tx ring is ours, as the kernel, until it is completed.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
        bytes
    }
}

fn put<T>(ring: &mut Producer<T>, value: T) -> bool
where
    Mapped<T>: Memory<T>,
{
    let mut value = Some(value);
    let mut entry = ring.reserve(1);
    entry.fill_with(|| value.take());
    entry.submit() == 1
}

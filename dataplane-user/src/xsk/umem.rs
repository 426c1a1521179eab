//! [`Umem`]: the packet memory of one worker, its free list, and the book of where every frame is.
//!
//! For each frame the UMEM notes an owner: the free list, the worker (there is a [`Frame`]), or a socket, on its way
//! in (fill ring, driver, rx ring) or out (tx ring, driver, completion ring). The note is one `u16`, checked and
//! changed each time a frame passes between worker and kernel. So a second [`Frame`] of the same index cannot be made
//! even if the kernel names an index twice, and the sum over all places is counted, not believed.

#![expect(unsafe_code, reason = "turns the right to a frame into a slice of mapped memory")]

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::error::Error;
use super::frame::Frame;
use super::mmap::{Mapping, Pages};
use super::sys::{XDP_PACKET_HEADROOM, XdpDesc};

/// Id of the next UMEM; ids are not used again.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

/// Size and shape of a [`Umem`].
#[derive(Clone, Debug)]
pub struct UmemConfig {
    /// Number of frames. Enough for what all sockets can hold at once ([`XskConfig::frames`](super::XskConfig::frames))
    /// plus what the worker keeps.
    pub frames: u32,
    /// Bytes of a frame: 2048 or 4096 (what the kernel accepts with 4 KiB pages). A received packet can have this
    /// less `headroom` less 256.
    pub frame_size: u32,
    /// Bytes the kernel leaves free in front of a received packet, besides the 256 it always leaves.
    pub headroom: u32,
    /// Try to use huge pages; see [`Umem::pages`] for what was obtained.
    pub huge_pages: bool,
}

impl Default for UmemConfig {
    fn default() -> Self {
        Self { frames: 8192, frame_size: 2048, headroom: 0, huge_pages: false }
    }
}

/// Where a frame is, as noted by its UMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner(u16);

impl Owner {
    const FREE: Self = Self(0);
    const WORKER: Self = Self(1);

    /// Given to a socket's fill ring.
    fn inbound(slot: Slot) -> Self {
        Self(u16::from(slot.0) << 2 | 2)
    }

    /// Given to a socket's tx ring.
    fn outbound(slot: Slot) -> Self {
        Self(u16::from(slot.0) << 2 | 3)
    }

    /// The socket that has it and whether it is on its way out.
    fn socket(self) -> Option<(Slot, bool)> {
        // Shifted right by two, a u16 that was made from a u8 fits one again.
        (self.0 & 2 != 0).then_some((Slot((self.0 >> 2) as u8), self.0 & 1 != 0))
    }
}

/// A socket's place in its UMEM's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(u8);

const SLOT_LIMIT: usize = 1 << u8::BITS;

/// What the UMEM knows of a socket, alive as long as the socket is.
#[derive(Debug)]
pub struct Endpoint {
    /// The AF_XDP socket; none if the kernel's side is played by `fake`.
    pub fd: Option<OwnedFd>,
}

/// Why a descriptor of the kernel was not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadDescriptor {
    /// Its address is outside the UMEM.
    OutsideUmem,
    /// Its frame was not with that socket. The frame stays where it is.
    NotLent,
    /// The packet would not lie inside one frame, or has options we did not ask for. The frame is free again.
    Malformed,
}

/// Frames by place; see [`Umem::ledger`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Frames of the UMEM.
    pub total: u32,
    /// In the free list.
    pub free: u32,
    /// In the worker's hands: one [`Frame`] each, held or lost by dropping.
    pub worker: u32,
    /// In fill rings, drivers' receive rings and rx rings of open sockets.
    pub inbound: u32,
    /// In tx rings, drivers' transmit rings and completion rings of open sockets.
    pub outbound: u32,
    /// With sockets that have been closed: gone until the UMEM is.
    pub stranded: u32,
}

impl Ledger {
    /// Whether every frame is in exactly one place.
    pub fn is_balanced(&self) -> bool {
        self.free + self.worker + self.inbound + self.outbound + self.stranded == self.total
    }
}

/// Packet memory of one worker, for all of its sockets.
///
/// Single owner: everything that moves a frame takes `&mut Umem`, so there is no lock and no atomic on the packet
/// path. A UMEM and the sockets opened on it are each `Send`; a worker keeps them together and moves as one.
///
/// The memory outlives the sockets, because each holds a reference to it. Frames that a socket holds when it is
/// closed are not usable again ([`Ledger::stranded`]): the kernel lets go of them some time after `close`, and does
/// not say when. So to reopen a socket many times, make a new UMEM with it.
#[derive(Debug)]
pub struct Umem {
    memory: Arc<Mapping>,
    id: NonZeroU32,
    frames: u32,
    /// A power of two.
    frame_size: u16,
    headroom: u16,
    pages: Pages,
    /// Frames with owner `FREE`, most recently used last, so that warm memory is used again first.
    free: Vec<u32>,
    /// Owner of each frame.
    owners: Box<[Owner]>,
    /// Sockets by slot.
    sockets: Vec<Weak<Endpoint>>,
}

impl Umem {
    /// Maps the memory. The kernel learns of it when the first socket opens.
    ///
    /// # Errors
    /// [`Error::Config`] for numbers the kernel would refuse, [`Error::Memory`] if `mmap` fails.
    pub fn new(config: &UmemConfig) -> Result<Self, Error> {
        let frame_size = match config.frame_size {
            2048 | 4096 => config.frame_size as u16,
            size => {
                return Err(Error::Config { field: "frame_size", value: size.into(), accepted: "2048 or 4096" });
            }
        };
        // The kernel's own limit: https://github.com/torvalds/linux/blob/v6.18/net/xdp/xdp_umem.c (xdp_umem_reg).
        let headroom = match u16::try_from(config.headroom) {
            Ok(headroom) if config.headroom + XDP_PACKET_HEADROOM < config.frame_size => headroom,
            _ => {
                let accepted = "less than frame_size - 256";
                return Err(Error::Config { field: "headroom", value: config.headroom.into(), accepted });
            }
        };
        if config.frames == 0 {
            return Err(Error::Config { field: "frames", value: 0, accepted: "at least 1" });
        }
        let bytes = config.frames as usize * usize::from(frame_size);
        let (memory, pages) =
            Mapping::anonymous(bytes, config.huge_pages).map_err(|source| Error::Memory { bytes, source })?;
        Ok(Self {
            memory: Arc::new(memory),
            id: next_id(),
            frames: config.frames,
            frame_size,
            headroom,
            pages,
            free: (0..config.frames).rev().collect(),
            owners: vec![Owner::FREE; config.frames as usize].into_boxed_slice(),
            sockets: Vec::new(),
        })
    }

    /// Number of frames.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Bytes of a frame.
    pub fn frame_size(&self) -> u32 {
        self.frame_size.into()
    }

    /// Configured bytes in front of the kernel's own 256.
    pub fn headroom(&self) -> u32 {
        self.headroom.into()
    }

    /// Which pages the memory lies on, asked and obtained.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Frames in the free list.
    #[inline]
    pub fn available(&self) -> u32 {
        // The free list never holds more than `frames: u32` indexes.
        self.free.len() as u32
    }

    /// Frames that are anywhere but in the free list.
    pub fn outstanding(&self) -> u32 {
        self.frames - self.available()
    }

    /// Counts the frames by place, by walking the book: some microseconds for ten thousand frames.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger { total: self.frames, free: self.available(), ..Ledger::default() };
        let open: Vec<bool> = self.sockets.iter().map(|socket| socket.strong_count() > 0).collect();
        for owner in &self.owners {
            match owner.socket() {
                Some((slot, _)) if !open[usize::from(slot.0)] => ledger.stranded += 1,
                Some((_, false)) => ledger.inbound += 1,
                Some((_, true)) => ledger.outbound += 1,
                None if *owner == Owner::WORKER => ledger.worker += 1,
                None => {}
            }
        }
        ledger
    }

    /// Takes an empty frame from the free list, its start where received packets start, so that headers fit in front.
    #[inline]
    pub fn allocate(&mut self) -> Option<Frame> {
        let index = self.free.pop()?;
        self.owners[index as usize] = Owner::WORKER;
        Some(Frame::new(self.id, index, self.frame_size, self.headroom + XDP_PACKET_HEADROOM as u16, 0))
    }

    /// Puts a frame into the free list.
    ///
    /// # Panics
    /// `BUG` if the frame is of another UMEM.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        let index = self.index(&frame);
        frame.retire();
        self.put_back(index as u32);
    }

    /// The packet in a frame.
    ///
    /// # Panics
    /// `BUG` if the frame is of another UMEM.
    #[inline]
    pub fn bytes<'a>(&'a self, frame: &'a Frame) -> &'a [u8] {
        self.range(frame, frame.headroom(), frame.len())
    }

    /// The packet in a frame, to change it.
    ///
    /// # Panics
    /// `BUG` if the frame is of another UMEM.
    #[inline]
    pub fn bytes_mut<'a>(&'a self, frame: &'a mut Frame) -> &'a mut [u8] {
        let start = self.index(frame) * usize::from(self.frame_size) + frame.headroom();
        // SAFETY: `index` found the frame to be ours, so `start` and `len` stay inside the frame and the memory (the
        // invariant of `Frame`).
        let start = unsafe { self.memory.base().add(start) };
        // SAFETY:
        // - in bounds, by the step before; initialised, because the mapping began as zeros;
        // - nobody else reads or writes these bytes: there is one `Frame` per index (`owners`), borrowed mutably for
        //   the slice's lifetime, and the kernel has no frame that the worker owns;
        // - the memory stays mapped: `self` is borrowed for as long.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), frame.len()) }
    }

    /// The `n` bytes in front of the packet, where an XDP program puts its metadata. `None` if the frame has not as
    /// many there. The kernel does not say how many the program wrote, or whether: the two must agree on that.
    ///
    /// # Panics
    /// `BUG` if the frame is of another UMEM.
    #[inline]
    pub fn metadata<'a>(&'a self, frame: &'a Frame, n: usize) -> Option<&'a [u8]> {
        let start = frame.headroom().checked_sub(n)?;
        Some(self.range(frame, start, n))
    }

    /// `len` bytes from `start` of a frame; `start + len` is at most the end of its packet.
    #[inline]
    fn range<'a>(&'a self, frame: &'a Frame, start: usize, len: usize) -> &'a [u8] {
        debug_assert!(start + len <= frame.headroom() + frame.len(), "BUG: range past the packet");
        let start = self.index(frame) * usize::from(self.frame_size) + start;
        // SAFETY: `index` found the frame to be ours, and the range ends no later than its packet, which ends no
        // later than the frame (the invariant of `Frame`).
        let start = unsafe { self.memory.base().add(start) };
        // SAFETY: as in `bytes_mut`, with a shared borrow of the frame: others may read, nobody writes.
        unsafe { slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The frame's index, if it is ours. Checked in release builds too: one compare.
    #[inline]
    #[track_caller]
    fn index(&self, frame: &Frame) -> usize {
        assert!(frame.umem() == self.id, "BUG: {frame:?} used with UMEM {}", self.id);
        frame.index() as usize
    }

    #[inline]
    fn put_back(&mut self, index: u32) {
        self.owners[index as usize] = Owner::FREE;
        // Within capacity: each index is in the list at most once.
        self.free.push(index);
    }
}

/// What sockets and fakes need. Frames pass to and from the kernel here and nowhere else.
impl Umem {
    /// Id, to tell whether a socket is of this UMEM.
    #[inline]
    pub(super) fn id(&self) -> NonZeroU32 {
        self.id
    }

    /// The memory, to register it and to keep it.
    pub(super) fn memory(&self) -> &Arc<Mapping> {
        &self.memory
    }

    /// A socket of this UMEM that is open, to share it from.
    pub(super) fn open_socket(&self) -> Option<Arc<Endpoint>> {
        self.sockets.iter().filter_map(Weak::upgrade).find(|endpoint| endpoint.fd.is_some())
    }

    /// Enters a socket. The place of a closed one is used again if no frame is stranded there.
    ///
    /// # Errors
    /// [`Error::TooManySockets`].
    pub(super) fn enter(&mut self, endpoint: &Arc<Endpoint>) -> Result<Slot, Error> {
        let mut stranded = [false; SLOT_LIMIT];
        for (slot, _) in self.owners.iter().filter_map(|owner| owner.socket()) {
            stranded[usize::from(slot.0)] = true;
        }
        let unused = |(slot, socket): (usize, &Weak<Endpoint>)| socket.strong_count() == 0 && !stranded[slot];
        let index = match self.sockets.iter().enumerate().position(unused) {
            Some(index) => index,
            None => self.sockets.len(),
        };
        let slot = u8::try_from(index).map_err(|_| Error::TooManySockets { limit: SLOT_LIMIT })?;
        if index == self.sockets.len() {
            self.sockets.push(Weak::new());
        }
        self.sockets[index] = Arc::downgrade(endpoint);
        Ok(Slot(slot))
    }

    /// Takes a frame from the free list for a fill ring: its address.
    #[inline]
    pub(super) fn lend_inbound(&mut self, slot: Slot) -> Option<u64> {
        let index = self.free.pop()?;
        self.owners[index as usize] = Owner::inbound(slot);
        Some(u64::from(index) * u64::from(self.frame_size))
    }

    /// Turns what came out of an rx ring into a frame, if it can be believed.
    #[inline]
    pub(super) fn admit(&mut self, slot: Slot, desc: XdpDesc) -> Result<Frame, BadDescriptor> {
        let (index, offset) = self.lent(Owner::inbound(slot), desc.addr)?;
        match u16::try_from(desc.len) {
            Ok(len) if u32::from(offset) + desc.len <= self.frame_size() && desc.options == 0 => {
                self.owners[index as usize] = Owner::WORKER;
                Ok(Frame::new(self.id, index, self.frame_size, offset, len))
            }
            _ => {
                self.put_back(index);
                Err(BadDescriptor::Malformed)
            }
        }
    }

    /// Gives a frame to a tx ring: its descriptor.
    ///
    /// # Panics
    /// `BUG` if the frame is of another UMEM.
    #[inline]
    pub(super) fn lend_outbound(&mut self, slot: Slot, frame: Frame) -> XdpDesc {
        let index = self.index(&frame);
        let addr = index * usize::from(self.frame_size) + frame.headroom();
        let desc = XdpDesc { addr: addr as u64, len: frame.len() as u32, options: 0 };
        self.owners[index] = Owner::outbound(slot);
        frame.retire();
        desc
    }

    /// Takes what came out of a completion ring into the free list, if it can be believed.
    #[inline]
    pub(super) fn complete(&mut self, slot: Slot, addr: u64) -> Result<(), BadDescriptor> {
        let (index, _) = self.lent(Owner::outbound(slot), addr)?;
        self.put_back(index);
        Ok(())
    }

    /// Index of the frame that an address lies in, and the offset there, if `owner` has it.
    #[inline]
    fn lent(&self, owner: Owner, addr: u64) -> Result<(u32, u16), BadDescriptor> {
        // Not a division: the compiler does not know that the size is a power of two.
        let frame = addr >> self.frame_size.trailing_zeros();
        let index = u32::try_from(frame).map_err(|_| BadDescriptor::OutsideUmem)?;
        match self.owners.get(index as usize) {
            None => Err(BadDescriptor::OutsideUmem),
            Some(noted) if *noted != owner => Err(BadDescriptor::NotLent),
            Some(_) => Ok((index, addr as u16 & (self.frame_size - 1))),
        }
    }
}

/// An id that no other UMEM of this process has or had.
fn next_id() -> NonZeroU32 {
    let id = NEXT_ID.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1));
    match id.ok().and_then(NonZeroU32::new) {
        Some(id) => id,
        None => panic!("BUG: more than four billion UMEMs in one process"),
    }
}

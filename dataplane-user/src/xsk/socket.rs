//! [`Xsk`]: opens and binds an AF_XDP socket on a worker's UMEM, kicks it, reads its statistics.

#![expect(unsafe_code, reason = "promises that freshly mapped rings have no other user")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::error::{Error, Operation, RingKind};
use super::frame::Batch;
use super::mmap::Mapping;
use super::ring::{Consumer, Mapped, Producer};
use super::rings::{Counters, Ends, RingLevels, Rings};
use super::sys::{self, SockaddrXdp, XdpDesc, XdpMmapOffsets, XdpOptions, XdpRingOffset, XdpStatistics, XdpUmemReg};
use super::umem::{Endpoint, Umem};

/// Whether the driver is to receive into and send from the UMEM directly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// If the driver can.
    #[default]
    Auto,
    /// Or fail.
    Force,
    /// Never: the kernel copies.
    Off,
}

/// What a socket obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The kernel copies each packet between its own memory and the UMEM.
    Copy,
    /// The driver uses the UMEM.
    ZeroCopy,
}

/// Which queue to open and with what rings.
#[derive(Clone, Debug)]
pub struct XskConfig {
    /// Interface index in the calling thread's network namespace.
    pub ifindex: u32,
    /// Queue of that interface.
    pub queue_id: u32,
    /// Entries of the rx ring, a power of two, as for all four.
    pub rx_size: u32,
    /// Entries of the tx ring.
    pub tx_size: u32,
    /// Entries of the fill ring.
    pub fill_size: u32,
    /// Entries of the completion ring. With fewer than `tx_size` the kernel stops sending until frames are taken back.
    pub completion_size: u32,
    /// Mode wanted. The first socket of a UMEM decides for all; a later one that wants another gets
    /// [`Error::WrongMode`], or EOPNOTSUPP from `bind` if its driver cannot do what the first one's does.
    pub zero_copy: ZeroCopy,
    /// Let the driver sleep until it is kicked. Later sockets of a UMEM inherit the first one's choice.
    pub need_wakeup: bool,
    /// Frames that one kick is to send in copy mode, limited to `tx_size`. The kernel's default and minimum is 32;
    /// before v6.17 it cannot be changed.
    pub tx_budget: u32,
    /// How long to go on trying while `bind` says EBUSY: the kernel lets go of a closed socket's queue some time later.
    pub bind_patience: Duration,
}

impl XskConfig {
    /// Rings of 2048 entries, the mode the driver offers, need_wakeup on.
    pub fn new(ifindex: u32, queue_id: u32) -> Self {
        Self {
            ifindex,
            queue_id,
            rx_size: 2048,
            tx_size: 2048,
            fill_size: 2048,
            completion_size: 2048,
            zero_copy: ZeroCopy::Auto,
            need_wakeup: true,
            tx_budget: 256,
            bind_patience: Duration::from_secs(2),
        }
    }

    /// Frames that the socket's rings can hold at once. A zero-copy driver has its own rings between them, whose sizes
    /// (`ethtool -g`) come on top.
    pub fn frames(&self) -> u32 {
        self.rx_size + self.tx_size + self.fill_size + self.completion_size
    }

    fn check(&self) -> Result<(), Error> {
        let sizes = [
            ("rx_size", self.rx_size),
            ("tx_size", self.tx_size),
            ("fill_size", self.fill_size),
            ("completion_size", self.completion_size),
        ];
        for (field, size) in sizes {
            // The kernel takes more, and then fails for lack of memory.
            if !size.is_power_of_two() || size > 1 << 20 {
                return Err(Error::Config { field, value: size.into(), accepted: "a power of two up to 2^20" });
            }
        }
        Ok(())
    }

    fn failed(&self, operation: Operation) -> impl FnOnce(io::Error) -> Error + use<> {
        let (ifindex, queue_id) = (self.ifindex, self.queue_id);
        move |source| Error::System { ifindex, queue_id, operation, source }
    }
}

/// How a kick ended. None of these is an error: the worker goes on and kicks again on its next turn, except after
/// [`Unbound`](Self::Unbound).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// Nothing to do, or nothing left: all packets are with the driver, or the kernel wants no kick.
    Idle,
    /// The zero-copy driver was woken and works on.
    Woken,
    /// EAGAIN without progress: the device queue, the socket's send buffer or the completion ring is full. Also when
    /// the call took nothing without saying why, as it does for a queue that the device no longer has.
    Again,
    /// EBUSY: the driver dropped a packet (it counts as sent), or is being reconfigured.
    Busy,
    /// ENOBUFS: no memory for now.
    NoBuffers,
    /// ENETDOWN: the interface is down; the packets stay in the ring.
    LinkDown,
    /// ENXIO: the interface was removed. Close the socket.
    Unbound,
}

impl Kick {
    /// The state that an errno stands for, if it does.
    fn from_errno(error: &io::Error) -> Option<Self> {
        match error.raw_os_error()? {
            libc::EAGAIN => Some(Self::Again),
            libc::EBUSY => Some(Self::Busy),
            libc::ENOBUFS => Some(Self::NoBuffers),
            libc::ENETDOWN => Some(Self::LinkDown),
            libc::ENXIO => Some(Self::Unbound),
            _ => None,
        }
    }

    fn count(self, counters: &mut Counters) {
        match self {
            Self::Idle | Self::Woken => {}
            Self::Again => counters.kick_again += 1,
            Self::Busy => counters.kick_busy += 1,
            Self::NoBuffers => counters.kick_no_buffers += 1,
            Self::LinkDown => counters.kick_link_down += 1,
            Self::Unbound => counters.kick_unbound += 1,
        }
    }
}

/// An AF_XDP socket bound to one queue of one interface, with its own four rings, on a UMEM that it may share with
/// others. A frame received on one socket may be sent on any other of the same UMEM.
///
/// Dropping it closes the socket; the frames it holds are lost to the UMEM, see [`Umem`].
#[derive(Debug)]
pub struct Xsk {
    rings: Rings,
    config: XskConfig,
    mode: Mode,
    tx_budget: u32,
    bind_attempts: u32,
}

impl Xsk {
    /// Opens a socket and binds it. The first one registers the UMEM with the kernel, the others share it.
    ///
    /// The fill ring is empty: call [`refill`](Self::refill) before packets are redirected to the socket.
    /// Takes milliseconds, and up to [`XskConfig::bind_patience`] if the queue is still in use.
    ///
    /// # Errors
    /// Any [`Error`] but `Memory`; UMEM and queue are then as before.
    pub fn open(umem: &mut Umem, config: &XskConfig) -> Result<Self, Error> {
        config.check()?;
        let shared = umem.open_socket();
        let fd = sys::socket().map_err(config.failed(Operation::Socket))?;
        if shared.is_none() {
            register(fd.as_fd(), umem, config)?;
        }
        size_rings(fd.as_fd(), config)?;
        let memories = Memories::map(fd.as_fd(), config)?;
        // SAFETY: the socket is new and its rings have not been mapped before.
        let ends = unsafe { memories.user_ends() };
        let tx_budget = set_tx_budget(fd.as_fd(), config);
        let bind_attempts = bind(fd.as_fd(), shared.as_deref(), config)?;
        let mode = obtained_mode(fd.as_fd(), config)?;
        match (config.zero_copy, mode) {
            (ZeroCopy::Force, Mode::Copy) | (ZeroCopy::Off, Mode::ZeroCopy) => {
                return Err(Error::WrongMode {
                    ifindex: config.ifindex,
                    queue_id: config.queue_id,
                    wanted: config.zero_copy,
                    obtained: mode,
                });
            }
            _ => {}
        }
        let rings = Rings::enter(ends, umem, Arc::new(Endpoint { fd: Some(fd) }))?;
        Ok(Self { rings, config: config.clone(), mode, tx_budget, bind_attempts })
    }

    /// See [`Rings::receive`].
    #[inline]
    pub fn receive(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        self.rings.receive(umem, batch)
    }

    /// See [`Rings::transmit`].
    #[inline]
    pub fn transmit(&mut self, umem: &mut Umem, batch: &mut Batch) -> usize {
        self.rings.transmit(umem, batch)
    }

    /// See [`Rings::complete`].
    #[inline]
    pub fn complete(&mut self, umem: &mut Umem) -> usize {
        self.rings.complete(umem)
    }

    /// See [`Rings::refill`].
    #[inline]
    pub fn refill(&mut self, umem: &mut Umem) -> usize {
        self.rings.refill(umem)
    }

    /// See [`Rings::recycle`].
    #[inline]
    pub fn recycle(&mut self, umem: &mut Umem) {
        self.rings.recycle(umem);
    }

    /// See [`Rings::vacant`].
    pub fn vacant(&self) -> u32 {
        self.rings.vacant()
    }

    /// Has the kernel send what is in the tx ring, if it wants to be told.
    ///
    /// In copy mode the packets are sent during the call, at most [`tx_budget`](Self::tx_budget) per `sendto`; it is
    /// repeated as long as that makes progress. Call this once per turn, also when nothing new was transmitted.
    ///
    /// # Errors
    /// [`Error::System`] for an errno that is not one of the states in [`Kick`].
    pub fn kick_tx(&mut self) -> Result<Kick, Error> {
        // Each repetition has taken at least one entry from the ring, to which nothing is added meanwhile.
        loop {
            let before = self.rings.tx_level();
            if before == 0 || !self.rings.tx_needs_wakeup() {
                return Ok(Kick::Idle);
            }
            self.rings.counters.kicks += 1;
            let state = match sys::kick_tx(self.as_fd()) {
                Ok(()) if self.mode == Mode::ZeroCopy => return Ok(Kick::Woken),
                Ok(()) => Kick::Again,
                Err(source) => match Kick::from_errno(&source) {
                    Some(state) => state,
                    None => return Err(self.config.failed(Operation::KickTx)(source)),
                },
            };
            let progress = self.rings.tx_level() < before;
            if state == Kick::Again && progress {
                continue;
            }
            state.count(&mut self.rings.counters);
            return Ok(state);
        }
    }

    /// Has the driver look at the fill ring, if it waits for that. In copy mode it never does.
    ///
    /// # Errors
    /// [`Error::System`] for an errno that is not one of the states in [`Kick`].
    pub fn kick_rx(&mut self) -> Result<Kick, Error> {
        if !self.rings.fill_needs_wakeup() {
            return Ok(Kick::Idle);
        }
        self.rings.counters.kicks += 1;
        match sys::kick_rx(self.as_fd()) {
            Ok(()) => Ok(Kick::Woken),
            Err(source) => match Kick::from_errno(&source) {
                Some(state) => {
                    state.count(&mut self.rings.counters);
                    Ok(state)
                }
                None => Err(self.config.failed(Operation::KickRx)(source)),
            },
        }
    }

    /// The kernel's counters of this socket, by `getsockopt(XDP_STATISTICS)`.
    ///
    /// # Errors
    /// [`Error::System`].
    pub fn statistics(&self) -> Result<XdpStatistics, Error> {
        sys::get_option(self.as_fd(), sys::XDP_STATISTICS).map_err(self.config.failed(Operation::Statistics))
    }

    /// What happened on our side.
    pub fn counters(&self) -> &Counters {
        self.rings.counters()
    }

    /// What waits in each ring now.
    pub fn levels(&self) -> RingLevels {
        self.rings.levels()
    }

    /// Interface index it was bound to.
    pub fn ifindex(&self) -> u32 {
        self.config.ifindex
    }

    /// Queue it is bound to.
    pub fn queue_id(&self) -> u32 {
        self.config.queue_id
    }

    /// The mode obtained, as the kernel said after `bind`.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Frames that one kick sends in copy mode: as configured, or 32 where the kernel does not let one choose.
    pub fn tx_budget(&self) -> u32 {
        self.tx_budget
    }

    /// How often `bind` was called until the queue was free; 1 if it was at once.
    pub fn bind_attempts(&self) -> u32 {
        self.bind_attempts
    }
}

impl AsFd for Xsk {
    /// For `poll(2)` and for an XSKMAP. `poll` also kicks, by itself, whoever waits for one; in copy mode it sends.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.rings.endpoint().fd {
            Some(fd) => fd.as_fd(),
            None => unreachable!("BUG: an Xsk is only made with a socket"),
        }
    }
}

fn register(fd: BorrowedFd<'_>, umem: &Umem, config: &XskConfig) -> Result<(), Error> {
    let registration = XdpUmemReg {
        addr: umem.memory().base().as_ptr().expose_provenance() as u64,
        len: u64::from(umem.frames()) * u64::from(umem.frame_size()),
        chunk_size: umem.frame_size(),
        headroom: umem.headroom(),
        flags: 0,
        tx_metadata_len: 0,
    };
    sys::set_option(fd, sys::XDP_UMEM_REG, &registration).map_err(config.failed(Operation::RegisterUmem))
}

pub(super) fn size_rings(fd: BorrowedFd<'_>, config: &XskConfig) -> Result<(), Error> {
    let sizes = [
        (RingKind::Fill, sys::XDP_UMEM_FILL_RING, config.fill_size),
        (RingKind::Completion, sys::XDP_UMEM_COMPLETION_RING, config.completion_size),
        (RingKind::Rx, sys::XDP_RX_RING, config.rx_size),
        (RingKind::Tx, sys::XDP_TX_RING, config.tx_size),
    ];
    for (ring, option, entries) in sizes {
        sys::set_option(fd, option, &entries).map_err(config.failed(Operation::SizeRing(ring)))?;
    }
    Ok(())
}

/// Asks for a larger budget than 32; an older kernel refuses and keeps 32, which costs kicks but loses nothing.
fn set_tx_budget(fd: BorrowedFd<'_>, config: &XskConfig) -> u32 {
    // The kernel's default and least: https://github.com/torvalds/linux/blob/v6.18/net/xdp/xsk.c (TX_BATCH_SIZE).
    const DEFAULT: u32 = 32;
    let budget = config.tx_budget.min(config.tx_size);
    if budget > DEFAULT && sys::set_option(fd, sys::XDP_MAX_TX_SKB_BUDGET, &budget).is_ok() { budget } else { DEFAULT }
}

/// Binds, as often as needed; returns how often that was.
fn bind(fd: BorrowedFd<'_>, shared: Option<&Endpoint>, config: &XskConfig) -> Result<u32, Error> {
    const PAUSE: Duration = Duration::from_millis(2);
    let shared = shared.and_then(|endpoint| endpoint.fd.as_ref()).map(OwnedFd::as_raw_fd);
    let flags = match shared {
        // With any other flag beside it the kernel says EINVAL; mode and need_wakeup are the first socket's.
        Some(_) => sys::XDP_SHARED_UMEM,
        None => {
            let mode = match config.zero_copy {
                ZeroCopy::Auto => 0,
                ZeroCopy::Force => sys::XDP_ZEROCOPY,
                ZeroCopy::Off => sys::XDP_COPY,
            };
            mode | if config.need_wakeup { sys::XDP_USE_NEED_WAKEUP } else { 0 }
        }
    };
    let address = SockaddrXdp {
        family: libc::AF_XDP as u16,
        flags,
        ifindex: config.ifindex,
        queue_id: config.queue_id,
        // A descriptor is not negative.
        shared_umem_fd: shared.unwrap_or(0) as u32,
    };
    let deadline = Instant::now() + config.bind_patience;
    let mut attempts = 1;
    loop {
        match sys::bind(fd, &address) {
            Ok(()) => return Ok(attempts),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && Instant::now() < deadline => {
                thread::sleep(PAUSE);
                attempts += 1;
            }
            Err(error) => return Err(config.failed(Operation::Bind { attempts })(error)),
        }
    }
}

fn obtained_mode(fd: BorrowedFd<'_>, config: &XskConfig) -> Result<Mode, Error> {
    let options: XdpOptions = sys::get_option(fd, sys::XDP_OPTIONS).map_err(config.failed(Operation::Options))?;
    let zero_copy = options.flags & sys::XDP_OPTIONS_ZEROCOPY != 0;
    Ok(if zero_copy { Mode::ZeroCopy } else { Mode::Copy })
}

/// The memory of a socket's four rings.
pub(super) struct Memories {
    pub fill: Mapped<u64>,
    pub rx: Mapped<XdpDesc>,
    pub tx: Mapped<XdpDesc>,
    pub completion: Mapped<u64>,
}

impl Memories {
    /// Maps the rings of a socket that is not bound yet, after `size_rings`.
    pub fn map(fd: BorrowedFd<'_>, config: &XskConfig) -> Result<Self, Error> {
        let offsets: XdpMmapOffsets =
            sys::get_option(fd, sys::XDP_MMAP_OFFSETS).map_err(config.failed(Operation::RingOffsets))?;
        Ok(Self {
            fill: map_ring(fd, RingKind::Fill, &offsets.fr, config)?,
            rx: map_ring(fd, RingKind::Rx, &offsets.rx, config)?,
            tx: map_ring(fd, RingKind::Tx, &offsets.tx, config)?,
            completion: map_ring(fd, RingKind::Completion, &offsets.cr, config)?,
        })
    }

    /// Our ends of the rings.
    ///
    /// # Safety
    /// Called once for a socket: no other ends of our side exist.
    pub unsafe fn user_ends(self) -> Ends {
        Ends {
            // SAFETY: the caller's promise.
            fill: unsafe { Producer::new(self.fill) },
            // SAFETY: the caller's promise.
            rx: unsafe { Consumer::new(self.rx) },
            // SAFETY: the caller's promise.
            tx: unsafe { Producer::new(self.tx) },
            // SAFETY: the caller's promise.
            completion: unsafe { Consumer::new(self.completion) },
        }
    }
}

fn map_ring<T: sys::Plain>(
    fd: BorrowedFd<'_>,
    ring: RingKind,
    offsets: &XdpRingOffset,
    config: &XskConfig,
) -> Result<Mapped<T>, Error> {
    let (page, entries) = match ring {
        RingKind::Fill => (sys::XDP_UMEM_PGOFF_FILL_RING, config.fill_size),
        RingKind::Rx => (sys::XDP_PGOFF_RX_RING, config.rx_size),
        RingKind::Tx => (sys::XDP_PGOFF_TX_RING, config.tx_size),
        RingKind::Completion => (sys::XDP_UMEM_PGOFF_COMPLETION_RING, config.completion_size),
    };
    let len = offsets.desc as usize + entries as usize * size_of::<T>();
    let mapping = Mapping::device(fd, page, len).map_err(config.failed(Operation::MapRing(ring)))?;
    // Offsets that do not fit are a kernel that this module does not know.
    Mapped::new(Arc::new(mapping), offsets, entries)
        .ok_or_else(|| config.failed(Operation::MapRing(ring))(io::ErrorKind::Unsupported.into()))
}

//! What can go wrong when packet memory is made or a socket is opened: fields for programs, `advice.rs` for people.

use std::fmt;
use std::io;

use super::socket::{Mode, ZeroCopy};

/// A failure outside the packet path. Nothing stays half open: what was made before the failure is closed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A configured number that the kernel would refuse.
    Config {
        /// Name of the field in [`UmemConfig`](super::UmemConfig) or [`XskConfig`](super::XskConfig).
        field: &'static str,
        /// What it was set to.
        value: u64,
        /// What is accepted.
        accepted: &'static str,
    },
    /// The UMEM's memory could not be mapped.
    Memory {
        /// Bytes asked for.
        bytes: usize,
        /// What `mmap` or `madvise` said.
        source: io::Error,
    },
    /// A system call on an AF_XDP socket failed.
    System {
        /// Interface index, in the network namespace of the socket.
        ifindex: u32,
        /// Queue of that interface.
        queue_id: u32,
        /// What was being done.
        operation: Operation,
        /// What the kernel said.
        source: io::Error,
    },
    /// The socket was bound, but in the other mode. Sockets that share a UMEM all get the mode of its first one.
    WrongMode {
        /// Interface index.
        ifindex: u32,
        /// Queue of that interface.
        queue_id: u32,
        /// What was asked for.
        wanted: ZeroCopy,
        /// What the kernel gave.
        obtained: Mode,
    },
    /// The UMEM has as many sockets as it can tell apart.
    TooManySockets {
        /// That many.
        limit: usize,
    },
}

impl Error {
    /// The kernel's error number, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Memory { source, .. } | Self::System { source, .. } => source.raw_os_error(),
            Self::Config { .. } | Self::WrongMode { .. } | Self::TooManySockets { .. } => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config { field, value, accepted } => write!(f, "{field} = {value}, accepted: {accepted}"),
            Self::Memory { bytes, source } => write!(f, "mapping {bytes} bytes of UMEM: {source}"),
            Self::System { ifindex, queue_id, operation, source } => {
                write!(f, "AF_XDP {operation} for ifindex {ifindex} queue {queue_id}: {source}")
            }
            Self::WrongMode { ifindex, queue_id, wanted, obtained } => {
                write!(f, "ifindex {ifindex} queue {queue_id}: zero copy {wanted:?} wanted, mode {obtained:?} obtained")
            }
            Self::TooManySockets { limit } => write!(f, "UMEM already has {limit} sockets"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Memory { source, .. } | Self::System { source, .. } => Some(source),
            Self::Config { .. } | Self::WrongMode { .. } | Self::TooManySockets { .. } => None,
        }
    }
}

/// The system call of an [`Error::System`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// `socket(AF_XDP)`. EPERM: `CAP_NET_RAW` is missing. EAFNOSUPPORT: a kernel without `CONFIG_XDP_SOCKETS`.
    Socket,
    /// `setsockopt(XDP_UMEM_REG)`. ENOBUFS: `RLIMIT_MEMLOCK` is too low.
    RegisterUmem,
    /// `setsockopt` of a ring's size. ENOMEM: no memory for the ring.
    SizeRing(RingKind),
    /// `getsockopt(XDP_MMAP_OFFSETS)`.
    RingOffsets,
    /// `mmap` of a ring.
    MapRing(RingKind),
    /// `bind`. EBUSY: another socket has the queue. EINVAL: no such queue. ENODEV: no such interface. EOPNOTSUPP: the
    /// driver has no zero copy, which `Force` asks for or the UMEM's first socket has.
    Bind {
        /// How often it was tried.
        attempts: u32,
    },
    /// `getsockopt(XDP_OPTIONS)`.
    Options,
    /// `getsockopt(XDP_STATISTICS)`.
    Statistics,
    /// `sendto`.
    KickTx,
    /// `recvfrom`.
    KickRx,
}

/// One of a socket's four rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// Frames for the kernel to receive into.
    Fill,
    /// Received packets.
    Rx,
    /// Packets to send.
    Tx,
    /// Frames that were sent.
    Completion,
}

impl fmt::Display for RingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fill => "fill ring",
            Self::Rx => "rx ring",
            Self::Tx => "tx ring",
            Self::Completion => "completion ring",
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket => f.write_str("socket"),
            Self::RegisterUmem => f.write_str("setsockopt(XDP_UMEM_REG)"),
            Self::SizeRing(ring) => write!(f, "setsockopt({ring} size)"),
            Self::RingOffsets => f.write_str("getsockopt(XDP_MMAP_OFFSETS)"),
            Self::MapRing(ring) => write!(f, "mmap({ring})"),
            Self::Bind { attempts } => write!(f, "bind (attempts: {attempts})"),
            Self::Options => f.write_str("getsockopt(XDP_OPTIONS)"),
            Self::Statistics => f.write_str("getsockopt(XDP_STATISTICS)"),
            Self::KickTx => f.write_str("sendto"),
            Self::KickRx => f.write_str("recvfrom"),
        }
    }
}

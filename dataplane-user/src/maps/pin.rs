//! Where a node's maps are pinned: `<bpffs>/dataplane/<node>/`, written by the node's process, read by `status`, bpftool
//! and libbpf.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::maps::{Array, Map, MapData};
use dataplane_common::maps::{self as names, ABI_VERSION, META, MetaRow};
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use super::Value;

/// Where bpffs is mounted unless `--bpffs` says otherwise.
pub const DEFAULT_BPFFS: &str = "/sys/fs/bpf";

/// `f_type` of a bpffs (`BPF_FS_MAGIC`, include/uapi/linux/magic.h).
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// How often, and how long after one another, a lock must be found held to be an owner's.
const LOOKS: u32 = 5;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

/// What can be wrong with a pin directory.
#[derive(Debug)]
pub enum PinError {
    /// The path is not on a mounted bpffs.
    NotBpffs(PathBuf),
    /// The node is not running (no pins).
    NotRunning(PathBuf),
    /// Another process owns the node.
    Busy {
        /// The node's directory.
        dir: PathBuf,
        /// Process id of the owner; 0 when it is starting or stopping and has not said.
        pid: u32,
    },
    /// The pins were made by another version.
    Abi {
        /// The node's directory.
        dir: PathBuf,
        /// ABI of the pins.
        found: u32,
        /// Process id of the owner.
        pid: u32,
    },
    /// A file operation failed.
    Io(PathBuf, io::Error),
    /// A map operation failed.
    Map(PathBuf, aya::maps::MapError),
}

impl std::fmt::Display for PinError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotBpffs(path) => write!(
                f,
                "{0} is not on a BPF file system\n  why: maps are pinned there so that status and bpftool can read them\n  do:  mount -t bpf bpf {1}",
                path.display(),
                DEFAULT_BPFFS
            ),
            Self::NotRunning(dir) => write!(
                f,
                "no node is running under {}\n  why: there are no pinned maps\n  do:  dataplane run --config FILE, or name the node with --node",
                dir.display()
            ),
            Self::Busy { dir, pid: 0 } => write!(
                f,
                "node {} is just starting or stopping\n  why: another process holds {}\n  do:  try again in a moment",
                dir.file_name().unwrap_or_default().display(),
                dir.display()
            ),
            Self::Busy { dir, pid } => write!(
                f,
                "the node is already running as process {pid}\n  why: {} is its\n  do:  dataplane unload --node {}, or choose another [node] name",
                dir.display(),
                dir.file_name().unwrap_or_default().display()
            ),
            Self::Abi { dir, found, .. } => write!(
                f,
                "{} was made by another version (ABI {found}, this is {ABI_VERSION})\n  why: its maps have another layout\n  do:  dataplane unload --node {} with that version, or remove the directory",
                dir.display(),
                dir.file_name().unwrap_or_default().display()
            ),
            Self::Io(path, error) => write!(f, "{}: {error}{}", path.display(), file_advice(error.kind())),
            Self::Map(path, error) => {
                let kind = sources(error).find_map(|source| source.downcast_ref::<io::Error>()).map(io::Error::kind);
                write!(f, "{}: {error}{}", path.display(), kind.map_or("", file_advice))
            }
        }
    }
}

impl std::error::Error for PinError {}

/// `error` and what caused it.
fn sources<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Cause and next step of a failure at a pin.
fn file_advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::PermissionDenied => {
            "\n  why: pinned maps belong to root\n  do:  run this as root, or with cap_bpf and access to the directory"
        }
        io::ErrorKind::NotFound => {
            "\n  why: there is no BPF file system here; `ip netns exec` hides it\n  do:  nsenter --net=/run/netns/NAME instead of ip netns exec, or mount -t bpf bpf /sys/fs/bpf"
        }
        _ => "",
    }
}

/// The pin directory of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinDir {
    path: PathBuf,
}

impl PinDir {
    /// The directory of `node` under `bpffs`. Touches nothing.
    pub fn of(bpffs: &Path, node: &str) -> Self {
        Self { path: bpffs.join("dataplane").join(node) }
    }

    /// Every node that has pins under `bpffs`, sorted by name.
    pub fn all(bpffs: &Path) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(bpffs.join("dataplane")) else {
            return Vec::new();
        };
        let mut dirs: Vec<_> = entries.flatten().map(|entry| Self { path: entry.path() }).collect();
        dirs.sort_by(|a, b| a.path.cmp(&b.path));
        dirs
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The node's name.
    pub fn node(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Makes the directory this process's, until the value returned is dropped. Pins that a killed process left are removed.
    ///
    /// The owner holds a lock (`flock(2)`) on the directory, which the kernel lets go of when the process ends in whatever
    /// way: a locked directory is a running node, whatever its process is called.
    ///
    /// # Errors
    /// [`PinError::Busy`] or [`PinError::Abi`] when a live process owns it, [`PinError::NotBpffs`]; nothing was changed.
    pub fn claim(&self) -> Result<ClaimedDir, PinError> {
        let failed = |error| PinError::Io(self.path.clone(), error);
        let parent = self.path.parent().unwrap_or(&self.path);
        self.check_bpffs(parent.parent().unwrap_or(parent))?;
        let mut looks = 0;
        loop {
            fs::create_dir_all(&self.path).map_err(failed)?;
            let directory = match self.open_directory() {
                // Another owner has just removed it: make it again.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                directory => directory.map_err(failed)?,
            };
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                // Whoever asks whether the directory is owned holds the lock for a moment; an owner holds it on.
                Err(Errno::WOULDBLOCK) if looks < LOOKS => {
                    looks += 1;
                    std::thread::sleep(BETWEEN_LOOKS);
                    continue;
                }
                Err(Errno::WOULDBLOCK) => return Err(self.owned_by_another()),
                Err(error) => return Err(failed(error.into())),
            }
            let claimed = ClaimedDir { dir: self.clone(), lock: directory };
            if claimed.is_current() {
                claimed.dir.remove_pins()?;
                return Ok(claimed);
            }
        }
    }

    /// Removes what a dead node left. False when a live process owns it; nothing was changed then.
    ///
    /// # Errors
    /// [`PinError::NotRunning`] when there is nothing, else what the file system says.
    pub fn remove_leftovers(&self) -> Result<bool, PinError> {
        if !self.path.exists() {
            return Err(PinError::NotRunning(self.path.clone()));
        }
        match self.claim() {
            Ok(claimed) => claimed.release().map(|()| true),
            Err(PinError::Busy { .. } | PinError::Abi { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// True when a live process owns the directory.
    pub fn is_owned(&self) -> bool {
        self.open_directory()
            .is_ok_and(|directory| flock(&directory, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    }

    fn open_directory(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        Ok(rustix::fs::open(&self.path, flags, Mode::empty())?)
    }

    fn check_bpffs(&self, mount: &Path) -> Result<(), PinError> {
        match rustix::fs::statfs(mount) {
            Ok(stat) if stat.f_type as u64 == BPF_FS_MAGIC => Ok(()),
            Ok(_) => Err(PinError::NotBpffs(mount.to_owned())),
            Err(error) => Err(PinError::Io(mount.to_owned(), error.into())),
        }
    }

    fn owned_by_another(&self) -> PinError {
        match self.meta() {
            Err(error @ PinError::Abi { .. }) => error,
            // A node that is just starting has not said who it is.
            meta => PinError::Busy { dir: self.path.clone(), pid: meta.map_or(0, |meta| meta.pid) },
        }
    }

    /// Removes the pins of the maps this program makes, and nothing else.
    fn remove_pins(&self) -> Result<(), PinError> {
        for name in names::ALL {
            match fs::remove_file(self.path.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(PinError::Io(self.path.join(name), error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens a pinned map.
    ///
    /// # Errors
    /// [`PinError::NotRunning`] when there is no such pin.
    pub fn open(&self, name: &str) -> Result<MapData, PinError> {
        let path = self.path.join(name);
        if !path.exists() {
            return Err(PinError::NotRunning(self.path.clone()));
        }
        MapData::from_pin(&path).map_err(|error| PinError::Map(path, error))
    }

    /// Who owns the pins.
    ///
    /// # Errors
    /// [`PinError::NotRunning`] without pins, [`PinError::Abi`] for another version's.
    pub fn meta(&self) -> Result<MetaRow, PinError> {
        let path = self.path.join(META);
        let failed = |error| PinError::Map(path.clone(), error);
        let map: Array<_, Value<MetaRow>> = Map::Array(self.open(META)?).try_into().map_err(failed)?;
        let meta = map.get(&0, 0).map_err(failed)?.0;
        if meta.abi != ABI_VERSION {
            return Err(PinError::Abi { dir: self.path.clone(), found: meta.abi, pid: meta.pid });
        }
        Ok(meta)
    }

    /// Process id of the owner, when it is alive. Whatever its version: [`MetaRow`] begins with ABI and process id in all.
    pub fn live_owner(&self) -> Option<u32> {
        let pid = match self.meta() {
            Ok(meta) => meta.pid,
            Err(PinError::Abi { pid, .. }) => pid,
            Err(_) => return None,
        };
        self.is_owned().then_some(pid)
    }
}

/// A pin directory that this process owns.
#[derive(Debug)]
pub struct ClaimedDir {
    dir: PinDir,
    /// Closing it lets go of the lock.
    lock: OwnedFd,
}

impl ClaimedDir {
    /// The directory.
    pub fn dir(&self) -> &PinDir {
        &self.dir
    }

    /// True when the path still names the directory that is locked.
    fn is_current(&self) -> bool {
        let by_path = rustix::fs::stat(&self.dir.path);
        let by_lock = rustix::fs::fstat(&self.lock);
        matches!((by_path, by_lock), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }

    /// Removes the pins and the directory.
    ///
    /// # Errors
    /// What the file system says, also when there is something in the directory that is not this program's.
    pub fn release(&self) -> Result<(), PinError> {
        self.dir.remove_pins()?;
        fs::remove_dir(&self.dir.path).map_err(|error| PinError::Io(self.dir.path.clone(), error))?;
        // The parent goes with the last node; that others still use it is no error.
        if let Some(parent) = self.dir.path.parent() {
            let _ = fs::remove_dir(parent);
        }
        Ok(())
    }
}

impl Drop for ClaimedDir {
    fn drop(&mut self) {
        // After `release` there is nothing left, or the path is somebody else's already.
        if self.is_current() {
            let _ = self.release();
        }
    }
}

//! The control files of pktgen.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// errno of the kernel for "operation is not supported" inside the kernel; it has no name in user space.
pub const ENOTSUPP: i32 = 524;

/// Where the kernel has the files of this process's network namespace.
const DIRECTORY: &str = "/proc/net/pktgen";

/// A set of control files: the kernel's, or a test's.
pub trait Files {
    /// Writes a line to a file, in one call.
    ///
    /// # Errors
    /// The errno that the kernel answers.
    fn write(&self, file: &str, line: &str) -> io::Result<()>;

    /// Reads a file.
    ///
    /// # Errors
    /// The file is not there.
    fn read(&self, file: &str) -> io::Result<String>;
}

/// The kernel's files.
pub struct Proc {
    directory: PathBuf,
}

impl Proc {
    /// Those of the network namespace this process is in.
    pub fn here() -> Self {
        Self { directory: DIRECTORY.into() }
    }
}

impl Files for Proc {
    fn write(&self, file: &str, line: &str) -> io::Result<()> {
        // One write call per line: the kernel parses each call on its own.
        OpenOptions::new().write(true).open(self.directory.join(file))?.write_all(format!("{line}\n").as_bytes())
    }

    fn read(&self, file: &str) -> io::Result<String> {
        fs::read_to_string(self.directory.join(file))
    }
}

/// Why there is no pktgen here; `None` when there is.
pub fn absence() -> Option<String> {
    if Path::new(DIRECTORY).is_dir() {
        return None;
    }
    let remedy = match Path::new("/proc/modules").is_file() {
        true => "load the module with `modprobe pktgen`",
        false => "it was built without (CONFIG_NET_PKTGEN) and loads no modules; another kernel is needed",
    };
    Some(format!("this kernel has no packet generator ({DIRECTORY} is missing): {remedy}"))
}

//! Log lines of an XDP object that was built with `--log` (`cargo xtask build --log`), for debugging: one line per decision
//! on standard error. The shipped object has none, because a map that libbpf cannot read comes with them.

use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

/// Name of the map that aya-log's half in the object makes.
const LOG_MAP: &str = "AYA_LOGS";

/// Prints every record.
struct StandardError;

impl Log for StandardError {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        eprintln!("xdp {}: {}", record.target(), record.args());
    }

    fn flush(&self) {}
}

/// The reader of an object's log.
pub struct KernelLog {
    reader: EbpfLogger<StandardError>,
}

impl KernelLog {
    /// The reader, when the object logs and the kernel has the ring buffer it logs into.
    pub fn of(ebpf: &mut Ebpf) -> Option<Self> {
        ebpf.map(LOG_MAP)?;
        match EbpfLogger::init_with_logger(ebpf, StandardError) {
            Ok(reader) => Some(Self { reader }),
            Err(error) => {
                eprintln!("warning: the object logs, but its log cannot be read: {error}");
                None
            }
        }
    }

    /// Prints what has been logged since the last call.
    pub fn flush(&mut self) {
        self.reader.flush();
    }
}

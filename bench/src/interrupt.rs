//! SIGINT and SIGTERM as a flag, so that whoever is interrupted takes its cluster down by the ordinary way.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// How long a wait goes on before it looks at the flag again.
const GLANCE: Duration = Duration::from_millis(20);

/// Signals within this time are one request: `timeout` signals a process, and then its group.
const SAME: Duration = Duration::from_secs(1);

/// Whether this process was asked to end. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

/// This process was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

impl Interrupt {
    /// Catches both signals for the rest of this process's life. One that comes later than [`SAME`] after the first ends the
    /// process at once, so that a hanging clean-up can be ended too.
    ///
    /// # Errors
    /// The handler or its thread cannot be installed.
    pub fn install() -> io::Result<Self> {
        let interrupt = Self::default();
        let flag = Arc::clone(&interrupt.0);
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            let mut first: Option<Instant> = None;
            for _ in signals.forever() {
                flag.store(true, Ordering::Relaxed);
                if first.get_or_insert_with(Instant::now).elapsed() >= SAME {
                    std::process::exit(130);
                }
            }
        })?;
        Ok(interrupt)
    }

    /// A flag that no signal sets, for tests.
    pub fn never() -> Self {
        Self::default()
    }

    /// An error once a signal has come.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn check(&self) -> Result<(), Interrupted> {
        if self.0.load(Ordering::Relaxed) { Err(Interrupted) } else { Ok(()) }
    }

    /// Sleeps for `time`, or until a signal comes.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub fn sleep(&self, time: Duration) -> Result<(), Interrupted> {
        let end = Instant::now() + time;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(GLANCE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_signals_at_once_are_one_request() {
        use rustix::process::{Signal, getpid, kill_process};
        let interrupt = Interrupt::install().unwrap();
        kill_process(getpid(), Signal::INT).unwrap();
        kill_process(getpid(), Signal::INT).unwrap();
        assert_eq!(interrupt.sleep(Duration::from_secs(60)), Err(Interrupted));
        // The process would end before the clean-up that this stands for.
        thread::sleep(Duration::from_millis(100));
    }

    #[test]
    fn a_set_flag_ends_a_wait() {
        let interrupt = Interrupt::never();
        assert_eq!(interrupt.sleep(Duration::from_millis(1)), Ok(()));
        interrupt.0.store(true, Ordering::Relaxed);
        let started = Instant::now();
        assert_eq!(interrupt.sleep(Duration::from_secs(60)), Err(Interrupted));
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

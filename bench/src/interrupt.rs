//! SIGINT and SIGTERM as a flag, so that whoever is interrupted takes its cluster down by the ordinary way.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};

/// How long a wait goes on before it looks at the flag again.
const GLANCE: Duration = Duration::from_millis(20);

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
    /// Catches both signals for the rest of this process's life. The second one ends the process at once, so that a
    /// hanging clean-up can be ended too.
    ///
    /// # Errors
    /// The handler cannot be installed.
    pub fn install() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&interrupt.0))?;
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0))?;
        }
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
    fn a_set_flag_ends_a_wait() {
        let interrupt = Interrupt::never();
        assert_eq!(interrupt.sleep(Duration::from_millis(1)), Ok(()));
        interrupt.0.store(true, Ordering::Relaxed);
        let started = Instant::now();
        assert_eq!(interrupt.sleep(Duration::from_secs(60)), Err(Interrupted));
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

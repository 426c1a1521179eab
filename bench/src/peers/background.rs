//! [`Background`]: a thread that works until it is told that it is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};

/// The thread. Dropping it ends it.
pub struct Background {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Background {
    /// Starts `work`, which looks at the flag now and then and returns once it is set.
    pub fn start(work: impl FnOnce(&AtomicBool) -> Result<()> + Send + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_over);
        Self { is_over, thread: Some(thread::spawn(move || work(&flag))) }
    }

    /// Ends it and returns what it returned; nothing the second time.
    ///
    /// # Errors
    /// What the work returned.
    pub fn end(&mut self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        match self.thread.take() {
            Some(thread) => thread.join().map_err(|_| anyhow!("BUG: a thread of a contender panicked"))?,
            None => Ok(()),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // A failure was told by `end`, or nobody asked.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_brings_what_the_work_returned() {
        let wait = |flag: &AtomicBool| {
            while !flag.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        };
        let mut good = Background::start(move |flag| {
            wait(flag);
            Ok(())
        });
        assert!(good.end().is_ok() && good.end().is_ok());
        let mut bad = Background::start(|_| Err(anyhow!("no such luck")));
        assert_eq!(bad.end().unwrap_err().to_string(), "no such luck");
    }
}

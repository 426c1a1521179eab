//! What is going on, on standard error: one line that changes on a terminal, a line per finished run elsewhere.

use std::io::{self, IsTerminal as _, Write as _};

/// The progress of a demonstration.
pub struct Progress {
    is_terminal: bool,
}

impl Progress {
    /// Progress on this process's standard error.
    pub fn new() -> Self {
        Self { is_terminal: io::stderr().is_terminal() }
    }

    /// Shows where it is, until the next call.
    pub fn show(&self, text: &str) {
        if self.is_terminal {
            // Back to the start of the line, and clear it. Nobody must fail because nobody looks.
            let _ = write!(io::stderr(), "\r\x1b[K{text}");
            let _ = io::stderr().flush();
        }
    }

    /// Says something that stays.
    pub fn say(&self, text: &str) {
        self.clear();
        eprintln!("{text}");
    }

    /// Takes the changing line away.
    pub fn clear(&self) {
        self.show("");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

//! [`Favoured`]: this session's share of the CPUs, raised while a measurement runs.
//!
//! Where the kernel groups processes by session (`sched_autogroup`, `sched(7)`), nice values count inside a session only: a
//! measurement would share the CPUs evenly with every other session, whatever its own nice values are.

use std::fs;

/// The group that this process belongs to.
const FILE: &str = "/proc/self/autogroup";
/// Nice value of the largest share.
const HIGHEST: i32 = -20;

/// The session is favoured until this is dropped.
#[derive(Debug)]
pub struct Favoured {
    before: i32,
}

impl Favoured {
    /// Raises the share of this session: this process, what it starts, and the shell that started it. `None` where the
    /// kernel has no such groups, or does not let this user.
    pub fn take() -> Option<Self> {
        let before = nice_of(&fs::read_to_string(FILE).ok()?)?;
        fs::write(FILE, HIGHEST.to_string()).ok()?;
        Some(Self { before })
    }
}

impl Drop for Favoured {
    fn drop(&mut self) {
        if let Err(error) = fs::write(FILE, self.before.to_string()) {
            eprintln!("warning: this session keeps its large share of the CPUs: {FILE}: {error}");
        }
    }
}

/// The nice value in a line like `/autogroup-76 nice 0`.
fn nice_of(text: &str) -> Option<i32> {
    text.trim().rsplit_once("nice ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read() {
        assert_eq!(nice_of("/autogroup-76 nice 0\n"), Some(0));
        assert_eq!(nice_of("/autogroup-1 nice -5"), Some(-5));
        assert_eq!(nice_of("/"), None);
    }
}

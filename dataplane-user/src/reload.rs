//! Asks a running node to read its configuration again, and waits for what it says.
//!
//! The request is a signal, SIGHUP, as an init system sends it; the answer lies in the node's map `RELOADS`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dataplane_common::maps::{RELOADS, ReloadRow};
use rustix::process::{Pid, Signal, kill_process};

use crate::maps::{PinDir, PinError};
use crate::status::rows;

/// How long the node may take: the verifier looks at two programs.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a reload ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the node goes on with the new configuration; if not, with its old one.
    pub is_taken: bool,
    /// What the node says of it.
    pub text: String,
}

impl Answer {
    fn of(row: &ReloadRow) -> Self {
        let text = row.text.get(..row.length as usize).unwrap_or(&row.text);
        Self { is_taken: row.is_taken != 0, text: String::from_utf8_lossy(text).into_owned() }
    }
}

/// Has the node with these pins read its configuration again.
///
/// # Errors
/// [`PinError::NotRunning`], or the node cannot be reached or does not answer.
pub fn ask(dir: &PinDir) -> Result<Answer> {
    let row = || -> Result<ReloadRow> { Ok(*rows(dir, RELOADS)?.first().context("BUG: a map without its row")?) };
    let owner = owner(dir)?;
    let before = row()?.attempts;
    signal(owner, Signal::HUP)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = row()?;
        if now.attempts != before {
            // What belongs to that count was written before it, and may have been read before.
            return row().map(|row| Answer::of(&row));
        }
        if !dir.is_owned() {
            bail!("node {} has ended\n  why: its own output says\n  do:  start it again", dir.node());
        }
        if Instant::now() > deadline {
            bail!(
                "node {} does not answer\n  why: it has not looked at its configuration for {PATIENCE:?}\n  do:  see its output; `dataplane status --node {0}` shows whether it works",
                dir.node()
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Process id of the running node with these pins.
///
/// # Errors
/// [`PinError::NotRunning`]; [`PinError::Abi`] for another version's.
pub fn owner(dir: &PinDir) -> Result<u32, PinError> {
    dir.meta()?;
    dir.live_owner().ok_or_else(|| PinError::NotRunning(dir.path().to_owned()))
}

/// Sends a signal to a node's process.
///
/// # Errors
/// It has ended, or this user may not.
pub fn signal(process: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).context("BUG: a process id out of range")?;
    kill_process(pid, signal).with_context(|| format!("cannot signal process {process}"))
}

#[cfg(test)]
mod tests {
    use dataplane_common::maps::RELOAD_TEXT;

    use super::*;
    use crate::maps::tables::tests::tables;

    /// The row as another process reads it.
    fn row(tables: &crate::maps::Tables) -> ReloadRow {
        use std::mem::offset_of;
        let word = |offset: usize| tables.reloads.row(0).word(offset).load(std::sync::atomic::Ordering::Relaxed);
        let mut text = [0; RELOAD_TEXT];
        for (at, chunk) in text.chunks_mut(8).enumerate() {
            chunk.copy_from_slice(&word(offset_of!(ReloadRow, text) + at * 8).to_le_bytes());
        }
        let length = word(offset_of!(ReloadRow, length));
        ReloadRow {
            attempts: word(offset_of!(ReloadRow, attempts)),
            taken: word(offset_of!(ReloadRow, taken)),
            at_ns: word(offset_of!(ReloadRow, at_ns)),
            length: length as u32,
            is_taken: (length >> 32) as u32,
            text,
        }
    }

    #[test]
    fn an_answer_is_read_as_it_was_given() {
        let tables = tables(1, 1, 1, 1);
        tables.show_reload(5, false, "a rather long complaint\n  why: it is");
        tables.show_reload(7, true, "changed [policy]");
        let found = row(&tables);
        assert_eq!((found.attempts, found.taken, found.at_ns), (2, 1, 7));
        assert_eq!(Answer::of(&found), Answer { is_taken: true, text: "changed [policy]".to_owned() });
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let tables = tables(1, 1, 1, 1);
        tables.show_reload(5, false, &format!("{}äöü", "x".repeat(RELOAD_TEXT - 1)));
        let answer = Answer::of(&row(&tables));
        assert_eq!(answer, Answer { is_taken: false, text: "x".repeat(RELOAD_TEXT - 1) });
    }
}

//! Benchmarks that are series of trials: `loss`, `burst`, `soak`, `scale`, `reload`, `faults`. Each writes one line of JSON per trial, so
//! that a run that was interrupted has left what it found.
//!
//! | file | question | source |
//! |---|---|---|
//! | `loss` | which share is lost at which offered rate? | RFC 2544 section 26.3 |
//! | `burst` | how many frames back to back pass without loss? | RFC 2544 section 26.4, RFC 9004 |
//! | `soak` | does anything drift in a long run? | |
//! | `scale` | how much do more nodes carry? | |
//! | `reload` | how long is nothing answered when a node is replaced? | |
//! | `faults` | what is lost, repeated and late when nodes, links or reports fail? | |

pub mod burst;
pub mod faults;
pub mod loss;
mod path;
pub mod reload;
pub mod scale;
pub mod soak;

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::command;
use crate::environment::Environment;

/// Format of every file of lines.
pub const SCHEMA: &str = "dataplane.trials/1";

/// First line of a file: what all of its trials have in common.
#[derive(Serialize)]
struct Header<'a, S> {
    schema: &'static str,
    benchmark: &'static str,
    command: String,
    environment: &'a Environment,
    settings: &'a S,
}

/// A file of lines.
pub(crate) struct Log {
    path: PathBuf,
    file: File,
}

impl Log {
    /// Begins `NAME.jsonl` in a directory.
    pub(crate) fn create(
        directory: &Path,
        name: &'static str,
        environment: &Environment,
        settings: &impl Serialize,
    ) -> Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let path = directory.join(format!("{name}.jsonl"));
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut log = Self { path, file };
        let command = command::own_line();
        log.write(&Header { schema: SCHEMA, benchmark: name, command, environment, settings })?;
        Ok(log)
    }

    /// Adds a line.
    pub(crate) fn write(&mut self, trial: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(trial)?;
        line.push(b'\n');
        self.file.write_all(&line).with_context(|| format!("cannot write {}", self.path.display()))
    }

    /// Says where it is.
    pub(crate) fn announce(&self) {
        println!("wrote {}", self.path.display());
    }
}

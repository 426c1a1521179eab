//! How a child becomes root: directly, or through `sudo`. This program itself never changes its user.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Where commands lie that an ordinary user's `PATH` may lack.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/sbin", "/sbin"];

/// Whether the effective user is root.
pub fn is_root() -> Result<bool> {
    // The kernel gives /proc/self to the effective user; asking for it in any other way takes `unsafe` or a crate.
    Ok(std::fs::metadata("/proc/self").context("cannot read /proc/self")?.uid() == 0)
}

/// The words to put in front of a command so that it runs as root; empty for root. Without a terminal nobody can type
/// a password, so then `sudo` may not ask for one.
pub fn prefix() -> Result<Vec<&'static str>> {
    if is_root()? {
        return Ok(Vec::new());
    }
    if find_program("sudo").is_none() {
        bail!("this needs root, and there is no sudo: run the same command as root");
    }
    let ask: &[&str] = if std::io::stdin().is_terminal() { &[] } else { &["-n"] };
    Ok([&["sudo", "-E"], ask].concat())
}

/// The program, to be started as root.
pub fn command(program: impl AsRef<OsStr>) -> Result<Command> {
    let prefix = prefix()?;
    let Some((first, rest)) = prefix.split_first() else {
        return Ok(Command::new(program));
    };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    Ok(command)
}

/// The path of an installed program, or `None`.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM_DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_program_that_every_system_has() {
        assert!(find_program("sh").is_some());
        assert!(find_program("no-such-program-anywhere").is_none());
    }
}

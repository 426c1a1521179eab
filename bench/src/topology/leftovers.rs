//! Finds and removes clusters whose makers are gone: killed runs, and those that were kept on purpose.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use dataplane_user::maps::{PinDir, PinError};
use rustix::process::{Pid, Signal, kill_process};

use super::plan::Purpose;
use crate::command;

/// Where named network namespaces are.
const NAMESPACES: &str = "/run/netns";
/// How long a process of a removed cluster may take to end before it is killed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A cluster found on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What its names begin with.
    pub run: String,
    /// Process that made it.
    pub owner: u32,
    /// Its namespaces.
    pub namespaces: Vec<String>,
}

impl Found {
    /// Whether its maker is gone and nobody runs inside it, so that nobody misses it.
    ///
    /// # Errors
    /// `ip` does not list the processes.
    pub fn is_stale(&self) -> Result<bool> {
        if Path::new(&format!("/proc/{}", self.owner)).exists() {
            return Ok(false);
        }
        for namespace in &self.namespaces {
            if !pids(namespace)?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends what runs inside (SIGINT, after five seconds SIGKILL) and removes namespaces, pins and files.
    ///
    /// # Errors
    /// A namespace cannot be removed.
    pub fn remove(&self, bpffs: &Path) -> Result<()> {
        end_processes(&self.namespaces)?;
        for namespace in &self.namespaces {
            remove_pins(bpffs, namespace)?;
            match command::output(Command::new("ip").args(["netns", "delete", namespace])) {
                // Its owner was faster.
                Err(_) if !exists(namespace) => {}
                deleted => drop(deleted?),
            }
        }
        remove_directory(&directory(&self.run))
    }
}

/// Every cluster on this machine, by the names of its namespaces.
///
/// # Errors
/// The directory of namespaces cannot be read.
pub fn find() -> Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    for name in names_in(Path::new(NAMESPACES))? {
        let Some((run, owner)) = parse(&name) else { continue };
        match found.iter_mut().find(|cluster| cluster.run == run) {
            Some(cluster) => cluster.namespaces.push(name.clone()),
            None => found.push(Found { run: run.to_owned(), owner, namespaces: vec![name.clone()] }),
        }
    }
    Ok(found)
}

/// Removes clusters of killed runs. Returns their names.
///
/// # Errors
/// As [`Found::remove`].
pub fn remove_stale(bpffs: &Path) -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for cluster in find()? {
        if cluster.is_stale()? {
            cluster.remove(bpffs)?;
            removed.push(cluster.run);
        }
    }
    Ok(removed)
}

/// Removes what a node that was killed left pinned. None is no error.
///
/// # Errors
/// The pins cannot be removed, or a running node owns them.
pub fn remove_pins(bpffs: &Path, node: &str) -> Result<()> {
    match PinDir::of(bpffs, node).remove_leftovers() {
        Ok(true) | Err(PinError::NotRunning(_)) => Ok(()),
        Ok(false) => bail!("the pins of {node} belong to a running node"),
        Err(error) => Err(error.into()),
    }
}

/// Where the configurations and logs of a cluster lie.
pub(super) fn directory(run: &str) -> PathBuf {
    std::env::temp_dir().join(run)
}

fn remove_directory(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", directory.display())),
    }
}

/// Splits the name of a namespace into the cluster's name and its maker's process id; `None` for strangers.
fn parse(namespace: &str) -> Option<(&str, u32)> {
    let (run, _host) = namespace.rsplit_once('-')?;
    let numbers = Purpose::ALL.iter().find_map(|purpose| run.strip_prefix(purpose.prefix()))?;
    let (pid, serial) = numbers.split_once('-')?;
    serial.parse::<u32>().ok()?;
    Some((run, pid.parse().ok()?))
}

fn names_in(directory: &Path) -> Result<Vec<String>> {
    let describe = || format!("cannot list {}", directory.display());
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(describe),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry.with_context(describe)?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}

/// Processes inside a namespace; none in one that is gone.
fn pids(namespace: &str) -> Result<Vec<u32>> {
    let text = match command::output(Command::new("ip").args(["netns", "pids", namespace])) {
        Err(_) if !exists(namespace) => String::new(),
        text => text?,
    };
    Ok(text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect())
}

fn exists(namespace: &str) -> bool {
    Path::new(NAMESPACES).join(namespace).exists()
}

fn end_processes(namespaces: &[String]) -> Result<()> {
    let inside = || -> Result<Vec<u32>> {
        let lists = namespaces.iter().map(|namespace| pids(namespace)).collect::<Result<Vec<_>>>()?;
        Ok(lists.concat())
    };
    send(&inside()?, Signal::INT);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = inside()?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            send(&left, Signal::KILL);
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn send(pids: &[u32], signal: Signal) {
    for pid in pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        // It may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_maker() {
        assert_eq!(parse("dpd-4711-0-n1"), Some(("dpd-4711-0", 4711)));
        assert_eq!(parse("dpt-12-3-gen"), Some(("dpt-12-3", 12)));
        for stranger in ["eth0", "dpd-", "dpd-n1", "dpd-x-0-n1", "dpx-1-0-n1", "dpd-1-n1", "a-dpd-1-0-n1"] {
            assert_eq!(parse(stranger), None, "{stranger}");
        }
    }

    #[test]
    fn a_missing_directory_holds_no_clusters() {
        assert!(names_in(Path::new("/nonexistent")).unwrap().is_empty());
    }
}

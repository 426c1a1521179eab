//! What tests and demonstrations make in the system, and what of it is still there after a run.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// Prefixes of every name that a test or a demonstration makes.
const PREFIXES: [&str; 3] = ["dpt-", "dpd-", "dpb-"];

/// Where those names show up.
const PLACES: [(&str, &str); 3] =
    [("network namespace", "/run/netns"), ("link", "/sys/class/net"), ("pin", "/sys/fs/bpf/dataplane")];

/// How long a process that was told to end may take, and a namespace that lost its last process to go.
const GRACE: Duration = Duration::from_secs(3);

/// Names of the project's own that exist at one moment.
pub struct Snapshot(BTreeSet<String>);

impl Snapshot {
    /// Looks at the system.
    pub fn take() -> Result<Self> {
        let mut names = BTreeSet::new();
        for (what, directory) in PLACES {
            names.extend(names_in(Path::new(directory))?.into_iter().map(|name| format!("{what} {directory}/{name}")));
        }
        Ok(Self(names))
    }

    /// What was there.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// What a run has left: names that were not there `before`, processes that inherited its `marker` (`NAME=value`).
pub fn left_behind(before: &Snapshot, marker: &str) -> Result<Vec<String>> {
    let deadline = Instant::now() + GRACE;
    loop {
        let after = Snapshot::take()?;
        let mut left = after.0.difference(&before.0).map(|name| format!("left behind: {name}")).collect::<Vec<_>>();
        left.extend(processes(marker)?.into_iter().map(|process| format!("still running: {process}")));
        if left.is_empty() || Instant::now() >= deadline {
            return Ok(left);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Names with one of the prefixes. A directory that is not there holds none; nor does one that only root may list.
fn names_in(directory: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot list {}", directory.display())),
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix))).collect())
}

/// Processes whose environment holds the marker.
fn processes(marker: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("cannot list /proc")? {
        let directory = entry.context("cannot list /proc")?.path();
        // Other users' processes cannot be read, and any may end meanwhile.
        let Ok(environment) = fs::read(directory.join("environ")) else {
            continue;
        };
        if environment.split(|byte| *byte == 0).any(|variable| variable == marker.as_bytes()) {
            let command = fs::read(directory.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            let id = directory.file_name().unwrap_or_default().to_string_lossy();
            found.push(format!("process {id}: {}", command.trim_end()));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn only_the_projects_own_names_count() {
        let directory = std::env::temp_dir().join(format!("xtask-leftovers-{}", std::process::id()));
        for name in ["dpt-a", "dpd-b", "eth0", "xdpt-c"] {
            fs::create_dir_all(directory.join(name)).unwrap();
        }
        let mut names = names_in(&directory).unwrap();
        names.sort();
        assert_eq!(names, ["dpd-b", "dpt-a"]);
        fs::remove_dir_all(&directory).unwrap();
        assert!(names_in(&directory).unwrap().is_empty());
    }

    #[test]
    fn a_process_is_found_by_what_it_inherited() {
        let value = format!("unit-{}", std::process::id());
        let marker = format!("XTASK_MARKER={value}");
        let mut child =
            Command::new("sleep").arg("60").env("XTASK_MARKER", value).stdout(Stdio::null()).spawn().unwrap();
        let found = processes(&marker);
        child.kill().unwrap();
        child.wait().unwrap();
        let found = found.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with(": sleep 60"), "{found:?}");
        assert!(processes(&marker).unwrap().is_empty());
    }
}

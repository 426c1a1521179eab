//! Which test targets there are, and in which order cargo runs them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::output::Kind;

/// Names of the integration tests by kind, each a file `tests/NAME.rs` of some crate.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    unit: Vec<String>,
    xdp: Vec<String>,
    netns: Vec<String>,
}

impl Plan {
    /// Looks into the `tests` directory of every crate below `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let mut names = Vec::new();
        for member in entries(root)? {
            let tests = member.join("tests");
            if !member.join("Cargo.toml").is_file() || !tests.is_dir() {
                continue;
            }
            for file in entries(&tests)? {
                if file.extension().is_some_and(|extension| extension == "rs") {
                    names.extend(file.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
                }
            }
        }
        Ok(Self::from_names(names))
    }

    fn from_names(mut names: Vec<String>) -> Self {
        names.sort();
        let mut plan = Self::default();
        for name in names {
            match name.split_once('_') {
                Some(("xdp", _)) => plan.xdp.push(name),
                Some(("netns", _)) => plan.netns.push(name),
                _ => plan.unit.push(name),
            }
        }
        plan
    }

    /// Runs of cargo that make up `kinds`, each with the arguments that choose its targets.
    pub fn phases(&self, kinds: &[Kind]) -> Vec<(Kind, Vec<String>)> {
        let mut phases = Vec::new();
        if kinds.contains(&Kind::Unit) {
            let targets = ["--lib".to_owned(), "--bins".to_owned()].into_iter().chain(select(&self.unit));
            phases.push((Kind::Unit, targets.collect()));
            phases.push((Kind::Unit, vec!["--doc".to_owned()]));
        }
        for (kind, names) in [(Kind::Xdp, &self.xdp), (Kind::Netns, &self.netns)] {
            if kinds.contains(&kind) && !names.is_empty() {
                phases.push((kind, select(names).collect()));
            }
        }
        phases
    }
}

fn select(names: &[String]) -> impl Iterator<Item = String> {
    names.iter().flat_map(|name| ["--test".to_owned(), name.clone()])
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let describe = || format!("cannot list {}", directory.display());
    let entries = fs::read_dir(directory).with_context(describe)?;
    entries.map(|entry| Ok(entry.with_context(describe)?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_name_gives_the_kind() {
        let names = ["netns_cluster", "xdp_verdicts", "xdpish", "config", "netns"].map(str::to_owned).to_vec();
        let plan = Plan::from_names(names);
        assert_eq!(plan.unit, ["config", "netns", "xdpish"]);
        assert_eq!(plan.xdp, ["xdp_verdicts"]);
        assert_eq!(plan.netns, ["netns_cluster"]);
    }

    #[test]
    fn namespaces_come_last_and_absent_kinds_not_at_all() {
        let plan = Plan::from_names(vec!["netns_a".to_owned(), "api".to_owned()]);
        let phases = plan.phases(&Kind::ALL);
        let words = phases.iter().map(|(kind, words)| (*kind, words.join(" "))).collect::<Vec<_>>();
        let expected =
            [(Kind::Unit, "--lib --bins --test api"), (Kind::Unit, "--doc"), (Kind::Netns, "--test netns_a")];
        assert_eq!(words, expected.map(|(kind, words)| (kind, words.to_owned())));
        assert!(plan.phases(&[Kind::Xdp]).is_empty());
    }
}

//! What `dataplane functions`, `policies` and `counters` list.

use dataplane_common::policy::{Needs, PolicyKind};
use dataplane_common::reason::{Reason, Stage};
use serde::Serialize;

use crate::config::{KnownSetting, settings};
use crate::functions::Builtin;

/// What a policy can live on, by name.
const NEEDS: [(Needs, &str); 8] = [
    (Needs::REPORTS, "reports"),
    (Needs::RESULTS, "results"),
    (Needs::PLAN, "plan"),
    (Needs::PREDICTION, "prediction"),
    (Needs::PULL, "pull"),
    (Needs::PROBES, "probes"),
    (Needs::DEMAND, "demand"),
    (Needs::EXPECTED, "expected"),
];

/// A policy, as `dataplane policies -j` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PolicyEntry {
    /// Its name in the configuration.
    pub name: &'static str,
    /// Where it can run: `xdp`, `worker`, `simulator`.
    pub runs_in: Vec<&'static str>,
    /// What it lives on.
    pub needs: Vec<&'static str>,
    /// One line for people.
    pub help: &'static str,
}

impl PolicyEntry {
    fn of(kind: PolicyKind) -> Self {
        let homes = kind.homes();
        let runs_in = [("xdp", homes.has_xdp()), ("worker", homes.has_worker()), ("simulator", true)];
        let runs_in = runs_in.into_iter().filter(|(_, can)| *can).map(|(home, _)| home);
        let needs = NEEDS.iter().filter(|(need, _)| kind.needs().has(*need)).map(|(_, name)| *name);
        Self { name: kind.name(), runs_in: runs_in.collect(), needs: needs.collect(), help: kind.help() }
    }
}

/// Every policy.
pub fn policies() -> Vec<PolicyEntry> {
    PolicyKind::ALL.iter().map(|kind| PolicyEntry::of(*kind)).collect()
}

/// Lines of cells under headings, each column as wide as its widest cell.
fn table<const COLUMNS: usize>(heads: [&str; COLUMNS], lines: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| width(column).max(heads[column].len()));
    let mut text = String::new();
    for line in std::iter::once(&heads.map(str::to_owned)).chain(lines) {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// `-` for nothing.
fn words(words: &[&str]) -> String {
    if words.is_empty() { "-".to_owned() } else { words.join(" ") }
}

/// Every policy, one line each: name, where it can run, what it needs, what it does.
pub fn policies_table() -> String {
    let line = |policy: &PolicyEntry| {
        [policy.name.to_owned(), words(&policy.runs_in), words(&policy.needs), policy.help.to_owned()]
    };
    table(["POLICY", "RUNS IN", "NEEDS", ""], &policies().iter().map(line).collect::<Vec<_>>())
}

/// Every setting of the policies, one line each: section and key, default, what is accepted, what it means.
pub fn settings_table() -> String {
    let line = |setting: KnownSetting| {
        let KnownSetting { section, key, default, accepted, help } = setting;
        [format!("[{section}] {key}"), default, accepted, help.to_owned()]
    };
    table(["SETTING", "DEFAULT", "ACCEPTED", ""], &settings().map(line).collect::<Vec<_>>())
}

/// Every packet function, one line each.
pub fn functions() -> String {
    let line =
        |function: &Builtin| format!("{:<10} {:#06x}  {}\n", function.name(), function.type_id(), function.help());
    Builtin::ALL.iter().map(line).collect()
}

/// Every counter, one line each.
pub fn counters() -> String {
    let stage = |reason: &Reason| match reason.stage() {
        Stage::Port => "port",
        Stage::Link => "link",
        Stage::Worker => "worker",
        Stage::Control => "control",
    };
    Reason::ALL.iter().map(|reason| format!("{:<28} {:<7} {}\n", reason.name(), stage(reason), reason.help())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_need_of_every_policy_is_listed_by_name() {
        for kind in PolicyKind::ALL {
            let entry = PolicyEntry::of(*kind);
            let named = |need: &&(Needs, &str)| entry.needs.contains(&need.1);
            let listed = NEEDS.iter().filter(named).fold(Needs::NOTHING, |all, (need, _)| all.and(*need));
            assert_eq!(listed, kind.needs(), "{}", entry.name);
            assert_eq!(entry.runs_in.contains(&"xdp"), kind.homes().has_xdp(), "{}", entry.name);
        }
    }

    #[test]
    fn tables_have_a_line_for_each_entry() {
        let policies = policies_table();
        assert!(policies.starts_with("POLICY "), "{policies}");
        assert_eq!(policies.lines().count(), 1 + PolicyKind::ALL.len());
        let local = policies.lines().find(|line| line.starts_with("local ")).unwrap();
        assert!(local.contains("xdp worker simulator  -  "), "{local}");
        let settings = settings_table();
        assert!(settings.lines().any(|line| line.starts_with("[workers] discipline ")), "{settings}");
        assert!(
            settings.lines().any(|line| line.starts_with("[policy] price ") && line.contains(" 2.0 ")),
            "{settings}"
        );
        assert_eq!(functions().lines().count(), Builtin::ALL.len());
        assert_eq!(counters().lines().count(), Reason::ALL.len());
    }
}

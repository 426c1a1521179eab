//! The one direction of dependencies: `common` at the bottom, programs above it, `bench` on top, `xtask` beside them.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::paths::Paths;
use crate::sh;

/// The crates that this lint knows. A new member of the workspace must be given its rule here.
const OURS: [&str; 5] = ["dataplane-common", "dataplane-ebpf", "dataplane-user", "dataplane-bench", "xtask"];

/// What a crate may depend on.
struct Rule {
    package: &'static str,
    /// Members of the project, for any purpose.
    ours: &'static [&'static str],
    /// Other crates, outside tests; `None` allows any.
    others: Option<&'static [&'static str]>,
}

const RULES: [Rule; 5] = [
    Rule { package: "dataplane-common", ours: &[], others: Some(&[]) },
    Rule { package: "dataplane-ebpf", ours: &["dataplane-common"], others: Some(&["aya-ebpf", "aya-log-ebpf"]) },
    Rule { package: "dataplane-user", ours: &["dataplane-common"], others: None },
    Rule { package: "dataplane-bench", ours: &["dataplane-common", "dataplane-user"], others: None },
    Rule { package: "xtask", ours: &[], others: None },
];

/// Checks both workspaces.
pub fn check(paths: &Paths) -> Result<()> {
    let mut wrong = Vec::new();
    for directory in [&paths.root, &paths.ebpf()] {
        let mut command = paths.cargo();
        command.current_dir(directory).args(["metadata", "--format-version", "1", "--no-deps"]);
        let metadata = serde_json::from_str(&sh::output(&mut command)?).context("cargo metadata is not JSON")?;
        wrong.extend(violations(&metadata)?);
    }
    if !wrong.is_empty() {
        bail!("\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

/// What the packages in cargo's metadata declare against the rules.
fn violations(metadata: &Value) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().context("cargo metadata lists no packages")? {
        let name = package["name"].as_str().context("a package without a name")?;
        let Some(rule) = RULES.iter().find(|rule| rule.package == name) else {
            wrong.push(format!("{name} has no rule in xtask/src/lint/dependencies.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().context("a package without dependencies")? {
            let target = dependency["name"].as_str().context("a dependency without a name")?;
            let is_for_tests = dependency["kind"] == "dev";
            if !rule.allows(target, is_for_tests) {
                wrong.push(format!("{name} may not depend on {target}"));
            }
        }
    }
    Ok(wrong)
}

impl Rule {
    fn allows(&self, target: &str, is_for_tests: bool) -> bool {
        if OURS.contains(&target) {
            return self.ours.contains(&target);
        }
        is_for_tests || self.others.is_none_or(|others| others.contains(&target))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(package: &str, dependency: &str, kind: Value) -> Vec<String> {
        let dependencies = json!([{ "name": dependency, "kind": kind }]);
        violations(&json!({ "packages": [{ "name": package, "dependencies": dependencies }] })).unwrap()
    }

    #[test]
    fn the_core_depends_on_nothing_but_its_tests_may() {
        assert_eq!(of("dataplane-common", "serde", Value::Null), ["dataplane-common may not depend on serde"]);
        assert_eq!(of("dataplane-common", "cc", json!("build")).len(), 1);
        assert!(of("dataplane-common", "proptest", json!("dev")).is_empty());
        assert_eq!(of("dataplane-common", "dataplane-user", json!("dev")).len(), 1);
    }

    #[test]
    fn the_programs_depend_downwards() {
        assert!(of("dataplane-ebpf", "aya-ebpf", Value::Null).is_empty());
        assert_eq!(of("dataplane-ebpf", "network-types", Value::Null).len(), 1);
        assert!(of("dataplane-user", "aya", Value::Null).is_empty());
        assert_eq!(of("dataplane-user", "dataplane-bench", json!("dev")).len(), 1);
        assert!(of("dataplane-bench", "dataplane-user", Value::Null).is_empty());
        assert_eq!(of("xtask", "dataplane-common", Value::Null).len(), 1);
    }

    #[test]
    fn a_new_member_needs_a_rule() {
        assert_eq!(of("dataplane-extra", "anyhow", Value::Null).len(), 1);
    }
}

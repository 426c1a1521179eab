//! Reads what `cargo test` prints and keeps the counts.
//!
//! The line `test result:` at the end of each binary is the authority for the counts. The lines of single tests are
//! used for names only: a process that a test starts may write into the middle of one.

use std::fmt;

/// Kind of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything without a kernel.
    Unit,
    /// AF_XDP's rings against a fake kernel.
    Ring,
    /// Programs in the kernel's test runner.
    Xdp,
    /// Nodes in network namespaces.
    Netns,
}

impl Kind {
    /// Every kind, in the order of the table.
    pub const ALL: [Self; 4] = [Self::Unit, Self::Ring, Self::Xdp, Self::Netns];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unit => "unit",
            Self::Ring => "ring",
            Self::Xdp => "xdp",
            Self::Netns => "netns",
        })
    }
}

/// Counts of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Those that ran and passed.
    pub passed: usize,
    /// Those that ran and failed.
    pub failed: usize,
    /// Those that did not run.
    pub ignored: usize,
}

impl Tally {
    /// Whether no test ran.
    pub fn is_empty(self) -> bool {
        self.passed + self.failed == 0
    }

    fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    fn without(self, other: Self) -> Self {
        Self {
            passed: self.passed.saturating_sub(other.passed),
            failed: self.failed.saturating_sub(other.failed),
            ignored: self.ignored.saturating_sub(other.ignored),
        }
    }
}

/// One test binary, or the documentation of one crate.
struct Binary {
    kind: Kind,
    name: String,
    /// Tests of the rings among its tests.
    rings: Tally,
    failures: Vec<String>,
    /// Absent when it did not reach its end.
    result: Option<Tally>,
}

/// Everything read so far.
#[derive(Default)]
pub struct Results {
    kind: Option<Kind>,
    binaries: Vec<Binary>,
    /// Binaries before this run of cargo.
    finished: usize,
    skips: Vec<String>,
    silent_failures: Vec<String>,
}

impl Results {
    /// A run of cargo begins, all of whose tests are of this kind, but for rings among unit tests.
    pub fn start(&mut self, kind: Kind) {
        self.kind = Some(kind);
        self.finished = self.binaries.len();
    }

    /// The run ends. A failure that no test or binary explains is kept as such.
    pub fn finish(&mut self, success: bool) {
        let binaries = &self.binaries[self.finished..];
        let is_explained = binaries.iter().any(|binary| binary.result.is_none_or(|tally| tally.failed > 0));
        if !success && !is_explained {
            let kind = self.kind.map(|kind| kind.to_string()).unwrap_or_default();
            self.silent_failures.push(format!("cargo test failed without running the {kind} tests"));
        }
    }

    /// Reads one line.
    pub fn line(&mut self, line: &str) {
        if line.starts_with("SKIP ") {
            self.skips.push(line.to_owned());
        }
        if let Some(name) = binary_name(line) {
            let name = name.to_owned();
            let kind = self.kind.unwrap_or(Kind::Unit);
            self.binaries.push(Binary { kind, name, rings: Tally::default(), failures: Vec::new(), result: None });
        }
        let Some(binary) = self.binaries.last_mut() else {
            return;
        };
        if let Some(tally) = summary(line) {
            binary.result = Some(tally);
        }
        if let Some((name, tally)) = single_test(line) {
            if binary.kind == Kind::Unit && is_ring(name) {
                binary.rings.add(tally);
            }
            if tally.failed > 0 {
                binary.failures.push(format!("{}: {name}", binary.name));
            }
        }
    }

    /// The counts of one kind.
    pub fn of(&self, kind: Kind) -> Tally {
        let mut sum = Tally::default();
        for binary in &self.binaries {
            let result = binary.result.unwrap_or_default();
            match (kind, binary.kind) {
                (Kind::Ring, Kind::Unit) => sum.add(binary.rings),
                (Kind::Unit, Kind::Unit) => sum.add(result.without(binary.rings)),
                (kind, other) if kind == other => sum.add(result),
                _ => {}
            }
        }
        sum
    }

    /// The counts of all kinds.
    pub fn total(&self) -> Tally {
        let mut sum = Tally::default();
        for kind in Kind::ALL {
            sum.add(self.of(kind));
        }
        sum
    }

    /// Failed tests, with their binaries.
    pub fn failures(&self) -> impl Iterator<Item = &str> {
        self.binaries.iter().flat_map(|binary| &binary.failures).map(String::as_str)
    }

    /// What is wrong besides failed tests.
    pub fn findings(&self) -> Vec<String> {
        let unfinished = self.binaries.iter().filter(|binary| binary.result.is_none());
        let mut findings =
            unfinished.map(|binary| format!("{} ended before its tests did", binary.name)).collect::<Vec<_>>();
        findings.extend(self.skips.iter().map(|line| format!("a test skipped: {line}")));
        findings.extend(self.silent_failures.iter().cloned());
        findings
    }

    /// The counts as a table.
    pub fn table(&self, kinds: &[Kind]) -> String {
        let mut table = format!("{:8} | {:>6} | {:>6} | {:>7}", "kind", "passed", "failed", "ignored");
        let mut row = |name: &dyn fmt::Display, tally: Tally| {
            let Tally { passed, failed, ignored } = tally;
            table.push_str(&format!("\n{name:8} | {passed:6} | {failed:6} | {ignored:7}"));
        };
        for kind in kinds {
            row(kind, self.of(*kind));
        }
        row(&"total", self.total());
        table
    }
}

/// Name of the binary that cargo starts now: its source file, or the crate whose documentation it tests.
fn binary_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("Doc-tests ") {
        return Some(name);
    }
    let (name, file) = line.strip_prefix("Running ")?.strip_suffix(')')?.rsplit_once(" (")?;
    file.contains("/deps/").then(|| binary_label(name, file))
}

/// `src/lib.rs` is the same in every crate: there the binary's own name says more.
fn binary_label<'a>(source: &'a str, file: &'a str) -> &'a str {
    if source.starts_with("unittests ") { file.rsplit('/').next().unwrap_or(file) } else { source }
}

/// The counts in `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn summary(line: &str) -> Option<Tally> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |name: &str| {
        let mut parts = counts.split("; ");
        parts.find_map(|part| part.strip_suffix(name)?.trim_end().parse::<usize>().ok())
    };
    Some(Tally { passed: count("passed")?, failed: count("failed")?, ignored: count("ignored")? })
}

/// Name and result in `test NAME ... ok`; an ignored test may give a reason after a comma.
fn single_test(line: &str) -> Option<(&str, Tally)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    let mut tally = Tally::default();
    match result.split(',').next()? {
        "ok" => tally.passed = 1,
        "FAILED" => tally.failed = 1,
        "ignored" => tally.ignored = 1,
        _ => return None,
    }
    Some((name, tally))
}

/// Whether a test lies in a module named `xsk`.
fn is_ring(name: &str) -> bool {
    name.rsplit_once("::").is_some_and(|(modules, _)| modules.split("::").any(|module| module == "xsk"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: &str = "
   Compiling dataplane-user v0.1.0 (/w/dataplane-user)
    Finished `test` profile [optimized + debuginfo] target(s) in 1.00s
     Running unittests src/lib.rs (target/debug/deps/dataplane_user-0123456789abcdef)

running 4 tests
test xsk::ring::tests::wraps ... ok
test xsk::umem::tests::loses_a_frame - should panic ... ok
test worker::tests::xsk ... FAILED
test worker::tests::slow ... ignored, takes an hour

failures:
---- worker::tests::xsk stdout ----
SKIP worker: no root

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

error: test failed, to rerun pass `-p dataplane-user --lib`
   Doc-tests dataplane_common

running 1 test
test dataplane-common/src/lib.rs - packet (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    fn read(results: &mut Results, kind: Kind, text: &str, success: bool) {
        results.start(kind);
        text.lines().for_each(|line| results.line(line));
        results.finish(success);
    }

    #[test]
    fn counts_by_kind_and_names_what_failed() {
        let mut results = Results::default();
        read(&mut results, Kind::Unit, UNIT, false);
        assert_eq!(results.of(Kind::Ring), Tally { passed: 2, failed: 0, ignored: 0 });
        assert_eq!(results.of(Kind::Unit), Tally { passed: 1, failed: 1, ignored: 1 });
        assert_eq!(results.total(), Tally { passed: 3, failed: 1, ignored: 1 });
        let failures = results.failures().collect::<Vec<_>>();
        assert_eq!(failures, ["dataplane_user-0123456789abcdef: worker::tests::xsk"]);
        assert_eq!(results.findings(), ["a test skipped: SKIP worker: no root"]);
        assert!(results.of(Kind::Netns).is_empty());
    }

    #[test]
    fn output_inside_a_line_does_not_change_the_counts() {
        let text = "     Running tests/netns_cluster.rs (target/debug/deps/netns_cluster-00)\nrunning 1 test\n\
                    test three_nodes ... link up\nok\n\
                    test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 2.00s\n";
        let mut results = Results::default();
        read(&mut results, Kind::Netns, text, true);
        assert_eq!(results.of(Kind::Netns), Tally { passed: 1, failed: 0, ignored: 0 });
        assert!(results.findings().is_empty());
    }

    #[test]
    fn a_binary_that_dies_is_a_finding() {
        let text = "     Running tests/xdp_a.rs (target/debug/deps/xdp_a-00)\nrunning 2 tests\ntest one ... ok\n\
                    error: test failed, to rerun pass `--test xdp_a`\n";
        let mut results = Results::default();
        read(&mut results, Kind::Xdp, text, false);
        assert_eq!(results.findings(), ["tests/xdp_a.rs ended before its tests did"]);
    }

    #[test]
    fn a_build_error_is_a_finding() {
        let mut results = Results::default();
        read(&mut results, Kind::Unit, UNIT, false);
        read(&mut results, Kind::Xdp, "error: could not compile `dataplane-bench`\n", false);
        assert_eq!(results.findings()[1], "cargo test failed without running the xdp tests");
    }

    #[test]
    fn the_table_has_a_row_for_each_kind_and_a_total() {
        let mut results = Results::default();
        read(&mut results, Kind::Unit, UNIT, false);
        let table = results.table(&[Kind::Unit, Kind::Ring]);
        let expected = "kind     | passed | failed | ignored\n\
                        unit     |      1 |      1 |       1\n\
                        ring     |      2 |      0 |       0\n\
                        total    |      3 |      1 |       1";
        assert_eq!(table, expected);
    }

    #[test]
    fn other_lines_that_look_alike_are_not_counted() {
        for line in ["     Running `target/debug/xtask test`", "test", "test result: ok", "testing ... ok"] {
            assert!(binary_name(line).is_none() && summary(line).is_none() && single_test(line).is_none(), "{line}");
        }
    }
}

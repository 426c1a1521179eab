//! `cargo xtask test`: builds, runs every test with skipping forbidden, and checks that nothing is left behind.
//!
//! The kind of a test follows from where it lies:
//!
//! | kind | where | how it runs |
//! |---|---|---|
//! | unit | libraries, programs, documentation, every other `tests/*.rs` | in parallel |
//! | ring | the same, in a module named `xsk`: the rings against a fake kernel | with them |
//! | xdp | `tests/xdp_*.rs`: programs in the kernel, by its own test runner | in parallel |
//! | netns | `tests/netns_*.rs`: whole nodes in network namespaces | last, one at a time |
//!
//! The last line printed is always `N passed, N failed`. Whatever makes the run fail counts as a failure there: a test,
//! a kind without tests, a count below the floor, a leftover, a build error.

mod leftovers;
pub mod output;
pub mod plan;

use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use self::leftovers::Snapshot;
use self::output::{Kind, Results};
use self::plan::Plan;
use crate::paths::Paths;
use crate::setup::{self, Scope};
use crate::{build, privilege, sh};

/// Names a Python that has the package MLRsearch.
const MLRSEARCH: &str = "DATAPLANE_MLRSEARCH_PYTHON";
/// Makes a test fail where it would skip.
pub const NO_SKIPS: &str = "DATAPLANE_TEST_ALL";

/// Inherited by every process that a test starts, so that those left over are found.
const MARKER: &str = "DATAPLANE_TEST_RUN";

/// Options of `test`.
#[derive(Args)]
pub struct Options {
    /// Run only tests whose name contains this; the counts are then not compared with anything.
    #[arg(long)]
    filter: Option<String>,
    /// Run only this kind; the total is then not compared with the floor.
    #[arg(long, value_enum, default_value_t = Choice::All)]
    kind: Choice,
}

/// What to run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// Unit tests, and the rings among them.
    Unit,
    /// Programs in the kernel.
    Xdp,
    /// Nodes in namespaces.
    Netns,
    /// Everything.
    All,
}

impl Choice {
    fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Unit => &[Kind::Unit, Kind::Ring],
            Self::Xdp => &[Kind::Xdp],
            Self::Netns => &[Kind::Netns],
            Self::All => &Kind::ALL,
        }
    }
}

/// Runs the tests and prints the table and the last line.
pub fn run(paths: &Paths, options: &Options) -> ExitCode {
    let mut results = Results::default();
    let mut findings = match run_all(paths, options, &mut results) {
        Ok(findings) => findings,
        Err(error) => vec![format!("{error:#}")],
    };
    findings.extend(results.findings());
    println!("\n{}", results.table(options.kind.kinds()));
    for name in results.failures() {
        println!("failed: {name}");
    }
    for finding in &findings {
        println!("FAIL: {finding}");
    }
    let total = results.total();
    let failed = total.failed + findings.len();
    println!("{} passed, {failed} failed", total.passed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds and runs; returns what is wrong besides failed tests.
fn run_all(paths: &Paths, options: &Options, results: &mut Results) -> Result<Vec<String>> {
    build::release(paths, Scope::Test, &["dataplane-user", "dataplane-bench"])?;
    sh::run(build::cargo(paths, "test").args(["--workspace", "--no-run"]))?;

    // Without it one comparison is left out, which says so.
    setup::mlrsearch::offer(&paths.mlrsearch());

    let before = Snapshot::take()?;
    for name in before.names() {
        println!("note: there before this run: {name}");
    }
    let marker = format!("{MARKER}={}", std::process::id());
    let plan = Plan::read(&paths.root)?;
    for (kind, arguments) in plan.phases(options.kind.kinds()) {
        run_phase(paths, options, &marker, kind, &arguments, results)?;
    }
    let mut findings = leftovers::left_behind(&before, &marker)?;
    findings.extend(too_few(paths, options, results)?);
    Ok(findings)
}

fn run_phase(
    paths: &Paths,
    options: &Options,
    marker: &str,
    kind: Kind,
    arguments: &[String],
    results: &mut Results,
) -> Result<()> {
    let mut command = build::cargo(paths, "test");
    command.args(["--workspace", "--no-fail-fast"]).args(arguments).arg("--");
    if kind == Kind::Netns {
        command.arg("--test-threads=1");
    }
    command.args(&options.filter);
    command.envs(build::environment(paths)).env(NO_SKIPS, "1").envs(marker.split_once('='));
    if paths.mlrsearch().is_dir() {
        command.env(MLRSEARCH, setup::mlrsearch::python(&paths.mlrsearch()));
    }
    let prefix = privilege::prefix()?;
    if !prefix.is_empty() {
        // Cargo builds as this user; what it built runs as root.
        command.env(format!("CARGO_TARGET_{}_RUNNER", host_variable()), prefix.join(" "));
    }
    results.start(kind);
    let status = sh::stream(&mut command, |line| {
        println!("{line}");
        results.line(line);
    })?;
    results.finish(status.success());
    Ok(())
}

/// This machine's target as cargo spells it in variables.
fn host_variable() -> String {
    format!("{}_UNKNOWN_LINUX_GNU", std::env::consts::ARCH.to_uppercase())
}

/// Kinds without a test, and a total below the floor: a suite that shrinks must say so in a change of that file.
fn too_few(paths: &Paths, options: &Options, results: &Results) -> Result<Vec<String>> {
    if options.filter.is_some() {
        return Ok(Vec::new());
    }
    let kinds = options.kind.kinds();
    let empty = kinds.iter().filter(|kind| results.of(**kind).is_empty());
    let mut findings = empty.map(|kind| format!("no test of kind {kind} ran")).collect::<Vec<_>>();
    if options.kind == Choice::All {
        let path = paths.root.join("xtask/test-floor");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let floor = text.trim().parse::<usize>().with_context(|| format!("not a number: {}", path.display()))?;
        let total = results.total();
        if total.passed + total.failed < floor {
            findings.push(format!("{} tests ran, xtask/test-floor asks for {floor}", total.passed + total.failed));
        }
    }
    Ok(findings)
}

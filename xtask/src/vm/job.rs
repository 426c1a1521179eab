//! What the guest does: a shell script, and what must lie in the guest for it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::image::Image;
use super::qemu::Nic;
use crate::paths::Paths;
use crate::test::NO_SKIPS;
use crate::test::output::Kind;
use crate::test::plan::Plan;
use crate::{build, privilege, sh};

/// The guest's own scripts.
const INIT: &str = include_str!("guest/init");
const FUNCTIONS: &str = include_str!("guest/functions");
const NIC: &str = include_str!("guest/nic");

/// Kinds of tests that depend on the kernel.
pub const KINDS: [Kind; 2] = [Kind::Xdp, Kind::Netns];

/// Installed programs that nodes, tests and benchmarks start, with the libraries they need.
const PROGRAMS: [&str; 11] =
    ["ip", "tc", "ethtool", "bpftool", "nsenter", "setpriv", "setsid", "taskset", "chrt", "nice", "sh"];

/// Starts a node on the NIC and asks it.
const CHECK_NIC: &str = "nic || { echo \"the node on the NIC failed\"; failed=1; }\n";

/// Packets that pktgen sends to that node.
const FLOOD: u32 = 100_000;

/// Tests left out in an emulated guest unless one is asked for by name: it draws 120 000 decisions, far longer there than all
/// others together. That each policy's program loads there and decides is covered by those that stay.
const TOO_LONG_EMULATED: [&str; 1] = ["every_policy_for_xdp"];

/// What `--bench pktgen` runs: contenders that take whatever packets arrive, since pktgen's are no active ones.
const PKTGEN: [&str; 6] = [
    "throughput",
    "--generator",
    "pktgen",
    "--only",
    "XDP drop,XDP_TX,devmap redirect,by hand drop,kernel forwarding,dataplane pass",
    "--out",
];

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// The tests that depend on the kernel, and a node on the NIC.
    Test(Choice),
    /// pktgen against the dataplane.
    Bench,
    /// A shell.
    Shell,
    /// Nothing: shows that a guest runs at all.
    Nothing,
}

/// Which tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Only those whose name contains this.
    pub filter: Option<String>,
    /// The guest is emulated.
    pub emulated: bool,
}

impl Choice {
    /// Tests that are left out.
    pub fn left_out(&self) -> &'static [&'static str] {
        if self.emulated && self.filter.is_none() { &TOO_LONG_EMULATED } else { &[] }
    }

    /// Arguments of a test's executable.
    fn arguments(&self, kind: Kind) -> String {
        let one_by_one = if kind == Kind::Netns { " --test-threads=1" } else { "" };
        let skips = self.left_out().iter().map(|name| format!(" --skip {name}")).collect::<String>();
        let filter = self.filter.as_ref().map(|text| format!(" {}", sh::quote(text.as_ref()))).unwrap_or_default();
        format!("{one_by_one}{skips}{filter}")
    }
}

/// A test's executable.
#[derive(Debug, PartialEq, Eq)]
struct Executable {
    kind: Kind,
    /// Source file, below the crate.
    source: String,
    path: PathBuf,
}

/// Puts the job, and everything that it starts, into the guest.
///
/// # Errors
/// Something is missing, or the tests cannot be built.
pub fn install(image: &mut Image, job: &Job, nic: Nic, paths: &Paths) -> Result<()> {
    image.content("/init", 0o755, INIT.into());
    image.content("/vm/functions", 0o644, FUNCTIONS.into());
    image.content("/vm/nic", 0o644, NIC.into());
    let mut script = format!("#!{}\n", shell(job)?.display());
    script.push_str(&preamble(paths, nic)?);
    match job {
        Job::Nothing => {}
        Job::Shell => script.push_str("exec setsid cttyhack sh\n"),
        Job::Bench => script.push_str(&bench(nic)),
        Job::Test(choice) => {
            let executables = executables(paths)?;
            for executable in &executables {
                image.program(&executable.path)?;
            }
            // First what takes the least.
            script.push_str(CHECK_NIC);
            script.push_str(&tests(&executables, choice));
        }
    }
    script.push_str("exit $failed\n");
    image.content("/vm/job", 0o755, script.into());
    if *job != Job::Nothing {
        for name in PROGRAMS {
            image.installed(name)?;
        }
        for program in ["dataplane", "dataplane-bench"] {
            image.program(&paths.release(program))?;
        }
        image.copy(&paths.object())?;
        image.copy(&paths.bench_object())?;
    }
    Ok(())
}

/// The shell of the job: the machine's, but for a guest that has none of its programs.
fn shell(job: &Job) -> Result<PathBuf> {
    match job {
        Job::Nothing => Ok("/busybox/sh".into()),
        Job::Test(_) | Job::Bench | Job::Shell => privilege::find_program("sh").context("no shell (sh)"),
    }
}

/// Variables that everything in the guest finds what was built by, and those of the NIC.
fn preamble(paths: &Paths, nic: Nic) -> Result<String> {
    let mut script = String::from(". /vm/functions\n. /vm/nic\n");
    let mut export = |name: &str, value: &str| {
        script.push_str(&format!("export {name}={}\n", sh::quote(value.as_ref())));
    };
    for (name, path) in build::environment(paths) {
        export(name, path.to_str().with_context(|| format!("not UTF-8: {}", path.display()))?);
    }
    export("BENCH", &paths.release("dataplane-bench").to_string_lossy());
    export(NO_SKIPS, "1");
    export("RUST_BACKTRACE", "1");
    export("NODE_MAC", Nic::MACS[0]);
    export("USER_MAC", Nic::MACS[1]);
    export("NIC", nic.name());
    // This driver runs XDP programs only behind itself.
    export("MODE", if nic == Nic::E1000e { "skb" } else { "native" });
    Ok(script)
}

fn tests(executables: &[Executable], choice: &Choice) -> String {
    let mut script = String::new();
    for kind in KINDS {
        script.push_str(&format!("phase {kind}\n"));
        for executable in executables.iter().filter(|executable| executable.kind == kind) {
            let (source, path) = (sh::quote(executable.source.as_ref()), sh::quote(executable.path.as_os_str()));
            script.push_str(&format!("run_test {source} {path}{}\n", choice.arguments(kind)));
        }
    }
    script
}

/// A node on the NIC, and pktgen against it; on a veth also the table of what can be compared there.
fn bench(nic: Nic) -> String {
    let mut script = format!("PKTGEN={FLOOD}\n{CHECK_NIC}");
    if nic == Nic::Veth {
        let words = PKTGEN.map(|word| sh::quote(word.as_ref())).join(" ");
        script.push_str(&format!("\"$BENCH\" {words} /tmp/bench || failed=1\n"));
    }
    script
}

/// Builds the tests that depend on the kernel, with optimisation: the emulator is slow enough.
fn executables(paths: &Paths) -> Result<Vec<Executable>> {
    let mut executables = Vec::new();
    for (kind, arguments) in Plan::read(&paths.root)?.phases(&KINDS) {
        let mut command = build::cargo(paths, "test");
        command.args(["--workspace", "--release", "--no-run", "--message-format=json-render-diagnostics"]);
        let messages = sh::output(command.args(arguments))?;
        executables.extend(parse_messages(&messages, kind)?);
    }
    if executables.is_empty() {
        bail!("cargo built no test that depends on the kernel");
    }
    Ok(executables)
}

/// The executables of tests in cargo's messages, one JSON object a line.
fn parse_messages(text: &str, kind: Kind) -> Result<Vec<Executable>> {
    let mut executables = Vec::new();
    for line in text.lines() {
        let message: Value = serde_json::from_str(line).with_context(|| format!("no message of cargo's: {line}"))?;
        let is_test = message["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"));
        let (Some(path), Some(name), true) =
            (message["executable"].as_str(), message["target"]["name"].as_str(), is_test)
        else {
            continue;
        };
        executables.push(Executable { kind, source: format!("tests/{name}.rs"), path: Path::new(path).to_owned() });
    }
    Ok(executables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executable(kind: Kind, name: &str) -> Executable {
        Executable { kind, source: format!("tests/{name}.rs"), path: format!("/t/deps/{name}-0f").into() }
    }

    #[test]
    fn tests_of_namespaces_run_last_and_one_by_one() {
        let executables = [executable(Kind::Netns, "netns_a"), executable(Kind::Xdp, "xdp_b")];
        let expected = "phase xdp\nrun_test tests/xdp_b.rs /t/deps/xdp_b-0f 'it'\\''s'\n\
                        phase netns\nrun_test tests/netns_a.rs /t/deps/netns_a-0f --test-threads=1 'it'\\''s'\n";
        let choice = Choice { filter: Some("it's".to_owned()), emulated: true };
        assert_eq!(tests(&executables, &choice), expected);
    }

    #[test]
    fn what_takes_too_long_emulated_runs_under_kvm_or_by_name() {
        let choice = |filter: Option<&str>, emulated| Choice { filter: filter.map(str::to_owned), emulated };
        assert_eq!(choice(None, true).arguments(Kind::Xdp), " --skip every_policy_for_xdp");
        assert_eq!(choice(None, false).arguments(Kind::Xdp), "");
        assert!(choice(Some("every_policy"), true).left_out().is_empty());
    }

    #[test]
    fn the_table_is_made_on_veths_and_every_nic_gets_a_flood() {
        assert!(bench(Nic::Veth).contains("throughput --generator pktgen"));
        for nic in [Nic::Veth, Nic::Igb] {
            assert!(bench(nic).starts_with("PKTGEN=100000\nnic ||"), "{}", bench(nic));
        }
        assert!(!bench(Nic::Igb).contains("throughput"));
    }

    #[test]
    fn executables_of_tests_are_told_from_programs_and_libraries() {
        let text = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"x"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"dataplane"},"executable":"/t/dataplane"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"xdp_b"},"executable":"/t/deps/xdp_b-0f"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(parse_messages(text, Kind::Xdp).unwrap(), [executable(Kind::Xdp, "xdp_b")]);
        assert!(parse_messages("warning: something", Kind::Xdp).is_err());
    }
}

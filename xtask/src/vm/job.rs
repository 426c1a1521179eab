//! What the guest does: a shell script, and what must lie in the guest for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
const SHELL: &str = include_str!("guest/shell");

/// Kinds of tests that depend on the kernel.
pub const KINDS: [Kind; 2] = [Kind::Xdp, Kind::Netns];

/// Installed programs that nodes, tests and benchmarks start, with the libraries they need.
const PROGRAMS: [&str; 11] =
    ["ip", "tc", "ethtool", "bpftool", "nsenter", "setpriv", "setsid", "taskset", "chrt", "nice", "sh"];

/// Starts a node on the NIC and asks it. What does not start there fails in all that follows, which is not waited for.
const CHECK_NIC: &str =
    "nic || { status=$?; echo \"the node on the NIC failed\"; failed=1; [ $status = 3 ] && exit 1; }\n";

/// Packets that pktgen sends to that node.
const FLOOD: u32 = 100_000;

/// Tests that run in an emulated guest unless others are asked for: those that another kernel or driver may decide. Loading a
/// program takes seconds there, and most tests load some, so that all together would take hours.
const EMULATED: [&str; 20] = [
    // The programs before this kernel's verifier, by libbpf and bpftool. Those of all policies (`every_policy_for_xdp_is_accepted`)
    // take an emulated verifier more than a quarter of an hour.
    "libbpf_opens_and_loads_the_object",
    "bpftool_loads_the_object",
    // What helpers, metadata and redirects of this kernel do.
    "random_numbers_of_the_kernel",
    "active_packets_behind_every_encapsulation_reach_the_worker",
    "ordinary_traffic_is_left_to_the_kernel",
    "packets_of_the_kernels_generator_are_active_where_the_profile_is_on",
    "metadata_of_a_driver_does_not_hide_ours",
    "ept_erl_adds_what_is_in_flight",
    "what_is_forwarded_arrives_as_it_came_with_the_header_in_front",
    "forwarded_packets_reach_the_worker_as_they_came",
    "what_one_node_seals_another_one_opens",
    // Nodes: attaching, sockets, every transport, the end of a node; every generator, pktgen among them. No test that counts how
    // many packets of a burst another node computes: an emulated node is too slow to tell. No reload: each waits for the verifier.
    "every_queue_has_its_worker_and_queues_without_one_pass_to_the_kernel",
    "the_xdp_program_decides_and_frames_travel_in_udp",
    "workers_decide_and_send_over_af_xdp",
    "workers_decide_and_kernel_sockets_carry",
    "ordinary_traffic_reaches_the_kernel_while_the_node_works",
    "a_killed_node_gives_its_interface_back_and_gets_no_more_packets",
    "a_stopped_node_leaves_nothing_behind",
    "paced_generators_send_what_they_say_and_the_receiver_counts_it",
    "a_capture_arrives_whole_in_its_order_round_after_round",
];

/// What `--bench pktgen` runs: the dataplane, and contenders that take whatever packets arrive.
const PKTGEN: [&str; 6] = [
    "throughput",
    "--generator",
    "pktgen",
    "--only",
    "XDP drop,XDP_TX,devmap redirect,dataplane redirect,by hand,dataplane answer,kernel forwarding,dataplane pass",
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
    /// Only those that another kernel or driver may decide.
    pub is_short: bool,
}

impl Choice {
    /// Texts of which a test's name must contain one; none: every test runs.
    pub fn names(&self) -> Vec<&str> {
        match &self.filter {
            Some(text) => vec![text],
            None if self.is_short => EMULATED.to_vec(),
            None => Vec::new(),
        }
    }

    /// Arguments of a test's executable.
    fn arguments(&self, kind: Kind) -> String {
        let one_by_one = if kind == Kind::Netns { " --test-threads=1" } else { "" };
        let names = self.names().into_iter().map(|name| format!(" {}", sh::quote(name.as_ref())));
        std::iter::once(one_by_one.to_owned()).chain(names).collect()
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
        Job::Shell => {
            image.content("/vm/shell", 0o644, SHELL.into());
            // The machine's shell: busybox's would take its own programs for the machine's.
            script.push_str(&format!("ENV=/vm/shell exec setsid cttyhack {} -i\n", shell(job)?.display()));
        }
        Job::Bench => script.push_str(&bench(nic)),
        Job::Test(choice) => {
            let built = built(paths)?;
            let mut programs = built.programs;
            programs.extend(built.tests.iter().map(|test| test.path.clone()));
            // Some belong to the tests of the kernel and to those of namespaces.
            programs.sort_unstable();
            programs.dedup();
            for program in &programs {
                image.program(program)?;
                let path = program.to_str().context("a test's path is not UTF-8")?;
                image.content(path, 0o755, stripped(program)?);
            }
            // First what takes the least.
            script.push_str(CHECK_NIC);
            script.push_str(&tests(&built.tests, choice));
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

/// The executable without what only debuggers read, which is most of it: the guest's files lie in its memory.
fn stripped(path: &Path) -> Result<Vec<u8>> {
    let copy = path.with_extension(format!("stripped-{}", std::process::id()));
    let outcome = sh::output(Command::new("strip").args(["--strip-debug", "-o"]).arg(&copy).arg(path))
        .and_then(|_| fs::read(&copy).with_context(|| format!("cannot read {}", copy.display())));
    // It is there unless `strip` failed.
    let _ = fs::remove_file(copy);
    outcome
}

/// What cargo has built for the guest.
#[derive(Debug, Default, PartialEq, Eq)]
struct Built {
    tests: Vec<Executable>,
    /// Programs that tests start.
    programs: Vec<PathBuf>,
}

/// Builds the tests that depend on the kernel, as `cargo xtask test` does: most of a test's time is the kernel's.
fn built(paths: &Paths) -> Result<Built> {
    let mut built = Built::default();
    for (kind, arguments) in Plan::read(&paths.root)?.phases(&KINDS) {
        let mut command = build::cargo(paths, "test");
        command.args(["--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
        let messages = sh::output(command.args(arguments))?;
        parse_messages(&messages, kind, &mut built)?;
    }
    if built.tests.is_empty() {
        bail!("cargo built no test that depends on the kernel");
    }
    Ok(built)
}

/// The executables in cargo's messages, one JSON object a line.
fn parse_messages(text: &str, kind: Kind, built: &mut Built) -> Result<()> {
    for line in text.lines() {
        let message: Value = serde_json::from_str(line).with_context(|| format!("no message of cargo's: {line}"))?;
        let is = |what: &str| message["target"]["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|k| k == what));
        let (Some(path), Some(name)) = (message["executable"].as_str(), message["target"]["name"].as_str()) else {
            continue;
        };
        let path = Path::new(path).to_owned();
        if is("test") {
            built.tests.push(Executable { kind, source: format!("tests/{name}.rs"), path });
        } else if is("bin") {
            built.programs.push(path);
        }
    }
    Ok(())
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
        let choice = Choice { filter: Some("it's".to_owned()), is_short: true };
        assert_eq!(tests(&executables, &choice), expected);
    }

    #[test]
    fn an_emulated_guest_runs_what_a_kernel_may_decide_unless_others_are_asked_for() {
        let choice = |filter: Option<&str>, is_short| Choice { filter: filter.map(str::to_owned), is_short };
        assert!(choice(None, true).arguments(Kind::Xdp).starts_with(" libbpf_opens_and_loads_the_object "));
        assert_eq!(choice(None, false).arguments(Kind::Xdp), "");
        assert_eq!(choice(Some("cable"), true).arguments(Kind::Netns), " --test-threads=1 cable");
    }

    #[test]
    fn every_chosen_test_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut text = String::new();
        let mut directories = vec![root.join("bench/tests"), root.join("dataplane-user/tests")];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    text.push_str(&fs::read_to_string(path).unwrap());
                }
            }
        }
        for name in EMULATED {
            assert!(text.contains(&format!("fn {name}()")), "{name}");
        }
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
    fn tests_and_the_programs_they_start_are_told_from_libraries() {
        let text = r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"x"},"executable":null}
{"reason":"compiler-artifact","target":{"kind":["bin"],"name":"dataplane"},"executable":"/t/dataplane"}
{"reason":"compiler-artifact","target":{"kind":["test"],"name":"xdp_b"},"executable":"/t/deps/xdp_b-0f"}
{"reason":"build-finished","success":true}"#;
        let mut built = Built::default();
        parse_messages(text, Kind::Xdp, &mut built).unwrap();
        let wanted = Built { tests: vec![executable(Kind::Xdp, "xdp_b")], programs: vec!["/t/dataplane".into()] };
        assert_eq!(built, wanted);
        assert!(parse_messages("warning: something", Kind::Xdp, &mut built).is_err());
    }
}

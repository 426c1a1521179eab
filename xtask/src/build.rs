//! `cargo xtask build`: the eBPF object, then the programs that embed or open it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::Args;

use crate::object;
use crate::paths::Paths;
use crate::setup::{self, Scope};
use crate::sh;

/// Names the object: for the build script of `dataplane-user`, which embeds it, and for what loads it at run time.
const OBJECT_VARIABLE: &str = "DATAPLANE_BPF_OBJECT";
/// Names the benchmarks' object.
const BENCH_OBJECT_VARIABLE: &str = "DATAPLANE_BENCH_OBJECT";
/// Names the node's program, for what starts nodes.
const PROGRAM_VARIABLE: &str = "DATAPLANE_BIN";

/// Target of the eBPF programs: BPF, little endian.
const TARGET: &str = "bpfel-unknown-none";

/// BTF for the maps' types, and the third instruction set, which has the atomic additions of the counters.
const FLAGS: &str = "-Cdebuginfo=2 -Clink-arg=--btf -Ctarget-cpu=v3";

/// Options of `build`.
#[derive(Args)]
pub struct Options {
    /// Build the user space programs without optimisation. The verifier needs the eBPF object optimised: it always is.
    #[arg(long)]
    debug: bool,
    /// Build the eBPF object with logging. libbpf and bpftool cannot open such an object.
    #[arg(long)]
    log: bool,
}

/// Builds everything.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    setup::ensure(paths, Scope::Build)?;
    object(paths, options.log)?;
    programs(paths, !options.debug, &["dataplane-user", "dataplane-bench"])?;
    Ok(ExitCode::SUCCESS)
}

/// Sets up, builds the object and the named packages with the release profile: what commands do that start a program.
pub fn release(paths: &Paths, scope: Scope, packages: &[&str]) -> Result<()> {
    setup::ensure(paths, scope)?;
    object(paths, false)?;
    programs(paths, true, packages)
}

/// Builds the eBPF objects, checks them, and puts them where the other crates find them. A file is touched only when it
/// changes, so that nothing that embeds it is built again for nothing.
pub fn object(paths: &Paths, log: bool) -> Result<()> {
    if log {
        eprintln!("warning: logging needs a map of the old kind: libbpf and bpftool cannot open this object");
    }
    let mut command = ebpf_cargo(paths, "build");
    if log {
        command.args(["--features", "log"]);
    }
    sh::run(&mut command)?;
    install(paths, "dataplane", &paths.object(), log)?;
    install(paths, "bench", &paths.bench_object(), log)
}

fn install(paths: &Paths, program: &str, path: &Path, log: bool) -> Result<()> {
    let built = paths.ebpf_target().join(TARGET).join("release").join(program);
    let bytes = fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
    let summary = object::check(&bytes, log).with_context(|| format!("{} is not usable", built.display()))?;
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    replace(path, &bytes)?;
    eprintln!("{}: {} bytes, {summary}", path.display(), bytes.len());
    Ok(())
}

/// Cargo's `subcommand` for the eBPF crate.
pub fn ebpf_cargo(paths: &Paths, subcommand: &str) -> Command {
    let mut command = paths.cargo();
    command
        .current_dir(paths.ebpf())
        .args([subcommand, "--release", "--target", TARGET, "-Z", "build-std=core", "--target-dir"])
        .arg(paths.ebpf_target())
        // `build-std` is unstable; this makes the stable compiler accept it.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", paths.bpf_linker())
        .env("RUSTFLAGS", FLAGS)
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// Cargo for the root workspace: told where the object is.
pub fn cargo(paths: &Paths, subcommand: &str) -> Command {
    let mut command = paths.cargo();
    command.arg(subcommand).env(OBJECT_VARIABLE, paths.object());
    command
}

/// Where programs and tests find what was built.
pub fn environment(paths: &Paths) -> [(&'static str, PathBuf); 3] {
    [
        (OBJECT_VARIABLE, paths.object()),
        (BENCH_OBJECT_VARIABLE, paths.bench_object()),
        (PROGRAM_VARIABLE, paths.release("dataplane")),
    ]
}

fn programs(paths: &Paths, release: bool, packages: &[&str]) -> Result<()> {
    let mut command = cargo(paths, "build");
    if release {
        command.arg("--release");
    }
    for package in packages {
        command.args(["--package", package]);
    }
    sh::run(&mut command)
}

/// Writes a file in one step: readers see the old content or the new one.
fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let directory = path.parent().context("the object's path has no parent")?;
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    let fresh = path.with_extension(format!("o.{}", std::process::id()));
    fs::write(&fresh, bytes).with_context(|| format!("cannot write {}", fresh.display()))?;
    fs::rename(&fresh, path).with_context(|| format!("cannot rename {} to {}", fresh.display(), path.display()))
}

//! `cargo xtask lint`: what a reviewer would otherwise have to look for.

mod dependencies;
mod source;
mod tree;

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::Args;

use crate::paths::Paths;
use crate::setup::{self, Scope};
use crate::{build, sh};

/// Every warning is an error; a function has an upper length, set in `clippy.toml`.
const CLIPPY: [&str; 5] = ["--", "-D", "warnings", "-D", "clippy::too_many_lines"];

/// Options of `lint`.
#[derive(Args)]
pub struct Options {
    /// Leave out clippy, the only part that compiles anything.
    #[arg(long)]
    no_clippy: bool,
}

/// Runs every check, also after one has failed, and says at the end which did.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    let mut failed = Vec::new();
    let mut check = |name: &'static str, result: Result<()>| {
        if let Err(error) = result {
            eprintln!("lint: {name}: {error:#}");
            failed.push(name);
        }
    };
    check("format", sh::run(paths.cargo().args(["fmt", "--all", "--check"])));
    check("format of the eBPF crate", sh::run(paths.cargo().current_dir(paths.ebpf()).args(["fmt", "--check"])));
    check("tree", tree::check(&paths.root));
    check("dependencies", dependencies::check(paths));
    if !options.no_clippy {
        setup::ensure(paths, Scope::Build)?;
        check("clippy of the eBPF crate", sh::run(build::ebpf_cargo(paths, "clippy").args(CLIPPY)));
        check("eBPF object", build::object(paths, false));
        check("clippy", sh::run(&mut clippy(paths)));
    }
    if failed.is_empty() {
        println!("lint: ok");
        return Ok(ExitCode::SUCCESS);
    }
    println!("lint: failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn clippy(paths: &Paths) -> Command {
    let mut command = build::cargo(paths, "clippy");
    command.args(["--workspace", "--all-targets"]).args(CLIPPY);
    command
}

//! `cargo xtask maps`: builds, then becomes the reader of pinned maps in `bench`, which goes through libbpf.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::paths::Paths;
use crate::setup::Scope;
use crate::{build, privilege, sh};

/// Options of `maps`: the reader's own.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Arguments of `dataplane-bench maps`; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `dataplane-bench maps`.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    build::release(paths, Scope::Build, &["dataplane-bench"])?;
    become_bench(paths, "maps", &options.arguments)
}

/// Becomes a command of `dataplane-bench`, as root, told where the object and the node's program are.
pub fn become_bench(paths: &Paths, subcommand: &str, arguments: &[OsString]) -> Result<ExitCode> {
    let mut command = privilege::command(paths.release("dataplane-bench"))?;
    command.arg(subcommand).args(arguments).envs(build::environment(paths));
    match sh::exec(&mut command)? {}
}

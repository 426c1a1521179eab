//! `cargo xtask demo`: builds, then becomes the demonstration in `bench`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::paths::Paths;
use crate::setup::Scope;
use crate::{build, maps};

/// Options of `demo`: the demonstration's own.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Arguments of `dataplane-bench demo`; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `dataplane-bench demo`: it gets the terminal's signals and those sent to this process, and cleans up itself.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    build::release(paths, Scope::Test, &["dataplane-user", "dataplane-bench"])?;
    maps::become_bench(paths, "demo", &options.arguments)
}

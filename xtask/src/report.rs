//! `cargo xtask report DIR`: builds, then becomes `dataplane-bench report`, which makes one page of a directory of results.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::paths::Paths;
use crate::setup::Scope;
use crate::{build, maps};

/// Options of `report`: the command's own.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Arguments of `dataplane-bench report`; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `dataplane-bench report`.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    build::release(paths, Scope::Build, &["dataplane-bench"])?;
    maps::become_bench(paths, "report", &options.arguments)
}

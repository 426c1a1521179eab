//! `cargo xtask status`: becomes `dataplane status`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::paths::Paths;
use crate::setup::Scope;
use crate::{build, privilege, sh};

/// Options of `status`.
#[derive(Args)]
pub struct Options {
    /// Show this node only.
    #[arg(long)]
    node: Option<String>,
    /// Print JSON.
    #[arg(short, long)]
    json: bool,
}

/// Becomes `dataplane status`.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    build::release(paths, Scope::Object, &["dataplane-user"])?;
    let mut command = privilege::command(paths.release("dataplane"))?;
    command.arg("status");
    if let Some(node) = &options.node {
        command.args(["--node", node]);
    }
    if options.json {
        command.arg("-j");
    }
    match sh::exec(&mut command)? {}
}

//! `cargo xtask unload`: becomes `dataplane unload`, which stops nodes by their pins and removes these.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::paths::Paths;
use crate::setup::Scope;
use crate::{build, privilege, sh};

/// Options of `unload`.
#[derive(Args)]
#[group(required = true, multiple = false)]
pub struct Options {
    /// Stop this node.
    #[arg(long)]
    node: Option<String>,
    /// Stop every node of this host.
    #[arg(long)]
    all: bool,
}

/// Becomes `dataplane unload`.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    build::release(paths, Scope::Object, &["dataplane-user"])?;
    let mut command = privilege::command(paths.release("dataplane"))?;
    command.arg("unload");
    match &options.node {
        Some(node) => command.args(["--node", node]),
        None => command.arg("--all"),
    };
    match sh::exec(&mut command)? {}
}

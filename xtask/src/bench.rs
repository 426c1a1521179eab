//! `cargo xtask bench NAME`: builds, then becomes the benchmark of that name in `bench`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::paths::Paths;
use crate::setup::{self, Scope};
use crate::{build, maps};

/// The benchmark that also runs programs of others.
const PEERS: &str = "peers";

/// Options of `bench`: the benchmark's own.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// The benchmark.
    #[arg(value_parser = [
        "peers", "throughput", "latency", "loss", "burst", "soak", "scale", "reload", "faults",
        "interconnect", "validate", "pktgen",
    ])]
    benchmark: String,
    /// Its arguments; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `dataplane-bench NAME`: it gets the terminal's signals and those sent to this process, and cleans up itself.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    build::release(paths, Scope::Test, &["dataplane-user", "dataplane-bench"])?;
    if options.benchmark == PEERS
        && let Err(error) = setup::ensure(paths, Scope::Peers)
    {
        // The comparison names what is missing; without the programs of others it is still one.
        eprintln!("setup: {error:#}");
    }
    maps::become_bench(paths, &options.benchmark, &options.arguments)
}

//! `cargo xtask bench NAME`: builds, then becomes the benchmark of that name in `bench`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, FromArgMatches as _};

use crate::paths::Paths;
use crate::setup::{self, Scope};
use crate::{build, instructions, maps};

/// The benchmark that also runs programs of others.
const PEERS: &str = "peers";
/// The one that is no part of `dataplane-bench`.
const INSTRUCTIONS: &str = "instructions";

/// Options of `bench`: the benchmark's own.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// The benchmark.
    #[arg(value_parser = [
        "peers", "throughput", "latency", "loss", "burst", "soak", "scale", "reload", "faults",
        "interconnect", "validate", "pktgen", INSTRUCTIONS,
    ])]
    benchmark: String,
    /// Its arguments; `--help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `dataplane-bench NAME`: it gets the terminal's signals and those sent to this process, and cleans up itself.
pub fn run(paths: &Paths, options: &Options) -> Result<ExitCode> {
    if options.benchmark == INSTRUCTIONS {
        return instructions::run(paths, &own_options(&options.arguments));
    }
    build::release(paths, Scope::Test, &["dataplane-user", "dataplane-bench"])?;
    if options.benchmark == PEERS
        && let Err(error) = setup::ensure(paths, Scope::Peers)
    {
        // The comparison names what is missing; without the programs of others it is still one.
        eprintln!("setup: {error:#}");
    }
    maps::become_bench(paths, &options.benchmark, &options.arguments)
}

/// The options of the benchmark that runs in this process; ends it where they are wrong, or ask for help.
fn own_options(arguments: &[OsString]) -> instructions::Options {
    let name = "cargo xtask bench instructions";
    let command = instructions::Options::augment_args(clap::Command::new(name).no_binary_name(true));
    let matches = command.get_matches_from(arguments);
    instructions::Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

//! `cargo xtask`: sets a machine up, builds, tests and lints the tree, and starts what it built.
//!
//! One file per command, each with its `Options` and `run`. Nothing here links another crate of the workspace: they
//! are built by cargo and started as processes, so this crate compiles on a machine where nothing else does yet.
//!
//! | file | what it is for |
//! |---|---|
//! | `setup`, `build`, `test`, `lint` | the developer's commands |
//! | `load`, `unload`, `status`, `maps`, `demo`, `bench`, `report` | start a built program |
//! | `instructions` | counts instructions under callgrind |
//! | `vm` | the same on other kernels, in a virtual machine |
//! | `object` | reads the eBPF object back and checks what the kernel and libbpf will ask of it |
//! | `paths`, `privilege`, `sh` | where things are, how to become root, how commands are run |

mod bench;
mod build;
mod demo;
mod instructions;
mod lint;
mod load;
mod maps;
mod object;
mod paths;
mod privilege;
mod report;
mod setup;
mod sh;
mod status;
mod test;
mod unload;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::paths::Paths;

/// Developer and host commands of the dataplane.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what building, running or testing needs, and nothing that is already there.
    Setup(setup::Options),
    /// Build the eBPF object, then the programs that use it.
    Build(build::Options),
    /// Run every test, skipping none, and check that nothing is left behind.
    Test(test::Options),
    /// Formatting, clippy, dependency direction, file sizes and the places where `unsafe` may stand.
    Lint(lint::Options),
    /// Start a node in the background and wait until it answers.
    Load(load::Options),
    /// Stop nodes and remove their pins.
    Unload(unload::Options),
    /// Show the nodes of this host.
    Status(status::Options),
    /// Print the pinned maps through libbpf.
    Maps(maps::Options),
    /// Run the demonstration: a cluster in network namespaces, all arguments passed through.
    Demo(demo::Options),
    /// Run a benchmark: peers, throughput, latency, loss, burst, soak, scale, reload, faults, interconnect, validate, pktgen,
    /// instructions; all arguments passed through.
    Bench(bench::Options),
    /// Make one HTML page of the benchmarks' results in a directory; all arguments passed through.
    Report(report::Options),
    /// Run tests, kernel pktgen or a shell on another kernel, with a real NIC driver, in a virtual machine.
    Vm(vm::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let paths = Paths::find()?;
    match command {
        Command::Setup(options) => setup::run(&paths, &options),
        Command::Build(options) => build::run(&paths, &options),
        Command::Test(options) => Ok(test::run(&paths, &options)),
        Command::Lint(options) => lint::run(&paths, &options),
        Command::Load(options) => load::run(&paths, &options),
        Command::Unload(options) => unload::run(&paths, &options),
        Command::Status(options) => status::run(&paths, &options),
        Command::Maps(options) => maps::run(&paths, &options),
        Command::Demo(options) => demo::run(&paths, &options),
        Command::Bench(options) => bench::run(&paths, &options),
        Command::Report(options) => report::run(&paths, &options),
        Command::Vm(options) => vm::run(&paths, &options),
    }
}

//! `dataplane-sim`: what a policy does to a cluster, before it is deployed.
#![forbid(unsafe_code)]

mod cell;
mod matrix;
mod settings;
mod traffic;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use dataplane_bench::results::Results;
use dataplane_bench::sim::reproduce::command::Reproduce;
use dataplane_common::policy::PolicyKind;

use self::cell::Cell;

/// Simulates a cluster with the decision code of the dataplane: the same scenario and seeds give the same figures.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Simulates one policy.
    Run {
        /// The policy.
        #[arg(long, default_value = "ept-erl")]
        policy: String,
        #[command(flatten)]
        cell: Cell,
    },
    /// Simulates several policies on the same packets.
    Compare {
        /// The policies, separated by commas; `all` = every one that can run on real nodes.
        #[arg(long, default_value = "all")]
        policies: String,
        #[command(flatten)]
        cell: Cell,
    },
    /// Simulates policies and bounds in many cells and writes a report.
    Matrix(matrix::Options),
    /// Runs published experiments: their figure, ours, and what differs.
    Reproduce(Reproduce),
    /// Writes a page of results from the files of matrix, reproduce, validate and demo.
    Results(Results),
}

fn main() -> ExitCode {
    let result = match Options::parse().command {
        Command::Run { policy, cell } => policy_of(&policy).and_then(|policy| cell.run(&[policy])),
        Command::Compare { policies, cell } => policies_of(&policies).and_then(|policies| cell.run(&policies)),
        Command::Matrix(options) => options.run(),
        Command::Reproduce(reproduce) => reproduce.run(),
        Command::Results(results) => results.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The policies of a list of names; `all` = every one that can run on real nodes.
fn policies_of(names: &str) -> Result<Vec<PolicyKind>> {
    if names == "all" {
        return Ok(PolicyKind::ALL.iter().copied().filter(|kind| kind.homes().has_worker()).collect());
    }
    names.split(',').map(policy_of).collect()
}

fn policy_of(name: &str) -> Result<PolicyKind> {
    PolicyKind::from_name(name).with_context(|| {
        let names: Vec<&str> = PolicyKind::ALL.iter().map(|kind| kind.name()).collect();
        format!("no policy {name}; there are {}", names.join(", "))
    })
}

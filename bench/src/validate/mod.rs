//! `dataplane-bench validate`: the simulator against the namespace cluster, on the same packets.
//!
//! Each policy runs on the cluster; then the simulator gets the packets of the same rounds (times, nodes, flows, kinds) and
//! the costs that were measured in them, and the two outcomes stand side by side. No cost is guessed:
//!
//! | cost | where it is measured |
//! |---|---|
//! | time in a function, by kind | what the workers of the round measured ([`costs`]) |
//! | speed of a node | its fitted costs against those of all |
//! | time of a worker outside functions | the workers' steps with packets, less the time in functions |
//! | sending, receiving, wire | what the nodes of the round had measured at its end ([`Signals`](crate::status::Signals)) |
//! | from the generator to a worker and back, waking a worker | packets without work, one at a time ([`way`]) |
//! | lateness of the generator | the generator itself, in the round |
//!
//! With fewer cores than nodes + 1 all kinds but the checksum are emulated: nodes that compute on one core would slow each
//! other down, which is no property of the dataplane and which the simulator does not model.

mod costs;
mod model;
mod outcome;
mod way;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;
use dataplane_common::policy::PolicyKind;

use self::costs::Costs;
pub use self::outcome::{Outcome, SCHEMA};
use self::outcome::{PolicyOutcome, RoundOutcome};
use crate::autogroup::Favoured;
use crate::command;
use crate::demo::setup::{Order, Setup};
use crate::demo::{self, round};
use crate::environment::Environment;
use crate::interrupt::Interrupt;
use crate::peers;
use crate::topology::{self, BPFFS, Cluster, Purpose, Shape};

/// Options of `validate`.
#[derive(Args, Debug)]
pub struct Options {
    /// Policies, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "local,cpu-load,ept-erl,sooner")]
    policies: Vec<String>,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=i64::from(topology::MAX_NODES)))]
    nodes: u16,
    /// Measured seconds of each policy, all rounds together.
    #[arg(long, default_value_t = 7.5)]
    seconds: f64,
    /// Turns of each policy.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Load of node 1 if it had to compute everything that arrives there: 1 = always busy [default: as in the
    /// demonstration].
    #[arg(long)]
    load: Option<f64>,
    /// Whether results of a flow leave in the order of its packets.
    #[arg(long, value_enum, default_value_t = Order::Flow)]
    order: Order,
    /// Seed of the traffic; round r uses the seed + r.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Largest difference of the means that passes, percent.
    #[arg(long, default_value_t = 15.0)]
    tolerance: f64,
    /// Where to write validate.json.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,
}

impl Options {
    /// The demonstration that the cluster plays.
    fn demo(&self) -> demo::Options {
        demo::Options {
            nodes: self.nodes,
            seconds: Some(self.seconds),
            policies: self.policies.clone(),
            order: self.order,
            rounds: Some(self.rounds),
            seed: self.seed,
            load: self.load,
            ..demo::Options::default()
        }
    }
}

/// Runs the cluster and the simulator, prints the table and writes `validate.json`. A difference that is too large is
/// printed and no error.
///
/// # Errors
/// Something cannot be set up or fails, or this process was interrupted.
pub fn run(options: &Options, interrupt: &Interrupt) -> Result<()> {
    ensure!(options.tolerance > 0.0, "--tolerance {}: more than 0", options.tolerance);
    let environment = Environment::take();
    let setup = Setup::of(&options.demo(), &environment, true)?;
    for cluster in topology::remove_stale(Path::new(BPFFS))? {
        eprintln!("removed {cluster}, left by a run that was killed");
    }
    let _favoured = Favoured::take();
    let mut cluster = Cluster::build(Shape::new(Purpose::Bench, setup.nodes))?;
    let way = way::measure(&mut cluster, &setup, interrupt).context("packets without work")?;
    eprintln!("{}", way.line());
    let mut policies: Vec<PolicyOutcome> = setup.policies.iter().map(|name| PolicyOutcome::new(name)).collect();
    let count = policies.len();
    for number in 0..setup.rounds {
        for turn in 0..count {
            let policy = &mut policies[(turn + number as usize) % count];
            let kind = PolicyKind::from_name(&policy.policy).context("BUG: a policy without a name")?;
            let round = round::run_again(&mut cluster, &setup, &policy.policy, number, interrupt)
                .with_context(|| format!("round {}, {}", number + 1, policy.policy))?;
            let costs = Costs::of(&setup, &round)?;
            let simulated = model::simulate(&setup, number, kind, &costs, &way)?;
            let outcome = RoundOutcome::new(&round, &simulated, costs, &way);
            eprintln!("round {} of {}, {}: {}", number + 1, setup.rounds, policy.policy, outcome.line());
            policy.rounds.push(outcome);
        }
    }
    drop(cluster);
    let command = command::own_line();
    let outcome = Outcome::new(environment, command, setup, way, options.tolerance, policies);
    print!("\n{}", outcome.text());
    peers::write(&options.out, "validate.json", &outcome)
}

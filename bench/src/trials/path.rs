//! What the benchmarks on the path of `peers` have in common: options, the lab, the generator's ceiling.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use serde::Serialize;

use crate::environment::Environment;
use crate::generate::Kind;
use crate::interrupt::Interrupt;
use crate::peers::contender::{Contender, Settings};
use crate::peers::lab::Lab;
use crate::peers::{self, measure};
use crate::throughput::device::{self, Tested};
use crate::throughput::{CEILING_WINDOW, chosen};
use crate::topology::{self, BPFFS};

/// Options of every benchmark on that path.
#[derive(Args, Clone, Debug, Serialize)]
pub struct PathOptions {
    /// Nominal size of the frames, bytes, frame check sequence included.
    #[arg(long, default_value_t = 64)]
    pub size: usize,
    /// Policies the dataplane runs, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "ept-erl")]
    pub policies: Vec<String>,
    /// Contenders whose name holds one of these texts, separated by commas; "all" for every one.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "devmap redirect,dataplane redirect,by hand answer,dataplane answer"
    )]
    pub only: Vec<String>,
    /// What sends: live, xsk, pktgen, or pcap:FILE.
    #[arg(long, default_value_t = Kind::Live)]
    pub generator: Kind,
    /// Where to write the trials.
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    #[serde(skip)]
    pub out: PathBuf,
}

/// The lab, and what was found out about it.
pub struct Bench {
    /// Namespaces and receivers.
    pub lab: Lab,
    /// The machine.
    pub environment: Environment,
    /// What contenders are told.
    pub settings: Settings,
    /// Who is tested.
    pub contenders: Vec<Contender>,
    /// What the generator delivers to a program that only drops, frames per second.
    pub ceiling: f64,
    generator: Kind,
}

impl Bench {
    /// Builds the lab and measures the generator's ceiling.
    ///
    /// # Errors
    /// An option makes no sense, the generator is absent, or the lab cannot be built.
    pub fn build(options: &PathOptions, interrupt: &Interrupt) -> Result<Self> {
        let contenders = chosen(&options.policies, &options.only)?;
        let generator = options.generator.clone();
        if let Some(reason) = generator.absence() {
            bail!("generator {generator}: {reason}");
        }
        for cluster in topology::remove_stale(Path::new(BPFFS))? {
            eprintln!("removed {cluster}, left by a run that was killed");
        }
        let environment = Environment::take();
        let settings = peers::settings(options.size, &generator, environment.cores);
        let mut lab = Lab::build(peers::own_program()?)?;
        let sample = measure::run(&mut lab, &Contender::Drop, &settings, (&generator, CEILING_WINDOW), interrupt)?;
        let ceiling = sample.rate;
        eprintln!("generator {generator}: {:.3} Mpps on this path, all dropped", ceiling / 1e6);
        Ok(Self { lab, environment, settings, contenders, ceiling, generator })
    }

    /// Runs `test` on a started contender. One that does not start, or fails, is named and no error; an interrupt is.
    ///
    /// # Errors
    /// This process was interrupted.
    pub fn with<T>(
        &mut self,
        contender: &Contender,
        interrupt: &Interrupt,
        test: impl FnOnce(&mut device::Path<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let settings = &self.settings;
        let tested = Tested { lab: &mut self.lab, contender, settings, generator: &self.generator, interrupt };
        let outcome = tested.run(test);
        interrupt.check()?;
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                eprintln!("{}: {error:#}", contender.name());
                Ok(None)
            }
        }
    }
}

//! Options for traffic that was recorded.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use dataplane_bench::sim::Scenario;
use dataplane_bench::sim::recording::{ArriveBy, Costs, Recording};

/// A capture whose active packets are the traffic.
#[derive(Args)]
pub struct Recorded {
    /// Plays the active packets of a capture, pcap or pcapng: their times, lengths, flows, classes and keys.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["workload", "service_us", "ingress", "flows", "flow_skew", "keys", "classes"]
    )]
    trace: Option<PathBuf>,
    /// Cost of a function, by name or type id: ns a packet, and ns a unit (byte, operand, or byte and round); may be
    /// repeated. Without it, what a node assumes until it has measured.
    #[arg(long = "cost", value_name = "FUNCTION=A_NS[,B_NS]", requires = "trace")]
    costs: Vec<String>,
    /// What decides at which node a packet of the capture arrives.
    #[arg(long, value_enum, default_value_t = Arrive::Flow, requires = "trace")]
    arrive_by: Arrive,
}

#[derive(Clone, Copy, ValueEnum)]
enum Arrive {
    /// A hash of its flow.
    Flow,
    /// A hash of its destination address.
    Destination,
    /// The interface that captured it.
    Interface,
}

impl Recorded {
    /// `scenario` with the capture as its traffic, if there is one: as fast as recorded or at `load`, the first `packets` of
    /// it or all.
    ///
    /// # Errors
    /// The capture cannot be used, or has fewer packets.
    pub fn play(&self, scenario: Scenario, load: Option<f64>, packets: Option<u64>) -> Result<Scenario> {
        let Some(path) = &self.trace else {
            return Ok(scenario);
        };
        ensure!(load.is_none_or(|load| load > 0.0 && load < 100.0), "--load: more than 0 and less than 100");
        let mut costs = Costs::default();
        self.costs.iter().try_for_each(|cost| costs.set(cost))?;
        let arrive_by = match self.arrive_by {
            Arrive::Flow => ArriveBy::Flow,
            Arrive::Destination => ArriveBy::Destination,
            Arrive::Interface => ArriveBy::Interface,
        };
        let recording = Recording::read(path, &costs, arrive_by)?;
        eprintln!("{}: {}", path.display(), recording.summary());
        let packets = packets.unwrap_or(recording.packets.len() as u64);
        Ok(Scenario { packets, ..scenario.playing(Arc::new(recording), load) })
    }
}

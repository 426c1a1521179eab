//! Options of `demo`.

use std::path::PathBuf;

use clap::Args;

use super::pattern::Pattern;
use super::setup::{Compute, Discipline, Order};
use crate::chaos::Chaos;
use crate::topology::MAX_NODES;

/// Options of `demo`.
#[derive(Args, Debug)]
pub struct Options {
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=i64::from(MAX_NODES)))]
    pub nodes: u16,
    /// Measured seconds of each policy, all rounds together [default: 9; in a sweep, at each share, 1.5].
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Policies, separated by commas; "all" for every one that runs here [default: local,cpu-load,ept,ept-erl,sooner; in a
    /// sweep cpu-load,ept-erl,sooner].
    #[arg(long, value_delimiter = ',')]
    pub policies: Vec<String>,
    /// Which packets come, where, and when.
    #[arg(long, value_enum, default_value_t = Pattern::Mixed)]
    pub workload: Pattern,
    /// Whether results of a flow leave in the order of its packets.
    #[arg(long, value_enum, default_value_t = Order::Flow)]
    pub order: Order,
    /// In which order workers serve what waits.
    #[arg(long, value_enum, default_value_t = Discipline::Fifo)]
    pub discipline: Discipline,
    /// Idle workers ask other nodes for work.
    #[arg(long)]
    pub pull: bool,
    /// Flows that arrive at each node.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub flows: u16,
    /// Compute heavy packets really, or emulate them [default: real with more cores than nodes].
    #[arg(long, value_enum)]
    pub compute: Option<Compute>,
    /// Turns of each policy [default: 3; in a sweep 1].
    #[arg(long)]
    pub rounds: Option<u32>,
    /// Seconds of traffic before each measurement.
    #[arg(long, default_value_t = 0.6)]
    pub warm_up: f64,
    /// Seed of the traffic.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Load of node 1 if it had to compute everything that arrives there: 1 = always busy [default: 0.85, real: 0.8; skewed:
    /// 1.5].
    #[arg(long)]
    pub load: Option<f64>,
    /// Share of the packets that arrive at node 1 [default: 0.6; with two nodes 0.75; skewed: 0.9].
    #[arg(long)]
    pub share: Option<f64>,
    /// Time between two load reports, µs [default: 2000; with two nodes 500].
    #[arg(long)]
    pub report_interval: Option<u64>,
    /// Put a box into every link that does this to its frames, for example drop=5%,duplicate=1%,reorder=1%,corrupt=0.1%,
    /// delay=1%:2ms,kinds=forward+result,seed=7. Each frame meets one fate at most.
    #[arg(long, value_name = "WHAT", conflicts_with_all = ["sweep", "keep"])]
    pub chaos: Option<Chaos>,
    /// How frames travel between nodes.
    #[arg(long, default_value = "xdp", value_parser = ["xdp", "xsk", "udp"])]
    pub transport: String,
    /// Run the policies over every transport in turns, and compare.
    #[arg(long, conflicts_with_all = ["transport", "sweep", "keep"])]
    pub transports: bool,
    /// Sweep the share of high computations from 0 to 100 %, at the same load, instead of playing one workload.
    #[arg(long, conflicts_with_all = ["workload", "keep"])]
    pub sweep: bool,
    /// Where to write result.json and latency.svg; in a sweep sweep.json and sweep.svg, of all transports transports.json and
    /// transports.svg.
    #[arg(long, value_name = "DIR", default_value = "target/demo")]
    pub out: PathBuf,
    /// Leave the cluster running after the last policy.
    #[arg(long)]
    pub keep: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 3,
            seconds: None,
            policies: Vec::new(),
            workload: Pattern::Mixed,
            order: Order::Flow,
            discipline: Discipline::Fifo,
            pull: false,
            flows: 64,
            compute: None,
            rounds: None,
            warm_up: 0.6,
            seed: 1,
            load: None,
            share: None,
            report_interval: None,
            chaos: None,
            transport: "xdp".to_owned(),
            transports: false,
            sweep: false,
            out: PathBuf::from("target/demo"),
            keep: false,
        }
    }
}

impl Options {
    /// Measured time of each policy, s.
    pub fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.sweep { 1.5 } else { 9.0 })
    }

    /// Turns of each policy.
    pub fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(if self.sweep { 1 } else { 3 })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn the_default_is_that_of_the_command_line() {
        let line = Line::parse_from(["demo"]).options;
        assert_eq!(format!("{line:?}"), format!("{:?}", Options::default()));
        assert_eq!((line.seconds(), line.rounds()), (9.0, 3));
        let sweep = Line::parse_from(["demo", "--sweep"]).options;
        assert_eq!((sweep.seconds(), sweep.rounds()), (1.5, 1));
    }
}

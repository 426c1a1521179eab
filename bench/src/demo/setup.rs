//! From options to everything that is fixed before the first packet: kinds of packets, rates, CPUs, intervals.

use std::num::{NonZeroU64, TryFromIntError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use dataplane_common::policy::{Needs, PolicyKind};
use dataplane_common::tuning;
use dataplane_common::wire::route::ROUTE_BYTES;
use dataplane_user::functions::{Builtin, Call};
use rustix::thread::set_current_timer_slack;
use serde::Serialize;

use super::options::Options;
use super::pattern::Pattern;
use crate::chaos::Chaos;
use crate::environment::Environment;
use crate::packet::PROBE_BYTES;
use crate::topology::{NodeSettings, Purpose, Scheduling, Shape};
use crate::traffic::{Kind, Workload};

/// What computes the heavy packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Compute {
    /// Real computations on the CPU; wants a core per node and one for the rest.
    Real,
    /// The heavy kind occupies the worker without using the CPU, so that any machine can run any number of nodes.
    Emulated,
}

/// Whether results of a flow leave in the order of its packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// They do.
    Flow,
    /// They leave as soon as they are there.
    None,
}

impl Order {
    /// The functions of a node as its configuration has them. A node that `is_slow` takes its time for `hold`.
    pub fn sections(self, is_slow: bool) -> String {
        let order = match self {
            Self::Flow => "flow",
            Self::None => "none",
        };
        let section = |function: &Builtin| {
            let type_id = function.type_id();
            let function = if is_slow && *function == Builtin::Hold { &Builtin::SlowHold } else { function };
            format!("[[function]]\nname = \"{}\"\ntype_id = {type_id}\norder = \"{order}\"\n", function.name())
        };
        let known = Builtin::ALL.iter().filter(|function| !is_slow || **function != Builtin::SlowHold);
        known.map(section).collect::<Vec<_>>().join("\n")
    }
}

/// In which order workers serve what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Discipline {
    /// As it arrived.
    Fifo,
    /// The shortest estimate first, with ageing.
    Shortest,
}

impl Discipline {
    /// Its number among the policies' settings.
    pub const fn id(self) -> u32 {
        match self {
            Self::Fifo => tuning::FIFO,
            Self::Shortest => tuning::SHORTEST,
        }
    }

    /// Its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Shortest => "shortest",
        }
    }
}

/// What stands for every policy that the demonstration can run.
const ALL: &str = "all";
/// Policies that run unless others are asked for: those of the thesis, and the one that is to beat them.
const DEFAULT: [PolicyKind; 5] =
    [PolicyKind::Local, PolicyKind::CpuLoad, PolicyKind::Ept, PolicyKind::EptErl, PolicyKind::Sooner];

/// Length of every frame, bytes: the same for all, so that bytes on the links follow from frames.
const FRAME_BYTES: usize = 554;
/// Service time the light kind is to have.
const LIGHT: Duration = Duration::from_micros(100);
/// Service time the heavy kind is to have.
const HEAVY: Duration = Duration::from_millis(1);
/// Time spent on calibrating each kind.
const CALIBRATION: Duration = Duration::from_millis(60);

/// Everything that is fixed before the first packet.
#[derive(Clone, Debug, Serialize)]
pub struct Setup {
    /// Nodes.
    pub nodes: u16,
    /// What computes the heavy packets.
    pub compute: Compute,
    /// Policies, in the order of the output.
    pub policies: Vec<String>,
    /// Which packets come, where, and when.
    pub pattern: Pattern,
    /// Whether results keep the order of their flows.
    pub order: Order,
    /// In which order workers serve what waits.
    pub discipline: Discipline,
    /// Whether idle workers ask other nodes for work.
    pub pull: bool,
    /// Flows per node.
    pub flows: u16,
    /// Every policy runs so many times, in turns.
    pub rounds: u32,
    /// Measured time of each run, s.
    pub measured_s: f64,
    /// Time before it, not measured, s.
    pub warm_up_s: f64,
    /// Seed; round r uses seed + r, for every policy alike.
    pub seed: u64,
    /// CPU of each node's worker.
    pub cpus: Vec<usize>,
    /// How the kernel schedules the nodes.
    pub scheduling: Scheduling,
    /// Time between two load reports under load, µs.
    pub report_interval_us: u64,
    /// How frames travel between nodes.
    pub transport: String,
    /// What happens to frames on the links; `None`: nothing, and there is no box in them.
    pub chaos: Option<Chaos>,
    /// Bytes of every frame.
    pub frame_bytes: usize,
    /// Kinds of packets.
    pub mix: Vec<Kind>,
    /// Each node's share of the arrivals.
    pub arrival_shares: Vec<f64>,
    /// Arrivals per second at all nodes together.
    pub rate_per_s: f64,
    /// Load of each node if every packet were computed where it arrives.
    pub offered_loads: Vec<f64>,
    /// Load of the whole cluster.
    pub offered_load: f64,
}

impl Setup {
    /// Resolves the options for this machine, and calibrates the kinds of packets on it.
    ///
    /// # Errors
    /// An option makes no sense.
    pub fn new(options: &Options, environment: &Environment) -> Result<Self> {
        Self::of(options, environment, options.workload.holds_light())
    }

    /// As [`Self::new`]; where heavy packets are emulated, so are light ones with `holds_light`.
    ///
    /// # Errors
    /// An option makes no sense.
    pub fn of(options: &Options, environment: &Environment, holds_light: bool) -> Result<Self> {
        let nodes = options.nodes;
        let pattern = options.workload;
        let is_slow = pattern.slowness() > 1;
        let compute = options.compute.unwrap_or(match environment.cores > usize::from(nodes) && !is_slow {
            true => Compute::Real,
            false => Compute::Emulated,
        });
        ensure!(
            compute == Compute::Emulated || !is_slow,
            "--compute real: a slow node is emulated; leave it out or choose another --workload"
        );
        // What all transports are compared by must run over each of them.
        let in_workers = options.transport != "xdp" && !options.transports;
        let policies = policies(&options.policies, options.pull, in_workers)?;
        let (rounds, seconds) = (options.rounds(), options.seconds());
        ensure!(rounds > 0, "--rounds 0: nothing to do");
        ensure!(seconds > 0.0 && seconds.is_finite(), "--seconds {seconds}: not a duration");
        let share = options.share.unwrap_or(pattern.share(nodes));
        ensure!((0.0..=1.0).contains(&share), "--share {share}: not between 0 and 1");
        let load = options.load.unwrap_or(pattern.load(compute));
        ensure!(load > 0.0 && load.is_finite(), "--load {load}: not a load");
        let mix = mix(pattern, compute, holds_light)?;
        let mut arrival_shares = vec![(1.0 - share) / f64::from(nodes - 1); usize::from(nodes)];
        arrival_shares[0] = share;
        let mut setup = Self {
            nodes,
            compute,
            policies,
            pattern,
            order: options.order,
            discipline: options.discipline,
            pull: options.pull,
            flows: options.flows,
            rounds,
            measured_s: seconds / f64::from(rounds),
            warm_up_s: options.warm_up,
            seed: options.seed,
            cpus: (0..usize::from(nodes)).map(|node| cpu(node, environment.cores)).collect(),
            scheduling: Scheduling::RealTime,
            // With one other node an estimate that is not drained between reports soon outweighs what it knows.
            report_interval_us: options.report_interval.unwrap_or(if nodes == 2 { 500 } else { 2000 }),
            transport: options.transport.clone(),
            chaos: options.chaos,
            frame_bytes: FRAME_BYTES,
            mix,
            arrival_shares,
            rate_per_s: 1.0,
            offered_loads: Vec::new(),
            offered_load: 0.0,
        };
        setup.offer(load)?;
        Ok(setup)
    }

    /// Sets the rate at which node 1 has this load if it computes everything that arrives there.
    ///
    /// # Errors
    /// As [`Self::workload`].
    pub fn offer(&mut self, load: f64) -> Result<()> {
        self.rate_per_s = 1.0;
        // At one packet a second node 1 has this load; the rate makes it the one asked for.
        let rate_per_s = load / self.workload(0)?.nominal_load(0);
        self.send(rate_per_s)
    }

    /// Sets the rate.
    ///
    /// # Errors
    /// As [`Self::workload`].
    pub fn send(&mut self, rate_per_s: f64) -> Result<()> {
        self.rate_per_s = rate_per_s;
        let workload = self.workload(0)?;
        let loads = (1..=self.nodes).zip(0..);
        self.offered_loads =
            loads.map(|(node, index)| workload.nominal_load(index) * f64::from(self.slowness(node))).collect();
        let speeds = (1..=self.nodes).map(|node| 1.0 / f64::from(self.slowness(node))).sum::<f64>();
        self.offered_load = workload.nominal_cluster_load() * f64::from(self.nodes) / speeds;
        Ok(())
    }

    /// Traffic of one round, the same for every policy.
    ///
    /// # Errors
    /// The times are no durations.
    pub fn workload(&self, round: u32) -> Result<Workload> {
        Ok(Workload {
            kinds: self.mix.clone(),
            node_weights: self.arrival_shares.clone(),
            rate_per_s: self.rate_per_s,
            flows: self.flows,
            burst: self.pattern.burst(),
            frame_bytes: self.frame_bytes,
            warm_up: Duration::try_from_secs_f64(self.warm_up_s)?,
            measured: Duration::try_from_secs_f64(self.measured_s)?,
            seed: self.seed + u64::from(round),
        })
    }

    /// How a node is to run under a policy.
    pub fn node_settings(&self, node: u16, policy: &str) -> NodeSettings {
        let interval = Duration::from_micros(self.report_interval_us);
        NodeSettings {
            report_interval: interval,
            idle_interval: interval,
            scheduling: self.scheduling,
            discipline: self.discipline.name().to_owned(),
            pull: self.pull,
            extra: self.order.sections(self.slowness(node) > 1),
            transport: self.transport.clone(),
            ..NodeSettings::new(policy, self.cpus[usize::from(node) - 1])
        }
    }

    /// Bytes in front of the interconnect header on a link, Ethernet left out.
    pub fn route_bytes(&self) -> usize {
        if self.transport == "udp" { ROUTE_BYTES } else { 0 }
    }

    /// How many times as long as the fastest a node takes for a packet.
    fn slowness(&self, node: u16) -> u32 {
        if node == self.nodes { self.pattern.slowness() } else { 1 }
    }

    /// The cluster to run in.
    pub fn shape(&self) -> Shape {
        let shape = Shape::new(Purpose::Demo, self.nodes);
        if self.chaos.is_some() { shape.with_cables() } else { shape }
    }

    /// Names of the kinds whose computation is emulated.
    pub fn emulated(&self) -> Vec<&str> {
        self.mix.iter().filter(|kind| kind.emulated).map(|kind| kind.name.as_str()).collect()
    }
}

/// CPU of the worker of the node with this index: node 1, which gets most packets, has one to itself if it can.
fn cpu(node: usize, cores: usize) -> usize {
    match (node, cores) {
        (0, _) | (_, 0 | 1) => 0,
        _ => 1 + (node - 1) % (cores - 1),
    }
}

/// Why the demonstration cannot run a policy that workers or XDP programs decide by; `None` when it can.
fn obstacle(policy: PolicyKind, pull: bool, in_workers: bool) -> Option<&'static str> {
    let (homes, needs) = (policy.homes(), policy.needs());
    if in_workers && !homes.has_worker() {
        Some("it does not run in workers")
    } else if !in_workers && !homes.has_xdp() {
        Some("it does not run in XDP")
    } else if needs.has(Needs::PROBES) {
        Some("it needs probes, which nodes do not send")
    } else if needs.has(Needs::PULL) && !pull {
        Some("it needs workers that pull (--pull)")
    } else {
        None
    }
}

/// The policies of these names, each once.
fn policies(wanted: &[String], pull: bool, in_workers: bool) -> Result<Vec<String>> {
    let runnable = || PolicyKind::ALL.iter().copied().filter(|policy| obstacle(*policy, pull, in_workers).is_none());
    let mut kinds: Vec<PolicyKind> = Vec::new();
    for name in wanted {
        if name == ALL {
            kinds.extend(runnable());
            continue;
        }
        let names = || runnable().map(PolicyKind::name).collect::<Vec<_>>().join(", ");
        let kind = PolicyKind::from_name(name).with_context(|| format!("no policy {name}; there are {}", names()))?;
        if let Some(why) = obstacle(kind, pull, in_workers) {
            bail!("policy {name} cannot be shown here: {why}; there are {}", names());
        }
        kinds.push(kind);
    }
    if kinds.is_empty() {
        kinds.extend(DEFAULT);
    }
    let mut names: Vec<String> = Vec::new();
    for kind in kinds {
        if !names.iter().any(|known| known == kind.name()) {
            names.push(kind.name().to_owned());
        }
    }
    Ok(names)
}

/// The kinds of packets, with operands and nominal service times found by trying them out on this machine.
fn mix(pattern: Pattern, compute: Compute, holds_light: bool) -> Result<Vec<Kind>> {
    // On a thread of its own, which sleeps as exactly as a worker does.
    let calibration = thread::spawn(move || {
        set_current_timer_slack(NonZeroU64::new(1))?;
        calibrated_mix(pattern, compute, holds_light)
    });
    calibration.join().map_err(|_| anyhow!("BUG: calibration panicked"))?
}

fn calibrated_mix(pattern: Pattern, compute: Compute, holds_light: bool) -> Result<Vec<Kind>> {
    let round_ns = (service_ns(Builtin::Sha256, 64) / 64).max(1);
    let rounds = |time: Duration| u32::try_from(time.as_nanos() / u128::from(round_ns)).map(|rounds| rounds.max(1));
    let computed = |time: Duration| Ok::<_, TryFromIntError>((Builtin::Sha256, rounds(time)?));
    let emulated = |time: Duration| Ok::<_, TryFromIntError>((Builtin::Hold, u32::try_from(time.as_nanos())?));
    let light = match compute {
        Compute::Emulated if holds_light => emulated(LIGHT)?,
        _ => computed(LIGHT)?,
    };
    let heavy = match compute {
        Compute::Real => computed(HEAVY)?,
        Compute::Emulated => emulated(HEAVY)?,
    };
    let kind = |name: &str, function: Builtin, operand: Option<u32>, weight| Kind {
        name: name.to_owned(),
        function: function.name().to_owned(),
        operand,
        weight,
        nominal_ns: service_ns(function, operand.unwrap_or(0)),
        emulated: function == Builtin::Hold,
    };
    let [checksums, lights, heavies] = pattern.weights();
    let mut kinds = vec![
        kind("checksum", Builtin::Crc32, None, checksums),
        kind("light", light.0, Some(light.1), lights),
        kind("heavy", heavy.0, Some(heavy.1), heavies),
    ];
    kinds.retain(|kind| kind.weight > 0.0);
    Ok(kinds)
}

/// Median time that the function takes here, ns, for a payload like the demonstration's.
fn service_ns(function: Builtin, operand: u32) -> u64 {
    let mut payload = vec![0x5a; FRAME_BYTES - 14 - 20 - 8 - 8 - 2 * PROBE_BYTES];
    let mut result = vec![0; function.result_bytes()];
    let started = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || started.elapsed() < CALIBRATION {
        let start = Instant::now();
        function.compute(Call { payload: &mut payload, operand, result: &mut result });
        times.push(start.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    times[times.len() / 2]
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

    fn setup(line: &str, cores: usize) -> Result<Setup> {
        let options = Line::parse_from(format!("demo {line}").split_whitespace()).options;
        Setup::new(&options, &Environment { cores, ..Environment::take() })
    }

    #[test]
    fn few_cores_mean_emulation_and_it_is_labelled() {
        let emulated = setup("", 2).unwrap();
        assert_eq!((emulated.compute, emulated.emulated()), (Compute::Emulated, vec!["heavy"]));
        assert_eq!(emulated.cpus, [0, 1, 1]);
        let real = setup("", 4).unwrap();
        assert_eq!((real.compute, real.emulated().len()), (Compute::Real, 0));
        assert_eq!(real.cpus, [0, 1, 2]);
        assert_eq!(setup("--nodes 2 --compute real", 2).unwrap().cpus, [0, 1]);
    }

    #[test]
    fn node_one_gets_most_packets_and_the_load_asked_for() {
        let setup = setup("--load 0.8 --share 0.7", 2).unwrap();
        assert!((setup.offered_loads[0] - 0.8).abs() < 1e-9);
        assert!((setup.offered_loads[1] - 0.8 * 0.15 / 0.7).abs() < 1e-9);
        assert!((setup.arrival_shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn rounds_share_the_time_and_have_traffic_of_their_own() {
        let setup = setup("--seconds 6 --rounds 3 --seed 10", 2).unwrap();
        assert_eq!(setup.workload(2).unwrap().measured, Duration::from_secs(2));
        assert_eq!(setup.workload(2).unwrap().seed, 12);
    }

    #[test]
    fn chaos_puts_a_box_into_every_link() {
        assert!(setup("", 2).unwrap().shape().cables.is_empty());
        let setup = setup("--chaos drop=5%,delay=1%:2ms", 2).unwrap();
        assert_eq!(setup.shape().cables, [(1, 2), (1, 3), (2, 3)]);
        assert_eq!(
            setup.chaos.unwrap().to_string(),
            "drop=5%,delay=1%:2ms,kinds=other+forward+result+report+pull,seed=1"
        );
        for line in ["--chaos drop=5", "--chaos drop=5% --keep", "--chaos drop=5% --sweep"] {
            assert!(Line::try_parse_from(format!("demo {line}").split_whitespace()).is_err(), "{line}");
        }
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for line in ["--policies magic", "--rounds 0", "--seconds 0", "--share 1.5", "--load 0"] {
            assert!(setup(line, 2).is_err(), "{line}");
        }
        assert_eq!(setup("--policies ept,ept,local", 2).unwrap().policies, ["ept", "local"]);
    }

    #[test]
    fn all_policies_are_those_that_nodes_without_pull_can_run() {
        let all = policies(&["ept".to_owned(), ALL.to_owned()], false, false).unwrap();
        assert_eq!(all[0], "ept");
        let runnable = PolicyKind::ALL.iter().filter(|policy| obstacle(**policy, false, false).is_none()).count();
        assert_eq!(all.len(), runnable);
        assert!(DEFAULT.iter().all(|policy| all.iter().any(|name| name == policy.name())));
        for policy in PolicyKind::ALL {
            for (pull, in_workers) in [(false, false), (true, false), (false, true), (true, true)] {
                let is_shown = policies(&[policy.name().to_owned()], pull, in_workers).is_ok();
                assert_eq!(is_shown, obstacle(*policy, pull, in_workers).is_none(), "{policy:?}");
            }
        }
        assert_eq!(policies(&[], false, false).unwrap(), DEFAULT.map(PolicyKind::name));
    }

    #[test]
    fn patterns_have_their_kinds_and_loads() {
        let names = |setup: &Setup| setup.mix.iter().map(|kind| kind.name.clone()).collect::<Vec<_>>();
        let low = setup("--workload low", 2).unwrap();
        assert_eq!((names(&low), low.emulated()), (vec!["checksum".into(), "light".into()], vec!["light"]));
        let high = setup("--workload high", 2).unwrap();
        assert_eq!(names(&high), ["heavy"]);
        let half = setup("--workload half --share 0.5 --load 0.7", 2).unwrap();
        assert_eq!((names(&half), half.emulated()), (vec!["light".into(), "heavy".into()], vec!["heavy"]));
        assert!((half.offered_loads[0] - 0.7).abs() < 1e-9 && (half.arrival_shares[0] - 0.5).abs() < 1e-9);
        let skewed = setup("--workload skewed", 2).unwrap();
        assert!(skewed.offered_loads[0] > 1.0 && skewed.offered_load < 1.0, "{skewed:?}");
        assert!(setup("--workload bursty", 2).unwrap().workload(0).unwrap().burst.is_some());
        assert!(low.workload(0).unwrap().burst.is_none());
    }

    #[test]
    fn the_last_node_may_be_slow_and_only_its_functions_say_so() {
        for cores in [2, 8] {
            let setup = setup("--workload slow", cores).unwrap();
            assert_eq!((setup.compute, setup.emulated()), (Compute::Emulated, vec!["light", "heavy"]));
            assert!((setup.offered_loads[0] - 0.85).abs() < 1e-9 && setup.offered_loads[2] > 1.0, "{setup:?}");
            assert!((setup.offered_load - 0.85 / 0.6 / 2.25).abs() < 1e-9, "two nodes and a quarter: {setup:?}");
            let extra = |node| setup.node_settings(node, "sooner").extra;
            let hold = format!("name = \"hold\"\ntype_id = {}\n", Builtin::Hold.type_id());
            assert!(extra(1).contains(&hold) && extra(2).contains(&hold) && !extra(3).contains(&hold));
            let fast = extra(1);
            let (others, _) = fast.rsplit_once("\n[[function]]").unwrap();
            assert_eq!(extra(3).replace("slow-hold", "hold"), others);
        }
        assert!(setup("--workload slow --compute real", 8).is_err());
    }

    #[test]
    fn nodes_are_told_order_discipline_and_flows() {
        let default = setup("", 2).unwrap();
        assert_eq!((default.flows, default.order, default.discipline), (64, Order::Flow, Discipline::Fifo));
        let settings = default.node_settings(1, "ept");
        assert_eq!(settings.discipline, "fifo");
        assert_eq!(settings.extra.matches("order = \"flow\"").count(), Builtin::ALL.len());
        let setup = setup("--order none --discipline shortest --flows 8", 2).unwrap();
        assert_eq!(setup.workload(0).unwrap().flows, 8);
        let settings = setup.node_settings(1, "ept");
        assert_eq!(settings.discipline, "shortest");
        assert_eq!(settings.extra.matches("order = \"none\"").count(), Builtin::ALL.len());
    }
}

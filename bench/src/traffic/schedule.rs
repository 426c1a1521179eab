//! What is sent and when: kinds of packets, their mix, and the arrival times, all fixed before the first packet leaves.
//!
//! Open loop: nothing that the cluster does changes when the next packet is sent, so a slow answer delays no question and
//! the latency of every packet counts (no coordinated omission).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dataplane_user::functions::Builtin;
use serde::{Deserialize, Serialize};

use super::random::Random;

/// A kind of packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    /// Name in output.
    pub name: String,
    /// Function it names.
    pub function: String,
    /// Operand, for functions that take one.
    pub operand: Option<u32>,
    /// Its part of the packets, relative to the other kinds'.
    pub weight: f64,
    /// Service time it is taken to have, for the choice of a rate; never used as a result.
    pub nominal_ns: u64,
    /// Whether the computation is emulated: the worker is occupied, the CPU is not.
    pub emulated: bool,
}

impl Kind {
    /// Packets that are sent back as they are: what is left is the way.
    pub fn without_work() -> Self {
        let name = Builtin::Forward.name();
        Self {
            name: name.to_owned(),
            function: name.to_owned(),
            operand: None,
            weight: 1.0,
            nominal_ns: 1_000,
            emulated: false,
        }
    }

    /// The function.
    ///
    /// # Errors
    /// There is none of that name.
    pub fn builtin(&self) -> Result<Builtin> {
        Builtin::from_name(&self.function).with_context(|| format!("no function {} for {}", self.function, self.name))
    }
}

/// Traffic for a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Kinds of packets.
    pub kinds: Vec<Kind>,
    /// Each node's part of the arrivals, by node, relative to the others'.
    pub node_weights: Vec<f64>,
    /// Arrivals per second at all nodes together.
    pub rate_per_s: f64,
    /// Flows (UDP source ports) per node, of equal rate.
    pub flows: u16,
    /// Mean length of the bursts in which the packets of each node come; without it they come at any time.
    pub burst: Option<Duration>,
    /// Length of every frame, bytes.
    pub frame_bytes: usize,
    /// First part of the run: sent, answered, accounted for, but not measured, so that estimates and queues settle.
    pub warm_up: Duration,
    /// Second part: measured.
    pub measured: Duration,
    /// Seed of arrival times and mix.
    pub seed: u64,
}

impl Workload {
    /// Mean service time of a packet by the kinds' nominal times, ns.
    pub fn mean_service_ns(&self) -> f64 {
        let weight = self.kinds.iter().map(|kind| kind.weight).sum::<f64>();
        self.kinds.iter().map(|kind| kind.weight * kind.nominal_ns as f64).sum::<f64>() / weight
    }

    /// Nominal load of a node when every packet is computed where it arrives: 1 = always busy.
    pub fn nominal_load(&self, node_index: usize) -> f64 {
        let share = self.node_weights[node_index] / self.node_weights.iter().sum::<f64>();
        self.rate_per_s * share * self.mean_service_ns() / 1e9
    }

    /// Nominal load of the whole cluster.
    pub fn nominal_cluster_load(&self) -> f64 {
        self.rate_per_s * self.mean_service_ns() / 1e9 / self.node_weights.len() as f64
    }
}

/// Share of the time in which a node has a burst, if its packets come in bursts.
const DUTY: f64 = 0.25;

/// Bursts of one node: their lengths and the gaps between them have exponential distributions.
#[derive(Debug)]
struct Bursts {
    mean_ns: f64,
    is_on: bool,
    until_ns: f64,
}

impl Bursts {
    fn new(mean: Duration, random: &mut Random) -> Self {
        let mut bursts = Self { mean_ns: mean.as_nanos() as f64, is_on: random.unit() < DUTY, until_ns: 0.0 };
        bursts.until_ns = bursts.length_ns(random);
        bursts
    }

    /// Draws how long it stays as it is.
    fn length_ns(&self, random: &mut Random) -> f64 {
        let off_to_on = (1.0 - DUTY) / DUTY;
        random.exponential(self.mean_ns * if self.is_on { 1.0 } else { off_to_on })
    }

    /// Whether there is one at a time; ask in the order of time.
    fn is_on_at(&mut self, at_ns: f64, random: &mut Random) -> bool {
        while self.until_ns <= at_ns {
            self.is_on = !self.is_on;
            self.until_ns += self.length_ns(random);
        }
        self.is_on
    }
}

/// One packet to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, ns after the start.
    pub at_ns: u64,
    /// Index of its kind.
    pub kind: u16,
    /// Index (not id) of the node it goes to.
    pub node: u16,
    /// Flow at that node.
    pub flow: u16,
}

/// Every packet of a run, in the order of sending; a packet's sequence number is its index.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    arrivals: Vec<Arrival>,
    /// Index of the first measured packet.
    first_measured: usize,
}

impl Schedule {
    /// Draws the arrivals: Poisson in time (in bursts: while a node has one), kind, node and flow independent of each other.
    ///
    /// # Errors
    /// The workload has no kinds, nodes, flows or rate, or bursts without length.
    pub fn new(workload: &Workload) -> Result<Self> {
        let is_positive = |weights: &[f64]| weights.iter().all(|w| *w >= 0.0) && weights.iter().sum::<f64>() > 0.0;
        let kind_weights = workload.kinds.iter().map(|kind| kind.weight).collect::<Vec<_>>();
        ensure!(is_positive(&kind_weights), "no kind of packet has a weight");
        ensure!(is_positive(&workload.node_weights), "no node gets packets");
        ensure!(workload.rate_per_s > 0.0 && workload.rate_per_s.is_finite(), "rate {}/s", workload.rate_per_s);
        ensure!(workload.flows > 0, "no flows");
        ensure!(workload.burst.is_none_or(|mean| !mean.is_zero()), "bursts without length");
        let mut random = Random::new(workload.seed);
        let each = |mean| workload.node_weights.iter().map(|_| Bursts::new(mean, &mut random)).collect::<Vec<_>>();
        let mut bursts = workload.burst.map(each);
        // Packets that fall between bursts are left out below.
        let gap_ns = if bursts.is_some() { DUTY } else { 1.0 } * 1e9 / workload.rate_per_s;
        let warm_up_ns = workload.warm_up.as_nanos() as f64;
        let end_ns = warm_up_ns + workload.measured.as_nanos() as f64;
        let mut arrivals = Vec::with_capacity((end_ns / gap_ns * 1.1) as usize);
        let mut at_ns = random.exponential(gap_ns);
        while at_ns < end_ns {
            let arrival = Arrival {
                at_ns: at_ns as u64,
                kind: random.weighted(&kind_weights) as u16,
                node: random.weighted(&workload.node_weights) as u16,
                flow: random.below(u64::from(workload.flows)) as u16,
            };
            let node = usize::from(arrival.node);
            if bursts.as_mut().is_none_or(|bursts| bursts[node].is_on_at(at_ns, &mut random)) {
                arrivals.push(arrival);
            }
            at_ns += random.exponential(gap_ns);
        }
        let first_measured = arrivals.partition_point(|arrival| (arrival.at_ns as f64) < warm_up_ns);
        Ok(Self { arrivals, first_measured })
    }

    /// The packets.
    pub fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    /// Whether the packet of this number is measured.
    pub fn is_measured(&self, sequence: usize) -> bool {
        sequence >= self.first_measured
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn workload() -> Workload {
        let kind = |name: &str, operand, weight, nominal_ns| Kind {
            name: name.to_owned(),
            function: name.to_owned(),
            operand,
            weight,
            nominal_ns,
            emulated: false,
        };
        Workload {
            kinds: vec![kind("crc32", None, 3.0, 1_000), kind("spin", Some(9_000), 1.0, 9_000)],
            node_weights: vec![3.0, 1.0],
            rate_per_s: 100_000.0,
            flows: 4,
            burst: None,
            frame_bytes: 200,
            warm_up: Duration::from_millis(200),
            measured: Duration::from_millis(800),
            seed: 7,
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_packets() {
        let schedule = Schedule::new(&workload()).unwrap();
        assert_eq!(schedule, Schedule::new(&workload()).unwrap());
        assert_ne!(schedule, Schedule::new(&Workload { seed: 8, ..workload() }).unwrap());
    }

    #[test]
    fn arrivals_have_the_asked_rate_mix_and_shares() {
        let schedule = Schedule::new(&workload()).unwrap();
        let n = schedule.arrivals().len() as f64;
        let share =
            |is: fn(&Arrival) -> bool| schedule.arrivals().iter().filter(|arrival| is(arrival)).count() as f64 / n;
        // Standard deviations: 316 of 100 000 arrivals, 0.0014 of the shares.
        assert!((n - 100_000.0).abs() < 1_500.0, "{n}");
        assert!((share(|arrival| arrival.kind == 1) - 0.25).abs() < 0.007);
        assert!((share(|arrival| arrival.node == 0) - 0.75).abs() < 0.007);
        assert!((share(|arrival| arrival.flow == 3) - 0.25).abs() < 0.007);
        assert!(schedule.arrivals().is_sorted_by_key(|arrival| arrival.at_ns));
    }

    #[test]
    fn gaps_are_those_of_a_poisson_process() {
        let schedule = Schedule::new(&workload()).unwrap();
        let gaps =
            schedule.arrivals().windows(2).map(|pair| (pair[1].at_ns - pair[0].at_ns) as f64).collect::<Vec<_>>();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // An exponential distribution has a standard deviation as large as its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.03, "{}", variance.sqrt() / mean);
    }

    #[test]
    fn bursts_keep_the_rate_and_the_shares_and_leave_gaps() {
        let burst = Some(Duration::from_millis(1));
        let schedule = Schedule::new(&Workload { burst, ..workload() }).unwrap();
        let of_node = |node| {
            let at = schedule.arrivals().iter().filter(|arrival| arrival.node == node).map(|arrival| arrival.at_ns);
            at.collect::<Vec<_>>()
        };
        let (first, second) = (of_node(0), of_node(1));
        // About 250 bursts of each node.
        let n = (first.len() + second.len()) as f64;
        assert!((n - 100_000.0).abs() < 20_000.0, "{n}");
        assert!((first.len() as f64 / n - 0.75).abs() < 0.1);
        // At any time 75 of them would come in a millisecond: no gap would be as long.
        let gaps = first.windows(2).filter(|pair| pair[1] - pair[0] > 1_000_000).count();
        assert!((100..400).contains(&gaps), "{gaps}");
        assert!(schedule.arrivals().is_sorted_by_key(|arrival| arrival.at_ns));
    }

    #[test]
    fn nodes_have_bursts_of_their_own() {
        let burst = Some(Duration::from_millis(5));
        let schedule = Schedule::new(&Workload { burst, ..workload() }).unwrap();
        let slots = |node| {
            let of_node = schedule.arrivals().iter().filter(move |arrival| arrival.node == node);
            of_node.map(|arrival| arrival.at_ns / 1_000_000).collect::<std::collections::BTreeSet<_>>()
        };
        let both = slots(0).intersection(&slots(1)).count() as f64;
        assert!(both < 0.6 * slots(1).len() as f64, "{both} of {}", slots(1).len());
    }

    #[test]
    fn measuring_begins_after_the_warm_up() {
        let schedule = Schedule::new(&workload()).unwrap();
        let first = (0..).find(|at| schedule.is_measured(*at)).unwrap();
        assert!(schedule.arrivals()[first].at_ns >= 200_000_000);
        assert!(schedule.arrivals()[first - 1].at_ns < 200_000_000);
    }

    #[test]
    fn nominal_loads_follow_mix_and_shares() {
        let workload = workload();
        assert!((workload.mean_service_ns() - 3_000.0).abs() < 1e-6);
        assert!((workload.nominal_load(0) - 0.225).abs() < 1e-9);
        assert!((workload.nominal_cluster_load() - 0.15).abs() < 1e-9);
    }

    #[test]
    fn impossible_workloads_are_refused() {
        for broken in [
            Workload { kinds: Vec::new(), ..workload() },
            Workload { node_weights: vec![0.0, 0.0], ..workload() },
            Workload { rate_per_s: 0.0, ..workload() },
            Workload { flows: 0, ..workload() },
            Workload { burst: Some(Duration::ZERO), ..workload() },
        ] {
            assert!(Schedule::new(&broken).is_err());
        }
    }
}

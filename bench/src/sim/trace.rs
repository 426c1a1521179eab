//! The packets of a run: a pure function of scenario and seed, drawn or played one after the other, so that every policy
//! and every bound sees the same ones (common random numbers) and none is kept.

use dataplane_common::hash::{combine, mix};
use dataplane_common::load::saturate;

use super::ingress::Arrivals;
use super::random::{Alias, Random, normal, stream};
use super::recording::Recorded;
use super::scenario::{Estimates, Playback, Scenario};
use super::workload::{Work, Works};

/// A packet that arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// When, ns.
    pub at_ns: u64,
    /// Its number, from 0.
    pub number: u64,
    /// Node of arrival.
    pub node: u16,
    /// Flow: its number among all nodes' flows.
    pub flow: u32,
    /// Service time, length, kind.
    pub work: Work,
    /// Estimated processing time on the reference node, ns.
    pub ept_ns: u32,
    /// Class.
    pub class: u8,
    /// Hash of what it is about.
    pub key: u32,
    /// The random number of its decision.
    pub random: u32,
}

/// The packets of a run.
pub struct Trace {
    seed: u64,
    packets: u64,
    number: u64,
    source: Source,
    estimates: Estimates,
    noise: Random,
}

/// Where they come from.
enum Source {
    /// A recording, and the number of nodes.
    Played(Playback, u32),
    /// Distributions.
    Drawn(Box<Drawn>),
}

/// Draws packets.
struct Drawn {
    arrivals: Arrivals,
    works: Works,
    flows: u32,
    flow_skew: f64,
    classes: Option<Alias>,
    keys: Option<Alias>,
    times: Random,
    sizes: Random,
    rest: Random,
}

impl Trace {
    /// The packets of `scenario` with `seed`.
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let source = match &scenario.playback {
            Some(playback) => Source::Played(playback.clone(), scenario.nodes as u32),
            None => Source::Drawn(Box::new(Drawn::new(scenario, seed))),
        };
        let (packets, estimates) = (scenario.packets, scenario.estimates);
        Self { seed, packets, number: 0, source, estimates, noise: stream(seed, 4) }
    }

    fn estimate_ns(&mut self, work: &Work) -> u32 {
        match (self.estimates, &self.source) {
            (Estimates::Exact, _) => work.service_ns,
            (Estimates::KindMean, Source::Drawn(drawn)) => drawn.works.kind_mean_ns(work.kind),
            (Estimates::KindMean, Source::Played(playback, _)) => {
                playback.recording.kinds.get(usize::from(work.kind)).map_or(work.service_ns, |(_, mean_ns)| *mean_ns)
            }
            (Estimates::LogSigma(sigma), _) => {
                let factor = (sigma * normal(&mut self.noise) - sigma * sigma / 2.0).exp();
                saturate((f64::from(work.service_ns) * factor).round() as u64).max(1)
            }
        }
    }
}

impl Drawn {
    fn new(scenario: &Scenario, seed: u64) -> Self {
        let mut times = stream(seed, 1);
        let arrivals = Arrivals::new(&scenario.ingress, scenario.nodes, scenario.gap_ns(), &mut times);
        Self {
            arrivals,
            works: Works::new(scenario.workload, scenario.mean_service_ns),
            flows: scenario.flows,
            flow_skew: scenario.flow_skew,
            classes: (scenario.classes.len() > 1).then(|| Alias::new(&scenario.classes)),
            keys: (scenario.keys > 0).then(|| Alias::zipf(scenario.keys as usize)),
            times,
            sizes: stream(seed, 2),
            rest: stream(seed, 3),
        }
    }

    fn draw(&mut self) -> Arrival {
        let (at_ns, node) = self.arrivals.next(&mut self.times);
        let work = self.works.draw(&mut self.sizes);
        let flow = if self.flow_skew > 1.0 {
            (f64::from(self.flows) * self.rest.unit().powf(self.flow_skew)) as u32
        } else {
            self.rest.below(u64::from(self.flows)) as u32
        };
        let flow = u32::from(node) * self.flows + flow.min(self.flows - 1);
        let key = self.keys.as_ref().map_or(flow, |keys| keys.draw(&mut self.rest));
        let class = self.classes.as_ref().map_or(0, |classes| classes.draw(&mut self.rest) as u8);
        Arrival { at_ns, node, flow, work, class, key: mix(u64::from(key)) as u32, ..Arrival::default() }
    }
}

/// Packet `number` of a recording, in a cluster of so many nodes.
fn play(Playback { recording, stretch }: &Playback, nodes: u32, number: u64) -> Option<Arrival> {
    let Recorded { at_ns, spread, flow, work, class, key } = *recording.packets.get(number as usize)?;
    let at_ns = (at_ns as f64 * stretch).round() as u64;
    Some(Arrival { at_ns, node: (spread % nodes) as u16, flow, work, class, key, ..Arrival::default() })
}

impl Iterator for Trace {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        if self.number == self.packets {
            return None;
        }
        let number = self.number;
        self.number += 1;
        let arrival = match &mut self.source {
            Source::Played(playback, nodes) => play(playback, *nodes, number)?,
            Source::Drawn(drawn) => drawn.draw(),
        };
        let random = combine(mix(self.seed), number) as u32;
        Some(Arrival { number, ept_ns: self.estimate_ns(&arrival.work), random, ..arrival })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario() -> Scenario {
        Scenario { packets: 50_000, classes: vec![1.0, 3.0], keys: 100, ..Scenario::default() }
    }

    #[test]
    fn the_seed_decides_everything() {
        let trace = |seed| Trace::new(&scenario(), seed).collect::<Vec<_>>();
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1), trace(2));
        assert!(trace(1).is_sorted_by_key(|arrival| arrival.at_ns));
    }

    #[test]
    fn estimates_change_nothing_else() {
        let exact: Vec<_> = Trace::new(&scenario(), 1).collect();
        let noisy = Scenario { estimates: Estimates::LogSigma(0.5), ..scenario() };
        let noisy: Vec<_> = Trace::new(&noisy, 1).collect();
        assert!(
            exact.iter().zip(&noisy).all(|(a, b)| (a.at_ns, a.flow, a.work, a.key) == (b.at_ns, b.flow, b.work, b.key))
        );
        let sum = |trace: &[Arrival]| trace.iter().map(|arrival| f64::from(arrival.ept_ns)).sum::<f64>();
        assert!((sum(&noisy) / sum(&exact) - 1.0).abs() < 0.02, "noise keeps the mean");
    }

    #[test]
    fn load_is_what_was_asked_for() {
        let scenario = Scenario { speeds_milli: vec![1000, 500], workers: 2, load: 0.6, ..scenario() };
        let (mut work, mut last) = (0.0, 0);
        for arrival in Trace::new(&scenario, 1) {
            work += f64::from(arrival.work.service_ns);
            last = arrival.at_ns;
        }
        assert!((work / last as f64 / 12.0 - 0.6).abs() < 0.02, "{}", work / last as f64 / 12.0);
    }

    #[test]
    fn popular_flows_get_more() {
        let scenario = Scenario { flow_skew: 2.0, flows: 64, nodes: 2, ..scenario() };
        let first = Trace::new(&scenario, 1).filter(|arrival| arrival.flow.is_multiple_of(64)).count();
        assert!((5_800..6_700).contains(&first), "an eighth of the packets: {first}");
    }
}

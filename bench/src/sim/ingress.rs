//! When and where packets arrive.

use anyhow::{Result, ensure};

use super::random::{Alias, Random};

/// Where packets arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Ingress {
    /// At all nodes alike.
    Uniform,
    /// This share at node 0, the rest at the others alike.
    Skewed(f64),
    /// By these weights of the nodes, repeated as often as needed.
    Weights(Vec<f64>),
    /// By Zipf's law, exponent 1: node k gets a part proportional to 1 / (k + 1).
    Zipf,
    /// At each node in bursts: its traffic is on for 500 µs and off for three times that, both exponential, so that while
    /// it is on it is four times the mean.
    Bursts,
}

/// Mean length of a burst, ns.
const BURST_NS: f64 = 500_000.0;
/// Share of time a node's traffic is on.
const DUTY: f64 = 0.25;

impl Ingress {
    /// Says what is wrong with it.
    ///
    /// # Errors
    /// A share or weight is impossible.
    pub fn check(&self, nodes: usize) -> Result<()> {
        match self {
            Self::Skewed(share) => {
                ensure!((0.0..=1.0).contains(share), "share {share} of node 0: 0 to 1");
                ensure!(nodes > 1 || *share > 0.0, "nobody gets the rest of the traffic");
            }
            Self::Weights(weights) => {
                ensure!(weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0), "weights {weights:?}");
                let first = &weights[..weights.len().min(nodes)];
                ensure!(first.iter().sum::<f64>() > 0.0, "no node gets packets: weights {weights:?}");
            }
            Self::Uniform | Self::Zipf | Self::Bursts => {}
        }
        Ok(())
    }

    /// Weights of the nodes, sum 1.
    pub fn weights(&self, nodes: usize) -> Vec<f64> {
        let weight = |node: usize| match self {
            Self::Uniform | Self::Bursts => 1.0,
            Self::Skewed(share) if node == 0 => *share,
            Self::Skewed(share) => (1.0 - share) / (nodes - 1) as f64,
            Self::Weights(weights) => weights[node % weights.len()],
            Self::Zipf => 1.0 / (node as f64 + 1.0),
        };
        let weights: Vec<f64> = (0..nodes).map(weight).collect();
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }
}

/// Draws times and nodes of arrivals: a Poisson process, thinned where a node is between two bursts.
#[derive(Clone, Debug)]
pub struct Arrivals {
    nodes: Alias,
    /// Mean time between two draws, ns.
    gap_ns: f64,
    at_ns: f64,
    bursts: Option<Vec<Burst>>,
}

/// The bursts of one node.
#[derive(Clone, Debug)]
struct Burst {
    is_on: bool,
    until_ns: f64,
}

impl Arrivals {
    /// Arrivals at `nodes` nodes with this mean time between them.
    pub fn new(ingress: &Ingress, nodes: usize, gap_ns: f64, random: &mut Random) -> Self {
        let bursts = (*ingress == Ingress::Bursts).then(|| {
            let mut start = || Burst { is_on: random.unit() < DUTY, until_ns: 0.0 };
            (0..nodes).map(|_| start()).collect()
        });
        let gap_ns = if bursts.is_some() { gap_ns * DUTY } else { gap_ns };
        Self { nodes: Alias::new(&ingress.weights(nodes)), gap_ns, at_ns: 0.0, bursts }
    }

    /// Time in ns and node of the next arrival.
    pub fn next(&mut self, random: &mut Random) -> (u64, u16) {
        loop {
            self.at_ns += random.exponential(self.gap_ns);
            let node = self.nodes.draw(random);
            let Some(bursts) = &mut self.bursts else {
                return (self.at_ns as u64, node as u16);
            };
            if bursts[node as usize].is_on_at(self.at_ns, random) {
                return (self.at_ns as u64, node as u16);
            }
        }
    }
}

impl Burst {
    fn is_on_at(&mut self, at_ns: f64, random: &mut Random) -> bool {
        while self.until_ns <= at_ns {
            // The first period needs no phase: what is left of an exponential time is exponential.
            if self.until_ns > 0.0 {
                self.is_on = !self.is_on;
            }
            let mean_ns = if self.is_on { BURST_NS } else { BURST_NS * (1.0 - DUTY) / DUTY };
            self.until_ns += random.exponential(mean_ns).max(1.0);
        }
        self.is_on
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::stream;
    use super::*;

    fn counts(ingress: &Ingress, nodes: usize, n: usize) -> (Vec<f64>, f64) {
        let mut random = stream(5, 1);
        let mut arrivals = Arrivals::new(ingress, nodes, 1_000.0, &mut random);
        let mut counts = vec![0.0; nodes];
        let mut last = 0;
        for _ in 0..n {
            let (at_ns, node) = arrivals.next(&mut random);
            assert!(at_ns >= last);
            last = at_ns;
            counts[usize::from(node)] += 1.0 / n as f64;
        }
        (counts, last as f64 / n as f64)
    }

    #[test]
    fn packets_arrive_by_weight_at_the_rate_asked_for() {
        let weights = Ingress::Weights(vec![0.6, 0.2, 0.1, 0.1]);
        for ingress in [Ingress::Uniform, Ingress::Skewed(0.5), weights, Ingress::Zipf] {
            let (found, gap_ns) = counts(&ingress, 4, 100_000);
            assert!((gap_ns / 1_000.0 - 1.0).abs() < 0.02, "{ingress:?}: {gap_ns}");
            for (found, weight) in found.iter().zip(ingress.weights(4)) {
                assert!((found - weight).abs() < 0.01, "{ingress:?}: {found} for {weight}");
            }
        }
    }

    #[test]
    fn bursts_keep_the_rate_and_are_bursts() {
        let (_, gap_ns) = counts(&Ingress::Bursts, 4, 1_000_000);
        assert!((gap_ns / 1_000.0 - 1.0).abs() < 0.05, "{gap_ns}");
        // Packets of one node in windows of 100 µs: a Poisson process has a variance as large as its mean.
        let mut random = stream(6, 1);
        let mut arrivals = Arrivals::new(&Ingress::Bursts, 1, 1_000.0, &mut random);
        let mut windows = vec![0.0; 10_000];
        loop {
            let (at_ns, _) = arrivals.next(&mut random);
            let Some(window) = windows.get_mut((at_ns / 100_000) as usize) else { break };
            *window += 1.0;
        }
        let mean = windows.iter().sum::<f64>() / windows.len() as f64;
        let variance = windows.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / windows.len() as f64;
        assert!(variance / mean > 50.0, "{variance} against {mean}");
    }

    #[test]
    fn impossible_shares_are_refused() {
        assert!(Ingress::Skewed(1.5).check(4).is_err());
        assert!(Ingress::Weights(vec![0.0, 1.0]).check(1).is_err());
        assert!(Ingress::Weights(Vec::new()).check(4).is_err());
        assert!(Ingress::Zipf.check(1).is_ok());
    }
}

//! Patterns of traffic: which packets come, where, and when.

use std::time::Duration;

use dataplane_user::functions::SLOWNESS;
use serde::Serialize;

use super::setup::Compute;

/// A pattern of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// 10 % next to no work, 70 % light, 20 % heavy; most of them at node 1.
    Mixed,
    /// As mixed, without heavy packets.
    Low,
    /// Heavy packets only.
    High,
    /// As many light packets as heavy ones.
    Half,
    /// As mixed, and every node's packets come in bursts, a quarter of the time.
    Bursty,
    /// As mixed, nearly all packets at node 1, which cannot compute them alone.
    Skewed,
    /// As mixed, and the last node computes at a quarter of the others' speed, which nobody tells any of them.
    Slow,
}

/// Mean length of a burst: some tens of packets.
const BURST: Duration = Duration::from_millis(5);

impl Pattern {
    /// How many of the packets are checksums, light and heavy, relative to each other.
    pub const fn weights(self) -> [f64; 3] {
        match self {
            Self::Mixed | Self::Bursty | Self::Skewed | Self::Slow => [0.1, 0.7, 0.2],
            Self::Low => [0.1, 0.9, 0.0],
            Self::High => [0.0, 0.0, 1.0],
            Self::Half => [0.0, 0.5, 0.5],
        }
    }

    /// Share of the packets that arrive at node 1 of so many.
    pub const fn share(self, nodes: u16) -> f64 {
        match (self, nodes) {
            (Self::Skewed, _) => 0.9,
            (_, 2) => 0.75,
            _ => 0.6,
        }
    }

    /// Load of node 1 if it had to compute everything that arrives there.
    pub const fn load(self, compute: Compute) -> f64 {
        match (self, compute) {
            (Self::Skewed, _) => 1.5,
            (_, Compute::Real) => 0.8,
            (_, Compute::Emulated) => 0.85,
        }
    }

    /// Mean length of the bursts, if packets come in bursts.
    pub const fn burst(self) -> Option<Duration> {
        match self {
            Self::Bursty => Some(BURST),
            _ => None,
        }
    }

    /// Whether light packets have to be emulated where heavy ones are: without those, they alone would take more CPU time than
    /// a machine with fewer cores than nodes has; and only what is emulated can be slow.
    pub const fn holds_light(self) -> bool {
        matches!(self, Self::Low | Self::Slow)
    }

    /// How many times as long as the other nodes the last one takes for a packet.
    pub const fn slowness(self) -> u32 {
        match self {
            Self::Slow => SLOWNESS,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pattern_is_more_than_a_cluster_of_three_can_do() {
        for compute in [Compute::Real, Compute::Emulated] {
            for pattern in <Pattern as clap::ValueEnum>::value_variants() {
                let speeds = 2.0 + 1.0 / f64::from(pattern.slowness());
                let load = pattern.load(compute) / pattern.share(3) / speeds;
                assert!((0.4..0.8).contains(&load), "{pattern:?}: {load}");
            }
        }
    }
}

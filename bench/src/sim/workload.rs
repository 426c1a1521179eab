//! Distributions of service times and lengths, all scaled to a mean.

use dataplane_common::load::saturate;

use super::random::Random;

/// A distribution of service times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Exponential.
    Exponential,
    /// All alike.
    Deterministic,
    /// Nine tenths take half the mean, one tenth 5.5 times the mean.
    Bi90,
    /// 99.5 % take a sixth of the mean, 0.5 % 167 times: the shape of the dispersive loads of Shinjuku and RackSched.
    Bi995,
    /// Bounded Pareto with exponent 1.5 over three decades.
    Pareto,
    /// Active packets as in Jang's thesis (KAIST 2005): 70 % low computations, 1 + 0.0005 · length µs, and 30 % high ones,
    /// 20 + 0.02 · length µs; lengths uniform from 64 to 1500 bytes.
    LowHigh,
    /// So many thousandths of the packets take `ratio` times what the others do. Has no name on the command line.
    TwoPoint {
        /// Part of the large ones, thousandths.
        large_milli: u16,
        /// How many times a small one a large one takes.
        ratio: u16,
    },
}

/// Shape of the bounded Pareto distribution, and its largest value in units of its smallest.
const PARETO: (f64, f64) = (1.5, 1000.0);
/// Length of a packet of the workloads in which lengths say nothing, bytes.
const LENGTH: u16 = 256;
/// Shortest and longest packet of the low-high mix, bytes.
const LENGTHS: (u16, u16) = (64, 1500);
/// Low and high computations: part of the packets, fixed cost in ns, cost per byte in ns.
const LOW_HIGH: [(f64, f64, f64); 2] = [(0.7, 1_000.0, 0.5), (0.3, 20_000.0, 20.0)];

impl Workload {
    /// Every workload that has a name on the command line.
    pub const ALL: [Self; 6] =
        [Self::Exponential, Self::Deterministic, Self::Bi90, Self::Bi995, Self::Pareto, Self::LowHigh];

    /// Name on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exponential => "exp",
            Self::Deterministic => "det",
            Self::Bi90 => "bi90",
            Self::Bi995 => "bi995",
            Self::Pareto => "pareto",
            Self::LowHigh => "low-high",
            Self::TwoPoint { .. } => "two-point",
        }
    }

    /// The workload of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// Two points: the larger's probability, smaller and larger value with mean 1.
    const fn points(self) -> Option<(f64, f64, f64)> {
        match self {
            Self::Bi90 => Some((0.1, 0.5, 5.5)),
            Self::Bi995 => Some((0.005, 0.167, 166.767)),
            Self::TwoPoint { large_milli, ratio } => {
                let (part, ratio) = (large_milli as f64 / 1000.0, ratio as f64);
                let small = 1.0 / (1.0 - part + part * ratio);
                Some((part, small, small * ratio))
            }
            _ => None,
        }
    }

    /// Kinds of packets.
    pub const fn kinds(self) -> usize {
        match self {
            Self::Bi90 | Self::Bi995 | Self::LowHigh | Self::TwoPoint { .. } => 2,
            _ => 1,
        }
    }
}

/// The work of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Service time on the reference node, ns; at least 1.
    pub service_ns: u32,
    /// Length, bytes.
    pub bytes: u16,
    /// Kind: its number among the workload's.
    pub kind: u16,
}

/// Draws the work of packets.
#[derive(Clone, Debug)]
pub struct Works {
    workload: Workload,
    /// What a unit of the workload takes, ns.
    scale: f64,
}

impl Works {
    /// Work of `workload` with this mean service time.
    pub fn new(workload: Workload, mean_ns: f64) -> Self {
        let unscaled = match workload {
            Workload::Pareto => pareto_mean(),
            Workload::LowHigh => (0..2).map(|kind| LOW_HIGH[kind].0 * low_high_mean(kind)).sum(),
            _ => 1.0,
        };
        Self { workload, scale: mean_ns / unscaled }
    }

    /// Mean service time of packets of `kind`, ns.
    pub fn kind_mean_ns(&self, kind: u16) -> u32 {
        let unscaled = match (self.workload, self.workload.points()) {
            (_, Some((_, small, large))) => [small, large][usize::from(kind)],
            (Workload::LowHigh, _) => low_high_mean(usize::from(kind)),
            (Workload::Pareto, _) => pareto_mean(),
            _ => 1.0,
        };
        saturate((unscaled * self.scale).round() as u64)
    }

    /// Draws the work of a packet.
    pub fn draw(&self, random: &mut Random) -> Work {
        let (unscaled, bytes, kind) = match (self.workload, self.workload.points()) {
            (_, Some((probability, small, large))) => {
                if random.unit() < probability {
                    (large, LENGTH, 1)
                } else {
                    (small, LENGTH, 0)
                }
            }
            (Workload::Exponential, _) => (random.exponential(1.0), LENGTH, 0),
            (Workload::Pareto, _) => (pareto(random.unit()), LENGTH, 0),
            (Workload::LowHigh, _) => {
                let kind = usize::from(random.unit() >= LOW_HIGH[0].0);
                let bytes = LENGTHS.0 + random.below(u64::from(LENGTHS.1 - LENGTHS.0) + 1) as u16;
                (LOW_HIGH[kind].1 + LOW_HIGH[kind].2 * f64::from(bytes), bytes, kind as u16)
            }
            _ => (1.0, LENGTH, 0),
        };
        Work { service_ns: saturate((unscaled * self.scale).round() as u64).max(1), bytes, kind }
    }
}

fn low_high_mean(kind: usize) -> f64 {
    LOW_HIGH[kind].1 + LOW_HIGH[kind].2 * f64::from(LENGTHS.0 + LENGTHS.1) / 2.0
}

/// Inverse of the distribution function, smallest value 1.
fn pareto(u: f64) -> f64 {
    let (shape, most) = PARETO;
    (1.0 - u * (1.0 - most.powf(-shape))).powf(-1.0 / shape)
}

fn pareto_mean() -> f64 {
    let (shape, most) = PARETO;
    shape / (shape - 1.0) * (1.0 - most.powf(1.0 - shape)) / (1.0 - most.powf(-shape))
}

#[cfg(test)]
mod tests {
    use super::super::random::stream;
    use super::*;

    #[test]
    fn every_workload_has_the_mean_asked_for() {
        let two_point = Workload::TwoPoint { large_milli: 100, ratio: 20 };
        for workload in Workload::ALL.into_iter().chain([two_point]) {
            let (works, mut random) = (Works::new(workload, 10_000.0), stream(3, 1));
            let n = 1_000_000;
            let (mut sum, mut by_kind) = (0.0, [(0u32, 0.0); 2]);
            for _ in 0..n {
                let work = works.draw(&mut random);
                sum += f64::from(work.service_ns);
                let kind = &mut by_kind[usize::from(work.kind)];
                *kind = (kind.0 + 1, kind.1 + f64::from(work.service_ns));
            }
            // Elephants of Bi995 come 5000 times: 1.4 % standard deviation of their part.
            assert!((sum / f64::from(n) / 10_000.0 - 1.0).abs() < 0.04, "{workload:?}: {}", sum / f64::from(n));
            for (kind, (count, total)) in (0..).zip(by_kind).take(workload.kinds()) {
                let ratio = total / f64::from(count) / f64::from(works.kind_mean_ns(kind));
                assert!((ratio - 1.0).abs() < 0.03, "{workload:?} {kind}: {ratio}");
            }
        }
    }

    #[test]
    fn shapes_are_as_named() {
        let mut random = stream(4, 1);
        let works = Works::new(Workload::Bi90, 10_000.0);
        let large = (0..100_000).filter(|_| works.draw(&mut random).service_ns == 55_000).count();
        assert!((9_600..10_400).contains(&large), "{large}");
        let works = Works::new(Workload::Pareto, 10_000.0);
        let (least, most) = (0..100_000).fold((u32::MAX, 0), |(least, most), _| {
            let ns = works.draw(&mut random).service_ns;
            (least.min(ns), most.max(ns))
        });
        assert!((3_440..3_460).contains(&least) && most < 3_450_000, "{least} to {most}");
        let works = Works::new(Workload::LowHigh, 11_661.9);
        let low = (0..1000).map(|_| works.draw(&mut random)).find(|work| work.kind == 0).unwrap();
        assert!(low.service_ns.abs_diff(1_000 + u32::from(low.bytes) / 2) <= 5, "{low:?}");
    }

    #[test]
    fn names_lead_back() {
        for workload in Workload::ALL {
            assert_eq!(Workload::from_name(workload.name()), Some(workload));
        }
        assert_eq!(Workload::from_name("nonsense"), None);
    }
}

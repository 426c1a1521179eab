//! Distributions over the deterministic source, and independent streams of one seed.

use dataplane_common::hash::mix;

pub use crate::traffic::random::Random;

/// The source of stream `stream` of `seed`: what one part of a simulation draws does not change what another part draws.
pub fn stream(seed: u64, stream: u64) -> Random {
    Random::new(mix(seed).wrapping_add(mix(stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
}

/// A number with standard normal distribution (Box and Muller, 1958).
pub fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit()).cos()
}

/// Draws indices, each with the probability of its weight, in constant time (alias method; Walker, 1977; built as by
/// Vose, 1991).
#[derive(Clone, Debug)]
pub struct Alias {
    /// For each column: the share that is its own, and who has the rest.
    columns: Vec<(f64, u32)>,
}

impl Alias {
    /// A table of these weights, which are not negative and not all zero.
    pub fn new(weights: &[f64]) -> Self {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let mut columns: Vec<(f64, u32)> = (0..).zip(weights).map(|(index, weight)| (weight / mean, index)).collect();
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..columns.len()).partition(|index| columns[*index].0 < 1.0);
        while let (Some(poor), Some(rich)) = (small.pop(), large.pop()) {
            columns[poor].1 = rich as u32;
            columns[rich].0 -= 1.0 - columns[poor].0;
            if columns[rich].0 < 1.0 { small.push(rich) } else { large.push(rich) }
        }
        // What is left over is full but for rounding.
        for index in small.into_iter().chain(large) {
            columns[index].0 = 1.0;
        }
        Self { columns }
    }

    /// A table of Zipf's law with exponent 1: index k has weight 1 / (k + 1).
    pub fn zipf(count: usize) -> Self {
        Self::new(&(0..count).map(|index| 1.0 / (index as f64 + 1.0)).collect::<Vec<_>>())
    }

    /// Draws an index.
    pub fn draw(&self, random: &mut Random) -> u32 {
        let column = random.below(self.columns.len() as u64) as u32;
        let (own, other) = self.columns[column as usize];
        if random.unit() < own { column } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        assert_eq!(stream(7, 1).bits(), stream(7, 1).bits());
        assert_ne!(stream(7, 1).bits(), stream(7, 2).bits());
        assert_ne!(stream(7, 1).bits(), stream(8, 1).bits());
    }

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1() {
        let mut random = stream(1, 1);
        let values: Vec<f64> = (0..100_000).map(|_| normal(&mut random)).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn indices_come_by_their_weights() {
        let mut random = stream(2, 1);
        let weights = [0.0, 1.0, 2.0, 5.0, 0.0];
        let alias = Alias::new(&weights);
        let mut counts = [0u32; 5];
        for _ in 0..80_000 {
            counts[alias.draw(&mut random) as usize] += 1;
        }
        for (count, weight) in counts.iter().zip(weights) {
            assert!((f64::from(*count) - weight * 10_000.0).abs() < 450.0, "{counts:?}");
        }
        let zipf = Alias::zipf(4);
        let first = (0..25_000).filter(|_| zipf.draw(&mut random) == 0).count() as f64;
        assert!((first / 25_000.0 - 0.48).abs() < 0.015, "{first}");
    }
}

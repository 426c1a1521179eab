//! A small deterministic random source: the same seed gives the same traffic on every machine and with every version of
//! every crate.
//!
//! xoshiro256++ seeded by SplitMix64 (Blackman and Vigna, <https://prng.di.unimi.it/>).

/// The source.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// The source of this seed.
    pub fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        }))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in [0, 1), uniform.
    pub fn unit(&mut self) -> f64 {
        // 53 bits: what the mantissa holds.
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number with exponential distribution: the gap between two arrivals of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// An index, each with the probability of its weight. Weights are not negative and not all zero.
    pub fn weighted(&mut self, weights: &[f64]) -> usize {
        let mut left = self.unit() * weights.iter().sum::<f64>();
        for (index, weight) in weights.iter().enumerate() {
            if left < *weight {
                return index;
            }
            left -= weight;
        }
        // Rounding may leave a hair's breadth behind the last one.
        weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0)
    }

    /// An index below `count`.
    pub fn below(&mut self, count: u64) -> u64 {
        // Lemire's multiply-shift; the bias of 2^-64 · count does not matter here.
        ((u128::from(self.bits()) * u128::from(count)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_a_seed_is_fixed() {
        // A change here changes every published schedule. First word: SplitMix64 words of seed 0 (e220a8397b1dcdaf,
        // 6e789e6aa1b965f4, 06c45d188009454f, f88bb8a8724c81ec) through rotl(s0 + s3, 23) + s0.
        let s0 = 0xe220_a839_7b1d_cdaf_u64;
        let s3 = 0xf88b_b8a8_724c_81ec_u64;
        assert_eq!(Random::new(0).bits(), s0.wrapping_add(s3).rotate_left(23).wrapping_add(s0));
        assert_ne!(Random::new(1).bits(), Random::new(2).bits());
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(42);
        let n = 200_000;
        let mean = (0..n).map(|_| random.exponential(5.0)).sum::<f64>() / f64::from(n);
        assert!((mean - 5.0).abs() < 0.1, "{mean}");
        let mut counts = [0; 3];
        for _ in 0..n {
            counts[random.weighted(&[1.0, 0.0, 3.0])] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((f64::from(counts[2]) / f64::from(n) - 0.75).abs() < 0.01, "{counts:?}");
        assert!((0..1000).all(|_| random.below(7) < 7));
    }
}

//! Hashes of flows, keys and nodes: deterministic, the same in every home.

/// Mixes a word so that every bit of the result depends on every bit of it: the finalizer of SplitMix64 (Steele, Lea and
/// Flood, OOPSLA 2014).
#[inline(always)]
pub const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Adds `word` to the hash of what came before it.
#[inline(always)]
pub const fn combine(hash: u64, word: u64) -> u64 {
    mix(hash.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ word)
}

/// A number below `bound` (0 for an empty range), uniform to within `bound` / 2^32, from 32 random bits.
#[inline(always)]
pub const fn below(random: u32, bound: u32) -> u32 {
    ((random as u64 * bound as u64) >> 32) as u32
}

/// Another 32 random bits from the same random number.
#[inline(always)]
pub const fn another(random: u32) -> u32 {
    (mix(random as u64) >> 32) as u32
}

/// Cheap random numbers, one after the other: a linear congruential generator with the multiplier of Knuth's MMIX ("The Art of
/// Computer Programming", volume 2, 3.3.4), of which the upper half is given out.
#[derive(Clone, Copy, Debug)]
pub struct Draws(u64);

impl Draws {
    /// The numbers that follow from this one.
    #[inline(always)]
    pub const fn from(random: u32) -> Self {
        Self(mix(random as u64))
    }

    /// The next 32 random bits.
    #[inline(always)]
    pub const fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn mixing_loses_nothing_and_spreads() {
        let mixed: BTreeSet<_> = (0..10_000).map(mix).collect();
        assert_eq!(mixed.len(), 10_000);
        let ones: u32 = (0..1000u64).map(|word| (mix(word) ^ mix(word ^ 1)).count_ones()).sum();
        assert!((31_000..33_000).contains(&ones), "one bit of the input flips half of the output: {ones}");
    }

    #[test]
    fn draws_are_uniform_and_independent_of_each_other() {
        // Of three draws, each is the least as often as the others.
        let mut least = [0u32; 3];
        for random in 0..30_000u32 {
            let mut draws = Draws::from(random);
            let three = [draws.next(), draws.next(), draws.next()];
            let place = (0..3).min_by_key(|place| three[*place]).unwrap();
            least[place] += 1;
        }
        assert!(least.iter().all(|count| (9_700..10_300).contains(count)), "{least:?}");
    }

    #[test]
    fn below_stays_below() {
        assert_eq!((below(0, 7), below(u32::MAX, 7), below(u32::MAX, 0), below(1 << 31, 4)), (0, 6, 0, 2));
    }
}

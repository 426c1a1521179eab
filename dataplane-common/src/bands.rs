//! Bands of estimated processing time: which part of a backlog runs before a packet when shorter packets go first.
//!
//! A queue tells its deciders one word: for each band, the share of the backlog that lies *behind* a packet of that band, in
//! 1/256. Zero, what a queue in order of arrival says, means that everything waiting is ahead.

/// Number of bands. Band 0 is below 1.024 µs, each next one ends at four times that, the last has no end.
pub const BANDS: usize = 8;

/// Shares of a backlog behind a packet of each band, 1/256 each; see the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind(pub u64);

/// The band of a packet with this estimated processing time.
#[inline(always)]
pub const fn band_of(ept_ns: u32) -> u32 {
    let bits = 32 - (ept_ns >> 10).leading_zeros();
    let band = bits.div_ceil(2);
    if band >= BANDS as u32 { BANDS as u32 - 1 } else { band }
}

impl Behind {
    /// The shares of a queue in which `waiting_ns` of work waits, by band, and shorter bands go first.
    pub fn of(waiting_ns: &[u64; BANDS]) -> Self {
        let total: u64 = waiting_ns.iter().sum();
        let (mut word, mut ahead) = (0u64, 0u64);
        for (band, ns) in waiting_ns.iter().enumerate() {
            ahead += ns;
            let behind = ((total - ahead) * 256).checked_div(total).unwrap_or(0);
            word |= behind.min(255) << (8 * band);
        }
        Self(word)
    }

    /// The mean of several queues' shares, all weighing the same.
    pub fn mean(queues: impl Iterator<Item = Self>) -> Self {
        let (mut sums, mut count) = ([0u64; BANDS], 0);
        for queue in queues {
            count += 1;
            for (band, sum) in sums.iter_mut().enumerate() {
                *sum += (queue.0 >> (8 * band)) & 0xff;
            }
        }
        let mean = |sum: &u64| sum.checked_div(count).unwrap_or(0);
        Self(sums.iter().enumerate().fold(0, |word, (band, sum)| word | mean(sum) << (8 * band)))
    }

    /// The part of `backlog_ns` that runs before a packet of `band`, ns.
    #[inline(always)]
    pub const fn ahead_ns(self, backlog_ns: u32, band: u32) -> u32 {
        let behind = (self.0 >> (8 * (band & 7))) & 0xff;
        ((backlog_ns as u64 * (256 - behind)) >> 8) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bands_are_powers_of_four() {
        let edges = [0, 1023, 1024, 4095, 4096, 16_383, 16_384, 1 << 20, 1 << 22, u32::MAX];
        assert_eq!(edges.map(band_of), [0, 0, 1, 1, 2, 2, 3, 6, 7, 7]);
    }

    #[test]
    fn a_queue_in_order_of_arrival_is_all_ahead() {
        for band in 0..BANDS as u32 {
            assert_eq!(Behind::default().ahead_ns(u32::MAX, band), u32::MAX);
        }
        assert_eq!(Behind::of(&[0; BANDS]), Behind::default());
        assert_eq!(Behind::mean([Behind(0x0402), Behind(0x0206)].into_iter()), Behind(0x0304));
        assert_eq!(Behind::mean(core::iter::empty()), Behind::default());
    }

    proptest! {
        #[test]
        fn ahead_is_what_waits_in_this_band_and_below(waiting in proptest::array::uniform8(0u64..400_000_000)) {
            let total: u64 = waiting.iter().sum();
            let behind = Behind::of(&waiting);
            for band in 0..BANDS {
                let exact: u64 = waiting[..=band].iter().sum();
                let found = u64::from(behind.ahead_ns(total as u32, band as u32));
                prop_assert!(found.abs_diff(exact) <= total / 256 + 1, "band {band}: {found} for {exact}");
            }
        }

        #[test]
        fn bands_never_fall(a: u32, b: u32) {
            prop_assert!(a > b || band_of(a) <= band_of(b));
        }
    }
}

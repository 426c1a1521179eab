//! Exponential forgetting in whole numbers.

/// How fast something is forgotten. Made once, used for many ages: the division is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u32);

/// log2(e) in Q8: halvings per time constant.
const HALVINGS_Q8: u64 = 369;
/// Ages are capped here, ns: nothing is remembered for so long.
const MOST_AGE_NS: u64 = 1 << 31;

impl Rate {
    /// The rate at which e^(−age / `tau_ns`) falls. Time constants below 369 ns count as that.
    #[inline(always)]
    pub const fn of(tau_ns: u32) -> Self {
        if tau_ns <= HALVINGS_Q8 as u32 { Self(u32::MAX) } else { Self(((HALVINGS_Q8 << 32) / tau_ns as u64) as u32) }
    }

    /// Reads what [`Self::to_word`] gave; zero, of a row that nobody has written, forgets at once.
    #[inline(always)]
    pub const fn from_word(word: u32) -> Self {
        Self(if word == 0 { u32::MAX } else { word })
    }

    /// The rate as a number that is not zero.
    #[inline(always)]
    pub const fn to_word(self) -> u32 {
        self.0
    }

    /// e^(−`age_ns` / tau) in Q16, by halvings with a straight line between them: up to 6 % above the exact value, exact at
    /// every halving, never rising with age.
    #[inline(always)]
    pub const fn factor_q16(self, age_ns: u64) -> u32 {
        let age = if age_ns > MOST_AGE_NS { MOST_AGE_NS } else { age_ns };
        Self::left_q16((age * self.0 as u64) >> 32)
    }

    /// As [`Self::factor_q16`], of an age in units of 1024 ns, which needs no cap.
    #[inline(always)]
    pub const fn factor_of_us_q16(self, age_us: u32) -> u32 {
        Self::left_q16((age_us as u64 * self.0 as u64) >> 22)
    }

    #[inline(always)]
    const fn left_q16(halvings_q8: u64) -> u32 {
        // Seventeen halvings leave nothing.
        let halvings_q8 = if halvings_q8 > 17 << 8 { 17 << 8 } else { halvings_q8 };
        let within = (halvings_q8 & 255) as u32;
        ((1 << 16) - (within << 7)) >> (halvings_q8 >> 8)
    }

    /// What is left of `value` after `age_ns`.
    #[inline(always)]
    pub const fn after(self, value: u32, age_ns: u64) -> u32 {
        ((value as u64 * self.factor_q16(age_ns) as u64) >> 16) as u32
    }

    /// What is left of `value` after `age_us` units of 1024 ns.
    #[inline(always)]
    pub const fn after_us(self, value: u32, age_us: u32) -> u32 {
        ((value as u64 * self.factor_of_us_q16(age_us) as u64) >> 16) as u32
    }
}

/// What is left of `value` after `age_ns`, when it falls by e in `tau_ns`.
#[inline(always)]
pub const fn after(value: u32, age_ns: u64, tau_ns: u32) -> u32 {
    Rate::of(tau_ns).after(value, age_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn follows_the_exponential(age in 0u64..2_000_000, tau in 400u32..1_000_000) {
            let exact = (-(age as f64) / f64::from(tau)).exp();
            let rate = Rate::of(tau);
            let found = f64::from(rate.factor_q16(age)) / 65536.0;
            prop_assert!(found <= exact * 1.07 + 2e-4 && found >= exact * 0.98 - 2e-4, "{found} for {exact}");
            prop_assert!(rate.factor_q16(age + 1) <= rate.factor_q16(age));
            prop_assert_eq!(rate.factor_of_us_q16(age as u32 >> 10), rate.factor_q16(age >> 10 << 10));
        }
    }

    #[test]
    fn ends() {
        for tau in [0, 5, 1_000_000, u32::MAX] {
            assert_eq!(Rate::of(tau).factor_q16(0), 1 << 16);
        }
        assert_eq!((Rate::of(0).factor_q16(5_000), Rate::of(1_000).factor_q16(u64::MAX)), (0, 0));
        assert_eq!((Rate::from_word(0), Rate::from_word(Rate::of(777).to_word())), (Rate::of(0), Rate::of(777)));
        assert_ne!(Rate::of(u32::MAX).to_word(), 0);
        assert_eq!((after(1000, 0, 7), after(u32::MAX, 0, 7)), (1000, u32::MAX));
    }
}

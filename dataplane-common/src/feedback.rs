//! What a result or a report teaches about the node it comes from. Each function takes what was known and returns what is
//! known now; rows are written by whoever took the frame.

use crate::decay;
use crate::load::saturate;

/// A mean over about `1 << shift` values: the first value is taken as it is.
#[inline(always)]
pub const fn mean(known: u32, value: u32, shift: u32) -> u32 {
    if known == 0 {
        return if value == 0 { 1 } else { value };
    }
    // Rounding away from the mean lets it reach any value, and 0 stays the sign of "not known".
    let next = if value > known {
        known + (value - known).div_ceil(1 << shift)
    } else {
        known - (known - value).div_ceil(1 << shift)
    };
    if next == 0 { 1 } else { next }
}

/// Peak-sensitive mean of response times (Finagle's Peak EWMA): a worse one is taken at once, better ones slowly.
///
/// `age_ns` is the time since the last response, `forget_ns` the time in which one is forgotten.
#[inline(always)]
pub const fn peak(known_ns: u32, response_ns: u32, age_ns: u64, forget_ns: u32) -> u32 {
    if response_ns >= known_ns {
        return response_ns;
    }
    response_ns + decay::after(known_ns - response_ns, age_ns, forget_ns)
}

/// Speed of another node against this one, thousandths, after it computed in `served_ns` what this node estimates at
/// `charged_ns`. 0 = not known. One packet moves it by at most a thirty-second of the way to twice or half of what it was, so
/// that a preempted packet says little.
#[inline(always)]
pub const fn speed(known_milli: u16, charged_ns: u32, served_ns: u32) -> u16 {
    if charged_ns == 0 || served_ns == 0 {
        return known_milli;
    }
    let found = charged_ns as u64 * 1000 / served_ns as u64;
    let known = if known_milli == 0 { 1000 } else { known_milli as u64 };
    let found = if found > 2 * known {
        2 * known
    } else if found < known / 2 {
        known / 2
    } else {
        found
    };
    // Away from zero: the remainder of a division by 32 would stop it short.
    let next = if found > known { known + (found - known).div_ceil(32) } else { known - (known - found).div_ceil(32) };
    if next > u16::MAX as u64 {
        u16::MAX
    } else if next == 0 {
        1
    } else {
        next as u16
    }
}

/// The median of absolute errors, followed by steps of a thirty-second, ns.
#[inline(always)]
pub const fn median(known_ns: u32, error_ns: u32) -> u32 {
    let step = known_ns / 32 + 1;
    if error_ns > known_ns { known_ns.saturating_add(step) } else { known_ns.saturating_sub(step) }
}

/// A response time: from a packet's arrival to its result's return, ns (saturating; a clock that ran backwards is 0).
#[inline(always)]
pub const fn response_ns(now_ns: u64, arrival_ns: u64) -> u32 {
    saturate(now_ns.saturating_sub(arrival_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn means_follow_the_exact_recursion(values in proptest::collection::vec(1u32..1_000_000, 1..200)) {
            let (mut found, mut exact) = (0, f64::from(values[0]));
            for value in values {
                found = mean(found, value, 3);
                exact += (f64::from(value) - exact) / 8.0;
                prop_assert!((f64::from(found) - exact).abs() <= 8.0, "{} for {}", found, exact);
            }
        }

        #[test]
        fn peaks_are_taken_at_once_and_forgotten_slowly(known in 0u32..1_000_000, value in 0u32..1_000_000, age in 0u64..1_000_000) {
            let found = peak(known, value, age, 100_000);
            let exact = if value >= known {
                f64::from(value)
            } else {
                f64::from(value) + f64::from(known - value) * (-(age as f64) / 100_000.0).exp()
            };
            prop_assert!((f64::from(found) - exact).abs() <= 0.07 * f64::from(known) + 2.0, "{} for {}", found, exact);
        }

        #[test]
        fn speeds_converge_to_the_ratio(charged in 1_000u32..1_000_000, ratio in 0.2f64..8.0) {
            let served = (f64::from(charged) / ratio) as u32;
            let mut speed = 0;
            for _ in 0..600 {
                speed = super::speed(speed, charged, served);
            }
            let exact = f64::from(charged) * 1000.0 / f64::from(served);
            prop_assert!((f64::from(speed) - exact).abs() <= exact * 0.01 + 33.0, "{} for {}", speed, exact);
        }

        #[test]
        fn the_median_of_errors_is_found(seed: u64) {
            let (mut median, mut state, mut sum) = (0, seed, 0);
            for at in 0..6_000 {
                state = crate::hash::mix(state);
                median = super::median(median, (state % 10_000) as u32);
                sum += if at < 1_000 { 0 } else { u64::from(median) };
            }
            let mean = sum / 5_000;
            prop_assert!((4_500..5_500).contains(&mean), "{}", mean);
        }
    }

    #[test]
    fn nothing_known_and_nothing_measured() {
        assert_eq!((mean(0, 500, 3), mean(0, 0, 3), mean(1, 0, 3)), (500, 1, 1));
        assert_eq!((speed(0, 0, 5), speed(700, 5, 0)), (0, 700));
        assert_eq!(response_ns(5, 9), 0);
    }
}

use super::*;
use proptest::prelude::*;

/// A small deterministic generator (xorshift) so that the tests need no crate and repeat exactly.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Feeds `count` packets of 64 to 1463 units costing `a + b_q16 · units`, with noise of at most ± 1/16 and every
/// `outlier_every`-th packet 100 µs late.
fn feed(estimator: &mut Estimator, random: &mut Random, truth: Cost, count: u32, outlier_every: u64) {
    for _ in 0..count {
        let units = 64 + random.below(1400) as u32;
        let exact = u64::from(truth.ns(units));
        let noise = random.below(exact / 8 + 1);
        let mut measured = exact - exact / 16 + noise;
        if outlier_every > 0 && random.below(outlier_every) == 0 {
            measured += 100_000;
        }
        estimator.observe(units, measured as u32);
    }
}

fn relative_error_percent(estimator: &Estimator, truth: Cost, units: u32) -> u64 {
    let (got, want) = (u64::from(estimator.cost().ns(units)), u64::from(truth.ns(units)));
    got.abs_diff(want) * 100 / want
}

#[test]
fn cost_is_linear_and_saturates() {
    let cost = Cost { a_ns: 100, b_q16: 3 << 15 };
    assert_eq!(cost.ns(0), 100);
    assert_eq!(cost.ns(1000), 1600);
    assert_eq!(Cost { a_ns: 1, b_q16: u32::MAX }.ns(u32::MAX), u32::MAX);
    assert_eq!(Cost::from_word(cost.to_word()), cost);
}

#[test]
fn an_estimate_stays_near_what_was_declared() {
    let declared = Cost { a_ns: 1000, b_q16: 1 << 16 };
    let trained = Cost { a_ns: 500, b_q16: 0 };
    assert_eq!(ept_ns(trained, declared, 100), 500);
    assert_eq!(ept_ns(trained, declared, 1_000_000), 200_200, "a slope of zero makes no large packet free");
    assert_eq!(ept_ns(Cost { a_ns: 9000, b_q16: 0 }, declared, 100), 9000);
}

#[test]
fn answers_the_prior_before_the_first_measurement() {
    let prior = Cost { a_ns: 7, b_q16: 9 };
    assert_eq!(Estimator::new(prior).cost(), prior);
}

#[test]
fn converges_from_a_prior_wrong_by_a_hundred() {
    let truth = Cost { a_ns: 800, b_q16: 20 << 16 };
    let mut estimator = Estimator::new(Cost { a_ns: 80_000, b_q16: 0 });
    feed(&mut estimator, &mut Random(1), truth, 512, 0);
    for units in [64, 700, 1400] {
        assert!(relative_error_percent(&estimator, truth, units) <= 10, "{:?}", estimator.cost());
    }
}

#[test]
fn outliers_do_not_move_the_fit() {
    let truth = Cost { a_ns: 500, b_q16: 2 << 16 };
    let mut estimator = Estimator::new(truth);
    feed(&mut estimator, &mut Random(2), truth, 4096, 100);
    for units in [200, 700, 1400] {
        assert!(relative_error_percent(&estimator, truth, units) <= 12, "{:?}", estimator.cost());
    }
}

#[test]
fn follows_a_lasting_change() {
    let (before, after) = (Cost { a_ns: 500, b_q16: 2 << 16 }, Cost { a_ns: 900, b_q16: 5 << 16 });
    let mut estimator = Estimator::new(before);
    let mut random = Random(3);
    feed(&mut estimator, &mut random, before, 2000, 0);
    feed(&mut estimator, &mut random, after, 2000, 0);
    assert!(relative_error_percent(&estimator, after, 700) <= 10, "{:?}", estimator.cost());
}

#[test]
fn one_size_moves_the_intercept_only() {
    let mut estimator = Estimator::new(Cost { a_ns: 0, b_q16: 1 << 16 });
    for _ in 0..1000 {
        estimator.observe(100, 350);
    }
    assert_eq!(estimator.cost().b_q16, 1 << 16);
    assert!(estimator.cost().ns(100).abs_diff(350) <= 4, "{:?}", estimator.cost());
}

#[test]
fn never_makes_short_packets_cost_less_than_nothing() {
    let mut estimator = Estimator::new(Cost::default());
    let mut random = Random(4);
    for _ in 0..1000 {
        let units = 100 + random.below(1000) as u32;
        // Quadratic work: the best line has a negative intercept.
        estimator.observe(units, units * units / 100);
    }
    let cost = estimator.cost();
    assert_eq!(cost.a_ns, 0);
    assert!(cost.ns(1) < cost.ns(1000));
}

proptest! {
    #[test]
    fn agrees_with_least_squares_on_clean_data(a in 10u32..100_000, b in 0u32..200, seed in 1u64..u64::MAX) {
        let truth = Cost { a_ns: a, b_q16: b << 16 };
        let mut estimator = Estimator::new(Cost { a_ns: 1000, b_q16: 1 << 16 });
        let mut random = Random(seed);
        for _ in 0..2000 {
            let units = 64 + random.below(1400) as u32;
            estimator.observe(units, truth.ns(units));
        }
        for units in [64, 700, 1463] {
            let (got, want) = (estimator.cost().ns(units), truth.ns(units));
            prop_assert!(got.abs_diff(want) <= want / 50 + 20, "{} against {} at {}", got, want, units);
        }
    }

    #[test]
    fn survives_any_measurement(samples in proptest::collection::vec((any::<u32>(), any::<u32>()), 1..500)) {
        let mut estimator = Estimator::new(Cost::default());
        for (units, ns) in samples {
            estimator.observe(units, ns);
            let _ = estimator.cost().ns(units);
        }
    }
}

proptest! {
    #[test]
    fn moments_fade_alike_in_64_and_in_128_bits(
        moment in -(1i128 << 56)..1 << 56,
        a in -(1i64 << 28)..1 << 28,
        b in -(1i64 << 28)..1 << 28,
        k in 1i64..=i64::from(MEMORY),
    ) {
        let (wide_a, wide_b, wide_k) = (i128::from(a), i128::from(b), i128::from(k));
        prop_assert_eq!(fade(moment, a, b, k), (moment + wide_a * wide_b / wide_k) * (wide_k - 1) / wide_k);
    }
}

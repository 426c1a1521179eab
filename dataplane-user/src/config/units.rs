//! Quantities as people write them: durations in ns, bandwidths in bit/s, fractions in thousandths, and back.

use std::fmt;

use super::nearest::did_you_mean;

/// A unit and how many of the smallest one it is.
type Unit = (&'static str, u64);

/// From the smallest to the largest; the first has the factor 1.
const DURATIONS: [Unit; 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
const BANDWIDTHS: [Unit; 5] =
    [("bit/s", 1), ("kbit/s", 1_000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000), ("Tbit/s", 1_000_000_000_000)];

/// What is wrong with a quantity. Shown as the end of a sentence that begins with the quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UnitError {
    NoNumber,
    NoUnit,
    UnknownUnit { unit: String, hint: String },
    BetweenSteps { smallest: &'static str },
    TooLarge,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber => f.write_str("does not begin with a number"),
            Self::NoUnit => f.write_str("has no unit"),
            Self::UnknownUnit { unit, hint } => write!(f, "has an unknown unit, {unit:?}{hint}"),
            Self::BetweenSteps { smallest } => write!(f, "is not a whole number of {smallest}"),
            Self::TooLarge => f.write_str("is too large"),
        }
    }
}

/// A duration in ns. Zero needs no unit.
pub(super) fn duration_ns(text: &str) -> Result<u64, UnitError> {
    if text.trim() == "0" { Ok(0) } else { quantity(&text.replace(['µ', 'μ'], "u"), &DURATIONS) }
}

/// A bandwidth in bit/s.
pub(super) fn bandwidth_bits(text: &str) -> Result<u64, UnitError> {
    quantity(text, &BANDWIDTHS)
}

/// A duration in the largest unit in which it is a whole number.
pub(super) fn show_duration(ns: u64) -> String {
    show(ns, &DURATIONS)
}

/// A bandwidth in the largest unit in which it is a whole number.
pub(super) fn show_bandwidth(bits: u64) -> String {
    show(bits, &BANDWIDTHS)
}

/// What is wrong with a decimal number. Shown as the end of a sentence that begins with the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecimalError {
    NotPlain,
    BetweenSteps,
    TooLarge,
}

impl fmt::Display for DecimalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPlain => "is not a plain decimal number",
            Self::BetweenSteps => "has more than three decimals",
            Self::TooLarge => "is out of range",
        })
    }
}

/// A decimal number in thousandths.
pub(super) fn milli(text: &str) -> Result<u64, DecimalError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_digits(whole) || !is_digits(fraction) {
        return Err(DecimalError::NotPlain);
    }
    let whole: u64 = whole.parse().map_err(|_| DecimalError::TooLarge)?;
    let fraction = fraction_of(fraction, 1000).ok_or(DecimalError::BetweenSteps)?;
    whole.checked_mul(1000).and_then(|whole| whole.checked_add(fraction)).ok_or(DecimalError::TooLarge)
}

/// Thousandths as a decimal number, with one decimal at least.
pub(super) fn show_milli(milli: u32) -> String {
    let decimals = format!("{:03}", milli % 1000);
    let decimals = decimals.trim_end_matches('0');
    format!("{}.{}", milli / 1000, if decimals.is_empty() { "0" } else { decimals })
}

fn show(amount: u64, units: &[Unit]) -> String {
    let whole = units.iter().rev().find(|(_, factor)| amount != 0 && amount.is_multiple_of(*factor));
    let (unit, factor) = whole.unwrap_or(&units[0]);
    format!("{}{unit}", amount / factor)
}

/// `12.5us`: a decimal number, perhaps a space, a unit.
fn quantity(text: &str, units: &[Unit]) -> Result<u64, UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..end], text[end..].trim_start());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(UnitError::NoNumber);
    }
    if unit.is_empty() {
        return Err(UnitError::NoUnit);
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let hint = did_you_mean(unit, units.iter().map(|(name, _)| *name));
        return Err(UnitError::UnknownUnit { unit: unit.to_owned(), hint });
    };
    let whole: u64 = whole.parse().map_err(|_| UnitError::TooLarge)?;
    whole
        .checked_mul(*factor)
        .ok_or(UnitError::TooLarge)?
        .checked_add(fraction_of(fraction, *factor).ok_or(UnitError::BetweenSteps { smallest: units[0].0 })?)
        .ok_or(UnitError::TooLarge)
}

/// The decimal digits `fraction` of `factor`, if that is a whole number.
fn fraction_of(fraction: &str, factor: u64) -> Option<u64> {
    let digits = fraction.trim_end_matches('0');
    if digits.is_empty() {
        return Some(0);
    }
    // A factor is 10^n, so more than n digits never make a whole number, and n digits are below the factor.
    let step = factor.checked_div(10u64.checked_pow(u32::try_from(digits.len()).ok()?)?)?;
    if step == 0 { None } else { digits.parse::<u64>().ok()?.checked_mul(step) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_every_unit() {
        let cases = [
            ("0", 0),
            ("0ns", 0),
            ("250ns", 250),
            ("100us", 100_000),
            ("2.5 µs", 2_500),
            ("1.500ms", 1_500_000),
            ("0.000000001s", 1),
            (" 1s ", 1_000_000_000),
            ("18446744073709551615ns", u64::MAX),
        ];
        for (text, ns) in cases {
            assert_eq!(duration_ns(text), Ok(ns), "{text}");
        }
    }

    #[test]
    fn bandwidths_are_read_in_every_unit() {
        let cases = [("1bit/s", 1), ("2.5Gbit/s", 2_500_000_000), ("100 Mbit/s", 100_000_000)];
        for (text, bits) in cases {
            assert_eq!(bandwidth_bits(text), Ok(bits), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_refused_with_its_cause() {
        let unknown = |unit: &str, hint: &str| UnitError::UnknownUnit { unit: unit.to_owned(), hint: hint.to_owned() };
        let cases = [
            ("", UnitError::NoNumber),
            ("us", UnitError::NoNumber),
            (".5us", UnitError::NoNumber),
            ("5.us", UnitError::NoNumber),
            ("1.2.3us", UnitError::NoNumber),
            ("-5us", UnitError::NoNumber),
            ("20", UnitError::NoUnit),
            ("20uss", unknown("uss", "; did you mean us?")),
            ("20 furlongs", unknown("furlongs", "")),
            ("0.5ns", UnitError::BetweenSteps { smallest: "ns" }),
            ("1.00005us", UnitError::BetweenSteps { smallest: "ns" }),
            ("0.0000000000000000000000000001s", UnitError::BetweenSteps { smallest: "ns" }),
            ("18446744073709551616ns", UnitError::TooLarge),
            ("99999999999999s", UnitError::TooLarge),
        ];
        for (text, error) in cases {
            assert_eq!(duration_ns(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn decimal_numbers_are_read_in_thousandths_and_shown_so() {
        let cases = [("0", 0), ("2", 2_000), ("2.0", 2_000), ("0.2", 200), ("0.001", 1), ("100.0100", 100_010)];
        for (text, thousandths) in cases {
            assert_eq!(milli(text), Ok(thousandths), "{text}");
        }
        let refused = [
            ("", DecimalError::NotPlain),
            (".5", DecimalError::NotPlain),
            ("-1.0", DecimalError::NotPlain),
            ("1.2.3", DecimalError::NotPlain),
            ("1e3", DecimalError::NotPlain),
            ("nan", DecimalError::NotPlain),
            ("0.0005", DecimalError::BetweenSteps),
            ("0.00000000000000000000000000001", DecimalError::BetweenSteps),
            ("18446744073709551616", DecimalError::TooLarge),
            ("18446744073709552.0", DecimalError::TooLarge),
        ];
        for (text, error) in refused {
            assert_eq!(milli(text), Err(error), "{text}");
        }
        for (thousandths, text) in [(0, "0.0"), (2_000, "2.0"), (200, "0.2"), (1, "0.001"), (100_010, "100.01")] {
            assert_eq!(show_milli(thousandths), text);
        }
        for thousandths in [0, 1, 10, 999, 1_000, 1_001, u32::MAX] {
            assert_eq!(milli(&show_milli(thousandths)), Ok(thousandths.into()));
        }
    }

    #[test]
    fn shown_quantities_read_back() {
        assert_eq!(show_duration(0), "0ns");
        assert_eq!(show_duration(1_500), "1500ns");
        assert_eq!(show_duration(20_000), "20us");
        assert_eq!(show_bandwidth(10_000_000_000), "10Gbit/s");
        for amount in [0, 1, 999, 1_000, 123_456_789, u64::MAX] {
            assert_eq!(duration_ns(&show_duration(amount)), Ok(amount));
            assert_eq!(bandwidth_bits(&show_bandwidth(amount)), Ok(amount));
        }
    }
}

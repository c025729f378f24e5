//! Kubernetes quantities: exact values in nano-units, formatted in the canonical form of their original notation.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NANO: i128 = 1_000_000_000;
/// Largest magnitude in units; larger input is capped, as in Kubernetes.
const MAX_UNITS: i128 = i64::MAX as i128;
const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// An amount of a resource. Equality and order compare the amount and ignore the notation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    notation: Notation,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Notation {
    /// `500m`, `2k`
    #[default]
    Decimal,
    /// `2Gi`
    Binary,
    /// `2e3`
    Exponent,
}

/// Error returned when parsing text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$', not {text:?}")]
pub struct QuantityError {
    text: String,
}

#[derive(Clone, Copy)]
enum Scale {
    /// A power of ten: its exponent.
    Ten(i32),
    /// A power of two: its exponent.
    Two(u32),
}

// === impl Quantity ===

impl Quantity {
    /// Zero, in decimal notation.
    pub const ZERO: Self = Self { nanos: 0, notation: Notation::Decimal };

    /// Creates a quantity from a whole number of units.
    pub fn from_units(units: i64) -> Self {
        Self { nanos: i128::from(units) * NANO, notation: Notation::Decimal }
    }

    /// Returns the value in units, rounded away from zero.
    pub fn value(&self) -> i64 {
        saturate(divide_up(self.nanos, NANO))
    }

    /// Returns the approximate value in units.
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// Reports whether the value is zero.
    pub fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// Reports whether the value is below zero.
    pub fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    fn capped(nanos: i128, notation: Notation) -> Self {
        let cap = MAX_UNITS * NANO;
        Self { nanos: nanos.clamp(-cap, cap), notation }
    }

    /// Returns the notation to format with: Kubernetes formats small or fractional binary amounts as decimal to keep
    /// them exact.
    fn display_notation(&self) -> Notation {
        let fits_binary = self.nanos.abs() >= 1024 * NANO && self.nanos % NANO == 0;
        match self.notation {
            Notation::Binary if !fits_binary => Notation::Decimal,
            notation => notation,
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        parse(text).ok_or_else(|| QuantityError { text: text.to_owned() })
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        match self.display_notation() {
            Notation::Binary => {
                let (mantissa, steps) = reduce(self.nanos / NANO, 1024, BINARY_SUFFIXES.len());
                let suffix = steps.checked_sub(1).map_or("", |i| BINARY_SUFFIXES[i].0);
                write!(f, "{mantissa}{suffix}")
            }
            Notation::Decimal => {
                let (mantissa, steps) = reduce(self.nanos, 1000, DECIMAL_SUFFIXES.len() - 1);
                write!(f, "{mantissa}{}", DECIMAL_SUFFIXES[steps].0)
            }
            Notation::Exponent => {
                let (mantissa, steps) = reduce(self.nanos, 1000, DECIMAL_SUFFIXES.len() - 1);
                match DECIMAL_SUFFIXES[steps].1 {
                    0 => write!(f, "{mantissa}"),
                    exponent => write!(f, "{mantissa}e{exponent}"),
                }
            }
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}
impl std::hash::Hash for Quantity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Add for Quantity {
    type Output = Self;
    /// Adds two quantities. The sum has the notation of the left operand, or of the right if the left is zero.
    fn add(self, other: Self) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Self::capped(self.nanos.saturating_add(other.nanos), notation)
    }
}
impl Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Self::capped(self.nanos.saturating_sub(other.nanos), notation)
    }
}
impl Mul<i64> for Quantity {
    type Output = Self;
    fn mul(self, factor: i64) -> Self {
        Self::capped(self.nanos.saturating_mul(i128::from(factor)), self.notation)
    }
}
impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}
impl std::iter::Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 500m, 2 or 80Gi")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_i64<E: serde::de::Error>(self, units: i64) -> Result<Quantity, E> {
                Ok(Quantity::from_units(units))
            }
            fn visit_u64<E: serde::de::Error>(self, units: u64) -> Result<Quantity, E> {
                Ok(Quantity::capped(i128::from(units) * NANO, Notation::Decimal))
            }
            fn visit_f64<E: serde::de::Error>(self, units: f64) -> Result<Quantity, E> {
                units.to_string().parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (integer.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (scale, notation) = parse_suffix(suffix)?;
    let nanos = to_nanos(integer, fraction, scale);
    Some(Quantity::capped(if negative { -nanos } else { nanos }, notation))
}

fn parse_suffix(suffix: &str) -> Option<(Scale, Notation)> {
    if let Some((_, power)) = DECIMAL_SUFFIXES.iter().find(|(s, _)| *s == suffix) {
        return Some((Scale::Ten(*power), Notation::Decimal));
    }
    if let Some((_, power)) = BINARY_SUFFIXES.iter().find(|(s, _)| *s == suffix) {
        return Some((Scale::Two(*power), Notation::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let power: i32 = exponent.parse().ok()?;
    Some((Scale::Ten(power.clamp(-1000, 1000)), Notation::Exponent))
}

/// Returns `integer.fraction × scale` in nano-units, rounded up and capped at [`MAX_UNITS`].
fn to_nanos(integer: &str, fraction: &str, scale: Scale) -> i128 {
    let digits: String = [integer, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let fraction_digits = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let (power, factor) = match scale {
        Scale::Ten(power) => (power, 1_i128),
        Scale::Two(bits) => (0, 1_i128 << bits),
    };
    let shift = power.saturating_add(9).saturating_sub(fraction_digits);
    let cap = MAX_UNITS * NANO;
    let Some(mantissa) = digits.parse::<i128>().ok() else {
        return long_mantissa_to_nanos(digits, shift, factor);
    };
    let Some(product) = mantissa.checked_mul(factor) else { return cap };
    if shift >= 0 {
        let power = 10_i128.checked_pow(shift.unsigned_abs());
        power.and_then(|p| product.checked_mul(p)).unwrap_or(cap).min(cap)
    } else {
        10_i128.checked_pow(shift.unsigned_abs()).map_or(1, |p| divide_up(product, p)).min(cap)
    }
}

/// Converts a mantissa with more digits than fit in 128 bits: drops the last digits, which are below a nano-unit or
/// irrelevant because the amount is capped.
fn long_mantissa_to_nanos(digits: &str, shift: i32, factor: i128) -> i128 {
    let (leading, dropped) = digits.split_at(18);
    let shift = shift.saturating_add(i32::try_from(dropped.len()).unwrap_or(i32::MAX));
    let Some(product) = leading.parse::<i128>().ok().and_then(|m| m.checked_mul(factor)) else {
        return MAX_UNITS * NANO;
    };
    if shift >= 0 {
        let power = 10_i128.checked_pow(shift.unsigned_abs());
        power.and_then(|p| product.checked_mul(p)).unwrap_or(MAX_UNITS * NANO)
    } else {
        10_i128.checked_pow(shift.unsigned_abs()).map_or(1, |p| product / p + 1)
    }
}

fn divide_up(value: i128, divisor: i128) -> i128 {
    let remainder = value % divisor;
    value / divisor + remainder.signum()
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Divides by `base` while the division is exact, at most `max_steps` times.
fn reduce(mut mantissa: i128, base: i128, max_steps: usize) -> (i128, usize) {
    let mut steps = 0;
    while steps < max_steps && mantissa % base == 0 {
        mantissa /= base;
        steps += 1;
    }
    (mantissa, steps)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0", "0")]
    #[case("0Gi", "0")]
    #[case("1", "1")]
    #[case("0.5", "500m")]
    #[case(".5", "500m")]
    #[case("1.", "1")]
    #[case("1000m", "1")]
    #[case("1500m", "1500m")]
    #[case("1024Ki", "1Mi")]
    #[case("1.5Gi", "1536Mi")]
    #[case("80Gi", "80Gi")]
    #[case("0.1Ki", "102400m")]
    #[case("512", "512")]
    #[case("1E", "1E")]
    #[case("1e3", "1e3")]
    #[case("12e2", "1200")]
    #[case("1000000", "1M")]
    #[case("-3k", "-3k")]
    #[case("0.0000000001", "1n")]
    #[case("1000E", "9223372036854775807")]
    fn formats_canonically(#[case] text: &str, #[case] expect: &str) {
        assert_eq!(text.parse::<Quantity>().unwrap().to_string(), expect);
    }

    #[rstest]
    #[case("")]
    #[case("Gi")]
    #[case("1 Gi")]
    #[case("1gi")]
    #[case("1.2.3")]
    #[case("--1")]
    #[case("1e")]
    #[case("1K")]
    fn rejects_malformed_text(#[case] text: &str) {
        assert!(text.parse::<Quantity>().is_err());
    }

    #[rstest]
    #[case("1500m", 2)]
    #[case("1n", 1)]
    #[case("-1500m", -2)]
    #[case("1Ki", 1024)]
    fn value_rounds_away_from_zero(#[case] text: &str, #[case] value: i64) {
        let quantity: Quantity = text.parse().unwrap();
        assert_eq!(quantity.value(), value);
    }

    #[test]
    fn reads_numbers_and_strings() {
        let quantities: Vec<Quantity> = serde_json::from_str(r#"[2, 0.5, "1Gi"]"#).unwrap();
        assert_eq!(serde_json::to_string(&quantities).unwrap(), r#"["2","500m","1Gi"]"#);
    }

    #[test]
    fn arithmetic_keeps_the_notation() {
        let half: Quantity = "512Mi".parse().unwrap();
        assert_eq!((half * 3).to_string(), "1536Mi");
        assert_eq!((Quantity::ZERO + half + half).to_string(), "1Gi");
        assert_eq!((half - half).to_string(), "0");
    }

    proptest! {
        #[test]
        fn canonical_form_is_stable(integer in 0u64..2_000_000, fraction in 0u32..1000, suffix in "[numkMGT]|Ki|Mi|Gi|e3|") {
            let first: Quantity = format!("{integer}.{fraction}{suffix}").parse().unwrap();
            let reparsed: Quantity = first.to_string().parse().unwrap();
            prop_assert_eq!(first, reparsed);
            prop_assert_eq!(first.to_string(), reparsed.to_string());
        }

        #[test]
        fn never_panics(text in "[-+]?[0-9.]{0,60}[eEinumkKMGTP]{0,2}[-+]?[0-9]{0,4}") {
            let _ = text.parse::<Quantity>().map(|q| q.to_string());
        }
    }
}

//! Model sizes in parameters: `7B`, `7.24 b`, `350M`, `1T`, `7000000000`.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::openapi;

/// A number of model parameters: decimal digits with an optional suffix K, M, B or T in either case, optionally
/// separated by spaces. Without a suffix, the number must be an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParameterCount(pub u64);

/// Error returned when parsing text that is not a model size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a model size; write a number with K, M, B or T, such as `7B`")]
pub struct ParameterCountError(String);

struct ParameterCountVisitor;

// === impl ParameterCount ===

impl ParameterCount {
    /// Returns the count as a float.
    pub fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

impl FromStr for ParameterCount {
    type Err = ParameterCountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParameterCountError(text.to_owned());
        let trimmed = text.trim();
        let (number, exponent) = split_suffix(trimmed);
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let has_digits = !integer.is_empty() || !fraction.is_empty();
        // A fraction of a parameter, such as `7.24`, means that the suffix is missing.
        let is_fractional_count = exponent == 0 && !fraction.is_empty();
        if !has_digits || !is_digits(integer) || !is_digits(fraction) || number.ends_with('.') || is_fractional_count {
            return Err(error());
        }
        let scale = 10u128.checked_pow(exponent).ok_or_else(error)?;
        let integer: u128 = if integer.is_empty() { 0 } else { integer.parse().map_err(|_| error())? };
        let scaled_fraction = scale_fraction(fraction, exponent);
        let count = integer.checked_mul(scale).and_then(|n| n.checked_add(scaled_fraction)).ok_or_else(error)?;
        u64::try_from(count).map(Self).map_err(|_| error())
    }
}

impl fmt::Display for ParameterCount {
    /// Formats the count in the largest unit that needs at most three decimals, otherwise as an integer: `7B`, `7.242B`, `999`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, exponent) in [('T', 12u32), ('B', 9), ('M', 6), ('K', 3)] {
            let unit = 10u64.pow(exponent);
            if self.0 >= unit && self.0.is_multiple_of((unit / 1000).max(1)) {
                let thousandths = (self.0 % unit) / (unit / 1000);
                let decimals = format!("{thousandths:03}");
                let decimals = decimals.trim_end_matches('0');
                let point = if decimals.is_empty() { "" } else { "." };
                return write!(f, "{}{point}{decimals}{suffix}", self.0 / unit);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl Serialize for ParameterCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ParameterCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ParameterCountVisitor)
    }
}

impl JsonSchema for ParameterCount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ParameterCount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true, "pattern": openapi::MODEL_SIZE.pattern, "minimum": 0})
    }
}

// === impl ParameterCountVisitor ===

impl de::Visitor<'_> for ParameterCountVisitor {
    type Value = ParameterCount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a model size such as `7B`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ParameterCount, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<ParameterCount, E> {
        Ok(ParameterCount(count))
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<ParameterCount, E> {
        u64::try_from(count).map(ParameterCount).map_err(|_| E::custom(ParameterCountError(count.to_string())))
    }
}

/// Splits off the suffix; returns the number and the power of ten of the suffix.
fn split_suffix(text: &str) -> (&str, u32) {
    let exponent = match text.chars().next_back().map(|last| last.to_ascii_uppercase()) {
        Some('K') => 3,
        Some('M') => 6,
        Some('B') => 9,
        Some('T') => 12,
        _ => return (text, 0),
    };
    (text[..text.len() - 1].trim_end(), exponent)
}

/// Returns the digits after the decimal point, scaled; digits below one parameter are truncated.
fn scale_fraction(fraction: &str, exponent: u32) -> u128 {
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(exponent as usize);
    digits.fold(0, |sum, digit| sum * 10 + u128::from(digit - b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("7B", Some(7_000_000_000))]
    #[case("7b", Some(7_000_000_000))]
    #[case("7 B", Some(7_000_000_000))]
    #[case(" 7.24B ", Some(7_240_000_000))]
    #[case(".5B", Some(500_000_000))]
    #[case("500K", Some(500_000))]
    #[case("135m", Some(135_000_000))]
    #[case("1.03T", Some(1_030_000_000_000))]
    #[case("7000000000", Some(7_000_000_000))]
    #[case("0", Some(0))]
    #[case("", None)]
    #[case("B", None)]
    #[case("7.B", None)]
    #[case("-7B", None)]
    #[case("7GB", None)]
    #[case("7e9", None)]
    #[case::missing_suffix("7.24", None)]
    #[case("99999999999T", None)]
    fn parses_sizes(#[case] text: &str, #[case] expect: Option<u64>) {
        assert_eq!(text.parse::<ParameterCount>().ok().map(|count| count.0), expect);
    }

    #[rstest]
    #[case(7_000_000_000, "7B")]
    #[case(7_240_000_000, "7.24B")]
    #[case(7_241_732_096, "7241732.096K")]
    #[case(1_500, "1.5K")]
    #[case(1_030_000_000_000, "1.03T")]
    #[case(999, "999")]
    #[case(0, "0")]
    fn formats_sizes(#[case] count: u64, #[case] expect: &str) {
        assert_eq!(ParameterCount(count).to_string(), expect);
    }
}

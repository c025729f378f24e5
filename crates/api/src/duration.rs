//! Durations in Go syntax: `60ms`, `1m30s`, `1.5h`.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::openapi;

/// A non-negative duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(pub std::time::Duration);

/// Error returned when parsing text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration; write a number with a unit, such as `60ms` or `1m30s`")]
pub struct DurationError(String);

const UNITS: [(&str, f64); 7] =
    [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9), ("m", 60e9), ("h", 3600e9)];

// === impl Duration ===

impl FromStr for Duration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let nanos = parse(text.trim()).ok_or_else(|| DurationError(text.to_owned()))?;
        Ok(Self(std::time::Duration::from_nanos(nanos)))
    }
}

impl fmt::Display for Duration {
    /// Formats the duration in the largest unit that divides it: `60ms`, `90s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let units =
            [(3_600_000_000_000, "h"), (60_000_000_000, "m"), (1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
        for (unit, name) in units {
            if nanos > 0 && nanos.is_multiple_of(unit) {
                return write!(f, "{}{name}", nanos / unit);
            }
        }
        if nanos == 0 { f.write_str("0s") } else { write!(f, "{nanos}ns") }
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": openapi::DURATION.pattern})
    }
}

fn parse(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let mut rest = text;
    let mut nanos = 0.0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        let scale = UNITS.iter().find(|(name, _)| *name == unit)?.1;
        nanos += number.parse::<f64>().ok()? * scale;
        rest = next;
    }
    (!text.is_empty() && nanos < u64::MAX as f64).then_some(nanos.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("60ms", Some("60ms"))]
    #[case("1m30s", Some("90s"))]
    #[case("1.5h", Some("90m"))]
    #[case("0", Some("0s"))]
    #[case("", None)]
    #[case("60", None)]
    #[case("60 ms", None)]
    #[case("-1s", None)]
    fn parses_durations(#[case] text: &str, #[case] expect: Option<&str>) {
        let formatted = text.parse::<Duration>().ok().map(|duration| duration.to_string());
        assert_eq!(formatted.as_deref(), expect);
    }
}

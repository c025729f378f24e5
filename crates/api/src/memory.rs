//! Accelerator memory in marketing units: `80Gi`, `80G`, `80GB` and `80` all mean 80 GiB.

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::openapi;

/// Memory of one accelerator, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AcceleratorMemory(pub u64);

/// Error returned when parsing text that is not an amount of memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an amount of memory; write it in GiB, such as `80Gi` or `80`")]
pub struct AcceleratorMemoryError(String);

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;
/// Largest number without a unit that is read as GiB; larger numbers are bytes, as in a Kubernetes quantity.
const MAX_UNITLESS_GIB: f64 = 10_000.0;

struct AcceleratorMemoryVisitor;

// === impl AcceleratorMemory ===

impl AcceleratorMemory {
    /// Creates an amount from GiB.
    pub fn from_gib(gib: u64) -> Self {
        Self(gib.saturating_mul(GIB))
    }

    /// Creates an amount from MiB, the unit of the label `nvidia.com/gpu.memory`.
    pub fn from_mib(mib: u64) -> Self {
        Self(mib.saturating_mul(MIB))
    }

    /// Returns the amount in GiB.
    pub fn gib(self) -> f64 {
        self.0 as f64 / GIB as f64
    }
}

impl FromStr for AcceleratorMemory {
    type Err = AcceleratorMemoryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || AcceleratorMemoryError(text.to_owned());
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let number: f64 = trimmed[..end].parse().map_err(|_| error())?;
        let unit = match trimmed[end..].trim().to_ascii_lowercase().as_str() {
            "" if number <= MAX_UNITLESS_GIB => GIB,
            "" => 1,
            "g" | "gb" | "gi" | "gib" => GIB,
            "m" | "mb" | "mi" | "mib" => MIB,
            "t" | "tb" | "ti" | "tib" => TIB,
            _ => return Err(error()),
        };
        Ok(Self((number * unit as f64).round() as u64))
    }
}

impl fmt::Display for AcceleratorMemory {
    /// Formats the amount in the largest binary unit that divides it: `80Gi`, `81559Mi`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes.is_multiple_of(GIB) => write!(f, "{}Gi", bytes / GIB),
            bytes if bytes.is_multiple_of(MIB) => write!(f, "{}Mi", bytes / MIB),
            bytes => write!(f, "{:.2}Gi", bytes as f64 / GIB as f64),
        }
    }
}

impl Serialize for AcceleratorMemory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for AcceleratorMemory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AcceleratorMemoryVisitor)
    }
}

impl JsonSchema for AcceleratorMemory {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AcceleratorMemory".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true, "pattern": openapi::MEMORY.pattern, "minimum": 0})
    }
}

// === impl AcceleratorMemoryVisitor ===

impl de::Visitor<'_> for AcceleratorMemoryVisitor {
    type Value = AcceleratorMemory;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an amount of memory such as `80Gi`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<AcceleratorMemory, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<AcceleratorMemory, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<AcceleratorMemory, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<AcceleratorMemory, E> {
        self.visit_str(&number.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("80Gi")]
    #[case("80G")]
    #[case("80GB")]
    #[case("80 GB")]
    #[case("80")]
    #[case("81920Mi")]
    #[case("85899345920")]
    fn reads_all_spellings_of_80_gib(#[case] text: &str) {
        assert_eq!(text.parse(), Ok(AcceleratorMemory::from_gib(80)));
    }

    #[rstest]
    #[case("")]
    #[case("big")]
    #[case("80Pi ")]
    #[case("-80")]
    fn rejects_malformed_text(#[case] text: &str) {
        assert!(text.parse::<AcceleratorMemory>().is_err());
    }

    #[test]
    fn formats_in_binary_units() {
        assert_eq!(AcceleratorMemory::from_gib(80).to_string(), "80Gi");
        assert_eq!(AcceleratorMemory::from_mib(81_559).to_string(), "81559Mi");
    }
}

//! Compute capabilities: dotted numbers, compared component by component, so that 10.0 is newer than 9.0.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A compute capability, such as `9.0` (Hopper) or `10.0` (Blackwell).
#[derive(Clone, Debug)]
pub struct ComputeCapability {
    parts: Vec<u32>,
}

/// Error returned when parsing text that is not a dotted number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a compute capability; write a dotted number, such as `9.0`")]
pub struct ComputeCapabilityError(String);

// === impl ComputeCapability ===

impl ComputeCapability {
    /// Creates a compute capability from the values of the labels `nvidia.com/gpu.compute.major` and `.minor`.
    pub fn new(major: u32, minor: u32) -> Self {
        Self { parts: vec![major, minor] }
    }
}

impl FromStr for ComputeCapability {
    type Err = ComputeCapabilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |part: &str| {
            let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        };
        let parts = text.trim().split('.').map(number).collect::<Option<Vec<u32>>>();
        parts.map(|parts| Self { parts }).ok_or_else(|| ComputeCapabilityError(text.to_owned()))
    }
}

impl Ord for ComputeCapability {
    /// Compares component by component. Missing components count as 0: `9` equals `9.0`.
    fn cmp(&self, other: &Self) -> Ordering {
        let part = |capability: &Self, index: usize| capability.parts.get(index).copied().unwrap_or(0);
        let length = self.parts.len().max(other.parts.len());
        (0..length)
            .map(|index| part(self, index).cmp(&part(other, index)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for ComputeCapability {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ComputeCapability {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ComputeCapability {}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.parts.iter().map(u32::to_string).collect();
        f.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("9.0", "10.0", Ordering::Less)]
    #[case("9", "9.0", Ordering::Equal)]
    #[case("8.9", "8.10", Ordering::Less)]
    #[case("12.0", "8.0", Ordering::Greater)]
    fn compares_by_component(#[case] a: &str, #[case] b: &str, #[case] expect: Ordering) {
        let parse = |text: &str| text.parse::<ComputeCapability>().unwrap();
        assert_eq!(parse(a).cmp(&parse(b)), expect);
    }

    #[rstest]
    #[case("")]
    #[case("gfx90a")]
    #[case("9.")]
    #[case("+9.0")]
    fn rejects_malformed_text(#[case] text: &str) {
        assert!(text.parse::<ComputeCapability>().is_err());
    }
}

//! Compute capability: a dotted number, compared part by part, so that 10.0 is newer than 9.0.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Such as `9.0` (Hopper) or `10.0` (Blackwell).
#[derive(Clone, Debug)]
pub struct ComputeCapability {
    parts: Vec<u32>,
}

/// Text that is no dotted number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a compute capability; write a dotted number, such as `9.0`")]
pub struct ComputeCapabilityError(String);

impl ComputeCapability {
    /// From the `gpu.compute.major` and `.minor` labels.
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
    /// Missing parts count as 0: `9` equals `9.0`.
    fn cmp(&self, other: &Self) -> Ordering {
        let part = |of: &Self, index: usize| of.parts.get(index).copied().unwrap_or(0);
        let longest = self.parts.len().max(other.parts.len());
        (0..longest)
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
    fn compared(#[case] a: &str, #[case] b: &str, #[case] expect: Ordering) {
        let parse = |text: &str| text.parse::<ComputeCapability>().unwrap();
        assert_eq!(parse(a).cmp(&parse(b)), expect);
    }

    #[rstest]
    #[case("")]
    #[case("gfx90a")]
    #[case("9.")]
    #[case("+9.0")]
    fn refused(#[case] text: &str) {
        assert!(text.parse::<ComputeCapability>().is_err());
    }
}

//! Model sizes: parameter counts and their ranges.

use std::fmt;

/// A range of parameter counts with inclusive bounds; an unset bound is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeRange {
    /// Least parameter count.
    pub min: Option<u64>,
    /// Greatest parameter count.
    pub max: Option<u64>,
}

/// Formats a parameter count with a unit and at most two decimals: `3.2B`, `405B`, `350M`.
pub struct DisplayCount(pub u64);

// === impl SizeRange ===

impl SizeRange {
    /// Returns whether the range contains this number of parameters.
    #[must_use]
    pub fn contains(&self, parameters: u64) -> bool {
        self.min.is_none_or(|min| parameters >= min) && self.max.is_none_or(|max| parameters <= max)
    }

    /// Returns the difference between a number of parameters and the nearest one in the range.
    pub(crate) fn distance(&self, parameters: u64) -> u64 {
        let below = self.min.map_or(0, |min| min.saturating_sub(parameters));
        below.max(self.max.map_or(0, |max| parameters.saturating_sub(max)))
    }
}

impl fmt::Display for SizeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{}–{}", DisplayCount(min), DisplayCount(max)),
            (Some(min), None) => write!(f, "{} or more", DisplayCount(min)),
            (None, Some(max)) => write!(f, "up to {}", DisplayCount(max)),
            (None, None) => f.write_str("any size"),
        }
    }
}

// === impl DisplayCount ===

impl fmt::Display for DisplayCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0 as f64;
        let (scale, suffix) = match self.0 {
            1_000_000_000_000.. => (1e12, "T"),
            1_000_000_000.. => (1e9, "B"),
            1_000_000.. => (1e6, "M"),
            1_000.. => (1e3, "K"),
            _ => (1.0, ""),
        };
        let rounded = (count / scale * 100.0).round() / 100.0;
        write!(f, "{rounded}{suffix}")
    }
}

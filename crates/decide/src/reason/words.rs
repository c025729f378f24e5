//! Numbers and lists as sentences write them.

use std::fmt;

use crate::supply::SizeRange;

/// Members of a list that a sentence names before it only counts.
pub(super) const SHOWN: usize = 5;

/// `a, b, c and 7 more`: a sentence stays a sentence, however long the list.
pub(super) struct Listed<'a>(pub(super) &'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..SHOWN).unwrap_or(self.0);
        f.write_str(&shown.join(", "))?;
        match self.0.len() - shown.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

pub(super) fn or_unstated(text: Option<&str>) -> &str {
    text.unwrap_or("(unstated)")
}

impl fmt::Display for SizeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) => write!(f, "{}–{}", Count(min), Count(max)),
            (Some(min), None) => write!(f, "{} or more", Count(min)),
            (None, Some(max)) => write!(f, "up to {}", Count(max)),
            (None, None) => f.write_str("any size"),
        }
    }
}

/// A parameter count as people write it: `3.2B`, `405B`, `350M`.
pub struct Count(pub u64);

impl fmt::Display for Count {
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

/// Bytes in GiB, as memory of devices is written.
pub(super) struct Gibibytes(pub(super) u64);

impl fmt::Display for Gibibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gibibytes = self.0 as f64 / f64::from(1 << 30);
        write!(f, "{} GiB", (gibibytes * 10.0).round() / 10.0)
    }
}

/// Bytes in GB, as sizes of models are written.
pub(super) struct Gigabytes(pub(super) u64);

impl fmt::Display for Gigabytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = self.0 as f64 / 1e9;
        write!(f, "{} GB", (gigabytes * 10.0).round() / 10.0)
    }
}

/// What a class states, if it does.
pub(super) struct Offered<T>(pub(super) Option<T>);

impl<T: fmt::Display> fmt::Display for Offered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("none stated"),
        }
    }
}

//! Numbers and lists as sentences write them.

use std::fmt;

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

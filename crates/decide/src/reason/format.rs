//! Formatting of values and lists in messages.

use std::fmt;

/// Maximum number of list items in a message; the rest is given as a count.
pub(super) const MAX_LISTED: usize = 5;

/// Formats a list as `a, b, c and 7 more`.
pub(crate) struct AbbreviatedList<'a>(pub(crate) &'a [String]);

/// Formats a list that is one of several as `a, b and 8 more`.
pub(super) struct ShortList<'a>(pub(super) &'a [String]);

/// Formats bytes in GiB, as accelerator memory is usually given.
pub(super) struct Gibibytes(pub(super) u64);

/// Formats bytes in GB, as model sizes are usually given.
pub(crate) struct Gigabytes(pub(crate) u64);

/// Formats a capability of a class: `has 40 GiB`, or `declares none`.
pub(super) struct DeclaredValue<T>(pub(super) Option<T>);

/// Returns the text, or a placeholder for an unset field.
pub(super) fn or_unset(text: Option<&str>) -> &str {
    text.unwrap_or("(unset)")
}

// === impl AbbreviatedList ===

impl fmt::Display for AbbreviatedList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_first(f, self.0, MAX_LISTED)
    }
}

// === impl ShortList ===

impl fmt::Display for ShortList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt_first(f, self.0, 2)
    }
}

/// Formats the first `max` items and the number of the others.
fn fmt_first(f: &mut fmt::Formatter<'_>, all: &[String], max: usize) -> fmt::Result {
    let items = all.get(..max).unwrap_or(all);
    f.write_str(&items.join(", "))?;
    match all.len() - items.len() {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

// === impl Gibibytes ===

impl fmt::Display for Gibibytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gibibytes = self.0 as f64 / f64::from(1 << 30);
        write!(f, "{} GiB", (gibibytes * 10.0).round() / 10.0)
    }
}

// === impl Gigabytes ===

impl fmt::Display for Gigabytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = self.0 as f64 / 1e9;
        write!(f, "{} GB", (gigabytes * 10.0).round() / 10.0)
    }
}

// === impl DeclaredValue ===

impl<T: fmt::Display> fmt::Display for DeclaredValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => write!(f, "has {value}"),
            None => f.write_str("declares none"),
        }
    }
}

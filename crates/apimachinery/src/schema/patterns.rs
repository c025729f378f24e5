//! Compiled patterns of one schema: large definitions repeat a few patterns in hundreds of fields.

use std::collections::HashMap;

use regex::Regex;

/// The patterns that were compiled before, by their text.
#[derive(Default)]
pub(super) struct Patterns<'s>(HashMap<&'s str, Regex>);

// === impl Patterns ===

impl<'s> Patterns<'s> {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// It is not a regular expression, or too large.
    pub(super) fn compile(&mut self, pattern: &'s str) -> Result<Regex, regex::Error> {
        if let Some(regex) = self.0.get(pattern) {
            return Ok(regex.clone());
        }
        let regex = Regex::new(pattern)?;
        self.0.insert(pattern, regex.clone());
        Ok(regex)
    }
}

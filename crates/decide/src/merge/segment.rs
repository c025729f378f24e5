//! Splits command lines into flags with their values and positional arguments.

use std::collections::BTreeSet;

use crate::merge::flags;

/// Identity of a segment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FlagKey {
    /// Canonical flag name; a one-letter flag includes its dash.
    Flag(String),
    /// A positional argument.
    Word(String),
}

/// A flag with its values, or a positional argument.
pub(super) struct Segment<'a> {
    pub(super) key: FlagKey,
    pub(super) words: Vec<&'a String>,
    /// Whether the words that follow are values of the flag.
    accepts_values: bool,
}

// === impl Segment ===

impl Segment<'_> {
    /// Returns the flag as written, without an inline value.
    pub(super) fn name(&self) -> &str {
        let first = self.words.first().map(|word| word.as_str()).unwrap_or_default();
        first.split(['=', ' ']).next().unwrap_or(first)
    }

    /// Returns the values of the flag.
    pub(super) fn values(&self) -> Vec<&str> {
        let first = self.words.first().map(|word| word.as_str()).unwrap_or_default();
        let inline = first.find(['=', ' ']).map(|index| first[index + 1..].trim());
        inline.into_iter().chain(self.words.iter().skip(1).map(|word| word.as_str())).collect()
    }
}

/// Splits words into segments. All words up to the next flag are values of a flag (`--cuda-graph-bs 1 2 4`), unless it has an
/// inline value (`--flag=v`) or is a switch.
pub(super) fn segments(words: &[String]) -> Vec<Segment<'_>> {
    let mut segments: Vec<Segment<'_>> = Vec::new();
    for word in words {
        match (flags::canonical_flag(word), segments.last_mut()) {
            (Some(flag), _) => {
                let accepts_values = !word.contains(['=', ' ']);
                segments.push(Segment { key: FlagKey::Flag(flag), words: vec![word], accepts_values });
            }
            (None, Some(flag)) if flag.accepts_values && is_value_of(word, flag) => flag.words.push(word),
            (None, _) => {
                segments.push(Segment { key: FlagKey::Word(word.clone()), words: vec![word], accepts_values: false });
            }
        }
    }
    segments
}

fn is_value_of(word: &str, flag: &Segment<'_>) -> bool {
    let is_switch = flag.words.first().is_some_and(|name| flags::is_switch(name));
    word != "--" && (!is_switch || flags::is_boolean(word))
}

/// Returns the keys of all segments of `words`.
pub(super) fn keys(words: &[String]) -> BTreeSet<FlagKey> {
    segments(words).into_iter().map(|segment| segment.key).collect()
}

/// Returns `words` without the segments that have one of `keys`.
pub(super) fn without_keys(words: &[String], keys: &BTreeSet<FlagKey>) -> Vec<String> {
    let retained = segments(words).into_iter().filter(|segment| !keys.contains(&segment.key));
    retained.flat_map(|segment| segment.words).cloned().collect()
}

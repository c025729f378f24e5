//! Flags of inference servers.

/// Flags (`--flag value`, `--flag=value`, `--flag a b`) and the first positional argument.
pub(super) struct Flags {
    values: Vec<(String, Vec<String>)>,
    /// The first positional argument, if it precedes all flags.
    pub(super) positional: Option<String>,
}

impl Flags {
    /// Parses the words after the program.
    pub(super) fn parse(words: &[String]) -> Self {
        let mut flags = Self { values: Vec::new(), positional: None };
        for word in words {
            match parse_flag(word) {
                Some((name, value)) => flags.values.push((name, value.into_iter().collect())),
                None => match flags.values.last_mut() {
                    Some((_, values)) => values.push(word.clone()),
                    None => flags.positional = flags.positional.or(Some(word.clone())),
                },
            }
        }
        flags
    }

    /// Returns the values of the last flag `name`; empty if the flag is absent or has no value.
    pub(super) fn values_of(&self, name: &str) -> &[String] {
        self.values.iter().rev().find(|(flag, _)| flag == name).map_or(&[], |(_, values)| values)
    }

    /// Returns whether the flag `name` is present.
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.values.iter().any(|(flag, _)| flag == name)
    }

    /// Returns the first value of the first of `names` that has one.
    pub(super) fn first_value(&self, names: &[&str]) -> Option<&String> {
        names.iter().find_map(|name| self.values_of(name).first())
    }

    /// Returns the number in [`Flags::first_value`], if it is one.
    pub(super) fn number(&self, names: &[&str]) -> Option<usize> {
        self.first_value(names).and_then(|text| parse_human_number(text))
    }
}

/// Splits a flag into its name and the value after `=`. The name has no leading dashes, and `_` is replaced with `-`.
fn parse_flag(word: &str) -> Option<(String, Option<String>)> {
    let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
    // A negative number is a value, not a flag.
    if !flag.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return None;
    }
    let (name, value) = match flag.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (flag, None),
    };
    Some((name.replace('_', "-"), value))
}

/// Parses an integer as vLLM does: `8192`, `32k` (thousands), `32K` (1024s), `1m`, `1M`.
fn parse_human_number(text: &str) -> Option<usize> {
    let factor = match text.chars().last()? {
        'k' => 1_000.0,
        'K' => 1_024.0,
        'm' => 1_000_000.0,
        'M' => 1_048_576.0,
        _ => return text.parse().ok(),
    };
    let number: f64 = text[..text.len() - 1].parse().ok()?;
    (number >= 0.0).then_some((number * factor) as usize)
}

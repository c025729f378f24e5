//! What a merged line says, flag by flag and in the words of whoever said it.

use std::collections::BTreeMap;

use super::super::flags;
use super::super::origin::{Origin, OverriddenValue, Setting};
use super::{Key, segments};

/// Settings in the order in which they were first said.
#[derive(Default)]
pub(super) struct SettingRecorder {
    pub(super) settings: Vec<Setting>,
    /// Where a setting stands, whichever of its names it was said by.
    places: BTreeMap<String, usize>,
}

/// A flag of one source, all its occurrences together.
struct Flag {
    /// As it is written: `--tp`.
    name: String,
    values: Vec<String>,
}

impl SettingRecorder {
    /// Adds what `words` say over what weaker sources said.
    pub(super) fn record(&mut self, words: &[String], origin: Origin) {
        for (setting, flag) in flags_of(words) {
            let (field, value) = (format!("args {}", flag.name), flag.values.join(", "));
            match self.places.get(&setting).and_then(|place| self.settings.get_mut(*place)) {
                Some(known) => over(known, field, value, origin),
                None => {
                    self.places.insert(setting, self.settings.len());
                    self.settings.push(Setting::new(field, value, origin));
                }
            }
        }
    }
}

/// A stronger source says it, perhaps by another name: then what was said before keeps the name it was said by.
fn over(known: &mut Setting, field: String, value: String, origin: Origin) {
    let before = std::mem::replace(&mut known.field, field);
    let lost = OverriddenValue { origin: known.origin, value: known.value.clone() };
    let opposite = flags::is_negation(word(&before)) != flags::is_negation(word(&known.field));
    let said_before = known.overridden.len();
    known.override_with(value, origin);
    if opposite && known.overridden.len() == said_before {
        known.overridden.insert(0, lost);
    }
    let renamed = before != known.field && known.overridden.len() > said_before;
    if let Some(lost) = known.overridden.first_mut().filter(|_| renamed) {
        lost.value = format!("{} {}", word(&before), lost.value).trim_end().to_owned();
    }
}

/// The flag of a field.
fn word(field: &str) -> &str {
    field.trim_start_matches("args ")
}

/// Flags by the setting that each names, in the order written; one that is repeated has all its values.
fn flags_of(words: &[String]) -> Vec<(String, Flag)> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    let mut all: Vec<(String, Flag)> = Vec::new();
    for segment in segments(words) {
        let Key::Flag(setting) = &segment.key else { continue };
        let value = segment.values().join(" ");
        match places.get(setting).and_then(|place| all.get_mut(*place)) {
            Some((_, flag)) => flag.values.push(value),
            None => {
                places.insert(setting.clone(), all.len());
                all.push((setting.clone(), Flag { name: segment.name().to_owned(), values: vec![value] }));
            }
        }
    }
    all
}

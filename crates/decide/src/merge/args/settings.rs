//! Origin of each flag of a merged command line, in the spelling of its source.

use std::collections::BTreeMap;

use super::segment::{FlagKey, segments};
use crate::merge::flags;
use crate::merge::origin::{Origin, OverriddenValue, Setting};

/// Records the flags of several sources, weakest first, in the order of their first occurrence.
#[derive(Default)]
pub(super) struct SettingRecorder {
    pub(super) settings: Vec<Setting>,
    /// Index in `settings` by canonical flag name.
    indices: BTreeMap<String, usize>,
}

/// A flag of one source with the values of all its occurrences.
struct Flag {
    /// The flag as written, such as `--tp`.
    name: String,
    values: Vec<String>,
}

// === impl SettingRecorder ===

impl SettingRecorder {
    /// Records the flags in `words`, which override those of weaker sources.
    pub(super) fn record(&mut self, words: &[String], origin: Origin) {
        for (canonical, flag) in flags_in(words) {
            let (field, value) = (format!("args {}", flag.name), flag.values.join(", "));
            match self.indices.get(&canonical).and_then(|index| self.settings.get_mut(*index)) {
                Some(setting) => override_flag(setting, field, value, origin),
                None => {
                    self.indices.insert(canonical, self.settings.len());
                    self.settings.push(Setting::new(field, value, origin));
                }
            }
        }
    }
}

/// Overrides a flag. If an overridden source spells the flag differently, the recorded value includes that spelling.
fn override_flag(setting: &mut Setting, field: String, value: String, origin: Origin) {
    let previous_field = std::mem::replace(&mut setting.field, field);
    let previous = OverriddenValue { origin: setting.origin, value: setting.value.clone() };
    let is_negated =
        flags::is_negation(flag_in_field(&previous_field)) != flags::is_negation(flag_in_field(&setting.field));
    let count = setting.overridden.len();
    setting.override_with(value, origin);
    if is_negated && setting.overridden.len() == count {
        setting.overridden.insert(0, previous);
    }
    let has_other_spelling = previous_field != setting.field && setting.overridden.len() > count;
    if let Some(overridden) = setting.overridden.first_mut().filter(|_| has_other_spelling) {
        overridden.value = format!("{} {}", flag_in_field(&previous_field), overridden.value).trim_end().to_owned();
    }
}

/// Returns the flag in a setting's field: `--tp` for `args --tp`.
fn flag_in_field(field: &str) -> &str {
    field.trim_start_matches("args ")
}

/// Returns the flags with their canonical names, in order; a repeated flag has the values of all occurrences.
fn flags_in(words: &[String]) -> Vec<(String, Flag)> {
    let mut indices: BTreeMap<String, usize> = BTreeMap::new();
    let mut flags: Vec<(String, Flag)> = Vec::new();
    for segment in segments(words) {
        let FlagKey::Flag(canonical) = &segment.key else { continue };
        let value = segment.values().join(" ");
        match indices.get(canonical).and_then(|index| flags.get_mut(*index)) {
            Some((_, flag)) => flag.values.push(value),
            None => {
                indices.insert(canonical.clone(), flags.len());
                flags.push((canonical.clone(), Flag { name: segment.name().to_owned(), values: vec![value] }));
            }
        }
    }
    flags
}

//! Origin of each flag of a merged command line, in the spelling of its source.

use std::collections::BTreeMap;

use crate::merge::flags;
use crate::merge::origin::{Origin, OverriddenValue, Setting, SettingField};
use crate::merge::segment::{FlagKey, segments};

/// Records the flags of several sources, weakest first, in the order of their first occurrence.
#[derive(Default)]
pub(super) struct SettingRecorder {
    pub(super) settings: Vec<Setting>,
    /// By canonical flag name.
    recorded_flags: BTreeMap<String, RecordedFlag>,
}

/// A flag that has a setting.
struct RecordedFlag {
    /// Index in [`SettingRecorder::settings`].
    index: usize,
    /// The spelling of the strongest source.
    name: String,
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
        for (canonical, Flag { name, values }) in flags_in(words) {
            let value = values.join(", ");
            match self.recorded_flags.get_mut(&canonical) {
                Some(recorded) => {
                    let previous_name = std::mem::replace(&mut recorded.name, name.clone());
                    override_flag(&mut self.settings[recorded.index], &previous_name, name, value, origin);
                }
                None => {
                    let recorded = RecordedFlag { index: self.settings.len(), name: name.clone() };
                    self.recorded_flags.insert(canonical, recorded);
                    self.settings.push(Setting::new(SettingField::Flag(name), value, origin));
                }
            }
        }
    }
}

/// Overrides a flag. If an overridden source spells the flag differently, the recorded value includes that spelling.
fn override_flag(setting: &mut Setting, previous_name: &str, name: String, value: String, origin: Origin) {
    let previous = OverriddenValue { origin: setting.origin, value: setting.value.clone() };
    let is_negated = flags::is_negation(previous_name) != flags::is_negation(&name);
    let has_other_spelling = previous_name != name;
    let count = setting.overridden.len();
    setting.field = SettingField::Flag(name);
    setting.override_with(value, origin);
    if is_negated && setting.overridden.len() == count {
        setting.overridden.insert(0, previous);
    }
    let is_overridden = setting.overridden.len() > count;
    if let Some(overridden) = setting.overridden.first_mut().filter(|_| is_overridden && has_other_spelling) {
        overridden.value = format!("{previous_name} {}", overridden.value).trim_end().to_owned();
    }
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

//! Builds profiles from filters, scorers and a picker.

use std::collections::BTreeMap;

use super::{
    document::{EndpointPickerConfig, PluginReference, ProfileEntry},
    error::ConfigError,
    parameters::DEFAULT_MAX_ENDPOINTS,
    plugins::{Plugin, Plugins},
};
use crate::profile::{Picker, Profile};

/// Returns the profiles by name. If none is configured, the profile `default` contains all plugins.
pub(super) fn build_profiles(
    config: &EndpointPickerConfig,
    plugins: &Plugins,
) -> Result<BTreeMap<String, Profile>, ConfigError> {
    let mut profiles = BTreeMap::new();
    for entry in &config.scheduling_profiles {
        if profiles.insert(entry.name.clone(), build_profile(entry, plugins)?).is_some() {
            return Err(ConfigError::DuplicateProfile { name: entry.name.clone() });
        }
    }
    if profiles.is_empty() {
        let references = config
            .plugins
            .iter()
            .map(|plugin| PluginReference { plugin_ref: plugin.name().to_owned(), weight: None })
            .collect();
        let default = ProfileEntry { name: "default".to_owned(), plugins: references };
        profiles.insert(default.name.clone(), build_profile(&default, plugins)?);
    }
    Ok(profiles)
}

fn build_profile(entry: &ProfileEntry, plugins: &Plugins) -> Result<Profile, ConfigError> {
    let mut profile = Profile {
        filters: Vec::new(),
        scorers: Vec::new(),
        picker: Picker::MaxScore,
        max_endpoints: DEFAULT_MAX_ENDPOINTS,
    };
    let mut has_picker = false;
    for PluginReference { plugin_ref: name, weight } in &entry.plugins {
        let unknown = || ConfigError::UnknownPlugin {
            field: format!("schedulingProfiles[{}].plugins", entry.name),
            name: name.clone(),
        };
        match plugins.get(name).ok_or_else(unknown)? {
            Plugin::Scorer(scorer) => {
                let weight = weight.unwrap_or(1.0);
                if !(weight.is_finite() && weight >= 0.0) {
                    let (profile, name) = (entry.name.clone(), name.clone());
                    return Err(ConfigError::InvalidWeight { profile, name });
                }
                profile.scorers.push((*scorer, weight));
            }
            Plugin::Filter(filter) => profile.filters.push(filter.clone()),
            Plugin::Picker(..) if has_picker => {
                let (profile, name) = (entry.name.clone(), name.clone());
                return Err(ConfigError::MultiplePickers { profile, name });
            }
            Plugin::Picker(picker, max_endpoints) => {
                (profile.picker, profile.max_endpoints, has_picker) = (*picker, *max_endpoints, true);
            }
            Plugin::ProfileHandler(_)
            | Plugin::Decider(_)
            | Plugin::PrefixProducer(_)
            | Plugin::Parser(_)
            | Plugin::NoEffect => {}
        }
    }
    Ok(profile)
}

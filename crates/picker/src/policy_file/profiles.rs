//! Profiles: which filters, scorers and picker go together.

use std::collections::BTreeMap;

use super::{
    PolicyError,
    document::{File, ProfileSpec, Reference},
    parameters::MOST,
    plugins::{Plugin, Plugins},
};
use crate::profile::{Order, Profile};

/// The profiles by name. Without any, one profile of all that is listed.
pub(super) fn of(file: &File, plugins: &Plugins) -> Result<BTreeMap<String, Profile>, PolicyError> {
    let mut found = BTreeMap::new();
    for spec in &file.scheduling_profiles {
        if found.insert(spec.name.clone(), profile(spec, plugins)?).is_some() {
            return Err(PolicyError::SameProfile { name: spec.name.clone() });
        }
    }
    if found.is_empty() {
        let all = file.plugins.iter().map(|spec| Reference { plugin_ref: spec.name().to_owned(), weight: None });
        let all = ProfileSpec { name: "default".to_owned(), plugins: all.collect() };
        found.insert(all.name.clone(), profile(&all, plugins)?);
    }
    Ok(found)
}

fn profile(spec: &ProfileSpec, plugins: &Plugins) -> Result<Profile, PolicyError> {
    let mut profile = Profile { filters: Vec::new(), scorers: Vec::new(), order: Order::Best, most: MOST };
    let mut has_picker = false;
    for Reference { plugin_ref: name, weight } in &spec.plugins {
        let of_profile = || (spec.name.clone(), name.clone());
        let unknown = || PolicyError::UnknownPlugin {
            field: format!("schedulingProfiles[{}].plugins", spec.name),
            name: name.clone(),
        };
        match plugins.get(name).ok_or_else(unknown)? {
            Plugin::Scorer(scorer) => {
                let weight = weight.unwrap_or(1.0);
                if !(weight.is_finite() && weight >= 0.0) {
                    let (profile, name) = of_profile();
                    return Err(PolicyError::Weight { profile, name });
                }
                profile.scorers.push((*scorer, weight));
            }
            Plugin::Filter(filter) => profile.filters.push(filter.clone()),
            Plugin::Picker(..) if has_picker => {
                let (profile, name) = of_profile();
                return Err(PolicyError::Pickers { profile, name });
            }
            Plugin::Picker(order, most) => (profile.order, profile.most, has_picker) = (*order, *most, true),
            Plugin::Handler(_) | Plugin::Decider(_) | Plugin::Producer(_) | Plugin::Parser(_) | Plugin::Passed => {}
        }
    }
    Ok(profile)
}

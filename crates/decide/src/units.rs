//! Resources that are counted in whole units, as manifests and nodes write them.

use std::collections::BTreeMap;

use apimachinery::Quantity;
use serde_json::Value;

/// Whole units per extended resource name of a `resources` object: the greater of request and limit.
#[must_use]
pub fn extended_resources(resources: &Value) -> BTreeMap<String, u32> {
    let mut units: BTreeMap<String, u32> = BTreeMap::new();
    for side in ["limits", "requests"] {
        for (name, count) in resources.get(side).map(whole_units).unwrap_or_default() {
            let most = units.entry(name).or_default();
            *most = count.max(*most);
        }
    }
    units
}

/// Extended resources are named `domain/name` and counted in whole units.
pub(crate) fn whole_units(quantities: &Value) -> BTreeMap<String, u32> {
    let pairs = quantities.as_object().into_iter().flatten().filter(|(name, _)| name.contains('/'));
    pairs.filter_map(|(name, value)| Some((name.clone(), units(value)?))).collect()
}

fn units(value: &Value) -> Option<u32> {
    let units = text_of(value).parse::<Quantity>().ok()?.value();
    // More than can be counted is as many as can be: what somebody asks for is never nothing.
    (units >= 0).then(|| u32::try_from(units).unwrap_or(u32::MAX))
}

pub(crate) fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

//! Resources in whole units: extended resources, CPU in thousandths, and memory in MiB.

use std::collections::BTreeMap;

use apimachinery::Quantity;
use serde_json::Value;

/// Returns the units per extended resource of a container's `resources`: the greater of request and limit.
#[must_use]
pub fn extended_resources(resources: &Value) -> BTreeMap<String, u32> {
    let mut units: BTreeMap<String, u32> = BTreeMap::new();
    for side in ["limits", "requests"] {
        for (name, count) in resources.get(side).map(whole_units).unwrap_or_default() {
            let max = units.entry(name).or_default();
            *max = count.max(*max);
        }
    }
    units
}

/// Name of the resource of CPUs, counted in thousandths.
pub(crate) const CPU: &str = "cpu";
/// Name of the resource of memory, counted in MiB.
pub(crate) const MEMORY: &str = "memory";

/// Returns the CPU or memory in a map of quantities, in thousandths or MiB, rounded up; `None` if it is not set or invalid.
pub(crate) fn compute_units(quantities: &Value, resource: &str) -> Option<u32> {
    let amount = value_text(quantities.get(resource)?).parse::<Quantity>().ok()?.as_f64();
    let units = if resource == CPU { amount * 1000.0 } else { amount / f64::from(1 << 20) };
    // The conversion saturates.
    (units >= 0.0).then(|| units.ceil() as u32)
}

/// Returns the units of each quantity whose name has the form `domain/name`.
pub(crate) fn whole_units(quantities: &Value) -> BTreeMap<String, u32> {
    let pairs = quantities.as_object().into_iter().flatten().filter(|(name, _)| name.contains('/'));
    pairs.filter_map(|(name, value)| Some((name.clone(), units(value)?))).collect()
}

fn units(value: &Value) -> Option<u32> {
    let units = value_text(value).parse::<Quantity>().ok()?.value();
    // A quantity that exceeds `u32` saturates, so that it is never read as zero.
    (units >= 0).then(|| u32::try_from(units).unwrap_or(u32::MAX))
}

pub(crate) fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

//! Accelerators that a container requests without a selected class.

use std::collections::BTreeMap;

use serde_json::Value;

/// Returns resource name and number of the accelerators that a `resources` object requests from a known device plugin.
pub(crate) fn requested_accelerators(resources: &Value) -> Option<(String, u32)> {
    let units: BTreeMap<String, u32> = decide::extended_resources(resources);
    let is_known = |name: &str| api::ACCELERATOR_RESOURCES.contains(&name);
    units.into_iter().find(|(name, count)| is_known(name) && *count > 0)
}

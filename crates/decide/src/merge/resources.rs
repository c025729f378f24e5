//! Merges requests and limits: the greater quantity per resource, and accelerators only by the resource of the class.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::Quantity;
use serde_json::{Map, Value, json};

use super::origin::{Origin, Setting, SettingField, Sources};
use crate::shape::ReplicaShape;
use crate::supply::Class;

/// Accelerators of a class that the Pods of a component request.
#[derive(Clone, Copy, Debug)]
pub struct AcceleratorAllocation<'a> {
    /// The class.
    pub class: &'a Class,
    /// Accelerators and nodes of a replica.
    pub shape: ReplicaShape,
    /// Names of the accelerator resources of all vendors.
    pub names: &'a BTreeSet<String>,
}

/// Merged `ResourceRequirements` with the origin of each quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedResources {
    /// Null if no source sets a quantity.
    pub resources: Value,
    /// Origin of each quantity.
    pub settings: Vec<Setting>,
}

/// A field of `ResourceRequirements` with quantities.
#[derive(Clone, Copy)]
enum ResourceField {
    Requests,
    Limits,
}

const RESOURCE_FIELDS: [ResourceField; 2] = [ResourceField::Requests, ResourceField::Limits];

// === impl ResourceField ===

impl ResourceField {
    fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Limits => "limits",
        }
    }

    /// Returns the field of the setting for a resource.
    fn setting_field(self, resource: &str) -> SettingField {
        match self {
            Self::Requests => SettingField::Request(resource.to_owned()),
            Self::Limits => SettingField::Limit(resource.to_owned()),
        }
    }
}

/// Merges quantities per resource: the service's quantity, or the runtime's if the service sets none, raised to that of
/// the accelerator configuration if it is greater. With an allocation, the resource of the class replaces the
/// accelerator resources of all vendors.
#[must_use]
pub fn merge_resources(sources: &Sources<Value>, allocation: Option<&AcceleratorAllocation<'_>>) -> MergedResources {
    let [mut requests, mut limits] = RESOURCE_FIELDS.map(|field| quantities(sources, field));
    if let Some(allocation) = allocation {
        apply_allocation(&mut requests, ResourceField::Requests, allocation);
        apply_allocation(&mut limits, ResourceField::Limits, allocation);
    }
    align_requests_with_limits(&mut requests, &mut limits);
    let merged = overlay_resources(&sources.runtime, &sources.service);
    let mut resources = merged.as_object().cloned().unwrap_or_default();
    let mut settings = Vec::new();
    for (field, quantities) in RESOURCE_FIELDS.into_iter().zip([requests, limits]) {
        if quantities.is_empty() {
            resources.remove(field.as_str());
            continue;
        }
        let values = quantities.iter().map(|(name, setting)| (name.clone(), json!(setting.value)));
        resources.insert(field.as_str().to_owned(), Value::Object(values.collect()));
        settings.extend(quantities.into_values());
    }
    let resources = if resources.is_empty() { Value::Null } else { Value::Object(resources) };
    MergedResources { resources, settings }
}

/// Overlays the quantities of `upper` on `lower`, separately for requests and limits.
#[must_use]
pub fn overlay_resources(lower: &Value, upper: &Value) -> Value {
    let Some(fields) = upper.as_object() else { return lower.clone() };
    let mut merged = lower.as_object().cloned().unwrap_or_default();
    for (field, quantities) in fields {
        match (merged.get_mut(field).and_then(Value::as_object_mut), quantities.as_object()) {
            (Some(known), Some(new)) => known.extend(new.iter().map(|(name, value)| (name.clone(), value.clone()))),
            _ => drop(merged.insert(field.clone(), quantities.clone())),
        }
    }
    Value::Object(merged)
}

/// Returns the accelerators that a `resources` object requests under any of the resource `names`.
pub(crate) fn accelerator_count(resources: &Value, names: &BTreeSet<String>) -> Option<u32> {
    let units = crate::units::extended_resources(resources);
    units.into_iter().filter(|(name, count)| names.contains(name) && *count > 0).map(|(_, count)| count).max()
}

/// Returns the merged requests or limits, by resource.
fn quantities(sources: &Sources<Value>, field: ResourceField) -> BTreeMap<String, Setting> {
    let mut merged: BTreeMap<String, Setting> = BTreeMap::new();
    for (origin, source) in [(Origin::Runtime, &sources.runtime), (Origin::Service, &sources.service)] {
        for (name, value) in quantities_in(source, field) {
            match merged.get_mut(name) {
                Some(known) => known.override_with(text(value), origin),
                None => drop(merged.insert(name.clone(), Setting::new(field.setting_field(name), text(value), origin))),
            }
        }
    }
    for (name, value) in quantities_in(&sources.configuration, field) {
        match merged.get_mut(name) {
            Some(known) if quantity(&known.value) < quantity(&text(value)) => {
                known.override_with(text(value), Origin::Configuration);
            }
            Some(_) => {}
            None => {
                let setting = Setting::new(field.setting_field(name), text(value), Origin::Configuration);
                merged.insert(name.clone(), setting);
            }
        }
    }
    merged
}

/// Replaces accelerator resources with the resource of the class. Requests and limits of extended resources must be
/// equal in a Pod.
fn apply_allocation(
    quantities: &mut BTreeMap<String, Setting>,
    field: ResourceField,
    allocation: &AcceleratorAllocation<'_>,
) {
    let units_per_accelerator = allocation.class.resource().map_or(1, |resource| resource.quantity.max(1));
    let count = allocation.shape.per_node.saturating_mul(units_per_accelerator);
    let resource_name = allocation.class.resource_name().unwrap_or_default();
    let mut allocated = Setting::new(field.setting_field(resource_name), count.to_string(), Origin::Class);
    let (replaced, retained): (BTreeMap<_, _>, BTreeMap<_, _>) =
        std::mem::take(quantities).into_iter().partition(|(name, _)| allocation.names.contains(name));
    for (name, previous) in replaced {
        if name != resource_name || previous.value != allocated.value {
            let value = format!("{name}: {}", previous.value);
            allocated.overridden.push(super::origin::OverriddenValue { origin: previous.origin, value });
        }
    }
    *quantities = retained;
    quantities.insert(resource_name.to_owned(), allocated);
}

/// Aligns requests that exceed their limits, which Kubernetes rejects: the value of the weaker source follows that of the
/// stronger one. If a single source contradicts itself, its values are left unchanged.
fn align_requests_with_limits(requests: &mut BTreeMap<String, Setting>, limits: &mut BTreeMap<String, Setting>) {
    for (name, request) in requests.iter_mut() {
        let Some(limit) = limits.get_mut(name) else { continue };
        if quantity(&request.value) <= quantity(&limit.value) {
            continue;
        }
        match request.origin.cmp(&limit.origin) {
            std::cmp::Ordering::Less => request.override_with(limit.value.clone(), limit.origin),
            std::cmp::Ordering::Greater => limit.override_with(request.value.clone(), request.origin),
            std::cmp::Ordering::Equal => {}
        }
    }
}

fn quantities_in(source: &Value, field: ResourceField) -> impl Iterator<Item = (&String, &Value)> {
    source.get(field.as_str()).and_then(Value::as_object).map(Map::iter).into_iter().flatten()
}

/// Returns a quantity as text, whether it is a JSON number or string.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn quantity(text: &str) -> Option<Quantity> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supply::ClassResource;
    use proptest::prelude::*;
    use rstest::rstest;

    fn class(resource: &str, quantity: u32) -> Class {
        let resource = ClassResource { name: resource.to_owned(), quantity, divisible: false };
        Class { name: "c".to_owned(), resources: vec![resource], ..Class::default() }
    }

    fn names() -> BTreeSet<String> {
        ["nvidia.com/gpu", "amd.com/gpu"].map(str::to_owned).into()
    }

    fn merge_with_allocation(sources: &Sources<Value>, class: &Class, per_node: u32) -> MergedResources {
        merge_resources(
            sources,
            Some(&AcceleratorAllocation { class, shape: ReplicaShape { per_node, nodes: 1 }, names: &names() }),
        )
    }

    // spec: ACC-96
    #[rstest]
    #[case("4", "2")]
    #[case("2", "4")]
    fn uses_the_greater_quantity(#[case] base: &str, #[case] configured: &str) {
        let sources = Sources {
            runtime: json!({"limits": {"cpu": base, "memory": "1Gi"}}),
            configuration: json!({"limits": {"cpu": configured, "hugepages-2Mi": "4Mi"}}),
            service: Value::Null,
        };
        let limits = json!({"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "2"});
        let merged = merge_with_allocation(&sources, &class("nvidia.com/gpu", 1), 2);
        assert_eq!(merged.resources, json!({"limits": limits, "requests": {"nvidia.com/gpu": "2"}}));
    }

    // spec: ACC-2
    // spec: ACC-3
    #[rstest]
    #[case::amd("amd.com/gpu", 1, "2")]
    #[case::unknown_vendor("acme.com/npu", 1, "2")]
    // spec: ACC-26
    #[case::several_units_per_accelerator("amd.com/gpu", 2, "4")]
    fn replaces_resources_of_other_vendors(#[case] name: &str, #[case] quantity: u32, #[case] expected: &str) {
        let base = json!({"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 2}});
        let sources = Sources { runtime: base, ..Sources::default() };
        let merged = merge_with_allocation(&sources, &class(name, quantity), 2);
        assert_eq!(merged.resources, json!({"limits": {name: expected}, "requests": {name: expected}}));
        assert_eq!(merged.settings[0].overridden[0].value, "nvidia.com/gpu: 2");
    }

    // spec: RT-7
    #[test]
    fn writes_numbers_and_strings_alike() {
        let merged = |cpu: Value| {
            merge_resources(&Sources { runtime: json!({"limits": {"cpu": cpu}}), ..Sources::default() }, None)
        };
        assert_eq!(merged(json!(10)), merged(json!("10")));
        assert_eq!(merged(json!(10)).resources, json!({"limits": {"cpu": "10"}}));
    }

    #[rstest]
    #[case::limit_of_service_lowers_request(json!({"limits": {"cpu": 4}}), "4", "4")]
    #[case::request_of_service_raises_limit(json!({"requests": {"cpu": 16}}), "16", "16")]
    #[case::contradiction_within_the_service_is_retained(json!({"requests": {"cpu": 8}, "limits": {"cpu": 4}}), "8", "4")]
    fn aligns_requests_with_limits(#[case] service: Value, #[case] request: &str, #[case] limit: &str) {
        let runtime = json!({"requests": {"cpu": 10}, "limits": {"cpu": 10}});
        let merged = merge_resources(&Sources { runtime, service, ..Sources::default() }, None);
        assert_eq!(merged.resources, json!({"requests": {"cpu": request}, "limits": {"cpu": limit}}));
    }

    /// Generates the resources of one source, with requests that do not exceed limits.
    fn any_source() -> impl Strategy<Value = Value> {
        let name = prop::sample::select(vec!["cpu", "memory", "nvidia.com/gpu", "amd.com/gpu", "rdma/hca"]);
        let quantities = prop::collection::btree_map(name, (0_u32..9, 0_u32..5, any::<bool>()), 0..4);
        quantities.prop_map(|quantities| {
            let mut source = json!({"requests": {}, "limits": {}});
            for (name, (request, more, limited)) in quantities {
                if request > 0 {
                    source["requests"][name] = json!(request);
                }
                if limited {
                    source["limits"][name] = json!(request + more + 1);
                }
            }
            source
        })
    }

    proptest! {
        #[test]
        fn merging_is_idempotent(runtime in any_source(), configuration in any_source(), service in any_source()) {
            let class = class("amd.com/gpu", 1);
            let sources = Sources { runtime, configuration, service };
            let once = merge_with_allocation(&sources, &class, 2).resources;
            let twice = merge_with_allocation(&Sources { runtime: once.clone(), ..sources }, &class, 2).resources;
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn quantities_of_the_service_are_lower_bounds(runtime in any_source(), configuration in any_source(), service in any_source()) {
            let merged = merge_resources(&Sources { runtime, configuration, service: service.clone() }, None).resources;
            for field in RESOURCE_FIELDS {
                for (name, value) in quantities_in(&service, field) {
                    let quantity_in_effect = quantity(&text(&merged[field.as_str()][name]));
                    prop_assert!(quantity_in_effect >= quantity(&text(value)), "{} {}", field.as_str(), name);
                }
            }
        }
    }
}

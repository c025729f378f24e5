//! Requests and limits: the maximum of both sides per resource name, accelerators under the class's own name only.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::Quantity;
use serde_json::{Map, Value, json};

use super::origin::{Origin, Setting, Sources};
use crate::shape::ReplicaShape;
use crate::supply::Class;

/// What Pods request of a class.
#[derive(Clone, Copy, Debug)]
pub struct AcceleratorGrant<'a> {
    pub class: &'a Class,
    pub shape: ReplicaShape,
    /// Every resource name that stands for accelerators, whichever vendor's.
    pub names: &'a BTreeSet<String>,
}

/// `ResourceRequirements`, and who stated each quantity.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedResources {
    /// Null if nobody states anything.
    pub resources: Value,
    pub settings: Vec<Setting>,
}

const SIDES: [&str; 2] = ["requests", "limits"];

/// Per name: the service's or else the runtime's, and the accelerator configuration's if that is more. With a grant
/// accelerators are the class's alone: any other vendor's name is the same concept under another name.
#[must_use]
pub fn merge_resources(sources: &Sources<Value>, grant: Option<&AcceleratorGrant<'_>>) -> MergedResources {
    let [mut requests, mut limits] = SIDES.map(|side| quantities(sources, side));
    if let Some(grant) = grant {
        grant_class(&mut requests, "requests", grant);
        grant_class(&mut limits, "limits", grant);
    }
    reconcile(&mut requests, &mut limits);
    let stated = overlay_resources(&sources.runtime, &sources.service);
    let mut resources = stated.as_object().cloned().unwrap_or_default();
    let mut settings = Vec::new();
    for (side, quantities) in SIDES.into_iter().zip([requests, limits]) {
        if quantities.is_empty() {
            resources.remove(side);
            continue;
        }
        let written = quantities.iter().map(|(name, setting)| (name.clone(), json!(setting.value)));
        resources.insert(side.to_owned(), Value::Object(written.collect()));
        settings.extend(quantities.into_values());
    }
    let resources = if resources.is_empty() { Value::Null } else { Value::Object(resources) };
    MergedResources { resources, settings }
}

/// `upper` over `lower`, per side and name.
#[must_use]
pub fn overlay_resources(lower: &Value, upper: &Value) -> Value {
    let Some(sides) = upper.as_object() else { return lower.clone() };
    let mut merged = lower.as_object().cloned().unwrap_or_default();
    for (side, quantities) in sides {
        match (merged.get_mut(side).and_then(Value::as_object_mut), quantities.as_object()) {
            (Some(known), Some(new)) => known.extend(new.iter().map(|(name, value)| (name.clone(), value.clone()))),
            _ => drop(merged.insert(side.clone(), quantities.clone())),
        }
    }
    Value::Object(merged)
}

/// Whole accelerators that a `resources` object asks for, under whichever name.
#[must_use]
pub fn accelerator_count(resources: &Value, names: &BTreeSet<String>) -> Option<u32> {
    let units = crate::units::extended_resources(resources);
    units.into_iter().filter(|(name, count)| names.contains(name) && *count > 0).map(|(_, count)| count).max()
}

/// One side, by resource name.
fn quantities(sources: &Sources<Value>, side: &str) -> BTreeMap<String, Setting> {
    let mut merged: BTreeMap<String, Setting> = BTreeMap::new();
    for (origin, source) in [(Origin::Runtime, &sources.runtime), (Origin::Service, &sources.service)] {
        for (name, value) in side_of(source, side) {
            match merged.get_mut(name) {
                Some(known) => known.override_with(text(value), origin),
                None => drop(merged.insert(name.clone(), Setting::new(format!("{side} {name}"), text(value), origin))),
            }
        }
    }
    for (name, value) in side_of(&sources.configuration, side) {
        match merged.get_mut(name) {
            Some(known) if quantity(&known.value) < quantity(&text(value)) => {
                known.override_with(text(value), Origin::Configuration);
            }
            Some(_) => {}
            None => {
                let setting = Setting::new(format!("{side} {name}"), text(value), Origin::Configuration);
                merged.insert(name.clone(), setting);
            }
        }
    }
    merged
}

/// Extended resources must be equal on both sides to be valid in a Pod, so both get the class's.
fn grant_class(quantities: &mut BTreeMap<String, Setting>, side: &str, grant: &AcceleratorGrant<'_>) {
    let unit = grant.class.resource().map_or(1, |resource| resource.quantity.max(1));
    let count = grant.shape.per_node.saturating_mul(unit);
    let own = grant.class.resource_name().unwrap_or_default();
    let mut granted = Setting::new(format!("{side} {own}"), count.to_string(), Origin::Class);
    let (replaced, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
        std::mem::take(quantities).into_iter().partition(|(name, _)| grant.names.contains(name));
    for (name, before) in replaced {
        if name != own || before.value != granted.value {
            let value = format!("{name}: {}", before.value);
            granted.overridden.push(super::origin::OverriddenValue { origin: before.origin, value });
        }
    }
    *quantities = kept;
    quantities.insert(own.to_owned(), granted);
}

/// A request above its limit is no valid Pod: the side that the weaker source stated follows the other one. Where one
/// source states both, the contradiction is its own and stays visible.
fn reconcile(requests: &mut BTreeMap<String, Setting>, limits: &mut BTreeMap<String, Setting>) {
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

fn side_of<'a>(source: &'a Value, side: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    source.get(side).and_then(Value::as_object).map(Map::iter).into_iter().flatten()
}

/// Numbers and strings mean the same and are written alike.
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

    fn granted(sources: &Sources<Value>, class: &Class, per_node: u32) -> MergedResources {
        merge_resources(
            sources,
            Some(&AcceleratorGrant { class, shape: ReplicaShape { per_node, nodes: 1 }, names: &names() }),
        )
    }

    // spec: ACC-96
    #[rstest]
    #[case("4", "2")]
    #[case("2", "4")]
    fn the_maximum_of_both(#[case] base: &str, #[case] tuning: &str) {
        let sources = Sources {
            runtime: json!({"limits": {"cpu": base, "memory": "1Gi"}}),
            configuration: json!({"limits": {"cpu": tuning, "hugepages-2Mi": "4Mi"}}),
            service: Value::Null,
        };
        let limits = json!({"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "2"});
        let merged = granted(&sources, &class("nvidia.com/gpu", 1), 2);
        assert_eq!(merged.resources, json!({"limits": limits, "requests": {"nvidia.com/gpu": "2"}}));
    }

    // spec: ACC-2
    // spec: ACC-3
    #[rstest]
    #[case::amd("amd.com/gpu", 1, "2")]
    #[case::a_vendor_that_nobody_knows("acme.com/npu", 1, "2")]
    // spec: ACC-26
    #[case::several_units_each("amd.com/gpu", 2, "4")]
    fn other_vendors_are_replaced(#[case] name: &str, #[case] quantity: u32, #[case] expect: &str) {
        let base = json!({"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 2}});
        let sources = Sources { runtime: base, ..Sources::default() };
        let merged = granted(&sources, &class(name, quantity), 2);
        assert_eq!(merged.resources, json!({"limits": {name: expect}, "requests": {name: expect}}));
        assert_eq!(merged.settings[0].overridden[0].value, "nvidia.com/gpu: 2");
    }

    // spec: RT-7
    #[test]
    fn numbers_and_strings_are_written_alike() {
        let write = |cpu: Value| {
            merge_resources(&Sources { runtime: json!({"limits": {"cpu": cpu}}), ..Sources::default() }, None)
        };
        assert_eq!(write(json!(10)), write(json!("10")));
        assert_eq!(write(json!(10)).resources, json!({"limits": {"cpu": "10"}}));
    }

    #[rstest]
    #[case::the_services_limit_lowers_the_request(json!({"limits": {"cpu": 4}}), "4", "4")]
    #[case::the_services_request_lifts_the_limit(json!({"requests": {"cpu": 16}}), "16", "16")]
    #[case::its_own_contradiction_stays(json!({"requests": {"cpu": 8}, "limits": {"cpu": 4}}), "8", "4")]
    fn a_request_above_its_limit(#[case] service: Value, #[case] request: &str, #[case] limit: &str) {
        let runtime = json!({"requests": {"cpu": 10}, "limits": {"cpu": 10}});
        let merged = merge_resources(&Sources { runtime, service, ..Sources::default() }, None);
        assert_eq!(merged.resources, json!({"requests": {"cpu": request}, "limits": {"cpu": limit}}));
    }

    /// What one person may state without contradicting himself.
    fn source() -> impl Strategy<Value = Value> {
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
        fn merging_twice_is_merging_once(runtime in source(), configuration in source(), service in source()) {
            let class = class("amd.com/gpu", 1);
            let sources = Sources { runtime, configuration, service };
            let once = granted(&sources, &class, 2).resources;
            let twice = granted(&Sources { runtime: once.clone(), ..sources }, &class, 2).resources;
            prop_assert_eq!(once, twice);
        }

        #[test]
        fn a_users_quantity_is_there_or_more(runtime in source(), configuration in source(), service in source()) {
            let merged = merge_resources(&Sources { runtime, configuration, service: service.clone() }, None).resources;
            for side in SIDES {
                for (name, value) in side_of(&service, side) {
                    let told = quantity(&text(&merged[side][name]));
                    prop_assert!(told >= quantity(&text(value)), "{} {}", side, name);
                }
            }
        }
    }
}

//! Requests and limits: the maximum of both sides per resource name, accelerators under the class's own name only.

use std::collections::BTreeSet;

use apimachinery::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::fit::Shape;
use crate::supply::Class;

/// Merges what runtime or service state (`base`) with the accelerator configuration (`tuning`), and requests the class.
/// Any other vendor's accelerators in either are dropped: they are the same concept under another name.
#[must_use]
pub fn merge(base: &Value, tuning: &Value, class: &Class, shape: Shape, accelerators: &BTreeSet<String>) -> Value {
    let mut merged = Map::new();
    for side in ["requests", "limits"] {
        let mut quantities = maximum(&base[side], &tuning[side]);
        quantities.retain(|name, _| !accelerators.contains(name));
        // Extended resources must be equal on both sides to be valid in a Pod.
        let unit = class.resource().map_or(1, |resource| resource.quantity.max(1));
        let count = shape.per_node.saturating_mul(unit);
        quantities.insert(class.resource_name().to_owned(), json!(count.to_string()));
        merged.insert(side.to_owned(), Value::Object(quantities));
    }
    for (field, value) in base.as_object().into_iter().flatten() {
        merged.entry(field.clone()).or_insert_with(|| value.clone());
    }
    Value::Object(merged)
}

/// `upper` over `lower`, per side and name.
#[must_use]
pub fn overlay(lower: &Value, upper: &Value) -> Value {
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
pub fn accelerators(resources: &Value, names: &BTreeSet<String>) -> Option<u32> {
    let units = crate::inventory::extended_resources(resources);
    units.into_iter().filter(|(name, count)| names.contains(name) && *count > 0).map(|(_, count)| count).max()
}

fn maximum(one: &Value, other: &Value) -> Map<String, Value> {
    let mut merged = one.as_object().cloned().unwrap_or_default();
    for (name, value) in other.as_object().into_iter().flatten() {
        let greater = merged.get(name).is_none_or(|known| quantity(known) < quantity(value));
        if greater {
            merged.insert(name.clone(), value.clone());
        }
    }
    merged
}

fn quantity(value: &Value) -> Option<Quantity> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supply::ClassResource;
    use rstest::rstest;

    fn class(resource: &str) -> Class {
        let resource = ClassResource { name: resource.to_owned(), quantity: 1, divisible: false };
        Class { name: "c".to_owned(), resources: vec![resource], ..Class::default() }
    }

    fn names() -> BTreeSet<String> {
        ["nvidia.com/gpu", "amd.com/gpu"].map(str::to_owned).into()
    }

    // spec: ACC-96
    #[rstest]
    #[case("4", "2")]
    #[case("2", "4")]
    fn the_maximum_of_both(#[case] base: &str, #[case] tuning: &str) {
        let merged = merge(
            &json!({"limits": {"cpu": base, "memory": "1Gi"}}),
            &json!({"limits": {"cpu": tuning, "hugepages-2Mi": "4Mi"}}),
            &class("nvidia.com/gpu"),
            Shape { per_node: 2, nodes: 1 },
            &names(),
        );
        let limits = json!({"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "4Mi", "nvidia.com/gpu": "2"});
        assert_eq!(merged, json!({"limits": limits, "requests": {"nvidia.com/gpu": "2"}}));
    }

    #[test]
    fn other_vendors_are_replaced() {
        let base = json!({"limits": {"nvidia.com/gpu": 2}, "requests": {"nvidia.com/gpu": 2}});
        let merged = merge(&base, &Value::Null, &class("amd.com/gpu"), Shape { per_node: 2, nodes: 1 }, &names());
        assert_eq!(merged, json!({"limits": {"amd.com/gpu": "2"}, "requests": {"amd.com/gpu": "2"}}));
    }
}

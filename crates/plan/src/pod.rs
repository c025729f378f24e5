//! Pod templates as JSON: merging specifications and expanding template variables. Unknown fields are preserved, to
//! support fields that are newer than ostler.

use decide::Warning;
use serde_json::{Map, Value};

use crate::code;
use crate::owner::Owner;
use crate::template;

/// Merge strategy of a list field.
enum MergeStrategy {
    /// Items with the same value of this field are merged.
    ByKey(&'static str),
    /// Items are added unless present.
    Set,
    /// The list is replaced.
    Atomic,
}

/// Merges `over` into `base`: maps by key, and lists by the merge key of their Kubernetes type. Other values are
/// replaced.
pub(crate) fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => overlay_map(base, over),
        (base, over) => *base = over.clone(),
    }
}

/// Merges two maps as [`overlay`] does.
pub(crate) fn overlay_map(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (field, value) in over {
        match (base.get_mut(field), value, merge_strategy(field)) {
            (Some(Value::Array(items)), Value::Array(more), MergeStrategy::ByKey(key)) => merge_items(items, more, key),
            (Some(Value::Array(items)), Value::Array(more), MergeStrategy::Set) => {
                items.extend(more.iter().filter(|item| !items.contains(item)).cloned().collect::<Vec<_>>());
            }
            (Some(existing), _, _) => overlay(existing, value),
            (None, _, _) => {
                base.insert(field.clone(), value.clone());
            }
        }
    }
}

/// Returns the merge strategy of a list field of Pods and containers.
fn merge_strategy(field: &str) -> MergeStrategy {
    match field {
        "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env" | "imagePullSecrets" => {
            MergeStrategy::ByKey("name")
        }
        "volumeMounts" => MergeStrategy::ByKey("mountPath"),
        "volumeDevices" => MergeStrategy::ByKey("devicePath"),
        "ports" => MergeStrategy::ByKey("containerPort"),
        "tolerations" | "topologySpreadConstraints" | "envFrom" | "readinessGates" => MergeStrategy::Set,
        _ => MergeStrategy::Atomic,
    }
}

fn merge_items(items: &mut Vec<Value>, more: &[Value], key: &str) {
    for item in more {
        match items.iter_mut().find(|existing| !item[key].is_null() && existing[key] == item[key]) {
            // An environment variable has either a value or a source, so entries are replaced as a whole.
            Some(existing) if item.get("value").is_some() || item.get("valueFrom").is_some() => {
                *existing = item.clone();
            }
            // A volume has exactly one source, so volumes are replaced as a whole.
            Some(existing) if key == "name" && item.get("image").is_none() && existing.get("image").is_none() => {
                *existing = item.clone();
            }
            Some(existing) => overlay(existing, item),
            None => items.push(item.clone()),
        }
    }
}

/// Adds an item to a list field unless it has an item with the same `key`, so that values of the user are preserved. Returns
/// whether the item was added.
pub(crate) fn add_if_absent(object: &mut Value, field: &str, key: &str, item: Value) -> bool {
    let Some(map) = object.as_object_mut() else { return false };
    let list = map.entry(field).or_insert_with(|| Value::Array(Vec::new()));
    let Some(items) = list.as_array_mut() else { return false };
    let absent = !items.iter().any(|existing| existing[key] == item[key]);
    if absent {
        items.push(item);
    }
    absent
}

/// Sets the main container as the first one and removes a sidecar of the same name, which upstream OME renders twice.
pub(crate) fn set_main_container(spec: &mut Value, container: Value) {
    let sidecars = spec["containers"].as_array().cloned().unwrap_or_default();
    let others = sidecars.into_iter().filter(|sidecar| sidecar["name"] != container["name"]).collect::<Vec<_>>();
    spec["containers"] = Value::Array([vec![container], others].concat());
}

/// Expands the template variables of one container and warns about missing values.
pub(crate) fn substitute_container(container: &mut Value, owner: &Owner, warnings: &mut Vec<Warning>) {
    let mut missing = Vec::new();
    template::substitute(container, owner, &mut missing);
    let warning = |key| {
        Warning::new(
            code::warning::TEMPLATE_VALUE_MISSING,
            format!("The service has no metadata.{key}; the template variable expands to an empty string"),
        )
    };
    warnings.extend(missing.into_iter().map(warning));
}

/// Expands the template variables of sidecars and init containers. The main container is already expanded; its remaining braces
/// must not be expanded again.
pub(crate) fn substitute_sidecars(spec: &mut Value, owner: &Owner, warnings: &mut Vec<Warning>) {
    for (field, skipped) in [("containers", 1), ("initContainers", 0)] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        containers
            .into_iter()
            .flatten()
            .skip(skipped)
            .for_each(|container| substitute_container(container, owner, warnings));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merges_lists_by_key_and_preserves_unknown_fields() {
        let mut base = json!({
            "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
            "tolerations": [{"key": "a"}],
            "containers": [{"name": "sidecar", "image": "x", "future": {"a": 1}}],
            "dnsPolicy": "Default",
        });
        overlay(
            &mut base,
            &json!({
                "volumes": [{"name": "shm", "hostPath": {"path": "/dev/shm"}}, {"name": "more", "emptyDir": {}}],
                "tolerations": [{"key": "a"}, {"key": "b"}],
                "containers": [{"name": "sidecar", "image": "y"}],
                "dnsPolicy": "None",
            }),
        );
        assert_eq!(
            base,
            json!({
                "volumes": [{"name": "shm", "hostPath": {"path": "/dev/shm"}}, {"name": "more", "emptyDir": {}}],
                "tolerations": [{"key": "a"}, {"key": "b"}],
                "containers": [{"name": "sidecar", "image": "y", "future": {"a": 1}}],
                "dnsPolicy": "None",
            })
        );
    }

    #[test]
    fn value_replaces_source() {
        let mut base = json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]});
        overlay(&mut base, &json!({"env": [{"name": "A", "value": "1"}]}));
        assert_eq!(base, json!({"env": [{"name": "A", "value": "1"}]}));
    }
}

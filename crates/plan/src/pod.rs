//! Pod templates as JSON: laying one specification over another, and the containers in it.
//! Unknown fields take part like known ones, so that fields newer than ostler survive.

use decide::reason::Warning;
use serde_json::{Map, Value};

use crate::code;
use crate::template;
use crate::topology::Owner;

/// `over` on `base`: maps are merged key by key, lists by the key their Kubernetes type has, everything else is replaced.
pub(crate) fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => overlay_map(base, over),
        (base, over) => *base = over.clone(),
    }
}

/// [`overlay`] of two maps.
pub(crate) fn overlay_map(base: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (field, value) in over {
        match (base.get_mut(field), value, list_of(field)) {
            (Some(Value::Array(items)), Value::Array(more), List::ByKey(key)) => overlay_items(items, more, key),
            (Some(Value::Array(items)), Value::Array(more), List::Set) => {
                items.extend(more.iter().filter(|item| !items.contains(item)).cloned().collect::<Vec<_>>());
            }
            (Some(there), _, _) => overlay(there, value),
            (None, _, _) => {
                base.insert(field.clone(), value.clone());
            }
        }
    }
}

enum List {
    /// Items with the same value of this field are one.
    ByKey(&'static str),
    /// Items add up.
    Set,
    /// The later list replaces the earlier.
    Atomic,
}

/// How the list fields of Pods and Containers merge.
fn list_of(field: &str) -> List {
    match field {
        "containers" | "initContainers" | "ephemeralContainers" | "volumes" | "env" | "imagePullSecrets" => {
            List::ByKey("name")
        }
        "volumeMounts" => List::ByKey("mountPath"),
        "volumeDevices" => List::ByKey("devicePath"),
        "ports" => List::ByKey("containerPort"),
        "tolerations" | "topologySpreadConstraints" | "envFrom" | "readinessGates" => List::Set,
        _ => List::Atomic,
    }
}

fn overlay_items(items: &mut Vec<Value>, more: &[Value], key: &str) {
    for item in more {
        match items.iter_mut().find(|there| !item[key].is_null() && there[key] == item[key]) {
            // A variable has a value or a source, never both.
            Some(there) if item.get("value").is_some() || item.get("valueFrom").is_some() => *there = item.clone(),
            // A volume has one source.
            Some(there) if key == "name" && item.get("image").is_none() && there.get("image").is_none() => {
                *there = item.clone();
            }
            Some(there) => overlay(there, item),
            None => items.push(item.clone()),
        }
    }
}

/// The container that answers requests: the one with a port named `http`, else the one on accelerators, else the one that
/// starts an engine that we know, else the first.
pub(crate) fn engine_container(template: &Value) -> Option<&Value> {
    let containers = template.pointer("/spec/containers")?.as_array()?;
    let signs: [fn(&Value) -> bool; 3] = [
        |container| container["ports"].as_array().is_some_and(|ports| ports.iter().any(|port| port["name"] == "http")),
        |container| crate::runner::requested(&container["resources"]).is_some(),
        |container| crate::launch::read(container).engine.is_some(),
    ];
    signs.iter().find_map(|sign| containers.iter().find(|one| sign(one))).or_else(|| containers.first())
}

/// [`engine_container`], to be changed.
pub(crate) fn engine_container_mut(template: &mut Value) -> Option<&mut Value> {
    let name = engine_container(template)?.get("name").cloned();
    let containers = template.pointer_mut("/spec/containers")?.as_array_mut()?;
    containers.iter_mut().find(|container| container.get("name") == name.as_ref())
}

/// Adds an item to a list field unless one with the same `key` is there: what a user wrote is never overwritten. Whether
/// it was added.
pub(crate) fn add_if_absent(object: &mut Value, field: &str, key: &str, item: Value) -> bool {
    let Some(map) = object.as_object_mut() else { return false };
    let list = map.entry(field).or_insert_with(|| Value::Array(Vec::new()));
    let Some(items) = list.as_array_mut() else { return false };
    let absent = !items.iter().any(|there| there[key] == item[key]);
    if absent {
        items.push(item);
    }
    absent
}

/// The main container first, sidecars after it. A sidecar of its name is the container seen twice (upstream's habit).
pub(crate) fn put_first(spec: &mut Value, container: Value) {
    let sidecars = spec["containers"].as_array().cloned().unwrap_or_default();
    let others = sidecars.into_iter().filter(|sidecar| sidecar["name"] != container["name"]).collect::<Vec<_>>();
    spec["containers"] = Value::Array([vec![container], others].concat());
}

/// Template variables of one container.
pub(crate) fn substitute(container: &mut Value, owner: &Owner, warnings: &mut Vec<Warning>) {
    let mut missing = Vec::new();
    template::substitute(container, owner, &mut missing);
    let told = |key| {
        Warning::new(
            code::warning::TEMPLATE_VALUE_MISSING,
            format!("metadata.{key} is not set on the service; the template variable is empty"),
        )
    };
    warnings.extend(missing.into_iter().map(told));
}

/// Template variables of sidecars and init containers; the first container was done before, and its remaining braces are
/// not ours and stay.
pub(crate) fn substitute_others(spec: &mut Value, owner: &Owner, warnings: &mut Vec<Warning>) {
    for (field, done) in [("containers", 1), ("initContainers", 0)] {
        let containers = spec.get_mut(field).and_then(Value::as_array_mut);
        containers.into_iter().flatten().skip(done).for_each(|container| substitute(container, owner, warnings));
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_merge_by_their_keys_and_unknown_fields_stay() {
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

    #[rstest]
    #[case::by_its_port(json!([{"name": "x", "image": "vllm"}, {"name": "e", "ports": [{"name": "http"}]}]), "e")]
    #[case::by_its_accelerators(json!([{"name": "x", "image": "vllm-log"}, {"name": "e", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]), "e")]
    #[case::by_what_it_starts(json!([{"name": "x", "ports": [{"name": "metrics", "containerPort": 9100}]}, {"name": "e", "image": "lmsysorg/sglang:v1"}]), "e")]
    #[case::the_first(json!([{"name": "e", "image": "a"}, {"name": "x", "image": "b"}]), "e")]
    fn which_container_is_the_engine(#[case] containers: Value, #[case] expect: &str) {
        assert_eq!(engine_container(&json!({"spec": {"containers": containers}})).unwrap()["name"], expect);
    }

    #[test]
    fn a_value_replaces_a_source() {
        let mut base = json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]});
        overlay(&mut base, &json!({"env": [{"name": "A", "value": "1"}]}));
        assert_eq!(base, json!({"env": [{"name": "A", "value": "1"}]}));
    }
}

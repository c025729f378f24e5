//! Reduces objects before they are cached: drops large fields that ostler never reads, since large clusters have many
//! Pods.

use std::hash::Hasher;

use fnv::FnvHasher;
use serde_json::{Map, Value, json};

use crate::Kind;
use crate::cached_object::CachedFields;

/// Dropped fields of a Pod's `spec`.
const POD_SPEC_FIELDS: [&str; 5] = ["volumes", "affinity", "tolerations", "securityContext", "imagePullSecrets"];
/// Dropped fields of a container.
const CONTAINER_FIELDS: [&str; 10] = [
    "env",
    "envFrom",
    "volumeMounts",
    "lifecycle",
    "livenessProbe",
    "startupProbe",
    "securityContext",
    "imagePullPolicy",
    "terminationMessagePath",
    "terminationMessagePolicy",
];
/// Field of a container of a cached Pod that replaces its environment.
const ENV_FINGERPRINT: &str = "envFingerprint";
/// Dropped fields of a Node's `status`.
const NODE_STATUS_FIELDS: [&str; 5] = ["images", "nodeInfo", "addresses", "volumesAttached", "volumesInUse"];

/// Sets `apiVersion` and `kind`, which list items lack, and drops unused fields and the managed fields of managers other
/// than `manager`.
pub(crate) fn drop_unused_fields(object: &mut Value, kind: Kind, manager: &str, fields: CachedFields) {
    match fields {
        CachedFields::Reduced => drop_unused_state(object, kind),
        CachedFields::Whole => set_type(object, kind),
    }
    if (kind.group, kind.kind) == ("apiextensions.k8s.io", "CustomResourceDefinition") {
        transform_definition(object);
    }
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) else { return };
    entries.retain(|entry| entry["manager"] == manager);
    if entries.is_empty() {
        metadata.remove("managedFields");
    }
}

/// Sets `apiVersion` and `kind`, which list items lack, and drops unused fields of Pods and Nodes.
pub(crate) fn drop_unused_state(object: &mut Value, kind: Kind) {
    set_type(object, kind);
    match (kind.group, kind.kind) {
        ("", "Pod") => transform_pod(object),
        ("", "Node") => remove_fields(&mut object["status"], &NODE_STATUS_FIELDS),
        _ => {}
    }
}

fn set_type(object: &mut Value, kind: Kind) {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.into();
}

fn transform_pod(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec") else { return };
    remove_fields(spec, &POD_SPEC_FIELDS);
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers {
            let fingerprint = env_fingerprint(container);
            remove_fields(container, &CONTAINER_FIELDS);
            if let Some(fingerprint) = fingerprint {
                container[ENV_FINGERPRINT] = fingerprint.into();
            }
        }
    }
}

/// Returns whether a container of a cached Pod has the environment of a container of a Pod template.
#[must_use]
pub fn has_environment_of(cached: &Value, template: &Value) -> bool {
    cached[ENV_FINGERPRINT].as_str() == env_fingerprint(template).as_deref()
}

/// Returns a fingerprint of the environment of a container; `None` if it is empty.
fn env_fingerprint(container: &Value) -> Option<String> {
    let fields = ["env", "envFrom"].map(|field| container[field].as_array().filter(|entries| !entries.is_empty()));
    fields.iter().flatten().next()?;
    let mut hasher = FnvHasher::default();
    hasher.write(&serde_json::to_vec(&fields).unwrap_or_default());
    Some(format!("{:016x}", hasher.finish()))
}

/// Reduces schemas to the field names of `spec`, which differ between versions of an integration. A CRD schema that
/// contains Pod templates takes megabytes.
fn transform_definition(definition: &mut Value) {
    let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let Some(fields) = version.pointer("/schema/openAPIV3Schema/properties/spec/properties") else {
            remove_fields(version, &["schema"]);
            continue;
        };
        let names: Map<String, Value> =
            fields.as_object().into_iter().flat_map(Map::keys).map(|name| (name.clone(), json!({}))).collect();
        version["schema"] = json!({"openAPIV3Schema": {"properties": {"spec": {"properties": names}}}});
    }
}

fn remove_fields(object: &mut Value, names: &[&str]) {
    if let Some(fields) = object.as_object_mut() {
        names.iter().for_each(|name| drop(fields.remove(*name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn drops_unused_fields_of_pods() {
        let mut pod = json!({"metadata": {"name": "p", "annotations": {"x": "y"}, "managedFields": [{"manager": "kubelet"}]},
            "spec": {"nodeName": "n", "volumes": [{"name": "v"}], "containers": [{"name": "c", "args": ["--port=1"], "env": [],
                "resources": {"limits": {"nvidia.com/gpu": "1"}}, "readinessProbe": {"tcpSocket": {"port": 1}}}]},
            "status": {"phase": "Running"}});
        drop_unused_fields(&mut pod, Kind::namespaced("", "v1", "Pod", "pods"), "us", CachedFields::Reduced);
        let expect = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"x": "y"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "args": ["--port=1"],
                "resources": {"limits": {"nvidia.com/gpu": "1"}}, "readinessProbe": {"tcpSocket": {"port": 1}}}]},
            "status": {"phase": "Running"}});
        assert_eq!(pod, expect);
    }

    #[test]
    fn whole_pods_retain_all_but_managed_fields_of_others() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"volumes": [{"name": "v"}], "containers": [{"name": "c", "env": [{"name": "A"}]}]}});
        let mut cached = pod.clone();
        cached["metadata"]["managedFields"] = json!([{"manager": "kubelet"}]);
        drop_unused_fields(&mut cached, Kind::namespaced("", "v1", "Pod", "pods"), "us", CachedFields::Whole);
        assert_eq!((&cached["spec"], &cached["metadata"]), (&pod["spec"], &pod["metadata"]));
        assert_eq!((&cached["kind"], &cached["apiVersion"]), (&json!("Pod"), &json!("v1")));
    }

    #[test]
    fn environment_of_a_cached_pod_is_comparable() {
        let container = |value: &str| json!({"name": "c", "env": [{"name": "A", "value": value}]});
        let mut pod =
            json!({"metadata": {"name": "p"}, "spec": {"containers": [container("1"), {"name": "d", "env": []}]}});
        drop_unused_state(&mut pod, Kind::namespaced("", "v1", "Pod", "pods"));
        let [with_env, without_env] = pod["spec"]["containers"].as_array().unwrap().as_slice() else { panic!() };
        assert_eq!(with_env["env"], Value::Null);
        assert!(has_environment_of(with_env, &container("1")) && !has_environment_of(with_env, &container("2")));
        assert!(
            has_environment_of(without_env, &json!({"name": "d"})) && !has_environment_of(without_env, &container("1"))
        );
    }

    #[test]
    fn reduces_schemas_of_definitions_to_field_names() {
        let version = |fields: Value| json!({"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}}});
        let nested = json!({"replicas": {"type": "integer"}, "template": {"properties": {"a": {"properties": {}}}}});
        let mut definition = json!({"metadata": {"name": "x"}, "spec": {"versions": [version(nested), {"name": "v2", "schema": {"any": 1}}]}});
        drop_unused_fields(
            &mut definition,
            Kind::cluster_scoped("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"),
            "us",
            CachedFields::Reduced,
        );
        assert_eq!(
            definition["spec"]["versions"],
            json!([version(json!({"replicas": {}, "template": {}})), {"name": "v2"}])
        );
    }
}

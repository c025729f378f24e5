//! What of an object the stores drop: long parts that nobody here reads. A large cluster has very many Pods.

use serde_json::{Map, Value, json};

use crate::Kind;

/// Of a Pod's `spec`.
const POD_SPEC: [&str; 5] = ["volumes", "affinity", "tolerations", "securityContext", "imagePullSecrets"];
/// Of each of its containers.
const CONTAINER: [&str; 10] = [
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
/// Of a Node's `status`.
const NODE_STATUS: [&str; 5] = ["images", "nodeInfo", "addresses", "volumesAttached", "volumesInUse"];

/// Fills in what list items lack (`apiVersion`, `kind`) and drops what nobody reads; of managed fields, those of `manager`
/// stay.
pub(crate) fn slim(object: &mut Value, kind: Kind, manager: &str) {
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.into();
    match (kind.group, kind.kind) {
        ("", "Pod") => slim_pod(object),
        ("", "Node") => drop_from(&mut object["status"], &NODE_STATUS),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => slim_definition(object),
        _ => {}
    }
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) else { return };
    entries.retain(|entry| entry["manager"] == manager);
    if entries.is_empty() {
        metadata.remove("managedFields");
    }
}

fn slim_pod(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec") else { return };
    drop_from(spec, &POD_SPEC);
    for list in ["containers", "initContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        containers.for_each(|container| drop_from(container, &CONTAINER));
    }
}

/// Of the schemas stays which fields a `spec` has: that is what versions of a neighbour differ in, and a schema with the
/// templates of Pods takes megabytes.
fn slim_definition(definition: &mut Value) {
    let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let Some(fields) = version.pointer("/schema/openAPIV3Schema/properties/spec/properties") else {
            drop_from(version, &["schema"]);
            continue;
        };
        let names: Map<String, Value> =
            fields.as_object().into_iter().flat_map(Map::keys).map(|name| (name.clone(), json!({}))).collect();
        version["schema"] = json!({"openAPIV3Schema": {"properties": {"spec": {"properties": names}}}});
    }
}

fn drop_from(object: &mut Value, names: &[&str]) {
    if let Some(fields) = object.as_object_mut() {
        names.iter().for_each(|name| drop(fields.remove(*name)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_pod_stays_what_is_read() {
        let mut pod = json!({"metadata": {"name": "p", "annotations": {"x": "y"}, "managedFields": [{"manager": "them"}]},
            "spec": {"nodeName": "n", "volumes": [{"name": "v"}], "containers": [{"name": "c", "args": ["--port=1"], "env": [],
                "resources": {"limits": {"nvidia.com/gpu": "1"}}, "readinessProbe": {"tcpSocket": {"port": 1}}}]},
            "status": {"phase": "Running"}});
        slim(&mut pod, Kind::namespaced("", "v1", "Pod", "pods"), "us");
        let expect = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"x": "y"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "args": ["--port=1"],
                "resources": {"limits": {"nvidia.com/gpu": "1"}}, "readinessProbe": {"tcpSocket": {"port": 1}}}]},
            "status": {"phase": "Running"}});
        assert_eq!(pod, expect);
    }

    #[test]
    fn of_a_definition_stay_the_names_of_the_fields() {
        let version = |fields: Value| json!({"name": "v1", "served": true, "schema": {"openAPIV3Schema": {"properties": {"spec": {"properties": fields}}}}});
        let deep = json!({"replicas": {"type": "integer"}, "template": {"properties": {"a": {"properties": {}}}}});
        let mut definition = json!({"metadata": {"name": "x"}, "spec": {"versions": [version(deep), {"name": "v2", "schema": {"any": 1}}]}});
        slim(
            &mut definition,
            Kind::cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"),
            "us",
        );
        assert_eq!(
            definition["spec"]["versions"],
            json!([version(json!({"replicas": {}, "template": {}})), {"name": "v2"}])
        );
    }
}

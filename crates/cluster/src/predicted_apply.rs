//! Predicts the result of a server-side apply without a request, for users who may only read.
//!
//! [`predict_apply`] merges like the API server. Afterwards it undoes the differences that no apply causes: quantities of
//! another format, and defaults that the API server sets inside atomic values.

use apimachinery::{ApplyOptions, MergeSchema, Schema, Status, builtin_merge_schema, openapi_merge_schema};
use serde_json::Value;

use crate::Kind;
use crate::managed_fields::{is_applied, restore_equal_values};

/// Time of the predicted apply, which only appears in `managedFields`.
const APPLY_TIME: &str = "1970-01-01T00:00:00Z";

/// Replicas of a Deployment without the field, for example because an autoscaler is created that sets it later.
const DEFAULT_REPLICAS: u32 = 1;

/// How the fields of a kind merge, and their defaults.
#[derive(Debug)]
pub(crate) struct ObjectSchema {
    merge: MergeSchema,
    /// Schema with the defaults of a custom resource; `None` for built-in kinds.
    defaults: Option<Schema>,
}

// === impl ObjectSchema ===

impl ObjectSchema {
    /// Returns the schema of `kind`, given its CustomResourceDefinition unless the kind is built in.
    pub(crate) fn new(kind: Kind, definition: Option<&Value>) -> ObjectSchema {
        let versions = definition.and_then(|definition| definition["spec"]["versions"].as_array());
        let version = versions.into_iter().flatten().find(|version| version["name"] == kind.version);
        match version.and_then(|version| version.pointer("/schema/openAPIV3Schema")) {
            Some(schema) => {
                ObjectSchema { merge: openapi_merge_schema(schema), defaults: Schema::from_json(schema).ok() }
            }
            None => ObjectSchema { merge: builtin_merge_schema(kind.group, kind.kind), defaults: None },
        }
    }
}

/// Field manager of `kubectl apply --server-side`.
const KUBECTL: &str = "kubectl";
/// Field manager of `kubectl apply`, which updates objects and removes the fields that it applied before.
const KUBECTL_CLIENT_SIDE: &str = "kubectl-client-side-apply";

/// Returns the object that exists after a user applies `desired` over `live`, with the tool that applied it before, or with
/// kubectl. `other_managers` are no such tools. `definition` is the CustomResourceDefinition.
///
/// # Errors
/// A list element of `desired` lacks its key.
pub fn predict_apply_by_user(
    kind: Kind,
    definition: Option<&Value>,
    live: Option<&Value>,
    desired: &Value,
    other_managers: &[&str],
) -> Result<Value, Status> {
    let mut live = live.cloned();
    let entries = live.as_mut().and_then(|live| live["metadata"]["managedFields"].as_array_mut());
    let mut user = KUBECTL.to_owned();
    for entry in entries.into_iter().flatten().filter(|entry| entry["subresource"].is_null()) {
        if entry["manager"] == KUBECTL_CLIENT_SIDE {
            entry["operation"] = "Apply".into();
        }
        let manager = entry["manager"].as_str().unwrap_or(KUBECTL);
        if entry["operation"] == "Apply" && !other_managers.contains(&manager) {
            user = manager.to_owned();
        }
    }
    let mut desired = desired.clone();
    if let Some(object) = desired.as_object_mut() {
        object.remove("status");
    }
    predict_apply(&ObjectSchema::new(kind, definition), live.as_ref(), &desired, &user)
}

/// Returns the object that exists after `manager` applied `desired` over `live`; equal to `live` if nothing changes.
///
/// # Errors
/// A list element of `desired` lacks its key.
pub(crate) fn predict_apply(
    schema: &ObjectSchema,
    live: Option<&Value>,
    desired: &Value,
    manager: &str,
) -> Result<Value, Status> {
    if let Some(live) = live.filter(|live| is_applied(live, desired, manager)) {
        return Ok(live.clone());
    }
    let options = ApplyOptions {
        manager: manager.to_owned(),
        force: true,
        api_version: desired["apiVersion"].as_str().unwrap_or_default().to_owned(),
        subresource: None,
        now: APPLY_TIME.to_owned(),
    };
    let mut result = apimachinery::server_side_apply(&schema.merge, live, desired, &options)?;
    if let Some(defaults) = &schema.defaults {
        defaults.default(&mut result);
    }
    if let Some(live) = live {
        restore_equal_values(live, &mut result);
        if live["kind"] == "Deployment" && result["spec"]["replicas"].is_null() {
            result["spec"]["replicas"] = DEFAULT_REPLICAS.into();
        }
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
    const ROUTE: Kind = Kind::namespaced("example.com", "v1", "Route", "routes");

    fn desired() -> Value {
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "namespace": "n", "labels": {"app": "a"}},
            "spec": {"template": {"spec": {
                "containers": [{"name": "main", "image": "i:1", "args": ["--a", "1"], "ports": [{"containerPort": 80}],
                    "env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                    "resources": {"limits": {"cpu": "1000m", "gpu": 1}}}],
                "tolerations": [{"key": "gpu", "operator": "Exists"}]}}}})
    }

    /// Returns the live object after an apply of [`desired`], with defaults and fields of other managers.
    fn live() -> Value {
        let schema = ObjectSchema::new(DEPLOYMENT, None);
        let mut live = predict_apply(&schema, None, &desired(), "us").unwrap();
        live["metadata"]["uid"] = json!("u");
        live["spec"]["progressDeadlineSeconds"] = json!(600);
        live["spec"]["replicas"] = json!(3);
        let container = &mut live["spec"]["template"]["spec"]["containers"][0];
        container["imagePullPolicy"] = json!("Always");
        container["ports"][0]["protocol"] = json!("TCP");
        container["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] = json!("v1");
        container["resources"]["limits"] = json!({"cpu": "1", "gpu": "1"});
        let entries = live["metadata"]["managedFields"].as_array_mut().unwrap();
        entries.push(json!({"manager": "hpa", "operation": "Update", "apiVersion": "apps/v1", "subresource": "scale",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}));
        live
    }

    fn with_replicas(replicas: i64) -> Value {
        let mut spec = desired()["spec"].clone();
        spec["replicas"] = json!(replicas);
        spec
    }

    /// Returns the paths of the values that differ, as `path: old → new`.
    fn differences(old: &Value, new: &Value, path: &str, output: &mut Vec<String>) {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => {
                let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
                for name in names.into_iter().filter(|name| *name != "managedFields") {
                    let value = |object: &serde_json::Map<String, Value>| object.get(name).cloned().unwrap_or_default();
                    differences(&value(old), &value(new), &format!("{path}.{name}"), output);
                }
            }
            (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
                old.iter().zip(new).for_each(|(old, new)| differences(old, new, path, output));
            }
            _ if old == new => {}
            _ => output.push(format!("{}: {old} → {new}", path.rsplit('.').next().unwrap_or_default())),
        }
    }

    /// Columns: pointer into the desired object, its new value, expected differences of the live object.
    #[rstest]
    #[case::nothing("/spec/template/spec/containers/0/image", json!("i:1"), &[])]
    #[case::value("/spec/template/spec/containers/0/image", json!("i:2"), &[r#"image: "i:1" → "i:2""#])]
    #[case::whole_list("/spec/template/spec/containers/0/args", json!(["--a"]), &[r#"args: ["--a","1"] → ["--a"]"#])]
    #[case::field_removed("/metadata/labels", json!({}), &[r#"app: "a" → null"#])]
    #[case::field_removed_from_atomic_value("/spec/template/spec/tolerations/0", json!({"operator": "Exists"}), &[r#"key: "gpu" → null"#])]
    #[case::quantity("/spec/template/spec/containers/0/resources/limits/gpu", json!(2), &[r#"gpu: "1" → 2"#])]
    #[case::overridden_manager("/spec", with_replicas(1), &["replicas: 3 → 1"])]
    fn predicts_changes_of_the_live_object(#[case] path: &str, #[case] value: Value, #[case] expected: &[&str]) {
        let mut desired = desired();
        *desired.pointer_mut(path).unwrap() = value;
        let predicted = predict_apply(&ObjectSchema::new(DEPLOYMENT, None), Some(&live()), &desired, "us").unwrap();
        let mut found = Vec::new();
        differences(&live(), &predicted, "", &mut found);
        assert_eq!(found, expected);
    }

    /// `kubectl apply` removes the fields that it applied before, and no others.
    #[rstest]
    #[case::client_side(KUBECTL_CLIENT_SIDE, "Update", &json!({"replicas": 3, "args": []}))]
    #[case::server_side("helm", "Apply", &json!({"replicas": 3, "args": []}))]
    #[case::other_manager("us", "Apply", &json!({"image": "i", "replicas": 3, "args": []}))]
    fn user_removes_fields_applied_before(#[case] manager: &str, #[case] operation: &str, #[case] expected: &Value) {
        let entry = |manager: &str, operation: &str, name: &str| {
            json!({"manager": manager, "operation": operation,
            "apiVersion": "example.com/v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {format!("f:{name}"): {}}}})
        };
        let live = json!({"apiVersion": "example.com/v1", "kind": "Route", "metadata": {"name": "r", "managedFields":
            [entry(manager, operation, "image"), entry("ostler", "Update", "replicas")]}, "spec": {"image": "i", "replicas": 3}});
        let file = json!({"apiVersion": "example.com/v1", "kind": "Route", "metadata": {"name": "r"}, "spec": {"args": []},
            "status": {"ready": true}});
        let predicted = predict_apply_by_user(ROUTE, None, Some(&live), &file, &["status", "us"]).unwrap();
        assert_eq!((&predicted["spec"], &predicted["status"]), (expected, &Value::Null));
    }

    /// The rules of a route are one atomic value, in which the API server sets defaults.
    #[test]
    fn defaults_of_custom_resources_are_no_changes() {
        let properties = json!({"weight": {"type": "integer", "default": 1}, "name": {"type": "string"}});
        let rules = json!({"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object", "properties": properties}});
        let spec = json!({"type": "object", "properties": {"rules": rules}});
        let definition = json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema":
            {"type": "object", "properties": {"spec": spec}}}}]}});
        let schema = ObjectSchema::new(ROUTE, Some(&definition));
        let route = |name: &str| json!({"apiVersion": "example.com/v1", "kind": "Route", "metadata": {"name": "r"}, "spec": {"rules": [{"name": name}]}});
        let live = predict_apply(&schema, None, &route("a"), "us").unwrap();
        assert_eq!(live["spec"]["rules"], json!([{"name": "a", "weight": 1}]));
        assert_eq!(predict_apply(&schema, Some(&live), &route("a"), "us").unwrap()["spec"], live["spec"]);
        let changed = predict_apply(&schema, Some(&live), &route("b"), "us").unwrap();
        assert_eq!(changed["spec"]["rules"], json!([{"name": "b", "weight": 1}]));
    }
}

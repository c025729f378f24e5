//! Revision history of a service: its spec at each rollout, stored in ControllerRevisions.
//!
//! Replica counts are not part of a revision: scaling creates no revision, and undo does not change the scale.

use std::sync::Arc;

use cluster::{Stores, metadata_field};
use plan::labels::{MANAGED_BY, MANAGER, OME_SERVICE, SERVICE};
use serde_json::{Map, Value, json};

use crate::kinds::{CONTROLLER_REVISION, FUSIONINFER_SERVICE};

/// Maximum number of revisions per service, including the current one (`revisionHistoryLimit`).
pub(crate) const MAX_REVISIONS: usize = 10;
/// Components of an `ome.io` service whose replica counts are removed.
const COMPONENTS: [&str; 4] = [ENGINE, "predictor", "decoder", "router"];
/// Component that every `ome.io` service has, even if its spec does not contain it.
const ENGINE: &str = "engine";
const REPLICA_FIELDS: [&str; 2] = ["minReplicas", "maxReplicas"];

/// Returns the desired ControllerRevisions of `service`, given the existing ones. If the spec equals an earlier
/// revision, that revision becomes the latest one again.
#[must_use]
pub(crate) fn desired_revisions(service: &Value, existing: &[Arc<Value>]) -> Vec<Value> {
    let data = json!({"spec": revision_content(&service["spec"])});
    let latest = existing.iter().map(|revision| revision_number(revision)).max().unwrap_or(0);
    let matching_revision =
        existing.iter().find(|revision| revision_content(&revision["data"]["spec"]) == data["spec"]);
    let current = match matching_revision {
        Some(matching_revision) if revision_number(matching_revision) == latest => {
            revision_object(service, metadata_field(matching_revision, "name"), &matching_revision["data"], latest)
        }
        Some(matching_revision) => {
            let name = metadata_field(matching_revision, "name");
            revision_object(service, name, &matching_revision["data"], latest + 1)
        }
        None => revision_object(service, &revision_name(service, &data), &data, latest + 1),
    };
    let mut other_revisions: Vec<&Arc<Value>> = existing
        .iter()
        .filter(|revision| metadata_field(revision, "name") != metadata_field(&current, "name"))
        .collect();
    other_revisions.sort_by_key(|revision| std::cmp::Reverse(revision_number(revision)));
    let retained_revisions = other_revisions.into_iter().take(MAX_REVISIONS - 1);
    let mut revisions: Vec<Value> = retained_revisions
        .map(|revision| {
            revision_object(service, metadata_field(revision, "name"), &revision["data"], revision_number(revision))
        })
        .chain([current])
        .collect();
    revisions.sort_by_key(revision_number);
    revisions
}

/// Returns the existing ControllerRevisions of `service`.
#[must_use]
pub(crate) fn existing_revisions(stores: &Stores, service: &Value) -> Vec<Arc<Value>> {
    stores.list_owned_by(CONTROLLER_REVISION, metadata_field(service, "uid"))
}

/// Returns the number of a revision.
#[must_use]
pub fn revision_number(revision: &Value) -> i64 {
    revision["revision"].as_i64().unwrap_or_default()
}

/// Returns `spec` without replica counts, and without components that only set replica counts: scaling a component of the
/// runtime adds it to the spec.
#[must_use]
pub fn revision_content(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for role in roles_mut(&mut spec).filter_map(Value::as_object_mut) {
        role.remove("replicas");
    }
    if let Some(spec) = spec.as_object_mut() {
        for component in COMPONENTS {
            let Some(fields) = spec.get_mut(component).and_then(Value::as_object_mut) else { continue };
            REPLICA_FIELDS.iter().for_each(|count| drop(fields.remove(*count)));
            if fields.is_empty() {
                spec.remove(component);
            }
        }
    }
    spec
}

/// Returns the spec of `revision` with the current replica counts of `spec` for all roles and components that both
/// contain, and for components of the runtime.
#[must_use]
pub fn restore_revision(spec: &Value, revision: &Value) -> Value {
    let mut restored_spec = revision["data"]["spec"].clone();
    let current_roles = spec["roles"].as_array().map(Vec::as_slice).unwrap_or_default();
    for role in roles_mut(&mut restored_spec) {
        let current_role = current_roles.iter().find(|current_role| current_role["name"] == role["name"]);
        copy_fields(role, current_role.unwrap_or(&Value::Null), &["replicas"]);
    }
    let current_content = revision_content(spec);
    for component in COMPONENTS {
        let is_defined_by_runtime = component == ENGINE || current_content[component].is_null();
        let is_scaled = REPLICA_FIELDS.iter().any(|field| !spec[component][*field].is_null());
        if restored_spec[component].is_object() || (is_defined_by_runtime && is_scaled) {
            copy_fields(&mut restored_spec[component], &spec[component], &REPLICA_FIELDS);
        }
    }
    restored_spec
}

fn roles_mut(spec: &mut Value) -> impl Iterator<Item = &mut Value> {
    spec.get_mut("roles").and_then(Value::as_array_mut).into_iter().flatten()
}

fn copy_fields(target: &mut Value, source: &Value, fields: &[&str]) {
    for field in fields.iter().filter(|field| !source[**field].is_null()) {
        target[*field] = source[*field].clone();
    }
}

fn revision_object(service: &Value, name: &str, data: &Value, revision: i64) -> Value {
    let is_role_based = service["apiVersion"] == FUSIONINFER_SERVICE.api_version();
    let label = if is_role_based { SERVICE } else { OME_SERVICE };
    let labels: Map<String, Value> = [(MANAGED_BY, MANAGER), (label, metadata_field(service, "name"))]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), json!(label_value(value))))
        .collect();
    json!({
        "apiVersion": CONTROLLER_REVISION.api_version(), "kind": CONTROLLER_REVISION.kind,
        "metadata": {"namespace": service["metadata"]["namespace"], "name": name, "labels": labels},
        "data": data, "revision": revision,
    })
}

fn label_value(text: &str) -> String {
    plan::label_value(text)
}

/// Returns the name of a revision: `{service}-{hash of the content}`.
fn revision_name(service: &Value, data: &Value) -> String {
    format!("{}-{:016x}", metadata_field(service, "name"), plan::fingerprint(&data.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(image: &str, replicas: i64) -> Value {
        json!({"apiVersion": "fusioninfer.io/v1alpha1", "metadata": {"namespace": "n", "name": "s"},
            "spec": {"roles": [{"name": "w", "replicas": replicas, "template": {"image": image}}]}})
    }

    fn into_arcs(revisions: Vec<Value>) -> Vec<Arc<Value>> {
        revisions.into_iter().map(Arc::new).collect()
    }

    fn summaries(revisions: &[Value]) -> Vec<String> {
        let image =
            |revision: &Value| revision["data"]["spec"]["roles"][0]["template"]["image"].as_str().unwrap().to_owned();
        revisions.iter().map(|revision| format!("{} {}", revision_number(revision), image(revision))).collect()
    }

    #[test]
    fn edit_creates_a_revision_and_scaling_does_not() {
        let first_revisions = desired_revisions(&service("a", 1), &[]);
        assert_eq!(summaries(&first_revisions), ["1 a"]);
        assert_eq!(desired_revisions(&service("a", 5), &into_arcs(first_revisions.clone())), first_revisions);
        let second_revisions = desired_revisions(&service("b", 1), &into_arcs(first_revisions));
        assert_eq!(summaries(&second_revisions), ["1 a", "2 b"]);
        assert_eq!(
            summaries(&desired_revisions(&service("a", 1), &into_arcs(second_revisions))),
            ["2 b", "3 a"],
            "a restored spec becomes the latest revision"
        );
    }

    #[test]
    fn keeps_ten_revisions() {
        let mut existing_revisions = Vec::new();
        for number in 0..15 {
            existing_revisions = into_arcs(desired_revisions(&service(&format!("i{number}"), 1), &existing_revisions));
        }
        let numbers: Vec<i64> = existing_revisions.iter().map(|revision| revision_number(revision)).collect();
        assert_eq!(numbers, (6..=15).collect::<Vec<_>>());
    }

    #[test]
    fn restored_spec_keeps_current_replicas() {
        let first_revision = desired_revisions(&service("a", 1), &[]).remove(0);
        assert_eq!(restore_revision(&service("b", 4)["spec"], &first_revision), service("a", 4)["spec"]);
        let ome_spec = |image: &str, max_replicas: i64| json!({"engine": {"runner": {"image": image}, "minReplicas": 1, "maxReplicas": max_replicas}});
        let revision = json!({"data": {"spec": revision_content(&ome_spec("a", 2))}});
        assert_eq!(restore_revision(&ome_spec("b", 6), &revision), ome_spec("a", 6));
        assert_eq!(restore_revision(&json!({}), &revision), json!({"engine": {"runner": {"image": "a"}}}));
    }

    #[test]
    fn scaling_an_engine_of_the_runtime_creates_no_revision() {
        let service = |spec: Value| json!({"apiVersion": "ome.io/v1beta1", "metadata": {"namespace": "n", "name": "s"}, "spec": spec});
        let scaled_spec =
            |model: &str| json!({"model": {"name": model}, "engine": {"minReplicas": 2, "maxReplicas": 3}});
        let first = into_arcs(desired_revisions(&service(json!({"model": {"name": "m"}})), &[]));
        let after_scaling = desired_revisions(&service(scaled_spec("m")), &first);
        assert_eq!(into_arcs(after_scaling), first);
        assert_eq!(restore_revision(&scaled_spec("n"), &first[0]), scaled_spec("m"), "the scale remains");
        // Earlier versions recorded the empty engine.
        let mut recorded = (*first[0]).clone();
        recorded["data"]["spec"]["engine"] = json!({});
        let existing = into_arcs(vec![recorded]);
        assert_eq!(into_arcs(desired_revisions(&service(scaled_spec("m")), &existing)), existing);
    }
}

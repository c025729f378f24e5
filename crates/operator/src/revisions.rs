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
/// Annotation of revisions: fingerprint of the Pod templates.
const POD_TEMPLATES_ANNOTATION: &str = "ome.io/pod-templates";
const REPLICA_FIELDS: [&str; 2] = ["minReplicas", "maxReplicas"];

/// Returns the desired ControllerRevisions of `service`, given the existing ones and the fingerprint of its Pod templates, if
/// they also depend on other objects. If spec and templates equal an earlier revision, that revision becomes the latest one
/// again. A revision without a fingerprint, which an earlier version created, has any templates.
#[must_use]
pub(crate) fn desired_revisions(service: &Value, templates: Option<&str>, existing: &[Arc<Value>]) -> Vec<Value> {
    let data = json!({"spec": revision_content(&service["spec"])});
    let latest = existing.iter().map(|revision| revision_number(revision)).max().unwrap_or(0);
    let has_same_spec = |revision: &&Arc<Value>| revision_content(&revision["data"]["spec"]) == data["spec"];
    let same_spec: Vec<&Arc<Value>> = existing.iter().filter(has_same_spec).collect();
    let matching_revision = same_spec
        .iter()
        .find(|revision| templates.is_none() || pod_templates(revision) == templates)
        .or_else(|| same_spec.iter().find(|revision| pod_templates(revision).is_none()));
    let current = match matching_revision {
        Some(revision) => {
            let is_latest = revision_number(revision) == latest;
            let number = if is_latest { latest } else { latest.saturating_add(1) };
            revision_object(service, metadata_field(revision, "name"), &revision["data"], number, templates)
        }
        None => {
            let name = revision_name(service, &data, templates.filter(|_| !same_spec.is_empty()));
            revision_object(service, &name, &data, latest.saturating_add(1), templates)
        }
    };
    let mut other_revisions: Vec<&Arc<Value>> = existing
        .iter()
        .filter(|revision| metadata_field(revision, "name") != metadata_field(&current, "name"))
        .collect();
    other_revisions.sort_by_key(|revision| std::cmp::Reverse(revision_number(revision)));
    let retained_revisions = other_revisions.into_iter().take(MAX_REVISIONS - 1);
    let retain = |revision: &Arc<Value>| {
        let (name, number) = (metadata_field(revision, "name"), revision_number(revision));
        revision_object(service, name, &revision["data"], number, pod_templates(revision))
    };
    let mut revisions: Vec<Value> = retained_revisions.map(retain).chain([current]).collect();
    revisions.sort_by_key(revision_number);
    revisions
}

/// Returns the fingerprint of the Pod templates among the planned `objects`: those of an `ome.io` service also depend on its
/// runtime and its accelerator class.
pub(crate) fn pod_templates_fingerprint(objects: &[Value]) -> String {
    let templates = objects.iter().filter_map(|object| {
        let spec = &object["spec"];
        let template =
            [&spec["template"], &spec["leaderWorkerTemplate"]].into_iter().find(|value| value.is_object())?;
        Some(format!("{} {template}", metadata_field(object, "name")))
    });
    format!("{:016x}", plan::fingerprint(&templates.collect::<Vec<_>>().join("\n")))
}

/// Returns the fingerprint of the Pod templates of a revision.
fn pod_templates(revision: &Value) -> Option<&str> {
    revision["metadata"]["annotations"][POD_TEMPLATES_ANNOTATION].as_str()
}

/// Returns the existing ControllerRevisions of `service`.
#[must_use]
pub(crate) fn existing_revisions(stores: &Stores, service: &Value) -> Vec<Arc<Value>> {
    stores.list_owned_by(CONTROLLER_REVISION, service)
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

fn revision_object(service: &Value, name: &str, data: &Value, revision: i64, templates: Option<&str>) -> Value {
    let is_role_based = service["apiVersion"] == FUSIONINFER_SERVICE.api_version();
    let label = if is_role_based { SERVICE } else { OME_SERVICE };
    let labels: Map<String, Value> = [(MANAGED_BY, MANAGER), (label, metadata_field(service, "name"))]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), json!(label_value(value))))
        .collect();
    let mut object = json!({
        "apiVersion": CONTROLLER_REVISION.api_version(), "kind": CONTROLLER_REVISION.kind,
        "metadata": {"namespace": service["metadata"]["namespace"], "name": name, "labels": labels},
        "data": data, "revision": revision,
    });
    if let Some(templates) = templates {
        object["metadata"]["annotations"] = json!({POD_TEMPLATES_ANNOTATION: templates});
    }
    object
}

fn label_value(text: &str) -> String {
    plan::label_value(text)
}

/// Returns the name of a revision: `{service}-{hash of the content}`. The content includes `templates` if another revision has
/// the same spec.
fn revision_name(service: &Value, data: &Value, templates: Option<&str>) -> String {
    let content = format!("{data}{}", templates.unwrap_or_default());
    format!("{}-{:016x}", metadata_field(service, "name"), plan::fingerprint(&content))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
        let first_revisions = desired_revisions(&service("a", 1), None, &[]);
        assert_eq!(summaries(&first_revisions), ["1 a"]);
        assert_eq!(desired_revisions(&service("a", 5), None, &into_arcs(first_revisions.clone())), first_revisions);
        let second_revisions = desired_revisions(&service("b", 1), None, &into_arcs(first_revisions));
        assert_eq!(summaries(&second_revisions), ["1 a", "2 b"]);
        assert_eq!(
            summaries(&desired_revisions(&service("a", 1), None, &into_arcs(second_revisions))),
            ["2 b", "3 a"],
            "a restored spec becomes the latest revision"
        );
    }

    #[test]
    fn keeps_ten_revisions() {
        let mut existing_revisions = Vec::new();
        for number in 0..15 {
            existing_revisions =
                into_arcs(desired_revisions(&service(&format!("i{number}"), 1), None, &existing_revisions));
        }
        let numbers: Vec<i64> = existing_revisions.iter().map(|revision| revision_number(revision)).collect();
        assert_eq!(numbers, (6..=15).collect::<Vec<_>>());
    }

    /// A user may set any number.
    #[test]
    fn number_of_the_latest_revision_may_be_the_maximum() {
        let mut first_revision = desired_revisions(&service("a", 1), None, &[]).remove(0);
        first_revision["revision"] = json!(i64::MAX);
        let revisions = desired_revisions(&service("b", 1), None, &into_arcs(vec![first_revision]));
        assert_eq!(summaries(&revisions), [format!("{} a", i64::MAX), format!("{} b", i64::MAX)]);
    }

    #[test]
    fn restored_spec_keeps_current_replicas() {
        let first_revision = desired_revisions(&service("a", 1), None, &[]).remove(0);
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
        let first = into_arcs(desired_revisions(&service(json!({"model": {"name": "m"}})), None, &[]));
        let after_scaling = desired_revisions(&service(scaled_spec("m")), None, &first);
        assert_eq!(into_arcs(after_scaling), first);
        assert_eq!(restore_revision(&scaled_spec("n"), &first[0]), scaled_spec("m"), "the scale remains");
        // Earlier versions recorded the empty engine.
        let mut recorded = (*first[0]).clone();
        recorded["data"]["spec"]["engine"] = json!({});
        let existing = into_arcs(vec![recorded]);
        assert_eq!(into_arcs(desired_revisions(&service(scaled_spec("m")), None, &existing)), existing);
    }

    #[test]
    fn edited_runtime_creates_a_revision() {
        let first = into_arcs(desired_revisions(&service("a", 1), Some("t1"), &[]));
        assert_eq!(into_arcs(desired_revisions(&service("a", 2), Some("t1"), &first)), first);
        let second = into_arcs(desired_revisions(&service("a", 1), Some("t2"), &first));
        let names: BTreeSet<&str> = second.iter().map(|revision| metadata_field(revision, "name")).collect();
        assert_eq!((second.len(), names.len()), (2, 2));
        let restored = desired_revisions(&service("a", 1), Some("t1"), &second);
        assert_eq!(
            restored.iter().map(revision_number).collect::<Vec<_>>(),
            [2, 3],
            "the first revision is the latest again"
        );
        // The templates of a revision of an earlier version are not known.
        let unknown = into_arcs(desired_revisions(&service("a", 1), None, &[]));
        let updated = desired_revisions(&service("a", 1), Some("t1"), &unknown);
        assert_eq!((updated.len(), pod_templates(&updated[0])), (1, Some("t1")));
    }
}

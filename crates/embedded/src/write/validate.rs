//! Refuses objects that are wrong, in Kubernetes' words.

use apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::names::{LABEL_VALUE, QUALIFIED, bad_name, is_qualified};
use super::{Face, metadata, prune, rules};
use crate::resources::Resource;
use crate::{crd, object};

/// Fields of a workload that never change once written.
const IMMUTABLE: &[(&str, &str)] = &[
    ("deployments.apps", "/spec/selector"),
    ("replicasets.apps", "/spec/selector"),
    ("statefulsets.apps", "/spec/selector"),
    ("statefulsets.apps", "/spec/serviceName"),
    ("jobs.batch", "/spec/template"),
];

/// Kinds whose metadata is looked at on an update as it is on creation.
const WHOLE_AGAIN: [&str; 5] = ["configmaps", "pods", "secrets", "serviceaccounts", "services"];
/// Kinds that take any finalizer.
const LOOSE: [&str; 2] = ["leases.coordination.k8s.io", "leasecandidates.coordination.k8s.io"];

/// # Errors
/// 422 with every cause, 400 for values of the wrong type in built-in kinds.
pub(super) fn create(resource: &Resource, object: &Value) -> Result<(), Status> {
    let mut causes = names(resource, object);
    rules::quantities(resource, object)?;
    causes.extend(schema(resource, Face::Main, object)?);
    causes.extend(rules::causes(resource, object));
    if resource.storage == crd::STORAGE {
        causes.extend(crd::causes(None, object));
    }
    verdict(resource, object, causes)
}

/// # Errors
/// 422 with every cause, 400 for values of the wrong type in built-in kinds.
pub(super) fn update(resource: &Resource, face: Face, current: &Value, object: &Value) -> Result<(), Status> {
    let mut causes = label_causes(object);
    causes.extend(metadata::finalizers(current, object));
    if face == Face::Main && (resource.custom || WHOLE_AGAIN.contains(&resource.storage.as_str())) {
        causes.extend(finalizer_causes(resource, object));
    }
    causes.extend(schema(resource, face, object)?);
    if face == Face::Main {
        rules::quantities(resource, object)?;
        causes.extend(service_address(resource, current, object));
        causes.extend(rules::update_causes(resource, current, object));
        causes.extend(rules::causes(resource, object));
        causes.extend(immutable(resource, current, object));
        causes.extend(pod_update(resource, current, object));
        if resource.storage == crd::STORAGE {
            causes.extend(crd::causes(Some(current), object));
        }
    }
    verdict(resource, object, causes)
}

fn verdict(resource: &Resource, object: &Value, causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&resource.qualified_kind(), object::name(object), causes))
}

fn schema(resource: &Resource, face: Face, object: &Value) -> Result<Vec<Cause>, Status> {
    let Some(schema) = resource.schema() else { return Ok(Vec::new()) };
    if resource.custom {
        let mut causes = custom(resource, &schema.validate(object));
        if face == Face::Status {
            causes.iter_mut().for_each(named_from_the_status);
        }
        causes.extend(counts(resource, face, object));
        return Ok(causes);
    }
    // In typed kinds, null is absence. Metadata is the server's own.
    let members = object.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata");
    let mut object: Value = members.map(|(name, value)| (name.clone(), value.clone())).collect();
    prune::drop_nulls(&mut object);
    let mut causes = schema.validate(&object);
    // Controllers here write statuses of built-in kinds; their types are wider than what a single machine knows. What is
    // required of a specification is in the rules, in the words of kube-apiserver.
    causes.retain(|cause| !cause.field.starts_with("status") && !cause.field.starts_with("metadata"));
    causes.retain(|cause| {
        let is_ruled = cause.field.ends_with("selector") || cause.field.ends_with("containers");
        !(cause.reason == "FieldValueRequired" && is_ruled)
    });
    if face == Face::Status {
        return Ok(Vec::new());
    }
    let mistyped: Vec<String> =
        causes.iter().filter(|cause| cause.reason == "FieldValueTypeInvalid").map(Cause::to_string).collect();
    if mistyped.is_empty() {
        return Ok(causes);
    }
    Err(Status::bad_request(format!(
        "{} in version \"{}\" cannot be handled as a {}: {}",
        resource.kind,
        resource.version,
        resource.kind,
        mistyped.join(", ")
    )))
}

/// A write of the status looks at nothing else, and names fields from there.
fn named_from_the_status(cause: &mut Cause) {
    if let Some(below) = cause.field.strip_prefix("status.") {
        cause.message = cause.message.replacen(&format!(": {} in body", cause.field), &format!(": {below} in body"), 1);
    }
}

/// Definitions may restrict only the name of metadata; the rest is the server's own. Where something is wrong already,
/// the rules have not been looked at, and that is said.
fn custom(resource: &Resource, causes: &[Cause]) -> Vec<Cause> {
    let ours = |cause: &&Cause| !cause.field.starts_with("metadata.") || cause.field == "metadata.name";
    let mut causes: Vec<Cause> = causes.iter().filter(ours).cloned().collect();
    let blocks = |cause: &Cause| {
        let reasons = ["Required", "TypeInvalid", "NotSupported", "TooLong", "TooMany"];
        reasons.iter().any(|reason| cause.reason == format!("FieldValue{reason}"))
    };
    if causes.iter().any(blocks) && resource.has_rules {
        let hint = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        causes.push(Cause::invalid("<nil>", &Value::Null, hint));
    }
    causes
}

/// The counts of a scalable custom resource are whole numbers, whatever its schema says. A status write leaves the
/// wanted count alone.
fn counts(resource: &Resource, face: Face, object: &Value) -> Vec<Cause> {
    let Some(paths) = resource.scale.as_ref().filter(|_| resource.custom) else { return Vec::new() };
    let wanted = (face == Face::Main).then_some(&paths.spec_replicas);
    let mut causes = Vec::new();
    for pointer in wanted.into_iter().chain([&paths.status_replicas]) {
        let Some(count) = object.pointer(pointer) else { continue };
        let field = pointer.replace('/', ".");
        match count.as_i64() {
            Some(count) if count < 0 => {
                causes.push(Cause::invalid(field, &json!(count), "should be a non-negative integer"));
            }
            Some(count) if count > i64::from(i32::MAX) => {
                let hint = format!("should be less than or equal to {}", i32::MAX);
                causes.push(Cause::invalid(field, &json!(count), &hint));
            }
            Some(_) => {}
            None => {
                let (shown, kind) = (apimachinery::go::plain(count), apimachinery::go::kind(count));
                let hint = format!("{field} accessor error: {shown} is of the type {kind}, expected int64");
                causes.push(Cause::invalid(field, &json!(0), &hint));
            }
        }
    }
    causes
}

fn names(resource: &Resource, object: &Value) -> Vec<Cause> {
    if resource.virtual_only {
        return Vec::new();
    }
    let mut causes = label_causes(object);
    causes.extend(finalizer_causes(resource, object));
    let name = object::name(object);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(hint) = bad_name(resource, name) {
        causes.push(Cause::invalid("metadata.name", &json!(name), &hint));
    }
    causes
}

fn label_causes(object: &Value) -> Vec<Cause> {
    let members = |field: &str| object.pointer(&format!("/metadata/{field}")).and_then(Value::as_object);
    let mut causes = labels("metadata.labels", members("labels"));
    for key in members("annotations").into_iter().flatten().map(|(key, _)| key) {
        // Whatever letters its domain is written in.
        let lower = key.to_lowercase();
        if !is_qualified(lower.rsplit_once('/').map_or(lower.as_str(), |(_, part)| part)) {
            causes.push(Cause::invalid("metadata.annotations", &json!(key), QUALIFIED));
        }
    }
    causes
}

/// What is wrong with labels, or with a selector of them, at `field`.
pub(super) fn labels(field: &str, labels: Option<&serde_json::Map<String, Value>>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let labels = labels.into_iter().flatten();
    for (key, value) in labels {
        let part = key.rsplit_once('/').map_or(key.as_str(), |(_, part)| part);
        if !is_qualified(part) {
            causes.push(Cause::invalid(field, &json!(key), QUALIFIED));
        }
        let Some(value) = value.as_str() else { continue };
        if value.len() > 63 {
            causes.push(Cause::invalid(field, &json!(value), "must be no more than 63 characters"));
        } else if !value.is_empty() && !is_qualified(value) {
            causes.push(Cause::invalid(field, &json!(value), LABEL_VALUE));
        }
    }
    causes
}

/// Those of built-in kinds belong to somebody's domain.
fn finalizer_causes(resource: &Resource, object: &Value) -> Vec<Cause> {
    const STANDARD: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let is_name = |name: &str| is_qualified(name.rsplit_once('/').map_or(name, |(_, part)| part));
    let malformed = object::finalizers(object).into_iter().filter(|name| !is_name(name));
    let malformed = malformed.map(|name| Cause::invalid("metadata.finalizers", &json!(name), QUALIFIED));
    let finalizers = object::finalizers(object).into_iter().enumerate();
    let is_free = resource.custom || LOOSE.contains(&resource.storage.as_str());
    let loose = finalizers.filter(|(_, name)| !is_free && !name.contains('/') && !STANDARD.contains(name));
    let loose = loose.map(|(index, name)| {
        let hint = "name is neither a standard finalizer name nor is it fully qualified";
        Cause::invalid(format!("metadata.finalizers[{index}]"), &json!(name), hint)
    });
    malformed.chain(loose).collect()
}

fn immutable(resource: &Resource, current: &Value, object: &Value) -> Vec<Cause> {
    let fields = IMMUTABLE.iter().filter(|(storage, _)| *storage == resource.storage);
    let changed = fields.filter(|(_, pointer)| current.pointer(pointer) != object.pointer(pointer));
    changed
        .map(|(_, pointer)| {
            let value = object.pointer(pointer).unwrap_or(&Value::Null);
            Cause::invalid(pointer[1..].replace('/', "."), value, "field is immutable")
        })
        .collect()
}

/// The address of a Service stays as it is.
fn service_address(resource: &Resource, current: &Value, object: &Value) -> Option<Cause> {
    let address = |service: &Value| object::text(service, "/spec/clusterIP").to_owned();
    let (before, after) = (address(current), address(object));
    let is_fixed = resource.storage == "services" && !before.is_empty() && !after.is_empty();
    (is_fixed && before != after)
        .then(|| Cause::invalid("spec.clusterIPs[0]", &json!([after]), "may not change once set"))
}

/// What of a Pod's specification may change; everything else is fixed once it exists.
fn pod_update(resource: &Resource, current: &Value, object: &Value) -> Option<Cause> {
    if resource.storage != "pods" {
        return None;
    }
    let count = |pod: &Value, list: &str| pod["spec"][list].as_array().map_or(0, Vec::len);
    let resized = ["containers", "initContainers"].into_iter().find(|list| count(object, list) != count(current, list));
    if let Some(list) = resized {
        return Some(Cause::forbidden(format!("spec.{list}"), "pod updates may not add or remove containers"));
    }
    let mut frozen = object.get("spec").cloned().unwrap_or_default();
    let before = current.get("spec").cloned().unwrap_or_default();
    let unbound = object::text(current, "/spec/nodeName").is_empty();
    for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"] {
        restore(&mut frozen, &before, field);
    }
    if unbound {
        restore(&mut frozen, &before, "nodeName");
    }
    for list in ["containers", "initContainers"] {
        let old = before.get(list).and_then(Value::as_array).into_iter().flatten();
        let new = frozen.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (new, old) in new.zip(old) {
            restore(new, old, "image");
        }
    }
    (frozen != before).then(|| {
        Cause::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        )
    })
}

fn restore(object: &mut Value, from: &Value, field: &str) {
    let members = object::members(object);
    match from.get(field) {
        Some(value) => members.insert(field.to_owned(), value.clone()),
        None => members.remove(field),
    };
}

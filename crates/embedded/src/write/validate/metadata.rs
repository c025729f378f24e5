//! Which metadata an object may have: its name, labels, annotations, owners and finalizers.

use apimachinery::status::Cause;
use serde_json::{Map, Value, json};

use super::names::{LABEL_VALUE, QUALIFIED, bad_name, is_qualified, key_hints};
use super::owners;
use crate::object;
use crate::resources::Resource;
use crate::write::Face;

/// Kinds whose metadata is looked at on an update as it is on creation.
const WHOLE_AGAIN: [&str; 5] = ["configmaps", "pods", "secrets", "serviceaccounts", "services"];

/// Kinds that take any finalizer.
const LOOSE: [&str; 2] = ["leases.coordination.k8s.io", "leasecandidates.coordination.k8s.io"];

/// Bytes that the keys and values of an object's annotations may have together.
const ANNOTATIONS: usize = 256 << 10;

/// What is wrong with the metadata of a new object.
pub(super) fn causes(resource: &Resource, object: &Value) -> Vec<Cause> {
    if resource.virtual_only {
        return Vec::new();
    }
    let mut causes = label_causes(object);
    causes.extend(owners::causes(object));
    causes.extend(finalizer_causes(resource, object));
    let name = object::name(object);
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if let Some(hint) = bad_name(resource, name) {
        causes.push(Cause::invalid("metadata.name", &json!(name), &hint));
    }
    causes
}

/// What is wrong with the metadata of an object that changes.
pub(super) fn causes_of_change(resource: &Resource, face: Face, current: &Value, object: &Value) -> Vec<Cause> {
    let mut causes = label_causes(object);
    causes.extend(owners::causes(object));
    causes.extend(new_finalizers(current, object));
    if face == Face::Main && (resource.custom || WHOLE_AGAIN.contains(&resource.storage.as_str())) {
        causes.extend(finalizer_causes(resource, object));
    }
    causes
}

fn label_causes(object: &Value) -> Vec<Cause> {
    let members = |field: &str| object.pointer(&format!("/metadata/{field}")).and_then(Value::as_object);
    let mut causes = labels("metadata.labels", members("labels"));
    causes.extend(annotations("metadata.annotations", members("annotations")));
    causes
}

fn annotations(field: &str, annotations: Option<&Map<String, Value>>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut bytes = 0;
    for (key, value) in annotations.into_iter().flatten() {
        // Whatever letters its domain is written in.
        let hints = key_hints(&key.to_lowercase());
        causes.extend(hints.iter().map(|hint| Cause::invalid(field, &json!(key), hint)));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS {
        let message = format!("Too long: may not be more than {ANNOTATIONS} bytes");
        causes.push(Cause::new(field, "FieldValueTooLong", message));
    }
    causes
}

/// What is wrong with labels, or with a selector of them, at `field`.
pub(super) fn labels(field: &str, labels: Option<&Map<String, Value>>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let labels = labels.into_iter().flatten();
    for (key, value) in labels {
        causes.extend(key_hints(key).iter().map(|hint| Cause::invalid(field, &json!(key), hint)));
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

/// What may not appear while an object is on its way out.
fn new_finalizers(current: &Value, object: &Value) -> Option<Cause> {
    if !object::is_deleting(current) {
        return None;
    }
    let before = object::finalizers(current);
    let new: Vec<&str> = object::finalizers(object).into_iter().filter(|name| !before.contains(name)).collect();
    (!new.is_empty()).then(|| {
        let hint = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            new.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
        );
        Cause::forbidden("metadata.finalizers", &hint)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::as_many_as_may_be(ANNOTATIONS - 2, &[])]
    #[case::one_byte_more(ANNOTATIONS - 1, &["metadata.annotations: Too long: may not be more than 262144 bytes"])]
    fn keys_and_values_of_annotations_count_together(#[case] value: usize, #[case] expected: &[&str]) {
        let object = json!({"metadata": {"annotations": {"ab": "", "cd": "x".repeat(value - 2)}}});
        let causes = label_causes(&object);
        let told: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(told, expected);
    }
}

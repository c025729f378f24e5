//! Validation of metadata: name, labels, annotations, owner references and finalizers.

use apimachinery::{StatusCause, object};
use serde_json::{Map, Value, json};

use super::names::{LABEL_VALUE_MESSAGE, QUALIFIED_NAME_MESSAGE, is_qualified_name_part, label_key_hints, name_error};
use super::owner_references;
use crate::resources::Resource;
use crate::write::Subresource;

/// Built-in resources whose finalizers are validated on updates as well as on creation.
const FINALIZERS_VALIDATED_ON_UPDATE: [&str; 5] = ["configmaps", "pods", "secrets", "serviceaccounts", "services"];

/// Built-in resources that accept finalizers without a domain.
const UNQUALIFIED_FINALIZERS_ALLOWED: [&str; 2] = ["leases.coordination.k8s.io", "leasecandidates.coordination.k8s.io"];

/// Maximum total size of all annotation keys and values of an object in bytes.
const TOTAL_ANNOTATION_SIZE_LIMIT: usize = 256 << 10;

/// Validates the metadata of a new object.
pub(super) fn causes(resource: &Resource, object: &Value) -> Vec<StatusCause> {
    if resource.create_only {
        return Vec::new();
    }
    let mut causes = label_and_annotation_causes(object);
    causes.extend(owner_references::causes(object));
    causes.extend(finalizer_causes(resource, object));
    let name = object::name(object);
    if name.is_empty() {
        causes.push(StatusCause::required("metadata.name", "name or generateName is required"));
    } else if let Some(hint) = name_error(resource, name) {
        causes.push(StatusCause::invalid("metadata.name", &json!(name), &hint));
    }
    causes
}

/// Validates the metadata of an updated object.
pub(super) fn update_causes(
    resource: &Resource,
    subresource: Subresource,
    current: &Value,
    object: &Value,
) -> Vec<StatusCause> {
    let mut causes = label_and_annotation_causes(object);
    causes.extend(owner_references::causes(object));
    causes.extend(check_new_finalizers(current, object));
    if subresource == Subresource::Main
        && (resource.custom || FINALIZERS_VALIDATED_ON_UPDATE.contains(&resource.storage.as_str()))
    {
        causes.extend(finalizer_causes(resource, object));
    }
    causes
}

fn label_and_annotation_causes(object: &Value) -> Vec<StatusCause> {
    let members = |field: &str| object.pointer(&format!("/metadata/{field}")).and_then(Value::as_object);
    let mut causes = check_labels("metadata.labels", members("labels"));
    causes.extend(check_annotations("metadata.annotations", members("annotations")));
    causes
}

fn check_annotations(field: &str, annotations: Option<&Map<String, Value>>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let mut total_bytes = 0;
    for (key, value) in annotations.into_iter().flatten() {
        // Annotation keys are validated in lower case, because their domain is case-insensitive.
        let hints = label_key_hints(&key.to_lowercase());
        causes.extend(hints.iter().map(|hint| StatusCause::invalid(field, &json!(key), hint)));
        total_bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if total_bytes > TOTAL_ANNOTATION_SIZE_LIMIT {
        let message = format!("Too long: may not be more than {TOTAL_ANNOTATION_SIZE_LIMIT} bytes");
        causes.push(StatusCause::new(field, "FieldValueTooLong", message));
    }
    causes
}

/// Validates labels, or a selector in the form of labels, at the field path `field`.
pub(super) fn check_labels(field: &str, labels: Option<&Map<String, Value>>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let labels = labels.into_iter().flatten();
    for (key, value) in labels {
        causes.extend(label_key_hints(key).iter().map(|hint| StatusCause::invalid(field, &json!(key), hint)));
        let Some(value) = value.as_str() else { continue };
        if value.len() > 63 {
            causes.push(StatusCause::invalid(field, &json!(value), "must be no more than 63 characters"));
        } else if !value.is_empty() && !is_qualified_name_part(value) {
            causes.push(StatusCause::invalid(field, &json!(value), LABEL_VALUE_MESSAGE));
        }
    }
    causes
}

/// Validates finalizers. Finalizers of built-in kinds must be domain-qualified.
fn finalizer_causes(resource: &Resource, object: &Value) -> Vec<StatusCause> {
    const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];
    let has_qualified_name = |name: &str| is_qualified_name_part(name.rsplit_once('/').map_or(name, |(_, part)| part));
    let malformed = object::finalizers(object).into_iter().filter(|name| !has_qualified_name(name));
    let malformed =
        malformed.map(|name| StatusCause::invalid("metadata.finalizers", &json!(name), QUALIFIED_NAME_MESSAGE));
    let finalizers = object::finalizers(object).into_iter().enumerate();
    let allows_unqualified = resource.custom || UNQUALIFIED_FINALIZERS_ALLOWED.contains(&resource.storage.as_str());
    let unqualified = finalizers
        .filter(|(_, name)| !allows_unqualified && !name.contains('/') && !STANDARD_FINALIZERS.contains(name));
    let unqualified = unqualified.map(|(index, name)| {
        let hint = "name is neither a standard finalizer name nor is it fully qualified";
        StatusCause::invalid(format!("metadata.finalizers[{index}]"), &json!(name), hint)
    });
    malformed.chain(unqualified).collect()
}

/// Rejects finalizers that are added to a terminating object.
fn check_new_finalizers(current: &Value, object: &Value) -> Option<StatusCause> {
    if !object::is_deleting(current) {
        return None;
    }
    let current_finalizers = object::finalizers(current);
    let new_finalizers: Vec<&str> =
        object::finalizers(object).into_iter().filter(|name| !current_finalizers.contains(name)).collect();
    (!new_finalizers.is_empty()).then(|| {
        let hint = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            new_finalizers.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
        );
        StatusCause::forbidden("metadata.finalizers", &hint)
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::at_limit(TOTAL_ANNOTATION_SIZE_LIMIT - 2, &[])]
    #[case::above_limit(TOTAL_ANNOTATION_SIZE_LIMIT - 1, &["metadata.annotations: Too long: may not be more than 262144 bytes"])]
    fn limits_total_size_of_annotations(#[case] value: usize, #[case] expected: &[&str]) {
        let object = json!({"metadata": {"annotations": {"ab": "", "cd": "x".repeat(value - 2)}}});
        let causes = label_and_annotation_causes(&object);
        let messages: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(messages, expected);
    }
}

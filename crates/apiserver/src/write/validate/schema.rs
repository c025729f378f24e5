//! Validation of objects against their schema, and of the replica counts of custom resources with a scale subresource.

use apimachinery::{SchemaViolation, StatusCause};
use serde_json::{Value, json};

use crate::resources::Resource;
use crate::write::{Subresource, UndecodableObject, prune};

/// Built-in resources whose required fields only the schema validates.
const REQUIRED_FIELDS_FROM_SCHEMA: [&str; 3] = ["events", "persistentvolumes", "priorityclasses.scheduling.k8s.io"];

/// Returns the causes that the schema finds. `current` is the stored object of an update.
///
/// # Errors
/// If a value in a built-in kind has the wrong type.
pub(super) fn causes(
    resource: &Resource,
    subresource: Subresource,
    current: Option<&Value>,
    object: &Value,
) -> Result<Vec<StatusCause>, UndecodableObject> {
    let Some(schema) = resource.schema() else { return Ok(Vec::new()) };
    if resource.custom {
        let violations = match current {
            Some(current) => schema.validate_update(object, current),
            None => schema.validate(object),
        };
        let mut causes = custom_resource_causes(resource, subresource, &violations);
        causes.extend(replica_count_causes(resource, subresource, object));
        return Ok(causes);
    }
    // In built-in kinds, a null field is equivalent to an absent one. Metadata is validated separately.
    let object = prune::without_nulls(object);
    let mut causes: Vec<StatusCause> = schema.validate(&object).iter().map(SchemaViolation::cause).collect();
    // The status of a built-in kind is not validated, because the built-in controllers omit some required fields.
    // Required fields in specs are validated per kind with the messages of kube-apiserver.
    causes.retain(|cause| !cause.field.starts_with("status") && !cause.field.starts_with("metadata"));
    causes.retain(|cause| {
        cause.reason != "FieldValueRequired" || REQUIRED_FIELDS_FROM_SCHEMA.contains(&resource.storage.as_str())
    });
    if subresource == Subresource::Status {
        return Ok(Vec::new());
    }
    let type_errors: Vec<String> =
        causes.iter().filter(|cause| cause.reason == "FieldValueTypeInvalid").map(StatusCause::to_string).collect();
    if type_errors.is_empty() {
        return Ok(causes);
    }
    Err(UndecodableObject::new(resource, type_errors.join(", ")))
}

/// Returns the causes that are reported for a custom resource. Of those in the metadata, only causes for the name are
/// reported, because a schema can restrict no other metadata field. If an error prevents the evaluation of validation
/// rules, an additional cause reports it. In status updates, paths in messages are relative to `status`.
fn custom_resource_causes(
    resource: &Resource,
    subresource: Subresource,
    violations: &[SchemaViolation],
) -> Vec<StatusCause> {
    let is_reported =
        |violation: &&SchemaViolation| !violation.field.starts_with("metadata.") || violation.field == "metadata.name";
    let cause = |violation: &SchemaViolation| {
        let relative = violation.field.strip_prefix("status.").filter(|_| subresource == Subresource::Status);
        violation.cause_with_path(relative.unwrap_or(&violation.field))
    };
    let mut causes: Vec<StatusCause> = violations.iter().filter(is_reported).map(cause).collect();
    let prevents_rule_evaluation = |cause: &StatusCause| {
        let reasons = ["Required", "TypeInvalid", "NotSupported", "TooLong", "TooMany"];
        reasons.iter().any(|reason| cause.reason == format!("FieldValue{reason}"))
    };
    if causes.iter().any(prevents_rule_evaluation) && resource.has_rules {
        let hint = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        causes.push(StatusCause::invalid("<nil>", &Value::Null, hint));
    }
    causes
}

/// Validates the replica counts of a custom resource with a scale subresource. They must be integers, regardless of the
/// schema. The desired count is not validated in status updates, which do not change it.
fn replica_count_causes(resource: &Resource, subresource: Subresource, object: &Value) -> Vec<StatusCause> {
    let Some(paths) = resource.scale.as_ref().filter(|_| resource.custom) else { return Vec::new() };
    let desired = (subresource == Subresource::Main).then_some(&paths.spec_replicas);
    let mut causes = Vec::new();
    for pointer in desired.into_iter().chain([&paths.status_replicas]) {
        let Some(count) = object.pointer(pointer) else { continue };
        let field = pointer.replace('/', ".");
        match count.as_i64() {
            Some(count) if count < 0 => {
                causes.push(StatusCause::invalid(field, &json!(count), "should be a non-negative integer"));
            }
            Some(count) if count > i64::from(i32::MAX) => {
                let hint = format!("should be less than or equal to {}", i32::MAX);
                causes.push(StatusCause::invalid(field, &json!(count), &hint));
            }
            Some(_) => {}
            None => {
                let (formatted, kind) = (apimachinery::go_format_value(count), apimachinery::go_type_name(count));
                let hint = format!("{field} accessor error: {formatted} is of the type {kind}, expected int64");
                causes.push(StatusCause::invalid(field, &json!(0), &hint));
            }
        }
    }
    causes
}

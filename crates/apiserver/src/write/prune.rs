//! Removes unknown fields and reports them.

use std::borrow::Cow;

use apimachinery::object;
use serde_json::Value;

use super::{FieldValidation, UndecodableObject, WriteOptions, normalize};
use crate::api_types::{self, field_path::FieldPath};
use crate::resources::Resource;

const METADATA: FieldPath<'_> = FieldPath::Member(&FieldPath::Root, "metadata");

/// Removes unknown fields. Returns warnings about unknown and duplicate fields.
///
/// # Errors
/// For unknown or duplicate fields if field validation is strict.
pub(crate) fn prune_unknown_fields(
    resource: &Resource,
    object: &mut Value,
    options: &WriteOptions,
) -> Result<Vec<String>, UndecodableObject> {
    *object = normalize::replace_null_strings(resource, object.take());
    if !resource.custom {
        drop_nulls(object);
    }
    let (unknown, field_warnings) = (remove_unknown(resource, object), &options.field_warnings);
    let error = match options.field_validation {
        FieldValidation::Ignore => return Ok(Vec::new()),
        FieldValidation::Warn => return Ok(field_warnings.warnings(!resource.custom, &unknown)),
        FieldValidation::Strict => field_warnings.error(!resource.custom, &unknown),
    };
    match error {
        Some(error) => Err(UndecodableObject::new(resource, format!("strict decoding error: {error}"))),
        None => Ok(Vec::new()),
    }
}

/// Removes unknown fields and returns their paths.
fn remove_unknown(resource: &Resource, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    // The type of the metadata does not depend on the schema.
    let metadata = object::members(object).remove("metadata").map(|mut metadata| {
        unknown.extend(api_types::remove_unknown_fields("meta.v1.ObjectMeta", &mut metadata, &METADATA));
        metadata
    });
    match resource.schema() {
        Some(schema) => unknown.extend(schema.prune(object)),
        // CustomResourceDefinition has no schema, because its type is recursive.
        None if !resource.custom => {
            let name = api_types::type_name(&resource.api_version(), &resource.kind);
            unknown.extend(api_types::remove_unknown_fields(&name, object, &FieldPath::Root));
        }
        None => {}
    }
    if let Some(metadata) = metadata {
        object::members(object).insert("metadata".to_owned(), metadata);
    }
    unknown
}

/// Removes fields that the schema of a custom resource version does not declare.
pub(crate) fn prune_to_schema(resource: &Resource, object: &mut Value) {
    if let Some(schema) = resource.schema().filter(|_| resource.custom) {
        schema.prune(object);
    }
}

/// Returns a value without nulls. Most objects have none, and large ones are not copied.
pub(super) fn without_nulls(value: &Value) -> Cow<'_, Value> {
    if !contains_null(value) {
        return Cow::Borrowed(value);
    }
    let mut copy = value.clone();
    drop_nulls(&mut copy);
    Cow::Owned(copy)
}

fn contains_null(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.values().any(contains_null),
        Value::Array(items) => items.iter().any(contains_null),
        _ => value.is_null(),
    }
}

/// Removes nulls, which are equivalent to absent fields in built-in kinds. Generated manifests often contain
/// `creationTimestamp: null`.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

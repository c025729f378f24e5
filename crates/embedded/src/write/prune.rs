//! Drops the fields that nobody declared, and says so.

use apimachinery::status::Status;
use serde_json::Value;

use super::{FieldValidation, Options, typed};
use crate::object;
use crate::resources::Resource;
use crate::types::{self, place::Place};

const METADATA: Place<'_> = Place::Member(&Place::Top, "metadata");

/// Returns the warnings to show.
///
/// # Errors
/// 400 when the client asked to be strict.
pub(crate) fn unknown_fields(
    resource: &Resource,
    object: &mut Value,
    options: &Options,
) -> Result<Vec<String>, Status> {
    *object = typed::without_nulls(resource, object.take());
    if !resource.custom {
        drop_nulls(object);
    }
    let (unknown, complaints) = (dropped(resource, object), &options.complaints);
    let refusal = match options.field_validation {
        FieldValidation::Ignore => return Ok(Vec::new()),
        FieldValidation::Warn => return Ok(complaints.warnings(!resource.custom, &unknown)),
        FieldValidation::Strict => complaints.refusal(!resource.custom, &unknown),
    };
    let (kind, version) = (&resource.kind, &resource.version);
    match refusal {
        Some(refusal) => Err(Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: strict decoding error: {refusal}"
        ))),
        None => Ok(Vec::new()),
    }
}

/// Drops what the type does not know and returns the paths.
fn dropped(resource: &Resource, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    // Metadata is the server's own type, whatever a schema says about it.
    let metadata = object::members(object).remove("metadata").map(|mut metadata| {
        unknown.extend(types::retain_known("meta.v1.ObjectMeta", &mut metadata, &METADATA));
        metadata
    });
    match resource.schema() {
        Some(schema) => unknown.extend(schema.prune(object)),
        // The type of definitions refers to itself, which no schema does.
        None if !resource.custom => {
            let name = types::name(&resource.api_version(), &resource.kind);
            unknown.extend(types::retain_known(&name, object, &Place::Top));
        }
        None => {}
    }
    if let Some(metadata) = metadata {
        object::members(object).insert("metadata".to_owned(), metadata);
    }
    unknown
}

/// Drops what the version that is read does not know.
pub(crate) fn to_schema(resource: &Resource, object: &mut Value) {
    if let Some(schema) = resource.schema().filter(|_| resource.custom) {
        schema.prune(object);
    }
}

/// In typed kinds, null and absent are the same (`creationTimestamp: null` is in every generated manifest).
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

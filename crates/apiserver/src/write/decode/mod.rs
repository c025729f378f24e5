//! Decodes request bodies into objects.

mod document_visitor;
mod field_warnings;
mod json_members;
mod yaml_keys;

use apimachinery::Status;
use bytes::Bytes;
use serde_json::Value;

use super::{RequestBody, UndecodableObject, normalize};
use crate::protobuf::{self, DecodeError};
use crate::resources::Resource;
pub(crate) use field_warnings::FieldWarnings;

/// A decoded object and the duplicate fields found in the request body.
#[derive(Debug, Clone)]
pub(crate) struct DecodedObject {
    /// The object.
    pub(crate) object: Value,
    /// Duplicate fields of the body.
    pub(crate) field_warnings: FieldWarnings,
}

/// Decodes the request body of a write to `resource`.
///
/// # Errors
/// The errors of [`decode_body`], [`check_type_meta`] and [`check_field_types`].
pub(crate) fn decode_object(resource: &Resource, content_type: &str, bytes: &Bytes) -> Result<DecodedObject, Status> {
    let object = decode_body(content_type, bytes)?;
    if resource.custom {
        require_type_meta(resource, &object)?;
    }
    let object = check_type_meta(resource, object)?;
    check_field_types(resource, &object).map_err(|error| error.into_status(RequestBody::Object))?;
    let field_warnings = match content_type {
        "" | "application/json" => FieldWarnings::json(bytes),
        "application/yaml" | "application/x-yaml" | "text/yaml" => FieldWarnings::from_yaml(bytes),
        _ => FieldWarnings::default(),
    };
    Ok(DecodedObject { object, field_warnings })
}

/// Decodes a JSON, YAML or protobuf body according to its content type.
///
/// # Errors
/// 415 if the content type is not supported, 400 if the document is invalid.
pub(crate) fn decode_body(content_type: &str, bytes: &[u8]) -> Result<Value, Status> {
    match content_type {
        "" | "application/json" => decode_json(bytes),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "application/apply-patch+yaml" => decode_yaml(bytes),
        protobuf::CONTENT_TYPE => protobuf::decode(bytes).map_err(|error| match error {
            DecodeError::UnsupportedKind { .. } => Status::unsupported_media_type(error.to_string()),
            _ => Status::bad_request(error.to_string()),
        }),
        _ => Err(Status::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Checks that `apiVersion` and `kind`, if set, match the resource.
///
/// # Errors
/// 400 if they do not match.
pub(crate) fn check_type_meta(resource: &Resource, object: Value) -> Result<Value, Status> {
    if !object.is_object() {
        return Err(Status::bad_request("the object provided is not an object"));
    }
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let expected = resource.api_version();
    if !kind.is_empty() && kind != resource.kind || !api_version.is_empty() && api_version != expected {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): the API version in the data ({api_version}, Kind={kind}) does not match the expected API version ({expected}, Kind={})",
            resource.kind, resource.kind
        )));
    }
    Ok(object)
}

/// Checks the field types of an object.
///
/// # Errors
/// The first type mismatch.
pub(super) fn check_field_types(resource: &Resource, object: &Value) -> Result<(), UndecodableObject> {
    match normalize::type_mismatches(resource, object).first() {
        Some(mismatch) => Err(UndecodableObject::new(resource, mismatch)),
        None => Ok(()),
    }
}

/// Checks that a custom resource contains `apiVersion` and `kind`.
fn require_type_meta(resource: &Resource, object: &Value) -> Result<(), Status> {
    for (field, field_name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if object.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
            let text = object.to_string();
            let prefix: String = text.chars().take(30).collect();
            return Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object '{field_name}' is missing in '{text}' ({prefix} ...)",
                resource.kind
            )));
        }
    }
    Ok(())
}

fn decode_json(bytes: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(bytes).map_err(|error| Status::bad_request(format!("error decoding JSON: {error}")))
}

fn decode_yaml(bytes: &[u8]) -> Result<Value, Status> {
    // Kubernetes clients often send JSON with a YAML content type. Parsing it as JSON is much faster.
    if bytes.trim_ascii_start().starts_with(b"{")
        && let Ok(value) = serde_json::from_slice(bytes)
    {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| Status::bad_request(error.to_string()))?;
    // The last of several duplicate keys wins; `FieldWarnings` reports duplicates.
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))
}

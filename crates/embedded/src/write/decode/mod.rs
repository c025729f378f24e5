//! From the body of a request to an object.

mod complaints;
mod json_members;
mod walk;
mod yaml_keys;

use apimachinery::status::Status;
use bytes::Bytes;
use serde_json::Value;

use super::typed as form;
use crate::protobuf::{self, ProtobufError};
use crate::resources::Resource;
pub use complaints::Complaints;

/// What a client sent for an object, and what it should not have sent.
#[derive(Debug, Clone)]
pub struct Written {
    pub object: Value,
    pub complaints: Complaints,
}

/// Reads the object of a write to `resource`.
///
/// # Errors
/// As [`body`] and [`typed`].
pub fn written(resource: &Resource, content_type: &str, bytes: &Bytes) -> Result<Written, Status> {
    let object = body(content_type, bytes)?;
    if resource.custom {
        says_what_it_is(resource, &object)?;
    }
    let object = typed(resource, object)?;
    fits(resource, &object)?;
    let complaints = match content_type {
        "" | "application/json" => Complaints::json(bytes),
        "application/yaml" | "application/x-yaml" | "text/yaml" => Complaints::yaml(bytes),
        _ => Complaints::default(),
    };
    Ok(Written { object, complaints })
}

/// Reads JSON, YAML or protobuf by its content type.
///
/// # Errors
/// 415 for other types, 400 for what does not parse.
pub fn body(content_type: &str, bytes: &[u8]) -> Result<Value, Status> {
    match content_type {
        "" | "application/json" => json(bytes),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "application/apply-patch+yaml" => yaml(bytes),
        protobuf::CONTENT_TYPE => protobuf::read(bytes).map_err(|error| match error {
            ProtobufError::Unknown { .. } => Status::unsupported_media_type(error.to_string()),
            _ => Status::bad_request(error.to_string()),
        }),
        _ => Err(Status::unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

/// Checks that the object is of the kind that the request went to, and fills in what it does not say.
///
/// # Errors
/// 400 when it says something else.
pub fn typed(resource: &Resource, object: Value) -> Result<Value, Status> {
    if !object.is_object() {
        return Err(Status::bad_request("the object provided is not an object"));
    }
    let said = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (said("apiVersion"), said("kind"));
    let expected = resource.api_version();
    if !kind.is_empty() && kind != resource.kind || !api_version.is_empty() && api_version != expected {
        return Err(Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): the API version in the data ({api_version}, Kind={kind}) does not match the expected API version ({expected}, Kind={})",
            resource.kind, resource.kind
        )));
    }
    Ok(object)
}

/// Refuses an object whose values do not fit its type.
///
/// # Errors
/// 400 with the first of them.
pub fn fits(resource: &Resource, object: &Value) -> Result<(), Status> {
    let (kind, version) = (&resource.kind, &resource.version);
    match form::misfits(resource, object).first() {
        Some(misfit) => {
            Err(Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {misfit}")))
        }
        None => Ok(()),
    }
}

/// A custom resource has to name its type: there is none to assume.
fn says_what_it_is(resource: &Resource, object: &Value) -> Result<(), Status> {
    for (field, shown) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
        if object.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
            let text = object.to_string();
            let start: String = text.chars().take(30).collect();
            return Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object '{shown}' is missing in '{text}' ({start} ...)",
                resource.kind
            )));
        }
    }
    Ok(())
}

fn json(bytes: &[u8]) -> Result<Value, Status> {
    serde_json::from_slice(bytes).map_err(|error| Status::bad_request(format!("error decoding JSON: {error}")))
}

fn yaml(bytes: &[u8]) -> Result<Value, Status> {
    // kube clients send JSON under the YAML types; it is far quicker to read as such.
    if bytes.trim_ascii_start().starts_with(b"{")
        && let Ok(value) = serde_json::from_slice(bytes)
    {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|error| Status::bad_request(error.to_string()))?;
    // The last of doubled keys counts; that they are doubled is said elsewhere.
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))
}

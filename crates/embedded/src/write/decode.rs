//! From the body of a request to an object.

use apimachinery::status::Status;
use serde_json::Value;

use crate::resources::Resource;

/// Reads JSON or YAML by its content type.
///
/// # Errors
/// 415 for other types, 400 for what does not parse.
pub fn body(content_type: &str, bytes: &[u8]) -> Result<Value, Status> {
    match content_type {
        "" | "application/json" => json(bytes),
        "application/yaml" | "application/x-yaml" | "text/yaml" | "application/apply-patch+yaml" => yaml(bytes),
        other => Err(Status::unsupported_media_type(format!(
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml; got {other}"
        ))),
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
    serde_saphyr::from_str(text).map_err(|error| Status::bad_request(format!("error decoding YAML: {error}")))
}

//! ConfigMaps and Secrets: their keys, what the type of a Secret asks for, and that they may be immutable.

use apimachinery::status::{Cause, Status};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::names::config_key_hints;
use super::field::Field;
use crate::resources::Resource;

pub(super) fn map(object: &Value) -> Vec<Cause> {
    let binary = object.get("binaryData").and_then(Value::as_object);
    let data = object.get("data").and_then(Value::as_object).into_iter().flatten();
    let twice = data
        .filter(|(key, _)| binary.is_some_and(|binary| binary.contains_key(*key)))
        .map(|(key, _)| Cause::invalid(format!("data[{key}]"), &json!(key), "duplicate of key present in binaryData"));
    let mut causes = keys(object, "data");
    causes.extend(twice);
    // Key by key, as they are looked at.
    causes.sort_by(|a, b| a.field.cmp(&b.field));
    causes.extend(keys(object, "binaryData"));
    causes
}

pub(super) fn secret(object: &Value) -> Vec<Cause> {
    let data = Field::of(object).get("data");
    let missing = |wanted: &[&str]| -> Vec<Cause> {
        let has = |key: &str| data.value.get(key).is_some();
        let missing = wanted.iter().filter(|key| !has(key));
        missing.map(|key| Cause::required(format!("data[{key}]"), "")).collect()
    };
    let mut causes = keys(object, "data");
    causes.extend(match Field::of(object).get("type").text() {
        "kubernetes.io/tls" => missing(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => missing(&["ssh-privatekey"]),
        // One of the two will do.
        "kubernetes.io/basic-auth" if missing(&["username", "password"]).len() == 2 => {
            missing(&["username", "password"])
        }
        "kubernetes.io/dockerconfigjson" => credentials(&data, ".dockerconfigjson"),
        "kubernetes.io/dockercfg" => credentials(&data, ".dockercfg"),
        "kubernetes.io/service-account-token" => {
            const OWNER: &str = "kubernetes.io/service-account.name";
            let annotations = Field::of(object).get("metadata.annotations");
            let owner = annotations.value.get(OWNER).and_then(Value::as_str).unwrap_or_default();
            owner
                .is_empty()
                .then(|| Cause::required(format!("metadata.annotations[{OWNER}]"), ""))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    });
    causes
}

/// What is kept for registries is JSON.
fn credentials(data: &Field<'_>, key: &str) -> Vec<Cause> {
    let path = format!("data[{key}]");
    let Some(text) = data.value.get(key).and_then(Value::as_str) else { return vec![Cause::required(path, "")] };
    let bytes = STANDARD.decode(text).unwrap_or_default();
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(_) => Vec::new(),
        Err(error) => vec![Cause::invalid(path, &json!("<secret contents redacted>"), &error.to_string())],
    }
}

/// # Errors
/// 400 for data that is no base64: it does not even decode.
pub(in crate::write::validate) fn decodes(resource: &Resource, object: &Value) -> Result<(), Status> {
    let field = match resource.storage.as_str() {
        "secrets" => "data",
        "configmaps" => "binaryData",
        _ => return Ok(()),
    };
    let texts =
        object.get(field).and_then(Value::as_object).into_iter().flatten().filter_map(|(_, value)| value.as_str());
    for text in texts {
        let Err(error) = STANDARD.decode(text) else { continue };
        let byte = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            _ => text.len(),
        };
        let (kind, version) = (&resource.kind, &resource.version);
        return Err(Status::bad_request(format!(
            "{kind} in version \"{version}\" cannot be handled as a {kind}: illegal base64 data at input byte {byte}"
        )));
    }
    Ok(())
}

/// What may not change: the type of a Secret, and all once it is said that nothing may.
pub(super) fn frozen(resource: &Resource, current: &Value, object: &Value) -> Vec<Cause> {
    let changed = |field: &str| current.get(field) != object.get(field);
    let mut causes = Vec::new();
    if resource.storage == "secrets" && changed("type") {
        causes.push(Cause::invalid("type", &object["type"], "field is immutable"));
    }
    if current["immutable"] != true {
        return causes;
    }
    if object["immutable"] != true {
        causes.push(Cause::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in ["data", "binaryData"].into_iter().filter(|field| changed(field)) {
        causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
    }
    causes
}

/// The keys of a map that are no file names.
fn keys(object: &Value, field: &str) -> Vec<Cause> {
    let data = object.get(field).and_then(Value::as_object).into_iter().flatten();
    let hints = data.flat_map(|(key, _)| config_key_hints(key).into_iter().map(move |hint| (key, hint)));
    hints.map(|(key, hint)| Cause::invalid(format!("{field}[{key}]"), &json!(key), &hint)).collect()
}

//! Validation of ConfigMaps and Secrets: keys, keys that a Secret type requires, and immutability.

use apimachinery::StatusCause;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::super::names::config_key_hints;
use super::field::Field;
use crate::resources::Resource;
use crate::write::UndecodableObject;

pub(super) fn config_map_causes(object: &Value) -> Vec<StatusCause> {
    let binary = object.get("binaryData").and_then(Value::as_object);
    let data = object.get("data").and_then(Value::as_object).into_iter().flatten();
    let duplicates = data.filter(|(key, _)| binary.is_some_and(|binary| binary.contains_key(*key))).map(|(key, _)| {
        StatusCause::invalid(format!("data[{key}]"), &json!(key), "duplicate of key present in binaryData")
    });
    let mut causes = key_causes(object, "data");
    causes.extend(duplicates);
    // kube-apiserver validates key by key.
    causes.sort_by(|a, b| a.field.cmp(&b.field));
    causes.extend(key_causes(object, "binaryData"));
    causes
}

pub(super) fn secret_causes(object: &Value) -> Vec<StatusCause> {
    let data = Field::root(object).get("data");
    let missing = |required: &[&str]| -> Vec<StatusCause> {
        let has = |key: &str| data.value.get(key).is_some();
        let missing = required.iter().filter(|key| !has(key));
        missing.map(|key| StatusCause::required(format!("data[{key}]"), "")).collect()
    };
    let mut causes = key_causes(object, "data");
    causes.extend(match Field::root(object).get("type").text() {
        "kubernetes.io/tls" => missing(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => missing(&["ssh-privatekey"]),
        // Either of the two keys is sufficient.
        "kubernetes.io/basic-auth" if missing(&["username", "password"]).len() == 2 => {
            missing(&["username", "password"])
        }
        "kubernetes.io/dockerconfigjson" => docker_config_causes(&data, ".dockerconfigjson"),
        "kubernetes.io/dockercfg" => docker_config_causes(&data, ".dockercfg"),
        "kubernetes.io/service-account-token" => {
            const SERVICE_ACCOUNT_ANNOTATION: &str = "kubernetes.io/service-account.name";
            let annotations = Field::root(object).get("metadata.annotations");
            let service_account =
                annotations.value.get(SERVICE_ACCOUNT_ANNOTATION).and_then(Value::as_str).unwrap_or_default();
            service_account
                .is_empty()
                .then(|| StatusCause::required(format!("metadata.annotations[{SERVICE_ACCOUNT_ANNOTATION}]"), ""))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    });
    causes
}

/// Validates registry credentials, which must be JSON.
fn docker_config_causes(data: &Field<'_>, key: &str) -> Vec<StatusCause> {
    let path = format!("data[{key}]");
    let Some(text) = data.value.get(key).and_then(Value::as_str) else { return vec![StatusCause::required(path, "")] };
    let bytes = STANDARD.decode(text).unwrap_or_default();
    match serde_json::from_slice::<Value>(&bytes) {
        Ok(_) => Vec::new(),
        Err(error) => vec![StatusCause::invalid(path, &json!("<secret contents redacted>"), &error.to_string())],
    }
}

/// Checks that binary data is valid base64.
///
/// # Errors
/// If it is not.
pub(in crate::write::validate) fn check_base64(resource: &Resource, object: &Value) -> Result<(), UndecodableObject> {
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
            base64::DecodeError::InvalidByte(position, _) | base64::DecodeError::InvalidLastSymbol(position, _) => {
                position
            }
            _ => text.len(),
        };
        return Err(UndecodableObject::new(resource, format!("illegal base64 data at input byte {byte}")));
    }
    Ok(())
}

/// Validates that immutable fields are unchanged: the type of a Secret, and the data if `immutable` is set.
pub(super) fn immutable_causes(resource: &Resource, current: &Value, object: &Value) -> Vec<StatusCause> {
    let changed = |field: &str| current.get(field) != object.get(field);
    let mut causes = Vec::new();
    if resource.storage == "secrets" && changed("type") {
        causes.push(StatusCause::invalid("type", &object["type"], "field is immutable"));
    }
    if current["immutable"] != true {
        return causes;
    }
    if object["immutable"] != true {
        causes.push(StatusCause::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in ["data", "binaryData"].into_iter().filter(|field| changed(field)) {
        causes.push(StatusCause::forbidden(field, "field is immutable when `immutable` is set"));
    }
    causes
}

/// Validates the keys of a map, which become file names in volumes.
fn key_causes(object: &Value, field: &str) -> Vec<StatusCause> {
    let data = object.get(field).and_then(Value::as_object).into_iter().flatten();
    let hints = data.flat_map(|(key, _)| config_key_hints(key).into_iter().map(move |hint| (key, hint)));
    hints.map(|(key, hint)| StatusCause::invalid(format!("{field}[{key}]"), &json!(key), &hint)).collect()
}

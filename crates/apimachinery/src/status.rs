//! The Kubernetes `Status` error: codes, reasons and messages that kubectl and client libraries depend on.

use serde_json::{Map, Value, json};

/// Error returned by a failed API request.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason that clients branch on, e.g. `NotFound`; empty if the server gives none.
    pub reason: &'static str,
    /// Human-readable message.
    pub message: String,
    /// `details` of the Status object (`name`, `group`, `kind`, `uid`, `causes`).
    pub details: Option<Value>,
    /// `metadata.continue`: token to resume an expired list with.
    pub continue_token: Option<String>,
}

/// One invalid field, in `details.causes` of a [`Status`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusCause {
    /// Field path, e.g. `spec.containers[0].image`.
    pub field: String,
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// Description without the field path, e.g. `Required value`.
    pub message: String,
}

// === impl StatusCause ===

impl StatusCause {
    /// Creates `Required value: <hint>`.
    pub fn required(field: impl Into<String>, hint: &str) -> Self {
        Self::new(field, "FieldValueRequired", with_hint("Required value", hint))
    }

    /// Creates `Invalid value: <value>: <hint>`.
    pub fn invalid(field: impl Into<String>, value: &Value, hint: &str) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {}: {hint}", format_value(value)))
    }

    /// Creates `Invalid value: <value>: <hint>` for a value that is already JSON text.
    pub fn invalid_json(field: impl Into<String>, value: &str, hint: &str) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {value}: {hint}"))
    }

    /// Creates `Forbidden: <hint>`.
    pub fn forbidden(field: impl Into<String>, hint: &str) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {hint}"))
    }

    /// Creates `Duplicate value: <value>`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, "FieldValueDuplicate", format!("Duplicate value: {}", format_value(value)))
    }

    /// Creates `Unsupported value: <value>: supported values: …`.
    pub fn not_supported(field: impl Into<String>, value: &Value, allowed: &[Value]) -> Self {
        let allowed = allowed.iter().map(format_value).collect::<Vec<_>>().join(", ");
        let message = format!("Unsupported value: {}: supported values: {allowed}", format_value(value));
        Self::new(field, "FieldValueNotSupported", message)
    }

    /// Creates a cause from its parts.
    pub fn new(field: impl Into<String>, reason: &'static str, message: impl Into<String>) -> Self {
        Self { field: field.into(), reason, message: message.into() }
    }

    fn to_json(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

impl std::fmt::Display for StatusCause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.field.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.field, self.message) }
    }
}

// === impl Status ===

impl Status {
    /// Creates a 404 `NotFound`. `resource` is plural with its group: `deployments.apps`, `pods`.
    pub fn not_found(resource: &str, name: &str) -> Self {
        Self::with_details(404, "NotFound", format!("{resource} \"{name}\" not found"), resource, name)
    }

    /// Creates a 404 for a path under which no resource is served.
    pub fn path_not_found() -> Self {
        let mut status = Self::without_details(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(json!({}));
        status
    }

    /// Creates a 409 `AlreadyExists` for a create with a name in use.
    pub fn already_exists(resource: &str, name: &str) -> Self {
        Self::with_details(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"), resource, name)
    }

    /// Creates a 409 `Conflict` with a specific message, e.g. for a failed UID precondition.
    pub fn conflict(resource: &str, name: &str, error: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {error}");
        Self::with_details(409, "Conflict", message, resource, name)
    }

    /// Creates a 409 `Conflict` for a write with an outdated resourceVersion.
    pub fn object_modified(resource: &str, name: &str) -> Self {
        let error = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, error)
    }

    /// Creates a 422 `Invalid`. `kind` includes its group: `Deployment.apps`, `Pod`.
    pub fn invalid(kind: &str, name: &str, causes: Vec<StatusCause>) -> Self {
        let list = match causes.as_slice() {
            [cause] => cause.to_string(),
            causes => format!("[{}]", causes.iter().map(StatusCause::to_string).collect::<Vec<_>>().join(", ")),
        };
        let mut status =
            Self::with_details(422, "Invalid", format!("{kind} \"{name}\" is invalid: {list}"), kind, name);
        status.set_causes(causes.iter().map(StatusCause::to_json).collect());
        status
    }

    /// Creates a 400 `BadRequest`.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::without_details(400, "BadRequest", message)
    }

    /// Creates a 403 `Forbidden`.
    pub fn forbidden(resource: &str, name: &str, error: &str) -> Self {
        let message = format!("{resource} \"{name}\" is forbidden: {error}");
        Self::with_details(403, "Forbidden", message, resource, name)
    }

    /// Creates a 405 `MethodNotAllowed`.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::without_details(405, "MethodNotAllowed", message);
        status.details = Some(json!({}));
        status
    }

    /// Creates a 501 `NotImplemented`; the message names an alternative.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::without_details(501, "NotImplemented", message)
    }

    /// Creates a 406 `NotAcceptable`.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::without_details(406, "NotAcceptable", message)
    }

    /// Creates a 415 `UnsupportedMediaType`.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::without_details(415, "UnsupportedMediaType", message)
    }

    /// Creates a 413 `RequestEntityTooLarge`.
    pub fn request_entity_too_large(message: impl Into<String>) -> Self {
        Self::without_details(413, "RequestEntityTooLarge", message)
    }

    /// Creates a 408 `Timeout`: the client took too long to send its request.
    pub fn request_timeout(message: impl Into<String>) -> Self {
        Self::without_details(408, "Timeout", message)
    }

    /// Creates a 429 `TooManyRequests`: the server is busy.
    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::without_details(429, "TooManyRequests", message)
    }

    /// Creates a 410 `Expired`: a watch or continue token refers to a compacted revision.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::without_details(410, "Expired", message)
    }

    /// Creates a 401 `Unauthorized`.
    pub fn unauthorized() -> Self {
        Self::without_details(401, "Unauthorized", "Unauthorized")
    }

    /// Creates a 500 `InternalError`.
    pub fn internal_error(message: impl std::fmt::Display) -> Self {
        Self::without_details(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// Creates a 507 `InsufficientStorage`: the store has no space for the object.
    pub fn insufficient_storage(message: impl Into<String>) -> Self {
        Self::without_details(507, "InsufficientStorage", message)
    }

    /// Creates a 500 with `message` alone and no reason, as the API server does for errors it returns unwrapped.
    pub fn internal_error_verbatim(message: impl Into<String>) -> Self {
        Self::without_details(500, "", message)
    }

    /// Creates a 504 `Timeout` for a resourceVersion newer than the store's; clients then list again without a
    /// resourceVersion.
    pub fn resource_version_too_large(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut status = Self::without_details(504, "Timeout", message);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        status.details = Some(json!({"causes": [cause], "retryAfterSeconds": 1}));
        status
    }

    /// Creates the 409 `Conflict` of server-side apply; `causes` name managers and fields.
    pub(crate) fn apply_conflict(message: String, causes: &[StatusCause]) -> Self {
        let mut status = Self::without_details(409, "Conflict", message);
        status.set_causes(causes.iter().map(StatusCause::to_json).collect());
        status
    }

    /// Creates a 422 for a patch that cannot be applied to the object, with the API server's generic message.
    pub(crate) fn unprocessable() -> Self {
        let mut status =
            Self::without_details(422, "Invalid", "the server rejected our request due to an error in our request");
        status.details = Some(json!({}));
        status
    }

    /// Returns the `Status` object of the API.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            object["reason"] = json!(self.reason);
        }
        if let Some(token) = &self.continue_token {
            object["metadata"]["continue"] = json!(token);
        }
        if let (Some(details), Some(map)) = (&self.details, object.as_object_mut()) {
            map.insert("details".into(), details.clone());
        }
        object
    }

    fn without_details(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, continue_token: None }
    }

    fn with_details(code: u16, reason: &'static str, message: String, resource: &str, name: &str) -> Self {
        let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        Self { code, reason, message, details: Some(Value::Object(details)), continue_token: None }
    }

    fn set_causes(&mut self, causes: Vec<Value>) {
        let details = self.details.get_or_insert_with(|| json!({}));
        if let Some(details) = details.as_object_mut() {
            details.insert("causes".into(), Value::Array(causes));
        }
    }
}

/// Formats a value for a message: strings quoted, objects and lists as compact JSON.
pub(crate) fn format_value(value: &Value) -> String {
    if value.is_f64() { crate::go::go_format_value(value) } else { value.to_string() }
}

/// Returns the OpenAPI name of the JSON type of `value`.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn with_hint(message: &str, hint: &str) -> String {
    if hint.is_empty() { message.to_owned() } else { format!("{message}: {hint}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_found_has_group_and_kind_in_details() {
        let status = Status::not_found("deployments.apps", "web");
        assert_eq!(status.message, "deployments.apps \"web\" not found");
        assert_eq!(status.to_json()["details"], json!({"name": "web", "group": "apps", "kind": "deployments"}));
    }

    #[test]
    fn message_lists_multiple_causes_in_brackets() {
        let single = Status::invalid("Pod", "p", vec![StatusCause::required("spec.containers", "")]);
        assert_eq!(single.message, "Pod \"p\" is invalid: spec.containers: Required value");
        let multiple =
            Status::invalid("Pod", "p", vec![StatusCause::required("a", ""), StatusCause::forbidden("b", "no")]);
        assert_eq!(multiple.message, "Pod \"p\" is invalid: [a: Required value, b: Forbidden: no]");
        assert_eq!(multiple.to_json()["details"]["causes"][1]["field"], "b");
    }
}

//! The Kubernetes `Status` error: codes, reasons and messages that kubectl and client libraries match on.

use serde_json::{Map, Value, json};

/// A failed request, as the API server reports it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, e.g. `NotFound`; clients branch on it.
    pub reason: &'static str,
    /// The sentence a user reads.
    pub message: String,
    /// `details` of the Status object (`name`, `group`, `kind`, `uid`, `causes`).
    pub details: Option<Value>,
    /// `metadata.continue`: where a list that expired may go on.
    pub next: Option<String>,
}

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Path as Kubernetes writes it, e.g. `spec.containers[0].image`.
    pub field: String,
    /// `FieldValueInvalid`, `FieldValueRequired`, …
    pub reason: &'static str,
    /// What is wrong, without the field, e.g. `Required value`.
    pub message: String,
}

impl Cause {
    /// `Required value: hint`.
    pub fn required(field: impl Into<String>, hint: &str) -> Self {
        Self::new(field, "FieldValueRequired", with_hint("Required value", hint))
    }

    /// `Invalid value: <value>: hint`.
    pub fn invalid(field: impl Into<String>, value: &Value, hint: &str) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {}: {hint}", shown(value)))
    }

    /// The same of a value that is JSON already.
    pub fn invalid_text(field: impl Into<String>, value: &str, hint: &str) -> Self {
        Self::new(field, "FieldValueInvalid", format!("Invalid value: {value}: {hint}"))
    }

    /// `Forbidden: hint`.
    pub fn forbidden(field: impl Into<String>, hint: &str) -> Self {
        Self::new(field, "FieldValueForbidden", format!("Forbidden: {hint}"))
    }

    /// `Duplicate value: <value>`.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, "FieldValueDuplicate", format!("Duplicate value: {}", shown(value)))
    }

    /// `Unsupported value: <value>: supported values: …`.
    pub fn not_supported(field: impl Into<String>, value: &Value, allowed: &[Value]) -> Self {
        let allowed = allowed.iter().map(shown).collect::<Vec<_>>().join(", ");
        let message = format!("Unsupported value: {}: supported values: {allowed}", shown(value));
        Self::new(field, "FieldValueNotSupported", message)
    }

    /// `Invalid value: "<actual type>": … must be of type <expected>`.
    pub fn wrong_type(field: impl Into<String>, expected: &str, value: &Value) -> Self {
        let field = field.into();
        let actual = type_name(value);
        let message = format!("Invalid value: \"{actual}\": {field} in body must be of type {expected}: \"{actual}\"");
        Self::new(field, "FieldValueTypeInvalid", message)
    }

    /// A cause with its parts given.
    pub fn new(field: impl Into<String>, reason: &'static str, message: impl Into<String>) -> Self {
        Self { field: field.into(), reason, message: message.into() }
    }

    fn to_json(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.field.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.field, self.message) }
    }
}

impl Status {
    /// 404. `resource` is plural with its group: `deployments.apps`, `pods`.
    pub fn not_found(resource: &str, name: &str) -> Self {
        Self::about(404, "NotFound", format!("{resource} \"{name}\" not found"), resource, name)
    }

    /// 404 for a path that no resource is served under.
    pub fn no_such_path() -> Self {
        let mut status = Self::plain(404, "NotFound", "the server could not find the requested resource");
        status.details = Some(json!({}));
        status
    }

    /// 409 for a create of a name that is taken.
    pub fn already_exists(resource: &str, name: &str) -> Self {
        Self::about(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"), resource, name)
    }

    /// 409 with its own sentence, e.g. a failed uid precondition.
    pub fn conflict(resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::about(409, "Conflict", message, resource, name)
    }

    /// 409 for a write against an old resourceVersion.
    pub fn modified(resource: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 422. `kind` carries its group: `Deployment.apps`, `Pod`.
    pub fn invalid(kind: &str, name: &str, causes: Vec<Cause>) -> Self {
        let list = match causes.as_slice() {
            [one] => one.to_string(),
            many => format!("[{}]", many.iter().map(Cause::to_string).collect::<Vec<_>>().join(", ")),
        };
        let mut status = Self::about(422, "Invalid", format!("{kind} \"{name}\" is invalid: {list}"), kind, name);
        status.set_causes(causes.iter().map(Cause::to_json).collect());
        status
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::plain(400, "BadRequest", message)
    }

    /// 403.
    pub fn forbidden(resource: &str, name: &str, why: &str) -> Self {
        let message = format!("{resource} \"{name}\" is forbidden: {why}");
        Self::about(403, "Forbidden", message, resource, name)
    }

    /// 405.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        let mut status = Self::plain(405, "MethodNotAllowed", message);
        status.details = Some(json!({}));
        status
    }

    /// 501, with what to do instead.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Self::plain(501, "NotImplemented", message)
    }

    /// 406.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::plain(406, "NotAcceptable", message)
    }

    /// 415.
    pub fn unsupported_media_type(message: impl Into<String>) -> Self {
        Self::plain(415, "UnsupportedMediaType", message)
    }

    /// 413.
    pub fn too_large(message: impl Into<String>) -> Self {
        Self::plain(413, "RequestEntityTooLarge", message)
    }

    /// 408: the client takes too long to say what it wants.
    pub fn too_slow(message: impl Into<String>) -> Self {
        Self::plain(408, "Timeout", message)
    }

    /// 410: a watch or a continue token from a revision that is no longer kept.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::plain(410, "Expired", message)
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::plain(401, "Unauthorized", "Unauthorized")
    }

    /// 500.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Self::plain(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// 507: there is no room to store what was sent.
    pub fn insufficient_storage(message: impl Into<String>) -> Self {
        Self::plain(507, "InsufficientStorage", message)
    }

    /// 500 with the cause alone: an error that the API server passes on as it is.
    pub fn unexplained(message: impl Into<String>) -> Self {
        Self::plain(500, "", message)
    }

    /// 504 for a version that nothing has yet; clients list again without one.
    pub fn too_new(wanted: u64, newest: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {newest}");
        let mut status = Self::plain(504, "Timeout", message);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        status.details = Some(json!({"causes": [cause], "retryAfterSeconds": 1}));
        status
    }

    /// 409 of server-side apply; the causes name managers and fields.
    pub fn apply_conflict(message: String, causes: &[Cause]) -> Self {
        let mut status = Self::plain(409, "Conflict", message);
        status.set_causes(causes.iter().map(Cause::to_json).collect());
        status
    }

    /// 422 for a patch that does not fit the object, in the API server's own words: it does not say which operation.
    pub fn unprocessable() -> Self {
        let mut status = Self::plain(422, "Invalid", "the server rejected our request due to an error in our request");
        status.details = Some(json!({}));
        status
    }

    /// The Status object that goes over the wire.
    pub fn to_json(&self) -> Value {
        let mut object = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            object["reason"] = json!(self.reason);
        }
        if let Some(next) = &self.next {
            object["metadata"]["continue"] = json!(next);
        }
        if let (Some(details), Some(map)) = (&self.details, object.as_object_mut()) {
            map.insert("details".into(), details.clone());
        }
        object
    }

    fn plain(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, next: None }
    }

    fn about(code: u16, reason: &'static str, message: String, resource: &str, name: &str) -> Self {
        let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
        let mut details = Map::new();
        for (key, value) in [("name", name), ("group", group), ("kind", kind)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        Self { code, reason, message, details: Some(Value::Object(details)), next: None }
    }

    fn set_causes(&mut self, causes: Vec<Value>) {
        let details = self.details.get_or_insert_with(|| json!({}));
        if let Some(details) = details.as_object_mut() {
            details.insert("causes".into(), Value::Array(causes));
        }
    }
}

/// A value inside a message: strings quoted, objects and lists as compact JSON.
fn shown(value: &Value) -> String {
    if value.is_f64() { crate::go::plain(value) } else { value.to_string() }
}

/// The JSON type of `value` in the words of OpenAPI.
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

fn with_hint(what: &str, hint: &str) -> String {
    if hint.is_empty() { what.to_owned() } else { format!("{what}: {hint}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_found_names_group_and_kind() {
        let status = Status::not_found("deployments.apps", "web");
        assert_eq!(status.message, "deployments.apps \"web\" not found");
        assert_eq!(status.to_json()["details"], json!({"name": "web", "group": "apps", "kind": "deployments"}));
    }

    #[test]
    fn one_cause_stands_alone_and_several_are_a_list() {
        let one = Status::invalid("Pod", "p", vec![Cause::required("spec.containers", "")]);
        assert_eq!(one.message, "Pod \"p\" is invalid: spec.containers: Required value");
        let two = Status::invalid("Pod", "p", vec![Cause::required("a", ""), Cause::forbidden("b", "no")]);
        assert_eq!(two.message, "Pod \"p\" is invalid: [a: Required value, b: Forbidden: no]");
        assert_eq!(two.to_json()["details"]["causes"][1]["field"], "b");
    }
}

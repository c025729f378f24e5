//! Validation of the schema of a CustomResourceDefinition.

use serde_json::Value;

use super::compiled::Schema;
use super::openapi::{OBJECT_FIELDS, fields, flag};
use super::paths::{self, join};
use super::rules::Rules;
use super::violation::SchemaViolation;
use super::{keywords, parse, prune, structural, validate};
use crate::status::StatusCause;

/// Returns the errors of the `openAPIV3Schema` at `path`, with the messages and in the order of kube-apiserver; empty if
/// [`Schema::from_json`] and kube-apiserver accept it.
#[must_use]
pub fn validate_openapi_schema(schema: &Value, path: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        causes.push(StatusCause::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let is_supported = structural::is_supported(schema);
    let mut structural = if is_supported { structural::check(schema, path) } else { Vec::new() };
    if is_supported && structural.is_empty() {
        validate_defaults(schema, path, &mut structural);
    }
    let is_structural = is_supported && structural.is_empty();
    causes.append(&mut structural);
    causes.extend(keywords::check(schema, path, is_structural));
    if causes.is_empty()
        && let Err(error) = Schema::from_json(schema)
    {
        causes.push(StatusCause::invalid(path, &Value::from(""), &error));
    }
    causes
}

/// Returns the `type` of the field at a path such as `.spec.color` in an `openAPIV3Schema`.
///
/// # Errors
/// Fails if `path` does not refer to a field of `schema`.
pub fn field_type_at<'s>(schema: &'s Value, path: &str) -> Result<&'s str, &'static str> {
    if path.contains('[') {
        return Err("array notation is not allowed");
    }
    const NOT_FOUND: &str = "does not refer to a valid field";
    let field = paths::schema_at(schema.as_object().ok_or(NOT_FOUND)?, path).map_err(|_| NOT_FOUND)?;
    Ok(field.get("type").and_then(Value::as_str).unwrap_or_default())
}

/// Validates that each default is accepted by its own schema.
fn validate_defaults(schema: &Value, path: &str, causes: &mut Vec<StatusCause>) {
    let Some(keywords) = schema.as_object() else { return };
    if let Some(default) = keywords.get("default").filter(|default| !default.is_null()) {
        causes.extend(
            validate_default(schema, default).into_iter().map(|cause| prefix(cause, &format!("{path}.default"))),
        );
    }
    let is_resource = path.ends_with("openAPIV3Schema") || flag(keywords, "x-kubernetes-embedded-resource");
    for (name, _) in fields(keywords) {
        // `metadata` has its own type, ObjectMeta.
        if !(is_resource && OBJECT_FIELDS.contains(&name.as_str())) {
            validate_defaults(&keywords["properties"][name], &format!("{path}.properties[{name}]"), causes);
        }
    }
    for step in ["items", "additionalProperties"] {
        if let Some(nested) = keywords.get(step) {
            validate_defaults(nested, &format!("{path}.{step}"), causes);
        }
    }
}

fn validate_default(schema: &Value, default: &Value) -> Vec<StatusCause> {
    let Ok(node) = parse::nested(schema) else { return Vec::new() };
    let mut causes = Vec::new();
    let mut pruned = default.clone();
    prune::apply(&node, &mut pruned);
    if pruned != *default {
        causes.push(StatusCause::invalid("", default, "must not have unknown fields"));
    }
    let mut violations = validate::validate(&node, default, None);
    if violations.is_empty()
        && let Ok(rules) = Rules::compile(schema)
    {
        violations = rules.check(default, Some(default));
    }
    causes.extend(violations.iter().map(SchemaViolation::cause));
    causes
}

/// Prefixes the field of `cause` with `path`.
fn prefix(cause: StatusCause, path: &str) -> StatusCause {
    let field = match cause.field.as_str() {
        "" => path.to_owned(),
        field if field.starts_with('[') => format!("{path}{field}"),
        field => join(path, field),
    };
    StatusCause { field, ..cause }
}

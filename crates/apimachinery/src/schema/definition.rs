//! Whether the schema of a definition is one that can be served.

use serde_json::Value;

use super::rules::Rules;
use super::structural::{fields, flag};
use super::{Schema, join, keywords, parse, paths, prune, structural, validate};
use crate::status::Cause;

/// What is wrong with the schema at `path`, in the words and in the order of kube-apiserver.
pub(super) fn problems(schema: &Value, path: &str) -> Vec<Cause> {
    let mut found = Vec::new();
    if schema.get("nullable") == Some(&Value::Bool(true)) {
        found.push(Cause::forbidden(format!("{path}.nullable"), "nullable cannot be true at the root"));
    }
    let is_readable = structural::is_readable(schema);
    let mut inner = if is_readable { structural::check(schema, path) } else { Vec::new() };
    if is_readable && inner.is_empty() {
        defaults(schema, path, &mut inner);
    }
    let is_structural = is_readable && inner.is_empty();
    found.append(&mut inner);
    found.extend(keywords::check(schema, path, is_structural));
    if found.is_empty()
        && let Err(error) = Schema::from_json(schema)
    {
        found.push(Cause::invalid(path, &Value::from(""), &error));
    }
    found
}

/// The type of the field at a path as `.spec.color`.
///
/// # Errors
/// Why there is no such field.
pub(super) fn kind_at<'s>(schema: &'s Value, path: &str) -> Result<&'s str, &'static str> {
    if path.contains('[') {
        return Err("array notation is not allowed");
    }
    const NONE: &str = "does not refer to a valid field";
    let field = paths::find(schema.as_object().ok_or(NONE)?, path).map_err(|_| NONE)?;
    Ok(field.get("type").and_then(Value::as_str).unwrap_or_default())
}

/// Each default has to be a value that would be accepted.
fn defaults(schema: &Value, path: &str, found: &mut Vec<Cause>) {
    let Some(members) = schema.as_object() else { return };
    if let Some(default) = members.get("default").filter(|default| !default.is_null()) {
        found.extend(refusals(schema, default).into_iter().map(|cause| below(cause, &format!("{path}.default"))));
    }
    let is_whole = path.ends_with("openAPIV3Schema") || flag(members, "x-kubernetes-embedded-resource");
    for (name, _) in fields(members) {
        // Metadata has a type of its own.
        if !(is_whole && super::OBJECT_FIELDS.contains(&name.as_str())) {
            defaults(&members["properties"][name], &format!("{path}.properties[{name}]"), found);
        }
    }
    for step in ["items", "additionalProperties"] {
        if let Some(inner) = members.get(step) {
            defaults(inner, &format!("{path}.{step}"), found);
        }
    }
}

fn refusals(schema: &Value, default: &Value) -> Vec<Cause> {
    let Ok(node) = parse::part(schema) else { return Vec::new() };
    let mut found = Vec::new();
    let mut pruned = default.clone();
    prune::apply(&node, &mut pruned);
    if pruned != *default {
        found.push(Cause::invalid("", default, "must not have unknown fields"));
    }
    let refused = validate::check(&node, default);
    if !refused.is_empty() {
        found.extend(refused);
    } else if let Ok(rules) = Rules::compile(schema) {
        found.extend(rules.check(default, Some(default)));
    }
    found
}

fn below(cause: Cause, path: &str) -> Cause {
    let field = match cause.field.as_str() {
        "" => path.to_owned(),
        field if field.starts_with('[') => format!("{path}{field}"),
        field => join(path, field),
    };
    Cause { field, ..cause }
}

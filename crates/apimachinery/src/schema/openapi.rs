//! The JSON form of a schema: keywords that several modules read, and access to them.

use serde_json::{Map, Value};

/// A schema as a JSON object.
pub(super) type SchemaObject = Map<String, Value>;

/// Keyword of CEL rules.
pub(super) const VALIDATION_RULES: &str = "x-kubernetes-validations";

/// Fields that every object has regardless of its schema.
pub(super) const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Returns the properties that are schemas.
pub(super) fn fields(schema: &SchemaObject) -> impl Iterator<Item = (&String, &SchemaObject)> {
    let all = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    all.filter_map(|(name, field)| Some((name, field.as_object()?)))
}

/// Returns the string value of a keyword, or the empty string.
pub(super) fn text<'s>(schema: &'s SchemaObject, keyword: &str) -> &'s str {
    schema.get(keyword).and_then(Value::as_str).unwrap_or_default()
}

/// Reports whether a keyword is `true`.
pub(super) fn flag(schema: &SchemaObject, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

/// Returns `x-kubernetes-preserve-unknown-fields`.
pub(super) fn preserve_unknown_fields(schema: &SchemaObject) -> Option<bool> {
    schema.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool)
}

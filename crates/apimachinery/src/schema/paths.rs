//! Field paths: of values (`spec.items[0].name`), and in definitions (`.spec.color`, `.metadata['a.b']`).

use serde_json::{Map, Value};

/// Returns `path.field`, or `field` at the root.
pub(super) fn join(path: &str, field: &str) -> String {
    if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") }
}

/// Returns the schema of the field at `path`.
///
/// # Errors
/// Fails if `path` is malformed or does not refer to a field.
pub(super) fn schema_at<'s>(schema: &'s Map<String, Value>, path: &str) -> Result<&'s Value, &'static str> {
    const NOT_FOUND: &str = "does not refer to a valid field";
    let mut rest = path;
    let mut current: Option<&Value> = None;
    while !rest.is_empty() {
        let (name, remainder) = split_first(rest)?;
        let parent = match current {
            None => schema,
            Some(value) => value.as_object().ok_or(NOT_FOUND)?,
        };
        let field = parent.get("properties").and_then(|fields| fields.get(name));
        let additional = parent.get("additionalProperties").filter(|value| value.is_object());
        current = Some(field.or(additional).ok_or(NOT_FOUND)?);
        rest = remainder;
    }
    current.ok_or(NOT_FOUND)
}

/// Splits a path into its first field name and the rest.
fn split_first(path: &str) -> Result<(&str, &str), &'static str> {
    if let Some(rest) = path.strip_prefix("['") {
        return rest.split_once("']").ok_or("unexpected end of path");
    }
    let rest = path.strip_prefix('.').ok_or("expected [ or .")?;
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, remainder) = rest.split_at(end);
    if name.is_empty() { Err("unexpected end of path") } else { Ok((name, remainder)) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(".spec.a", true)]
    #[case(".spec['a']", true)]
    #[case(".labels.any", true)]
    #[case(".spec.b", false)]
    #[case("spec", false)]
    #[case(".", false)]
    #[case("", false)]
    #[case("['spec", false)]
    fn finds_fields_by_path(#[case] path: &str, #[case] is_found: bool) {
        let schema = json!({"properties": {"spec": {"properties": {"a": {"type": "string"}}},
            "labels": {"additionalProperties": {"type": "string"}}}});
        assert_eq!(schema_at(schema.as_object().unwrap(), path).is_ok(), is_found);
    }
}

//! Paths of fields that definitions name, as `.spec.color` or `.metadata['a.b']`.

use serde_json::{Map, Value};

/// The schema of the field at `path`.
///
/// # Errors
/// Why there is no such field.
pub(super) fn find<'s>(schema: &'s Map<String, Value>, path: &str) -> Result<&'s Value, &'static str> {
    const NONE: &str = "does not refer to a valid field";
    let mut rest = path;
    let mut at: Option<&Value> = None;
    while !rest.is_empty() {
        let (name, after) = step(rest)?;
        let here = match at {
            None => schema,
            Some(value) => value.as_object().ok_or(NONE)?,
        };
        let field = here.get("properties").and_then(|fields| fields.get(name));
        let any = here.get("additionalProperties").filter(|value| value.is_object());
        at = Some(field.or(any).ok_or(NONE)?);
        rest = after;
    }
    at.ok_or(NONE)
}

/// The first name of a path, and what follows.
fn step(path: &str) -> Result<(&str, &str), &'static str> {
    if let Some(rest) = path.strip_prefix("['") {
        return rest.split_once("']").ok_or("unexpected end of path");
    }
    let rest = path.strip_prefix('.').ok_or("expected [ or .")?;
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    if name.is_empty() { Err("unexpected end of path") } else { Ok((name, after)) }
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
    fn a_path_leads_to_a_field_or_not(#[case] path: &str, #[case] leads: bool) {
        let schema = json!({"properties": {"spec": {"properties": {"a": {"type": "string"}}},
            "labels": {"additionalProperties": {"type": "string"}}}});
        assert_eq!(find(schema.as_object().unwrap(), path).is_ok(), leads);
    }
}

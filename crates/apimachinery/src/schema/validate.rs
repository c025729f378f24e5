//! Value validation, with the messages of the API server.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::formats;
use super::node::{AdditionalProperties, CountRange, ListType, SchemaNode};
use super::openapi::OBJECT_FIELDS;
use super::paths::join;
use crate::status::StatusCause;

/// Returns the validation errors of `value`.
pub(super) fn validate(node: &SchemaNode, value: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    visit(node, value, "", &mut causes);
    causes
}

fn visit(node: &SchemaNode, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
    if value.is_null() && node.nullable {
        return;
    }
    if let Some(expected) = node.schema_type.filter(|schema_type| !schema_type.matches(value)) {
        causes.push(StatusCause::wrong_type(path, expected.name(), value));
        if !node.validations.enum_values.is_empty() {
            causes.push(StatusCause::not_supported(path, value, &node.validations.enum_values));
        }
        return;
    }
    match value {
        Value::Object(map) => object(node, map, path, causes),
        Value::Array(list) => array(node, list, path, causes),
        Value::String(text) => string(node, text, path, causes),
        Value::Number(number) => numeric(node, number.as_f64().unwrap_or_default(), value, path, causes),
        _ => {}
    }
    enum_and_format(node, value, path, causes);
    junctors(node, value, path, causes);
}

fn enum_and_format(node: &SchemaNode, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
    let validations = &node.validations;
    if !validations.enum_values.is_empty() && !validations.enum_values.contains(value) {
        causes.push(StatusCause::not_supported(path, value, &validations.enum_values));
    }
    if let Some(format) = validations.format.as_deref().filter(|format| !formats::matches_format(format, value)) {
        let message = format!("Invalid value: {value}: {path} in body must be of type {format}: {value}");
        causes.push(StatusCause::new(path, "FieldValueTypeInvalid", message));
    }
}

fn object(node: &SchemaNode, map: &Map<String, Value>, path: &str, causes: &mut Vec<StatusCause>) {
    for name in node.validations.required.iter().filter(|name| !map.contains_key(*name)) {
        causes.push(StatusCause::required(join(path, name), ""));
    }
    count(node.validations.properties, map.len(), "properties", path, causes);
    for (name, value) in map {
        let child = match (node.properties.get(name), &node.additional) {
            _ if path.is_empty() && node.is_resource && OBJECT_FIELDS[..2].contains(&name.as_str()) => continue,
            (Some(child), _) => child,
            (None, AdditionalProperties::Schema(child)) => child,
            (None, _) => continue,
        };
        visit(child, value, &join(path, name), causes);
    }
}

fn array(node: &SchemaNode, list: &[Value], path: &str, causes: &mut Vec<StatusCause>) {
    count(node.validations.items, list.len(), "items", path, causes);
    if let Some(child) = &node.items {
        for (index, value) in list.iter().enumerate() {
            visit(child, value, &format!("{path}[{index}]"), causes);
        }
    }
    match &node.list_type {
        ListType::Set => duplicates(list.iter().cloned(), path, causes),
        ListType::Map(keys) => duplicates(list.iter().map(|item| element_key(keys, item)), path, causes),
        ListType::Atomic if node.validations.unique_items => duplicates(list.iter().cloned(), path, causes),
        ListType::Atomic => {}
    }
}

/// Returns the key fields of a list element.
fn element_key(keys: &[String], item: &Value) -> Value {
    let pairs = keys.iter().filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())));
    Value::Object(pairs.collect())
}

fn duplicates(values: impl Iterator<Item = Value>, path: &str, causes: &mut Vec<StatusCause>) {
    let mut seen = BTreeSet::new();
    for (index, value) in values.enumerate() {
        if !seen.insert(value.to_string()) {
            causes.push(StatusCause::duplicate(format!("{path}[{index}]"), &value));
        }
    }
}

fn string(node: &SchemaNode, text: &str, path: &str, causes: &mut Vec<StatusCause>) {
    let validations = &node.validations;
    let length = text.chars().count() as u64;
    // Only the first error is reported.
    if let Some(max) = validations.length.max.filter(|max| length > *max) {
        let message = format!("Too long: may not be more than {max} bytes");
        causes.push(StatusCause::new(path, "FieldValueTooLong", message));
    } else if let Some(min) = validations.length.min.filter(|min| length < *min) {
        causes.push(invalid_in_body(path, &json!(text), &format!("should be at least {min} chars long")));
    } else if let Some(pattern) = validations.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        causes.push(invalid_in_body(path, &json!(text), &format!("should match '{pattern}'")));
    }
}

fn numeric(node: &SchemaNode, number: f64, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
    let validations = &node.validations;
    if let Some(bound) = validations.minimum
        && (number < bound.value || (bound.exclusive && number <= bound.value))
    {
        let relation = if bound.exclusive { "greater than" } else { "greater than or equal to" };
        causes.push(invalid_in_body(path, value, &format!("should be {relation} {}", bound.value)));
    }
    if let Some(bound) = validations.maximum
        && (number > bound.value || (bound.exclusive && number >= bound.value))
    {
        let relation = if bound.exclusive { "less than" } else { "less than or equal to" };
        causes.push(invalid_in_body(path, value, &format!("should be {relation} {}", bound.value)));
    }
    if let Some(factor) = validations.multiple_of.filter(|factor| (number / factor).fract() != 0.0) {
        causes.push(invalid_in_body(path, value, &format!("should be a multiple of {factor}")));
    }
}

fn count(range: CountRange, size: usize, unit: &str, path: &str, causes: &mut Vec<StatusCause>) {
    let size = size as u64;
    if let Some(min) = range.min.filter(|min| size < *min) {
        causes.push(invalid_in_body(path, &json!(size), &format!("should have at least {min} {unit}")));
    }
    if let Some(max) = range.max.filter(|max| size > *max) {
        let message = format!("Too many: {size}: must have at most {max} {unit}");
        causes.push(StatusCause::new(path, "FieldValueTooMany", message));
    }
}

fn junctors(node: &SchemaNode, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
    let junctors = &node.junctors;
    let is_valid = |node: &SchemaNode| validate(node, value).is_empty();
    let mut require = |is_satisfied: bool, error: &str| {
        if !is_satisfied {
            causes.push(invalid_in_body(path, &json!(crate::status::type_name(value)), error));
        }
    };
    require(
        junctors.any_of.is_empty() || junctors.any_of.iter().any(is_valid),
        "must validate at least one schema (anyOf)",
    );
    require(
        junctors.one_of.is_empty() || junctors.one_of.iter().filter(|node| is_valid(node)).count() == 1,
        "must validate one and only one schema (oneOf)",
    );
    require(!junctors.not.as_deref().is_some_and(is_valid), "must not validate the schema (not)");
    for node in &junctors.all_of {
        visit(node, value, path, causes);
    }
}

fn invalid_in_body(path: &str, value: &Value, error: &str) -> StatusCause {
    StatusCause::invalid(path, value, &format!("{path} in body {error}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::schema::Schema;

    fn causes(field: &Value, value: Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": field}}}});
        let object = json!({"spec": {"x": value}});
        Schema::from_json(&schema).unwrap().validate(&object).iter().map(StatusCause::to_string).collect()
    }

    #[rstest]
    #[case(json!({"type": "integer"}), json!("a"), r#"spec.x: Invalid value: "string": spec.x in body must be of type integer: "string""#)]
    #[case(json!({"type": "string"}), json!(null), r#"spec.x: Invalid value: "null": spec.x in body must be of type string: "null""#)]
    #[case(json!({"type": "string", "enum": ["a", "b"]}), json!("c"), r#"spec.x: Unsupported value: "c": supported values: "a", "b""#)]
    #[case(json!({"type": "integer", "minimum": 0}), json!(-1), "spec.x: Invalid value: -1: spec.x in body should be greater than or equal to 0")]
    #[case(json!({"type": "integer", "maximum": 1, "exclusiveMaximum": true}), json!(1), "spec.x: Invalid value: 1: spec.x in body should be less than 1")]
    #[case(json!({"type": "integer", "format": "int32"}), json!(3_000_000_000_u64), "spec.x: Invalid value: 3000000000: spec.x in body must be of type int32: 3000000000")]
    #[case(json!({"type": "string", "minLength": 1}), json!(""), r#"spec.x: Invalid value: "": spec.x in body should be at least 1 chars long"#)]
    #[case(json!({"type": "string", "maxLength": 1}), json!("ab"), "spec.x: Too long: may not be more than 1 bytes")]
    #[case(json!({"type": "string", "pattern": "^a$"}), json!("b"), r#"spec.x: Invalid value: "b": spec.x in body should match '^a$'"#)]
    #[case(json!({"type": "array", "maxItems": 1, "items": {"type": "string"}}), json!(["a", "b"]), "spec.x: Too many: 2: must have at most 1 items")]
    #[case(json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}), json!(["a", "a"]), r#"spec.x[1]: Duplicate value: "a""#)]
    #[case(json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items": {"type": "object", "properties": {"n": {"type": "string"}}}}),
           json!([{"n": "a"}, {"n": "a"}]), r#"spec.x[1]: Duplicate value: {"n":"a"}"#)]
    #[case(json!({"type": "object", "required": ["y"]}), json!({}), "spec.x.y: Required value")]
    #[case(json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}),
           json!({"a": "", "b": ""}), r#"spec.x: Invalid value: "object": spec.x in body must validate one and only one schema (oneOf)"#)]
    fn reports_one_cause(#[case] field: Value, #[case] value: Value, #[case] expect: &str) {
        assert_eq!(causes(&field, value), [expect]);
    }

    #[rstest]
    #[case(json!({"x-kubernetes-int-or-string": true}), json!("50%"))]
    #[case(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}), json!(5))]
    #[case(json!({"type": "integer"}), json!(2.0))]
    #[case(json!({"type": "string", "nullable": true, "enum": ["a"]}), json!(null))]
    #[case(json!({"type": "string", "format": "date-time"}), json!("2026-01-02T03:04:05Z"))]
    #[case(json!({"x-kubernetes-preserve-unknown-fields": true}), json!([{"any": 1}]))]
    fn accepts_valid_values(#[case] field: Value, #[case] value: Value) {
        assert_eq!(causes(&field, value), Vec::<String>::new());
    }
}

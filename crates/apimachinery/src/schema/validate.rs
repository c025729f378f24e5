//! Value validation, in the words of the API server.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::node::{Additional, ListType, Node, Range};
use super::{OBJECT_FIELDS, formats, join};
use crate::status::Cause;

pub(super) fn check(node: &Node, value: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    visit(node, value, "", &mut causes);
    causes
}

fn visit(node: &Node, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    if value.is_null() && node.nullable {
        return;
    }
    if let Some(kind) = node.kind.filter(|kind| !kind.admits(value)) {
        causes.push(Cause::wrong_type(path, kind.name(), value));
        if !node.limits.allowed.is_empty() {
            causes.push(Cause::not_supported(path, value, &node.limits.allowed));
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
    any_value(node, value, path, causes);
    combinations(node, value, path, causes);
}

fn any_value(node: &Node, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let limits = &node.limits;
    if !limits.allowed.is_empty() && !limits.allowed.contains(value) {
        causes.push(Cause::not_supported(path, value, &limits.allowed));
    }
    if let Some(format) = limits.format.as_deref().filter(|format| !formats::holds(format, value)) {
        let message = format!("Invalid value: {value}: {path} in body must be of type {format}: {value}");
        causes.push(Cause::new(path, "FieldValueTypeInvalid", message));
    }
}

fn object(node: &Node, map: &Map<String, Value>, path: &str, causes: &mut Vec<Cause>) {
    for name in node.limits.required.iter().filter(|name| !map.contains_key(*name)) {
        causes.push(Cause::required(join(path, name), ""));
    }
    count(node.limits.properties, map.len(), "properties", path, causes);
    for (name, value) in map {
        let child = match (node.properties.get(name), &node.additional) {
            _ if path.is_empty() && node.is_resource && OBJECT_FIELDS[..2].contains(&name.as_str()) => continue,
            (Some(child), _) => child,
            (None, Additional::Schema(child)) => child,
            (None, _) => continue,
        };
        visit(child, value, &join(path, name), causes);
    }
}

fn array(node: &Node, list: &[Value], path: &str, causes: &mut Vec<Cause>) {
    count(node.limits.items, list.len(), "items", path, causes);
    if let Some(child) = &node.items {
        for (index, value) in list.iter().enumerate() {
            visit(child, value, &format!("{path}[{index}]"), causes);
        }
    }
    match &node.list {
        ListType::Set => duplicates(list.iter().cloned(), path, causes),
        ListType::Map(keys) => duplicates(list.iter().map(|item| identity(keys, item)), path, causes),
        ListType::Atomic if node.limits.unique => duplicates(list.iter().cloned(), path, causes),
        ListType::Atomic => {}
    }
}

fn identity(keys: &[String], item: &Value) -> Value {
    let pairs = keys.iter().filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())));
    Value::Object(pairs.collect())
}

fn duplicates(values: impl Iterator<Item = Value>, path: &str, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, value) in values.enumerate() {
        if !seen.insert(value.to_string()) {
            causes.push(Cause::duplicate(format!("{path}[{index}]"), &value));
        }
    }
}

fn string(node: &Node, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let limits = &node.limits;
    let length = text.chars().count() as u64;
    // The first thing that is wrong is told, and no other.
    if let Some(max) = limits.length.max.filter(|max| length > *max) {
        let message = format!("Too long: may not be more than {max} bytes");
        causes.push(Cause::new(path, "FieldValueTooLong", message));
    } else if let Some(min) = limits.length.min.filter(|min| length < *min) {
        causes.push(says(path, &json!(text), &format!("should be at least {min} chars long")));
    } else if let Some(pattern) = limits.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        causes.push(says(path, &json!(text), &format!("should match '{pattern}'")));
    }
}

fn numeric(node: &Node, number: f64, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let limits = &node.limits;
    if let Some(bound) = limits.minimum
        && (number < bound.value || (bound.exclusive && number <= bound.value))
    {
        let relation = if bound.exclusive { "greater than" } else { "greater than or equal to" };
        causes.push(says(path, value, &format!("should be {relation} {}", bound.value)));
    }
    if let Some(bound) = limits.maximum
        && (number > bound.value || (bound.exclusive && number >= bound.value))
    {
        let relation = if bound.exclusive { "less than" } else { "less than or equal to" };
        causes.push(says(path, value, &format!("should be {relation} {}", bound.value)));
    }
    if let Some(factor) = limits.multiple_of.filter(|factor| (number / factor).fract() != 0.0) {
        causes.push(says(path, value, &format!("should be a multiple of {factor}")));
    }
}

fn count(range: Range, size: usize, what: &str, path: &str, causes: &mut Vec<Cause>) {
    let size = size as u64;
    if let Some(min) = range.min.filter(|min| size < *min) {
        causes.push(says(path, &json!(size), &format!("should have at least {min} {what}")));
    }
    if let Some(max) = range.max.filter(|max| size > *max) {
        let message = format!("Too many: {size}: must have at most {max} {what}");
        causes.push(Cause::new(path, "FieldValueTooMany", message));
    }
}

fn combinations(node: &Node, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let combined = &node.combined;
    let holds = |node: &Node| check(node, value).is_empty();
    let mut unless = |ok: bool, what: &str| {
        if !ok {
            causes.push(says(path, &json!(crate::status::type_name(value)), what));
        }
    };
    unless(combined.any.is_empty() || combined.any.iter().any(holds), "must validate at least one schema (anyOf)");
    unless(
        combined.one.is_empty() || combined.one.iter().filter(|node| holds(node)).count() == 1,
        "must validate one and only one schema (oneOf)",
    );
    unless(!combined.not.as_deref().is_some_and(holds), "must not validate the schema (not)");
    for node in &combined.all {
        visit(node, value, path, causes);
    }
}

fn says(path: &str, value: &Value, what: &str) -> Cause {
    Cause::invalid(path, value, &format!("{path} in body {what}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::schema::Schema;

    fn causes(field: &Value, value: Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": field}}}});
        let object = json!({"spec": {"x": value}});
        Schema::from_json(&schema).unwrap().validate(&object).iter().map(Cause::to_string).collect()
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
    fn one_cause(#[case] field: Value, #[case] value: Value, #[case] expect: &str) {
        assert_eq!(causes(&field, value), [expect]);
    }

    #[rstest]
    #[case(json!({"x-kubernetes-int-or-string": true}), json!("50%"))]
    #[case(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}), json!(5))]
    #[case(json!({"type": "integer"}), json!(2.0))]
    #[case(json!({"type": "string", "nullable": true, "enum": ["a"]}), json!(null))]
    #[case(json!({"type": "string", "format": "date-time"}), json!("2026-01-02T03:04:05Z"))]
    #[case(json!({"x-kubernetes-preserve-unknown-fields": true}), json!([{"any": 1}]))]
    fn accepted(#[case] field: Value, #[case] value: Value) {
        assert_eq!(causes(&field, value), Vec::<String>::new());
    }
}

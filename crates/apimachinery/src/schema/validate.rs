//! Value validation.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::formats;
use super::node::{AdditionalProperties, CountRange, ListType, SchemaNode};
use super::openapi::OBJECT_FIELDS;
use super::paths::join;
use super::violation::{Constraint, SchemaViolation};
use crate::status::type_name;

/// Returns the violations of `value`. Parts that are equal in `old` have none, as in kube-apiserver: an object that became
/// invalid because its definition changed can still be updated.
pub(super) fn validate(node: &SchemaNode, value: &Value, old: Option<&Value>) -> Vec<SchemaViolation> {
    let mut violations = Vec::new();
    visit(node, value, old, "", &mut violations);
    violations
}

fn visit(node: &SchemaNode, value: &Value, old: Option<&Value>, path: &str, violations: &mut Vec<SchemaViolation>) {
    if value.is_null() && node.nullable || old == Some(value) {
        return;
    }
    if let Some(expected) = node.schema_type.filter(|schema_type| !schema_type.matches(value)) {
        violations.push(SchemaViolation::new(path, type_name(value), Constraint::Type(expected.name())));
        if !node.validations.enum_values.is_empty() {
            violations.push(enum_violation(node, value, path));
        }
        return;
    }
    match value {
        Value::Object(map) => object(node, map, old, path, violations),
        Value::Array(list) => array(node, list, old, path, violations),
        Value::String(text) => string(node, text, path, violations),
        Value::Number(number) => numeric(node, number.as_f64().unwrap_or_default(), value, path, violations),
        _ => {}
    }
    enum_and_format(node, value, path, violations);
    junctors(node, value, old, path, violations);
}

fn enum_and_format(node: &SchemaNode, value: &Value, path: &str, violations: &mut Vec<SchemaViolation>) {
    let validations = &node.validations;
    if !validations.enum_values.is_empty() && !validations.enum_values.contains(value) {
        violations.push(enum_violation(node, value, path));
    }
    if let Some(format) = validations.format.as_deref().filter(|format| !formats::matches_format(format, value)) {
        violations.push(SchemaViolation::new(path, value.clone(), Constraint::Format(format.to_owned())));
    }
}

fn object(
    node: &SchemaNode,
    map: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    violations: &mut Vec<SchemaViolation>,
) {
    for name in node.validations.required.iter().filter(|name| !map.contains_key(*name)) {
        violations.push(SchemaViolation::new(join(path, name), Value::Null, Constraint::Required));
    }
    count(node.validations.properties, map.len(), "properties", path, violations);
    for (name, value) in map {
        let child = match (node.properties.get(name), &node.additional) {
            _ if path.is_empty() && node.is_resource && OBJECT_FIELDS[..2].contains(&name.as_str()) => continue,
            (Some(child), _) => child,
            (None, AdditionalProperties::Schema(child)) => child,
            (None, _) => continue,
        };
        visit(child, value, old.and_then(|old| old.get(name)), &join(path, name), violations);
    }
}

fn array(node: &SchemaNode, list: &[Value], old: Option<&Value>, path: &str, violations: &mut Vec<SchemaViolation>) {
    count(node.validations.items, list.len(), "items", path, violations);
    if let Some(child) = &node.items {
        for (index, value) in list.iter().enumerate() {
            let old_element = old.and_then(|old| corresponding_element(&node.list_type, value, old.as_array()?));
            visit(child, value, old_element, &format!("{path}[{index}]"), violations);
        }
    }
    match &node.list_type {
        ListType::Set => duplicates(list.iter().cloned(), path, violations),
        ListType::Map(keys) => duplicates(list.iter().map(|item| element_key(keys, item)), path, violations),
        ListType::Atomic if node.validations.unique_items => duplicates(list.iter().cloned(), path, violations),
        ListType::Atomic => {}
    }
}

/// Returns the element of `old` with the same keys. Elements of other lists do not correspond to each other.
fn corresponding_element<'o>(list_type: &ListType, element: &Value, old: &'o [Value]) -> Option<&'o Value> {
    let ListType::Map(keys) = list_type else { return None };
    let key = element_key(keys, element);
    old.iter().find(|candidate| element_key(keys, candidate) == key)
}

/// Returns the key fields of a list element.
fn element_key(keys: &[String], item: &Value) -> Value {
    let pairs = keys.iter().filter_map(|key| item.get(key).map(|value| (key.clone(), value.clone())));
    Value::Object(pairs.collect())
}

fn duplicates(values: impl Iterator<Item = Value>, path: &str, violations: &mut Vec<SchemaViolation>) {
    let mut seen = BTreeSet::new();
    for (index, value) in values.enumerate() {
        if !seen.insert(value.to_string()) {
            violations.push(SchemaViolation::new(format!("{path}[{index}]"), value, Constraint::Unique));
        }
    }
}

fn string(node: &SchemaNode, text: &str, path: &str, violations: &mut Vec<SchemaViolation>) {
    let validations = &node.validations;
    let length = text.chars().count() as u64;
    let mut report = |constraint| violations.push(SchemaViolation::new(path, text, constraint));
    // Only the first error is reported.
    if let Some(max) = validations.length.max.filter(|max| length > *max) {
        report(Constraint::MaxLength(max));
    } else if let Some(min) = validations.length.min.filter(|min| length < *min) {
        report(Constraint::MinLength(min));
    } else if let Some(pattern) = validations.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        report(Constraint::Pattern(pattern.to_string()));
    }
}

fn numeric(node: &SchemaNode, number: f64, value: &Value, path: &str, violations: &mut Vec<SchemaViolation>) {
    let validations = &node.validations;
    let mut report = |constraint| violations.push(SchemaViolation::new(path, value.clone(), constraint));
    if let Some(bound) = validations.minimum
        && (number < bound.value || (bound.exclusive && number <= bound.value))
    {
        report(Constraint::Minimum { bound: bound.value, exclusive: bound.exclusive });
    }
    if let Some(bound) = validations.maximum
        && (number > bound.value || (bound.exclusive && number >= bound.value))
    {
        report(Constraint::Maximum { bound: bound.value, exclusive: bound.exclusive });
    }
    if let Some(factor) = validations.multiple_of.filter(|factor| (number / factor).fract() != 0.0) {
        report(Constraint::MultipleOf(factor));
    }
}

fn count(range: CountRange, size: usize, unit: &'static str, path: &str, violations: &mut Vec<SchemaViolation>) {
    let size = size as u64;
    if let Some(min) = range.min.filter(|min| size < *min) {
        violations.push(SchemaViolation::new(path, size, Constraint::MinCount { min, unit }));
    }
    if let Some(max) = range.max.filter(|max| size > *max) {
        violations.push(SchemaViolation::new(path, size, Constraint::MaxCount { max, unit }));
    }
}

fn junctors(node: &SchemaNode, value: &Value, old: Option<&Value>, path: &str, violations: &mut Vec<SchemaViolation>) {
    let junctors = &node.junctors;
    let is_valid = |node: &SchemaNode| validate(node, value, None).is_empty();
    let mut require = |is_satisfied: bool, message: &'static str| {
        if !is_satisfied {
            violations.push(SchemaViolation::new(path, type_name(value), Constraint::Junctor(message)));
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
        visit(node, value, old, path, violations);
    }
}

fn enum_violation(node: &SchemaNode, value: &Value, path: &str) -> SchemaViolation {
    SchemaViolation::new(path, value.clone(), Constraint::Enum(node.validations.enum_values.clone()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    fn causes(field: &Value, value: Value) -> Vec<String> {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": field}}}});
        let object = json!({"spec": {"x": value}});
        Schema::from_json(&schema).unwrap().validate(&object).iter().map(ToString::to_string).collect()
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

    /// The schema of an object that was created with other ones.
    #[rstest]
    #[case::unchanged(json!({"a": "x", "b": 1}), &[])]
    #[case::other_field(json!({"a": "x", "b": 2}), &[])]
    #[case::invalid_field(json!({"a": "y", "b": 1}), &["spec.a: Invalid value: \"string\": spec.a in body must be of type integer: \"string\""])]
    #[case::element(json!({"b": 1, "list": [{"name": "new", "size": 1}, {"name": "old", "size": "x"}]}), &[])]
    #[case::other_element(json!({"b": 1, "list": [{"name": "new", "size": "x"}]}),
        &["spec.list[0].size: Invalid value: \"string\": spec.list[0].size in body must be of type integer: \"string\""])]
    #[case::required_field(json!({"a": "x"}), &["spec.b: Required value"])]
    fn unchanged_values_have_no_violations(#[case] spec: Value, #[case] expected: &[&str]) {
        let element =
            json!({"type": "object", "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}});
        let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": element});
        let properties = json!({"a": {"type": "integer"}, "b": {"type": "integer"}, "list": list});
        let spec_schema = json!({"type": "object", "required": ["b"], "properties": properties});
        let schema = json!({"type": "object", "properties": {"spec": spec_schema}});
        let old = json!({"spec": {"a": "x", "b": 1, "list": [{"name": "old", "size": "x"}]}});
        let violations = Schema::from_json(&schema).unwrap().validate_update(&json!({"spec": spec}), &old);
        assert_eq!(violations.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
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

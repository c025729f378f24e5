//! Checks that a schema is structural: every field has a type outside of logical junctors, and junctors add only value
//! validations.
//!
//! The rules and messages are those of `apiextensions-apiserver/pkg/apiserver/schema`.

use serde_json::{Map, Value, json};

use super::openapi::{SchemaObject, VALIDATION_RULES, fields, flag, preserve_unknown_fields, text};
use super::patterns::Patterns;
use crate::status::StatusCause;

/// Position of a schema, named in the error of a missing type.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    /// `items` of an array.
    Item,
    /// A property or `additionalProperties`.
    Field,
}

/// Junctors of an int-or-string schema that may specify types.
#[derive(Clone, Copy, Default)]
struct TypeExemption {
    any_of: bool,
    /// `anyOf` within the first element of `allOf`.
    first_of_all: bool,
}

/// What the checks of the nodes of a schema share.
#[derive(Default)]
struct Findings<'s> {
    causes: Vec<StatusCause>,
    patterns: Patterns<'s>,
}

/// Keywords that no structural schema may have; [`super::keywords`] reports them.
const UNSUPPORTED_KEYWORDS: [&str; 7] =
    ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];

/// Keywords that are forbidden in logical junctors, with the error message.
const FORBIDDEN_IN_JUNCTORS: [(&str, &str); 12] = [
    ("type", "must be empty to be structural"),
    ("additionalProperties", "must be undefined to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
];

/// Reports whether the schema has supported keywords only, so that [`check`] applies.
pub(super) fn is_supported(schema: &Value) -> bool {
    let Some(schema) = schema.as_object() else { return true };
    let has_unsupported =
        UNSUPPORTED_KEYWORDS.iter().any(|keyword| schema.get(*keyword).is_some_and(|value| !is_zero(value)));
    if has_unsupported
        || schema.get("items").is_some_and(Value::is_array)
        || preserve_unknown_fields(schema) == Some(false)
    {
        return false;
    }
    nested_schemas(schema).all(is_supported)
}

/// Returns the schemas directly nested in a schema.
fn nested_schemas(schema: &SchemaObject) -> impl Iterator<Item = &Value> {
    let single = ["items", "additionalProperties", "not"].into_iter().filter_map(|name| schema.get(name));
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| list(schema, name));
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    single.chain(lists).chain(fields)
}

/// Returns the violations of structural schema rules, sorted by path.
pub(super) fn check(schema: &Value, path: &str) -> Vec<StatusCause> {
    let Some(schema) = schema.as_object() else { return Vec::new() };
    let mut findings = Findings::default();
    check_invariants(schema, Level::Root, path, &mut findings);
    let mut causes = findings.causes;
    check_completeness(schema, Some(schema), path, path, &mut causes);
    causes.sort_by_key(StatusCause::to_string);
    causes
}

fn check_invariants<'s>(schema: &'s SchemaObject, level: Level, path: &str, findings: &mut Findings<'s>) {
    let items = schema.get("items").and_then(Value::as_object);
    if text(schema, "type") == "array" && items.is_none() {
        findings.causes.push(StatusCause::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = items {
        check_invariants(items, Level::Item, &format!("{path}.items"), findings);
    }
    for (name, field) in fields(schema) {
        check_invariants(field, Level::Field, &format!("{path}.properties[{name}]"), findings);
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|value| !value.is_null()) {
        let field_path = format!("{path}.additionalProperties");
        if level == Level::Root {
            findings.causes.push(StatusCause::forbidden(field_path.as_str(), "must not be used at the root"));
        }
        if let Some(additional) = additional.as_object() {
            check_invariants(additional, Level::Field, &field_path, findings);
        }
    }
    check_extensions(schema, path, &mut findings.causes);
    let is_int_or_string_union =
        |schema: &SchemaObject| schema.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}]));
    let first_of_all = list(schema, "allOf").next().and_then(Value::as_object);
    let exemption = TypeExemption {
        any_of: is_int_or_string_union(schema),
        first_of_all: first_of_all.is_some_and(is_int_or_string_union),
    };
    check_value_validations(schema, exemption, path, findings);
    check_type(schema, level, path, &mut findings.causes);
    check_metadata(schema, level, path, &mut findings.causes);
}

fn check_extensions(schema: &SchemaObject, path: &str, causes: &mut Vec<StatusCause>) {
    for other in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(schema, "x-kubernetes-int-or-string") && flag(schema, other) {
            let hint = "must be false if x-kubernetes-int-or-string is true";
            causes.push(StatusCause::invalid(format!("{path}.{other}"), &json!(true), hint));
        }
    }
}

fn check_type(schema: &SchemaObject, level: Level, path: &str, causes: &mut Vec<StatusCause>) {
    let (field_path, type_name) = (format!("{path}.type"), text(schema, "type"));
    let is_embedded = flag(schema, "x-kubernetes-embedded-resource");
    let may_omit_type =
        flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
    let embedded_hint = "must be object if x-kubernetes-embedded-resource is true";
    if is_embedded && type_name.is_empty() {
        causes.push(StatusCause::required(field_path.as_str(), embedded_hint));
    } else if is_embedded && type_name != "object" {
        causes.push(StatusCause::invalid(field_path.as_str(), &json!(type_name), embedded_hint));
    } else if type_name.is_empty() && !may_omit_type {
        let hint = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        causes.push(StatusCause::required(field_path.as_str(), hint));
    }
    if is_embedded && schema.get("additionalProperties").is_some_and(|value| !value.is_null()) {
        let hint = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(StatusCause::forbidden(format!("{path}.additionalProperties"), hint));
    }
    if level == Level::Root && !type_name.is_empty() && type_name != "object" {
        causes.push(StatusCause::invalid(field_path, &json!(type_name), "must be object at the root"));
    }
    let has_fields = fields(schema).next().is_some() || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if is_embedded && !has_fields {
        let hint =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(StatusCause::required(format!("{path}.properties"), hint));
    }
}

/// Checks the object fields of a resource, whose types are fixed.
fn check_metadata(schema: &SchemaObject, level: Level, path: &str, causes: &mut Vec<StatusCause>) {
    if level != Level::Root && !flag(schema, "x-kubernetes-embedded-resource") {
        return;
    }
    for (name, type_name) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some((_, field)) = fields(schema).find(|(field, _)| *field == name) else { continue };
        let actual = text(field, "type");
        if actual != type_name {
            let field_path = format!("{path}.properties[{name}].type");
            causes.push(StatusCause::invalid(field_path, &json!(actual), &format!("must be {type_name}")));
        }
        if name == "metadata" && level == Level::Root && !specifies_only_names(field) {
            let hint =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            causes.push(StatusCause::forbidden(format!("{path}.properties[metadata]"), hint));
        }
    }
}

fn specifies_only_names(metadata: &SchemaObject) -> bool {
    let is_name = |(name, _): (&String, &SchemaObject)| name == "name" || name == "generateName";
    let is_permitted =
        |(name, value): (&String, &Value)| is_zero(value) || matches!(name.as_str(), "type" | "default" | "properties");
    fields(metadata).all(is_name) && metadata.iter().all(is_permitted)
}

fn check_value_validations<'s>(
    schema: &'s SchemaObject,
    exemption: TypeExemption,
    path: &str,
    findings: &mut Findings<'s>,
) {
    if !exemption.any_of {
        for_each_junctor(schema, "anyOf", path, |schema, path, _| {
            check_junctor(schema, TypeExemption::default(), path, findings);
        });
    }
    for_each_junctor(schema, "allOf", path, |schema, path, index| {
        check_junctor(
            schema,
            TypeExemption { any_of: exemption.first_of_all && index == 0, first_of_all: false },
            path,
            findings,
        );
    });
    for_each_junctor(schema, "oneOf", path, |schema, path, _| {
        check_junctor(schema, TypeExemption::default(), path, findings);
    });
    if let Some(not) = schema.get("not").and_then(Value::as_object) {
        check_junctor(not, TypeExemption::default(), &format!("{path}.not"), findings);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(error) = findings.patterns.compile(pattern)
    {
        let hint = format!("must be a valid regular expression, but isn't: {error}");
        findings.causes.push(StatusCause::invalid(format!("{path}.pattern"), &json!(pattern), &hint));
    }
}

fn check_junctor<'s>(schema: &'s SchemaObject, exemption: TypeExemption, path: &str, findings: &mut Findings<'s>) {
    check_value_validations(schema, exemption, path, findings);
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        check_junctor(items, TypeExemption::default(), &format!("{path}.items"), findings);
    }
    for (name, field) in fields(schema) {
        check_junctor(field, TypeExemption::default(), &format!("{path}.properties[{name}]"), findings);
    }
    for (keyword, hint) in FORBIDDEN_IN_JUNCTORS.iter().chain(&[(VALIDATION_RULES, "must be empty to be structural")]) {
        if schema.get(*keyword).is_some_and(|value| !is_zero(value)) {
            findings.causes.push(StatusCause::forbidden(format!("{path}.{keyword}"), hint));
        }
    }
    if fields(schema).any(|(name, _)| name == "metadata") {
        let field_path = format!("{path}.properties[metadata]");
        findings.causes.push(StatusCause::forbidden(field_path, "must not be specified in a nested context"));
    }
}

/// Checks that fields validated within junctors are also specified outside of them.
fn check_completeness(
    validations: &SchemaObject,
    structure: Option<&SchemaObject>,
    structure_path: &str,
    path: &str,
    causes: &mut Vec<StatusCause>,
) {
    if structure.is_none() {
        causes.push(StatusCause::required(structure_path, &format!("because it is defined in {path}")));
        return;
    }
    if let Some(not) = validations.get("not").and_then(Value::as_object) {
        check_nested_completeness(not, structure, structure_path, &format!("{path}.not"), causes);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for_each_junctor(validations, name, path, |schema, path, _| {
            check_nested_completeness(schema, structure, structure_path, path, causes);
        });
    }
}

/// Checks the schemas nested in one junctor.
fn check_nested_completeness(
    validations: &SchemaObject,
    structure: Option<&SchemaObject>,
    structure_path: &str,
    path: &str,
    causes: &mut Vec<StatusCause>,
) {
    check_completeness(validations, structure, structure_path, path, causes);
    let Some(structure) = structure else { return };
    if let Some(items) = validations.get("items").and_then(Value::as_object) {
        let structure_items = structure.get("items").and_then(Value::as_object);
        check_nested_completeness(
            items,
            structure_items,
            &format!("{structure_path}.items"),
            &format!("{path}.items"),
            causes,
        );
    }
    for (name, field) in fields(validations) {
        let structure_field = fields(structure).find(|(field_name, _)| *field_name == name).map(|(_, field)| field);
        let step = format!("properties[{name}]");
        check_nested_completeness(
            field,
            structure_field,
            &format!("{structure_path}.{step}"),
            &format!("{path}.{step}"),
            causes,
        );
    }
}

fn for_each_junctor<'s>(
    schema: &'s SchemaObject,
    name: &str,
    path: &str,
    mut visit: impl FnMut(&'s SchemaObject, &str, usize),
) {
    for (index, schema) in list(schema, name).enumerate() {
        if let Some(schema) = schema.as_object() {
            visit(schema, &format!("{path}.{name}[{index}]"), index);
        }
    }
}

fn list<'s>(schema: &'s SchemaObject, name: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// Reports whether `value` decodes to a zero value in Go, which counts as unset.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(json!({"anyOf": [{"required": ["a"]}], "properties": {"a": {"type": "string"}}}), &[])]
    #[case(json!({"anyOf": [{"properties": {"a": {"minLength": 1}}}]}), &["s.properties[a]: Required value: because it is defined in s.anyOf[0].properties[a]"])]
    #[case(json!({"not": {"items": {"minLength": 1}}}), &["s.items: Required value: because it is defined in s.not.items"])]
    #[case(json!({"properties": {"a": {"type": "string", "oneOf": [{"nullable": true}]}}}), &["s.properties[a].oneOf[0].nullable: Forbidden: must be false to be structural"])]
    #[case(json!({"properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}}}}), &[])]
    fn reports_nonstructural_schemas(#[case] schema: Value, #[case] expected: &[&str]) {
        let mut schema = schema;
        schema["type"] = json!("object");
        assert!(is_supported(&schema));
        let causes: Vec<String> = check(&schema, "s").iter().map(StatusCause::to_string).collect();
        assert_eq!(causes, expected);
    }
}

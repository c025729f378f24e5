//! Whether a schema is structural: every field says its type outside of alternatives, and alternatives only narrow.
//!
//! The rules are those of `apiextensions-apiserver/pkg/apiserver/schema`.

use serde_json::{Map, Value, json};

use crate::status::Cause;

/// Where a schema stands; it is named in what is said of a missing type.
#[derive(Clone, Copy, PartialEq)]
enum Level {
    Root,
    Item,
    Field,
}

type Schema = Map<String, Value>;

/// What no structural schema may hold at all; [`super::keywords`] says so in its own words.
const UNSUPPORTED: [&str; 7] =
    ["id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"];

/// What alternatives may not say, and what is said of it.
const NOT_IN_ALTERNATIVES: [(&str, &str); 12] = [
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

const RULES: &str = "x-kubernetes-validations";

/// Whether the schema can be looked at here; one with keywords that are not supported cannot.
pub(super) fn is_readable(schema: &Value) -> bool {
    let Some(schema) = schema.as_object() else { return true };
    let unsupported = UNSUPPORTED.iter().any(|keyword| schema.get(*keyword).is_some_and(|value| !is_zero(value)));
    if unsupported || schema.get("items").is_some_and(Value::is_array) || preserves(schema) == Some(false) {
        return false;
    }
    inner(schema).all(is_readable)
}

/// Every schema inside one.
pub(super) fn inner(schema: &Schema) -> impl Iterator<Item = &Value> {
    let one = ["items", "additionalProperties", "not"].into_iter().filter_map(|name| schema.get(name));
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(|name| list(schema, name));
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    one.chain(lists).chain(fields)
}

/// What is not structural, in the order of the places.
pub(super) fn check(schema: &Value, path: &str) -> Vec<Cause> {
    let Some(schema) = schema.as_object() else { return Vec::new() };
    let mut found = Vec::new();
    invariants(schema, Level::Root, path, &mut found);
    completeness(schema, Some(schema), path, path, &mut found);
    found.sort_by_key(Cause::to_string);
    found
}

fn invariants(schema: &Schema, level: Level, path: &str, found: &mut Vec<Cause>) {
    let items = schema.get("items").and_then(Value::as_object);
    if text(schema, "type") == "array" && items.is_none() {
        found.push(Cause::required(format!("{path}.items"), "must be specified"));
    }
    if let Some(items) = items {
        invariants(items, Level::Item, &format!("{path}.items"), found);
    }
    for (name, field) in fields(schema) {
        invariants(field, Level::Field, &format!("{path}.properties[{name}]"), found);
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|value| !value.is_null()) {
        let at = format!("{path}.additionalProperties");
        if level == Level::Root {
            found.push(Cause::forbidden(at.as_str(), "must not be used at the root"));
        }
        if let Some(additional) = additional.as_object() {
            invariants(additional, Level::Field, &at, found);
        }
    }
    extensions(schema, path, found);
    let is_number_or_text =
        |schema: &Schema| schema.get("anyOf") == Some(&json!([{"type": "integer"}, {"type": "string"}]));
    let first = list(schema, "allOf").next().and_then(Value::as_object);
    let exempt = Exempt { any: is_number_or_text(schema), first: first.is_some_and(is_number_or_text) };
    limits(schema, exempt, path, found);
    types(schema, level, path, found);
    metadata(schema, level, path, found);
}

fn extensions(schema: &Schema, path: &str, found: &mut Vec<Cause>) {
    for other in ["x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"] {
        if flag(schema, "x-kubernetes-int-or-string") && flag(schema, other) {
            let hint = "must be false if x-kubernetes-int-or-string is true";
            found.push(Cause::invalid(format!("{path}.{other}"), &json!(true), hint));
        }
    }
}

fn types(schema: &Schema, level: Level, path: &str, found: &mut Vec<Cause>) {
    let (at, kind) = (format!("{path}.type"), text(schema, "type"));
    let is_embedded = flag(schema, "x-kubernetes-embedded-resource");
    let is_free = flag(schema, "x-kubernetes-int-or-string") || flag(schema, "x-kubernetes-preserve-unknown-fields");
    let embedded = "must be object if x-kubernetes-embedded-resource is true";
    if is_embedded && kind.is_empty() {
        found.push(Cause::required(at.as_str(), embedded));
    } else if is_embedded && kind != "object" {
        found.push(Cause::invalid(at.as_str(), &json!(kind), embedded));
    } else if kind.is_empty() && !is_free {
        let hint = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        found.push(Cause::required(at.as_str(), hint));
    }
    if is_embedded && schema.get("additionalProperties").is_some_and(|value| !value.is_null()) {
        let hint = "must not be used if x-kubernetes-embedded-resource is set";
        found.push(Cause::forbidden(format!("{path}.additionalProperties"), hint));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        found.push(Cause::invalid(at, &json!(kind), "must be object at the root"));
    }
    let is_filled = fields(schema).next().is_some() || flag(schema, "x-kubernetes-preserve-unknown-fields");
    if is_embedded && !is_filled {
        let hint =
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        found.push(Cause::required(format!("{path}.properties"), hint));
    }
}

/// What a whole object has beside its schema is not the schema's to say.
fn metadata(schema: &Schema, level: Level, path: &str, found: &mut Vec<Cause>) {
    if level != Level::Root && !flag(schema, "x-kubernetes-embedded-resource") {
        return;
    }
    for (name, kind) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some((_, field)) = fields(schema).find(|(field, _)| *field == name) else { continue };
        let said = text(field, "type");
        if said != kind {
            let at = format!("{path}.properties[{name}].type");
            found.push(Cause::invalid(at, &json!(said), &format!("must be {kind}")));
        }
        if name == "metadata" && level == Level::Root && !names_only(field) {
            let hint =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            found.push(Cause::forbidden(format!("{path}.properties[metadata]"), hint));
        }
    }
}

fn names_only(metadata: &Schema) -> bool {
    let is_name = |(name, _): (&String, &Schema)| name == "name" || name == "generateName";
    let rest =
        |(name, value): (&String, &Value)| is_zero(value) || matches!(name.as_str(), "type" | "default" | "properties");
    fields(metadata).all(is_name) && metadata.iter().all(rest)
}

/// Alternatives that a number or text may have although they say a type.
#[derive(Clone, Copy, Default)]
struct Exempt {
    any: bool,
    /// In the first of `allOf`.
    first: bool,
}

fn limits(schema: &Schema, exempt: Exempt, path: &str, found: &mut Vec<Cause>) {
    if !exempt.any {
        each(schema, "anyOf", path, |schema, at, _| alternative(schema, Exempt::default(), at, found));
    }
    each(schema, "allOf", path, |schema, at, index| {
        alternative(schema, Exempt { any: exempt.first && index == 0, first: false }, at, found);
    });
    each(schema, "oneOf", path, |schema, at, _| alternative(schema, Exempt::default(), at, found));
    if let Some(not) = schema.get("not").and_then(Value::as_object) {
        alternative(not, Exempt::default(), &format!("{path}.not"), found);
    }
    let pattern = text(schema, "pattern");
    if let Err(error) = regex::Regex::new(pattern) {
        let hint = format!("must be a valid regular expression, but isn't: {error}");
        found.push(Cause::invalid(format!("{path}.pattern"), &json!(pattern), &hint));
    }
}

fn alternative(schema: &Schema, exempt: Exempt, path: &str, found: &mut Vec<Cause>) {
    limits(schema, exempt, path, found);
    if let Some(items) = schema.get("items").and_then(Value::as_object) {
        alternative(items, Exempt::default(), &format!("{path}.items"), found);
    }
    for (name, field) in fields(schema) {
        alternative(field, Exempt::default(), &format!("{path}.properties[{name}]"), found);
    }
    for (keyword, hint) in NOT_IN_ALTERNATIVES.iter().chain(&[(RULES, "must be empty to be structural")]) {
        if schema.get(*keyword).is_some_and(|value| !is_zero(value)) {
            found.push(Cause::forbidden(format!("{path}.{keyword}"), hint));
        }
    }
    if fields(schema).any(|(name, _)| name == "metadata") {
        let at = format!("{path}.properties[metadata]");
        found.push(Cause::forbidden(at, "must not be specified in a nested context"));
    }
}

/// What alternatives of the root look at has to stand outside of them, too.
fn completeness(limits: &Schema, structure: Option<&Schema>, place: &str, path: &str, found: &mut Vec<Cause>) {
    if structure.is_none() {
        found.push(Cause::required(place, &format!("because it is defined in {path}")));
        return;
    }
    if let Some(not) = limits.get("not").and_then(Value::as_object) {
        completeness_within(not, structure, place, &format!("{path}.not"), found);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        each(limits, name, path, |schema, at, _| completeness_within(schema, structure, place, at, found));
    }
}

/// The same of one alternative.
fn completeness_within(limits: &Schema, structure: Option<&Schema>, place: &str, path: &str, found: &mut Vec<Cause>) {
    completeness(limits, structure, place, path, found);
    let Some(structure) = structure else { return };
    if let Some(items) = limits.get("items").and_then(Value::as_object) {
        let outside = structure.get("items").and_then(Value::as_object);
        completeness_within(items, outside, &format!("{place}.items"), &format!("{path}.items"), found);
    }
    for (name, field) in fields(limits) {
        let outside = fields(structure).find(|(outside, _)| *outside == name).map(|(_, field)| field);
        let step = format!("properties[{name}]");
        completeness_within(field, outside, &format!("{place}.{step}"), &format!("{path}.{step}"), found);
    }
}

fn each(schema: &Schema, name: &str, path: &str, mut visit: impl FnMut(&Schema, &str, usize)) {
    for (index, schema) in list(schema, name).enumerate() {
        if let Some(schema) = schema.as_object() {
            visit(schema, &format!("{path}.{name}[{index}]"), index);
        }
    }
}

fn list<'s>(schema: &'s Schema, name: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
    schema.get(name).and_then(Value::as_array).into_iter().flatten()
}

/// `properties` that are schemas.
pub(super) fn fields(schema: &Schema) -> impl Iterator<Item = (&String, &Schema)> {
    let all = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    all.filter_map(|(name, field)| Some((name, field.as_object()?)))
}

pub(super) fn text<'s>(schema: &'s Schema, keyword: &str) -> &'s str {
    schema.get(keyword).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn flag(schema: &Schema, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

pub(super) fn preserves(schema: &Schema) -> Option<bool> {
    schema.get("x-kubernetes-preserve-unknown-fields").and_then(Value::as_bool)
}

/// What Go takes for absent.
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
    fn what_is_not_structural_is_told(#[case] schema: Value, #[case] expected: &[&str]) {
        let mut schema = schema;
        schema["type"] = json!("object");
        assert!(is_readable(&schema));
        let found: Vec<String> = check(&schema, "s").iter().map(Cause::to_string).collect();
        assert_eq!(found, expected);
    }
}

//! From `openAPIV3Schema` JSON to [`Node`]s, refusing what is not structural.

use regex::Regex;
use serde_json::{Map, Value};

use super::node::{Additional, Bound, Combined, Kind, Limits, ListType, Node, Range};

type Parsed<T> = Result<T, String>;

/// Whether a node stands in the structure (and must say its type) or only adds value validations.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Structure,
    Validation,
}

pub(super) fn root(schema: &Value) -> Parsed<Node> {
    let mut node = node(schema, "", Place::Structure)?;
    if node.kind != Some(Kind::Object) {
        return Err("type: Invalid value: must be \"object\" at the root".into());
    }
    node.is_resource = true;
    Ok(node)
}

/// A schema inside another.
pub(super) fn part(schema: &Value) -> Parsed<Node> {
    node(schema, "", Place::Structure)
}

fn node(schema: &Value, path: &str, place: Place) -> Parsed<Node> {
    let map = schema.as_object().ok_or_else(|| format!("{path}: must be a schema object"))?;
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let node = Node {
        kind: kind(map, path, place)?,
        nullable: flag("nullable"),
        preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
        is_resource: flag("x-kubernetes-embedded-resource"),
        default: map.get("default").filter(|d| !d.is_null()).cloned(),
        properties: object_of(map, "properties")
            .map(|(name, child)| Ok((name.clone(), node(child, &at(path, &format!("properties[{name}]")), place)?)))
            .collect::<Parsed<_>>()?,
        additional: match map.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => Additional::Unknown,
            Some(Value::Bool(true)) => Additional::Any,
            Some(child) => Additional::Schema(Box::new(node(child, &at(path, "additionalProperties"), place)?)),
        },
        items: map.get("items").map(|child| node(child, &at(path, "items"), place).map(Box::new)).transpose()?,
        list: list_type(map),
        limits: limits(map, path)?,
        combined: combined(map, path)?,
    };
    Ok(node)
}

fn kind(map: &Map<String, Value>, path: &str, place: Place) -> Parsed<Option<Kind>> {
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    if flag("x-kubernetes-int-or-string") {
        return Ok(Some(Kind::IntOrString));
    }
    match map.get("type").and_then(Value::as_str).unwrap_or_default() {
        "" if place == Place::Validation || flag("x-kubernetes-preserve-unknown-fields") => Ok(None),
        "" => Err(format!("{}: Required value: must not be empty for specified object fields", at(path, "type"))),
        "object" => Ok(Some(Kind::Object)),
        "array" => Ok(Some(Kind::Array)),
        "string" => Ok(Some(Kind::String)),
        "integer" => Ok(Some(Kind::Integer)),
        "number" => Ok(Some(Kind::Number)),
        "boolean" => Ok(Some(Kind::Boolean)),
        other => Err(format!("{}: Unsupported value: {other:?}", at(path, "type"))),
    }
}

fn list_type(map: &Map<String, Value>) -> ListType {
    match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(map, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

fn limits(map: &Map<String, Value>, path: &str) -> Parsed<Limits> {
    let number = |key: &str| map.get(key).and_then(Value::as_f64);
    let range = |min: &str, max: &str| Range {
        min: map.get(min).and_then(Value::as_u64),
        max: map.get(max).and_then(Value::as_u64),
    };
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let bound = |key, exclusive| number(key).map(|value| Bound { value, exclusive: flag(exclusive) });
    let pattern = map.get("pattern").and_then(Value::as_str).map(|text| {
        Regex::new(text).map_err(|error| format!("{}: Invalid value: {text:?}: {error}", at(path, "pattern")))
    });
    Ok(Limits {
        required: strings(map, "required"),
        allowed: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        format: map.get("format").and_then(Value::as_str).map(str::to_owned),
        pattern: pattern.transpose()?,
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        length: range("minLength", "maxLength"),
        items: range("minItems", "maxItems"),
        properties: range("minProperties", "maxProperties"),
        unique: flag("uniqueItems"),
    })
}

fn combined(map: &Map<String, Value>, path: &str) -> Parsed<Combined> {
    let list = |key: &str| -> Parsed<Vec<Node>> {
        let nodes = map.get(key).and_then(Value::as_array).into_iter().flatten().enumerate();
        nodes.map(|(i, s)| node(s, &at(path, &format!("{key}[{i}]")), Place::Validation)).collect()
    };
    let not = map.get("not").map(|s| node(s, &at(path, "not"), Place::Validation).map(Box::new));
    Ok(Combined { all: list("allOf")?, any: list("anyOf")?, one: list("oneOf")?, not: not.transpose()? })
}

fn object_of<'a>(map: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    map.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn strings(map: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = map.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn at(path: &str, step: &str) -> String {
    super::join(path, step)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"type": "string"}), "at the root")]
    #[case(json!({"type": "object", "properties": {"spec": {}}}), "properties[spec].type: Required value")]
    #[case(json!({"type": "object", "properties": {"a": {"type": "strnig"}}}), "Unsupported value")]
    #[case(json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}), "properties[a].pattern")]
    fn refuses(#[case] schema: Value, #[case] expect: &str) {
        let error = root(&schema).unwrap_err();
        assert!(error.contains(expect), "{error}");
    }
}

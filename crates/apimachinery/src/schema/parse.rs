//! Compiles `openAPIV3Schema` JSON into [`SchemaNode`]s; rejects schemas that are not structural.

use serde_json::{Map, Value};

use super::node::{
    AdditionalProperties, CountRange, Junctors, ListType, NumericBound, SchemaNode, SchemaType, ValueValidations,
};
use super::paths::join;
use super::patterns::Patterns;

type ParseResult<T> = Result<T, String>;

/// Whether a schema is part of the structure and must specify a type, or only adds value validations.
#[derive(Clone, Copy, PartialEq)]
enum Position {
    /// Root, field, item or additional property.
    Structure,
    /// Within `allOf`, `anyOf`, `oneOf` or `not`.
    ValueValidation,
}

/// Compiles the schema at the root of an object.
pub(super) fn root(schema: &Value) -> ParseResult<SchemaNode> {
    let mut node = node(schema, "", Position::Structure, &mut Patterns::default())?;
    if node.schema_type != Some(SchemaType::Object) {
        return Err("type: Invalid value: must be \"object\" at the root".into());
    }
    node.is_resource = true;
    Ok(node)
}

/// Compiles a schema nested in another.
pub(super) fn nested(schema: &Value) -> ParseResult<SchemaNode> {
    node(schema, "", Position::Structure, &mut Patterns::default())
}

fn node<'s>(schema: &'s Value, path: &str, position: Position, patterns: &mut Patterns<'s>) -> ParseResult<SchemaNode> {
    let map = schema.as_object().ok_or_else(|| format!("{path}: must be a schema object"))?;
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let node = SchemaNode {
        schema_type: schema_type(map, path, position)?,
        nullable: flag("nullable"),
        preserve_unknown_fields: flag("x-kubernetes-preserve-unknown-fields"),
        is_resource: flag("x-kubernetes-embedded-resource"),
        default: map.get("default").filter(|d| !d.is_null()).cloned(),
        properties: object_entries(map, "properties")
            .map(|(name, child)| {
                Ok((name.clone(), node(child, &join(path, &format!("properties[{name}]")), position, patterns)?))
            })
            .collect::<ParseResult<_>>()?,
        additional: match map.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => AdditionalProperties::Unset,
            Some(Value::Bool(true)) => AdditionalProperties::Any,
            Some(child) => AdditionalProperties::Schema(Box::new(node(
                child,
                &join(path, "additionalProperties"),
                position,
                patterns,
            )?)),
        },
        items: map
            .get("items")
            .map(|child| node(child, &join(path, "items"), position, patterns).map(Box::new))
            .transpose()?,
        list_type: list_type(map),
        validations: validations(map, path, patterns)?,
        junctors: junctors(map, path, patterns)?,
    };
    Ok(node)
}

fn schema_type(map: &Map<String, Value>, path: &str, position: Position) -> ParseResult<Option<SchemaType>> {
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    if flag("x-kubernetes-int-or-string") {
        return Ok(Some(SchemaType::IntOrString));
    }
    match map.get("type").and_then(Value::as_str).unwrap_or_default() {
        "" if position == Position::ValueValidation || flag("x-kubernetes-preserve-unknown-fields") => Ok(None),
        "" => Err(format!("{}: Required value: must not be empty for specified object fields", join(path, "type"))),
        "object" => Ok(Some(SchemaType::Object)),
        "array" => Ok(Some(SchemaType::Array)),
        "string" => Ok(Some(SchemaType::String)),
        "integer" => Ok(Some(SchemaType::Integer)),
        "number" => Ok(Some(SchemaType::Number)),
        "boolean" => Ok(Some(SchemaType::Boolean)),
        unsupported => Err(format!("{}: Unsupported value: {unsupported:?}", join(path, "type"))),
    }
}

fn list_type(map: &Map<String, Value>) -> ListType {
    match map.get("x-kubernetes-list-type").and_then(Value::as_str) {
        Some("set") => ListType::Set,
        Some("map") => ListType::Map(strings(map, "x-kubernetes-list-map-keys")),
        _ => ListType::Atomic,
    }
}

fn validations<'s>(
    map: &'s Map<String, Value>,
    path: &str,
    patterns: &mut Patterns<'s>,
) -> ParseResult<ValueValidations> {
    let number = |key: &str| map.get(key).and_then(Value::as_f64);
    let range = |min: &str, max: &str| CountRange {
        min: map.get(min).and_then(Value::as_u64),
        max: map.get(max).and_then(Value::as_u64),
    };
    let flag = |key: &str| map.get(key).and_then(Value::as_bool).unwrap_or(false);
    let bound = |key, exclusive| number(key).map(|value| NumericBound { value, exclusive: flag(exclusive) });
    let pattern = map.get("pattern").and_then(Value::as_str).map(|text| {
        patterns.compile(text).map_err(|error| format!("{}: Invalid value: {text:?}: {error}", join(path, "pattern")))
    });
    Ok(ValueValidations {
        required: strings(map, "required"),
        enum_values: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
        format: map.get("format").and_then(Value::as_str).map(str::to_owned),
        pattern: pattern.transpose()?,
        minimum: bound("minimum", "exclusiveMinimum"),
        maximum: bound("maximum", "exclusiveMaximum"),
        multiple_of: number("multipleOf"),
        length: range("minLength", "maxLength"),
        items: range("minItems", "maxItems"),
        properties: range("minProperties", "maxProperties"),
        unique_items: flag("uniqueItems"),
    })
}

fn junctors<'s>(map: &'s Map<String, Value>, path: &str, patterns: &mut Patterns<'s>) -> ParseResult<Junctors> {
    let mut list = |key: &str| -> ParseResult<Vec<SchemaNode>> {
        let nodes = map.get(key).and_then(Value::as_array).into_iter().flatten().enumerate();
        nodes
            .map(|(index, schema)| {
                node(schema, &join(path, &format!("{key}[{index}]")), Position::ValueValidation, patterns)
            })
            .collect()
    };
    let (all_of, any_of, one_of) = (list("allOf")?, list("anyOf")?, list("oneOf")?);
    let not = map
        .get("not")
        .map(|schema| node(schema, &join(path, "not"), Position::ValueValidation, patterns).map(Box::new))
        .transpose()?;
    Ok(Junctors { all_of, any_of, one_of, not })
}

fn object_entries<'a>(map: &'a Map<String, Value>, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    map.get(key).and_then(Value::as_object).into_iter().flatten()
}

fn strings(map: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = map.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
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
    fn rejects_nonstructural_schemas(#[case] schema: Value, #[case] expect: &str) {
        let error = root(&schema).unwrap_err();
        assert!(error.contains(expect), "{error}");
    }
}

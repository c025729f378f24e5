//! Typing errors of an applied configuration, with the messages of server-side apply: undeclared fields, values of the
//! wrong type, and list elements without a unique key. Value validations run later.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::node::{AdditionalProperties, SchemaNode, SchemaType};
use super::openapi::OBJECT_FIELDS;
use crate::apply::list_element_path;
use crate::go;
use crate::merge_schema::{MergeSchema, MergeStrategy};

/// Which parts of an applied configuration are checked against the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeCheck {
    /// Field names only; the caller checks the types of the values.
    FieldNames,
    /// Field names and types.
    FieldTypes,
}

struct TypeChecker {
    check: TypeCheck,
    errors: BTreeSet<String>,
}

/// Returns the typing errors of `value`, each prefixed with its path.
pub(super) fn errors(
    node: &SchemaNode,
    merge_schema: &MergeSchema,
    value: &Value,
    check: TypeCheck,
) -> BTreeSet<String> {
    let mut checker = TypeChecker { check, errors: BTreeSet::new() };
    checker.value(node, merge_schema, value, "", false);
    checker.errors
}

// === impl TypeChecker ===

impl TypeChecker {
    /// Checks `value`; `open` is set below a schema that preserves unknown fields.
    fn value(&mut self, node: &SchemaNode, merge_schema: &MergeSchema, value: &Value, path: &str, open: bool) {
        let open = open || node.preserve_unknown_fields;
        match (value, node.schema_type) {
            (Value::Null, _) => {}
            (Value::Object(object), None | Some(SchemaType::Object)) => {
                self.fields(node, merge_schema, object, path, open);
            }
            (Value::Array(items), None | Some(SchemaType::Array)) => self.items(node, merge_schema, items, path, open),
            (value, Some(schema_type)) if self.check == TypeCheck::FieldTypes => {
                let is_text = matches!(node.validations.format.as_deref(), None | Some("byte"));
                self.errors.extend(type_error(schema_type, is_text, value).map(|error| format!("{path}: {error}")));
            }
            _ => {}
        }
    }

    fn fields(
        &mut self,
        node: &SchemaNode,
        merge_schema: &MergeSchema,
        object: &Map<String, Value>,
        path: &str,
        open: bool,
    ) {
        for (name, value) in object {
            if node.is_resource && OBJECT_FIELDS.contains(&name.as_str()) {
                continue;
            }
            let path = format!("{path}.{name}");
            match (node.properties.get(name), &node.additional) {
                (Some(child), _) => self.value(child, merge_schema.field(name), value, &path, open),
                (None, AdditionalProperties::Schema(child)) => {
                    self.value(child, merge_schema.field(name), value, &path, open);
                }
                // An object without properties accepts any field.
                (None, AdditionalProperties::Unset) if !open && !node.properties.is_empty() => {
                    self.errors.insert(format!("{path}: field not declared in schema"));
                }
                (None, _) => {}
            }
        }
    }

    fn items(&mut self, node: &SchemaNode, merge_schema: &MergeSchema, items: &[Value], path: &str, open: bool) {
        let is_associative = matches!(merge_schema.merge, MergeStrategy::Set | MergeStrategy::Map(_));
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let step = match list_element_path(merge_schema, index, item) {
                Err(error) => {
                    // As in structured-merge-diff, an element without a key ends the check of the list.
                    self.errors.insert(format!("{path}: {error}"));
                    return;
                }
                Ok(step) if is_associative => step,
                Ok(_) => format!("[{index}]"),
            };
            if is_associative && !seen.insert(step.clone()) {
                self.errors.insert(format!("{path}: duplicate entries for key {step}"));
            }
            if let Some(child) = &node.items {
                self.value(child, merge_schema.item(), item, &format!("{path}{step}"), open);
            }
        }
    }
}

/// Returns the error of a value that is not of type `schema_type`. A string with a format accepts any scalar.
fn type_error(schema_type: SchemaType, is_text: bool, value: &Value) -> Option<String> {
    let is_scalar = !value.is_array() && !value.is_object();
    let formatted = || format!("&{{{}}}", go::go_format_value(value));
    match schema_type {
        SchemaType::Object => Some(format!("expected map, got {}", formatted())),
        SchemaType::Array => Some(format!("expected list, got {}", formatted())),
        SchemaType::String if value.is_string() || is_scalar && !is_text => None,
        SchemaType::String if !is_text => Some(format!("expected any scalar, got {}", formatted())),
        SchemaType::String => {
            Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go::go_format_syntax(value)))
        }
        SchemaType::Integer | SchemaType::Number if value.is_number() => None,
        SchemaType::Integer | SchemaType::Number => {
            Some(format!("expected numeric (int or float), got {}", go::go_type_name(value)))
        }
        SchemaType::Boolean if value.is_boolean() => None,
        SchemaType::Boolean => Some(format!("expected boolean, got {}", formatted())),
        SchemaType::IntOrString => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::merge_schema::openapi_merge_schema;
    use crate::schema::Schema;

    #[test]
    fn reports_all_typing_errors() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "ratio": {"type": "number"},
            "when": {"type": "string", "format": "date-time"},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "properties": {"id": {"type": "string"}}}},
        }}}});
        let applied = json!({"apiVersion": "x/v1", "metadata": {"any": 1}, "spec": {
            "extra": 1, "free": [1], "ratio": "1", "when": 7, "tags": ["a", "a", 1],
            "parts": [{"id": "x", "extra": 1}, {}, {"other": 1}]}});
        let merge_schema = openapi_merge_schema(&schema);
        let errors = Schema::from_json(&schema).unwrap().typing_errors(&merge_schema, &applied, TypeCheck::FieldTypes);
        assert_eq!(
            errors.into_iter().collect::<Vec<_>>(),
            [
                ".spec.extra: field not declared in schema",
                ".spec.free: expected map, got &{[1]}",
                ".spec.parts: element 1: associative list with keys has an element that omits all key fields [\"id\"] (and doesn't have default values for any key fields)",
                ".spec.parts[id=\"x\"].extra: field not declared in schema",
                ".spec.ratio: expected numeric (int or float), got string",
                ".spec.tags: duplicate entries for key [=\"a\"]",
                ".spec.tags[=1]: expected string, got &value.valueUnstructured{Value:1}",
            ]
        );
    }
}

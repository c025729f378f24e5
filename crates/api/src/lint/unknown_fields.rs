//! Fields that the schema of a kind does not specify.

use serde_json::Value;

use super::finding::Finding;
use super::nearest_name::nearest_name;
use super::truncate::abbreviate;
use crate::crds::KindSchema;
use crate::manifest::Document;

const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// How a schema specifies a field.
enum FieldSchema<'a> {
    /// Specified by this schema.
    Known(&'a Value),
    /// Not specified, but preserved.
    Preserved,
    /// Neither specified nor preserved.
    Unknown,
}

/// Warns about fields that the schema does not specify, which the API server drops.
pub(super) fn check(schema: &KindSchema, document: &Document) -> Vec<Finding> {
    let mut findings = Vec::new();
    visit(schema.json, &document.value, "", &mut findings);
    findings
}

fn visit(schema: &Value, value: &Value, path: &str, findings: &mut Vec<Finding>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name_in_path = abbreviate(name);
                let field_path = if path.is_empty() { name_in_path } else { format!("{path}.{name_in_path}") };
                // Schemas specify at most `metadata.name`, but metadata has more fields.
                if path.is_empty() && OBJECT_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                match field_schema(schema, name) {
                    FieldSchema::Known(schema) => visit(schema, field, &field_path, findings),
                    FieldSchema::Preserved => {}
                    FieldSchema::Unknown => findings.push(unknown_field(schema, name, field_path)),
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return };
            for (index, item) in items.iter().enumerate() {
                visit(schema, item, &format!("{path}[{index}]"), findings);
            }
        }
        _ => {}
    }
}

fn field_schema<'a>(schema: &'a Value, name: &str) -> FieldSchema<'a> {
    if let Some(known) = schema.get("properties").and_then(|properties| properties.get(name)) {
        return FieldSchema::Known(known);
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|value| value.is_object()) {
        return FieldSchema::Known(additional);
    }
    // Only objects have fields; a value of the wrong type is a separate finding.
    let is_closed = schema.get("type").is_some_and(|value| value == "object") && !preserves_unknown_fields(schema);
    if is_closed { FieldSchema::Unknown } else { FieldSchema::Preserved }
}

fn preserves_unknown_fields(schema: &Value) -> bool {
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
    flag("x-kubernetes-preserve-unknown-fields") || flag("additionalProperties") || schema.get("properties").is_none()
}

fn unknown_field(schema: &Value, name: &str, path: String) -> Finding {
    let known = schema.get("properties").and_then(Value::as_object);
    let nearest = known.and_then(|known| nearest_name(name, known.keys().map(String::as_str)));
    let finding = Finding::warning(path, format!("unknown field `{}`; the API server drops it", abbreviate(name)));
    match nearest {
        Some(nearest) => finding.with_hint(format!("did you mean `{nearest}`?")),
        None => finding,
    }
}

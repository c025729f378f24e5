//! Validation of a version of a definition: name, schema, subresources, printer columns and selectable fields.

use std::collections::BTreeSet;

use apimachinery::{StatusCause, field_type_at, object, validate_openapi_schema};
use serde_json::{Value, json};

use super::shared_fields::{SharedFields, schema_of};
use crate::write::validate::names::{LABEL_1035_MESSAGE, is_label_1035};

const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
/// Maximum number of selectable fields of a version.
const MAX_SELECTABLE_FIELDS: usize = 8;

/// Validates the name and the deprecation warning of a version.
pub(super) fn version_causes(version: &Value, field_path: &str, causes: &mut Vec<StatusCause>) {
    let name = object::text(version, "/name");
    if !is_label_1035(name) {
        causes.push(StatusCause::invalid(format!("{field_path}.name"), &json!(name), LABEL_1035_MESSAGE));
    }
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    let field = || format!("{field_path}.deprecationWarning");
    if version["deprecated"] != true {
        causes.push(StatusCause::invalid(field(), &json!(warning), "can only be set for deprecated versions"));
        return;
    }
    if warning.len() > 256 {
        causes.push(StatusCause::invalid(field(), &json!(warning), "must be <= 256 characters long"));
    }
    if warning.is_empty() {
        causes.push(StatusCause::invalid(field(), &json!(warning), "must not be an empty string"));
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, letter)| letter.is_control()) {
        let hint =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {index}");
        causes.push(StatusCause::invalid(field(), &json!(warning), &hint));
    }
}

/// Validates those fields of a version whose flag in `selected` is set: either the fields that differ between versions
/// or those that all versions share.
pub(super) fn field_causes(version: &Value, selected: SharedFields, field_path: &str, causes: &mut Vec<StatusCause>) {
    let schema = schema_of(version);
    if let (Some(schema), true) = (schema, selected.schema) {
        let name = if field_path == "spec" { "validation" } else { "schema" };
        causes.extend(validate_openapi_schema(schema, &format!("{field_path}.{name}.openAPIV3Schema")));
    }
    if let (Some(scale), true) = (version.pointer("/subresources/scale"), selected.subresources) {
        self::scale_causes(scale, &format!("{field_path}.subresources.scale"), causes);
    }
    let items = |part: &str| version.get(part).and_then(Value::as_array).into_iter().flatten();
    for (index, column) in items("additionalPrinterColumns").enumerate().filter(|_| selected.columns) {
        self::column_causes(column, &format!("{field_path}.additionalPrinterColumns[{index}]"), causes);
    }
    if selected.selectable {
        let fields: Vec<&str> = items("selectableFields").map(|field| object::text(field, "/jsonPath")).collect();
        selectable_field_causes(
            &fields,
            schema.unwrap_or(&Value::Null),
            &format!("{field_path}.selectableFields"),
            causes,
        );
    }
}

fn scale_causes(scale: &Value, field_path: &str, causes: &mut Vec<StatusCause>) {
    for (name, roots, hint) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let (field, path) = (format!("{field_path}.{name}"), object::text(scale, &format!("/{name}")));
        if path.is_empty() {
            if name != "labelSelectorPath" {
                causes.push(StatusCause::required(field, ""));
            }
        } else if !path.starts_with('.') {
            causes.push(StatusCause::invalid(field, &json!(path), "must be a simple json path starting with ."));
        } else if !roots.iter().any(|root| path.starts_with(root)) {
            causes.push(StatusCause::invalid(field, &json!(path), hint));
        }
    }
}

fn column_causes(column: &Value, field_path: &str, causes: &mut Vec<StatusCause>) {
    let text = |field: &str| object::text(column, &format!("/{field}"));
    let is_listed = |known: &str, value: &str| known.split(',').any(|known| known == value);
    if text("name").is_empty() {
        causes.push(StatusCause::required(format!("{field_path}.name"), ""));
    }
    let (kind, hint) = (text("type"), format!("must be one of {COLUMN_TYPES}"));
    if kind.is_empty() {
        causes.push(StatusCause::required(format!("{field_path}.type"), &hint));
    } else if !is_listed(COLUMN_TYPES, kind) {
        causes.push(StatusCause::invalid(format!("{field_path}.type"), &json!(kind), &hint));
    }
    let format = text("format");
    if !format.is_empty() && !is_listed(COLUMN_FORMATS, format) {
        let hint = format!("must be one of {COLUMN_FORMATS}");
        causes.push(StatusCause::invalid(format!("{field_path}.format"), &json!(format), &hint));
    }
    let path = text("jsonPath");
    if path.is_empty() {
        causes.push(StatusCause::required(format!("{field_path}.JSONPath"), ""));
    } else if !path.starts_with('.') {
        let hint = "must be a simple json path starting with .";
        causes.push(StatusCause::invalid(format!("{field_path}.JSONPath"), &json!(path), hint));
    }
}

fn selectable_field_causes(paths: &[&str], schema: &Value, field_path: &str, causes: &mut Vec<StatusCause>) {
    let mut seen = BTreeSet::new();
    for (index, path) in paths.iter().enumerate() {
        let field = format!("{field_path}[{index}].jsonPath");
        if path.is_empty() {
            causes.push(StatusCause::required(field, ""));
            continue;
        }
        match field_type_at(schema, path) {
            Err(error) => {
                causes.push(StatusCause::invalid(field, &json!(path), &format!("is an invalid path: {error}")));
                continue;
            }
            Ok(kind) if !matches!(kind, "string" | "boolean" | "integer") => {
                let hint = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                causes.push(StatusCause::invalid(field.as_str(), &json!(path), hint));
            }
            Ok(_) if path.starts_with(".metadata.") => {
                let hint = "must not point to fields in metadata";
                causes.push(StatusCause::invalid(field.as_str(), &json!(path), hint));
            }
            Ok(_) => {}
        }
        if !seen.insert(path) {
            causes.push(StatusCause::duplicate(field, &json!(path)));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        let message = format!("Too many: {}: must have at most {MAX_SELECTABLE_FIELDS} items", seen.len());
        causes.push(StatusCause::new(field_path, "FieldValueTooMany", message));
    }
}

//! What one version of a definition says: its name, its schema, its subresources, columns and selectable fields.

use std::collections::BTreeSet;

use apimachinery::schema;
use apimachinery::status::Cause;
use serde_json::{Value, json};

use super::common::{Common, schema_of};
use crate::object;
use crate::write::validate::names::{LABEL_1035, is_label_1035};

const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
/// Selectable fields of one version.
const MOST_FIELDS: usize = 8;

/// What a version says of itself.
pub(super) fn own(version: &Value, at: &str, found: &mut Vec<Cause>) {
    let name = object::text(version, "/name");
    if !is_label_1035(name) {
        found.push(Cause::invalid(format!("{at}.name"), &json!(name), LABEL_1035));
    }
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    let field = || format!("{at}.deprecationWarning");
    if version["deprecated"] != true {
        found.push(Cause::invalid(field(), &json!(warning), "can only be set for deprecated versions"));
        return;
    }
    if warning.len() > 256 {
        found.push(Cause::invalid(field(), &json!(warning), "must be <= 256 characters long"));
    }
    if warning.is_empty() {
        found.push(Cause::invalid(field(), &json!(warning), "must not be an empty string"));
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, letter)| letter.is_control()) {
        let hint =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {index}");
        found.push(Cause::invalid(field(), &json!(warning), &hint));
    }
}

/// The parts of a version that are looked at here: its own, or those that it has in common with all.
pub(super) fn parts(version: &Value, which: Common, at: &str, found: &mut Vec<Cause>) {
    let schema = schema_of(version);
    if let (Some(schema), true) = (schema, which.schema) {
        let name = if at == "spec" { "validation" } else { "schema" };
        found.extend(schema::problems(schema, &format!("{at}.{name}.openAPIV3Schema")));
    }
    if let (Some(scale), true) = (version.pointer("/subresources/scale"), which.subresources) {
        self::scale(scale, &format!("{at}.subresources.scale"), found);
    }
    let list = |part: &str| version.get(part).and_then(Value::as_array).into_iter().flatten();
    for (index, column) in list("additionalPrinterColumns").enumerate().filter(|_| which.columns) {
        self::column(column, &format!("{at}.additionalPrinterColumns[{index}]"), found);
    }
    if which.selectable {
        let fields: Vec<&str> = list("selectableFields").map(|field| object::text(field, "/jsonPath")).collect();
        selectable(&fields, schema.unwrap_or(&Value::Null), &format!("{at}.selectableFields"), found);
    }
}

fn scale(scale: &Value, at: &str, found: &mut Vec<Cause>) {
    for (name, roots, hint) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let (field, path) = (format!("{at}.{name}"), object::text(scale, &format!("/{name}")));
        if path.is_empty() {
            if name != "labelSelectorPath" {
                found.push(Cause::required(field, ""));
            }
        } else if !path.starts_with('.') {
            found.push(Cause::invalid(field, &json!(path), "must be a simple json path starting with ."));
        } else if !roots.iter().any(|root| path.starts_with(root)) {
            found.push(Cause::invalid(field, &json!(path), hint));
        }
    }
}

fn column(column: &Value, at: &str, found: &mut Vec<Cause>) {
    let text = |field: &str| object::text(column, &format!("/{field}"));
    let known = |known: &str, given: &str| known.split(',').any(|known| known == given);
    if text("name").is_empty() {
        found.push(Cause::required(format!("{at}.name"), ""));
    }
    let (kind, hint) = (text("type"), format!("must be one of {COLUMN_TYPES}"));
    if kind.is_empty() {
        found.push(Cause::required(format!("{at}.type"), &hint));
    } else if !known(COLUMN_TYPES, kind) {
        found.push(Cause::invalid(format!("{at}.type"), &json!(kind), &hint));
    }
    let format = text("format");
    if !format.is_empty() && !known(COLUMN_FORMATS, format) {
        let hint = format!("must be one of {COLUMN_FORMATS}");
        found.push(Cause::invalid(format!("{at}.format"), &json!(format), &hint));
    }
    let path = text("jsonPath");
    if path.is_empty() {
        found.push(Cause::required(format!("{at}.JSONPath"), ""));
    } else if !path.starts_with('.') {
        let hint = "must be a simple json path starting with .";
        found.push(Cause::invalid(format!("{at}.JSONPath"), &json!(path), hint));
    }
}

fn selectable(paths: &[&str], schema: &Value, at: &str, found: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, path) in paths.iter().enumerate() {
        let field = format!("{at}[{index}].jsonPath");
        if path.is_empty() {
            found.push(Cause::required(field, ""));
            continue;
        }
        match schema::kind_at(schema, path) {
            Err(why) => {
                found.push(Cause::invalid(field, &json!(path), &format!("is an invalid path: {why}")));
                continue;
            }
            Ok(kind) if !matches!(kind, "string" | "boolean" | "integer") => {
                let hint = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                found.push(Cause::invalid(field.as_str(), &json!(path), hint));
            }
            Ok(_) if path.starts_with(".metadata.") => {
                let hint = "must not point to fields in metadata";
                found.push(Cause::invalid(field.as_str(), &json!(path), hint));
            }
            Ok(_) => {}
        }
        if !seen.insert(path) {
            found.push(Cause::duplicate(field, &json!(path)));
        }
    }
    if seen.len() > MOST_FIELDS {
        let message = format!("Too many: {}: must have at most {MOST_FIELDS} items", seen.len());
        found.push(Cause::new(at, "FieldValueTooMany", message));
    }
}

//! Parts of CRDs: schemas and printer columns.

use serde_json::{Value, json};

/// Returns the schema of an object with any fields.
pub(super) fn open_object() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns the schema of a string that is one of `values`.
pub(super) fn enum_schema(values: &[&str], default: Option<&str>) -> Value {
    let mut schema = json!({"type": "string", "enum": values});
    if let Some(default) = default {
        schema["default"] = json!(default);
    }
    schema
}

/// Returns an entry of `additionalPrinterColumns`.
pub(super) fn printer_column(name: &str, column_type: &str, path: &str) -> Value {
    json!({"name": name, "type": column_type, "jsonPath": path})
}

/// Returns the schema of a resource with this spec and a status with any fields.
pub(super) fn resource_schema(spec: &Value) -> Value {
    json!({"type": "object", "required": ["spec"], "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": spec,
        "status": open_object(),
    }})
}

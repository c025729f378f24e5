//! Detection of fields that all versions of a definition share, and validation of the list of versions.

use apimachinery::{StatusCause, go_format_struct, object};
use serde_json::{Value, json};

use crate::resources::definition::versions;
use crate::write::validate::names::{LABEL_1035_MESSAGE, is_label_1035};

/// Flags for the fields that have the same value in all versions of a definition. kube-apiserver reports errors in
/// these fields at the top level.
#[derive(Clone, Copy)]
pub(super) struct SharedFields {
    pub(super) schema: bool,
    pub(super) subresources: bool,
    pub(super) columns: bool,
    pub(super) selectable: bool,
}

// === impl SharedFields ===

impl SharedFields {
    pub(super) fn new(definition: &Value) -> Self {
        let is_shared = |field: &str| {
            let mut values = versions(definition).map(|version| version.get(field).filter(|value| !value.is_null()));
            values.next().flatten().is_some_and(|first| values.all(|other| other == Some(first)))
        };
        Self {
            schema: is_shared("schema"),
            subresources: is_shared("subresources"),
            columns: is_shared("additionalPrinterColumns"),
            selectable: is_shared("selectableFields"),
        }
    }

    pub(super) fn inverted(self) -> Self {
        Self {
            schema: !self.schema,
            subresources: !self.subresources,
            columns: !self.columns,
            selectable: !self.selectable,
        }
    }
}

pub(super) fn schema_of(version: &Value) -> Option<&Value> {
    version.pointer("/schema/openAPIV3Schema").filter(|schema| !schema.is_null())
}

pub(super) fn version_list_causes(definition: &Value, shared: &SharedFields, causes: &mut Vec<StatusCause>) {
    let names: Vec<&str> = versions(definition).map(|version| object::text(version, "/name")).collect();
    let mut unique = names.clone();
    unique.sort_unstable();
    unique.dedup();
    if unique.len() != names.len() {
        let hint = "must contain unique version names";
        causes.push(StatusCause::invalid_json("spec.versions", &format_versions(definition, shared), hint));
    }
    if versions(definition).filter(|version| version["storage"] == true).count() != 1 {
        let hint = "must have exactly one version marked as storage version";
        causes.push(StatusCause::invalid_json("spec.versions", &format_versions(definition, shared), hint));
    }
    if let Some(first) = names.first().filter(|first| !is_label_1035(first)) {
        causes.push(StatusCause::invalid("spec.version", &json!(first), LABEL_1035_MESSAGE));
    }
}

/// Formats the list of versions as Go formats the structs.
fn format_versions(definition: &Value, shared: &SharedFields) -> String {
    let formatted = versions(definition).map(|version| {
        let flag = |field: &str| json!(version[field] == true);
        let value_unless_shared =
            |field: &str, is_shared: bool| if is_shared { Value::Null } else { version[field].clone() };
        go_format_struct(&[
            ("Name", version["name"].clone()),
            ("Served", flag("served")),
            ("Storage", flag("storage")),
            ("Deprecated", flag("deprecated")),
            ("DeprecationWarning", version["deprecationWarning"].clone()),
            ("Schema", value_unless_shared("schema", shared.schema)),
            ("Subresources", value_unless_shared("subresources", shared.subresources)),
            ("AdditionalPrinterColumns", value_unless_shared("additionalPrinterColumns", shared.columns)),
            ("SelectableFields", value_unless_shared("selectableFields", shared.selectable)),
        ])
    });
    format!("[{}]", formatted.collect::<Vec<_>>().join(","))
}

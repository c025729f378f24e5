//! What all versions of a definition have in common, and what they are together.

use apimachinery::go;
use apimachinery::status::Cause;
use serde_json::{Value, json};

use super::super::versions;
use crate::object;
use crate::write::validate::names::{LABEL_1035, is_label_1035};

/// Which parts all versions have in common.
#[derive(Clone, Copy)]
pub(super) struct Common {
    pub(super) schema: bool,
    pub(super) subresources: bool,
    pub(super) columns: bool,
    pub(super) selectable: bool,
}

// === impl Common ===

impl Common {
    pub(super) fn of(definition: &Value) -> Self {
        let is_same = |part: &str| {
            let mut all = versions(definition).map(|version| version.get(part).filter(|part| !part.is_null()));
            all.next().flatten().is_some_and(|first| all.all(|other| other == Some(first)))
        };
        Self {
            schema: is_same("schema"),
            subresources: is_same("subresources"),
            columns: is_same("additionalPrinterColumns"),
            selectable: is_same("selectableFields"),
        }
    }

    pub(super) fn negated(self) -> Self {
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

pub(super) fn together(definition: &Value, common: &Common, found: &mut Vec<Cause>) {
    let names: Vec<&str> = versions(definition).map(|version| object::text(version, "/name")).collect();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    if once.len() != names.len() {
        let hint = "must contain unique version names";
        found.push(Cause::invalid_text("spec.versions", &shown(definition, common), hint));
    }
    if versions(definition).filter(|version| version["storage"] == true).count() != 1 {
        let hint = "must have exactly one version marked as storage version";
        found.push(Cause::invalid_text("spec.versions", &shown(definition, common), hint));
    }
    if let Some(first) = names.first().filter(|first| !is_label_1035(first)) {
        found.push(Cause::invalid("spec.version", &json!(first), LABEL_1035));
    }
}

/// The versions as Go's structs of them are written.
fn shown(definition: &Value, common: &Common) -> String {
    let shown = versions(definition).map(|version| {
        let flag = |field: &str| json!(version[field] == true);
        let own = |field: &str, is_common: bool| if is_common { Value::Null } else { version[field].clone() };
        go::record(&[
            ("Name", version["name"].clone()),
            ("Served", flag("served")),
            ("Storage", flag("storage")),
            ("Deprecated", flag("deprecated")),
            ("DeprecationWarning", version["deprecationWarning"].clone()),
            ("Schema", own("schema", common.schema)),
            ("Subresources", own("subresources", common.subresources)),
            ("AdditionalPrinterColumns", own("additionalPrinterColumns", common.columns)),
            ("SelectableFields", own("selectableFields", common.selectable)),
        ])
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}

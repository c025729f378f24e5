//! What patches need to know of a type.

use serde_json::Value;

/// How lists and maps of a type merge.
#[derive(Clone, Debug, Default)]
pub struct Structure {}

impl Structure {
    /// From an `openAPIV3Schema`.
    pub fn from_schema(_schema: &Value) -> Self {
        Self {}
    }

    /// Of a kind of core, apps, …; `group` is empty for core.
    pub fn builtin(_group: &str, _kind: &str) -> Self {
        Self {}
    }
}

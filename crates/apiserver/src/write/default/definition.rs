//! Defaults of custom resource definitions.

use apimachinery::object;
use serde_json::{Value, json};

/// Applies the defaults of a definition.
pub(super) fn definition_defaults(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").map(object::members) else { return };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let Some(names) = spec.get_mut("names").map(object::members) else { return };
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.is_empty() {
        return;
    }
    names.entry("singular").or_insert_with(|| json!(kind.to_lowercase()));
    names.entry("listKind").or_insert_with(|| json!(format!("{kind}List")));
}

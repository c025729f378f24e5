//! PriorityClasses: values that people may give, and that nothing of them changes.

use apimachinery::status::Cause;
use serde_json::{Value, json};

use crate::object;
use crate::write::admit::priority::{HIGHEST, PREEMPT, system_classes};

/// Classes with this prefix are the system's.
const SYSTEM_PREFIX: &str = "system-";

/// What may not stand in a PriorityClass.
pub(super) fn causes(class: &Value) -> Vec<Cause> {
    let (name, value) = (object::name(class), class.get("value").and_then(Value::as_i64).unwrap_or(0));
    let known = system_classes().into_iter().find(|known| object::name(known) == name);
    let mut causes = Vec::new();
    if name.starts_with(SYSTEM_PREFIX) && known.is_none_or(|known| known["value"] != json!(value)) {
        let hint = "priority class names with 'system-' prefix are reserved for system use only";
        causes.push(Cause::forbidden("metadata.name", hint));
    } else if value > HIGHEST && !name.starts_with(SYSTEM_PREFIX) {
        let hint = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        causes.push(Cause::forbidden("value", &hint));
    }
    causes
}

/// What may not change in a PriorityClass.
pub(super) fn changed(current: &Value, class: &Value) -> Vec<Cause> {
    let fields = [("value", "may not be changed in an update."), ("preemptionPolicy", "field is immutable")];
    let of = |object: &Value, field: &str| object.get(field).cloned().unwrap_or_else(|| default(field));
    let changed = fields.into_iter().filter(|(field, _)| of(current, field) != of(class, field));
    changed
        .map(|(field, hint)| match field {
            "value" => Cause::forbidden(field, hint),
            _ => Cause::invalid(field, &of(class, field), hint),
        })
        .collect()
}

fn default(field: &str) -> Value {
    if field == "value" { json!(0) } else { json!(PREEMPT) }
}

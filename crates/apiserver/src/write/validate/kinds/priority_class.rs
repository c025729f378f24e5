//! Validation of PriorityClasses.

use apimachinery::{StatusCause, object};
use serde_json::{Value, json};

use crate::write::priority_class::{HIGHEST_USER_PRIORITY, PREEMPT_LOWER_PRIORITY, system_classes};

/// Name prefix of system classes.
const SYSTEM_PREFIX: &str = "system-";

/// Validates a PriorityClass.
pub(super) fn causes(class: &Value) -> Vec<StatusCause> {
    let (name, value) = (object::name(class), class.get("value").and_then(Value::as_i64).unwrap_or(0));
    let system_class = system_classes().into_iter().find(|known| object::name(known) == name);
    let mut causes = Vec::new();
    if name.starts_with(SYSTEM_PREFIX) && system_class.is_none_or(|known| known["value"] != json!(value)) {
        let hint = "priority class names with 'system-' prefix are reserved for system use only";
        causes.push(StatusCause::forbidden("metadata.name", hint));
    } else if value > HIGHEST_USER_PRIORITY && !name.starts_with(SYSTEM_PREFIX) {
        let hint = format!("maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}");
        causes.push(StatusCause::forbidden("value", &hint));
    }
    causes
}

/// Validates that the immutable fields of a PriorityClass are unchanged.
pub(super) fn update_causes(current: &Value, class: &Value) -> Vec<StatusCause> {
    let fields = [("value", "may not be changed in an update."), ("preemptionPolicy", "field is immutable")];
    let field_of = |object: &Value, field: &str| object.get(field).cloned().unwrap_or_else(|| default_value(field));
    let changed = fields.into_iter().filter(|(field, _)| field_of(current, field) != field_of(class, field));
    changed
        .map(|(field, hint)| match field {
            "value" => StatusCause::forbidden(field, hint),
            _ => StatusCause::invalid(field, &field_of(class, field), hint),
        })
        .collect()
}

fn default_value(field: &str) -> Value {
    if field == "value" { json!(0) } else { json!(PREEMPT_LOWER_PRIORITY) }
}

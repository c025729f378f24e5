//! Validation of `spec.names`.

use apimachinery::{StatusCause, object};
use serde_json::{Value, json};

use crate::write::validate::names::{LABEL_1035_MESSAGE, is_label_1035};

pub(super) fn required_causes(definition: &Value, causes: &mut Vec<StatusCause>) {
    for name in ["plural", "singular", "kind", "listKind"] {
        if object::text(definition, &format!("/spec/names/{name}")).is_empty() {
            causes.push(StatusCause::required(format!("spec.names.{name}"), ""));
        }
    }
}

pub(super) fn format_causes(definition: &Value, causes: &mut Vec<StatusCause>) {
    let text = |name: &str| object::text(definition, &format!("/spec/names/{name}"));
    for (name, allows_mixed_case) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let (field, value) = (format!("spec.names.{name}"), text(name));
        if value.is_empty() {
            continue;
        }
        if allows_mixed_case && !is_label_1035(&value.to_lowercase()) {
            let hint = format!("may have mixed case, but should otherwise match: {LABEL_1035_MESSAGE}");
            causes.push(StatusCause::invalid(field, &json!(value), &hint));
        } else if !allows_mixed_case && !is_label_1035(value) {
            causes.push(StatusCause::invalid(field, &json!(value), LABEL_1035_MESSAGE));
        }
    }
    let names = |name: &str| object::strings(definition.pointer(&format!("/spec/names/{name}")));
    let check_list = |name: &str, causes: &mut Vec<StatusCause>| {
        for (index, value) in names(name).into_iter().enumerate().filter(|(_, value)| !is_label_1035(value)) {
            causes.push(StatusCause::invalid(format!("spec.names.{name}[{index}]"), &json!(value), LABEL_1035_MESSAGE));
        }
    };
    check_list("shortNames", causes);
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let hint = "kind and listKind may not be the same";
        causes.push(StatusCause::invalid("spec.names.listKind", &json!(text("listKind")), hint));
    }
    check_list("categories", causes);
}

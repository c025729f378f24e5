//! The names of the objects of a definition.

use apimachinery::status::Cause;
use serde_json::{Value, json};

use crate::object;
use crate::write::validate::names::{LABEL_1035, is_label_1035};

pub(super) fn required(definition: &Value, found: &mut Vec<Cause>) {
    for name in ["plural", "singular", "kind", "listKind"] {
        if object::text(definition, &format!("/spec/names/{name}")).is_empty() {
            found.push(Cause::required(format!("spec.names.{name}"), ""));
        }
    }
}

pub(super) fn well_formed(definition: &Value, found: &mut Vec<Cause>) {
    let text = |name: &str| object::text(definition, &format!("/spec/names/{name}"));
    for (name, is_mixed) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let (at, given) = (format!("spec.names.{name}"), text(name));
        if given.is_empty() {
            continue;
        }
        if is_mixed && !is_label_1035(&given.to_lowercase()) {
            let hint = format!("may have mixed case, but should otherwise match: {LABEL_1035}");
            found.push(Cause::invalid(at, &json!(given), &hint));
        } else if !is_mixed && !is_label_1035(given) {
            found.push(Cause::invalid(at, &json!(given), LABEL_1035));
        }
    }
    let list = |name: &str| object::strings(definition.pointer(&format!("/spec/names/{name}")));
    let all = |name: &str, found: &mut Vec<Cause>| {
        for (index, given) in list(name).into_iter().enumerate().filter(|(_, given)| !is_label_1035(given)) {
            found.push(Cause::invalid(format!("spec.names.{name}[{index}]"), &json!(given), LABEL_1035));
        }
    };
    all("shortNames", found);
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let hint = "kind and listKind may not be the same";
        found.push(Cause::invalid("spec.names.listKind", &json!(text("listKind")), hint));
    }
    all("categories", found);
}

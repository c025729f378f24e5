//! What of a Pod may change once it exists, and what is fixed.

use apimachinery::status::Cause;
use serde_json::Value;

use crate::object;

/// Why a Pod may not become what it would.
pub(super) fn cause(current: &Value, object: &Value) -> Option<Cause> {
    let count = |pod: &Value, list: &str| pod["spec"][list].as_array().map_or(0, Vec::len);
    let resized = ["containers", "initContainers"].into_iter().find(|list| count(object, list) != count(current, list));
    if let Some(list) = resized {
        return Some(Cause::forbidden(format!("spec.{list}"), "pod updates may not add or remove containers"));
    }
    let mut frozen = object.get("spec").cloned().unwrap_or_default();
    let before = current.get("spec").cloned().unwrap_or_default();
    let unbound = object::text(current, "/spec/nodeName").is_empty();
    for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates"] {
        restore(&mut frozen, &before, field);
    }
    if unbound {
        restore(&mut frozen, &before, "nodeName");
    }
    for list in ["containers", "initContainers"] {
        let old = before.get(list).and_then(Value::as_array).into_iter().flatten();
        let new = frozen.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (new, old) in new.zip(old) {
            restore(new, old, "image");
        }
    }
    (frozen != before).then(|| {
        Cause::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        )
    })
}

fn restore(object: &mut Value, from: &Value, field: &str) {
    let members = object::members(object);
    match from.get(field) {
        Some(value) => members.insert(field.to_owned(), value.clone()),
        None => members.remove(field),
    };
}

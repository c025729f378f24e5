//! Validation of Pod updates, which may change only some fields of the spec.

use apimachinery::{StatusCause, object};
use serde_json::Value;

use super::field::Field;

/// Validates the update of a Pod.
pub(super) fn causes(current: &Value, object: &Value) -> Vec<StatusCause> {
    let (before, after) = (Field::root(current).get("spec"), Field::root(object).get("spec"));
    let container_count_causes: Vec<StatusCause> = check_container_count(&before, &after).into_iter().collect();
    if !container_count_causes.is_empty() {
        return container_count_causes;
    }
    let mut causes: Vec<StatusCause> = check_deadline(&before, &after).into_iter().collect();
    causes.extend(check_tolerations(&before, &after));
    causes.extend(check_scheduling_gates(&before, &after));
    causes.extend(check_other_fields(current, object));
    causes
}

fn check_container_count(before: &Field<'_>, after: &Field<'_>) -> Option<StatusCause> {
    let count = |spec: &Field<'_>, list: &str| spec.get(list).items().count();
    let list = ["containers", "initContainers"].into_iter().find(|list| count(after, list) != count(before, list))?;
    Some(after.get(list).forbidden("pod updates may not add or remove containers"))
}

/// Validates `activeDeadlineSeconds`, which may be set or decreased but not increased or removed.
fn check_deadline(before: &Field<'_>, after: &Field<'_>) -> Option<StatusCause> {
    const NAME: &str = "activeDeadlineSeconds";
    let (old, new) = (before.get(NAME), after.get(NAME));
    let current_deadline = old.number()?;
    match new.number() {
        None => Some(new.invalid("must not update from a positive integer to nil value")),
        Some(new_deadline) if new_deadline > current_deadline => {
            Some(new.invalid("must be less than or equal to previous value"))
        }
        Some(_) => None,
    }
}

/// Validates tolerations. New ones may be added, and only `tolerationSeconds` of existing ones may change.
fn check_tolerations(before: &Field<'_>, after: &Field<'_>) -> Option<StatusCause> {
    let without_seconds = |toleration: &Field<'_>| {
        let mut value = toleration.value.clone();
        restore(&mut value, &Value::Null, "tolerationSeconds");
        value
    };
    let updated_tolerations: Vec<Value> =
        after.get("tolerations").items().map(|toleration| without_seconds(&toleration)).collect();
    let is_removed = before
        .get("tolerations")
        .items()
        .any(|toleration| !updated_tolerations.contains(&without_seconds(&toleration)));
    let hint = "existing toleration can not be modified except its tolerationSeconds";
    is_removed.then(|| after.get("tolerations").forbidden(hint))
}

/// Validates scheduling gates, which may only be removed.
fn check_scheduling_gates(before: &Field<'_>, after: &Field<'_>) -> Vec<StatusCause> {
    let current_gates: Vec<&str> = before.get("schedulingGates").items().map(|gate| gate.get("name").text()).collect();
    let names = after.get("schedulingGates").items().map(|gate| gate.get("name"));
    let new_gates = names.filter(|name| !current_gates.contains(&name.text()));
    new_gates
        .map(|name| {
            name.forbidden(&format!("only deletion is allowed, but found new scheduling gate '{}'", name.text()))
        })
        .collect()
}

/// Rejects changes to any other field except container images.
fn check_other_fields(current: &Value, object: &Value) -> Option<StatusCause> {
    let mut updated_spec = object.get("spec").cloned().unwrap_or_default();
    let current_spec = current.get("spec").cloned().unwrap_or_default();
    let is_unbound = object::text(current, "/spec/nodeName").is_empty();
    if current_spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0)
        && updated_spec["terminationGracePeriodSeconds"] == 1
    {
        restore(&mut updated_spec, &current_spec, "terminationGracePeriodSeconds");
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(&mut updated_spec, &current_spec, field);
    }
    if is_unbound {
        restore(&mut updated_spec, &current_spec, "nodeName");
    }
    // The node selector and affinity of a Pod with scheduling gates may change.
    if current_spec.get("schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        restore(&mut updated_spec, &current_spec, "nodeSelector");
        restore(&mut updated_spec, &current_spec, "affinity");
    }
    for list in ["containers", "initContainers"] {
        let old = current_spec.get(list).and_then(Value::as_array).into_iter().flatten();
        let new = updated_spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (new, old) in new.zip(old) {
            restore(new, old, "image");
        }
    }
    (updated_spec != current_spec).then(|| {
        StatusCause::forbidden(
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

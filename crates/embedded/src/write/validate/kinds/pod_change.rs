//! What of a Pod may change once it exists, and what is fixed.

use apimachinery::status::Cause;
use serde_json::Value;

use super::field::Field;
use crate::object;

/// Why a Pod may not become what it would.
pub(super) fn causes(current: &Value, object: &Value) -> Vec<Cause> {
    let (before, after) = (Field::of(current).get("spec"), Field::of(object).get("spec"));
    let resized: Vec<Cause> = resized(&before, &after).into_iter().collect();
    if !resized.is_empty() {
        return resized;
    }
    let mut causes: Vec<Cause> = deadline(&before, &after).into_iter().collect();
    causes.extend(tolerations(&before, &after));
    causes.extend(new_gates(&before, &after));
    causes.extend(rest(current, object));
    causes
}

fn resized(before: &Field<'_>, after: &Field<'_>) -> Option<Cause> {
    let count = |spec: &Field<'_>, list: &str| spec.get(list).each().count();
    let list = ["containers", "initContainers"].into_iter().find(|list| count(after, list) != count(before, list))?;
    Some(after.get(list).forbidden("pod updates may not add or remove containers"))
}

/// A deadline may come, and come nearer.
fn deadline(before: &Field<'_>, after: &Field<'_>) -> Option<Cause> {
    const NAME: &str = "activeDeadlineSeconds";
    let (old, new) = (before.get(NAME), after.get(NAME));
    let was = old.number()?;
    match new.number() {
        None => Some(new.invalid("must not update from a positive integer to nil value")),
        Some(now) if now > was => Some(new.invalid("must be less than or equal to previous value")),
        Some(_) => None,
    }
}

/// Tolerations may be added, and last longer or shorter.
fn tolerations(before: &Field<'_>, after: &Field<'_>) -> Option<Cause> {
    let lasting = |toleration: &Field<'_>| {
        let mut kept = toleration.value.clone();
        restore(&mut kept, &Value::Null, "tolerationSeconds");
        kept
    };
    let now: Vec<Value> = after.get("tolerations").each().map(|toleration| lasting(&toleration)).collect();
    let is_gone = before.get("tolerations").each().any(|toleration| !now.contains(&lasting(&toleration)));
    let hint = "existing toleration can not be modified except its tolerationSeconds";
    is_gone.then(|| after.get("tolerations").forbidden(hint))
}

/// What holds a Pod back may only go.
fn new_gates(before: &Field<'_>, after: &Field<'_>) -> Vec<Cause> {
    let had: Vec<&str> = before.get("schedulingGates").each().map(|gate| gate.get("name").text()).collect();
    let names = after.get("schedulingGates").each().map(|gate| gate.get("name"));
    let new = names.filter(|name| !had.contains(&name.text()));
    new.map(|name| {
        name.forbidden(&format!("only deletion is allowed, but found new scheduling gate '{}'", name.text()))
    })
    .collect()
}

/// Everything else is fixed, but for images and what was looked at already.
fn rest(current: &Value, object: &Value) -> Option<Cause> {
    let mut frozen = object.get("spec").cloned().unwrap_or_default();
    let before = current.get("spec").cloned().unwrap_or_default();
    let unbound = object::text(current, "/spec/nodeName").is_empty();
    if before["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0)
        && frozen["terminationGracePeriodSeconds"] == 1
    {
        restore(&mut frozen, &before, "terminationGracePeriodSeconds");
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        restore(&mut frozen, &before, field);
    }
    if unbound {
        restore(&mut frozen, &before, "nodeName");
    }
    // While it is held back, it may still be said where it may run.
    if before.get("schedulingGates").and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        restore(&mut frozen, &before, "nodeSelector");
        restore(&mut frozen, &before, "affinity");
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

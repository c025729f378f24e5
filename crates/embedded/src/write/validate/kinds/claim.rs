//! PersistentVolumeClaims: what they ask for, which stays but for its size.

use apimachinery::quantity::Quantity;
use apimachinery::status::Cause;
use serde_json::Value;

use super::super::names::subdomain_hints;
use super::field::Field;

const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const IMMUTABLE: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

pub(super) fn causes(claim: &Value) -> Vec<Cause> {
    let spec = Field::of(claim).get("spec");
    let modes = spec.get("accessModes");
    let mut causes = Vec::new();
    if modes.is_empty() {
        causes.push(modes.required_because("at least 1 access mode is required"));
    }
    for mode in modes.each() {
        causes.extend(Field::at(mode.value, modes.path.clone()).one_of(&MODES));
    }
    let has_alone = modes.each().any(|mode| mode.text() == "ReadWriteOncePod");
    if has_alone && modes.each().count() > 1 {
        causes.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
    let size = Field::at(spec.get("resources.requests.storage").value, "spec.resources[storage]");
    match size.quantity() {
        None => causes.push(size.required()),
        Some(given) if given <= Quantity::ZERO => causes.push(size.invalid("must be greater than zero")),
        Some(_) => {}
    }
    causes.extend(spec.get("storageClassName").ruled_if_given(subdomain_hints));
    causes.extend(spec.get("volumeMode").one_of(&["Block", "Filesystem"]));
    causes
}

/// Whoever binds the claim writes its volume, and a class that it had none of; the size of a bound one may grow.
pub(super) fn changed(current: &Value, claim: &Value) -> Vec<Cause> {
    let [mut before, mut after] = [current, claim].map(|claim| claim.get("spec").cloned().unwrap_or_default());
    let is_bound = current.pointer("/status/phase").and_then(Value::as_str) == Some("Bound");
    let was = |field: &str| current.pointer(&format!("/spec/{field}")).cloned().unwrap_or_default();
    let size = |claim: &Value| Field::of(claim).get("spec.resources.requests.storage").quantity();
    let may_write =
        [("volumeName", was("volumeName").is_null()), ("storageClassName", was("storageClassName").is_null())];
    for (field, free) in may_write {
        if free {
            [&mut before, &mut after].into_iter().for_each(|spec| remove(spec, field));
        }
    }
    if is_bound {
        [&mut before, &mut after].into_iter().for_each(|spec| remove(spec, "resources"));
    }
    if before != after {
        return vec![Cause::forbidden("spec", IMMUTABLE)];
    }
    if is_bound && size(claim) < size(current) {
        let hint = "field can not be less than status.capacity";
        return vec![Cause::forbidden("spec.resources.requests.storage", hint)];
    }
    Vec::new()
}

fn remove(spec: &mut Value, field: &str) {
    if let Some(members) = spec.as_object_mut() {
        members.remove(field);
    }
}

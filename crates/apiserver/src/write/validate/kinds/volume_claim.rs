//! Validation of PersistentVolumeClaims, whose spec is largely immutable.

use apimachinery::{Quantity, StatusCause};
use serde_json::Value;

use super::super::names::subdomain_hints;
use super::field::Field;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const IMMUTABLE_SPEC_MESSAGE: &str =
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

pub(super) fn causes(claim: &Value) -> Vec<StatusCause> {
    let spec = Field::root(claim).get("spec");
    let modes = spec.get("accessModes");
    let mut causes = Vec::new();
    if modes.is_empty() {
        causes.push(modes.required_with_hint("at least 1 access mode is required"));
    }
    for mode in modes.items() {
        causes.extend(Field::at(mode.value, modes.path.clone()).check_one_of(&ACCESS_MODES));
    }
    let has_read_write_once_pod = modes.items().any(|mode| mode.text() == "ReadWriteOncePod");
    if has_read_write_once_pod && modes.items().count() > 1 {
        causes.push(modes.forbidden("may not use ReadWriteOncePod with other access modes"));
    }
    let size = Field::at(spec.get("resources.requests.storage").value, "spec.resources[storage]");
    match size.quantity() {
        None => causes.push(size.required()),
        Some(requested) if requested <= Quantity::ZERO => causes.push(size.invalid("must be greater than zero")),
        Some(_) => {}
    }
    causes.extend(spec.get("storageClassName").check_if_set(subdomain_hints));
    causes.extend(spec.get("volumeMode").check_one_of(&["Block", "Filesystem"]));
    causes
}

/// Validates an update. The volume and the StorageClass may be set once, and the requested size of a bound claim may
/// increase. All other fields of the spec are immutable.
pub(super) fn update_causes(current: &Value, claim: &Value) -> Vec<StatusCause> {
    let [mut before, mut after] = [current, claim].map(|claim| claim.get("spec").cloned().unwrap_or_default());
    let is_bound = current.pointer("/status/phase").and_then(Value::as_str) == Some("Bound");
    let current_field = |field: &str| current.pointer(&format!("/spec/{field}")).cloned().unwrap_or_default();
    let size = |claim: &Value| Field::root(claim).get("spec.resources.requests.storage").quantity();
    let settable_fields = [
        ("volumeName", current_field("volumeName").is_null()),
        ("storageClassName", current_field("storageClassName").is_null()),
    ];
    for (field, is_settable) in settable_fields {
        if is_settable {
            [&mut before, &mut after].into_iter().for_each(|spec| remove(spec, field));
        }
    }
    if is_bound {
        [&mut before, &mut after].into_iter().for_each(|spec| remove(spec, "resources"));
    }
    if before != after {
        return vec![StatusCause::forbidden("spec", IMMUTABLE_SPEC_MESSAGE)];
    }
    if is_bound && size(claim) < size(current) {
        let hint = "field can not be less than status.capacity";
        return vec![StatusCause::forbidden("spec.resources.requests.storage", hint)];
    }
    Vec::new()
}

fn remove(spec: &mut Value, field: &str) {
    if let Some(members) = spec.as_object_mut() {
        members.remove(field);
    }
}

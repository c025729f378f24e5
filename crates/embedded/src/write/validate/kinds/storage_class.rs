//! StorageClasses: who makes volumes, and when.

use apimachinery::status::Cause;
use serde_json::Value;

use super::super::names::key_hints;
use super::field::Field;

pub(super) fn causes(class: &Value) -> Vec<Cause> {
    let class = Field::of(class);
    let provisioner = class.get("provisioner");
    if provisioner.is_empty() {
        return vec![provisioner.required()];
    }
    let hints = key_hints(&provisioner.text().to_lowercase());
    let mut causes: Vec<Cause> = hints.iter().map(|hint| provisioner.invalid(hint)).collect();
    causes.extend(class.get("reclaimPolicy").one_of(&["Delete", "Retain"]));
    causes.extend(class.get("volumeBindingMode").one_of(&["Immediate", "WaitForFirstConsumer"]));
    causes
}

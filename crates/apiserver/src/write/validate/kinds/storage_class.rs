//! Validation of StorageClasses.

use apimachinery::StatusCause;
use serde_json::Value;

use super::super::names::label_key_hints;
use super::field::Field;

pub(super) fn causes(class: &Value) -> Vec<StatusCause> {
    let class = Field::root(class);
    let provisioner = class.get("provisioner");
    if provisioner.is_empty() {
        return vec![provisioner.required()];
    }
    let hints = label_key_hints(&provisioner.text().to_lowercase());
    let mut causes: Vec<StatusCause> = hints.iter().map(|hint| provisioner.invalid(hint)).collect();
    causes.extend(class.get("reclaimPolicy").check_one_of(&["Delete", "Retain"]));
    causes.extend(class.get("volumeBindingMode").check_one_of(&["Immediate", "WaitForFirstConsumer"]));
    causes
}

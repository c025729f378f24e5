//! Validation of Nodes.

use apimachinery::StatusCause;
use serde_json::Value;

use super::field::Field;
use super::placement;

/// Validates the taints. As in kube-apiserver, errors have the field path `metadata.taints`.
pub(super) fn causes(node: &Value) -> Vec<StatusCause> {
    let taints = Field::root(node).get("spec.taints");
    placement::check_taints(&Field::at(taints.value, "metadata.taints"))
}

//! Nodes: taints that mean something.

use apimachinery::status::Cause;
use serde_json::Value;

use super::field::Field;
use super::placement;

/// Told below `metadata`, as there.
pub(super) fn causes(node: &Value) -> Vec<Cause> {
    let taints = Field::of(node).get("spec.taints");
    placement::taints(&Field::at(taints.value, "metadata.taints"))
}

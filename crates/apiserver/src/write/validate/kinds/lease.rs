//! Validation of Leases.

use apimachinery::StatusCause;
use serde_json::Value;

use super::field::Field;

pub(super) fn causes(lease: &Value) -> Vec<StatusCause> {
    let spec = Field::root(lease).get("spec");
    let mut causes: Vec<StatusCause> = spec.get("leaseDurationSeconds").check_positive().into_iter().collect();
    causes.extend(spec.get("leaseTransitions").check_not_negative());
    causes
}

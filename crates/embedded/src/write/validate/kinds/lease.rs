//! Leases: a time that is one, and a holder who can be told.

use apimachinery::status::Cause;
use serde_json::Value;

use super::field::Field;

pub(super) fn causes(lease: &Value) -> Vec<Cause> {
    let spec = Field::of(lease).get("spec");
    let mut causes: Vec<Cause> = spec.get("leaseDurationSeconds").positive().into_iter().collect();
    causes.extend(spec.get("leaseTransitions").not_negative());
    causes
}

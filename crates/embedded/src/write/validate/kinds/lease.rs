//! Leases: a time that is one.

use apimachinery::status::Cause;
use serde_json::{Value, json};

pub(super) fn causes(lease: &Value) -> Vec<Cause> {
    let duration = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).filter(|seconds| *seconds <= 0);
    let cause = |seconds| Cause::invalid("spec.leaseDurationSeconds", &json!(seconds), "must be greater than 0");
    duration.map(cause).into_iter().collect()
}

//! Whether a Pod tolerates a taint of a node (`Toleration.ToleratesTaint`).

use apimachinery::object;
use serde_json::Value;

/// Whether the Pod has a toleration that matches the taint.
pub(crate) fn is_tolerated(pod: &Value, taint: &Value) -> bool {
    let tolerations = pod.pointer("/spec/tolerations").and_then(Value::as_array);
    tolerations.into_iter().flatten().any(|toleration| tolerates(toleration, taint))
}

/// Whether the toleration matches the taint.
pub(crate) fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (object::text(toleration, "/key"), object::text(toleration, "/effect"));
    let exists = object::text(toleration, "/operator") == "Exists";
    (effect.is_empty() || effect == object::text(taint, "/effect"))
        && (key == object::text(taint, "/key") || key.is_empty() && exists)
        && (exists || object::text(toleration, "/value") == object::text(taint, "/value"))
}

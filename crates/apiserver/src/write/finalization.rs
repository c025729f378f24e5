//! When terminating objects can be removed.

use apimachinery::object;
use serde_json::Value;

use crate::resources::Resource;

/// Reports whether a terminating object can be removed, which requires that it has no finalizers and no grace period.
pub(crate) fn is_removable(resource: &Resource, object: &Value) -> bool {
    let has_namespace_finalizers = resource.storage == "namespaces" && object.pointer("/spec/finalizers/0").is_some();
    let grace = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or_default();
    !has_namespace_finalizers && grace == 0 && object::finalizers(object).is_empty()
}

//! Evaluation of `x-kubernetes-validations` for custom resources.

use apimachinery::{SchemaViolation, Status, object};
use serde_json::Value;

use crate::resources::Resource;

/// Evaluates the CEL validation rules of the schema.
///
/// # Errors
/// 422 with the messages of all failed rules.
pub(super) fn check(resource: &Resource, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    if !resource.custom {
        return Ok(());
    }
    let Some(schema) = resource.schema() else { return Ok(()) };
    let violations = schema.check_rules(object, old);
    if violations.is_empty() {
        return Ok(());
    }
    let causes = violations.iter().map(SchemaViolation::cause).collect();
    Err(Status::invalid(&resource.group_kind(), object::name(object), causes))
}

//! The admission plugin `NamespaceLifecycle`.

use apimachinery::{Status, StatusCause, object};
use serde_json::{Value, json};

use crate::resources::Resource;
use crate::transaction::Transaction;

/// Namespaces that clients cannot delete.
const PROTECTED_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Checks that a namespace may be deleted.
///
/// # Errors
/// 403 if the namespace is protected.
pub(super) fn check_deletion_allowed(resource: &Resource, name: &str) -> Result<(), Status> {
    if resource.storage != "namespaces" || !PROTECTED_NAMESPACES.contains(&name) {
        return Ok(());
    }
    Err(Status::forbidden("namespaces", name, "this namespace may not be deleted"))
}

/// Checks that the namespace of a new object exists and is active.
///
/// # Errors
/// 404 if the namespace does not exist, 403 if it is terminating.
pub(in crate::write) fn check_namespace(
    transaction: &Transaction<'_>,
    resource: &Resource,
    namespace: &str,
    object: &Value,
) -> Result<(), Status> {
    if !resource.namespaced {
        return Ok(());
    }
    let existing = transaction.get("namespaces", "", namespace);
    let Some(existing) = existing else { return Err(Status::not_found("namespaces", namespace)) };
    if !object::is_deleting(&existing) {
        return Ok(());
    }
    let message = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(&resource.group_resource(), object::name(object), &message);
    if let Some(details) = status.details.as_mut().and_then(Value::as_object_mut) {
        let message = format!("namespace {namespace} is being terminated");
        let cause = StatusCause::new("metadata.namespace", "NamespaceTerminating", message);
        let cause = json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
        details.insert("causes".to_owned(), json!([cause]));
    }
    Err(status)
}

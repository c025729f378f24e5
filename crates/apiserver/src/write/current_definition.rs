//! Writes of custom resources depend on the definition: it must be the stored one when the write is committed.

use std::sync::Arc;

use apimachinery::Status;
use serde_json::json;

use crate::resources::{Resource, definition};
use crate::transaction::Transaction;

/// Returns `resource` as the stored definition declares it. Built-in resources never change.
///
/// # Errors
/// 404 if the definition no longer exists or no longer serves the version.
pub(super) fn current_resource(
    transaction: &Transaction<'_>,
    resource: &Arc<Resource>,
) -> Result<Arc<Resource>, Status> {
    if !resource.custom {
        return Ok(Arc::clone(resource));
    }
    let definition = transaction.get_stored(definition::key(&resource.storage));
    let definition = definition.ok_or_else(Status::path_not_found)?;
    let mut registry = transaction.core.registry();
    if !registry.is_current(&resource.storage, Some(&definition)) {
        // Without its resources, the version is not found below.
        let _ = transaction.core.serve_definition(&resource.storage);
        registry = transaction.core.registry();
    }
    registry.get(&resource.group, &resource.version, &resource.plural).ok_or_else(Status::path_not_found)
}

/// Checks that custom resources may be created: a definition that is being deleted is removed with its last one.
///
/// # Errors
/// 405 if the definition is terminating.
pub(super) fn check_creation(transaction: &Transaction<'_>, resource: &Resource) -> Result<(), Status> {
    if !resource.custom || !transaction.core.registry().is_terminating(&resource.storage) {
        return Ok(());
    }
    let message = "create not allowed while custom resource definition is terminating".to_owned();
    let details = json!({"group": resource.group, "kind": resource.plural});
    Err(Status { message, details: Some(details), ..Status::method_not_allowed() })
}

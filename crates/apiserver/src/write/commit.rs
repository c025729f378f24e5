//! The last stage: stores the object and starts cascading deletion.

use std::sync::Arc;

use apimachinery::Status;
use serde_json::Value;

use super::Subresource;
use crate::resources::Resource;
use crate::server::Server;
use crate::store::ObjectKey;
use crate::{crd, deletion, object};

/// An update that is about to be stored.
pub(super) struct PendingUpdate<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) subresource: Subresource,
    /// Stored object, against which conflicts are detected.
    pub(super) stored: &'a Arc<Value>,
    /// Stored object with the current schema defaults applied.
    pub(super) current: &'a Value,
}

/// Creates an object. Returns `None` if an object with this name already exists.
///
/// # Errors
/// Errors of the storage layer.
pub(super) fn create(
    server: &Server,
    resource: &Resource,
    key: &ObjectKey,
    object: Value,
) -> Result<Option<Arc<Value>>, Status> {
    let Some(object) = server.store().try_commit(key, None, Some(object))? else { return Ok(None) };
    if resource.storage == crd::STORAGE {
        crd::reconcile_status(server, &key.name);
    }
    deletion::after_create(server, key, &object);
    Ok(Some(object))
}

/// Updates an object. Returns `None` if the object changed concurrently. An update that removes the last finalizer of a
/// terminating object deletes the object.
///
/// # Errors
/// Errors of the storage layer.
pub(super) fn update(
    server: &Server,
    resource: &Resource,
    change: &PendingUpdate<'_>,
    object: Value,
) -> Result<Option<Arc<Value>>, Status> {
    let PendingUpdate { key, subresource, stored, current } = *change;
    let is_removed = object::is_deleting(&object) && deletion::is_removable(resource, &object);
    let removed = is_removed.then(|| Arc::new(object.clone()));
    let written = if is_removed { None } else { Some(object) };
    let Some(object) = server.store().try_commit(key, Some(stored), written)? else { return Ok(None) };
    if is_removed {
        deletion::after_remove(server, resource, &object);
    } else if resource.storage == crd::STORAGE && subresource == Subresource::Main {
        crd::reconcile_status(server, &key.name);
    } else {
        deletion::after_update(server, key, current, &object);
    }
    Ok(Some(removed.unwrap_or(object)))
}

//! The last stage: stores the object and starts cascading deletion.

use std::sync::Arc;

use apimachinery::Status;
use serde_json::Value;

use super::Subresource;
use crate::resources::Resource;
use crate::server::Server;
use crate::store::ObjectKey;
use crate::{crd, deletion, object};

/// Update of an object in the store.
pub(super) struct PendingUpdate<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) subresource: Subresource,
    /// Object in the store.
    pub(super) stored: &'a Arc<Value>,
    /// Object in the store with the current schema defaults.
    pub(super) current: &'a Value,
}

/// Creates an object; `None` if an object with this name exists.
///
/// # Errors
/// If the storage failed.
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

/// Updates an object; `None` on a conflict. Removing the last finalizer of a terminating object removes the object.
///
/// # Errors
/// If the storage failed.
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

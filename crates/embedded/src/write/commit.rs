//! The last stage: the store, and what follows from what is stored now.

use std::sync::Arc;

use apimachinery::status::Status;
use serde_json::Value;

use super::Face;
use crate::resources::Resource;
use crate::server::Server;
use crate::store::Key;
use crate::{crd, deletion, object};

/// What is changed.
pub(super) struct Change<'a> {
    pub(super) place: &'a Key,
    pub(super) face: Face,
    /// As the store has it.
    pub(super) stored: &'a Arc<Value>,
    /// The same with the defaults of today.
    pub(super) current: &'a Value,
}

/// `None` when there is one.
///
/// # Errors
/// When it could not be stored.
pub(super) fn create(
    server: &Server,
    resource: &Resource,
    place: &Key,
    object: Value,
) -> Result<Option<Arc<Value>>, Status> {
    let Some(object) = server.store().attempt(place, None, Some(object))? else { return Ok(None) };
    if resource.storage == crd::STORAGE {
        crd::settle(server, &place.name);
    }
    deletion::after_create(server, place, &object);
    Ok(Some(object))
}

/// `None` when another write came between. The last finalizer of an object that is going takes it along.
///
/// # Errors
/// When it could not be stored.
pub(super) fn update(
    server: &Server,
    resource: &Resource,
    change: &Change<'_>,
    object: Value,
) -> Result<Option<Arc<Value>>, Status> {
    let Change { place, face, stored, current } = *change;
    let finished = object::is_deleting(&object) && deletion::may_go(resource, &object);
    let last = finished.then(|| Arc::new(object.clone()));
    let written = if finished { None } else { Some(object) };
    let Some(object) = server.store().attempt(place, Some(stored), written)? else { return Ok(None) };
    if finished {
        deletion::after_removal(server, resource, &object);
    } else if resource.storage == crd::STORAGE && face == Face::Main {
        crd::settle(server, &place.name);
    } else {
        deletion::after_update(server, place, current, &object);
    }
    Ok(Some(last.unwrap_or(object)))
}

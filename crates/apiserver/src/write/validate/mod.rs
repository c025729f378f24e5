//! Validation of objects. All causes are reported together, with the messages of kube-apiserver.

mod definition;
pub(crate) mod kinds;
mod metadata;
pub(crate) mod names;
mod owner_references;
mod schema;

use apimachinery::{Status, StatusCause, object};
use serde_json::Value;

use super::{RequestBody, Subresource, UndecodableObject, WriteRequest};
use crate::resources;
use crate::resources::Resource;

/// Validates a new object.
///
/// # Errors
/// 422 with all causes, or 400 if a value in a built-in kind has the wrong type.
pub(super) fn create(resource: &Resource, object: &Value) -> Result<(), Status> {
    let undecodable = |error: UndecodableObject| error.into_status(RequestBody::Object);
    let mut causes = metadata::causes(resource, object);
    kinds::check_decodable(resource, object).map_err(undecodable)?;
    causes.extend(schema::causes(resource, Subresource::Main, None, object).map_err(undecodable)?);
    causes.extend(kinds::causes(resource, object));
    if resource.storage == resources::definition::STORAGE {
        causes.extend(definition::causes(None, object));
    }
    validation_result(resource, object, causes)
}

/// Validates an updated object.
///
/// # Errors
/// 422 with all causes; 400, or 422 for a patch, if a value in a built-in kind has the wrong type.
pub(super) fn update(request: &WriteRequest<'_>, current: &Value, object: &Value) -> Result<(), Status> {
    let WriteRequest { resource, subresource, options, .. } = *request;
    let undecodable = |error: UndecodableObject| error.into_status(options.body);
    let mut causes = metadata::update_causes(resource, subresource, current, object);
    causes.extend(schema::causes(resource, subresource, Some(current), object).map_err(undecodable)?);
    if subresource == Subresource::Main {
        kinds::check_decodable(resource, object).map_err(undecodable)?;
        causes.extend(kinds::update_causes(resource, current, object));
        if resource.storage == resources::definition::STORAGE {
            causes.extend(definition::causes(Some(current), object));
        }
    }
    if subresource == Subresource::Status {
        causes.extend(kinds::status_causes(resource, object));
    }
    validation_result(resource, object, causes)
}

fn validation_result(resource: &Resource, object: &Value, causes: Vec<StatusCause>) -> Result<(), Status> {
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&resource.group_kind(), object::name(object), causes))
}

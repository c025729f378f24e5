//! Preconditions of updates: name, UID, deletion timestamp and resource version.

use apimachinery::{Status, StatusCause, object};
use serde_json::Value;

use crate::resources::Resource;
use crate::write::RequestBody;

/// Checks that the UID, deletion timestamp and resource version of an update match the current object.
pub(crate) fn check_version(
    resource: &Resource,
    name: &str,
    current: &Value,
    object: &Value,
    body: RequestBody,
) -> Result<(), Status> {
    let uid = object::uid(object);
    let has_other_uid = !uid.is_empty() && uid != object::uid(current);
    if has_other_uid && body == RequestBody::Patch {
        let cause = StatusCause::invalid("metadata.uid", &uid.into(), "field is immutable");
        return Err(Status::invalid(&resource.group_kind(), name, vec![cause]));
    }
    if has_other_uid {
        let message = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            storage_key(resource, current),
            object::uid(current)
        );
        return Err(Status::conflict(&resource.group_resource(), name, &message));
    }
    let deletion_timestamp = object::text(object, "/metadata/deletionTimestamp");
    if !deletion_timestamp.is_empty() && deletion_timestamp != object::text(current, "/metadata/deletionTimestamp") {
        let cause =
            StatusCause::invalid("metadata.deletionTimestamp", &deletion_timestamp.into(), "field is immutable");
        return Err(Status::invalid(&resource.group_kind(), name, vec![cause]));
    }
    let resource_version = object::resource_version(object);
    if !resource_version.is_empty() && resource_version != object::resource_version(current) {
        return Err(Status::object_modified(&resource.group_resource(), name));
    }
    Ok(())
}

/// Checks that the name in the request body equals the name in the URL.
pub(crate) fn check_name(current: &Value, object: &Value) -> Result<(), Status> {
    let (name, body_name) = (object::name(current), object::name(object));
    if body_name.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if body_name == name {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the name of the object ({body_name}) does not match the name on the URL ({name})"
    )))
}

/// Returns the etcd key of the object, which messages of kube-apiserver contain.
fn storage_key(resource: &Resource, object: &Value) -> String {
    let group = if resource.custom { format!("{}/", resource.group) } else { String::new() };
    let namespace = object::namespace(object);
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("/registry/{group}{}/{namespace}{slash}{}", resource.plural, object::name(object))
}

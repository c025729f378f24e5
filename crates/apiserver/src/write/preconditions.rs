//! Preconditions of updates: name, UID, deletion timestamp and resource version.

use apimachinery::{Status, StatusCause, object};
use serde_json::Value;

use crate::resources::Resource;
use crate::write::RequestBody;

/// Resource version of an update without a precondition, like an absent one.
pub(crate) const UNCONDITIONAL: &str = "0";

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
    if body == RequestBody::Patch {
        check_patched_uid(resource, name, current, object)?;
    } else if has_other_uid {
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
    match object::resource_version(object) {
        "" => Ok(()),
        UNCONDITIONAL => check_unconditional(resource, name),
        version if version == object::resource_version(current) => Ok(()),
        _ => Err(Status::object_modified(&resource.group_resource(), name)),
    }
}

/// Checks that a patch or an applied configuration does not set another UID.
pub(crate) fn check_patched_uid(
    resource: &Resource,
    name: &str,
    current: &Value,
    object: &Value,
) -> Result<(), Status> {
    let uid = object::uid(object);
    if uid.is_empty() || uid == object::uid(current) {
        return Ok(());
    }
    let cause = StatusCause::invalid("metadata.uid", &uid.into(), "field is immutable");
    Err(Status::invalid(&resource.group_kind(), name, vec![cause]))
}

/// Checks that an object may be updated without a resource version.
pub(crate) fn check_unconditional(resource: &Resource, name: &str) -> Result<(), Status> {
    if !resource.requires_resource_version() {
        return Ok(());
    }
    let cause = StatusCause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
    Err(Status::invalid(&resource.group_resource(), name, vec![cause]))
}

/// Checks that the name in the request body equals the name in the URL.
pub(crate) fn check_name(name: &str, object: &Value) -> Result<(), Status> {
    let body_name = object::name(object);
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

//! What has to be so for a write to be the one that its client meant: the name, the uid and the revision.

use apimachinery::status::{Cause, Status};
use serde_json::Value;

use crate::object;
use crate::resources::Resource;
use crate::write::Body;

/// The revision and the uid that the client says it changes.
pub(crate) fn same_version(
    resource: &Resource,
    name: &str,
    current: &Value,
    object: &Value,
    body: Body,
) -> Result<(), Status> {
    let uid = object::uid(object);
    let is_other = !uid.is_empty() && uid != object::uid(current);
    if is_other && body == Body::Patch {
        let cause = Cause::invalid("metadata.uid", &uid.into(), "field is immutable");
        return Err(Status::invalid(&resource.qualified_kind(), name, vec![cause]));
    }
    if is_other {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            storage_key(resource, current),
            object::uid(current)
        );
        return Err(Status::conflict(&resource.qualified(), name, &why));
    }
    let ends = object::text(object, "/metadata/deletionTimestamp");
    if !ends.is_empty() && ends != object::text(current, "/metadata/deletionTimestamp") {
        let cause = Cause::invalid("metadata.deletionTimestamp", &ends.into(), "field is immutable");
        return Err(Status::invalid(&resource.qualified_kind(), name, vec![cause]));
    }
    let revision = object::resource_version(object);
    if !revision.is_empty() && revision != object::resource_version(current) {
        return Err(Status::modified(&resource.qualified(), name));
    }
    Ok(())
}

/// A body that names another object than the path does is a mistake.
pub(crate) fn same_name(current: &Value, object: &Value) -> Result<(), Status> {
    let (name, written) = (object::name(current), object::name(object));
    if written.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if written == name {
        return Ok(());
    }
    Err(Status::bad_request(format!("the name of the object ({written}) does not match the name on the URL ({name})")))
}

/// Where etcd would keep it.
fn storage_key(resource: &Resource, object: &Value) -> String {
    let group = if resource.custom { format!("{}/", resource.group) } else { String::new() };
    let namespace = object::namespace(object);
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("/registry/{group}{}/{namespace}{slash}{}", resource.plural, object::name(object))
}

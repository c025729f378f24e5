//! Admission control: first the admission plugins that are built into kube-apiserver, then the admission port.

mod namespace;
mod priority;
mod tolerations;

use apimachinery::{Status, object};
use serde_json::Value;

use crate::core::Core;
use crate::ports::AdmissionRequest;
use crate::resources::Resource;
use crate::transaction::Transaction;
pub(super) use namespace::check_namespace;

/// Runs the mutating admission plugins on a new object.
///
/// # Errors
/// 403 with the message of the plugin that rejects the object.
pub(super) fn mutate(transaction: &Transaction<'_>, resource: &Resource, object: &mut Value) -> Result<(), Status> {
    if resource.storage == "pods" {
        tolerations::add_default_tolerations(object);
    }
    priority::admit(transaction, resource, object)
}

/// Runs the mutating admission plugins on an updated object.
///
/// # Errors
/// 403 with the message of the plugin that rejects the object.
pub(super) fn mutate_update(
    transaction: &Transaction<'_>,
    resource: &Resource,
    object: &mut Value,
) -> Result<(), Status> {
    if resource.storage == "pods" {
        tolerations::add_default_tolerations(object);
    }
    priority::admit_update(transaction, resource, object)
}

/// Runs admission control for the deletion of an object.
///
/// # Errors
/// 403 with the message of the plugin that rejects the deletion, or the error of the admission port.
pub(crate) fn check_deletion(core: &Core, resource: &Resource, current: &Value) -> Result<(), Status> {
    namespace::check_deletion_allowed(resource, object::name(current))?;
    review(core, resource, "DELETE", None, Some(current)).map(drop)
}

/// Calls the admission port and returns its warnings if it allows the write.
pub(crate) fn review(
    core: &Core,
    resource: &Resource,
    operation: &'static str,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Vec<String>, Status> {
    let subject = object.or(old).unwrap_or(&Value::Null);
    let name = object::name(subject);
    let group_resource = resource.group_resource();
    let request = AdmissionRequest {
        operation,
        resource: &group_resource,
        namespace: object::namespace(subject),
        name,
        object,
        old_object: old,
    };
    let response = core.admission.review(&request);
    if response.allowed {
        return Ok(response.warnings);
    }
    if response.causes.is_empty() {
        return Err(Status::forbidden(&group_resource, name, &response.message));
    }
    Err(Status::invalid(&resource.group_kind(), name, response.causes))
}

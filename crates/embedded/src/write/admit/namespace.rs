//! Nothing is made in a namespace that is not there, or that is going, and some never go (`NamespaceLifecycle`).

use apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use crate::object;
use crate::resources::Resource;
use crate::server::Server;

/// Namespaces that every cluster has, for as long as it is there.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// # Errors
/// 403 for a namespace that may not be deleted.
pub(super) fn may_go(resource: &Resource, name: &str) -> Result<(), Status> {
    if resource.storage != "namespaces" || !IMMORTAL.contains(&name) {
        return Ok(());
    }
    Err(Status::forbidden("namespaces", name, "this namespace may not be deleted"))
}

/// # Errors
/// 404 for a namespace that is not there, 403 for one that is going.
pub(in crate::write) fn accepts(
    server: &Server,
    resource: &Resource,
    namespace: &str,
    object: &Value,
) -> Result<(), Status> {
    if !resource.namespaced {
        return Ok(());
    }
    let found = server.get("namespaces", "", namespace);
    let Some(found) = found else { return Err(Status::not_found("namespaces", namespace)) };
    if !object::is_deleting(&found) {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let mut status = Status::forbidden(&resource.qualified(), object::name(object), &why);
    if let Some(details) = status.details.as_mut().and_then(Value::as_object_mut) {
        let said = format!("namespace {namespace} is being terminated");
        let cause = Cause::new("metadata.namespace", "NamespaceTerminating", said);
        let cause = json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
        details.insert("causes".to_owned(), json!([cause]));
    }
    Err(status)
}

//! Nothing is made in a namespace that is not there, or that is going (`NamespaceLifecycle`).

use apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use crate::object;
use crate::resources::Resource;
use crate::server::Server;

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

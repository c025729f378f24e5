//! Asks those who may refuse or change a write: the plugins of every kube-apiserver, then the caller's admission.

mod namespace;
pub(crate) mod priority;
mod tolerations;

use apimachinery::status::Status;
use serde_json::Value;

use crate::object;
use crate::ports::AdmissionRequest;
use crate::resources::Resource;
use crate::server::Server;
pub(super) use namespace::accepts;

/// Writes into a new object what the plugins give it.
///
/// # Errors
/// 403 as the plugin says it.
pub(super) fn mutate(server: &Server, resource: &Resource, object: &mut Value) -> Result<(), Status> {
    if resource.storage == "pods" {
        tolerations::add(object);
    }
    priority::admit(server, resource, object)
}

/// Writes into an object that changes what the plugins would have given it.
pub(super) fn mutate_change(resource: &Resource, object: &mut Value) {
    if resource.storage == "pods" {
        tolerations::add(object);
    }
}

/// Asks the plugins whether an object may be deleted, then the caller.
///
/// # Errors
/// 403 as a plugin says it, or the caller's refusal.
pub(crate) fn check_deletion(server: &Server, resource: &Resource, current: &Value) -> Result<(), Status> {
    namespace::may_go(resource, object::name(current))?;
    check(server, resource, "DELETE", None, Some(current)).map(drop)
}

/// Asks the caller: the warnings of an allowed write, or the refusal.
pub(crate) fn check(
    server: &Server,
    resource: &Resource,
    operation: &'static str,
    object: Option<&Value>,
    old: Option<&Value>,
) -> Result<Vec<String>, Status> {
    let about = object.or(old).unwrap_or(&Value::Null);
    let name = object::name(about);
    let qualified = resource.qualified();
    let request =
        AdmissionRequest { operation, resource: &qualified, namespace: object::namespace(about), name, object, old };
    let response = server.inner.admission.review(&request);
    if response.allowed {
        return Ok(response.warnings);
    }
    if response.causes.is_empty() {
        return Err(Status::forbidden(&qualified, name, &response.message));
    }
    Err(Status::invalid(&resource.qualified_kind(), name, response.causes))
}

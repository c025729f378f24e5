//! Asks the caller's admission.

use apimachinery::status::Status;
use serde_json::Value;

use crate::object;
use crate::ports::AdmissionRequest;
use crate::resources::Resource;
use crate::server::Server;

/// The warnings of an allowed write, or the refusal.
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

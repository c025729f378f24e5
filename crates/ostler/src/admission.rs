//! Admission of the embedded API server: calls the validation of the operator's webhook directly.

use std::sync::{Arc, OnceLock};

use embedded::Server;
use embedded::ports::{Admission, AdmissionRequest, AdmissionResponse};
use operator::{ObjectLister, ValidationRequest, validate_admission};
use serde_json::Value;

/// Validates all writes once the server is set. Earlier writes create namespaces and other built-in objects, which need no
/// validation.
#[derive(Default)]
pub(crate) struct OperatorAdmission(OnceLock<Server>);

/// Lists the objects of the server.
struct ServerObjects<'a>(&'a Server);

// === impl OperatorAdmission ===

impl OperatorAdmission {
    /// Validates later writes against the objects of `server`.
    pub(crate) fn set_server(&self, server: Server) {
        self.0.set(server).ok();
    }
}

impl Admission for OperatorAdmission {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let result = match self.0.get() {
            Some(server) => validate_admission(
                &ValidationRequest { object: request.object, old_object: request.old_object },
                &ServerObjects(server),
            ),
            None => operator::ValidationResult::default(),
        };
        AdmissionResponse {
            allowed: result.is_allowed(),
            message: String::new(),
            causes: result.causes(),
            warnings: result.warnings,
        }
    }
}

// === impl ServerObjects ===

impl ObjectLister for ServerObjects<'_> {
    fn list(&self, kind: cluster::Kind) -> Vec<Arc<Value>> {
        self.0.list(&kind.group_resource())
    }
}

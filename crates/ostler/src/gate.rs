//! Admission of the embedded API server: what the operator's webhook says in a cluster, by function call.

use std::sync::{Arc, OnceLock};

use embedded::Server;
use embedded::ports::{Admission, AdmissionRequest, AdmissionResponse};
use operator::admission::{Request, View, review};
use serde_json::Value;

/// Reviews every write once the server is known; what is there before that, such as namespaces, is not ours.
#[derive(Default)]
pub(crate) struct Gate(OnceLock<Server>);

/// The server's objects.
struct Objects<'a>(&'a Server);

impl Gate {
    /// From now on writes are reviewed against the objects of `server`.
    pub(crate) fn open(&self, server: Server) {
        self.0.set(server).ok();
    }
}

impl Admission for Gate {
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse {
        let verdict = match self.0.get() {
            Some(server) => review(&Request { object: request.object, old: request.old }, &Objects(server)),
            None => operator::admission::Verdict::default(),
        };
        AdmissionResponse {
            allowed: verdict.allowed(),
            message: String::new(),
            causes: verdict.causes(),
            warnings: verdict.warnings,
        }
    }
}

impl View for Objects<'_> {
    fn list(&self, kind: cluster::Kind) -> Vec<Arc<Value>> {
        self.0.list(&kind.resource())
    }
}

//! Mistakes of a controller, planted in its requests: the transport changes a request into the one that a controller with
//! the mistake would send. Production code needs no switch for them. The tests show that the simulation finds each.

use embedded::Server;
use http::{Method, Request, Uri};
use operator::FIELD_MANAGER;
use serde_json::{Value, json};

use crate::term_check::{LEASE_NAMESPACE, LEASES};

/// A mistake of the operator that a run plants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Requests have no deadline.
    NoDeadline,
    /// Objects have no owner reference.
    NoOwnerReference,
    /// Two replicas write without leader election.
    NoLeaderElection,
    /// A failed write counts as done.
    IgnoredError,
    /// A watch that ends is not started again.
    NoRelist,
    /// The status is written before the objects, and reports them as ready.
    EarlyStatus,
    /// Obsolete objects are not deleted.
    NoPruning,
    /// A new object takes the fields of an object that exists.
    ForcedCreate,
    /// An Event that could not be created counts as published.
    UnacknowledgedEvent,
    /// Objects are applied with another field manager than the one that they are compared with.
    OtherFieldManager,
    /// Only the first page of a list is read.
    FirstPageOnly,
    /// The Lease is read again before it is written, but not evaluated again.
    OverwrittenLease,
}

// === impl Mistake ===

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 12] = [
        Mistake::NoDeadline,
        Mistake::NoOwnerReference,
        Mistake::NoLeaderElection,
        Mistake::IgnoredError,
        Mistake::NoRelist,
        Mistake::EarlyStatus,
        Mistake::NoPruning,
        Mistake::ForcedCreate,
        Mistake::UnacknowledgedEvent,
        Mistake::OtherFieldManager,
        Mistake::FirstPageOnly,
        Mistake::OverwrittenLease,
    ];

    /// Changes a request and its object into those of a controller with this mistake.
    pub(crate) fn apply<B>(self, request: &mut Request<B>, object: &mut Value, server: &Server) {
        let path = request.uri().path();
        let is_status = path.ends_with("/status");
        let is_apply = *request.method() == Method::PATCH && !is_status;
        let is_lease = path.contains("/leases");
        let is_creation = is_apply && request.uri().query().is_some_and(|query| !query.contains("force=true"));
        let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
        match (self, metadata) {
            (Mistake::NoOwnerReference, Some(metadata)) if is_apply => {
                metadata.remove("ownerReferences");
            }
            (Mistake::EarlyStatus, _) if is_status => {
                for condition in object["status"]["conditions"].as_array_mut().into_iter().flatten() {
                    condition["status"] = json!("True");
                }
            }
            (Mistake::ForcedCreate, Some(metadata)) if is_creation => {
                metadata.remove("resourceVersion");
                edit_uri(request, |uri| format!("{uri}&force=true"));
            }
            (Mistake::OtherFieldManager, _) if is_apply => {
                edit_uri(request, |uri| uri.replace(&format!("fieldManager={FIELD_MANAGER}"), "fieldManager=other"));
            }
            (Mistake::OverwrittenLease, Some(metadata)) if is_lease => {
                if let Some(lease) = server.get(LEASES, LEASE_NAMESPACE, operator::LEASE_NAME) {
                    metadata.insert("resourceVersion".to_owned(), lease["metadata"]["resourceVersion"].clone());
                }
            }
            _ => {}
        }
    }

    /// Returns whether an error response to a request counts as success.
    pub(crate) fn ignores_error<B>(self, request: &Request<B>, object: &Value) -> bool {
        match self {
            Mistake::IgnoredError => object["kind"].is_string(),
            Mistake::UnacknowledgedEvent => object["kind"] == "Event" && *request.method() != Method::GET,
            _ => false,
        }
    }
}

/// Replaces the URI of a request.
pub(crate) fn edit_uri<B>(request: &mut Request<B>, edit: impl FnOnce(String) -> String) {
    let edited: Option<Uri> = edit(request.uri().to_string()).parse().ok();
    if let Some(uri) = edited {
        *request.uri_mut() = uri;
    }
}

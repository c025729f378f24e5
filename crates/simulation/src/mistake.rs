//! Mistakes of a controller, planted in its requests: the transport changes a request into the one that a controller with
//! the mistake would send. Production code needs no switch for them. The tests show that the simulation finds each.

use http::{Method, Request};
use serde_json::{Value, json};

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
}

// === impl Mistake ===

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 7] = [
        Mistake::NoDeadline,
        Mistake::NoOwnerReference,
        Mistake::NoLeaderElection,
        Mistake::IgnoredError,
        Mistake::NoRelist,
        Mistake::EarlyStatus,
        Mistake::NoPruning,
    ];

    /// Changes a request and its object into those of a controller with this mistake.
    pub(crate) fn apply<B>(self, request: &Request<B>, object: &mut Value) {
        let is_status = request.uri().path().ends_with("/status");
        let is_apply = *request.method() == Method::PATCH && !is_status;
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
            _ => {}
        }
    }
}

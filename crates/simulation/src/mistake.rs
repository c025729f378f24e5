//! Mistakes of a controller, planted in its requests: the transport changes a request into the one that a controller with
//! the mistake would send. Production code needs no switch for them. Tests show that the simulation finds each.

use cluster::IDENTITY_ANNOTATION;
use embedded::Server;
use http::{Method, Request, StatusCode, Uri};
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
    /// An object with the identity annotation of the operator counts as its own, although a person created it.
    OwnershipByAnnotation,
    /// Objects are applied with another field manager than the one that they are compared with.
    OtherFieldManager,
    /// Only the first page of a list is read.
    FirstPageOnly,
    /// The Lease is read again before it is written, but not evaluated again.
    OverwrittenLease,
    /// A leader whose renewal of the Lease fails continues.
    IgnoredRenewalError,
    /// An Event whose creation conflicts counts as published, although it does not exist.
    IgnoredConflict,
    /// Objects are created for an owner that was deleted.
    StaleOwner,
    /// Obsolete objects are deleted by name, whatever their UID.
    NoPreconditions,
    /// The status does not contain the generation that it describes.
    NoObservedGeneration,
}

// === impl Mistake ===

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 17] = [
        Mistake::NoDeadline,
        Mistake::NoOwnerReference,
        Mistake::NoLeaderElection,
        Mistake::IgnoredError,
        Mistake::NoRelist,
        Mistake::EarlyStatus,
        Mistake::NoPruning,
        Mistake::ForcedCreate,
        Mistake::OwnershipByAnnotation,
        Mistake::OtherFieldManager,
        Mistake::FirstPageOnly,
        Mistake::OverwrittenLease,
        Mistake::IgnoredRenewalError,
        Mistake::IgnoredConflict,
        Mistake::StaleOwner,
        Mistake::NoPreconditions,
        Mistake::NoObservedGeneration,
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
            (Mistake::NoObservedGeneration, _) if is_status => {
                object["status"].as_object_mut().and_then(|status| status.remove("observedGeneration"));
            }
            (Mistake::NoPreconditions, _) if *request.method() == Method::DELETE => {
                object.as_object_mut().and_then(|options| options.remove("preconditions"));
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

    /// Returns whether a request that failed counts as successful. `status` is absent if the response was lost.
    pub(crate) fn ignores_failure(self, method: &Method, object: &Value, status: Option<StatusCode>) -> bool {
        let is_event = object["kind"] == "Event" && *method != Method::GET;
        match self {
            Mistake::IgnoredError => object["kind"].is_string(),
            Mistake::IgnoredRenewalError => object["kind"] == "Lease",
            Mistake::IgnoredConflict => is_event && status == Some(StatusCode::CONFLICT),
            _ => false,
        }
    }
}

/// Adds the field manager of the operator to an object with its identity annotation.
pub(crate) fn adopt(object: &mut Value) {
    if object["metadata"]["annotations"][IDENTITY_ANNOTATION].is_string() {
        let manager = json!({"manager": FIELD_MANAGER, "operation": "Apply", "apiVersion": object["apiVersion"],
            "fieldsType": "FieldsV1", "fieldsV1": {}});
        if let Some(fields) = object["metadata"]["managedFields"].as_array_mut() {
            fields.push(manager);
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

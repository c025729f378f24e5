//! Objects that cannot be decoded into the Go type of their kind.

use std::fmt::Display;

use apimachinery::{Status, StatusCause};

use super::options::RequestBody;
use crate::resources::Resource;

/// Reason why an object cannot be decoded into the Go type of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UndecodableObject {
    kind: String,
    version: String,
    reason: String,
}

// === impl UndecodableObject ===

impl UndecodableObject {
    /// Returns the error for an object of `resource`; `reason` is the message of Go's decoder.
    pub(crate) fn new(resource: &Resource, reason: impl Display) -> Self {
        Self { kind: resource.kind.clone(), version: resource.version.clone(), reason: reason.to_string() }
    }

    /// Returns the API status: 400 for a complete object, 422 for a patch.
    pub(crate) fn into_status(self, body: RequestBody) -> Status {
        let Self { kind, version, reason } = self;
        match body {
            RequestBody::Object => {
                Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {reason}"))
            }
            RequestBody::Patch => {
                Status::invalid("", "", vec![StatusCause::invalid("patch", &"object".into(), &reason)])
            }
        }
    }
}

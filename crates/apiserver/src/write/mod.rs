//! The write pipeline: one module per stage, in this order.
//!
//! | stage | purpose |
//! |---|---|
//! | [`decode`] | decodes the body of a request and finds duplicate fields |
//! | [`preconditions`] | compares name, UID and resource version with the current object (updates) |
//! | [`prune`] | removes unknown fields and reports them |
//! | [`default`] | applies defaults |
//! | [`normalize`] | normalizes the object to the JSON encoding of its Go type |
//! | [`managed_fields`] | records field managers in `managedFields` |
//! | [`prepare`] | sets the fields owned by the server: UID, timestamps, generation, initial status |
//! | [`validate`] | rejects invalid objects with all causes |
//! | [`warnings`] | reports accepted but suspicious values |
//! | [`validation_rules`] | evaluates the CEL rules of custom resources |
//! | [`allocate`] | allocates cluster IPs and node ports of Services |
//! | [`admit`] | runs the built-in admission plugins and the admission port |
//! | [`commit`] | stores the object and starts cascading deletion |
//!
//! [`pipeline`] runs the stages. Nothing is stored before [`commit`]. The stages operate on the resource, the old
//! object and the new object; stages that need other objects, such as Services, PriorityClasses or Namespaces, only
//! read them.

pub(crate) mod decode;

pub(crate) mod preconditions;

pub(crate) mod prune;

pub(crate) mod default;

pub(crate) mod normalize;

mod managed_fields;

mod prepare;

pub(crate) mod validate;

mod warnings;

pub(crate) mod validation_rules;

mod allocate;

pub(crate) mod admit;

mod commit;

mod pipeline;

use std::sync::Arc;

use apimachinery::{Status, StatusCause};
use serde_json::Value;

use crate::resources::Resource;

pub(crate) use decode::FieldWarnings;

/// Options of a write request.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    /// Field manager that is recorded for the written fields.
    pub(crate) manager: String,
    pub(crate) field_validation: FieldValidation,
    /// Subresource name that is recorded in `managedFields` if it is not one of [`Subresource`], such as `scale`.
    pub(crate) subresource: Option<&'static str>,
    /// Duplicate fields found while decoding the body.
    pub(crate) field_warnings: FieldWarnings,
    /// Kind of the request body.
    pub(crate) body: RequestBody,
    /// Resource of the request if its version differs from the storage version. `managedFields` contain the field names
    /// of this version.
    pub(crate) request_resource: Option<Arc<Resource>>,
    /// Whether to run all stages except the commit.
    pub(crate) dry_run: bool,
}

/// Kind of a request body, which determines the error for values of the wrong type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RequestBody {
    /// Complete object; the error is 400.
    #[default]
    Object,
    /// Patch; the error is 422 for the field `patch`.
    Patch,
}

/// How unknown and duplicate fields are reported (`fieldValidation`). Unless the request is rejected, unknown fields
/// are dropped, and the last of several duplicate fields wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FieldValidation {
    /// Not reported.
    Ignore,
    /// Reported in `Warning` headers.
    #[default]
    Warn,
    /// Rejected with 400.
    Strict,
}

/// Part of an object that a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// Everything except the status, if the resource has a status subresource.
    Main,
    /// The status.
    Status,
}

/// New object that a client proposes.
#[derive(Debug, Clone)]
pub(crate) enum Proposal {
    /// Result of POST, PUT or a patch. Its field manager owns the fields that differ from the current object.
    Update(Value),
    /// Result of server-side apply, in which `managedFields` are already updated.
    Apply(Value),
}

/// Result of a write.
#[derive(Debug, Clone)]
pub(crate) struct WriteResult {
    /// Object after the write.
    pub(crate) object: Arc<Value>,
    /// Warnings for the client.
    pub(crate) warnings: Vec<String>,
    /// Whether the object was created.
    pub(crate) created: bool,
}

/// Computes the new object from the current one, which is `None` if the object does not exist. It is called again after
/// each conflict.
pub(crate) type ProposeFn<'a> = &'a dyn Fn(Option<&Value>) -> Result<Proposal, Status>;

// === impl RequestBody ===

impl RequestBody {
    /// Converts the error for values of the wrong type to the error for this kind of request body.
    fn type_error(self, status: Status) -> Status {
        if self == Self::Object || status.code != 400 {
            return status;
        }
        let message = status.message.split_once(" cannot be handled as a ").and_then(|(_, rest)| rest.split_once(": "));
        let message = message.map_or(status.message.as_str(), |(_, message)| message);
        Status::invalid("", "", vec![StatusCause::invalid("patch", &"object".into(), message)])
    }
}

// === impl Subresource ===

impl Subresource {
    /// Returns the subresource name for `managedFields`.
    #[must_use]
    pub(crate) fn managed_fields_name(self) -> Option<String> {
        match self {
            Self::Main => None,
            Self::Status => Some("status".to_owned()),
        }
    }
}

// === impl Proposal ===

impl Proposal {
    pub(crate) fn into_parts(self) -> (Value, bool) {
        match self {
            Self::Update(object) => (object, false),
            Self::Apply(object) => (object, true),
        }
    }
}

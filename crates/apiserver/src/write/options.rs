//! Options of write requests.

use std::sync::Arc;

use super::decode::FieldWarnings;
use crate::resources::Resource;

/// Field manager of the built-in controllers, as in a real cluster.
const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// Options of a write request.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    /// Field manager that is recorded for the written fields.
    pub(crate) manager: String,
    /// How unknown and duplicate fields are reported.
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

// === impl WriteOptions ===

impl WriteOptions {
    /// Returns the options of the built-in controllers.
    pub(crate) fn controller_manager() -> Self {
        Self { manager: CONTROLLER_MANAGER.to_owned(), ..Self::default() }
    }
}

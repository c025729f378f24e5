//! Admission of writes, like an admission webhook in the same process.

use apimachinery::StatusCause;
use serde_json::Value;

/// Admits or denies writes, like an admission webhook in the same process.
pub trait Admission: Send + Sync {
    /// Reviews one write.
    fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionResponse;
}

/// One write, after defaulting and validation.
#[derive(Debug, Clone, Copy)]
pub struct AdmissionRequest<'a> {
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: &'static str,
    /// Plural and group: `pods`, `deployments.apps`.
    pub resource: &'a str,
    /// Empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// `None` for `DELETE`.
    pub object: Option<&'a Value>,
    /// `None` for `CREATE`.
    pub old_object: Option<&'a Value>,
}

/// The response to an [`AdmissionRequest`].
#[derive(Debug, Clone, Default)]
pub struct AdmissionResponse {
    /// Whether the write is allowed.
    pub allowed: bool,
    /// The reason for denying the write, shown to the client.
    pub message: String,
    /// The invalid fields, if they are the reason for the denial.
    pub causes: Vec<StatusCause>,
    /// Warnings for the client (`Warning:` headers), for allowed and denied writes.
    pub warnings: Vec<String>,
}

/// Allows every write.
#[derive(Debug, Clone, Copy, Default)]
pub struct AdmitAll;

// === impl AdmitAll ===

impl Admission for AdmitAll {
    fn review(&self, _request: &AdmissionRequest<'_>) -> AdmissionResponse {
        AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
    }
}

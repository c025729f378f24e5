//! What an admission webhook would be asked, and answers; in process.

use apimachinery::status::Cause;
use serde_json::Value;

/// What an admission webhook would be asked, and answers; in process.
pub trait Admission: Send + Sync {
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
    pub name: &'a str,
    /// Absent on `DELETE`.
    pub object: Option<&'a Value>,
    /// Absent on `CREATE`.
    pub old: Option<&'a Value>,
}

/// The answer to an [`AdmissionRequest`].
#[derive(Debug, Clone, Default)]
pub struct AdmissionResponse {
    pub allowed: bool,
    /// Why not; shown to the client.
    pub message: String,
    /// The fields that are wrong, where the refusal is about fields.
    pub causes: Vec<Cause>,
    /// Shown to the client as `Warning:` lines, also when allowed.
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

//! Fields of HTTPRoutes that the gateway does not support.

use std::borrow::Cow;

/// A field of a route that the gateway does not support.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {problem}")]
pub(super) struct Unsupported {
    field: String,
    problem: Cow<'static, str>,
}

// === impl Unsupported ===

impl Unsupported {
    /// Returns the error for a field, which `problem` follows in the message.
    pub(super) fn new(field: impl Into<String>, problem: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), problem: problem.into() }
    }
}

//! Errors of planning.

use api::Code;

/// The reason why a service cannot be planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    /// Stable code of [`code::error`](crate::code::error).
    pub code: Code,
    /// Explanation with the field and the remedy.
    pub message: String,
}

impl PlanError {
    /// Creates an error.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

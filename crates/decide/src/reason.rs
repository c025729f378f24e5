//! Reasons of rejections and warnings: enums with their values. Text is only rendered when it is shown.
//!
//! Codes are stable and in CamelCase.

mod class;
mod format;
mod missing_field;
mod runtime;

use api::Code;
use serde::{Deserialize, Serialize};

use crate::code;

use crate::component::Component;

pub(crate) use class::class_stage;
pub use class::{ClassRejection, CountLimit, ExclusionReason};
pub(crate) use format::{AbbreviatedList, Gigabytes};
pub(crate) use missing_field::field_assignments;
pub use missing_field::{MissingField, ModelField};
pub use runtime::{RuntimeRejection, UnavailableAccelerators};

/// Code and message of a reason: its JSON representation.
#[derive(Serialize)]
pub(crate) struct RenderedReason<'a> {
    /// Code from one of the lists in [`crate::code`].
    pub(crate) code: &'a str,
    /// Message with the compared values.
    pub(crate) message: String,
}

/// A finding that does not prevent the service from running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Warning {
    /// Code from one of the lists in [`crate::code`] or `plan::code`.
    pub code: String,
    /// Message with the compared values.
    pub message: String,
    /// What the warning is about, if it is not the service as a whole. Not serialized.
    #[serde(skip)]
    pub subject: Option<WarningSubject>,
}

/// What a warning is about, for callers that combine warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarningSubject {
    /// A runtime, model or class.
    Object {
        /// Kind of the object.
        kind: &'static str,
        /// Namespace; empty for cluster-scoped objects.
        namespace: String,
        /// Name.
        name: String,
    },
    /// A component of the service.
    Component(Component),
}

// === impl Warning ===

impl Warning {
    /// Creates a warning.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), subject: None }
    }

    /// Returns the same warning with a subject.
    #[must_use]
    pub fn with_subject(self, subject: WarningSubject) -> Self {
        Self { subject: Some(subject), ..self }
    }

    /// Returns whether the service lacks accelerators: free ones, or nodes.
    #[must_use]
    pub fn is_capacity_shortage(&self) -> bool {
        is_capacity_shortage(&self.code)
    }
}

/// Returns whether `code` is a warning that the service lacks accelerators: free ones, or nodes.
#[must_use]
pub fn is_capacity_shortage(code: &str) -> bool {
    code == code::warning::NO_FREE_CAPACITY.as_str() || code == code::warning::TOO_FEW_NODES.as_str()
}

/// Returns the index of `code` in `codes`; 0 if it is not listed.
fn position(codes: &[Code], code: Code) -> u8 {
    let index = codes.iter().position(|listed| listed.as_str() == code.as_str()).unwrap_or(0);
    u8::try_from(index).unwrap_or(u8::MAX)
}

//! The part of an object that a write may change.

/// Part of an object that a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subresource {
    /// Everything except the status, if the resource has a status subresource.
    Main,
    /// The status.
    Status,
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

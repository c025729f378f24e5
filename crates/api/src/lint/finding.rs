//! A finding about a document.

use crate::manifest::{Document, ManifestError};

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The API server or admission would reject the object.
    Error,
    /// The object would be admitted.
    Warning,
}

/// One problem of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the finding rejects the object.
    pub severity: Severity,
    /// Field path, such as `spec.engine.runner`; empty for the whole object.
    pub path: String,
    /// Description of the problem.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}

/// Message about a required field that is not set.
pub(super) const REQUIRED_FIELD_MISSING: &str = "required field is missing";

// === impl Finding ===

impl Finding {
    /// Creates a finding that rejects the object.
    pub fn error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, path: path.into(), message: message.into(), hint: None }
    }

    /// Creates a finding that does not reject the object.
    pub fn warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(path, message) }
    }

    /// Adds a hint on how to fix the finding.
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Converts the finding into the error that rejects `document`.
    pub fn into_manifest_error(self, document: &Document) -> ManifestError {
        let path = Some(self.path).filter(|path| !path.is_empty());
        ManifestError { path, cause: self.message, hint: self.hint, ..document.manifest_error() }
    }

    /// Formats the finding as `warning: f.yaml, document 1 (Kind namespace/name), spec.x: …`, with the hint on a second
    /// line.
    pub fn render(&self, document: &Document) -> String {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let error = self.clone().into_manifest_error(document);
        let hint = self.hint.iter().map(|hint| format!("\n  hint: {hint}")).collect::<String>();
        format!("{severity}: {error}{hint}")
    }
}

//! Validation of writes beyond schemas and CEL: rules about fields whose text must be parsed, and rules that relate
//! several objects.
//!
//! [`validate_admission`] does no I/O. The webhook that an API server calls ([`webhook`]) and the admission of the embedded API
//! server call it. `ostler lint` and `ostler plan` validate files with the same rules, through an [`AdmissionContext`].

mod accelerator_counts;
mod class_references;
mod context;
mod object_lister;
mod picker_config;
mod role_topology;
mod runtime_conflicts;
pub(crate) mod webhook;
mod workload_names;

use std::collections::BTreeSet;

use api::{Document, Finding, Severity};
use apimachinery::StatusCause;
use serde_json::Value;

pub use context::AdmissionContext;
pub use object_lister::ObjectLister;
pub use picker_config::validate_picker_config;
pub use webhook::{WebhookOptions, WebhookTarget};

/// A write to validate, as in an AdmissionReview.
#[derive(Clone, Copy, Debug)]
pub struct ValidationRequest<'a> {
    /// The new object; `None` for a deletion.
    pub object: Option<&'a Value>,
    /// The previous object; `None` for a creation.
    pub old_object: Option<&'a Value>,
}

/// Errors that reject the write, and warnings for its author.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValidationResult {
    /// Errors; the write is allowed if there are none.
    pub errors: Vec<Finding>,
    /// Warnings, one line each.
    pub warnings: Vec<String>,
}

/// Maximum number of warnings per write; API servers truncate long lists.
const MAX_WARNINGS: usize = 8;
/// Maximum length of a warning in characters, as API servers recommend.
const MAX_WARNING_LENGTH: usize = 250;

/// Validates a write. Errors that the previous object already had become warnings: its author must be able to remove a
/// finalizer or to correct another field first.
#[must_use]
pub fn validate_admission(request: &ValidationRequest<'_>, lister: &dyn ObjectLister) -> ValidationResult {
    let Some(object) = request.object.filter(|object| needs_validation(object, request.old_object)) else {
        return ValidationResult::default();
    };
    let context = AdmissionContext::for_object(object, lister);
    let current_findings = findings(object, &context);
    let previous_findings: BTreeSet<(String, String)> = match request.old_object {
        Some(old) if !current_findings.is_empty() => {
            findings(old, &context).into_iter().map(|finding| (finding.path, finding.message)).collect()
        }
        _ => BTreeSet::new(),
    };
    let (errors, warnings): (Vec<_>, Vec<_>) = current_findings.into_iter().partition(|finding| {
        finding.severity == Severity::Error
            && !previous_findings.contains(&(finding.path.clone(), finding.message.clone()))
    });
    ValidationResult { errors, warnings: warnings.iter().take(MAX_WARNINGS).map(warning_line).collect() }
}

fn findings(object: &Value, context: &AdmissionContext) -> Vec<Finding> {
    let document = Document { source: String::new(), index: 1, value: object.clone() };
    let mut findings = api::lint_semantics(&document);
    findings.extend(context.runtime_conflicts(&document));
    findings.extend(context.validate(&document));
    findings.extend(picker_config::validate_picker_config(&document));
    // Skipped if the object has errors, because these would cause further errors here.
    if findings.iter().all(|finding| finding.severity != Severity::Error) {
        findings.extend(role_topology::validate(&document));
    }
    findings
}

/// Returns whether the write needs validation: the object is of an ostler kind and not terminating, and the write
/// changes more than status and labels.
fn needs_validation(object: &Value, old: Option<&Value>) -> bool {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let is_unchanged = |old: &Value| {
        old["spec"] == object["spec"] && old["metadata"]["annotations"] == object["metadata"]["annotations"]
    };
    api::is_served_kind(text("apiVersion"), text("kind"))
        && object["metadata"]["deletionTimestamp"].is_null()
        && !old.is_some_and(is_unchanged)
}

/// Formats a warning: `spec.x: error; hint`.
fn warning_line(finding: &Finding) -> String {
    let text = format!("{}: {}", finding.path, message_with_hint(finding));
    match text.char_indices().nth(MAX_WARNING_LENGTH) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn message_with_hint(finding: &Finding) -> String {
    match &finding.hint {
        Some(hint) => format!("{}; {hint}", finding.message),
        None => finding.message.clone(),
    }
}

// === impl ValidationResult ===

impl ValidationResult {
    /// Returns whether the write is allowed.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.errors.is_empty()
    }

    /// Returns the errors as causes of a Status.
    #[must_use]
    pub fn causes(&self) -> Vec<StatusCause> {
        let cause =
            |finding: &Finding| StatusCause::new(&finding.path, "FieldValueInvalid", message_with_hint(finding));
        self.errors.iter().map(cause).collect()
    }
}

#[cfg(test)]
mod tests;

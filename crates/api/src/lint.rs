//! Lint findings about a manifest, computed without a cluster: what the API server would reject or silently drop.

mod annotations;
mod classes;
mod finding;
mod http_routes;
mod kinds;
mod metadata;
mod model_size;
mod models;
mod nearest_name;
mod pod_templates;
mod resources;
mod rules;
mod runtimes;
mod schema_violations;
mod truncate;
mod unknown_fields;
mod use_cases;
mod version;

use crate::crds;
use crate::manifest::Document;

pub use finding::{Finding, Severity};
pub use http_routes::http_route_spec_error;
pub use nearest_name::nearest_name;
pub use pod_templates::reserved_template_keys;

/// Maximum number of findings reported for a document.
const MAX_FINDINGS: usize = 50;

/// Returns the findings about a document, sorted by path. Documents of other API groups have no findings.
pub fn lint_document(document: &Document) -> Vec<Finding> {
    let Some(schema) = crds::schema(document.api_version(), document.kind()) else {
        return kinds::check(document).into_iter().collect();
    };
    let mut findings = metadata::check(document);
    findings.extend(unknown_fields::check(schema, document));
    let violations = schema_violations::check(schema, document);
    let is_valid = violations.is_empty() && findings.iter().all(|finding| finding.severity != Severity::Error);
    if is_valid {
        findings.extend(lint_semantics(document));
    }
    findings.extend(violations);
    findings.sort_by(|a, b| (&a.path, a.severity).cmp(&(&b.path, b.severity)));
    truncate_findings(findings)
}

/// Returns the findings that go beyond the schema and its CEL rules, for a document that passes both. Used by the
/// admission webhook.
pub fn lint_semantics(document: &Document) -> Vec<Finding> {
    let mut findings = rules::check(document);
    findings.extend(resources::check(&document.value));
    findings
}

/// Replaces findings beyond the maximum by their number.
fn truncate_findings(mut findings: Vec<Finding>) -> Vec<Finding> {
    let omitted = findings.len().saturating_sub(MAX_FINDINGS);
    if omitted > 0 {
        let severity = findings[MAX_FINDINGS..].iter().map(|finding| finding.severity).min();
        findings.truncate(MAX_FINDINGS);
        let message = match omitted {
            1 => "1 more finding is not shown".to_owned(),
            _ => format!("{omitted} more findings are not shown"),
        };
        let summary = Finding { severity: severity.unwrap_or(Severity::Warning), ..Finding::error("", message) };
        findings.push(summary.with_hint("fix the findings above first"));
    }
    findings
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod validation_tests;

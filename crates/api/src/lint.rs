//! Lint findings about a manifest, computed without a cluster: what the API server would reject or silently drop.

use apimachinery::StatusCause;
use serde_json::Value;

use crate::crds::{self, KindSchema};
use crate::manifest::{Document, ManifestError};
use crate::openapi::TextFormat;

mod annotations;
mod classes;
mod http_routes;
mod kinds;
mod metadata;
mod models;
mod nearest_name;
mod pod_templates;
mod resources;
mod rules;
mod runtimes;

pub use http_routes::http_route_spec_error;
pub use nearest_name::nearest_name;
pub use pod_templates::reserved_template_keys;

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

/// Returns the findings about a document, sorted by path. Documents of other API groups have no findings.
pub fn lint_document(document: &Document) -> Vec<Finding> {
    let Some(schema) = crds::schema(document.api_version(), document.kind()) else {
        return kinds::check(document).into_iter().collect();
    };
    let mut findings = metadata::check(document);
    unknown_fields(schema.json, &document.value, "", &mut findings);
    let schema_findings = schema_findings(schema, document);
    let is_valid = schema_findings.is_empty() && findings.iter().all(|finding| finding.severity != Severity::Error);
    if is_valid {
        findings.extend(lint_semantics(document));
    }
    findings.extend(schema_findings);
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

/// Truncates a name or value for use in a message.
fn abbreviate(text: &str) -> String {
    truncate(text, 63)
}

/// Truncates text to `max_length` characters and marks the truncation with `…`.
fn truncate(text: &str, max_length: usize) -> String {
    match text.char_indices().nth(max_length) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Maximum length of the message about one field, in characters.
const MAX_MESSAGE_LENGTH: usize = 400;

/// Message about a required field that is not set.
const REQUIRED_FIELD_MISSING: &str = "required field is missing";

/// Maximum number of findings reported for a document.
const MAX_FINDINGS: usize = 50;

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

/// Returns the violations of the schema and its CEL rules.
fn schema_findings(schema: &KindSchema, document: &Document) -> Vec<Finding> {
    let Some(schema) = schema.compiled() else { return Vec::new() };
    let mut value = document.value.clone();
    metadata::generate_name(&mut value);
    schema.default(&mut value);
    let mut causes = schema.validate(&value);
    if causes.is_empty() {
        causes = schema.check_rules(&value, None);
    }
    causes.into_iter().map(finding_from_cause).collect()
}

/// Converts a validation error of the API server into a finding, with a shorter message and a hint.
fn finding_from_cause(cause: StatusCause) -> Finding {
    // Messages of the API server repeat the path of the finding.
    let (value, message) = match cause.message.split_once(&format!(": {} in body ", cause.field)) {
        Some((value, message)) => (value.strip_prefix("Invalid value: ").unwrap_or_default(), message),
        None => ("", rule_message(&cause.message)),
    };
    let pattern = message.strip_prefix("should match '").and_then(|rest| rest.strip_suffix('\''));
    if let Some(format) = pattern.and_then(TextFormat::by_pattern) {
        return format_finding(cause.field, value, format);
    }
    let (message, hint) = message.split_once("; ").map_or((message, None), |(message, hint)| (message, Some(hint)));
    let message = if message == "Required value" {
        REQUIRED_FIELD_MISSING.to_owned()
    } else {
        truncate(message.trim_end_matches(", null"), MAX_MESSAGE_LENGTH)
    };
    let hint = hint.map(str::to_owned).or_else(|| default_hint(&message));
    Finding { hint, ..Finding::error(cause.field, message) }
}

/// Returns the message of a CEL rule without the error type and value type that the API server prepends.
fn rule_message(message: &str) -> &str {
    let message = message.strip_prefix("Invalid value: ").unwrap_or(message);
    let value_type_and_message = message.strip_prefix('"').and_then(|rest| rest.split_once("\": "));
    value_type_and_message.map_or(message, |(_, message)| message)
}

/// Returns the finding about text that does not have the format of its field.
fn format_finding(field: String, value: &str, format: &TextFormat) -> Finding {
    let text = abbreviate(&serde_json::from_str::<String>(value).unwrap_or_else(|_| value.to_owned()));
    let problem = if text.starts_with('-') { "negative".to_owned() } else { format!("not {}", format.description) };
    Finding::error(field, format!("`{text}` is {problem}")).with_hint(format.hint)
}

/// Returns the hint for a validation error of the schema.
fn default_hint(message: &str) -> Option<String> {
    const BOUNDS: [(&str, &str, &str); 5] = [
        ("should be greater than or equal to ", "write ", " or more"),
        ("should be less than or equal to ", "write ", " or less"),
        ("may not be more than ", "write at most ", ""),
        ("should be at least ", "write at least ", ""),
        ("must have at most ", "keep at most ", ""),
    ];
    let after = |marker: &str| message.split_once(marker).map(|(_, rest)| rest);
    if message == REQUIRED_FIELD_MISSING {
        return Some("add the field".to_owned());
    }
    if let Some(values) = after("supported values: ") {
        return Some(format!("use one of {}", values.replace('"', "")));
    }
    let bound = BOUNDS.into_iter().find_map(|(marker, prefix, suffix)| Some((after(marker)?, prefix, suffix)));
    if let Some((bound, prefix, suffix)) = bound {
        return Some(format!("{prefix}{bound}{suffix}"));
    }
    let (expected, actual) = after("must be of type ")?.split_once(": ")?;
    let needs_quotes = expected.contains("string") && ["\"integer\"", "\"number\"", "\"boolean\""].contains(&actual);
    Some(if needs_quotes { "put the value in quotes".to_owned() } else { format!("use a value of type {expected}") })
}

/// Warns about fields that the schema does not specify, which the API server drops.
fn unknown_fields(schema: &Value, value: &Value, path: &str, findings: &mut Vec<Finding>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name_in_path = abbreviate(name);
                let field_path = if path.is_empty() { name_in_path } else { format!("{path}.{name_in_path}") };
                // Schemas specify at most `metadata.name`, but metadata has more fields.
                if path.is_empty() && OBJECT_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                match field_schema(schema, name) {
                    FieldSchema::Known(schema) => unknown_fields(schema, field, &field_path, findings),
                    FieldSchema::Preserved => {}
                    FieldSchema::Unknown => findings.push(unknown_field(schema, name, field_path)),
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = schema.get("items") else { return };
            for (index, item) in items.iter().enumerate() {
                unknown_fields(schema, item, &format!("{path}[{index}]"), findings);
            }
        }
        _ => {}
    }
}

const OBJECT_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// How a schema specifies a field.
enum FieldSchema<'a> {
    Known(&'a Value),
    /// Not specified, but preserved.
    Preserved,
    Unknown,
}

fn field_schema<'a>(schema: &'a Value, name: &str) -> FieldSchema<'a> {
    if let Some(known) = schema.get("properties").and_then(|properties| properties.get(name)) {
        return FieldSchema::Known(known);
    }
    if let Some(additional) = schema.get("additionalProperties").filter(|value| value.is_object()) {
        return FieldSchema::Known(additional);
    }
    // Only objects have fields; a value of the wrong type is a separate finding.
    let is_closed = schema.get("type").is_some_and(|value| value == "object") && !preserves_unknown_fields(schema);
    if is_closed { FieldSchema::Unknown } else { FieldSchema::Preserved }
}

fn preserves_unknown_fields(schema: &Value) -> bool {
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
    flag("x-kubernetes-preserve-unknown-fields") || flag("additionalProperties") || schema.get("properties").is_none()
}

fn unknown_field(schema: &Value, name: &str, path: String) -> Finding {
    let known = schema.get("properties").and_then(Value::as_object);
    let nearest = known.and_then(|known| nearest_name(name, known.keys().map(String::as_str)));
    let finding = Finding::warning(path, format!("unknown field `{}`; the API server drops it", abbreviate(name)));
    match nearest {
        Some(nearest) => finding.with_hint(format!("did you mean `{nearest}`?")),
        None => finding,
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod validation_tests;

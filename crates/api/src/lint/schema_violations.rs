//! Violations of the schema of a kind and of its CEL rules.

use apimachinery::StatusCause;

use super::finding::{Finding, REQUIRED_FIELD_MISSING};
use super::metadata;
use super::truncate::{abbreviate, truncate};
use crate::crds::KindSchema;
use crate::manifest::Document;
use crate::openapi::TextFormat;

/// Maximum length of the message about one field, in characters.
const MAX_MESSAGE_LENGTH: usize = 400;

/// Returns the violations of the schema and its CEL rules.
pub(super) fn check(schema: &KindSchema, document: &Document) -> Vec<Finding> {
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

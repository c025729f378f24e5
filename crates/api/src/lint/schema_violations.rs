//! Violations of the schema of a kind and of its CEL rules.

use apimachinery::{Constraint, SchemaViolation};
use serde_json::Value;

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
    let mut violations = schema.validate(&value);
    if violations.is_empty() {
        violations = schema.check_rules(&value, None);
    }
    violations.iter().map(finding).collect()
}

/// Returns the finding about a violation, with a shorter message than that of the API server, and a hint.
fn finding(violation: &SchemaViolation) -> Finding {
    let SchemaViolation { field, value, constraint } = violation;
    let pattern = match constraint {
        Constraint::Pattern(pattern) => TextFormat::by_pattern(pattern),
        _ => None,
    };
    if let Some(format) = pattern {
        return format_finding(field, value.as_str().unwrap_or_default(), format);
    }
    let finding = Finding::error(field, truncate(&message(violation), MAX_MESSAGE_LENGTH));
    Finding { hint: hint(violation), ..finding }
}

/// Returns the finding about text that does not have the format of its field.
fn format_finding(field: &str, text: &str, format: &TextFormat) -> Finding {
    let text = abbreviate(text);
    let problem = if text.starts_with('-') { "negative".to_owned() } else { format!("not {}", format.description) };
    Finding::error(field, format!("`{text}` is {problem}")).with_hint(format.hint)
}

fn message(violation: &SchemaViolation) -> String {
    let SchemaViolation { field, value, constraint } = violation;
    match constraint {
        Constraint::Required => REQUIRED_FIELD_MISSING.to_owned(),
        Constraint::Type(_) | Constraint::Format(_) => format!("{constraint}: {value}"),
        Constraint::Enum(supported) => {
            let constraint = Constraint::Enum(without_null(supported).cloned().collect());
            SchemaViolation { field: field.clone(), value: value.clone(), constraint }.cause().message
        }
        Constraint::MaxLength(_) | Constraint::MaxCount { .. } | Constraint::Unique => violation.cause().message,
        Constraint::Rule { message, .. } => message_and_hint(message).0.to_owned(),
        _ => constraint.to_string(),
    }
}

fn hint(violation: &SchemaViolation) -> Option<String> {
    Some(match &violation.constraint {
        Constraint::Required => "add the field".to_owned(),
        Constraint::Enum(supported) => {
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("use one of {}", without_null(supported).map(text).collect::<Vec<_>>().join(", "))
        }
        Constraint::Type(expected) if is_unquoted_text(expected, &violation.value) => {
            "put the value in quotes".to_owned()
        }
        Constraint::Type(expected) => format!("use a value of type {expected}"),
        Constraint::Format(expected) => format!("use a value of type {expected}"),
        Constraint::Minimum { bound, exclusive: false } => format!("write {bound} or more"),
        Constraint::Maximum { bound, exclusive: false } => format!("write {bound} or less"),
        Constraint::MaxLength(max) => format!("write at most {max} bytes"),
        Constraint::MinLength(min) => format!("write at least {min} chars long"),
        Constraint::MaxCount { max, unit } => format!("keep at most {max} {unit}"),
        Constraint::Rule { message, .. } => message_and_hint(message).1?.to_owned(),
        _ => return None,
    })
}

/// Splits the message of a rule, which has the form `message; hint`, because a rule has no field for a hint.
fn message_and_hint(message: &str) -> (&str, Option<&str>) {
    message.split_once("; ").map_or((message, None), |(message, hint)| (message, Some(hint)))
}

/// Reports whether a scalar was written where text is accepted; `actual` is the name of its type.
fn is_unquoted_text(expected: &str, actual: &Value) -> bool {
    expected.contains("string") && ["integer", "number", "boolean"].iter().any(|scalar| actual == scalar)
}

fn without_null(values: &[Value]) -> impl Iterator<Item = &Value> {
    values.iter().filter(|value| !value.is_null())
}

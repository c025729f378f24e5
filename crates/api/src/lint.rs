//! Findings about a manifest, without a cluster: what the API server would refuse, what it would silently drop.

use serde_json::Value;

use crate::crds::{self, KindSchema};
use crate::manifest::{Document, ManifestError};

mod amounts;
mod kinds;
mod names;
mod rules;

/// How bad a finding is: an error is refused on `apply`, a warning is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
}

/// One thing wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub severity: Severity,
    /// Such as `spec.engine.runner`.
    pub path: String,
    pub message: String,
    pub hint: Option<String>,
}

/// Findings in the order of their paths. Kinds that are not ours have none.
pub fn check(document: &Document) -> Vec<Finding> {
    let Some(schema) = crds::schema(document.api_version(), document.kind()) else {
        return kinds::check(document).into_iter().collect();
    };
    let mut findings = Vec::new();
    if document.name().is_empty() && document.value.pointer("/metadata/generateName").is_none() {
        findings.push(Finding::error("metadata.name", "an object needs a name").hint("add `name:` under `metadata:`"));
    }
    findings.extend(amounts::check(&document.value));
    unknown_fields(&schema.json, &document.value, "", &mut findings);
    let refused = refusals(schema, document);
    if refused.is_empty() {
        findings.extend(rules::check(document));
    }
    findings.extend(refused);
    findings.sort_by(|a, b| (&a.path, a.severity).cmp(&(&b.path, b.severity)));
    findings
}

impl Finding {
    pub(crate) fn error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, path: path.into(), message: message.into(), hint: None }
    }

    pub(crate) fn warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(path, message) }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// The finding as the reason why `document` is not used.
    pub fn refuse(self, document: &Document) -> ManifestError {
        let path = Some(self.path).filter(|path| !path.is_empty());
        ManifestError { path, cause: self.message, hint: self.hint, ..document.error() }
    }

    /// `warning: f.yaml, document 1 (Kind ns/name), spec.x: unknown field; did you mean …`.
    pub fn render(&self, document: &Document) -> String {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let place = self.clone().refuse(document);
        let hint = self.hint.iter().map(|hint| format!("\n  hint: {hint}")).collect::<String>();
        format!("{severity}: {place}{hint}")
    }
}

/// What the schema and its CEL rules refuse.
fn refusals(schema: &KindSchema, document: &Document) -> Vec<Finding> {
    let Some(schema) = schema.compiled() else { return Vec::new() };
    let mut value = document.value.clone();
    schema.default(&mut value);
    let mut causes = schema.validate(&value);
    if causes.is_empty() {
        causes = schema.check_rules(&value, None);
    }
    causes.into_iter().map(refusal).collect()
}

fn refusal(cause: apimachinery::status::Cause) -> Finding {
    let text = cause.message.contains("must be of type string");
    // The API server repeats the path, which a finding has already.
    let message = cause.message.split_once(" in body ").map_or(cause.message.as_str(), |(_, short)| short);
    let finding = Finding::error(cause.field, message);
    match advice(&finding.message) {
        Some(_) if text => finding.hint("put the value in quotes"),
        Some(advice) => finding.hint(advice),
        None => finding,
    }
}

/// What to do about a value that the schema refuses.
fn advice(message: &str) -> Option<String> {
    if let Some((_, known)) = message.split_once("supported values: ") {
        return Some(format!("write one of {}", known.trim_end_matches(", null").replace('"', "")));
    }
    let kind = message.split_once("must be of type ")?.1;
    Some(format!("the field takes a value of type {}", kind.split(':').next().unwrap_or(kind)))
}

/// Warns about fields that the schema does not have and so would be dropped.
fn unknown_fields(schema: &Value, value: &Value, path: &str, findings: &mut Vec<Finding>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match child(schema, name) {
                    Child::Known(schema) => unknown_fields(schema, field, &at, findings),
                    Child::Open => {}
                    Child::Unknown if path.is_empty() && OBJECT_FIELDS.contains(&name.as_str()) => {}
                    Child::Unknown => findings.push(unknown(schema, name, at)),
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

/// What a schema says about a field.
enum Child<'a> {
    Known(&'a Value),
    /// Kept without being known.
    Open,
    Unknown,
}

fn child<'a>(schema: &'a Value, name: &str) -> Child<'a> {
    if let Some(known) = schema.get("properties").and_then(|properties| properties.get(name)) {
        return Child::Known(known);
    }
    if let Some(each) = schema.get("additionalProperties").filter(|each| each.is_object()) {
        return Child::Known(each);
    }
    // A value that is no object here is the wrong type, which is another finding.
    let closed = schema.get("type").is_some_and(|kind| kind == "object") && !is_open(schema);
    if closed { Child::Unknown } else { Child::Open }
}

fn is_open(schema: &Value) -> bool {
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or(false);
    flag("x-kubernetes-preserve-unknown-fields") || flag("additionalProperties") || schema.get("properties").is_none()
}

fn unknown(schema: &Value, name: &str, path: String) -> Finding {
    let known = schema.get("properties").and_then(Value::as_object);
    let nearest = known.and_then(|known| names::nearest(name, known.keys().map(String::as_str)));
    let finding = Finding::warning(path, format!("unknown field `{name}`, which would be dropped"));
    match nearest {
        Some(nearest) => finding.hint(format!("did you mean `{nearest}`?")),
        None => finding,
    }
}

#[cfg(test)]
mod tests;

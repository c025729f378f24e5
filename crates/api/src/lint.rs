//! Findings about a manifest, without a cluster: what the API server would refuse, what it would silently drop.

use apimachinery::status::Cause;
use serde_json::Value;

use crate::crds::{self, KindSchema};
use crate::manifest::{Document, ManifestError};
use crate::openapi::Form;

mod amounts;
mod annotations;
mod classes;
mod kinds;
mod metadata;
mod models;
mod names;
mod routes;
mod rules;
mod runtimes;
mod templates;

pub use names::nearest;
pub use routes::route_fault;
pub use templates::reserved_keys;

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
    let mut findings = metadata::check(document);
    unknown_fields(schema.json, &document.value, "", &mut findings);
    let refused = refusals(schema, document);
    let usable = refused.is_empty() && findings.iter().all(|finding| finding.severity != Severity::Error);
    if usable {
        findings.extend(beyond_schema(document));
    }
    findings.extend(refused);
    findings.sort_by(|a, b| (&a.path, a.severity).cmp(&(&b.path, b.severity)));
    bounded(findings)
}

/// Findings that neither schema nor CEL can express, of an object that both admit: what a webhook adds.
pub fn beyond_schema(document: &Document) -> Vec<Finding> {
    let mut findings = rules::check(document);
    findings.extend(amounts::check(&document.value));
    findings
}

/// A name or value in a message: it may be a megabyte.
fn short(text: &str) -> String {
    cut(text, 63)
}

/// At most so many characters; what is cut shows as `…`.
fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Longest message about one field, in characters.
const LONGEST_MESSAGE: usize = 400;

/// A manifest with a thousand mistakes has one at the root of most of them.
const MOST: usize = 50;

fn bounded(mut findings: Vec<Finding>) -> Vec<Finding> {
    let more = findings.len().saturating_sub(MOST);
    if more > 0 {
        let worst = findings[MOST..].iter().map(|finding| finding.severity).min();
        findings.truncate(MOST);
        let message = format!("{more} more findings are not shown");
        let rest = Finding { severity: worst.unwrap_or(Severity::Warning), ..Finding::error("", message) };
        findings.push(rest.hint("correct those above first"));
    }
    findings
}

impl Finding {
    /// A finding that refuses the object.
    pub fn error(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Error, path: path.into(), message: message.into(), hint: None }
    }

    /// A finding that does not.
    pub fn warning(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(path, message) }
    }

    /// The same with what to do about it.
    pub fn hint(self, hint: impl Into<String>) -> Self {
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
    metadata::generate_name(&mut value);
    schema.default(&mut value);
    let mut causes = schema.validate(&value);
    if causes.is_empty() {
        causes = schema.check_rules(&value, None);
    }
    causes.into_iter().map(refusal).collect()
}

/// A refusal in the words of the API server, made shorter, with what to write instead.
fn refusal(cause: Cause) -> Finding {
    // The API server repeats the path, which a finding has already.
    let (stated, message) = match cause.message.split_once(&format!(": {} in body ", cause.field)) {
        Some((stated, short)) => (stated.strip_prefix("Invalid value: ").unwrap_or_default(), short),
        None => ("", own_words(&cause.message)),
    };
    if let Some(form) = message.strip_prefix("should match '").and_then(|rest| Form::of(rest.strip_suffix('\'')?)) {
        return malformed(cause.field, stated, form);
    }
    let (message, remedy) = message.split_once("; ").map_or((message, None), |(what, remedy)| (what, Some(remedy)));
    let message = if message == "Required value" {
        "is missing".to_owned()
    } else {
        cut(message.trim_end_matches(", null"), LONGEST_MESSAGE)
    };
    let advice = remedy.map(str::to_owned).or_else(|| advice(&message));
    Finding { hint: advice, ..Finding::error(cause.field, message) }
}

/// What a CEL rule says, without what the API server puts before it: the kind of fault, and the type of the value.
fn own_words(message: &str) -> &str {
    let words = message.strip_prefix("Invalid value: ").unwrap_or(message);
    let typed = words.strip_prefix('"').and_then(|rest| rest.split_once("\": "));
    typed.map_or(words, |(_, words)| words)
}

/// Text that lacks the form its field demands.
fn malformed(field: String, stated: &str, form: &Form) -> Finding {
    let text = short(&serde_json::from_str::<String>(stated).unwrap_or_else(|_| stated.to_owned()));
    let wrong = if text.starts_with('-') { "negative".to_owned() } else { format!("not {}", form.what) };
    Finding::error(field, format!("`{text}` is {wrong}")).hint(form.remedy)
}

/// What to do about a value that the schema refuses.
fn advice(message: &str) -> Option<String> {
    const BOUNDS: [(&str, &str, &str); 5] = [
        ("should be greater than or equal to ", "write ", " or more"),
        ("should be less than or equal to ", "write ", " or less"),
        ("may not be more than ", "write at most ", ""),
        ("should be at least ", "write at least ", ""),
        ("must have at most ", "leave at most ", ""),
    ];
    let after = |mark: &str| message.split_once(mark).map(|(_, rest)| rest);
    if message == "is missing" {
        return Some("add the field".to_owned());
    }
    if let Some(known) = after("supported values: ") {
        return Some(format!("write one of {}", known.replace('"', "")));
    }
    if let Some((bound, before, behind)) = BOUNDS.into_iter().find_map(|(mark, a, b)| Some((after(mark)?, a, b))) {
        return Some(format!("{before}{bound}{behind}"));
    }
    let (kind, got) = after("must be of type ")?.split_once(": ")?;
    let quoted = kind.contains("string") && ["\"integer\"", "\"number\"", "\"boolean\""].contains(&got);
    Some(if quoted { "put the value in quotes".to_owned() } else { format!("the field takes a value of type {kind}") })
}

/// Warns about fields that the schema does not have and so would be dropped.
fn unknown_fields(schema: &Value, value: &Value, path: &str, findings: &mut Vec<Finding>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let shown = short(name);
                let at = if path.is_empty() { shown } else { format!("{path}.{shown}") };
                // A schema may name the name only, and metadata has more.
                if path.is_empty() && OBJECT_FIELDS.contains(&name.as_str()) {
                    continue;
                }
                match child(schema, name) {
                    Child::Known(schema) => unknown_fields(schema, field, &at, findings),
                    Child::Open => {}
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
    let finding = Finding::warning(path, format!("unknown field `{}`, which would be dropped", short(name)));
    match nearest {
        Some(nearest) => finding.hint(format!("did you mean `{nearest}`?")),
        None => finding,
    }
}

#[cfg(test)]
mod refusals;
#[cfg(test)]
mod tests;

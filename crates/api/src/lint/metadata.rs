//! Names, labels and annotations, validated as in the API server.

use serde_json::Value;

use super::finding::{Finding, REQUIRED_FIELD_MISSING};
use super::truncate::abbreviate;
use crate::manifest::{Document, MAX_NAME_LENGTH};

/// Maximum length of a namespace name, a label value and the name part of a label key.
const MAX_LABEL_LENGTH: usize = 63;
/// Maximum total size of all annotation keys and values, in bytes.
const MAX_ANNOTATIONS_SIZE: usize = 256 << 10;
/// Placeholder of the suffix that the API server appends to `generateName`.
const GENERATED_SUFFIX: &str = "xxxxx";

/// Returns the findings about `metadata`.
pub(super) fn check(document: &Document) -> Vec<Finding> {
    let mut findings: Vec<Finding> = name(document).into_iter().chain(namespace(document)).collect();
    findings.extend(labels(&document.value["metadata"]["labels"]));
    findings.extend(annotations(&document.value["metadata"]["annotations"]));
    findings
}

/// Sets `metadata.name` if it is generated or missing, so that rules about names can be evaluated. A missing name is a
/// separate finding.
pub(super) fn generate_name(object: &mut Value) {
    let metadata = &mut object["metadata"];
    let is_nameless = metadata.is_null() || metadata.is_object() && metadata["name"].is_null();
    if is_nameless {
        metadata["name"] =
            Value::from(format!("{}{GENERATED_SUFFIX}", metadata["generateName"].as_str().unwrap_or_default()));
    }
}

/// Reports whether `text` is a DNS-1123 subdomain, the required format of most object names.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= MAX_NAME_LENGTH
        && text.split('.').all(|part| is_word(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit()))
}

fn name(document: &Document) -> Option<Finding> {
    let has_generate_name = document.value.pointer("/metadata/generateName").is_some();
    match document.name() {
        "" if has_generate_name => None,
        "" => Some(Finding::error("metadata.name", REQUIRED_FIELD_MISSING).with_hint("add `name:` under `metadata:`")),
        name if is_subdomain(name) => None,
        name => {
            let finding = Finding::error("metadata.name", format!("`{}` is not a valid object name", abbreviate(name)));
            Some(finding.with_hint("use only a-z, 0-9, - and ., and at most 253 characters, such as `my-model`"))
        }
    }
}

fn namespace(document: &Document) -> Option<Finding> {
    let namespace = document.namespace()?;
    let is_valid = namespace.len() <= MAX_LABEL_LENGTH && is_subdomain(namespace) && !namespace.contains('.');
    let finding =
        || Finding::error("metadata.namespace", format!("`{}` is not a valid namespace name", abbreviate(namespace)));
    (!is_valid).then(|| finding().with_hint("use only a-z, 0-9 and -, and at most 63 characters"))
}

fn labels(labels: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, value) in labels.as_object().into_iter().flatten() {
        let path = format!("metadata.labels[{}]", abbreviate(key));
        if !is_qualified_name(key) {
            findings.push(
                Finding::error(&path, "invalid label key")
                    .with_hint("use `name` or `domain/name` with at most 63 characters after the slash"),
            );
        }
        let is_valid = value
            .as_str()
            .is_some_and(|text| text.is_empty() || text.len() <= MAX_LABEL_LENGTH && is_word(text, is_alphanumeric));
        if !is_valid {
            let finding =
                Finding::error(path, format!("`{}` is not a valid label value", abbreviate(&value_text(value))));
            findings.push(
                finding.with_hint("use a quoted string of letters, digits, -, _ and ., and at most 63 characters"),
            );
        }
    }
    findings
}

fn annotations(annotations: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let path = format!("metadata.annotations[{}]", abbreviate(key));
        if !is_qualified_name(&key.to_lowercase()) {
            findings.push(Finding::error(&path, "invalid annotation key").with_hint("use `name` or `domain/name`"));
        }
        match value.as_str() {
            Some(text) => bytes += key.len() + text.len(),
            None => findings
                .push(Finding::error(path, "annotation values must be strings").with_hint("put the value in quotes")),
        }
    }
    if bytes > MAX_ANNOTATIONS_SIZE {
        let message = format!("annotations have {bytes} bytes in total; the limit is {MAX_ANNOTATIONS_SIZE} bytes");
        findings.push(Finding::error("metadata.annotations", message).with_hint("store large values in a ConfigMap"));
    }
    findings
}

/// Reports whether `key` is a qualified name: `[domain/]name`.
fn is_qualified_name(key: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    domain.is_none_or(is_subdomain) && name.len() <= MAX_LABEL_LENGTH && is_word(name, is_alphanumeric)
}

fn is_alphanumeric(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

/// Reports whether `text` is non-empty, starts and ends with an `allowed` character, and otherwise contains only allowed
/// characters, `-` and, in labels, `_` and `.`.
fn is_word(text: &str, allowed: fn(char) -> bool) -> bool {
    let is_inner_character = |c: char| allowed(c) || c == '-' || (allowed('A') && ['_', '.'].contains(&c));
    text.starts_with(allowed) && text.ends_with(allowed) && text.chars().all(is_inner_character)
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

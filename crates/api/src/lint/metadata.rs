//! Names, labels and annotations, as the API server demands them of every object.

use serde_json::Value;

use super::{Finding, short};
use crate::manifest::Document;

/// Longest name of an object.
const NAME: usize = 253;
/// Longest name of a namespace, longest label value, longest name part of a label key.
const LABEL: usize = 63;
/// All keys and values of an object's annotations together, in bytes.
const ANNOTATIONS: usize = 256 << 10;
/// What a suffix of `generateName` takes.
const SUFFIX: &str = "xxxxx";

/// Findings about `metadata`.
pub(super) fn check(document: &Document) -> Vec<Finding> {
    let mut findings: Vec<Finding> = name(document).into_iter().chain(namespace(document)).collect();
    findings.extend(labels(&document.value["metadata"]["labels"]));
    findings.extend(annotations(&document.value["metadata"]["annotations"]));
    findings
}

/// Puts a name where the API server would make one, or where one is missing, which is a finding of its own: rules
/// about names can then be checked.
pub(super) fn generate_name(object: &mut Value) {
    let metadata = &mut object["metadata"];
    let nameless = metadata.is_null() || metadata.is_object() && metadata["name"].is_null();
    if nameless {
        metadata["name"] = Value::from(format!("{}{SUFFIX}", metadata["generateName"].as_str().unwrap_or_default()));
    }
}

/// Whether `text` is a DNS-1123 subdomain: what most objects must be called.
pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= NAME && text.split('.').all(|part| is_word(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit()))
}

fn name(document: &Document) -> Option<Finding> {
    let generated = document.value.pointer("/metadata/generateName").is_some();
    match document.name() {
        "" if generated => None,
        "" => Some(Finding::error("metadata.name", "an object needs a name").hint("add `name:` under `metadata:`")),
        name if is_subdomain(name) => None,
        name => {
            let finding = Finding::error("metadata.name", format!("`{}` is not a name", short(name)));
            Some(finding.hint("write a-z, 0-9, - and . only, at most 253 characters, such as `my-model`"))
        }
    }
}

fn namespace(document: &Document) -> Option<Finding> {
    let namespace = document.namespace()?;
    let label = namespace.len() <= LABEL && is_subdomain(namespace) && !namespace.contains('.');
    let finding = || Finding::error("metadata.namespace", format!("`{}` is not a namespace", short(namespace)));
    (!label).then(|| finding().hint("write a-z, 0-9 and - only, at most 63 characters"))
}

fn labels(stated: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, value) in stated.as_object().into_iter().flatten() {
        let path = format!("metadata.labels[{}]", short(key));
        if !is_key(key) {
            findings.push(
                Finding::error(&path, "is not a label key")
                    .hint("write `name` or `domain/name`, at most 63 characters after the slash"),
            );
        }
        let valid =
            value.as_str().is_some_and(|text| text.is_empty() || text.len() <= LABEL && is_word(text, is_label_end));
        if !valid {
            let finding = Finding::error(path, format!("`{}` is not a label value", short(&text_of(value))));
            findings.push(finding.hint("write letters, digits, -, _ and . only, at most 63 characters, in quotes"));
        }
    }
    findings
}

fn annotations(stated: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut bytes = 0;
    for (key, value) in stated.as_object().into_iter().flatten() {
        let path = format!("metadata.annotations[{}]", short(key));
        if !is_key(&key.to_lowercase()) {
            findings.push(Finding::error(&path, "is not an annotation key").hint("write `name` or `domain/name`"));
        }
        match value.as_str() {
            Some(text) => bytes += key.len() + text.len(),
            None => findings.push(Finding::error(path, "must be text").hint("put the value in quotes")),
        }
    }
    if bytes > ANNOTATIONS {
        let message = format!("{bytes} bytes of annotations; an object may have {ANNOTATIONS}");
        findings.push(Finding::error("metadata.annotations", message).hint("keep large texts in a ConfigMap"));
    }
    findings
}

/// `[domain/]name`.
fn is_key(key: &str) -> bool {
    let (domain, name) = key.split_once('/').map_or((None, key), |(domain, name)| (Some(domain), name));
    domain.is_none_or(is_subdomain) && name.len() <= LABEL && is_word(name, is_label_end)
}

fn is_label_end(c: char) -> bool {
    c.is_ascii_alphanumeric()
}

/// Not empty, both ends `end`, between them also `-`, and for labels `_` and `.`.
fn is_word(text: &str, end: fn(char) -> bool) -> bool {
    let inner = |c: char| end(c) || c == '-' || (end('A') && ['_', '.'].contains(&c));
    text.starts_with(end) && text.ends_with(end) && text.chars().all(inner)
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

//! Compares responses and reports unknown differences.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::replay::RecordedResponse;
use super::script::{self, Step};

/// JSON pointers of known differences, by step.
pub(super) type KnownDifferences = BTreeMap<String, BTreeSet<String>>;

/// Reports unknown differences, and known differences that no longer exist; empty if there are none.
pub(super) fn report(
    topic: &str,
    steps: &[Step],
    recorded: &[RecordedResponse],
    responses: &[RecordedResponse],
    known: &KnownDifferences,
) -> String {
    let mut report = String::new();
    let no_differences = BTreeSet::new();
    for (step, response) in steps.iter().zip(responses) {
        let Some(expected) = recorded.iter().find(|recorded| recorded.description == step.description) else {
            report += &format!(
                "\n{topic}: {}: no recorded response; got {} {}",
                step.description, response.code, response.body
            );
            continue;
        };
        let known = known.get(&step.description).unwrap_or(&no_differences);
        let differences_found = differences_of(step, expected, response);
        let new = differences_found.iter().filter(|(pointer, _)| !known.contains(*pointer));
        let resolved = known.iter().filter(|pointer| !differences_found.contains_key(*pointer));
        let lines: Vec<String> = new
            .map(|(pointer, line)| format!("{pointer}: {line}"))
            .chain(resolved.map(|pointer| {
                format!("{pointer}: no longer differs; remove it from tests/differential/open/{topic}.json")
            }))
            .collect();
        if !lines.is_empty() {
            report += &format!("\n{topic}: {}:\n    {}", step.description, lines.join("\n    "));
        }
    }
    report
}

/// Returns all differences in the format of the files in `tests/differential/open`.
pub(super) fn known_differences(
    steps: &[Step],
    recorded: &[RecordedResponse],
    responses: &[RecordedResponse],
) -> KnownDifferences {
    let mut known = KnownDifferences::new();
    for (step, response) in steps.iter().zip(responses) {
        let Some(expected) = recorded.iter().find(|recorded| recorded.description == step.description) else {
            continue;
        };
        let differences_found = differences_of(step, expected, response);
        if !differences_found.is_empty() {
            known.insert(step.description.clone(), differences_found.into_keys().collect());
        }
    }
    known
}

pub(super) fn known_differences_path(topic: &str) -> std::path::PathBuf {
    script::directory().join("open").join(format!("{topic}.json"))
}

pub(super) fn read_known_differences(topic: &str) -> KnownDifferences {
    serde_json::from_str(&std::fs::read_to_string(known_differences_path(topic)).unwrap()).unwrap()
}

/// Returns the differences by JSON pointer, without the exceptions of the step.
pub(super) fn differences_of(
    step: &Step,
    expected: &RecordedResponse,
    response: &RecordedResponse,
) -> BTreeMap<String, String> {
    let mut differences_found = BTreeMap::new();
    if expected.code != response.code {
        differences_found.insert("code".to_owned(), format!("expected {}, got {}", expected.code, response.code));
    }
    if expected.warnings != response.warnings {
        differences_found
            .insert("warnings".to_owned(), format!("expected {:?}, got {:?}", expected.warnings, response.warnings));
    }
    differences("", &expected.body, &response.body, &mut differences_found);
    let is_excepted = |pointer: &str| {
        step.except.keys().any(|excepted| pointer == excepted || pointer.starts_with(&format!("{excepted}/")))
    };
    differences_found.retain(|pointer, _| !is_excepted(pointer));
    differences_found
}

/// Collects the differences of two values by JSON pointer.
fn differences(pointer: &str, expected: &Value, actual: &Value, differences_found: &mut BTreeMap<String, String>) {
    match (expected, actual) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let member_pointer = format!("{pointer}/{}", name.replace('/', "~1"));
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => differences(&member_pointer, a, b, differences_found),
                    (a, b) => {
                        differences_found.insert(
                            member_pointer,
                            format!("expected {}, got {}", format_optional(a), format_optional(b)),
                        );
                    }
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{pointer}/{index}"), a, b, differences_found);
            }
        }
        _ if expected == actual => {}
        _ => {
            differences_found.insert(pointer.to_owned(), format!("expected {expected}, got {actual}"));
        }
    }
}

fn format_optional(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), Value::to_string)
}

//! Where two answers differ, and which of that is known.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::play::Answer;
use super::script::{self, Step};

/// Places where the answers still differ, by step: known, and to become fewer.
pub(super) type Open = BTreeMap<String, BTreeSet<String>>;

/// What is wrong: a difference that is not known, and a known one that is gone; empty when all is well.
pub(super) fn report(topic: &str, steps: &[Step], recorded: &[Answer], answers: &[Answer], known: &Open) -> String {
    let mut report = String::new();
    let none = BTreeSet::new();
    for (step, answer) in steps.iter().zip(answers) {
        let Some(expected) = recorded.iter().find(|recorded| recorded.does == step.does) else {
            report += &format!("\n{topic}: {}: never recorded; got {} {}", step.does, answer.code, answer.body);
            continue;
        };
        let known = known.get(&step.does).unwrap_or(&none);
        let found = differences_of(step, expected, answer);
        let new = found.iter().filter(|(place, _)| !known.contains(*place));
        let gone = known.iter().filter(|place| !found.contains_key(*place));
        let lines: Vec<String> =
            new.map(|(place, line)| format!("{place}: {line}"))
                .chain(gone.map(|place| {
                    format!("{place}: differs no more: take it out of tests/differential/open/{topic}.json")
                }))
                .collect();
        if !lines.is_empty() {
            report += &format!("\n{topic}: {}:\n    {}", step.does, lines.join("\n    "));
        }
    }
    report
}

/// What differs, in the form of the files under `open`.
pub(super) fn open(steps: &[Step], recorded: &[Answer], answers: &[Answer]) -> Open {
    let mut open = Open::new();
    for (step, answer) in steps.iter().zip(answers) {
        let Some(expected) = recorded.iter().find(|recorded| recorded.does == step.does) else { continue };
        let found = differences_of(step, expected, answer);
        if !found.is_empty() {
            open.insert(step.does.clone(), found.into_keys().collect());
        }
    }
    open
}

pub(super) fn open_path(topic: &str) -> std::path::PathBuf {
    script::folder().join("open").join(format!("{topic}.json"))
}

pub(super) fn known(topic: &str) -> Open {
    serde_json::from_str(&std::fs::read_to_string(open_path(topic)).unwrap()).unwrap()
}

/// Place → what was recorded and what was given, without the exceptions of the step.
pub(super) fn differences_of(step: &Step, expected: &Answer, answer: &Answer) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    if expected.code != answer.code {
        found.insert("code".to_owned(), format!("{} is {}", expected.code, answer.code));
    }
    if expected.warnings != answer.warnings {
        found.insert("warnings".to_owned(), format!("{:?} are {:?}", expected.warnings, answer.warnings));
    }
    differences("", &expected.body, &answer.body, &mut found);
    let is_except =
        |place: &str| step.except.keys().any(|pointer| place == pointer || place.starts_with(&format!("{pointer}/")));
    found.retain(|place, _| !is_except(place));
    found
}

/// Each place where two values differ.
fn differences(pointer: &str, expected: &Value, given: &Value, found: &mut BTreeMap<String, String>) {
    match (expected, given) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let inner = format!("{pointer}/{}", name.replace('/', "~1"));
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => differences(&inner, a, b, found),
                    (a, b) => {
                        found.insert(inner, format!("{} is {}", shown(a), shown(b)));
                    }
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{pointer}/{index}"), a, b, found);
            }
        }
        _ if expected == given => {}
        _ => {
            found.insert(pointer.to_owned(), format!("{expected} is {given}"));
        }
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "absent".to_owned(), Value::to_string)
}

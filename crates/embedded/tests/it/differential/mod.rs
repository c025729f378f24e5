//! The embedded server against recorded answers of a real kube-apiserver, request by request.
//!
//! `tests/differential/scripts` says what is asked, `tests/differential/answers` what kube-apiserver answered; the
//! version is in `answers/version.json`. `cargo xtask test --with realcluster` plays the scripts against a living one
//! (`OSTLER_REALCLUSTER`, a kubeconfig) and compares; with `OSTLER_RECORD=1` it writes the answers anew.

mod normal;
mod play;
mod script;

use std::collections::{BTreeMap, BTreeSet};

use play::Answer;
use rstest::rstest;
use script::Step;
use serde_json::Value;

const TOPICS: &[&str] = &[
    "apply",
    "custom",
    "defaults",
    "deletion",
    "events",
    "lists",
    "patches",
    "tables",
    "validation",
    "watches",
    "workloads",
    "writes",
];

#[rstest]
#[case::apply("apply")]
#[case::custom("custom")]
#[case::defaults("defaults")]
#[case::deletion("deletion")]
#[case::events("events")]
#[case::lists("lists")]
#[case::patches("patches")]
#[case::tables("tables")]
#[case::validation("validation")]
#[case::watches("watches")]
#[case::workloads("workloads")]
#[case::writes("writes")]
#[tokio::test(start_paused = true)]
async fn answers_are_those_of_a_real_cluster(#[case] topic: &str) {
    let steps = script::read(topic);
    let server = crate::server();
    let namespace = format!("{topic}-0000");
    // As on a cluster that is in use, versions are larger than any count in a message or number in an address.
    for _ in 0..400 {
        server.create("configmaps", serde_json::json!({"metadata": {"name": "used", "namespace": "default"}})).unwrap();
        server.delete("configmaps", "default", "used", None).unwrap();
    }
    server.create("namespaces", serde_json::json!({"metadata": {"name": namespace}})).unwrap();
    let answers = play::play(&crate::client(&server), &steps, &namespace).await;
    compare(topic, &steps, &recorded(topic), &answers);
}

#[test]
fn every_script_is_played() {
    let files = std::fs::read_dir(script::folder().join("scripts")).unwrap();
    let found: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().to_string_lossy().trim_end_matches(".yaml").to_owned()).collect();
    assert_eq!(found, TOPICS.iter().map(ToString::to_string).collect());
}

#[test]
fn every_exception_is_explained_in_the_documentation() {
    let page = include_str!("../../../../../docs/embedded.md");
    for step in TOPICS.iter().flat_map(|topic| script::read(topic)) {
        for reason in step.except.values() {
            assert!(page.contains(reason.as_str()), "docs/embedded.md does not say {reason:?} ({})", step.does);
        }
    }
}

/// Compares with a living kube-apiserver, or records it.
#[tokio::test]
#[ignore = "needs a kube-apiserver: cargo xtask test --with realcluster"]
async fn live() {
    let path = std::env::var("OSTLER_REALCLUSTER").expect("OSTLER_REALCLUSTER: a kubeconfig");
    let only = std::env::var("OSTLER_TOPIC").ok();
    let kubeconfig = kube::config::Kubeconfig::read_from(path).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.unwrap();
    config.proxy_url = None;
    let client = kube::Client::try_from(config).unwrap();
    for topic in TOPICS.iter().filter(|topic| only.as_deref().is_none_or(|only| only == **topic)) {
        let steps = script::read(topic);
        let namespace = format!("{topic}-{:04x}", fastrand::u16(..));
        namespaced(&client, "POST", &namespace).await;
        let answers = play::play(&client, &steps, &namespace).await;
        namespaced(&client, "DELETE", &namespace).await;
        if std::env::var_os("OSTLER_RECORD").is_some() {
            write(topic, &answers);
        } else {
            compare(topic, &steps, &recorded(topic), &answers);
        }
    }
}

async fn namespaced(client: &kube::Client, method: &str, name: &str) {
    let (path, body) = match method {
        "POST" => ("/api/v1/namespaces".to_owned(), serde_json::json!({"metadata": {"name": name}}).to_string()),
        _ => (format!("/api/v1/namespaces/{name}"), String::new()),
    };
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    client.request::<Value>(request.body(body.into_bytes()).unwrap()).await.unwrap();
}

fn recorded(topic: &str) -> Vec<Answer> {
    let path = script::folder().join("answers").join(format!("{topic}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn write(topic: &str, answers: &[Answer]) {
    let path = script::folder().join("answers").join(format!("{topic}.json"));
    std::fs::write(path, serde_json::to_string_pretty(answers).unwrap() + "\n").unwrap();
}

/// Places where the answers still differ, by step: known, and to become fewer.
type Open = BTreeMap<String, BTreeSet<String>>;

/// Fails for a difference that is not known, and for a known one that is gone. `OSTLER_OPEN=1` writes down what differs.
fn compare(topic: &str, steps: &[Step], recorded: &[Answer], answers: &[Answer]) {
    let (mut report, mut open) = (String::new(), Open::new());
    for (step, answer) in steps.iter().zip(answers) {
        let Some(expected) = recorded.iter().find(|recorded| recorded.does == step.does) else {
            report += &format!("\n{topic}: {}: never recorded; got {} {}", step.does, answer.code, answer.body);
            continue;
        };
        let found = differences_of(step, expected, answer);
        if !found.is_empty() {
            open.insert(step.does.clone(), found.keys().cloned().collect());
        }
        let known = known(topic).remove(&step.does).unwrap_or_default();
        let lines: Vec<String> =
            found
                .iter()
                .filter(|(place, _)| !known.contains(*place))
                .map(|(place, line)| format!("{place}: {line}"))
                .chain(known.iter().filter(|place| !found.contains_key(*place)).map(|place| {
                    format!("{place}: differs no more: take it out of tests/differential/open/{topic}.json")
                }))
                .collect();
        if !lines.is_empty() {
            report += &format!("\n{topic}: {}:\n    {}", step.does, lines.join("\n    "));
        }
    }
    if std::env::var_os("OSTLER_OPEN").is_some() {
        return std::fs::write(open_path(topic), serde_json::to_string_pretty(&open).unwrap() + "\n").unwrap();
    }
    assert!(report.is_empty(), "recorded and given answers differ:{report}\n");
}

fn open_path(topic: &str) -> std::path::PathBuf {
    script::folder().join("open").join(format!("{topic}.json"))
}

fn known(topic: &str) -> Open {
    serde_json::from_str(&std::fs::read_to_string(open_path(topic)).unwrap()).unwrap()
}

/// Place → what was recorded and what was given, without the exceptions of the step.
fn differences_of(step: &Step, expected: &Answer, answer: &Answer) -> BTreeMap<String, String> {
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

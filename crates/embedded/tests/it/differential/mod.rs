//! Differential tests, which compare responses of the server with recorded responses of kube-apiserver v1.37.0.
//!
//! `tests/differential/scripts` contains the requests, `tests/differential/answers` the recorded responses. `cargo
//! xtask test --with realcluster` starts a kube-apiserver, replays the scripts against it and compares; with
//! `OSTLER_RECORD=1`, it records the responses instead.

mod compare;
mod normalizer;
mod random;
mod real_apiserver;
mod replay;
mod script;

use std::collections::BTreeSet;

use real_apiserver::RealApiserver;
use replay::RecordedResponse;
use rstest::rstest;
use serde_json::Value;

const TOPICS: &[&str] = &[
    "apply",
    "custom",
    "defaults",
    "definitions",
    "deletion",
    "events",
    "kinds",
    "lists",
    "numbers",
    "patches",
    "pods",
    "regressions",
    "requests",
    "subresources",
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
#[case::definitions("definitions")]
#[case::deletion("deletion")]
#[case::events("events")]
#[case::kinds("kinds")]
#[case::lists("lists")]
#[case::numbers("numbers")]
#[case::patches("patches")]
#[case::pods("pods")]
#[case::regressions("regressions")]
#[case::requests("requests")]
#[case::subresources("subresources")]
#[case::tables("tables")]
#[case::validation("validation")]
#[case::watches("watches")]
#[case::workloads("workloads")]
#[case::writes("writes")]
#[tokio::test(start_paused = true)]
async fn responses_equal_recorded_ones(#[case] topic: &str) {
    let steps = script::read(topic);
    let server = crate::server();
    let namespace = format!("{topic}-0000");
    server.create("namespaces", serde_json::json!({"metadata": {"name": namespace}})).unwrap();
    let responses = replay::replay(&crate::client(&server), &steps, &namespace).await;
    let recorded = recorded_responses(topic);
    if std::env::var_os("OSTLER_OPEN").is_some() {
        let differences = compare::known_differences(&steps, &recorded, &responses);
        return std::fs::write(
            compare::known_differences_path(topic),
            serde_json::to_string_pretty(&differences).unwrap() + "\n",
        )
        .unwrap();
    }
    let report = compare::report(topic, &steps, &recorded, &responses, &compare::read_known_differences(topic));
    assert!(report.is_empty(), "recorded and actual responses differ:{report}\n");
}

#[test]
fn every_script_has_a_test_case() {
    let files = std::fs::read_dir(script::directory().join("scripts")).unwrap();
    let scripts: BTreeSet<String> =
        files.map(|file| file.unwrap().file_name().to_string_lossy().trim_end_matches(".yaml").to_owned()).collect();
    assert_eq!(scripts, TOPICS.iter().map(ToString::to_string).collect());
}

#[test]
fn every_exception_is_documented() {
    let documentation = include_str!("../../../../../docs/embedded.md");
    for step in TOPICS.iter().flat_map(|topic| script::read(topic)) {
        for reason in step.except.values() {
            assert!(
                documentation.contains(reason.as_str()),
                "docs/embedded.md does not contain {reason:?} ({})",
                step.description
            );
        }
    }
}

/// Compares the recorded responses with those of a kube-apiserver, or records them.
#[tokio::test]
#[ignore = "needs a kube-apiserver: cargo xtask test --with realcluster"]
async fn live() {
    let only_topic = std::env::var("OSTLER_TOPIC").ok();
    let real_apiserver = RealApiserver::start().await;
    let client = real_apiserver.client();
    let mut report = String::new();
    for topic in TOPICS.iter().filter(|topic| only_topic.as_deref().is_none_or(|only_topic| only_topic == **topic)) {
        let steps = script::read(topic);
        let namespace = format!("{topic}-{:04x}", fastrand::u16(..));
        send_namespace_request(&client, "POST", &namespace).await;
        let responses = replay::replay(&client, &steps, &namespace).await;
        send_namespace_request(&client, "DELETE", &namespace).await;
        if std::env::var_os("OSTLER_RECORD").is_some() {
            record(topic, &responses);
        } else {
            report += &compare::report(
                topic,
                &steps,
                &recorded_responses(topic),
                &responses,
                &compare::KnownDifferences::new(),
            );
        }
    }
    assert!(report.is_empty(), "recorded responses differ from kube-apiserver:{report}\n");
}

async fn send_namespace_request(client: &kube::Client, method: &str, name: &str) {
    let (path, body) = match method {
        "POST" => ("/api/v1/namespaces".to_owned(), serde_json::json!({"metadata": {"name": name}}).to_string()),
        _ => (format!("/api/v1/namespaces/{name}"), String::new()),
    };
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    client.request::<Value>(request.body(body.into_bytes()).unwrap()).await.unwrap();
}

fn recorded_responses(topic: &str) -> Vec<RecordedResponse> {
    let path = script::directory().join("answers").join(format!("{topic}.json"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn record(topic: &str, responses: &[RecordedResponse]) {
    let path = script::directory().join("answers").join(format!("{topic}.json"));
    std::fs::write(path, serde_json::to_string_pretty(responses).unwrap() + "\n").unwrap();
}

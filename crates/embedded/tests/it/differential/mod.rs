//! The embedded server against recorded answers of a real kube-apiserver, request by request.
//!
//! `tests/differential/scripts` says what is asked, `tests/differential/answers` what kube-apiserver answered; the
//! version is v1.37.0. `cargo xtask test --with realcluster` starts a living one, plays the scripts against it and
//! compares; with `OSTLER_RECORD=1` it writes the answers anew.

mod compare;
mod living;
mod normal;
mod play;
mod random;
mod script;

use std::collections::BTreeSet;

use living::Living;
use play::Answer;
use rstest::rstest;
use serde_json::Value;

const TOPICS: &[&str] = &[
    "apply",
    "custom",
    "defaults",
    "definitions",
    "deletion",
    "events",
    "faces",
    "found",
    "kinds",
    "lists",
    "patches",
    "pods",
    "requests",
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
#[case::faces("faces")]
#[case::found("found")]
#[case::kinds("kinds")]
#[case::lists("lists")]
#[case::patches("patches")]
#[case::pods("pods")]
#[case::requests("requests")]
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
    server.create("namespaces", serde_json::json!({"metadata": {"name": namespace}})).unwrap();
    let answers = play::play(&crate::client(&server), &steps, &namespace).await;
    let recorded = recorded(topic);
    if std::env::var_os("OSTLER_OPEN").is_some() {
        let open = compare::open(&steps, &recorded, &answers);
        return std::fs::write(compare::open_path(topic), serde_json::to_string_pretty(&open).unwrap() + "\n").unwrap();
    }
    let report = compare::report(topic, &steps, &recorded, &answers, &compare::known(topic));
    assert!(report.is_empty(), "recorded and given answers differ:{report}\n");
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
    let only = std::env::var("OSTLER_TOPIC").ok();
    let living = Living::start().await;
    let client = living.client();
    let mut report = String::new();
    for topic in TOPICS.iter().filter(|topic| only.as_deref().is_none_or(|only| only == **topic)) {
        let steps = script::read(topic);
        let namespace = format!("{topic}-{:04x}", fastrand::u16(..));
        namespaced(&client, "POST", &namespace).await;
        let answers = play::play(&client, &steps, &namespace).await;
        namespaced(&client, "DELETE", &namespace).await;
        if std::env::var_os("OSTLER_RECORD").is_some() {
            write(topic, &answers);
        } else {
            report += &compare::report(topic, &steps, &recorded(topic), &answers, &compare::Open::new());
        }
    }
    assert!(report.is_empty(), "what was recorded is not what is said today:{report}\n");
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

//! Role-based services and their routers under `ostler up`: requests arrive, and the picker is a real one.

use std::io::{Read, Write};
use std::net::TcpStream;

use rstest::rstest;
use serde_json::{Value, json};

use crate::session::{Folder, PATIENCE, Session, ostler, outcome, patiently};

const STORIES: &str = include_str!("stories.yaml");
/// 151 accelerators are asked for, eight of a node at most.
const NODES: &str = "8×H100-80G ×20";

/// A router in front of the service called `name`.
fn routed(story: &str, name: &str, router: &str) -> String {
    story
        .replacen("  roles:\n", &format!("  roles:\n  - {{name: entry, componentType: router{router}}}\n"), 1)
        .replace("name: qwen-inference-service", &format!("name: {name}"))
}

fn story(number: usize) -> &'static str {
    STORIES.split("---\n").nth(number - 1).unwrap()
}

fn says(session: &Session, words: &[&str]) -> (String, Option<i32>) {
    let words = [words, &["--kubeconfig", &session.kubeconfig]].concat();
    let (stdout, stderr, code) = outcome(&ostler(&words).output().unwrap());
    (stdout + &stderr, code)
}

/// Waits until the service is ready.
fn ready(session: &Session, name: &str) {
    let name = format!("inferenceservice.fusioninfer.io/{name}");
    let (said, code) = says(session, &["rollout", "status", &name, "--timeout", "10m"]);
    assert_eq!(code, Some(0), "{said}");
}

/// Status line and body of the answer to a chat with `model`. The gateway learns of engines by a watch, as commands do, and
/// either may be the first.
fn ask(session: &Session, model: &str) -> (String, Value) {
    patiently("an engine", || {
        let (status, answer) = send(session, model);
        let knows = ![" 404 ", " 503 "].iter().any(|code| status.contains(code));
        knows.then_some((status, answer))
    })
}

fn send(session: &Session, model: &str) -> (String, Value) {
    let messages = json!([{"role": "user", "content": "Why do horses sleep standing?"}]);
    let body = json!({"model": model, "messages": messages, "max_tokens": 4}).to_string();
    let host = session.gateway.trim_start_matches("http://");
    let mut connection = TcpStream::connect(host).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.0\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap_or_default())
}

/// Leaders of every shape are asked: one Pod, a pair, several nodes, a pair over several nodes.
// spec: TOP-88
#[test]
fn requests_reach_every_story() {
    let folder = Folder::new();
    let file = folder.file("stories.yaml", STORIES);
    let session = Session::start(&["-f", &file, "--nodes", NODES]);
    for name in ["qwen-inference", "qwen-inference-service", "deepseek-r1-inference", "deepseek-r1-disagg"] {
        ready(&session, name);
        let (status, answer) = ask(&session, name);
        assert!(status.contains(" 200 "), "{name}: {status} {answer}");
        assert!(answer["choices"][0]["message"]["content"].is_string(), "{name}: {answer}");
    }
}

/// Its Pod is ready only once it has seen its pool: that is this program, asked over gRPC.
// spec: TOP-88
#[rstest]
#[case::prefix_cache("")]
#[case::kv_cache(", strategy: kv-cache-utilization")]
#[case::queue(", strategy: queue-size")]
#[case::lora(", strategy: lora-affinity")]
#[case::pair(", strategy: pd-disaggregation, httproute: {parentRefs: [{name: gateway}]}")]
fn a_router_runs_beside_its_engines(#[case] router: &str) {
    let folder = Folder::new();
    let file = folder.file("routed.yaml", &routed(story(2), "routed", router));
    let session = Session::start(&["-f", &file, "--nodes", "8×H100-80G"]);
    ready(&session, "routed");
    let (explained, _) = says(&session, &["explain", "inferenceservice.fusioninfer.io/routed"]);
    assert!(explained.contains("entry 1 of 1"), "{explained}");
    let (status, answer) = ask(&session, "routed");
    assert!(status.contains(" 200 "), "{status} {answer}");
}

/// Engines answer all the same, and who is told why the service is not ready is told of the router.
#[test]
fn a_picker_that_cannot_read_its_configuration_is_named() {
    let folder = Folder::new();
    let file = folder.file("routed.yaml", &routed(story(2), "routed", ", endpointPickerConfig: 'kind: Picker'"));
    let session = Session::start(&["-f", &file, "--nodes", "8×H100-80G"]);
    let (said, code) =
        says(&session, &["rollout", "status", "inferenceservice.fusioninfer.io/routed", "--timeout", "10m"]);
    assert_ne!(code, Some(0), "{said}");
    let (explained, _) = says(&session, &["explain", "inferenceservice.fusioninfer.io/routed"]);
    assert!(explained.contains("RouterReady=False") && explained.contains("routed-epp"), "{explained}");
    let (status, answer) = ask(&session, "routed");
    assert!(status.contains(" 200 "), "{status} {answer}");
}

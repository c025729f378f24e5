//! Commands that query a running gateway: `ostler gateway trace`, and `ostler explain` of pools and use cases.

use crate::session::{Session, TempDirectory, ostler, outcome, post_chat, wait_until};

const SERVICE: &str = "apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: chat, namespace: default}
spec:
  model: {name: llama-3-2-3b-instruct}
";

/// The address of the gateway comes from the kubeconfig of the session.
#[test]
fn trace_and_explain_show_the_requests_of_a_session() {
    let directory = TempDirectory::new();
    let session = Session::start(&["-f", &directory.file("chat.yaml", SERVICE)]);
    let run = |args: &[&str]| outcome(&ostler(args).args(["--kubeconfig", &session.kubeconfig]).output().unwrap());
    let prompt = directory.file("prompt.txt", "Why do horses sleep standing?");
    let trace = ["gateway", "trace", "--model", "chat", "--prompt-file", &prompt];
    let text = wait_until("an endpoint", || {
        let (stdout, _, code) = run(&trace);
        (code == Some(0) && stdout.contains("would be sent to")).then_some(stdout)
    });
    assert!(text.contains("pool       default/chat") && text.contains("→  chat-engine"), "{text}");
    assert_eq!(run(&trace).0, text, "a trace changes nothing");
    let (stdout, ..) = run(&["explain", "bpool/chat"]);
    assert!(stdout.contains("no requests in the last minutes"), "{stdout}");
    let body = r#"{"model":"chat","messages":[{"role":"user","content":"hello"}],"max_tokens":2}"#;
    assert!(post_chat(&session.gateway, body).contains("200 OK"));
    let (stdout, stderr, code) = run(&["explain", "bpool/chat"]);
    assert_eq!((stderr.as_str(), code), ("", Some(0)), "{stdout}");
    assert!(stdout.contains("chat: 100 %, 1 request"), "{stdout}");
    let (stdout, ..) = run(&["explain", "lucs/chat", "-o", "json"]);
    let explanation: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(explanation["pools"][0]["pool"], "default/chat", "{stdout}");
    // Clients of the gateway have no access.
    let (_, stderr, code) = run(&[
        "gateway",
        "trace",
        "--model",
        "chat",
        "--gateway-metrics",
        session.gateway.trim_start_matches("http://"),
    ]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("the gateway responded 404 Not Found: The pool debug/trace does not exist."), "{stderr}");
}

#[test]
fn missing_gateway_is_an_error_with_a_hint() {
    let (_, stderr, code) =
        outcome(&ostler(&["gateway", "trace", "--model", "m", "--gateway-metrics", "127.0.0.1:1"]).output().unwrap());
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: no gateway responds at 127.0.0.1:1: "), "{stderr}");
    assert!(stderr.contains("hint: start `ostler up`, or run `kubectl"), "{stderr}");
}

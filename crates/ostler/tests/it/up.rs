//! `ostler up`: the demo, shutdown, and explanations.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use rstest::rstest;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::session::{Session, TempDirectory, ostler, outcome, wait_until};

#[test]
fn demo_prints_json() {
    let directory = TempDirectory::new();
    let data = directory.0.display().to_string();
    let output = ostler(&["up", "--demo", "--once", "-o", "json", "--data-dir", &data])
        .args(["--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0"])
        .output()
        .unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!(code, Some(0), "{stderr}");
    let demo: Value = serde_json::from_str(&stdout).unwrap();

    let chat = service(&demo, "chat");
    assert_eq!(chat["runtime"], "srt-llama-3-2-3b-instruct");
    assert_eq!(chat["acceleratorClass"], "nvidia-a100-40gb");
    assert!(chat["runnerUp"]["code"].is_string(), "{chat}");
    assert_eq!(service(&demo, "summarise")["acceleratorClass"], "nvidia-h100-80gb");
    assert!(!demo["request"]["answer"].as_str().unwrap().is_empty());
    assert!(demo["request"]["endpoint"].as_str().unwrap().starts_with("chat-engine-"), "{demo}");
    assert!(demo["request"]["completionTokens"].as_u64().unwrap() > 0);
}

/// The text output of the demo, without times, addresses and generated name suffixes.
#[test]
fn demo_prints_text() {
    let directory = TempDirectory::new();
    let data = directory.0.display().to_string();
    let args = ["--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0", "--data-dir", &data];
    let (stdout, stderr, code) = outcome(&ostler(&["up", "--demo", "--once"]).args(args).output().unwrap());
    assert_eq!(code, Some(0), "{stderr}");
    let mut normalized: String =
        stdout.replace(&data, "DIR").lines().map(|line| format!("{}\n", normalize(line))).collect();
    normalized = normalized.replace("# × ", "N × ");
    insta::assert_snapshot!(normalized);
}

/// Models take turns on one GPU. Each start is a document of its own.
// spec: DP-92, DP-93, DP-95, DP-96
#[test]
fn actuation_demo_prints_each_start() {
    let directory = TempDirectory::new();
    let data = directory.0.display().to_string();
    let output = ostler(&["up", "--demo", "actuation", "--once", "-o", "json", "--data-dir", &data])
        .args(["--api", "127.0.0.1:0", "--gateway", "127.0.0.1:0"])
        .output()
        .unwrap();
    let (stdout, stderr, code) = outcome(&output);
    assert_eq!(code, Some(0), "{stderr}");
    let starts: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let paths: Vec<_> = starts.iter().map(|start| (&start["start"], &start["model"], &start["path"])).collect();
    let expected = [("granite", "cold"), ("llama", "cold"), ("granite", "hot"), ("qwen", "cold"), ("qwen", "cold")];
    let expected: Vec<_> = (1..).zip(expected).map(|(start, (model, path))| json!([start, model, path])).collect();
    assert_eq!(paths.iter().map(|path| json!(path)).collect::<Vec<_>>(), expected);
    let provider = |index: usize| &starts[index]["provider"];
    assert_eq!(provider(2), provider(0), "the engine is woken");
    assert_ne!(provider(4), provider(3), "the provider was deleted");
    let evicted: Vec<&Value> = starts.iter().map(|start| &start["evicted"]).collect();
    assert_eq!(
        evicted,
        [&json!([]), &json!([]), &json!([]), &json!([provider(1)]), &json!([])],
        "the oldest is deleted"
    );
    for start in &starts {
        let request = &start["request"];
        assert!(!request["answer"].as_str().unwrap().is_empty(), "{start}");
        let endpoint = request["endpoint"].as_str().unwrap();
        assert!(endpoint.starts_with(start["provider"].as_str().unwrap()), "{start}");
    }
}

/// Sends a request for a stream of `tokens` and returns the connection.
fn request_stream(host: &str, tokens: u32) -> TcpStream {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "chat", "messages": messages, "max_tokens": tokens, "ignore_eos": true, "stream": true});
    let (body, mut connection) = (body.to_string(), TcpStream::connect(host).unwrap());
    let head = "POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\ncontent-type: application/json";
    write!(connection, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    connection
}

/// The engines run until the gateway has completed its requests.
#[test]
fn running_stream_is_completed_after_sigterm() {
    let directory = TempDirectory::new();
    let chat = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": "chat", "namespace": "default"}, "spec": {"model": {"name": "llama-3-2-3b-instruct"}}});
    let file = directory.file("chat.json", &chat.to_string());
    let session = Session::start(&["--drain-timeout", "10m", "-f", &file]);
    let host = session.gateway.trim_start_matches("http://").to_owned();
    wait_until("the engine", || {
        let mut response = String::new();
        request_stream(&host, 1).read_to_string(&mut response).unwrap();
        response.contains(" 200 OK").then_some(())
    });
    let mut connection = request_stream(&host, 300);
    let mut response = vec![0; 1000];
    connection.read_exact(&mut response).unwrap();
    assert_eq!(session.stop(Signal::TERM).1, Some(0));
    connection.read_to_end(&mut response).unwrap();
    let response = String::from_utf8(response).unwrap();
    assert!(response.ends_with("data: [DONE]\n\n") && !response.contains("\"error\""), "{response}");
    assert!(response.matches("chat.completion.chunk").count() > 300, "{response}");
}

/// Replaces numbers by `#`, addresses by `ADDRESS`, and the random response and Pod names by placeholders.
fn normalize(line: &str) -> String {
    if line.starts_with("  response") {
        return "  response  TEXT".to_owned();
    }
    let digits = |word: &str| word.chars().filter(char::is_ascii_digit).count();
    let normalize_word = |word: &str| match word {
        word if word.starts_with("chat-engine-") => "chat-engine-POD".to_owned(),
        word if word.contains("127.") => word.split(['=', '1']).next().unwrap_or_default().to_owned() + "ADDRESS",
        word if word.chars().all(|c| c.is_ascii_digit() || c == '.') && digits(word) > 0 => "#".to_owned(),
        word => word.to_owned(),
    };
    line.split(' ').map(normalize_word).collect::<Vec<_>>().join(" ")
}

#[rstest]
#[case(Signal::TERM)]
#[case(Signal::INT)]
fn signal_stops_the_cluster(#[case] signal: Signal) {
    let session = Session::start(&[]);
    let kubeconfig = session.kubeconfig.clone();
    assert!(std::path::Path::new(&kubeconfig).is_file());
    assert_eq!(session.stop(signal).1, Some(0));
    assert!(!std::path::Path::new(&kubeconfig).exists());
}

/// The decisions and an example request for the service follow the addresses.
#[test]
fn prints_decisions_of_manifests() {
    let directory = TempDirectory::new();
    let manifest = directory.file(
        "chat.yaml",
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: talk}\nspec: {model: {name: llama-3-2-3b-instruct}}\n",
    );
    let (session, stderr) = Session::start_with_stderr(&["-f", &manifest, "--nodes", "8×H100, this"]);
    let lines: Vec<String> = BufReader::new(stderr)
        .lines()
        .map_while(Result::ok)
        .take_while(|line| !line.starts_with("Press Ctrl-C"))
        .collect();
    let position = |start: &str| {
        lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {lines:#?}"))
    };
    let positions = ["talk:", "  selected  srt-llama-3-2-3b-instruct on 1 × nvidia-h100-80gb", "            rejected "]
        .map(position);
    assert!(positions.is_sorted(), "{lines:#?}");
    let request = &lines[position("      curl ")];
    assert!(request.contains(&session.gateway) && request.contains(r#""model":"talk""#), "{request}");
}

#[test]
fn explains_model_that_is_too_large() {
    let directory = TempDirectory::new();
    let manifest = directory.file(
        "large.yaml",
        "apiVersion: ome.io/v1beta1\nkind: ClusterBaseModel\nmetadata: {name: huge}\nspec:\n  modelFormat: {name: safetensors, version: 1.0.0}\n  modelFramework: {name: transformers, version: 4.45.2}\n  modelArchitecture: LlamaForCausalLM\n  modelParameterSize: 900B\n---\napiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: huge}\nspec:\n  model: {name: huge}\n",
    );
    let session = Session::start(&["-f", &manifest]);
    let explanation = wait_until("the decision", || {
        let output =
            ostler(&["explain", "inferenceservice/huge", "--kubeconfig", &session.kubeconfig]).output().unwrap();
        let (stdout, _, code) = outcome(&output);
        (code == Some(0) && stdout.contains("SizeOutOfRange")).then_some(stdout)
    });
    assert!(explanation.starts_with("default/huge is not ready"), "{explanation}");
    assert!(explanation.contains("What would help"), "{explanation}");
}

fn service<'a>(demo: &'a Value, name: &str) -> &'a Value {
    let services = demo["services"].as_array().unwrap();
    services.iter().find(|service| service["name"] == name).unwrap()
}

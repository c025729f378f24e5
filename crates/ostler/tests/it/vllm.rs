//! `ostler up` starts the installed vLLM with a small model, and the gateway streams its response. Run by
//! `cargo xtask test --with vllm`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::session::{Session, TIMEOUT, TempDirectory, wait_until};
use crate::suites::required_variable;

const MANIFEST: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/vllm-cpu.yaml"));

#[test]
#[ignore = "needs a vLLM: cargo xtask test --with vllm"]
fn real_engine_serves_requests() {
    let vllm = required_variable("OSTLER_VLLM");
    let directory = TempDirectory::new();
    let model = directory.0.join("tiny-llama");
    create_model(Path::new(&vllm), &model);
    let manifest = MANIFEST.replace("/models/tiny-llama", &model.display().to_string());
    let manifest = directory.file("service.yaml", &manifest);

    let (session, messages) = Session::start_with_messages(&["--nodes", "this", "--debug-headers", "-f", &manifest]);
    wait_for_message(&messages, "  tiny: ready");

    let response = send_request(&session.gateway, false);
    let completion: Value = serde_json::from_str(&response.body).unwrap();
    assert_eq!(
        (&completion["object"], &completion["model"]),
        (&json!("chat.completion"), &json!("tiny")),
        "{completion}"
    );
    assert_eq!(completion["usage"]["completion_tokens"], 16, "{completion}");

    let streamed_response = send_request(&session.gateway, true);
    let events: Vec<&str> = streamed_response.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(*done, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["model"] == "tiny"));
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    // At temperature 0, the streamed response equals the response without streaming.
    assert_eq!(json!(text), completion["choices"][0]["message"]["content"]);
    assert!(chunks.len() > 2, "the response has several chunks: {chunks:?}");

    let engine = streamed_response.header("x-ostler-endpoint").expect("the gateway returns the endpoint").to_owned();
    TcpStream::connect(&engine).unwrap();
    let (_, code) = session.stop(Signal::TERM);
    assert_eq!(code, Some(0));
    assert!(TcpStream::connect(&engine).is_err(), "`ostler up` stops the engine");
}

/// Creates a model with random weights, with the Python interpreter of vLLM.
fn create_model(vllm: &Path, directory: &Path) {
    let python = vllm.canonicalize().unwrap().with_file_name("python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tiny_model.py");
    let status = Command::new(python).arg(script).arg(directory).status().unwrap();
    assert!(status.success());
}

/// Waits until `ostler up` prints `expected` to standard error.
fn wait_for_message(messages: &Receiver<String>, expected: &str) {
    let mut received = Vec::new();
    while let Ok(message) = messages.recv_timeout(TIMEOUT) {
        if message == expected {
            return;
        }
        received.push(message);
    }
    panic!("`ostler up` did not print {expected:?}:\n{}", received.join("\n"));
}

struct HttpResponse {
    head: String,
    body: String,
}

/// Sends a chat completion until the gateway has observed an endpoint.
fn send_request(gateway: &str, stream: bool) -> HttpResponse {
    wait_until("a response", || {
        let response = try_request(gateway, stream);
        let status = response.head.split_whitespace().nth(1).unwrap_or_default().to_owned();
        assert!(["200", "404", "503"].contains(&status.as_str()), "{}\n{}", response.head, response.body);
        (status == "200").then_some(response)
    })
}

fn try_request(gateway: &str, stream: bool) -> HttpResponse {
    let body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "Why do horses sleep standing?"}],
        "max_tokens": 16, "temperature": 0, "ignore_eos": true, "stream": stream,
    })
    .to_string();
    let host = gateway.trim_start_matches("http://");
    let mut connection = TcpStream::connect(host).unwrap();
    connection.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.0\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all((head + &body).as_bytes()).unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    HttpResponse { head: head.to_owned(), body: body.to_owned() }
}

// === impl HttpResponse ===

impl HttpResponse {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

// === impl Session ===

impl Session {
    /// Like [`Session::start`]; also returns the lines of standard error.
    fn start_with_messages(args: &[&str]) -> (Self, Receiver<String>) {
        let (session, stderr) = Self::start_with_stderr(args);
        let (sender, messages) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                eprintln!("{line}");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        (session, messages)
    }
}

//! One manifest, a real engine: `ostler up` starts the vLLM of this machine for a model of this machine, and the gateway
//! streams its answer. Started by `cargo xtask test --with vllm`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::session::{Folder, PATIENCE, Session, patiently};
use crate::suites::part;

const MANIFEST: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/vllm-cpu.yaml"));

#[test]
#[ignore = "needs a vLLM: cargo xtask test --with vllm"]
fn a_real_engine_answers() {
    let vllm = part("OSTLER_VLLM");
    let files = Folder::new();
    let model = files.0.join("tiny-llama");
    make_model(Path::new(&vllm), &model);
    let manifest = MANIFEST.replace("/models/tiny-llama", &model.display().to_string());
    let manifest = files.file("service.yaml", &manifest);

    let (session, talk) = Session::start_listening(&["--nodes", "this", "-f", &manifest]);
    until(&talk, "  tiny: ready");

    let whole = ask(&session.gateway, false);
    let answer: Value = serde_json::from_str(&whole.body).unwrap();
    assert_eq!((&answer["object"], &answer["model"]), (&json!("chat.completion"), &json!("tiny")), "{answer}");
    assert_eq!(answer["usage"]["completion_tokens"], 16, "{answer}");

    let streamed = ask(&session.gateway, true);
    let events: Vec<&str> = streamed.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(*done, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["model"] == "tiny"));
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    // The same question at temperature 0: whole or in pieces, it is one answer.
    assert_eq!(json!(text), answer["choices"][0]["message"]["content"]);
    assert!(chunks.len() > 2, "it came in pieces: {chunks:?}");

    let engine = streamed.header("x-ostler-endpoint").expect("the gateway names the endpoint").to_owned();
    TcpStream::connect(&engine).unwrap();
    let (_, code) = session.end(Signal::TERM);
    assert_eq!(code, Some(0));
    assert!(TcpStream::connect(&engine).is_err(), "the engine ended with `up`");
}

/// A random model of the engine's own architecture, made by the engine's own Python.
fn make_model(vllm: &Path, folder: &Path) {
    let python = vllm.canonicalize().unwrap().with_file_name("python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tiny_model.py");
    let made = Command::new(python).arg(script).arg(folder).status().unwrap();
    assert!(made.success());
}

fn until(talk: &Receiver<String>, line: &str) {
    let mut said = Vec::new();
    while let Ok(next) = talk.recv_timeout(PATIENCE) {
        if next == line {
            return;
        }
        said.push(next);
    }
    panic!("`up` never said {line:?}:\n{}", said.join("\n"));
}

struct Answer {
    head: String,
    body: String,
}

/// The gateway learns of an engine by a watch, as `up` does, and either may be the first.
fn ask(gateway: &str, stream: bool) -> Answer {
    patiently("an answer", || {
        let answer = send(gateway, stream);
        let status = answer.head.split_whitespace().nth(1).unwrap_or_default().to_owned();
        assert!(["200", "404", "503"].contains(&status.as_str()), "{}\n{}", answer.head, answer.body);
        (status == "200").then_some(answer)
    })
}

fn send(gateway: &str, stream: bool) -> Answer {
    let body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "Why do horses sleep standing?"}],
        "max_tokens": 16, "temperature": 0, "ignore_eos": true, "stream": stream,
    })
    .to_string();
    let host = gateway.trim_start_matches("http://");
    let mut connection = TcpStream::connect(host).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.0\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    connection.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    Answer { head: head.to_owned(), body: body.to_owned() }
}

// === impl Answer ===

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

// === impl Session ===

impl Session {
    /// As [`Session::start`], with every line of its talk.
    fn start_listening(args: &[&str]) -> (Self, Receiver<String>) {
        let (session, stderr) = Self::start_with_stderr(args);
        let (sender, talk) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                eprintln!("{line}");
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        (session, talk)
    }
}

//! `ostler up` starts the installed vLLM with a small model, and the gateway streams its response and selects between two
//! engines. Run by `cargo xtask test --with vllm`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::session::{Session, TIMEOUT, TempDirectory, ostler, post_chat, wait_until};
use crate::suites::required_variable;

const MANIFEST: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/vllm-cpu.yaml"));

/// Number of draws. Of 100, 4 to 40 select the target with weight 20, except once in several hundred thousand runs.
const DRAWS: u32 = 100;

#[test]
#[ignore = "needs a vLLM: cargo xtask test --with vllm"]
fn real_engine_serves_requests() {
    let directory = TempDirectory::new();
    let manifest = directory.file("service.yaml", &manifest(&directory, &[]));
    let session = start(&manifest, 1);

    let response = complete(&session.gateway, &ChatRequest::default());
    let (model, content) = response.completion();
    assert_eq!(model, "tiny");

    let streamed_response = complete(&session.gateway, &ChatRequest { stream: true, ..ChatRequest::default() });
    let events: Vec<&str> = streamed_response.body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(*done, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect();
    assert!(chunks.iter().all(|chunk| chunk["object"] == "chat.completion.chunk" && chunk["model"] == "tiny"));
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    // At temperature 0, the streamed response equals the response without streaming.
    assert_eq!(text, content);
    assert!(chunks.len() > 2, "the response has several chunks: {chunks:?}");

    let engine = streamed_response.endpoint();
    TcpStream::connect(&engine).unwrap();
    let (_, code) = session.stop(Signal::TERM);
    assert_eq!(code, Some(0));
    assert!(TcpStream::connect(&engine).is_err(), "`ostler up` stops the engine");
}

// spec: GW-7
#[test]
#[ignore = "needs a vLLM: cargo xtask test --with vllm"]
fn prefixes_and_adapters_stay_on_their_engines() {
    let directory = TempDirectory::new();
    let manifest = manifest(&directory, &["alpha", "beta"])
        .replace("minReplicas: 1, maxReplicas: 1", "minReplicas: 2, maxReplicas: 2");
    let manifest = directory.file("service.yaml", &(manifest + CANARY));
    let session = start(&manifest, 2);

    // Two conversations take turns. Each stays on the engine that has computed its first message.
    let mut endpoints: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for turn in 0..8 {
        for topic in ["stables", "pastures"] {
            let content = format!("{}turn {turn}", format!("Everything about {topic}. ").repeat(30));
            let response = complete(&session.gateway, &ChatRequest { content, ..ChatRequest::default() });
            endpoints.entry(topic).or_default().push(response.endpoint());
        }
    }
    for (topic, endpoints) in &endpoints {
        assert!(endpoints.iter().all(|endpoint| *endpoint == endpoints[0]), "{topic}: {endpoints:?}");
    }

    // The use case `canary` draws adapters by weight, and its name is restored. At temperature 0, the text identifies the adapter.
    let engine = endpoints["stables"][0].clone();
    let text_of = |model| complete(&engine, &ChatRequest { model, ..ChatRequest::default() }).completion().1;
    let adapters = [("alpha", text_of("alpha")), ("beta", text_of("beta"))];
    let mut requests: BTreeMap<(&str, String), u32> = BTreeMap::new();
    for _ in 0..DRAWS {
        let response = complete(&session.gateway, &ChatRequest { model: "canary", ..ChatRequest::default() });
        let (model, text) = response.completion();
        assert_eq!(model, "canary");
        let (adapter, _) = adapters.iter().find(|(_, expect)| *expect == text).expect("an adapter generated the text");
        *requests.entry((adapter, response.endpoint())).or_default() += 1;
    }
    let engines = |name: &str| -> Vec<u32> {
        requests.iter().filter(|((adapter, _), _)| *adapter == name).map(|(_, count)| *count).collect()
    };
    assert!((4..=40).contains(&engines("alpha").iter().sum::<u32>()), "{requests:?}");
    // An engine has one slot: each adapter stays on the engine that has loaded it.
    assert_eq!((engines("alpha").len(), engines("beta").len()), (1, 1), "{requests:?}");
}

/// The engine runs eight requests at a time.
// spec: GW-26
// spec: GW-56
#[test]
#[ignore = "needs a vLLM: cargo xtask test --with vllm"]
fn metrics_of_a_real_engine_reappear_per_pool() {
    let directory = TempDirectory::new();
    let manifest = directory.file("service.yaml", &(manifest(&directory, &[]) + INFERENCE_POOL));
    let session = start(&manifest, 1);
    let picker = PickerProcess::start(&session.kubeconfig);
    let has_values = |ready: f64, is_loaded: bool| {
        let values =
            ["ready_pods", "average_kv_cache_utilization", "average_queue_size"].map(|name| picker.metric(name));
        let [Some(pods), Some(usage), Some(queue)] = values else { return None };
        (pods == ready && (usage > 0.0) == is_loaded && (queue > 0.0) == is_loaded).then_some(())
    };
    wait_until("metrics of the idle engine", || has_values(1.0, false));
    // The gateway would not send more requests than the engine can run.
    let engine = complete(&session.gateway, &ChatRequest::default()).endpoint();
    let is_stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..16 {
            let (engine, is_stopped) = (&engine, &is_stopped);
            scope.spawn(move || {
                while !is_stopped.load(Relaxed) {
                    let content = format!("Client {client}");
                    complete(engine, &ChatRequest { content, max_tokens: 900, ..ChatRequest::default() });
                }
            });
        }
        wait_until("metrics of the loaded engine", || has_values(1.0, true));
        is_stopped.store(true, Relaxed);
    });
    wait_until("metrics of the idle engine", || has_values(1.0, false));
}

/// Two engines run eight requests at a time each, and 48 clients send one after the other: three times as many as the engines can run.
/// Single requests try from time to time whether an engine can run more.
// spec: GW-16
#[test]
#[ignore = "needs a vLLM: cargo xtask test --with vllm"]
fn overload_waits_in_the_gateway() {
    const CLIENTS: usize = 48;
    let directory = TempDirectory::new();
    let manifest =
        manifest(&directory, &[]).replace("minReplicas: 1, maxReplicas: 1", "minReplicas: 2, maxReplicas: 2");
    let session = start(&directory.file("service.yaml", &manifest), 2);
    let (endpoints, is_stopped) = (Mutex::new(BTreeSet::new()), AtomicBool::new(false));
    let reports = std::thread::scope(|scope| {
        let send = |client: usize| {
            for number in 0.. {
                if is_stopped.load(Relaxed) {
                    return number;
                }
                let content = format!("Client {client}, request {number}");
                let request = ChatRequest { content, max_tokens: 200, ..ChatRequest::default() };
                endpoints.lock().unwrap().insert(complete(&session.gateway, &request).endpoint());
            }
            0
        };
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || send(client))).collect();
        // The gateway learns the limits of the engines.
        std::thread::sleep(Duration::from_secs(20));
        let engines = endpoints.lock().unwrap().clone();
        assert_eq!(engines.len(), 2);
        let mut reports = Vec::new();
        for _ in 0..120 {
            reports.extend(engines.iter().map(|engine| waiting_requests(engine)));
            std::thread::sleep(Duration::from_millis(250));
        }
        is_stopped.store(true, Relaxed);
        let served: usize = clients.into_iter().map(|client| client.join().unwrap()).sum();
        assert!(served > CLIENTS, "{served} requests");
        reports
    });
    let with_queue = reports.iter().filter(|waiting| **waiting > 0.0).count();
    eprintln!("{with_queue} of {} reports show a waiting request", reports.len());
    assert!(reports.iter().all(|waiting| *waiting <= 1.0), "{reports:?}");
    assert!(with_queue * 20 <= reports.len(), "{reports:?}");
}

/// Returns the number of requests that wait in an engine.
fn waiting_requests(engine: &str) -> f64 {
    let mut connection = TcpStream::connect(engine).unwrap();
    connection.set_read_timeout(Some(TIMEOUT)).unwrap();
    connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    connection.read_to_string(&mut page).unwrap();
    let line = page.lines().find(|line| line.starts_with("vllm:num_requests_waiting{")).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

/// The engines as endpoints of an endpoint picker.
const INFERENCE_POOL: &str = "---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {name: engines}
spec:
  selector: {matchLabels: {ome.io/inferenceservice: tiny, component: engine}}
  targetPorts: [{number: 8080}]
  endpointPickerRef: {name: picker, port: {number: 9002}}
";

/// `ostler picker` for the InferencePool `engines`.
struct PickerProcess {
    child: Child,
    metrics: SocketAddr,
}

// === impl PickerProcess ===

impl PickerProcess {
    fn start(kubeconfig: &str) -> Self {
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [metrics, grpc, health] = listeners.map(|listener| listener.local_addr().unwrap());
        let mut command = ostler(&["picker", "--kubeconfig", kubeconfig, "--pool-name", "engines"]);
        for (flag, address) in [("--metrics-port", metrics), ("--grpc-port", grpc), ("--grpc-health-port", health)] {
            command.args([flag, &address.port().to_string()]);
        }
        Self { child: command.args(["--pool-namespace", "default"]).spawn().unwrap(), metrics }
    }

    /// Returns the value of `inference_pool_NAME`, if the picker serves it.
    fn metric(&self, name: &str) -> Option<f64> {
        let mut connection = TcpStream::connect(self.metrics).ok()?;
        connection.set_read_timeout(Some(TIMEOUT)).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut page = String::new();
        connection.read_to_string(&mut page).unwrap();
        let series = format!("inference_pool_{name}{{name=\"engines\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&series))?.parse().ok()
    }
}

impl Drop for PickerProcess {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A use case that draws one of two adapters.
const CANARY: &str = "---
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: LLMUseCaseSet
metadata: {name: canary}
spec:
  poolRef: [{name: tiny}]
  useCases:
    - modelName: canary
      targetModels: [{targetModelName: alpha, weight: 20}, {targetModelName: beta, weight: 80}]
";

/// Creates a model with `adapters`, and returns the example's manifest for it.
fn manifest(directory: &TempDirectory, adapters: &[&str]) -> String {
    let model = directory.0.join("tiny-llama");
    let adapters: Vec<(&str, PathBuf)> = adapters.iter().map(|name| (*name, directory.0.join(name))).collect();
    let python = Path::new(&required_variable("OSTLER_VLLM")).canonicalize().unwrap().with_file_name("python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tiny_model.py");
    let paths = adapters.iter().map(|(_, path)| path);
    assert!(Command::new(python).arg(script).arg(&model).args(paths).status().unwrap().success());

    let manifest = MANIFEST.replace("/models/tiny-llama", &model.display().to_string());
    if adapters.is_empty() {
        return manifest;
    }
    let modules = adapters.iter().map(|(name, path)| format!("{name}={}", path.display()));
    let flags = ["--enable-lora".to_owned(), "--max-loras=1".to_owned(), "--lora-modules".to_owned()];
    let flags: String = flags.into_iter().chain(modules).map(|flag| format!("        - {flag}\n")).collect();
    let marker = "        - --max-num-seqs=8\n";
    assert!(manifest.contains(marker));
    manifest.replace(marker, &format!("{marker}{flags}"))
}

/// Starts `ostler up` and waits until the gateway selects among `replicas` engines.
fn start(manifest: &str, replicas: usize) -> Session {
    let (session, messages) = Session::start_with_messages(&["--nodes", "this", "--debug-headers", "-f", manifest]);
    wait_for_message(&messages, "  tiny: ready");
    let expect = format!("of {replicas} endpoint");
    wait_until(&expect, || {
        let response = try_complete(&session.gateway, &ChatRequest::default());
        response.header("x-ostler-decision").is_some_and(|value| value.contains(&expect)).then_some(())
    });
    session
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

/// A chat completion.
struct ChatRequest {
    model: &'static str,
    content: String,
    max_tokens: u32,
    stream: bool,
}

struct HttpResponse {
    head: String,
    body: String,
}

/// Sends a chat completion, which succeeds.
fn complete(gateway: &str, request: &ChatRequest) -> HttpResponse {
    let response = try_complete(gateway, request);
    assert_eq!(response.head.split(' ').nth(1), Some("200"), "{}\n{}", response.head, response.body);
    response
}

fn try_complete(gateway: &str, request: &ChatRequest) -> HttpResponse {
    let body = json!({
        "model": request.model, "messages": [{"role": "user", "content": request.content}],
        "max_tokens": request.max_tokens, "temperature": 0, "ignore_eos": true, "stream": request.stream,
    })
    .to_string();
    let response = post_chat(gateway, &body);
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    HttpResponse { head: head.to_owned(), body: body.to_owned() }
}

// === impl ChatRequest ===

impl Default for ChatRequest {
    fn default() -> Self {
        Self { model: "tiny", content: "Why do horses sleep standing?".to_owned(), max_tokens: 16, stream: false }
    }
}

// === impl HttpResponse ===

impl HttpResponse {
    /// Returns model and text of a chat completion.
    fn completion(&self) -> (String, String) {
        let completion: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!(
            (&completion["object"], &completion["usage"]["completion_tokens"]),
            (&json!("chat.completion"), &json!(16))
        );
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&completion["model"]), text(&completion["choices"][0]["message"]["content"]))
    }

    /// Returns the address of the engine that served the request.
    fn endpoint(&self) -> String {
        self.header("x-ostler-endpoint").expect("the gateway returns the endpoint").to_owned()
    }

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

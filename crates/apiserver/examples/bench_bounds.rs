//! Measures deletions of many objects, the memory of the watch history, and how long CPU-heavy requests delay other tasks
//! of the runtime.
//!
//! `cargo run --release -p apiserver --example bench_bounds [--small] [FILTER]`. `--small` divides the sizes by ten.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use apiserver::ports::ServerPorts;
use apiserver::{Server, router};
use axum::body::{Body, to_bytes};
use axum::response::Response;
use futures::future::join_all;
use http::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower::ServiceExt;

/// Objects in the deleted namespace, of the deleted owner and of the deleted definition.
const OBJECTS: usize = 20_000;
/// Length of the chain of owners.
const CHAIN_LENGTH: usize = 100_000;
/// Patches of a large object.
const PATCHES: usize = 3_000;
/// Expensive requests of each of the concurrent clients.
const EXPENSIVE_REQUESTS: usize = 50;
/// Clients that send expensive requests concurrently.
const CLIENTS: usize = 8;
/// Async workers of the runtime, as on a host with two CPUs.
const WORKERS: usize = 2;
/// Interval between two round trips of the latency probe.
const PROBE_INTERVAL: Duration = Duration::from_millis(1);

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A client outside of the runtime that sends one byte at a time to a task of the runtime, which sends it back. The
/// gateway of `ostler up` is such a task.
struct LatencyProbe {
    stop: Arc<AtomicBool>,
    client: JoinHandle<std::io::Result<Vec<Duration>>>,
}

fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let divisor = if arguments.iter().any(|argument| argument == "--small") { 10 } else { 1 };
    let filter = arguments.iter().find(|argument| !argument.starts_with("--")).map_or("", String::as_str);
    let is_selected = |name: &str| name.contains(filter);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    if is_selected("idle") {
        let idle = || async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(())
        };
        runtime.block_on(measure("idle", idle))?;
    }
    if is_selected("namespace") {
        let server = server_with_namespace(OBJECTS / divisor)?;
        runtime.block_on(measure("namespace", || delete(&server, "/api/v1/namespaces/full", "Background")))?;
    }
    for policy in ["Background", "Foreground", "Orphan"] {
        if is_selected("owner") {
            let server = server_with_dependents(OBJECTS / divisor)?;
            let path = format!("{CONFIG_MAPS}/owner");
            runtime.block_on(measure(&format!("owner, {policy}"), || delete(&server, &path, policy)))?;
        }
    }
    if is_selected("chain") {
        let server = server_with_chain(CHAIN_LENGTH / divisor)?;
        let path = format!("{CONFIG_MAPS}/0");
        runtime.block_on(measure("chain", || delete(&server, &path, "Background")))?;
    }
    if is_selected("definition") {
        let server = server_with_widgets(OBJECTS / divisor)?;
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.org";
        runtime.block_on(measure("definition", || delete(&server, path, "Background")))?;
    }
    if is_selected("expensive") {
        let server = server_with_widgets(CLIENTS)?;
        runtime.block_on(measure("expensive rules", || expensive_rules(&server, EXPENSIVE_REQUESTS / divisor)))?;
        runtime.block_on(measure("expensive apply", || expensive_apply(&server, EXPENSIVE_REQUESTS / divisor)))?;
    }
    if is_selected("selector") {
        let server = server_with_dependents(OBJECTS / divisor)?;
        let lists = || async {
            for _ in 0..5 {
                send(&server, "GET", &format!("{CONFIG_MAPS}?labelSelector=a%3Db"), "", &Value::Null).await?;
            }
            Ok(())
        };
        runtime.block_on(measure("selector, 5 lists", lists))?;
    }
    if is_selected("history") {
        runtime.block_on(patch_large_object(PATCHES / divisor))?;
    }
    Ok(())
}

/// Runs `work` and prints its duration and the latencies of a concurrent probe.
async fn measure<F: Future<Output = Result>>(name: &str, work: impl FnOnce() -> F) -> Result {
    let probe = LatencyProbe::start()?;
    let start = Instant::now();
    work().await?;
    let duration = start.elapsed();
    let latencies = probe.finish().await?;
    let percentile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize].as_secs_f64() * 1000.0;
    let (median, p99, worst) = (percentile(0.5), percentile(0.99), percentile(1.0));
    let seconds = duration.as_secs_f64();
    print(&format!("{name:<24} {seconds:>8.3} s   probe p50 {median:.2} p99 {p99:.2} worst {worst:.2} ms"))
}

fn print(line: &str) -> Result {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}

// === impl LatencyProbe ===

impl LatencyProbe {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        tokio::spawn(async move {
            let Ok((mut connection, _)) = listener.accept().await else { return };
            let mut byte = [0];
            while connection.read_exact(&mut byte).await.is_ok() && connection.write_all(&byte).await.is_ok() {}
        });
        let stop = Arc::new(AtomicBool::new(false));
        let client = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || probe(address, &stop)
        });
        Ok(Self { stop, client })
    }

    /// Returns the latencies, sorted.
    async fn finish(self) -> Result<Vec<Duration>> {
        self.stop.store(true, Ordering::Relaxed);
        let joined = tokio::task::spawn_blocking(move || self.client.join()).await?;
        let mut latencies = joined.map_err(|_| "the probe panicked")??;
        latencies.sort_unstable();
        Ok(latencies)
    }
}

fn probe(address: SocketAddr, stop: &AtomicBool) -> std::io::Result<Vec<Duration>> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    let mut latencies = Vec::new();
    while latencies.is_empty() || !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        connection.write_all(&[1])?;
        connection.read_exact(&mut [0])?;
        // A round trip that takes several intervals delays the following ones, which would have taken the rest of it.
        let latency = start.elapsed();
        latencies.extend(std::iter::successors(Some(latency), |rest| rest.checked_sub(PROBE_INTERVAL)));
        std::thread::sleep(PROBE_INTERVAL);
    }
    Ok(latencies)
}

async fn send(server: &Server, method: &str, path: &str, content_type: &str, body: &Value) -> Result<Value> {
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let request = Request::builder().method(method).uri(path).header("content-type", content_type).body(body)?;
    // In a task of its own, as over HTTP: `block_on` does not run on an async worker.
    let response: Response = tokio::spawn(router(server).oneshot(request)).await??;
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await?;
    if status.is_success() {
        Ok(serde_json::from_slice(&bytes)?)
    } else {
        Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&bytes)).into())
    }
}

async fn delete(server: &Server, path: &str, policy: &str) -> Result {
    let options = json!({"propagationPolicy": policy});
    send(server, "DELETE", path, "application/json", &options).await.map(drop)
}

fn server() -> Server {
    Server::new(&ServerPorts::default())
}

fn config_map(namespace: &str, name: &str, owner: Option<&Value>) -> Value {
    let owners: Vec<&Value> = owner.into_iter().collect();
    let metadata = json!({"namespace": namespace, "name": name, "ownerReferences": owners});
    json!({"metadata": metadata, "data": {"value": "x".repeat(256)}})
}

/// Creates a ConfigMap and returns its reference for `ownerReferences`.
fn create(server: &Server, name: &str, owner: Option<&Value>) -> Result<Value> {
    let created = server.create("configmaps", config_map("default", name, owner))?;
    let uid = &created["metadata"]["uid"];
    Ok(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true}))
}

fn server_with_namespace(count: usize) -> Result<Server> {
    let server = server();
    server.create("namespaces", json!({"metadata": {"name": "full"}}))?;
    for number in 0..count {
        server.create("configmaps", config_map("full", &format!("c{number}"), None))?;
    }
    Ok(server)
}

fn server_with_dependents(count: usize) -> Result<Server> {
    let server = server();
    let owner = create(&server, "owner", None)?;
    for number in 0..count {
        create(&server, &format!("c{number}"), Some(&owner))?;
    }
    Ok(server)
}

fn server_with_chain(length: usize) -> Result<Server> {
    let server = server();
    let mut owner = create(&server, "0", None)?;
    for number in 1..length {
        owner = create(&server, &number.to_string(), Some(&owner))?;
    }
    Ok(server)
}

/// Returns a server with custom resources whose validation compares every pair of their items.
fn server_with_widgets(count: usize) -> Result<Server> {
    let server = server();
    let rule = json!({"rule": "self.items.all(a, self.items.all(b, a <= b || a > b))", "message": "unordered"});
    let items = json!({"type": "array", "maxItems": 1000, "items": {"type": "integer"}});
    let spec = json!({"type": "object", "properties": {"items": items}, "x-kubernetes-validations": [rule]});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let spec = json!({"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]});
    let definition = json!({"metadata": {"name": "widgets.example.org"}, "spec": spec});
    server.create("customresourcedefinitions.apiextensions.k8s.io", definition)?;
    for number in 0..count {
        let metadata = json!({"namespace": "default", "name": format!("w{number}")});
        let widget =
            json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": metadata, "spec": {"items": [1]}});
        server.create("widgets.example.org", widget)?;
    }
    Ok(server)
}

/// Patches custom resources with an expensive validation rule from several clients.
async fn expensive_rules(server: &Server, count: usize) -> Result {
    let client = async |client: usize| -> Result {
        for round in 0..count {
            let items: Vec<usize> = (round..round + 200).collect();
            let path = format!("{WIDGETS}/w{client}");
            let patch = json!({"spec": {"items": items}});
            send(server, "PATCH", &path, "application/merge-patch+json", &patch).await?;
        }
        Ok(())
    };
    join_all((0..CLIENTS).map(client)).await.into_iter().collect()
}

/// Applies large ConfigMaps from several clients.
async fn expensive_apply(server: &Server, count: usize) -> Result {
    let client = async |client: usize| -> Result {
        for round in 0..count {
            let data: serde_json::Map<String, Value> =
                (0..5_000).map(|key| (format!("key-{key}"), json!(format!("{round}{}", "x".repeat(100))))).collect();
            let path = format!("{CONFIG_MAPS}/large-{client}?fieldManager=bench&force=true");
            let name = format!("large-{client}");
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            send(server, "PATCH", &path, "application/apply-patch+yaml", &object).await?;
        }
        Ok(())
    };
    join_all((0..CLIENTS).map(client)).await.into_iter().collect()
}

/// Patches a ConfigMap of 1 MiB and prints the memory of the process.
async fn patch_large_object(count: usize) -> Result {
    let server = server();
    let metadata = json!({"namespace": "default", "name": "large"});
    server.create("configmaps", json!({"metadata": metadata, "data": {"value": "x".repeat(1 << 20)}}))?;
    let mut sizes = Vec::new();
    for round in 0..count {
        let patch = json!({"data": {"round": round.to_string()}});
        send(&server, "PATCH", &format!("{CONFIG_MAPS}/large"), "application/merge-patch+json", &patch).await?;
        if (round + 1) % (count / 10).max(1) == 0 {
            sizes.push(resident_mebibytes()?);
        }
    }
    print(&format!("history                  RSS after each tenth of {count} patches of 1 MiB: {sizes:?} MiB"))
}

/// Returns the resident memory of the process.
fn resident_mebibytes() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? / 1024)
}

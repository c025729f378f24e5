//! Measures deletions of many objects, the memory of the watch history, and how long CPU-heavy requests delay the gateway and
//! other tasks of the runtime, in memory and with a data directory.
//!
//! `cargo run --release -p ostler --example bench_bounds [--small] [FILTER]`. `--small` divides the sizes by ten. The data
//! directory is created beside the program, since the directory of temporary files may not be on a disk.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::io::{BufRead, BufReader, Error, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::response::Response;
use cluster::NamespacedName;
use embedded::ports::ServerPorts;
use embedded::{DEFAULT_HISTORY_SIZE, DataDirectory, DirectoryLock, Server, Store, StoreSettings, router};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use http::Request;
use mimalloc::MiMalloc;
use picker::{Endpoint, Pool, PromptTokenRange, Scheduler, SchedulingPolicy, UseCase};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

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
/// Lists with a selector.
const LISTS: usize = 5;
/// Milliseconds without load.
const IDLE: usize = 5_000;
/// Async workers of the runtime, as on a host with two CPUs.
const WORKERS: usize = 2;
/// Interval between two round trips of the probe of the runtime.
const TASK_INTERVAL: Duration = Duration::from_millis(1);
/// Interval between two requests to the gateway.
const GATEWAY_INTERVAL: Duration = Duration::from_millis(2);

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.org";

const WORKLOADS: &[Workload] = &[
    Workload { name: "idle", size: IDLE, prepare: |_, _| Ok(()), run: |_, size| idle(size).boxed() },
    Workload { name: "busy thread", size: IDLE, prepare: |_, _| Ok(()), run: |_, size| busy_thread(size).boxed() },
    Workload {
        name: "namespace",
        size: OBJECTS,
        prepare: create_namespace,
        run: |server, _| delete(server, "/api/v1/namespaces/full".to_owned(), "Background").boxed(),
    },
    Workload {
        name: "owner, Background",
        size: OBJECTS,
        prepare: create_dependents,
        run: |server, _| delete(server, format!("{CONFIG_MAPS}/owner"), "Background").boxed(),
    },
    Workload {
        name: "owner, Foreground",
        size: OBJECTS,
        prepare: create_dependents,
        run: |server, _| delete(server, format!("{CONFIG_MAPS}/owner"), "Foreground").boxed(),
    },
    Workload {
        name: "owner, Orphan",
        size: OBJECTS,
        prepare: create_dependents,
        run: |server, _| delete(server, format!("{CONFIG_MAPS}/owner"), "Orphan").boxed(),
    },
    Workload {
        name: "chain",
        size: CHAIN_LENGTH,
        prepare: create_chain,
        run: |server, _| delete(server, format!("{CONFIG_MAPS}/0"), "Background").boxed(),
    },
    Workload {
        name: "definition",
        size: OBJECTS,
        prepare: create_widgets,
        run: |server, _| delete(server, DEFINITION.to_owned(), "Background").boxed(),
    },
    Workload {
        name: "CEL rules",
        size: EXPENSIVE_REQUESTS,
        prepare: |server, _| create_widgets(server, CLIENTS),
        run: |server, size| expensive_rules(server, size).boxed(),
    },
    Workload {
        name: "large applies",
        size: EXPENSIVE_REQUESTS,
        prepare: |_, _| Ok(()),
        run: |server, size| expensive_apply(server, size).boxed(),
    },
    Workload {
        name: "selector",
        size: OBJECTS,
        prepare: create_dependents,
        run: |server, _| list_with_selector(server).boxed(),
    },
    Workload {
        name: "history",
        size: PATCHES,
        prepare: create_large_object,
        run: |server, size| patch_large_object(server, size).boxed(),
    },
];

type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

/// Requests whose duration and effect on other tasks are measured.
struct Workload {
    name: &'static str,
    /// Number of objects or requests, divided by ten with `--small`.
    size: usize,
    /// Creates the objects.
    prepare: fn(&Server, usize) -> Result,
    run: fn(Server, usize) -> BoxFuture<'static, Result>,
}

/// Where a server stores its objects.
#[derive(Clone, Copy)]
enum Storage {
    Memory,
    /// A journal that is synced to the disk, as with `ostler up --data-dir`.
    Directory,
}

/// Addresses of servers in the runtime that probes use.
#[derive(Clone, Copy)]
struct ProbedServers {
    /// Returns each byte that it receives.
    echo: SocketAddr,
    /// The native gateway, in front of a simulated engine that responds without delay.
    gateway: SocketAddr,
}

/// A client outside of the runtime that repeats a round trip until it is stopped.
struct LatencyProbe {
    stop: Arc<AtomicBool>,
    client: JoinHandle<std::io::Result<Vec<Duration>>>,
}

/// Percentiles of the latencies of a probe.
#[derive(Clone, Copy)]
struct Latencies {
    p50: Duration,
    p99: Duration,
    worst: Duration,
}

/// A directory that is removed on drop.
struct TemporaryDirectory(PathBuf);

fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let divisor = if arguments.iter().any(|argument| argument == "--small") { 10 } else { 1 };
    let filter = arguments.iter().find(|argument| !argument.starts_with("--")).map_or("", String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    let servers = runtime.block_on(ProbedServers::start())?;
    print(
        "                                seconds   task: p50, p99, worst ms   gateway: p50, p99, worst ms (p99 / idle)",
    )?;
    let mut idle: Option<Latencies> = None;
    for storage in [Storage::Memory, Storage::Directory] {
        for workload in WORKLOADS {
            let name = format!("{storage}, {}", workload.name);
            // Only the first one has nothing to compare with.
            if idle.is_some() && (workload.name == "idle" || !name.contains(filter)) {
                continue;
            }
            let gateway = measure(&runtime, servers, &name, workload, storage, workload.size / divisor, idle)?;
            idle.get_or_insert(gateway);
        }
    }
    Ok(())
}

/// Runs a workload on a new server, prints its duration and the latencies of concurrent probes, and returns those of the
/// gateway.
fn measure(
    runtime: &tokio::runtime::Runtime,
    servers: ProbedServers,
    name: &str,
    workload: &Workload,
    storage: Storage,
    size: usize,
    idle: Option<Latencies>,
) -> Result<Latencies> {
    let directory = TemporaryDirectory::new()?;
    let server = storage.server(&directory)?;
    (workload.prepare)(&server, size)?;
    let tasks = LatencyProbe::start(TASK_INTERVAL, servers.echo_round_trip()?);
    let gateway = LatencyProbe::start(GATEWAY_INTERVAL, servers.gateway_round_trip()?);
    let start = Instant::now();
    runtime.block_on((workload.run)(server.clone(), size))?;
    let seconds = start.elapsed().as_secs_f64();
    let (tasks, gateway) = (tasks.finish()?, gateway.finish()?);
    // Only now: thousands of deallocations delay allocations of other threads.
    drop(server);
    let ratio = idle.map_or(1.0, |idle| gateway.p99.as_secs_f64() / idle.p99.as_secs_f64());
    print(&format!("{name:<30} {seconds:>8.2}   {tasks}   {gateway} ({ratio:.1})"))?;
    Ok(gateway)
}

fn print(line: &str) -> Result {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}

// === impl Storage ===

impl Storage {
    fn server(self, directory: &TemporaryDirectory) -> Result<Server> {
        let store = match self {
            Storage::Memory => Store::new(DEFAULT_HISTORY_SIZE),
            Storage::Directory => {
                DataDirectory::new(DirectoryLock::acquire(&directory.0)?).open_store(StoreSettings::default())?
            }
        };
        Ok(Server::with_store(&ServerPorts::default(), store))
    }
}

impl Display for Storage {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Storage::Memory => "memory",
            Storage::Directory => "data-dir",
        })
    }
}

// === impl ProbedServers ===

impl ProbedServers {
    async fn start() -> Result<Self> {
        let [echo, engine, gateway] = [bind().await?, bind().await?, bind().await?];
        let servers = Self { echo: echo.local_addr()?, gateway: gateway.local_addr()? };
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let mut byte = [0];
                    while connection.read_exact(&mut byte).await.is_ok() && connection.write_all(&byte).await.is_ok() {}
                });
            }
        });
        let scheduler = Arc::new(Scheduler::new(SchedulingPolicy::default(), 1));
        scheduler.replace(vec![pool(&scheduler, engine.local_addr()?)]);
        let config = engine::Config { timing: engine::Timing::instant(), ..engine::Config::new("chat") };
        tokio::spawn(engine::serve(engine, config, engine::RequestMemory::default(), CancellationToken::new()));
        tokio::spawn(picker::serve_gateway(
            gateway,
            scheduler,
            picker::GatewayOptions::default(),
            CancellationToken::new(),
        ));
        Ok(servers)
    }

    /// Returns a client that sends one byte and receives it.
    fn echo_round_trip(self) -> Result<impl FnMut() -> std::io::Result<()> + Send> {
        let mut connection = connect(self.echo)?;
        Ok(move || {
            connection.write_all(&[1])?;
            connection.read_exact(&mut [0])
        })
    }

    /// Returns a client that sends a chat completion and receives the response, over one connection.
    fn gateway_round_trip(self) -> Result<impl FnMut() -> std::io::Result<()> + Send> {
        let mut connection = BufReader::new(connect(self.gateway)?);
        let body =
            json!({"model": "chat", "max_tokens": 16, "messages": [{"role": "user", "content": "Hello"}]}).to_string();
        let length = body.len();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        Ok(move || {
            connection.get_mut().write_all(request.as_bytes())?;
            read_response(&mut connection)
        })
    }
}

async fn bind() -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind("127.0.0.1:0").await
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    Ok(connection)
}

/// Returns a pool with one endpoint and the use case `chat`.
fn pool(scheduler: &Scheduler, address: SocketAddr) -> Pool {
    let endpoint = Endpoint {
        address,
        pod: "engine".to_owned(),
        prompt_tokens: PromptTokenRange::default(),
        uid: String::new(),
        labels: BTreeMap::new(),
        state: scheduler.endpoint_state(address, ""),
    };
    let key = NamespacedName::new("default", "pool");
    let mut pool = Pool::new(key, scheduler.default_scheduling(), vec![Arc::new(endpoint)]);
    pool.use_cases.insert("chat".to_owned(), UseCase::implicit("chat"));
    pool
}

/// Reads a response with a `content-length`.
fn read_response(connection: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    let (mut head, mut length) = (String::new(), None);
    loop {
        let start = head.len();
        if connection.read_line(&mut head)? == 0 {
            return Err(Error::other("the gateway closed the connection"));
        }
        match head[start..].trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok(),
            None if head[start..].trim_end().is_empty() => break,
            _ => {}
        }
    }
    let length = length.filter(|_| head.starts_with("HTTP/1.1 200 "));
    let length: usize = length.ok_or_else(|| Error::other(format!("unexpected response: {head}")))?;
    connection.read_exact(&mut vec![0; length])
}

// === impl LatencyProbe ===

impl LatencyProbe {
    /// Repeats `round_trip` in a thread, with pauses of `interval`.
    fn start(interval: Duration, round_trip: impl FnMut() -> std::io::Result<()> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || probe(interval, round_trip, &stop)
        });
        Self { stop, client }
    }

    fn finish(self) -> Result<Latencies> {
        self.stop.store(true, Ordering::Relaxed);
        let mut latencies = self.client.join().map_err(|_| "the probe panicked")??;
        latencies.sort_unstable();
        let percentile = |share: f64| latencies[((latencies.len() - 1) as f64 * share) as usize];
        Ok(Latencies { p50: percentile(0.5), p99: percentile(0.99), worst: percentile(1.0) })
    }
}

fn probe(
    interval: Duration,
    mut round_trip: impl FnMut() -> std::io::Result<()>,
    stop: &AtomicBool,
) -> std::io::Result<Vec<Duration>> {
    // The first round trip establishes the connections behind it.
    round_trip()?;
    let mut latencies = Vec::new();
    while latencies.is_empty() || !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        round_trip()?;
        // A round trip that takes several intervals delays the following ones, which would have taken the rest of it.
        latencies.extend(std::iter::successors(Some(start.elapsed()), |rest| rest.checked_sub(interval)));
        std::thread::sleep(interval);
    }
    Ok(latencies)
}

// === impl Latencies ===

impl Display for Latencies {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        let [p50, p99, worst] = [self.p50, self.p99, self.worst].map(|latency| latency.as_secs_f64() * 1000.0);
        write!(formatter, "{p50:>6.2} {p99:>6.2} {worst:>6.2}")
    }
}

// === impl TemporaryDirectory ===

impl TemporaryDirectory {
    fn new() -> Result<Self> {
        let directory = std::env::current_exe()?.with_extension(format!("data.{}", std::process::id()));
        std::fs::create_dir(&directory)?;
        Ok(Self(directory))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// Sends a request. The response is not parsed: that would take CPU time from the server.
async fn send(server: &Server, method: &str, path: &str, content_type: &str, body: String) -> Result {
    let request =
        Request::builder().method(method).uri(path).header("content-type", content_type).body(Body::from(body))?;
    // In a task of its own, as over HTTP: `block_on` does not run on an async worker.
    let response: Response = tokio::spawn(router(server).oneshot(request)).await??;
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await?;
    if status.is_success() {
        Ok(())
    } else {
        Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&bytes)).into())
    }
}

async fn delete(server: Server, path: String, policy: &str) -> Result {
    let options = json!({"propagationPolicy": policy});
    send(&server, "DELETE", &path, "application/json", options.to_string()).await
}

async fn idle(milliseconds: usize) -> Result {
    tokio::time::sleep(Duration::from_millis(milliseconds as u64)).await;
    Ok(())
}

/// Computes in a thread of its own, which shows what the operating system costs the gateway while any process uses one CPU.
async fn busy_thread(milliseconds: usize) -> Result {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(milliseconds as u64) {
            std::hint::black_box((0..1_000_u64).fold(0, u64::wrapping_add));
        }
        ended.send(()).ok();
    });
    Ok(end.await?)
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

fn create_namespace(server: &Server, count: usize) -> Result {
    server.create("namespaces", json!({"metadata": {"name": "full"}}))?;
    for number in 0..count {
        server.create("configmaps", config_map("full", &format!("c{number}"), None))?;
    }
    Ok(())
}

fn create_dependents(server: &Server, count: usize) -> Result {
    let owner = create(server, "owner", None)?;
    for number in 0..count {
        create(server, &format!("c{number}"), Some(&owner))?;
    }
    Ok(())
}

fn create_chain(server: &Server, length: usize) -> Result {
    let mut owner = create(server, "0", None)?;
    for number in 1..length {
        owner = create(server, &number.to_string(), Some(&owner))?;
    }
    Ok(())
}

/// Creates custom resources whose validation compares every pair of their items.
fn create_widgets(server: &Server, count: usize) -> Result {
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
    Ok(())
}

/// Patches custom resources with an expensive validation rule from several clients.
async fn expensive_rules(server: Server, count: usize) -> Result {
    let client = async |client: usize| -> Result {
        for round in 0..count {
            let items: Vec<usize> = (round..round + 200).collect();
            let path = format!("{WIDGETS}/w{client}");
            let patch = json!({"spec": {"items": items}});
            send(&server, "PATCH", &path, "application/merge-patch+json", patch.to_string()).await?;
        }
        Ok(())
    };
    join_all((0..CLIENTS).map(client)).await.into_iter().collect()
}

/// Applies large ConfigMaps from several clients.
async fn expensive_apply(server: Server, count: usize) -> Result {
    let client = async |client: usize| -> Result {
        let name = format!("large-{client}");
        let path = format!("{CONFIG_MAPS}/{name}?fieldManager=bench&force=true");
        let value = format!("ROUND{}", "x".repeat(100));
        let data: serde_json::Map<String, Value> = (0..5_000).map(|key| (format!("key-{key}"), json!(value))).collect();
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        let template = object.to_string();
        for round in 0..count {
            let body = template.replace("ROUND", &round.to_string());
            send(&server, "PATCH", &path, "application/apply-patch+yaml", body).await?;
        }
        Ok(())
    };
    join_all((0..CLIENTS).map(client)).await.into_iter().collect()
}

async fn list_with_selector(server: Server) -> Result {
    for _ in 0..LISTS {
        send(&server, "GET", &format!("{CONFIG_MAPS}?labelSelector=a%3Db"), "", String::new()).await?;
    }
    Ok(())
}

/// Creates a ConfigMap of 1 MiB.
fn create_large_object(server: &Server, _: usize) -> Result {
    let metadata = json!({"namespace": "default", "name": "large"});
    server.create("configmaps", json!({"metadata": metadata, "data": {"value": "x".repeat(1 << 20)}}))?;
    Ok(())
}

/// Patches a large ConfigMap and prints the memory of the process.
async fn patch_large_object(server: Server, count: usize) -> Result {
    let mut sizes = Vec::new();
    for round in 0..count {
        let patch = json!({"data": {"round": round.to_string()}});
        send(&server, "PATCH", &format!("{CONFIG_MAPS}/large"), "application/merge-patch+json", patch.to_string())
            .await?;
        if (round + 1) % (count / 10).max(1) == 0 {
            sizes.push(resident_mebibytes()?);
        }
    }
    print(&format!("RSS after each tenth of {count} patches of 1 MiB: {sizes:?} MiB"))
}

/// Returns the resident memory of the process.
fn resident_mebibytes() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? / 1024)
}

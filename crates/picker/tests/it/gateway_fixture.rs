//! Simulated engines, a gateway, and a raw HTTP/1.1 client.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use cluster::NamespacedName;
use engine::{Config, RequestMemory, Timing};
use picker::{
    Endpoint, GatewayOptions, Pool, PromptTokenRange, Scheduler, SchedulingPolicy, TargetModel, UseCase, parse_config,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_util::sync::CancellationToken;

/// Timeout for waiting, long enough for a busy host.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// How long requests in progress may continue after the shutdown of the gateway.
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval between polls of a condition. Polling without a pause would take the processor from the tests beside it.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Configuration of a policy that reads no metrics.
const CONFIG_WITHOUT_METRICS: &str = "apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: max-score-picker}]";

/// A gateway with simulated engines.
pub(crate) struct GatewayFixture {
    pub(crate) gateway: SocketAddr,
    pub(crate) engines: Vec<SocketAddr>,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) shutdown: CancellationToken,
}

/// Head and body of a response.
pub(crate) struct HttpResponse {
    pub(crate) head: String,
    pub(crate) body: String,
}

// === impl GatewayFixture ===

impl Drop for GatewayFixture {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

// === impl HttpResponse ===

impl HttpResponse {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Returns the configuration of an engine that serves the models `names`.
pub(crate) fn engine_config(names: &[&str]) -> Config {
    let served_model_names = names.iter().map(|name| (*name).to_owned()).collect();
    Config {
        served_model_names,
        timing: Timing::instant(),
        keep_alive: Duration::from_secs(3600),
        ..Config::new("/models/base")
    }
}

/// Polls until `condition` is true.
pub(crate) async fn wait_until(description: &str, condition: impl AsyncFn() -> bool) {
    let polling = async {
        while !condition().await {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, polling).await.is_ok(), "timed out waiting for {description}");
}

/// Returns an address that refuses connections. The socket reserves it until it is dropped.
pub(crate) fn unreachable_address() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Sockets of an address that drops connection attempts, until they are dropped.
pub(crate) struct UnresponsiveSockets {
    _listener: TcpListener,
    /// Fills the queue of the listener.
    _queued: TcpStream,
}

/// Lets the address of `socket` drop connection attempts, as a host that disappeared does.
pub(crate) async fn listen_unresponsively(socket: TcpSocket) -> (UnresponsiveSockets, SocketAddr) {
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let queued = TcpStream::connect(address).await.unwrap();
    (UnresponsiveSockets { _listener: listener, _queued: queued }, address)
}

/// Returns the name of the pool.
pub(crate) fn pool_key() -> NamespacedName {
    NamespacedName { namespace: "ns".to_owned(), name: "pool".to_owned() }
}

/// Starts a gateway in front of `listeners`, on which the test serves the responses of the engines.
pub(crate) async fn start_with_listeners(listeners: &[TcpListener]) -> GatewayFixture {
    // The listeners expect only requests of clients.
    let policy = parse_config(CONFIG_WITHOUT_METRICS).unwrap().policy;
    let mut fixture = start_with_policy(Vec::new(), &[], policy).await;
    fixture.engines = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &fixture.engines, &[])]);
    fixture
}

/// Starts `engines` and a gateway. Its pool `ns/pool` contains the engines and the use case `chat` with `targets`.
pub(crate) async fn start(engines: Vec<Config>, targets: &[(&str, u32)]) -> GatewayFixture {
    start_with_policy(engines, targets, SchedulingPolicy::default()).await
}

/// Starts `engines` and a gateway like [`start`], which selects endpoints by `policy`.
pub(crate) async fn start_with_policy(
    engines: Vec<Config>,
    targets: &[(&str, u32)],
    policy: SchedulingPolicy,
) -> GatewayFixture {
    let options =
        GatewayOptions { drain_timeout: Some(DRAIN_TIMEOUT), debug_headers: true, ..GatewayOptions::default() };
    start_gateway(engines, targets, policy, options).await
}

/// Starts `engines` and a gateway like [`start`] with `options`.
pub(crate) async fn start_with_options(engines: Vec<Config>, options: GatewayOptions) -> GatewayFixture {
    start_gateway(engines, &[], SchedulingPolicy::default(), options).await
}

/// Starts `engines` and a gateway like [`start_with_policy`] with `options`.
pub(crate) async fn start_gateway(
    engines: Vec<Config>,
    targets: &[(&str, u32)],
    policy: SchedulingPolicy,
    options: GatewayOptions,
) -> GatewayFixture {
    start_scheduler(engines, targets, Scheduler::new(policy, 1), options).await
}

/// Starts `engines` and a gateway like [`start_gateway`] with this scheduler.
pub(crate) async fn start_scheduler(
    engines: Vec<Config>,
    targets: &[(&str, u32)],
    scheduler: Scheduler,
    options: GatewayOptions,
) -> GatewayFixture {
    let shutdown = CancellationToken::new();
    let mut addresses = Vec::new();
    for config in engines {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        tokio::spawn(engine::serve(listener, config, RequestMemory::default(), shutdown.clone()));
    }
    let scheduler = Arc::new(scheduler.with_default_namespace("ns".to_owned()));
    scheduler.replace(vec![pool(&scheduler, &addresses, targets)]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = listener.local_addr().unwrap();
    tokio::spawn(picker::serve_gateway(listener, Arc::clone(&scheduler), options, shutdown.clone()));
    GatewayFixture { gateway, engines: addresses, scheduler, shutdown }
}

/// Returns the pool `ns/pool` with endpoints at `addresses` and the use case `chat`.
pub(crate) fn pool(scheduler: &Scheduler, addresses: &[SocketAddr], targets: &[(&str, u32)]) -> Pool {
    let endpoint = |address: &SocketAddr| Endpoint {
        address: *address,
        pod: format!("pod-{}", address.port()),
        prompt_tokens: PromptTokenRange::default(),
        uid: String::new(),
        labels: BTreeMap::new(),
        state: scheduler.endpoint_state(*address, ""),
    };
    let targets =
        targets.iter().map(|(model, weight)| TargetModel { model: (*model).to_owned(), weight: *weight }).collect();
    let use_case =
        UseCase { targets, creation_timestamp: "2026-01-01T00:00:00Z".to_owned(), ..UseCase::implicit("chat") };
    let endpoints = addresses.iter().map(endpoint).map(Arc::new).collect();
    let mut pool = Pool::new(pool_key(), scheduler.default_scheduling(), endpoints);
    pool.use_cases.insert("chat".to_owned(), use_case);
    pool
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &str) -> HttpResponse {
    receive(send(address, "POST", path, body).await).await
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> HttpResponse {
    receive(send(address, "GET", path, "").await).await
}

pub(crate) async fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

/// Sends a POST request with one more header.
pub(crate) async fn send_with_header(address: SocketAddr, path: &str, header: &str, body: &str) -> HttpResponse {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all([head.as_bytes(), body.as_bytes()].concat().as_slice()).await.unwrap();
    receive(stream).await
}

pub(crate) async fn receive(mut stream: TcpStream) -> HttpResponse {
    let mut text = Vec::new();
    tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut text)).await.expect("the response does not end").unwrap();
    parse_response(&String::from_utf8(text).unwrap())
}

/// Returns head and body of a complete response.
pub(crate) fn parse_response(text: &str) -> HttpResponse {
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let body = if head.contains("transfer-encoding: chunked") { dechunk(body) } else { body.to_owned() };
    HttpResponse { head: head.to_owned(), body }
}

fn dechunk(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        text.push_str(&rest[..size]);
        body = rest.get(size + 2..).unwrap_or("");
        if size == 0 {
            break;
        }
    }
    text
}

/// Returns the value of a series in the metrics of an engine.
pub(crate) async fn metric(engine: SocketAddr, series: &str) -> f64 {
    let text = get(engine, "/metrics").await.body;
    let line = text.lines().find(|line| line.starts_with(series)).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

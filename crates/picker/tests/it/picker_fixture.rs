//! An InferencePool and its Pods in an API server, simulated engines with separate IP addresses, and a gRPC client that
//! sends requests to the picker as a proxy does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use apiserver::Server;
use bytes::Bytes;
use cluster::NamespacedName;
use engine::{Config, RequestMemory, Timing};
use http::uri::PathAndQuery;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use picker::ext_proc::{
    BodySendMode, HeaderMap, HeaderValue, HealthCheckRequest, HealthCheckResponse, HttpBody, HttpHeaders, Metadata,
    ProcessingRequest, ProcessingResponse, ServingStatus, Struct, processing_request::Request,
    processing_response::Response, value::Kind,
};
use picker::{
    AccessLog, DEFAULT_REQUEST_MEMORY, EndpointPicker, ListenerRole, PoolGroup, parse_config, serve_grpc,
    serve_metrics, watch_inference_pool,
};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Streaming;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use crate::api_server;
use crate::gateway_fixture::{self, UnresponsiveSockets};

const POOLS: &str = "inferencepools.inference.networking.k8s.io";

/// An API server, an endpoint picker that watches it, and the configuration of engines.
pub(crate) struct PickerFixture {
    pub(crate) server: Server,
    pub(crate) picker: Arc<EndpointPicker>,
    pub(crate) ext_proc_address: SocketAddr,
    pub(crate) health_address: SocketAddr,
    pub(crate) metrics_address: SocketAddr,
    /// Port of all engines.
    port: u16,
    /// Reserved sockets for engines by the last octet of their address.
    sockets: Mutex<BTreeMap<u8, TcpSocket>>,
    network: [u8; 3],
    shutdown: CancellationToken,
    _guard: DropGuard,
}

/// Response of the picker. The request is in flight until the response is dropped.
pub(crate) struct PickerResponse {
    pub(crate) headers: BTreeMap<String, String>,
    /// Body for the engine, or of an immediate response.
    pub(crate) body: String,
    /// Status of an immediate response.
    pub(crate) status: Option<i32>,
    sender: mpsc::Sender<ProcessingRequest>,
    stream: Option<Streaming<ProcessingResponse>>,
}

// === impl PickerFixture ===

impl PickerFixture {
    /// Starts a picker with `config` for the pool `default/pool`, which does not exist yet.
    pub(crate) async fn start(config: &str) -> PickerFixture {
        Self::start_with(config, |_| {}).await
    }

    /// Starts a picker after `prepare` has created objects.
    pub(crate) async fn start_with(config: &str, prepare: impl FnOnce(&Server)) -> PickerFixture {
        Self::start_with_log(config, prepare, None).await
    }

    /// Starts a picker like [`Self::start_with`] with an access log.
    pub(crate) async fn start_with_log(
        config: &str,
        prepare: impl FnOnce(&Server),
        access_log: Option<AccessLog>,
    ) -> PickerFixture {
        let server = api_server::start();
        prepare(&server);
        server.create("customresourcedefinitions.apiextensions.k8s.io", pool_definition()).unwrap();
        let key = NamespacedName { namespace: "default".to_owned(), name: "pool".to_owned() };
        let picker = EndpointPicker::new(key, parse_config(config).unwrap().policy, DEFAULT_REQUEST_MEMORY, 7);
        let picker = Arc::new(picker.with_access_log(access_log));
        let shutdown = CancellationToken::new();
        let client = kube::Client::new(apiserver::router(&server), "default");
        tokio::spawn(watch_inference_pool(client, PoolGroup::Stable, Arc::clone(&picker), shutdown.clone()));
        let mut addresses = Vec::new();
        for role in [ListenerRole::ExtProc(None), ListenerRole::Health] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(listener.local_addr().unwrap());
            tokio::spawn(serve_grpc(listener, role, Arc::clone(&picker), shutdown.clone()));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let metrics_address = listener.local_addr().unwrap();
        tokio::spawn(serve_metrics(listener, Arc::clone(picker.scheduler()), shutdown.clone()));
        let (network, port, sockets) = reserve_sockets();
        let (ext_proc_address, health_address) = (addresses[0], addresses[1]);
        PickerFixture {
            server,
            picker,
            ext_proc_address,
            health_address,
            metrics_address,
            port,
            sockets: Mutex::new(sockets),
            network,
            _guard: shutdown.clone().drop_guard(),
            shutdown,
        }
    }

    /// Returns the address of the engine with the last octet `host`.
    pub(crate) fn address(&self, host: u8) -> SocketAddr {
        let [a, b, c] = self.network;
        ([a, b, c, host], self.port).into()
    }

    fn listen(&self, host: u8) -> TcpListener {
        let socket = self.sockets.lock().unwrap().remove(&host).unwrap();
        socket.listen(1024).unwrap()
    }

    pub(crate) fn create_pool(&self) {
        self.create_pool_of("pool", &json!({"app": "llama"}));
    }

    /// Creates an InferencePool of the Pods with these labels.
    pub(crate) fn create_pool_of(&self, name: &str, labels: &Value) {
        let pool = json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": labels}, "targetPorts": [{"number": self.port}]}});
        self.server.create(POOLS, pool).unwrap();
    }

    /// Starts a simulated engine and creates its ready Pod.
    pub(crate) async fn start_engine(&self, host: u8, role: &str) {
        let config = Config { max_num_seqs: 1, timing: Timing::default(), ..gateway_fixture::engine_config(&["m"]) };
        self.start_engine_with(host, role, config);
    }

    /// Starts a simulated engine with `config` and creates its ready Pod.
    pub(crate) fn start_engine_with(&self, host: u8, role: &str, config: Config) {
        let listener = self.listen(host);
        tokio::spawn(engine::serve(listener, config, RequestMemory::default(), self.shutdown.clone()));
        self.create_pod(host, &json!({"app": "llama", "role": role}));
    }

    /// Starts a server with static metrics and creates its ready Pod. The server stops when the returned guard is dropped.
    pub(crate) async fn start_static_engine(&self, host: u8, role: &str, metrics: &'static str) -> DropGuard {
        let router = axum::Router::new().route("/metrics", axum::routing::get(move || async move { metrics }));
        self.start_server(host, role, router)
    }

    /// Starts a server and creates its ready Pod. The server stops when the returned guard is dropped.
    pub(crate) fn start_server(&self, host: u8, role: &str, router: axum::Router) -> DropGuard {
        let listener = self.listen(host);
        let shutdown = self.shutdown.child_token();
        tokio::spawn(shutdown.clone().run_until_cancelled_owned(axum::serve(listener, router).into_future()));
        self.create_pod(host, &json!({"app": "llama", "fusioninfer.io/component-type": role}));
        shutdown.drop_guard()
    }

    /// Creates a ready Pod that drops connection attempts, until the returned sockets are dropped.
    pub(crate) async fn start_unresponsive(&self, host: u8) -> UnresponsiveSockets {
        let socket = self.sockets.lock().unwrap().remove(&host).unwrap();
        let (sockets, _) = gateway_fixture::listen_unresponsively(socket).await;
        self.create_pod(host, &json!({"app": "llama"}));
        sockets
    }

    fn create_pod(&self, host: u8, labels: &Value) {
        let ip = self.address(host).ip().to_string();
        let pod = json!({"metadata": {"name": format!("pod-{host}"), "namespace": "default", "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut created = (*self.server.create("pods", pod).unwrap()).clone();
        created["status"] =
            json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]});
        self.server.update_status("pods", created).unwrap();
    }

    pub(crate) async fn wait_until(&self, description: &str, condition: impl Fn(&PickerFixture) -> bool) {
        gateway_fixture::wait_until(description, async || condition(self)).await;
    }

    /// Waits until no request is in flight: a stream ends shortly after the test drops the response.
    pub(crate) async fn wait_until_idle(&self) {
        let is_idle = |fixture: &PickerFixture| {
            let metrics = fixture.picker.scheduler().render_metrics();
            let mut running = metrics.lines().filter(|line| line.starts_with("inference_objective_running_requests{"));
            running.all(|line| line.ends_with(" 0"))
        };
        self.wait_until("no request in flight", is_idle).await;
    }

    pub(crate) async fn health(&self, address: SocketAddr, service: &str) -> Result<ServingStatus, tonic::Code> {
        let mut grpc = grpc(address);
        grpc.ready().await.unwrap();
        let request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
        let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let response = grpc.unary(request, path, codec).await;
        response.map(|response| response.into_inner().status()).map_err(|status| status.code())
    }

    /// Waits until the metrics of `engines` engines are scraped.
    pub(crate) async fn wait_until_scraped(&self, engines: usize) {
        let scraped_engines = |fixture: &PickerFixture| {
            let metrics = fixture.picker.scheduler().render_metrics();
            metrics.lines().filter(|line| line.starts_with("inference_pool_per_pod_queue_size{")).count()
        };
        self.wait_until("scraped metrics", |fixture| scraped_engines(fixture) == engines).await;
    }

    /// Sends a request as a proxy does, and returns the response when the picker has returned the whole body.
    pub(crate) async fn send(&self, prompt: &str, subset: Option<&str>) -> PickerResponse {
        self.send_for_model("m", prompt, subset).await
    }

    /// Sends a request for a model.
    pub(crate) async fn send_for_model(&self, model: &str, prompt: &str, subset: Option<&str>) -> PickerResponse {
        let exchange = self.exchange(model, prompt, subset);
        tokio::time::timeout(gateway_fixture::TIMEOUT, exchange).await.expect("timed out waiting for the picker")
    }

    async fn exchange(&self, model: &str, prompt: &str, subset: Option<&str>) -> PickerResponse {
        let mut grpc = grpc(self.ext_proc_address);
        grpc.ready().await.unwrap();
        let (sender, messages) = mpsc::channel(8);
        let body = json!({"model": model, "prompt": prompt}).to_string();
        for message in request(&body, subset) {
            sender.send(message).await.unwrap();
        }
        let path = PathAndQuery::from_static("/envoy.service.ext_proc.v3.ExternalProcessor/Process");
        let codec = ProstCodec::<ProcessingRequest, ProcessingResponse>::default();
        let request = tonic::Request::new(ReceiverStream::new(messages));
        let mut stream = grpc.streaming(request, path, codec).await.unwrap().into_inner();
        let mut response = PickerResponse { sender, ..PickerResponse::default() };
        while let Some(message) = stream.message().await.unwrap() {
            if response.handle(message) {
                let target = response.target_model();
                let sent = body.replacen(&format!("\"{model}\""), &format!("\"{target}\""), 1);
                assert!(
                    response.status.is_some() || response.body == sent,
                    "only the model changes: {}",
                    response.body
                );
                break;
            }
        }
        response.stream = Some(stream);
        response
    }

    /// Sends a request whose response is a stream of events in `chunks`. Returns what the client receives if the picker asks
    /// for the response body, else `None`.
    pub(crate) async fn send_and_stream(&self, model: &str, chunks: &[&str]) -> Option<String> {
        let mut response = self.send_for_model(model, "hello", None).await;
        let mut stream = response.stream.take().unwrap();
        let message = |request| ProcessingRequest { request: Some(request), ..ProcessingRequest::default() };
        let header = |(key, value): (&str, &'static str)| HeaderValue {
            key: key.to_owned(),
            raw_value: Bytes::from_static(value.as_bytes()),
            ..HeaderValue::default()
        };
        let headers = [(":status", "200"), ("content-type", "text/event-stream")].map(header);
        let headers = Some(HeaderMap { headers: headers.into() });
        let headers = Request::ResponseHeaders(HttpHeaders { headers, end_of_stream: false });
        response.sender.send(message(headers)).await.unwrap();
        let reply = stream.message().await.unwrap().unwrap();
        if reply.mode_override.unwrap().response_body_mode() != BodySendMode::FullDuplexStreamed {
            return None;
        }
        let sender = response.sender.clone();
        let last = chunks.len() - 1;
        let messages: Vec<_> = chunks
            .iter()
            .enumerate()
            .map(|(index, chunk)| HttpBody {
                body: Bytes::copy_from_slice(chunk.as_bytes()),
                end_of_stream: index == last,
            })
            .collect();
        tokio::spawn(async move {
            for body in messages {
                sender.send(message(Request::ResponseBody(body))).await.unwrap();
            }
        });
        let mut received = Vec::new();
        loop {
            let Some(Response::ResponseBody(part)) = stream.message().await.unwrap().unwrap().response else {
                panic!()
            };
            let chunk = part.response.unwrap().body_mutation.unwrap().streamed_response.unwrap();
            received.extend_from_slice(&chunk.body);
            if chunk.end_of_stream {
                return Some(String::from_utf8(received).unwrap());
            }
        }
    }
}

// === impl PickerResponse ===

impl Default for PickerResponse {
    fn default() -> Self {
        Self { headers: BTreeMap::new(), body: String::new(), status: None, sender: mpsc::channel(1).0, stream: None }
    }
}

impl PickerResponse {
    /// Records a message. Returns whether it was the last one.
    fn handle(&mut self, message: ProcessingResponse) -> bool {
        match message.response.unwrap() {
            Response::RequestHeaders(response) => {
                let mutation = response.response.unwrap().header_mutation.unwrap();
                let set = mutation.set_headers.into_iter().map(|option| option.header.unwrap());
                self.headers = set.map(|header| (header.key.clone(), header.text())).collect();
                false
            }
            Response::RequestBody(response) => {
                let chunk = response.response.unwrap().body_mutation.unwrap().streamed_response.unwrap();
                self.body.push_str(std::str::from_utf8(&chunk.body).unwrap());
                chunk.end_of_stream
            }
            Response::ImmediateResponse(response) => {
                self.status = Some(response.status.unwrap().code);
                self.body = String::from_utf8(response.body.to_vec()).unwrap();
                true
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// Returns `model` of the body for the engine, empty if the request was rejected.
    pub(crate) fn target_model(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap();
        body["model"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns the last octets of the selected endpoints.
    pub(crate) fn hosts(&self) -> Vec<u8> {
        let endpoints = self.headers["x-gateway-destination-endpoint"].split(',');
        endpoints.map(last_octet).collect()
    }
}

/// Installs the definitions of ostler.
pub(crate) fn install_definitions(server: &Server) {
    for definition in api::crds() {
        server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
    }
}

/// Returns an unused loopback network, and sockets with the same port at several of its addresses.
pub(crate) fn reserve_sockets() -> ([u8; 3], u16, BTreeMap<u8, TcpSocket>) {
    static NETWORKS: AtomicU8 = AtomicU8::new(0);
    let process_octet = u8::try_from(std::process::id() % 100).unwrap();
    let network = [127, 100 + process_octet, NETWORKS.fetch_add(1, Ordering::Relaxed)];
    let [a, b, c] = network;
    loop {
        let mut port = 0;
        let sockets = (2..=4_u8).map(|host| {
            let socket = TcpSocket::new_v4()?;
            socket.bind(([a, b, c, host], port).into())?;
            port = socket.local_addr()?.port();
            Ok((host, socket))
        });
        // The port of the first socket may be in use at another address.
        let sockets: std::io::Result<BTreeMap<u8, TcpSocket>> = sockets.collect();
        match sockets {
            Ok(sockets) => return (network, port, sockets),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
        }
    }
}

/// Returns the last octet of an endpoint.
pub(crate) fn last_octet(endpoint: &str) -> u8 {
    match endpoint.parse::<SocketAddr>().unwrap().ip() {
        std::net::IpAddr::V4(ip) => ip.octets()[3],
        std::net::IpAddr::V6(ip) => unreachable!("{ip}"),
    }
}

fn request(body: &str, subset: Option<&str>) -> Vec<ProcessingRequest> {
    let metadata = subset.map(|subset| {
        let key = "x-gateway-destination-endpoint-subset";
        let hint = Struct::with_field(key, Kind::StringValue(subset.to_owned()));
        Metadata { filter_metadata: [("envoy.lb.subset_hint".to_owned(), hint)].into() }
    });
    let headers = Request::RequestHeaders(HttpHeaders { headers: None, end_of_stream: false });
    let body = Request::RequestBody(HttpBody { body: Bytes::copy_from_slice(body.as_bytes()), end_of_stream: true });
    let message = |request| ProcessingRequest { request: Some(request), ..ProcessingRequest::default() };
    vec![ProcessingRequest { metadata_context: metadata, ..message(headers) }, message(body)]
}

fn grpc(address: SocketAddr) -> Grpc<Client<HttpConnector, tonic::body::Body>> {
    let client = Client::builder(TokioExecutor::new()).http2_only(true).build(HttpConnector::new());
    Grpc::with_origin(client, format!("http://{address}").parse().unwrap())
}

fn pool_definition() -> Value {
    let names = json!({"kind": "InferencePool", "plural": "inferencepools", "singular": "inferencepool"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    // API groups of k8s.io require this annotation.
    let annotations = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    json!({"metadata": {"name": POOLS, "annotations": annotations}, "spec": {"group": "inference.networking.k8s.io", "names": names,
        "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

//! An InferencePool and its Pods in a cluster, engines that answer on addresses of their own, and a client that asks the
//! picker as a proxy does: gRPC over a socket.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use cluster::NamespacedName;
use embedded::Server;
use engine::{Config, Timing};
use http::uri::PathAndQuery;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use picker::ext_proc::{
    HealthCheckRequest, HealthCheckResponse, HttpBody, HttpHeaders, Metadata, ProcessingRequest, ProcessingResponse,
    ServingStatus, Struct, processing_request::Request, processing_response::Response, value::Kind,
};
use picker::{EndpointPicker, ListenerRole, PoolGroup, parse_config, serve_grpc, serve_metrics, watch_inference_pool};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use crate::{api_server, fleet};

const POOLS: &str = "inferencepools.inference.networking.k8s.io";

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) picker: Arc<EndpointPicker>,
    pub(crate) asks: SocketAddr,
    pub(crate) probes: SocketAddr,
    pub(crate) page: SocketAddr,
    /// Of all engines.
    port: u16,
    /// Where engines may be, by the last part of their address; nobody listens there yet.
    places: Mutex<BTreeMap<u8, TcpSocket>>,
    network: [u8; 3],
    stop: CancellationToken,
    _stop: DropGuard,
}

impl World {
    /// A picker with `config` for the pool `default/pool`, which does not exist yet.
    pub(crate) async fn start(config: &str) -> World {
        let server = api_server::start();
        server.create("customresourcedefinitions.apiextensions.k8s.io", definition()).unwrap();
        let key = NamespacedName { namespace: "default".to_owned(), name: "pool".to_owned() };
        let picker = Arc::new(EndpointPicker::new(key, parse_config(config).unwrap().policy, 7));
        let stop = CancellationToken::new();
        let client = kube::Client::new(server.router(), "default");
        tokio::spawn(watch_inference_pool(client, PoolGroup::Stable, Arc::clone(&picker), stop.clone()));
        let mut addresses = Vec::new();
        for face in [ListenerRole::ExtProc(None), ListenerRole::Health] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(listener.local_addr().unwrap());
            tokio::spawn(serve_grpc(listener, face, Arc::clone(&picker), stop.clone()));
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let page = listener.local_addr().unwrap();
        tokio::spawn(serve_metrics(listener, Arc::clone(&picker), stop.clone()));
        let (network, port, places) = places();
        let (asks, probes, places) = (addresses[0], addresses[1], Mutex::new(places));
        World { server, picker, asks, probes, page, port, places, network, _stop: stop.clone().drop_guard(), stop }
    }

    /// Where the engine of `host` listens.
    pub(crate) fn address(&self, host: u8) -> SocketAddr {
        let [a, b, c] = self.network;
        ([a, b, c, host], self.port).into()
    }

    fn listen(&self, host: u8) -> TcpListener {
        let place = self.places.lock().unwrap().remove(&host).unwrap();
        place.listen(1024).unwrap()
    }

    pub(crate) fn pool(&self) {
        let pool = json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": "pool", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": self.port}]}});
        self.server.create(POOLS, pool).unwrap();
    }

    /// A ready Pod at the address of `host`, and an engine there.
    pub(crate) async fn engine(&self, host: u8, role: &str) {
        let listener = self.listen(host);
        let config = Config { max_num_seqs: 1, timing: Timing::default(), ..fleet::engine(&["m"]) };
        tokio::spawn(engine::serve(listener, config, self.stop.clone()));
        self.pod(host, &json!({"app": "llama", "role": role}));
    }

    /// A ready Pod at the address of `host` whose metrics page stays as it is, until the result is dropped.
    pub(crate) async fn says(&self, host: u8, role: &str, page: &'static str) -> DropGuard {
        let listener = self.listen(host);
        let stop = self.stop.child_token();
        let router = axum::Router::new().route("/metrics", axum::routing::get(move || async move { page }));
        tokio::spawn(stop.clone().run_until_cancelled_owned(axum::serve(listener, router).into_future()));
        self.pod(host, &json!({"app": "llama", "fusioninfer.io/component-type": role}));
        stop.drop_guard()
    }

    fn pod(&self, host: u8, labels: &Value) {
        let ip = self.address(host).ip().to_string();
        let pod = json!({"metadata": {"name": format!("pod-{host}"), "namespace": "default", "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut made = (*self.server.create("pods", pod).unwrap()).clone();
        made["status"] = json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]});
        self.server.update_status("pods", made).unwrap();
    }

    pub(crate) async fn until(&self, what: &str, probe: impl Fn(&World) -> bool) {
        fleet::until(what, async || probe(self)).await;
    }

    /// Until every request that was asked for is over: its stream ends a moment after the test has let go of it.
    pub(crate) async fn until_idle(&self) {
        let is_idle = |world: &World| {
            let page = world.picker.render_metrics();
            let mut running = page.lines().filter(|line| line.starts_with("inference_objective_running_requests{"));
            running.all(|line| line.ends_with(" 0"))
        };
        self.until("nothing under way", is_idle).await;
    }

    pub(crate) async fn health(&self, address: SocketAddr, service: &str) -> Result<ServingStatus, tonic::Code> {
        let mut grpc = grpc(address);
        grpc.ready().await.unwrap();
        let request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
        let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let answer = grpc.unary(request, path, codec).await;
        answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
    }

    /// Until the metrics pages of `engines` engines have been read.
    pub(crate) async fn until_read(&self, engines: usize) {
        let read = |world: &World| {
            let page = world.picker.render_metrics();
            page.lines().filter(|line| line.starts_with("inference_pool_per_pod_queue_size{")).count()
        };
        self.until("metrics pages", |world| read(world) == engines).await;
    }

    /// Asks as a proxy does, and returns the stream's messages until the whole body came back.
    pub(crate) async fn ask(&self, prompt: &str, subset: Option<&str>) -> Answer {
        self.ask_for("m", prompt, subset).await
    }

    /// The same for another model.
    pub(crate) async fn ask_for(&self, model: &str, prompt: &str, subset: Option<&str>) -> Answer {
        let asking = self.asking(model, prompt, subset);
        tokio::time::timeout(fleet::PATIENCE, asking).await.expect("the picker does not answer")
    }

    async fn asking(&self, model: &str, prompt: &str, subset: Option<&str>) -> Answer {
        let mut grpc = grpc(self.asks);
        grpc.ready().await.unwrap();
        let (asks, messages) = mpsc::channel(8);
        let body = json!({"model": model, "prompt": prompt}).to_string();
        for message in request(&body, subset) {
            asks.send(message).await.unwrap();
        }
        let path = PathAndQuery::from_static("/envoy.service.ext_proc.v3.ExternalProcessor/Process");
        let codec = ProstCodec::<ProcessingRequest, ProcessingResponse>::default();
        let request = tonic::Request::new(ReceiverStream::new(messages));
        let mut stream = grpc.streaming(request, path, codec).await.unwrap().into_inner();
        let mut answer = Answer { _asks: asks, ..Answer::default() };
        while let Some(said) = stream.message().await.unwrap() {
            if answer.take(said) {
                assert!(answer.status.is_some() || answer.body == body, "the body comes back as it was");
                break;
            }
        }
        answer
    }
}

/// A network that no other test has, and a port that is free at each of its addresses for engines.
fn places() -> ([u8; 3], u16, BTreeMap<u8, TcpSocket>) {
    static WORLDS: AtomicU8 = AtomicU8::new(0);
    let process = u8::try_from(std::process::id() % 100).unwrap();
    let network = [127, 100 + process, WORLDS.fetch_add(1, Ordering::Relaxed)];
    let [a, b, c] = network;
    loop {
        let mut port = 0;
        let sockets = (2..=4_u8).map(|host| {
            let socket = TcpSocket::new_v4()?;
            socket.bind(([a, b, c, host], port).into())?;
            port = socket.local_addr()?.port();
            Ok((host, socket))
        });
        // Somebody else may have the port of the first at another address.
        let sockets: std::io::Result<BTreeMap<u8, TcpSocket>> = sockets.collect();
        match sockets {
            Ok(sockets) => return (network, port, sockets),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse),
        }
    }
}

type Asking = mpsc::Sender<ProcessingRequest>;

/// What was answered; the request is under way until this is dropped.
pub(crate) struct Answer {
    pub(crate) headers: BTreeMap<String, String>,
    body: String,
    /// Of an answer that no engine gives.
    pub(crate) status: Option<i32>,
    _asks: Asking,
}

impl Default for Answer {
    fn default() -> Self {
        Self { headers: BTreeMap::new(), body: String::new(), status: None, _asks: mpsc::channel(1).0 }
    }
}

impl Answer {
    /// Whether that was the last.
    fn take(&mut self, said: ProcessingResponse) -> bool {
        match said.response.unwrap() {
            Response::RequestHeaders(answer) => {
                let mutation = answer.response.unwrap().header_mutation.unwrap();
                let set = mutation.set_headers.into_iter().map(|one| one.header.unwrap());
                self.headers = set.map(|header| (header.key.clone(), header.text())).collect();
                false
            }
            Response::RequestBody(answer) => {
                let part = answer.response.unwrap().body_mutation.unwrap().streamed_response.unwrap();
                self.body.push_str(std::str::from_utf8(&part.body).unwrap());
                part.end_of_stream
            }
            Response::ImmediateResponse(answer) => {
                self.status = Some(answer.status.unwrap().code);
                true
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// The hosts of the endpoints, as the last part of their address.
    pub(crate) fn hosts(&self) -> Vec<u8> {
        let endpoints = self.headers["x-gateway-destination-endpoint"].split(',');
        endpoints.map(host).collect()
    }
}

pub(crate) fn host(endpoint: &str) -> u8 {
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

fn definition() -> Value {
    let names = json!({"kind": "InferencePool", "plural": "inferencepools", "singular": "inferencepool"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    // Groups of k8s.io want to know who approved of them.
    let approved = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    json!({"metadata": {"name": POOLS, "annotations": approved}, "spec": {"group": "inference.networking.k8s.io", "names": names,
        "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

//! The endpoint picker as a proxy meets it: gRPC over a socket, an InferencePool and its Pods in a cluster, engines that
//! answer on addresses of their own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use embedded::Server;
use embedded::ports::{AdmitAll, Container, Exit, Loopback, Ports, Runner, SystemClock, SystemRandom};
use engine::{Config, Timing};
use futures::future::BoxFuture;
use http::uri::PathAndQuery;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use picker::endpoint_picker::messages::{
    Asks, HealthCheckRequest, HealthCheckResponse, HttpBody, HttpHeaders, Kind, Metadata, ProcessingRequest,
    ProcessingResponse, Says, ServingStatus, Struct,
};
use picker::endpoint_picker::{EndpointPicker, Face, serve, watch};
use picker::{PoolKey, policy_file};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use crate::fleet;

const POOLS: &str = "inferencepools.inference.networking.k8s.io";

struct NoRunner;

impl Runner for NoRunner {
    fn run(&self, _: Container, _: CancellationToken) -> BoxFuture<'static, Exit> {
        Box::pin(async { Exit { code: 1, message: String::new() } })
    }
}

struct World {
    server: Server,
    picker: Arc<EndpointPicker>,
    asks: SocketAddr,
    probes: SocketAddr,
    /// Of all engines.
    port: u16,
    stop: CancellationToken,
    _stop: DropGuard,
}

impl World {
    /// A picker with `config` for the pool `default/pool`, which does not exist yet.
    async fn start(config: &str) -> World {
        let ports = Ports {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            admission: Arc::new(AdmitAll),
            runner: Arc::new(NoRunner),
            network: Arc::new(Loopback),
        };
        let server = Server::new(&ports);
        server.create("customresourcedefinitions.apiextensions.k8s.io", definition()).unwrap();
        let key = PoolKey { namespace: "default".to_owned(), name: "pool".to_owned() };
        let picker = Arc::new(EndpointPicker::new(key, policy_file::read(config).unwrap(), 7));
        let stop = CancellationToken::new();
        tokio::spawn(watch(kube::Client::new(server.router(), "default"), Arc::clone(&picker), stop.clone()));
        let mut addresses = Vec::new();
        for face in [Face::Picks(None), Face::Health] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(listener.local_addr().unwrap());
            tokio::spawn(serve(listener, face, Arc::clone(&picker), stop.clone()));
        }
        let port = TcpListener::bind("127.0.0.2:0").await.unwrap().local_addr().unwrap().port();
        let (asks, probes) = (addresses[0], addresses[1]);
        World { server, picker, asks, probes, port, _stop: stop.clone().drop_guard(), stop }
    }

    fn pool(&self) {
        let pool = json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": "pool", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": self.port}]}});
        self.server.create(POOLS, pool).unwrap();
    }

    /// A ready Pod at 127.0.0.`host`, and an engine there.
    async fn engine(&self, host: u8, role: &str) {
        let ip = format!("127.0.0.{host}");
        let listener = TcpListener::bind((ip.as_str(), self.port)).await.unwrap();
        let config = Config { max_num_seqs: 1, timing: Timing::default(), ..fleet::engine(&["m"]) };
        tokio::spawn(engine::serve(listener, config, self.stop.clone()));
        let labels = json!({"app": "llama", "role": role});
        let pod = json!({"metadata": {"name": format!("pod-{host}"), "namespace": "default", "labels": labels},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let mut made = (*self.server.create("pods", pod).unwrap()).clone();
        made["status"] = json!({"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]});
        self.server.update_status("pods", made).unwrap();
    }

    async fn until(&self, what: &str, probe: impl Fn(&World) -> bool) {
        let found = async {
            while !probe(self) {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(20), found).await.is_ok(), "waited in vain for {what}");
    }

    async fn health(&self, address: SocketAddr, service: &str) -> Result<ServingStatus, tonic::Code> {
        let mut grpc = grpc(address);
        grpc.ready().await.unwrap();
        let request = tonic::Request::new(HealthCheckRequest { service: service.to_owned() });
        let path = PathAndQuery::from_static("/grpc.health.v1.Health/Check");
        let codec = ProstCodec::<HealthCheckRequest, HealthCheckResponse>::default();
        let answer = grpc.unary(request, path, codec).await;
        answer.map(|answer| answer.into_inner().status()).map_err(|status| status.code())
    }

    /// Asks as a proxy does, and returns the stream's messages until the whole body came back.
    async fn ask(&self, prompt: &str, subset: Option<&str>) -> Answer {
        let mut grpc = grpc(self.asks);
        grpc.ready().await.unwrap();
        let (asks, messages) = mpsc::channel(8);
        let body = json!({"model": "m", "prompt": prompt}).to_string();
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

type Asking = mpsc::Sender<ProcessingRequest>;

/// What was answered; the request is under way until this is dropped.
struct Answer {
    headers: BTreeMap<String, String>,
    body: String,
    /// Of an answer that no engine gives.
    status: Option<i32>,
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
            Says::RequestHeaders(answer) => {
                let mutation = answer.response.unwrap().header_mutation.unwrap();
                let set = mutation.set_headers.into_iter().map(|one| one.header.unwrap());
                self.headers = set.map(|header| (header.key.clone(), header.text())).collect();
                false
            }
            Says::RequestBody(answer) => {
                let part = answer.response.unwrap().body_mutation.unwrap().streamed_response.unwrap();
                self.body.push_str(std::str::from_utf8(&part.body).unwrap());
                part.end_of_stream
            }
            Says::Immediate(answer) => {
                self.status = Some(answer.status.unwrap().code);
                true
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// The hosts of the endpoints, as the last part of their address.
    fn hosts(&self) -> Vec<u8> {
        let endpoints = self.headers["x-gateway-destination-endpoint"].split(',');
        endpoints.map(host).collect()
    }
}

fn host(endpoint: &str) -> u8 {
    match endpoint.parse::<SocketAddr>().unwrap().ip() {
        std::net::IpAddr::V4(ip) => ip.octets()[3],
        std::net::IpAddr::V6(ip) => unreachable!("{ip}"),
    }
}

fn request(body: &str, subset: Option<&str>) -> Vec<ProcessingRequest> {
    let metadata = subset.map(|subset| {
        let key = "x-gateway-destination-endpoint-subset";
        let hint = Struct::of(key, Kind::Text(subset.to_owned()));
        Metadata { filter_metadata: [("envoy.lb.subset_hint".to_owned(), hint)].into() }
    });
    let headers = Asks::RequestHeaders(HttpHeaders { headers: None, end_of_stream: false });
    let body = Asks::RequestBody(HttpBody { body: Bytes::copy_from_slice(body.as_bytes()), end_of_stream: true });
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
    json!({"metadata": {"name": POOLS}, "spec": {"group": "inference.networking.k8s.io", "names": names,
        "scope": "Namespaced", "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}})
}

const QUEUE: &str = "
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}, {type: max-score-picker, parameters: {maxNumOfEndpoints: 3}}]
";

// spec: GW-55
#[tokio::test]
async fn a_proxy_is_told_ready_endpoints_as_they_come_and_go() {
    let world = World::start(QUEUE).await;
    assert_eq!(world.health(world.probes, "readiness").await, Ok(ServingStatus::NotServing));
    assert_eq!(world.health(world.probes, "liveness").await, Ok(ServingStatus::Serving));
    assert_eq!(world.health(world.probes, "nothing").await, Err(tonic::Code::NotFound));
    assert_eq!(world.ask("nobody there", None).await.status, Some(503));

    world.pool();
    world.engine(2, "x").await;
    world.engine(3, "x").await;
    world.until("both endpoints", |world| world.picker.endpoints().len() == 2).await;
    assert_eq!(
        world.health(world.asks, "envoy.service.ext_proc.v3.ExternalProcessor").await,
        Ok(ServingStatus::Serving)
    );
    let mut hosts = world.ask("hello", None).await.hosts();
    hosts.sort_unstable();
    assert_eq!(hosts, [2, 3], "one to go to, one to fall back to");

    let only = format!("127.0.0.3:{}", world.port);
    assert_eq!(world.ask("hello", Some(&only)).await.hosts(), [3]);
    assert_eq!(world.ask("hello", Some("127.0.0.9:1")).await.status, Some(503));

    world.server.delete("pods", "default", "pod-2", None).unwrap();
    world.until("the other to go", |world| world.picker.endpoints().len() == 1).await;
    assert_eq!(world.ask("hello", None).await.hosts(), [3]);
}

#[tokio::test]
async fn a_conversation_stays_with_its_endpoint_and_requests_under_way_count() {
    let world = World::start("").await;
    world.pool();
    world.engine(2, "x").await;
    world.engine(3, "x").await;
    world.until("both endpoints", |world| world.picker.endpoints().len() == 2).await;
    let story = "Once upon a time there was an ostler who knew every horse of the county by its step on the cobbles.";
    let first = world.ask(story, None).await.hosts();
    for _ in 0..5 {
        assert_eq!(world.ask(&format!("{story} And then?"), None).await.hosts(), first, "and no other to fall back to");
    }
    // What is under way elsewhere weighs nothing against a prefix, but decides where there is none.
    let busy = world.ask("a", None).await;
    assert_ne!(world.ask("b", None).await.hosts()[0], busy.hosts()[0]);
}

// spec: GW-56
#[tokio::test]
async fn an_engine_whose_queue_is_seen_is_avoided() {
    let world = World::start(QUEUE).await;
    world.pool();
    world.engine(2, "x").await;
    world.engine(3, "x").await;
    // One request at a time, and none of these comes through the picker.
    let engine: SocketAddr = format!("127.0.0.2:{}", world.port).parse().unwrap();
    let long = json!({"model": "m", "prompt": "x", "max_tokens": 4_000, "ignore_eos": true, "stream": true});
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(fleet::send(engine, "POST", "/v1/completions", &long.to_string()).await);
    }
    world.until("both endpoints", |world| world.picker.endpoints().len() == 2).await;
    let avoided = async {
        let mut in_a_row = 0;
        // Equals are drawn, so one draw shows nothing; twenty in a row do not happen by chance.
        while in_a_row < 20 {
            in_a_row = if world.ask("hello", None).await.hosts()[0] == 3 { in_a_row + 1 } else { 0 };
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), avoided).await.is_ok(), "the queue was not seen");
}

#[tokio::test]
async fn a_pair_is_chosen_together() {
    let by_label = |name: &str, role: &str| json!({"type": "by-label", "name": name, "parameters": {"label": "role", "validValues": [role]}});
    let profile = |name: &str, filter: &str| json!({"name": name, "plugins": [{"pluginRef": filter}]});
    let config = json!({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig",
        "plugins": [{"type": "pd-profile-handler"}, by_label("p", "prefiller"), by_label("d", "decoder")],
        "schedulingProfiles": [profile("prefill", "p"), profile("decode", "d")]});
    let world = World::start(&config.to_string()).await;
    world.pool();
    world.engine(2, "prefiller").await;
    world.engine(3, "decoder").await;
    world.until("both endpoints", |world| world.picker.endpoints().len() == 2).await;
    let answer = world.ask("a prompt that is new", None).await;
    assert_eq!((answer.hosts(), host(&answer.headers["x-prefiller-host-port"])), (vec![3], 2));
}

//! Property: for equal state, the native gateway and the endpoint picker send a request to the same endpoint with the same
//! body, and reject it with the same error.

use std::{collections::BTreeMap, convert::Infallible, net::SocketAddr, time::Duration};

use axum::{body::Bytes, extract::State, http::HeaderMap};
use futures::StreamExt as _;
use http_body::Frame;
use http_body_util::StreamBody;
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{ext_proc_service::process, message_reader::encode_message, *};
use crate::{
    GatewayOptions,
    config::parse_config,
    endpoint::{Endpoint, tests::endpoint},
    engine_metrics::EngineMetrics,
    ext_proc::{HttpBody, HttpHeaders, ProcessingRequest, processing_request::Request, processing_response::Response},
    pool_scheduling::PoolScheduling,
    request::DEFAULT_REQUEST_MEMORY,
    serve_gateway,
    use_case::{TargetModel, UseCase},
};

const ENGINES: usize = 4;
const MODELS: [&str; 4] = ["chat", "a\"b", "base", "unknown"];
const TARGETS: [&str; 3] = ["v1", "chat", "größe"];

/// Configurations; the first one is the default of endpoint pickers.
const CONFIGS: [&str; 4] = [
    "plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: prefix-cache-scorer}]",
    "plugins: [{type: queue-scorer}, {type: kv-cache-utilization-scorer}, {type: random-picker}]",
    "plugins: [{type: prefix-cache-scorer}, {type: no-hit-lru-scorer}, {type: active-request-scorer}]",
    "plugins: [{type: pd-profile-handler}, {type: prefill-filter}, {type: decode-filter}, {type: prefix-cache-scorer}]\n\
     schedulingProfiles: [{name: prefill, plugins: [{pluginRef: prefill-filter}]}, \
     {name: decode, plugins: [{pluginRef: decode-filter}, {pluginRef: prefix-cache-scorer}]}]",
];

/// State of one endpoint.
#[derive(Debug, Clone)]
struct EndpointCase {
    tokens_in_flight: Option<u64>,
    metrics: Option<(f64, f64)>,
    role: Option<&'static str>,
}

/// State of a pool, and requests for it.
#[derive(Debug, Clone)]
struct Case {
    endpoints: Vec<EndpointCase>,
    use_cases: BTreeMap<&'static str, Vec<(&'static str, u32)>>,
    allows_implicit_use_cases: bool,
    /// Index of a configuration; the least loaded endpoint if there is none.
    config: usize,
    seed: u64,
    /// Models and prompts.
    requests: Vec<(&'static str, String)>,
}

/// Where a request was sent, or the error of a rejected one.
#[derive(Debug, PartialEq)]
enum Outcome {
    Sent { engine: SocketAddr, prefiller: Option<String>, body: Bytes },
    Rejected { status: u16, body: Bytes },
}

/// The engines of all cases, which record the requests that they receive.
struct Engines {
    addresses: Vec<SocketAddr>,
    received: mpsc::UnboundedReceiver<Outcome>,
}

fn case() -> impl Strategy<Value = Case> {
    let endpoint = (
        prop::option::of(0..3000_u64),
        prop::option::of((0..6_u32, 0..5_u32)),
        prop::option::of(prop::sample::select(vec!["prefill", "decode", "both"])),
    );
    let endpoint = endpoint.prop_map(|(tokens_in_flight, metrics, role)| EndpointCase {
        tokens_in_flight,
        metrics: metrics.map(|(waiting, usage)| (f64::from(waiting), f64::from(usage) / 5.0)),
        role,
    });
    let target = (prop::sample::select(TARGETS.to_vec()), 0..4_u32);
    let use_cases = prop::collection::btree_map(
        prop::sample::select(MODELS[..3].to_vec()),
        prop::collection::vec(target, 0..3),
        0..4,
    );
    let prompt = prop::sample::select(vec!["", "x", "long \\u00e9", "other"]).prop_map(|text| text.repeat(60));
    let request = (prop::sample::select(MODELS.to_vec()), prompt);
    let requests = prop::collection::vec(request, 1..6);
    let endpoints = prop::collection::vec(endpoint, 0..=ENGINES);
    let state = (endpoints, use_cases, any::<bool>(), 0..=CONFIGS.len(), any::<u64>(), requests);
    state.prop_map(|(endpoints, use_cases, allows_implicit_use_cases, config, seed, requests)| Case {
        endpoints,
        use_cases,
        allows_implicit_use_cases,
        config,
        seed,
        requests,
    })
}

fn key() -> NamespacedName {
    NamespacedName::new("ns", "p")
}

// === impl Case ===

impl Case {
    fn policy(&self) -> SchedulingPolicy {
        let Some(config) = CONFIGS.get(self.config) else { return SchedulingPolicy::default() };
        let header = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n";
        parse_config(&format!("{header}{config}")).unwrap().policy
    }

    /// Returns whether the policy pairs endpoints by their roles, as the defaults do.
    fn distinguishes_roles(&self) -> bool {
        CONFIGS.get(self.config).is_none_or(|config| config.is_empty() || config.contains("pd-profile-handler"))
    }

    /// Returns whether the request was not sent to an endpoint that only computes prompts, and its prompt to none that only
    /// serves requests.
    fn has_allowed_roles(&self, outcome: &Outcome, engines: &Engines) -> bool {
        let Outcome::Sent { engine, prefiller, .. } = outcome else { return true };
        let role = |address: SocketAddr| {
            let index = engines.addresses.iter().position(|other| *other == address).unwrap();
            self.endpoints[index].role
        };
        let prefiller = prefiller.as_ref().map(|address| role(address.parse().unwrap()));
        role(*engine) != Some("prefill") && prefiller.is_none_or(|role| ["prefill", "both"].map(Some).contains(&role))
    }

    /// Returns the pool with new states, and the requests in flight before the first one.
    fn pool(&self, engines: &Engines) -> (Pool, Vec<crate::InFlight>) {
        let mut in_flight = Vec::new();
        let mut endpoints: Vec<Arc<Endpoint>> = Vec::new();
        for ((number, case), address) in (1..).zip(&self.endpoints).zip(&engines.addresses) {
            let mut endpoint = Endpoint { address: *address, ..endpoint(number) };
            endpoint.labels.extend(case.role.map(|role| ("llm-d.ai/role".to_owned(), role.to_owned())));
            // The engines serve no metrics.
            endpoint.state.begin_scraping();
            if let Some((waiting, usage)) = case.metrics {
                let (waiting, kv_cache_usage) = (Some(waiting), Some(usage));
                let metrics = EngineMetrics { waiting, kv_cache_usage, ..EngineMetrics::default() };
                endpoint.state.record_metrics(metrics, tokio::time::Instant::now());
            }
            in_flight.extend(case.tokens_in_flight.map(|tokens| endpoint.state.begin(tokens)));
            endpoints.push(Arc::new(endpoint));
        }
        let target = |(model, weight): &(&str, u32)| TargetModel { model: (*model).to_owned(), weight: *weight };
        let use_case = |(model, targets): (&&str, &Vec<(&str, u32)>)| {
            let targets = targets.iter().map(target).collect();
            ((*model).to_owned(), UseCase { targets, ..UseCase::implicit(model) })
        };
        let pool = Pool {
            use_cases: self.use_cases.iter().map(use_case).collect(),
            allows_implicit_use_cases: self.allows_implicit_use_cases,
            ..Pool::new(key(), Arc::new(PoolScheduling::new(self.policy(), Arc::default())), endpoints)
        };
        (pool, in_flight)
    }

    /// Returns the outcomes of the requests, one after another, in the native gateway.
    async fn native(&self, engines: &mut Engines) -> Vec<Outcome> {
        let (pool, in_flight) = self.pool(engines);
        let scheduler = Arc::new(Scheduler::new(self.policy(), self.seed).with_default_namespace("ns".to_owned()));
        scheduler.replace(vec![pool.clone()]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
        let server = tokio::spawn(serve_gateway(listener, scheduler, GatewayOptions::default(), shutdown.clone()));
        let mut outcomes = Vec::new();
        for body in self.bodies() {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let head = "POST /ns/p/v1/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\n";
            let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut response = Vec::new();
            stream.read_to_end(&mut response).await.unwrap();
            let response = String::from_utf8(response).unwrap();
            let status: u16 = response[9..12].parse().unwrap();
            let error = Bytes::from(response.split_once("\r\n\r\n").unwrap().1.to_owned());
            let rejected = Outcome::Rejected { status, body: error };
            outcomes.push(if status == 200 { engines.received.recv().await.unwrap() } else { rejected });
            wait_until_idle(&pool, in_flight.len()).await;
        }
        shutdown.cancel();
        server.await.unwrap().unwrap();
        outcomes
    }

    /// Returns the outcomes of the requests, one after another, in the endpoint picker.
    async fn ext_proc(&self, engines: &Engines) -> Vec<Outcome> {
        let (pool, in_flight) = self.pool(engines);
        let picker = EndpointPicker::new(key(), self.policy(), DEFAULT_REQUEST_MEMORY, self.seed);
        picker.scheduler.replace(vec![pool.clone()]);
        let picker = Arc::new(picker);
        let mut outcomes = Vec::new();
        for body in self.bodies() {
            let (frames, received) = futures::channel::mpsc::unbounded();
            let stream = StreamBody::new(received.map(|frame| Ok::<_, Infallible>(Frame::data(frame))));
            let (head, ()) = http::Request::new(()).into_parts();
            let mut responses = process(&head, stream, Arc::clone(&picker));
            let headers = HttpHeaders { headers: None, end_of_stream: false };
            let body = HttpBody { body: Bytes::from(body), end_of_stream: true };
            for request in [Request::RequestHeaders(headers), Request::RequestBody(body)] {
                let message = ProcessingRequest { request: Some(request), ..ProcessingRequest::default() };
                frames.unbounded_send(encode_message(&message)).unwrap();
            }
            outcomes.push(ext_proc_outcome(&mut responses).await);
            drop((frames, responses));
            wait_until_idle(&pool, in_flight.len()).await;
        }
        outcomes
    }

    fn bodies(&self) -> impl Iterator<Item = String> {
        let body = |(model, prompt): &(&str, String)| {
            let model = serde_json::Value::from(*model);
            format!(r#"{{ "z":1.50, "model" : {model} ,"big":12345678901234567890,"prompt":"{prompt}"}}"#)
        };
        self.requests.iter().map(body)
    }
}

async fn ext_proc_outcome(responses: &mut ext_proc_service::ResponseStream) -> Outcome {
    let (mut headers, mut body) = (BTreeMap::new(), Vec::new());
    loop {
        match responses.next().await.unwrap().unwrap().response.unwrap() {
            Response::RequestHeaders(response) => {
                let set = response.response.unwrap().header_mutation.unwrap().set_headers;
                headers.extend(set.into_iter().map(|option| option.header.unwrap()).map(|h| (h.key.clone(), h.text())));
            }
            Response::RequestBody(response) => {
                let chunk = response.response.unwrap().body_mutation.unwrap().streamed_response.unwrap();
                body.extend_from_slice(&chunk.body);
                if chunk.end_of_stream {
                    let engine = headers["x-gateway-destination-endpoint"].split(',').next().unwrap().parse().unwrap();
                    let prefiller = headers.remove("x-prefiller-host-port");
                    return Outcome::Sent { engine, prefiller, body: body.into() };
                }
            }
            Response::ImmediateResponse(response) => {
                let status = u16::try_from(response.status.unwrap().code).unwrap();
                return Outcome::Rejected { status, body: response.body };
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until the pool has `count` requests in flight again.
async fn wait_until_idle(pool: &Pool, count: usize) {
    let requests = || pool.ready_endpoints.iter().map(|endpoint| endpoint.state.requests()).sum::<usize>();
    let wait = async {
        while requests() != count {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(Duration::from_secs(30), wait).await.unwrap();
}

async fn start_engines() -> Engines {
    let (sender, received) = mpsc::unbounded_channel();
    let mut addresses = Vec::new();
    for _ in 0..ENGINES {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let engine = listener.local_addr().unwrap();
        let record = move |State(sender): State<mpsc::UnboundedSender<Outcome>>, headers: HeaderMap, body: Bytes| async move {
            let prefiller = headers.get("x-prefiller-host-port").map(|value| value.to_str().unwrap().to_owned());
            sender.send(Outcome::Sent { engine, prefiller, body }).unwrap();
            "{}"
        };
        let router = axum::Router::new().fallback(record).with_state(sender.clone());
        tokio::spawn(axum::serve(listener, router).into_future());
        addresses.push(engine);
    }
    addresses.sort_unstable();
    Engines { addresses, received }
}

// spec: GW-14
#[test]
fn both_frontends_send_equal_requests_to_the_same_endpoint() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engines = std::cell::RefCell::new(runtime.block_on(start_engines()));
    let config = ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(case in case())| {
        let mut engines = engines.borrow_mut();
        let native = runtime.block_on(case.native(&mut engines));
        let ext_proc = runtime.block_on(case.ext_proc(&engines));
        prop_assert_eq!(&native, &ext_proc);
        for outcome in &native {
            prop_assert!(!case.distinguishes_roles() || case.has_allowed_roles(outcome, &engines), "{:?}", outcome);
        }
    });
}

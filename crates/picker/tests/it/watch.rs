//! Tests that watched objects update the snapshot and statuses, with a fake API server.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use cluster::NamespacedName;
use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use picker::{
    DEFAULT_REQUEST_MEMORY, EndpointPicker, GatewayOptions, PoolGroup, Scheduler, SchedulingPolicy, parse_config,
    watch_inference_pool, watch_pools,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::gateway_fixture;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Fake API server with lists by path, which records written statuses.
#[derive(Clone)]
struct FakeApiServer {
    lists: Arc<BTreeMap<&'static str, Vec<Value>>>,
    written_statuses: Arc<Mutex<Vec<(String, Value)>>>,
    /// Whether writes are never answered.
    hangs: bool,
}

impl FakeApiServer {
    async fn handle(self, request: Request<kube::client::Body>) -> Result<Response<Body>, Infallible> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        if head.method == Method::PATCH && self.hangs {
            return std::future::pending().await;
        }
        if head.method == Method::PATCH {
            let body = body.collect().await.unwrap().to_bytes();
            let sent: Value = serde_json::from_slice(&body).unwrap();
            self.written_statuses.lock().unwrap().push((path, sent.clone()));
            return Ok(Response::new(json_body(&sent)));
        }
        if head.uri.query().is_some_and(|query| query.contains("watch=")) {
            // A watch without events.
            let no_events = StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>());
            return Ok(Response::new(no_events.boxed_unsync()));
        }
        let items = self.lists.iter().find(|(end, _)| path.ends_with(*end)).map(|(_, items)| items.clone());
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items.unwrap_or_default()});
        Ok(Response::new(json_body(&list)))
    }
}

fn json_body(value: &Value) -> Body {
    Full::new(Bytes::from(value.to_string())).boxed_unsync()
}

/// Returns a body that panics when it is read.
fn broken_body() -> Body {
    let frames =
        futures::stream::poll_fn(|_| -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
            panic!("broken body")
        });
    StreamBody::new(frames).boxed_unsync()
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": kind, "spec": spec,
        "metadata": {"namespace": "ns", "name": name, "uid": name, "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

fn pod() -> Value {
    pod_with_ip("127.0.0.9")
}

fn pod_with_ip(ip: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "ns", "name": "llama-0", "uid": "u", "resourceVersion": "1", "labels": {"app": "llama"}},
        "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}})
}

/// Returns a pool, its use case and its Pod.
fn lists() -> Arc<BTreeMap<&'static str, Vec<Value>>> {
    let pool = object("BackendPool", "llama", &json!({"selector": {"app": "llama"}, "targetPorts": [8000]}));
    let set =
        object("LLMUseCaseSet", "chat", &json!({"poolRef": [{"name": "llama"}], "useCases": [{"modelName": "chat"}]}));
    Arc::new(BTreeMap::from([("/backendpools", vec![pool]), ("/llmusecasesets", vec![set]), ("/pods", vec![pod()])]))
}

// spec: GW-17
// spec: GW-28
#[tokio::test]
async fn pool_becomes_routable_and_its_status_is_written() {
    let api = FakeApiServer { lists: lists(), written_statuses: Arc::default(), hangs: false };
    let server = api.clone();
    let client = kube::Client::new(tower::service_fn(move |request| server.clone().handle(request)), "ns");
    let (scheduler, shutdown) = (
        Arc::new(Scheduler::new(SchedulingPolicy::default(), 0).with_default_namespace("ns".to_owned())),
        CancellationToken::new(),
    );
    let watch_task = tokio::spawn(watch_pools(
        client,
        Arc::clone(&scheduler),
        picker::WatchOptions::new(Arc::new(cluster::SystemClock)),
        shutdown.clone(),
    ));

    gateway_fixture::wait_until("both statuses", async || api.written_statuses.lock().unwrap().len() >= 2).await;
    let table = scheduler.snapshot();
    let (pool, _) = table.declaring_pools(None, "chat").next().unwrap();
    assert_eq!(pool.ready_endpoints[0].address.to_string(), "127.0.0.9:8000");
    shutdown.cancel();
    watch_task.await.unwrap().unwrap();

    let written = api.written_statuses.lock().unwrap();
    let (path, sent) = &written[0];
    assert!(path.ends_with("/namespaces/ns/backendpools/llama/status"), "{path}");
    let status = &sent["status"];
    assert_eq!(
        (&status["endpoints"], &status["readyEndpoints"], &status["useCases"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(status["conditions"][0]["reason"], "EndpointsReady");
    assert_eq!(written[1].1["status"]["conditions"][0]["reason"], "Accepted");
}

/// The first watches deliver another address of the Pod while a write of a status is not answered.
#[tokio::test(start_paused = true)]
async fn unanswered_status_writes_do_not_delay_the_snapshot() {
    let api = FakeApiServer { lists: lists(), written_statuses: Arc::default(), hangs: true };
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let server = api.clone();
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
            if !is_watch || !request.uri().path().ends_with("/pods") {
                return server.handle(request).await;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
            let mut pod = pod_with_ip("127.0.0.10");
            pod["metadata"]["resourceVersion"] = json!("2");
            let event = format!("{}\n", json!({"type": "MODIFIED", "object": pod}));
            let event = futures::stream::iter([Ok(http_body::Frame::data(Bytes::from(event)))]);
            Ok::<_, Infallible>(Response::new(StreamBody::new(event.chain(futures::stream::pending())).boxed_unsync()))
        }
    });
    let (scheduler, shutdown) = (
        Arc::new(Scheduler::new(SchedulingPolicy::default(), 0).with_default_namespace("ns".to_owned())),
        CancellationToken::new(),
    );
    let client = cluster::client_of_service(service, "ns");
    let watch_task = tokio::spawn(watch_pools(
        client,
        Arc::clone(&scheduler),
        picker::WatchOptions::new(Arc::new(cluster::SystemClock)),
        shutdown.clone(),
    ));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let table = scheduler.snapshot();
    let (pool, _) = table.declaring_pools(None, "chat").next().unwrap();
    assert_eq!(pool.ready_endpoints[0].address.to_string(), "127.0.0.10:8000");
    shutdown.cancel();
    watch_task.await.unwrap().unwrap();
}

/// Returns a client of `api`. The Pod has another address in each list. Responses whose requests match `is_broken` panic when
/// they are read.
fn client_with_broken_responses(
    api: FakeApiServer,
    is_broken: impl Fn(&Request<kube::client::Body>) -> bool + Send + Sync + 'static,
) -> kube::Client {
    let pod_lists = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (server, pod_lists, is_broken) = (api.clone(), Arc::clone(&pod_lists), is_broken(&request));
        async move {
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch="));
            if is_broken {
                return Ok(Response::new(broken_body()));
            }
            if is_watch || !request.uri().path().ends_with("/pods") {
                return server.handle(request).await;
            }
            let pod = pod_with_ip(&format!("127.0.0.{}", 10 + pod_lists.fetch_add(1, Relaxed)));
            let list =
                json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": [pod]});
            Ok::<_, Infallible>(Response::new(json_body(&list)))
        }
    });
    cluster::client_of_service(service, "ns")
}

/// Returns a predicate that is true for the first request that matches.
fn first<R>(matches: impl Fn(&R) -> bool) -> impl Fn(&R) -> bool {
    let count = AtomicUsize::new(0);
    move |request: &R| matches(request) && count.fetch_add(1, Relaxed) == 0
}

/// Returns the statuses of the probes of a gateway.
async fn probe_statuses(scheduler: &Arc<Scheduler>) -> Vec<(&'static str, u16)> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
    let gateway = picker::serve_gateway(listener, Arc::clone(scheduler), GatewayOptions::default(), shutdown.clone());
    let gateway = tokio::spawn(gateway);
    let mut statuses = Vec::new();
    for path in ["/livez", "/readyz", "/health"] {
        statuses.push((path, gateway_fixture::get(address, path).await.status()));
    }
    shutdown.cancel();
    gateway.await.unwrap().unwrap();
    statuses
}

/// The response to the first write of a status panics when it is read.
#[tokio::test(start_paused = true)]
async fn gateway_recovers_from_a_panic() {
    let api = FakeApiServer { lists: lists(), written_statuses: Arc::default(), hangs: false };
    let client = client_with_broken_responses(
        api,
        first(|request: &Request<kube::client::Body>| request.method() == Method::PATCH),
    );
    let (scheduler, shutdown) = (
        Arc::new(Scheduler::new(SchedulingPolicy::default(), 0).with_default_namespace("ns".to_owned())),
        CancellationToken::new(),
    );
    let watch_task = tokio::spawn(watch_pools(
        client,
        Arc::clone(&scheduler),
        picker::WatchOptions::new(Arc::new(cluster::SystemClock)),
        shutdown.clone(),
    ));
    let endpoint =
        || scheduler.snapshot().declaring_pools(None, "chat").next().unwrap().0.ready_endpoints[0].address.to_string();
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!(scheduler.outages(), ["the update of the pools panicked: broken body; it restarts after 1 s"]);
    assert_eq!(endpoint(), "127.0.0.10:8000", "the gateway uses the last snapshot");
    assert_eq!(scheduler.readiness_failures(), [""; 0]);
    // The kubelet does not restart the gateway.
    assert_eq!(probe_statuses(&scheduler).await, [("/livez", 200), ("/readyz", 200), ("/health", 503)]);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(scheduler.outages(), [""; 0]);
    assert_eq!(endpoint(), "127.0.0.11:8000");
    shutdown.cancel();
    watch_task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn gateway_fails_if_it_panics_repeatedly() {
    let api = FakeApiServer { lists: lists(), written_statuses: Arc::default(), hangs: false };
    let client = client_with_broken_responses(api, |request| request.uri().path().ends_with("/backendpools"));
    let watch = watch_pools(
        client,
        Arc::new(Scheduler::new(SchedulingPolicy::default(), 0).with_default_namespace("ns".to_owned())),
        picker::WatchOptions::new(Arc::new(cluster::SystemClock)),
        CancellationToken::new(),
    );
    let failure = tokio::time::timeout(Duration::from_secs(3600), watch).await.unwrap().unwrap_err();
    assert_eq!(
        failure.to_string(),
        "the watch of backendpools.inference.networking.x-k8s.io failed repeatedly: it panicked: broken body"
    );
}

/// The first watch of Pods panics.
#[tokio::test(start_paused = true)]
async fn endpoint_picker_uses_the_last_endpoints_while_a_watch_does_not_run() {
    let pool = json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
        "metadata": {"name": "llama", "namespace": "ns", "uid": "p", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 8000}]}});
    let lists = Arc::new(BTreeMap::from([("/inferencepools", vec![pool])]));
    let api = FakeApiServer { lists, written_statuses: Arc::default(), hangs: false };
    let is_watch_of_pods = |request: &Request<kube::client::Body>| {
        request.uri().path().ends_with("/pods") && request.uri().query().unwrap_or_default().contains("watch=")
    };
    let client = client_with_broken_responses(api, first(is_watch_of_pods));
    let key = NamespacedName::new("ns", "llama");
    let picker = Arc::new(EndpointPicker::new(key, parse_config("").unwrap().policy, DEFAULT_REQUEST_MEMORY, 7));
    let shutdown = CancellationToken::new();
    let watch = watch_inference_pool(client, PoolGroup::Stable, Arc::clone(&picker), shutdown.clone());
    let watch_task = tokio::spawn(watch);
    let endpoints = || picker.endpoints().iter().map(ToString::to_string).collect::<Vec<_>>();
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert_eq!((picker.is_ready(), endpoints()), (true, vec!["127.0.0.10:8000".to_owned()]));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!((picker.is_ready(), endpoints()), (true, vec!["127.0.0.11:8000".to_owned()]));
    shutdown.cancel();
    watch_task.await.unwrap().unwrap();
}

/// Which answer the API server gives to lists of use cases.
#[derive(Clone, Copy, Debug, PartialEq)]
enum UseCaseLists {
    Forbidden,
    Absent,
    /// After 5 s.
    Late,
}

/// Returns whether the picker is ready after 2 and after 8 seconds.
async fn picker_readiness(answer: UseCaseLists) -> [bool; 2] {
    let pool = json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
        "metadata": {"name": "llama", "namespace": "ns", "uid": "p", "resourceVersion": "1"},
        "spec": {"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 8000}]}});
    let lists = Arc::new(BTreeMap::from([("/inferencepools", vec![pool]), ("/pods", vec![pod()])]));
    let api = FakeApiServer { lists, written_statuses: Arc::default(), hangs: false };
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let server = api.clone();
        async move {
            let path = request.uri().path();
            let code = match answer {
                _ if !path.contains("llmusecase") && !path.ends_with("/backendpools") => {
                    return server.handle(request).await;
                }
                UseCaseLists::Late => {
                    tokio::time::sleep(Duration::from_secs(5)).await;
                    return server.handle(request).await;
                }
                UseCaseLists::Forbidden => 403,
                UseCaseLists::Absent => 404,
            };
            let status = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
                "reason": "Forbidden", "message": "no"});
            Ok::<_, Infallible>(Response::builder().status(code).body(json_body(&status)).unwrap())
        }
    });
    let picker = EndpointPicker::new(
        NamespacedName::new("ns", "llama"),
        parse_config("").unwrap().policy,
        DEFAULT_REQUEST_MEMORY,
        7,
    );
    let (picker, shutdown) = (Arc::new(picker), CancellationToken::new());
    let client = cluster::client_of_service(service, "ns");
    let watch = watch_inference_pool(client, PoolGroup::Stable, Arc::clone(&picker), shutdown.clone());
    let watch_task = tokio::spawn(watch);
    let mut readiness = [false; 2];
    for (ready, wait) in readiness.iter_mut().zip([2, 6]) {
        tokio::time::sleep(Duration::from_secs(wait)).await;
        *ready = picker.is_ready();
        assert_eq!(picker.endpoints().len(), usize::from(*ready), "requests wait for the use cases");
    }
    shutdown.cancel();
    watch_task.await.unwrap().unwrap();
    readiness
}

#[tokio::test(start_paused = true)]
async fn endpoint_picker_waits_for_use_cases_unless_their_lists_are_rejected() {
    assert_eq!(picker_readiness(UseCaseLists::Forbidden).await, [true, true]);
    assert_eq!(picker_readiness(UseCaseLists::Absent).await, [true, true]);
    assert_eq!(picker_readiness(UseCaseLists::Late).await, [false, true]);
}

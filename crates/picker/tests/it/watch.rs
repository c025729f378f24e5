//! Tests that watched objects update the routing table and statuses, with a fake API server.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use picker::{Datastore, watch_backend_pools};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::gateway_fixture;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Fake API server with lists by path, which records written statuses.
#[derive(Clone)]
struct FakeApiServer {
    lists: Arc<BTreeMap<&'static str, Vec<Value>>>,
    written_statuses: Arc<Mutex<Vec<(String, Value)>>>,
}

impl FakeApiServer {
    async fn handle(self, request: Request<kube::client::Body>) -> Result<Response<Body>, Infallible> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
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

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": kind, "spec": spec,
        "metadata": {"namespace": "ns", "name": name, "uid": name, "generation": 1, "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "ns", "name": "llama-0", "uid": "u", "resourceVersion": "1", "labels": {"app": "llama"}},
        "status": {"phase": "Running", "podIP": "127.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}})
}

// spec: GW-17
// spec: GW-28
#[tokio::test]
async fn pool_becomes_routable_and_its_status_is_written() {
    let pool = object("BackendPool", "llama", &json!({"selector": {"app": "llama"}, "targetPorts": [8000]}));
    let set =
        object("LLMUseCaseSet", "chat", &json!({"poolRef": [{"name": "llama"}], "useCases": [{"modelName": "chat"}]}));
    let lists = BTreeMap::from([("/backendpools", vec![pool]), ("/llmusecasesets", vec![set]), ("/pods", vec![pod()])]);
    let api = FakeApiServer { lists: Arc::new(lists), written_statuses: Arc::default() };
    let server = api.clone();
    let client = kube::Client::new(tower::service_fn(move |request| server.clone().handle(request)), "ns");
    let (datastore, shutdown) = (Arc::new(Datastore::new(0)), CancellationToken::new());
    let watch_task = tokio::spawn(watch_backend_pools(client, Arc::clone(&datastore), shutdown.clone()));

    gateway_fixture::wait_until("both statuses", async || api.written_statuses.lock().unwrap().len() >= 2).await;
    let table = datastore.routing_table();
    let (pool, _) = table.find(None, "chat").unwrap();
    assert_eq!(pool.ready_endpoints[0].address.to_string(), "127.0.0.9:8000");
    shutdown.cancel();
    watch_task.await.unwrap();

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

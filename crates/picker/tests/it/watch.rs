//! From objects at an API server to answering pools and written status.

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

use crate::fleet;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Lists by path, and every status written.
#[derive(Clone)]
struct Api {
    lists: Arc<BTreeMap<&'static str, Vec<Value>>>,
    written: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Api {
    async fn answer(self, request: Request<kube::client::Body>) -> Result<Response<Body>, Infallible> {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        if head.method == Method::PATCH {
            let body = body.collect().await.unwrap().to_bytes();
            let sent: Value = serde_json::from_slice(&body).unwrap();
            self.written.lock().unwrap().push((path, sent.clone()));
            return Ok(Response::new(whole(&sent)));
        }
        if head.uri.query().is_some_and(|query| query.contains("watch=")) {
            // Nothing more happens.
            let never = StreamBody::new(futures::stream::pending::<Result<http_body::Frame<Bytes>, Infallible>>());
            return Ok(Response::new(never.boxed_unsync()));
        }
        let items = self.lists.iter().find(|(end, _)| path.ends_with(*end)).map(|(_, items)| items.clone());
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "1"}, "items": items.unwrap_or_default()});
        Ok(Response::new(whole(&list)))
    }
}

fn whole(value: &Value) -> Body {
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
async fn a_pool_becomes_routable_and_its_status_says_so() {
    let pool = object("BackendPool", "llama", &json!({"selector": {"app": "llama"}, "targetPorts": [8000]}));
    let set =
        object("LLMUseCaseSet", "chat", &json!({"poolRef": [{"name": "llama"}], "useCases": [{"modelName": "chat"}]}));
    let lists = BTreeMap::from([("/backendpools", vec![pool]), ("/llmusecasesets", vec![set]), ("/pods", vec![pod()])]);
    let api = Api { lists: Arc::new(lists), written: Arc::default() };
    let served = api.clone();
    let client = kube::Client::new(tower::service_fn(move |request| served.clone().answer(request)), "ns");
    let (pools, stop) = (Arc::new(Datastore::new(0)), CancellationToken::new());
    let running = tokio::spawn(watch_backend_pools(client, Arc::clone(&pools), stop.clone()));

    fleet::until("both statuses", async || api.written.lock().unwrap().len() >= 2).await;
    let routing = pools.routing_table();
    let (pool, _) = routing.find(None, "chat").unwrap();
    assert_eq!(pool.ready_endpoints[0].address.to_string(), "127.0.0.9:8000");
    stop.cancel();
    running.await.unwrap();

    let written = api.written.lock().unwrap();
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

//! InferencePools that represent BackendPools for other gateways.

use apiserver::Server;
use serde_json::{Value, json};

use crate::{
    api_server,
    gateway_fixture::post,
    picker_fixture::install_definitions,
    watch_fixture::{POOLS, WatchFixture},
};

const INFERENCE_POOLS: &str = "inferencepools.inference.networking.k8s.io";

fn install_inference_pools(server: &Server) {
    let definition = api::integrations::inference_pool_crd();
    server.create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
}

/// Returns an API server with a gateway that projects pools with the endpoint pickers `POOL-epp`.
fn start(serves_inference_pools: bool) -> WatchFixture {
    let server = api_server::start();
    install_definitions(&server);
    if serves_inference_pools {
        install_inference_pools(&server);
    }
    WatchFixture::watch_with(server, Some("{pool}-epp:9443"))
}

fn inference_pool(fixture: &WatchFixture, name: &str) -> Option<Value> {
    fixture.server.get(INFERENCE_POOLS, "default", name).map(|pool| (*pool).clone())
}

fn projected(fixture: &WatchFixture, name: &str) -> (Value, Value) {
    fixture.condition(POOLS, name, "Projected")
}

fn state(status: &str, reason: &str) -> (Value, Value) {
    (json!(status), json!(reason))
}

/// The InferencePool follows its BackendPool, is applied again if a person edits or deletes it, and is deleted with its BackendPool.
// spec: GW-60
#[tokio::test]
async fn pool_is_projected_to_an_inference_pool() {
    let fixture = start(true);
    fixture.create_pool_of(
        "llama",
        &json!({"selector": {"app": "llama"}, "targetPorts": [8000], "failureMode": "FailOpen"}),
    );
    fixture.wait_until("the condition", |fixture| projected(fixture, "llama") == state("True", "Projected")).await;
    let created = inference_pool(&fixture, "llama").unwrap();
    let spec = json!({
        "appProtocol": "http", "selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"group": "", "kind": "Service", "name": "llama-epp", "port": {"number": 9443}, "failureMode": "FailOpen"},
    });
    assert_eq!(created["spec"], spec);
    let pool = fixture.server.get(POOLS, "default", "llama").unwrap();
    assert_eq!(created["metadata"]["ownerReferences"][0]["uid"], pool["metadata"]["uid"]);

    let mut pool = (*pool).clone();
    pool["spec"]["targetPorts"] = json!([8000, 8001]);
    fixture.server.update(POOLS, pool).unwrap();
    let ports = |fixture: &WatchFixture| inference_pool(fixture, "llama").unwrap()["spec"]["targetPorts"].clone();
    fixture.wait_until("the ports", |fixture| ports(fixture) == json!([{"number": 8000}, {"number": 8001}])).await;
    let mut edited = inference_pool(&fixture, "llama").unwrap();
    edited["spec"]["targetPorts"] = json!([{"number": 9}]);
    fixture.server.update(INFERENCE_POOLS, edited).unwrap();
    fixture.wait_until("the edit", |fixture| ports(fixture)[0]["number"] == 8000).await;
    fixture.server.delete(INFERENCE_POOLS, "default", "llama", None).unwrap();
    let is_new = |fixture: &WatchFixture| {
        inference_pool(fixture, "llama").is_some_and(|pool| pool["metadata"]["uid"] != created["metadata"]["uid"])
    };
    fixture.wait_until("a new InferencePool", is_new).await;
    fixture.server.delete(POOLS, "default", "llama", None).unwrap();
    fixture.wait_until("the deletion", |fixture| inference_pool(fixture, "llama").is_none()).await;
}

/// An InferencePool that another client created is not changed, with or without an owner. Once it is deleted, the pool is projected.
#[tokio::test]
async fn inference_pool_of_another_client_is_not_changed() {
    let fixture = start(true);
    let pool = json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
        "metadata": {"namespace": "default", "name": "llama", "labels": {"app.kubernetes.io/managed-by": "ostler"}},
        "spec": {"selector": {"matchLabels": {"app": "other"}}, "targetPorts": [{"number": 1}],
            "endpointPickerRef": {"name": "mine", "port": {"number": 2}}}});
    let created = (*fixture.server.create(INFERENCE_POOLS, pool).unwrap()).clone();
    fixture.create_pool("llama");
    fixture.wait_until("the condition", |fixture| projected(fixture, "llama") == state("False", "NameTaken")).await;
    assert_eq!(inference_pool(&fixture, "llama").unwrap(), created);
    fixture.server.delete(INFERENCE_POOLS, "default", "llama", None).unwrap();
    fixture.wait_until("the condition", |fixture| projected(fixture, "llama") == state("True", "Projected")).await;
}

/// Without InferencePools, the native gateway serves the pool, and the condition is what is missing.
// spec: GW-61
#[tokio::test]
async fn pool_works_without_inference_pools() {
    let fixture = start(false);
    let port = fixture.start_engines("p", &[&["m"]]);
    fixture.create_pool_with_port("p", port);
    fixture.create_use_case_set("s", &["p"], &json!([]));
    let not_served = state("False", "InferencePoolNotServed");
    fixture.wait_until("the condition", |fixture| projected(fixture, "p") == not_served).await;
    fixture.wait_until("the use case", |fixture| fixture.pools_serving("m") == ["p"]).await;
    fixture.wait_until("the endpoint", |fixture| fixture.ready_endpoints("p") == 1).await;
    assert_eq!(fixture.condition(POOLS, "p", "Ready").0, "True");
    let gateway = fixture.start_gateway().await;
    let body = json!({"model": "m", "prompt": "hello", "max_tokens": 1}).to_string();
    assert_eq!(post(gateway, "/v1/completions", &body).await.status(), 200);
    // Installing the kind is enough.
    install_inference_pools(&fixture.server);
    fixture.wait_until("the InferencePool", |fixture| projected(fixture, "p") == state("True", "Projected")).await;
}

/// Without a Service of endpoint pickers, no InferencePool is created, and the condition states how to enable it.
#[tokio::test]
async fn projection_requires_a_service() {
    let server = api_server::start();
    install_definitions(&server);
    install_inference_pools(&server);
    let fixture = WatchFixture::watch(server);
    fixture.create_pool("llama");
    fixture
        .wait_until("the condition", |fixture| projected(fixture, "llama") == state("False", "NoEndpointPicker"))
        .await;
    let pool = fixture.server.get(POOLS, "default", "llama").unwrap();
    let condition = cluster::find_condition(&pool["status"]["conditions"], "Projected").unwrap();
    assert!(condition["message"].as_str().unwrap().contains("--endpoint-picker-service"), "{condition}");
    assert!(inference_pool(&fixture, "llama").is_none());
}

/// During an update, gateways have different Services. They must not replace each other's InferencePools and conditions without end.
#[tokio::test]
async fn gateways_with_different_services_write_rarely() {
    let fixture = start(true);
    let _others = [Some("other:9002"), None].map(|service| WatchFixture::watch_with(fixture.server.clone(), service));
    fixture.create_pool("llama");
    fixture.wait_until("the condition", |fixture| projected(fixture, "llama") == state("True", "Projected")).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let generation = inference_pool(&fixture, "llama").unwrap()["metadata"]["generation"].as_u64().unwrap();
    assert!(generation <= 7, "{generation} changes");
    let version = || fixture.server.get(POOLS, "default", "llama").unwrap()["metadata"]["resourceVersion"].clone();
    let before = version();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(version(), before);
}

//! InferencePools with InferenceObjectives and InferenceModelRewrites, in both frontends.

use serde_json::{Value, json};

use crate::{
    gateway_fixture::{get, post},
    watch_fixture::{WatchFixture, complete},
};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const POOLS: &str = "inferencepools.inference.networking.k8s.io";

/// A manifest of the Inference Extension: the base model `food-review` is rewritten to two versions of an adapter, and all other
/// models to one.
// spec: GW-40
#[tokio::test]
async fn rewrites_apply_to_the_models_of_an_inference_pool() {
    let fixture = WatchFixture::start();
    for definition in api::integrations::crds() {
        fixture.server.create(DEFINITIONS, definition).unwrap();
    }
    let port = fixture.start_engines("llama", &[&["food-review-1", "food-review-2", "base"]]);
    let pool = json!({"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": port}],
        "endpointPickerRef": {"name": "picker", "port": {"number": 9002}}});
    let create = |resource: &str, version: &str, kind: &str, name: &str, spec: Value| {
        let (_, group) = resource.split_once('.').unwrap();
        let metadata = json!({"namespace": "default", "name": name});
        let object =
            json!({"apiVersion": format!("{group}/{version}"), "kind": kind, "metadata": metadata, "spec": spec});
        fixture.server.create(resource, object).unwrap();
    };
    create(POOLS, "v1", "InferencePool", "llama", pool);
    let targets =
        json!([{"modelRewrite": "food-review-1", "weight": 90}, {"modelRewrite": "food-review-2", "weight": 10}]);
    let rules = json!([
        {"matches": [{"model": {"type": "Exact", "value": "food-review"}}], "targets": targets},
        {"targets": [{"modelRewrite": "base"}]},
    ]);
    let group = "inferencemodelrewrites.inference.networking.x-k8s.io";
    create(group, "v1alpha2", "InferenceModelRewrite", "canary", json!({"poolRef": {"name": "llama"}, "rules": rules}));
    fixture
        .wait_until("the rewrite", |fixture| {
            fixture.ready_endpoints("llama") == 1 && fixture.pools_serving("food-review") == ["llama"]
        })
        .await;
    let gateway = fixture.start_gateway().await;
    for model in ["food-review", "unknown"] {
        assert_eq!(complete(gateway, "/v1/completions", model).await, (200, json!(model)), "the name is restored");
    }
    let models = get(gateway, "/v1/models").await.json();
    let names: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert!(names.contains(&"food-review"), "{names:?}");
    let mut requests = [0, 0];
    for _ in 0..200 {
        let body = json!({"model": "food-review", "prompt": "hi", "max_tokens": 1}).to_string();
        assert_eq!(post(gateway, "/v1/completions", &body).await.status(), 200);
    }
    let metrics = fixture.scheduler.render_metrics();
    for (index, version) in ["food-review-1", "food-review-2"].iter().enumerate() {
        let label = format!("target_model_name=\"{version}\"");
        let line = metrics
            .lines()
            .find(|line| line.starts_with("inference_objective_request_total{") && line.contains(&label))
            .unwrap();
        requests[index] = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    }
    assert!((165..=195).contains(&requests[0]) && requests[0] + requests[1] == 201, "{requests:?}");
}

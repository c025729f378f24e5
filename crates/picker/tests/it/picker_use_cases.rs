//! Use cases of an InferencePool, applied by the endpoint picker.

use serde_json::{Value, json};

use crate::picker_fixture::{PickerFixture, install_definitions};

const BACKEND_POOLS: &str = "backendpools.inference.networking.x-k8s.io";
const USE_CASE_SETS: &str = "llmusecasesets.inference.networking.x-k8s.io";
const USE_CASES: &str = "llmusecases.inference.networking.x-k8s.io";

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": kind,
        "metadata": {"namespace": "default", "name": name}, "spec": spec})
}

/// Starts a picker for a pool with one endpoint, with the definitions of ostler.
async fn start() -> PickerFixture {
    let fixture = PickerFixture::start_with("", install_definitions).await;
    fixture.create_pool();
    fixture.start_engine(2, "x").await;
    fixture.wait_until("the endpoint", |fixture| fixture.picker.endpoints().len() == 1).await;
    fixture
}

/// Sends requests for `model` until one is sent to the engine for `target`, or is rejected if `target` is empty.
async fn wait_for_target(fixture: &PickerFixture, model: &str, target: &str) {
    let is_target = async || fixture.send_for_model(model, "hello", None).await.target_model() == target;
    crate::gateway_fixture::wait_until(&format!("requests for {target:?}"), is_target).await;
}

// spec: GW-51
// spec: GW-71
#[tokio::test]
async fn use_cases_follow_their_objects() {
    let fixture = start().await;
    assert_eq!(fixture.send_for_model("chat", "hello", None).await.target_model(), "chat", "no use case: unchanged");

    let target = |model: &str, weight: u32| json!({"targetModelName": model, "weight": weight});
    let spec = json!({"poolRef": [{"kind": "InferencePool", "name": "pool"}],
        "useCases": [{"modelName": "chat", "targetModels": [target("v1", 20), target("v2", 80)]}]});
    fixture.server.create(USE_CASE_SETS, object("LLMUseCaseSet", "chat", &spec)).unwrap();
    wait_for_target(&fixture, "chat", "v1").await;
    wait_for_target(&fixture, "chat", "v2").await;
    let mut second = 0;
    for _ in 0..200 {
        match fixture.send_for_model("chat", "hello", None).await.target_model().as_str() {
            "v1" => {}
            "v2" => second += 1,
            other => panic!("{other}"),
        }
    }
    assert!((130..190).contains(&second), "{second} of 200");
    assert_eq!(
        fixture.send_for_model("other", "hello", None).await.target_model(),
        "other",
        "no BackendPool denies it"
    );

    let spec = json!({"poolRef": [{"name": "pool"}], "modelName": "flat", "targetModels": [target("v3", 1)]});
    fixture.server.create(USE_CASES, object("LLMUseCase", "flat", &spec)).unwrap();
    wait_for_target(&fixture, "flat", "v3").await;

    let spec = json!({"selector": {"app": "unused"}, "targetPorts": [1]});
    fixture.server.create(BACKEND_POOLS, object("BackendPool", "pool", &spec)).unwrap();
    wait_for_target(&fixture, "other", "").await;
    let rejected = fixture.send_for_model("other", "hello", None).await;
    assert_eq!(rejected.status, Some(404));
    let error: Value = serde_json::from_str(&rejected.body).unwrap();
    assert_eq!(
        error,
        json!({"error": {"message": "The model `other` does not exist.", "type": "invalid_request_error",
            "param": "model", "code": "model_not_found"}})
    );
    assert_eq!(fixture.send_for_model("flat", "hello", None).await.hosts(), [2]);

    fixture.server.delete(BACKEND_POOLS, "default", "pool", None).unwrap();
    wait_for_target(&fixture, "other", "other").await;
    fixture.server.delete(USE_CASES, "default", "flat", None).unwrap();
    wait_for_target(&fixture, "flat", "flat").await;
}

/// The response body is sent to the picker only if a use case has an objective. It is returned unchanged.
#[tokio::test]
async fn latency_of_use_cases_with_an_objective_is_measured() {
    let fixture = start().await;
    let objective = json!({"desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests": "1h"});
    let spec = json!({"poolRef": [{"name": "pool"}], "modelName": "chat", "objective": objective});
    fixture.server.create(USE_CASES, object("LLMUseCase", "chat", &spec)).unwrap();
    let has_series = |fixture: &PickerFixture, series: &str| {
        let text = fixture.picker.scheduler().render_metrics();
        text.lines().any(|line| line.starts_with(&format!(r#"{series}{{inference_pool="pool",model_name="chat"}} "#)))
    };
    fixture.wait_until("the objective", |fixture| has_series(fixture, "ostler_use_case_objective_seconds")).await;
    let events =
        "data: {\"choices\":[]}\n\ndata: {\"choices\":[],\"usage\":{\"completion_tokens\":4}}\n\ndata: [DONE]\n\n";
    assert_eq!(fixture.send_and_stream("other", &[events]).await, None);
    for _ in 0..50 {
        assert!(!has_series(&fixture, "ostler_use_case_output_token_latency_p95_seconds"));
        let (start, end) = events.split_at(60);
        assert_eq!(fixture.send_and_stream("chat", &[start, end]).await.as_deref(), Some(events));
    }
    assert!(has_series(&fixture, "ostler_use_case_output_token_latency_p95_seconds"));
}

// spec: GW-53
#[tokio::test]
async fn name_is_restored_in_a_stream_only_if_it_was_replaced() {
    let fixture = start().await;
    let spec = json!({"poolRef": [{"name": "pool"}], "modelName": "chat", "targetModels": [{"targetModelName": "v1"}]});
    fixture.server.create(USE_CASES, object("LLMUseCase", "chat", &spec)).unwrap();
    wait_for_target(&fixture, "chat", "v1").await;
    let events = "data: {\"model\":\"v1\",\"choices\":[]}\n\n".repeat(3);
    for (model, restored) in [("chat", Some(events.replace("v1", "chat"))), ("v1", None)] {
        for size in [1, 17, events.len()] {
            let chunks: Vec<&str> =
                events.as_bytes().chunks(size).map(|chunk| std::str::from_utf8(chunk).unwrap()).collect();
            assert_eq!(fixture.send_and_stream(model, &chunks).await, restored, "chunks of {size}");
        }
    }
}

//! Tests of the endpoint picker over gRPC, as a proxy uses it.

use picker::ext_proc::ServingStatus;
use serde_json::json;

use crate::gateway_fixture;
use crate::picker_fixture::{PickerFixture, last_octet};

const QUEUE_CONFIG: &str = "
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}, {type: max-score-picker, parameters: {maxNumOfEndpoints: 3}}]
";

// spec: GW-55
#[tokio::test]
async fn returns_ready_endpoints_as_pods_change() {
    let fixture = PickerFixture::start(QUEUE_CONFIG).await;
    assert_eq!(fixture.health(fixture.health_address, "readiness").await, Ok(ServingStatus::NotServing));
    assert_eq!(fixture.health(fixture.health_address, "liveness").await, Ok(ServingStatus::Serving));
    assert_eq!(fixture.health(fixture.health_address, "nothing").await, Err(tonic::Code::NotFound));
    assert_eq!(fixture.send("no pool", None).await.status, Some(503));

    fixture.create_pool();
    fixture.start_engine(2, "x").await;
    fixture.start_engine(3, "x").await;
    fixture.wait_until("both endpoints", |fixture| fixture.picker.endpoints().len() == 2).await;
    assert_eq!(
        fixture.health(fixture.ext_proc_address, "envoy.service.ext_proc.v3.ExternalProcessor").await,
        Ok(ServingStatus::Serving)
    );
    let mut hosts = fixture.send("hello", None).await.hosts();
    hosts.sort_unstable();
    assert_eq!(hosts, [2, 3], "the selected endpoint and a fallback");

    let subset = fixture.address(3).to_string();
    assert_eq!(fixture.send("hello", Some(&subset)).await.hosts(), [3]);
    assert_eq!(fixture.send("hello", Some("127.0.0.9:1")).await.status, Some(503));

    fixture.server.delete("pods", "default", "pod-2", None).unwrap();
    fixture.wait_until("the deleted endpoint", |fixture| fixture.picker.endpoints().len() == 1).await;
    assert_eq!(fixture.send("hello", None).await.hosts(), [3]);
}

/// The Pod is ready, and the proxy reports nothing.
#[tokio::test]
async fn endpoint_that_drops_connection_attempts_receives_no_requests() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    let _unresponsive = fixture.start_unresponsive(2).await;
    fixture.start_engine(3, "x").await;
    fixture.wait_until("both endpoints", |fixture| fixture.picker.endpoints().len() == 2).await;
    let is_avoided = async || {
        for _ in 0..16 {
            if fixture.send("hello", None).await.hosts() != [3] {
                return false;
            }
        }
        true
    };
    gateway_fixture::wait_until("requests to the other endpoint", is_avoided).await;
    assert!(is_avoided().await);
}

#[tokio::test]
// spec: GW-7
async fn conversation_stays_on_its_endpoint_and_requests_in_flight_count() {
    let fixture = PickerFixture::start("").await;
    fixture.create_pool();
    fixture.start_engine(2, "x").await;
    fixture.start_engine(3, "x").await;
    fixture.wait_until("both endpoints", |fixture| fixture.picker.endpoints().len() == 2).await;
    let prompt = "Once upon a time there was an ostler who knew every horse by its step on the cobbles. ".repeat(50);
    let first = fixture.send(&prompt, None).await.hosts();
    for _ in 0..5 {
        fixture.wait_until_idle().await;
        assert_eq!(
            fixture.send(&format!("{prompt} And then?"), None).await.hosts(),
            first,
            "the default picker returns one endpoint"
        );
    }
    // A prefix of 1,000 tokens outweighs a request in flight; for uncached prompts, requests in flight are decisive.
    fixture.wait_until_idle().await;
    let busy = fixture.send(&format!("{prompt} The end."), None).await;
    assert_eq!(fixture.send(&prompt, None).await.hosts(), busy.hosts());
    drop(busy);
    fixture.wait_until_idle().await;
    let busy = fixture.send("a", None).await;
    assert_ne!(fixture.send("b", None).await.hosts()[0], busy.hosts()[0]);
}

// spec: GW-56
#[tokio::test]
async fn engine_with_queued_requests_is_avoided() {
    let fixture = PickerFixture::start(QUEUE_CONFIG).await;
    fixture.create_pool();
    fixture.start_engine(2, "x").await;
    fixture.start_engine(3, "x").await;
    // The engine runs one request at a time; these requests bypass the picker.
    let engine = fixture.address(2);
    let long_request = json!({"model": "m", "prompt": "x", "max_tokens": 4_000, "ignore_eos": true, "stream": true});
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(gateway_fixture::send(engine, "POST", "/v1/completions", &long_request.to_string()).await);
    }
    fixture.wait_until("both endpoints", |fixture| fixture.picker.endpoints().len() == 2).await;
    let avoids_busy_engine = async {
        let mut consecutive = 0;
        // The picker selects randomly among equal endpoints: only a long sequence without the busy engine shows that it
        // is avoided.
        while consecutive < 20 {
            consecutive = if fixture.send("hello", None).await.hosts()[0] == 3 { consecutive + 1 } else { 0 };
        }
    };
    assert!(
        tokio::time::timeout(gateway_fixture::TIMEOUT, avoids_busy_engine).await.is_ok(),
        "the busy engine is still selected"
    );
}

#[tokio::test]
async fn prefill_and_decode_endpoints_are_selected_together() {
    let by_label = |name: &str, role: &str| json!({"type": "by-label", "name": name, "parameters": {"label": "role", "validValues": [role]}});
    let profile = |name: &str, filter: &str| json!({"name": name, "plugins": [{"pluginRef": filter}]});
    let config = json!({"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig",
        "plugins": [{"type": "pd-profile-handler"}, by_label("p", "prefiller"), by_label("d", "decoder")],
        "schedulingProfiles": [profile("prefill", "p"), profile("decode", "d")]});
    let fixture = PickerFixture::start(&config.to_string()).await;
    fixture.create_pool();
    fixture.start_engine(2, "prefiller").await;
    fixture.start_engine(3, "decoder").await;
    fixture.wait_until("both endpoints", |fixture| fixture.picker.endpoints().len() == 2).await;
    let response = fixture.send("an uncached prompt", None).await;
    assert_eq!((response.hosts(), last_octet(&response.headers["x-prefiller-host-port"])), (vec![3], 2));
}

#[tokio::test]
async fn endpoint_that_refuses_connections_is_not_selected() {
    let fixture = PickerFixture::start(QUEUE_CONFIG).await;
    fixture.create_pool();
    let failing = fixture.start_static_engine(2, "worker", "vllm:num_requests_waiting 0\n").await;
    let _healthy = fixture.start_static_engine(3, "worker", "vllm:num_requests_waiting 9\n").await;
    fixture.wait_until_scraped(2).await;
    assert_eq!(fixture.send("hello", None).await.hosts()[0], 2, "its queue is shorter");
    drop(failing);
    let ready = "inference_pool_ready_pods{name=\"pool\"} 1";
    fixture
        .wait_until("the refused connection", |fixture| fixture.picker.scheduler().render_metrics().contains(ready))
        .await;
    assert_eq!(fixture.send("hello", None).await.hosts(), [3]);
}

#[tokio::test]
async fn draining_picker_is_unready_but_answers() {
    let fixture = PickerFixture::start(QUEUE_CONFIG).await;
    fixture.create_pool();
    let _engine = fixture.start_static_engine(2, "worker", "").await;
    fixture.wait_until("the endpoint", |fixture| fixture.picker.endpoints().len() == 1).await;
    assert_eq!(fixture.health(fixture.health_address, "readiness").await, Ok(ServingStatus::Serving));
    fixture.picker.drain();
    assert_eq!(fixture.health(fixture.health_address, "readiness").await, Ok(ServingStatus::NotServing));
    assert_eq!(fixture.health(fixture.health_address, "liveness").await, Ok(ServingStatus::Serving));
    assert_eq!(fixture.send("hello", None).await.hosts(), [2]);
}

// spec: GW-56
#[tokio::test]
async fn metrics_contain_requests_rejections_and_queues() {
    let fixture = PickerFixture::start(QUEUE_CONFIG).await;
    assert_eq!(fixture.send("no pool", None).await.status, Some(503));
    fixture.wait_until_idle().await;
    fixture.create_pool();
    let _engine =
        fixture.start_static_engine(2, "worker", "vllm:num_requests_waiting 4\nvllm:kv_cache_usage_perc 0.25\n").await;
    fixture.wait_until_scraped(1).await;
    let in_flight = fixture.send("hello", None).await;
    assert_eq!(in_flight.hosts(), [2]);
    let response = gateway_fixture::get(fixture.metrics_address, "/metrics").await;
    assert!(response.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for line in [
        r#"inference_objective_request_total{model_name="m",target_model_name="m"} 2"#,
        r#"inference_objective_request_error_total{model_name="m",target_model_name="m",error_code="ServiceUnavailable"} 1"#,
        r#"inference_objective_running_requests{model_name="m"} 1"#,
        r#"inference_pool_average_kv_cache_utilization{name="pool"} 0.25"#,
        r#"inference_pool_per_pod_queue_size{name="pool",model_server_pod="pod-2"} 4"#,
    ] {
        assert!(response.body.lines().any(|present| present == line), "{line}\n{}", response.body);
    }
    assert_eq!(gateway_fixture::get(fixture.metrics_address, "/").await.status(), 404);
}

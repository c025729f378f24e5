//! The endpoint picker as a proxy meets it.

use picker::ext_proc::ServingStatus;
use serde_json::json;

use crate::fleet;
use crate::picker_world::{World, host};

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

    let only = world.address(3).to_string();
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
    world.until_idle().await;
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
    let engine = world.address(2);
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
    assert!(tokio::time::timeout(fleet::PATIENCE, avoided).await.is_ok(), "the queue was not seen");
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

#[tokio::test]
async fn one_that_died_gets_nothing_although_its_pod_is_told_to_be_ready() {
    let world = World::start(QUEUE).await;
    world.pool();
    let dies = world.says(2, "worker", "vllm:num_requests_waiting 0\n").await;
    let _lives = world.says(3, "worker", "vllm:num_requests_waiting 9\n").await;
    world.until_read(2).await;
    assert_eq!(world.ask("hello", None).await.hosts()[0], 2, "its queue is the shorter one");
    drop(dies);
    let ready = "inference_pool_ready_pods{name=\"pool\"} 1";
    world.until("the death to be seen", |world| world.picker.render_metrics().contains(ready)).await;
    assert_eq!(world.ask("hello", None).await.hosts(), [3]);
}

#[tokio::test]
async fn while_it_drains_it_answers_and_its_health_says_no() {
    let world = World::start(QUEUE).await;
    world.pool();
    let _engine = world.says(2, "worker", "").await;
    world.until("the endpoint", |world| world.picker.endpoints().len() == 1).await;
    assert_eq!(world.health(world.probes, "readiness").await, Ok(ServingStatus::Serving));
    world.picker.drain();
    assert_eq!(world.health(world.probes, "readiness").await, Ok(ServingStatus::NotServing));
    assert_eq!(world.health(world.probes, "liveness").await, Ok(ServingStatus::Serving));
    assert_eq!(world.ask("hello", None).await.hosts(), [2]);
}

// spec: GW-56
#[tokio::test]
async fn the_page_tells_requests_refusals_and_the_engines_queues() {
    let world = World::start(QUEUE).await;
    assert_eq!(world.ask("nobody there", None).await.status, Some(503));
    world.until_idle().await;
    world.pool();
    let _engine = world.says(2, "worker", "vllm:num_requests_waiting 4\nvllm:kv_cache_usage_perc 0.25\n").await;
    world.until_read(1).await;
    let under_way = world.ask("hello", None).await;
    assert_eq!(under_way.hosts(), [2]);
    let answer = fleet::get(world.page, "/metrics").await;
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for line in [
        r#"inference_objective_request_total{model_name="m",target_model_name="m"} 2"#,
        r#"inference_objective_request_error_total{model_name="m",target_model_name="m",error_code="ServiceUnavailable"} 1"#,
        r#"inference_objective_running_requests{model_name="m"} 1"#,
        r#"inference_pool_average_kv_cache_utilization{name="pool"} 0.25"#,
        r#"inference_pool_per_pod_queue_size{name="pool",model_server_pod="pod-2"} 4"#,
    ] {
        assert!(answer.body.lines().any(|found| found == line), "{line}\n{}", answer.body);
    }
    assert_eq!(fleet::get(world.page, "/").await.status(), 404);
}

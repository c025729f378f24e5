//! Endpoint selection of the five router strategies, as configurations of the endpoint picker.

use std::collections::BTreeMap;

use picker::parse_config;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::gateway_fixture::{self, TIMEOUT};
use crate::picker_fixture::{PickerFixture, last_octet};

/// Returns a configuration with one scorer.
fn scorer_config(scorer: &str, parameters: &str) -> String {
    format!(
        "apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: {scorer}
  parameters: {{{parameters}}}
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: max-score-picker
  - pluginRef: {scorer}
    weight: 100
"
    )
}

/// Returns a configuration with prefill and decode profiles; a decoder prefills up to `threshold` uncached bytes itself.
fn prefill_decode_config(threshold: usize) -> String {
    format!(
        "apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: pd-profile-handler
  parameters: {{threshold: {threshold}, hashBlockSize: 5, primaryPort: 0}}
- type: prefill-header-handler
- type: by-label
  name: prefill-pods
  parameters: {{label: fusioninfer.io/component-type, validValues: [prefiller]}}
- type: by-label
  name: decode-pods
  parameters: {{label: fusioninfer.io/component-type, validValues: [decoder]}}
- type: prefix-cache-scorer
  parameters: {{hashBlockSize: 5, maxPrefixBlocksToMatch: 256, lruCapacityPerServer: 31250}}
- type: max-score-picker
schedulingProfiles:
- name: prefill
  plugins: [{{pluginRef: prefill-pods}}, {{pluginRef: max-score-picker}}, {{pluginRef: prefix-cache-scorer, weight: 50}}]
- name: decode
  plugins: [{{pluginRef: decode-pods}}, {{pluginRef: max-score-picker}}, {{pluginRef: prefix-cache-scorer, weight: 50}}]
"
    )
}

const IDLE_METRICS: &str = "vllm:num_requests_waiting 0\n";

/// The picker selects randomly among equal endpoints: only a long sequence of the same endpoint shows that it is
/// preferred.
const RUN_LENGTH: usize = 24;

/// Waits for [`RUN_LENGTH`] consecutive requests that are sent to `expect`. On a busy host metrics may become outdated, and
/// the sequence starts again.
async fn assert_always_selects(fixture: &PickerFixture, model: &str, expect: u8) {
    let mut run_length = 0;
    let consecutive_selections = async {
        while run_length < RUN_LENGTH {
            let hosts = fixture.send_for_model(model, &format!("{run_length} new"), None).await.hosts();
            run_length = if hosts == [expect] { run_length + 1 } else { 0 };
        }
    };
    assert!(
        timeout(TIMEOUT, consecutive_selections).await.is_ok(),
        "{model} is not always sent to {expect}: {run_length} consecutive requests"
    );
}

// spec: TOP-87
#[tokio::test]
async fn prefix_cache_selects_endpoint_with_cached_prefix() {
    let fixture =
        PickerFixture::start(&scorer_config("prefix-cache-scorer", "blockSize: 5, maxPrefixBlocksToMatch: 256")).await;
    fixture.create_pool();
    let _engines = [
        fixture.start_static_engine(2, "worker", IDLE_METRICS).await,
        fixture.start_static_engine(3, "worker", IDLE_METRICS).await,
    ];
    fixture.wait_until_scraped(2).await;
    for prompt in ["Once upon a time there was a horse", "It was a dark and stormy night"] {
        let first = fixture.send(prompt, None).await.hosts();
        for number in 0..RUN_LENGTH {
            assert_eq!(fixture.send(&format!("{prompt}. {number}"), None).await.hosts(), first);
        }
    }
}

// spec: TOP-87
#[tokio::test]
async fn kv_cache_utilization_selects_free_cache() {
    let fixture = PickerFixture::start(&scorer_config("kv-cache-utilization-scorer", "")).await;
    fixture.create_pool();
    let full_cache = "vllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.9\n";
    let free_cache = "vllm:num_requests_waiting 7\nvllm:kv_cache_usage_perc 0.1\n";
    let _engines = [
        fixture.start_static_engine(2, "worker", full_cache).await,
        fixture.start_static_engine(3, "worker", free_cache).await,
    ];
    fixture.wait_until_scraped(2).await;
    assert_always_selects(&fixture, "m", 3).await;
}

// spec: TOP-87
#[tokio::test]
async fn queue_size_selects_shortest_queue_of_any_engine() {
    let fixture = PickerFixture::start(&scorer_config("queue-scorer", "")).await;
    fixture.create_pool();
    let vllm = "vllm:num_requests_waiting{engine=\"0\"} 3\nvllm:kv_cache_usage_perc 0.0\n";
    let sglang = "sglang:num_queue_reqs{tp_rank=\"0\"} 1\nsglang:token_usage 0.9\n";
    let _engines =
        [fixture.start_static_engine(2, "worker", vllm).await, fixture.start_static_engine(3, "worker", sglang).await];
    fixture.wait_until_scraped(2).await;
    assert_always_selects(&fixture, "m", 3).await;
}

// spec: TOP-87
#[tokio::test]
async fn lora_affinity_selects_loaded_adapter() {
    let fixture = PickerFixture::start(&scorer_config("lora-affinity-scorer", "")).await;
    fixture.create_pool();
    let tuned_metrics = "vllm:num_requests_waiting 9\n\
        vllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=\"tuned\",waiting_lora_adapters=\"\"} 2.0\n";
    let other_metrics = "vllm:num_requests_waiting 0\n\
        vllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=\"other\",waiting_lora_adapters=\"\"} 2.0\n";
    let _engines = [
        fixture.start_static_engine(2, "worker", tuned_metrics).await,
        fixture.start_static_engine(3, "worker", other_metrics).await,
    ];
    fixture.wait_until_scraped(2).await;
    assert_always_selects(&fixture, "tuned", 2).await;
    assert_always_selects(&fixture, "other", 3).await;
}

// spec: TOP-87
#[tokio::test]
async fn pd_disaggregation_prefills_uncached_prompts_remotely() {
    let fixture = PickerFixture::start(&prefill_decode_config(0)).await;
    fixture.create_pool();
    let _engines = [
        fixture.start_static_engine(2, "prefiller", IDLE_METRICS).await,
        fixture.start_static_engine(3, "decoder", IDLE_METRICS).await,
        fixture.start_static_engine(4, "worker", IDLE_METRICS).await,
    ];
    fixture.wait_until_scraped(3).await;
    let prompt = "an uncached prompt";
    let first = fixture.send(prompt, None).await;
    assert_eq!((first.hosts(), last_octet(&first.headers["x-prefiller-host-port"])), (vec![3], 2));
    // Without prefillers the decoder processes whole requests; without decoders no endpoint is available.
    fixture.server.delete("pods", "default", "pod-2", None).unwrap();
    fixture.wait_until("the prefiller to be removed", |fixture| fixture.picker.endpoints().len() == 2).await;
    let without_prefiller = fixture.send("another prompt", None).await;
    assert_eq!((without_prefiller.hosts(), without_prefiller.headers.get("x-prefiller-host-port")), (vec![3], None));
    fixture.server.delete("pods", "default", "pod-3", None).unwrap();
    fixture.wait_until("the decoder to be removed", |fixture| fixture.picker.endpoints().len() == 1).await;
    assert_eq!(fixture.send("no decoder", None).await.status, Some(503));
}

// spec: TOP-87
#[tokio::test]
async fn pd_disaggregation_prefills_short_prompts_locally() {
    let fixture = PickerFixture::start(&prefill_decode_config(40)).await;
    fixture.create_pool();
    let _engines = [
        fixture.start_static_engine(2, "prefiller", IDLE_METRICS).await,
        fixture.start_static_engine(3, "decoder", IDLE_METRICS).await,
    ];
    fixture.wait_until_scraped(2).await;
    let prefiller = async |prompt: &str| {
        let response = fixture.send(prompt, None).await;
        assert_eq!(response.hosts(), [3]);
        response.headers.get("x-prefiller-host-port").map(|endpoint| last_octet(endpoint))
    };
    let long_prompt = "x".repeat(60);
    assert_eq!(prefiller("short").await, None);
    assert_eq!(prefiller(&long_prompt).await, Some(2));
    assert_eq!(prefiller(&long_prompt).await, None, "the prompt is cached by the decoder");
    assert_eq!(prefiller(&format!("{long_prompt} and a little more")).await, None);
    assert_eq!(prefiller(&format!("{long_prompt}{}", "y".repeat(60))).await, Some(2));
}

/// In the native gateway, the policies work as in the endpoint picker.
#[tokio::test]
async fn gateway_sends_equal_prompts_to_one_endpoint() {
    let policy = parse_config(&scorer_config("prefix-cache-scorer", "blockSize: 4")).unwrap().policy;
    let engines = (0..3).map(|_| gateway_fixture::engine_config(&["chat"])).collect();
    let fixture = gateway_fixture::start_with_policy(engines, &[], policy).await;
    let mut pods = BTreeMap::new();
    for round in 0..RUN_LENGTH {
        let prompt = format!("{} Once upon a time there was a horse", round % 2);
        let body = json!({"model": "chat", "prompt": prompt, "max_tokens": 1}).to_string();
        let response = gateway_fixture::post(fixture.gateway, "/v1/completions", &body).await;
        let pod = response.header("x-ostler-pod").unwrap().to_owned();
        assert_eq!(*pods.entry(round % 2).or_insert_with(|| pod.clone()), pod, "round {round}");
    }
}

/// In the native gateway, an engine that refuses connections is not selected again once a scrape has failed.
#[tokio::test]
async fn gateway_reads_metrics_of_its_engines() {
    let policy = parse_config(&scorer_config("queue-scorer", "")).unwrap().policy;
    let engines = (0..2).map(|_| gateway_fixture::engine_config(&["chat"])).collect();
    let fixture = gateway_fixture::start_with_policy(engines, &[], policy).await;
    // An address on which nothing listens.
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let addresses = [fixture.engines.clone(), vec![closed]].concat();
    fixture.scheduler.replace(vec![gateway_fixture::pool(&fixture.scheduler, &addresses, &[])]);
    let endpoint = async || {
        let body = json!({"model": "chat", "prompt": "Hello", "max_tokens": 1}).to_string();
        let response = gateway_fixture::post(fixture.gateway, "/v1/completions", &body).await;
        (response.header("x-ostler-decision").unwrap().contains("failed"), response.status())
    };
    timeout(TIMEOUT, async {
        let mut run = 0;
        while run < RUN_LENGTH {
            let (is_retried, status) = endpoint().await;
            assert_eq!(status, 200);
            run = if is_retried { 0 } else { run + 1 };
        }
    })
    .await
    .expect("the engine that refuses connections is still selected");
}

//! The five strategies of a router role, as configurations of the endpoint picker: what each chooses.

use tokio::time::timeout;

use crate::fleet::PATIENCE;
use crate::picker_world::{World, host};

/// One scorer and the picker.
fn one(scorer: &str, parameters: &str) -> String {
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

/// Prefillers and decoders by label, and how much of a prompt may be new to a decoder.
fn pair(threshold: usize) -> String {
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

const IDLE: &str = "vllm:num_requests_waiting 0\n";

/// Equals are drawn, so one choice shows nothing; so many in a row do not happen by chance.
const MANY: usize = 24;

/// What was read of engines long ago is not believed, which only a machine that stands still shows: then they are read
/// again.
async fn always(world: &World, model: &str, expect: u8) {
    let mut in_a_row = 0;
    let seen = async {
        while in_a_row < MANY {
            let hosts = world.ask_for(model, &format!("{in_a_row} new"), None).await.hosts();
            in_a_row = if hosts == [expect] { in_a_row + 1 } else { 0 };
        }
    };
    assert!(timeout(PATIENCE, seen).await.is_ok(), "{model} does not always go to {expect}: {in_a_row} in a row");
}

// spec: TOP-87
#[tokio::test]
async fn prefix_cache_returns_to_whoever_has_the_beginning() {
    let world = World::start(&one("prefix-cache-scorer", "blockSize: 5, maxPrefixBlocksToMatch: 256")).await;
    world.pool();
    let _engines = [world.says(2, "worker", IDLE).await, world.says(3, "worker", IDLE).await];
    world.until_read(2).await;
    for story in ["Once upon a time there was a horse", "It was a dark and stormy night"] {
        let first = world.ask(story, None).await.hosts();
        for number in 0..MANY {
            assert_eq!(world.ask(&format!("{story}. {number}"), None).await.hosts(), first);
        }
    }
}

// spec: TOP-87
#[tokio::test]
async fn kv_cache_utilization_goes_where_memory_is_free() {
    let world = World::start(&one("kv-cache-utilization-scorer", "")).await;
    world.pool();
    let full = "vllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.9\n";
    let free = "vllm:num_requests_waiting 7\nvllm:kv_cache_usage_perc 0.1\n";
    let _engines = [world.says(2, "worker", full).await, world.says(3, "worker", free).await];
    world.until_read(2).await;
    always(&world, "m", 3).await;
}

// spec: TOP-87
#[tokio::test]
async fn queue_size_goes_where_fewest_wait_whatever_the_engine() {
    let world = World::start(&one("queue-scorer", "")).await;
    world.pool();
    let vllm = "vllm:num_requests_waiting{engine=\"0\"} 3\nvllm:kv_cache_usage_perc 0.0\n";
    let sglang = "sglang:num_queue_reqs{tp_rank=\"0\"} 1\nsglang:token_usage 0.9\n";
    let _engines = [world.says(2, "worker", vllm).await, world.says(3, "worker", sglang).await];
    world.until_read(2).await;
    always(&world, "m", 3).await;
}

// spec: TOP-87
#[tokio::test]
async fn lora_affinity_goes_where_the_adapter_is_loaded() {
    let world = World::start(&one("lora-affinity-scorer", "")).await;
    world.pool();
    let has = "vllm:num_requests_waiting 9\n\
        vllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=\"tuned\",waiting_lora_adapters=\"\"} 2.0\n";
    let full = "vllm:num_requests_waiting 0\n\
        vllm:lora_requests_info{max_lora=\"1\",running_lora_adapters=\"other\",waiting_lora_adapters=\"\"} 2.0\n";
    let _engines = [world.says(2, "worker", has).await, world.says(3, "worker", full).await];
    world.until_read(2).await;
    always(&world, "tuned", 2).await;
    always(&world, "other", 3).await;
}

// spec: TOP-87
#[tokio::test]
async fn pd_disaggregation_sends_new_prompts_over_a_prefiller() {
    let world = World::start(&pair(0)).await;
    world.pool();
    let _engines = [
        world.says(2, "prefiller", IDLE).await,
        world.says(3, "decoder", IDLE).await,
        world.says(4, "worker", IDLE).await,
    ];
    world.until_read(3).await;
    let prompt = "a prompt that nobody has seen";
    let first = world.ask(prompt, None).await;
    assert_eq!((first.hosts(), host(&first.headers["x-prefiller-host-port"])), (vec![3], 2));
    // Without prefillers a decoder does it all; without decoders nobody answers.
    world.server.delete("pods", "default", "pod-2", None).unwrap();
    world.until("the prefiller to go", |world| world.picker.endpoints().len() == 2).await;
    let alone = world.ask("another one", None).await;
    assert_eq!((alone.hosts(), alone.headers.get("x-prefiller-host-port")), (vec![3], None));
    world.server.delete("pods", "default", "pod-3", None).unwrap();
    world.until("the decoder to go", |world| world.picker.endpoints().len() == 1).await;
    assert_eq!(world.ask("nobody decodes", None).await.status, Some(503));
}

// spec: TOP-87
#[tokio::test]
async fn pd_disaggregation_leaves_to_the_decoder_what_is_not_worth_the_way() {
    let world = World::start(&pair(40)).await;
    world.pool();
    let _engines = [world.says(2, "prefiller", IDLE).await, world.says(3, "decoder", IDLE).await];
    world.until_read(2).await;
    let prefiller = async |prompt: &str| {
        let answer = world.ask(prompt, None).await;
        assert_eq!(answer.hosts(), [3]);
        answer.headers.get("x-prefiller-host-port").map(|endpoint| host(endpoint))
    };
    let long = "x".repeat(60);
    assert_eq!(prefiller("short").await, None);
    assert_eq!(prefiller(&long).await, Some(2));
    assert_eq!(prefiller(&long).await, None, "the decoder has it now");
    assert_eq!(prefiller(&format!("{long} and a little more")).await, None);
    assert_eq!(prefiller(&format!("{long}{}", "y".repeat(60))).await, Some(2));
}

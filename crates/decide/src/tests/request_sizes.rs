//! Story 6: small requests on one class, large ones on another.

use serde_json::json;

use super::fixture::{CLASSES, Fixture, chosen, warnings, world};
use crate::*;

const STORY: &str = r#"
apiVersion: ome.io/v1beta1
kind: ServingRuntime
metadata: {name: sglang-cost-optimized}
spec:
  supportedModelFormats: [{name: safetensors, autoSelect: true}]
  acceleratorRequirements:
    preferenceOrder:
    - {class: nvidia-a100-40gb, score: 100, conditions: [{modelSize: "<30B"}, {requestSize: "<2048"}]}
    - {class: nvidia-h100-80gb, score: 100, conditions: [{modelSize: ">70B"}, {requestSize: ">4096"}]}
---
apiVersion: ome.io/v1beta1
kind: ClusterBaseModel
metadata: {name: llama-13b}
spec: {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 13B}
---
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: cost-sensitive-deployment}
spec:
  model: {name: llama-13b}
  runtime: {name: sglang-cost-optimized}
  acceleratorSelector: {strategy: cost}
  annotations: {ome.io/cost-threshold: "0.5"}
"#;

fn story() -> Fixture {
    world(&[CLASSES, STORY])
}

// spec: ACC-109
// spec: ACC-112
// spec: ACC-113
#[test]
fn as_the_story_says() {
    let decision = story().decide();
    assert_eq!(chosen(&decision).1, "nvidia-a100-40gb");
    let written = serde_json::to_value(&decision.components["engine"].variants).unwrap();
    let expect = json!([
        {"acceleratorClass": "nvidia-a100-40gb", "acceleratorsPerNode": 1, "replicas": 1, "requestTokens": {"max": 2047}},
        {"acceleratorClass": "nvidia-h100-80gb", "acceleratorsPerNode": 1, "replicas": 1, "requestTokens": {"min": 4097}},
    ]);
    assert_eq!(written, expect);
    // The threshold of half a dollar stands in the spec's own annotations; the T4 at $0.53 is not within it either.
    assert!(warnings(&decision).contains(&"CostThresholdExceeded"), "{:?}", decision.warnings);
    let read: Vec<Variant> = serde_json::from_value(written.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), written);
}

#[test]
fn one_class_left_serves_every_size() {
    let mut world = story();
    world.demand.components.get_mut(&Component::Engine).unwrap().selector.preferred =
        vec!["nvidia-h100-80gb".to_owned()];
    assert!(world.decide().components["engine"].variants.is_empty());
}

#[test]
fn a_ready_service_is_not_split() {
    let world = story();
    let mut recorded = world.decide();
    recorded.components.get_mut("engine").unwrap().variants.clear();
    let kept = decide(&world.demand, &world.supply, CurrentSelection::from_decision(&recorded).as_ref());
    assert!(kept.components["engine"].variants.is_empty());
    let split = world.decide();
    let kept = decide(&world.demand, &world.supply, CurrentSelection::from_decision(&split).as_ref());
    assert_eq!(kept.components, split.components);
}

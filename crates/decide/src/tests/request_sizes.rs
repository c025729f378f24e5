//! Variants by request size (seed 000, Story 6).

use serde_json::json;

use super::fixture::{CLASSES, Fixture, fixture, selection, warning_codes};
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
    fixture(&[CLASSES, STORY])
}

// spec: ACC-109
// spec: ACC-112
// spec: ACC-113
#[test]
fn splits_by_request_size() {
    let decision = story().decide();
    assert_eq!(selection(&decision).1, "nvidia-a100-40gb");
    let json = serde_json::to_value(&decision.components["engine"].variants).unwrap();
    let expected = json!([
        {"acceleratorClass": "nvidia-a100-40gb", "acceleratorsPerNode": 1, "replicas": 1, "requestTokens": {"max": 2047}},
        {"acceleratorClass": "nvidia-h100-80gb", "acceleratorsPerNode": 1, "replicas": 1, "requestTokens": {"min": 4097}},
    ]);
    assert_eq!(json, expected);
    // The specification's annotation sets a threshold of $0.50, which even the T4 exceeds at $0.53.
    assert!(warning_codes(&decision).contains(&"CostThresholdExceeded"), "{:?}", decision.warnings);
    let parsed: Vec<Variant> = serde_json::from_value(json.clone()).unwrap();
    assert_eq!(serde_json::to_value(parsed).unwrap(), json);
}

#[test]
fn single_class_serves_every_size() {
    let mut fixture = story();
    fixture.demand.components.get_mut(&Component::Engine).unwrap().selector.preferred =
        vec!["nvidia-h100-80gb".to_owned()];
    assert!(fixture.decide().components["engine"].variants.is_empty());
}

#[test]
fn does_not_split_ready_service() {
    let fixture = story();
    let mut recorded = fixture.decide();
    recorded.components.get_mut("engine").unwrap().variants.clear();
    let retained = decide(&fixture.demand, &fixture.supply, CurrentSelection::from_decision(&recorded).as_ref());
    assert!(retained.components["engine"].variants.is_empty());
    let with_variants = fixture.decide();
    let retained = decide(&fixture.demand, &fixture.supply, CurrentSelection::from_decision(&with_variants).as_ref());
    assert_eq!(retained.components, with_variants.components);
}

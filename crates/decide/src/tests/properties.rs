//! What holds for any supply: order does not matter, everyone is answered, one is selected, and losers change nothing.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{CLASSES, Fixture, world};
use crate::*;

/// A runtime that may or may not fit a 7B Llama.
fn any_runtime() -> impl Strategy<Value = Value> {
    let range = prop_oneof![
        Just(json!({})),
        Just(json!({"min": "5B"})),
        Just(json!({"max": "9B"})),
        Just(json!({"min": "1B", "max": "70B"})),
        Just(json!({"min": "5B", "max": "9B"})),
        Just(json!({"min": "60B", "max": "80B"})),
    ];
    let architecture = prop_oneof![Just(Value::Null), Just(json!("LlamaForCausalLM")), Just(json!("Qwen2ForCausalLM"))];
    let classes = prop::sample::subsequence(vec!["nvidia-t4", "nvidia-a100-40gb", "nvidia-h100-80gb", "gone"], 0..=4);
    let priority = prop_oneof![Just(Value::Null), (1..4i32).prop_map(|priority| json!(priority))];
    let memory = prop_oneof![Just(0u32), Just(30u32), Just(60u32), Just(200u32)];
    let resources = prop_oneof![Just(json!({})), (1..4u32).prop_map(|n| json!({"limits": {"nvidia.com/gpu": 1 << n}}))];
    let flags = (any::<bool>(), prop::bool::weighted(0.9), prop::bool::weighted(0.1), any::<bool>());
    (range, architecture, classes, priority, memory, resources, flags, 0..3u8).prop_map(
        |(
            range,
            architecture,
            classes,
            priority,
            memory,
            resources,
            (namespaced, selectable, disabled, decoder),
            day,
        )| {
            let mut spec = json!({
                "disabled": disabled,
                "supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "modelArchitecture": architecture,
                    "autoSelect": selectable, "priority": priority}],
                "modelSizeRange": range,
                "acceleratorRequirements": {"supportedClasses": classes, "requiredCapabilities": {"memoryGB": memory}},
                "engineConfig": {"runner": {"image": "i", "resources": resources}},
            });
            if decoder {
                spec["decoderConfig"] = json!({"runner": {"image": "i"}});
            }
            json!({"apiVersion": "ome.io/v1beta1",
                "kind": if namespaced { "ServingRuntime" } else { "ClusterServingRuntime" },
                "metadata": {"creationTimestamp": format!("2026-01-0{}T00:00:00Z", day + 1)}, "spec": spec})
        },
    )
}

fn any_nodes() -> impl Strategy<Value = Vec<Value>> {
    let node = |(index, (gpu, count)): (usize, (&str, u32))| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{index}"), "labels": {"gpu": gpu}},
            "status": {"allocatable": {"nvidia.com/gpu": count}}})
    };
    let one = (prop_oneof![Just("t4"), Just("a100"), Just("h100")], 0..9u32);
    prop::collection::vec(one, 0..6).prop_map(move |nodes| nodes.into_iter().enumerate().map(node).collect())
}

fn any_world() -> impl Strategy<Value = Fixture> {
    (prop::collection::vec(any_runtime(), 0..8), any_nodes(), 0..4usize).prop_map(|(mut runtimes, nodes, selector)| {
        for (index, runtime) in runtimes.iter_mut().enumerate() {
            runtime["metadata"]["name"] = json!(format!("r{index}"));
        }
        let selectors = [
            json!(null),
            json!({"strategy": "cost"}),
            json!({"preferredClasses": ["nvidia-h100-80gb", "nvidia-t4"]}),
            json!({"policy": "FirstAvailable", "excludedClasses": ["nvidia-t4"]}),
        ];
        let model = json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": "m"},
            "spec": {"modelFormat": {"name": "safetensors"}, "modelArchitecture": "LlamaForCausalLM", "modelParameterSize": "7B"}});
        let mut service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": "s", "namespace": "default"}, "spec": {"model": {"name": "m"}}});
        if !selectors[selector].is_null() {
            service["spec"]["acceleratorSelector"] = selectors[selector].clone();
        }
        let all = [runtimes, nodes, vec![model, service]].concat();
        world(&[CLASSES, &Value::Array(all).to_string()])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // spec: RT-76
    // spec: ACC-76
    #[test]
    fn the_order_of_the_input_does_not_matter(world in any_world(), turn in 0..8usize) {
        let first = world.decide();
        let mut turned = world.supply.clone();
        turned.runtimes.reverse();
        turned.classes.reverse();
        let turn = turn.min(turned.runtimes.len());
        turned.runtimes.rotate_left(turn);
        prop_assert_eq!(serde_json::to_string(&decide(&world.demand, &turned, None)).unwrap(), serde_json::to_string(&first).unwrap());
    }

    #[test]
    fn one_is_selected_and_everyone_is_answered(world in any_world()) {
        let decision = world.decide();
        let selected = decision.candidates.iter().filter(|candidate| candidate.selected).count();
        prop_assert_eq!(selected, usize::from(decision.feasible));
        let seen: BTreeSet<(&str, Scope)> = decision.candidates.iter().map(|one| (one.runtime.as_str(), one.scope)).collect();
        prop_assert_eq!(seen.len(), world.supply.runtimes.len());
        prop_assert_eq!(decision.candidates.len(), world.supply.runtimes.len());
        for candidate in &decision.candidates {
            let told = usize::from(candidate.selected) + usize::from(candidate.rejected.is_some()) + usize::from(candidate.outranked.is_some());
            prop_assert_eq!(told, 1, "{:?}", candidate);
            let mut classes: Vec<(&str, &str)> = candidate.accelerators.iter().map(|one| (one.component.as_str(), one.class.as_str())).collect();
            let all = classes.len();
            classes.sort_unstable();
            classes.dedup();
            prop_assert_eq!(classes.len(), all);
        }
        // No runtime for another architecture or size, whatever else there is.
        if let Some(winner) = &decision.runtime {
            let runtime = world.supply.runtimes.iter().find(|one| one.name == winner.name).unwrap();
            prop_assert!(compatibility::check_compatibility(&world.demand, runtime).is_ok());
        }
    }

    // spec: ACC-9
    #[test]
    fn one_that_cannot_serve_changes_nothing(world in any_world(), mut other in any_runtime()) {
        other["metadata"]["name"] = json!("r-other");
        other["spec"]["supportedModelFormats"][0]["modelArchitecture"] = json!("Qwen2ForCausalLM");
        let added = world_of(&other);
        let before = world.decide();
        let mut supply = world.supply.clone();
        supply.runtimes.extend(added.supply.runtimes);
        let after = decide(&world.demand, &supply, None);
        prop_assert_eq!((&after.runtime, &after.components), (&before.runtime, &before.components));
    }

    #[test]
    fn the_incumbent_is_kept(world in any_world(), mut other in any_runtime()) {
        let before = world.decide();
        prop_assume!(before.feasible);
        other["metadata"]["name"] = json!("r-other");
        let mut supply = world.supply.clone();
        supply.runtimes.extend(world_of(&other).supply.runtimes);
        for class in &mut supply.classes {
            let class = std::sync::Arc::make_mut(class);
            class.availability.iter_mut().flat_map(|known| &mut known.nodes).for_each(|node| node.free = 0);
        }
        let after = decide(&world.demand, &supply, CurrentSelection::from_decision(&before).as_ref());
        prop_assert_eq!((&after.runtime, &after.components, after.reason.as_str()), (&before.runtime, &before.components, "Kept"));
    }

    #[test]
    fn status_is_bounded_and_read_back(world in any_world()) {
        let decision = world.decide();
        let status = serde_json::to_value(decision.for_status()).unwrap();
        prop_assert!(status.to_string().len() < 64_000);
        let read: Decision = serde_json::from_value(status.clone()).unwrap();
        prop_assert_eq!(serde_json::to_value(&read).unwrap(), status);
        prop_assert_eq!(CurrentSelection::from_decision(&read), CurrentSelection::from_decision(&decision));
    }

    /// A remedy is never wrong: what it promises was decided with it.
    #[test]
    fn remedies_help(world in any_world()) {
        let now = world.decide();
        let remedies = remedy::find_remedies(&world.demand, &world.supply);
        let mut texts: Vec<String> = remedies.iter().map(|remedy| remedy.change.to_string()).collect();
        for remedy in &remedies {
            prop_assert!(remedy.outcome.feasible);
        }
        let waits = now.warnings.iter().any(|warning| warning.code == "NoFreeCapacity");
        prop_assert!(!now.feasible || waits || remedies.is_empty());
        let all = texts.len();
        texts.sort_unstable();
        texts.dedup();
        prop_assert_eq!(texts.len(), all);
    }
}

fn world_of(runtime: &Value) -> Fixture {
    world(&[&json!([runtime]).to_string()])
}

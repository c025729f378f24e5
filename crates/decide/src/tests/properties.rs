//! Property tests for arbitrary supply: order does not matter, every candidate is reported, one is selected, and rejected
//! candidates have no influence.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{CLASSES, Fixture, fixture};
use crate::*;

/// Generates a runtime that may or may not serve a 7B Llama model.
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
    let node_type = (prop_oneof![Just("t4"), Just("a100"), Just("h100")], 0..9u32);
    prop::collection::vec(node_type, 0..6).prop_map(move |nodes| nodes.into_iter().enumerate().map(node).collect())
}

fn any_fixture() -> impl Strategy<Value = Fixture> {
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
        let objects = [runtimes, nodes, vec![model, service]].concat();
        fixture(&[CLASSES, &Value::Array(objects).to_string()])
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    // spec: RT-76
    // spec: ACC-76
    #[test]
    fn input_order_does_not_matter(fixture in any_fixture(), rotation in 0..8usize) {
        let first = fixture.decide();
        let mut reordered = fixture.supply.clone();
        reordered.runtimes.reverse();
        reordered.classes.reverse();
        let rotation = rotation.min(reordered.runtimes.len());
        reordered.runtimes.rotate_left(rotation);
        prop_assert_eq!(serde_json::to_string(&decide(&fixture.demand, &reordered, None)).unwrap(), serde_json::to_string(&first).unwrap());
    }

    #[test]
    fn selects_one_and_reports_every_candidate(fixture in any_fixture()) {
        let decision = fixture.decide();
        prop_assert_eq!(selected_candidates(&decision), decision.runtime.clone().into_iter().collect::<Vec<_>>());
        prop_assert_eq!(decision.runtime.is_some(), decision.feasible);
        if decision.feasible {
            prop_assert_eq!((decision.candidates[0].selected, decision.candidates[0].rank), (true, Some(1)));
        }
        let reported: BTreeSet<(&str, Scope)> = decision.candidates.iter().map(|candidate| (candidate.runtime.as_str(), candidate.scope)).collect();
        prop_assert_eq!(reported.len(), fixture.supply.runtimes.len());
        prop_assert_eq!(decision.candidates.len(), fixture.supply.runtimes.len());
        for candidate in &decision.candidates {
            let reasons = usize::from(candidate.selected) + usize::from(candidate.rejected.is_some()) + usize::from(candidate.outranked.is_some());
            prop_assert_eq!(reasons, 1, "{:?}", candidate);
            let mut classes: Vec<(&str, &str)> = candidate.accelerators.iter().map(|accelerator| (accelerator.component.as_str(), accelerator.class.as_str())).collect();
            let count = classes.len();
            classes.sort_unstable();
            classes.dedup();
            prop_assert_eq!(classes.len(), count);
        }
        // A runtime for another architecture or size is never selected.
        if let Some(selected) = &decision.runtime {
            let runtime = fixture.supply.runtimes.iter().find(|runtime| runtime.name == selected.name).unwrap();
            prop_assert!(check_compatibility(&fixture.demand, runtime).is_ok());
        }
    }

    // spec: ACC-9
    #[test]
    fn ineligible_candidate_changes_nothing(fixture in any_fixture(), mut other in any_runtime()) {
        other["metadata"]["name"] = json!("r-other");
        other["spec"]["supportedModelFormats"][0]["modelArchitecture"] = json!("Qwen2ForCausalLM");
        let added = fixture_of(&other);
        let previous = fixture.decide();
        let mut supply = fixture.supply.clone();
        supply.runtimes.extend(added.supply.runtimes);
        let after = decide(&fixture.demand, &supply, None);
        prop_assert_eq!((&after.runtime, &after.components), (&previous.runtime, &previous.components));
    }

    #[test]
    fn retains_current_selection(fixture in any_fixture(), mut other in any_runtime()) {
        let previous = fixture.decide();
        prop_assume!(previous.feasible);
        other["metadata"]["name"] = json!("r-other");
        let mut supply = fixture.supply.clone();
        supply.runtimes.extend(fixture_of(&other).supply.runtimes);
        for class in &mut supply.classes {
            let class = std::sync::Arc::make_mut(class);
            class.availability.iter_mut().flat_map(|known| &mut known.nodes).for_each(|node| node.free = 0);
        }
        let after = decide(&fixture.demand, &supply, CurrentSelection::from_decision(&previous).as_ref());
        prop_assert_eq!((&after.runtime, &after.components, after.reason.as_str()), (&previous.runtime, &previous.components, "Kept"));
        prop_assert_eq!(selected_candidates(&after), after.runtime.clone().into_iter().collect::<Vec<_>>());
    }

    /// Assessing all runtimes leads to the same decision as assessing those that decide the selection.
    #[test]
    fn other_runtimes_do_not_change_the_decision(fixture in any_fixture(), is_running in any::<bool>()) {
        let current = if is_running { CurrentSelection::from_decision(&fixture.decide()) } else { None };
        let decision = decide(&fixture.demand, &fixture.supply, current.as_ref());
        let custom_engine = custom_engine_runtime(&fixture.demand);
        let context = DecisionContext::new(&fixture.demand, &fixture.supply, custom_engine, current.as_ref());
        let context = Arc::new(context);
        let runtimes = candidate_runtimes(&context).unwrap();
        let Selection { assessments, index, is_retained } = select(&context, &runtimes, Extent::All);
        prop_assume!(index.is_some());
        let complete = record::selected(&fixture.demand, &fixture.supply, &assessments, index.unwrap(), is_retained);
        prop_assert_eq!(Decision { candidates: RuntimeCandidates::default(), ..decision }, complete);
    }

    /// Every remedy makes the service feasible: it was verified by repeating the decision.
    #[test]
    fn remedies_make_the_service_feasible(fixture in any_fixture()) {
        let decision = fixture.decide();
        let remedies = find_remedies(&fixture.demand, &fixture.supply, None);
        let text = |remedy: &Remedy| (remedy.prerequisite.as_ref().map(ToString::to_string), remedy.change.to_string());
        let mut texts: Vec<_> = remedies.iter().map(text).collect();
        for remedy in &remedies {
            prop_assert!(remedy.outcome.feasible);
        }
        let is_waiting = decision.warnings.iter().any(crate::Warning::is_capacity_shortage);
        prop_assert!(!decision.feasible || is_waiting || remedies.is_empty());
        let count = texts.len();
        texts.sort_unstable();
        texts.dedup();
        prop_assert_eq!(texts.len(), count);
    }
}

/// Returns the candidates that are selected. They are computed apart from the selection.
fn selected_candidates(decision: &Decision) -> Vec<RuntimeRef> {
    let selected = decision.candidates.iter().filter(|candidate| candidate.selected);
    selected.map(|candidate| RuntimeRef { name: candidate.runtime.clone(), scope: candidate.scope }).collect()
}

fn fixture_of(runtime: &Value) -> Fixture {
    fixture(&[&json!([runtime]).to_string()])
}

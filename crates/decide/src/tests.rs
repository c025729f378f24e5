//! Table tests of the acceptance criteria on the nodes of the demo: 8×H100-80G, 8×A100-40G, 4×L40S.

mod accelerator_counts;
mod class_fields;
mod feasibility;
mod fields;
mod fixture;
mod formats;
mod leader_worker;
mod memory;
mod naming;
mod nearest;
mod node_resources;
mod number_formats;
mod properties;
mod ranking_order;
mod remedies;
mod request_sizes;
mod selection;
mod tasks;
mod upstream;
mod upstream_regressions;
mod vendors;

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::inventory::NodeInfo;
use crate::nodes::Availability;

fn documents(text: &str) -> Vec<Value> {
    api::parse_manifest("catalog", text).unwrap().into_iter().map(|document| document.value).collect()
}

fn node(name: &str, product: &str, count: u32) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.product": product}},
        "status": {"allocatable": {"nvidia.com/gpu": count.to_string(), "cpu": "64"}}
    })
}

fn demo_nodes() -> Vec<NodeInfo> {
    let nodes = [
        node("big-0", "NVIDIA-H100-80GB-HBM3", 8),
        node("mid-0", "NVIDIA-A100-SXM4-40GB", 8),
        node("small-0", "NVIDIA-L40S", 4),
    ];
    inventory::node_infos(&nodes, &[])
}

fn runtime(value: &Value) -> Runtime {
    let namespace = value["metadata"]["namespace"].as_str().unwrap_or_default();
    let scope = if value["kind"] == "ServingRuntime" { Scope::Namespace } else { Scope::Cluster };
    let created = value["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
    let spec = serde_json::from_value(value["spec"].clone()).unwrap();
    Runtime::from_api(value["metadata"]["name"].as_str().unwrap(), scope, namespace, created, &spec).unwrap()
}

fn class(value: &Value, nodes: Option<&[NodeInfo]>) -> Class {
    let object: api::ome::AcceleratorClass = serde_json::from_value(value.clone()).unwrap();
    let mut class = Class::from_api(&object, None).unwrap();
    class.availability = nodes.map(|nodes| inventory::class_availability(&class, nodes));
    class
}

fn catalog(nodes: Option<&[NodeInfo]>) -> Supply {
    Supply {
        runtimes: documents(include_str!("tests/small/runtimes.yaml"))
            .iter()
            .map(|value| runtime(value).into())
            .collect(),
        classes: documents(include_str!("tests/small/classes.yaml"))
            .iter()
            .map(|value| class(value, nodes).into())
            .collect(),
        nodes: None,
        accelerator_aware: true,
    }
}

fn demand(model: &str, spec: Value) -> Demand {
    let models = documents(include_str!("tests/small/models.yaml"));
    let model_object = models.iter().find(|value| value["metadata"]["name"] == model);
    let model_spec = model_object.map(|value| serde_json::from_value(value["spec"].clone()).unwrap());
    let mut service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "s", "namespace": "default"}, "spec": spec});
    service["spec"]["model"] = json!({"name": model});
    let service: api::ome::InferenceService = serde_json::from_value(service).unwrap();
    Demand::from_api(&service, model_spec.as_ref().map(|spec| (model, spec))).unwrap()
}

fn selection(decision: &Decision) -> (&str, &str, u32, u32) {
    let engine = &decision.components["engine"];
    let runtime = decision.runtime.as_ref().map_or("", |runtime| runtime.name.as_str());
    (runtime, engine.accelerator_class.as_deref().unwrap_or(""), engine.accelerators_per_node, engine.nodes)
}

fn rejection_code(decision: &Decision, runtime: &str) -> String {
    let candidate = decision.candidates.iter().find(|candidate| candidate.runtime == runtime).unwrap();
    candidate.rejected.as_ref().map_or("", |rejection| rejection.code().as_str()).to_owned()
}

fn class_code(decision: &Decision, class: &str) -> String {
    let all = decision.candidates.iter().flat_map(|candidate| candidate.accelerators.iter());
    all.filter(|candidate| candidate.class == class)
        .map(|candidate| candidate.evaluation.code().to_owned())
        .next()
        .unwrap_or_default()
}

#[rstest]
// spec: ACC-81
#[case::by_cost("llama-3-2-3b-instruct", "srt-llama-3-2-3b-instruct", "nvidia-l40s", 1)]
#[case::by_size("llama-3-3-70b-instruct", "srt-llama-3-3-70b-instruct", "nvidia-h100-80gb", 4)]
#[case::mistral("mistral-7b-instruct", "srt-mistral-7b-instruct", "nvidia-l40s", 1)]
fn selects_runtime_and_class_of_demo_services(
    #[case] model: &str,
    #[case] runtime: &str,
    #[case] class: &str,
    #[case] count: u32,
) {
    let nodes = demo_nodes();
    let decision = decide(&demand(model, json!({})), &catalog(Some(&nodes)), None);
    assert_eq!(selection(&decision), (runtime, class, count, 1), "{decision:#?}");
    assert!(decision.warnings.is_empty(), "{:?}", decision.warnings);
}

// spec: RT-51
// spec: ACC-98
#[test]
fn every_candidate_is_reported() {
    let nodes = demo_nodes();
    let decision = decide(&demand("llama-3-2-3b-instruct", json!({})), &catalog(Some(&nodes)), None);
    insta::assert_snapshot!(serde_json::to_string_pretty(&decision).unwrap());
}

// spec: RT-48
#[test]
fn reports_unknown_runtime() {
    let decision = decide(&demand("mistral-7b-instruct", json!({"runtime": {"name": "nope"}})), &catalog(None), None);
    assert_eq!((decision.feasible, decision.reason.as_str()), (false, "RuntimeNotFound"));
    assert!(decision.message.contains("nope"));
}

#[test]
fn reports_unknown_model() {
    let decision = decide(&demand("nope", json!({})), &catalog(None), None);
    assert_eq!((decision.feasible, decision.reason.as_str()), (false, "ModelNotFound"));
}

// spec: RT-49
#[test]
fn checks_named_runtime() {
    let named = json!({"runtime": {"name": "srt-mistral-7b-instruct"}});
    let decision = decide(&demand("llama-3-2-3b-instruct", named), &catalog(None), None);
    assert_eq!((decision.feasible, decision.reason.as_str()), (false, "ArchitectureMismatch"));
}

// spec: ACC-85
#[test]
fn availability_is_unknown_without_nodes() {
    let decision = decide(&demand("mistral-7b-instruct", json!({})), &catalog(None), None);
    assert!(decision.feasible);
    assert_eq!(decision.warnings[0].code, "AvailabilityUnknown");
}

fn with_free(mut supply: Supply, class: &str, free: u32) -> Supply {
    let known = supply.classes.iter_mut().find(|known| known.name == class).unwrap();
    let known = std::sync::Arc::make_mut(known);
    known.availability.as_mut().unwrap().nodes.iter_mut().for_each(|node| node.free = free);
    supply
}

// spec: ACC-6
// spec: ACC-85
#[test]
fn free_capacity_ranks_before_score() {
    let nodes = demo_nodes();
    let supply = with_free(catalog(Some(&nodes)), "nvidia-l40s", 0);
    let decision = decide(&demand("mistral-7b-instruct", json!({})), &supply, None);
    assert_eq!(selection(&decision).1, "nvidia-a100-40gb");
    let preferred = json!({"acceleratorSelector": {"preferredClasses": ["nvidia-l40s"]}});
    let decision = decide(&demand("mistral-7b-instruct", preferred), &supply, None);
    assert_eq!((selection(&decision).1, decision.warnings[0].code.as_str()), ("nvidia-l40s", "NoFreeCapacity"));
}

#[rstest]
// spec: ACC-68
#[case::preferred(json!({"preferredClasses": ["nvidia-a100-40gb"]}), "nvidia-a100-40gb", "nvidia-l40s", "NotPreferred")]
// spec: ACC-59
#[case::deployed_name(json!({"acceleratorClass": "nvidia-a100-40gb"}), "nvidia-a100-40gb", "nvidia-l40s", "NotPreferred")]
// spec: ACC-69
// spec: ACC-75
#[case::fallback(json!({"preferredClasses": ["gone", "nvidia-h100-80gb"]}), "nvidia-h100-80gb", "gone", "UnknownClass")]
#[case::excluded(json!({"excludedClasses": ["nvidia-l40s"]}), "nvidia-a100-40gb", "nvidia-l40s", "ExcludedClass")]
#[case::memory(json!({"requiredCapabilities": {"memoryGB": 80}}), "nvidia-h100-80gb", "nvidia-l40s", "InsufficientMemory")]
// spec: ACC-20
#[case::capability(json!({"requiredCapabilities": {"computeCapability": "8.9"}}), "nvidia-l40s", "nvidia-a100-40gb", "ComputeCapabilityTooLow")]
// spec: ACC-22
#[case::feature(json!({"requiredCapabilities": {"features": ["NVLink"]}}), "nvidia-a100-40gb", "nvidia-l40s", "MissingFeature")]
// spec: ACC-21
#[case::bandwidth(json!({"requiredCapabilities": {"memoryBandwidthGBps": "3000"}}), "nvidia-h100-80gb", "nvidia-l40s", "BandwidthTooLow")]
#[case::performance(json!({"requiredCapabilities": {"performance": {"fp16TFLOPS": 900}}}), "nvidia-h100-80gb", "nvidia-l40s", "PerformanceTooLow")]
// spec: ACC-58
#[case::nodes(json!({"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}), "nvidia-h100-80gb", "nvidia-l40s", "NoMatchingNodes")]
// spec: ACC-77
#[case::performance_strategy(json!({"strategy": "performance"}), "nvidia-h100-80gb", "nvidia-l40s", "Eligible")]
#[case::best_fit(json!({"policy": "BestFit"}), "nvidia-a100-40gb", "nvidia-l40s", "Eligible")]
fn applies_accelerator_selector(
    #[case] selector: Value,
    #[case] expected: &str,
    #[case] other: &str,
    #[case] reason: &str,
) {
    let nodes = demo_nodes();
    let demand = demand("mistral-7b-instruct", json!({"acceleratorSelector": selector}));
    let decision = decide(&demand, &catalog(Some(&nodes)), None);
    assert_eq!(selection(&decision).1, expected);
    assert_eq!(class_code(&decision, other), reason);
}

/// The deployed field of a component is a list with one preferred class, and takes precedence over the selector of the service.
// spec: ACC-59
#[rstest]
#[case::component(json!({"engine": {"acceleratorOverride": {"acceleratorClass": "nvidia-a100-40gb"}}}))]
#[case::component_before_service(json!({"acceleratorSelector": {"acceleratorClass": "nvidia-h100-80gb"},
    "engine": {"acceleratorOverride": {"acceleratorClass": "nvidia-a100-40gb"}}}))]
#[case::list(json!({"engine": {"acceleratorOverride": {"preferredClasses": ["nvidia-a100-40gb"]}}}))]
fn override_of_a_component_prefers_one_class(#[case] spec: Value) {
    let nodes = demo_nodes();
    let decision = decide(&demand("mistral-7b-instruct", spec), &catalog(Some(&nodes)), None);
    assert_eq!(selection(&decision).1, "nvidia-a100-40gb");
    for other in ["nvidia-l40s", "nvidia-h100-80gb"] {
        assert_eq!(class_code(&decision, other), "NotPreferred", "{other}");
    }
}

/// The next preferred class is selected if the first one does not exist, has no nodes, lacks a feature, or is too small.
// spec: ACC-69
#[rstest]
#[case::absent("mistral-7b-instruct", json!({}), "gone", "UnknownClass")]
#[case::without_nodes("mistral-7b-instruct", json!({}), "nvidia-a100-40gb", "NoMatchingNodes")]
#[case::without_feature("llama-3-3-70b-instruct", json!({}), "nvidia-l40s", "MissingFeature")]
#[case::too_small("mistral-7b-instruct", json!({"memoryGB": 80}), "nvidia-l40s", "InsufficientMemory")]
fn falls_back_to_the_next_preferred_class(
    #[case] model: &str,
    #[case] required: Value,
    #[case] first: &str,
    #[case] code: &str,
) {
    let nodes =
        inventory::node_infos(&[node("big-0", "NVIDIA-H100-80GB-HBM3", 8), node("small-0", "NVIDIA-L40S", 4)], &[]);
    let selector = json!({"preferredClasses": [first, "nvidia-h100-80gb"], "requiredCapabilities": required});
    let decision = decide(&demand(model, json!({"acceleratorSelector": selector})), &catalog(Some(&nodes)), None);
    assert_eq!((selection(&decision).1, class_code(&decision, first).as_str()), ("nvidia-h100-80gb", code));
}

/// Selection continues with the next runtime, although the first one ranks higher without accelerators.
// spec: ACC-71
#[test]
fn runtime_without_eligible_class_is_passed_over() {
    let nodes = demo_nodes();
    let mut supply = catalog(Some(&nodes));
    let demand = demand("mistral-7b-instruct", json!({"acceleratorSelector": {"preferredClasses": ["nvidia-l40s"]}}));
    let first = decide(&demand, &supply, None);
    let selected = supply.runtimes.iter().find(|runtime| runtime.name == selection(&first).0).unwrap();
    let mut preferred = Runtime { name: "preferred".to_owned(), ..Runtime::clone(selected) };
    preferred.formats.iter_mut().for_each(|format| format.priority = Some(99));
    supply.runtimes.push(preferred.clone().into());
    assert_eq!(selection(&decide(&demand, &supply, None)).0, "preferred");
    preferred.requirements.supported_classes = Some(vec!["nvidia-h100-80gb".to_owned()]);
    *supply.runtimes.last_mut().unwrap() = preferred.into();
    let decision = decide(&demand, &supply, None);
    assert_eq!(selection(&decision), selection(&first));
    let rejected = decision.candidates.iter().find(|candidate| candidate.runtime == "preferred").unwrap();
    assert_eq!(rejected.rejected.as_ref().unwrap().code().as_str(), "NoEligibleAccelerator");
    let codes: BTreeMap<&str, &str> =
        rejected.accelerators.iter().map(|candidate| (candidate.class.as_str(), candidate.evaluation.code())).collect();
    assert_eq!(
        codes,
        [
            ("nvidia-a100-40gb", "NotSupportedByRuntime"),
            ("nvidia-h100-80gb", "NotPreferred"),
            ("nvidia-l40s", "NotSupportedByRuntime")
        ]
        .into()
    );
}

// spec: ACC-71
#[test]
fn rejects_runtime_without_eligible_class() {
    let nodes = demo_nodes();
    let demand =
        demand("llama-3-3-70b-instruct", json!({"acceleratorSelector": {"preferredClasses": ["nvidia-l40s"]}}));
    let decision = decide(&demand, &catalog(Some(&nodes)), None);
    assert_eq!((decision.feasible, decision.reason.as_str()), (false, "NoEligibleAccelerator"));
    assert_eq!(rejection_code(&decision, "srt-llama-3-3-70b-instruct"), "NoEligibleAccelerator");
    assert_eq!(class_code(&decision, "nvidia-l40s"), "MissingFeature");
    let remedies: Vec<String> =
        remedy::find_remedies(&demand, &catalog(Some(&nodes)), None).iter().map(ToString::to_string).collect();
    assert!(
        remedies[0]
            .starts_with("add nvidia-h100-80gb to spec.acceleratorSelector.preferredClasses: srt-llama-3-3-70b-instruct on 4 × nvidia-h100-80gb"),
        "{remedies:?}"
    );
}

#[test]
fn reports_model_without_runtime() {
    let nodes = demo_nodes();
    let mut demand = demand("llama-3-3-70b-instruct", json!({}));
    if let ModelReference::Resolved(model) = &mut demand.model {
        model.parameters = Some(405_000_000_000);
    }
    let remedies: Vec<String> =
        remedy::find_remedies(&demand, &catalog(Some(&nodes)), None).iter().map(ToString::to_string).collect();
    let first = remedies.first().unwrap();
    assert!(
        first.starts_with("add a runtime for 405B models") && first.contains("16 × nvidia-h100-80gb"),
        "{remedies:?}"
    );
}

// spec: ACC-83
#[test]
fn fixed_count_is_only_checked() {
    let fixed = |count: u32| json!({"engine": {"runner": {"resources": {"limits": {"nvidia.com/gpu": count}}}}});
    let single = decide(&demand("llama-3-3-70b-instruct", fixed(1)), &catalog(None), None);
    assert_eq!(class_code(&single, "nvidia-h100-80gb"), "ModelDoesNotFit");
    let decision = decide(&demand("llama-3-3-70b-instruct", fixed(8)), &catalog(None), None);
    assert_eq!(decision.components["engine"].accelerators_per_node, 8);
}

#[rstest]
// spec: ACC-80
#[case(3_200_000_000, None, 7_680_000_000)]
#[case(70_000_000_000, None, 168_000_000_000)]
#[case(70_000_000_000, Some("fp8"), 84_000_000_000)]
#[case::with_scales(70_000_000_000, Some("awq"), 47_250_000_000)]
fn computes_model_weights(#[case] parameters: u64, #[case] quantization: Option<&str>, #[case] bytes: u64) {
    let model =
        Model { parameters: Some(parameters), quantization: quantization.map(str::to_owned), ..Model::default() };
    assert_eq!(fit::estimated_memory(&model), Some(bytes));
}

/// Returns runtimes for a 7B safetensors model with the given differences.
fn runtimes(specs: &[(&str, Value)]) -> Supply {
    let object = |(name, spec): &(&str, Value)| {
        let base = json!({"modelFormat": {"name": "safetensors"}, "autoSelect": true});
        let mut value = json!({"kind": spec.get("kind").cloned().unwrap_or(json!("ClusterServingRuntime")),
            "metadata": {"name": name, "namespace": "default", "creationTimestamp": spec.get("created")},
            "spec": {"supportedModelFormats": [base], "modelSizeRange": spec.get("range"), "disabled": spec.get("disabled")}});
        if let Some(formats) = spec.get("formats") {
            value["spec"]["supportedModelFormats"] = formats.clone();
        }
        for (key, field) in spec.get("format").and_then(Value::as_object).into_iter().flatten() {
            value["spec"]["supportedModelFormats"][0][key] = field.clone();
        }
        runtime(&value)
    };
    Supply {
        runtimes: specs.iter().map(|spec| object(spec).into()).collect(),
        classes: Vec::new(),
        nodes: None,
        accelerator_aware: true,
    }
}

fn demand_7b() -> Demand {
    let mut demand = demand("mistral-7b-instruct", json!({}));
    if let ModelReference::Resolved(model) = &mut demand.model {
        model.parameters = Some(7_000_000_000);
    }
    demand
}

#[rstest]
// spec: RT-52
#[case::namespaced_before_cluster(&[("a", json!({"format": {"priority": 9}})), ("b", json!({"kind": "ServingRuntime"}))], "b")]
#[case::architecture_set(&[("a", json!({})), ("b", json!({"format": {"modelArchitecture": "MistralForCausalLM"}}))], "b")]
// spec: RT-61
#[case::closest_range(&[("a", json!({"range": {"min": "1B", "max": "70B"}})), ("b", json!({"range": {"min": "5B", "max": "9B"}}))], "b")]
// spec: RT-62
#[case::two_sided_before_one_sided(&[("a", json!({"range": {"min": "7B"}})), ("b", json!({"range": {"min": "1B", "max": "99B"}}))], "b")]
#[case::range_before_none(&[("a", json!({})), ("b", json!({"range": {"max": "99B"}}))], "b")]
// spec: RT-69
#[case::size_before_priority(&[("a", json!({"format": {"priority": 9}})), ("b", json!({"range": {"max": "99B"}}))], "b")]
// spec: RT-68
#[case::priority(&[("a", json!({"format": {"priority": 1}})), ("b", json!({"format": {"priority": 2}}))], "b")]
// spec: RT-71
#[case::priority_set(&[("a", json!({})), ("b", json!({"format": {"priority": 1}}))], "b")]
// spec: RT-75
#[case::newest(&[("a", json!({"created": "2026-01-01T00:00:00Z"})), ("b", json!({"created": "2026-02-01T00:00:00Z"}))], "b")]
// spec: RT-76
#[case::name(&[("b", json!({})), ("a", json!({}))], "a")]
// spec: RT-10
// spec: RT-66
#[case::priority_of_other_entry_is_ignored(&[
    ("a", json!({"formats": [{"modelFormat": {"name": "safetensors"}, "autoSelect": false, "priority": 1}, {"modelFormat": {"name": "ONNX"}, "autoSelect": true, "priority": 9}]})),
    ("b", json!({}))], "b")]
fn ranks_runtimes(#[case] specs: &[(&str, Value)], #[case] expected: &str) {
    let decision = decide(&demand_7b(), &runtimes(specs), None);
    assert_eq!(selection(&decision).0, expected);
}

// spec: RT-77
#[test]
fn warns_about_ambiguous_runtimes() {
    let decision = decide(&demand_7b(), &runtimes(&[("a", json!({})), ("b", json!({}))]), None);
    let codes: Vec<&str> = decision.warnings.iter().map(|warning| warning.code.as_str()).collect();
    assert_eq!(codes, ["AmbiguousRuntimes", "AcceleratorNotConsidered"]);
}

#[test]
fn retains_current_selection() {
    let supply = runtimes(&[("a", json!({})), ("b", json!({"format": {"priority": 5}}))]);
    let first = decide(&demand_7b(), &runtimes(&[("a", json!({}))]), None);
    let second = decide(&demand_7b(), &supply, CurrentSelection::from_decision(&first).as_ref());
    assert_eq!((selection(&second).0, second.reason.as_str()), ("a", "Kept"));
    assert_eq!(selection(&decide(&demand_7b(), &supply, None)).0, "b");
}

#[rstest]
// spec: RT-9
#[case(json!({"disabled": true}), "Disabled")]
// spec: RT-53
#[case(json!({"format": {"modelFormat": {"name": "ONNX"}}}), "FormatMismatch")]
// spec: RT-55
#[case(json!({"format": {"modelFormat": {"name": "safetensors", "version": "1.0.1"}}}), "FormatVersionMismatch")]
#[case(json!({"format": {"modelFormat": {"name": "safetensors", "version": "1"}}}), "")]
#[case(json!({"format": {"modelFramework": {"name": "PyTorch"}}}), "FrameworkMismatch")]
#[case(json!({"format": {"modelFramework": {"name": "transformers", "version": "4.35"}}}), "FrameworkVersionMismatch")]
// spec: RT-56
#[case(json!({"format": {"modelFramework": {"name": "transformers", "version": "4.45", "operator": "GreaterThanOrEqual"}}}), "")]
#[case(json!({"format": {"modelArchitecture": "LlamaForCausalLM"}}), "ArchitectureMismatch")]
// spec: RT-58
#[case(json!({"format": {"quantization": "fp8"}}), "QuantizationMismatch")]
// spec: RT-59
#[case(json!({"range": {"min": "7.1B", "max": "9B"}}), "SizeOutOfRange")]
#[case(json!({"range": {"min": "7B", "max": "7B"}}), "")]
// spec: RT-65
// spec: RT-17
#[case(json!({"format": {"autoSelect": false}}), "AutoSelectDisabled")]
fn rejects_incompatible_runtime(#[case] spec: Value, #[case] expected: &str) {
    let decision = decide(&demand_7b(), &runtimes(&[("a", spec)]), None);
    assert_eq!(rejection_code(&decision, "a"), expected);
}

/// Disabled runtimes serve neither services that name them nor those that name none.
// spec: RT-9
#[rstest]
#[case::disabled(json!({"disabled": true}), false)]
#[case::enabled(json!({"disabled": false}), true)]
#[case::unset(json!({}), true)]
fn disabled_runtime_is_not_used(#[case] spec: Value, #[case] is_used: bool) {
    let named = Demand { runtime: Some("a".to_owned()), ..demand_7b() };
    for demand in [demand_7b(), named] {
        let decision = decide(&demand, &runtimes(&[("a", spec.clone())]), None);
        assert_eq!(
            (decision.feasible, rejection_code(&decision, "a").as_str()),
            (is_used, if is_used { "" } else { "Disabled" })
        );
    }
}

// spec: RT-63
#[test]
fn selects_runtime_by_protocol() {
    let demand = Demand { protocol: "openInference-v2".to_owned(), ..demand_7b() };
    assert_eq!(rejection_code(&decide(&demand, &runtimes(&[("a", json!({}))]), None), "a"), "ProtocolUnsupported");
}

// spec: ACC-29
#[test]
fn terminated_pods_release_accelerators() {
    let pod = |phase: &str, count: u32| {
        let resources = json!({"limits": {"nvidia.com/gpu": count}});
        json!({"spec": {"nodeName": "n", "containers": [{"resources": resources}]}, "status": {"phase": phase}})
    };
    let mut cordoned = node("c", "NVIDIA-L40S", 4);
    cordoned["spec"] = json!({"unschedulable": true});
    let nodes = [node("n", "NVIDIA-L40S", 4), cordoned];
    let infos = inventory::node_infos(&nodes, &[pod("Running", 1), pod("Succeeded", 2)]);
    let l40s = catalog(Some(&infos)).class("nvidia-l40s").unwrap().availability.clone().unwrap();
    assert_eq!(
        (
            l40s.nodes.len(),
            l40s.nodes.iter().filter(|node| node.is_schedulable()).count(),
            l40s.total(),
            l40s.available()
        ),
        (2, 1, 8, 3)
    );
}

#[rstest]
// spec: ACC-37
#[case("Gte", "80Gi", "81559", true)]
#[case("Lt", "80Gi", "81559", false)]
#[case("Lt", "80Gi", "40960", true)]
// spec: ACC-37
#[case::medium("Gte", "32Gi", "40960", true)]
// spec: ACC-37
#[case::not_large("Gte", "80Gi", "40960", false)]
// spec: ACC-37
#[case::large("Gte", "80Gi", "143771", true)]
// spec: ACC-37
#[case::neither("Gte", "32Gi", "15360", false)]
// spec: ACC-36
#[case("Lt", "24Gi", "15360", true)]
#[case("Gt", "5", "7", true)]
fn compares_memory_labels(#[case] operator: &str, #[case] value: &str, #[case] label: &str, #[case] expected: bool) {
    let term = json!({"matchExpressions": [{"key": "nvidia.com/gpu.memory", "operator": operator, "values": [value]}]});
    let labels = BTreeMap::from([("nvidia.com/gpu.memory".to_owned(), label.to_owned())]);
    assert_eq!(nodes::term_matches(&term, &labels), expected);
    // spec: ACC-38
    let discovery = nodes::Discovery { terms: vec![term], ..Default::default() };
    let class = Class { discovery, ..Class::default() };
    let placement = merge::placement::merge_placement(&class, &Default::default(), &Default::default());
    assert_eq!(placement.accepts("n", &labels), expected, "{placement:?}");
    let operators = placement.affinity.to_pod_affinity().unwrap().unwrap().to_string();
    assert!(!operators.contains("Gte") && !operators.contains("Lte"));
}

#[test]
fn counts_replica_slots_per_node() {
    let nodes = [3, 3].map(|free| nodes::ClassNode { free, ..Default::default() });
    let availability = Availability { nodes: nodes.to_vec() };
    assert_eq!(capacity::PoolCapacity::all_nodes(&availability).slots(&capacity::PodShape::accelerators(2)), 2);
}

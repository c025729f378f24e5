//! Tests of class discovery, and of requirements and tuning that runtimes declare for classes.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::fixture::{CLASSES, fixture, selection};
use super::{class, runtime};
use crate::nodes::matches_discovery;
use crate::*;

fn class_with_discovery(discovery: Value) -> Class {
    let spec = json!({"discovery": discovery, "capabilities": {}});
    class(&json!({"metadata": {"name": "c"}, "spec": spec}), None)
}

/// Anybody may write the status.
#[rstest]
#[case::none(0, 1, 2)]
#[case::more_than_named(1_000, 1_000, 1_000)]
#[case::more_than_any_cluster_has(i32::MAX, 10_000, i32::MAX as u32)]
fn number_of_nodes_in_a_status_is_limited(#[case] nodes: i32, #[case] expected: usize, #[case] accelerators: u32) {
    let status = json!({"nodes": ["a"], "availableNodes": nodes, "totalAccelerators": accelerators});
    let availability = Availability::from_status(&serde_json::from_value(status).unwrap());
    assert_eq!(availability.nodes.len(), expected);
    assert_eq!(availability.nodes.iter().map(|node| node.total).sum::<u32>(), accelerators);
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[rstest]
// spec: ACC-15
#[case::all_labels(json!({"nodeSelector": {"a": "1", "b": "2"}}), &[("a", "1"), ("b", "2"), ("c", "3")], true)]
#[case::label_missing(json!({"nodeSelector": {"a": "1", "b": "2"}}), &[("a", "1")], false)]
#[case::other_value(json!({"nodeSelector": {"a": "1", "b": "2"}}), &[("a", "1"), ("b", "3")], false)]
#[case::empty_discovery(json!({}), &[("a", "1")], false)]
// spec: ACC-18
#[case::by_pci_id(
    json!({"pciVendorID": "10de", "deviceIDs": ["20b0", "20b2"]}),
    &[("feature.node.kubernetes.io/pci-0302_10de_20b2.present", "true")], true)]
#[case::pci_without_a_device_class(
    json!({"pciVendorID": "10de", "deviceIDs": ["20B0"]}),
    &[("feature.node.kubernetes.io/pci-10de_20b0.present", "true")], true)]
#[case::other_device(
    json!({"pciVendorID": "10de", "deviceIDs": ["20b0", "20b2"]}),
    &[("feature.node.kubernetes.io/pci-0302_10de_2330.present", "true")], false)]
#[case::other_vendor(
    json!({"pciVendorID": "10de", "deviceIDs": ["20b0"]}),
    &[("feature.node.kubernetes.io/pci-0302_1002_20b0.present", "true")], false)]
#[case::not_present(
    json!({"pciVendorID": "10de", "deviceIDs": ["20b0"]}),
    &[("feature.node.kubernetes.io/pci-0302_10de_20b0.present", "false")], false)]
#[case::vendor_without_device(
    json!({"pciVendorID": "10de"}),
    &[("feature.node.kubernetes.io/pci-0302_10de_20b0.present", "true")], false)]
fn discovery_matches_nodes(#[case] discovery: Value, #[case] node: &[(&str, &str)], #[case] expected: bool) {
    assert_eq!(matches_discovery(&class_with_discovery(discovery).discovery, "n", &labels(node)), expected);
}

// spec: ACC-16
#[rstest]
#[case::is_in("In", &["x", "y"], Some("y"), true)]
#[case::is_not_in("In", &["x", "y"], Some("z"), false)]
#[case::in_without_a_label("In", &["x"], None, false)]
#[case::not_in("NotIn", &["x"], Some("z"), true)]
#[case::not_in_without_a_label("NotIn", &["x"], None, true)]
#[case::not_in_but_is("NotIn", &["x"], Some("x"), false)]
#[case::exists("Exists", &[], Some("x"), true)]
#[case::exists_not("Exists", &[], None, false)]
#[case::does_not_exist("DoesNotExist", &[], None, true)]
#[case::does_not_exist_but_does("DoesNotExist", &[], Some("x"), false)]
#[case::gt("Gt", &["5"], Some("6"), true)]
#[case::gt_equal("Gt", &["5"], Some("5"), false)]
#[case::lt("Lt", &["5"], Some("4"), true)]
#[case::lt_equal("Lt", &["5"], Some("5"), false)]
#[case::gte("Gte", &["5"], Some("5"), true)]
#[case::gte_less("Gte", &["5"], Some("4"), false)]
#[case::lte("Lte", &["5"], Some("5"), true)]
#[case::lte_more("Lte", &["5"], Some("6"), false)]
#[case::gt_without_a_label("Gt", &["5"], None, false)]
#[case::no_number("Lt", &["5"], Some("many"), false)]
#[case::no_operator("Near", &["5"], Some("5"), false)]
fn evaluates_match_expressions(
    #[case] operator: &str,
    #[case] values: &[&str],
    #[case] label: Option<&str>,
    #[case] expected: bool,
) {
    let expression = json!({"key": "k", "operator": operator, "values": values});
    let node: Vec<(&str, &str)> = label.map(|label| ("k", label)).into_iter().collect();
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
    assert_eq!(matches_discovery(&class_with_discovery(terms).discovery, "n", &labels(&node)), expected);
    // All expressions of a term must match; one matching term suffices.
    let exists = |key: &str| json!({"key": key, "operator": "Exists"});
    let conjunction = json!({"nodeSelectorTerms": [{"matchExpressions": [expression, exists("absent")]}]});
    assert!(!matches_discovery(&class_with_discovery(conjunction).discovery, "n", &labels(&node)));
    let alternatives =
        json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}, {"matchExpressions": [exists("present")]}]});
    assert!(matches_discovery(
        &class_with_discovery(alternatives).discovery,
        "n",
        &labels(&[&node[..], &[("present", "")]].concat())
    ));
}

/// The example classes of the specification.
const EXAMPLE_CLASSES: &str = include_str!("../../../plan/src/tests/stories/classes.yaml");

// spec: ACC-17
// spec: ACC-18
#[rstest]
#[case::by_selector("nvidia-a100-40gb", &[("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB")], true)]
#[case::by_term("nvidia-a100-40gb", &[("nvidia.com/gpu.product", "NVIDIA-A100-PCIE-40GB")], true)]
#[case::by_pci_id("nvidia-a100-40gb", &[("feature.node.kubernetes.io/pci-0302_10de_20b0.present", "true")], true)]
#[case::by_neither("nvidia-a100-40gb", &[("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")], false)]
#[case::first_amd_label("amd-mi250x", &[("amd.com/gpu.product", "MI250X")], true)]
#[case::second_amd_label("amd-mi250x", &[("gpu.amd.com/model", "mi250x")], true)]
#[case::other_amd_product("amd-mi250x", &[("amd.com/gpu.product", "MI300X")], false)]
fn discovery_selectors_are_alternatives(#[case] name: &str, #[case] node: &[(&str, &str)], #[case] expected: bool) {
    let fixture = fixture(&[EXAMPLE_CLASSES]);
    assert_eq!(matches_discovery(&fixture.supply.class(name).unwrap().discovery, "n", &labels(node)), expected);
}

// spec: ACC-23
#[rstest]
#[case::specified_names(json!({"fp8TFLOPS": 3958, "fp16TFLOPS": 383.5, "fp32TFLOPS": 47.9, "int8TOPS": 3958}))]
#[case::deployed_names(json!({"fp8Tflops": 3958, "fp16Tflops": 383.5, "fp32Tflops": 47.9, "int8Tops": 3958}))]
fn reads_throughput(#[case] performance: Value) {
    let spec = json!({"discovery": {}, "capabilities": {"performance": performance}});
    let performance = class(&json!({"metadata": {"name": "c"}, "spec": spec}), None).performance;
    let throughput = (performance.fp8, performance.fp16, performance.fp32, performance.int8);
    assert_eq!(throughput, (Some(3958.0), Some(383.5), Some(47.9), Some(3958.0)));
}

const MODEL: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: f}, modelParameterSize: 13B}}";

fn runtime_manifest(kind: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: {kind}, metadata: {{name: a}}, spec: {{supportedModelFormats: [{{modelFormat: {{name: f}}, autoSelect: true}}], {spec}}}}}"
    )
}

fn service(spec: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s}}, spec: {{model: {{name: m}}, {spec}}}}}"
    )
}

/// Returns the evaluation of every class for the only runtime.
fn class_codes(decision: &Decision) -> BTreeMap<&str, &str> {
    let all = decision.candidates.iter().flat_map(|candidate| candidate.accelerators.iter());
    all.map(|candidate| (candidate.class.as_str(), candidate.evaluation.code())).collect()
}

// spec: ACC-62
#[rstest]
#[case::no_requirements("acceleratorRequirements: {}", ["Eligible", "Eligible", "Eligible"])]
#[case::classes("acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb]}", ["Eligible", "NotSupportedByRuntime", "NotSupportedByRuntime"])]
#[case::capabilities("acceleratorRequirements: {requiredCapabilities: {computeCapability: \"9.0\"}}", ["ComputeCapabilityTooLow", "Eligible", "ComputeCapabilityTooLow"])]
#[case::preferences("acceleratorRequirements: {preferenceOrder: [{class: nvidia-t4, score: 1}]}", ["Eligible", "Eligible", "Eligible"])]
#[case::all("acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb, nvidia-t4], requiredCapabilities: {memoryGB: 40}, preferenceOrder: [{class: nvidia-a100-40gb, score: 100}]}", ["Eligible", "NotSupportedByRuntime", "InsufficientMemory"])]
fn applies_both_requirement_styles(#[case] requirements: &str, #[case] expected: [&str; 3]) {
    for kind in ["ServingRuntime", "ClusterServingRuntime"] {
        let decide =
            |spec: &str| fixture(&[CLASSES, MODEL, &runtime_manifest(kind, &format!("{spec}{requirements}"))]).decide();
        let decision = decide("");
        let codes = class_codes(&decision);
        assert_eq!(["nvidia-a100-40gb", "nvidia-h100-80gb", "nvidia-t4"].map(|name| codes[name]), expected, "{kind}");
        // Other fields are still evaluated.
        let code = |spec: &str| decide(spec).candidates[0].rejected.as_ref().map(|rejection| rejection.code().as_str());
        assert_eq!(code("disabled: true, "), Some("Disabled"));
        assert_eq!(code("modelSizeRange: {max: 7B}, "), Some("SizeOutOfRange"));
        let with_decoder = decide("routerConfig: {}, engineConfig: {}, decoderConfig: {}, ");
        assert_eq!(with_decoder.components.keys().collect::<Vec<_>>(), ["decoder", "engine"]);
    }
}

// spec: ACC-63
#[rstest]
#[case::first_is_higher(90, 10, "nvidia-t4")]
#[case::second_is_higher(10, 90, "nvidia-h100-80gb")]
#[case::bounds(0, 100, "nvidia-h100-80gb")]
fn prefers_higher_score(#[case] t4: i32, #[case] h100: i32, #[case] expected: &str) {
    let spec = format!(
        "acceleratorRequirements: {{preferenceOrder: [{{class: nvidia-t4, score: {t4}}}, {{class: nvidia-h100-80gb, score: {h100}}}]}}"
    );
    let decision = fixture(&[CLASSES, MODEL, &runtime_manifest("ClusterServingRuntime", &spec)]).decide();
    assert_eq!(selection(&decision).1, expected);
}

// spec: ACC-64
#[rstest]
#[case::less("[{modelSize: \"<30B\"}]", true)]
#[case::not_less("[{modelSize: \"<13B\"}]", false)]
#[case::more("[{modelSize: \">7B\"}]", true)]
#[case::not_more("[{modelSize: \">70B\"}]", false)]
#[case::list_is_or("[{modelSize: \">70B\"}, {modelSize: \"<30B\"}]", true)]
#[case::map_is_and("[{modelSize: \"<30B\", requestSize: \"<2048\"}]", true)]
#[case::and_fails("[{modelSize: \">70B\", requestSize: \"<2048\"}]", false)]
#[case::prompts("[{requestSize: \">4096\"}]", true)]
#[case::unconditional("[]", true)]
fn evaluates_preference_conditions(#[case] conditions: &str, #[case] holds: bool) {
    let spec = format!(
        "acceleratorRequirements: {{preferenceOrder: [{{class: nvidia-t4, score: 50, conditions: {conditions}}}, {{class: nvidia-a100-40gb, score: 1}}]}}"
    );
    let decision = fixture(&[CLASSES, MODEL, &runtime_manifest("ClusterServingRuntime", &spec)]).decide();
    assert_eq!(selection(&decision).1, if holds { "nvidia-t4" } else { "nvidia-a100-40gb" });
}

// spec: ACC-64
#[rstest]
#[case(json!({"modelSize": "30B"}), "modelSize")]
#[case(json!({"modelSize": "<30Bx"}), "modelSize")]
#[case(json!({"requestSize": "< many"}), "requestSize")]
#[case(json!({"requestSize": ""}), "requestSize")]
#[case(json!({"modelsize": "<30B"}), "modelsize")]
fn rejects_invalid_conditions(#[case] condition: Value, #[case] key: &str) {
    let order = json!([{"class": "a", "score": 1}, {"class": "b", "score": 1, "conditions": [{"modelSize": "<9B"}, condition]}]);
    let spec = serde_json::from_value(json!({"acceleratorRequirements": {"preferenceOrder": order}})).unwrap();
    let error = Runtime::from_api("a", Scope::Cluster, "", None, &spec).unwrap_err();
    assert_eq!(error.path, format!("spec.acceleratorRequirements.preferenceOrder[1].conditions[1].{key}"));
}

// spec: ACC-61
#[test]
fn applies_only_the_entry_of_the_selected_class() {
    let entries = json!([
        {"selector": {"acceleratorClass": "nvidia-a100-40gb"}, "env": [{"name": "A", "value": "1"}]},
        {"selector": {"acceleratorClass": "nvidia-h100-80gb"}, "env": [{"name": "H", "value": "1"}],
         "resources": {"limits": {"cpu": "8"}}, "runner": {"args": ["--h"]}},
    ]);
    let object = json!({"kind": "ClusterServingRuntime", "metadata": {"name": "a"}, "spec": {"acceleratorConfigurations": entries}});
    let configurations = runtime(&object).configurations;
    let merge_for = |class: &str| merge::merge_configurations(class, &[configurations.as_slice()]);
    let h100 = merge_for("nvidia-h100-80gb");
    assert_eq!(h100.env, [json!({"name": "H", "value": "1"})]);
    assert_eq!((&h100.resources["limits"]["cpu"], &h100.runner["args"]), (&json!("8"), &json!(["--h"])));
    assert_eq!(merge_for("nvidia-a100-40gb").env, [json!({"name": "A", "value": "1"})]);
    assert_eq!(merge_for("nvidia-t4"), ClassConfiguration { class: "nvidia-t4".to_owned(), ..Default::default() });
    // A class without a configuration is eligible.
    let spec = format!("acceleratorConfigurations: {entries}");
    let preferring_service = service("acceleratorSelector: {preferredClasses: [nvidia-t4]}");
    let decision =
        fixture(&[CLASSES, MODEL, &runtime_manifest("ClusterServingRuntime", &spec), &preferring_service]).decide();
    assert_eq!(selection(&decision).1, "nvidia-t4");
    // Both `selector` and the class in it are required.
    for entry in [json!({"env": []}), json!({"selector": {}})] {
        assert!(serde_json::from_value::<api::ome::AcceleratorConfiguration>(entry).is_err());
    }
}

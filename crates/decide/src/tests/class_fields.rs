//! Which nodes a class's discovery means, and what requirements and tuning of a runtime say about classes.

use std::collections::BTreeMap;

use rstest::rstest;
use serde_json::{Value, json};

use super::fixture::{CLASSES, chosen, world};
use super::{class, runtime};
use crate::nodes::matches_discovery;
use crate::*;

fn of(discovery: Value) -> Class {
    let spec = json!({"discovery": discovery, "capabilities": {}});
    class(&json!({"metadata": {"name": "c"}, "spec": spec}), None)
}

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[rstest]
// spec: ACC-15
#[case::every_label(json!({"nodeSelector": {"a": "1", "b": "2"}}), &[("a", "1"), ("b", "2"), ("c", "3")], true)]
#[case::one_missing(json!({"nodeSelector": {"a": "1", "b": "2"}}), &[("a", "1")], false)]
#[case::another_value(json!({"nodeSelector": {"a": "1", "b": "2"}}), &[("a", "1"), ("b", "3")], false)]
#[case::nothing_stated(json!({}), &[("a", "1")], false)]
// spec: ACC-18
#[case::by_pci_id(
    json!({"pciVendorID": "10de", "deviceIDs": ["20b0", "20b2"]}),
    &[("feature.node.kubernetes.io/pci-0302_10de_20b2.present", "true")], true)]
#[case::pci_without_a_device_class(
    json!({"pciVendorID": "10de", "deviceIDs": ["20B0"]}),
    &[("feature.node.kubernetes.io/pci-10de_20b0.present", "true")], true)]
#[case::another_device(
    json!({"pciVendorID": "10de", "deviceIDs": ["20b0", "20b2"]}),
    &[("feature.node.kubernetes.io/pci-0302_10de_2330.present", "true")], false)]
#[case::another_vendor(
    json!({"pciVendorID": "10de", "deviceIDs": ["20b0"]}),
    &[("feature.node.kubernetes.io/pci-0302_1002_20b0.present", "true")], false)]
#[case::not_present(
    json!({"pciVendorID": "10de", "deviceIDs": ["20b0"]}),
    &[("feature.node.kubernetes.io/pci-0302_10de_20b0.present", "false")], false)]
#[case::the_vendor_alone_names_no_device(
    json!({"pciVendorID": "10de"}),
    &[("feature.node.kubernetes.io/pci-0302_10de_20b0.present", "true")], false)]
fn nodes_of_a_class(#[case] discovery: Value, #[case] node: &[(&str, &str)], #[case] expect: bool) {
    assert_eq!(matches_discovery(&of(discovery).discovery, "n", &labels(node)), expect);
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
fn an_expression(#[case] operator: &str, #[case] values: &[&str], #[case] label: Option<&str>, #[case] expect: bool) {
    let expression = json!({"key": "k", "operator": operator, "values": values});
    let node: Vec<(&str, &str)> = label.map(|label| ("k", label)).into_iter().collect();
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]});
    assert_eq!(matches_discovery(&of(terms).discovery, "n", &labels(&node)), expect);
    // Within a term all expressions hold; of several terms one suffices.
    let more = |key: &str| json!({"key": key, "operator": "Exists"});
    let both = json!({"nodeSelectorTerms": [{"matchExpressions": [expression, more("absent")]}]});
    assert!(!matches_discovery(&of(both).discovery, "n", &labels(&node)));
    let either =
        json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}, {"matchExpressions": [more("there")]}]});
    assert!(matches_discovery(&of(either).discovery, "n", &labels(&[&node[..], &[("there", "")]].concat())));
}

/// The example classes as the specification prints them.
const PRINTED: &str = include_str!("../../../plan/src/tests/stories/classes.yaml");

// spec: ACC-17
// spec: ACC-18
#[rstest]
#[case::by_the_selector("nvidia-a100-40gb", &[("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-40GB")], true)]
#[case::by_a_term("nvidia-a100-40gb", &[("nvidia.com/gpu.product", "NVIDIA-A100-PCIE-40GB")], true)]
#[case::by_pci_id("nvidia-a100-40gb", &[("feature.node.kubernetes.io/pci-0302_10de_20b0.present", "true")], true)]
#[case::by_neither("nvidia-a100-40gb", &[("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3")], false)]
#[case::one_label_of_amd("amd-mi250x", &[("amd.com/gpu.product", "MI250X")], true)]
#[case::the_other_label_of_amd("amd-mi250x", &[("gpu.amd.com/model", "mi250x")], true)]
#[case::not_of_amd("amd-mi250x", &[("amd.com/gpu.product", "MI300X")], false)]
fn ways_of_discovery_are_alternatives(#[case] name: &str, #[case] node: &[(&str, &str)], #[case] expect: bool) {
    let world = world(&[PRINTED]);
    assert_eq!(matches_discovery(&world.supply.class(name).unwrap().discovery, "n", &labels(node)), expect);
}

// spec: ACC-23
#[rstest]
#[case::specified(json!({"fp8TFLOPS": 3958, "fp16TFLOPS": 383.5, "fp32TFLOPS": 47.9, "int8TOPS": 3958}))]
#[case::deployed(json!({"fp8Tflops": 3958, "fp16Tflops": 383.5, "fp32Tflops": 47.9, "int8Tops": 3958}))]
fn throughput(#[case] stated: Value) {
    let spec = json!({"discovery": {}, "capabilities": {"performance": stated}});
    let performance = class(&json!({"metadata": {"name": "c"}, "spec": spec}), None).performance;
    let seen = (performance.fp8, performance.fp16, performance.fp32, performance.int8);
    assert_eq!(seen, (Some(3958.0), Some(383.5), Some(47.9), Some(3958.0)));
}

const MODEL: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: f}, modelParameterSize: 13B}}";

fn offered(kind: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: {kind}, metadata: {{name: a}}, spec: {{supportedModelFormats: [{{modelFormat: {{name: f}}, autoSelect: true}}], {spec}}}}}"
    )
}

fn service(spec: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s}}, spec: {{model: {{name: m}}, {spec}}}}}"
    )
}

/// Class and verdict of every class for the only runtime.
fn verdicts(decision: &Decision) -> BTreeMap<&str, &str> {
    let all = decision.candidates.iter().flat_map(|candidate| candidate.accelerators.iter());
    all.map(|one| (one.class.as_str(), one.evaluation.code())).collect()
}

// spec: ACC-62
#[rstest]
#[case::nothing("acceleratorRequirements: {}", ["Eligible", "Eligible", "Eligible"])]
#[case::classes("acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb]}", ["Eligible", "NotSupportedByRuntime", "NotSupportedByRuntime"])]
#[case::capabilities("acceleratorRequirements: {requiredCapabilities: {computeCapability: \"9.0\"}}", ["ComputeCapabilityTooLow", "Eligible", "ComputeCapabilityTooLow"])]
#[case::preferences("acceleratorRequirements: {preferenceOrder: [{class: nvidia-t4, score: 1}]}", ["Eligible", "Eligible", "Eligible"])]
#[case::all("acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb, nvidia-t4], requiredCapabilities: {memoryGB: 40}, preferenceOrder: [{class: nvidia-a100-40gb, score: 100}]}", ["Eligible", "NotSupportedByRuntime", "InsufficientMemory"])]
fn requirements_of_both_kinds(#[case] requirements: &str, #[case] expect: [&str; 3]) {
    for kind in ["ServingRuntime", "ClusterServingRuntime"] {
        let decide = |spec: &str| world(&[CLASSES, MODEL, &offered(kind, &format!("{spec}{requirements}"))]).decide();
        let decision = decide("");
        let seen = verdicts(&decision);
        assert_eq!(["nvidia-a100-40gb", "nvidia-h100-80gb", "nvidia-t4"].map(|name| seen[name]), expect, "{kind}");
        // The fields beside it keep their meaning.
        let code = |spec: &str| decide(spec).candidates[0].rejected.as_ref().map(|one| one.code().to_owned());
        assert_eq!(code("disabled: true, ").as_deref(), Some("Disabled"));
        assert_eq!(code("modelSizeRange: {max: 7B}, ").as_deref(), Some("SizeOutOfRange"));
        let parts = decide("routerConfig: {}, engineConfig: {}, decoderConfig: {}, ");
        assert_eq!(parts.components.keys().collect::<Vec<_>>(), ["decoder", "engine"]);
    }
}

// spec: ACC-63
#[rstest]
#[case::the_higher(90, 10, "nvidia-t4")]
#[case::the_other_way(10, 90, "nvidia-h100-80gb")]
#[case::the_bounds(0, 100, "nvidia-h100-80gb")]
fn a_higher_score_is_better(#[case] t4: i32, #[case] h100: i32, #[case] expect: &str) {
    let spec = format!(
        "acceleratorRequirements: {{preferenceOrder: [{{class: nvidia-t4, score: {t4}}}, {{class: nvidia-h100-80gb, score: {h100}}}]}}"
    );
    let decision = world(&[CLASSES, MODEL, &offered("ClusterServingRuntime", &spec)]).decide();
    assert_eq!(chosen(&decision).1, expect);
}

// spec: ACC-64
#[rstest]
#[case::less("[{modelSize: \"<30B\"}]", true)]
#[case::not_less("[{modelSize: \"<13B\"}]", false)]
#[case::more("[{modelSize: \">7B\"}]", true)]
#[case::not_more("[{modelSize: \">70B\"}]", false)]
#[case::a_list_is_or("[{modelSize: \">70B\"}, {modelSize: \"<30B\"}]", true)]
#[case::a_map_is_and("[{modelSize: \"<30B\", requestSize: \"<2048\"}]", true)]
#[case::and_fails("[{modelSize: \">70B\", requestSize: \"<2048\"}]", false)]
#[case::prompts("[{requestSize: \">4096\"}]", true)]
#[case::unconditional("[]", true)]
fn conditions_of_a_preference(#[case] conditions: &str, #[case] holds: bool) {
    let spec = format!(
        "acceleratorRequirements: {{preferenceOrder: [{{class: nvidia-t4, score: 50, conditions: {conditions}}}, {{class: nvidia-a100-40gb, score: 1}}]}}"
    );
    let decision = world(&[CLASSES, MODEL, &offered("ClusterServingRuntime", &spec)]).decide();
    assert_eq!(chosen(&decision).1, if holds { "nvidia-t4" } else { "nvidia-a100-40gb" });
}

// spec: ACC-64
#[rstest]
#[case(json!({"modelSize": "30B"}), "modelSize")]
#[case(json!({"modelSize": "<30Bx"}), "modelSize")]
#[case(json!({"requestSize": "< many"}), "requestSize")]
#[case(json!({"requestSize": ""}), "requestSize")]
#[case(json!({"modelsize": "<30B"}), "modelsize")]
fn what_is_no_condition_is_an_error(#[case] condition: Value, #[case] key: &str) {
    let order = json!([{"class": "a", "score": 1}, {"class": "b", "score": 1, "conditions": [{"modelSize": "<9B"}, condition]}]);
    let spec = serde_json::from_value(json!({"acceleratorRequirements": {"preferenceOrder": order}})).unwrap();
    let error = Runtime::from_api("a", Scope::Cluster, "", None, &spec).unwrap_err();
    assert_eq!(error.path, format!("spec.acceleratorRequirements.preferenceOrder[1].conditions[1].{key}"));
}

// spec: ACC-61
#[test]
fn only_the_entry_of_the_selected_class_applies() {
    let entries = json!([
        {"selector": {"acceleratorClass": "nvidia-a100-40gb"}, "env": [{"name": "A", "value": "1"}]},
        {"selector": {"acceleratorClass": "nvidia-h100-80gb"}, "env": [{"name": "H", "value": "1"}],
         "resources": {"limits": {"cpu": "8"}}, "runner": {"args": ["--h"]}},
    ]);
    let object = json!({"kind": "ClusterServingRuntime", "metadata": {"name": "a"}, "spec": {"acceleratorConfigurations": entries}});
    let configurations = runtime(&object).configurations;
    let of = |class: &str| merge::merge_configurations(class, &[configurations.as_slice()]);
    let h100 = of("nvidia-h100-80gb");
    assert_eq!(h100.env, [json!({"name": "H", "value": "1"})]);
    assert_eq!((&h100.resources["limits"]["cpu"], &h100.runner["args"]), (&json!("8"), &json!(["--h"])));
    assert_eq!(of("nvidia-a100-40gb").env, [json!({"name": "A", "value": "1"})]);
    assert_eq!(of("nvidia-t4"), merge::ClassConfiguration { class: "nvidia-t4".to_owned(), ..Default::default() });
    // The class without an entry stays eligible.
    let spec = format!("acceleratorConfigurations: {entries}");
    let wanted = service("acceleratorSelector: {preferredClasses: [nvidia-t4]}");
    let decision = world(&[CLASSES, MODEL, &offered("ClusterServingRuntime", &spec), &wanted]).decide();
    assert_eq!(chosen(&decision).1, "nvidia-t4");
    // The selector is required, and so is its class.
    for entry in [json!({"env": []}), json!({"selector": {}})] {
        assert!(serde_json::from_value::<api::ome::AcceleratorConfiguration>(entry).is_err());
    }
}

//! More regression tests for defects of the deployed system; see the table in `upstream`.

use rstest::rstest;

use super::fixture::{fixture, selection};
use super::upstream::{ANY, MODEL, ON_ANY_CLASS, decide_manifests, rejection, runtime, service};
use crate::*;

/// Returns a class for nodes `{gpu: NAME}` with unknown availability.
fn class(name: &str, rest: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {{name: {name}}}, spec: {{vendor: nvidia, discovery: {{nodeSelector: {{gpu: {name}}}}}, {rest}}}}}"
    )
}

/// Returns the ranking of classes for a 7B model with the given fields.
fn ranked_classes(classes: &[&str], model: &str, spec: &str) -> Vec<String> {
    let any = runtime("a", ON_ANY_CLASS).replace("features: [tensor-cores]", "memoryGB: 1");
    let service = service(spec);
    let documents = [classes, &[model, &any, &service]].concat();
    let decision = fixture(&[&documents.join("\n---\n")]).decide();
    let ranked = decision.candidates[0].accelerators.iter().filter(|candidate| candidate.rank.is_some());
    ranked.map(|candidate| candidate.class.clone()).collect()
}

// 0.5: versions were compared as text, so "10.0" was older than "9.0".
// spec: ACC-20
#[rstest]
#[case("9.0", "10.0", true)]
#[case("8.0", "12.0", true)]
#[case("10.0", "9.0", false)]
fn compares_capabilities_as_numbers(#[case] minimum: &str, #[case] declared: &str, #[case] eligible: bool) {
    let class = class("a", &format!("capabilities: {{memoryGB: 80, computeCapability: \"{declared}\"}}"));
    let selector = format!("acceleratorSelector: {{constraints: {{minArchitectureVersion: \"{minimum}\"}}}}");
    assert_eq!(ranked_classes(&[&class], MODEL, &selector).len(), usize::from(eligible));
}

// 2.4: sizes in lower case, with a space or in thousands were parsed as zero and matched every range that starts at 0.
// spec: RT-21
#[rstest]
#[case("7b", "")]
#[case("7 B", "")]
#[case("7000M", "")]
#[case("7000000K", "")]
#[case("500K", "SizeOutOfRange: the model has 500K parameters; the runtime supports 5B–9B")]
fn parses_sizes(#[case] written: &str, #[case] expected: &str) {
    let model = MODEL.replace("7B", &format!("\"{written}\""));
    let bounded = runtime("a", &format!("{ANY}, modelSizeRange: {{min: 5B, max: 9B}}"));
    assert_eq!(rejection(&decide_manifests(&[&model, &bounded]), "a"), expected);
}

// 2.5: an entry without autoSelect was scored as if autoSelect were set, and name weights outranked priorities.
// spec: RT-65
#[test]
fn missing_auto_select_is_false() {
    let auto_select_unset = runtime("a", "supportedModelFormats: [{modelFormat: {name: safetensors}}]");
    assert_eq!(
        rejection(&decide_manifests(&[MODEL, &auto_select_unset]), "a").split(':').next(),
        Some("AutoSelectDisabled")
    );
    let weighted = runtime(
        "a",
        "supportedModelFormats: [{modelFormat: {name: safetensors, weight: 100}, autoSelect: true, priority: 1}]",
    );
    let preferred = runtime(
        "b",
        "supportedModelFormats: [{modelFormat: {name: safetensors, weight: 1}, autoSelect: true, priority: 2}]",
    );
    assert_eq!(selection(&decide_manifests(&[MODEL, &weighted, &preferred])).0, "b");
}

// 2.6: the message named the format instead of the model, and omitted runtimes rejected only because autoSelect is
// unset.
#[test]
fn message_names_model_and_runtime() {
    let (off, other) = (
        runtime("quiet", "supportedModelFormats: [{modelFormat: {name: safetensors}}]"),
        runtime("other", "supportedModelFormats: [{modelFormat: {name: onnx}, autoSelect: true}]"),
    );
    let message = decide_manifests(&[MODEL, &off, &other]).message;
    assert_eq!(message, decide_manifests(&[MODEL, &other, &off]).message);
    assert_eq!(
        message,
        "None of 2 runtimes can serve model m; the closest is quiet: AutoSelectDisabled: the runtime matches, but autoSelect is off; set spec.runtime.name to use it"
    );
}

// 3: FP8 throughput was read from INT8.
// spec: ACC-77
#[test]
fn distinguishes_fp8_from_int8() {
    let class_with_throughput = |name: &str, fp8: u32, int8: u32| {
        class(
            name,
            &format!(
                "capabilities: {{memoryGB: 80, memoryBandwidthGBps: 1000, performance: {{fp8TFLOPS: {fp8}, int8TOPS: {int8}}}}}"
            ),
        )
    };
    let (a, b) = (class_with_throughput("a", 500, 2000), class_with_throughput("b", 1000, 100));
    let quantized = MODEL.replace("modelParameterSize", "quantization: fp8, modelParameterSize");
    let any = runtime("a", ON_ANY_CLASS)
        .replace("features: [tensor-cores]", "memoryGB: 1")
        .replace("autoSelect: true", "quantization: fp8, autoSelect: true");
    let fastest = service("acceleratorSelector: {strategy: performance}");
    let decision = fixture(&[&[a, b, quantized, any, fastest].join("\n---\n")]).decide();
    assert_eq!(selection(&decision).1, "b");
}

// 3: the spot price of one class was compared with the on-demand price of another; unpriced classes were dropped silently,
// and ties were resolved arbitrarily.
// spec: ACC-78
#[rstest]
#[case::on_demand("perHour: 5, spotPerHour: 1", "perHour: 3", &["b", "a"])]
#[case::unpriced_ranks_last("tier: low", "perHour: 9", &["b", "a"])]
#[case::no_prices("tier: \"\"", "tier: \"\"", &["a", "b"])]
#[case::equal_prices_by_name("perHour: 3", "perHour: 3", &["a", "b"])]
fn cheapest_policy_compares_prices(#[case] a: &str, #[case] b: &str, #[case] expected: &[&str]) {
    let class_with_cost =
        |name: &str, cost: &str| class(name, &format!("capabilities: {{memoryGB: 80}}, cost: {{{cost}}}"));
    let (a, b) = (class_with_cost("a", a), class_with_cost("b", b));
    for classes in [[&a[..], &b[..]], [&b, &a]] {
        assert_eq!(ranked_classes(&classes, MODEL, "acceleratorSelector: {policy: Cheapest}"), expected);
    }
}

// 3: a class contained every node with enough host memory, including cordoned ones; a class without a selector
// contained all nodes.
// spec: ACC-29
#[test]
fn class_nodes_match_discovery() {
    let node = |name: &str, rest: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{gpu: one}}}}, {rest}status: {{allocatable: {{nvidia.com/gpu: 8, memory: 4Gi}}}}}}"
        )
    };
    let class_one = class("one", "capabilities: {memoryGB: 80Gi}");
    let class_without_selector =
        class("none", "capabilities: {memoryGB: 80Gi}").replace("nodeSelector: {gpu: none}", "");
    let (small, cordoned) = (node("small", ""), node("cordoned", "spec: {unschedulable: true}, "));
    let fixture = fixture(&[&[class_one, class_without_selector, small, cordoned].join("\n---\n")]);
    let availability = |name: &str| fixture.supply.class(name).unwrap().availability.clone().unwrap();
    assert_eq!((availability("one").nodes.len(), availability("one").available()), (2, 8));
    assert!(availability("none").nodes.is_empty());
}

// 4: the quantity "1" per accelerator in a class replaced a request for eight accelerators; parallelism sizes only
// replaced existing flags, and data parallelism was never set.
// spec: ACC-83
#[rstest]
#[case::resources("engineConfig: {runner: {image: i, resources: {limits: {nvidia.com/gpu: 8}}}}", "", 8)]
#[case::tensor("engineConfig: {runner: {image: i}}", "tensorParallelSize: 4", 4)]
#[case::overrides_flag("engineConfig: {runner: {image: i, args: [--tp=1]}}", "tensorParallelSize: 4", 4)]
#[case::data("engineConfig: {runner: {image: i}}", "tensorParallelSize: 2, dataParallelSize: 2", 4)]
#[case::pipeline("engineConfig: {runner: {image: i}}", "tensorParallelSize: 2, pipelineParallelSize: 4", 8)]
fn computes_accelerator_counts(#[case] engine: &str, #[case] sizes: &str, #[case] expected: u32) {
    let tuned = format!(
        "acceleratorConfig: {{nvidia-h100-80gb: {{tensorParallelismOverride: {{{sizes}}}}}}}, autoSelect: true"
    );
    let tuned = if sizes.is_empty() { "autoSelect: true".to_owned() } else { tuned };
    let runtime = runtime("a", &format!("{ON_ANY_CLASS}, {engine}")).replace("autoSelect: true", &tuned);
    let on_h100 = service("acceleratorSelector: {acceleratorClass: nvidia-h100-80gb}");
    assert_eq!(selection(&decide_manifests(&[MODEL, &runtime, &on_h100])).2, expected);
}

// 4: tuning variables were rendered in hash map order, which restarted Pods although nothing had changed.
// spec: ACC-95
#[test]
fn tuning_has_a_stable_order() {
    let text = r#"{"supportedModelFormats": [{"modelFormat": {"name": "x"}, "acceleratorConfig": {"c": {"environmentOverride": {"Z": "1", "A": "2", "M": "3"}}}}]}"#;
    let spec = serde_json::from_str(text).unwrap();
    let runtime = Runtime::from_api("r", Scope::Cluster, "", None, &spec).unwrap();
    let names: Vec<&str> =
        runtime.formats[0].configurations[0].env.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["A", "M", "Z"]);
}

/// Among runtimes that require missing model fields, the nearest is the one that would be eligible with these fields.
#[test]
fn nearest_runtime_with_missing_model_fields() {
    let runtime_requiring = |name: &str, architecture: &str, max: &str| {
        let entry = format!(
            "supportedModelFormats: [{{modelFormat: {{name: safetensors, version: 1.0.0}}, modelArchitecture: {architecture}, autoSelect: true}}], modelSizeRange: {{min: 1B, max: {max}}}"
        );
        runtime(name, &entry)
    };
    let (other, small, matching) = (
        runtime_requiring("a", "Qwen2ForCausalLM", "9B"),
        runtime_requiring("b", "LlamaForCausalLM", "2B"),
        runtime_requiring("c", "LlamaForCausalLM", "9B"),
    );
    let closest = |runtimes: &[&str]| decide_manifests(&[&[MODEL], runtimes].concat()).candidates[0].runtime.clone();
    assert_eq!(closest(&[&other, &small, &matching]), "c");
    assert_eq!(closest(&[&other, &small]), "b");
    // Missing fields do not make a runtime for another model the nearest one.
    let rejection = |runtime: &str| {
        let rejection = decide_manifests(&[MODEL, runtime]).candidates[0].rejected.clone().unwrap();
        format!("{}: {rejection}", rejection.code())
    };
    let missing = "FormatVersionMismatch: the model does not set fields that the runtime requires: spec.modelFormat.version: \"1.0.0\"";
    assert_eq!(rejection(&matching), missing);
    let next = "in addition, ArchitectureMismatch: the model has architecture LlamaForCausalLM; the runtime supports Qwen2ForCausalLM";
    assert_eq!(rejection(&other), format!("{missing}; {next}"));
    assert_eq!(
        rejection(&small),
        format!("{missing}; in addition, SizeOutOfRange: the model has 7B parameters; the runtime supports 1B–2B")
    );
}

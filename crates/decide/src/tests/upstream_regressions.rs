//! More defects of the deployed system; the table stands in `upstream`.

use rstest::rstest;

use super::fixture::{chosen, world};
use super::upstream::{ANY, MODEL, ON_ANY_CLASS, decided, rejection, runtime, service};
use crate::*;

/// A class of its own for nodes `{gpu: NAME}`, on which nothing is known of nodes.
fn class(name: &str, rest: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {{name: {name}}}, spec: {{vendor: nvidia, discovery: {{nodeSelector: {{gpu: {name}}}}}, {rest}}}}}"
    )
}

/// The classes' order for a 7B model, with the model's own facts.
fn ranked(classes: &[&str], model: &str, spec: &str) -> Vec<String> {
    let any = runtime("a", ON_ANY_CLASS).replace("features: [tensor-cores]", "memoryGB: 1");
    let asked = service(spec);
    let documents = [classes, &[model, &any, &asked]].concat();
    let decision = world(&[&documents.join("\n---\n")]).decide();
    let ranked = decision.candidates[0].accelerators.iter().filter(|one| one.rank.is_some());
    ranked.map(|one| one.class.clone()).collect()
}

// 0.5: "10.0" was older than "9.0", as text is.
// spec: ACC-20
#[rstest]
#[case("9.0", "10.0", true)]
#[case("8.0", "12.0", true)]
#[case("10.0", "9.0", false)]
fn capabilities_are_numbers(#[case] least: &str, #[case] offered: &str, #[case] eligible: bool) {
    let one = class("one", &format!("capabilities: {{memoryGB: 80, computeCapability: \"{offered}\"}}"));
    let asked = format!("acceleratorSelector: {{constraints: {{minArchitectureVersion: \"{least}\"}}}}");
    assert_eq!(ranked(&[&one], MODEL, &asked).len(), usize::from(eligible));
}

// 2.4: sizes in small letters, with a blank or in thousands were zero, and fitted every runtime from 0 on.
// spec: RT-21
#[rstest]
#[case("7b", "")]
#[case("7 B", "")]
#[case("7000M", "")]
#[case("7000000K", "")]
#[case("500K", "SizeOutOfRange: the model has 500K parameters; the runtime supports 5B–9B")]
fn sizes(#[case] written: &str, #[case] expect: &str) {
    let model = MODEL.replace("7B", &format!("\"{written}\""));
    let bounded = runtime("a", &format!("{ANY}, modelSizeRange: {{min: 5B, max: 9B}}"));
    assert_eq!(rejection(&decided(&[&model, &bounded]), "a"), expect);
}

// 2.5: an entry that does not say autoSelect was scored as if it did; weights of names outranked priorities.
// spec: RT-65
#[test]
fn unset_is_off() {
    let unset = runtime("a", "supportedModelFormats: [{modelFormat: {name: safetensors}}]");
    assert_eq!(rejection(&decided(&[MODEL, &unset]), "a").split(':').next(), Some("AutoSelectDisabled"));
    let weighty = runtime(
        "a",
        "supportedModelFormats: [{modelFormat: {name: safetensors, weight: 100}, autoSelect: true, priority: 1}]",
    );
    let preferred = runtime(
        "b",
        "supportedModelFormats: [{modelFormat: {name: safetensors, weight: 1}, autoSelect: true, priority: 2}]",
    );
    assert_eq!(chosen(&decided(&[MODEL, &weighty, &preferred])).0, "b");
}

// 2.6: the message named the format instead of the model, and left out runtimes that only lack autoSelect.
#[test]
fn the_message_names_model_and_runtime() {
    let (off, other) = (
        runtime("quiet", "supportedModelFormats: [{modelFormat: {name: safetensors}}]"),
        runtime("other", "supportedModelFormats: [{modelFormat: {name: onnx}, autoSelect: true}]"),
    );
    let message = decided(&[MODEL, &off, &other]).message;
    assert_eq!(message, decided(&[MODEL, &other, &off]).message);
    assert_eq!(
        message,
        "None of 2 runtimes can serve model m; the closest is quiet: AutoSelectDisabled: the runtime matches, but autoSelect is off; set spec.runtime.name to use it"
    );
}

// 3: fp8 throughput was read from int8.
// spec: ACC-77
#[test]
fn fp8_is_not_int8() {
    let of = |name: &str, fp8: u32, int8: u32| {
        class(
            name,
            &format!(
                "capabilities: {{memoryGB: 80, memoryBandwidthGBps: 1000, performance: {{fp8TFLOPS: {fp8}, int8TOPS: {int8}}}}}"
            ),
        )
    };
    let (a, b) = (of("a", 500, 2000), of("b", 1000, 100));
    let quantized = MODEL.replace("modelParameterSize", "quantization: fp8, modelParameterSize");
    let any = runtime("a", ON_ANY_CLASS)
        .replace("features: [tensor-cores]", "memoryGB: 1")
        .replace("autoSelect: true", "quantization: fp8, autoSelect: true");
    let fastest = service("acceleratorSelector: {strategy: performance}");
    let decision = world(&[&[a, b, quantized, any, fastest].join("\n---\n")]).decide();
    assert_eq!(chosen(&decision).1, "b");
}

// 3: the spot price of one class was compared with another's price on demand; unpriced classes were dropped silently, and
// of equal ones an arbitrary one was taken.
// spec: ACC-78
#[rstest]
#[case::on_demand("perHour: 5, spotPerHour: 1", "perHour: 3", &["b", "a"])]
#[case::unpriced_comes_last("tier: low", "perHour: 9", &["b", "a"])]
#[case::none_has_a_price("tier: \"\"", "tier: \"\"", &["a", "b"])]
#[case::equal_ones_by_name("perHour: 3", "perHour: 3", &["a", "b"])]
fn cheapest(#[case] a: &str, #[case] b: &str, #[case] expect: &[&str]) {
    let of = |name: &str, cost: &str| class(name, &format!("capabilities: {{memoryGB: 80}}, cost: {{{cost}}}"));
    let (a, b) = (of("a", a), of("b", b));
    for classes in [[&a[..], &b[..]], [&b, &a]] {
        assert_eq!(ranked(&classes, MODEL, "acceleratorSelector: {policy: Cheapest}"), expect);
    }
}

// 3: a class had every node whose host memory was large enough, also cordoned ones; one without a selector had all.
// spec: ACC-29
#[test]
fn nodes_of_a_class() {
    let node = |name: &str, rest: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{gpu: one}}}}, {rest}status: {{allocatable: {{nvidia.com/gpu: 8, memory: 4Gi}}}}}}"
        )
    };
    let one = class("one", "capabilities: {memoryGB: 80Gi}");
    let none = class("none", "capabilities: {memoryGB: 80Gi}").replace("nodeSelector: {gpu: none}", "");
    let (small, cordoned) = (node("small", ""), node("cordoned", "spec: {unschedulable: true}, "));
    let world = world(&[&[one, none, small, cordoned].join("\n---\n")]);
    let known = |name: &str| world.supply.class(name).unwrap().availability.clone().unwrap();
    assert_eq!((known("one").nodes.len(), known("one").free()), (2, 8));
    assert!(known("none").nodes.is_empty());
}

// 4: "1 per accelerator" of the class turned eight accelerators into one; sizes of parallelism were written only over
// flags that were there, and that of data never.
// spec: ACC-83
#[rstest]
#[case::resources("engineConfig: {runner: {image: i, resources: {limits: {nvidia.com/gpu: 8}}}}", "", 8)]
#[case::tensor("engineConfig: {runner: {image: i}}", "tensorParallelSize: 4", 4)]
#[case::over_a_flag("engineConfig: {runner: {image: i, args: [--tp=1]}}", "tensorParallelSize: 4", 4)]
#[case::data("engineConfig: {runner: {image: i}}", "tensorParallelSize: 2, dataParallelSize: 2", 4)]
#[case::pipeline("engineConfig: {runner: {image: i}}", "tensorParallelSize: 2, pipelineParallelSize: 4", 8)]
fn counts(#[case] engine: &str, #[case] sizes: &str, #[case] expect: u32) {
    let tuned = format!(
        "acceleratorConfig: {{nvidia-h100-80gb: {{tensorParallelismOverride: {{{sizes}}}}}}}, autoSelect: true"
    );
    let tuned = if sizes.is_empty() { "autoSelect: true".to_owned() } else { tuned };
    let one = runtime("a", &format!("{ON_ANY_CLASS}, {engine}")).replace("autoSelect: true", &tuned);
    let on_h100 = service("acceleratorSelector: {acceleratorClass: nvidia-h100-80gb}");
    assert_eq!(chosen(&decided(&[MODEL, &one, &on_h100])).2, expect);
}

// 4: variables of the tuning came in the order of a hash map, so that Pods were restarted for nothing.
// spec: ACC-95
#[test]
fn tuning_in_a_stable_order() {
    let text = r#"{"supportedModelFormats": [{"modelFormat": {"name": "x"}, "acceleratorConfig": {"c": {"environmentOverride": {"Z": "1", "A": "2", "M": "3"}}}}]}"#;
    let spec = serde_json::from_str(text).unwrap();
    let runtime = Runtime::from_api("r", Scope::Cluster, "", None, &spec).unwrap();
    let names: Vec<&str> =
        runtime.formats[0].configurations[0].env.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["A", "M", "Z"]);
}

/// Of runtimes that all ask for what the model does not say, the nearest is the one that it would suit if it said so.

#[test]
fn the_furthest_of_those_that_ask_for_more() {
    let of = |name: &str, architecture: &str, max: &str| {
        let entry = format!(
            "supportedModelFormats: [{{modelFormat: {{name: safetensors, version: 1.0.0}}, modelArchitecture: {architecture}, autoSelect: true}}], modelSizeRange: {{min: 1B, max: {max}}}"
        );
        runtime(name, &entry)
    };
    let (other, small, made_for_it) =
        (of("a", "Qwen2ForCausalLM", "9B"), of("b", "LlamaForCausalLM", "2B"), of("c", "LlamaForCausalLM", "9B"));
    let closest = |runtimes: &[&str]| decided(&[&[MODEL], runtimes].concat()).candidates[0].runtime.clone();
    assert_eq!(closest(&[&other, &small, &made_for_it]), "c");
    assert_eq!(closest(&[&other, &small]), "b");
    // Filling in what is missing does not help with a runtime that is for something else.
    let told = |one: &str| {
        let why = decided(&[MODEL, one]).candidates[0].rejected.clone().unwrap();
        format!("{}: {why}", why.code())
    };
    let missing = "FormatVersionMismatch: the model does not set fields that the runtime requires: spec.modelFormat.version: \"1.0.0\"";
    assert_eq!(told(&made_for_it), missing);
    let besides = "in addition, ArchitectureMismatch: the model has architecture LlamaForCausalLM; the runtime supports Qwen2ForCausalLM";
    assert_eq!(told(&other), format!("{missing}; {besides}"));
    assert_eq!(
        told(&small),
        format!("{missing}; in addition, SizeOutOfRange: the model has 7B parameters; the runtime supports 1B–2B")
    );
}

//! What would help: each constraint lifted alone, with the value to write and what then comes out.

use rstest::rstest;

use super::fixture::{CLASSES, world};
use crate::*;

const MODEL: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.45.0}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 30B}}";
/// 30B parameters need 72 GB: one H100, two A100, eight T4.
const RUNTIME: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {name: srt}, spec: {disabled: false, supportedModelFormats: [{modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.45.0}, modelArchitecture: LlamaForCausalLM, autoSelect: true}], modelSizeRange: {min: 20B, max: 40B}, acceleratorRequirements: {requiredCapabilities: {features: [tensor-cores]}}, engineConfig: {runner: {image: i}}}}";
const SERVICE: &str =
    "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: s}, spec: {model: {name: m}}}";
/// Eight of each class, on one node.
const NODES: &str = "
{apiVersion: v1, kind: Node, metadata: {name: t, labels: {gpu: t4}}, status: {allocatable: {nvidia.com/gpu: 8}}}
---
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {gpu: a100}}, status: {allocatable: {nvidia.com/gpu: 8}}}
---
{apiVersion: v1, kind: Node, metadata: {name: h, labels: {gpu: h100}}, status: {allocatable: {nvidia.com/gpu: 8}}}";

fn helps(model: &str, runtime: &str, service: &str, nodes: &str) -> Vec<String> {
    let all = [model, runtime, service, nodes].join("\n---\n");
    let world = world(&[CLASSES, &all]);
    remedy::find_remedies(&world.demand, &world.supply).iter().map(ToString::to_string).collect()
}

#[rstest]
#[case::nothing("", "", "")]
#[case::disabled("disabled: false", "disabled: true", "remove spec.disabled from runtime srt: srt on")]
#[case::auto_select(
    "autoSelect: true",
    "autoSelect: false",
    "set spec.runtime.name to srt, which is not chosen by itself: srt on"
)]
#[case::format(
    "name: safetensors",
    "name: ONNX",
    "add a runtime for safetensors models, such as a copy of srt: set modelFormat.name to safetensors: srt on"
)]
#[case::format_version(
    "version: 1.0.0",
    "version: 2.0.0",
    "add a runtime for format version 1.0.0, such as a copy of srt: set modelFormat.version to \"1.0.0\": srt on"
)]
#[case::framework(
    "name: transformers",
    "name: PyTorch",
    "add a runtime for transformers models, such as a copy of srt: set modelFramework.name to transformers: srt on"
)]
#[case::framework_version(
    "version: 4.45.0",
    "version: 4.36.2",
    "add a runtime for framework version 4.45.0, such as a copy of srt: set modelFramework.version to \"4.45.0\", or a later one with operator GreaterThanOrEqual: srt on"
)]
#[case::architecture(
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "add a runtime for LlamaForCausalLM models, such as a copy of srt: set modelArchitecture to LlamaForCausalLM: srt on"
)]
#[case::quantization(
    "autoSelect: true",
    "quantization: fp8, autoSelect: true",
    "add a runtime for unquantized models, such as a copy of srt: remove quantization: srt on"
)]
#[case::size(
    "max: 40B",
    "max: 25B",
    "add a runtime for 30B models, such as a copy of srt: set modelSizeRange to min: 20B, max: 30B: srt on"
)]
#[case::protocol(
    "modelSizeRange",
    "protocolVersions: [cohere], modelSizeRange",
    "set spec.model.protocolVersion to cohere: srt on"
)]
#[case::supported(
    "requiredCapabilities",
    "supportedClasses: [gone], requiredCapabilities",
    "add nvidia-h100-80gb to acceleratorRequirements.supportedClasses of srt: srt on 1 × nvidia-h100-80gb"
)]
#[case::required(
    "features: [tensor-cores]",
    "memoryGB: 100",
    "lower the required memory to 80Gi in acceleratorRequirements of runtime srt: srt on"
)]
#[case::count("image: i", "image: i, resources: {limits: {nvidia.com/gpu: 0}}, args: [--tp-size=1], command: [x]", "")]
fn by_a_runtime(#[case] from: &str, #[case] to: &str, #[case] expect: &str) {
    let helps = helps(MODEL, &RUNTIME.replacen(from, to, 1), SERVICE, NODES);
    match expect {
        "" => assert!(helps.is_empty(), "{helps:?}"),
        expect => assert!(helps[0].starts_with(expect), "{helps:?}"),
    }
}

#[rstest]
#[case::runtime_name("runtime: {name: srtt}", "set spec.runtime.name to srt (not srtt): srt on")]
#[case::class_name(
    "acceleratorSelector: {preferredClasses: [nvidia-h100]}",
    "write nvidia-h100-80gb instead of nvidia-h100 in spec.acceleratorSelector.preferredClasses: srt on 1 × nvidia-h100-80gb"
)]
#[case::preferred(
    "acceleratorSelector: {preferredClasses: [tpu-v6e]}",
    "add nvidia-h100-80gb to spec.acceleratorSelector.preferredClasses: srt on 1 × nvidia-h100-80gb"
)]
#[case::excluded(
    "acceleratorSelector: {excludedClasses: [nvidia-t4, nvidia-a100-40gb, nvidia-h100-80gb]}",
    "take nvidia-h100-80gb out of excludedClasses: srt on"
)]
#[case::family(
    "acceleratorSelector: {constraints: {architectureFamilies: [blackwell]}}",
    "add hopper to constraints.architectureFamilies: srt on"
)]
#[case::memory(
    "acceleratorSelector: {requiredCapabilities: {memoryGB: 141}}",
    "lower the required memory to 80Gi in spec.acceleratorSelector: srt on"
)]
#[case::capability(
    "acceleratorSelector: {requiredCapabilities: {computeCapability: \"10.0\"}}",
    "lower the compute capability to \"9.0\" in spec.acceleratorSelector: srt on"
)]
#[case::feature(
    "acceleratorSelector: {requiredCapabilities: {features: [fp4, nvlink]}}",
    "no longer require fp4 in spec.acceleratorSelector: srt on"
)]
#[case::bandwidth(
    "acceleratorSelector: {requiredCapabilities: {memoryBandwidthGBps: 8000}}",
    "lower memoryBandwidthGBps to \"3350\" in spec.acceleratorSelector: srt on"
)]
#[case::selector(
    "acceleratorSelector: {nodeSelector: {zone: moon}}",
    "remove zone: moon from spec.acceleratorSelector.nodeSelector, or label nodes so: srt on"
)]
#[case::placement(
    "engine: {nodeSelector: {zone: moon}}",
    "remove zone: moon from the service's nodeSelector, or label nodes so: srt on"
)]
#[case::count(
    "engine: {runner: {resources: {limits: {nvidia.com/gpu: 1}}}}, acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}",
    "add nvidia-h100-80gb to spec.acceleratorSelector.preferredClasses: srt on 1 × nvidia-h100-80gb"
)]
fn by_the_service(#[case] spec: &str, #[case] expect: &str) {
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, {spec}"));
    let helps = helps(MODEL, RUNTIME, &service, NODES);
    assert!(helps[0].starts_with(expect), "{helps:#?}");
}

#[rstest]
#[case::fixed(
    "engine: {runner: {resources: {limits: {nvidia.com/gpu: 1}}}}, acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}",
    "ask for 2 accelerators per node in the service (--tensor-parallel-size and its like, or else resources): srt on 2 × nvidia-a100-40gb"
)]
#[case::quantized(
    "engine: {runner: {resources: {limits: {nvidia.com/gpu: 1}}}}, acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}",
    "serve the model quantized to int4, with a runtime for it: srt on 1 × nvidia-a100-40gb"
)]
fn also_by_the_service(#[case] spec: &str, #[case] expect: &str) {
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, {spec}"));
    let helps = helps(MODEL, RUNTIME, &service, NODES);
    assert!(helps.iter().any(|help| help.starts_with(expect)), "{helps:#?}");
}

/// Two wrongs: neither change helps alone.
#[rstest]
#[case::disabled_and_excluded(
    RUNTIME.replacen("disabled: false", "disabled: true", 1),
    "acceleratorSelector: {excludedClasses: [nvidia-t4, nvidia-a100-40gb, nvidia-h100-80gb]}",
    "remove spec.disabled from runtime srt, and then take nvidia-h100-80gb out of excludedClasses: srt on"
)]
#[case::disabled_and_misspelt(
    RUNTIME.replacen("disabled: false", "disabled: true", 1),
    "runtime: {name: srt}, acceleratorSelector: {preferredClasses: [nvidia-h100]}",
    "remove spec.disabled from runtime srt, and then write nvidia-h100-80gb instead of nvidia-h100 in"
)]
#[case::not_automatic_and_elsewhere(
    RUNTIME.replacen("autoSelect: true", "autoSelect: false", 1),
    "engine: {nodeSelector: {zone: moon}}",
    "set spec.runtime.name to srt, which is not chosen by itself, and then remove zone: moon from"
)]
#[case::excluded_and_elsewhere(
    RUNTIME.to_owned(),
    "engine: {nodeSelector: {zone: moon}}, acceleratorSelector: {excludedClasses: [nvidia-t4, nvidia-a100-40gb, nvidia-h100-80gb]}",
    "take nvidia-a100-40gb, nvidia-h100-80gb, nvidia-t4 out of excludedClasses, and then remove zone: moon from"
)]
fn by_two_changes(#[case] runtime: String, #[case] spec: &str, #[case] expect: &str) {
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, {spec}"));
    let helps = helps(MODEL, &runtime, &service, NODES);
    assert!(helps.first().is_some_and(|help| help.starts_with(expect)), "{helps:#?}");
    assert!(helps.len() <= 2, "{helps:#?}");
}

#[test]
fn by_the_model() {
    let disabled = MODEL.replace("spec: {", "spec: {disabled: true, ");
    assert!(helps(&disabled, RUNTIME, SERVICE, NODES)[0].starts_with("remove spec.disabled from model m: srt on"));
    let silent = MODEL.replace(", version: 4.45.0", "");
    let helps = helps(&silent, RUNTIME, SERVICE, NODES);
    assert!(
        helps[0].starts_with(
            "fill in what model m is, if it is what runtime srt is for: spec.modelFramework.version: \"4.45.0\": srt on"
        ),
        "{helps:?}"
    );
}

#[test]
fn by_nodes() {
    let none = "{apiVersion: v1, kind: Node, metadata: {name: cpu}, status: {}}";
    let of_nodes = helps(MODEL, RUNTIME, SERVICE, none);
    assert!(
        of_nodes[0].starts_with("add 1 node with 1 × nvidia-h100-80gb: srt on 1 × nvidia-h100-80gb"),
        "{of_nodes:?}"
    );
}

/// Feasible, but the chosen class is taken: another one, or how many to free.
#[test]
fn by_free_capacity() {
    let all = [MODEL, RUNTIME, SERVICE, NODES].join("\n---\n");
    let mut world = world(&[CLASSES, &all]);
    world.demand.components.get_mut(&Component::Engine).unwrap().selector.preferred =
        vec!["nvidia-a100-40gb".to_owned(), "nvidia-h100-80gb".to_owned()];
    for class in &mut world.supply.classes {
        let taken = class.name == "nvidia-a100-40gb";
        let class = std::sync::Arc::make_mut(class);
        class
            .availability
            .iter_mut()
            .flat_map(|known| &mut known.nodes)
            .for_each(|node| node.free = if taken { 1 } else { 8 });
    }
    let helps: Vec<String> =
        remedy::find_remedies(&world.demand, &world.supply).iter().map(ToString::to_string).collect();
    assert!(
        helps[0].starts_with("set spec.acceleratorSelector.preferredClasses to [nvidia-h100-80gb]: srt on 1"),
        "{helps:?}"
    );
    assert!(helps[1].starts_with("free 1 more × nvidia-a100-40gb: srt on 2 × nvidia-a100-40gb"), "{helps:?}");
    // Also one that the service does not ask for so far.
    world.demand.components.get_mut(&Component::Engine).unwrap().selector.preferred.pop();
    let narrow: Vec<String> =
        remedy::find_remedies(&world.demand, &world.supply).iter().map(ToString::to_string).collect();
    let changes =
        |all: &[String]| all.iter().filter_map(|one| Some(one.split_once(": ")?.0.to_owned())).collect::<Vec<_>>();
    assert_eq!(changes(&narrow), changes(&helps));
}

/// A number that no node has is never waited for: it is told as such, with one that a node has.
#[rstest]
#[case::by_a_flag("runner: {args: [--tp-size=16]}", "in the service")]
#[case::by_resources("runner: {resources: {limits: {nvidia.com/gpu: 16}}}", "in the service")]
#[case::in_the_runtime("", "in runtime srt")]
fn by_a_number_that_a_node_has(#[case] engine: &str, #[case] place: &str) {
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, engine: {{{engine}}}"));
    let fixed = if engine.is_empty() { "runner: {image: i, args: [--tp=16]}" } else { "runner: {image: i}" };
    let runtime = RUNTIME.replace("runner: {image: i}", fixed);
    let decision = world(&[CLASSES, &[MODEL, &runtime, &service, NODES].join("\n---\n")]).decide();
    assert_eq!((decision.feasible, decision.reason.as_str()), (false, "NoEligibleAccelerator"));
    let told: Vec<String> = decision.candidates[0]
        .accelerators
        .iter()
        .map(|one| format!("{} {}: {}", one.class, one.evaluation.code(), one.evaluation))
        .collect();
    assert_eq!(told[0], "nvidia-a100-40gb TooManyPerNode: 16 on one node are asked for, its largest node has 8");
    let helps = helps(MODEL, &runtime, &service, NODES);
    assert!(helps[0].starts_with(&format!("ask for 8 accelerators per node {place} (")), "{helps:#?}");
}

/// More accelerators than one node has are no obstacle where several nodes may carry the model, or where nobody knows how
/// many a node has.
#[test]
fn a_number_for_several_nodes_is_split() {
    let engine = "engine: {leader: {runner: {image: i, args: [--tp-size=16]}}, worker: {runner: {image: i}}}";
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, {engine}"));
    let with = |nodes: &str| world(&[CLASSES, &[MODEL, RUNTIME, &service, nodes].join("\n---\n")]).decide();
    let engine = with(NODES).components["engine"].clone();
    assert_eq!((engine.accelerators_per_node, engine.nodes), (8, 2));
    let one_node =
        SERVICE.replace("model: {name: m}", "model: {name: m}, engine: {runner: {image: i, args: [--tp-size=16]}}");
    let unknown = world(&[CLASSES, &[MODEL, RUNTIME, &one_node].join("\n---\n")]).decide();
    assert!(unknown.feasible, "{}", unknown.message);
}

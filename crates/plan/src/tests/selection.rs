//! What is chosen, what lost and why, as a plan tells it.

use std::fmt::Write;

use rstest::rstest;
use serde_json::json;

use super::{class, code, codes, container, env, node, only, service, template};
use crate::ServicePlan;

const CLASSES: &str = include_str!("stories/classes.yaml");
const MODELS: &str = include_str!("stories/models.yaml");

/// The decision of a plan, line by line, without numbers that other tests show.
fn told(plan: &ServicePlan) -> String {
    let mut text =
        format!("{} {}: {}\n", if plan.feasible { "feasible" } else { "infeasible" }, plan.reason, plan.message);
    for (name, component) in &plan.components {
        let class = component.accelerator_class.as_deref().unwrap_or("no class");
        writeln!(text, "{name}: {} × {class}", component.accelerators_per_node).unwrap();
    }
    for candidate in &plan.candidates {
        let rank = candidate.rank.map_or("–".to_owned(), |rank| rank.to_string());
        let rejected = candidate.rejected.as_ref().map_or(String::new(), |one| format!(" {}", one.code()));
        writeln!(text, "{rank} {} ({:?}){rejected}", candidate.runtime, candidate.scope).unwrap();
        for one in candidate.accelerators.iter() {
            writeln!(text, "    {} {}: {}", one.component, one.class, one.evaluation.code()).unwrap();
        }
    }
    for warning in &plan.warnings {
        writeln!(text, "warning {}: {}", warning.code, warning.message).unwrap();
    }
    text
}

fn runtime(name: &str, entry: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: {name}}}, spec: {{supportedModelFormats: [{{modelFormat: {{name: safetensors}}, autoSelect: true{entry}}}], engineConfig: {{runner: {{image: x}}}}{spec}}}}}"
    )
}

fn chat(spec: &str) -> String {
    service("chat", &format!("{{model: {{name: llama-7b}}{spec}}}"))
}

// spec: RT-18
#[test]
fn a_name_overrides_every_priority() {
    let (low, high) = (runtime("low", ", priority: 1", ""), runtime("high", ", priority: 9", ""));
    insta::assert_snapshot!(told(&only(&[MODELS, &low, &high, &chat("")])), @r"
    feasible Selected: high
    engine: 0 × no class
    1 high (Cluster)
    2 low (Cluster)
    warning AcceleratorNotConsidered: no accelerator class was considered: neither the runtime nor the service uses an accelerator field, or no class exists
    ");
    insta::assert_snapshot!(told(&only(&[MODELS, &low, &high, &chat(", runtime: {name: low}")])), @r"
    feasible Selected: low
    engine: 0 × no class
    1 low (Cluster)
    warning AcceleratorNotConsidered: no accelerator class was considered: neither the runtime nor the service uses an accelerator field, or no class exists
    ");
}

// spec: RT-48
#[test]
fn a_runtime_that_nobody_has() {
    insta::assert_snapshot!(told(&only(&[MODELS, &runtime("universal", "", ""), &chat(", runtime: {name: univrsal}")])), @r"
    infeasible RuntimeNotFound: there is no ServingRuntime univrsal in namespace default and no ClusterServingRuntime univrsal; did you mean universal?
    ");
}

#[test]
fn a_model_that_nobody_has() {
    let parts = [MODELS, &runtime("universal", "", ""), &chat("").replace("llama-7b", "lama-7b")];
    insta::assert_snapshot!(told(&only(&parts)), @r"
    infeasible ModelNotFound: there is no BaseModel lama-7b in namespace default and no ClusterBaseModel lama-7b; did you mean llama-7b?
    ");
    let snapshot = super::snapshot(&parts);
    let remedies: Vec<String> =
        crate::remedies(&snapshot, &snapshot.services[0]).iter().map(ToString::to_string).collect();
    assert_eq!(remedies, ["set spec.model.name to llama-7b (not lama-7b): universal"]);
    // Nothing is proposed that is nothing like it.
    let other = super::snapshot(&[MODELS, parts[1], &chat("").replace("llama-7b", "zephyr")]);
    assert!(crate::remedies(&other, &other.services[0]).is_empty());
}

/// The largest relatives that are smaller and need not wait, and only where no edit spares the wait.
#[test]
fn smaller_models_are_proposed_where_nothing_else_helps() {
    const CLASS: &str = "{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {name: l4}, spec: {vendor: nvidia, discovery: {nodeSelector: {gpu: l4}}, capabilities: {memoryGB: 24Gi}, resources: [{name: nvidia.com/gpu, quantity: 1}]}}";
    let node = |count: u32| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n, labels: {{gpu: l4}}}}, status: {{allocatable: {{nvidia.com/gpu: {count}, cpu: 64, memory: 256Gi, pods: 110}}}}}}"
        )
    };
    let runtime = runtime("universal", "", ", acceleratorRequirements: {requiredCapabilities: {memoryGB: 8}}");
    let proposed = |model: &str, count: u32| {
        let snapshot = super::snapshot(&[MODELS, CLASS, &node(count), &runtime, &chat("").replace("llama-7b", model)]);
        let smaller = |remedy: &decide::Remedy| match &remedy.change {
            decide::ProposedChange::SmallerModel { to, .. } => Some(to.clone()),
            _ => None,
        };
        crate::remedies(&snapshot, &snapshot.services[0]).iter().filter_map(smaller).collect::<Vec<_>>()
    };
    assert_eq!(proposed("llama-70b", 2), ["llama-13b", "llama-7b"]);
    assert_eq!(proposed("llama-70b", 1), ["llama-7b", "mistral-7b"]);
    assert!(proposed("llama-7b", 1).is_empty(), "it is served");
}

// spec: RT-67
#[test]
fn no_runtime_is_left() {
    let all = [
        runtime("shut", "", ", disabled: true"),
        runtime("onnx", "", "").replace("safetensors", "ONNX"),
        runtime("gemma", ", modelArchitecture: GemmaForCausalLM", ""),
        runtime("fp8", ", quantization: fp8", ""),
        runtime("large", "", ", modelSizeRange: {min: 60B}"),
        runtime("cohere", "", ", protocolVersions: [cohere]"),
        runtime("manual", "", "").replace("autoSelect: true", "autoSelect: false"),
        runtime("huge", "", ", acceleratorRequirements: {requiredCapabilities: {memoryGB: 999}}"),
    ];
    insta::assert_snapshot!(told(&only(&[CLASSES, MODELS, &all.join("\n---\n"), &chat("")])), @r"
    infeasible NoEligibleAccelerator: none of 8 runtimes serves llama-7b; nearest: huge — NoEligibleAccelerator: no class fits the engine: amd-mi250x InsufficientMemory: needs 999 GiB per accelerator, has 128 GiB; intel-max-1550 InsufficientMemory: needs 999 GiB per accelerator, has 128 GiB; nvidia-a100-40gb InsufficientMemory: needs 999 GiB per accelerator, has 40 GiB; nvidia-h100-80gb InsufficientMemory: needs 999 GiB per accelerator, has 80 GiB
    – huge (Cluster) NoEligibleAccelerator
        engine amd-mi250x: InsufficientMemory
        engine intel-max-1550: InsufficientMemory
        engine nvidia-a100-40gb: InsufficientMemory
        engine nvidia-h100-80gb: InsufficientMemory
    – manual (Cluster) AutoSelectDisabled
    – cohere (Cluster) ProtocolUnsupported
    – large (Cluster) SizeOutOfRange
    – fp8 (Cluster) QuantizationMismatch
    – gemma (Cluster) ArchitectureMismatch
    – onnx (Cluster) FormatMismatch
    – shut (Cluster) Disabled
    ");
}

// spec: RT-77
#[test]
fn a_tie_names_both() {
    insta::assert_snapshot!(told(&only(&[MODELS, &runtime("one", ", priority: 2", ""), &runtime("two", ", priority: 2", ""), &chat("")])), @r"
    feasible Selected: one
    engine: 0 × no class
    1 one (Cluster)
    2 two (Cluster)
    warning AmbiguousRuntimes: one and two fit equally well and have equal priority; give one a higher priority or name one in spec.runtime.name
    warning AcceleratorNotConsidered: no accelerator class was considered: neither the runtime nor the service uses an accelerator field, or no class exists
    ");
}

/// An A100 node in each of two zones, an H100 node in the second.
fn zones() -> String {
    let zone = |name: &str, product: &str, zone: &str| {
        node(name, product).replace("labels: {", &format!("labels: {{zone: {zone}, "))
    };
    [
        zone("a", "NVIDIA-A100-SXM4-40GB", "x"),
        zone("b", "NVIDIA-A100-SXM4-40GB", "y"),
        zone("c", "NVIDIA-H100-80GB-HBM3", "y"),
    ]
    .join("\n---\n")
}

// spec: ACC-58
#[test]
fn a_selector_narrows_the_nodes_of_engine_and_decoder() {
    let pair = runtime(
        "pair",
        "",
        ", decoderConfig: {runner: {image: d}}, routerConfig: {runner: {image: r}}, acceleratorRequirements: {}",
    );
    let plan = only(&[CLASSES, MODELS, &zones(), &pair, &chat(", acceleratorSelector: {nodeSelector: {zone: x}}")]);
    insta::assert_snapshot!(told(&plan), @r"
    feasible Selected: pair on 1 × nvidia-a100-40gb (balanced 1.00, $2.21/h); decoder 1 × nvidia-a100-40gb (balanced 1.00, $2.21/h)
    decoder: 1 × nvidia-a100-40gb
    engine: 1 × nvidia-a100-40gb
    router: 0 × no class
    1 pair (Cluster)
        engine nvidia-a100-40gb: Eligible
        engine amd-mi250x: NoMatchingNodes
        engine intel-max-1550: NoMatchingNodes
        engine nvidia-h100-80gb: NoMatchingNodes
        decoder nvidia-a100-40gb: Eligible
        decoder amd-mi250x: NoMatchingNodes
        decoder intel-max-1550: NoMatchingNodes
        decoder nvidia-h100-80gb: NoMatchingNodes
    ");
    for end in ["-engine", "-decoder"] {
        assert_eq!(template(&plan, end)["spec"]["nodeSelector"]["zone"], "x");
    }
    assert!(template(&plan, "-router")["spec"].get("nodeSelector").is_none());
}

// spec: ACC-66
#[rstest]
#[case::fields("{}", "nvidia-a100-40gb", "nvidia-h100-80gb", "NotPreferred")]
#[case::class("{ome.io/accelerator-class: nvidia-h100-80gb}", "nvidia-h100-80gb", "nvidia-a100-40gb", "NotPreferred")]
fn an_annotation_replaces_the_preferred_classes(
    #[case] annotations: &str,
    #[case] expect: &str,
    #[case] other: &str,
    #[case] verdict: &str,
) {
    let manifest = chat(", acceleratorSelector: {preferredClasses: [nvidia-a100-40gb, amd-mi250x]}")
        .replace("{name: chat}", &format!("{{name: chat, annotations: {annotations}}}"));
    let plan = only(&[CLASSES, MODELS, &runtime("rt", "", ", acceleratorRequirements: {}"), &manifest]);
    assert_eq!((class(&plan), super::verdicts(&plan)[other]), (Some(expect), verdict));
    let amd = if annotations == "{}" { "Eligible" } else { "NotPreferred" };
    assert_eq!(super::verdicts(&plan)["amd-mi250x"], amd);
}

// spec: ACC-66
#[rstest]
#[case::field("{}", "nvidia-a100-40gb")]
#[case::strategy("{ome.io/selection-strategy: performance}", "nvidia-h100-80gb")]
fn an_annotation_replaces_the_strategy(#[case] annotations: &str, #[case] expect: &str) {
    let listed = ", acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb, nvidia-h100-80gb]}";
    let manifest = chat(", acceleratorSelector: {strategy: cost}")
        .replace("{name: chat}", &format!("{{name: chat, annotations: {annotations}}}"));
    assert_eq!(class(&only(&[CLASSES, MODELS, &runtime("rt", "", listed), &manifest])), Some(expect));
}

// spec: ACC-72
#[rstest]
#[case::the_last_listed("performance", "nvidia-h100-80gb", "WHICH=h100")]
#[case::the_first_listed("cost", "nvidia-a100-40gb", "WHICH=a100")]
fn the_best_ranked_class_is_the_one_configured(#[case] strategy: &str, #[case] expect: &str, #[case] variables: &str) {
    let entry = |class: &str, value: &str| {
        format!("{{selector: {{acceleratorClass: {class}}}, env: [{{name: WHICH, value: {value}}}]}}")
    };
    let spec = format!(
        ", acceleratorRequirements: {{supportedClasses: [nvidia-a100-40gb, nvidia-h100-80gb]}}, acceleratorConfigurations: [{}, {}]",
        entry("nvidia-a100-40gb", "a100"),
        entry("nvidia-h100-80gb", "h100")
    );
    let manifest = chat(&format!(", acceleratorSelector: {{strategy: {strategy}}}"));
    let plan = only(&[CLASSES, MODELS, &runtime("rt", "", &spec), &manifest]);
    assert_eq!((class(&plan), env(&plan, "-engine").as_str()), (Some(expect), variables));
}

// spec: ACC-74
#[test]
fn requirements_that_contradict_each_other() {
    let only_a100 = runtime("rt", "", ", acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb]}");
    let manifest = chat(", acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}");
    insta::assert_snapshot!(told(&only(&[CLASSES, MODELS, &only_a100, &manifest])), @r"
    infeasible NoEligibleAccelerator: none of 1 runtimes serves llama-7b; nearest: rt — NoEligibleAccelerator: no class fits the engine: nvidia-h100-80gb NotSupportedByRuntime: the runtime supports nvidia-a100-40gb; nvidia-a100-40gb NotPreferred: the service asks for nvidia-h100-80gb; amd-mi250x NotSupportedByRuntime: the runtime supports nvidia-a100-40gb; intel-max-1550 NotSupportedByRuntime: the runtime supports nvidia-a100-40gb
    – rt (Cluster) NoEligibleAccelerator
        engine nvidia-h100-80gb: NotSupportedByRuntime
        engine nvidia-a100-40gb: NotPreferred
        engine amd-mi250x: NotSupportedByRuntime
        engine intel-max-1550: NotSupportedByRuntime
    ");
}

// spec: ACC-75
#[test]
fn classes_that_do_not_exist() {
    let listed = runtime(
        "rt",
        "",
        ", acceleratorRequirements: {supportedClasses: [gone-from-runtime, nvidia-h100-80gb, nvidia-a100-40gb]}",
    );
    let selected = chat(", acceleratorSelector: {preferredClasses: [gone-from-selector, nvidia-h100-80gb]}");
    insta::assert_snapshot!(told(&only(&[CLASSES, MODELS, &listed, &selected])), @r"
    feasible Selected: rt on 1 × nvidia-h100-80gb (balanced 1.00, $5.12/h)
    engine: 1 × nvidia-h100-80gb
    1 rt (Cluster)
        engine nvidia-h100-80gb: Eligible
        engine gone-from-selector: UnknownClass
        engine nvidia-a100-40gb: NotPreferred
        engine amd-mi250x: NotSupportedByRuntime
        engine intel-max-1550: NotSupportedByRuntime
        engine gone-from-runtime: UnknownClass
    warning AvailabilityUnknown: nothing is known of the nodes of nvidia-h100-80gb
    ");
    let annotated =
        selected.replace("{name: chat}", "{name: chat, annotations: {ome.io/accelerator-class: gone-from-annotation}}");
    let plan = only(&[CLASSES, MODELS, &listed, &annotated]);
    assert_eq!(
        (code(&plan), super::verdicts(&plan)["gone-from-annotation"]),
        ((false, "NoEligibleAccelerator"), "UnknownClass")
    );
    assert!(plan.message.contains("gone-from-annotation UnknownClass"), "{}", plan.message);
}

// spec: ACC-112
#[rstest]
#[case::story("0.5", "cost", "nvidia-a100-40gb", true)]
#[case::within("3", "performance", "nvidia-a100-40gb", false)]
#[case::all_within("6", "performance", "nvidia-h100-80gb", false)]
fn a_price_per_hour_and_replica(
    #[case] threshold: &str,
    #[case] strategy: &str,
    #[case] expect: &str,
    #[case] exceeded: bool,
) {
    let story = include_str!("stories/story-6.yaml");
    assert!(story.contains("strategy: cost") && story.contains("ome.io/cost-threshold: \"0.5\""));
    let manifest = story
        .replace("strategy: cost", &format!("strategy: {strategy}"))
        .replace("cost-threshold: \"0.5\"", &format!("cost-threshold: \"{threshold}\""))
        // The story's own scores would decide before strategy and price.
        .replace("score: 100", "score: 0");
    let plan = only(&[CLASSES, MODELS, &manifest]);
    assert_eq!(
        (class(&plan), codes(&plan).contains(&"CostThresholdExceeded")),
        (Some(expect), exceeded),
        "{}",
        told(&plan)
    );
    let printed = only(&[CLASSES, MODELS, story]);
    let prices: Vec<_> =
        printed.candidates[0].accelerators.iter().filter(|one| one.class.starts_with("nvidia")).collect();
    assert_eq!(prices[0].class, "nvidia-a100-40gb");
    assert!(codes(&printed).contains(&"CostThresholdExceeded"));
}

// spec: ACC-122
#[test]
fn engine_and_decoder_have_classes_and_tuning_of_their_own() {
    let entry = |class: &str, value: &str| {
        format!(
            "{{selector: {{acceleratorClass: {class}}}, env: [{{name: TUNED, value: {value}}}], runner: {{args: [--{value}]}}}}"
        )
    };
    let spec = format!(
        ", decoderConfig: {{runner: {{image: d}}}}, routerConfig: {{runner: {{image: r}}}}, acceleratorConfigurations: [{}, {}]",
        entry("nvidia-a100-40gb", "a100"),
        entry("nvidia-h100-80gb", "h100")
    );
    let manifest = chat(
        ", engine: {acceleratorOverride: {acceleratorClass: nvidia-h100-80gb}}, decoder: {acceleratorOverride: {acceleratorClass: nvidia-a100-40gb}}",
    );
    let plan = only(&[CLASSES, MODELS, &runtime("rt", "", &spec), &manifest]);
    let classes = ["engine", "decoder"].map(|name| plan.components[name].accelerator_class.as_deref().unwrap());
    assert_eq!(classes, ["nvidia-h100-80gb", "nvidia-a100-40gb"], "{}", told(&plan));
    assert_eq!((env(&plan, "-engine").as_str(), env(&plan, "-decoder").as_str()), ("TUNED=h100", "TUNED=a100"));
    assert_eq!(container(&plan, "-engine")["args"], json!(["--h100"]));
    assert_eq!(container(&plan, "-decoder")["args"], json!(["--a100"]));
    assert!(!container(&plan, "-router")["env"].to_string().contains("TUNED"));
}

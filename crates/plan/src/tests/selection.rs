//! Selected and rejected candidates in plans.

use std::fmt::Write;

use rstest::rstest;
use serde_json::json;

use super::stories::story_6;
use super::{class, code, codes, container, env, node, plan_manifests, service, template};
use crate::ServicePlan;

const CLASSES: &str = include_str!("stories/classes.yaml");
const MODELS: &str = include_str!("stories/models.yaml");

/// Returns the decision of a plan as text, without the details that other tests check.
fn decision_text(plan: &ServicePlan) -> String {
    let mut text =
        format!("{} {}: {}\n", if plan.feasible { "feasible" } else { "infeasible" }, plan.reason, plan.message);
    for (name, component) in &plan.components {
        let class = component.accelerator_class.as_deref().unwrap_or("no class");
        writeln!(text, "{name}: {} × {class}", component.accelerators_per_node).unwrap();
    }
    for candidate in &plan.candidates {
        let rank = candidate.rank.map_or("–".to_owned(), |rank| rank.to_string());
        let rejected = candidate.rejected.as_ref().map_or(String::new(), |rejection| format!(" {}", rejection.code()));
        writeln!(text, "{rank} {} ({:?}){rejected}", candidate.runtime, candidate.scope).unwrap();
        for class in candidate.accelerators.iter() {
            writeln!(text, "    {} {}: {}", class.component, class.class, class.evaluation.code()).unwrap();
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
fn named_runtime_overrides_priorities() {
    let (low, high) = (runtime("low", ", priority: 1", ""), runtime("high", ", priority: 9", ""));
    insta::assert_snapshot!(decision_text(&plan_manifests(&[MODELS, &low, &high, &chat("")])), @r"
    feasible Selected: high
    engine: 0 × no class
    1 high (Cluster)
    2 low (Cluster)
    warning AcceleratorNotConsidered: No accelerator class was considered: neither the runtime nor the service sets an accelerator field, or no AcceleratorClass exists
    ");
    insta::assert_snapshot!(decision_text(&plan_manifests(&[MODELS, &low, &high, &chat(", runtime: {name: low}")])), @r"
    feasible Selected: low
    engine: 0 × no class
    1 low (Cluster)
    warning AcceleratorNotConsidered: No accelerator class was considered: neither the runtime nor the service sets an accelerator field, or no AcceleratorClass exists
    ");
}

/// Services cannot use runtimes of other namespaces.
#[rstest]
#[case("default", &["InvalidRuntime"])]
#[case("other", &[])]
fn warns_about_invalid_runtimes_of_the_own_namespace(#[case] namespace: &str, #[case] expect: &[&str]) {
    let invalid = runtime("invalid", "", ", acceleratorRequirements: {minArchitectureVersion: new}").replace(
        "ClusterServingRuntime, metadata: {",
        &format!("ServingRuntime, metadata: {{namespace: {namespace}, "),
    );
    let plan = plan_manifests(&[MODELS, &invalid, &runtime("valid", "", ""), &chat("")]);
    let is_about_runtime = |code: &&str| *code == "InvalidRuntime";
    assert_eq!(codes(&plan).into_iter().filter(is_about_runtime).collect::<Vec<_>>(), expect);
}

// spec: RT-48
#[test]
fn suggests_a_similar_runtime_name() {
    insta::assert_snapshot!(decision_text(&plan_manifests(&[MODELS, &runtime("universal", "", ""), &chat(", runtime: {name: univrsal}")])), @r"
    infeasible RuntimeNotFound: Runtime univrsal not found: no ServingRuntime default/univrsal and no ClusterServingRuntime univrsal exists; did you mean universal?
    ");
}

#[test]
fn suggests_a_similar_model_name() {
    let manifests = [MODELS, &runtime("universal", "", ""), &chat("").replace("llama-7b", "lama-7b")];
    insta::assert_snapshot!(decision_text(&plan_manifests(&manifests)), @r"
    infeasible ModelNotFound: Model lama-7b not found: no BaseModel default/lama-7b and no ClusterBaseModel lama-7b exists; did you mean llama-7b?
    ");
    let snapshot = super::snapshot(&manifests);
    let remedies: Vec<String> =
        crate::remedies(&snapshot, &snapshot.services[0]).iter().map(ToString::to_string).collect();
    assert_eq!(remedies, ["change spec.model.name from lama-7b to llama-7b: universal"]);
    // Dissimilar names are not proposed.
    let dissimilar = super::snapshot(&[MODELS, manifests[1], &chat("").replace("llama-7b", "zephyr")]);
    assert!(crate::remedies(&dissimilar, &dissimilar.services[0]).is_empty());
}

#[test]
fn proposes_smaller_models_if_no_edit_avoids_waiting() {
    const CLASS: &str = "{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {name: l4}, spec: {vendor: nvidia, discovery: {nodeSelector: {gpu: l4}}, capabilities: {memoryGB: 24Gi}, resources: [{name: nvidia.com/gpu, quantity: 1}]}}";
    let node = |count: u32| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: n, labels: {{gpu: l4}}}}, status: {{allocatable: {{nvidia.com/gpu: {count}, cpu: 64, memory: 256Gi, pods: 110}}}}}}"
        )
    };
    let runtime = runtime("universal", "", ", acceleratorRequirements: {requiredCapabilities: {memoryGB: 8}}");
    let proposed_models = |model: &str, count: u32| {
        let snapshot = super::snapshot(&[MODELS, CLASS, &node(count), &runtime, &chat("").replace("llama-7b", model)]);
        let smaller_model = |remedy: &decide::Remedy| match &remedy.change {
            decide::ProposedChange::SmallerModel { to, .. } => Some(to.clone()),
            _ => None,
        };
        crate::remedies(&snapshot, &snapshot.services[0]).iter().filter_map(smaller_model).collect::<Vec<_>>()
    };
    assert_eq!(proposed_models("llama-70b", 2), ["llama-13b", "llama-7b"]);
    assert_eq!(proposed_models("llama-70b", 1), ["llama-7b", "mistral-7b"]);
    assert!(proposed_models("llama-7b", 1).is_empty(), "the model does not wait for capacity");
}

// spec: RT-67
#[test]
fn reports_all_rejected_runtimes() {
    let runtimes = [
        runtime("shut", "", ", disabled: true"),
        runtime("onnx", "", "").replace("safetensors", "ONNX"),
        runtime("gemma", ", modelArchitecture: GemmaForCausalLM", ""),
        runtime("fp8", ", quantization: fp8", ""),
        runtime("large", "", ", modelSizeRange: {min: 60B}"),
        runtime("cohere", "", ", protocolVersions: [cohere]"),
        runtime("manual", "", "").replace("autoSelect: true", "autoSelect: false"),
        runtime("huge", "", ", acceleratorRequirements: {requiredCapabilities: {memoryGB: 999}}"),
    ];
    insta::assert_snapshot!(decision_text(&plan_manifests(&[CLASSES, MODELS, &runtimes.join("\n---\n"), &chat("")])), @r"
    infeasible NoEligibleAccelerator: None of 8 runtimes can serve model llama-7b; the closest is huge: NoEligibleAccelerator: no accelerator class is eligible for the engine: amd-mi250x, intel-max-1550 InsufficientMemory: 999 GiB of memory per accelerator is required; the class has 128 GiB; nvidia-a100-40gb InsufficientMemory: 999 GiB of memory per accelerator is required; the class has 40 GiB; nvidia-h100-80gb InsufficientMemory: 999 GiB of memory per accelerator is required; the class has 80 GiB; runtime manual matches, but its autoSelect is off: set spec.runtime.name to use it
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
fn warns_about_ambiguous_runtimes() {
    insta::assert_snapshot!(decision_text(&plan_manifests(&[MODELS, &runtime("one", ", priority: 2", ""), &runtime("two", ", priority: 2", ""), &chat("")])), @r"
    feasible Selected: one
    engine: 0 × no class
    1 one (Cluster)
    2 two (Cluster)
    warning AmbiguousRuntimes: Runtimes one and two match equally well and have the same priority; raise the priority of one of them or set spec.runtime.name
    warning AcceleratorNotConsidered: No accelerator class was considered: neither the runtime nor the service sets an accelerator field, or no AcceleratorClass exists
    ");
}

/// Returns A100 Nodes in two zones and an H100 Node in the second one.
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
fn node_selector_applies_to_engine_and_decoder() {
    let pair = runtime(
        "pair",
        "",
        ", decoderConfig: {runner: {image: d}}, routerConfig: {runner: {image: r}}, acceleratorRequirements: {}",
    );
    let plan =
        plan_manifests(&[CLASSES, MODELS, &zones(), &pair, &chat(", acceleratorSelector: {nodeSelector: {zone: x}}")]);
    insta::assert_snapshot!(decision_text(&plan), @r"
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
    for suffix in ["-engine", "-decoder"] {
        assert_eq!(template(&plan, suffix)["spec"]["nodeSelector"]["zone"], "x");
    }
    assert!(template(&plan, "-router")["spec"].get("nodeSelector").is_none());
}

// spec: ACC-66
#[rstest]
#[case::fields("{}", "nvidia-a100-40gb", "nvidia-h100-80gb", "NotPreferred")]
#[case::class("{ome.io/accelerator-class: nvidia-h100-80gb}", "nvidia-h100-80gb", "nvidia-a100-40gb", "NotPreferred")]
fn annotation_replaces_preferred_classes(
    #[case] annotations: &str,
    #[case] expect: &str,
    #[case] rejected: &str,
    #[case] verdict: &str,
) {
    let manifest = chat(", acceleratorSelector: {preferredClasses: [nvidia-a100-40gb, amd-mi250x]}")
        .replace("{name: chat}", &format!("{{name: chat, annotations: {annotations}}}"));
    let plan = plan_manifests(&[CLASSES, MODELS, &runtime("rt", "", ", acceleratorRequirements: {}"), &manifest]);
    assert_eq!((class(&plan), super::verdicts(&plan)[rejected]), (Some(expect), verdict));
    let amd = if annotations == "{}" { "Eligible" } else { "NotPreferred" };
    assert_eq!(super::verdicts(&plan)["amd-mi250x"], amd);
}

// spec: ACC-66
#[rstest]
#[case::field("{}", "nvidia-a100-40gb")]
#[case::strategy("{ome.io/selection-strategy: performance}", "nvidia-h100-80gb")]
fn annotation_replaces_the_strategy(#[case] annotations: &str, #[case] expect: &str) {
    let supported_classes = ", acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb, nvidia-h100-80gb]}";
    let manifest = chat(", acceleratorSelector: {strategy: cost}")
        .replace("{name: chat}", &format!("{{name: chat, annotations: {annotations}}}"));
    assert_eq!(
        class(&plan_manifests(&[CLASSES, MODELS, &runtime("rt", "", supported_classes), &manifest])),
        Some(expect)
    );
}

// spec: ACC-72
#[rstest]
#[case::best_class_listed_last("performance", "nvidia-h100-80gb", "WHICH=h100")]
#[case::best_class_listed_first("cost", "nvidia-a100-40gb", "WHICH=a100")]
fn applies_the_configuration_of_the_best_class(#[case] strategy: &str, #[case] expect: &str, #[case] variables: &str) {
    let configuration = |class: &str, value: &str| {
        format!("{{selector: {{acceleratorClass: {class}}}, env: [{{name: WHICH, value: {value}}}]}}")
    };
    let spec = format!(
        ", acceleratorRequirements: {{supportedClasses: [nvidia-a100-40gb, nvidia-h100-80gb]}}, acceleratorConfigurations: [{}, {}]",
        configuration("nvidia-a100-40gb", "a100"),
        configuration("nvidia-h100-80gb", "h100")
    );
    let manifest = chat(&format!(", acceleratorSelector: {{strategy: {strategy}}}"));
    let plan = plan_manifests(&[CLASSES, MODELS, &runtime("rt", "", &spec), &manifest]);
    assert_eq!((class(&plan), env(&plan, "-engine").as_str()), (Some(expect), variables));
}

// spec: ACC-74
#[test]
fn contradicting_requirements() {
    let only_a100 = runtime("rt", "", ", acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb]}");
    let manifest = chat(", acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}");
    insta::assert_snapshot!(decision_text(&plan_manifests(&[CLASSES, MODELS, &only_a100, &manifest])), @r"
    infeasible NoEligibleAccelerator: Runtime rt, the only one, cannot serve model llama-7b: NoEligibleAccelerator: no accelerator class is eligible for the engine: nvidia-h100-80gb, amd-mi250x and 1 more NotSupportedByRuntime: the runtime supports only nvidia-a100-40gb; nvidia-a100-40gb NotPreferred: the service allows only nvidia-h100-80gb
    – rt (Cluster) NoEligibleAccelerator
        engine nvidia-h100-80gb: NotSupportedByRuntime
        engine nvidia-a100-40gb: NotPreferred
        engine amd-mi250x: NotSupportedByRuntime
        engine intel-max-1550: NotSupportedByRuntime
    ");
}

// spec: ACC-75
#[test]
fn reports_unknown_classes() {
    let runtime_manifest = runtime(
        "rt",
        "",
        ", acceleratorRequirements: {supportedClasses: [gone-from-runtime, nvidia-h100-80gb, nvidia-a100-40gb]}",
    );
    let selected = chat(", acceleratorSelector: {preferredClasses: [gone-from-selector, nvidia-h100-80gb]}");
    insta::assert_snapshot!(decision_text(&plan_manifests(&[CLASSES, MODELS, &runtime_manifest, &selected])), @r"
    feasible Selected: rt on 1 × nvidia-h100-80gb (balanced 1.00, $5.12/h)
    engine: 1 × nvidia-h100-80gb
    1 rt (Cluster)
        engine nvidia-h100-80gb: Eligible
        engine gone-from-selector: UnknownClass
        engine nvidia-a100-40gb: NotPreferred
        engine amd-mi250x: NotSupportedByRuntime
        engine intel-max-1550: NotSupportedByRuntime
        engine gone-from-runtime: UnknownClass
    warning AvailabilityUnknown: The availability of nodes of class nvidia-h100-80gb is unknown
    ");
    let annotated =
        selected.replace("{name: chat}", "{name: chat, annotations: {ome.io/accelerator-class: gone-from-annotation}}");
    let plan = plan_manifests(&[CLASSES, MODELS, &runtime_manifest, &annotated]);
    assert_eq!(
        (code(&plan), super::verdicts(&plan)["gone-from-annotation"]),
        ((false, "NoEligibleAccelerator"), "UnknownClass")
    );
    assert!(plan.message.contains("gone-from-annotation, gone-from-runtime UnknownClass"), "{}", plan.message);
}

// spec: ACC-112
#[rstest]
#[case::story("0.5", "cost", "nvidia-a100-40gb", true)]
#[case::one_class_within_threshold("3", "performance", "nvidia-a100-40gb", false)]
#[case::all_classes_within_threshold("6", "performance", "nvidia-h100-80gb", false)]
fn cost_threshold_per_replica_and_hour(
    #[case] threshold: &str,
    #[case] strategy: &str,
    #[case] expect: &str,
    #[case] exceeded: bool,
) {
    let story = story_6();
    assert!(story.contains("strategy: cost") && story.contains("ome.io/cost-threshold: \"0.5\""));
    let manifest = story
        .replace("strategy: cost", &format!("strategy: {strategy}"))
        .replace("cost-threshold: \"0.5\"", &format!("cost-threshold: \"{threshold}\""))
        // Neutralize the story's scores, which take precedence over strategy and price.
        .replace("score: 100", "score: 0");
    let plan = plan_manifests(&[CLASSES, MODELS, &manifest]);
    assert_eq!(
        (class(&plan), codes(&plan).contains(&"CostThresholdExceeded")),
        (Some(expect), exceeded),
        "{}",
        decision_text(&plan)
    );
    let story_plan = plan_manifests(&[CLASSES, MODELS, &story]);
    let prices: Vec<_> =
        story_plan.candidates[0].accelerators.iter().filter(|one| one.class.starts_with("nvidia")).collect();
    assert_eq!(prices[0].class, "nvidia-a100-40gb");
    assert!(codes(&story_plan).contains(&"CostThresholdExceeded"));
}

// spec: ACC-122
#[test]
fn engine_and_decoder_have_separate_classes_and_configurations() {
    let configuration = |class: &str, value: &str| {
        format!(
            "{{selector: {{acceleratorClass: {class}}}, env: [{{name: TUNED, value: {value}}}], runner: {{args: [--{value}]}}}}"
        )
    };
    let spec = format!(
        ", decoderConfig: {{runner: {{image: d}}}}, routerConfig: {{runner: {{image: r}}}}, acceleratorConfigurations: [{}, {}]",
        configuration("nvidia-a100-40gb", "a100"),
        configuration("nvidia-h100-80gb", "h100")
    );
    let manifest = chat(
        ", engine: {acceleratorOverride: {acceleratorClass: nvidia-h100-80gb}}, decoder: {acceleratorOverride: {acceleratorClass: nvidia-a100-40gb}}",
    );
    let plan = plan_manifests(&[CLASSES, MODELS, &runtime("rt", "", &spec), &manifest]);
    let classes = ["engine", "decoder"].map(|name| plan.components[name].accelerator_class.as_deref().unwrap());
    assert_eq!(classes, ["nvidia-h100-80gb", "nvidia-a100-40gb"], "{}", decision_text(&plan));
    assert_eq!((env(&plan, "-engine").as_str(), env(&plan, "-decoder").as_str()), ("TUNED=h100", "TUNED=a100"));
    assert_eq!(container(&plan, "-engine")["args"], json!(["--h100"]));
    assert_eq!(container(&plan, "-decoder")["args"], json!(["--a100"]));
    assert!(!container(&plan, "-router")["env"].to_string().contains("TUNED"));
}

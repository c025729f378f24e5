//! Plans the manifests of the stories exactly as the specifications print them: seed 000 (accelerators), 001 (runtimes) and
//! 002 (roles). The files differ from the text in their indentation only.

use std::fmt::Write as _;

use api::{Severity, lint_document, parse_manifest};
use rstest::rstest;

use super::{node, plan_manifests, service};
use crate::ServicePlan;

const CLASSES: &str = include_str!("stories/classes.yaml");
const MORE_CLASSES: &str = include_str!("stories/more-classes.yaml");
const MODELS: &str = include_str!("stories/models.yaml");
const MISTRAL: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: mistral-7b-instruct}, spec: {\
     modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.36.2}, \
     modelArchitecture: MistralForCausalLM, modelParameterSize: 7.2B}}";

/// Returns outcome, runtime, accelerators and warnings: `Selected r; engine 1×2×8 h100; warnings A B`, where the numbers are
/// replicas, nodes per replica and accelerators per node.
fn summary(plan: &ServicePlan) -> String {
    let mut text = plan.reason.clone();
    if let Some(runtime) = &plan.runtime {
        write!(text, " {}", runtime.name).unwrap();
    }
    for (name, component) in &plan.components {
        if component.variants.is_empty() {
            let class = component.accelerator_class.as_deref().or(component.resource.as_deref()).unwrap_or("–");
            let (replicas, nodes, per_node) = (component.replicas, component.nodes, component.accelerators_per_node);
            write!(text, "; {name} {replicas}×{nodes}×{per_node} {class}").unwrap();
        }
        for variant in &component.variants {
            let (replicas, nodes, per_node) = (variant.replicas, variant.nodes, variant.accelerators_per_node);
            write!(text, "; {name} {replicas}×{nodes}×{per_node} {}", variant.accelerator_class).unwrap();
        }
    }
    let codes: Vec<&str> = plan.warnings.iter().map(|warning| warning.code.as_str()).collect();
    match codes.as_slice() {
        [] => text + "; no warnings",
        codes => format!("{text}; warnings {}", codes.join(" ")),
    }
}

/// Some manifests lack what every Kubernetes object, or the API of the specification, requires.
#[rstest]
#[case::story_1(include_str!("stories/story-1.yaml"), "document 1: `apiVersion` is missing")]
#[case::story_1_before(include_str!("stories/story-1-before.yaml"), "document 1: `apiVersion` is missing")]
#[case::story_2(include_str!("stories/story-2.yaml"), "document 1: `apiVersion` is missing")]
#[case::story_2_before(include_str!("stories/story-2-before.yaml"), "document 1: `apiVersion` is missing")]
#[case::story_4(
    include_str!("stories/story-4.yaml"),
    "document 1 (AcceleratorClass nvidia-h100-80gb), spec.capabilities: required field is missing"
)]
fn incomplete_manifests_are_errors_that_name_the_field(#[case] manifest: &str, #[case] expect: &str) {
    let error = match parse_manifest("f.yaml", manifest) {
        Err(error) => error,
        Ok(documents) => {
            let mut findings = documents
                .iter()
                .flat_map(|document| lint_document(document).into_iter().map(move |finding| (document, finding)));
            let (document, finding) = findings.find(|(_, finding)| finding.severity == Severity::Error).unwrap();
            finding.into_manifest_error(document)
        }
    };
    assert_eq!(error.to_string(), format!("f.yaml, {expect}"));
    assert!(error.hint.is_some());
}

/// The other manifests are valid.
#[rstest]
#[case(CLASSES)]
#[case(include_str!("stories/story-3.yaml"))]
#[case(include_str!("stories/story-5.yaml"))]
#[case(include_str!("stories/story-6.yaml"))]
#[case(include_str!("stories/story-7.yaml"))]
#[case(include_str!("stories/story-8-command.yaml"))]
#[case(include_str!("stories/story-8-args.yaml"))]
#[case(include_str!("stories/story-8-env.yaml"))]
#[case(include_str!("stories/runtime-example.yaml"))]
#[case(include_str!("stories/runtime-example-2.yaml"))]
#[case(include_str!("stories/runtime-example-service.yaml"))]
#[case(include_str!("stories/runtime-example-service-automatic.yaml"))]
#[case(include_str!("stories/roles-1.yaml"))]
#[case(include_str!("stories/roles-2.yaml"))]
#[case(include_str!("stories/roles-3.yaml"))]
#[case(include_str!("stories/roles-4.yaml"))]
fn manifests_have_no_errors(#[case] manifest: &str) {
    for document in parse_manifest("f.yaml", manifest).unwrap() {
        let errors = lint_document(&document).into_iter().filter(|finding| finding.severity == Severity::Error);
        assert_eq!(errors.collect::<Vec<_>>(), [], "{}", document.display_name());
    }
}

/// Seed 001: the runtime requests two GPUs and no class. Without `runtime`, the runtime with the higher priority is selected.
#[rstest]
#[case::named(include_str!("stories/runtime-example-service.yaml"), "Selected srt-mistral-7b-instruct; engine 1×1×2 nvidia.com/gpu; warnings AcceleratorNotConsidered")]
#[case::automatic(include_str!("stories/runtime-example-service-automatic.yaml"), "Selected srt-mistral-7b-instruct-2; engine 1×1×2 nvidia.com/gpu; warnings AcceleratorNotConsidered")]
fn runtime_examples(#[case] service: &str, #[case] expect: &str) {
    let runtimes = [include_str!("stories/runtime-example.yaml"), include_str!("stories/runtime-example-2.yaml")];
    assert_eq!(summary(&plan_manifests(&[runtimes[0], runtimes[1], MISTRAL, service])), expect);
}

/// Seed 002: replicas, nodes and GPUs as the text of each story counts them.
#[rstest]
#[case::story_1(include_str!("stories/roles-1.yaml"), "Rendered; inference 1×1×1 nvidia.com/gpu; no warnings")]
#[case::story_2(include_str!("stories/roles-2.yaml"), "Rendered; decode 4×1×1 nvidia.com/gpu; prefill 2×1×1 nvidia.com/gpu; warnings RouterMissing")]
#[case::story_3(include_str!("stories/roles-3.yaml"), "Rendered; inference 2×4×8 nvidia.com/gpu; no warnings")]
#[case::story_4(include_str!("stories/roles-4.yaml"), "Rendered; decode 2×4×8 nvidia.com/gpu; prefill 1×2×8 nvidia.com/gpu; warnings RouterMissing")]
fn role_stories(#[case] manifest: &str, #[case] expect: &str) {
    let plan = plan_manifests(&[manifest]);
    assert_eq!(summary(&plan), expect);
}

/// Seed 000: class and count are decided. Runtimes print no image, so that the plan ends with the remedy to set one.
#[rstest]
#[case::story_6(&[include_str!("stories/story-6.yaml")], "NoEngineContainer sglang-cost-optimized; engine 1×1×1 nvidia-a100-40gb; engine 1×1×1 nvidia-h100-80gb; warnings AvailabilityUnknown CostThresholdExceeded")]
#[case::story_7(&[include_str!("stories/story-7.yaml"), "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: a}, spec: {model: {name: llama-13b}}}"], "NoEngineContainer sglang-performance-optimized; engine 1×1×1 nvidia-a100-40gb; warnings AvailabilityUnknown FiguresMissing")]
#[case::story_8_command(&[include_str!("stories/story-8-command.yaml")], "Selected; engine 1×1×16 nvidia-h100-80gb; warnings AvailabilityUnknown AcceleratorArgsNotApplied EngineImageUnset")]
#[case::story_8_args(&[include_str!("stories/story-7.yaml"), include_str!("stories/story-8-args.yaml")], "NoEngineContainer sglang-performance-optimized; engine 1×1×8 nvidia-h100-80gb; warnings ModelUnstated AvailabilityUnknown")]
#[case::story_8_env(&[include_str!("stories/story-7.yaml"), include_str!("stories/story-8-env.yaml")], "NoEngineContainer sglang-performance-optimized; engine 1×1×4 nvidia-h100-80gb; warnings ModelUnstated AvailabilityUnknown")]
fn accelerator_stories(#[case] manifests: &[&str], #[case] expect: &str) {
    let plan = plan_manifests(&[&[CLASSES, MORE_CLASSES, MODELS], manifests].concat());
    assert_eq!(summary(&plan), expect, "{}", plan.message);
}

/// Story 5 of seed 000: the accelerators of the engine do not move the router. The runtime is that of Story 2 with the `apiVersion`
/// that its text lacks; `None`: the runtime is missing.
#[rstest]
#[case::as_printed(None, "RuntimeNotFound; no warnings")]
#[case::with_runtime(
    Some(concat!("apiVersion: ome.io/v1beta1\n", include_str!("stories/story-2.yaml"))),
    "NoEngineContainer sglang-universal; engine 1×1×1 nvidia-a100-40gb; warnings AvailabilityUnknown"
)]
fn router_story(#[case] runtime: Option<&str>, #[case] expect: &str) {
    let manifests = [CLASSES, MORE_CLASSES, MODELS, include_str!("stories/story-5.yaml")];
    let plan = plan_manifests(&manifests.into_iter().chain(runtime).collect::<Vec<_>>());
    assert_eq!(summary(&plan), expect, "{}", plan.message);
}

/// Story 3 of seed 000: the class that is printed for Carol's flavor serves a model.
#[test]
fn class_of_the_flavor_serves_a_model() {
    // ostler does not read the flavor, which comes first, in a plan: the class has its labels.
    let class = include_str!("stories/story-3.yaml");
    let runtime = "{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {name: r}, spec: {supportedModelFormats: [{name: safetensors, autoSelect: true}], \
         acceleratorRequirements: {}, engineConfig: {runner: {image: lmsysorg/sglang}}}}";
    let manifests =
        [class, MODELS, runtime, &service("chat", "{model: {name: llama-7b}}"), &node("n", "A100-SXM4-40GB")];
    let plan = plan_manifests(&manifests);
    assert_eq!(summary(&plan), "Selected r; engine 1×1×1 gpu-nvidia-a100; no warnings", "{}", plan.message);
}

//! Regression tests for defects of the deployed upstream system, numbered by the sections of the defect analysis.
//! Defects of other crates are tested there:
//!
//! | defect | test |
//! |---|---|
//! | 0.2 classes never influence the runtime | `selection`, ACC-71 |
//! | 0.4, 2.5 no range beats every range | `missing_size_range_ranks_after_matching_range`; over the upstream catalog: suite `corpus` of `ostler` |
//! | 0.5 capabilities compared as text | `upstream_regressions::compares_capabilities_as_numbers` |
//! | 0.6 nil dereferences | `accepts_one_sided_ranges`, `applies_selection_policies` |
//! | 0.7, 4 tuning beats the user; random order of variables | `merge::env`, `merge::args`, `upstream_regressions::tuning_has_a_stable_order` |
//! | 0.8, 0.9, 5.7 nothing in status, no condition | tests of `operator` |
//! | 2.1 protocols never checked | `compares_protocols` |
//! | 2.2 union of overrides | `decides_components_separately` |
//! | 2.3 versions | `compares_versions` |
//! | 2.4 sizes that read as zero | `upstream_regressions::parses_sizes`, `api::ParameterCount` |
//! | 2.5 priority and tuning of another entry; unset autoSelect | `uses_only_the_matching_entry`, `upstream_regressions::missing_auto_select_is_false` |
//! | 2.6 one name in two scopes; order of messages; the model's name | `reports_equal_names_in_different_scopes`, `properties`, `upstream_regressions::message_names_model_and_runtime` |
//! | 3 a named class unchecked; constraints ignored; memory | `checks_named_class`, `parses_marketing_memory_sizes` |
//! | 3 fp8 read as int8; spot against on demand; unpriced dropped; ties | `upstream_regressions` |
//! | 3 a class counts host memory, and every node | `upstream_regressions::class_nodes_match_discovery`, `inventory::matching` |
//! | 4 flags: repeated, several values, negative, aliases, shells, prefixes | `merge::args` |
//! | 4 one accelerator instead of eight; sizes of parallelism ignored | `upstream_regressions::computes_accelerator_counts` |
//! | 4 affinity replaced | `merge::affinity` |
//! | 4 `PARALLELISM_SIZE` only without a class; 5.6 templates | `plan` |
//! | 5.1 services wait forever; 5.4 autoscalers; 6 admission | `operator` |

use rstest::rstest;

use super::fixture::{CLASSES, fixture, selection, warning_codes};
use crate::*;

/// A 7B model with the Llama architecture.
pub(super) const MODEL: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 7B}}";

pub(super) fn runtime(name: &str, rest: &str) -> String {
    format!("{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: {name}}}, spec: {{{rest}}}}}")
}

pub(super) fn service(spec: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s}}, spec: {{model: {{name: m}}, {spec}}}}}"
    )
}

pub(super) const ANY: &str = "supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]";
pub(super) const ON_ANY_CLASS: &str = "supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}], acceleratorRequirements: {requiredCapabilities: {features: [tensor-cores]}}";

pub(super) fn decide_manifests(documents: &[&str]) -> Decision {
    let manifests = documents.join("\n---\n");
    fixture(&[CLASSES, &manifests]).decide()
}

pub(super) fn rejection(decision: &Decision, runtime: &str) -> String {
    let candidate = decision.candidates.iter().find(|candidate| candidate.runtime == runtime).unwrap();
    candidate.rejected.as_ref().map_or(String::new(), |rejection| format!("{}: {rejection}", rejection.code()))
}

// A runtime without a size range had distance 0 and ranked first: a 72B model was assigned to a runtime for 14B.
// spec: RT-62
#[test]
fn missing_size_range_ranks_after_matching_range() {
    let large_model = MODEL.replace("7B", "72B");
    let (unbounded, for_14b) =
        (runtime("a", ANY), runtime("b", &format!("{ANY}, modelSizeRange: {{min: 13B, max: 15B}}")));
    let matching = runtime("c", &format!("{ANY}, modelSizeRange: {{min: 65B, max: 80B}}"));
    assert_eq!(selection(&decide_manifests(&[&large_model, &unbounded, &for_14b, &matching])).0, "c");
    let decision = decide_manifests(&[&large_model, &for_14b]);
    assert!(!decision.feasible);
    assert_eq!(
        decision.message,
        "Runtime b, the only one, cannot serve model m: SizeOutOfRange: the model has 72B parameters; the runtime supports 13B–15B"
    );
}

// One-sided ranges and policies without constraints caused nil dereferences.
// spec: RT-20
#[rstest]
#[case("modelSizeRange: {min: 5B}", "")]
#[case("modelSizeRange: {max: 9B}", "")]
#[case("modelSizeRange: {max: 6B}", "SizeOutOfRange: the model has 7B parameters; the runtime supports up to 6B")]
#[case("modelSizeRange: {min: 8B}", "SizeOutOfRange: the model has 7B parameters; the runtime supports 8B or more")]
fn accepts_one_sided_ranges(#[case] range: &str, #[case] expected: &str) {
    assert_eq!(rejection(&decide_manifests(&[MODEL, &runtime("a", &format!("{ANY}, {range}"))]), "a"), expected);
}

// Every policy selects among several classes without constraints.
#[rstest]
// spec: ACC-57
#[case::best_fit("BestFit", "", "nvidia-t4", 2)]
#[case::cheapest("Cheapest", "", "nvidia-t4", 2)]
#[case::most_capable("MostCapable", "", "nvidia-h100-80gb", 1)]
#[case::first_available("FirstAvailable", "", "nvidia-h100-80gb", 1)]
#[case::best_fit_above("BestFit", ", constraints: {minMemory: 40}", "nvidia-a100-40gb", 1)]
#[case::cheapest_above("Cheapest", ", constraints: {minMemory: 40}", "nvidia-a100-40gb", 1)]
#[case::most_capable_below("MostCapable", ", constraints: {maxMemory: 50}", "nvidia-a100-40gb", 1)]
#[case::policy_before_default_strategy("Cheapest", ", strategy: balanced", "nvidia-t4", 2)]
fn applies_selection_policies(#[case] policy: &str, #[case] more: &str, #[case] class: &str, #[case] count: u32) {
    let runtime_fields = format!(
        "{ANY}, acceleratorRequirements: {{acceleratorClasses: [nvidia-h100-80gb, gone, nvidia-a100-40gb, nvidia-t4]}}"
    );
    let service = service(&format!("acceleratorSelector: {{policy: {policy}{more}}}"));
    let decision = decide_manifests(&[MODEL, &runtime("a", &runtime_fields), &service]);
    assert_eq!(selection(&decision), ("a".to_owned(), class.to_owned(), count, 1), "{decision:#?}");
}

const NODES: &str = "{apiVersion: v1, kind: Node, metadata: {name: a, labels: {gpu: a100}}, status: {allocatable: {nvidia.com/gpu: 8}}}
---
{apiVersion: v1, kind: Node, metadata: {name: h, labels: {gpu: h100}}, spec: {unschedulable: true}, status: {allocatable: {nvidia.com/gpu: 8}}}";

// FirstAvailable ignored availability: a service got the tuning of a class without free capacity.
#[test]
fn first_available_has_free_capacity() {
    let runtime_fields =
        format!("{ANY}, acceleratorRequirements: {{supportedClasses: [nvidia-h100-80gb, nvidia-a100-40gb]}}");
    let service = service("acceleratorSelector: {policy: FirstAvailable}");
    let decision = decide_manifests(&[MODEL, NODES, &runtime("a", &runtime_fields), &service]);
    assert_eq!(selection(&decision).1, "nvidia-a100-40gb");
}

// Versions: only version parts that are set are compared; a missing version never matches a required one; pre-releases
// precede releases.
#[rstest]
// spec: RT-55
#[case("1", "Equal", Some("1.0.0"), true)]
#[case("1", "Equal", Some("1"), true)]
#[case("1.0.0", "Equal", Some("1"), true)]
#[case("1.0.0", "Equal", Some("v1.0.0+build"), true)]
#[case("1.0.0", "Equal", Some("1.0.1"), false)]
#[case("4.36", "Equal", Some("4.36.2"), true)]
#[case("1.0.0", "Equal", None, false)]
#[case("1", "GreaterThan", None, false)]
// spec: RT-56
#[case("1.8.0", "GreaterThan", Some("1.7.0"), true)]
#[case("1.7.0", "GreaterThan", Some("1.8.0"), false)]
#[case("1.7.0", "GreaterThanOrEqual", Some("1.7.0"), true)]
#[case("4.45", "GreaterThanOrEqual", Some("4.33.1"), true)]
#[case("v1.1", "GreaterThan", Some("1.0.0"), true)]
#[case("4.36.0", "GreaterThan", Some("4.36.0-rc1"), true)]
#[case("4.36.0-rc1", "GreaterThanOrEqual", Some("4.36.0"), false)]
fn compares_versions(
    #[case] runtime_version: &str,
    #[case] operator: &str,
    #[case] model_version: Option<&str>,
    #[case] accepted: bool,
) {
    let version = model_version.map(|version| format!(", version: \"{version}\"")).unwrap_or_default();
    for (part, other) in [("Format", "Framework"), ("Framework", "Format")] {
        let named = |name: &str, version: &str| format!("model{name}: {{name: x{version}}}");
        let both = |version: &str| format!("{}, {}", named(part, version), named(other, ""));
        let model = format!(
            "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{{}}}}}",
            both(&version)
        );
        let entry = both(&format!(", version: \"{runtime_version}\", operator: {operator}"));
        let decision = decide_manifests(&[
            &model,
            &runtime("a", &format!("supportedModelFormats: [{{{entry}, autoSelect: true}}]")),
        ]);
        let expected = if accepted { String::new() } else { format!("{part}VersionMismatch") };
        assert_eq!(rejection(&decision, "a").split(':').next(), Some(expected.as_str()));
    }
}

// The priority and configuration of one format entry were applied to another.
// spec: RT-66
// spec: RT-70
#[test]
fn uses_only_the_matching_entry() {
    let two_entries = "supportedModelFormats: [
        {modelFormat: {name: safetensors}, modelArchitecture: Qwen2ForCausalLM, autoSelect: true, priority: 9, acceleratorConfig: {nvidia-h100-80gb: {tensorParallelismOverride: {tensorParallelSize: 8}}}},
        {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, autoSelect: true, priority: 1, acceleratorConfig: {nvidia-h100-80gb: {tensorParallelismOverride: {tensorParallelSize: 2}}}}]";
    let other = "supportedModelFormats: [{modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, autoSelect: true, priority: 2}]";
    let decision = decide_manifests(&[MODEL, &runtime("a", two_entries), &runtime("b", other)]);
    assert_eq!(selection(&decision).0, "b");
    let service = service("runtime: {name: a}, acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}");
    assert_eq!(selection(&decide_manifests(&[MODEL, &runtime("a", two_entries), &runtime("b", other), &service])).2, 2);
    // Two entries match; the one without autoSelect does not affect the other.
    let not_selectable = "supportedModelFormats: [
        {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, priority: 9},
        {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, autoSelect: true, priority: 1}]";
    assert_eq!(selection(&decide_manifests(&[MODEL, &runtime("a", not_selectable), &runtime("b", other)])).0, "b");
    let auto_select_off = two_entries
        .replace("priority: 1", "priority: 99")
        .replace("modelArchitecture: LlamaForCausalLM, autoSelect: true", "modelArchitecture: LlamaForCausalLM");
    assert_eq!(
        rejection(&decide_manifests(&[MODEL, &runtime("a", &auto_select_off)]), "a").split(':').next(),
        Some("AutoSelectDisabled")
    );
}

// Every runtime is reported once, in a fixed order; equal names in two scopes do not overwrite each other.
// spec: RT-46
// spec: RT-47
#[test]
fn reports_equal_names_in_different_scopes() {
    let in_namespace = |namespace: &str| {
        runtime("same", ANY)
            .replace("ClusterServingRuntime", "ServingRuntime")
            .replace("{name: same}", &format!("{{name: same, namespace: {namespace}}}"))
    };
    let (same_namespace, other_namespace, cluster) =
        (in_namespace("default"), in_namespace("other"), runtime("same", ANY));
    let decision = decide_manifests(&[MODEL, &cluster, &other_namespace, &same_namespace]);
    let candidates: Vec<(&str, Scope)> =
        decision.candidates.iter().map(|candidate| (candidate.runtime.as_str(), candidate.scope)).collect();
    assert_eq!(candidates, [("same", Scope::Namespace), ("same", Scope::Cluster)]);
    let named = service("runtime: {name: same}");
    assert_eq!(
        decide_manifests(&[MODEL, &cluster, &other_namespace, &same_namespace, &named]).runtime.unwrap().scope,
        Scope::Namespace
    );
    assert_eq!(decide_manifests(&[MODEL, &cluster, &other_namespace, &named]).runtime.unwrap().scope, Scope::Cluster);
    assert_eq!(decide_manifests(&[MODEL, &other_namespace, &named]).reason, "RuntimeNotFound");
}

// With overrides for engine and decoder, the runtime had to support both; constraints of the component were ignored.
// spec: ACC-122
#[test]
fn decides_components_separately() {
    let runtime_fields = format!(
        "{ANY}, acceleratorRequirements: {{supportedClasses: [nvidia-h100-80gb, nvidia-a100-40gb, nvidia-t4]}}, decoderConfig: {{runner: {{image: d}}}}"
    );
    let service = service(
        "acceleratorSelector: {acceleratorClass: nvidia-t4}, engine: {acceleratorOverride: {acceleratorClass: nvidia-h100-80gb}}, decoder: {acceleratorOverride: {constraints: {minMemory: 30}, preferredClasses: [nvidia-t4, nvidia-a100-40gb]}}",
    );
    let decision = decide_manifests(&[MODEL, &runtime("a", &runtime_fields), &service]);
    let class = |name: &str| decision.components[name].accelerator_class.clone().unwrap();
    assert_eq!((class("engine").as_str(), class("decoder").as_str()), ("nvidia-h100-80gb", "nvidia-a100-40gb"));
}

/// A decoder that only the runtime declares uses the demand of the service.
// spec: ACC-58
#[rstest]
#[case::selector("acceleratorSelector: {preferredClasses: [nvidia-t4]}", "nvidia-t4")]
#[case::capabilities("acceleratorSelector: {requiredCapabilities: {memoryGB: 80}}", "nvidia-h100-80gb")]
#[case::annotation("annotations: {ome.io/accelerator-class: nvidia-a100-40gb}", "nvidia-a100-40gb")]
fn applies_service_requirements_to_decoder_of_runtime(#[case] spec: &str, #[case] expected: &str) {
    let with_decoder = runtime("a", &format!("{ON_ANY_CLASS}, decoderConfig: {{runner: {{image: d}}}}"));
    let decision = decide_manifests(&[MODEL, &with_decoder, &service(spec)]);
    let classes: Vec<_> =
        decision.components.values().map(|component| component.accelerator_class.as_deref().unwrap()).collect();
    assert_eq!(classes, [expected, expected]);
    let engine_only = decide_manifests(&[MODEL, &runtime("a", ON_ANY_CLASS), &service(spec)]);
    assert_eq!(engine_only.components.keys().collect::<Vec<_>>(), ["engine"]);
}

// A named class was not checked against the list of the runtime, and an empty result silently ran without accelerators.
// spec: ACC-74
// spec: ACC-75
#[test]
fn checks_named_class() {
    let runtime_fields = format!("{ANY}, acceleratorRequirements: {{supportedClasses: [nvidia-a100-40gb, gone]}}");
    let service = service("acceleratorSelector: {acceleratorClass: nvidia-h100-80gb}");
    let decision = decide_manifests(&[MODEL, &runtime("a", &runtime_fields), &service]);
    assert_eq!((decision.feasible, decision.reason.as_str()), (false, "NoEligibleAccelerator"));
    let codes: Vec<(&str, &str)> = decision.candidates[0]
        .accelerators
        .iter()
        .map(|candidate| (candidate.class.as_str(), candidate.evaluation.code()))
        .collect();
    assert_eq!(
        codes,
        [
            ("nvidia-h100-80gb", "NotSupportedByRuntime"),
            ("nvidia-a100-40gb", "NotPreferred"),
            ("nvidia-t4", "NotSupportedByRuntime"),
            ("gone", "UnknownClass"),
        ]
    );
}

// "80" was read as no memory, and "80G" as 74 GB.
// spec: ACC-19
#[rstest]
#[case("80")]
#[case("80G")]
#[case("80GB")]
#[case("80Gi")]
fn parses_marketing_memory_sizes(#[case] written: &str) {
    let service = service(&format!("acceleratorSelector: {{requiredCapabilities: {{memoryGB: \"{written}\"}}}}"));
    assert_eq!(selection(&decide_manifests(&[MODEL, &runtime("a", ON_ANY_CLASS), &service])).1, "nvidia-h100-80gb");
}

// The deployed system never compared protocols.
// spec: RT-63
// spec: RT-64
#[test]
fn compares_protocols() {
    let other = runtime("a", &format!("{ANY}, protocolVersions: [openInference-v2]"));
    let decision = decide_manifests(&[MODEL, &other]);
    assert_eq!(
        rejection(&decision, "a"),
        "ProtocolUnsupported: the service requires protocol openAI; the runtime supports openInference-v2"
    );
    let service = service("").replace("model: {name: m}", "model: {name: m, protocolVersion: openInference-v2}");
    assert!(decide_manifests(&[MODEL, &other, &service]).feasible);
    assert_eq!(
        rejection(&decide_manifests(&[MODEL, &runtime("a", ANY), &service]), "a"),
        "ProtocolUnsupported: the service requires protocol openInference-v2; the runtime supports openAI"
    );
}

// Long lists in messages are abbreviated.
#[test]
fn abbreviates_long_lists() {
    let class_names: Vec<String> = (0..1000).map(|n| format!("c{n}")).collect();
    let service = service(&format!("acceleratorSelector: {{preferredClasses: [{}]}}", class_names.join(", ")));
    let decision = decide_manifests(&[MODEL, &runtime("a", ON_ANY_CLASS), &service]);
    assert!(decision.message.len() < 1000 && decision.message.contains("and 998 more"), "{}", decision.message);
    assert!(warning_codes(&decision).is_empty());
}

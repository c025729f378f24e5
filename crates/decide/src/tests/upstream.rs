//! Defects of the deployed system, as listed in its study: none of them is here. Numbers are the study's sections; what
//! belongs to other rooms is tested there:
//!
//! | defect | shown by |
//! |---|---|
//! | 0.2 classes never influence the runtime | `choice`, ACC-71 |
//! | 0.4, 2.5 no range beats every range | `no_size_range_never_beats_a_fitting_one`; over its catalogue: `ostler`'s `corpus` |
//! | 0.5 capabilities compared as text | `deployed::capabilities_are_numbers` |
//! | 0.6 nil dereferences | `one_sided_ranges`, `policies` |
//! | 0.7, 4 tuning beats the user; random order of variables | `merge::env`, `merge::args`, `deployed::tuning_in_a_stable_order` |
//! | 0.8, 0.9, 5.7 nothing in status, no condition | `operator`'s suites |
//! | 2.1 protocols never checked | `protocols_are_compared` |
//! | 2.2 union of overrides | `components_are_decided_separately` |
//! | 2.3 versions | `versions` |
//! | 2.4 sizes that read as zero | `deployed::sizes`, `api`'s `size` |
//! | 2.5 priority and tuning of another entry; unset autoSelect | `the_matching_entry_alone_counts`, `deployed::unset_is_off` |
//! | 2.6 one name in two scopes; order of messages; the model's name | `one_name_in_several_scopes`, `properties`, `deployed::the_message_names_model_and_runtime` |
//! | 3 a named class unchecked; constraints ignored; memory | `a_named_class_is_checked`, `memory_as_gpus_are_sold` |
//! | 3 fp8 read as int8; spot against on demand; unpriced dropped; ties | `deployed` |
//! | 3 a class counts host memory, and every node | `deployed::nodes_of_a_class`, `inventory::matching` |
//! | 4 flags: repeated, several values, negative, aliases, shells, prefixes | `merge::args` |
//! | 4 one accelerator instead of eight; sizes of parallelism ignored | `deployed::counts` |
//! | 4 affinity replaced | `merge::affinity` |
//! | 4 `PARALLELISM_SIZE` only without a class; 5.6 templates | `plan` |
//! | 5.1 services wait for ever; 5.4 autoscalers; 6 admission | `operator` |

use rstest::rstest;

use super::fixture::{CLASSES, chosen, warnings, world};
use crate::*;

/// A 7B model of Llama's architecture.
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

pub(super) fn decided(documents: &[&str]) -> Decision {
    let joined = documents.join("\n---\n");
    world(&[CLASSES, &joined]).decide()
}

pub(super) fn rejection(decision: &Decision, runtime: &str) -> String {
    let found = decision.candidates.iter().find(|candidate| candidate.runtime == runtime).unwrap();
    found.rejected.as_ref().map_or(String::new(), |rejection| format!("{}: {rejection}", rejection.code()))
}

// A runtime without a size range had distance 0 and beat every bounded one: 72B landed on a runtime made for 14B.
// spec: RT-62
#[test]
fn no_size_range_never_beats_a_fitting_one() {
    let big = MODEL.replace("7B", "72B");
    let (open, made_for_14b) =
        (runtime("a", ANY), runtime("b", &format!("{ANY}, modelSizeRange: {{min: 13B, max: 15B}}")));
    let fitting = runtime("c", &format!("{ANY}, modelSizeRange: {{min: 65B, max: 80B}}"));
    assert_eq!(chosen(&decided(&[&big, &open, &made_for_14b, &fitting])).0, "c");
    let none = decided(&[&big, &made_for_14b]);
    assert!(!none.feasible);
    assert_eq!(none.message, "none of 1 runtimes serves m; nearest: b — SizeOutOfRange: model 72B, runtime 13B–15B");
}

// One-sided ranges and policies without constraints were nil dereferences.
// spec: RT-20
#[rstest]
#[case("modelSizeRange: {min: 5B}", "")]
#[case("modelSizeRange: {max: 9B}", "")]
#[case("modelSizeRange: {max: 6B}", "SizeOutOfRange: model 7B, runtime up to 6B")]
#[case("modelSizeRange: {min: 8B}", "SizeOutOfRange: model 7B, runtime 8B or more")]
fn one_sided_ranges(#[case] range: &str, #[case] expect: &str) {
    assert_eq!(rejection(&decided(&[MODEL, &runtime("a", &format!("{ANY}, {range}"))]), "a"), expect);
}

// Every policy decides between several classes without constraints, by what it is named for.
#[rstest]
// spec: ACC-57
#[case::best_fit("BestFit", "", "nvidia-t4", 2)]
#[case::cheapest("Cheapest", "", "nvidia-t4", 2)]
#[case::most_capable("MostCapable", "", "nvidia-h100-80gb", 1)]
#[case::first_available("FirstAvailable", "", "nvidia-h100-80gb", 1)]
#[case::best_fit_above("BestFit", ", constraints: {minMemory: 40}", "nvidia-a100-40gb", 1)]
#[case::cheapest_above("Cheapest", ", constraints: {minMemory: 40}", "nvidia-a100-40gb", 1)]
#[case::most_capable_below("MostCapable", ", constraints: {maxMemory: 50}", "nvidia-a100-40gb", 1)]
#[case::an_explicit_policy_outranks_the_default("Cheapest", ", strategy: balanced", "nvidia-t4", 2)]
fn policies(#[case] policy: &str, #[case] more: &str, #[case] class: &str, #[case] count: u32) {
    let listed = format!(
        "{ANY}, acceleratorRequirements: {{acceleratorClasses: [nvidia-h100-80gb, gone, nvidia-a100-40gb, nvidia-t4]}}"
    );
    let asked = service(&format!("acceleratorSelector: {{policy: {policy}{more}}}"));
    let decision = decided(&[MODEL, &runtime("a", &listed), &asked]);
    assert_eq!(chosen(&decision), ("a".to_owned(), class.to_owned(), count, 1), "{decision:#?}");
}

const NODES: &str = "{apiVersion: v1, kind: Node, metadata: {name: a, labels: {gpu: a100}}, status: {allocatable: {nvidia.com/gpu: 8}}}
---
{apiVersion: v1, kind: Node, metadata: {name: h, labels: {gpu: h100}}, spec: {unschedulable: true}, status: {allocatable: {nvidia.com/gpu: 8}}}";

// FirstAvailable ignored what is available: a service got the tuning of a class that had nothing free.
#[test]
fn first_available_is_available() {
    let listed = format!("{ANY}, acceleratorRequirements: {{supportedClasses: [nvidia-h100-80gb, nvidia-a100-40gb]}}");
    let asked = service("acceleratorSelector: {policy: FirstAvailable}");
    let decision = decided(&[MODEL, NODES, &runtime("a", &listed), &asked]);
    assert_eq!(chosen(&decision).1, "nvidia-a100-40gb");
}

// Versions: only stated parts are compared; an unstated one never matches a stated one; pre-releases are below releases.
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
fn versions(#[case] of_runtime: &str, #[case] operator: &str, #[case] of_model: Option<&str>, #[case] accepted: bool) {
    let version = of_model.map(|version| format!(", version: \"{version}\"")).unwrap_or_default();
    for (part, other) in [("Format", "Framework"), ("Framework", "Format")] {
        let named = |name: &str, version: &str| format!("model{name}: {{name: x{version}}}");
        let both = |version: &str| format!("{}, {}", named(part, version), named(other, ""));
        let model = format!(
            "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{{}}}}}",
            both(&version)
        );
        let entry = both(&format!(", version: \"{of_runtime}\", operator: {operator}"));
        let decision =
            decided(&[&model, &runtime("a", &format!("supportedModelFormats: [{{{entry}, autoSelect: true}}]"))]);
        let expect = if accepted { String::new() } else { format!("{part}VersionMismatch") };
        assert_eq!(rejection(&decision, "a").split(':').next(), Some(expect.as_str()));
    }
}

// Priority and tuning leaked from one format entry to another.
// spec: RT-66
// spec: RT-70
#[test]
fn the_matching_entry_alone_counts() {
    let two = "supportedModelFormats: [
        {modelFormat: {name: safetensors}, modelArchitecture: Qwen2ForCausalLM, autoSelect: true, priority: 9, acceleratorConfig: {nvidia-h100-80gb: {tensorParallelismOverride: {tensorParallelSize: 8}}}},
        {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, autoSelect: true, priority: 1, acceleratorConfig: {nvidia-h100-80gb: {tensorParallelismOverride: {tensorParallelSize: 2}}}}]";
    let other = "supportedModelFormats: [{modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, autoSelect: true, priority: 2}]";
    let decision = decided(&[MODEL, &runtime("a", two), &runtime("b", other)]);
    assert_eq!(chosen(&decision).0, "b");
    let wanted = service("runtime: {name: a}, acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}");
    assert_eq!(chosen(&decided(&[MODEL, &runtime("a", two), &runtime("b", other), &wanted])).2, 2);
    // Two entries match; the one that is not selected by itself lends the other nothing.
    let quiet = "supportedModelFormats: [
        {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, priority: 9},
        {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, autoSelect: true, priority: 1}]";
    assert_eq!(chosen(&decided(&[MODEL, &runtime("a", quiet), &runtime("b", other)])).0, "b");
    let off = two
        .replace("priority: 1", "priority: 99")
        .replace("modelArchitecture: LlamaForCausalLM, autoSelect: true", "modelArchitecture: LlamaForCausalLM");
    assert_eq!(rejection(&decided(&[MODEL, &runtime("a", &off)]), "a").split(':').next(), Some("AutoSelectDisabled"));
}

// Every runtime is reported once, in one order; those of one name in two scopes do not overwrite each other.
// spec: RT-46
// spec: RT-47
#[test]
fn one_name_in_several_scopes() {
    let of = |namespace: &str| {
        runtime("same", ANY)
            .replace("ClusterServingRuntime", "ServingRuntime")
            .replace("{name: same}", &format!("{{name: same, namespace: {namespace}}}"))
    };
    let (here, elsewhere, cluster) = (of("default"), of("other"), runtime("same", ANY));
    let decision = decided(&[MODEL, &cluster, &elsewhere, &here]);
    let seen: Vec<(&str, Scope)> = decision.candidates.iter().map(|one| (one.runtime.as_str(), one.scope)).collect();
    assert_eq!(seen, [("same", Scope::Namespace), ("same", Scope::Cluster)]);
    let named = service("runtime: {name: same}");
    assert_eq!(decided(&[MODEL, &cluster, &elsewhere, &here, &named]).runtime.unwrap().scope, Scope::Namespace);
    assert_eq!(decided(&[MODEL, &cluster, &elsewhere, &named]).runtime.unwrap().scope, Scope::Cluster);
    assert_eq!(decided(&[MODEL, &elsewhere, &named]).reason, "RuntimeNotFound");
}

// Overrides of engine and decoder demanded that the runtime support all of them; the component's constraints were ignored.
// spec: ACC-122
#[test]
fn components_are_decided_separately() {
    let rt = format!(
        "{ANY}, acceleratorRequirements: {{supportedClasses: [nvidia-h100-80gb, nvidia-a100-40gb, nvidia-t4]}}, decoderConfig: {{runner: {{image: d}}}}"
    );
    let asked = service(
        "acceleratorSelector: {acceleratorClass: nvidia-t4}, engine: {acceleratorOverride: {acceleratorClass: nvidia-h100-80gb}}, decoder: {acceleratorOverride: {constraints: {minMemory: 30}, preferredClasses: [nvidia-t4, nvidia-a100-40gb]}}",
    );
    let decision = decided(&[MODEL, &runtime("a", &rt), &asked]);
    let class = |name: &str| decision.components[name].accelerator_class.clone().unwrap();
    assert_eq!((class("engine").as_str(), class("decoder").as_str()), ("nvidia-h100-80gb", "nvidia-a100-40gb"));
}

/// A decoder that only the runtime has is asked for as the whole service is.
// spec: ACC-58
#[rstest]
#[case::selector("acceleratorSelector: {preferredClasses: [nvidia-t4]}", "nvidia-t4")]
#[case::capabilities("acceleratorSelector: {requiredCapabilities: {memoryGB: 80}}", "nvidia-h100-80gb")]
#[case::annotation("annotations: {ome.io/accelerator-class: nvidia-a100-40gb}", "nvidia-a100-40gb")]
fn the_runtimes_decoder_heeds_the_service(#[case] spec: &str, #[case] expect: &str) {
    let pair = runtime("a", &format!("{ON_ANY_CLASS}, decoderConfig: {{runner: {{image: d}}}}"));
    let decision = decided(&[MODEL, &pair, &service(spec)]);
    let classes: Vec<_> = decision.components.values().map(|one| one.accelerator_class.as_deref().unwrap()).collect();
    assert_eq!(classes, [expect, expect]);
    let engine_alone = decided(&[MODEL, &runtime("a", ON_ANY_CLASS), &service(spec)]);
    assert_eq!(engine_alone.components.keys().collect::<Vec<_>>(), ["engine"]);
}

// A named class was not checked against the runtime's list, and an empty result silently ran without accelerators.
// spec: ACC-74
// spec: ACC-75
#[test]
fn a_named_class_is_checked() {
    let listed = format!("{ANY}, acceleratorRequirements: {{supportedClasses: [nvidia-a100-40gb, gone]}}");
    let asked = service("acceleratorSelector: {acceleratorClass: nvidia-h100-80gb}");
    let decision = decided(&[MODEL, &runtime("a", &listed), &asked]);
    assert_eq!((decision.feasible, decision.reason.as_str()), (false, "NoEligibleAccelerator"));
    let codes: Vec<(&str, &str)> =
        decision.candidates[0].accelerators.iter().map(|one| (one.class.as_str(), one.evaluation.code())).collect();
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

// "80" meant no memory at all, "80G" 74 GB.
// spec: ACC-19
#[rstest]
#[case("80")]
#[case("80G")]
#[case("80GB")]
#[case("80Gi")]
fn memory_as_gpus_are_sold(#[case] written: &str) {
    let asked = service(&format!("acceleratorSelector: {{requiredCapabilities: {{memoryGB: \"{written}\"}}}}"));
    assert_eq!(chosen(&decided(&[MODEL, &runtime("a", ON_ANY_CLASS), &asked])).1, "nvidia-h100-80gb");
}

// Protocols were never compared.
// spec: RT-63
// spec: RT-64
#[test]
fn protocols_are_compared() {
    let other = runtime("a", &format!("{ANY}, protocolVersions: [openInference-v2]"));
    let decision = decided(&[MODEL, &other]);
    assert_eq!(rejection(&decision, "a"), "ProtocolUnsupported: protocol openAI, runtime speaks openInference-v2");
    let asked = service("").replace("model: {name: m}", "model: {name: m, protocolVersion: openInference-v2}");
    assert!(decided(&[MODEL, &other, &asked]).feasible);
    assert_eq!(
        rejection(&decided(&[MODEL, &runtime("a", ANY), &asked]), "a"),
        "ProtocolUnsupported: protocol openInference-v2, runtime speaks openAI"
    );
}

// A list of what a sentence says stays a sentence.
#[test]
fn long_lists_are_counted() {
    let many: Vec<String> = (0..1000).map(|n| format!("c{n}")).collect();
    let asked = service(&format!("acceleratorSelector: {{preferredClasses: [{}]}}", many.join(", ")));
    let decision = decided(&[MODEL, &runtime("a", ON_ANY_CLASS), &asked]);
    assert!(decision.message.len() < 1000 && decision.message.contains("and 998 more"), "{}", decision.message);
    assert!(serde_json::to_string(&decision.for_status()).unwrap().len() < 8000);
    assert!(warnings(&decision).is_empty());
}

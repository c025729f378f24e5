//! Strategies, thresholds, counts, capacity, and services that bring their own engine.

use rstest::rstest;

use super::fixture::{CLASSES, Fixture, chosen, warnings, world};
use crate::*;

const RUNTIME: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {name: srt}, spec: {supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}], acceleratorRequirements: {requiredCapabilities: {features: [tensor-cores]}}, engineConfig: {runner: {image: i}}}}";

fn model(size: &str, quantization: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {{name: m}}, spec: {{modelFormat: {{name: safetensors}}, modelParameterSize: {size}, quantization: \"{quantization}\"}}}}"
    )
}

fn service(spec: &str, annotations: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s, annotations: {{{annotations}}}}}, spec: {{model: {{name: m}}, {spec}}}}}"
    )
}

fn case(documents: &[&str]) -> Fixture {
    world(&[CLASSES, &documents.join("\n---\n")])
}

/// The printed NVIDIA classes only, without the T4.
fn printed(size: &str, quantization: &str, spec: &str, annotations: &str) -> Decision {
    let mut world = case(&[&model(size, quantization), RUNTIME, &service(spec, annotations)]);
    world.supply.classes.retain(|class| class.name != "nvidia-t4");
    world.decide()
}

#[rstest]
// spec: ACC-77
#[case::performance("13B", "", "acceleratorSelector: {strategy: performance}", "nvidia-h100-80gb", 1)]
// spec: ACC-78
#[case::cost("13B", "", "acceleratorSelector: {strategy: cost}", "nvidia-a100-40gb", 1)]
#[case::cost_of_the_whole_replica("70B", "", "acceleratorSelector: {strategy: cost}", "nvidia-a100-40gb", 8)]
// spec: ACC-81
#[case::small("7B", "", "acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}", "nvidia-a100-40gb", 1)]
#[case::large("70B", "", "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}", "nvidia-h100-80gb", 4)]
#[case::large_on_small("70B", "", "acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}", "nvidia-a100-40gb", 8)]
#[case::half("70B", "fp8", "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}", "nvidia-h100-80gb", 2)]
#[case::largest("405B", "fp8", "", "nvidia-h100-80gb", 8)]
fn by_strategy_and_size(
    #[case] size: &str,
    #[case] quantization: &str,
    #[case] spec: &str,
    #[case] class: &str,
    #[case] count: u32,
) {
    let runtime = RUNTIME.replace("autoSelect", &format!("quantization: \"{quantization}\", autoSelect"));
    let mut world = case(&[&model(size, quantization), &runtime, &service(spec, "")]);
    world.supply.classes.retain(|class| class.name != "nvidia-t4");
    assert_eq!(chosen(&world.decide()), ("srt".to_owned(), class.to_owned(), count, 1));
}

// spec: ACC-79
// spec: ACC-80
#[test]
fn a_70b_model_never_lands_on_a_t4() {
    let decision = case(&[&model("70B", ""), RUNTIME, &service("", "")]).decide();
    let t4 = decision.candidates[0].accelerators.iter().find(|one| one.class == "nvidia-t4").unwrap();
    assert_eq!(t4.evaluation.code(), "ModelDoesNotFit");
    assert_eq!(t4.evaluation.to_string(), "needs 168 GB, 8 × 15.5 GB usable (no more are tried)");
}

#[rstest]
// spec: ACC-82
#[case::two_nodes("405B", "leader: {runner: {image: i}}, worker: {runner: {image: i}}", (8, 2))]
#[case::eight_nodes("1.6T", "leader: {runner: {image: i}}, worker: {runner: {image: i}}", (8, 8))]
#[case::as_few_as_fit("70B", "leader: {runner: {image: i}}, worker: {runner: {image: i}}", (4, 1))]
#[case::as_many_as_stated("70B", "leader: {runner: {image: i}}, worker: {size: 1, runner: {image: i}}", (2, 2))]
#[case::fixed_per_node("405B", "leader: {runner: {image: i, resources: {limits: {nvidia.com/gpu: 4}}}}, worker: {runner: {image: i}}", (4, 4))]
#[case::a_flag_over_nodes("405B", "leader: {runner: {image: i, args: [--tp=16]}}, worker: {runner: {image: i}}", (8, 2))]
#[case::without_workers("405B", "runner: {image: i}", (0, 0))]
fn over_several_nodes(#[case] size: &str, #[case] engine: &str, #[case] expect: (u32, u32)) {
    let runtime = RUNTIME.replace("runner: {image: i}", engine);
    let selector = "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}";
    let decision = case(&[&model(size, ""), &runtime, &service(selector, "")]).decide();
    let engine = decision.components.get("engine").cloned().unwrap_or_default();
    assert_eq!((engine.accelerators_per_node, engine.nodes), expect, "{}", decision.message);
    assert_eq!(decision.feasible, expect != (0, 0));
}

#[rstest]
// spec: ACC-83
#[case::agree("args: [--tp-size, \"4\"], resources: {limits: {nvidia.com/gpu: 4}}", 4, false)]
#[case::the_flag_counts("args: [--tp-size, \"4\"], resources: {limits: {nvidia.com/gpu: 2}}", 4, true)]
#[case::tensor_times_pipeline("args: [--tp=4, --pp=2]", 8, false)]
#[case::by_env("env: [{name: TENSOR_PARALLEL_SIZE, value: \"4\"}], resources: {limits: {nvidia.com/gpu: 8}}", 4, true)]
fn parallelism_fixes_the_count(#[case] runner: &str, #[case] count: u32, #[case] warns: bool) {
    let runtime = RUNTIME.replace("image: i", &format!("image: i, {runner}"));
    let mut world = case(&[&model("13B", ""), &runtime]);
    let decision = world.decide();
    assert_eq!(chosen(&decision).2, count);
    assert_eq!(warnings(&decision).contains(&"ParallelismMismatch"), warns, "{:?}", decision.warnings);
    // Without a class the Pods stay as they are, but the disagreement is told as well.
    world.supply.accelerator_aware = false;
    assert_eq!(warnings(&world.decide()).contains(&"ParallelismMismatch"), warns);
}

#[rstest]
// spec: ACC-112
#[case::within("2.50", "nvidia-a100-40gb", false)]
#[case::none_within("0.5", "nvidia-a100-40gb", true)]
#[case::all_within("10", "nvidia-h100-80gb", false)]
fn cost_threshold(#[case] threshold: &str, #[case] class: &str, #[case] exceeded: bool) {
    let asked = "acceleratorSelector: {strategy: performance}";
    let decision = printed("13B", "", asked, &format!("ome.io/cost-threshold: \"{threshold}\""));
    assert_eq!(chosen(&decision).1, class);
    assert_eq!(warnings(&decision).contains(&"CostThresholdExceeded"), exceeded);
}

#[rstest]
// spec: ACC-65
// spec: ACC-66
#[case::service("acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}", "", "nvidia-a100-40gb")]
#[case::annotation(
    "acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}",
    "ome.io/accelerator-class: nvidia-t4",
    "nvidia-t4"
)]
#[case::service_strategy("acceleratorSelector: {strategy: cost}", "", "nvidia-t4")]
#[case::annotated_strategy(
    "acceleratorSelector: {strategy: cost}",
    "ome.io/selection-strategy: performance",
    "nvidia-h100-80gb"
)]
// spec: ACC-113
#[case::in_the_spec(
    "acceleratorSelector: {strategy: cost}, annotations: {ome.io/selection-strategy: performance}",
    "",
    "nvidia-h100-80gb"
)]
#[case::metadata_wins(
    "annotations: {ome.io/accelerator-class: nvidia-t4}",
    "ome.io/accelerator-class: nvidia-a100-40gb",
    "nvidia-a100-40gb"
)]
fn the_strongest_layer_decides(#[case] spec: &str, #[case] annotations: &str, #[case] class: &str) {
    let decision = case(&[&model("7B", ""), RUNTIME, &service(spec, annotations)]).decide();
    assert_eq!(chosen(&decision).1, class);
}

/// Edits the classes of a case before it is decided.
fn with_classes(mut world: Fixture, edit: impl Fn(&mut Class)) -> Decision {
    world.supply.classes.iter_mut().for_each(|class| edit(std::sync::Arc::make_mut(class)));
    world.decide()
}

// spec: ACC-7
// spec: ACC-78
#[test]
fn prices_are_never_mixed_nor_made_up() {
    let asked = |strategy: &str| {
        case(&[&model("7B", ""), RUNTIME, &service(&format!("acceleratorSelector: {{strategy: {strategy}}}"), "")])
    };
    // No price at all: balanced is performance.
    let free = with_classes(asked("balanced"), |class| class.cost = Default::default());
    let fast = asked("performance").decide();
    assert_eq!(chosen(&free), chosen(&fast));
    assert_eq!(free.components["engine"].cost_per_hour, None);
    // One class without a price comes after the priced ones.
    let one = with_classes(asked("cost"), |class| {
        if class.name == "nvidia-t4" {
            class.cost = Default::default();
        }
    });
    assert_eq!(chosen(&one).1, "nvidia-a100-40gb");
    // A spot price counts only where no other is stated.
    let spot = with_classes(asked("cost"), |class| {
        if class.name != "nvidia-t4" { class.cost.per_hour = None } else { class.cost.spot_per_hour = Some(0.01) }
    });
    assert_eq!(spot.components["engine"].cost_per_hour, Some(0.88));
    // Another kind of price is not compared, and that is said.
    let kinds = with_classes(asked("cost"), |class| {
        if class.name == "nvidia-t4" {
            class.cost = supply::Cost { per_million_tokens: Some(0.001), ..Default::default() }
        }
    });
    assert_eq!((chosen(&kinds).1.as_str(), warnings(&kinds).contains(&"PriceKindsDiffer")), ("nvidia-a100-40gb", true));
    // A term that one class lacks is dropped for all, and that is said.
    let term = with_classes(asked("performance"), |class| {
        if class.name == "nvidia-t4" {
            class.bandwidth = None;
        }
    });
    assert!(
        term.warnings.iter().any(|warning| warning.code == "ScoreTermDropped" && warning.message.contains("bandwidth"))
    );
    // Tiers count where nothing else is stated.
    let tiers =
        with_classes(asked("cost"), |class| class.cost = supply::Cost { tier: class.cost.tier, ..Default::default() });
    assert_eq!(chosen(&tiers).1, "nvidia-t4");
}

const NODES: &str = "
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {gpu: a100, zone: x}}, status: {allocatable: {nvidia.com/gpu: 8}}}
---
{apiVersion: v1, kind: Node, metadata: {name: h, labels: {gpu: h100, zone: y}}, status: {allocatable: {nvidia.com/gpu: 8}}}";

// spec: ACC-58
// spec: ACC-70
// spec: ACC-106
#[test]
fn placement_narrows_and_conflicts() {
    let decide = |spec: &str| case(&[&model("13B", ""), RUNTIME, NODES, &service(spec, "")]).decide();
    assert_eq!(chosen(&decide("engine: {nodeSelector: {zone: x}}")).1, "nvidia-a100-40gb");
    let code = |decision: &Decision, class: &str| {
        let all = &decision.candidates[0].accelerators;
        all.iter().find(|one| one.class == class).unwrap().evaluation.code().to_owned()
    };
    let conflict =
        decide("engine: {nodeSelector: {zone: x}}, acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}");
    assert_eq!((conflict.feasible, code(&conflict, "nvidia-h100-80gb").as_str()), (false, "NodeSelectorConflict"));
    let narrowed = decide("acceleratorSelector: {nodeSelector: {zone: x}}");
    assert_eq!(code(&narrowed, "nvidia-h100-80gb"), "NoMatchingNodes");
    assert_eq!(code(&narrowed, "nvidia-t4"), "NoMatchingNodes");
    // A service that requires H100 is not moved to an A100 (Story 4).
    let mut world = case(&[
        &model("13B", ""),
        RUNTIME,
        NODES,
        &service("acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}", ""),
    ]);
    for class in &mut world.supply.classes {
        let class = std::sync::Arc::make_mut(class);
        class
            .availability
            .iter_mut()
            .flat_map(|known| &mut known.nodes)
            .for_each(|node| node.free = if node.name == "h" { 0 } else { 8 });
    }
    let waits = world.decide();
    assert_eq!((chosen(&waits).1.as_str(), warnings(&waits)), ("nvidia-h100-80gb", vec!["NoFreeCapacity"]));
}

// Engine and decoder of one replica set do not count on the same accelerators.
// spec: ACC-85
// spec: ACC-122
#[test]
fn the_decoder_counts_what_the_engine_takes() {
    let runtime = RUNTIME.replace(
        "engineConfig",
        "decoderConfig: {runner: {image: i, resources: {limits: {nvidia.com/gpu: 8}}}}, engineConfig",
    );
    let decision = case(&[
        &model("13B", ""),
        &runtime,
        NODES,
        &service("engine: {runner: {resources: {limits: {nvidia.com/gpu: 8}}}}", ""),
    ])
    .decide();
    let class = |name: &str| decision.components[name].accelerator_class.clone().unwrap();
    assert_ne!(class("engine"), class("decoder"));
    assert!(warnings(&decision).is_empty(), "{:?}", decision.warnings);
}

// spec: ACC-2
#[test]
fn a_class_that_nobody_knows_is_chosen_like_any_other() {
    let npu = "{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {name: acme-npu}, spec: {vendor: acme, discovery: {nodeSelector: {acme.com/npu: x1}}, capabilities: {memoryGB: 96, features: [tensor-cores], memoryBandwidthGBps: 9000, performance: {fp16TFLOPS: 4000}}, resources: [{name: acme.com/npu}], cost: {perHour: 1}}}";
    let decision = case(&[&model("13B", ""), RUNTIME, npu, &service("", "")]).decide();
    assert_eq!(chosen(&decision).1, "acme-npu");
    assert_eq!(decision.components["engine"].resource.as_deref(), Some("acme.com/npu"));
}

// spec: ACC-125
#[test]
fn with_the_gate_off_runtimes_are_chosen_alone() {
    let mut world =
        case(&[&model("13B", ""), RUNTIME, &service("acceleratorSelector: {preferredClasses: [gone]}", "")]);
    assert_eq!(world.decide().reason, "NoEligibleAccelerator");
    world.supply.accelerator_aware = false;
    let decision = world.decide();
    assert_eq!(chosen(&decision), ("srt".to_owned(), String::new(), 0, 1));
    assert!(decision.warnings.is_empty() && decision.candidates[0].accelerators.is_empty());
}

// spec: ACC-118
#[rstest]
#[case::neither_model_nor_runtime(
    "engine: {runner: {image: i, command: [x]}}, acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}",
    "Selected",
    ""
)]
#[case::no_image("engine: {runner: {command: [x]}}", "NoEngineContainer", "")]
#[case::nothing("engine: {}", "NoEngineContainer", "")]
#[case::a_runtime_without_a_model("runtime: {name: srt}", "Selected", "srt")]
fn without_a_model(#[case] spec: &str, #[case] reason: &str, #[case] runtime: &str) {
    let decision = case(&[RUNTIME, &service(spec, "").replace("model: {name: m}, ", "")]).decide();
    assert_eq!((decision.reason.as_str(), chosen(&decision).0.as_str()), (reason, runtime));
    if spec.contains("preferredClasses") {
        assert_eq!(chosen(&decision).1, "nvidia-h100-80gb");
    }
}

#[rstest]
#[case::complete("{image: i, command: [x]}", true)]
#[case::only_another_image("{image: i}", false)]
fn a_model_without_a_runtime(#[case] runner: &str, #[case] feasible: bool) {
    let onnx = RUNTIME.replace("safetensors", "ONNX");
    let world = case(&[&model("13B", ""), &onnx, &service(&format!("engine: {{runner: {runner}}}"), "")]);
    let decision = world.decide();
    assert_eq!((decision.feasible, decision.runtime.is_some()), (feasible, false));
    assert_eq!(warnings(&decision).contains(&"NoCompatibleRuntime"), feasible, "{:?}", decision.warnings);
    assert_eq!(decision.candidates[0].rejected.as_ref().unwrap().code(), "FormatMismatch");
    let kept = decide(&world.demand, &world.supply, CurrentSelection::from_decision(&decision).as_ref());
    assert_eq!(kept.reason == "Kept", feasible);
}

// An incumbent whose offer is no longer the best is kept, and that is told.
#[test]
fn a_better_offer_is_told() {
    let world = case(&[&model("13B", ""), RUNTIME, NODES, &service("", "")]);
    let mut recorded = world.decide();
    let engine = recorded.components.get_mut("engine").unwrap();
    let other = if engine.accelerator_class.as_deref() == Some("nvidia-h100-80gb") {
        "nvidia-a100-40gb"
    } else {
        "nvidia-h100-80gb"
    };
    engine.accelerator_class = Some(other.to_owned());
    engine.accelerators_per_node = 4;
    let kept = decide(&world.demand, &world.supply, CurrentSelection::from_decision(&recorded).as_ref());
    assert_eq!(chosen(&kept), ("srt".to_owned(), other.to_owned(), 4, 1), "the number stays, too");
    assert!(warnings(&kept).contains(&"DecisionStale"));
    let first = kept.candidates[0].accelerators.first().unwrap();
    assert_eq!(first.outranked.as_ref().unwrap().to_string(), "would come first; the service keeps its choice");
}

#[rstest]
// spec: RT-68
#[case::priority("priority: 1", "priority: 2", "", "", "priority 1 < 2")]
#[case::no_priority("modelType: x", "priority: 2", "", "", "no priority, the selected one has 2")]
#[case::size(
    "priority: 2",
    "priority: 1",
    "modelSizeRange: {min: 1B, max: 70B},",
    "modelSizeRange: {min: 10B, max: 20B},",
    "size distance 69B > 10B"
)]
#[case::no_range(
    "priority: 2",
    "priority: 1",
    "",
    "modelSizeRange: {max: 20B},",
    "no size range, the selected one has one bound at distance 7B"
)]
fn a_loser_says_by_what_it_lost(
    #[case] a: &str,
    #[case] b: &str,
    #[case] of_a: &str,
    #[case] of_b: &str,
    #[case] expect: &str,
) {
    let named = |name: &str, entry: &str, spec: &str| {
        RUNTIME
            .replace("name: srt", &format!("name: {name}"))
            .replace("autoSelect", &format!("{entry}, autoSelect"))
            .replace("spec: {", &format!("spec: {{{spec} "))
    };
    let decision = case(&[&model("13B", ""), &named("a", a, of_a), &named("b", b, of_b), &service("", "")]).decide();
    assert_eq!(chosen(&decision).0, "b");
    assert_eq!(decision.candidates[1].outranked.as_ref().unwrap().to_string(), expect);
}

// What the service asks for by name is told before all others, so that a bounded record keeps it.
// spec: ACC-75
#[test]
fn classes_that_the_service_names_are_told_first() {
    let spec = "acceleratorSelector: {preferredClasses: [nvidia-h1000]}";
    let decision = printed("13B", "", spec, "");
    let told = &decision.candidates[0].accelerators;
    let codes: Vec<_> = told.iter().map(|one| (one.class.as_str(), one.evaluation.code())).take(2).collect();
    assert_eq!(codes[0], ("nvidia-h1000", "UnknownClass"));
    assert_eq!(codes[1].1, "NotPreferred");
}

#[rstest]
#[case::replicas("minReplicas: 3, runner: {args: [--tp=8]}", "needs 24, free 8")]
#[case::scattered("minReplicas: 3, runner: {args: [--tp=5]}", "needs 15, free 16, but not so many on one node")]
fn too_little_is_told_in_numbers_that_agree(#[case] engine: &str, #[case] expect: &str) {
    let second = NODES.replace("name: h", "name: h2").replace("name: a", "name: a2");
    let nodes = if engine.contains("tp=5") { format!("{NODES}\n---{second}") } else { NODES.to_owned() };
    let spec = format!("acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{{engine}}}");
    let decision = case(&[&model("13B", ""), RUNTIME, &nodes, &service(&spec, "")]).decide();
    let told = decision.candidates[0].accelerators.first().unwrap().evaluation.to_string();
    assert!(told.ends_with(&format!("no free capacity: {expect}")), "{told}");
}

// spec: ACC-3
#[rstest]
#[case::of_another_vendor("amd.com/gpu", true)]
#[case::the_classs_own("nvidia.com/gpu", false)]
#[case::no_accelerator("rdma/hca", false)]
fn a_resource_that_is_replaced_is_told(#[case] name: &str, #[case] warns: bool) {
    let spec = format!(
        "engine: {{runner: {{resources: {{limits: {{{name}: 8}}}}}}}}, acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}"
    );
    let decision = printed("13B", "", &spec, "");
    assert_eq!(warnings(&decision).contains(&"AcceleratorResourceReplaced"), warns, "{:?}", decision.warnings);
}

/// Of a runtime likewise; a class that the service names is what it wants, whatever the runtime says.
#[rstest]
#[case::of_another_vendor("amd.com/gpu", "", true)]
#[case::the_classs_own("nvidia.com/gpu", "", false)]
#[case::the_vendor_is_chosen("amd.com/gpu", "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}", false)]
fn a_runtimes_resource_that_is_replaced_is_told(#[case] name: &str, #[case] spec: &str, #[case] warns: bool) {
    let runtime = RUNTIME.replace("{image: i}", &format!("{{image: i, resources: {{limits: {{{name}: 1}}}}}}"));
    let mut world = case(&[&model("13B", ""), &runtime, &service(spec, "")]);
    world.supply.classes.retain(|class| class.name.starts_with("nvidia-"));
    let decision = world.decide();
    assert!(decision.feasible, "{}", decision.message);
    let told = decision.warnings.iter().find(|warning| warning.code == "AcceleratorResourceReplaced");
    assert_eq!(
        told.is_some_and(|told| told.message.contains("the runtime asks for 1 × amd.com/gpu")),
        warns,
        "{told:?}"
    );
}

#[rstest]
#[case::a_runtime_is_named("spec: {runtime: {name: srt}}", true)]
#[case::and_a_model("spec: {model: {name: m}, runtime: {name: srt}}", false)]
fn a_runtime_taken_at_its_word_is_told(#[case] spec: &str, #[case] warns: bool) {
    let service = format!("{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s}}, {spec}}}");
    let decision = case(&[&model("13B", ""), RUNTIME, &service]).decide();
    assert!(decision.feasible, "{}", decision.message);
    assert_eq!(warnings(&decision).contains(&"ModelUnstated"), warns, "{:?}", decision.warnings);
}

/// Of many rejected classes a bounded record keeps those that are told something of their own.
#[test]
fn the_rare_rejection_is_kept() {
    let spec = "acceleratorSelector: {excludedClasses: [nvidia-t4]}";
    let mut world = case(&[&model("13B", ""), RUNTIME, &service(spec, "")]);
    let copy =
        std::sync::Arc::clone(world.supply.classes.iter().find(|class| class.name == "nvidia-a100-40gb").unwrap());
    let empty = |number: u32| {
        let mut class = Class::clone(&copy);
        class.name = format!("a-{number}");
        class.availability = Some(crate::nodes::Availability::default());
        std::sync::Arc::new(class)
    };
    world.supply.classes =
        (0..60).map(empty).chain(world.supply.classes.iter().filter(|one| one.name == "nvidia-t4").cloned()).collect();
    let told = world.decide().for_status();
    let accelerators = &told.candidates[0].accelerators;
    assert_eq!(
        accelerators.first().map(|one| (one.class.as_str(), one.evaluation.code())),
        Some(("nvidia-t4", "ExcludedClass"))
    );
    assert_eq!(accelerators.iter().count() + told.omitted.classes, 61);
}

// A service may name the node it wants.
#[rstest]
#[case::the_node("h", true)]
#[case::another("a", false)]
fn a_node_by_its_name(#[case] name: &str, #[case] feasible: bool) {
    let term = format!("{{matchFields: [{{key: metadata.name, operator: In, values: [{name}]}}]}}");
    let required = format!("requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}");
    let spec = format!(
        "acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{affinity: {{nodeAffinity: {{{required}}}}}}}"
    );
    let decision = case(&[&model("13B", ""), RUNTIME, NODES, &service(&spec, "")]).decide();
    assert_eq!(decision.feasible, feasible, "{}", decision.message);
}

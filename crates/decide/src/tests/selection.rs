//! Tests of strategies, thresholds, capacity, and services with a custom engine.

use rstest::rstest;

use super::fixture::{Fixture, RUNTIME, fixture_with_classes, model, selection, service, warning_codes};
use crate::*;

/// The NVIDIA classes of the specification, without the T4.
fn decide_without_t4(size: &str, quantization: &str, spec: &str, annotations: &str) -> Decision {
    let mut fixture = fixture_with_classes(&[&model(size, quantization), RUNTIME, &service(spec, annotations)]);
    fixture.supply.classes.retain(|class| class.name != "nvidia-t4");
    fixture.decide()
}

#[rstest]
// spec: ACC-77
#[case::performance("13B", "", "acceleratorSelector: {strategy: performance}", "nvidia-h100-80gb", 1)]
// spec: ACC-78
#[case::cost("13B", "", "acceleratorSelector: {strategy: cost}", "nvidia-a100-40gb", 1)]
#[case::cost_of_replica("70B", "", "acceleratorSelector: {strategy: cost}", "nvidia-a100-40gb", 8)]
// spec: ACC-81
#[case::small("7B", "", "acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}", "nvidia-a100-40gb", 1)]
#[case::large("70B", "", "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}", "nvidia-h100-80gb", 4)]
#[case::large_on_small("70B", "", "acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}", "nvidia-a100-40gb", 8)]
#[case::quantized("70B", "fp8", "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}", "nvidia-h100-80gb", 2)]
#[case::largest_shape("405B", "fp8", "", "nvidia-h100-80gb", 8)]
fn selects_by_strategy_and_size(
    #[case] size: &str,
    #[case] quantization: &str,
    #[case] spec: &str,
    #[case] class: &str,
    #[case] count: u32,
) {
    let runtime = RUNTIME.replace("autoSelect", &format!("quantization: \"{quantization}\", autoSelect"));
    let mut fixture = fixture_with_classes(&[&model(size, quantization), &runtime, &service(spec, "")]);
    fixture.supply.classes.retain(|class| class.name != "nvidia-t4");
    assert_eq!(selection(&fixture.decide()), ("srt".to_owned(), class.to_owned(), count, 1));
}

// spec: ACC-79
// spec: ACC-80
#[test]
fn never_selects_t4_for_70b() {
    let decision = fixture_with_classes(&[&model("70B", ""), RUNTIME, &service("", "")]).decide();
    let t4 = decision.candidates[0].accelerators.iter().find(|candidate| candidate.class == "nvidia-t4").unwrap();
    assert_eq!(t4.evaluation.code(), "ModelDoesNotFit");
    assert_eq!(
        t4.evaluation.to_string(),
        "the model requires 168 GB of accelerator memory, with 20 % of the weights for KV cache and activations; 8 × 15.5 GB are usable (larger numbers are not tried)"
    );
}

/// Classes of other vendors without figures, and classes that need more accelerators, do not displace the faster one.
#[rstest]
#[case::performance("70B", "strategy: performance", "nvidia-h100-80gb")]
#[case::balanced("70B", "strategy: balanced", "nvidia-h100-80gb")]
#[case::small_model("7B", "strategy: balanced", "nvidia-a100-40gb")]
#[case::most_capable("13B", "policy: MostCapable", "nvidia-b200")]
// spec: ACC-77
fn classes_without_figures_change_nothing_among_the_others(
    #[case] size: &str,
    #[case] selector: &str,
    #[case] expected: &str,
) {
    let class = |name: &str, capabilities: &str| {
        format!(
            "{{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {{name: {name}}}, spec: {{vendor: nvidia, discovery: {{nodeSelector: {{gpu: {name}}}}}, capabilities: {{{capabilities}, features: [tensor-cores]}}}}}}"
        )
    };
    let b200 = class("nvidia-b200", "memoryGB: 180Gi, memoryBandwidthGBps: \"8000\", performance: {fp16TFLOPS: 2250}");
    let other = class("other", "memoryGB: 48Gi");
    let mut documents =
        vec![model(size, ""), RUNTIME.to_owned(), service(&format!("acceleratorSelector: {{{selector}}}"), "")];
    if expected == "nvidia-b200" {
        documents.push(b200);
    }
    for others in [vec![], vec![other]] {
        documents.extend(others);
        let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
        let mut fixture = fixture_with_classes(&documents);
        fixture.supply.classes.retain(|class| class.name != "nvidia-t4");
        assert_eq!(selection(&fixture.decide()).1, expected);
    }
}

#[rstest]
// spec: ACC-112
#[case::within("2.50", "nvidia-a100-40gb", false)]
#[case::none_within("0.5", "nvidia-a100-40gb", true)]
#[case::all_within("10", "nvidia-h100-80gb", false)]
fn applies_cost_threshold(#[case] threshold: &str, #[case] class: &str, #[case] exceeded: bool) {
    let selector = "acceleratorSelector: {strategy: performance}";
    let decision = decide_without_t4("13B", "", selector, &format!("ome.io/cost-threshold: \"{threshold}\""));
    assert_eq!(selection(&decision).1, class);
    assert_eq!(warning_codes(&decision).contains(&"CostThresholdExceeded"), exceeded);
}

#[rstest]
// spec: ACC-65
// spec: ACC-66
#[case::selector_of_service("acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}", "", "nvidia-a100-40gb")]
#[case::class_annotation(
    "acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}",
    "ome.io/accelerator-class: nvidia-t4",
    "nvidia-t4"
)]
#[case::strategy_of_service("acceleratorSelector: {strategy: cost}", "", "nvidia-t4")]
#[case::strategy_annotation(
    "acceleratorSelector: {strategy: cost}",
    "ome.io/selection-strategy: performance",
    "nvidia-h100-80gb"
)]
// spec: ACC-113
#[case::annotation_in_spec(
    "acceleratorSelector: {strategy: cost}, annotations: {ome.io/selection-strategy: performance}",
    "",
    "nvidia-h100-80gb"
)]
#[case::metadata_before_spec(
    "annotations: {ome.io/accelerator-class: nvidia-t4}",
    "ome.io/accelerator-class: nvidia-a100-40gb",
    "nvidia-a100-40gb"
)]
fn strongest_layer_takes_precedence(#[case] spec: &str, #[case] annotations: &str, #[case] class: &str) {
    let decision = fixture_with_classes(&[&model("7B", ""), RUNTIME, &service(spec, annotations)]).decide();
    assert_eq!(selection(&decision).1, class);
}

/// Decides a fixture with edited classes.
fn decide_with_edited_classes(mut fixture: Fixture, edit: impl Fn(&mut Class)) -> Decision {
    fixture.supply.classes.iter_mut().for_each(|class| edit(std::sync::Arc::make_mut(class)));
    fixture.decide()
}

// spec: ACC-7
// spec: ACC-78
#[test]
fn compares_only_prices_of_one_kind() {
    let with_strategy = |strategy: &str| {
        fixture_with_classes(&[
            &model("7B", ""),
            RUNTIME,
            &service(&format!("acceleratorSelector: {{strategy: {strategy}}}"), ""),
        ])
    };
    // Without prices, `balanced` equals `performance`.
    let free = decide_with_edited_classes(with_strategy("balanced"), |class| class.cost = Default::default());
    let fastest = with_strategy("performance").decide();
    assert_eq!(selection(&free), selection(&fastest));
    assert_eq!(free.components["engine"].cost_per_hour, None);
    // A class without a price ranks after classes with a price.
    let unpriced = decide_with_edited_classes(with_strategy("cost"), |class| {
        if class.name == "nvidia-t4" {
            class.cost = Default::default();
        }
    });
    assert_eq!(selection(&unpriced).1, "nvidia-a100-40gb");
    // A spot price is used only if no other price is set.
    let spot = decide_with_edited_classes(with_strategy("cost"), |class| {
        if class.name != "nvidia-t4" { class.cost.per_hour = None } else { class.cost.spot_per_hour = Some(0.01) }
    });
    assert_eq!(spot.components["engine"].cost_per_hour, Some(0.88));
    // Prices of different kinds are not compared; a warning reports it.
    let mixed_price_kinds = decide_with_edited_classes(with_strategy("cost"), |class| {
        if class.name == "nvidia-t4" {
            class.cost = supply::Cost { per_million_tokens: Some(0.001), ..Default::default() }
        }
    });
    assert_eq!(
        (selection(&mixed_price_kinds).1.as_str(), warning_codes(&mixed_price_kinds).contains(&"PriceKindsDiffer")),
        ("nvidia-a100-40gb", true)
    );
    // A class that lacks a figure ranks last; a warning reports it.
    let incomplete = decide_with_edited_classes(with_strategy("performance"), |class| {
        if class.name == "nvidia-h100-80gb" {
            class.bandwidth = None;
        }
    });
    let warning = incomplete.warnings.iter().find(|warning| warning.code == "FiguresMissing").unwrap();
    assert_eq!(
        warning.message,
        "The eligible class nvidia-h100-80gb of the engine does not declare bandwidth and ranks last"
    );
    assert_eq!(selection(&incomplete).1, "nvidia-a100-40gb");
    // Cost tiers are used if no class has a price.
    let tiered = decide_with_edited_classes(with_strategy("cost"), |class| {
        class.cost = supply::Cost { tier: class.cost.tier, ..Default::default() }
    });
    assert_eq!(selection(&tiered).1, "nvidia-t4");
}

const NODES: &str = "
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {gpu: a100, zone: x}}, status: {allocatable: {nvidia.com/gpu: 8}}}
---
{apiVersion: v1, kind: Node, metadata: {name: h, labels: {gpu: h100, zone: y}}, status: {allocatable: {nvidia.com/gpu: 8}}}";

// spec: ACC-58
// spec: ACC-70
// spec: ACC-106
#[test]
fn placement_restricts_and_conflicts() {
    let decide = |spec: &str| fixture_with_classes(&[&model("13B", ""), RUNTIME, NODES, &service(spec, "")]).decide();
    assert_eq!(selection(&decide("engine: {nodeSelector: {zone: x}}")).1, "nvidia-a100-40gb");
    let code = |decision: &Decision, class: &str| {
        let all = &decision.candidates[0].accelerators;
        all.iter().find(|candidate| candidate.class == class).unwrap().evaluation.code().to_owned()
    };
    let conflict =
        decide("engine: {nodeSelector: {zone: x}}, acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}");
    assert_eq!((conflict.feasible, code(&conflict, "nvidia-h100-80gb").as_str()), (false, "NodeSelectorConflict"));
    let narrowed = decide("acceleratorSelector: {nodeSelector: {zone: x}}");
    assert_eq!(code(&narrowed, "nvidia-h100-80gb"), "NoMatchingNodes");
    assert_eq!(code(&narrowed, "nvidia-t4"), "NoMatchingNodes");
    // A service that requires H100 waits instead of using A100 (seed 000, Story 4).
    let mut fixture = fixture_with_classes(&[
        &model("13B", ""),
        RUNTIME,
        NODES,
        &service("acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}", ""),
    ]);
    for class in &mut fixture.supply.classes {
        let class = std::sync::Arc::make_mut(class);
        class
            .availability
            .iter_mut()
            .flat_map(|known| &mut known.nodes)
            .for_each(|node| node.free = if node.name == "h" { 0 } else { 8 });
    }
    let waiting = fixture.decide();
    assert_eq!((selection(&waiting).1.as_str(), warning_codes(&waiting)), ("nvidia-h100-80gb", vec!["NoFreeCapacity"]));
}

// Engine and decoder do not share accelerators.
// spec: ACC-85
// spec: ACC-122
#[test]
fn decoder_subtracts_engine_capacity() {
    let runtime = RUNTIME.replace(
        "engineConfig",
        "decoderConfig: {runner: {image: i, resources: {limits: {nvidia.com/gpu: 8}}}}, engineConfig",
    );
    let decision = fixture_with_classes(&[
        &model("13B", ""),
        &runtime,
        NODES,
        &service("engine: {runner: {resources: {limits: {nvidia.com/gpu: 8}}}}", ""),
    ])
    .decide();
    let class = |name: &str| decision.components[name].accelerator_class.clone().unwrap();
    assert_ne!(class("engine"), class("decoder"));
    assert!(warning_codes(&decision).is_empty(), "{:?}", decision.warnings);
}

// spec: ACC-2
#[test]
fn selects_class_of_unknown_vendor() {
    let npu = "{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {name: acme-npu}, spec: {vendor: acme, discovery: {nodeSelector: {acme.com/npu: x1}}, capabilities: {memoryGB: 96, features: [tensor-cores], memoryBandwidthGBps: 9000, performance: {fp16TFLOPS: 4000}}, resources: [{name: acme.com/npu}], cost: {perHour: 1}}}";
    let decision = fixture_with_classes(&[&model("13B", ""), RUNTIME, npu, &service("", "")]).decide();
    assert_eq!(selection(&decision).1, "acme-npu");
    assert_eq!(decision.components["engine"].resource.as_deref(), Some("acme.com/npu"));
}

// spec: ACC-125
#[test]
fn ignores_classes_with_feature_gate_off() {
    let mut fixture = fixture_with_classes(&[
        &model("13B", ""),
        RUNTIME,
        &service("acceleratorSelector: {preferredClasses: [gone]}", ""),
    ]);
    assert_eq!(fixture.decide().reason, "NoEligibleAccelerator");
    fixture.supply.accelerator_aware = false;
    let decision = fixture.decide();
    assert_eq!(selection(&decision), ("srt".to_owned(), String::new(), 0, 1));
    assert!(decision.warnings.is_empty() && decision.candidates[0].accelerators.is_empty());
}

// spec: ACC-118
#[rstest]
#[case::own_engine(
    "engine: {runner: {image: i, command: [x]}}, acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}",
    "Selected",
    ""
)]
#[case::no_image("engine: {runner: {command: [x]}}", "NoEngineContainer", "")]
#[case::empty_engine("engine: {}", "NoEngineContainer", "")]
#[case::runtime_without_model("runtime: {name: srt}", "Selected", "srt")]
fn decides_without_model(#[case] spec: &str, #[case] reason: &str, #[case] runtime: &str) {
    let decision = fixture_with_classes(&[RUNTIME, &service(spec, "").replace("model: {name: m}, ", "")]).decide();
    assert_eq!((decision.reason.as_str(), selection(&decision).0.as_str()), (reason, runtime));
    if spec.contains("preferredClasses") {
        assert_eq!(selection(&decision).1, "nvidia-h100-80gb");
    }
}

#[rstest]
#[case::complete_container("{image: i, command: [x]}", true)]
#[case::image_only("{image: i}", false)]
fn custom_engine_serves_model_without_runtime(#[case] runner: &str, #[case] feasible: bool) {
    let onnx = RUNTIME.replace("safetensors", "ONNX");
    let fixture =
        fixture_with_classes(&[&model("13B", ""), &onnx, &service(&format!("engine: {{runner: {runner}}}"), "")]);
    let decision = fixture.decide();
    assert_eq!((decision.feasible, decision.runtime.is_some()), (feasible, false));
    assert_eq!(warning_codes(&decision).contains(&"NoCompatibleRuntime"), feasible, "{:?}", decision.warnings);
    assert_eq!(decision.candidates[0].rejected.as_ref().unwrap().code(), "FormatMismatch");
    let retained = decide(&fixture.demand, &fixture.supply, CurrentSelection::from_decision(&decision).as_ref());
    assert_eq!(retained.reason == "Kept", feasible);
}

/// The Pods of a retained selection run, whether the manifests or the size of the model set their accelerators; a new
/// decision needs a node of their size. An edit that requires more accelerators than recorded is a new decision.
#[rstest]
#[case::resources("13B", "engine: {runner: {resources: {limits: {nvidia.com/gpu: 8}}}}", 7, true)]
#[case::parallelism("13B", "engine: {runner: {args: [--tensor-parallel-size=8]}}", 7, true)]
#[case::model_size("230B", "", 7, true)]
#[case::no_accelerator_left("13B", "engine: {runner: {resources: {limits: {nvidia.com/gpu: 8}}}}", 1, true)]
#[case::other_request("13B", "engine: {runner: {resources: {limits: {nvidia.com/gpu: 16}}}}", 7, false)]
fn current_shape_is_retained_when_a_node_loses_accelerators(
    #[case] size: &str,
    #[case] spec: &str,
    #[case] remaining: u32,
    #[case] is_retained: bool,
) {
    let class = "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}";
    let service = service(&[spec, class].join(if spec.is_empty() { "" } else { ", " }), "");
    let fixture_with_nodes =
        |nodes: &str, service: &str| fixture_with_classes(&[&model(size, ""), RUNTIME, nodes, service]);
    let before = fixture_with_nodes(NODES, &service.replace("16", "8")).decide();
    assert_eq!(selection(&before).2, 8, "{}", before.message);
    let nodes = NODES.replace("nvidia.com/gpu: 8", &format!("nvidia.com/gpu: {remaining}"));
    let fixture = fixture_with_nodes(&nodes, &service);
    assert!(!fixture.decide().feasible, "a new decision");
    let after = decide(&fixture.demand, &fixture.supply, CurrentSelection::from_decision(&before).as_ref());
    assert_eq!(after.feasible, is_retained, "{}", after.message);
    if is_retained {
        assert_eq!((after.reason.as_str(), selection(&after)), ("Kept", selection(&before)));
        assert!(warning_codes(&after).contains(&"TooFewNodes"), "{:?}", after.warnings);
    }
}

// A current selection that no longer ranks first is retained and reported.
#[test]
fn reports_better_selection() {
    let fixture = fixture_with_classes(&[&model("13B", ""), RUNTIME, NODES, &service("", "")]);
    let mut recorded = fixture.decide();
    let engine = recorded.components.get_mut("engine").unwrap();
    let other = if engine.accelerator_class.as_deref() == Some("nvidia-h100-80gb") {
        "nvidia-a100-40gb"
    } else {
        "nvidia-h100-80gb"
    };
    engine.accelerator_class = Some(other.to_owned());
    engine.accelerators_per_node = 4;
    let retained = decide(&fixture.demand, &fixture.supply, CurrentSelection::from_decision(&recorded).as_ref());
    assert_eq!(
        selection(&retained),
        ("srt".to_owned(), other.to_owned(), 4, 1),
        "the number of accelerators is retained"
    );
    assert!(warning_codes(&retained).contains(&"DecisionStale"));
    let first = retained.candidates[0].accelerators.first().unwrap();
    assert_eq!(first.outranked.as_ref().unwrap().to_string(), "ranks higher, but the current selection is retained");
}

#[rstest]
// spec: RT-68
#[case::priority("priority: 1", "priority: 2", "", "", "priority 1 < 2")]
#[case::no_priority("modelType: x", "priority: 2", "", "", "has no priority; the selected runtime has 2")]
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
    "has no size range; the selected runtime has a one-sided size range at distance 7B"
)]
fn reports_rank_reasons(
    #[case] a: &str,
    #[case] b: &str,
    #[case] spec_of_a: &str,
    #[case] spec_of_b: &str,
    #[case] expected: &str,
) {
    let named = |name: &str, entry: &str, spec: &str| {
        RUNTIME
            .replace("name: srt", &format!("name: {name}"))
            .replace("autoSelect", &format!("{entry}, autoSelect"))
            .replace("spec: {", &format!("spec: {{{spec} "))
    };
    let decision = fixture_with_classes(&[
        &model("13B", ""),
        &named("a", a, spec_of_a),
        &named("b", b, spec_of_b),
        &service("", ""),
    ])
    .decide();
    assert_eq!(selection(&decision).0, "b");
    assert_eq!(decision.candidates[1].outranked.as_ref().unwrap().to_string(), expected);
}

// Classes that the service names are reported first, so that a bounded record contains them.
// spec: ACC-75
#[test]
fn reports_named_classes_first() {
    let spec = "acceleratorSelector: {preferredClasses: [nvidia-h1000]}";
    let decision = decide_without_t4("13B", "", spec, "");
    let classes = &decision.candidates[0].accelerators;
    let codes: Vec<_> =
        classes.iter().map(|candidate| (candidate.class.as_str(), candidate.evaluation.code())).take(2).collect();
    assert_eq!(codes[0], ("nvidia-h1000", "UnknownClass"));
    assert_eq!(codes[1].1, "NotPreferred");
}

#[rstest]
#[case::replicas("minReplicas: 3, runner: {args: [--tp=8]}", "24 required, 8 free")]
#[case::fragmented("minReplicas: 3, runner: {args: [--tp=5]}", "15 required, 16 free, but not enough on one node")]
fn reports_matching_numbers_for_insufficient_memory(#[case] engine: &str, #[case] expected: &str) {
    let second_nodes = NODES.replace("name: h", "name: h2").replace("name: a", "name: a2");
    let nodes = if engine.contains("tp=5") { format!("{NODES}\n---{second_nodes}") } else { NODES.to_owned() };
    let spec = format!("acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{{engine}}}");
    let decision = fixture_with_classes(&[&model("13B", ""), RUNTIME, &nodes, &service(&spec, "")]).decide();
    let message = decision.candidates[0].accelerators.first().unwrap().evaluation.to_string();
    assert!(message.ends_with(&format!("no free capacity: {expected}")), "{message}");
}

// spec: ACC-3
#[rstest]
#[case::other_vendor("amd.com/gpu", true)]
#[case::resource_of_the_class("nvidia.com/gpu", false)]
#[case::no_accelerator_resource("rdma/hca", false)]
fn warns_about_replaced_resource(#[case] name: &str, #[case] warns: bool) {
    let spec = format!(
        "engine: {{runner: {{resources: {{limits: {{{name}: 8}}}}}}}}, acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}"
    );
    let decision = decide_without_t4("13B", "", &spec, "");
    assert_eq!(warning_codes(&decision).contains(&"AcceleratorResourceReplaced"), warns, "{:?}", decision.warnings);
}

/// Resources of the runtime cause the same warning, unless the service sets `preferredClasses`.
#[rstest]
#[case::other_vendor("amd.com/gpu", "", true)]
#[case::resource_of_the_class("nvidia.com/gpu", "", false)]
#[case::service_prefers_class("amd.com/gpu", "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}", false)]
fn warns_about_replaced_resource_of_the_runtime(#[case] name: &str, #[case] spec: &str, #[case] warns: bool) {
    let configuration =
        "acceleratorConfigurations: [{selector: {acceleratorClass: nvidia-h100-80gb}, env: []}], engineConfig";
    let runtime = RUNTIME.replace("{image: i}", &format!("{{image: i, resources: {{limits: {{{name}: 1}}}}}}"));
    let runtime = runtime.replace("engineConfig", configuration);
    let mut fixture = fixture_with_classes(&[&model("13B", ""), &runtime, &service(spec, "")]);
    fixture.supply.classes.retain(|class| class.name.starts_with("nvidia-"));
    let decision = fixture.decide();
    assert!(decision.feasible, "{}", decision.message);
    let warning = decision.warnings.iter().find(|warning| warning.code == "AcceleratorResourceReplaced");
    assert_eq!(
        warning.is_some_and(|warning| warning.message.contains("The runtime requests 1 × amd.com/gpu")),
        warns,
        "{warning:?}"
    );
}

#[rstest]
#[case::runtime_only("spec: {runtime: {name: srt}}", true)]
#[case::runtime_and_model("spec: {model: {name: m}, runtime: {name: srt}}", false)]
fn warns_about_runtime_without_model(#[case] spec: &str, #[case] warns: bool) {
    let service = format!("{{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {{name: s}}, {spec}}}");
    let decision = fixture_with_classes(&[&model("13B", ""), RUNTIME, &service]).decide();
    assert!(decision.feasible, "{}", decision.message);
    assert_eq!(warning_codes(&decision).contains(&"ModelUnstated"), warns, "{:?}", decision.warnings);
}

// The node affinity of a service can name a node.
#[rstest]
#[case::matching_node("h", true)]
#[case::other_node("a", false)]
fn selects_node_by_name(#[case] name: &str, #[case] feasible: bool) {
    let term = format!("{{matchFields: [{{key: metadata.name, operator: In, values: [{name}]}}]}}");
    let required = format!("requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{term}]}}");
    let spec = format!(
        "acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{affinity: {{nodeAffinity: {{{required}}}}}}}"
    );
    let decision = fixture_with_classes(&[&model("13B", ""), RUNTIME, NODES, &service(&spec, "")]).decide();
    assert_eq!(decision.feasible, feasible, "{}", decision.message);
}

/// The first class of the list has eight accelerators, of which one is free; the model requires four of it, or eight of the second.
#[rstest]
#[case::second_has_capacity("preferredClasses: [nvidia-h100-80gb, nvidia-a100-40gb]", 8, "nvidia-a100-40gb")]
#[case::waits("preferredClasses: [nvidia-h100-80gb, nvidia-a100-40gb], waitForPreferred: true", 8, "nvidia-h100-80gb")]
#[case::both_are_full("preferredClasses: [nvidia-h100-80gb, nvidia-a100-40gb]", 2, "nvidia-h100-80gb")]
#[case::only_class("preferredClasses: [nvidia-h100-80gb]", 8, "nvidia-h100-80gb")]
#[case::order_of_free_classes("preferredClasses: [nvidia-a100-40gb, nvidia-h100-80gb]", 8, "nvidia-a100-40gb")]
#[case::not_allowed("preferredClasses: [nvidia-h100-80gb, nvidia-t4]", 8, "nvidia-h100-80gb")]
// spec: ACC-76
fn does_not_wait_for_a_full_class(#[case] selector: &str, #[case] free_a100: u32, #[case] expected: &str) {
    let node = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{gpu: {name}}}}}, status: {{allocatable: {{nvidia.com/gpu: 8}}}}}}"
        )
    };
    let pod = |node: &str, gpus: u32| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {node}}}, spec: {{nodeName: {node}, containers: [{{name: c, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}}}"
        )
    };
    let documents = [
        model("70B", ""),
        RUNTIME.to_owned(),
        service(&format!("acceleratorSelector: {{{selector}}}"), ""),
        node("h100"),
        node("a100"),
        pod("h100", 7),
        pod("a100", 8 - free_a100),
    ];
    let decision = fixture_with_classes(&documents.iter().map(String::as_str).collect::<Vec<_>>()).decide();
    assert_eq!(selection(&decision).1, expected, "{}", decision.message);
    let waits = expected == "nvidia-h100-80gb" || free_a100 < 8;
    assert_eq!(warning_codes(&decision).contains(&"NoFreeCapacity"), waits, "{:?}", decision.warnings);
}

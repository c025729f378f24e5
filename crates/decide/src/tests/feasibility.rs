//! Property tests: the early feasibility check agrees with the full evaluation on eligibility, free capacity and the stage of
//! the nearest rejection, for runtimes and services that use every relevant field.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{CLASSES, Fixture, fixture};
use crate::context::{ComponentTarget, DecisionContext};
use crate::*;

/// Placement, launch line and components of an engine.
const ENGINES: [&str; 12] = [
    "{}",
    "{nodeSelector: {zone: moon}}",
    "{nodeSelector: {rack: a}}",
    "{nodeSelector: {zone: moon}, leader: {nodeSelector: {zone: a}}, worker: {size: 1}}",
    "{nodeSelector: {zone: a}}",
    "{nodeSelector: {gpu: h100}}",
    "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: NotIn, values: [a]}]}]}}}}",
    "{affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}, {matchExpressions: [{key: zone, operator: In, values: [b, c]}]}]}}}}",
    "{leader: {nodeSelector: {zone: a}}, worker: {size: 1, nodeSelector: {zone: b}, runner: {command: [join]}}}",
    "{leader: {}, worker: {}}",
    "{leader: {nodeSelector: {zone: b}}, worker: {size: 2}}",
    "{minReplicas: 3}",
];

const RUNNERS: [&str; 5] = [
    "{image: i}",
    "{image: i, args: [--tp-size=4]}",
    "{image: i, args: [--tp, '16']}",
    "{image: i, resources: {limits: {nvidia.com/gpu: 2}}}",
    "{image: i, resources: {limits: {nvidia.com/gpu: 8, amd.com/gpu: 1}}}",
];

const PREFERENCES: [&str; 5] = [
    "[]",
    "[{class: nvidia-t4, score: 50}, {class: nvidia-h100-80gb, score: 90}]",
    "[{class: nvidia-t4, score: 50, conditions: [{requestSize: '<2048'}]}, {class: nvidia-h100-80gb, score: 40, conditions: [{requestSize: '>=2048'}]}]",
    "[{class: nvidia-a100-40gb, score: 70, conditions: [{modelSize: '<30B'}]}, {class: gone, score: 100}]",
    "[{class: nvidia-a100-40gb, score: 70, conditions: [{modelSize: '>30B'}, {requestSize: '>5'}]}]",
];

const CAPABILITIES: [&str; 6] = [
    "{}",
    "{memoryGB: 30}",
    "{computeCapability: '8.0'}",
    "{features: [nvlink, tensor-cores]}",
    "{memoryBandwidthGBps: 3000, memoryGB: 200}",
    "{performance: {fp16TFLOPS: 1000}}",
];

const TUNING: [&str; 3] = [
    "[]",
    "[{selector: {acceleratorClass: nvidia-a100-40gb}, runner: {args: [--tp-size=2]}}]",
    "[{selector: {acceleratorClass: nvidia-h100-80gb}, resources: {limits: {nvidia.com/gpu: 4}}}]",
];

const SERVICES: [&str; 16] = [
    "{}",
    "{acceleratorSelector: {strategy: cost}}",
    "{acceleratorSelector: {strategy: performance}}",
    "{acceleratorSelector: {preferredClasses: [nvidia-h100-80gb, nvidia-t4, nowhere]}}",
    "{acceleratorSelector: {policy: FirstAvailable, excludedClasses: [nvidia-t4]}}",
    "{acceleratorSelector: {nodeSelector: {zone: a}}}",
    "{acceleratorSelector: {nodeSelector: {zone: moon}}}",
    "{acceleratorSelector: {requiredCapabilities: {memoryGB: 200}}}",
    "{acceleratorSelector: {constraints: {architectureFamilies: [hopper]}}}",
    "{engine: {nodeSelector: {zone: b}}}",
    "{engine: {minReplicas: 2, runner: {resources: {limits: {nvidia.com/gpu: 4}}}}}",
    "{engine: {}, decoder: {minReplicas: 2}}",
    "{runtime: {name: r1}}",
    "{model: {name: m, protocolVersion: cohere}, acceleratorSelector: {strategy: cost}}",
    "{annotations: {ome.io/cost-threshold: '3'}}",
    "{annotations: {ome.io/cost-threshold: '0.1'}, acceleratorSelector: {preferredClasses: [nvidia-a100-40gb, nvidia-h100-80gb]}}",
];

fn yaml(text: &str) -> Value {
    api::parse_manifest("test", &format!("{{apiVersion: v1, kind: Value, metadata: {{name: v}}, value: {text}}}"))
        .unwrap()
        .remove(0)
        .value["value"]
        .take()
}

fn one_of<const N: usize>(texts: [&'static str; N]) -> impl Strategy<Value = Value> {
    (0..N).prop_map(move |index| yaml(texts[index]))
}

fn any_runtime() -> impl Strategy<Value = Value> {
    let sizes = one_of(["{}", "{min: 5B}", "{min: 5B, max: 9B}", "{max: 90B}", "{min: 60B}"]);
    let classes = one_of(["~", "~", "~", "[nvidia-t4, gone]", "[nvidia-a100-40gb, nvidia-h100-80gb]"]);
    let engine = (one_of(ENGINES), one_of(RUNNERS));
    let requirements = (classes, one_of(PREFERENCES), one_of(CAPABILITIES), any::<bool>());
    let decoder = one_of(["{minReplicas: 2}", "{}", "{nodeSelector: {zone: b}}", "{nodeSelector: {zone: moon}}"]);
    let decoder = prop::option::weighted(0.4, decoder);
    let flags = (any::<bool>(), prop::bool::weighted(0.9), decoder, prop::option::of(1..3i32), 0..3u8);
    (sizes, engine, requirements, one_of(TUNING), flags).prop_map(
        |(size, (mut engine, runner), (classes, preferences, capabilities, has_requirements), tuning, flags)| {
            let (namespaced, selectable, decoder, priority, day) = flags;
            engine["runner"] = runner;
            let mut spec = json!({
                "supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "autoSelect": selectable, "priority": priority}],
                "modelSizeRange": size, "acceleratorConfigurations": tuning, "engineConfig": engine,
            });
            if has_requirements {
                spec["acceleratorRequirements"] =
                    json!({"preferenceOrder": preferences, "requiredCapabilities": capabilities});
                if !classes.is_null() {
                    spec["acceleratorRequirements"]["supportedClasses"] = classes;
                }
            }
            if let Some(mut decoder) = decoder {
                decoder["runner"] = json!({"image": "i"});
                spec["decoderConfig"] = decoder;
            }
            json!({"apiVersion": "ome.io/v1beta1", "kind": if namespaced { "ServingRuntime" } else { "ClusterServingRuntime" },
                "metadata": {"creationTimestamp": format!("2026-01-0{}T00:00:00Z", day + 1)}, "spec": spec})
        },
    )
}

fn any_nodes() -> impl Strategy<Value = Vec<Value>> {
    let gpu = prop_oneof![Just("t4"), Just("a100"), Just("h100")];
    let zone = prop_oneof![Just("a"), Just("b"), Just("c")];
    let node_type = (gpu, zone, 0..9u32, prop::bool::weighted(0.2));
    prop::collection::vec(node_type, 0..9).prop_map(|nodes| {
        let node = |(index, (gpu, zone, count, cordoned)): (usize, (&str, &str, u32, bool))| {
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("n{index}"), "labels": {"gpu": gpu, "zone": zone}},
                "spec": {"unschedulable": cordoned}, "status": {"allocatable": {"nvidia.com/gpu": count}}})
        };
        nodes.into_iter().enumerate().map(node).collect()
    })
}

/// Generates runtimes, nodes with accelerators in use, a model and a service.
fn any_fixture() -> impl Strategy<Value = Fixture> {
    let runtimes = prop::collection::vec(any_runtime(), 0..8);
    let sizes = one_of(["7B", "70B", "~"]);
    (runtimes, any_nodes(), one_of(SERVICES), sizes, 0..4u32).prop_map(|(mut runtimes, nodes, mut spec, size, used)| {
        for (index, runtime) in runtimes.iter_mut().enumerate() {
            runtime["metadata"]["name"] = json!(format!("r{index}"));
        }
        let annotations = spec.as_object_mut().and_then(|spec| spec.remove("annotations"));
        if spec["model"].is_null() {
            spec["model"] = json!({"name": "m"});
        }
        let model = json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": "m"},
            "spec": {"modelFormat": {"name": "safetensors"}, "modelArchitecture": "LlamaForCausalLM", "modelParameterSize": size}});
        let service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": "s", "namespace": "default", "annotations": annotations}, "spec": spec});
        let mut fixture = fixture(&[CLASSES, &Value::Array([runtimes, nodes, vec![model, service]].concat()).to_string()]);
        for class in &mut fixture.supply.classes {
            let known = std::sync::Arc::make_mut(class).availability.iter_mut();
            known.flat_map(|known| &mut known.nodes).for_each(|node| node.free = node.free.saturating_sub(used));
        }
        fixture
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn feasibility_matches_full_evaluation(fixture in any_fixture()) {
        let context = DecisionContext::new(&fixture.demand, &fixture.supply, Runtime::custom_engine(), None);
        for runtime in &fixture.supply.runtimes {
            let Ok(format) = check_compatibility(&fixture.demand, runtime) else { continue };
            let mut reservations = Vec::new();
            for evaluation in assessment::evaluate_components(&context, runtime) {
                let component = evaluation.component;
                let target = ComponentTarget { component, runtime, format };
                let feasibility = context.feasibility(target, &reservations);
                prop_assert_eq!(feasibility, evaluation.feasibility(), "{} {:?}", runtime.name, component);
                if let Some(feasibility) = context.feasibility_beside(target, reservations.len()) {
                    prop_assert_eq!(feasibility, evaluation.feasibility(), "{} {:?}", runtime.name, component);
                }
                reservations.extend(evaluation.reservation());
            }
        }
    }

    #[test]
    fn eligible_nodes_are_those_of_the_merged_placement(fixture in any_fixture()) {
        let demand = &fixture.demand.components[&Component::Engine];
        for runtime in &fixture.supply.runtimes {
            let engine = &runtime.components[&Component::Engine];
            if engine.roles.constrain_nodes() || demand.roles.constrain_nodes() {
                continue;
            }
            let pool = node_pool::NodePool::new(fixture.supply.classes.len());
            for (index, class) in fixture.supply.classes.iter().enumerate() {
                let placement = merge_placement(class, engine, demand);
                let nodes = class.availability.as_ref().map(|availability| &availability.nodes).into_iter().flatten();
                let accepted = nodes.filter(|node| placement.accepts(&node.name, node.labels.as_ref().unwrap()));
                let expected = accepted.fold((0, 0), |sum, node| (sum.0 + node.available(), sum.1 + node.total));
                let eligible = pool.eligible_nodes((index, class), engine, demand, &[]);
                let capacity = eligible.map_or((0, 0), |nodes| (nodes.all.free(), nodes.all.total()));
                prop_assert_eq!(capacity, expected);
            }
        }
    }
}

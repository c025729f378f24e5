//! Tests of remedies: each constraint is lifted alone; the remedy names the value to write and the resulting decision.

use rstest::rstest;

use super::fixture::{self, CLASSES, fixture};
use crate::*;

const MODEL: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.45.0}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 30B}}";
/// 30B parameters require 72 GB: one H100, two A100s or eight T4s.
const RUNTIME: &str = "{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {name: srt}, spec: {disabled: false, supportedModelFormats: [{modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.45.0}, modelArchitecture: LlamaForCausalLM, autoSelect: true}], modelSizeRange: {min: 20B, max: 40B}, acceleratorRequirements: {requiredCapabilities: {features: [tensor-cores]}}, engineConfig: {runner: {image: i}}}}";
const SERVICE: &str =
    "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: s}, spec: {model: {name: m}}}";
/// Each class has one node with eight accelerators.
const NODES: &str = "
{apiVersion: v1, kind: Node, metadata: {name: t, labels: {gpu: t4}}, status: {allocatable: {nvidia.com/gpu: 8}}}
---
{apiVersion: v1, kind: Node, metadata: {name: a, labels: {gpu: a100}}, status: {allocatable: {nvidia.com/gpu: 8}}}
---
{apiVersion: v1, kind: Node, metadata: {name: h, labels: {gpu: h100}}, status: {allocatable: {nvidia.com/gpu: 8}}}";

fn remedies_for(model: &str, runtime: &str, service: &str, nodes: &str) -> Vec<String> {
    let all = [model, runtime, service, nodes].join("\n---\n");
    let fixture = fixture(&[CLASSES, &all]);
    find_remedies(&fixture.demand, &fixture.supply, None).iter().map(ToString::to_string).collect()
}

#[rstest]
#[case::feasible("", "", "")]
#[case::disabled("disabled: false", "disabled: true", "remove spec.disabled from runtime srt: srt on")]
#[case::auto_select(
    "autoSelect: true",
    "autoSelect: false",
    "set spec.runtime.name to srt, whose autoSelect is off: srt on"
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
    "add a runtime for framework version 4.45.0, such as a copy of srt: set modelFramework.version to \"4.45.0\", or to a later version with operator GreaterThanOrEqual: srt on"
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
    "add nvidia-h100-80gb to acceleratorRequirements.supportedClasses of runtime srt: srt on 1 × nvidia-h100-80gb"
)]
#[case::required(
    "features: [tensor-cores]",
    "memoryGB: 100",
    "lower the required memory to 80Gi in acceleratorRequirements of runtime srt: srt on"
)]
#[case::count("image: i", "image: i, resources: {limits: {nvidia.com/gpu: 0}}, args: [--tp-size=1], command: [x]", "")]
fn proposes_runtime_changes(#[case] from: &str, #[case] to: &str, #[case] expected: &str) {
    let remedies = remedies_for(MODEL, &RUNTIME.replacen(from, to, 1), SERVICE, NODES);
    match expected {
        "" => assert!(remedies.is_empty(), "{remedies:?}"),
        expected => assert!(remedies[0].starts_with(expected), "{remedies:?}"),
    }
}

#[rstest]
#[case::runtime_name("runtime: {name: srtt}", "change spec.runtime.name from srtt to srt: srt on")]
#[case::class_name(
    "acceleratorSelector: {preferredClasses: [nvidia-h100]}",
    "replace nvidia-h100 with nvidia-h100-80gb in spec.acceleratorSelector.preferredClasses: srt on 1 × nvidia-h100-80gb"
)]
#[case::preferred(
    "acceleratorSelector: {preferredClasses: [tpu-v6e]}",
    "add nvidia-h100-80gb to spec.acceleratorSelector.preferredClasses: srt on 1 × nvidia-h100-80gb"
)]
#[case::excluded(
    "acceleratorSelector: {excludedClasses: [nvidia-t4, nvidia-a100-40gb, nvidia-h100-80gb]}",
    "remove nvidia-h100-80gb from excludedClasses: srt on"
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
    "lower the required compute capability to \"9.0\" in spec.acceleratorSelector: srt on"
)]
#[case::feature(
    "acceleratorSelector: {requiredCapabilities: {features: [fp4, nvlink]}}",
    "remove fp4 from the required features in spec.acceleratorSelector: srt on"
)]
#[case::bandwidth(
    "acceleratorSelector: {requiredCapabilities: {memoryBandwidthGBps: 8000}}",
    "lower memoryBandwidthGBps to \"3350\" in spec.acceleratorSelector: srt on"
)]
#[case::selector(
    "acceleratorSelector: {nodeSelector: {zone: moon}}",
    "remove zone: moon from spec.acceleratorSelector.nodeSelector, or add the label to nodes: srt on"
)]
#[case::placement(
    "engine: {nodeSelector: {zone: moon}}",
    "remove zone: moon from the nodeSelector of the service, or add the label to nodes: srt on"
)]
#[case::count(
    "engine: {runner: {resources: {limits: {nvidia.com/gpu: 1}}}}, acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}",
    "add nvidia-h100-80gb to spec.acceleratorSelector.preferredClasses: srt on 1 × nvidia-h100-80gb"
)]
fn proposes_changes_of_the_service(#[case] spec: &str, #[case] expected: &str) {
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, {spec}"));
    let remedies = remedies_for(MODEL, RUNTIME, &service, NODES);
    assert!(remedies[0].starts_with(expected), "{remedies:#?}");
}

#[rstest]
#[case::fixed(
    "engine: {runner: {resources: {limits: {nvidia.com/gpu: 1}}}}, acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}",
    "request 2 accelerators per node in the service (by --tensor-parallel-size or resources): srt on 2 × nvidia-a100-40gb"
)]
#[case::quantized(
    "engine: {runner: {resources: {limits: {nvidia.com/gpu: 1}}}}, acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}",
    "use the model quantized to int4, with a runtime that supports it: srt on 1 × nvidia-a100-40gb"
)]
fn also_proposes_changes_of_the_service(#[case] spec: &str, #[case] expected: &str) {
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, {spec}"));
    let remedies = remedies_for(MODEL, RUNTIME, &service, NODES);
    assert!(remedies.iter().any(|remedy| remedy.starts_with(expected)), "{remedies:#?}");
}

/// Two constraints fail, so neither change is sufficient alone.
#[rstest]
#[case::disabled_and_excluded(
    RUNTIME.replacen("disabled: false", "disabled: true", 1),
    "acceleratorSelector: {excludedClasses: [nvidia-t4, nvidia-a100-40gb, nvidia-h100-80gb]}",
    "remove spec.disabled from runtime srt, and then remove nvidia-h100-80gb from excludedClasses: srt on"
)]
#[case::disabled_and_misspelled(
    RUNTIME.replacen("disabled: false", "disabled: true", 1),
    "runtime: {name: srt}, acceleratorSelector: {preferredClasses: [nvidia-h100]}",
    "remove spec.disabled from runtime srt, and then replace nvidia-h100 with nvidia-h100-80gb in"
)]
#[case::not_automatic_and_other_zone(
    RUNTIME.replacen("autoSelect: true", "autoSelect: false", 1),
    "engine: {nodeSelector: {zone: moon}}",
    "set spec.runtime.name to srt, whose autoSelect is off, and then remove zone: moon from"
)]
#[case::excluded_and_other_zone(
    RUNTIME.to_owned(),
    "engine: {nodeSelector: {zone: moon}}, acceleratorSelector: {excludedClasses: [nvidia-t4, nvidia-a100-40gb, nvidia-h100-80gb]}",
    "remove nvidia-a100-40gb, nvidia-h100-80gb, nvidia-t4 from excludedClasses, and then remove zone: moon from"
)]
fn proposes_two_changes(#[case] runtime: String, #[case] spec: &str, #[case] expected: &str) {
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, {spec}"));
    let remedies = remedies_for(MODEL, &runtime, &service, NODES);
    assert!(remedies.first().is_some_and(|remedy| remedy.starts_with(expected)), "{remedies:#?}");
    assert!(remedies.len() <= 2, "{remedies:#?}");
}

#[test]
fn proposes_model_changes() {
    let disabled = MODEL.replace("spec: {", "spec: {disabled: true, ");
    assert!(
        remedies_for(&disabled, RUNTIME, SERVICE, NODES)[0].starts_with("remove spec.disabled from model m: srt on")
    );
    let without_version = MODEL.replace(", version: 4.45.0", "");
    let remedies = remedies_for(&without_version, RUNTIME, SERVICE, NODES);
    assert!(
        remedies[0].starts_with(
            "set the fields of model m that runtime srt requires, if they apply: spec.modelFramework.version: \"4.45.0\": srt on"
        ),
        "{remedies:?}"
    );
}

#[test]
fn proposes_additional_nodes() {
    let cpu_node = "{apiVersion: v1, kind: Node, metadata: {name: cpu}, status: {}}";
    let remedies = remedies_for(MODEL, RUNTIME, SERVICE, cpu_node);
    assert!(
        remedies[0].starts_with("add 1 node with 1 × nvidia-h100-80gb: srt on 1 × nvidia-h100-80gb"),
        "{remedies:?}"
    );
}

/// If the service is feasible but its class has no free capacity, the remedies are another class, the number of accelerators
/// to free, or a node to add.
#[test]
fn proposes_free_capacity() {
    let all = [MODEL, RUNTIME, SERVICE, NODES].join("\n---\n");
    let mut fixture = fixture(&[CLASSES, &all]);
    let selector = &mut fixture.demand.components.get_mut(&Component::Engine).unwrap().selector;
    selector.preferred = vec!["nvidia-a100-40gb".to_owned(), "nvidia-h100-80gb".to_owned()];
    selector.wait_for_preferred = true;
    for class in &mut fixture.supply.classes {
        let is_in_use = class.name == "nvidia-a100-40gb";
        let class = std::sync::Arc::make_mut(class);
        class
            .availability
            .iter_mut()
            .flat_map(|known| &mut known.nodes)
            .for_each(|node| node.free = if is_in_use { 1 } else { 8 });
    }
    let remedies: Vec<String> =
        find_remedies(&fixture.demand, &fixture.supply, None).iter().map(ToString::to_string).collect();
    assert!(
        remedies[0].starts_with("set spec.acceleratorSelector.preferredClasses to [nvidia-h100-80gb]: srt on 1"),
        "{remedies:?}"
    );
    assert!(
        remedies[1].starts_with("free 1 more accelerator of class nvidia-a100-40gb: srt on 2 × nvidia-a100-40gb"),
        "{remedies:?}"
    );
    assert!(
        remedies[2].starts_with("add 1 node with 8 × nvidia-a100-40gb: srt on 2 × nvidia-a100-40gb"),
        "{remedies:?}"
    );
    // Also proposes a class that the service does not prefer yet.
    fixture.demand.components.get_mut(&Component::Engine).unwrap().selector.preferred.pop();
    let with_one_preferred: Vec<String> =
        find_remedies(&fixture.demand, &fixture.supply, None).iter().map(ToString::to_string).collect();
    let changes = |remedies: &[String]| {
        remedies.iter().filter_map(|remedy| Some(remedy.split_once(": ")?.0.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(changes(&with_one_preferred), changes(&remedies));
}

/// Replicas of one H100 each, on one node with eight, four of which are free. The service waits only if the node would
/// suffice without other workloads; otherwise no number of accelerators to free is proposed.
#[rstest]
#[case::waits(
    8,
    "NoFreeCapacity: Waiting for free accelerators: the engine requires 8 × nvidia-h100-80gb, and 4 of 8 are free on eligible nodes",
    &["free 4 more accelerators of class nvidia-h100-80gb", "add 1 node with 8 × nvidia-h100-80gb"]
)]
#[case::too_few_nodes(
    16,
    "TooFewNodes: Too few nodes: the engine requires 16 × nvidia-h100-80gb (1 per Pod), and even without other workloads the eligible nodes have 8, enough for 8 of 16 Pods",
    &["add 2 nodes with 8 × nvidia-h100-80gb each"]
)]
#[case::more_nodes_than_are_proposed(
    1000,
    "TooFewNodes: Too few nodes: the engine requires 1000 × nvidia-h100-80gb (1 per Pod), and even without other workloads the eligible nodes have 8, enough for 8 of 1000 Pods",
    &[]
)]
fn proposes_what_suffices_on_the_resulting_fleet(
    #[case] replicas: u32,
    #[case] expected_warning: &str,
    #[case] expected_changes: &[&str],
) {
    let fixture = fixture_with_four_free(RUNTIME, replicas);
    let decision = fixture.decide();
    let warnings: Vec<String> =
        decision.warnings.iter().map(|warning| format!("{}: {}", warning.code, warning.message)).collect();
    assert_eq!(warnings, [expected_warning]);
    let remedies = find_remedies(&fixture.demand, &fixture.supply, None);
    assert!(remedies.iter().all(|remedy| components_without_capacity(&remedy.outcome) == 0));
    let changes: Vec<String> = remedies.iter().map(|remedy| remedy.change.to_string()).collect();
    assert_eq!(changes, expected_changes);
}

/// Nodes with eight H100s as `name:state:free`, and a service with replicas of one H100 each. Uncordoning is the first proposal,
/// with as few nodes as suffice; accelerators to free are counted on schedulable nodes only.
#[rstest]
#[case::drained_node(
    "a:cordoned:8",
    8,
    "Waiting for schedulable nodes: the engine requires 8 × nvidia-h100-80gb, and 0 of 8 are free on eligible nodes; \
     1 of 1 node is cordoned: a",
    &["uncordon the node: `kubectl uncordon a`", "add 1 node with 8 × nvidia-h100-80gb"]
)]
#[case::as_few_nodes_as_suffice(
    "a:cordoned:2 b:cordoned:8 c:cordoned:6 d::0",
    10,
    "Waiting for schedulable nodes: the engine requires 10 × nvidia-h100-80gb, and 0 of 32 are free on eligible nodes; \
     3 of 4 nodes are cordoned: a, b, c",
    &["uncordon the nodes: `kubectl uncordon b c`", "add 2 nodes with 8 × nvidia-h100-80gb each"]
)]
#[case::cordoned_node_is_in_use(
    "a:cordoned:0 b::0",
    8,
    "Waiting for free accelerators: the engine requires 8 × nvidia-h100-80gb, and 0 of 16 are free on eligible nodes",
    &["free 8 more accelerators of class nvidia-h100-80gb", "add 1 node with 8 × nvidia-h100-80gb"]
)]
#[case::node_that_is_not_ready(
    "a:not-ready:8",
    8,
    "Waiting for schedulable nodes: the engine requires 8 × nvidia-h100-80gb, and 0 of 8 are free on eligible nodes; \
     1 of 1 node is not ready: a",
    &["make a ready (`kubectl describe node a` shows why it is not)", "add 1 node with 8 × nvidia-h100-80gb"]
)]
#[case::cordoned_node_that_is_not_ready(
    "a:cordoned,not-ready:8",
    8,
    "Waiting for schedulable nodes: the engine requires 8 × nvidia-h100-80gb, and 0 of 8 are free on eligible nodes; \
     1 of 1 node is not ready: a",
    &["make a ready (`kubectl describe node a` shows why it is not), and then uncordon the node: `kubectl uncordon a`",
      "add 1 node with 8 × nvidia-h100-80gb"]
)]
#[case::uncordoning_does_not_suffice(
    "a:cordoned:8 b::0",
    16,
    "Waiting for free accelerators: the engine requires 16 × nvidia-h100-80gb, and 0 of 16 are free on eligible nodes; \
     1 of 2 nodes is cordoned: a",
    &["uncordon the node: `kubectl uncordon a`, and then add 1 node with 8 × nvidia-h100-80gb",
      "add 2 nodes with 8 × nvidia-h100-80gb each"]
)]
fn proposes_to_uncordon_nodes(
    #[case] nodes: &str,
    #[case] replicas: u32,
    #[case] expected_warning: &str,
    #[case] expected_remedies: &[&str],
) {
    let mut fixture = fixture_with_four_free(RUNTIME, replicas);
    let node = |text: &str| {
        let fields: Vec<&str> = text.split(':').collect();
        let labels = std::collections::BTreeMap::from([("gpu".to_owned(), "h100".to_owned())]);
        ClassNode {
            name: fields[0].to_owned(),
            labels: Some(labels.into()),
            cordoned: fields[1].contains("cordoned"),
            not_ready: fields[1].contains("not-ready"),
            total: 8,
            free: fields[2].parse().unwrap(),
            ..ClassNode::default()
        }
    };
    set_h100_nodes(&mut fixture, nodes.split(' ').map(node).collect());
    let warnings: Vec<String> = fixture.decide().warnings.into_iter().map(|warning| warning.message).collect();
    assert_eq!(warnings, [expected_warning]);
    let remedies = find_remedies(&fixture.demand, &fixture.supply, None);
    assert!(remedies.iter().all(|remedy| components_without_capacity(&remedy.outcome) == 0));
    let texts: Vec<String> = remedies.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), expected_remedies.len(), "{texts:#?}");
    for (text, expected) in texts.iter().zip(expected_remedies) {
        assert!(text.starts_with(&format!("{expected}: srt on 1 ×")), "{texts:#?}");
    }
}

fn set_h100_nodes(fixture: &mut fixture::Fixture, nodes: Vec<ClassNode>) {
    let is_h100 = |class: &&mut std::sync::Arc<Class>| class.name == "nvidia-h100-80gb";
    let class = fixture.supply.classes.iter_mut().find(is_h100).unwrap();
    std::sync::Arc::make_mut(class).availability = Some(Availability { nodes });
}

/// A cordon does not stop Pods, so a service whose Pods run on the cordoned node waits for nothing.
#[rstest]
#[case::all_replicas_run(8, false, 0)]
#[case::one_replica_has_no_node(7, false, 1)]
#[case::node_is_not_ready(8, true, 1)]
#[case::no_replica_runs(0, false, 1)]
fn pods_on_a_cordoned_node_continue_to_run(
    #[case] used_by_service: u32,
    #[case] not_ready: bool,
    #[case] expected_warnings: usize,
) {
    let mut fixture = fixture_with_four_free(RUNTIME, 8);
    let labels = std::collections::BTreeMap::from([("gpu".to_owned(), "h100".to_owned())]);
    let node = ClassNode {
        name: "a".to_owned(),
        labels: Some(labels.into()),
        cordoned: true,
        not_ready,
        total: 8,
        free: 8,
        used_by_service,
        ..ClassNode::default()
    };
    set_h100_nodes(&mut fixture, vec![node]);
    assert_eq!(fixture.decide().warnings.len(), expected_warnings);
}

/// A node that loses an accelerator stops no Pod, so a service whose Pods run waits for nothing. Other services use `others` of
/// the accelerators.
#[rstest]
#[case::all_replicas_run(8, 4, 4, 4, 0)]
#[case::one_replica_has_no_accelerator(8, 5, 4, 4, 1)]
#[case::running_replicas_of_a_smaller_node(7, 4, 4, 4, 0)]
#[case::one_replica_does_not_run(7, 4, 4, 3, 1)]
#[case::node_would_be_too_small(7, 8, 0, 8, 0)]
#[case::pods_would_not_fit_on_the_empty_node(7, 8, 0, 7, 1)]
fn pods_of_a_node_that_lost_an_accelerator_continue_to_run(
    #[case] total: u32,
    #[case] replicas: u32,
    #[case] others: u32,
    #[case] used_by_service: u32,
    #[case] expected_warnings: usize,
) {
    let mut fixture = fixture_with_four_free(RUNTIME, replicas);
    let labels = std::collections::BTreeMap::from([("gpu".to_owned(), "h100".to_owned())]);
    let free = total.saturating_sub(others);
    let node = ClassNode {
        name: "a".to_owned(),
        labels: Some(labels.into()),
        total,
        free,
        used_by_service,
        ..ClassNode::default()
    };
    set_h100_nodes(&mut fixture, vec![node]);
    assert_eq!(fixture.decide().warnings.len(), expected_warnings);
}

/// A running service retains its class when nodes are added. Without it, a new service gets nodes of the class that ranks first.
#[rstest]
#[case::new_service(false, "add 1 node with 8 × nvidia-h100-80gb")]
#[case::running_service(true, "add 3 nodes with 8 × nvidia-a100-40gb each")]
fn adds_nodes_of_the_retained_class(#[case] is_running: bool, #[case] expected: &str) {
    let service = |fields: &str| {
        let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, {fields}"));
        fixture(&[CLASSES, &[MODEL, RUNTIME, &service, NODES].join("\n---\n")])
    };
    let running = service("acceleratorSelector: {preferredClasses: [nvidia-a100-40gb]}").decide();
    let selection = CurrentSelection { runtime: running.runtime, components: running.components };
    let scaled = service("engine: {minReplicas: 16}");
    let remedies = find_remedies(&scaled.demand, &scaled.supply, is_running.then_some(&selection));
    let added: Vec<String> =
        remedies.iter().map(|remedy| remedy.change.to_string()).filter(|text| text.starts_with("add")).collect();
    assert_eq!(added, [expected]);
}

/// A new node has another name.
#[rstest]
#[case::selector("nodeSelector: {kubernetes.io/hostname: h}", false)]
#[case::affinity(
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [h]}]}]}}}",
    false
)]
#[case::other_label("nodeSelector: {zone: a}", true)]
fn proposes_no_nodes_that_the_service_does_not_accept(#[case] placement: &str, #[case] expected: bool) {
    let fields = format!(
        "model: {{name: m}}, acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{{placement}}}"
    );
    let service = SERVICE.replace("model: {name: m}", &fields);
    let nodes = NODES.replace("gpu: h100}", "gpu: h100, zone: a, kubernetes.io/hostname: h}");
    let mut fixture = fixture(&[CLASSES, &[MODEL, RUNTIME, &service, &nodes].join("\n---\n")]);
    for class in &mut fixture.supply.classes {
        let class = std::sync::Arc::make_mut(class);
        class.availability.iter_mut().flat_map(|known| &mut known.nodes).for_each(|node| node.free = 0);
    }
    let remedies = find_remedies(&fixture.demand, &fixture.supply, None);
    assert!(!remedies.is_empty());
    let adds_nodes = |remedy: &Remedy| matches!(remedy.change, ProposedChange::AddNodes { .. });
    assert_eq!(remedies.iter().any(adds_nodes), expected, "{remedies:#?}");
}

/// Enabling the runtime does not suffice, so the nodes to add are part of the same proposal.
#[test]
fn combines_a_change_with_the_nodes_that_it_needs() {
    let fixture = fixture_with_four_free(&RUNTIME.replace("disabled: false", "disabled: true"), 16);
    let remedies: Vec<String> =
        find_remedies(&fixture.demand, &fixture.supply, None).iter().map(ToString::to_string).collect();
    let expected = "remove spec.disabled from runtime srt, and then add 2 nodes with 8 × nvidia-h100-80gb each: srt on";
    assert!(remedies[0].starts_with(expected), "{remedies:#?}");
}

/// Returns a service that allows only the class of one node, four of whose eight accelerators are free.
fn fixture_with_four_free(runtime: &str, replicas: u32) -> fixture::Fixture {
    let fields = format!(
        "model: {{name: m}}, acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{minReplicas: {replicas}}}"
    );
    let service = SERVICE.replace("model: {name: m}", &fields);
    let mut fixture = fixture(&[CLASSES, &[MODEL, runtime, &service, NODES].join("\n---\n")]);
    for class in &mut fixture.supply.classes {
        let class = std::sync::Arc::make_mut(class);
        class.availability.iter_mut().flat_map(|known| &mut known.nodes).for_each(|node| node.free = 4);
    }
    fixture
}

/// A count that no node provides is rejected; the remedy proposes a count that a node provides.
#[rstest]
#[case::by_flag("runner: {args: [--tp-size=16]}", "in the service", "the service sets --tp-size to 16")]
#[case::by_resources(
    "runner: {resources: {limits: {nvidia.com/gpu: 16}}}",
    "in the service",
    "the service sets nvidia.com/gpu to 16"
)]
#[case::in_the_runtime("", "in runtime srt", "the runtime sets --tp to 16")]
fn proposes_count_that_a_node_provides(#[case] engine: &str, #[case] path: &str, #[case] stated: &str) {
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, engine: {{{engine}}}"));
    let runner = if engine.is_empty() { "runner: {image: i, args: [--tp=16]}" } else { "runner: {image: i}" };
    let runtime = RUNTIME.replace("runner: {image: i}", runner);
    let decision = fixture(&[CLASSES, &[MODEL, &runtime, &service, NODES].join("\n---\n")]).decide();
    assert_eq!((decision.feasible, decision.reason.as_str()), (false, "NoEligibleAccelerator"));
    let classes: Vec<String> = decision.candidates[0]
        .accelerators
        .iter()
        .map(|candidate| format!("{} {}: {}", candidate.class, candidate.evaluation.code(), candidate.evaluation))
        .collect();
    assert_eq!(
        classes[0],
        format!(
            "nvidia-a100-40gb TooManyPerNode: 16 accelerators per node are requested ({stated}); the largest node of the class has 8"
        )
    );
    let remedies = remedies_for(MODEL, &runtime, &service, NODES);
    assert!(remedies[0].starts_with(&format!("request 8 accelerators per node {path} (")), "{remedies:#?}");
}

/// A count that exceeds one node is feasible if the model may run on several nodes, or if the node size is unknown.
#[test]
fn splits_count_over_several_nodes() {
    let engine = "engine: {leader: {runner: {image: i, args: [--tp-size=16]}}, worker: {runner: {image: i}}}";
    let service = SERVICE.replace("model: {name: m}", &format!("model: {{name: m}}, {engine}"));
    let decide_with_nodes =
        |nodes: &str| fixture(&[CLASSES, &[MODEL, RUNTIME, &service, nodes].join("\n---\n")]).decide();
    let engine = decide_with_nodes(NODES).components["engine"].clone();
    assert_eq!((engine.accelerators_per_node, engine.nodes), (8, 2));
    let one_node =
        SERVICE.replace("model: {name: m}", "model: {name: m}, engine: {runner: {image: i, args: [--tp-size=16]}}");
    let unknown = fixture(&[CLASSES, &[MODEL, RUNTIME, &one_node].join("\n---\n")]).decide();
    assert!(unknown.feasible, "{}", unknown.message);
}

//! Tests of taints, and of the CPU and memory of nodes.

use rstest::rstest;

use super::class_code;
use super::fixture::{Fixture, RUNTIME, fixture_with_classes, model, selection, service, warning_codes};
use crate::*;

/// A node with eight H100, 64 CPUs and 512 GiB.
fn node(name: &str, taints: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {name}, labels: {{gpu: h100}}}}, spec: {{taints: [{taints}]}}, status: {{allocatable: {{nvidia.com/gpu: 8, cpu: 64, memory: 512Gi}}}}}}"
    )
}

/// A Pod on `node` with these requests.
fn pod(node: &str, requests: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: p-{node}, namespace: default}}, spec: {{nodeName: {node}, containers: [{{name: c, resources: {{requests: {{{requests}}}}}}}]}}}}"
    )
}

const TEAM: &str = "{key: dedicated, value: \"team-a\", effect: NoSchedule}";

fn fixture(nodes: &[String], engine_of_runtime: &str, engine_of_service: &str) -> Fixture {
    let runtime = RUNTIME.replace("engineConfig: {", &format!("engineConfig: {{{engine_of_runtime}, "));
    let selector = "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}";
    let mut documents = vec![model("7B", ""), runtime, service(&format!("{selector}, {engine_of_service}"), "")];
    documents.extend(nodes.iter().cloned());
    fixture_with_classes(&documents.iter().map(String::as_str).collect::<Vec<_>>())
}

const NO_FIELDS: &str = "minReplicas: 1";

#[rstest]
#[case::dedicated(TEAM, NO_FIELDS, "", "TaintNotTolerated")]
#[case::tolerated_by_the_runtime(TEAM, "tolerations: [{key: dedicated, operator: Exists}]", "", "Eligible")]
#[case::tolerated_by_the_service(
    TEAM,
    NO_FIELDS,
    "engine: {tolerations: [{key: dedicated, value: team-a}]}",
    "Eligible"
)]
#[case::other_value(TEAM, NO_FIELDS, "engine: {tolerations: [{key: dedicated, value: team-b}]}", "TaintNotTolerated")]
#[case::accelerator_resource("{key: nvidia.com/gpu, value: present, effect: NoSchedule}", NO_FIELDS, "", "Eligible")]
#[case::accelerator_resource_that_evicts(
    "{key: nvidia.com/gpu, effect: NoExecute}",
    NO_FIELDS,
    "",
    "TaintNotTolerated"
)]
#[case::preference("{key: dedicated, effect: PreferNoSchedule}", NO_FIELDS, "", "Eligible")]
#[case::state("{key: node.kubernetes.io/disk-pressure, effect: NoSchedule}", NO_FIELDS, "", "Eligible")]
#[case::one_of_two(
    "{key: dedicated, value: \"team-a\", effect: NoSchedule}, {key: spot, effect: NoSchedule}",
    "tolerations: [{key: spot, operator: Exists}]",
    "",
    "TaintNotTolerated"
)]
// spec: ACC-70
fn taints_keep_pods_off(#[case] taints: &str, #[case] runtime: &str, #[case] service: &str, #[case] expected: &str) {
    let decision = fixture(&[node("a", taints), node("b", taints)], runtime, service).decide();
    assert_eq!(class_code(&decision, "nvidia-h100-80gb"), expected, "{}", decision.message);
}

#[test]
fn rejection_names_taint_and_nodes_with_a_remedy() {
    let fixture = fixture(&[node("a", TEAM), node("b", TEAM)], NO_FIELDS, "");
    let decision = fixture.decide();
    let rejection = decision.candidates[0].rejected.as_ref().unwrap().to_string();
    assert!(rejection.contains("do not tolerate taint dedicated=team-a:NoSchedule of nodes a, b"), "{rejection}");
    let remedies: Vec<String> =
        find_remedies(&fixture.demand, &fixture.supply, None).iter().map(ToString::to_string).collect();
    let toleration = "add to spec.engine.tolerations: {key: dedicated, value: \"team-a\", effect: NoSchedule}";
    assert!(remedies.iter().any(|remedy| remedy.starts_with(toleration)), "{remedies:?}");
}

/// A taint that is added later does not end the selection of a running service.
#[test]
fn retains_nodes_with_running_pods() {
    let mut fixture = fixture(&[node("a", TEAM)], NO_FIELDS, "");
    for class in &mut fixture.supply.classes {
        let nodes = std::sync::Arc::make_mut(class).availability.iter_mut().flat_map(|known| &mut known.nodes);
        nodes.for_each(|node| node.used_by_service = 1);
    }
    assert_eq!(class_code(&fixture.decide(), "nvidia-h100-80gb"), "Eligible");
}

/// Accelerators on nodes with a taint are neither free nor a limit.
#[test]
fn counts_only_tolerated_nodes() {
    let decision = fixture(&[node("a", TEAM), node("b", "")], NO_FIELDS, "").decide();
    let h100 = decision.candidates[0].accelerators.iter().find(|candidate| candidate.class == "nvidia-h100-80gb");
    let evaluation = h100.unwrap().evaluation.to_string();
    assert!(evaluation.ends_with("8 of 8 free"), "{evaluation}");
}

#[rstest]
#[case::cpu("image: i, resources: {requests: {cpu: 96}}", "", "InsufficientNodeResources")]
#[case::memory("image: i, resources: {requests: {cpu: 64, memory: 600Gi}}", "", "InsufficientNodeResources")]
#[case::limits("image: i, resources: {limits: {memory: 600Gi}}", "", "InsufficientNodeResources")]
#[case::exactly("image: i, resources: {requests: {cpu: 64, memory: 512Gi}}", "", "Eligible")]
#[case::sidecar(
    "image: i, resources: {requests: {cpu: 60}}",
    "engine: {runner: {env: []}, containers: [{name: proxy, image: p, resources: {requests: {cpu: 5}}}]}",
    "InsufficientNodeResources"
)]
#[case::init_container(
    "image: i, resources: {requests: {cpu: 60}}",
    "engine: {runner: {env: []}, initContainers: [{name: load, image: p, resources: {requests: {cpu: 65}}}]}",
    "InsufficientNodeResources"
)]
#[case::worker(
    "image: i, resources: {requests: {cpu: 60}}",
    "engine: {leader: {runner: {image: i}}, worker: {runner: {image: i, resources: {requests: {cpu: 65}}}}}",
    "InsufficientNodeResources"
)]
#[case::leader_beside_a_lowered_worker(
    "image: i",
    "engine: {leader: {runner: {image: i, resources: {requests: {cpu: 65}}}}, worker: {runner: {resources: {limits: {cpu: 4}}}}}",
    "InsufficientNodeResources"
)]
#[case::sidecar_of_the_leader(
    "image: i, resources: {requests: {cpu: 60}}",
    "engine: {leader: {runner: {image: i}, containers: [{name: proxy, image: p, resources: {requests: {cpu: 5}}}]}, worker: {}}",
    "InsufficientNodeResources"
)]
#[case::sidecar_with_accelerators(
    "image: i, resources: {limits: {nvidia.com/gpu: 8}}",
    "engine: {runner: {env: []}, containers: [{name: proxy, image: p, resources: {limits: {nvidia.com/gpu: 1}}}]}",
    "TooManyPerNode"
)]
#[case::lowered_by_the_service(
    "image: i, resources: {requests: {cpu: 96}}",
    "engine: {runner: {resources: {requests: {cpu: 16}}}}",
    "Eligible"
)]
#[case::raised_by_the_service(
    "image: i",
    "engine: {resources: {requests: {memory: 1Ti}}}",
    "InsufficientNodeResources"
)]
// spec: ACC-70
fn pods_fit_on_the_largest_node(#[case] runner: &str, #[case] service: &str, #[case] expected: &str) {
    let runtime = RUNTIME.replace("image: i", runner);
    let selector = "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}";
    let service = super::fixture::service(&format!("{selector}, {service}"), "");
    let decision = fixture_with_classes(&[&model("7B", ""), &runtime, &service, &node("a", "")]).decide();
    assert_eq!(class_code(&decision, "nvidia-h100-80gb"), expected, "{}", decision.message);
}

#[test]
fn rejection_names_the_resource_with_a_remedy() {
    let engine = "engine: {runner: {resources: {requests: {cpu: 96}}}}";
    let fixture = fixture(&[node("a", "")], NO_FIELDS, engine);
    let rejection = fixture.decide().candidates[0].rejected.as_ref().unwrap().to_string();
    assert!(rejection.contains("a Pod requests 96 of cpu; the largest node has 64 (a)"), "{rejection}");
    let remedies: Vec<String> =
        find_remedies(&fixture.demand, &fixture.supply, None).iter().map(ToString::to_string).collect();
    let lower = "lower requests.cpu in spec.engine.runner.resources to at most 64";
    assert!(remedies.iter().any(|remedy| remedy.starts_with(lower)), "{remedies:?}");
}

/// What other Pods request is missing only now: the service waits.
#[rstest]
#[case::free("cpu: 32, memory: 1Gi", false)]
#[case::cpu_in_use("cpu: 60", true)]
#[case::memory_in_use("memory: 500Gi", true)]
// spec: ACC-85
fn waits_for_cpu_and_memory(#[case] used: &str, #[case] waits: bool) {
    let engine = "engine: {runner: {resources: {requests: {cpu: 16, memory: 64Gi}}}}";
    let decision = fixture(&[node("a", ""), pod("a", used)], NO_FIELDS, engine).decide();
    assert_eq!(selection(&decision).1, "nvidia-h100-80gb");
    assert_eq!(warning_codes(&decision).contains(&"NoFreeCapacity"), waits, "{:?}", decision.warnings);
    if waits {
        let warning = decision.warnings.iter().find(|warning| warning.code == "NoFreeCapacity").unwrap();
        assert!(warning.message.contains("each Pod of the engine requests cpu 16, memory 64Gi"), "{}", warning.message);
    }
}

/// Three Pods of 24 CPUs do not fit on a node of 64 CPUs, even if it is empty.
#[test]
fn replicas_share_the_cpus_of_a_node() {
    let engine = "engine: {minReplicas: 3, runner: {resources: {requests: {cpu: 24}}}}";
    let decision = fixture(&[node("a", "")], NO_FIELDS, engine).decide();
    assert!(warning_codes(&decision).contains(&"TooFewNodes"), "{:?}", decision.warnings);
}

/// What the service states of one role does not replace what the runtime states of the other one.
#[rstest]
#[case::worker("worker: {runner: {resources: {limits: {cpu: 4}}}}")]
#[case::leader("leader: {runner: {resources: {limits: {cpu: 4}}}}")]
fn roles_are_merged_separately(#[case] service: &str) {
    let request = "resources: {requests: {cpu: 65}}";
    let small = "resources: {requests: {cpu: 8}}";
    let (leader, worker) = if service.starts_with("worker") { (request, small) } else { (small, request) };
    let groups = format!(
        "engineConfig: {{leader: {{runner: {{image: i, {leader}}}}}, worker: {{runner: {{image: i, command: [x], {worker}}}}}}}"
    );
    let runtime = RUNTIME.replace("engineConfig: {runner: {image: i}}", &groups);
    let selector = "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}";
    let service = super::fixture::service(&format!("{selector}, engine: {{{service}}}"), "");
    let decision = fixture_with_classes(&[&model("7B", ""), &runtime, &service, &node("a", "")]).decide();
    assert_eq!(class_code(&decision, "nvidia-h100-80gb"), "InsufficientNodeResources", "{}", decision.message);
}

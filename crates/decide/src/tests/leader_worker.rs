//! Tests of leaders and workers with separate node placement.

use rstest::rstest;

use super::fixture::{Fixture, fixture};
use crate::*;

const CLASS: &str = "apiVersion: ome.io/v1beta1
kind: AcceleratorClass
metadata: {name: h100}
spec: {vendor: nvidia, capabilities: {memoryGB: 80Gi}, discovery: {nodeSelector: {gpu: h100}}}
";

const SERVICE: &str = "apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: s}
spec:
  acceleratorSelector: {preferredClasses: [h100]}
  engine: {minReplicas: REPLICAS, runner: {name: e, image: i, command: [serve], resources: {limits: {nvidia.com/gpu: 8}}}, ROLES}
";

/// Returns a node with eight GPUs in a zone.
fn node(index: usize, place: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: n{index}, labels: {{gpu: h100, place: {place}}}}}\nstatus: {{allocatable: {{nvidia.com/gpu: 8}}, conditions: [{{type: Ready, status: 'True'}}]}}\n"
    )
}

/// Returns nodes in the given zones, and an engine.
fn fixture_with_nodes(nodes: &str, roles: &str, replicas: u32) -> Fixture {
    let nodes = nodes.split_whitespace().enumerate().map(|(index, place)| node(index, place));
    let service = SERVICE.replace("ROLES", roles).replace("REPLICAS", &replicas.to_string());
    let documents: Vec<String> = nodes.chain([CLASS.to_owned(), service]).collect();
    fixture(&[&documents.join("---\n")])
}

/// Returns the nodes of one replica, or the rejection code of the class; marks a service that waits for capacity.
fn outcome(fixture: &Fixture) -> String {
    let decision = fixture.decide();
    let is_waiting = decision.warnings.iter().any(Warning::is_capacity_shortage);
    match decision.components.get("engine").filter(|_| decision.feasible) {
        Some(engine) if is_waiting => format!("waits for {} nodes", engine.nodes),
        Some(engine) => format!("{} nodes", engine.nodes),
        None => {
            let text = format!("{decision:?}");
            if text.contains("NodeSelectorConflict") { "NodeSelectorConflict".to_owned() } else { text }
        }
    }
}

const FRONT_AND_BACK: &str =
    "leader: {nodeSelector: {place: front}}, worker: {size: 2, nodeSelector: {place: back}, runner: {command: [join]}}";
const ANYWHERE: &str = "leader: {}, worker: {size: 2}";
const LEADER_ONLY: &str = "leader: {nodeSelector: {place: front}}, worker: {size: 2}";
const WORKER_COMMAND: &str = "leader: {nodeSelector: {place: front}}, worker: {size: 2, runner: {command: [join]}}";
const WORKER_AFFINITY: &str = "leader: {}, worker: {size: 2, runner: {command: [join]}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: place, operator: In, values: [back]}]}]}}}}";

#[rstest]
#[case::separate_nodes(FRONT_AND_BACK, "front back back", 1, "3 nodes")]
#[case::no_node_for_the_leader(FRONT_AND_BACK, "back back back", 1, "NodeSelectorConflict")]
#[case::no_node_for_the_workers(FRONT_AND_BACK, "front front front", 1, "NodeSelectorConflict")]
#[case::too_few_for_the_workers(FRONT_AND_BACK, "front front back", 1, "waits for 3 nodes")]
#[case::too_few_leaders_for_two_replicas(FRONT_AND_BACK, "front back back back back back", 2, "waits for 3 nodes")]
#[case::two_replicas(FRONT_AND_BACK, "front front back back back back", 2, "3 nodes")]
#[case::unconstrained(ANYWHERE, "front back side", 1, "3 nodes")]
#[case::unconstrained_with_too_few_nodes(ANYWHERE, "front back", 1, "waits for 3 nodes")]
#[case::workers_inherit_placement_of_leader(LEADER_ONLY, "front back back", 1, "waits for 3 nodes")]
#[case::workers_with_command_are_unconstrained(WORKER_COMMAND, "front back back", 1, "3 nodes")]
#[case::affinity_without_matching_nodes(WORKER_AFFINITY, "front front front", 1, "NodeSelectorConflict")]
#[case::affinity_with_matching_nodes(WORKER_AFFINITY, "front back back", 1, "3 nodes")]
fn applies_placement_of_leader_and_workers(
    #[case] roles: &str,
    #[case] nodes: &str,
    #[case] replicas: u32,
    #[case] expected: &str,
) {
    assert_eq!(outcome(&fixture_with_nodes(nodes, roles, replicas)), expected);
}

/// A leader that only routes requires no accelerator; the workers' request determines the accelerators per node.
#[test]
fn uses_requests_of_workers() {
    let roles = "leader: {runner: {resources: {limits: {nvidia.com/gpu: 1}}}}, worker: {size: 1, runner: {command: [join], resources: {limits: {nvidia.com/gpu: 16}}}}";
    let text = format!("{:?}", fixture_with_nodes("front back", roles, 1).decide());
    assert!(text.contains("TooManyPerNode"), "{text}");
}

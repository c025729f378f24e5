//! Leaders and workers that have nodes of their own.

use rstest::rstest;

use super::fixture::{Fixture, world};
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
  engine: {minReplicas: REPLICAS, runner: {name: e, image: i, command: [serve], resources: {limits: {nvidia.com/gpu: 8}}}, PLACES}
";

/// A node of eight GPUs at that place.
fn node(name: usize, place: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Node\nmetadata: {{name: n{name}, labels: {{gpu: h100, place: {place}}}}}\nstatus: {{allocatable: {{nvidia.com/gpu: 8}}, conditions: [{{type: Ready, status: 'True'}}]}}\n"
    )
}

/// Nodes at these places, and an engine.
fn case(nodes: &str, places: &str, replicas: u32) -> Fixture {
    let nodes = nodes.split_whitespace().enumerate().map(|(name, place)| node(name, place));
    let service = SERVICE.replace("PLACES", places).replace("REPLICAS", &replicas.to_string());
    let documents: Vec<String> = nodes.chain([CLASS.to_owned(), service]).collect();
    world(&[&documents.join("---\n")])
}

/// The nodes of one replica, or the code by which the class is refused; a waiting service says so.
fn outcome(world: &Fixture) -> String {
    let decision = world.decide();
    let waits = decision.warnings.iter().any(|warning| warning.code == code::warning::NO_FREE_CAPACITY.as_str());
    match decision.components.get("engine").filter(|_| decision.feasible) {
        Some(engine) if waits => format!("waits for {} nodes", engine.nodes),
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
const TWINS: &str = "leader: {nodeSelector: {place: front}}, worker: {size: 2}";
const OWN_LINES: &str = "leader: {nodeSelector: {place: front}}, worker: {size: 2, runner: {command: [join]}}";
const BY_AFFINITY: &str = "leader: {}, worker: {size: 2, runner: {command: [join]}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: place, operator: In, values: [back]}]}]}}}}";

#[rstest]
#[case::each_has_its_own(FRONT_AND_BACK, "front back back", 1, "3 nodes")]
#[case::no_node_for_the_leader(FRONT_AND_BACK, "back back back", 1, "NodeSelectorConflict")]
#[case::no_node_for_the_workers(FRONT_AND_BACK, "front front front", 1, "NodeSelectorConflict")]
#[case::too_few_for_the_workers(FRONT_AND_BACK, "front front back", 1, "waits for 3 nodes")]
#[case::too_few_leaders_for_two_replicas(FRONT_AND_BACK, "front back back back back back", 2, "waits for 3 nodes")]
#[case::two_replicas(FRONT_AND_BACK, "front front back back back back", 2, "3 nodes")]
#[case::anywhere(ANYWHERE, "front back side", 1, "3 nodes")]
#[case::nobody_is_apart_and_there_are_too_few(ANYWHERE, "front back", 1, "waits for 3 nodes")]
#[case::workers_that_are_twins_go_where_the_leader_goes(TWINS, "front back back", 1, "waits for 3 nodes")]
#[case::workers_of_their_own_go_anywhere(OWN_LINES, "front back back", 1, "3 nodes")]
#[case::an_affinity_counts_too(BY_AFFINITY, "front front front", 1, "NodeSelectorConflict")]
#[case::an_affinity_that_holds(BY_AFFINITY, "front back back", 1, "3 nodes")]
fn what_leader_and_workers_state_counts(
    #[case] places: &str,
    #[case] nodes: &str,
    #[case] replicas: u32,
    #[case] expect: &str,
) {
    assert_eq!(outcome(&case(nodes, places, replicas)), expect);
}

/// Leaders that route need none: what a node must have is what its Pods ask for at most.
#[test]
fn what_workers_request_counts() {
    let places = "leader: {runner: {resources: {limits: {nvidia.com/gpu: 1}}}}, worker: {size: 1, runner: {command: [join], resources: {limits: {nvidia.com/gpu: 16}}}}";
    let text = format!("{:?}", case("front back", places, 1).decide());
    assert!(text.contains("TooManyPerNode"), "{text}");
}

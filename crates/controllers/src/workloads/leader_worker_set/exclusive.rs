//! Exclusive placement: with the annotation `exclusive-topology`, every group occupies a topology domain, such as a
//! rack, exclusively.
//!
//! As in the Pod webhook of the LeaderWorkerSet controller, the leader has anti-affinity to the Pods of other groups,
//! and the workers have a node selector for the domain of the leader. Therefore they are created after the leader is
//! bound.

use std::sync::Arc;

use apimachinery::object;
use serde_json::{Value, json};

use super::labels::GROUP_KEY;

const EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

/// The placement of the workers of a group.
pub(super) enum WorkerPlacement {
    /// The set does not request exclusive placement.
    Unrestricted,
    /// The topology domain of the leader's node.
    Domain { key: String, value: String },
}

/// Adds the annotation and the affinities of exclusive placement to a leader, if the set requests it.
pub(super) fn with_exclusive_affinity(mut leader: Value, set: &Value) -> Value {
    let Some(topology_key) = exclusive_topology(set).map(str::to_owned) else { return leader };
    let group = object::label(&leader, GROUP_KEY).unwrap_or_default().to_owned();
    leader["metadata"]["annotations"][EXCLUSIVE_TOPOLOGY] = json!(topology_key);
    let own_group = json!([{"key": GROUP_KEY, "operator": "In", "values": [group]}]);
    let other_groups = json!([
        {"key": GROUP_KEY, "operator": "Exists"}, {"key": GROUP_KEY, "operator": "NotIn", "values": [group]},
    ]);
    for (affinity_field, expressions) in [("podAffinity", own_group), ("podAntiAffinity", other_groups)] {
        let term = json!({"labelSelector": {"matchExpressions": expressions}, "topologyKey": topology_key});
        let affinity = object::members(&mut leader["spec"]).entry("affinity").or_insert_with(|| json!({}));
        let terms_by_policy = object::members(affinity).entry(affinity_field).or_insert_with(|| json!({}));
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = object::members(terms_by_policy).entry(required).or_insert_with(|| json!([]));
        if let Some(terms) = terms.as_array_mut() {
            terms.push(term);
        }
    }
    leader
}

/// Returns the placement of the workers of a leader, `None` while the leader has no node or the node lacks the
/// topology label.
pub(super) fn worker_placement(leader: &Value, node: &dyn Fn(&str) -> Option<Arc<Value>>) -> Option<WorkerPlacement> {
    let Some(key) = exclusive_topology(leader) else { return Some(WorkerPlacement::Unrestricted) };
    let node = node(object::text(leader, "/spec/nodeName"))?;
    let value = object::label(&node, key).unwrap_or_default();
    (!value.is_empty()).then(|| WorkerPlacement::Domain { key: key.to_owned(), value: value.to_owned() })
}

/// Returns the topology key of exclusive placement.
fn exclusive_topology(object: &Value) -> Option<&str> {
    object.pointer("/metadata/annotations")?.get(EXCLUSIVE_TOPOLOGY)?.as_str()
}

impl WorkerPlacement {
    /// Adds the annotation and node selector of the placement to a worker.
    pub(super) fn apply(&self, mut worker: Value) -> Value {
        if let Self::Domain { key, value } = self {
            worker["metadata"]["annotations"][EXCLUSIVE_TOPOLOGY] = json!(key);
            let selector = object::members(&mut worker["spec"]).entry("nodeSelector").or_insert_with(|| json!({}));
            object::members(selector).insert(key.clone(), json!(value));
        }
        worker
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_has_exclusive_affinity_and_workers_follow() {
        let set = json!({"metadata": {"annotations": {EXCLUSIVE_TOPOLOGY: "rack"}}});
        let plain_pod = json!({"metadata": {"name": "l-0", "labels": {GROUP_KEY: "k"}, "annotations": {}}, "spec": {}});
        let mut leader = with_exclusive_affinity(plain_pod.clone(), &set);
        let terms = |field: &str| {
            let terms = &leader["spec"]["affinity"][field]["requiredDuringSchedulingIgnoredDuringExecution"];
            (terms[0]["topologyKey"].clone(), terms[0]["labelSelector"]["matchExpressions"].as_array().unwrap().len())
        };
        assert_eq!(terms("podAffinity"), (json!("rack"), 1));
        assert_eq!(terms("podAntiAffinity"), (json!("rack"), 2));
        let node =
            |name: &str| (name == "n").then(|| Arc::new(json!({"metadata": {"name": "n", "labels": {"rack": "7"}}})));
        assert!(worker_placement(&leader, &node).is_none(), "the leader has no node yet");
        leader["spec"]["nodeName"] = json!("n");
        let worker = worker_placement(&leader, &node).unwrap().apply(plain_pod.clone());
        assert_eq!(worker["spec"]["nodeSelector"], json!({"rack": "7"}));
        let unrestricted = worker_placement(&plain_pod, &node).unwrap().apply(plain_pod.clone());
        assert_eq!(unrestricted, plain_pod);
    }
}

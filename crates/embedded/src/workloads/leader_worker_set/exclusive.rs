//! Exclusive placement: with the annotation `exclusive-topology` every group has a place, such as a rack, to itself.
//!
//! As the real controller's Pod webhook does it: the leader keeps away from the leaders and workers of other groups, and
//! the workers follow it to its place by a node selector, so they are made when the leader has a node.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{GROUP_KEY, label};
use crate::object;

const TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

/// Where the workers of a group have to be.
pub(super) enum Place {
    Anywhere,
    /// Topology key, its value on the leader's node, and no other.
    Only {
        key: String,
        value: String,
    },
}

/// The leader, with the annotation and the affinities that give its group a place of its own, if the set asks for that.
pub(super) fn alone(mut leader: Value, set: &Value) -> Value {
    let Some(topology) = topology(set).map(str::to_owned) else { return leader };
    let group = label(&leader, GROUP_KEY).to_owned();
    leader["metadata"]["annotations"][TOPOLOGY] = json!(topology);
    let own = json!([{"key": GROUP_KEY, "operator": "In", "values": [group]}]);
    let others = json!([
        {"key": GROUP_KEY, "operator": "Exists"}, {"key": GROUP_KEY, "operator": "NotIn", "values": [group]},
    ]);
    for (side, expressions) in [("podAffinity", own), ("podAntiAffinity", others)] {
        let term = json!({"labelSelector": {"matchExpressions": expressions}, "topologyKey": topology});
        let affinity = object::members(&mut leader["spec"]).entry("affinity").or_insert_with(|| json!({}));
        let side = object::members(affinity).entry(side).or_insert_with(|| json!({}));
        let required = "requiredDuringSchedulingIgnoredDuringExecution";
        let terms = object::members(side).entry(required).or_insert_with(|| json!([]));
        if let Some(terms) = terms.as_array_mut() {
            terms.push(term);
        }
    }
    leader
}

/// Where the leader's workers have to be; `None` as long as that is not known.
pub(super) fn place_of(leader: &Value, node: &dyn Fn(&str) -> Option<Arc<Value>>) -> Option<Place> {
    let Some(key) = topology(leader) else { return Some(Place::Anywhere) };
    let node = node(object::text(leader, "/spec/nodeName"))?;
    let value = label(&node, key);
    (!value.is_empty()).then(|| Place::Only { key: key.to_owned(), value: value.to_owned() })
}

fn topology(object: &Value) -> Option<&str> {
    object.pointer("/metadata/annotations")?.get(TOPOLOGY)?.as_str()
}

impl Place {
    /// The worker, held to the place.
    pub(super) fn narrow(&self, mut worker: Value) -> Value {
        if let Self::Only { key, value } = self {
            worker["metadata"]["annotations"][TOPOLOGY] = json!(key);
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
    fn a_leader_keeps_others_away_and_its_workers_follow() {
        let set = json!({"metadata": {"annotations": {TOPOLOGY: "rack"}}});
        let bare = json!({"metadata": {"name": "l-0", "labels": {GROUP_KEY: "k"}, "annotations": {}}, "spec": {}});
        let mut leader = alone(bare.clone(), &set);
        let terms = |side: &str| {
            let terms = &leader["spec"]["affinity"][side]["requiredDuringSchedulingIgnoredDuringExecution"];
            (terms[0]["topologyKey"].clone(), terms[0]["labelSelector"]["matchExpressions"].as_array().unwrap().len())
        };
        assert_eq!(terms("podAffinity"), (json!("rack"), 1));
        assert_eq!(terms("podAntiAffinity"), (json!("rack"), 2));
        let node =
            |name: &str| (name == "n").then(|| Arc::new(json!({"metadata": {"name": "n", "labels": {"rack": "7"}}})));
        assert!(place_of(&leader, &node).is_none(), "the leader has no node yet");
        leader["spec"]["nodeName"] = json!("n");
        let worker = place_of(&leader, &node).unwrap().narrow(bare.clone());
        assert_eq!(worker["spec"]["nodeSelector"], json!({"rack": "7"}));
        let free = place_of(&bare, &node).unwrap().narrow(bare.clone());
        assert_eq!(free, bare);
    }
}

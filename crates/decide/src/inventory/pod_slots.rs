//! Counts replicas and places Pods that fit on free accelerators.

use std::collections::BTreeMap;

use serde_json::Value;

use super::node_info::{NodeInfo, pod_requests};
use crate::nodes::{labels_match_selector, term_matches_node};
use crate::taint::{Taint, Toleration};

/// Returns how many further replicas, at most `limit`, fit on the extended resources that are free on nodes matching the node
/// selectors and the required node affinities of their Pods; `None` if these request no extended resource. A replica has the
/// given number of Pods of each template, at least one.
#[must_use]
pub fn free_replica_slots(mut nodes: Vec<NodeInfo>, replica: &[(&Value, u32)], limit: u32) -> Option<u32> {
    if replica.iter().all(|(template, _)| positive_requests(template).is_empty()) {
        return None;
    }
    if let [(template, 1)] = replica {
        return Some(place_pods(&mut nodes, template, limit));
    }
    let mut fits = || replica.iter().all(|(template, pods)| place_pods(&mut nodes, template, *pods) == *pods);
    let mut slots = 0;
    while slots < limit && fits() {
        slots += 1;
    }
    Some(slots)
}

/// Adds the requests of up to `count` Pods of `template` to the nodes on which they fit, and returns how many fit: all of them
/// if they request no extended resource.
pub fn place_pods(nodes: &mut [NodeInfo], template: &Value, count: u32) -> u32 {
    let requests = positive_requests(template);
    if requests.is_empty() {
        return count;
    }
    let mut remaining = count;
    for node in nodes.iter_mut().filter(|node| accepts(node, &template["spec"])) {
        let placed = slots_on(node, &requests).min(remaining);
        for (resource, units) in &requests {
            let requested = node.requested.entry(resource.clone()).or_default();
            *requested = requested.saturating_add(units.saturating_mul(placed));
        }
        remaining = remaining.saturating_sub(placed);
    }
    count.saturating_sub(remaining)
}

/// Returns the resources that a Pod of `template` requests; empty if it requests no extended resource.
fn positive_requests(template: &Value) -> BTreeMap<String, u32> {
    let requests: BTreeMap<String, u32> = pod_requests(template).into_iter().filter(|(_, units)| *units > 0).collect();
    if requests.keys().any(|name| name.contains('/')) { requests } else { BTreeMap::new() }
}

/// Returns how many further Pods with these requests fit on the node.
fn slots_on(node: &NodeInfo, requests: &BTreeMap<String, u32>) -> u32 {
    let is_stated = |resource: &String| resource.contains('/') || node.allocatable.contains_key(resource);
    let requests = requests.iter().filter(|(resource, _)| is_stated(resource));
    requests.map(|(resource, units)| node.free(resource) / units).min().unwrap_or(0)
}

/// Returns whether node selector, required node affinity and tolerations of a Pod spec accept the node.
fn accepts(node: &NodeInfo, pod_spec: &Value) -> bool {
    let placement = Placement::of(pod_spec);
    placement.untolerated(node).is_none() && placement.selects(node)
}

/// Placement of a Pod.
pub(super) struct Placement<'a> {
    node_name: Option<&'a str>,
    selector: BTreeMap<String, String>,
    terms: Option<&'a Vec<Value>>,
    tolerations: Vec<Toleration>,
}

// === impl Placement ===

impl<'a> Placement<'a> {
    pub(super) fn of(pod_spec: &'a Value) -> Self {
        let terms =
            pod_spec.pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms");
        let tolerations = pod_spec["tolerations"].as_array().map(Vec::as_slice).unwrap_or_default();
        Self {
            node_name: pod_spec["nodeName"].as_str(),
            selector: serde_json::from_value(pod_spec["nodeSelector"].clone()).unwrap_or_default(),
            terms: terms.and_then(Value::as_array),
            tolerations: Toleration::read_all(tolerations),
        }
    }

    /// Whether node name, node selector and required node affinity select the node.
    pub(super) fn selects(&self, node: &NodeInfo) -> bool {
        let matches = |term: &Value| term_matches_node(term, &node.name, &node.labels);
        self.node_name.is_none_or(|name| name == node.name)
            && labels_match_selector(&node.labels, &self.selector)
            && self.terms.is_none_or(|terms| terms.iter().any(matches))
    }

    /// Returns a taint of the node that the Pod does not tolerate.
    pub(super) fn untolerated<'n>(&self, node: &'n NodeInfo) -> Option<&'n Taint> {
        let is_tolerated = |taint: &Taint| self.tolerations.iter().any(|toleration| toleration.tolerates(taint));
        node.taints.iter().find(|taint| !is_tolerated(taint))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::inventory::node_info::node_infos;

    #[rstest]
    #[case::no_accelerators(json!({}), json!({}), None)]
    #[case::any_node(json!({"nvidia.com/gpu": "2"}), json!({}), Some(5))]
    #[case::too_large(json!({"nvidia.com/gpu": "9"}), json!({}), Some(0))]
    #[case::node_selector(json!({"nvidia.com/gpu": "1"}), json!({"nodeSelector": {"product": "h100"}}), Some(8))]
    #[case::affinity(json!({"nvidia.com/gpu": "1"}), json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "product", "operator": "In", "values": ["l40s"]}]}]}}}}), Some(3))]
    fn counts_free_slots(#[case] limits: Value, #[case] mut pod_spec: Value, #[case] expected: Option<u32>) {
        let node = |name: &str, product: &str, gpus: &str| json!({"metadata": {"name": name, "labels": {"product": product}}, "status": {"allocatable": {"nvidia.com/gpu": gpus}}});
        let pod =
            json!({"spec": {"nodeName": "b", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}});
        let nodes = node_infos(&[node("a", "h100", "8"), node("b", "l40s", "4")], &[pod]);
        pod_spec["containers"] = json!([{"resources": {"limits": limits}}]);
        assert_eq!(free_replica_slots(nodes, &[(&json!({"spec": pod_spec}), 1)], u32::MAX), expected);
    }

    /// Columns: GPUs of the leader and of each of the workers, number of workers, expected number of replicas on three nodes of
    /// eight GPUs.
    #[rstest]
    #[case::one_node_per_pod(8, 8, 1, Some(1))]
    #[case::whole_cluster(8, 8, 2, Some(1))]
    #[case::too_large(8, 8, 3, Some(0))]
    #[case::several_replicas(4, 2, 1, Some(4))]
    #[case::leader_without_accelerators(0, 8, 1, Some(3))]
    #[case::no_accelerators(0, 0, 1, None)]
    fn counts_replicas_of_several_pods(
        #[case] leader: u32,
        #[case] worker: u32,
        #[case] workers: u32,
        #[case] expected: Option<u32>,
    ) {
        let node = |name: &str| json!({"metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}});
        let nodes = node_infos(&["a", "b", "c"].map(node), &[]);
        let template = |gpus: u32| json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": gpus.to_string()}}}]}});
        let (leader, worker) = (template(leader), template(worker));
        let replica = [(&leader, 1), (&worker, workers)];
        assert_eq!(free_replica_slots(nodes.clone(), &replica, 9), expected);
        assert_eq!(free_replica_slots(nodes, &replica, 0), expected.map(|_| 0), "the limit");
    }

    /// Pods of two GPUs on two nodes, of which one has three free GPUs.
    #[rstest]
    #[case::first_node(1, 1, [2, 0])]
    #[case::both_nodes(3, 3, [2, 4])]
    #[case::more_than_fit(9, 5, [2, 8])]
    fn places_pods_where_they_fit(#[case] count: u32, #[case] placed: u32, #[case] requested: [u32; 2]) {
        let node = |name: &str, gpus: &str| json!({"metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/gpu": gpus}}});
        let mut nodes = node_infos(&[node("a", "3"), node("b", "8")], &[]);
        let template = json!({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}});
        assert_eq!(place_pods(&mut nodes, &template, count), placed);
        assert_eq!([0, 1].map(|index| nodes[index].requested.get("nvidia.com/gpu").copied().unwrap_or(0)), requested);
        assert_eq!(place_pods(&mut nodes, &json!({"spec": {}}), 7), 7, "Pods without accelerators fit");
    }
}
